"""What restoring will do: the difference of two trees as a list of steps. Pure; nothing on disk is looked at.

The steps are a walk. `Enter` and `Leave` stand around what happens in a folder; in each folder everything that goes
comes before everything that comes, so that a rename which changes only the case of a name is right on file systems
that do not tell the two apart. Folders that are equal in both trees do not occur.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.errors import IntegrityError
from lastgood.files.read import SIDECARS, main_of
from lastgood.model.tree import (
    Entry,
    EntryCount,
    File,
    Folder,
    Left,
    Link,
    Tree,
    Why,
    attributes_of,
    is_sidecar,
    one_by_one,
    open_tree,
)

if TYPE_CHECKING:
    from lastgood.files.selection import Selection

Read = Callable[[bytes], bytes]


class Enter(NamedTuple):
    """A step into a folder: to `make` it, to `pass` through (it is made, too, if it is missing), to `alter` its mode in
    the end, or to `empty` it."""

    path: bytes
    name: bytes
    what: Literal["make", "pass", "alter", "empty"]
    late: bool = False
    """Its name is free only after a removal that comes before it."""
    replaced: bool = False
    """A file or link takes its place."""


class Leave(NamedTuple):
    """A step out of a folder: remove it if it is empty now, else give it `mode` (None: the one that was found)."""

    path: bytes
    name: bytes
    mode: int | None
    remove: bool = False
    replaced: bool = False


class Remove(NamedTuple):
    """A removal of a file or link that still is what it was when it was captured."""

    path: bytes
    name: bytes
    old: File | Link
    replaced: bool = False
    """A folder takes its place."""
    beside: tuple[bytes, ...] = ()
    """The names of what lies beside a database and was captured with it: they go with it."""


class PutFile(NamedTuple):
    """A file or link to put there. `old` is what may be overwritten; None: nothing may."""

    path: bytes
    name: bytes
    old: File | Link | None
    new: File | Link
    hidden: bool = False
    """Something may lie there that the present tree left out."""
    beside: tuple[bytes, ...] = ()
    """The names of what lies beside the database that is there, and was captured with it: they go before it."""

    @property
    def size(self) -> int:
        """The bytes to write."""
        if isinstance(self.old, File) and isinstance(self.new, File) and self.old.digest == self.new.digest:
            return 0
        return self.new.size if isinstance(self.new, File) else 0


Step = Enter | Leave | Remove | PutFile


class RestorePlan(NamedTuple):
    """A plan of a restore.

    `restored` and `deleted`: the paths that are written, made or changed, and those that go. `announced`: what is
    written and runs without being asked for (see `is_announced`). `uncaptured`: what is to be written where something
    may lie that the present tree does not hold; such a step fails if something does, unless it was saved by name.
    `size`: bytes to write. `left`: what the target left out and the present tree does not hold, and why it was.
    """

    steps: tuple[Step, ...]
    restored: tuple[bytes, ...]
    deleted: tuple[bytes, ...]
    announced: tuple[bytes, ...]
    uncaptured: tuple[bytes, ...]
    size: int
    left: tuple[tuple[bytes, Why], ...] = ()

    def touches(self) -> dict[bytes, set[bytes]]:
        """Return every folder in which applying may change something, and the names of what."""
        touched: dict[bytes, set[bytes]] = {step.path: set() for step in self.steps if isinstance(step, Enter)}
        for step in self.steps:
            if not isinstance(step, Leave) and not (isinstance(step, Enter) and step.what == "pass"):
                touched.setdefault(step.path.rpartition(b"/")[0], set()).add(step.name)
        return touched

    def paths(self) -> list[bytes]:
        """Return where files and links come, or go from."""
        return [step.path for step in self.steps if isinstance(step, PutFile | Remove)]

    def contents(self) -> dict[bytes, File]:
        """Return the files that are put, by path."""
        return {step.path: step.new for step in self.steps if isinstance(step, PutFile) and isinstance(step.new, File)}

    def without(self, paths: Collection[bytes]) -> RestorePlan:
        """Return the same plan without what comes to these paths, or goes from them: they stay as they are."""
        if not paths:
            return self
        steps = [step for step in self.steps if not isinstance(step, PutFile | Remove) or step.path not in paths]
        return _describe(steps, self.left)


def make_plan(
    target: bytes | None,
    present: bytes | None,
    read: Read,
    *,
    partial: bool = False,
    only: Selection | None = None,
    saved: bytes | None = None,
    unreadable: list[bytes] | None = None,
    files: int | None = None,
) -> RestorePlan:
    """Plan how to get from the tree `present`, captured just before, to the tree `target` (None: an empty directory).

    Nothing goes that `present` does not hold or that `target` mentions. `partial`: `target` holds a list of files;
    nothing else is touched, and nothing that `only` does not select. `saved`: the partial tree of uncaptured paths that
    were saved by name; what it holds may be overwritten, too. `files`: how many there are in `target`, by its record.

    IntegrityError for a damaged tree, and for one with more files than that. With a list `unreadable` a folder of
    `target` that is damaged stays as it is, and its path is added to that list.
    """
    root = _Visit(Enter(b"", b"", "pass"), Leave(b"", b"", None), target, present, saved, only is None, False)
    planner = _Planner(read, partial, only, unreadable, files)
    steps = planner.plan(root) if target is None or planner.can_read(b"", target) else []
    return _describe(steps, planner.left)


def _describe(steps: list[Step], left: Sequence[tuple[bytes, Why]]) -> RestorePlan:
    """Return the plan that consists of these steps."""
    places = [step for step in steps if isinstance(step, PutFile)]
    return RestorePlan(
        steps=tuple(steps),
        restored=tuple(step.path for step in steps if _restores(step)),
        deleted=tuple(step.path for step in steps if _deletes(step)),
        announced=tuple(step.path for step in places if _is_written(step) and is_announced(step.path)),
        uncaptured=tuple(step.path for step in places if step.hidden and step.old is None),
        size=sum(step.size for step in places),
        left=tuple(left),
    )


def is_announced(path: bytes) -> bool:
    """Return whether a file there is run, or obeyed, by a tool that nobody named.

    That is: on entering the folder (direnv, mise), on opening it (editors, agents, dev containers), on committing or
    pushing (hooks, workflows), or when an interpreter or a package manager starts. What runs only when its user says so
    (Makefile, package.json, conftest.py) is source like any other: announcing it with every restore would teach people
    not to read the warning.
    """
    parts = path.lower().split(b"/")
    if parts[-1] in _FILES or parts[-1].endswith(b".pth") or not _FOLDERS.isdisjoint(parts):
        return True
    return not _PAIRS.isdisjoint(pairwise(parts))


_FILES = frozenset(
    b".envrc .mise.toml mise.toml .mcp.json .devcontainer.json .gitlab-ci.yml .pre-commit-config.yaml lefthook.yml "
    b".lefthook.yml .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs sitecustomize.py usercustomize.py".split()
)
_FOLDERS = frozenset(b".claude .cursor .codex .gemini .windsurf .devcontainer .husky .githooks .circleci".split())
_PAIRS = frozenset(
    (folder, name)
    for folder, names in {
        b".vscode": (b"tasks.json", b"settings.json", b"launch.json", b"mcp.json"),
        b".github": (b"workflows", b"actions"),
        b".idea": (b"runconfigurations",),
    }.items()
    for name in names
)


class _Visit(NamedTuple):
    """A folder in the trees. `chosen`: it and all below are selected. `hidden`: the present tree left it out."""

    enter: Enter
    leave: Leave
    target: bytes | None
    present: bytes | None
    saved: bytes | None
    chosen: bool
    hidden: bool


class _Planner:
    def __init__(
        self, read: Read, partial: bool, only: Selection | None, unreadable: list[bytes] | None, files: int | None
    ) -> None:
        self._wanted, self._there = EntryCount(files), EntryCount()
        self._read = read
        self._partial = partial
        self._only = only
        self._unreadable = unreadable
        self.left: list[tuple[bytes, Why]] = []

    def can_read(self, path: bytes, tree: bytes) -> bool:
        """Return whether a folder of the target can be read, and note the path of one that cannot; else True."""
        if self._unreadable is None:
            return True
        try:
            self._open(tree)
        except IntegrityError:
            self._unreadable.append(path)
            return False
        return True

    def _open(self, tree: bytes) -> Tree:
        return open_tree(self._read(tree), one_by_one(self._read))

    def plan(self, root: _Visit) -> list[Step]:
        """Walk depth first without recursion: a tree may be deeper than Python's stack."""
        steps: list[Step] = []
        waiting: list[_Visit | Step] = [root]
        while waiting:
            item = waiting.pop()
            if isinstance(item, _Visit):
                steps.append(item.enter)
                waiting.append(item.leave)
                waiting.extend(reversed(self._expand(item)))
            elif isinstance(item, Leave) and isinstance(last := steps[-1], Enter) and _is_idle(last, item):
                steps.pop()
            else:
                steps.append(item)
        return steps

    def _expand(self, visit: _Visit) -> list[_Visit | Step]:
        """Return what happens in one folder: first what goes, then what comes."""
        if visit.target == visit.present:
            return []
        wanted = self._entries(visit.target, self._wanted)
        there, saved = (self._entries(tree, self._there) for tree in (visit.present, visit.saved))
        going: list[_Visit | Step] = []
        coming: list[_Visit | Step] = []
        same = {name for name, entry in wanted.items() if there.get(name) == entry}
        for name in sorted((wanted.keys() | there.keys()) - same):
            new, old = wanted.get(name), there.get(name)
            path = visit.enter.path + b"/" + name if visit.enter.path else name
            chosen = visit.chosen or (self._only is not None and self._only.covers(path))
            hidden = visit.hidden or isinstance(old, Left)
            if is_sidecar(new) and isinstance(wanted.get(main_of(name)), File):
                new = None
            if isinstance(old, Left) and old.why == "store":
                continue
            if isinstance(new, Left):
                if old is None and chosen and new.why not in ("store", "sidecar"):
                    self.left.append((path, new.why))
                continue
            below = saved.get(name)
            if isinstance(old, Left) or old is None:
                old = below if isinstance(below, File | Link) and new is not None else None
            if _is_same(new, old) or (isinstance(new, Folder) and not self.can_read(path, new.tree)):
                continue
            beside = _beside(there, name)
            going.extend(self._clear(path, old, new, chosen, beside))
            if isinstance(new, Folder):
                coming.append(
                    self._visit(path, old, new, below.tree if isinstance(below, Folder) else None, chosen, hidden)
                )
            elif new is not None and chosen:
                coming.append(PutFile(path, name, None if isinstance(old, Folder) else old, new, hidden, beside))
        return [*going, *_mark_late(going, coming)]

    def _clear(
        self, path: bytes, old: Entry | None, new: Entry | None, chosen: bool, beside: tuple[bytes, ...]
    ) -> Iterator[_Visit | Step]:
        """Yield what must go before `new` can come."""
        name = path.rpartition(b"/")[2]
        if isinstance(old, Folder) and not isinstance(new, Folder) and not self._partial:
            replaced = new is not None and chosen
            enter = Enter(path, name, "empty", replaced=replaced)
            leave = Leave(path, name, old.mode, remove=chosen, replaced=replaced)
            yield _Visit(enter, leave, None, old.tree, None, chosen, False)
        elif isinstance(old, File | Link) and chosen:
            if isinstance(new, Folder):
                yield Remove(path, name, old, replaced=True, beside=beside)
            elif new is None and not self._partial:
                yield Remove(path, name, old, beside=beside)

    def _visit(
        self, path: bytes, old: Entry | None, new: Folder, saved: bytes | None, chosen: bool, hidden: bool
    ) -> _Visit:
        name = new.name
        if not isinstance(old, Folder):
            enter, leave = Enter(path, name, "make" if chosen else "pass"), Leave(path, name, new.mode)
            return _Visit(enter, leave, new.tree, None, saved, chosen, hidden)
        alters = chosen and not self._partial and old.mode != new.mode
        enter = Enter(path, name, "alter" if alters else "pass")
        leave = Leave(path, name, new.mode if alters else old.mode)
        return _Visit(enter, leave, new.tree, old.tree, saved, chosen, hidden)

    def _entries(self, tree: bytes | None, count: EntryCount) -> dict[bytes, Entry]:
        return {} if tree is None else {entry.name: entry for entry in count.take(self._open(tree))}


def _beside(there: Mapping[bytes, Entry], name: bytes) -> tuple[bytes, ...]:
    """Return what was captured with a database."""
    if not isinstance(there.get(name), File):
        return ()
    return tuple([name + ending for ending in SIDECARS if is_sidecar(there.get(name + ending))])


def _restores(step: Step) -> bool:
    return isinstance(step, PutFile) or (isinstance(step, Enter) and step.what in ("make", "alter"))


def _deletes(step: Step) -> bool:
    return (isinstance(step, Remove) or (isinstance(step, Leave) and step.remove)) and not step.replaced


def _is_written(step: PutFile) -> bool:
    return step.size > 0 or not _is_same_content(step.new, step.old)


def _is_idle(enter: Enter, leave: Leave) -> bool:
    return enter.what == "pass" or (enter.what == "empty" and not leave.remove)


def _is_same(new: Entry | None, old: Entry | None) -> bool:
    """Compare entries; folders whole: what is below decides, and equal ones cost nothing there."""
    if isinstance(new, Folder) and isinstance(old, Folder):
        return new == old
    same_mode = getattr(new, "mode", None) == getattr(old, "mode", None)
    return _is_same_content(new, old) and same_mode and attributes_of(new) == attributes_of(old)


def _is_same_content(new: Entry | None, old: Entry | None) -> bool:
    """Compare content; how a file was cut into chunks does not matter."""
    if isinstance(new, File) and isinstance(old, File):
        return new.digest == old.digest
    return new == old


def _mark_late(going: list[_Visit | Step], coming: list[_Visit | Step]) -> Iterator[_Visit | Step]:
    freed = {_fold(item.name) for item in going if isinstance(item, Remove)}
    freed |= {_fold(item.enter.name) for item in going if isinstance(item, _Visit) and item.leave.remove}
    for item in coming:
        if freed and isinstance(item, _Visit) and _fold(item.enter.name) in freed:
            yield item._replace(enter=item.enter._replace(late=True))
        else:
            yield item


def _fold(name: bytes) -> str:
    """Return the same text for names that some file system takes for one and the same."""
    from unicodedata import normalize

    return normalize("NFC", normalize("NFC", name.decode("utf-8", "surrogateescape")).casefold())
