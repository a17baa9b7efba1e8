"""The folder in which this host keeps locks and stat indexes for a store, and what on disk is the store's own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.errors import UnavailableError
from lastgood.local.fork import renew_after_fork
from lastgood.local.location import CATALOG, Location

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

NOTE = ".gitignore"
"""What `lastgood init` puts into a store's folder beside the store."""


class LocalFolder:
    """The local folder of one store; a temporary one for a store in memory. Made when it is first needed."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._temporary: TemporaryDirectory[str] | None = None
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()

    def path(self) -> Path:
        """Return the folder. Its content is a cache, except for locks while they are held.

        UnavailableError when the folder of the store is gone: nothing may be made in its place.
        """
        location = self._location
        if location.catalog is not None and location.cache is not None:
            if not location.catalog.parent.is_dir():
                raise UnavailableError("the store's folder is gone", hint="bring it back to where it was")
            return location.cache
        with self._lock:
            if self._temporary is None:
                from tempfile import TemporaryDirectory

                self._temporary = TemporaryDirectory(prefix="lastgood-")
            return Path(self._temporary.name)

    def own_paths(self) -> list[Path]:
        """Return the paths that must not be captured with a workspace that the store lies in."""
        file, objects = self._location.catalog, self._location.objects
        if file is None or objects is None:
            return []
        beside = [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-lock")]
        more = (objects, self._location.cache, self._location.quarantine)
        own = [path.resolve() for path in (*beside, *more) if path is not None]
        folder = file.parent.resolve()
        try:
            others = {path.resolve() for path in folder.iterdir()} - set(own)
        except OSError as error:
            raise UnavailableError("the store's folder cannot be read", hint="look at it and the disk") from error
        return [folder] if file.name == CATALOG and others <= {folder / NOTE} else own

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
