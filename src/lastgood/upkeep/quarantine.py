"""The folder beside a store that keeps what a repair changes or takes out. Repairs alone look into it again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastgood.engine.gather import discard, disk_error
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.local.location import Location, make_folder
from lastgood.model.identity import new_id
from lastgood.objects.contract import ObjectStore

CHUNK = 8 << 20


class Quarantine:
    """The folder of one repair, made when something comes into it."""

    def __init__(self, location: Location) -> None:
        self._catalog = location.catalog
        self._folder = None if location.quarantine is None else location.quarantine / new_id()
        self._has_catalog = False

    @property
    def path(self) -> str | None:
        """Its path, if there is anything in it."""
        return str(self._folder) if self._folder is not None and self._folder.exists() else None

    def copy_catalog(self) -> None:
        """Copy the database before the first change, with its log and its witness. The caller keeps writers away.

        Another process copies it: closing a file here would drop the locks that SQLite holds on it in this process.
        """
        if self._catalog is None or self._folder is None or self._has_catalog:
            return
        files = [self._catalog.with_name(self._catalog.name + end) for end in ("", "-wal", "-lock")]
        with _worded_errors():
            folder = self._make(self._folder)
        done = subprocess.run(  # noqa: S603  # no shell; the paths are the store's own
            ["/bin/cp", "-p", "--", *(str(file.absolute()) for file in files if file.exists()), str(folder.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise UnavailableError("the catalog could not be copied, so nothing was changed", hint="is the disk full?")
        with _worded_errors():
            for file in files:
                if file.exists():
                    _sync(folder / file.name)
            _sync(folder)
        self._has_catalog = True

    def take(self, objects: ObjectStore | None, name: str) -> None:
        """Move an object here, durably; it is deleted there only when it is here. What cannot be read stays there."""
        assert objects is not None
        assert self._folder is not None, "objects lie beside a catalog that is a file"
        place = self._folder / name
        with _worded_errors():
            self._make(place.parent)
        try:
            with place.open("xb") as file:
                for chunk in _chunks(objects, name):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            _sync(place.parent)
        except (OSError, CheckpointError):
            discard(place)
        else:
            objects.delete(name)

    def _make(self, folder: Path) -> Path:
        assert self._folder is not None
        for step in (self._folder.parent, self._folder, *reversed(folder.parents), folder):
            if step.is_relative_to(self._folder.parent):
                make_folder(step)
                _sync(step.parent)
        return folder


def kept_packs(folder: Path | None) -> Iterator[ObjectStore]:
    """Yield what earlier repairs have kept: whole blobs in it are as good as any."""
    from lastgood.objects.local import LocalObjects

    if folder is not None and folder.is_dir():
        yield from (LocalObjects(each) for each in sorted(folder.iterdir()) if each.is_dir())


def _chunks(objects: ObjectStore, name: str) -> Iterator[bytes]:
    size = objects.size(name)
    for start in range(0, size, CHUNK):
        yield objects.get(name, start, min(CHUNK, size - start))


@contextmanager
def _worded_errors() -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise disk_error(error) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
