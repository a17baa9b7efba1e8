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
from typing import Any, TypeVar

import apsw
import msgspec
import pytest

import lastgood
from lastgood.catalog.sqlite import database as databases
from lastgood.catalog.sqlite import group
from lastgood.catalog.sqlite.connection import SQLiteConnection, set_synced
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.catalog.sqlite.group import Write
from lastgood.errors import BusyError, ConflictError, DiskFullError, LostCommitsError, UnavailableError
from lastgood.local.process import is_alive, this_process
from lastgood.model.identity import new_id

T = TypeVar("T")

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
            assert [store.find_checkpoint(id_).state for id_ in ids] == [{"by": str(writer), "n": n} for n in range(50)]


def _expect_one_line(store: lastgood.Store, task_id: str, count: int) -> None:
    page = store.page_checkpoints(task_id, 1000)
    assert page.total == count
    assert [one.sequence for one in page.checkpoints] == list(range(count, 0, -1))
    assert [one.version for one in page.checkpoints] == list(range(count, 0, -1))
    for newer, older in zip(page.checkpoints, [*page.checkpoints[1:], None], strict=True):
        assert newer.parent_id == (older.id if older else None)
        assert store.check_checkpoint(newer.id, evidence=False).problems == []
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


def test_a_forked_child_uses_no_connection_of_its_parent(store: lastgood.Store) -> None:
    """SQLite forbids it: the locks of the one would be taken for the other's."""
    database: FileDatabase = store._engine.catalog._database  # type: ignore[attr-defined]
    parents: list[apsw.Connection] = []
    write(database, lambda connection: parents.append(connection.raw))

    def work() -> None:
        used: list[apsw.Connection] = []
        write(database, lambda connection: used.append(connection.raw))
        database.read(lambda connection: used.append(connection.raw))
        assert used[0] is used[1]
        assert used[0] is not parents[0]

    _in_forked_child(work)
    write(database, lambda connection: parents.append(connection.raw))
    assert parents[0] is parents[1]


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
    with store._engine.catalog.exclusive():
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
        assert store.find_checkpoint(saved.id).state == {"n": 1}
        task.save({"n": 2})

    def hold() -> None:
        with store._engine.cache._lock if busy == "reading" else task._handle.lock:
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


def write(database: FileDatabase, work: Callable[[SQLiteConnection], T], durable: bool = True) -> T:
    return database.writer()(Write(work, (), {}, durable=durable))


class _Line:
    """Threads that write to one store, made to wait until all of them stand in its line."""

    def __init__(self, store: lastgood.Store) -> None:
        self.database: FileDatabase = store._engine.catalog._database  # type: ignore[attr-defined]
        self.outcomes: dict[int, object] = {}

    def run(self, *works: Callable[[], object]) -> int:
        """Have each work done by a thread of its own, in this order in the line; how many commits that took."""
        before = self._commits()
        threads = []
        with self.database.queue():
            for index, work in enumerate(works):
                threads.append(threading.Thread(target=self._do, args=(index, work), daemon=True))
                threads[-1].start()
                while len(self.database._group._line) <= index and threads[-1].is_alive():
                    threads[-1].join(0.001)
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer hangs"
        return self._commits() - before

    def _do(self, index: int, work: Callable[[], object]) -> None:
        try:
            self.outcomes[index] = work()
        except BaseException as error:
            self.outcomes[index] = error

    def _commits(self) -> int:
        last = "SELECT last_sequence FROM tasks WHERE task = 0"
        return self.database.read(lambda connection: int(connection.value(last)))


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits has to be woken: nobody finds out by himself that he was served, or has to lead."""
    monkeypatch.setattr(group, "LOOK_SECONDS", 3600.0)


@pytest.mark.usefixtures("nobody_looks")
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


@pytest.mark.usefixtures("nobody_looks")
def test_a_line_that_is_too_long_for_one_commit_is_served_in_several(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "MAX_GROUP", 3)
    tasks = [store.task(f"t{n}") for n in range(8)]
    assert _Line(store).run(*(functools.partial(task.save, {"n": n}) for n, task in enumerate(tasks))) == 3
    assert [store.task(f"t{n}").state for n in range(8)] == [{"n": n} for n in range(8)]


def test_what_one_that_fails_had_written_is_undone_and_the_others_stay(store: lastgood.Store) -> None:
    task = store.task("t")
    line = _Line(store)

    def fail_halfway(connection: SQLiteConnection) -> None:
        connection.raw.execute("INSERT INTO meta VALUES ('half', 'done')")
        raise ValueError("planted")

    works = [lambda: write(line.database, fail_halfway), lambda: task.save({"n": 1})]
    assert line.run(*works, works[0]) == 1
    assert [type(line.outcomes[n]) for n in range(3)] == [ValueError, lastgood.Checkpoint, ValueError]
    halves = "SELECT count(*) FROM meta WHERE key = 'half'"
    assert line.database.read(lambda connection: connection.value(halves)) == 0
    assert store.task("t").state == {"n": 1}


def test_one_that_fails_alone_is_not_tried_again(store: lastgood.Store) -> None:
    tried: list[int] = []

    def fail(connection: SQLiteConnection) -> None:
        tried.append(1)
        raise ValueError("planted")

    with pytest.raises(ValueError, match="planted"):
        write(_Line(store).database, fail)
    assert tried == [1]


def test_one_that_failed_in_a_commit_that_came_to_nothing_may_succeed_in_the_next(store: lastgood.Store) -> None:
    """What became of a write is what became of it the last time it was done."""
    line = _Line(store)
    tried: list[str] = []

    def fail(connection: SQLiteConnection) -> None:
        raise ValueError("planted")

    def fail_once(connection: SQLiteConnection) -> str:
        tried.append("fails once")
        if tried.count("fails once") == 1:
            raise ValueError("planted")
        return "succeeded"

    def interrupt_once(connection: SQLiteConnection) -> str:
        tried.append("interrupts once")
        if tried.count("interrupts once") == 1:
            raise KeyboardInterrupt
        return "went on"

    assert line.run(*(functools.partial(write, line.database, work) for work in (fail, fail_once, interrupt_once))) == 1
    assert isinstance(line.outcomes[0], KeyboardInterrupt)
    assert [line.outcomes[1], line.outcomes[2]] == ["succeeded", "went on"]


@pytest.mark.parametrize("durable_first", [True, False])
def test_a_group_is_as_durable_as_the_most_durable_in_it(store: lastgood.Store, durable_first: bool) -> None:
    """A2: whoever leads, and whoever is along."""
    line = _Line(store)
    levels: list[int] = []

    def look(connection: SQLiteConnection) -> None:
        levels.append(connection.value("PRAGMA synchronous"))

    durable, soon = (functools.partial(write, line.database, look, durable=durable) for durable in (True, False))
    works = [durable, durable, soon] if durable_first else [soon, durable, durable]
    assert line.run(*works) == 1
    assert levels == [2, 2, 2]


def test_an_interrupt_while_durability_is_changed_leaves_it_to_be_set_again(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A2"""
    database = _Line(store).database
    levels: list[int] = []
    write(database, lambda connection: None)

    def interrupted(connection: apsw.Connection, synced: bool) -> None:
        set_synced(connection, synced)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(databases, "set_synced", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(database, lambda connection: None, durable=False)
    write(database, lambda connection: levels.append(connection.value("PRAGMA synchronous")))
    assert levels == [2]


@pytest.mark.usefixtures("nobody_looks")
def test_an_interrupt_just_after_the_commit_takes_nothing_back_and_repeats_nothing(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I1: the others are told that they are stored, for they are."""
    tasks = [store.task(f"t{n}") for n in range(3)]
    line = _Line(store)
    testify = line.database._queue.testify

    def interrupted(number: int) -> None:
        testify(number)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(line.database._queue, "testify", interrupted)
    assert line.run(*(functools.partial(task.save, {"n": n}) for n, task in enumerate(tasks))) == 1
    assert [type(line.outcomes[n]) for n in range(3)] == [KeyboardInterrupt, *[lastgood.Checkpoint] * 2]
    assert [store.task(f"t{n}").state for n in range(3)] == [{"n": n} for n in range(3)]


def test_the_witness_follows_a_commit_and_never_precedes_it(store: lastgood.Store) -> None:
    """I1, I4: one that is ahead of the commits would say that some were lost."""
    line = _Line(store)
    store.task("t").save({"n": 1})
    assert line.database._queue.witness() == line._commits()

    def refuse(connection: SQLiteConnection) -> None:
        connection.raw.set_commit_hook(lambda: True)

    with pytest.raises(lastgood.CheckpointError):
        write(line.database, refuse)
    line.database._local.connection.raw.set_commit_hook(None)
    assert line.database._queue.witness() == line._commits()
    store.task("t").append({"n": 2})


@pytest.mark.parametrize("durable", [True, False])
def test_nothing_is_written_on_top_of_a_loss(store: lastgood.Store, durable: bool) -> None:
    """I3: not even when it is the very last commit that is gone."""
    store.task("t").save({"n": 1})
    line = _Line(store)
    with line.database.queue():
        line.database._queue.testify(line._commits() + 1)
    written: list[int] = []
    with pytest.raises(LostCommitsError) as caught:
        write(line.database, lambda connection: written.append(1), durable=durable)
    assert str(caught.value).startswith("1 acknowledged commit")
    assert written == []
    assert line.database.accept_loss() == 1
    store.task("t").append({"n": 2})


def test_a_write_inside_a_write_is_refused(store: lastgood.Store) -> None:
    database = _Line(store).database
    with pytest.raises(BusyError, match="in the middle of a save"):
        write(database, lambda connection: write(database, lambda connection: None))
    with database.queue(), pytest.raises(BusyError, match="in the middle of a save"):
        write(database, lambda connection: write(database, lambda connection: None))
    store.task("t").save({"n": 1})


def test_who_holds_the_queue_takes_nobody_along(store: lastgood.Store) -> None:
    """What it has read must stay true until it is done."""
    database = _Line(store).database
    done: list[str] = []

    def hold() -> None:
        with database.queue():
            other.start()
            while not database._group._line:
                other.join(0.001)
            write(database, lambda connection: done.append("holder"))
            done.append("still holding")

    other = threading.Thread(
        target=write,
        args=(
            database,
            lambda connection: done.append("other"),
        ),
        daemon=True,
    )
    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    for thread in (holder, other):
        thread.join(60)
        assert not thread.is_alive(), "a writer hangs"
    assert done == ["holder", "still holding", "other"]


@pytest.mark.usefixtures("nobody_looks")
def test_a_thread_that_was_interrupted_while_it_led_leads_again_at_once(store: lastgood.Store) -> None:
    line = _Line(store)

    def work() -> str:
        left = Write(lambda connection: None, (), {}, durable=True)
        line.database._group._line.append(left)  # as an interrupt in what tidies up leaves it
        return write(line.database, lambda connection: "written")

    line.run(work)
    assert line.outcomes == {0: "written"}


def test_who_waits_for_a_leader_that_is_gone_leads_and_takes_no_lost_write_along(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write whose caller was told of an interrupt is not made after all."""
    monkeypatch.setattr(group, "LOOK_SECONDS", 0.001)
    line = _Line(store)
    lost: list[str] = []
    gone: list[Write[None]] = []
    thread = threading.Thread(
        target=lambda: gone.append(Write(lambda connection: lost.append("another's"), (), {}, durable=True))
    )
    thread.start()
    thread.join()

    def work() -> str:
        own = Write(lambda connection: lost.append("of this thread, earlier"), (), {}, durable=True)
        line.database._group._line = [gone[0], own]
        return write(line.database, lambda connection: "written")

    worker = threading.Thread(target=line._do, args=(0, work), daemon=True)
    worker.start()
    worker.join(60)
    assert line.outcomes == {0: "written"}
    assert lost == []


@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("interrupted", range(3))
def test_an_interrupt_in_a_group_fails_nobody_else(store: lastgood.Store, interrupted: int) -> None:
    tasks = [store.task(f"t{n}") for n in range(3)]
    line = _Line(store)
    pending = [True]

    def interrupt_once(connection: SQLiteConnection) -> None:
        if pending and pending.pop():
            raise KeyboardInterrupt

    works: list[Callable[[], object]] = [functools.partial(task.save, {"n": n}) for n, task in enumerate(tasks)]
    works.insert(interrupted, lambda: write(line.database, interrupt_once))
    line.run(*works)
    raised = [index for index, outcome in line.outcomes.items() if isinstance(outcome, BaseException)]
    assert raised == [0]  # whoever led when it came
    assert isinstance(line.outcomes[0], KeyboardInterrupt)
    missing = [] if interrupted == 0 else ["t0"]
    assert [task.id for task in tasks if task.refresh() is None] == missing
    tasks[0].save({"n": "goes on"})


@pytest.mark.parametrize(
    ("error", "told"), [(apsw.IOError, UnavailableError), (apsw.FullError, DiskFullError)], ids=["failing", "full"]
)
def test_a_disk_that_fails_after_another_write_failed_fails_the_whole_group(
    store: lastgood.Store, error: type[apsw.Error], told: type[lastgood.CheckpointError]
) -> None:
    """B7: whoever failed of himself is told that."""
    task = store.task("t")
    line = _Line(store)

    def fail(with_error: Exception) -> Callable[[], object]:
        def work(connection: SQLiteConnection) -> None:
            raise with_error

        return lambda: write(line.database, work)

    assert (
        line.run(fail(ValueError("planted")), lambda: task.save({"n": 1}, on_failure="raise"), fail(error("planted")))
        == 0
    )
    assert [type(line.outcomes[n]) for n in range(3)] == [ValueError, told, told]
    assert store.tasks() == []
    task.save({"n": 2})


def test_after_a_disk_error_no_thread_goes_on_with_its_connection(store: lastgood.Store) -> None:
    """After a failed fsync nobody knows what the old one believes to be on disk."""
    line = _Line(store)
    used: list[apsw.Connection] = []

    def fail(connection: SQLiteConnection) -> None:
        raise apsw.IOError("planted")

    write(line.database, lambda connection: used.append(connection.raw))
    write(line.database, lambda connection: used.append(connection.raw))
    line.run(lambda: write(line.database, fail))
    assert isinstance(line.outcomes[0], UnavailableError)
    write(line.database, lambda connection: used.append(connection.raw))
    assert used[0] is used[1]
    assert used[1] is not used[2]


def test_a_disk_that_fails_fails_the_whole_group_and_nothing_is_acknowledged(store: lastgood.Store) -> None:
    tasks = [store.task(f"t{n}") for n in range(3)]
    line = _Line(store)

    tried: list[int] = []

    def fail(connection: SQLiteConnection) -> None:
        tried.append(1)
        if tried == [1]:
            raise apsw.IOError("planted")

    works: list[Callable[[], object]] = [functools.partial(task.save, {"n": 1}, on_failure="raise") for task in tasks]
    assert line.run(*works, lambda: write(line.database, fail)) == 0
    assert [type(outcome) for outcome in line.outcomes.values()] == [lastgood.UnavailableError] * 4
    assert tried == [1]  # nobody tries his luck on a disk that failed
    assert store.tasks() == []
    for task in tasks:
        task.save({"n": 2})


def test_beginning_a_step_waits_for_no_disk_and_leaves_the_connection_durable(store: lastgood.Store) -> None:
    task = store.task("t")
    task.save({"n": 1})
    database: FileDatabase = store._engine.catalog._database  # type: ignore[attr-defined]
    levels: list[int] = []
    write(database, lambda connection: levels.append(connection.value("PRAGMA synchronous")), durable=False)
    write(database, lambda connection: levels.append(connection.value("PRAGMA synchronous")))
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


def test_whoever_reads_does_not_wait_for_a_writer_that_was_stopped(tmp_path: Path) -> None:
    """A writer that has its turn, and does not go on."""
    with lastgood.open(tmp_path / "store", user="tester") as store:
        store.task("t").save({"n": 1})
    hold = "import fcntl, sys; fcntl.flock(file := open(sys.argv[1]), 2); print('held', flush=True); sys.stdin.read()"
    look = "import lastgood, sys; print(lastgood.open(sys.argv[1], user='tester').task('t').state)"
    command = [sys.executable, "-c", hold, str(tmp_path / "store" / "catalog.sqlite-lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        reader = [sys.executable, "-c", look, str(tmp_path / "store")]
        done = subprocess.run(reader, capture_output=True, text=True, timeout=60, check=False)
        holder.communicate("")
    assert done.stdout == "{'n': 1}\n", done.stderr


def test_nobody_says_of_a_process_in_another_container_that_it_is_gone() -> None:
    """C6: its number may be nobody's here, or somebody else's."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = msgspec.structs.replace(this_process(), pid=gone.pid, started=1)
    assert is_alive(here) is False
    assert is_alive(msgspec.structs.replace(here, space=this_process().space + 1)) is None
    assert is_alive(msgspec.structs.replace(here, space=0)) is False  # written before that was known
