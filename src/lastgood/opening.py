"""Opening a store: the backend that a path or URL names, with its spool and its housekeeper."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.engine.engine import Engine
from lastgood.engine.options import Options
from lastgood.errors import CheckpointError, DiskFullError, FormatError, IntegrityError, InvalidError, UnavailableError
from lastgood.local.location import Location, locate, make_folder, options_for
from lastgood.model.identity import check_name
from lastgood.observe.log import log_warning, operating_system_user
from lastgood.store import Store

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.upkeep.check_content import Progress
    from lastgood.upkeep.report import CheckReport


def open_store(target: str | os.PathLike[str] | None = None, *, user: str | None = None, **options: Any) -> Store:
    """Open a store, creating it if it is not there.

    `target` is a folder, a file ending in `.sqlite` or `.db`, or `":memory:"`. Without one: the environment's
    `LASTGOOD_STORE`, else what the nearest `lastgood.toml` upwards names, else the user's data directory.
    `user` is who acts (default: the operating system's user). For the rest see `Options`. Steps that were in
    flight when their process ended are said in the log; `store.recovery(task_id)` says what to do. A store that is
    away can be opened if checkpoints are spooled for it: these can be read and gone on from.
    """
    acting = user_or_default(user)
    engine = open_engine(target, Options(**{**options_for(target), **options}), acting)
    warn_of_interrupted_steps(engine.catalog)
    return Store(engine, acting)


def user_or_default(user: str | None) -> str:
    return operating_system_user() if user is None else check_name("user", user)


def open_engine(target: str | os.PathLike[str] | None, options: Options, user: str) -> Engine:
    """Open the backend that `target` names, with its spool and its housekeeper, which acts as `user`.

    What is spooled comes into the store.
    """
    location = find_location(target)
    if options.on_failure == "raise" or location.catalog is None:
        engine = Engine(_open_catalog(location), location, options)
    else:
        engine = _open_with_spool(location, location.catalog, options)
    if options.collect == "auto" and engine.catalog.durable:
        from lastgood.upkeep.housekeeping import Housekeeping

        engine.housekeeper = Housekeeping(engine, user)
    return engine


def _open_with_spool(location: Location, catalog: Path, options: Options) -> Engine:
    from lastgood.spool.spool import Spool, open_or_stand_in

    opened = open_or_stand_in(catalog, lambda: _open_catalog(location), options)
    engine = Engine(opened, location, options)
    spool = engine.spool = Spool(engine, opened, catalog)
    engine.catalog = spool.catalog
    spool.replay_on_open()
    return engine


def warn_of_interrupted_steps(catalog: Catalog) -> None:
    """Say in the log which steps were in flight when their process ended (A16)."""
    with suppress(CheckpointError):  # what is wrong with the store is said by whoever reads from it
        steps = catalog.open_steps(None)
        if not steps:
            return
        from lastgood.engine.recovery import interrupted_steps

        for step in interrupted_steps(steps):
            log_warning(
                f"the step {step.name!r} of {step.task_id!r} was in flight when its process ended",
                task_id=step.task_id,
                step_id=step.id,
            )


def find_location(target: str | os.PathLike[str] | None) -> Location:
    with _worded_errors():
        return locate(target)


def _open_catalog(location: Location) -> Catalog:
    """Open the catalog of the store that lies there; make it if there is none."""
    from lastgood.catalog import open_catalog

    with _worded_errors():
        if location.catalog is not None:
            make_folder(location.catalog.parent)
        return open_catalog(location.catalog)


def check_at(
    target: str | os.PathLike[str] | None, read_data: bool = False, progress: Progress | None = None
) -> CheckReport:
    """Check a store as `Store.check` does; that its database cannot be opened is a finding."""
    from lastgood.objects.local import LocalObjects
    from lastgood.objects.verified import VerifiedObjects
    from lastgood.upkeep.check import check_store, database_finding
    from lastgood.upkeep.report import CheckCounts, CheckReport

    location = find_location(target)
    objects = None if location.objects is None else VerifiedObjects(LocalObjects(location.objects))
    try:
        with closing(_open_catalog(location)) as catalog:
            return check_store(catalog, objects, Engine.blob_id, read_data=read_data, progress=progress)
    except (IntegrityError, FormatError) as error:
        finding = database_finding(str(error))
        return CheckReport(depth="data" if read_data else "structure", findings=(finding,), looked_at=CheckCounts())


@contextmanager
def _worded_errors() -> Iterator[None]:
    """Translate what the file system says when a store is opened."""
    try:
        yield
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        import errno

        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError("the disk is full; there is no room for a store", hint="free some space") from error
        raise UnavailableError(
            f"a store cannot be opened here: {error.strerror}", hint="look at the path and its permissions"
        ) from error
    except UnicodeError as error:
        raise InvalidError("the store's path is not valid text", hint="give it a name in UTF-8") from error
