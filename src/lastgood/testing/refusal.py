"""Saying that something must be refused, without pytest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lastgood.errors import CheckpointError


@contextmanager
def refused(kind: type[CheckpointError]) -> Iterator[list[Any]]:
    """The block must raise `kind`; the error is left in the list."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")
