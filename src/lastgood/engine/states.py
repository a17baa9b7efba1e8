"""Encoded values out of the catalog: fetched, checked against their digests, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastgood.catalog.contract import Blob, Catalog, StoredCheckpoint
from lastgood.content.compression import decompress
from lastgood.content.splitting import join
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
    blobs = {} if held is None else dict(held)

    def fetch(digests: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = [key for key in digests if key not in blobs]
        found = catalog.blobs(stored.task_number, wanted) if wanted else {}
        wholes: dict[bytes, bytes] = {}
        for key in wanted:
            blobs[key] = _unpack(stored, key, found.get(key), wholes)
        return blobs

    if name == "state" and ref.digest not in blobs:
        blobs[ref.digest] = _unpack(stored, ref.digest, catalog.root(stored), {})
    value = join(fetch([ref.digest])[ref.digest], fetch, classes=classes)
    if held is None or len(held) != len(blobs):
        cache.put(stored.owner, stored.id, blobs)
    return value


def _unpack(stored: StoredCheckpoint, key: bytes, blob: Blob | None, wholes: dict[bytes, bytes]) -> bytes:
    """The bytes of `blob`, checked; `wholes` keeps the blobs that it and others are parts of."""
    if blob is None:
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
