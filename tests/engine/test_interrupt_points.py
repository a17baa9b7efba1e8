"""An interrupt at every single point of an operation where Python looks for signals; afterwards all is as it should be.

Python looks when a function begins, when a generator goes on, and after each call of C: these are taken one after the
other. It looks when a loop begins anew, too, but `sys.monitoring` does not raise there as a signal does. I1, I2, A2.
"""

from __future__ import annotations

import ast
import fcntl
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import lastgood
from lastgood.catalog.sqlite import connection as connections
from lastgood.catalog.sqlite import group
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.upkeep.housekeeping import Housekeeping

MONITORING: Any = getattr(sys, "monitoring", None)
TOOL = 4
needs_monitoring = pytest.mark.skipif(MONITORING is None, reason="sys.monitoring came with Python 3.12")


class Points:
    """Raises KeyboardInterrupt at one of the points that this thread comes to, and at no other."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._left = 0
        self.where = ""
        self.kept: KeyboardInterrupt | None = None
        """The last one, with all of its frames: so a debugger keeps it, or an interactive session."""

    def interrupt(self, number: int, operation: Callable[[], object]) -> bool:
        """Do it, and interrupt it at so manieth a point; False when it has no more of them."""
        events = MONITORING.events
        self._left, self.where = number, ""
        try:
            MONITORING.set_events(TOOL, events.PY_START | events.PY_RESUME | events.CALL)
            operation()
        except KeyboardInterrupt as error:
            self.kept = error
            return True
        finally:
            MONITORING.set_events(TOOL, 0)
        assert not self.where, f"the interrupt was swallowed: {self.where}"
        return False

    def pass_by(self, code: Any, *_: object) -> None:
        if threading.get_ident() == self._thread and code.co_qualname != "Points.interrupt":
            self._left -= 1
            if self._left == 0:
                self.where = f"{Path(code.co_filename).name}: {code.co_qualname}"
                raise KeyboardInterrupt


@pytest.fixture
def points() -> Iterator[Points]:
    points = Points()
    MONITORING.use_tool_id(TOOL, "interrupts")
    for event in (MONITORING.events.PY_START, MONITORING.events.PY_RESUME, MONITORING.events.C_RETURN):
        MONITORING.register_callback(TOOL, event, points.pass_by)
    gc.collect()
    gc.disable()  # what it finalizes, at moments of its own, would swallow an interrupt
    yield points
    gc.enable()
    MONITORING.free_tool_id(TOOL)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[lastgood.Store]:
    monkeypatch.setattr(connections, "BUSY_MS", 0)  # nobody has to wait for what was left behind
    monkeypatch.setattr(group, "LOOK_SECONDS", 0.01)
    with lastgood.open(tmp_path / "store", user="tester") as store:
        yield store


OPERATIONS: dict[str, Callable[[lastgood.Store, lastgood.Task], object]] = {
    "save": lambda store, task: task.refresh() and task.save({"n": 1}),
    "append": lambda store, task: task.append({"n": 1}),
    "begin": lambda store, task: task.step("work").begin(),
    "conflict": lambda store, task: _conflict(task),
    "list": lambda store, task: store.list_checkpoints("main", 3),
    "queue": lambda store, task: _append_twice(store, task),
}


def _conflict(task: lastgood.Task) -> None:
    with suppress(lastgood.ConflictError):
        task.append({"n": os.urandom(8)}, id="one and the same")


def _append_twice(store: lastgood.Store, task: lastgood.Task) -> None:
    with store._engine.catalog.exclusive():
        for _ in range(2):
            task.append({"n": 2})


@needs_monitoring
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a file that was just opened is closed when it is lost
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_interrupt_at_any_point_leaves_nothing_behind(store: lastgood.Store, points: Points, operation: str) -> None:
    task = store.task("main")
    task.save({"n": 0})
    for _ in range(2):
        OPERATIONS[operation](store, task)  # what is imported late is imported now
    for number in itertools.count(1):
        before = _sequence(store)
        reached = points.interrupt(number, lambda: OPERATIONS[operation](store, task))
        try:
            _in_another_thread(lambda: _look_for_remains(store, task))
        except BaseException as error:
            error.add_note(f"interrupted at point {number}: {points.where}")
            raise
        assert _sequence(store) - before <= (2 if operation == "queue" else 1), points.where
        if not reached:
            break
    assert number > 50
    assert store.check().ok


def _sequence(store: lastgood.Store) -> int:
    head = store.task("main").head
    assert head is not None
    return head.sequence or 0


def _look_for_remains(store: lastgood.Store, task: lastgood.Task) -> None:
    """No lock, no transaction, no snapshot; and others can save."""
    database: FileDatabase = store._engine.catalog._database  # type: ignore[attr-defined]
    with _another_process(database):
        pass
    assert not any(connection.in_transaction for connection in apsw.connections())
    store.task("other").step("others go on").begin()
    task.refresh()


@contextmanager
def _another_process(database: FileDatabase) -> Iterator[None]:
    """In the queue, as another process would be; OSError when somebody is inside."""
    descriptor = os.open(database._queue._path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _in_another_thread(work: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    for error in errors:
        raise error


@needs_monitoring
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("durable", [True, False], ids=["save", "begin"])
def test_an_interrupt_of_who_leads_fails_and_repeats_nothing_of_those_who_came_along(
    store: lastgood.Store, points: Points, durable: bool
) -> None:
    """Their saves are stored once, whether the interrupt came before the commit or after it."""
    task, other = store.task("main"), store.task("other")
    task.save({"n": 0}), other.save({"n": 0})
    for number in itertools.count(1):
        with _Following(store, lambda: other.save({}) if durable else other.step("step").begin()):
            reached = points.interrupt(number, lambda: task.append({}) if durable else task.step("step").begin())
        if not reached:
            break
    assert number > 50
    made = other.head.sequence if durable and other.head else len(store.open_steps("other"))
    assert made == number + durable


class _Following:
    """Beside the block, another thread comes into the line when somebody is in it; nobody has his turn before."""

    def __init__(self, store: lastgood.Store, work: Callable[[], object]) -> None:
        self._database: FileDatabase = store._engine.catalog._database  # type: ignore[attr-defined]
        self._work = work
        self._is_over = threading.Event()
        self._holds = threading.Event()
        self._thread = threading.Thread(target=_in_another_thread, args=(self._follow,), daemon=True)
        self._errors: list[BaseException] = []

    def _follow(self) -> None:
        follower = threading.Thread(target=self._do, daemon=True)
        with _another_process(self._database):
            self._holds.set()
            self._wait_for(1, self._is_over.is_set)
            follower.start()
            self._wait_for(2, lambda: self._is_over.is_set() or not follower.is_alive())
        follower.join(60)
        assert not follower.is_alive(), "the follower hangs"

    def _wait_for(self, length: int, is_over: Callable[[], bool]) -> None:
        while len(self._database._group._line) < length and not is_over():
            self._is_over.wait(0.0005)

    def _do(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> None:
        self._thread.start()
        assert self._holds.wait(60)

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a thread hangs"
        assert self._errors == []


def test_no_loop_stands_under_a_lock_where_an_interrupt_would_leave_that_locked() -> None:
    """On Python 3.13 an interrupt that comes when a `while` begins anew (or a `for` that ends in an `if`) passes by the
    end of the `with` that the loop stands in. In a function of its own it does not."""
    wrong = [
        f"{file.name}:{loop.lineno}"
        for file in sorted(Path(lastgood.__file__).parent.rglob("*.py"))
        for block in ast.walk(ast.parse(file.read_text()))
        if isinstance(block, ast.With) and any("lock" in ast.unparse(item.context_expr) for item in block.items)
        for loop in _own_nodes(block)
        if isinstance(loop, ast.While) or (isinstance(loop, ast.For) and isinstance(loop.body[-1], ast.If))
    ]
    assert wrong == []


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def test_a_store_whose_housekeeping_was_kept_from_starting_can_be_closed(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", user="tester") as store:
        store.task("t").save({})
        assert isinstance(store._engine.housekeeper, Housekeeping)
        store._engine.housekeeper._thread = threading.Thread(target=store._engine.housekeeper.work)
