"""Who needs what is damaged: checkpoints, and in them paths and values. Asked only when something is."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from lastgood.catalog.upkeep import Audit, CheckpointRow
from lastgood.catalog.values import FILES
from lastgood.codec.pieces import Reference, is_plain, references_below, references_in
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import FileRoot
from lastgood.model.tree import File, Folder, decode_chunks, decode_tree
from lastgood.upkeep.checking.ledger import Known, Ledger, know
from lastgood.upkeep.checking.parts import companion_roots, references_of_state
from lastgood.upkeep.checking.report import MAX_PARTS, Use
from lastgood.upkeep.checking.shelf import Key, Reader

Culprit = int
"""One finding that several damaged blobs may belong to."""


class _Paths(NamedTuple):
    """Paths that need a culprit: the first of them, and how many there are."""

    first: tuple[bytes, ...]
    total: int


def find_uses(
    audit: Audit, ledger: Ledger, reader: Reader, culprits: Mapping[Key, Culprit]
) -> defaultdict[Culprit, list[Use]]:
    by_partition: defaultdict[int, dict[bytes, Culprit]] = defaultdict(dict)
    for (partition, digest), culprit in culprits.items():
        by_partition[partition][digest] = culprit
    values = {number: _Values(number, bad, reader) for number, bad in by_partition.items() if number != FILES}
    files = _Files(by_partition[FILES], reader)
    if FILES in by_partition:
        files.load(_trees(audit, ledger))
    uses: defaultdict[Culprit, list[Use]] = defaultdict(list)
    for row in audit.checkpoints():
        known = know(ledger, row)
        if known.record is None:
            continue
        parts: defaultdict[Culprit, list[str]] = defaultdict(list)
        more: Counter[Culprit] = Counter()
        if row.task in values:
            _add_values(parts, values[row.task], known, row)
        for root in (known.record.files or ()) if FILES in by_partition else ():
            for culprit, paths in files.paths(root.tree).items():
                parts[culprit] += [_text(root, path) for path in paths.first]
                more[culprit] += paths.total - len(paths.first)
        owner, task_id = ledger.owner_and_task(row.task)
        for culprit, names in parts.items():
            uses[culprit].append(Use(owner, task_id, row.sequence, row.id, tuple(names), more[culprit]))
    return uses


def _add_values(parts: defaultdict[Culprit, list[str]], values: _Values, known: Known, row: CheckpointRow) -> None:
    with suppress(IntegrityError):  # a state that does not begin as it should is told already
        for culprit in sorted(values.reached_by(references_of_state(known, row))):
            parts[culprit].append("state")
    for name, root in companion_roots(known):
        for culprit in sorted(values.reached_from(root)):
            parts[culprit].append(name)


def _trees(audit: Audit, ledger: Ledger) -> Iterator[bytes]:
    for row in audit.checkpoints():
        record = know(ledger, row).record
        for root in (record and record.files) or ():
            yield root.tree


def _text(root: FileRoot, path: bytes) -> str:
    text = os.fsdecode(path) or "."
    return f"{root.name}:{text}" if root.name else text


class _Values:
    """The values of one task: which culprits a reference leads to."""

    def __init__(self, partition: int, bad: Mapping[bytes, Culprit], reader: Reader) -> None:
        self._partition = partition
        self._bad = bad
        self._reader = reader
        self._known: dict[Reference, frozenset[Culprit]] = {}

    def reached_from(self, root: bytes) -> frozenset[Culprit]:
        """From the root of a value that is a blob itself."""
        if root in self._bad:
            return frozenset([self._bad[root]])
        if root not in self._known:
            found: list[Reference] = []
            for _, data in self._reader.read(self._partition, [root]):
                found += references_in(data)
            self._known[root] = self.reached_by(found)
        return self._known[root]

    def reached_by(self, references: Iterable[Reference]) -> frozenset[Culprit]:
        return frozenset(culprit for reference in references for culprit in self._below(reference))

    def _below(self, reference: Reference) -> frozenset[Culprit]:
        if reference not in self._known:
            culprit = self._bad.get(reference[1:])
            if culprit is not None:
                self._known[reference] = frozenset([culprit])
            elif is_plain(reference):
                self._known[reference] = frozenset()
            else:
                found: list[Reference] = []
                for _, data in self._reader.read(self._partition, [reference[1:]]):
                    found += references_below(reference, data)
                self._known[reference] = self.reached_by(found)
        return self._known[reference]


class _Files:
    """The directories of all checkpoints: which culprits are below each, and under which paths."""

    def __init__(self, bad: Mapping[bytes, Culprit], reader: Reader) -> None:
        self._bad = bad
        self._reader = reader
        self._folders: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._direct: dict[bytes, list[tuple[bytes, Culprit]]] = {}
        self._chunked: list[tuple[bytes, File]] = []
        self._paths: dict[bytes, dict[Culprit, _Paths]] = {}

    def load(self, roots: Iterable[bytes]) -> None:
        """Read the directories once more, a level at a time."""
        new = set(roots)
        while new:
            for tree in new & self._bad.keys():
                self._folders[tree], self._direct[tree] = [], [(b"", self._bad[tree])]
            for tree, data in self._reader.read(FILES, new - self._bad.keys()):
                self._look_at(tree, data)
            below = {child for tree in new for _, child in self._folders.get(tree, ())}
            new = below - self._folders.keys()
        lists = {file.chunks: file for _, file in self._chunked if file.chunks is not None}
        culprits: dict[bytes, set[Culprit]] = {}
        for key, data in self._reader.read(FILES, lists):
            chunks = decode_chunks(data, lists[key])
            culprits[key] = {self._bad[chunk.digest] for chunk in chunks if chunk.digest in self._bad}
        for tree, file in self._chunked:
            self._direct[tree] += [(file.name, culprit) for culprit in sorted(culprits.get(file.chunks or b"", ()))]

    def _look_at(self, tree: bytes, data: bytes) -> None:
        folders = self._folders[tree] = []
        direct = self._direct[tree] = []
        for entry in decode_tree(data, tree):
            if isinstance(entry, Folder):
                folders.append((entry.name, entry.tree))
            elif isinstance(entry, File):
                culprit = self._bad.get(entry.digest if entry.chunks is None else entry.chunks)
                if culprit is not None:
                    direct.append((entry.name, culprit))
                elif entry.chunks is not None:
                    self._chunked.append((tree, entry))

    def paths(self, root: bytes) -> Mapping[Culprit, _Paths]:
        """Depth first without recursion: a path may have two thousand folders."""
        waiting = [root]
        while waiting:
            tree = waiting[-1]
            missing = [child for _, child in self._folders.get(tree, ()) if child not in self._paths]
            if tree in self._paths:
                waiting.pop()
            elif missing:
                waiting += missing
            else:
                self._paths[tree] = self._gather(tree)
                waiting.pop()
        return self._paths[root]

    def _gather(self, tree: bytes) -> dict[Culprit, _Paths]:
        found: dict[Culprit, _Paths] = {}

        def add(culprit: Culprit, paths: tuple[bytes, ...], count: int) -> None:
            first, so_far = found.get(culprit, _Paths((), 0))
            found[culprit] = _Paths((*first, *paths)[:MAX_PARTS], so_far + count)

        for name, culprit in self._direct.get(tree, ()):
            add(culprit, (name,), 1)
        for name, child in self._folders.get(tree, ()):
            for culprit, paths in self._paths[child].items():
                add(culprit, tuple(name + b"/" + path for path in paths.first), paths.total)
        return found
