"""The journal of a restore of files: what is needed to finish it, or to take it back, after it was interrupted."""

from __future__ import annotations

import msgspec

from lastgood.model.step import Process


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a restore: the files of `chosen` come into these folders; `before` has them as they were."""

    id: str
    host: str
    owner: str
    task_id: str
    began_at: int
    process: Process
    chosen: str
    before: str
    paths: tuple[str, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Journal)


def encode_journal(journal: Journal) -> bytes:
    return _encoder.encode(journal)


def decode_journal(data: bytes) -> Journal:
    """Decode a journal. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
