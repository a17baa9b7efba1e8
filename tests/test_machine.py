"""A state machine over everything a store does to its checkpoints, held against the model of machine_model.py (G10).

Two stores lie open on one folder, one of them a CheckpointManager; rules act through either, through handles that
are fresh or stale, and reopen them. `LASTGOOD_FULL=1` makes it 500 runs of 50 steps; without it there are fewer.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.machine_model import (
    CONFLICT,
    GONE,
    Begun,
    Branch,
    Content,
    Line,
    Model,
    Pack,
    Point,
    Refusal,
    Seen,
)

import lastgood
from lastgood import Checkpoint, CheckpointManager, ConflictError, Evidence, EvidencePack, EvidenceType, NotFoundError
from lastgood.engine.history import Entry

FULL = os.environ.get("LASTGOOD_FULL") == "1"
USER = "tester"
LOOK_CLOSELY_EVERY = 7
"""Steps between two looks at everything there is; a look at the outside follows each."""

T = TypeVar("T")

tasks = st.sampled_from(["a", "a", "a", "b"])
sides = st.sampled_from([0, 1])
paths = st.sampled_from(["one", "two"])
contents = st.sampled_from([b"first", b"first", b"other"])  # of one length: only their bytes tell them apart
states = st.integers(0, 3)
"""As `state_of` tells: small numbers, so that what went wrong can be read."""
types = st.sampled_from(["manual", "tool_executed", "stage_failed"])
claim = st.tuples(paths, st.none() | contents)
claims = st.tuples(claim) | st.tuples(claim, claim)
packs = (
    st.just(Pack())
    | claims.map(Pack)
    | claims.map(Pack)
    | st.tuples(claims, st.integers(0, 2)).map(lambda both: Pack(*both))
)
tags = st.sampled_from(["green", "red"])
keys = st.none() | st.none() | st.sampled_from(["k-1", "k-2"])
ways_to_look = st.sampled_from(["task", "branch", "branch", "refresh"])
ways_to_save = st.sampled_from(["save", "append", "refresh and save", "refresh and save"])
ways_to_end = st.sampled_from(["commit", "leave", "leave", "fail", "abandon"])
ways_back = st.sampled_from(["fork", "roll back", "restore", "restore", "undo", "undo", "redo", "switch"])
ways_to_take = st.sampled_from(["delete", "undelete", "purge", "delete_branch", "delete_branch", "delete_old"])
others = st.sampled_from(["change a file", "change a file", "verify", "last good", "reopen", "delete the task"])
ids = st.none() | st.none() | st.sampled_from(["id-1", "id-2"])


def state_of(number: int | None) -> Any:
    """A state of several blobs, and the empty one that a task begins with."""
    return {} if number is None else {"n": number, "log": [f"entry {i} of many" for i in range(number * 60)]}


class Held(NamedTuple):
    """A handle, the side it belongs to, and what it saw."""

    side: int
    task: list[lastgood.Task]  # one, which a reopened store replaces
    seen: Seen


class OpenStep(NamedTuple):
    held: Held
    step: lastgood.Step
    begun: Begun


class Machine(RuleBasedStateMachine):
    handles = Bundle("handles")
    points = Bundle("points")
    steps = Bundle("steps")
    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else None))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.manager = self._open_manager()
        self.other = self._open_other()
        self.model = Model()
        self.objects: dict[str, Checkpoint] = {}
        self.held: list[Held] = []
        self.count = 0

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else what went wrong first is what counts
                self._look_closely()
        finally:
            self.manager.close()
            self.other.close()
            shutil.rmtree(self.folder)

    # --- handles -------------------------------------------------------------------------------------------

    @initialize(target=points)
    def begin_with_checkpoints(self) -> Any:
        self.change_file("one", b"first")
        held = self.open_task(0, "a")
        packs = (Pack(), Pack((("one", None),)), Pack((("one", b"first"),)))
        points = [self.save(held, Content("manual", n, pack), None) for n, pack in enumerate(packs)]
        self.tag(0, points[1], "green", move=False)
        return multiple(*points)

    @initialize(target=handles)
    def begin_with_two_handles(self) -> Any:
        return multiple(self.open_task(0, "a"), self.open_task(1, "a"))

    @rule(target=handles, side=sides, task=tasks, point=points, held=handles, how=ways_to_look)
    def look_at(self, side: int, task: str, point: Point, held: Held, how: str) -> Any:
        if how == "refresh":
            self.refresh(held)
            return multiple()
        return self.open_task(side, task) if how == "task" else self.open_branch(side, self._now(point))

    def open_task(self, side: int, task: str) -> Held:
        return self._hold(side, self._store(side).task(task), Seen(task))

    def open_branch(self, side: int, point: Point) -> Any:
        branch = point.branch
        if self._is_gone(branch):
            return multiple()
        refusal = GONE if branch.head.purged else None
        task = self._meet(refusal, lambda: self._store(side).task(branch.id))
        if task is None:
            return multiple()
        return self._hold(side, task, Seen(branch.id, branch.line, branch, by_branch=True))

    def refresh(self, held: Held) -> None:
        if not self._refuses_to_look(held):
            held.task[0].refresh()
            self.model.look(held.seen)
        self._agree(held)

    def reopen(self, side: int) -> None:
        """Handles of a closed store are made again, on what there is; steps that were open stay open."""
        self._store(side).close()
        if side == 0:
            self.manager = self._open_manager()
        else:
            self.other = self._open_other()
        for held in self.held:
            if held.side == side:
                if self._refuses_to_look(held) and held.seen.line is not None:
                    held.seen.id, held.seen.by_branch = held.seen.line.id, False
                held.task[0] = self._store(side).task(held.seen.id)
                self.model.look(held.seen)

    # --- saving --------------------------------------------------------------------------------------------

    @rule(target=points, held=handles, state=states, type=types, pack=packs, key=keys, id=ids, how=ways_to_save)
    def go_on(self, held: Held, state: int, type: str, pack: Pack, key: str | None, id: str | None, how: str) -> Any:
        if how == "append":
            return self.append(held, state)
        if how == "refresh and save":
            self.refresh(held)
        return self.save(held, Content(type, state, pack, key=key), id)

    def save(self, held: Held, content: Content, id: str | None) -> Any:
        foreseen = self.model.refuse_save(held.seen, content, id)
        refusal = foreseen if isinstance(foreseen, Refusal) else None
        kind, state, pack, _, key = content
        saved = self._meet(
            refusal, lambda: held.task[0].save(state_of(state), type=kind, evidence=_evidence(pack), key=key, id=id)
        )
        if saved is None:
            return multiple()
        if isinstance(foreseen, Point):
            assert saved.id == foreseen.id
            self.model.repeat(held.seen, foreseen)
            return multiple()
        point = self._saved(held.seen, content, saved)
        self._agree(held)
        return point

    def append(self, held: Held, state: int) -> Any:
        refusal = GONE if self._refuses_to_look(held) else None
        saved = self._meet(refusal, lambda: held.task[0].append(state_of(state)))
        if saved is None:
            return multiple()
        self.model.look(held.seen)
        return self._saved(held.seen, Content("manual", state), saved)

    # --- steps ---------------------------------------------------------------------------------------------

    @rule(target=steps, held=handles, touch=st.sampled_from(["not", "read", "change"]), state=states, pack=packs)
    def begin(self, held: Held, touch: str, state: int, pack: Pack) -> OpenStep:
        step = held.task[0].step("edit").begin()
        seen = held.seen
        begun = Begun(step.id, seen.line.id if seen.line else seen.id, seen.branch, "edit", "step", Pack(pack.claims))
        if touch == "change" and not (seen.head and seen.head.content.state == state):
            step.state = state_of(state)
            begun.changed, begun.state, begun.start = True, state, seen.head
        elif touch != "not" and not (seen.head and (seen.head.purged or self._is_gone(seen.head.branch))):
            assert step.state == state_of(seen.head.content.state if seen.head else None)
            begun.changed = seen.head is None
        step.expect(*_evidence(begun.pack).evidence_list)
        self.model.steps.append(begun)
        return OpenStep(held, step, begun)

    @rule(target=points, open=consumes(steps), how=ways_to_end, side=sides)
    def end(self, open: OpenStep, how: str, side: int) -> Any:
        if how == "fail":
            self.fail(open)
        elif how == "abandon":
            self.abandon(side, open)
        else:
            return self.commit(open, by_hand=how == "commit")
        return multiple()

    def commit(self, open: OpenStep, by_hand: bool) -> Any:
        """By hand it stays open when it is refused; at the end of its block it is recorded as failed."""
        held, step, begun = open
        if held.task[0] is not step._task:  # its store was closed
            return multiple()
        refusal = self.model.refuse_commit(held.seen, begun)
        saved = self._meet(refusal, step.commit if by_hand else lambda: step.__exit__(None, None, None))
        if refusal is None:
            saved = step.checkpoint
            assert saved is not None
            point = self.model.commit(held.seen, begun, saved.id, saved.branch_id or "")
            self._agree(held)
            return self._created(point, saved)
        if not by_hand and begun in self.model.steps:
            self.model.end(begun, "step_failed")
        self.refresh(held)  # whether it looked again before it gave up is not promised
        return multiple()

    def fail(self, open: OpenStep) -> None:
        held, step, begun = open
        if held.task[0] is step._task:
            self._meet(None if begun in self.model.steps else GONE, lambda: step.fail("it did not work"))
            if begun in self.model.steps:
                self.model.end(begun, "step_failed")

    def abandon(self, side: int, open: OpenStep) -> None:
        begun = open.begun
        self._meet(None if begun in self.model.steps else GONE, lambda: self._store(side).abandon_step(begun.id))
        if begun in self.model.steps:
            self.model.end(begun, "step_abandoned")

    @rule(target=begun, task=tasks, type=types, state=states)
    def begin_step(self, task: str, type: str, state: int) -> Begun:
        step_id = self.manager.begin_step(task, type, state_of(state))
        step = Begun(step_id, task, None, step_id, type, Pack(), state, changed=True)
        self.model.steps.append(step)
        return step

    @rule(target=points, step=begun, pack=packs, name=ids)
    def commit_step(self, step: Begun, pack: Pack, name: str | None) -> Any:
        """On top of whatever is there; a second time it is an error, or with its id and evidence the stored one."""
        earlier = self.model.find(name or step.id)
        content = Content(step.type, step.state, pack)
        mine = earlier is not None and not earlier.purged and earlier.content.message == step.id
        refusal = None
        if step in self.model.steps:
            refusal = CONFLICT if earlier else None
        elif name is None or not mine or earlier is None or earlier.content.pack != pack:
            refusal = GONE
        saved = self._meet(refusal, lambda: self.manager.commit_step(step.id, _evidence(pack), name))
        if saved is None:
            return multiple()
        if step not in self.model.steps:
            assert earlier is not None
            assert saved.id == earlier.id
            return multiple()
        self.model.steps.remove(step)
        seen = Seen(step.task_id)
        self.model.look(seen)
        return self._saved(seen, content._replace(message=step.id), saved)

    # --- evidence ------------------------------------------------------------------------------------------

    @rule(
        side=sides, task=tasks, point=points, path=paths, content=st.none() | contents, flag=st.booleans(), how=others
    )
    def do_something_else(
        self, side: int, task: str, point: Point, path: str, content: bytes | None, flag: bool, how: str
    ) -> None:
        if how == "change a file":
            self.change_file(path, content)
        elif how == "verify":
            self.verify(side, self._now(point))
        elif how == "last good":
            self.last_good(side, task, verified=flag)
        elif how == "reopen":
            self.reopen(side)
        elif flag:
            self.delete_task(side, task)

    def change_file(self, path: str, content: bytes | None) -> None:
        if content is None:
            (self.files / path).unlink(missing_ok=True)
            self.model.files.pop(path, None)
        else:
            (self.files / path).write_bytes(content)
            self.model.files[path] = content

    def verify(self, side: int, point: Point) -> None:
        refusal = None if self.model.exists(point) else GONE
        held = self._meet(refusal, lambda: self._store(side).verify_checkpoint(point.id))
        if held is not None:
            assert held == self.model.check(point)

    def last_good(self, side: int, task: str, *, verified: bool) -> None:
        line = self.model.lines.get(task)
        if line is not None:
            found = self._store(side).last_good(task, verified=verified)
            expected = self.model.last_good(line, verified=verified)
            assert (found and found.id) == (expected and expected.id)

    # --- going back, and aside -----------------------------------------------------------------------------

    @rule(
        target=points,
        held=handles,
        point=points,
        present=st.none() | states,
        name=st.none() | st.none() | st.sampled_from(["try-a", "try-b", "main"]),
        verify=st.booleans(),
        by_id=st.booleans(),
        fresh=st.booleans(),
        how=ways_back,
    )
    def go_back(
        self,
        held: Held,
        point: Point,
        present: int | None,
        name: str | None,
        verify: bool,
        by_id: bool,
        fresh: bool,
        how: str,
    ) -> Any:
        point = self._now(point)
        if how == "fork":
            return self.fork(held, point, name, paused=present is None, verify=verify, by_id=by_id)
        if how == "roll back":
            return self.roll_back(held.side, point)
        held = self._on_task(held) if fresh else held
        if how == "restore":
            return self.restore(held, point, present, verify=verify, by_id=by_id)
        if how == "switch":
            self.switch(held, point.branch)
        else:
            self.undo_or_redo(held, how)
        return multiple()

    def fork(self, held: Held, point: Point, name: str | None, *, paused: bool, verify: bool, by_id: bool) -> Any:
        chosen = point.id if by_id else self.objects[point.id]
        refusal = self._refuse_choice(held.seen, point, by_id) or self.model.refuse_going_back(point, verify=verify)
        if refusal is None and name in {b.name for b in point.branch.line.branches if not b.deleted} - {None}:
            refusal = CONFLICT
        task = self._meet(refusal, lambda: held.task[0].fork(chosen, name=name, paused=paused, verify=verify))
        if task is None:
            return multiple()
        made = task.head
        assert made is not None
        branch = self.model.branch_off(point, "forked", task.id, made.id, point.branch, name=name)
        branch.head.control = "paused" if paused else point.control
        return self._created(branch.head, made)

    def restore(self, held: Held, point: Point, present: int | None, *, verify: bool, by_id: bool) -> Any:
        chosen, seen = point.id if by_id else self.objects[point.id], held.seen
        refusal = self._refuse_choice(seen, point, by_id) or self.model.refuse_going_back(point, verify=verify)
        refusal = refusal or self.model.refuse(seen) or self._refuse_moving(seen)
        more = {} if present is None else {"present": state_of(present)}
        result = self._meet(refusal, lambda: held.task[0].restore(chosen, verify=verify, **more))
        if result is None:
            return multiple()
        assert seen.head is not None
        assert result.before is not None
        made = []
        if present is not None and present != seen.head.content.state:
            content = Content("before_restore", present)
            made.append(self._created(self.model.save(seen, content, result.before.id, ""), result.before))
        assert result.before.id == seen.head.id
        branch = self._go_back(point, seen.branch, result.branch_id, result.checkpoint, active=seen.on_active)
        self.model.follow(seen, branch)
        if seen.by_branch:
            seen.id = branch.id
        assert result.state == state_of(point.content.state)
        self._agree(held)
        return multiple(*made, branch.head)

    def roll_back(self, side: int, point: Point) -> Any:
        refusal = self.model.refuse_going_back(point, verify=True, demanded=True)
        state = self._meet(refusal, lambda: self._store(side).rollback_to_checkpoint(point.id))
        if refusal is not None:
            return multiple()
        assert state == state_of(point.content.state)
        made = self._store(side).task(point.branch.line.id).head
        assert made is not None
        active = point.branch.line.active
        return self._go_back(point, active, made.branch_id or "", made, active=True).head

    def undo_or_redo(self, held: Held, way: str) -> None:
        refusal = self.model.refuse_move(held.seen, way)
        head = self._meet(refusal, getattr(held.task[0], way))
        if head is not None and held.seen.line is not None:
            getattr(self.model, way)(held.seen.line)
            self.model.look(held.seen)
            self._agree(held)

    def switch(self, held: Held, branch: Branch) -> None:
        refusal = self.model.refuse_switch(held.seen, branch)
        name = branch.name if branch.name and refusal is None else branch.id
        head = self._meet(refusal, lambda: held.task[0].switch(name))
        if head is not None:
            self.model.switch(branch.line, branch)
            held.seen.id, held.seen.by_branch = branch.line.id, False
            self.model.look(held.seen)
            self._agree(held)

    # --- names, and taking away ----------------------------------------------------------------------------

    @rule(side=sides, point=points, name=tags, how=st.sampled_from(["tag", "move", "untag"]))
    def label(self, side: int, point: Point, name: str, how: str) -> None:
        point = self._now(point)
        if how == "untag":
            self.untag(side, point, name)
        else:
            self.tag(side, point, name, move=how == "move")

    def tag(self, side: int, point: Point, name: str, *, move: bool) -> None:
        line = point.branch.line
        refusal = None
        if not self.model.exists(point) or point.deleted:
            refusal = GONE
        elif line.tags.get(name, point) is not point and not move:
            refusal = CONFLICT
        self._meet(refusal, lambda: self._store(side).tag(point.id, name, move=move))
        if refusal is None and line.tags.get(name) is not point:
            line.tags[name] = point
            line.log("tagged", point.branch, point)

    def untag(self, side: int, point: Point, name: str) -> None:
        refusal = None if self.model.exists(point) else GONE
        self._meet(refusal, lambda: self._store(side).untag(point.id, name))
        line = point.branch.line
        if refusal is None and line.tags.get(name) is point:
            del line.tags[name]
            line.log("untagged", point.branch, point)

    @rule(side=sides, point=points, keep=st.integers(0, 4), flag=st.booleans(), how=ways_to_take)
    def take_away(self, side: int, point: Point, keep: int, flag: bool, how: str) -> None:
        point = self._now(point)
        if how == "delete_old":
            self.delete_old(side, point.branch, keep, by_branch=flag)
        else:
            getattr(self, how)(side, point)

    def delete_old(self, side: int, branch: Branch, keep: int, *, by_branch: bool) -> None:
        if not self._is_gone(branch):
            line = branch.id if by_branch else branch.line.id
            count = self._store(side).delete_old_checkpoints(line, keep)
            assert count == self.model.retain(branch.line, branch if by_branch else None, keep)

    def delete(self, side: int, point: Point) -> None:
        refusal = GONE if self.model.is_gone(point.branch.line) else None
        if refusal is None and self.model.is_active_head(point):
            refusal = CONFLICT
        fresh = self._meet(refusal, lambda: self._store(side).delete_checkpoint(point.id))
        if fresh is not None:
            assert fresh == point.is_listed
            if point.is_listed:
                self.model.delete(point)

    def undelete(self, side: int, point: Point) -> None:
        refusal = None if self.model.exists(point) else GONE
        self._meet(refusal, lambda: self._store(side).undelete_checkpoint(point.id))
        if refusal is None and point.deleted:
            point.deleted = False
            point.branch.line.log("undeleted", point.branch, point)

    def purge(self, side: int, point: Point) -> None:
        refusal = None if self.model.exists(point) else GONE
        if refusal is None and self.model.is_active_head(point):
            refusal = CONFLICT
        self._meet(refusal, lambda: self._store(side).purge_checkpoint(point.id))
        if refusal is None:
            self.model.purge(point)

    def delete_branch(self, side: int, point: Point) -> None:
        branch = point.branch
        refusal = GONE if self._is_gone(branch) else None
        if refusal is None and branch is branch.line.active:
            refusal = CONFLICT
        count = self._meet(refusal, lambda: self._store(side).delete_branch(branch.id))
        if count is not None:
            assert count == self.model.delete_branch(branch)

    def delete_task(self, side: int, task: str) -> None:
        line = self.model.lines.get(task)
        count = self._meet(None if line else GONE, lambda: self._store(side).delete_task(task))
        if line is not None:
            assert count == self.model.delete_task(line)

    # --- what always holds ---------------------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        """The outside of both stores in turn; all of it now and then."""
        self.count += 1
        store = self._store(self.count % 2)
        assert {task.id for task in store.tasks()} == set(self.model.lines)
        assert [step.id for step in store.open_steps()] == [step.id for step in self.model.steps]
        for line in self.model.lines.values():
            page = store.page_checkpoints(line.id, 1000)
            assert [c.id for c in page.checkpoints] == [p.id for p in line.listed()]
            assert page.total == len(page.checkpoints)
            self._look_at_branches(store, line)
            assert {name: head.id for name, head in store.tags(line.id).items()} == {
                name: point.id for name, point in line.tags.items()
            }
        if self.count % LOOK_CLOSELY_EVERY == 0:
            self._look_closely()

    def _look_at_branches(self, store: lastgood.Store, line: Line) -> None:
        shown = [b for b in line.branches if not b.deleted or any(p.is_listed for p in b.points)]
        infos = store.branches(line.id)
        assert [info.id for info in infos] == [branch.id for branch in shown]
        for info, branch in zip(infos, shown, strict=True):
            assert info.head is not None
            assert (info.head.id, info.head.sequence) == (branch.head.id, branch.head.sequence)
            assert (info.version, info.deleted) == (branch.head.version, branch.deleted)
            assert info.checkpoints == len(line.listed(branch))
            assert (info.control_state, info.created_by) == (branch.head.control, USER)
        names = [info.name for info in infos if not info.deleted]  # a deleted one's is free again
        assert len(set(names)) == len(names)

    def _look_closely(self) -> None:
        for line in self.model.lines.values():
            store = self._store(self.count % 2)
            for point in line.points:
                assert store.examine_checkpoint(point.id) == []
                if point.purged:
                    with pytest.raises(NotFoundError):
                        store.get_checkpoint(point.id)
                else:
                    self._look_at(store, line, point)
            assert [_told(entry) for entry in store.history(line.id, limit=1000)] == line.history()
            for info in store.branches(line.id):
                branch = next(b for b in line.branches if b.id == info.id)
                self._look_at_origin(info, branch)
                if not branch.deleted:
                    self._look_along(store, line, branch)
            task = store.task(line.id)
            assert task.head is not None
            assert (task.head.id, task.branch_id) == (line.active.head.id, line.active.id)
            recovery = store.recovery(line.id)
            in_flight = [step.id for step in self.model.steps if step.task_id == line.id]
            assert [step.id for step in recovery.running] == in_flight
            found = self.model.last_good(line, verified=False, record=False)
            assert (recovery.last_good and recovery.last_good.id) == (found and found.id)
        assert [event.kind for event in self.other.catalog.store_events(limit=1000)] == self.model.log

    def _look_at(self, store: lastgood.Store, line: Line, point: Point) -> None:
        found = store.get_checkpoint(point.id)
        assert found.state == state_of(point.content.state)
        assert (found.type, found.lineage, found.key) == (point.content.type, point.lineage, point.content.key)
        assert (found.sequence, found.version, found.last_event) == (point.sequence, point.version, point.event)
        assert (found.verified, found.deleted) == (bool(point.recorded), point.deleted)
        assert (found.last_verified_at is not None) == (point.recorded is not None)
        assert (found.control_state, found.branch_id) == (point.control, point.branch.id)
        assert (found.tags, found.integrity_ok) == (line.tags_of(point), True)
        assert found.parent_id == (point.parent and point.parent.id)
        if point.parent is not None:
            assert found.record.parent_checksum == store.stored(point.parent.id, USER).checksum
        assert found.checksum == self.objects[point.id].checksum

    def _look_at_origin(self, info: lastgood.BranchInfo, branch: Branch) -> None:
        """E3"""
        assert branch.name is None or branch.deleted or info.name == branch.name
        if branch.origin is None:
            assert (info.origin_id, info.origin_sequence, info.metadata) == (None, 0, {})
            return
        assert (info.origin_id, info.origin_sequence) == (branch.origin.id, branch.origin.sequence)
        at = self.objects[branch.origin.id].created_at
        assert info.metadata == {
            "restoredFrom": branch.origin.id,
            "originalTask": branch.line.id,
            "restorePoint": at.isoformat(),
            "isBranch": True,
        }
        assert branch.name is not None or f"(Restored from {at:%Y-%m-%dT%H:%M:%S}Z)" in info.name

    def _look_along(self, store: lastgood.Store, line: Line, branch: Branch) -> None:
        for kind in (None, "manual", "restored"):
            page = store.page_checkpoints(branch.id, 1000, kind)
            expected = [p.id for p in line.listed(branch) if kind in (None, p.content.type)]
            assert ([c.id for c in page.checkpoints], page.total) == (expected, len(expected))
            verified = store.get_last_verified_checkpoint(branch.id, kind)
            found = line.last_verified(branch, kind)
            assert (verified and verified.id) == (found and found.id)
        assert [_told(entry) for entry in store.history(branch.id, limit=1000)] == line.history(branch)

    # --- both at once --------------------------------------------------------------------------------------

    def _meet(self, refusal: Refusal | None, act: Callable[[], T]) -> T | None:
        """Do it, and see it refused as foreseen."""
        if refusal is None:
            return act()
        with pytest.raises(refusal.kinds) as caught:
            act()
        if refusal.head is not None:
            assert isinstance(caught.value, ConflictError)
            assert caught.value.head.id == refusal.head.id
        return None

    def _now(self, point: Point) -> Point:
        """Who has its id now: one that its caller named may have gone with its task, and the name be another's."""
        return self.model.find(point.id) or point

    def _on_task(self, held: Held) -> Held:
        """A new handle on the task of this one, which goes wherever its work is."""
        return self.open_task(held.side, held.seen.line.id if held.seen.line else held.seen.id)

    def _refuse_choice(self, seen: Seen, point: Point, by_id: bool) -> Refusal | None:
        if by_id and not self.model.exists(point):
            return GONE
        return self.model.refuse_other_task(seen, point)

    def _refuse_moving(self, seen: Seen) -> Refusal | None:
        """A handle minds when its branch was the active one and is not any more, or the other way round."""
        if seen.line is None:
            return GONE
        return CONFLICT if seen.on_active != (seen.line.active is seen.branch) else None

    def _refuses_to_look(self, held: Held) -> bool:
        branch = held.seen.branch
        return held.seen.by_branch and branch is not None and (self._is_gone(branch) or branch.head.purged)

    def _is_gone(self, branch: Branch) -> bool:
        return branch.deleted or self.model.is_gone(branch.line)

    def _saved(self, seen: Seen, content: Content, saved: Checkpoint) -> Point:
        return self._created(self.model.save(seen, content, saved.id, saved.branch_id or ""), saved)

    def _created(self, point: Point, made: Checkpoint) -> Point:
        assert (made.branch_id, made.sequence, made.version) == (point.branch.id, point.sequence, point.version)
        assert made.verified == bool(point.recorded)
        self.objects[point.id] = made
        return point

    def _go_back(self, point: Point, left: Branch | None, id: str, made: Checkpoint, *, active: bool) -> Branch:
        assert left is not None
        branch = self.model.branch_off(point, "restored", id, made.id, left)
        if active:
            self.model.activate(point.branch.line, branch)
        self._created(branch.head, made)
        return branch

    def _agree(self, held: Held) -> None:
        head, seen = held.task[0].head, held.seen
        assert (head and head.id) == (seen.head and seen.head.id)

    def _hold(self, side: int, task: lastgood.Task, seen: Seen) -> Held:
        self.model.look(seen)
        held = Held(side, [task], seen)
        self.held.append(held)
        self._agree(held)
        return held

    def _store(self, side: int) -> lastgood.Store:
        return self.other if side else self.manager

    def _open_manager(self) -> CheckpointManager:
        return CheckpointManager(self.folder / "store", self.files, user=USER)

    def _open_other(self) -> lastgood.Store:
        return lastgood.open(self.folder / "store", user=USER, base_path=self.files)


def _evidence(pack: Pack) -> EvidencePack:
    found = [
        Evidence(EvidenceType.ARTIFACT_EXISTS, f"{path} is there", {"path": path})
        if expected is None
        else Evidence(EvidenceType.FILE_SHA256, f"{path} is as it was", _hashed(path, expected))
        for path, expected in pack.claims
    ]
    if pack.need is None:
        return EvidencePack(found)
    return EvidencePack(found, require_all=False, allow_partial=True, min_verified=pack.need)


def _hashed(path: str, content: bytes) -> dict[str, str]:
    return {"path": path, "sha256": hashlib.sha256(content).hexdigest()}


def _told(entry: Entry) -> tuple[int, str, str, str | None]:
    return entry.sequence, entry.kind, entry.branch_id, entry.checkpoint_id


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=500 if FULL else 40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
