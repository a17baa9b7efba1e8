"""Ids, digests, names and moments: made here, and checked here when they come from outside.

A digest is 32 bytes inside, `sha256:<hex>` outside.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

from lastgood.errors import InvalidError

ALGORITHM = "sha256"
DIGEST_SIZE = 32
MAX_NAME_BYTES = 255
MAX_TEXT_BYTES = 1 << 20

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SNAKE_CASE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TAG_RESERVED = re.compile(r"^[@-]|[~:]|^(HEAD|last-good)$")
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


_DIGITS, _AT_ONCE = 20, 64
_random: list[str] = []
"""Fetched for many ids at once: a call to the system lets another thread have Python, and takes time to get it back."""

os.register_at_fork(after_in_child=_random.clear)


def new_id() -> str:
    """Return a UUID version 7: ordered by time to the millisecond, random below, nothing shared across fork()."""
    moment = time.time_ns() // 1_000_000
    try:
        text = _random.pop()
    except IndexError:
        digits = os.urandom(_AT_ONCE * _DIGITS // 2).hex()
        text, *others = (digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS))
        _random.extend(others)
    return f"{moment >> 16:08x}-{moment & 0xFFFF:04x}-7{text[:3]}-{_VARIANTS[text[3]]}{text[4:7]}-{text[7:19]}"


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of `data`: checksums, the digests of files, and every other digest but blob ids."""
    return sha256(data).digest()


class BlobId(NamedTuple):
    """A store's function from a blob's bytes to its id: SHA-256, or HMAC-SHA-256 under the store's `key`."""

    key: bytes | None = None

    def of(self, data: bytes) -> bytes:
        """Return the id of a blob."""
        if self.key is None:
            return sha256(data).digest()
        import hmac

        return hmac.digest(self.key, data, "sha256")

    def digest_of(self, data: bytes, blob: bytes) -> bytes:
        """Return the SHA-256 of a blob whose id is `blob`: computed only where that is another."""
        return blob if self.key is None else sha256(data).digest()

    def __repr__(self) -> str:
        return "BlobId()" if self.key is None else "BlobId(key=...)"


SHA256 = BlobId()


def digest_text(value: bytes) -> str:
    return f"{ALGORITHM}:{value.hex()}"


def parse_digest(text: str) -> bytes:
    algorithm, _, digits = text.partition(":")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if algorithm != ALGORITHM or len(value) != DIGEST_SIZE:
        raise InvalidError(f"not a digest: {text[:80]!r}", hint=f"a digest looks like {ALGORITHM}:9f86d0…")
    return value


def now() -> int:
    """Return this moment, in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


class Moment:
    """A time that is kept in microseconds, as people read it: `created_at` of the field `created_at_us`."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"{name}_us"

    def __get__(self, value: object, owner: type) -> datetime:
        return self if value is None else moment(getattr(value, self._name))  # type: ignore[return-value]


def without_unit(name: str) -> str:
    """Return the name that a field of microseconds has outside."""
    return name.removesuffix("_us")


def check_name(field: str, value: object) -> str:
    """Return `value` as an id or a name: 1 to 255 bytes of UTF-8, no control characters, no outer spaces."""
    text = _check_str(field, value, MAX_NAME_BYTES)
    if not text:
        raise InvalidError(f"{field} is empty", hint="give it at least one character", field=field)
    if _CONTROL.search(text) or text != text.strip():
        raise InvalidError(
            f"{field} has a line break, a control character or outer spaces",
            hint="use printable characters only",
            field=field,
        )
    return text


def check_number(field: str, value: object, *, low: int = 0) -> int:
    """Return `value` as a whole number from `low` that fits into 64 bits."""
    if type(value) is not int or not low <= value < 1 << 63:
        raise InvalidError(f"{field} is not a whole number from {low}", field=field)
    return value


def check_flag(field: str, value: object) -> bool:
    if type(value) is not bool:
        raise InvalidError(f"{field} is {type(value).__name__}, not bool", field=field)
    return value


def check_type(field: str, value: object) -> str:
    """Return `value` as a checkpoint type: snake_case."""
    text = _check_str(field, value, MAX_NAME_BYTES)
    if not _SNAKE_CASE.fullmatch(text):
        raise InvalidError(
            f"{field} is not snake_case: {text[:80]!r}", hint="as in tool_executed, at most 64 characters", field=field
        )
    return text


def check_tag(field: str, value: object) -> str:
    """Return `value` as a tag: a name that no other way of naming a checkpoint can be mistaken for."""
    text = check_name(field, value)
    if _TAG_RESERVED.search(text):
        raise InvalidError(
            f"{field} cannot be {text[:80]!r}",
            hint="a tag is not HEAD or last-good, does not begin with @ or -, and has no ~ or :",
            field=field,
        )
    return text


def is_text(value: str) -> bool:
    """Say whether UTF-8 has it: no lone surrogates."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_path(field: str, value: Any) -> str:
    """Return `value` as a path."""
    try:
        return os.fsdecode(value)
    except TypeError as error:
        raise InvalidError(f"{field} is {type(value).__name__}, not a path", field=field) from error


def check_paths(field: str, value: Any) -> list[str]:
    """Return `value` as a list of paths; a text alone would be taken for a list of its letters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidError(f"{field} is not a list of paths", hint=f'as in {field}=["src/app.py"]', field=field)
    return [check_path(field, path) for path in value]


def check_text(field: str, value: object) -> str:
    """Return `value` as free text: any characters but lone surrogates, up to 1 MiB."""
    return _check_str(field, value, MAX_TEXT_BYTES)


def _check_str(field: str, value: object, limit: int) -> str:
    if type(value) is not str:
        raise InvalidError(f"{field} is {type(value).__name__}, not str", field=field)
    if len(value) <= limit:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise InvalidError(f"{field} has a lone surrogate", hint="it is not valid text", field=field) from None
        if size <= limit:
            return value
    raise InvalidError(f"{field} is longer than {limit} bytes", hint="keep long values in the state", field=field)
