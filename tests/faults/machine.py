"""The state machine: everything a store does, in any order, with crashes and failures in the middle (G10).

Two stores lie open on one place; rules act through either, through handles that are fresh or stale, with and without
the files. Any operation may be killed, torn or fail at one of its calls.

It runs in a process that was started with the shim: campaigns/machine.py does that.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import io
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.faults.backend import BACKENDS, Backend, bytes_of, state_of
from tests.faults.model import Refusal
from tests.faults.model_values import Begun, Branch, Content, Line, Pack, Point, Seen
from tests.faults.shim import UNDISTURBED, Fault
from tests.faults.store_and_model import USER, WORK, Held, StoreAndModel

import lastgood
from lastgood import CheckpointManager, Evidence, EvidencePack, EvidenceType, NotFoundError
from lastgood.engine import gather
from lastgood.upkeep import collect, repack

STEPS = 50
LOOK_EVERY, LOOK_CLOSELY_EVERY = 3, 12
"""Steps between two looks at the outside of a store, which follows each fault, too; and at everything there is."""

tasks = st.sampled_from([WORK, WORK, WORK, "other"])
sides = st.sampled_from([0, 1])
claimed = st.sampled_from(["one", "two"])
claimed_contents = st.sampled_from([b"first", b"first", b"other"])  # of one length: only their bytes tell them apart
states = st.integers(0, 3)
"""As `state_of` tells: small numbers, so that what went wrong can be read."""
types = st.sampled_from(["manual", "tool_executed", "stage_failed"])
claim = st.tuples(claimed, st.none() | claimed_contents)
claims = st.tuples(claim) | st.tuples(claim, claim)
packs = st.just(Pack()) | claims.map(Pack) | st.tuples(claims, st.integers(0, 2)).map(lambda both: Pack(*both))
tags = st.sampled_from(["green", "red"])
keys = st.none() | st.none() | st.sampled_from(["k-1", "k-2"])
ids = st.none() | st.none() | st.sampled_from(["id-1", "id-2"])
paths = st.sampled_from(["a", "b", "deep", "deep/c", "deep/d"])
files = st.tuples(st.just("file"), st.sampled_from([0o644, 0o755]), st.integers(0, 4))
nodes = files | files | st.sampled_from([None, ("link", 0, "a"), ("folder", 0o755, ""), ("folder", 0o700, "")])
ways_to_look = st.sampled_from(["task", "branch", "branch", "refresh"])
ways_to_save = st.sampled_from(["save", "append", "refresh and save", "refresh and save"])
ways_to_end = st.sampled_from(["commit", "leave", "leave", "fail", "abandon"])
ways_to_move = st.sampled_from(["undo", "undo", "redo", "switch", "switch"])
ways_to_take = st.sampled_from(["delete", "undelete", "purge", "delete_branch", "delete_branch", "delete_old"])
whats = st.sampled_from(["both", "both", "both", "state", "files", "files"])
others = st.sampled_from(["change a claim", "change a claim", "verify", "last good", "reopen", "delete the task"])
calls = st.integers(1, 12) | st.integers(1, 30) | st.integers(1, 90)
deaths = st.tuples(st.sampled_from(["kill", "kill", "tear"]), calls)
failures = st.tuples(st.just("fail"), calls, st.sampled_from([errno.EIO, errno.ENOSPC]))
undisturbed = st.just(UNDISTURBED)
faults = undisturbed | (deaths | deaths | failures).map(lambda told: Fault(*told))
rare_faults = undisturbed | undisturbed | undisturbed | faults
rarely = st.sampled_from([False, False, False, True])


class OpenStep(NamedTuple):
    held: Held
    step: lastgood.Step
    begun: Begun


class Machine(RuleBasedStateMachine):
    backend: ClassVar[Backend]

    handles = Bundle("handles")
    points = Bundle("points")
    steps = Bundle("steps")
    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.both = StoreAndModel(self.backend)
        self.model = self.both.model
        self.shown: set[int] = set()
        self.kept: list[Point] = []
        self.count = 0

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else what went wrong first is what counts
                self._look_closely()
                assert self.store(0).check(read_data=True).findings == ()
        finally:
            self.both.close()

    # --- handles ----------------------------------------------------------------------------------------------------

    @initialize(target=points)
    def begin_with_checkpoints(self) -> Any:
        self.change_claim("one", b"first")
        held = self.open_task(0, WORK, files=True)
        for number, pack in enumerate((Pack(), Pack((("one", None),)), Pack((("one", b"first"),)))):
            self.both.edit(self.model.disk.edited("a", ("file", 0o644, bytes_of(number))))
            self.save(held, Content("manual", number, pack), None)
        first, second, _ = self.model.lines[WORK].points
        self.tag(0, second, "green", move=False)
        for point, what in ((second, "both"), (first, "files")):
            self.both.edit(self.model.disk.edited("deep/c", ("file", 0o755, bytes_of(point.sequence))))
            self._restore(held, point, what)
        return self._new()

    @initialize(target=handles)
    def begin_with_three_handles(self) -> Any:
        wanted = (0, True), (1, True), (1, False)
        return multiple(*(self.open_task(side, WORK, files=files) for side, files in wanted))

    @rule(target=handles, side=sides, task=tasks, point=points, held=handles, files=st.booleans(), how=ways_to_look)
    def look_at(self, side: int, task: str, point: Point, held: Held, files: bool, how: str) -> Any:
        if how == "refresh":
            self.both.refresh(held)
            return multiple()
        if how == "task":
            return self.open_task(side, task, files=files)
        return self.open_branch(side, self._now(point).branch, files=files)

    def open_task(self, side: int, task: str, *, files: bool) -> Held:
        return self.both.open_handle(side, Seen(task, files=files and task == WORK))

    def open_branch(self, side: int, branch: Branch, *, files: bool) -> Any:
        seen = Seen(branch.id, branch.line, branch, by_branch=True, files=files and branch.line.id == WORK)
        if self.model.has_ended(branch):
            return multiple()
        if self.model.refuses_to_look(seen):
            with contextlib.suppress(NotFoundError):
                self.store(side).task(branch.id)
                raise AssertionError("a handle on a branch whose head was purged")
            return multiple()
        return self.both.open_handle(side, seen)

    # --- files ----------------------------------------------------------------------------------------------------

    @rule(edits=st.lists(st.tuples(paths, nodes), min_size=1, max_size=3))
    def edit(self, edits: list[tuple[str, tuple[str, int, Any] | None]]) -> None:
        tree = self.model.disk
        for path, node in edits:
            if node is None:
                tree = tree.edited(path, None)
            else:
                kind, mode, content = node
                tree = tree.edited(path, (kind, mode, bytes_of(content) if kind == "file" else content.encode()))
        self.both.edit(tree)

    # --- saving -----------------------------------------------------------------------------------------------------

    @rule(
        target=points,
        held=handles,
        state=states,
        type=types,
        pack=packs,
        key=keys,
        id=ids,
        how=ways_to_save,
        fault=faults,
    )
    def go_on(
        self,
        held: Held,
        state: int,
        type: str,
        pack: Pack,
        key: str | None,
        id: str | None,
        how: str,
        fault: Fault,
    ) -> Any:
        if how == "refresh and save":
            self.both.refresh(held)
        self.both.fault = fault
        if how == "append":
            content, handle = Content("manual", state), held.task[0]
            self.do("append", held.seen, content, action=lambda: handle.append(state_of(state)), held=held)
        else:
            self.save(held, Content(type, state, pack, key=key), id)
        return self._new()

    def save(self, held: Held, content: Content, id: str | None) -> None:
        state, handle = state_of(content.state), held.task[0]
        how: dict[str, Any] = {"type": content.type, "evidence": _evidence(content.pack), "key": content.key, "id": id}
        self.do("save", held.seen, content, id, action=lambda: handle.save(state, **how), held=held)

    # --- steps ------------------------------------------------------------------------------------------------------

    @rule(
        target=steps,
        held=handles,
        touch=st.sampled_from(["not", "read", "change"]),
        state=states,
        pack=packs,
        fault=rare_faults,
    )
    def begin(self, held: Held, touch: str, state: int, pack: Pack, fault: Fault) -> Any:
        self.both.fault = fault
        step, seen = held.task[0].step("edit"), held.seen
        begun = self.do("begin", seen, pack, action=step.begin, held=held)
        if not isinstance(begun, Begun):
            return multiple()
        if touch == "change" and not (seen.head and seen.head.content.state == state):
            step.state = state_of(state)
            begun.changed, begun.state, begun.start = True, state, seen.head
        elif touch != "not" and not (seen.head and (seen.head.purged or self.model.has_ended(seen.head.branch))):
            assert step.state == state_of(seen.head.content.state if seen.head else None)
            begun.changed = seen.head is None
        step.expect(*_evidence(begun.pack).evidence_list)
        return OpenStep(held, step, begun)

    @rule(target=points, open=consumes(steps), how=ways_to_end, side=sides, fault=faults)
    def end(self, open: OpenStep, how: str, side: int, fault: Fault) -> Any:
        self.both.fault = fault
        held, step, begun = open
        if how == "abandon":
            store = self.store(side)
            self.do("end", begun, "step_abandoned", action=lambda: store.abandon_step(begun.id))
        elif held.task[0]._handle is not step._handle:  # its store was closed
            pass
        elif how == "fail":
            self.do("end", begun, "step_failed", action=lambda: step.fail("it did not work"))
        else:
            by_hand = how == "commit" or self.both.fault.kind != "none"
            action = step.commit if by_hand else lambda: step.__exit__(None, None, None)
            told = self.do("commit", held.seen, begun, by_hand, action=action, held=held)
            if isinstance(told, Refusal):
                self.both.refresh(held)  # whether it looked again before it gave up is not promised
        return self._new()

    @rule(target=begun, task=tasks, type=types, state=states, fault=rare_faults)
    def begin_step(self, task: str, type: str, state: int, fault: Fault) -> Any:
        self.both.fault = fault
        manager = self.manager()
        begun = self.do("begin_step", task, type, state, action=lambda: manager.begin_step(task, type, state_of(state)))
        return begun or multiple()

    @rule(target=points, step=begun, pack=packs, name=ids, fault=faults)
    def commit_step(self, step: Begun, pack: Pack, name: str | None, fault: Fault) -> Any:
        self.both.fault = fault
        manager = self.manager()
        self.do("commit_step", step, pack, name, action=lambda: manager.commit_step(step.id, _evidence(pack), name))
        return self._new()

    # --- evidence ---------------------------------------------------------------------------------------------------

    @rule(
        side=sides,
        task=tasks,
        point=points,
        path=claimed,
        content=st.none() | claimed_contents,
        flag=st.booleans(),
        how=others,
        fault=rare_faults,
    )
    def do_something_else(
        self, side: int, task: str, point: Point, path: str, content: bytes | None, flag: bool, how: str, fault: Fault
    ) -> None:
        self.both.fault = fault
        store, point = self.store(side), self._now(point)
        if how == "change a claim":
            self.change_claim(path, content)
        elif how == "verify":
            self.do("verify", point, action=lambda: store.verify_checkpoint(point.id))
        elif how == "last good":
            found: list[Any] = []
            told = self.do("last_good", task, flag, action=lambda: found.append(store.last_good(task, any=flag)))
            if found and fault is UNDISTURBED:
                assert (found[0] and found[0].id) == (told and told.id)
        elif how == "reopen":
            self.both.reopen(side)
        elif flag:
            self.do("delete_task", task, action=lambda: store.delete_task(task))

    def change_claim(self, path: str, content: bytes | None) -> None:
        if content is None:
            (self.both.claims / path).unlink(missing_ok=True)
            self.model.claimed.pop(path, None)
        else:
            (self.both.claims / path).write_bytes(content)
            self.model.claimed[path] = content

    # --- going back, and aside --------------------------------------------------------------------------------------

    @rule(
        target=points,
        held=handles,
        point=points,
        name=st.none() | st.sampled_from(["try-a", "try-b", "main"]),
        verify=st.booleans(),
        by_id=st.booleans(),
        forks=st.booleans(),
        paused=st.booleans(),
        fault=faults,
    )
    def go_aside(
        self,
        held: Held,
        point: Point,
        name: str | None,
        verify: bool,
        by_id: bool,
        forks: bool,
        paused: bool,
        fault: Fault,
    ) -> Any:
        """A fork, or a rollback of the manager's."""
        self.both.fault = fault
        point, handle, store = self._now(point), held.task[0], self.store(held.side)
        if forks:
            chosen = self._chosen(point, by_id)
            how: dict[str, Any] = {"name": name, "paused": paused, "verify": verify}
            self.do("fork", held.seen, point, name, paused, verify, action=lambda: handle.fork(chosen, **how))
        else:
            self.do("roll_back", point, action=lambda: store.rollback_to_checkpoint(point.id))
        return self._new()

    @rule(
        target=points,
        held=handles,
        point=points,
        present=st.none() | states,
        what=whats,
        only=st.none() | st.none() | st.sampled_from(["a", "b", "deep"]),
        verify=rarely,
        by_id=st.booleans(),
        stale=rarely,
        fault=faults,
    )
    def restore(
        self,
        held: Held,
        point: Point,
        present: int | None,
        what: Any,
        only: str | None,
        verify: bool,
        by_id: bool,
        stale: bool,
        fault: Fault,
    ) -> Any:
        point, held = self._now(point), held if stale else self._again(held)
        self.both.fault = fault
        self._restore(held, point, what, only if what == "files" else None, present, verify=verify, by_id=by_id)
        return self._new()

    def _restore(
        self,
        held: Held,
        point: Point,
        what: Any,
        only: str | None = None,
        present: int | None = None,
        *,
        verify: bool = True,
        by_id: bool = True,
    ) -> None:
        chosen, handle = self._chosen(point, by_id), held.task[0]
        more: dict[str, Any] = {"paths": [only]} if only else {}
        more |= {} if present is None else {"present": state_of(present)}
        self.do(
            "restore",
            *(held.seen, point, what, only, present, verify),
            action=lambda: handle.restore(chosen, what, verify=verify, **more),
            held=held,
        )

    @rule(target=points, held=handles, point=points, how=ways_to_move, stale=rarely, fault=faults)
    def move(self, held: Held, point: Point, how: str, stale: bool, fault: Fault) -> Any:
        held, branch = held if stale else self._again(held), self._now(point).branch
        handle, seen = held.task[0], held.seen
        self.both.fault = fault
        if how == "switch":
            is_there = branch.line is seen.line and not self.model.has_ended(branch)
            name = branch.name if is_there and branch.name else branch.id
            self.do("switch", seen, branch, action=lambda: handle.switch(name), held=held)
        else:
            self.do(how, seen, action=getattr(handle, how), held=held)
        return self._new()

    def _again(self, held: Held) -> Held:
        """A new handle on the same task, which knows where the work is."""
        return self.open_task(held.side, held.seen.task_id, files=held.seen.files)

    # --- names, and taking away -------------------------------------------------------------------------------------

    @rule(side=sides, point=points, name=tags, how=st.sampled_from(["tag", "move", "untag"]), fault=rare_faults)
    def label(self, side: int, point: Point, name: str, how: str, fault: Fault) -> None:
        self.both.fault = fault
        point, store = self._now(point), self.store(side)
        if how == "untag":
            self.do("untag", point, name, action=lambda: store.untag(point.id, name))
        else:
            self.tag(side, point, name, move=how == "move")

    def tag(self, side: int, point: Point, name: str, *, move: bool) -> None:
        store = self.store(side)
        self.do("tag", point, name, move, action=lambda: store.tag(point.id, name, move=move))

    @rule(side=sides, point=points, keep=st.integers(0, 4), flag=st.booleans(), how=ways_to_take, fault=faults)
    def take_away(self, side: int, point: Point, keep: int, flag: bool, how: str, fault: Fault) -> None:
        self.both.fault = fault
        point, store = self._now(point), self.store(side)
        branch = point.branch
        if how == "delete_old":
            line = branch.id if flag else branch.line.id
            action = lambda: store.delete_old_checkpoints(line, keep)  # noqa: E731
            if not self.model.has_ended(branch):
                self.do("delete_old", branch, flag, keep, action=action)
        elif how == "delete_branch":
            self.do("delete_branch", branch, action=lambda: store.delete_branch(branch.id))
        else:
            act_on = getattr(store, f"{how}_checkpoint")
            self.do(how, point, action=lambda: act_on(point.id))

    @rule(side=sides, share=st.none() | st.none() | st.floats(0, 1), fault=faults)
    def tidy(self, side: int, share: float | None, fault: Fault) -> None:
        self.both.fault = fault
        store = self.store(side)
        if share is None:
            self.do("collect", action=lambda: store.collect(grace=0))
        else:
            self.both.limit(side, int(store.size() * share))

    # --- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def look(self) -> None:
        """The outside of both stores in turn; all of it now and then."""
        self.count += 1
        if self.count % LOOK_CLOSELY_EVERY == 0:
            self._look_closely()
        elif self.count % LOOK_EVERY == 0:
            self.both.look(self.count % 2, closely=False)

    def _look_closely(self) -> None:
        side = self.count % 2
        self.both.look(side, closely=True)
        for line in self.model.lines.values():
            for info in self.store(side).branches(line.id):
                branch = next(b for b in line.branches if b.id == info.id)
                self._look_at_origin(info, branch)
                if not branch.deleted:
                    self._look_along(self.store(side), line, branch)
            recovery = self.store(side).recovery(line.id)
            for found, orphaned in ((recovery.running, False), (recovery.interrupted, True)):
                steps = [s.id for s in self.model.steps if s.task_id == line.id and s.orphaned is orphaned]
                assert [step.id for step in found] == steps
            assert all(each.made and each.doubted for each in recovery.restores), "else opening it ends them"
        assert self.store(side).check().findings == ()

    def _look_at_origin(self, info: lastgood.types.BranchInfo, branch: Branch) -> None:
        """E3"""
        assert branch.name is None or branch.deleted or info.name == branch.name
        assert info.created_by == USER
        if branch.origin is None:
            assert (info.origin_id, info.origin_sequence, info.metadata) == (None, 0, {})
            return
        assert (info.origin_id, info.origin_sequence) == (branch.origin.id, branch.origin.sequence)
        assert info.metadata["restoredFrom"] == branch.origin.id
        assert branch.name is not None or " from 2" in info.description

    def _look_along(self, store: lastgood.Store, line: Line, branch: Branch) -> None:
        for kind in (None, "manual", "restored"):
            page = store.page_checkpoints(branch.id, 1000, kind)
            expected = [p.id for p in line.listed(branch) if kind in (None, p.content.type)]
            assert ([c.id for c in page.checkpoints], page.total) == (expected, len(expected))
            verified = store.get_last_verified_checkpoint(branch.id, kind)
            found = line.last_verified(branch, kind)
            assert (verified and verified.id) == (found and found.id)
        told = [(e.sequence, e.kind, e.checkpoint_id) for e in store.history(branch.id, limit=1000)]
        assert told == [(e.number, e.kind, e.point and e.point.id) for e in line.history(branch)]

    # --- means ------------------------------------------------------------------------------------------------------

    def do(self, way: str, *args: Any, **how: Any) -> Any:
        return self.both.do(way, *args, **how)

    def store(self, side: int) -> lastgood.Store:
        return self.both.stores[side]

    def manager(self) -> CheckpointManager:
        manager = self.both.stores[0]
        assert isinstance(manager, CheckpointManager)
        return manager

    def _now(self, point: Point) -> Point:
        """Who has its id now: one that its caller named may have gone with its task, and the name be another's."""
        return self.model.find(point.id) or point

    def _chosen(self, point: Point, by_id: bool) -> Any:
        """Its id, or the checkpoint itself, as long as there is one."""
        with contextlib.suppress(NotFoundError):
            return point.id if by_id else self.store(1).find_checkpoint(point.id)
        return point.id

    def _new(self) -> Any:
        """The points that no rule has been given yet."""
        found = [p for line in self.model.lines.values() for p in line.points if id(p) not in self.shown]
        self.shown.update(map(id, found))
        self.kept += found  # so that an id stays the id of one
        return multiple(*found)


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


# --- as a program ---------------------------------------------------------------------------------------------------


def run_machine(backend: Backend, seed: int, examples: int, *, shrink: bool) -> Iterator[str]:
    """So many runs of the machine; a falsifying one, told as a program, if there is one."""
    machine: Any = type("Machine", (Machine,), {"backend": backend})
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    how = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=True,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=how)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)[-4:]))
        notes = "\n".join(getattr(error, "__notes__", ()))
        yield f"{type(error).__name__}: {error}\n{where}{said.getvalue()}{notes}"


def main() -> None:
    """One line of JSON for each seed: the seed, and what was wrong."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("backend", choices=sorted(BACKENDS))
    options.add_argument("--seed", type=int, nargs="+", default=[0])
    options.add_argument("--examples", type=int, default=5)
    options.add_argument("--shrink", action="store_true", help="make a falsifying example short, and print it plainly")
    given = options.parse_args()
    logging.getLogger("lastgood").addHandler(logging.NullHandler())
    _work_in_small_steps()
    for seed in given.seed:
        violations = list(run_machine(BACKENDS[given.backend], seed, given.examples, shrink=given.shrink))
        if given.shrink:
            sys.stdout.write(f"{chr(10).join(violations) or 'nothing was wrong'}\n")
        else:
            sys.stdout.write(f"{json.dumps([seed, violations])}\n")
        sys.stdout.flush()


def _work_in_small_steps() -> None:
    """Few blobs make a pack, and a collection changes few rows at a time. A process that could not release its lease
    for collecting makes the next one wait for a second, not ten: those were two thirds of the time."""
    smaller = ((gather, "INLINE_BLOBS", 3), (gather, "PACK_BYTES", 20_000), (repack, "PACK_BYTES", 20_000))
    steps = ((collect, "AT_ONCE", 3), (repack, "AT_ONCE", 2))
    for module, name, value in (*smaller, *steps, (collect, "LEASE_SECONDS", 1.0)):
        assert hasattr(module, name)
        setattr(module, name, value)


if __name__ == "__main__":
    main()
