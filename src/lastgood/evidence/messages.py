"""What a verifier and its helper process say to each other: a length, then msgpack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from lastgood.evidence.hashing import Signature

MAX_BYTES = 4 << 20
LENGTH_BYTES = 4
_READ_BYTES = 1 << 16

Columns = dict[str, Any]
"""Column to value: None, a number, text or bytes."""


class HashRequest(msgspec.Struct, frozen=True, array_like=True, tag="hash"):
    base: bytes
    path: bytes
    max_bytes: int
    timeout: float


class RowRequest(msgspec.Struct, frozen=True, array_like=True, tag="row"):
    base: bytes
    path: bytes
    table: str
    where: Columns
    values: Columns
    timeout: float


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """`holds`: the answer; `mismatch`, `missing`, `invalid`, `busy`: a sentence about why not."""

    kind: Literal["holds", "mismatch", "missing", "invalid", "busy"]
    text: str = ""
    seen: Signature | None = None


def frame(message: HashRequest | RowRequest | Reply) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def receive(read: Callable[[int], bytes]) -> bytes | None:
    """One message's bytes; None at the end of the stream, ValueError for what cannot be one.

    Neither side speaks before it was answered, so whatever comes belongs to this message.
    """
    data = b""
    while len(data) < LENGTH_BYTES or len(data) < LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        if len(data) > MAX_BYTES:
            raise ValueError("a message is too long")
        part = read(_READ_BYTES)
        if not part:
            return None
        data += part
    if len(data) != LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big"):
        raise ValueError("something follows a message")
    return data[LENGTH_BYTES:]
