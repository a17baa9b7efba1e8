"""All blobs of a store by their ids, where each lies, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from lastgood.catalog.upkeep import Audit, BlobRow, PackRow, SliceRow
from lastgood.catalog.values import FILES, Blob
from lastgood.codec.compress import RAW, decompress
from lastgood.codec.pack import PackEntry
from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.upkeep.checking.report import Code, LookedAt

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore

GAP_BYTES, RUN_BYTES = 4096, 4 << 20
BATCH = 256

Key = tuple[int, bytes]
"""A blob: its partition and its id."""


class Damage(NamedTuple):
    """What is wrong with a blob. `pack`: the one that it lies in, or lay in."""

    code: Code
    sentence: str
    pack: str | None = None


class Shelf:
    """`stored`: the ids of each partition, slices too. `placed`: those of files that lie in packs."""

    def __init__(self) -> None:
        self.stored: defaultdict[int, set[bytes]] = defaultdict(set)
        self.placed: dict[bytes, BlobRow] = {}
        self.packs: dict[int, PackRow] = {}
        self.damage: dict[Key, Damage] = {}
        self.is_complete = True

    def lose(self, key: Key, code: Code, sentence: str, pack: str | None = None) -> None:
        """The first that is said of a blob stands."""
        self.damage.setdefault(key, Damage(code, sentence, pack))

    def by_pack(self) -> dict[int, list[PackEntry]]:
        """What lies in each pack by what the catalog says, in the order of positions."""
        found: defaultdict[int, list[PackEntry]] = defaultdict(list)
        for row in self.placed.values():
            if row.pack is not None:
                found[row.pack].append(entry_of(row))
        for entries in found.values():
            entries.sort(key=_position)
        return found

    def require(self, partition: int, wanted: Iterable[bytes], audit: Audit) -> None:
        """Ids that something refers to: those that are not there are lost."""
        gone = [digest for digest in wanted if digest not in self.stored[partition]]
        # A table that was read only in part may have them all the same.
        found = {} if self.is_complete else audit.read(partition, gone)
        for digest in gone:
            if digest not in found:
                self.lose((partition, digest), "blob_missing", "is not in the store any more")


def read_shelf(audit: Audit, looked_at: LookedAt, pick: Callable[[], bool] | None) -> Shelf:
    """With `pick` the bytes that lie in the catalog are checked, of those that it says yes to."""
    shelf = Shelf()
    shelf.packs = {row.number: row for row in audit.packs()}
    slices = list(audit.slices())
    sliced: defaultdict[int, list[SliceRow]] = defaultdict(list)
    for part in slices:
        sliced[part.whole].append(part)
    wholes: set[tuple[int, int]] = set()
    torn: set[Key] = set()
    for row in audit.blobs(data=pick is not None):
        shelf.stored[row.partition].add(row.digest)
        looked_at.blobs += 1
        is_there, parts = _shelve(shelf, row), sliced.get(row.number, ())
        if parts and is_there:
            wholes.update((row.number, part.position) for part in parts if _is_inside(part, row))
        if pick is not None and row.pack is None and pick():
            looked_at.blobs_read += 1
            looked_at.bytes_read += len(row.data or b"")
            torn |= _check_inline(shelf, row, parts)
    shelf.is_complete = not {"blobs", "slices"} & set(audit.unreadable)
    for part in slices:
        key = part.partition, part.digest
        if part.digest in shelf.stored[part.partition]:
            continue  # it lies by itself, too, and is read from there
        if (part.whole, part.position) not in wholes and shelf.is_complete:
            shelf.lose(key, "blob_missing", "is a part of one that is not there")
        elif key in torn:
            shelf.lose(key, "blob_damaged", "is not what was stored")
    for part in slices:
        shelf.stored[part.partition].add(part.digest)
    return shelf


def _shelve(shelf: Shelf, row: BlobRow) -> bool:
    """Put a blob where it belongs; whether it can be there at all."""
    key = row.partition, row.digest
    if row.pack is None:
        if row.length is None:
            shelf.lose(key, "blob_missing", "has lost its bytes")
        elif row.encoding == RAW and row.length != row.size:
            shelf.lose(key, "blob_damaged", "is not as long as it was")
        return row.length is not None
    pack = shelf.packs.get(row.pack)
    if pack is None or row.position is None or row.length is None or row.partition != FILES:
        shelf.lose(key, "blob_place", "lies in a pack that the catalog does not know")
        return False
    shelf.placed[row.digest] = row
    return True


def entry_of(row: BlobRow) -> PackEntry:
    """A blob that lies in a pack, as the pack's index should have it."""
    return PackEntry(row.digest, row.position or 0, row.length or 0, row.size, row.encoding)


def _position(entry: PackEntry) -> int:
    return entry.position


def _is_inside(part: SliceRow, whole: BlobRow) -> bool:
    return part.partition == whole.partition and 0 <= part.position <= part.position + part.size <= whole.size


def _check_inline(shelf: Shelf, row: BlobRow, parts: Iterable[SliceRow]) -> set[Key]:
    """Whether a blob's bytes are what they were; which of its parts are not."""
    try:
        data = decompress(row.encoding, row.data or b"", row.size)
    except IntegrityError:
        data = None
    if data is None or sha256(data).digest() != row.digest:
        shelf.lose((row.partition, row.digest), "blob_damaged", "is not what was stored")
    return {
        (part.partition, part.digest)
        for part in parts
        if data is None or sha256(data[part.position : part.position + part.size]).digest() != part.digest
    }


class Reader:
    """Blobs one level at a time, each checked; what cannot be had is lost on the shelf and left out."""

    def __init__(self, shelf: Shelf, audit: Audit, objects: ObjectStore | None) -> None:
        self._shelf = shelf
        self._audit = audit
        self._objects = objects

    def read(self, partition: int, digests: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        wanted = [digest for digest in dict.fromkeys(digests) if (partition, digest) not in self._shelf.damage]
        placed = self._shelf.placed if partition == FILES else {}
        inline = [digest for digest in wanted if digest not in placed]
        for start in range(0, len(inline), BATCH):
            yield from self._read_inline(partition, inline[start : start + BATCH])
        yield from self._read_packed([placed[digest] for digest in wanted if digest in placed])

    def _read_inline(self, partition: int, digests: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        found = self._audit.read(partition, digests)
        wholes: dict[bytes, bytes] = {}
        for digest in digests:
            blob = found.get(digest)
            if blob is None:
                sentence = (
                    "cannot be read" if digest in self._shelf.stored[partition] else "is not in the store any more"
                )
                self._shelf.lose((partition, digest), "blob_missing", sentence)
                continue
            try:
                data = _unpack(blob, wholes)
            except IntegrityError:
                data = None
            if data is not None and sha256(data).digest() == digest:
                yield digest, data
            else:
                self._shelf.lose((partition, digest), "blob_damaged", "is not what was stored")

    def _read_packed(self, rows: list[BlobRow]) -> Iterator[tuple[bytes, bytes]]:
        by_pack: defaultdict[int, list[PackEntry]] = defaultdict(list)
        for row in rows:
            by_pack[row.pack or 0].append(entry_of(row))
        for pack, entries in by_pack.items():
            name = self._shelf.packs[pack].name
            run: list[PackEntry] = []
            for entry in sorted(entries, key=_position):
                if run and not _follows(run, entry):
                    yield from self._read_run(name, run)
                    run = []
                run.append(entry)
            yield from self._read_run(name, run)

    def _read_run(self, pack: str, run: list[PackEntry]) -> Iterator[tuple[bytes, bytes]]:
        start, last = run[0].position, run[-1]
        try:
            data = self._get(pack, start, last.position + last.length - start)
        except CheckpointError as error:
            if len(run) > 1:
                for entry in run:
                    yield from self._read_run(pack, [entry])
            else:
                gone = isinstance(error, NotFoundError)
                sentence = "is gone with its pack" if gone else "cannot be read from its pack"
                code: Code = "blob_missing" if gone else "blob_damaged"
                self._shelf.lose((FILES, last.blob_id), code, sentence, pack)
            return
        for entry in run:
            at = entry.position - start
            try:
                plain = decompress(entry.encoding, data[at : at + entry.length], entry.size)
            except IntegrityError:
                plain = None
            if plain is not None and sha256(plain).digest() == entry.blob_id:
                yield entry.blob_id, plain
            else:
                self._shelf.lose((FILES, entry.blob_id), "blob_damaged", "is not what was stored", pack)

    def _get(self, name: str, start: int, length: int) -> bytes:
        if self._objects is None:
            raise NotFoundError("this store has no objects")
        return self._objects.get(name, start, length)


def _follows(run: list[PackEntry], entry: PackEntry) -> bool:
    near = 0 <= entry.position - run[-1].position - run[-1].length <= GAP_BYTES
    return near and entry.position - run[0].position <= RUN_BYTES


def _unpack(blob: Blob, wholes: dict[bytes, bytes]) -> bytes:
    if type(blob.data) is not bytes:
        raise IntegrityError("it has no bytes")
    if blob.whole is None:
        return decompress(blob.encoding, blob.data, blob.size)
    whole = wholes.get(blob.whole.digest)
    if whole is None:
        whole = wholes[blob.whole.digest] = decompress(blob.encoding, blob.data, blob.whole.size)
    return whole[blob.whole.position : blob.whole.position + blob.size]
