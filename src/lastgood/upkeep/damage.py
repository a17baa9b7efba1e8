"""Damaged blobs: all blobs of a store by their ids, where each lies and what is wrong with it, and which checkpoints,
with the paths and values in them, need what is damaged."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lastgood.catalog.upkeep import Audit, BlobRow, PackRow, SliceRow
from lastgood.catalog.values import FILES, Blob, PackRange
from lastgood.codec.compress import RAW, decompress
from lastgood.codec.join import Reference, is_plain
from lastgood.codec.pack import PackEntry
from lastgood.engine.blobs import BlobReader, UnreadableBlob
from lastgood.engine.walk import Visit, Walk, companion_references, state_references, tree_references
from lastgood.errors import IntegrityError, NotFoundError
from lastgood.model.identity import BlobId, digest_text
from lastgood.model.tree import File, Folder
from lastgood.upkeep.report import MAX_PARTS, CheckCounts, Code, Finding, Use
from lastgood.upkeep.snapshot import CatalogSnapshot, state_root

if TYPE_CHECKING:
    from lastgood.engine.walk import Read
    from lastgood.model.checkpoint import FileRoot
    from lastgood.objects.contract import ObjectStore

Key = tuple[int, bytes]
"""A blob: its partition and its id."""
Cause = int
"""The number of a finding, which several damaged blobs may belong to."""
MAX_SEPARATE = 64
"""So many damaged blobs of one kind and place are findings of their own; more of them are one finding."""


class Damage(NamedTuple):
    """What is wrong with a blob. `pack`: the one that it lies in, or lay in."""

    code: Code
    sentence: str
    pack: str | None = None


class Inventory:
    """The blobs of a store. `stored`: ids by partition, slices too. `placed`: those of files that lie in packs."""

    def __init__(self, blob_id: BlobId) -> None:
        self.blob_id = blob_id
        self.stored: defaultdict[int, set[bytes]] = defaultdict(set)
        self.placed: dict[bytes, BlobRow] = {}
        self.packs: dict[int, PackRow] = {}
        self.damage: dict[Key, Damage] = {}
        self.is_complete = True

    def note_damage(self, key: Key, code: Code, sentence: str, pack: str | None = None) -> None:
        """Note what is wrong with a blob; what was noted first stands."""
        self.damage.setdefault(key, Damage(code, sentence, pack))

    def by_pack(self) -> dict[int, list[PackEntry]]:
        """Return what lies in each pack according to the catalog, in the order of positions."""
        found: defaultdict[int, list[PackEntry]] = defaultdict(list)
        for row in self.placed.values():
            if row.pack is not None:
                found[row.pack].append(entry_of(row))
        for entries in found.values():
            entries.sort(key=_position)
        return found

    def require(self, partition: int, wanted: Iterable[bytes], audit: Audit) -> None:
        """Note ids that something refers to and that are not there."""
        stored = self.stored[partition]
        gone = [digest for digest in wanted if digest not in stored]
        # A table that was read only in part may have them all the same.
        found = {} if self.is_complete or not gone else audit.read(partition, gone)
        for digest in gone:
            if digest not in found:
                self.note_damage((partition, digest), "blob_missing", "is not in the store any more")

    def reader(self, audit: Audit, objects: ObjectStore | None) -> Read:
        """Return what reads blobs, each checked; damage is noted, and what is known to be damaged is left out."""

        def look_up(partition: int, keys: Sequence[bytes]) -> dict[bytes, Blob]:
            placed = self.placed if partition == FILES else {}
            found = {key: self._as_blob(placed[key]) for key in keys if key in placed}
            return found | audit.read(partition, [key for key in keys if key not in found])

        read = BlobReader(self.blob_id, look_up, objects, self._note_unreadable).read
        return lambda partition, keys: read(partition, [key for key in keys if (partition, key) not in self.damage])

    def _as_blob(self, row: BlobRow) -> Blob:
        place = PackRange(self.packs[row.pack or 0].name, row.position or 0, row.length or 0)
        return Blob(row.digest, row.size, row.encoding, b"", None, place)

    def _note_unreadable(self, blob: UnreadableBlob) -> None:
        key = blob.partition, blob.key
        if blob.problem == "missing":
            is_listed = blob.key in self.stored[blob.partition]
            self.note_damage(key, "blob_missing", "cannot be read" if is_listed else "is not in the store any more")
        elif isinstance(blob.error, NotFoundError):
            self.note_damage(key, "blob_missing", "is gone with its pack", blob.pack)
        elif blob.error is not None:
            self.note_damage(key, "blob_damaged", "cannot be read from its pack", blob.pack)
        else:
            self.note_damage(key, "blob_damaged", "is not what was stored", blob.pack)


def read_inventory(audit: Audit, blob_id: BlobId, counts: CheckCounts, read_data: bool) -> Inventory:
    """List all blobs. With `read_data` the bytes that lie in the catalog are checked."""
    inventory = Inventory(blob_id)
    inventory.packs = {row.number: row for row in audit.packs()}
    slices = list(audit.slices())
    sliced: defaultdict[int, list[SliceRow]] = defaultdict(list)
    for part in slices:
        sliced[part.whole].append(part)
    wholes: set[tuple[int, int]] = set()
    torn: set[Key] = set()
    for row in audit.blobs(data=read_data):
        inventory.stored[row.partition].add(row.digest)
        counts.blobs += 1
        is_there, parts = _place(inventory, row), sliced.get(row.number, ())
        if parts and is_there:
            wholes.update((row.number, part.position) for part in parts if _is_inside(part, row))
        if read_data and row.pack is None:
            counts.blobs_read += 1
            counts.bytes_read += len(row.data or b"")
            torn.update(_check_inline(inventory, row, parts))
    inventory.is_complete = not {"blobs", "slices"} & set(audit.unreadable)
    for part in slices:
        key = part.partition, part.digest
        if part.digest in inventory.stored[part.partition]:
            continue  # it lies by itself, too, and is read from there
        if (part.whole, part.position) not in wholes and inventory.is_complete:
            inventory.note_damage(key, "blob_missing", "is a part of one that is not there")
        elif key in torn:
            inventory.note_damage(key, "blob_damaged", "is not what was stored")
    for part in slices:
        inventory.stored[part.partition].add(part.digest)
    return inventory


def _place(inventory: Inventory, row: BlobRow) -> bool:
    """Add a blob that lies in a pack to those; return whether its bytes can be there at all."""
    key = row.partition, row.digest
    if row.pack is None:
        if row.length is None:
            inventory.note_damage(key, "blob_missing", "has lost its bytes")
        elif row.encoding == RAW and row.length != row.size:
            inventory.note_damage(key, "blob_damaged", "is not as long as it was")
        return row.length is not None
    pack = inventory.packs.get(row.pack)
    if pack is None or row.position is None or row.length is None or row.partition != FILES:
        inventory.note_damage(key, "blob_place", "lies in a pack that the catalog does not know")
        return False
    inventory.placed[row.digest] = row
    return True


def entry_of(row: BlobRow) -> PackEntry:
    """Return a blob that lies in a pack as the pack's index should have it."""
    return PackEntry(row.digest, row.position or 0, row.length or 0, row.size, row.encoding)


def _position(entry: PackEntry) -> int:
    return entry.position


def _is_inside(part: SliceRow, whole: BlobRow) -> bool:
    return part.partition == whole.partition and 0 <= part.position <= part.position + part.size <= whole.size


def _check_inline(inventory: Inventory, row: BlobRow, parts: Iterable[SliceRow]) -> list[Key]:
    """Compare the bytes of a blob with its id; return which of its parts are not what they were."""
    try:
        data = decompress(row.encoding, row.data or b"", row.size)
    except IntegrityError:
        data = None
    if data is None or inventory.blob_id.of(data) != row.digest:
        inventory.note_damage((row.partition, row.digest), "blob_damaged", "is not what was stored")
    return [
        (part.partition, part.digest)
        for part in parts
        if data is None or inventory.blob_id.of(data[part.position : part.position + part.size]) != part.digest
    ]


# --- findings -----------------------------------------------------------------------------------------------------


def attribute(
    audit: Audit, snapshot: CatalogSnapshot, inventory: Inventory, packs: Sequence[Finding], read: Read
) -> Iterator[Finding]:
    """Complete findings with the checkpoints that need what is damaged, and add those of blobs.

    What is gone from the catalog by now was collected meanwhile, and is left out.
    """
    present = {row.name for row in audit.packs()}
    drafts = _group(inventory.damage, [one for one in packs if one.name in present or "packs" in audit.unreadable])
    causes = {key: number for number, (_, keys) in enumerate(drafts) for key in keys}
    uses = find_uses(audit, snapshot, inventory, read, causes)
    for number, (draft, keys) in enumerate(drafts):
        if not keys or uses.get(number) or _is_still_there(audit, keys):
            yield _complete(draft, keys, uses.get(number, []))


def _group(damage: Mapping[Key, Damage], packs: Sequence[Finding]) -> list[tuple[Finding, list[Key]]]:
    """Return the findings of packs and blobs, each with the damaged blobs that belong to it."""
    found = [(pack, list[Key]()) for pack in packs]
    gone_with = {pack.name: keys for pack, keys in found}
    alike: defaultdict[Damage, list[Key]] = defaultdict(list)
    for key, what in damage.items():
        if what.code == "blob_missing" and what.pack in gone_with:
            gone_with[what.pack].append(key)
        else:
            alike[what].append(key)
    for what, keys in alike.items():
        if len(keys) > MAX_SEPARATE:
            name, where = (what.pack, f" of the pack {what.pack}") if what.pack else (f"{len(keys)} blobs", "")
            sentence = f"{len(keys):,} blobs{where}: each {what.sentence}"
            found.append((Finding(what.code, "blob", name, sentence), keys))
        else:
            names = [(digest_text(key[1]), key) for key in keys]
            found += [(Finding(what.code, "blob", name, f"blob {name} {what.sentence}"), [key]) for name, key in names]
    return found


def _is_still_there(audit: Audit, keys: Iterable[Key]) -> bool:
    return any(audit.read(partition, [digest]) for partition, digest in keys)


def _complete(draft: Finding, keys: Iterable[Key], uses: Sequence[Use]) -> Finding:
    owners = {(use.owner, use.task_id) for use in uses}
    owner, task_id = next(iter(owners)) if len(owners) == 1 else (None, None)
    blobs = tuple(digest_text(digest) for _, digest in keys)
    return msgspec.structs.replace(draft, blobs=blobs, uses=tuple(uses), owner=owner, task_id=task_id)


# --- what needs them ----------------------------------------------------------------------------------------------


class _Paths(NamedTuple):
    """Paths that need a damaged blob: the first of them, and how many there are."""

    first: tuple[bytes, ...]
    total: int


def find_uses(
    audit: Audit, snapshot: CatalogSnapshot, inventory: Inventory, read: Read, causes: Mapping[Key, Cause]
) -> defaultdict[Cause, list[Use]]:
    """Find the checkpoints that need damaged blobs, by finding."""
    damaged: defaultdict[int, dict[bytes, Cause]] = defaultdict(dict)
    for (partition, digest), cause in causes.items():
        damaged[partition][digest] = cause
    walk = Walk(read, lambda partition, reference, error: None)  # what is malformed is among the damaged
    tracers = {partition: _Tracer(partition, bad, walk) for partition, bad in damaged.items()}
    uses: defaultdict[Cause, list[Use]] = defaultdict(list)
    for row in audit.checkpoints():
        record = snapshot.assess(row).record
        if record is None:
            continue
        parts: defaultdict[Cause, list[str]] = defaultdict(list)
        more: Counter[Cause] = Counter()
        if (tracer := tracers.get(row.task)) is not None:
            values = [(name, [reference]) for name, reference in companion_references(record)]
            with suppress(IntegrityError):  # a state whose root is damaged has a finding already
                values.insert(0, ("state", state_references(inventory.blob_id, record, state_root(row))))
            for name, references in values:
                for cause in sorted({cause for one in references for cause in tracer.trace(one)}):
                    parts[cause].append(name)
        if (tracer := tracers.get(FILES)) is not None:
            for root, reference in zip(record.files or (), tree_references(record), strict=True):
                for cause, paths in tracer.trace(reference).items():
                    parts[cause] += [_text(root, path) for path in paths.first]
                    more[cause] += paths.total - len(paths.first)
        owner, task_id = snapshot.owner_and_task(row.task)
        for cause, names in parts.items():
            uses[cause].append(Use(owner, task_id, row.sequence, row.id, tuple(names), more[cause]))
    return uses


def _text(root: FileRoot, path: bytes) -> str:
    text = os.fsdecode(path) or "."
    return f"{root.name}:{text}" if root.name else text


class _Tracer:
    """A search for the damage that a reference of one partition leads to, with the paths to it."""

    def __init__(self, partition: int, bad: Mapping[bytes, Cause], walk: Walk) -> None:
        self._partition = partition
        self._bad = bad
        self._walk = walk
        self._below: dict[Reference, list[tuple[bytes, Reference]]] = {}
        self._found: dict[Reference, dict[Cause, _Paths]] = {}

    def trace(self, reference: Reference) -> Mapping[Cause, _Paths]:
        """Return what a reference leads to. Goes depth first without recursion: a path may have two thousand
        folders."""
        for visit in self._walk.follow(self._partition, [reference]):
            self._below[visit.reference] = [
                (name, one) for name, one in _named(visit) if not is_plain(one) or one[1:] in self._bad
            ]
        waiting = [reference]
        while waiting:
            one = waiting[-1]
            missing = [child for _, child in self._below.get(one, ()) if child not in self._found]
            if one in self._found:
                waiting.pop()
            elif missing and one[1:] not in self._bad:
                waiting += missing
            else:
                self._found[one] = self._gather(one)
                waiting.pop()
        return self._found[reference]

    def _gather(self, reference: Reference) -> dict[Cause, _Paths]:
        if (cause := self._bad.get(reference[1:])) is not None:
            return {cause: _Paths((b"",), 1)}
        found: dict[Cause, _Paths] = {}
        for name, child in self._below.get(reference, ()):
            for cause, paths in self._found[child].items():
                first, total = found.get(cause, _Paths((), 0))
                again = not name and b"" in first and b"" in paths.first  # a part of the same file, value or folder
                new = tuple(name + path for path in paths.first if path or not again)
                found[cause] = _Paths((*first, *new)[:MAX_PARTS], total + paths.total - again)
        return found


def _named(visit: Visit) -> Iterator[tuple[bytes, Reference]]:
    """Yield what a blob refers to, with what it adds to the path."""
    if not visit.entries:
        return ((b"", reference) for reference in visit.below)
    entries = (entry for entry in visit.entries if isinstance(entry, File | Folder))
    names = (entry.name + b"/" if isinstance(entry, Folder) else entry.name for entry in entries)
    return zip(names, visit.below, strict=True)
