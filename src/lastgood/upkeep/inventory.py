"""All blobs of a store by their ids, where each lies, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from lastgood.catalog.upkeep import Audit, BlobRow, PackRow, SliceRow
from lastgood.catalog.values import FILES, Blob, PackRange
from lastgood.codec.compress import RAW, decompress
from lastgood.codec.pack import PackEntry
from lastgood.engine.blobs import BlobReader, UnreadableBlob
from lastgood.errors import IntegrityError, NotFoundError
from lastgood.upkeep.report import CheckCounts, Code

if TYPE_CHECKING:
    from lastgood.engine.walk import Read
    from lastgood.objects.contract import ObjectStore

Key = tuple[int, bytes]
"""A blob: its partition and its id."""


class Damage(NamedTuple):
    """What is wrong with a blob. `pack`: the one that it lies in, or lay in."""

    code: Code
    sentence: str
    pack: str | None = None


class Inventory:
    """The blobs of a store. `stored`: ids by partition, slices too. `placed`: those of files that lie in packs."""

    def __init__(self) -> None:
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

        read = BlobReader(look_up, objects, self._note_unreadable).read
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


def read_inventory(audit: Audit, counts: CheckCounts, pick: Callable[[], bool] | None) -> Inventory:
    """List all blobs. With `pick` the bytes that lie in the catalog are checked, of those for which it is true."""
    inventory = Inventory()
    inventory.packs = {row.number: row for row in audit.packs()}
    slices = list(audit.slices())
    sliced: defaultdict[int, list[SliceRow]] = defaultdict(list)
    for part in slices:
        sliced[part.whole].append(part)
    wholes: set[tuple[int, int]] = set()
    torn: set[Key] = set()
    for row in audit.blobs(data=pick is not None):
        inventory.stored[row.partition].add(row.digest)
        counts.blobs += 1
        is_there, parts = _place(inventory, row), sliced.get(row.number, ())
        if parts and is_there:
            wholes.update((row.number, part.position) for part in parts if _is_inside(part, row))
        if pick is not None and row.pack is None and pick():
            counts.blobs_read += 1
            counts.bytes_read += len(row.data or b"")
            torn |= _check_inline(inventory, row, parts)
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


def _check_inline(inventory: Inventory, row: BlobRow, parts: Iterable[SliceRow]) -> set[Key]:
    """Compare the bytes of a blob with its id; return which of its parts are not what they were."""
    try:
        data = decompress(row.encoding, row.data or b"", row.size)
    except IntegrityError:
        data = None
    if data is None or sha256(data).digest() != row.digest:
        inventory.note_damage((row.partition, row.digest), "blob_damaged", "is not what was stored")
    return {
        (part.partition, part.digest)
        for part in parts
        if data is None or sha256(data[part.position : part.position + part.size]).digest() != part.digest
    }
