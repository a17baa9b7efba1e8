"""Encoded values out of the catalog: fetched, checked against their digests, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lastgood.catalog.values import StoredCheckpoint
from lastgood.codec.join import check, join
from lastgood.engine.blobs import BlobReader, UnreadableBlob, unpack_blob
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import Record, ValueRef
from lastgood.model.identity import digest_text

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.cache import CheckpointCache


def load_value(
    catalog: Catalog,
    cache: CheckpointCache,
    stored: StoredCheckpoint,
    record: Record,
    name: str,
    *,
    classes: bool = True,
) -> Any:
    """Return the value called `name`, every byte verified. Raises IntegrityError, naming checkpoint and blob."""
    ref: ValueRef | None = getattr(record, name)
    if ref is None:
        return None
    held = cache.get(stored.owner, stored.id)
    reader = _Reader(catalog, stored, {} if held is None else dict(held))
    value = join(reader.root(name, ref), ref.size, reader.fetch, classes=classes)
    if held is None or len(held) != len(reader.blobs):
        cache.put(stored.owner, stored.id, reader.blobs)
    return value


def check_value(catalog: Catalog, stored: StoredCheckpoint, record: Record, name: str) -> None:
    """Read every byte that `load_value` would, past all memory, and make no value of them."""
    ref: ValueRef | None = getattr(record, name)
    if ref is not None:
        reader = _Reader(catalog, stored, {})
        check(reader.root(name, ref), ref.size, reader.fetch)


class _Reader:
    """Blobs of one checkpoint, checked as they are read, and kept."""

    def __init__(self, catalog: Catalog, stored: StoredCheckpoint, blobs: dict[bytes, bytes]) -> None:
        self._catalog = catalog
        self._stored = stored
        self._reader = BlobReader(catalog.blobs, None, self._raise_unreadable)
        self.blobs = blobs

    def root(self, name: str, ref: ValueRef) -> bytes:
        """Read the root of a value; that of the state lies with the checkpoint itself."""
        if name == "state" and ref.digest not in self.blobs:
            root = self._catalog.root(self._stored)
            if root is None or type(root.data) is not bytes:
                raise _damaged(self._stored, ref.digest, "is missing")
            try:
                self.blobs[ref.digest] = unpack_blob(ref.digest, root, {})
            except IntegrityError as error:
                raise _damaged(self._stored, ref.digest, "is damaged") from error
        return self.fetch([ref.digest])[ref.digest]

    def fetch(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = [key for key in digests if key not in self.blobs]
        if wanted:
            self.blobs.update(self._reader.read(self._stored.task_number, wanted))
        return self.blobs

    def _raise_unreadable(self, blob: UnreadableBlob) -> NoReturn:
        raise _damaged(self._stored, blob.key, "is damaged" if blob.problem == "damaged" else "is missing")


def _damaged(stored: StoredCheckpoint, key: bytes, how: str) -> IntegrityError:
    return IntegrityError(
        f"checkpoint {stored.id} cannot be loaded: a part of it {how}",
        hint="other checkpoints are not affected unless they share this part; go back to an earlier one",
        checkpoint_id=stored.id,
        blob=digest_text(key),
    )
