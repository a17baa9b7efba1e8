"""A store and its model: each operation is done by both, and they must agree, whatever came in between."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import GeneratorType
from typing import Any, NamedTuple

import hypothesis
from tests.faults import shim
from tests.faults.backend import SECRET, Backend, write_changes
from tests.faults.fault_run import Ending, run_here, run_in_child
from tests.faults.model import Model, Refusal
from tests.faults.model_values import Branch, Point, Seen, Tree
from tests.faults.prepared_scenario import QUICK
from tests.faults.views import Counts, Telling, View, differences, learn, read_files, tell_model

import lastgood
from lastgood import Checkpoint, CheckpointManager, ConflictError, errors
from lastgood.engine.branch import Restored

USER = "tester"
WORK = "work"
"""The task whose files are the workspace's."""
LEFT_BEHIND, TAKEN_BACK = "as an interrupted restore left it", "as it was before the interruption"


class Held(NamedTuple):
    """A handle, the side it belongs to, and what it saw."""

    side: int
    task: list[lastgood.Task]  # one, which a reopened store replaces
    seen: Seen


class StoreAndModel:
    """Two stores lie open on one place, one of them a CheckpointManager. `fault`: what the next operation meets."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.folder = Path(tempfile.mkdtemp(prefix="lastgood-machine-", dir=QUICK if QUICK.is_dir() else None))
        self.disk, self.claims = self.folder / "disk", self.folder / "claims"
        self.work, self.counter = self.disk / "work", self.folder / "counter"
        for each in (self.disk, self.work, self.claims):
            each.mkdir()
        (self.work / SECRET).write_text("never captured")
        self.stores: list[lastgood.Store] = [self._open(0), self._open(1)]
        self.model = Model()
        self.held: list[Held] = []
        self.fault = shim.UNDISTURBED

    def close(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    def _open(self, side: int) -> lastgood.Store:
        target = self.backend.target(self.disk)
        options: dict[str, Any] = {"user": USER, "collect": "never", "base_path": self.claims, "on_failure": "raise"}
        return CheckpointManager(target, **options) if side == 0 else lastgood.open(target, **options)

    # --- handles ----------------------------------------------------------------------------------------------------

    def open_handle(self, side: int, seen: Seen) -> Held:
        self.model.look(seen)
        held = Held(side, [self._handle(side, seen)], seen)
        self.held.append(held)
        self.agree(held)
        return held

    def _handle(self, side: int, seen: Seen) -> lastgood.Task:
        name = seen.branch.id if seen.by_branch and seen.branch else seen.id
        return self.stores[side].task(name, workspace=self.work if seen.files else None)

    def refresh(self, held: Held) -> None:
        if not self.model.refuses_to_look(held.seen):
            held.task[0].refresh()
            self.model.look(held.seen)
        self.agree(held)

    def renew(self, held: Held) -> None:
        """As if the program opened its task again; on the task itself where its branch is gone."""
        seen = held.seen
        if self.model.refuses_to_look(seen) and seen.line is not None:
            seen.id, seen.by_branch = seen.line.id, False
        self.model.look(seen)
        held.task[0] = self._handle(held.side, seen)

    def reopen(self, side: int) -> None:
        """Handles of a closed store are made again, on what there is; steps that were open stay open."""
        self.stores[side].close()
        self.stores[side] = self._open(side)
        for held in self.held:
            if held.side == side:
                self.renew(held)

    def agree(self, held: Held) -> None:
        head, seen = held.task[0].head, held.seen
        assert (head and head.id) == (seen.head and seen.head.id)

    def edit(self, after: Tree) -> None:
        write_changes(self.work, self.model.disk, after)
        self.model.disk = after

    # --- an operation -----------------------------------------------------------------------------------------------

    def do(self, way: str, *args: Any, action: Callable[[], Any], held: Held | None = None) -> Any:
        """What the model tells of it, after the store has done the same. None when a fault came in between."""
        fault, self.fault = self.fault, shim.UNDISTURBED
        if fault.kind != "none":
            self._run_with_fault(fault, way, args, action, held)
            return None
        told = _finish(getattr(self.model, way)(*args))
        if isinstance(told, Refusal):
            _see_refused(told, action)
            return told
        result = action()
        learn(self.stores[0], self.model)
        _compare(told, result)
        return told

    def limit(self, side: int, max_bytes: int) -> None:
        """What goes is the store's choice, among what it may choose from."""
        fault, self.fault = self.fault, shim.UNDISTURBED
        store = self.stores[side]
        if fault.kind == "none":
            store.limit(max_bytes)
        else:
            self._run_faulty(fault, lambda: store.limit(max_bytes))
        with self._open(1) as fresh:
            for line in self.model.lines.values():
                gone = [event for event in fresh.history(line.id, limit=1000) if event.kind == "purged"]
                by_id = {point.id: point for point in line.points if not point.purged}
                self.model.evict([by_id[e.checkpoint_id] for e in reversed(gone) if e.checkpoint_id in by_id])
        if fault.kind == "fail":
            self._start_anew(None, was_met=True)

    # --- accidents --------------------------------------------------------------------------------------------------

    def _run_with_fault(
        self, fault: shim.Fault, way: str, args: tuple[Any, ...], action: Callable[[], Any], held: Held | None
    ) -> None:
        before = deepcopy((self.model, args))
        ending = self._run_faulty(fault, action)
        hypothesis.note(f"  {way} met {fault}: {ending.how} {ending.kind}")
        is_dead = fault.kind in ("kill", "tear")
        was_met = shim.count(self.counter) >= fault.at
        with self._open(1) as fresh:
            fresh.task(WORK, workspace=self.work)  # whoever opens it finishes or takes back what was interrupted
            known = {line.id: len(line.points) for line in self.model.lines.values()}
            found = Telling(fresh, self.model, self.work).tell(known)
            landed = Tree(found["disk"]) if was_met and not is_dead else None
            outcomes = _outcomes(before, way, fresh, landed, is_dead=is_dead)
            if not was_met or ending.how == "done":
                outcomes = (outcome for outcome in outcomes if outcome.is_end and outcome.meets(ending))
            chosen = _choose(outcomes, known, found, f"{way}, {fault}, {ending.how} {ending.said}")
            args = tuple(replace(each) if is_dead and isinstance(each, Seen) else each for each in args)
            chosen.happen(self.model, way, args)
            learn(fresh, self.model)
        if not is_dead:
            self._start_anew(held, was_met=was_met)

    def _start_anew(self, held: Held | None, *, was_met: bool) -> None:
        """After an error of the disk a store is closed and opened again: until then it may refuse everything."""
        for side in (0, 1) if was_met else ():
            self.reopen(side)
        if held is not None and not was_met:
            self.renew(held)

    def _run_faulty(self, fault: shim.Fault, action: Callable[[], Any]) -> Ending:
        happen = run_here if fault.kind == "fail" else run_in_child
        ending = happen(fault, self.disk, self.counter, action)
        if ending.how in ("raised", "hung"):
            raise AssertionError(f"{fault}: {ending.how} {ending.said}")
        return ending

    # --- looking ----------------------------------------------------------------------------------------------------

    def look(self, side: int, *, closely: bool) -> None:
        known: Counts | None = {} if closely else None
        found = Telling(self.stores[side], self.model, self.work).tell(known)
        _require_same(tell_model(self.model, known), found)
        assert (self.work / SECRET).read_text() == "never captured"


class _Circumstances(NamedTuple):
    """What a fault may have made different: how the files lie, what a restore that was taken back had made of them
    each time, whether they were saved after that, which result of checking evidence was not recorded (what was found
    is said all the same)."""

    landing: Tree | None = None
    left_behind: tuple[Tree, ...] = ()
    is_taken_back: bool = False
    unrecorded: int = 0


class _Outcome(NamedTuple):
    """What an operation may have come to when it stopped after so many of its transactions."""

    steps: int
    is_end: bool
    told: Any
    model: Model
    circumstances: _Circumstances
    is_dead: bool

    def meets(self, ending: Ending) -> bool:
        if isinstance(self.told, Refusal):
            return issubclass(getattr(errors, ending.kind, type(None)), self.told.kinds)
        return ending.how == "done"

    def happen(self, model: Model, way: str, args: tuple[Any, ...]) -> None:
        _advance(model, way, args, self.steps, self.circumstances, is_dead=self.is_dead)


def _outcomes(
    before: tuple[Model, tuple[Any, ...]], way: str, fresh: lastgood.Store, landed: Tree | None, *, is_dead: bool
) -> Iterator[_Outcome]:
    """All that are possible. What lies on disk, or was left behind, is a file from before or one from after each."""
    for circumstances in _possible(before, way, _find_left(fresh), landed):
        for steps in range(1000):
            model, args = deepcopy(before)
            is_end, told = _advance(model, way, args, steps, circumstances, is_dead=is_dead)
            yield _Outcome(steps, is_end, told, model, circumstances, is_dead)
            if is_end:
                break


def _find_left(fresh: lastgood.Store) -> _Circumstances:
    """What was kept of restores that were taken back, as the newest checkpoints tell."""
    newest = fresh.list_checkpoints(WORK, limit=10)
    is_taken_back = bool(newest) and newest[0].message == TAKEN_BACK
    kept = itertools.takewhile(lambda one: one.message == LEFT_BEHIND, newest[is_taken_back:])
    left = tuple(read_files(fresh, one.id) for one in kept)[::-1]
    return _Circumstances(left_behind=left, is_taken_back=is_taken_back)


def _possible(
    before: tuple[Model, tuple[Any, ...]], way: str, left: _Circumstances, landed: Tree | None
) -> Iterator[_Circumstances]:
    yield _Circumstances()
    model, args = deepcopy(before)
    _finish(getattr(model, way)(*args))
    are_mixtures = all(_is_mixture(each, before[0].disk, model.disk) for each in left.left_behind)
    if left.left_behind and are_mixtures:
        yield left
    if landed is not None:
        for unrecorded in range(4):
            yield _Circumstances(unrecorded=unrecorded)
            if _is_mixture(landed, before[0].disk, model.disk):
                yield _Circumstances(landed, unrecorded=unrecorded)
                yield left._replace(landing=landed, unrecorded=unrecorded)


def _advance(
    model: Model, way: str, args: tuple[Any, ...], steps: int, circumstances: _Circumstances, *, is_dead: bool
) -> tuple[bool, Any]:
    """Do so many transactions of an operation, 0 being none; whether that was its end, and what it told."""
    known, disk = list(model.steps), model.disk
    model.landing, model.unrecorded = circumstances.landing, circumstances.unrecorded
    is_end, told = False, None
    if steps:
        doing = getattr(model, way)(*args)
        is_end, told = (False, None) if isinstance(doing, GeneratorType) else (True, doing)
        for _ in range(steps if not is_end else 0):
            try:
                next(doing)
            except StopIteration as end:
                is_end, told = True, end.value
                break
    model.landing, model.unrecorded = None, 0
    if circumstances.left_behind and WORK in model.lines:
        model.disk = disk
        model.take_back(circumstances.left_behind, saves=circumstances.is_taken_back)
    for step in model.steps:
        step.orphaned = step.orphaned or (is_dead and step not in known)
    return is_end, told


def _is_mixture(tree: Tree, one: Tree, other: Tree) -> bool:
    return all(node[0] == "folder" or node in (one.get(path), other.get(path)) for path, node in tree.items())


def _choose(outcomes: Iterator[_Outcome], known: Counts, found: View, what: str) -> _Outcome:
    told: list[list[str]] = []
    for outcome in outcomes:
        view = tell_model(outcome.model, known)
        if view == found:
            return outcome
        told.append(list(differences(view, found)))
    nearest = min(told, key=len, default=["there is nothing that it could have come to"])
    raise AssertionError("\n  ".join([f"neither before nor after: {what}", *nearest]))


def _finish(doing: Any) -> Any:
    """What an operation of the model tells in the end."""
    if not isinstance(doing, GeneratorType):
        return doing
    while True:
        try:
            next(doing)
        except StopIteration as end:
            return end.value


def _require_same(expected: View, found: View) -> None:
    if expected != found:
        raise AssertionError("\n  ".join(["the store is not what it should be:", *differences(expected, found)]))


def _see_refused(refusal: Refusal, action: Callable[[], Any]) -> None:
    try:
        result = action()
    except refusal.kinds as error:
        head = error.head if isinstance(error, ConflictError) else None
        if refusal.head is not None and (head is None or head.id != refusal.head.id):
            raise AssertionError(f"{error!r} does not say that the head is {refusal.head.id}") from error
        return
    raise AssertionError(f"not refused with {[kind.__name__ for kind in refusal.kinds]}: {result!r}")


def _compare(told: Any, result: Any) -> None:
    """What the store gave is what the model tells."""
    if isinstance(result, Restored):
        made = told.head if isinstance(told, Branch) else told
        _compare(made, result.checkpoint)
        assert result.before is not None
        assert result.failed == ()
    elif isinstance(result, lastgood.Task):
        _compare(told.head, result.head)
    elif isinstance(told, Point) and isinstance(result, Checkpoint):
        place = result.id, result.branch_id, result.sequence, result.version
        assert place == (told.id, told.branch.id, told.sequence, told.version)
        assert result.verified == bool(told.recorded)
    elif isinstance(told, bool | int):
        assert told == result
