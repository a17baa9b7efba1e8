"""What a store must do, in plain Python: written from the documents, and knowing nothing of how it is done.

Each operation tells what its caller is told: a `Refusal`, which says which errors will do and, where that is promised,
the head that a ConflictError carries; or what it came to. One that takes several transactions is a generator, which
yields after each: there it may have stopped for ever.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from tests.faults.model_values import Begun, Branch, Content, Line, Move, Pack, Point, Seen, Tree

from lastgood.errors import CheckpointError, ConflictError, EvidenceError, InvalidError, NotFoundError

NEVER_GOOD = ("stage_failed", "cancelled", "before_restore")
Doing = Generator[None, None, Any]


class Refusal(NamedTuple):
    kinds: tuple[type[CheckpointError], ...]
    head: Point | None = None


GONE = Refusal((NotFoundError, ConflictError))
CONFLICT = Refusal((ConflictError,))
INVALID = Refusal((InvalidError,))


class Model:
    """Everything in a store, the files of the task that has some, and the files that evidence is about.

    `landing`: what lies on disk when a restore could not put everything back. `unrecorded`: which of the next results
    of checking evidence could not be recorded.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.disk = Tree()
        self.landing: Tree | None = None
        self.unrecorded = 0
        self.claimed: dict[str, bytes] = {}
        self.steps: list[Begun] = []
        self.log: list[str] = []

    # --- looking ----------------------------------------------------------------------------------------------------

    def look(self, seen: Seen) -> None:
        line = seen.line if seen.by_branch else self.lines.get(seen.id)
        branch = seen.branch if seen.by_branch else line.active if line else None
        seen.line, seen.branch, seen.head = line, branch, branch.head if branch else None
        seen.on_active = line is None or line.active is branch

    def refuses_to_look(self, seen: Seen) -> bool:
        return seen.by_branch and seen.branch is not None and (self.has_ended(seen.branch) or seen.branch.head.purged)

    def is_gone(self, line: Line) -> bool:
        return self.lines.get(line.id) is not line

    def has_ended(self, branch: Branch) -> bool:
        return branch.deleted or self.is_gone(branch.line)

    def find(self, id: str) -> Point | None:
        return next((point for line in self.lines.values() for point in line.points if point.id == id), None)

    def exists(self, point: Point) -> bool:
        return not self.is_gone(point.branch.line) and not point.purged

    def holds(self, pack: Pack) -> bool:
        held = [
            path in self.claimed if expected is None else self.claimed.get(path) == expected
            for path, expected in pack.claims
        ]
        return bool(held) and (all(held) if pack.need is None else sum(held) >= max(1, pack.need))

    # --- saving -----------------------------------------------------------------------------------------------------

    def refuse(self, seen: Seen) -> Refusal | None:
        """Whether what a handle saw is not what is there any more."""
        present = self.lines.get(seen.task_id)
        if seen.line is None:
            return Refusal((ConflictError,), present.active.head) if present else None
        if present is not seen.line or seen.branch is None or seen.branch.head.purged:
            return GONE
        if seen.by_branch:
            if seen.branch.deleted:
                return GONE
            return None if seen.branch.head is seen.head else Refusal((ConflictError,), seen.branch.head)
        return None if present.active.head is seen.head else Refusal((ConflictError,), present.active.head)

    def refuse_files(self, seen: Seen) -> Refusal | None:
        """The files in a folder are one branch's at a time."""
        if not seen.files or seen.line is None or seen.line.bound is None or seen.line.bound.deleted:
            return None
        return None if seen.line.bound is seen.branch else CONFLICT

    def save(self, seen: Seen, content: Content, id: str | None) -> Refusal | Point:
        """A point that is stored already is returned, and nothing else happens."""
        line = self.lines.get(seen.task_id)
        earlier = self.find(id) if id else None
        if earlier is None and content.key and line:
            earlier = next((p for p in line.points if p.content.key == content.key and not p.purged), None)
        if earlier is None:
            refusal = self.refuse(seen) or self.refuse_files(seen)
            return refusal or self._save(seen, content, id or "")
        same = earlier.content == content and earlier.branch.line is line and not earlier.purged
        if not same or (seen.files and earlier.files != self.disk):
            return CONFLICT
        further = seen.head is None or (earlier.branch is seen.branch and earlier.sequence > seen.head.sequence)
        if further and not earlier.deleted:
            seen.line, seen.branch, seen.head = earlier.branch.line, earlier.branch, earlier
        return earlier

    def append(self, seen: Seen, content: Content) -> Refusal | Point:
        if self.refuses_to_look(seen):
            return GONE
        self.look(seen)
        return self.refuse_files(seen) or self._save(seen, content)

    def _save(self, seen: Seen, content: Content, id: str = "", *, capture: bool = True) -> Point:
        """A handle without the workspace keeps the files of the head."""
        if seen.line is None:
            line = self.lines[seen.id] = Line(seen.id)
            line.active = Branch("main", line, None)
            line.branches.append(line.active)
            seen.line, seen.branch = line, line.active
        assert seen.branch is not None
        lineage = "manual" if content.type == "manual" else "automatic"
        captures = capture and seen.files
        files = self.disk if captures else seen.head.files if seen.head else None
        seen.head = self._add(seen.branch, seen.head, content, files, lineage)
        seen.head.id = id
        if captures:
            seen.line.bound = seen.branch
        if content.pack.claims:
            seen.head.recorded = self.holds(content.pack)
        return seen.head

    def _add(self, branch: Branch, parent: Point | None, content: Content, files: Tree | None, lineage: str) -> Point:
        line = branch.line
        control = parent.control if parent else "idle"
        sequence, version = len(line.points) + 1, len(branch.points) + 1
        point = Point(content, files, branch, parent, sequence, version, 0, control, lineage)
        point.event = line.log("branched" if branch.origin and version == 1 else "created", branch, point)
        line.points.append(point)
        branch.points.append(point)
        return point

    # --- steps ------------------------------------------------------------------------------------------------------

    def begin(self, seen: Seen, pack: Pack) -> Doing:
        """The files that it finds are saved first, if they are not those of the head that was seen."""
        if seen.files and (seen.head is None or seen.head.files != self.disk):
            if (refusal := self.refuse_on_top(seen)) is not None:
                return refusal
            state = seen.head.content.state if seen.head else None
            self._save(seen, Content("before_step", state))
            yield
        begun = Begun(seen.task_id, seen.branch, "step", Pack(pack.claims))
        self.steps.append(begun)
        return begun

    def begin_step(self, task_id: str, type: str, state: int) -> Begun:
        begun = Begun(task_id, None, type, Pack(), state, changed=True)
        self.steps.append(begun)
        return begun

    def refuse_commit(self, seen: Seen, step: Begun) -> Refusal | None:
        if step not in self.steps:
            return GONE
        if step.changed:
            moved = None if seen.head is step.start else Refusal((ConflictError,), seen.head)
            return self.refuse(seen) or moved or self.refuse_files(seen)
        return self.refuse_on_top(seen)

    def refuse_on_top(self, seen: Seen) -> Refusal | None:
        """Why nothing can be saved on whatever the head is."""
        if seen.by_branch and seen.branch is not None:
            branch = seen.branch
            if self.is_gone(branch.line) or branch.deleted or branch.head.purged:
                return GONE
        if self.refuse(seen):
            self.look(seen)
        return self.refuse_files(seen)

    def commit(self, seen: Seen, step: Begun, by_hand: bool) -> Doing:
        """One that left the state as it was continues whatever is there, also nothing. By hand it stays open when it is
        refused; at the end of its block it is recorded as failed."""
        refusal = self.refuse_commit(seen, step)
        if refusal is None:
            unchanged = seen.head.content.state if seen.head else None
            self.steps.remove(step)
            content = Content(step.type, step.state if step.changed else unchanged, step.pack)
            return self._save(seen, content, step.id)
        if not by_hand and step in self.steps:
            yield
            self.end(step, "step_failed")
        return refusal

    def commit_step(self, step: Begun, pack: Pack, name: str | None) -> Refusal | Point:
        """On top of whatever is there; a second time it is an error, or with its id and evidence the stored one."""
        earlier = self.find(name or step.id)
        if step in self.steps:
            if earlier is not None:
                return CONFLICT
            self.steps.remove(step)
            seen = Seen(step.task_id)
            self.look(seen)
            return self._save(seen, Content(step.type, step.state, pack, step.id), name or step.id)
        if name is None or earlier is None or earlier.purged or earlier.content.message != step.id:
            return GONE
        return earlier if earlier.content.pack == pack else GONE

    def end(self, step: Begun, kind: str) -> Refusal | None:
        if step not in self.steps:
            return GONE
        self.steps.remove(step)
        line = self.lines.get(step.task_id)
        if line is None:
            self.log.append(kind)
        else:
            branch = step.branch or line.active
            line.log(kind, branch if branch.line is line else None)
        return None

    # --- evidence ---------------------------------------------------------------------------------------------------

    def judge(self, point: Point) -> Pack:
        """What speaks for it: its own claims, or those of the ancestor that it equals in state and files."""
        if point.content.pack.claims:
            return point.content.pack
        parent = point.parent
        for _ in range(100):
            if parent is None or parent.purged:
                break
            if (parent.content.state, parent.files) != (point.content.state, point.files):
                if point.lineage != "restored":
                    break
            elif parent.content.pack.claims:
                return parent.content.pack
            parent = parent.parent
        return Pack()

    def verify(self, point: Point) -> bool:
        return self.exists(point) and self.check(point)

    def check(self, point: Point) -> bool:
        """Check it again, and record what that gave."""
        held = self.holds(self.judge(point))
        self.unrecorded -= 1
        if point.content.pack.claims and not point.deleted and self.unrecorded:
            point.recorded = held
            point.branch.line.log("verified", point.branch, point)
        return held

    def last_good(self, task_id: str, any: bool, record: bool = True) -> Doing:
        """The newest that holds; with `any`, or where nothing is claimed, one that is not known to be bad. What turns
        out to have changed is recorded."""
        line = self.lines.get(task_id)
        if line is None:
            return None
        unverified, is_judged = None, False
        for point in line.listed(line.active):
            claims, pack = point.content.pack.claims, self.judge(point)
            is_judged = is_judged or bool(claims)
            if point.content.type in NEVER_GOOD or (unverified is not None and not claims):
                continue
            held = self.holds(pack)
            if record and claims and point.recorded is not held:
                self.check(point)
                yield
            if held or (any and not pack.claims):
                return point
            if not pack.claims:
                unverified = point
        return None if is_judged else unverified

    # --- going back, and aside --------------------------------------------------------------------------------------

    def refuse_choice(self, seen: Seen, point: Point) -> Refusal | None:
        if not self.exists(point):
            return GONE
        return INVALID if point.branch.line.id != seen.task_id else None

    def refuse_going_back(self, point: Point, *, verify: bool, demanded: bool = False) -> Refusal | None:
        """Checks evidence unless told not to: what that gave is recorded, whatever comes of the rest."""
        if not self.exists(point):
            return GONE
        if point.deleted:
            return CONFLICT
        if not verify or self.check(point) or not (self.judge(point).claims or demanded):
            return None
        return Refusal((EvidenceError,))

    def refuse_moving(self, seen: Seen) -> Refusal | None:
        """A handle minds when its branch was the active one and is not any more, or the other way round."""
        if seen.line is None:
            return GONE
        return CONFLICT if seen.on_active != (seen.line.active is seen.branch) else None

    def fork(self, seen: Seen, point: Point, name: str | None, paused: bool, verify: bool) -> Doing:
        refusal = self.refuse_choice(seen, point) or self.refuse_going_back(point, verify=verify)
        yield
        if refusal is None and name in {b.name for b in point.branch.line.branches if not b.deleted} - {None}:
            refusal = CONFLICT
        if refusal is not None:
            return refusal
        branch = self._branch_off(point, "forked", point.branch, point.files, name)
        branch.head.control = "paused" if paused else point.control
        return branch

    def restore(
        self, seen: Seen, point: Point, what: str, only: str | None, present: int | None, verify: bool
    ) -> Doing:
        if what == "files" and not self.find_files(seen):
            return INVALID
        if what == "both" and not self.refuse_choice(seen, point) and point.files is not None:
            self.find_files(seen)
        refusal = self.refuse_choice(seen, point) or self.refuse_going_back(point, verify=verify)
        yield
        refusal = refusal or self.refuse(seen) or self.refuse_moving(seen)
        with_files = seen.files and what != "state" and (what == "files" or point.files is not None)
        if refusal is None and with_files and point.files is None:
            refusal = INVALID
        if refusal is None:
            refusal = self._keep(seen, present, drift=with_files)
        if refusal is not None:
            return refusal
        yield
        assert seen.branch is not None
        if with_files:
            assert point.files is not None
            self._put_back(self.disk.limited(point.files, only) if only else point.files)
        if what == "files":
            return self._restore_files(seen, point)
        files = self.disk if seen.files else point.files
        branch = self._branch_off(point, "restored", seen.branch, files)
        if seen.files:
            branch.line.bound = branch
        if seen.on_active:
            self._activate(branch)
        seen.branch, seen.head = branch, branch.head
        return branch

    def find_files(self, seen: Seen) -> bool:
        """A handle without the workspace takes it to go back, if it has the files of its branch."""
        line = seen.line
        if line and seen.head and seen.head.files is not None and line.bound is seen.branch and not self.is_gone(line):
            seen.files = True
        return seen.files

    def roll_back(self, point: Point) -> Doing:
        refusal = self.refuse_going_back(point, verify=True, demanded=True)
        yield
        if refusal is not None:
            return refusal
        branch = self._branch_off(point, "restored", point.branch.line.active, point.files)
        self._activate(branch)
        return branch

    def _keep(self, seen: Seen, present: int | None, drift: bool) -> Refusal | None:
        """The present, if it is not what was saved last: the state, and with `drift` the files."""
        assert seen.head is not None
        has_changed = present is not None and present != seen.head.content.state
        if not has_changed and not (drift and seen.head.files != self.disk):
            return None
        refusal = self.refuse(seen) or (self.refuse_files(seen) if drift else None)
        if refusal is None:
            state = present if has_changed else seen.head.content.state
            kept = self._save(seen, Content("before_restore", state), capture=drift)
            if drift:
                self._keep_redo(kept)
        return refusal

    def _keep_redo(self, made: Point) -> None:
        """It was not the user who saved: what was undone can still be redone."""
        for move in made.branch.line.undone:
            if move.left is made.branch and move.version == made.version - 1:
                move.version = made.version

    def _put_back(self, files: Tree) -> None:
        self.disk = files if self.landing is None else self.landing

    def _restore_files(self, seen: Seen, point: Point) -> Point:
        assert seen.branch is not None
        assert seen.head is not None
        assert seen.line is not None
        seen.line.log("restored", seen.branch, point)
        before, seen.head = seen.head, self._record_files(seen.branch)
        if seen.line.active is seen.branch:
            seen.line.moves.append(Move(seen.branch, seen.branch, before, seen.head))
            seen.line.undone.clear()
        return seen.head

    def _record_files(self, branch: Branch) -> Point:
        branch.line.bound = branch
        state = branch.head.content.state
        return self._add(branch, branch.head, Content("restored", state), self.disk, "restored")

    def _branch_off(self, point: Point, way: str, left: Branch, files: Tree | None, name: str | None = None) -> Branch:
        line = point.branch.line
        branch = Branch(name, line, point)
        line.log("restored", left, point)
        line.branches.append(branch)
        self._add(branch, point, Content(way, point.content.state), files, way)
        return branch

    def _activate(self, branch: Branch) -> None:
        line = branch.line
        line.moves.append(Move(line.active, branch))
        line.undone.clear()
        line.active = branch

    # --- undo, redo, switch -----------------------------------------------------------------------------------------

    def switch(self, seen: Seen, branch: Branch) -> Doing:
        line = seen.line
        if line is None or self.is_gone(line) or branch.line is not line or branch.deleted:
            return GONE
        self.find_files(seen)
        if seen.on_active and line.active.head is not seen.head:
            return Refusal((ConflictError,), line.active.head)
        if branch is not line.active and not branch.is_open:
            return GONE
        if seen.files:
            refusal = self._keep(seen, None, drift=True)
            if refusal is not None:
                return refusal
            yield
            if branch is not seen.branch and branch.head.files is not None:
                self._put_back(branch.head.files)
        if branch is not line.active:
            self._activate(branch)
            line.log("switched", branch)
        seen.id, seen.by_branch = line.id, False
        self._arrive(seen, line)
        return None

    def refuse_move(self, seen: Seen, way: str) -> Refusal | None:
        if seen.by_branch:
            return INVALID
        if seen.line is None or self.is_gone(seen.line):
            return GONE
        self.find_files(seen)
        line = seen.line
        if line.active.head is not seen.head:
            return Refusal((ConflictError,), line.active.head)
        moves = line.moves if way == "undo" else line.undone
        if not moves:
            return CONFLICT
        move = moves[-1]
        if not move.left.is_open or (way == "redo" and move.left.head.version != move.version):
            return GONE
        if way == "redo" and not move.entered.is_open:
            return GONE
        files = move.before if way == "undo" else move.after
        return GONE if seen.files and files is not None and files.purged else None

    def undo(self, seen: Seen) -> Doing:
        return (yield from self._move(seen, "undo"))

    def redo(self, seen: Seen) -> Doing:
        return (yield from self._move(seen, "redo"))

    def _move(self, seen: Seen, way: str) -> Doing:
        refusal = self.refuse_move(seen, way)
        if refusal is not None or seen.line is None:
            return refusal
        line = seen.line
        move = (line.moves if way == "undo" else line.undone)[-1]
        files_of = move.before if way == "undo" else move.after
        to = move.left if way == "undo" else move.entered
        if seen.files:
            arrived = files_of or to.head
            refusal = self._keep(seen, None, drift=True)
            if refusal is not None:
                return refusal
            yield
            if arrived.files is not None:
                self._put_back(arrived.files)
        if way == "undo":
            line.undone.append(line.moves.pop())
            move.version = to.head.version
            line.log("undone", to, files_of)
        else:
            line.moves.append(line.undone.pop())
            move.before = move.left.head if move.before else None
            line.log("redone", to, files_of)
        line.active = to
        if seen.files and files_of is not None:
            yield
        self._arrive(seen, line, records=files_of is not None)
        return None

    def _arrive(self, seen: Seen, line: Line, *, records: bool = False) -> None:
        """Files that lie there are those of the branch that was gone to; what could not be put back is recorded."""
        if seen.files:
            line.bound = line.active
            if records or self.landing is not None:
                self._keep_redo(self._record_files(line.active))
        self.look(seen)

    def take_back(self, left: Sequence[Tree], *, saves: bool) -> None:
        """What an interrupted restore had made of the files is kept before it is taken back, and what lies there then
        is saved, so that nobody goes on from the mixture."""
        branch = self.lines["work"].active
        for found in (*left, self.disk) if saves else left:
            content = Content("before_restore", branch.head.content.state)
            self._keep_redo(self._add(branch, branch.head, content, found, "automatic"))

    # --- names, and taking away -------------------------------------------------------------------------------------

    def tag(self, point: Point, name: str, move: bool) -> Refusal | None:
        line = point.branch.line
        if not self.exists(point) or point.deleted:
            return GONE
        if line.tags.get(name, point) is not point and not move:
            return CONFLICT
        if line.tags.get(name) is not point:
            line.tags[name] = point
            line.log("tagged", point.branch, point)
        return None

    def untag(self, point: Point, name: str) -> Refusal | None:
        line = point.branch.line
        if not self.exists(point):
            return GONE
        if line.tags.get(name) is point:
            del line.tags[name]
            line.log("untagged", point.branch, point)
        return None

    def is_active_head(self, point: Point) -> bool:
        return point is point.branch.line.active.head

    def delete(self, point: Point) -> Refusal | bool:
        if self.is_gone(point.branch.line):
            return False
        if self.is_active_head(point):
            return CONFLICT
        was_listed = point.is_listed
        if was_listed:
            self._hide(point)
        return was_listed

    def _hide(self, point: Point) -> None:
        point.deleted = True
        point.branch.line.log("deleted", point.branch, point)

    def undelete(self, point: Point) -> Refusal | None:
        if not self.exists(point):
            return GONE
        if point.deleted:
            point.deleted = False
            point.branch.line.log("undeleted", point.branch, point)
        return None

    def purge(self, point: Point) -> Refusal | None:
        if not self.exists(point):
            return GONE
        if self.is_active_head(point):
            return CONFLICT
        self._purge(point)
        return None

    def _purge(self, point: Point) -> None:
        line = point.branch.line
        point.purged, point.recorded = True, None
        line.tags = {name: tagged for name, tagged in line.tags.items() if tagged is not point}
        line.log("purged", point.branch, point)

    def delete_branch(self, branch: Branch) -> Refusal | int:
        """What others descend from stays, and so does what is tagged."""
        if self.has_ended(branch):
            return GONE
        line = branch.line
        if branch is line.active:
            return CONFLICT
        others = [b for b in line.branches if b is not branch and (not b.deleted or any(p.is_listed for p in b.points))]
        needed = {id(point) for other in others for point in other.ancestry}
        tagged = {id(point) for point in line.tags.values()}
        doomed = [p for p in branch.points if p.is_listed and id(p) not in needed | tagged]
        for point in doomed:
            self._hide(point)
        branch.deleted = True
        line.log("branch_deleted", branch)
        return len(doomed)

    def spared(self, line: Line) -> list[Point | None]:
        """What never goes by itself."""
        heads = [branch.head for branch in line.branches if not branch.deleted]
        return [*heads, *line.tags.values(), line.last_verified(line.active), line.last_verified(None)]

    def delete_old(self, branch: Branch, by_branch: bool, keep: int) -> Refusal | int:
        """Of a task, or by a branch's id of its line. Named ones stay, and those that work stands on."""
        line = branch.line
        if self.is_gone(line) or (by_branch and branch.deleted):
            return 0
        spared = [*self.spared(line), *([line.last_verified(branch)] if by_branch else [])]
        on_active = line.listed(line.active)
        doomed = [
            point
            for point in line.listed(branch if by_branch else None)[keep:]
            if point not in spared and (by_branch or point in on_active)
        ]
        for point in doomed:
            self._hide(point)
        return len(doomed)

    def delete_task(self, task_id: str) -> Refusal | int:
        line = self.lines.pop(task_id, None)
        if line is None:
            return GONE
        self.steps = [step for step in self.steps if step.task_id != line.id]
        self.log.append("task_deleted")
        return len(line.listed())

    def collect(self) -> Doing:
        for line in self.lines.values():
            for point in line.points:
                if point.deleted and not point.purged:
                    self._purge(point)
                    yield
        return None

    def evict(self, points: list[Point]) -> None:
        """A limit was set, and these went for it."""
        for point in points:
            line = point.branch.line
            is_side = not point.deleted and point not in line.listed(line.active)
            is_spared = is_side or point in self.spared(line)
            assert not is_spared, f"the limit took {point.sequence} of {line.id}, which is protected"
            self._purge(point)
