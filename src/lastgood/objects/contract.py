"""The object store's contract: bytes under a name, which never change once they are there.

An object is there whole or not at all. What `put` or `adopt` acknowledged is durable (where `durable` says so), and
seen by every later call from any thread, process or host that shares the store. All methods may be called from
several threads and processes at once. A name consists of a-z, 0-9, `.`, `_`, `-` in components joined by `/`; none
begins with a dot, and no name continues another one behind a `/`.

Errors are those of lastgood.errors: InvalidError for a name or a range that cannot be one, NotFoundError for an object
that is not there, IntegrityError for one that is not what it should be, DiskFullError or UnavailableError when the
backend cannot. After an error nothing was stored, unless it was the very last step that failed, making the name
durable: then the object may be there, whole, and was not acknowledged.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lastgood.errors import InvalidError

MAX_NAME, MAX_COMPONENT = 1000, 255
DAY = 86_400.0

_NAME = re.compile(r"[a-z0-9_-][a-z0-9._-]*(?:/[a-z0-9_-][a-z0-9._-]*)*")
_PREFIX = re.compile(rf"(?:{_NAME.pattern}/?)?")


class Listed(NamedTuple):
    """An object that is there, and how many bytes it has."""

    name: str
    size: int


class ObjectStore(ABC):
    """A store of immutable named bytes. The module's docstring says what holds for all methods."""

    durable: bool
    """What was acknowledged survives kill -9 and power loss."""

    shared: bool
    """Several hosts may use it at once."""

    address: str | None = None
    """The folder that another process of this host reads it in (`LocalObjects`); None: it cannot."""

    @abstractmethod
    def put(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Store the chunks end to end, unless the name is taken: then False, and what is there stays as it is.

        Chunks are read one at a time, and perhaps not at all when the name is taken. An error that they raise
        ends the `put` and is passed on; nothing is stored.
        """

    @abstractmethod
    def draft(self) -> Path:
        """Return a path where nothing is yet, to write a file for `adopt` to. One that is abandoned is swept."""

    @abstractmethod
    def adopt(self, name: str, path: Path) -> bool:
        """Store a finished draft as `put` does. Another process may have written it; nobody writes it any more.

        It is gone from its path afterwards, also after an error, unless the name is none.
        """

    @abstractmethod
    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return exactly `length` bytes from `start` on, or all. IntegrityError when there are not so many."""

    @abstractmethod
    def size(self, name: str) -> int: ...

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object, if it is there. No later call sees it; after power loss it may be there again."""

    @abstractmethod
    def list(self, prefix: str = "") -> Iterator[Listed]:
        """List objects whose name begins with `prefix`, in the order of their names' bytes.

        Each that is there from the first to the last moment is listed once; one that comes or goes meanwhile may be.
        """

    @abstractmethod
    def sweep(self, seconds: float = DAY) -> int:
        """Remove drafts that were not written to for so long: their writers died. Returns how many bytes they had.

        A writer whose draft was removed all the same gets an UnavailableError.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back all resources. Idempotent; nothing else may be called afterwards."""


def is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and bool(_NAME.fullmatch(name)) and max(map(len, name.split("/"))) <= MAX_COMPONENT


def check_name(name: str) -> str:
    """Return the name, if it can be one."""
    if not is_name(name):
        raise InvalidError(f"not a name of an object: {name[:80]!r}", hint="a name looks like packs/9f/9f86d0…")
    return name


def check_prefix(prefix: str) -> str:
    """Return the beginning of names, if it can be one."""
    if len(prefix) > MAX_NAME or not _PREFIX.fullmatch(prefix):
        raise InvalidError(f"no object's name begins with {prefix[:80]!r}", hint="a prefix looks like packs/9f")
    return prefix


def check_range(start: int, length: int | None) -> None:
    if start < 0 or (length is not None and length < 0):
        raise InvalidError("a range cannot begin or end before the object does")
