"""Where a store keeps the content of files, and what this host knows of workspaces."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from lastgood.catalog.contract import Catalog
from lastgood.errors import UnavailableError
from lastgood.local.fork import renew_after_fork
from lastgood.local.location import CATALOG, objects_beside, quarantine_beside

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.workspace import Workspace
    from lastgood.objects.contract import ObjectStore


NOTE = ".gitignore"
"""What `lastgood init` puts into a store's folder beside the store."""


class Filing:
    """Of one store; nothing is made before it is needed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._scratch: TemporaryDirectory[str] | None = None
        self._workspaces: WeakSet[Workspace] = WeakSet()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def objects(self) -> ObjectStore | None:
        """Where packs are; None in memory, where there are none."""
        from lastgood.objects.local import LocalObjects
        from lastgood.objects.verified import VerifiedObjects

        if self._catalog.file is None:
            return None
        return VerifiedObjects(LocalObjects(objects_beside(self._catalog.file)))

    @cached_property
    def blobs(self) -> FileBlobs:
        from lastgood.engine.blobs import FileBlobs

        return FileBlobs(self._catalog, self.objects)

    def folder(self) -> Path:
        """For locks, and what was seen of each file: a cache, but for who holds a lock. UnavailableError when the store
        is away: nothing may be made in its place."""
        if self._catalog.file is not None:
            if not self._catalog.file.parent.is_dir():
                raise UnavailableError("the store's folder is gone", hint="bring it back to where it was")
            return objects_beside(self._catalog.file).with_suffix(".cache")
        with self._lock:
            if self._scratch is None:
                from tempfile import TemporaryDirectory

                self._scratch = TemporaryDirectory(prefix="lastgood-")
            return Path(self._scratch.name)

    def own_paths(self) -> list[Path]:
        """What must not be captured with a workspace that the store lies in."""
        file = self._catalog.file
        if file is None:
            return []
        objects = objects_beside(file)
        beside = [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-lock")]
        own = [path.resolve() for path in (*beside, objects, objects.with_suffix(".cache"), quarantine_beside(file))]
        folder = file.parent.resolve()
        try:
            others = {path.resolve() for path in folder.iterdir()} - set(own)
        except OSError as error:
            raise UnavailableError("the store's folder cannot be read", hint="look at it and the disk") from error
        return [folder] if file.name == CATALOG and others <= {folder / NOTE} else own

    def keep(self, workspace: Workspace) -> None:
        """Close it with the store, if it is still there."""
        self._workspaces.add(workspace)

    def close(self) -> None:
        for workspace in list(self._workspaces):
            workspace.close()
        if self._scratch is not None:
            self._scratch.cleanup()
