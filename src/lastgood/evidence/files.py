"""Files that evidence is about: found and hashed by the rules of D8, on disk or as a checkpoint captured them (D11)."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from lastgood.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from lastgood.local.paths import (
    BaseFolder,
    Signature,
    is_settled,
    kind_of,
    locate_anywhere,
    open_anywhere,
    require_path,
    show,
    signature,
)
from lastgood.local.process import descriptors

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

T = TypeVar("T")
CHUNK_BYTES = 1 << 18
CACHE_ENTRIES = 65_536


def hash_open(descriptor: int, max_bytes: int, deadline: float) -> str:
    """Hash what is left to read; InvalidError beyond the bound or the deadline."""
    digest, total = sha256(), 0
    while chunk := os.read(descriptor, CHUNK_BYTES):
        digest.update(chunk)
        total += len(chunk)
        if total > max_bytes:
            raise too_large(total, max_bytes)
        if time.monotonic() > deadline:
            raise InvalidError("reading the file took too long", hint="give the verifier a longer timeout")
    return digest.hexdigest()


def too_large(size: int, max_bytes: int) -> InvalidError:
    return InvalidError(
        f"the file has {size:,} bytes, more than the {max_bytes:,} that evidence reads",
        hint="give the verifier a larger max_file_bytes",
    )


HashElsewhere = Callable[[str, str, int, float], tuple[str, Signature | None]]
"""Hashes a file in another process, by base, path, bound in bytes and deadline; answers as `Files.read`."""


class Later(Exception):  # noqa: N818
    """Not an error: this piece of work is worth a thread of its own."""


class Allowance:
    """A number of bytes that may still be read at once."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, size: int) -> None:
        if size > self._left:
            raise Later
        self._left -= size


class Files:
    """The files below `base` and, where that is allowed, those named by an absolute path.

    Every method takes the path as it stands in a claim and raises InvalidError for one that cannot be used, and
    ForbiddenError for one that is not to be looked at here.
    """

    def __init__(self, base: str, *, absolute: bool, max_bytes: int, hash_elsewhere: HashElsewhere | None) -> None:
        self.base = base
        self._absolute = absolute
        self._max_bytes = max_bytes
        self._hash_elsewhere = hash_elsewhere
        self._known: dict[Signature, str] = {}
        """Digests of files that look the same still (D10). One written through a memory map may change without it."""
        self._folder: BaseFolder | None = None
        self._closed = False

    def refresh(self) -> None:
        """Look again where the base is: it may have been made, or replaced, since."""
        if self._closed or ((folder := self._folder) is not None and folder.is_current()):
            return
        try:
            self._folder = BaseFolder(self.base)
        except OSError:
            self._folder = None

    def close(self) -> None:
        self._closed, self._folder = True, None

    def stat(self, path: object) -> os.stat_result | None:
        """Return the stat of what is there; None when nothing is."""
        return self._reach(path, os.stat, BaseFolder.stat)

    def locate(self, path: object) -> tuple[str, os.stat_result] | None:
        """Return the real path of what is there, and its stat; None when nothing is."""
        return self._reach(path, locate_anywhere, BaseFolder.locate)

    def hash(self, path: object, deadline: float, allowance: Allowance | None = None) -> str:
        """Return the hex SHA-256 of a regular file; Later when it is not known and costs more than is allowed."""
        if (found := self.stat(path)) is None:
            raise NotFoundError(f"{show(path)} does not exist")
        if not stat.S_ISREG(found.st_mode):
            raise InvalidError(f"{show(path)} is {kind_of(found)}, not a file")
        if (known := self._known.get(signature(found))) is not None:
            return known
        if found.st_size > self._max_bytes:
            raise too_large(found.st_size, self._max_bytes)
        if allowance is not None:
            allowance.take(found.st_size)
        text = self.require(path)
        if self._hash_elsewhere is not None and descriptors.is_open_elsewhere(found):
            digest, seen = self._hash_elsewhere(self.base, text, self._max_bytes, deadline)
        else:
            digest, seen = self.read(text, deadline)
        if seen is not None:
            if len(self._known) >= CACHE_ENTRIES:
                self._known.clear()
            self._known[seen] = digest
        return digest

    def read(self, path: str, deadline: float) -> tuple[str, Signature | None]:
        """Hash the file now; return it with the signature to remember it by, if it may be remembered.

        A file that changes while it is read is read once more, then refused.
        """
        for _ in range(2):
            began = time.time_ns()
            expected = self.stat(path)
            if expected is None:
                raise NotFoundError(f"{show(path)} does not exist")
            descriptor = self._reach(
                path, partial(open_anywhere, expected=expected), partial(BaseFolder.open, expected=expected)
            )
            if descriptor is None:
                continue
            descriptors.adopt(descriptor)
            try:
                before = os.fstat(descriptor)
                if (before.st_dev, before.st_ino) != (expected.st_dev, expected.st_ino):
                    continue
                digest = hash_open(descriptor, self._max_bytes, deadline)
                if (seen := signature(before)) == signature(os.fstat(descriptor)):
                    return digest, seen if is_settled(seen, began) else None
            except OSError as error:
                raise _unreadable(path, error) from error
            finally:
                descriptors.release(descriptor, os.fstat(descriptor))
        raise InvalidError(f"{show(path)} changed while it was read", hint="verify when its writer is done")

    def place(self, path: object) -> str:
        """Return where the helper process finds it."""
        return self.require(path)

    def require(self, path: object) -> str:
        """Return the path as text; ForbiddenError for one that is not allowed here."""
        if self._closed:
            raise UnavailableError("this verifier was closed")
        text = require_path(path)
        if not self._absolute and text.startswith("/"):
            if not text.startswith(self.base.rstrip("/") + "/"):
                raise ForbiddenError(
                    f"{show(text)} is an absolute path, and those are not accepted here",
                    hint="name what lies in the base folder; `lastgood trust` allows others in a store of yours",
                )
            return text[len(self.base.rstrip("/")) + 1 :]
        return text

    def _reach(self, path: object, anywhere: Callable[[str], T], below: Callable[[BaseFolder, str], T]) -> T | None:
        """Use what a path leads to; None when nothing is there."""
        text = self.require(path)
        try:
            if text.startswith("/"):
                return anywhere(text)
            return below(folder, text) if (folder := self._folder) is not None else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(text, error) from error


class CapturedFile(NamedTuple):
    """A file or folder at a path: `mode` with its kind, as stat has it; folders have neither digest nor content."""

    mode: int
    size: int = 0
    digest: bytes | None = None
    content: Callable[[], Iterator[bytes]] | None = None


FindCaptured = Callable[[str], "CapturedFile | Literal['absent', 'unknown']"]
"""What a checkpoint has at a path of a claim; "unknown": it says nothing about that."""


class CheckpointFiles(Files):
    """As `Files`, with what a checkpoint captured, which is what comes back, in the place of what lies on disk.

    What the checkpoint says nothing about is looked at on disk. Close it when done.
    """

    def __init__(self, real: Files, find: FindCaptured) -> None:
        self.base = real.base
        self._real = real
        self._find = find
        self._scratch: TemporaryDirectory[str] | None = None
        self._copies: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def stat(self, path: object) -> os.stat_result | None:
        found = self._find(self.require(path))
        if found == "unknown":
            return self._real.stat(path)
        return None if found == "absent" else os.stat_result((found.mode, 0, 0, 1, 0, 0, found.size, 0, 0, 0))

    def hash(self, path: object, deadline: float, allowance: Allowance | None = None) -> str:
        found = self._find(self.require(path))
        if found == "unknown":
            return self._real.hash(path, deadline, allowance)
        if found == "absent":
            raise NotFoundError(f"{show(path)} does not exist")
        if found.digest is None:
            raise InvalidError(f"{show(path)} is not a file")
        return found.digest.hex()

    def place(self, path: object) -> str:
        """Copy a database to where the helper process can read it: once, because it may be reading it already."""
        text = self.require(path)
        found = self._find(text)
        if not isinstance(found, CapturedFile) or found.content is None or found.digest is None:
            return text
        with self._lock:
            if found.digest not in self._copies:
                self._copies[found.digest] = self._copy(found.digest.hex(), found.content())
            return self._copies[found.digest]

    def _copy(self, name: str, content: Iterator[bytes]) -> str:
        if self._scratch is None:
            from tempfile import TemporaryDirectory  # a tenth of the time in which a command starts

            self._scratch = TemporaryDirectory(prefix="lastgood-")
        copy = Path(self._scratch.name) / name
        with copy.open("wb") as file:
            file.writelines(content)
        return str(copy)

    def require(self, path: object) -> str:
        return self._real.require(path)

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()


def _unreadable(path: str, error: OSError) -> InvalidError:
    why = (error.strerror or "input/output error").lower()
    return InvalidError(f"{show(path)} cannot be read: {why}")
