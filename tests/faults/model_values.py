"""What a store holds, in plain Python: tasks, branches, checkpoints, moves, open steps, files; and what a handle saw.

The values of model.py. They know nothing of how it is done, and have no ids until somebody has looked at the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Node = tuple[str, int, bytes]
"""file, link or folder; the mode (0 of a link); the bytes of a file, the target of a link."""


class Tree(dict[str, Node]):
    """A folder: path -> node. Never changed, so that copies of a model share it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Tree:
        return self

    def edited(self, path: str, node: Node | None) -> Tree:
        """With something else in that place; what it lay below is a folder then."""
        left = {name: kept for name, kept in self.items() if name != path and not name.startswith(f"{path}/")}
        if node is None:
            return Tree(left)
        above = path.rpartition("/")[0]
        if above and left.get(above, ("", 0, b""))[0] != "folder":
            left[above] = ("folder", 0o755, b"")
        return Tree({**left, path: node})

    def limited(self, target: Tree, top: str) -> Tree:
        """With one entry of this folder, and all below, as the target has it."""

        def is_inside(name: str) -> bool:
            return name == top or name.startswith(f"{top}/")

        kept = {name: node for name, node in self.items() if not is_inside(name)}
        return Tree({**kept, **{name: node for name, node in target.items() if is_inside(name)}})


class Pack(NamedTuple):
    """Claims: a file is there (None), or has these contents. All must hold, or at least `need`."""

    claims: tuple[tuple[str, bytes | None], ...] = ()
    need: int | None = None


class Content(NamedTuple):
    """What makes two saves the same, but for files."""

    type: str
    state: int | None
    pack: Pack = Pack()
    message: str = ""
    key: str | None = None


@dataclass(eq=False)
class Point:
    """A checkpoint."""

    content: Content
    files: Tree | None
    branch: Branch
    parent: Point | None
    sequence: int
    version: int
    event: int
    control: str
    lineage: str
    id: str = ""
    recorded: bool | None = None
    deleted: bool = False
    purged: bool = False

    @property
    def is_listed(self) -> bool:
        return not (self.deleted or self.purged)


@dataclass(eq=False)
class Branch:
    name: str | None
    line: Line
    origin: Point | None
    points: list[Point] = field(default_factory=list)
    id: str = ""
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
class Move:
    """From one branch to another, or (with `before` and `after`) from files to other files of one branch.

    `version`: that of the branch that was gone back to, when it was undone."""

    left: Branch
    entered: Branch
    before: Point | None = None
    after: Point | None = None
    version: int = 0


class Event(NamedTuple):
    number: int
    kind: str
    branch: Branch | None
    point: Point | None


@dataclass(eq=False)
class Line:
    """A task. `bound`: the branch whose files lie in the workspace."""

    id: str
    branches: list[Branch] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tags: dict[str, Point] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    undone: list[Move] = field(default_factory=list)
    bound: Branch | None = None
    active: Branch = None  # type: ignore[assignment]  # there is one from the first checkpoint on

    def log(self, kind: str, branch: Branch | None, point: Point | None = None) -> int:
        number = len(self.events) + 1
        self.events.append(Event(number, kind, branch, point))
        return number

    def listed(self, branch: Branch | None = None) -> list[Point]:
        points = self.points if branch is None else branch.ancestry
        return [point for point in reversed(points) if point.is_listed]

    def history(self, branch: Branch) -> list[Event]:
        """Newest first: its own, and what its ancestors' logs said up to where it began."""
        told = [event for event in self.events if event.branch is branch]
        while (origin := branch.origin) is not None:
            branch = origin.branch
            told += [event for event in self.events[: origin.event] if event.branch is branch]
        return sorted(told, key=lambda event: -event.number)

    def last_verified(self, branch: Branch | None, type: str | None = None) -> Point | None:
        found = (p for p in self.listed(branch) if p.recorded and type in (None, p.content.type))
        return next(found, None)

    def tags_of(self, point: Point) -> tuple[str, ...]:
        return tuple(sorted(name for name, tagged in self.tags.items() if tagged is point))


@dataclass(eq=False)
class Seen:
    """What a handle last saw. `on_active`: its branch was the active one then. `files`: it has the workspace."""

    id: str
    line: Line | None = None
    branch: Branch | None = None
    head: Point | None = None
    by_branch: bool = False
    on_active: bool = True
    files: bool = False

    @property
    def task_id(self) -> str:
        return self.line.id if self.line else self.id


@dataclass(eq=False)
class Begun:
    """A step that is open. `changed`: it has a state of its own, made from that of `start`. `orphaned`: its process
    is gone."""

    task_id: str
    branch: Branch | None
    type: str
    pack: Pack
    state: int | None = None
    changed: bool = False
    start: Point | None = None
    orphaned: bool = False
    id: str = ""
