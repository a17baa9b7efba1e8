"""Digests: 32 bytes inside, `sha256:<hex>` outside."""

from __future__ import annotations

from hashlib import sha256

from lastgood.errors import InvalidError

ALGORITHM = "sha256"
SIZE = 32


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of `data`: blob id, checksum and every other digest of format 1."""
    return sha256(data).digest()


def to_text(value: bytes) -> str:
    return f"{ALGORITHM}:{value.hex()}"


def from_text(text: str) -> bytes:
    algorithm, _, digits = text.partition(":")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if algorithm != ALGORITHM or len(value) != SIZE:
        raise InvalidError(f"not a digest: {text[:80]!r}", hint=f"a digest looks like {ALGORITHM}:9f86d0…")
    return value
