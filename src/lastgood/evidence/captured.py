"""Files as a checkpoint captured them, for evidence about them (D11): that is what comes back.

What the checkpoint says nothing about is looked at on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from lastgood.errors import InvalidError, NotFoundError
from lastgood.evidence.files import Allowance, Files
from lastgood.local.paths import show

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


class CapturedFile(NamedTuple):
    """What lay at a path: `mode` with its kind, as stat has it; folders have neither digest nor content."""

    mode: int
    size: int = 0
    digest: bytes | None = None
    content: Callable[[], Iterator[bytes]] | None = None


FindCaptured = Callable[[str], "CapturedFile | Literal['absent', 'unknown']"]
"""What a checkpoint has at a path of a claim; "unknown": it says nothing about that."""


class CapturedFiles(Files):
    """As `Files`, with what a checkpoint captured in the place of what lies on disk. Close it when done."""

    def __init__(self, real: Files, find: FindCaptured) -> None:
        self.base = real.base
        self._real = real
        self._find = find
        self._scratch: TemporaryDirectory[str] | None = None
        self._copies: dict[bytes, str] = {}
        self._lock = threading.Lock()

    def look(self, path: object) -> os.stat_result | None:
        found = self._find(self.require(path))
        if found == "unknown":
            return self._real.look(path)
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
        """A database is put down where the helper process can read it: once, because it may be reading it already."""
        text = self.require(path)
        found = self._find(text)
        if not isinstance(found, CapturedFile) or found.content is None or found.digest is None:
            return text
        with self._lock:
            if found.digest not in self._copies:
                self._copies[found.digest] = self._put_down(found.digest.hex(), found.content())
            return self._copies[found.digest]

    def _put_down(self, name: str, content: Iterator[bytes]) -> str:
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
