"""Rows as the tables let them in: a page that the disk has put in another's place fits its checksum, and has others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lastgood.errors import IntegrityError

TASK = list[tuple[int, str, str, int, str, int, int, int]]
BRANCH = list[
    tuple[
        int, str, str, str, str, str, str | None, int, int, str | None, bytes | None,
        int, str, int, int, str, bytes, int,
    ]
]  # fmt: skip
CHECKPOINT = list[
    tuple[int, str, str, str, bytes | None, bytes, str, int, int, bytes, int, int | None, int, str | None]
]
CREATION = list[tuple[int, int, int | None, str, str, bytes, bytes]]
EVENT = list[tuple[int, str, int, str, str, str, str | None, bytes | None]]
TAG = list[tuple[str, str, bytes, int, str]]
ATTESTATION = list[tuple[int, str, int, str, bytes, bytes]]
ORIGIN = list[tuple[int | None, int]]
BLOB = list[tuple[bytes, int, int, bytes | None, str | None, int | None, int | None]]
SLICE = list[tuple[bytes, int, int, bytes | None, bytes, int, int]]
ROOT = list[tuple[bytes, int | None, int | None, bytes | None]]
STEP = list[tuple[bytes, str]]
JOURNAL = list[tuple[bytes, str]]


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
