"""What a store must do, in plain lists: written from the design, and knowing nothing of how it is done.

The state machine of test_machine.py asks it first what will be refused, then tells it what happened. A `Refusal`
says which errors will do and, where the design promises it, the head that a ConflictError carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lastgood import CheckpointError, ConflictError, EvidenceError, InvalidError, NotFoundError

NEVER_GOOD = ("stage_failed", "cancelled", "before_restore")
Event = tuple[int, str, str, str | None]


class Pack(NamedTuple):
    """Claims: a file is there (None), or has these contents. All must hold, or at least `need`."""

    claims: tuple[tuple[str, bytes | None], ...] = ()
    need: int | None = None


class Content(NamedTuple):
    """What makes two saves the same."""

    type: str
    state: int | None
    pack: Pack = Pack()
    message: str = ""
    key: str | None = None


@dataclass(eq=False)
class Point:
    """A checkpoint."""

    id: str
    content: Content
    branch: Branch
    parent: Point | None
    sequence: int
    version: int
    event: int
    control: str
    lineage: str
    recorded: bool | None = None
    deleted: bool = False
    purged: bool = False

    @property
    def is_listed(self) -> bool:
        return not (self.deleted or self.purged)


@dataclass(eq=False)
class Branch:
    id: str
    name: str | None
    line: Line
    origin: Point | None
    points: list[Point] = field(default_factory=list)
    deleted: bool = False

    @property
    def head(self) -> Point:
        return self.points[-1]

    @property
    def ancestry(self) -> list[Point]:
        """Its ancestors and its own, oldest first."""
        if self.origin is None:
            return list(self.points)
        before = self.origin.branch.ancestry
        return before[: before.index(self.origin) + 1] + self.points

    @property
    def is_open(self) -> bool:
        """Whether it can become the active one."""
        return not self.deleted and self.head.is_listed


@dataclass(eq=False)
class Line:
    """A task."""

    id: str
    branches: list[Branch] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tags: dict[str, Point] = field(default_factory=dict)
    moves: list[tuple[Branch, Branch]] = field(default_factory=list)
    undone: list[tuple[Branch, Branch, int]] = field(default_factory=list)
    active: Branch = None  # type: ignore[assignment]  # there is one from the first checkpoint on

    def log(self, kind: str, branch: Branch | None, point: Point | None = None) -> int:
        number = len(self.events) + 1
        self.events.append((number, kind, branch.id if branch else "", point.id if point else None))
        return number

    def listed(self, branch: Branch | None = None) -> list[Point]:
        points = self.points if branch is None else branch.ancestry
        return [point for point in reversed(points) if point.is_listed]

    def history(self, branch: Branch | None = None) -> list[Event]:
        """Newest first; of a branch: its own, and what its ancestors' logs said up to where it began."""
        if branch is None:
            return self.events[::-1]
        told = [event for event in self.events if event[2] == branch.id]
        while (origin := branch.origin) is not None:
            branch = origin.branch
            told += [event for event in self.events[: origin.event] if event[2] == branch.id]
        return sorted(told, reverse=True)

    def last_verified(self, branch: Branch, type: str | None = None) -> Point | None:
        found = (p for p in self.listed(branch) if p.recorded and type in (None, p.content.type))
        return next(found, None)

    def tags_of(self, point: Point) -> tuple[str, ...]:
        return tuple(sorted(name for name, tagged in self.tags.items() if tagged is point))


@dataclass(eq=False)
class Seen:
    """What a handle last saw. `on_active`: its branch was the active one then."""

    id: str
    line: Line | None = None
    branch: Branch | None = None
    head: Point | None = None
    by_branch: bool = False
    on_active: bool = True


@dataclass(eq=False)
class Begun:
    """A step that is open. `changed`: it has a state of its own, made from that of `start`."""

    id: str
    task_id: str
    branch: Branch | None
    name: str
    type: str
    pack: Pack
    state: int | None = None
    changed: bool = False
    start: Point | None = None


class Refusal(NamedTuple):
    kinds: tuple[type[CheckpointError], ...]
    head: Point | None = None


GONE = Refusal((NotFoundError, ConflictError))
CONFLICT = Refusal((ConflictError,))


class Model:
    """Everything in a store, the files that evidence is about, and what was begun."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.files: dict[str, bytes] = {}
        self.steps: list[Begun] = []
        self.log: list[str] = []

    # --- looking -------------------------------------------------------------------------------------------

    def look(self, seen: Seen) -> None:
        line = seen.line if seen.by_branch else self.lines.get(seen.id)
        branch = seen.branch if seen.by_branch else line.active if line else None
        seen.line, seen.branch, seen.head = line, branch, branch.head if branch else None
        seen.on_active = line is None or line.active is branch

    def is_gone(self, line: Line) -> bool:
        return self.lines.get(line.id) is not line

    def find(self, id: str) -> Point | None:
        return next((point for line in self.lines.values() for point in line.points if point.id == id), None)

    def exists(self, point: Point) -> bool:
        return not self.is_gone(point.branch.line) and not point.purged

    def holds(self, pack: Pack) -> bool:
        held = [
            path in self.files if expected is None else self.files.get(path) == expected
            for path, expected in pack.claims
        ]
        return bool(held) and (all(held) if pack.need is None else sum(held) >= max(1, pack.need))

    # --- saving --------------------------------------------------------------------------------------------

    def refuse(self, seen: Seen) -> Refusal | None:
        """Whether what a handle saw is not what is there any more."""
        present = self.lines.get(seen.line.id if seen.line else seen.id)
        if seen.line is None:
            return Refusal((ConflictError,), present.active.head) if present else None
        if present is not seen.line or seen.branch is None:
            return GONE
        if seen.by_branch:
            if seen.branch.deleted:
                return GONE
            return None if seen.branch.head is seen.head else Refusal((ConflictError,), seen.branch.head)
        return None if present.active.head is seen.head else Refusal((ConflictError,), present.active.head)

    def refuse_save(self, seen: Seen, content: Content, id: str | None) -> Refusal | Point | None:
        """A point: it is stored already, and nothing happens but that it is returned."""
        line = self.lines.get(seen.line.id if seen.line else seen.id)
        earlier = self.find(id) if id else None
        if earlier is None and content.key and line:
            earlier = next((p for p in line.points if p.content.key == content.key and not p.purged), None)
        if earlier is None:
            return self.refuse(seen)
        same = earlier.content == content and earlier.branch.line is line and not earlier.purged
        return earlier if same else CONFLICT

    def repeat(self, seen: Seen, point: Point) -> None:
        """A handle that is given what was stored has seen it."""
        further = seen.head is None or (point.branch is seen.branch and point.sequence > seen.head.sequence)
        if further and not point.deleted:
            seen.line, seen.branch, seen.head = point.branch.line, point.branch, point

    def save(self, seen: Seen, content: Content, id: str, branch_id: str, *, checked: bool = True) -> Point:
        if seen.line is None:
            line = self.lines[seen.id] = Line(seen.id)
            line.active = Branch(branch_id, "main", line, None)
            line.branches.append(line.active)
            seen.line, seen.branch = line, line.active
        assert seen.branch is not None
        lineage = "manual" if content.type == "manual" else "automatic"
        seen.head = self._add(seen.branch, seen.head, content, id, lineage)
        if checked and content.pack.claims:
            seen.head.recorded = self.holds(content.pack)
        return seen.head

    def _add(self, branch: Branch, parent: Point | None, content: Content, id: str, lineage: str) -> Point:
        line = branch.line
        control = parent.control if parent else "idle"
        sequence, version = len(line.points) + 1, len(branch.points) + 1
        point = Point(id, content, branch, parent, sequence, version, 0, control, lineage)
        point.event = line.log("branched" if branch.origin and version == 1 else "created", branch, point)
        line.points.append(point)
        branch.points.append(point)
        return point

    # --- steps ---------------------------------------------------------------------------------------------

    def refuse_commit(self, seen: Seen, step: Begun) -> Refusal | None:
        if step not in self.steps:
            return GONE
        if step.changed:
            moved = None if seen.head is step.start else Refusal((ConflictError,), seen.head)
            return self.refuse(seen) or moved
        if not seen.by_branch or seen.branch is None:
            return None
        branch = seen.branch
        return GONE if self.is_gone(branch.line) or branch.deleted or branch.head.purged else None

    def commit(self, seen: Seen, step: Begun, id: str, branch_id: str) -> Point:
        """One that left the state as it was continues whatever is there, also nothing."""
        state = step.state
        if not step.changed:
            if self.refuse(seen):
                self.look(seen)
            state = seen.head.content.state if seen.head else None
        self.steps.remove(step)
        return self.save(seen, Content(step.type, state, step.pack), id, branch_id)

    def end(self, step: Begun, kind: str) -> None:
        self.steps.remove(step)
        line = self.lines.get(step.task_id)
        if line is None:
            self.log.append(kind)
        else:
            branch = step.branch or line.active
            line.log(kind, branch if branch.line is line else None)

    # --- evidence ------------------------------------------------------------------------------------------

    def check(self, point: Point) -> bool:
        """Check it again, and record what that gave."""
        held = self.holds(point.content.pack)
        if point.content.pack.claims and not point.deleted:
            point.recorded = held
            point.branch.line.log("verified", point.branch, point)
        return held

    def last_good(self, line: Line, *, verified: bool, record: bool = True) -> Point | None:
        """The newest that holds, or without `verified` claims nothing; what turns out to have changed is recorded."""
        for point in line.listed(line.active):
            if point.content.type in NEVER_GOOD:
                continue
            claims, held = point.content.pack.claims, self.holds(point.content.pack)
            if record and claims and point.recorded is not held:
                self.check(point)
            if held or not (verified or claims):
                return point
        return None

    # --- going back, and aside -----------------------------------------------------------------------------

    def refuse_going_back(self, point: Point, *, verify: bool, demanded: bool = False) -> Refusal | None:
        """Checks evidence unless told not to: what that gave is recorded, whatever comes of the rest."""
        if not self.exists(point):
            return GONE
        if point.deleted:
            return CONFLICT
        if not verify or self.check(point) or not (point.content.pack.claims or demanded):
            return None
        return Refusal((EvidenceError,))

    def refuse_other_task(self, seen: Seen, point: Point) -> Refusal | None:
        task_id = seen.line.id if seen.line else seen.id
        return Refusal((InvalidError,)) if point.branch.line.id != task_id else None

    def branch_off(
        self, point: Point, way: str, branch_id: str, id: str, left: Branch, *, name: str | None = None
    ) -> Branch:
        line = point.branch.line
        branch = Branch(branch_id, name, line, point)
        line.log("restored", left, point)
        line.branches.append(branch)
        self._add(branch, point, Content(way, point.content.state), id, way)
        return branch

    def activate(self, line: Line, branch: Branch) -> None:
        line.moves.append((line.active, branch))
        line.undone.clear()
        line.active = branch

    def follow(self, seen: Seen, branch: Branch) -> None:
        seen.branch, seen.head = branch, branch.head

    def refuse_switch(self, seen: Seen, branch: Branch) -> Refusal | None:
        if seen.line is None or self.is_gone(seen.line) or branch.line is not seen.line or branch.deleted:
            return GONE
        if seen.on_active and seen.line.active.head is not seen.head:
            return Refusal((ConflictError,), seen.line.active.head)
        return None if branch is seen.line.active or branch.is_open else CONFLICT

    def switch(self, line: Line, branch: Branch) -> None:
        if branch is not line.active:
            self.activate(line, branch)
            line.log("switched", branch)

    def refuse_move(self, seen: Seen, way: str) -> Refusal | None:
        if seen.by_branch:
            return Refusal((InvalidError,))
        if seen.line is None or self.is_gone(seen.line):
            return GONE
        line = seen.line
        if line.active.head is not seen.head:
            return Refusal((ConflictError,), line.active.head)
        if way == "undo":
            return None if line.moves and line.moves[-1][0].is_open else CONFLICT
        left, entered, version = line.undone[-1] if line.undone else (line.active, line.active, 0)
        return None if left.head.version == version and entered.is_open else CONFLICT

    def undo(self, line: Line) -> None:
        left, entered = line.moves.pop()
        line.undone.append((left, entered, left.head.version))
        line.active = left
        line.log("undone", left)

    def redo(self, line: Line) -> None:
        left, entered, _ = line.undone.pop()
        line.moves.append((left, entered))
        line.active = entered
        line.log("redone", entered)

    # --- taking away ---------------------------------------------------------------------------------------

    def is_active_head(self, point: Point) -> bool:
        return point is point.branch.line.active.head

    def delete(self, point: Point) -> None:
        point.deleted = True
        point.branch.line.log("deleted", point.branch, point)

    def purge(self, point: Point) -> None:
        line = point.branch.line
        point.purged, point.recorded = True, None
        line.tags = {name: tagged for name, tagged in line.tags.items() if tagged is not point}
        line.log("purged", point.branch, point)

    def delete_branch(self, branch: Branch) -> int:
        """What others descend from stays, and so does what is tagged."""
        line = branch.line
        others = [b for b in line.branches if b is not branch and (not b.deleted or any(p.is_listed for p in b.points))]
        needed = {id(point) for other in others for point in other.ancestry}
        tagged = {id(point) for point in line.tags.values()}
        doomed = [p for p in branch.points if p.is_listed and id(p) not in needed | tagged]
        for point in doomed:
            self.delete(point)
        branch.deleted = True
        line.log("branch_deleted", branch)
        return len(doomed)

    def retain(self, line: Line, branch: Branch | None, keep: int) -> int:
        spared = [line.active.head, *line.tags.values(), line.last_verified(line.active)]
        spared += [line.last_verified(branch)] if branch else []
        doomed = [point for point in line.listed(branch)[keep:] if point not in spared]
        for point in doomed:
            self.delete(point)
        return len(doomed)

    def delete_task(self, line: Line) -> int:
        del self.lines[line.id]
        self.steps = [step for step in self.steps if step.task_id != line.id]
        self.log.append("task_deleted")
        return len(line.listed())
