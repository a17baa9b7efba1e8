"""The content of files: gathered for a save, and read back checked.

A few small blobs go into the catalog with the checkpoint, so that a small save is one transaction; more of them become
a pack, which is durable before the transaction begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from lastgood.catalog.values import FILES, Binding, Blob, NewPack, PackRange
from lastgood.codec.compress import compress, decompress
from lastgood.compare.trees import fetch_differing
from lastgood.engine.blob_reader import BlobReader, UnreadableBlob
from lastgood.engine.draft import PackDraft, discard
from lastgood.errors import CheckpointError, IntegrityError, InvalidError, UnavailableError
from lastgood.local.process import this_process
from lastgood.model.identity import digest, digest_text, new_id
from lastgood.model.tree import File, Tree, decode_chunks, decode_tree

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.files.index import Newest
    from lastgood.model.checkpoint import FileRoot, Skipped
    from lastgood.objects.contract import ObjectStore

INLINE_BLOBS, INLINE_BYTES = 64, 256 << 10
GROUP_BLOBS, GROUP_BYTES = 256, 4 << 20
PACK_BYTES = 128 << 20
"""A pack that has so many is finished: rewriting one takes no more room than that."""
SMALL_BLOBS, SMALL_BYTES = 1024, 16 << 10
TREES = 4096


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


class CapturedFiles(NamedTuple):
    """What a capture found: the trees, what was left out, and the new content."""

    roots: tuple[FileRoot, ...]
    skipped: tuple[Skipped, ...]
    gathered: Gathered
    binding: Binding | None
    newest: Mapping[str, Callable[[], Newest]]
    """Finds what changed last, by root."""
    base: str | None = None
    """The checkpoint whose files were not looked up in the store, because that one has them."""

    def joined(self, other: CapturedFiles) -> CapturedFiles:
        """Return both, for one checkpoint."""
        mine, its = self.gathered, other.gathered
        gathered = Gathered(
            [*mine.blobs, *its.blobs], [*mine.packs, *its.packs], sorted({*mine.relies_on, *its.relies_on})
        )
        return self._replace(roots=self.roots + other.roots, gathered=gathered)


class FileBlobs:
    """Content of files as it is stored. Safe for threads. `objects` None: everything lies in the catalog."""

    def __init__(self, catalog: Catalog, objects: ObjectStore | None) -> None:
        self._catalog = catalog
        self._objects = objects
        self._reader = BlobReader(catalog.blobs, objects, raise_unreadable)
        self._trees: dict[bytes, Tree] = {}
        self._small: dict[bytes, bytes] = {}

    @property
    def objects(self) -> ObjectStore | None:
        """Where packs lie."""
        return self._objects

    def read(self, key: bytes) -> bytes:
        """IntegrityError when it is missing or damaged; it names the blob. Small ones are remembered."""
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
        """As `read`, also of what was gathered and is not committed yet."""
        fresh = new.by_digest()
        return lambda key: self._read_fresh([fresh[key]])[key] if key in fresh else self.read(key)

    def read_differing(self, one: bytes | None, other: bytes | None, new: Gathered) -> Callable[[bytes], bytes]:
        """As `read_with`, with the folders fetched that differ between two trees, a level at a time."""
        fresh, read = new.by_digest(), self.read_with(new)

        def read_all(keys: Iterable[bytes]) -> dict[bytes, bytes]:
            found = self._read_fresh(fresh[key] for key in keys if key in fresh)
            return found | self.read_all(key for key in keys if key not in found)

        trees = fetch_differing(one, other, read_all)
        return lambda key: trees[key] if key in trees else read(key)

    def _read_fresh(self, blobs: Iterable[Blob]) -> dict[bytes, bytes]:
        return dict(self._reader.read_found(FILES, blobs))

    def read_tree(self, key: bytes) -> Tree:
        tree = self._trees.get(key)
        if tree is None:
            tree = decode_tree(self.read(key), key)
            if len(self._trees) >= TREES:
                self._trees.clear()
            self._trees[key] = tree
        return tree

    def stream(self, file: File) -> Iterator[bytes]:
        """The content of a file, piece by piece, each checked."""
        if file.chunks is None:
            yield self.read(file.digest)
            return
        for chunk in decode_chunks(self.read(file.chunks), file):
            yield self.read(chunk.digest)

    def stream_ahead(self, files: Sequence[File]) -> Callable[[File], Iterator[bytes]]:
        """As `stream`, for files that are asked for in about this order: small ones are read many at once."""
        waiting = {file.digest: index for index, file in enumerate(files) if file.chunks is None}
        ready: dict[bytes, bytes] = {}

        def stream(file: File) -> Iterator[bytes]:
            if file.chunks is not None or file.digest not in waiting:
                return self.stream(file)
            if file.digest not in ready:
                ready.clear()
                try:
                    ready.update(self.read_all(_few(files, waiting[file.digest])))
                except IntegrityError:  # of which one? Each of them alone will tell
                    return self.stream(file)
            return iter([ready[file.digest]])

        return stream

    def has(self, keys: Iterable[bytes]) -> set[bytes]:
        return self._catalog.has_blobs(FILES, keys)

    def catalog_address(self) -> bytes | None:
        """Return what a worker asks by whether content is stored; None: it need not, or cannot."""
        address = self._catalog.address
        return None if address is None or not self._catalog.may_have_files() else os.fsencode(address)

    def gather(self) -> Batch:
        return Batch(self, self._objects)

    def adopt(self, name: str, path: Path) -> None:
        """A finished pack, durable afterwards. Nobody takes it for garbage before it is committed or let go."""
        assert self._objects is not None
        self._catalog.announce([name], this_process())
        try:
            self._objects.adopt(name, path)
        except InvalidError as error:  # names of packs are made here: none continues another
            raise UnavailableError(
                "something else is in the place of a folder of the store's packs",
                hint="is a disk not mounted, or was it put there by hand?",
            ) from error

    def let_go(self, gathered: Gathered) -> None:
        """It will not be committed, or has been."""
        if gathered.packs:
            with suppress(CheckpointError):  # then it is collected once this process is gone
                self._catalog.announce([pack.name for pack in gathered.packs], None)

    def drop(self, gathered: Gathered) -> None:
        """It was never meant to be committed: nothing is left of it."""
        with suppress(CheckpointError):  # the store was closed, or cannot be reached: it is collected one day
            for pack in gathered.packs:
                assert self._objects is not None
                self._objects.delete(pack.name)
            self.let_go(gathered)


class Batch:
    """New content on its way into one checkpoint. `finish` it or `discard` it; not safe for threads."""

    def __init__(self, blobs: FileBlobs, objects: ObjectStore | None) -> None:
        self._blobs = blobs
        self._objects = objects
        self._waiting: dict[bytes, bytes] = {}
        self._waiting_bytes = 0
        self._inline: dict[bytes, Blob] = {}
        self._inline_bytes = 0
        self._pack: PackDraft | None = None
        self._packs: list[NewPack] = []
        self._packed: set[bytes] = set()
        self._relied: set[bytes] = set()
        self.new_bytes = 0

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        """What is stored; the checkpoint will rely on it."""
        mine = {key for key in ids if self._is_mine(key)}
        found = self._blobs.has([key for key in ids if key not in mine])
        self._relied |= found
        return mine | found

    def put(self, data: bytes) -> bytes:
        key = digest(data)
        if not self._is_mine(key) and key not in self._relied:
            self._waiting[key] = data
            self._waiting_bytes += len(data)
            if len(self._waiting) >= GROUP_BLOBS or self._waiting_bytes >= GROUP_BYTES:
                self._settle()
        return key

    def catalog_address(self) -> bytes | None:
        """Where another process can look what content of files is stored; None when there is none."""
        return self._blobs.catalog_address()

    def rely_on(self, ids: Iterable[bytes]) -> None:
        """Another process found these stored."""
        self._relied.update(ids)

    @property
    def takes_packs(self) -> bool:
        return self._objects is not None

    def draft(self) -> Path:
        """Where another process may write a pack for `adopt`."""
        if self._objects is not None:
            return self._objects.draft()
        import tempfile

        return Path(tempfile.gettempdir()) / f"lastgood-{new_id()}.pack"

    def adopt(self, pack: NewPack, path: Path) -> None:
        """A pack that another process has written. What is in a small one goes where small blobs go."""
        if self._objects is None or pack.size <= INLINE_BYTES:
            data = path.read_bytes()
            for entry in pack.entries:
                stored = data[entry.position : entry.position + entry.length]
                self.put(decompress(entry.encoding, stored, entry.size))
            discard(path)
            return
        self._blobs.adopt(pack.name, path)
        self._packs.append(pack)
        self._packed.update(entry.digest for entry in pack.entries)
        self.new_bytes += pack.size

    def finish(self) -> Gathered:
        """Everything is durable but what the commit itself brings."""
        self._settle()
        self._finish_pack()
        return Gathered(list(self._inline.values()), self._packs, sorted(self._relied))

    def discard(self) -> None:
        if self._pack is not None:
            self._pack.discard()
            self._pack = None
        self._blobs.drop(Gathered(packs=self._packs))

    def _finish_pack(self) -> None:
        if self._pack is not None:
            done = self._pack.finish()
            self._blobs.adopt(done.name, self._pack.path)
            self._packs.append(done)
            self._pack = None

    def _is_mine(self, key: bytes) -> bool:
        return key in self._waiting or key in self._inline or key in self._packed

    def _settle(self) -> None:
        """Those of the waiting that are stored are relied on, the others are kept."""
        found = self._blobs.has(self._waiting)
        self._relied |= found
        for key, data in self._waiting.items():
            if key not in found:
                self._keep(key, data)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _keep(self, key: bytes, data: bytes) -> None:
        self.new_bytes += len(data)
        if self._pack is None and self._packs and self._objects is not None:
            self._pack = PackDraft(self._objects.draft())
        if self._pack is None:
            encoding, stored = compress(data)
            fits = len(self._inline) < INLINE_BLOBS and self._inline_bytes + len(stored) <= INLINE_BYTES
            if fits or self._objects is None:
                self._inline[key] = Blob(key, len(data), encoding, stored)
                self._inline_bytes += len(stored)
                return
            self._pack = PackDraft(self._objects.draft())
            for blob in self._inline.values():
                self._pack.add(blob.digest, decompress(blob.encoding, blob.data, blob.size))
            self._packed.update(self._inline)
            self._inline.clear()
        self._pack.add(key, data)
        self._packed.add(key)
        if self._pack.size >= PACK_BYTES:
            self._finish_pack()


def _few(files: Sequence[File], start: int) -> Iterator[bytes]:
    """Those that are read at once, from there on."""
    size = 0
    for file in files[start : start + GROUP_BLOBS]:
        if file.chunks is None:
            size += file.size
            yield file.digest
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
        hint="other checkpoints are not affected unless they share it; go back to an earlier one",
        blob=digest_text(key),
    )
