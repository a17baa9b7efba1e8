"""A wrapper that lets no object in or out whose bytes differ from the SHA-256 that its name ends in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import file_digest, sha256
from pathlib import Path

from lastgood.errors import CheckpointError, IntegrityError, UnavailableError
from lastgood.objects.contract import DAY, Listed, ObjectStore, check_name

_DIGEST = re.compile(r"(?:.*/)?([0-9a-f]{64})")


class VerifiedObjects(ObjectStore):
    """A wrapper that checks whole objects: what `put` and `adopt` store, and what `get` reads in full.

    A range is not checked here: no digest covers it alone. Blobs of a pack are read as ranges and
    checked by their own ids where they are read. Objects with other names are passed through.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.durable = inner.durable
        self.shared = inner.shared
        self.address = inner.address

    def put(self, name: str, chunks: Iterable[bytes]) -> bool:
        expected = _digest_in(name)
        return self._inner.put(name, chunks if expected is None else _checked(name, expected, chunks))

    def draft(self) -> Path:
        return self._inner.draft()

    def adopt(self, name: str, path: Path) -> bool:
        expected = _digest_in(check_name(name))
        try:
            if expected is not None and _digest_of(path) != expected:
                raise _differs(name)
        except CheckpointError:
            with suppress(OSError):  # must not hide what went wrong; it is swept one day
                path.unlink(missing_ok=True)
            raise
        return self._inner.adopt(name, path)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._inner.get(name, start, length)
        expected = _digest_in(name) if start == 0 and length is None else None
        if expected is not None and sha256(data).hexdigest() != expected:
            raise _differs(name)
        return data

    def size(self, name: str) -> int:
        return self._inner.size(name)

    def delete(self, name: str) -> None:
        self._inner.delete(name)

    def list(self, prefix: str = "") -> Iterator[Listed]:
        return self._inner.list(prefix)

    def sweep(self, seconds: float = DAY) -> int:
        return self._inner.sweep(seconds)

    def close(self) -> None:
        self._inner.close()


def _digest_in(name: str) -> str | None:
    found = _DIGEST.fullmatch(name)
    return found[1] if found else None


def _checked(name: str, expected: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same chunks; raise at the end if they were not what the name says, so that nothing is stored."""
    seen = sha256()
    for chunk in chunks:
        seen.update(chunk)
        yield chunk
    if seen.hexdigest() != expected:
        raise _differs(name)


def _digest_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UnavailableError("a finished file cannot be read", hint="look at the disk and at the log") from error


def _differs(name: str) -> IntegrityError:
    return IntegrityError("an object of the store is not what its name says", object=name)
