"""Steps that are open, and the processes that they run in."""

from __future__ import annotations

from typing import Any

import msgspec


class Process(msgspec.Struct, frozen=True, array_like=True):
    """A process on some host. `started` tells it from a later one with the same number, `space` from one whose number
    is counted apart, as in another container; 0: not known."""

    host: str
    pid: int
    started: int = 0
    space: int = 0


class OpenStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was begun, and neither committed nor ended otherwise."""

    id: str
    owner: str
    task_id: str
    name: str
    type: str
    began_at: int
    began_by: str
    process: Process
    branch_id: str | None = None
    work_item_id: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, Any] = {}
    has_snapshot: bool = False


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(OpenStep)


def encode_step(step: OpenStep) -> bytes:
    return _encoder.encode(step)


def decode_step(data: bytes) -> OpenStep:
    """Decode a step. Raises msgspec.DecodeError."""
    return _decoder.decode(data)
