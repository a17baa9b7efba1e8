"""A copy of a whole store, made while others work with it: the catalog as of one moment, then the packs that it names.

The copy gets its name when every byte of it was read and is right; until then it lies beside that name.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lastgood.catalog import open_catalog
from lastgood.engine.engine import Engine
from lastgood.errors import ConflictError, DiskFullError, IntegrityError, InvalidError, NotFoundError, UnavailableError
from lastgood.files.roots import is_there
from lastgood.local.location import NOTE, Location, locate, make_folder
from lastgood.model.identity import new_id
from lastgood.objects.contract import ObjectStore
from lastgood.objects.local import LocalObjects
from lastgood.objects.verified import VerifiedObjects
from lastgood.upkeep.check import check_store
from lastgood.upkeep.collect import lease_collector

FREE_ATTEMPTS = 2
CHUNK = 8 << 20
Progress = Callable[[str, int, int], None]


class BackedUp(NamedTuple):
    """A backup: where it is, and what is in it."""

    path: Path
    checkpoints: int
    size: int


def back_up(engine: Engine, user: str, to: str | os.PathLike[str], progress: Progress | None = None) -> BackedUp:
    """Copy the store to the folder `to`; see `Store.backup`."""
    destination = Path(os.path.abspath(to))  # noqa: PTH100
    if os.path.lexists(destination):
        raise ConflictError(f"{destination} exists already", hint="give another path; a backup replaces nothing")
    if engine.location.catalog is None:
        raise InvalidError("a store in memory cannot be backed up", hint="open one at a path")
    around = {destination.parent.resolve(), *destination.parent.resolve().parents}
    if not around.isdisjoint(path.resolve() for path in (engine.location.place, *engine.location.parts()) if path):
        raise InvalidError("a backup cannot lie in the store that it is of", hint="give a path elsewhere")
    if inside := next((path for path in _captured_folders(engine) if path in around), None):
        told = f"a backup in {inside} would be saved with the files there, and removed by a restore of them"
        raise InvalidError(told, hint="give a path outside of the workspace")
    partial = destination.with_name(f".{destination.name}.{new_id()}.partial")
    try:
        make_folder(partial)
        (partial / NOTE).write_text("*\n")  # as in the store that it may be put in the place of
        made = _copy(engine, user, locate(partial), progress or (lambda *_: None))
        partial.rename(destination)
        _sync(destination.parent)
    except OSError as error:
        if isinstance(error, UnavailableError):
            raise
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError("the disk is full; no backup was made", hint="free some space") from error
        raise UnavailableError(
            f"no backup can be made at {destination}: {error.strerror}", hint="look at the path and its permissions"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return made._replace(path=destination)


def _captured_folders(engine: Engine) -> Iterator[Path]:
    """Yield the folders whose files are saved in the store, as far as they are where they were."""
    last = 0
    while page := engine.catalog.tasks(None, last):
        for task in page:
            for branch in engine.catalog.branches(task):
                folders = engine.catalog.folders_of(task.owner, branch.id)
                yield from (Path(each.path).resolve() for each in folders if is_there(each))
        last = page[-1].number


def _copy(engine: Engine, user: str, place: Location, progress: Progress) -> BackedUp:
    """Copy the catalog and its packs; begin again when a pack was collected meanwhile. The last time nothing can be:
    this process has the lease for collecting."""
    for _ in range(FREE_ATTEMPTS):
        with suppress(NotFoundError):
            return _copy_once(engine, place, progress)
    with lease_collector(engine, user, wait=True):
        try:
            return _copy_once(engine, place, progress)
        except NotFoundError as error:
            raise _damaged("a pack is missing") from error


def _copy_once(engine: Engine, place: Location, progress: Progress) -> BackedUp:
    """Copy the catalog and its packs, and check the copy; NotFoundError when a pack is gone by then."""
    assert place.catalog is not None
    assert place.objects is not None
    copied = VerifiedObjects(LocalObjects(place.objects))
    for end in ("", "-wal", "-shm", "-lock"):
        place.catalog.with_name(place.catalog.name + end).unlink(missing_ok=True)
    engine.catalog.back_up(place.catalog)
    catalog = open_catalog(place.catalog)
    try:
        names = [pack.name for pack in catalog.packs()]
        for number, name in enumerate(names):
            progress("copy", number, len(names))
            _copy_pack(engine, name, copied)
        report = check_store(
            catalog, copied, engine.blob_id, read_data=True, progress=lambda done, of: progress("verify", done, of)
        )
        if not report.ok:
            raise _damaged(report.findings[0].sentence)
        size = catalog.disk_use().size + sum(pack.size for pack in copied.list("packs/"))
        return BackedUp(place.catalog.parent, report.looked_at.checkpoints, size)
    finally:
        catalog.close()


def _copy_pack(engine: Engine, name: str, copied: ObjectStore) -> None:
    objects = engine.objects
    assert objects is not None

    def chunks() -> Iterator[bytes]:
        size = objects.size(name)
        for start in range(0, size, CHUNK):
            yield objects.get(name, start, min(CHUNK, size - start))

    try:
        copied.put(name, chunks())
    except IntegrityError as error:
        raise _damaged(f"the pack {name} is not what its name says") from error


def _damaged(what: str) -> IntegrityError:
    return IntegrityError(
        f"the store is damaged, and so would be its backup: {what}",
        hint="store.check(read_data=True) lists what is damaged, store.repair() repairs what it can",
    )


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
