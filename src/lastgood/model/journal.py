"""A restore of files as a value: what is needed to finish it, or to take it back, after it was interrupted."""

from __future__ import annotations

import msgspec

from lastgood.model.step import Process


class JournalRoot(msgspec.Struct, frozen=True, array_like=True):
    """One folder: where it lies, the tree it is to have, and the one it had. None: no such tree."""

    name: str
    path: str
    target: bytes | None
    present: bytes | None
    partial: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """`chosen` is restored, `before` has the files as they were; `only` are the paths it was limited to."""

    id: str
    host: str
    owner: str
    task_id: str
    began_at: int
    process: Process
    chosen: str
    before: str | None
    roots: tuple[JournalRoot, ...]
    only: tuple[str, ...] | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Journal)


def encode_journal(journal: Journal) -> bytes:
    return _encoder.encode(journal)


def decode_journal(data: bytes) -> Journal:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)
