"""From the id of a blob to its bytes, compared with the id: out of the catalog or a pack, alone or part of another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.catalog.values import Blob
from lastgood.codec.compress import decompress
from lastgood.errors import CheckpointError, IntegrityError, NotFoundError
from lastgood.model.identity import digest

if TYPE_CHECKING:
    from lastgood.objects.contract import ObjectStore

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

    def __init__(self, look_up: LookUp, objects: ObjectStore | None, report: Callable[[UnreadableBlob], None]) -> None:
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
        """As `read`, of blobs that need not be looked up."""
        failed: dict[bytes, UnreadableBlob] = {}
        yield from self._read(partition, blobs, failed)
        for problem in failed.values():
            self._report(problem)

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
                    data = unpack_blob(blob.digest, blob, wholes)
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
                plain = _decode(blob.digest, blob.encoding, data[begin - start : stop - start], blob.size)
            except IntegrityError:
                failed[blob.digest] = UnreadableBlob(partition, blob.digest, "damaged", pack)
            else:
                yield blob.digest, plain


def unpack_blob(key: bytes, blob: Blob, wholes: dict[bytes, bytes]) -> bytes:
    """Return the bytes of a blob that lies in the catalog, compared with `key`: IntegrityError when they differ.

    `wholes` keeps the blobs that it and others are parts of.
    """
    if (whole := blob.whole) is None:
        return _decode(key, blob.encoding, blob.data, blob.size)
    if whole.digest not in wholes:
        wholes[whole.digest] = decompress(blob.encoding, blob.data, whole.size)
    data = wholes[whole.digest][whole.position : whole.position + blob.size]
    if digest(data) != key:
        raise IntegrityError("a blob is not what its id says")
    return data


def _decode(key: bytes, encoding: int, stored: bytes, size: int) -> bytes:
    data = decompress(encoding, stored, size)
    if digest(data) != key:
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
