"""Several processes, threads and forked children on one store (C5, B11, G7)."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import lastgood
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.errors import ConflictError
from lastgood.model.identity import new_id

RACER = r"""
import json, sys
import lastgood
store = lastgood.open(sys.argv[1], user="tester")
task = store.task("t")
print("ready", flush=True)
sys.stdin.readline()
try:
    print(json.dumps(["won", task.save({"by": sys.argv[2]}).id]))
except lastgood.ConflictError as error:
    head = error.head
    print(json.dumps(["lost", head.id if head else None, head.sequence if head else None]))
"""

APPENDER = r"""
import json, sys
import lastgood
store = lastgood.open(sys.argv[1], user="tester")
task = store.task("t")
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps([task.append({"by": sys.argv[2], "n": n}).id for n in range(int(sys.argv[3]))]))
"""


def _race(program: str, folder: Path, argument_lists: list[list[str]]) -> list[Any]:
    """Run `program` once for each list of arguments, all let go at the same moment; their answers."""
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments in argument_lists
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", child.communicate()[1]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        answers = []
        for child in children:
            output, errors = child.communicate(timeout=120)
            assert child.returncode == 0, errors
            answers.append(json.loads(output))
        return answers
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.parametrize("beginning", [True, False])
def test_of_two_writers_from_one_parent_exactly_one_wins(tmp_path: Path, beginning: bool) -> None:
    """C5: the loser learns where the head is now, and nothing of it is stored."""
    for n in range(4):
        folder = tmp_path / f"store {n}"
        with lastgood.open(folder, user="tester") as store:
            if not beginning:
                store.task("t").save({"by": "nobody"})
            answers = _race(RACER, folder, [["x"], ["y"]])
            assert sorted(answer[0] for answer in answers) == ["lost", "won"]
            (won,) = (answer for answer in answers if answer[0] == "won")
            (lost,) = (answer for answer in answers if answer[0] == "lost")
            assert lost[1] == won[1]
            assert lost[2] == (1 if beginning else 2)
            assert store.page_checkpoints("t").total == (1 if beginning else 2)
            head = store.task("t").head
            assert head is not None
            assert head.id == won[1]


def test_appends_of_four_processes_all_land_in_one_line(tmp_path: Path) -> None:
    """G7, B11: dense sequence numbers, an unbroken lineage, every state as its writer meant it."""
    folder = tmp_path / "store"
    with lastgood.open(folder, user="tester") as store:
        answers = _race(APPENDER, folder, [[str(n), "50"] for n in range(4)])
        _expect_one_line(store, "t", 200)
        for writer, ids in enumerate(answers):
            assert [store.get_checkpoint(id_).state for id_ in ids] == [{"by": str(writer), "n": n} for n in range(50)]


def _expect_one_line(store: lastgood.Store, task_id: str, count: int) -> None:
    page = store.page_checkpoints(task_id, 1000)
    assert page.total == count
    assert [one.sequence for one in page.checkpoints] == list(range(count, 0, -1))
    assert [one.version for one in page.checkpoints] == list(range(count, 0, -1))
    for newer, older in zip(page.checkpoints, [*page.checkpoints[1:], None], strict=True):
        assert newer.parent_id == (older.id if older else None)
        assert store.examine_checkpoint(newer.id) == []
    events = store.events(task_id, limit=1000)
    assert [event.sequence for event in events] == list(range(1, count + 1))


def _in_threads(work: Callable[[int], object], count: int) -> None:
    failures: list[str] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert failures == []


@pytest.mark.parametrize("target", ["folder", ":memory:"])
def test_threads_share_a_store(tmp_path: Path, target: str) -> None:
    """B11: on tasks of their own, and by append on one that they share."""
    with lastgood.open(tmp_path / "store" if target == "folder" else target, user="tester") as store:

        def work(n: int) -> None:
            task = store.task(f"own {n}")
            for step in range(15):
                task.save({"step": step, "log": [f"{n} {step}"] * 200})
                store.task("shared").append({"by": n, "step": step})
                assert task.state["step"] == step
                store.list_checkpoints("shared")

        _in_threads(work, 6)
        _expect_one_line(store, "shared", 90)
        for n in range(6):
            _expect_one_line(store, f"own {n}", 15)


def test_threads_share_one_handle(store: lastgood.Store) -> None:
    """Task: safe to use from several threads, one save at a time."""
    task = store.task("t")
    _in_threads(lambda n: [task.save({"by": n, "step": step}) for step in range(10)], 5)
    _expect_one_line(store, "t", 50)


def test_handles_that_conflict_leave_the_store_as_it_was(store: lastgood.Store) -> None:
    """C5: through one store object, too; a handle that refreshes goes on."""
    one, other = store.task("t"), store.task("t")
    first = one.save({"n": 1})
    with pytest.raises(ConflictError) as caught:
        other.save({"n": 2})
    assert caught.value.head is not None
    assert caught.value.head.id == first.id
    assert store.page_checkpoints("t").total == 1
    other.refresh()
    assert other.save({"n": 2}).parent_id == first.id
    with pytest.raises(ConflictError):
        one.save({"n": 3})
    assert one.append({"n": 3}).sequence == 3
    _expect_one_line(store, "t", 3)


# --- fork -------------------------------------------------------------------------------------------------


def _in_forked_child(work: Callable[[], None]) -> None:
    """Run `work` in a fork of this process; it must end by itself, well."""
    child = multiprocessing.get_context("fork").Process(target=_ending, args=(work,))
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    child.join()
    assert not alive, "the child was still waiting when it was ended"
    assert child.exitcode == 0


def _ending(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_a_forked_child_saves_through_the_store_it_inherited(store: lastgood.Store) -> None:
    """B11: parent and child go on side by side, on tasks of their own and on one they share."""
    mine = store.task("parent")
    mine.save({"n": 0})

    def work() -> None:
        inherited = store.task("child")
        for n in range(10):
            inherited.save({"n": n})
            store.task("shared").append({"from": "child"})
        assert mine.state == {"n": 0}

    for n in range(3):
        _in_forked_child(work if n == 0 else lambda: None)
        mine.save({"n": n + 1})
        store.task("shared").append({"from": "parent"})
    _expect_one_line(store, "parent", 4)
    _expect_one_line(store, "child", 10)
    _expect_one_line(store, "shared", 13)


def test_parent_and_forked_child_append_at_the_same_time(store: lastgood.Store) -> None:
    """B11, G7."""
    store.task("t").append({"n": "first"})
    child = multiprocessing.get_context("fork").Process(
        target=_ending, args=(lambda: [store.task("t").append({"n": n}) for n in range(40)],)
    )
    child.start()
    for n in range(40):
        store.task("t").append({"n": -n})
    child.join(60)
    assert child.exitcode == 0
    _expect_one_line(store, "t", 81)


def test_a_fork_inside_a_writers_turn_does_not_share_the_turn(store: lastgood.Store) -> None:
    """The lock of a parent that is in the middle of writing is not the child's, and is not lost by its end."""
    store.task("t").save({"n": 0})
    with store.catalog.queue():
        reader, writer = os.pipe()

        def work() -> None:
            os.write(writer, b"x")
            store.task("t").append({"from": "child"})

        child = multiprocessing.get_context("fork").Process(target=_ending, args=(work,))
        child.start()
        assert os.read(reader, 1) == b"x"
        # The child stands in the queue now, or soon; what is written here comes first.
        store.task("t").append({"from": "parent"})
    child.join(60)
    assert child.exitcode == 0
    os.close(reader)
    os.close(writer)
    _expect_one_line(store, "t", 3)
    assert [one.state for one in store.list_checkpoints("t")] == [{"from": "child"}, {"from": "parent"}, {"n": 0}]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("busy", ["reading", "saving"])
def test_a_fork_while_another_thread_is_busy_does_not_hang_the_child(store: lastgood.Store, busy: str) -> None:
    """A lock that a thread of the parent held when it forked is never given back in the child."""
    task = store.task("t")
    saved = task.save({"n": 1})
    held, done = threading.Event(), threading.Event()

    def work() -> None:
        assert store.get_checkpoint(saved.id).state == {"n": 1}
        task.save({"n": 2})

    def hold() -> None:
        with store._cache._lock if busy == "reading" else task._cursor.lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    try:
        child = multiprocessing.get_context("fork").Process(target=_ending, args=(work,))
        child.start()
        child.join(5)
        alive = child.is_alive()
        child.kill()
        child.join()
    finally:
        done.set()
        thread.join()
    assert not alive


# --- threads that commit together ------------------------------------------------------------------------------------


class _Line:
    """Threads that write to one store, made to wait until all of them stand in its line."""

    def __init__(self, store: lastgood.Store) -> None:
        self.database: FileDatabase = store.catalog._database  # type: ignore[attr-defined]
        self.outcomes: dict[int, object] = {}

    def run(self, *works: Callable[[], object]) -> int:
        """Have each work done by a thread of its own, in this order in the line; how many commits that took."""
        before = self._commits()
        threads = []
        with self.database.queue():
            for index, work in enumerate(works):
                threads.append(threading.Thread(target=self._do, args=(index, work)))
                threads[-1].start()
                while len(self.database._group._line) <= index and threads[-1].is_alive():
                    threads[-1].join(0.001)
        for thread in threads:
            thread.join(60)
        return self._commits() - before

    def _do(self, index: int, work: Callable[[], object]) -> None:
        try:
            self.outcomes[index] = work()
        except BaseException as error:
            self.outcomes[index] = error

    def _commits(self) -> int:
        with self.database.reading() as connection:
            return int(connection.execute("SELECT last_sequence FROM tasks WHERE task = 0").get)


def test_threads_that_wait_together_share_one_commit(store: lastgood.Store) -> None:
    tasks = [store.task(f"t{n}") for n in range(8)]
    line = _Line(store)
    assert line.run(*(functools.partial(task.save, {"n": n}) for n, task in enumerate(tasks))) == 1
    assert [store.task(f"t{n}").state for n in range(8)] == [{"n": n} for n in range(8)]
    assert [task.head for task in tasks] == [line.outcomes[n] for n in range(8)]


def test_one_that_conflicts_fails_alone(store: lastgood.Store) -> None:
    store.task("t").save({"n": 0})
    handles = [store.task("t") for _ in range(4)]
    other = store.task("other")
    line = _Line(store)
    works = [functools.partial(handle.save, {"n": n}) for n, handle in enumerate(handles, 1)]
    assert line.run(*works, functools.partial(other.save, {"n": 9})) == 1
    assert store.task("t").state == {"n": 1}
    assert other.state == {"n": 9}
    assert [type(line.outcomes[n]) for n in range(4)] == [lastgood.Checkpoint, *[lastgood.ConflictError] * 3]
    conflict = line.outcomes[1]
    assert isinstance(conflict, lastgood.ConflictError)
    assert conflict.head.id == handles[0].head.id  # type: ignore[union-attr]


@pytest.mark.parametrize("interrupted", range(3))
def test_an_interrupt_in_a_group_fails_nobody_else(store: lastgood.Store, interrupted: int) -> None:
    tasks = [store.task(f"t{n}") for n in range(3)]
    line = _Line(store)
    pending = [True]

    def interrupt_once(connection: apsw.Connection) -> None:
        if pending and pending.pop():
            raise KeyboardInterrupt

    works: list[Callable[[], object]] = [functools.partial(task.save, {"n": n}) for n, task in enumerate(tasks)]
    works.insert(interrupted, lambda: line.database.write(interrupt_once))
    line.run(*works)
    raised = [index for index, outcome in line.outcomes.items() if isinstance(outcome, BaseException)]
    assert raised == [0]  # whoever led when it came
    assert isinstance(line.outcomes[0], KeyboardInterrupt)
    missing = [] if interrupted == 0 else ["t0"]
    assert [task.id for task in tasks if task.refresh() is None] == missing
    tasks[0].save({"n": "goes on"})


def test_a_disk_that_fails_fails_the_whole_group_and_nothing_is_acknowledged(store: lastgood.Store) -> None:
    tasks = [store.task(f"t{n}") for n in range(3)]
    line = _Line(store)

    def fail(connection: apsw.Connection) -> None:
        raise apsw.IOError("planted")

    works: list[Callable[[], object]] = [functools.partial(task.save, {"n": 1}) for task in tasks]
    assert line.run(*works, lambda: line.database.write(fail)) == 0
    assert [type(outcome) for outcome in line.outcomes.values()] == [lastgood.UnavailableError] * 4
    assert store.tasks() == []
    for task in tasks:
        task.save({"n": 2})


def test_beginning_a_step_waits_for_no_disk_and_leaves_the_connection_durable(store: lastgood.Store) -> None:
    task = store.task("t")
    task.save({"n": 1})
    database: FileDatabase = store.catalog._database  # type: ignore[attr-defined]
    levels: list[int] = []
    database.write(lambda connection: levels.append(connection.pragma("synchronous")), durable=False)
    database.write(lambda connection: levels.append(connection.pragma("synchronous")))
    assert levels == [1, 2]
    line = _Line(store)
    step = task.step("work").begin()
    before = line._commits()
    task.step("more").begin()
    assert line._commits() == before  # the witness counts what is durable
    step.commit()
    assert line._commits() == before + 1


def test_parent_and_forked_child_make_different_ids(tmp_path: Path) -> None:
    """B11: what the parent keeps ready for its next ids must not be used by the child as well."""
    new_id()
    ids = tmp_path / "ids"

    def work() -> None:
        ids.write_text(" ".join(new_id()[15:] for _ in range(200)))

    _in_forked_child(work)
    mine = {new_id()[15:] for _ in range(200)}
    assert len(mine) == 200
    assert not mine & set(ids.read_text().split())
