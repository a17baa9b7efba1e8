"""What may remain of a folder when the power fails: every state that POSIX allows after some calls, and no kinder one.

What was written to a file is durable once that file was synced afterwards; a name (made, linked, renamed, removed) once
its folder was. All else may be there or not, each by itself, and a write may be there in part. Two things are taken for
granted, as every journalling file system gives them: a rename is there whole or not at all, and a write leaves alone
the bytes beside it.
"""

from __future__ import annotations

import itertools
import os
import random
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.trace import Call, Op

SECTOR = 512
EXCHANGE = 2
"""The flag of a rename by which two names change places."""
_UMASK = 0o022


class Write(NamedTuple):
    offset: int
    data: bytes


class Cut(NamedTuple):
    length: int


class Stretch(NamedTuple):
    """A file that got longer, without the bytes."""

    length: int


class Mode(NamedTuple):
    mode: int


class Names(NamedTuple):
    """Entries that change together: in which folder, which name, and who has it now (None: nobody)."""

    changes: tuple[tuple[Node, str, Node | None], ...]


Effect = Write | Cut | Stretch | Mode | Names
Survives = Callable[[Effect], Sequence[Effect]]
"""What is left of an effect that is not durable: itself, parts of it, or nothing."""


class Node:
    """A file, a folder or a symbolic link: what is durable of it, and what came later."""

    def __init__(self, kind: int, mode: int = 0, content: bytes = b"") -> None:
        self.kind = kind
        self.mode = mode
        self.content = bytearray(content)
        """The bytes of a file, the target of a symbolic link."""
        self.entries: dict[str, Node] = {}
        self.present: dict[str, Node] = {}
        """The entries as programs see them."""
        self.pending: list[Effect] = []

    def sync(self, *, data_only: bool = False) -> None:
        """Make all durable that came before."""
        before, self.pending = self.pending, []
        for effect in before:
            if data_only and isinstance(effect, Mode):
                self.pending.append(effect)
            else:
                self._settle(effect)

    def forget(self) -> None:
        """A sync has failed: what of a file it could not write is clean in memory, and comes to the disk never more. (A
        file system that cannot write about its folders stops altogether.)"""
        if self.kind == stat.S_IFREG:
            self.pending = []

    def _settle(self, effect: Effect) -> None:
        if isinstance(effect, Names):
            for folder in {change[0] for change in effect.changes}:
                folder._settle_until(effect)  # a rename from another folder is there whole
                _enter(folder.entries, effect, folder)
        elif isinstance(effect, Mode):
            self.mode = effect.mode
        else:
            _alter(self.content, effect)

    def _settle_until(self, effect: Effect) -> None:
        """Make all durable up to an effect: a journal that has come to it has all before."""
        here = [number for number, one in enumerate(self.pending) if one is effect]
        if here:
            before, self.pending = self.pending[: here[0]], self.pending[here[0] + 1 :]
            for one in before:
                self._settle(one)


def _enter(entries: dict[str, Node], names: Names, here: Node) -> None:
    for folder, name, node in names.changes:
        if folder is here:
            entries.pop(name, None)
            if node is not None:
                entries[name] = node


def _alter(content: bytearray, effect: Write | Cut | Stretch) -> None:
    if isinstance(effect, Write):
        content.extend(bytes(max(0, effect.offset - len(content))))
        content[effect.offset : effect.offset + len(effect.data)] = effect.data
    else:
        if isinstance(effect, Cut):
            del content[effect.length :]
        content.extend(bytes(max(0, effect.length - len(content))))


# --- following a trace ----------------------------------------------------------------------------------------------


class Disk:
    """A folder as it was when it was looked at, all of it durable, and what calls did to it since."""

    def __init__(self, root: Path, beginning: Path | None = None) -> None:
        """Read `beginning`, a copy of the folder that calls name `root`."""
        self._root = root
        self.top = _load(beginning or root)
        self._open: dict[int, Node] = {}
        """Who was met under a number: an open file may have lost all of its names."""

    def follow(self, call: Call) -> None:
        if call.error:
            self._follow_failed(call)
        elif call.op != Op.MARK:
            self._follow_done(call)

    def _follow_failed(self, call: Call) -> None:
        if call.op in (Op.SYNC, Op.DATASYNC):
            self._known(call).forget()

    def _follow_done(self, call: Call) -> None:
        match call.op:
            case Op.SYNCALL:
                for node in self._all():
                    node.sync()
            case Op.SYNC | Op.DATASYNC:
                self._known(call).sync(data_only=call.op == Op.DATASYNC)
            case Op.WRITE:
                assert len(call.data) == call.amount, "the trace has no data"
                self._known(call).pending.append(Write(call.offset, call.data))
            case Op.TRUNCATE:
                self._known(call).pending.append(Cut(call.amount))
            case Op.CHMOD:
                self._known(call).pending.append(Mode(call.amount))
            case Op.UNLINK | Op.RMDIR:
                self._change(call.path, None)
            case Op.RENAME:
                self._rename(call)
            case Op.LINK:
                self._change(call.other, self._find(call.path))
            case Op.CREATE | Op.MKDIR | Op.SYMLINK:
                made = _make(call)
                self._change(call.path, made)
                self._open[call.inode] = made

    def _known(self, call: Call) -> Node:
        found = self._find(call.path) or self._open.get(call.inode)
        assert found is not None, f"{call} is about a file that nobody has made"
        self._open[call.inode] = found
        return found

    def _rename(self, call: Call) -> None:
        moved, (old_folder, old), (folder, new) = self._find(call.path), self._split(call.path), self._split(call.other)
        assert moved is not None, f"{call} renames what nobody has made"
        if call.amount & EXCHANGE:
            _do(Names(((old_folder, old, self._find(call.other)), (folder, new, moved))))
            return
        if folder.present.get(new) is moved:
            return  # two names of one file: nothing happens
        _do(Names(((old_folder, old, None), (folder, new, moved))))

    def _change(self, path: str, node: Node | None) -> None:
        folder, name = self._split(path)
        _do(Names(((folder, name, node),)))

    def _split(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        found = self._find(folder)
        assert found is not None, f"{path} lies in a folder that nobody has made"
        return found, name

    def _find(self, path: str) -> Node | None:
        node: Node | None = self.top
        for name in Path(os.path.normpath(path)).relative_to(self._root).parts:
            node = node.present.get(name) if node is not None else None
        return node

    def _all(self) -> Iterator[Node]:
        waiting, seen = [self.top, *self._open.values()], set()
        while waiting:
            node = waiting.pop()
            if id(node) not in seen:
                seen.add(id(node))
                waiting += [*node.entries.values(), *node.present.values()]
                yield node


def _do(names: Names) -> None:
    for folder in {change[0] for change in names.changes}:
        _enter(folder.present, names, folder)
        folder.pending.append(names)


def _make(call: Call) -> Node:
    if call.op == Op.SYMLINK:
        return Node(stat.S_IFLNK, content=os.fsencode(call.other))
    return Node(stat.S_IFDIR if call.op == Op.MKDIR else stat.S_IFREG, call.amount & ~_UMASK)


def _load(path: Path) -> Node:
    found = path.lstat()
    kind = stat.S_IFMT(found.st_mode)
    node = Node(kind, 0 if kind == stat.S_IFLNK else stat.S_IMODE(found.st_mode))
    if node.kind == stat.S_IFDIR:
        node.entries = {inside.name: _load(inside) for inside in path.iterdir()}
        node.present = dict(node.entries)
    else:
        node.content += os.fsencode(path.readlink()) if node.kind == stat.S_IFLNK else path.read_bytes()
    return node


# --- what is there afterwards ---------------------------------------------------------------------------------------


class Thing(NamedTuple):
    kind: int
    mode: int
    content: bytes


Surviving = dict[str, Thing]
"""By path below the folder, folders before what is in them."""


def all_lost(effect: Effect) -> Sequence[Effect]:
    """Keep nothing that was not synced."""
    return ()


def all_kept(effect: Effect) -> Sequence[Effect]:
    """Keep everything, as if only the process had died."""
    return (effect,)


def names_first(effect: Effect) -> Sequence[Effect]:
    """Keep names and no content: files that are empty, or old."""
    return (effect,) if isinstance(effect, Names) else ()


def content_first(effect: Effect) -> Sequence[Effect]:
    """Keep content and no names: files that cannot be found."""
    return () if isinstance(effect, Names) else (effect,)


def by_chance(dice: random.Random) -> Survives:
    """Keep some, at random; of a write also some sectors, or its length alone."""
    lost = dice.choice((0.1, 0.5, 0.9))

    def survives(effect: Effect) -> Sequence[Effect]:
        if dice.random() >= lost:
            return (effect,)
        return _tear(effect, dice) if isinstance(effect, Write) and dice.random() < 0.7 else ()

    return survives


def _tear(write: Write, dice: random.Random) -> list[Effect]:
    """Keep some sectors of a write."""
    first, end = write.offset, write.offset + len(write.data)
    edges = [first, *range(first // SECTOR * SECTOR + SECTOR, end, SECTOR), end]
    share = dice.choice((0, 0.5, 0.9))
    parts: list[Effect] = [
        Write(start, write.data[start - first : stop - first])
        for start, stop in itertools.pairwise(edges)
        if dice.random() < share
    ]
    return [*parts, Stretch(end)] if dice.random() < 0.5 else parts


def surviving(disk: Disk, survives: Survives) -> Surviving:
    """Return the files after power loss: what is durable, and what `survives` chooses of the rest."""
    fates: dict[int, Sequence[Effect]] = {}

    def left(node: Node) -> Iterator[Effect]:
        for effect in node.pending:
            if id(effect) not in fates:
                fates[id(effect)] = survives(effect)
            yield from fates[id(effect)]

    found: Surviving = {}
    waiting = [("", disk.top)]
    while waiting:
        path, node = waiting.pop()
        entries, content, mode = dict(node.entries), bytearray(node.content), node.mode
        for effect in left(node):
            if isinstance(effect, Names):
                _enter(entries, effect, node)
            elif isinstance(effect, Mode):
                mode = effect.mode
            else:
                _alter(content, effect)
        found[path] = Thing(node.kind, mode, bytes(content))
        waiting += [(f"{path}/{name}".lstrip("/"), below) for name, below in entries.items()]
    return found


def lay_out(found: Surviving, folder: Path) -> None:
    """Write files into a folder that has at most empty ones, whose own mode stays."""
    for path, thing in found.items():
        place = folder / path
        if thing.kind == stat.S_IFLNK:
            place.symlink_to(os.fsdecode(thing.content))
        elif thing.kind == stat.S_IFREG:
            place.write_bytes(thing.content)
            place.chmod(thing.mode)
        elif path:
            place.mkdir(exist_ok=True)  # a workspace
            place.chmod(thing.mode)


def look_at(folder: Path) -> Surviving:
    """Read a real folder as such files."""
    return surviving(Disk(folder), all_kept)
