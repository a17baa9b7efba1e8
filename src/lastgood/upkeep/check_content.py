"""Whether content is what was stored: packs by their indexes and by every byte, and all that checkpoints lead to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from lastgood.catalog.upkeep import Audit, CheckpointRow, PackRow
from lastgood.catalog.values import FILES
from lastgood.codec.join import Reference, is_plain
from lastgood.codec.pack import HEAD_SIZE, HEADER_SIZE, PackEntry, is_head, is_header, read_index, unpack
from lastgood.engine.walk import TREE, Walk, companion_references, state_references, tree_references
from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.model import tree
from lastgood.model.checkpoint import FileRoot
from lastgood.model.identity import BlobId
from lastgood.objects.contract import ObjectStore
from lastgood.upkeep.damage import Inventory
from lastgood.upkeep.report import CheckCounts, Code, Finding
from lastgood.upkeep.snapshot import KnownCheckpoint, state_root

WINDOW = 8 << 20
THREADS = 2  # hashing lets others have Python meanwhile: a loss for blobs of 6 KB, much gain for those of 1 MB
LARGE = 64 << 10  # a blob's bytes, on average, from which on threads gain

Progress = Callable[[int, int], None]
"""Called with how many bytes were read, and how many there are to read."""


# --- what checkpoints lead to -------------------------------------------------------------------------------------


class CheckpointContent:
    """What all checkpoints refer to, gathered as they are read; each blob that refers to others is read once."""

    def __init__(self, blob_id: BlobId) -> None:
        self._blob_id = blob_id
        self.damaged_states: list[tuple[KnownCheckpoint, str]] = []
        """Checkpoints whose state does not begin as it should, and how."""
        self.miscounted: list[tuple[KnownCheckpoint, str]] = []
        """Checkpoints whose directories hold another number of files than their records say, and how."""
        self._references: defaultdict[int, dict[Reference, None]] = defaultdict(dict)
        self._roots: list[tuple[KnownCheckpoint, FileRoot]] = []

    def add(self, known: KnownCheckpoint, row: CheckpointRow) -> None:
        if known.record is None:
            return
        self._references[FILES] |= dict.fromkeys(tree_references(known.record))
        self._roots += [(known, root) for root in known.record.files or ()]
        self._references[row.task] |= dict.fromkeys(reference for _, reference in companion_references(known.record))
        try:
            self._references[row.task] |= dict.fromkeys(state_references(self._blob_id, known.record, state_root(row)))
        except IntegrityError as error:
            self.damaged_states.append((known, str(error)))

    def check(self, inventory: Inventory, audit: Audit, objects: ObjectStore | None) -> None:
        """Read what refers to more, and note what is missing or damaged in the inventory."""

        def note_malformed(partition: int, reference: Reference, error: IntegrityError) -> None:
            key = partition, reference[1:]
            if partition != FILES:
                inventory.note_damage(key, "blob_damaged", "is not well formed")
            else:
                what = "directory" if reference[:1] == TREE else "list of chunks"
                inventory.note_damage(key, "tree", f"is no {what}: {error}")

        walk = Walk(inventory.reader(audit, objects), note_malformed, changes_only=True)
        summaries: dict[bytes, tree.TreeSummary] = {}
        for partition in sorted(self._references, key=lambda number: (number == FILES, number)):
            references = self._references[partition]
            inventory.require(partition, (one[1:] for one in references if is_plain(one)), audit)
            for visit in walk.follow(partition, references):
                inventory.require(partition, [one[1:] for one in visit.below if is_plain(one)], audit)
                if visit.summary is not None:
                    summaries[visit.reference[1:]] = visit.summary
        for key in tree.find_misfits(summaries):
            note_malformed(FILES, TREE + key, IntegrityError("its parts do not follow each other"))
        totals = _Totals(summaries)
        for known, root in self._roots:
            total = totals.count(root.tree)
            if total is not None and (total != root.file_count or total > tree.MAX_ENTRIES):
                how = f"its record says {root.file_count:,} files, and its directories lead to {total:,}"
                self.miscounted.append((known, how))


class _Totals:
    """How many files lie in directories and all below them; each is counted once, however often it is led to."""

    def __init__(self, summaries: dict[bytes, tree.TreeSummary]) -> None:
        self._summaries = summaries
        self._totals: dict[bytes, int | None] = {}

    def count(self, tree: bytes) -> int | None:
        """Return how many there are; None where something below is missing or damaged."""
        waiting, totals = [tree], self._totals
        while waiting:
            key = waiting.pop()
            if key in totals:
                continue
            if (summary := self._summaries.get(key)) is None:
                totals[key] = None
                continue
            try:
                totals[key] = summary.files + sum(map(totals.__getitem__, summary.trees))  # type: ignore[arg-type]
            except KeyError:  # some of those are to be counted first
                waiting += (key, *(each for each in summary.trees if each not in totals))
            except TypeError:  # one of those is None
                totals[key] = None
        return totals[tree]


# --- packs by their indexes ---------------------------------------------------------------------------------------


class ReadablePack(NamedTuple):
    """A pack that can be read: what its index says it holds, or else the catalog."""

    row: PackRow
    entries: Sequence[PackEntry]
    has_index: bool


def check_packs(
    objects: ObjectStore, inventory: Inventory, counts: CheckCounts
) -> tuple[list[Finding], list[ReadablePack]]:
    """Check packs by their sizes and indexes alone; return what is wrong, and those that can be read."""
    findings: list[Finding] = []
    readable: list[ReadablePack] = []
    by_pack = inventory.by_pack()
    for pack in inventory.packs.values():
        counts.packs += 1
        placed = by_pack.get(pack.number, [])
        size, entries, wrong = _check_pack(objects, pack)
        if wrong is not None:
            findings.append(wrong)
            entries = [entry for entry in placed if entry.position + entry.length <= size]
        readable.append(ReadablePack(pack, entries, wrong is None))
        held = {entry.blob_id: entry for entry in entries}
        for key, entry in (((FILES, entry.blob_id), entry) for entry in placed):
            if held.get(entry.blob_id) != entry and wrong is not None:
                inventory.note_damage(key, "blob_missing", "is gone with its pack", pack.name)
            elif held.get(entry.blob_id) != entry:
                inventory.note_damage(key, "blob_place", "does not lie where the catalog says", pack.name)
    return findings, readable


def _check_pack(objects: ObjectStore, pack: PackRow) -> tuple[int, Sequence[PackEntry], Finding | None]:
    """Return how many bytes a pack has, what its index says it holds, and what is wrong with it."""

    def finding(code: Code, problem: str) -> Finding:
        return Finding(code, "pack", pack.name, problem)

    try:
        size = objects.size(pack.name)
    except NotFoundError:
        return 0, (), finding("pack_missing", f"the pack {pack.name} is gone")
    except CheckpointError as error:
        return 0, (), finding("pack_unreadable", f"the pack {pack.name} cannot be read: {error}")
    if size != pack.size:
        problem = f"the pack {pack.name} has {size:,} bytes; it was stored with {pack.size:,}"
        return size, (), finding("pack_size", problem)
    try:
        return size, read_index(partial(objects.get, pack.name), size).entries, None
    except IntegrityError:
        problem = f"the index of the pack {pack.name} is damaged; its blobs may be whole"
        return size, (), finding("pack_index", problem)
    except CheckpointError as error:
        return size, (), finding("pack_unreadable", f"the pack {pack.name} cannot be read: {error}")


# --- packs by every byte ------------------------------------------------------------------------------------------


def check_pack_content(
    objects: ObjectStore,
    inventory: Inventory,
    readable: Sequence[ReadablePack],
    counts: CheckCounts,
    progress: Progress | None,
) -> list[Finding]:
    """Read packs front to back; return what is wrong with them, and note damaged blobs."""
    total = sum(entry.length for pack in readable for entry in pack.entries)
    done = counts.bytes_read
    strays = Counter(pack.row.name for pack in readable if pack.has_index and not _begins_right(objects, pack.row.name))
    for pack, window, outcome in _check_all(objects, readable, inventory.blob_id):
        strays[pack.row.name] += outcome.stray
        for entry in outcome.damaged:
            placed = inventory.placed.get(entry.blob_id)
            if placed is not None and placed.pack == pack.row.number:
                inventory.note_damage((FILES, entry.blob_id), "blob_damaged", "is not what was stored", pack.row.name)
            else:  # it lies elsewhere, too, and is read from there
                strays[pack.row.name] += 1
        counts.blobs_read += len(window)
        counts.bytes_read += sum(entry.length for entry in window)
        if progress is not None:
            progress(counts.bytes_read - done, total)
    return [
        Finding("pack_damaged", "pack", name, f"the pack {name} has damaged bytes that no checkpoint needs")
        for name, count in strays.items()
        if count
    ]


def _check_all(
    objects: ObjectStore, packs: Sequence[ReadablePack], blob_id: BlobId
) -> Iterator[tuple[ReadablePack, list[PackEntry], _Outcome]]:
    """Check the windows of all packs; yield the results in order."""
    from concurrent.futures import ThreadPoolExecutor

    windows = [(pack, window) for pack in packs for window in _windows(pack.entries)]
    sizes = [entry.length for pack in packs for entry in pack.entries]
    with ThreadPoolExecutor(THREADS if sum(sizes) >= LARGE * len(sizes) else 1, "lastgood check") as pool:
        outcomes = pool.map(lambda one: _check_window(objects, one[0], one[1], blob_id), windows)
        yield from ((pack, window, outcome) for (pack, window), outcome in zip(windows, outcomes, strict=True))


class _Outcome(NamedTuple):
    """A checked window. `stray`: how many heads of entries are not as written; reading does not depend on them."""

    damaged: list[PackEntry]
    stray: int


def _check_window(objects: ObjectStore, pack: ReadablePack, window: Sequence[PackEntry], blob_id: BlobId) -> _Outcome:
    start, last = window[0].position - HEAD_SIZE, window[-1]
    try:
        data = memoryview(objects.get(pack.row.name, start, last.position + last.length - start))
    except CheckpointError:
        if len(window) == 1:
            return _Outcome(list(window), 0)
        outcomes = [_check_window(objects, pack, [entry], blob_id) for entry in window]
        return _Outcome([entry for one in outcomes for entry in one.damaged], 0)
    damaged, stray = [], 0
    for entry in window:
        at = entry.position - start
        stray += pack.has_index and not is_head(data[at - HEAD_SIZE : at], entry)
        if not _is_content(data[at : at + entry.length], entry, blob_id):
            damaged.append(entry)
    return _Outcome(damaged, stray)


def _is_content(stored: memoryview, entry: PackEntry, blob_id: BlobId) -> bool:
    try:
        unpack(entry, bytes(stored), blob_id)
    except IntegrityError:
        return False
    return True


def _windows(entries: Sequence[PackEntry]) -> Iterator[list[PackEntry]]:
    """Group entries that are read at once: they lie beside each other, and are not too many bytes."""
    window: list[PackEntry] = []
    for entry in entries:
        if window:
            end = window[-1].position + window[-1].length
            if entry.position - HEAD_SIZE != end or end - window[0].position > WINDOW:
                yield window
                window = []
        window.append(entry)
    if window:
        yield window


def _begins_right(objects: ObjectStore, name: str) -> bool:
    try:
        return is_header(objects.get(name, 0, HEADER_SIZE))
    except CheckpointError:
        return False
