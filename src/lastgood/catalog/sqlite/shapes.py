"""Rows as the tables let them in: a page that the disk has put in another's place fits its checksum, and has others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lastgood.errors import IntegrityError


def _rows(*columns: Any) -> Any:
    # A named tuple's type is looked at once; that of a plain tuple with each call, which took 20 us.
    return list[NamedTuple("Row", [(f"column{number}", kind) for number, kind in enumerate(columns)])]  # type: ignore[misc]


_TEXT, _NUMBER, _BYTES = str | None, int | None, bytes | None
TASK = _rows(int, str, str, int, str, int, int, int)
BRANCH = _rows(
    int, str, str, str, str, str, _TEXT, int, int, _TEXT, _BYTES, int, str, int, int, str, bytes, int
)  # fmt: skip
CHECKPOINT = _rows(int, str, str, str, _BYTES, bytes, str, int, int, bytes, int, _NUMBER, int, _TEXT)
CREATION = _rows(int, int, _NUMBER, str, str, bytes, bytes)
EVENT = _rows(int, str, int, str, str, str, _TEXT, _BYTES)
TAG = _rows(str, str, bytes, int, str)
ATTESTATION = _rows(int, str, int, str, bytes, bytes)
ORIGIN = _rows(_NUMBER, int)
BLOB = _rows(bytes, int, int, _BYTES, _TEXT, _NUMBER, _NUMBER)
SLICE = _rows(bytes, int, int, _BYTES, bytes, int, int)
ROOT = _rows(bytes, _NUMBER, _NUMBER, _BYTES)
STEP = _rows(bytes, str)
JOURNAL = _rows(bytes, str)
LEASE = _rows(int, str, bytes, str, int, int)
REQUEST = _rows(str, str, str, bytes, int, str, _TEXT, str, _NUMBER, _BYTES)


def shaped(found: Sequence[tuple[Any, ...]], shape: Any) -> list[Any]:
    """The same rows. IntegrityError when one of them cannot be a row of its table."""
    try:
        return msgspec.convert(found, shape)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise misplaced() from error


def counted(value: Any) -> int:
    """A number that must be there."""
    if type(value) is not int:
        raise misplaced()
    return value


def misplaced() -> IntegrityError:
    return IntegrityError(
        "the store's database is damaged here; what it says cannot be trusted",
        hint="other checkpoints may be whole: `lastgood verify --all` says which",
    )
