"""Blobs read back: from an id to bytes that were compared with it, out of the catalog or a pack; and what is made of
them, files and values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from lastgood.catalog.values import FILES, Blob, NewPack, PackRange, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.errors import (
    CheckpointError,
    IntegrityError,
    InvalidError,
    LostCommitsError,
    NotFoundError,
    UnavailableError,
)
from lastgood.local.process import this_process
from lastgood.model.checkpoint import Record, ValueRef
from lastgood.model.identity import BlobId, digest_text
from lastgood.model.tree import File, Tree, decode_chunks, differing_below, list_parts, open_tree, parts_of

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.cache import CheckpointCache
    from lastgood.objects.contract import ObjectStore

GROUP_BLOBS, GROUP_BYTES = 256, 4 << 20
"""So many are looked up and read at once."""
SMALL_BLOBS, SMALL_BYTES = 1024, 16 << 10
TREES = 4096
GAP_BYTES, RUN_BYTES = 4096, 4 << 20
"""Blobs of a pack with at most such gaps between them are read at once, up to so many bytes."""


class UnreadableBlob(NamedTuple):
    """A blob that cannot be had. `pack`: the one that it lies in; `error`: what reading that one raised."""

    partition: int
    key: bytes
    problem: Literal["missing", "empty", "damaged", "pack"]
    pack: str | None = None
    error: CheckpointError | None = None


LookUp = Callable[[int, Sequence[bytes]], Mapping[bytes, Blob]]
"""The blobs of a partition with these ids, those that exist: `Catalog.blobs`, `Audit.read`."""


class BlobReader:
    """Reads blobs. `report` is called with each that cannot be had, and raises or takes note of it; what raises ends
    the reading. `objects` None: there are no packs. As safe for threads as `look_up` and `report` are."""

    def __init__(
        self, blob_id: BlobId, look_up: LookUp, objects: ObjectStore | None, report: Callable[[UnreadableBlob], None]
    ) -> None:
        self._blob_id = blob_id
        self._look_up = look_up
        self._objects = objects
        self._report = report

    def read(self, partition: int, keys: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the id and the bytes of each blob, in any order; blobs that lie in the catalog come first."""
        wanted = list(dict.fromkeys(keys))
        found = dict(self._look_up(partition, wanted)) if wanted else {}
        failed = {key: UnreadableBlob(partition, key, "missing") for key in wanted if key not in found}
        yield from self._read(partition, found.values(), failed)
        while failed:
            again = self._look_up(partition, list(failed))
            moved = {key: blob for key, blob in again.items() if blob != found.get(key)}
            if not moved:
                break
            for key in moved:  # into another pack meanwhile
                del failed[key]
            found |= moved
            yield from self._read(partition, moved.values(), failed)
        for problem in failed.values():
            self._report(problem)

    def read_found(self, partition: int, blobs: Iterable[Blob]) -> Iterator[tuple[bytes, bytes]]:
        """Yield ids and bytes as `read` does, of blobs that need not be looked up."""
        failed: dict[bytes, UnreadableBlob] = {}
        yield from self._read(partition, blobs, failed)
        for problem in failed.values():
            self._report(problem)

    def check(self, partition: int, blobs: Iterable[Blob]) -> None:
        """Read blobs that need not be looked up, and report those that cannot be had."""
        for _ in self.read_found(partition, blobs):
            pass

    def _read(
        self, partition: int, blobs: Iterable[Blob], failed: dict[bytes, UnreadableBlob]
    ) -> Iterator[tuple[bytes, bytes]]:
        wholes: dict[bytes, bytes] = {}
        placed = []
        for blob in blobs:
            if blob.place is not None:
                placed.append(blob)
            elif type(blob.data) is not bytes:
                failed[blob.digest] = UnreadableBlob(partition, blob.digest, "empty")
            else:
                try:
                    data = unpack_blob(self._blob_id, blob.digest, blob, wholes)
                except IntegrityError:
                    failed[blob.digest] = UnreadableBlob(partition, blob.digest, "damaged")
                else:
                    yield blob.digest, data
        for pack, run in _runs(placed):
            yield from self._read_run(partition, pack, run, failed)

    def _read_run(
        self, partition: int, pack: str, run: Sequence[tuple[int, int, Blob]], failed: dict[bytes, UnreadableBlob]
    ) -> Iterator[tuple[bytes, bytes]]:
        start, end = run[0][0], run[-1][1]
        try:
            if self._objects is None:
                raise NotFoundError("this store has no objects")
            data = self._objects.get(pack, start, end - start)
        except CheckpointError as error:
            if len(run) > 1:
                for one in run:
                    yield from self._read_run(partition, pack, [one], failed)
            else:
                key = run[0][2].digest
                failed[key] = UnreadableBlob(partition, key, "pack", pack, error)
            return
        for begin, stop, blob in run:
            try:
                stored = data[begin - start : stop - start]
                plain = _decode(self._blob_id, blob.digest, blob.encoding, stored, blob.size)
            except IntegrityError:
                failed[blob.digest] = UnreadableBlob(partition, blob.digest, "damaged", pack)
            else:
                yield blob.digest, plain


def unpack_blob(blob_id: BlobId, key: bytes, blob: Blob, wholes: dict[bytes, bytes]) -> bytes:
    """Return the bytes of a blob that lies in the catalog, compared with `key`: IntegrityError when they differ.

    `wholes` keeps the blobs that it and others are parts of.
    """
    if (whole := blob.whole) is None:
        return _decode(blob_id, key, blob.encoding, blob.data, blob.size)
    if whole.digest not in wholes:
        wholes[whole.digest] = decompress(blob.encoding, blob.data, whole.size)
    data = wholes[whole.digest][whole.position : whole.position + blob.size]
    if blob_id.of(data) != key:
        raise IntegrityError("a blob is not what its id says")
    return data


def _decode(blob_id: BlobId, key: bytes, encoding: int, stored: bytes, size: int) -> bytes:
    data = decompress(encoding, stored, size)
    if blob_id.of(data) != key:
        raise IntegrityError("a blob is not what its id says")
    return data


def _runs(blobs: Iterable[Blob]) -> Iterator[tuple[str, list[tuple[int, int, Blob]]]]:
    """Group blobs that are read at once: the pack's name, and for each where it begins and ends there."""
    pack, run = "", list[tuple[int, int, Blob]]()
    places = [(*blob.place[:2], blob.place.position + blob.place.length, blob) for blob in blobs if blob.place]
    for name, begin, end, blob in sorted(places, key=lambda place: place[:2]):
        is_near = run and name == pack and 0 <= begin - run[-1][1] <= GAP_BYTES and end - run[0][0] <= RUN_BYTES
        if run and not is_near:
            yield pack, run
            run = []
        pack = name
        run.append((begin, end, blob))
    if run:
        yield pack, run


class Gathered(NamedTuple):
    """What a commit has to say of new content, and which stored content it relies on."""

    blobs: Sequence[Blob] = ()
    packs: Sequence[NewPack] = ()
    relies_on: Sequence[bytes] = ()

    def by_digest(self) -> dict[bytes, Blob]:
        found = {blob.digest: blob for blob in self.blobs}
        for pack in self.packs:
            for entry in pack.entries:
                place = PackRange(pack.name, entry.position, entry.length)
                found[entry.digest] = Blob(entry.digest, entry.size, entry.encoding, b"", None, place)
        return found


class FileBlobs:
    """Content of files as it is stored. Safe for threads. `objects` None: everything lies in the catalog."""

    def __init__(self, catalog: Catalog, objects: ObjectStore | None, blob_id: BlobId) -> None:
        self.blob_id = blob_id
        self._catalog = catalog
        self._objects = objects
        self._reader = BlobReader(blob_id, catalog.blobs, objects, raise_unreadable)
        self._trees: dict[bytes, Tree] = {}
        self._small: dict[bytes, bytes] = {}

    @property
    def objects(self) -> ObjectStore | None:
        """Where packs lie."""
        return self._objects

    def read(self, key: bytes) -> bytes:
        """Return the bytes of a blob; small ones are remembered. IntegrityError when it is missing or damaged."""
        data = self._small.get(key)
        if data is None:
            data = self.read_all([key])[key]
            if len(data) <= SMALL_BYTES:
                if len(self._small) >= SMALL_BLOBS:
                    self._small.clear()
                self._small[key] = data
        return data

    def read_all(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return dict(self._reader.read(FILES, keys))

    def read_with(self, new: Gathered) -> Callable[[bytes], bytes]:
        """Return a function that reads as `read` does, also what was gathered and is not committed yet."""
        fresh = new.by_digest()
        return lambda key: self._read_fresh([fresh[key]])[key] if key in fresh else self.read(key)

    def read_differing(self, one: bytes | None, other: bytes | None, new: Gathered) -> Callable[[bytes], bytes]:
        """Return what `read_with` does, with the folders fetched that differ between two trees, a level at a time."""
        fresh, read = new.by_digest(), self.read_with(new)
        trees: dict[bytes, bytes] = {}

        def fetch(keys: Sequence[bytes]) -> dict[bytes, bytes]:
            if missing := [key for key in keys if key not in trees]:
                trees.update(self._read_fresh(fresh[key] for key in missing if key in fresh))
                trees.update(self.read_all([key for key in missing if key not in fresh]))
            return trees

        level = [(one, other)] if one != other else []
        while level:
            wanted = {tree for pair in level for tree in pair if tree is not None and tree not in trees}
            fetch(list(wanted))
            level = differing_below(level, fetch)
        return lambda key: trees[key] if key in trees else read(key)

    def _read_fresh(self, blobs: Iterable[Blob]) -> dict[bytes, bytes]:
        return dict(self._reader.read_found(FILES, blobs))

    def read_tree(self, key: bytes) -> Tree:
        tree = self._trees.get(key)
        if tree is None:
            tree = open_tree(self.read(key), self.read_all)
            if len(self._trees) >= TREES:
                self._trees.clear()
            self._trees[key] = tree
        return tree

    def list_parts(self, key: bytes) -> Iterator[bytes]:
        """Yield the blobs that a tree lies in besides its own, if it is wide."""
        data = self.read(key)
        yield from parts_of(data)
        yield from list_parts(data, self.read_all)

    def stream(self, file: File) -> Iterator[bytes]:
        """Yield the content of a file, piece by piece, each checked."""
        if file.chunks is None:
            yield self.read(file.blob)
            return
        for chunk in decode_chunks(self.read(file.chunks), file):
            yield self.read(chunk.digest)

    def stream_ahead(self, files: Sequence[File]) -> Callable[[File], Iterator[bytes]]:
        """Return `stream` for files that are asked for in about this order: small ones are read many at once."""
        waiting = {file.blob: index for index, file in enumerate(files) if file.chunks is None}
        ready: dict[bytes, bytes] = {}

        def stream(file: File) -> Iterator[bytes]:
            if file.chunks is not None or file.blob not in waiting:
                return self.stream(file)
            if file.blob not in ready:
                ready.clear()
                try:
                    ready.update(self.read_all(_few(files, waiting[file.blob])))
                except IntegrityError:  # of which one? Each of them alone will tell
                    return self.stream(file)
            return iter([ready[file.blob]])

        return stream

    def list_absent(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return those that seem to be missing or damaged, by all that can be said without reading packs."""
        wanted = list(dict.fromkeys(keys))
        absent: set[bytes] = set()
        places: dict[bytes, PackRange] = {}
        for start in range(0, len(wanted), GROUP_BLOBS):
            some = wanted[start : start + GROUP_BLOBS]
            try:
                found = self._catalog.blobs(FILES, some)
            except LostCommitsError:
                raise
            except IntegrityError:
                found = {}
            absent.update(key for key in some if key not in found)
            places |= {key: blob.place for key, blob in found.items() if blob.place is not None}
            inline = [blob for blob in found.values() if blob.place is None]
            BlobReader(self.blob_id, self._catalog.blobs, None, lambda blob: absent.add(blob.key)).check(FILES, inline)
        sizes = {each.name: each.size for each in self._objects.list("packs/")} if places and self._objects else {}
        absent.update(key for key, at in places.items() if at.position + at.length > sizes.get(at.pack, -1))
        return absent

    def has(self, keys: Iterable[bytes]) -> set[bytes]:
        return self._catalog.has_blobs(FILES, keys)

    def catalog_address(self) -> bytes | None:
        """Return what a worker asks by whether content is stored; None: it need not, or cannot."""
        address = self._catalog.address
        return None if address is None or not self._catalog.may_have_files() else os.fsencode(address)

    def adopt(self, name: str, path: Path) -> None:
        """Announce a finished pack and make it durable: it is not garbage before it is committed or withdrawn."""
        assert self._objects is not None
        self._catalog.announce([name], this_process())
        try:
            self._objects.adopt(name, path)
        except InvalidError as error:  # names of packs are made here: none continues another
            raise UnavailableError(
                "something else is in the place of a folder of the store's packs",
                hint="is a disk not mounted, or was it put there by hand?",
            ) from error

    def withdraw_packs(self, gathered: Gathered) -> None:
        """Withdraw the announcement of its packs: it was committed, or will not be."""
        if gathered.packs:
            with suppress(CheckpointError):  # then it is collected once this process is gone
                self._catalog.announce([pack.name for pack in gathered.packs], None)

    def drop(self, gathered: Gathered) -> None:
        """Delete its packs: it was never meant to be committed."""
        with suppress(CheckpointError):  # the store was closed, or cannot be reached: it is collected one day
            for pack in gathered.packs:
                assert self._objects is not None
                self._objects.delete(pack.name)
            self.withdraw_packs(gathered)


def _few(files: Sequence[File], start: int) -> Iterator[bytes]:
    """Yield the ids that are read at once, from there on."""
    size = 0
    for file in files[start : start + GROUP_BLOBS]:
        if file.chunks is None:
            size += file.size
            yield file.blob
        if size > GROUP_BYTES:
            return


def raise_unreadable(blob: UnreadableBlob) -> NoReturn:
    """Say that content of a file cannot be had."""
    if isinstance(blob.error, LookupError):
        raise _damaged(blob.key, "is missing with its pack") from blob.error
    if blob.error is not None and not isinstance(blob.error, IntegrityError):
        raise blob.error
    raise _damaged(blob.key, "is missing" if blob.problem in ("missing", "empty") else "is damaged") from blob.error


def _damaged(key: bytes, how: str) -> IntegrityError:
    return IntegrityError(
        f"content of a file {how}",
        hint="other checkpoints are not affected unless they share it; restore an earlier one",
        blob=digest_text(key),
    )


# --- values of a checkpoint -----------------------------------------------------------------------------------------


def load_value(
    blob_id: BlobId,
    catalog: Catalog,
    cache: CheckpointCache,
    stored: StoredCheckpoint,
    record: Record,
    name: str,
    *,
    classes: bool = True,
) -> Any:
    """Return the value called `name`, every byte verified. Raises IntegrityError, naming checkpoint and blob."""
    from lastgood.codec.join import join

    ref: ValueRef | None = getattr(record, name)
    if ref is None:
        return None
    held = cache.get(stored.owner, stored.id)
    reader = _ValueReader(blob_id, catalog, stored, {} if held is None else dict(held))
    value = join(reader.root(name, ref), ref.size, reader.fetch, classes=classes)
    if held is None or len(held) != len(reader.blobs):
        cache.put(stored.owner, stored.id, reader.blobs)
    return value


def check_value(blob_id: BlobId, catalog: Catalog, stored: StoredCheckpoint, record: Record, name: str) -> None:
    """Read every byte that `load_value` would, past all memory, and make no value of them."""
    from lastgood.codec.join import check

    ref: ValueRef | None = getattr(record, name)
    if ref is not None:
        reader = _ValueReader(blob_id, catalog, stored, {})
        check(reader.root(name, ref), ref.size, reader.fetch)


class _ValueReader:
    """Blobs of one checkpoint, checked as they are read, and kept."""

    def __init__(self, blob_id: BlobId, catalog: Catalog, stored: StoredCheckpoint, blobs: dict[bytes, bytes]) -> None:
        self._blob_id = blob_id
        self._catalog = catalog
        self._stored = stored
        self._reader = BlobReader(blob_id, catalog.blobs, None, self._raise_unreadable)
        self.blobs = blobs

    def root(self, name: str, ref: ValueRef) -> bytes:
        """Read the root of a value; that of the state lies with the checkpoint itself."""
        if name == "state" and ref.digest not in self.blobs:
            root = self._catalog.root(self._stored)
            if root is None or type(root.data) is not bytes:
                raise _damaged_value(self._stored, ref.digest, "is missing")
            try:
                self.blobs[ref.digest] = unpack_blob(self._blob_id, ref.digest, root, {})
            except IntegrityError as error:
                raise _damaged_value(self._stored, ref.digest, "is damaged") from error
        return self.fetch([ref.digest])[ref.digest]

    def fetch(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = [key for key in digests if key not in self.blobs]
        if wanted:
            self.blobs.update(self._reader.read(self._stored.task_number, wanted))
        return self.blobs

    def _raise_unreadable(self, blob: UnreadableBlob) -> NoReturn:
        raise _damaged_value(self._stored, blob.key, "is damaged" if blob.problem == "damaged" else "is missing")


def _damaged_value(stored: StoredCheckpoint, key: bytes, how: str) -> IntegrityError:
    return IntegrityError(
        f"checkpoint {stored.id} cannot be loaded: a part of it {how}",
        hint="other checkpoints are not affected unless they share this part; restore an earlier one",
        checkpoint_id=stored.id,
        blob=digest_text(key),
    )
