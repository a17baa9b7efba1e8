"""An interrupt at the points of undo, redo, switch and restore with files: what has committed stays, the rest is taken
back, and whoever opens the workspace next finds the files of the branch that the task is on (I1, A16; W1)."""

from __future__ import annotations

import gc
import inspect
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import lastgood
from lastgood.model.tree import is_temporary

pytestmark = pytest.mark.once

SOURCE = str(Path(lastgood.__file__).parent)
DENSE = ("restore.py", "restore_files.py", "roots.py", "handle.py", "database.py")
"""Where what has committed is told from what has not: all points in these. Of the others (there are 8,000) some."""
STRIDE = 97


class Move(NamedTuple):
    """An operation that goes from the files of one checkpoint to those of the other, and the one that goes back."""

    forth: Callable[[lastgood.Task], object]
    back: Callable[[lastgood.Task], object]
    first: Callable[[lastgood.Task], object] = lambda task: None


MOVES = {
    "switch": Move(lambda task: task.switch("side"), lambda task: task.switch("main")),
    "restore": Move(lambda task: task.restore("one"), lambda task: task.undo()),
    "restore files": Move(lambda task: task.restore("one", "files"), lambda task: task.undo()),
    "undo": Move(lambda task: task.undo(), lambda task: task.redo(), lambda task: task.restore("one")),
    "undo files": Move(lambda task: task.undo(), lambda task: task.redo(), lambda task: task.restore("one", "files")),
    "redo": Move(lambda task: task.redo(), lambda task: task.undo(), lambda task: (task.restore("one"), task.undo())),
}


class Place:
    """A task with two sets of files, and a branch for each."""

    def __init__(self, store: lastgood.Store, work: Path) -> None:
        self.store, self.work = store, work
        work.mkdir()
        task = self.open()
        for text in ("one", "two"):
            (work / "a").write_text(text)
            (work / "b").write_text(text)
            (work / text).touch()
            task.tag(task.save({"is": text}), text)
            (work / text).unlink()
        (work / "two").touch()
        task.fork("one", name="side")

    def open(self) -> lastgood.Task:
        return self.store.task("t", workspace=self.work)

    def text(self) -> str:
        """Return which of the two the files are."""
        names = {file.name for file in self.work.iterdir()}
        assert not any(is_temporary(os.fsencode(name)) for name in names), names
        texts = {(self.work / name).read_text() for name in ("a", "b")} | (names - {"a", "b"})
        assert len(texts) == 1, f"a mixture: {texts}"
        return texts.pop()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        yield Place(store, tmp_path / "work")


def interrupt(
    number: int, operation: Callable[[], object], *, dense: bool, among: tuple[str, ...] = DENSE
) -> str | None:
    """Do it, and interrupt it where Python looks for signals for the so manieth time: when a function of this package
    begins, or a call of C in it has ended; with `dense` only those of the modules `among` count. Return where; None
    when it has no more such points."""
    left, where = number, None
    files = tuple(f"/{name}" for name in among) if dense else ".py"

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left, where
        code, file = frame.f_code, frame.f_code.co_filename
        if event == "call" and code.co_flags & inspect.CO_GENERATOR:  # perhaps it ends, where nothing can be raised
            return
        if event in ("call", "c_return") and file.startswith(SOURCE) and file.endswith(files):
            left -= 1
            if left == 0:
                where = f"{Path(file).name}:{frame.f_lineno} in {code.co_qualname}"
                raise KeyboardInterrupt

    gc.disable()  # what it finalizes, at moments of its own, would swallow an interrupt
    try:
        sys.setprofile(look)
        operation()
    except KeyboardInterrupt:
        return where
    finally:
        sys.setprofile(None)
        gc.enable()
    assert where is None, f"the interrupt was swallowed: {where}"
    return None


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a file that was just opened is closed when it is lost
@pytest.mark.parametrize("dense", [True, False], ids=["all points", "some points"])
@pytest.mark.parametrize("name", MOVES)
def test_an_interrupt_leaves_the_files_of_the_branch_that_the_task_is_on(place: Place, name: str, dense: bool) -> None:
    move = MOVES[name]
    task = place.open()
    move.first(task)
    begin = place.text()
    move.forth(task), move.back(task)  # what is imported late is imported now
    number = 1
    while True:
        where = interrupt(number, partial(move.forth, task), dense=dense)
        try:
            task = _in_another_thread(lambda: _go_on(place, files_alone="files" in name))
            if place.text() != begin:
                move.back(task)
            assert place.text() == begin
        except BaseException as error:
            error.add_note(f"interrupted at point {number}: {where}")
            raise
        if where is None:
            break
        number += 1 if dense else STRIDE
    assert number > 100
    assert place.store.check().ok


class _MishapError(Exception):
    pass


def _fail_in_step(task: lastgood.Task, work: Path) -> None:
    """Begin a step over files that were not saved, which are saved first; it fails, and puts them back."""
    with suppress(_MishapError), task.step("edit", on_error="restore"):
        (work / "a").write_text("by the step")
        raise _MishapError


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("dense", [True, False], ids=["all points", "some points"])
def test_an_interrupt_of_a_step_loses_nothing_that_was_there_before_it(place: Place, dense: bool) -> None:
    """Finding 1: what was not saved is in the workspace, or in the checkpoint from before the step."""
    task = place.open()
    _fail_in_step(task, place.work)
    among = ("step.py", "restore_files.py")
    for number in itertools.count(1, 2 if dense else 2 * STRIDE):
        unsaved = f"unsaved {number}"
        (place.work / "a").write_text(unsaved)
        where = interrupt(number, partial(_fail_in_step, task, place.work), dense=dense, among=among)
        try:
            task = _in_another_thread(place.open)
            assert task.recovery().restores == ()
            found = [place.store.read_file(one.id, "a") for one in place.store.list_checkpoints("t", 4)]
            saved = ["missing" if content is None else content.decode() for content in found]
            kept = [(place.work / "a").read_text(), *saved]
            assert unsaved in kept
            assert where is not None or kept[0] == unsaved
        except BaseException as error:
            error.add_note(f"interrupted at point {number}: {where}")
            raise
        if where is None:
            break
    assert number > 50
    assert place.store.check().ok


def test_an_interrupted_backup_is_whole_or_not_there(place: Place, tmp_path: Path) -> None:
    backups, among = tmp_path / "backups", ("upkeep/backup.py", "sqlite/migration.py", "upkeep/check.py")
    place.store.backup(backups / "0")
    for number in itertools.count(1, 2):
        copy = backups / str(number)
        where = interrupt(number, partial(place.store.backup, copy), dense=True, among=among)
        assert all(path.name.isdecimal() for path in backups.iterdir()), where
        if copy.exists():
            with lastgood.open(copy, user="ada", collect="never") as opened:
                assert opened.check(read_data=True).ok, where
                assert {task.id for task in opened.tasks()} == {"t"}, where
        if where is None:
            break
    assert number > 10
    assert copy.exists()


def _go_on(place: Place, *, files_alone: bool) -> lastgood.Task:
    """Open the workspace as anybody would, and find all as it should be."""
    task = place.open()
    assert task.recovery().restores == ()
    assert not [each for each in place.store._engine.catalog.journals() if each.made is None]
    assert task.head is not None
    assert task._handle.require_workspace().bound("ada", "t") == [task.branch_id]
    assert files_alone or task.state == {"is": place.text()}
    return task


def _in_another_thread(work: Callable[[], lastgood.Task]) -> lastgood.Task:
    """Do it where a lock that this thread left behind is in the way."""
    done: list[lastgood.Task] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    for error in errors:
        raise error
    assert done, "it hangs"
    return done[0]
