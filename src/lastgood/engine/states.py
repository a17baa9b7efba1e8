"""Encoded values out of the catalog: fetched, checked against their digests, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import Blob, StoredCheckpoint
from lastgood.codec.compress import decompress
from lastgood.codec.join import check, join
from lastgood.engine.cache import CheckpointCache
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import Record, ValueRef
from lastgood.model.digest import digest, to_text


def load_value(
    catalog: Catalog,
    cache: CheckpointCache,
    stored: StoredCheckpoint,
    record: Record,
    name: str,
    *,
    classes: bool = True,
) -> Any:
    """The record's value called `name`, every byte verified. Raises IntegrityError, naming checkpoint and blob."""
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
        self.blobs = blobs

    def root(self, name: str, ref: ValueRef) -> bytes:
        """The root of a value; that of the state lies with the checkpoint itself."""
        if name == "state" and ref.digest not in self.blobs:
            self.blobs[ref.digest] = _unpack(self._stored, ref.digest, self._catalog.root(self._stored), {})
        return self.fetch([ref.digest])[ref.digest]

    def fetch(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = [key for key in dict.fromkeys(digests) if key not in self.blobs]
        found = self._catalog.blobs(self._stored.task_number, wanted) if wanted else {}
        wholes: dict[bytes, bytes] = {}
        for key in wanted:
            self.blobs[key] = _unpack(self._stored, key, found.get(key), wholes)
        return self.blobs


def _unpack(stored: StoredCheckpoint, key: bytes, blob: Blob | None, wholes: dict[bytes, bytes]) -> bytes:
    """The bytes of `blob`, checked; `wholes` keeps the blobs that it and others are parts of."""
    if blob is None or type(blob.data) is not bytes:
        raise _damaged(stored, key, "is missing")
    try:
        if (whole := blob.whole) is None:
            data = decompress(blob.encoding, blob.data, blob.size)
        else:
            if whole.digest not in wholes:
                wholes[whole.digest] = decompress(blob.encoding, blob.data, whole.size)
            data = wholes[whole.digest][whole.position : whole.position + blob.size]
    except IntegrityError as error:
        raise _damaged(stored, key, "is damaged") from error
    if digest(data) != key:
        raise _damaged(stored, key, "is damaged")
    return data


def _damaged(stored: StoredCheckpoint, key: bytes, how: str) -> IntegrityError:
    return IntegrityError(
        f"checkpoint {stored.id} cannot be loaded: a part of it {how}",
        hint="other checkpoints are not affected unless they share this part; go back to an earlier one",
        checkpoint_id=stored.id,
        blob=to_text(key),
    )
