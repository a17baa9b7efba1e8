"""Opening a store: the backend that a path or URL names, with its spool and its housekeeper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from lastgood.engine.engine import Engine
from lastgood.engine.options import Collect, Network, OnFailure, Options, SecretFiles
from lastgood.errors import (
    CheckpointError,
    DiskFullError,
    ForbiddenError,
    FormatError,
    IntegrityError,
    InvalidError,
    UnavailableError,
)
from lastgood.local.location import Location, locate, make_folder, options_for
from lastgood.model.identity import check_name
from lastgood.observe.log import log_warning, operating_system_user
from lastgood.store import Store

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.observe.alerts import Alert
    from lastgood.secrets.redaction import Redaction
    from lastgood.upkeep.check_content import Progress
    from lastgood.upkeep.report import CheckReport


def open_store(
    target: str | os.PathLike[str] | None = None,
    *,
    user: str | None = None,
    on_failure: OnFailure | UnsetType = UNSET,
    cache_checkpoints: int | UnsetType = UNSET,
    cache_alert_bytes: int | UnsetType = UNSET,
    warn_state_bytes: int | UnsetType = UNSET,
    max_state_bytes: int | UnsetType = UNSET,
    on_alert: Callable[[Alert], None] | UnsetType | None = UNSET,
    base_path: str | os.PathLike[str] | UnsetType | None = UNSET,
    auto_verify: bool | UnsetType = UNSET,
    network: Network | UnsetType = UNSET,
    redaction: Redaction | UnsetType = UNSET,
    secret_files: SecretFiles | UnsetType = UNSET,
    collect: Collect | UnsetType = UNSET,
    max_bytes: int | UnsetType | None = UNSET,
    spool: str | os.PathLike[str] | UnsetType | None = UNSET,
    spool_bytes: int | UnsetType = UNSET,
) -> Store:
    """Open a store, creating it if it is not there.

    `target` is a folder, a file ending in `.sqlite` or `.db`, or `":memory:"`; an application's registry that a
    `CheckpointManager` keeps its store beside names that store. Without one: the environment's `LASTGOOD_STORE`,
    else what the nearest `lastgood.toml` upwards names, else the user's data directory. `user` is who acts
    (default: the operating system's user; in a private store its one owner). The rest are `Options`; what is not
    given is as `lastgood.toml` says, else as there. Steps that were in flight when their process ended are said in
    the log; `store.recovery(task_id)` says what to do. A store that is away can be opened if checkpoints are
    spooled for it: these can be read and continued.
    """
    given = {name: value for name, value in locals().items() if name not in ("target", "user") and value is not UNSET}
    options = {**options_for(target), **given}
    engine, acting = open_engine(target, Options(**options), user)
    warn_of_interrupted_steps(engine.catalog)
    return Store(engine, acting)


def open_engine(
    target: str | os.PathLike[str] | None, options: Options, user: str | None, *, beside: bool = False
) -> tuple[Engine, str]:
    """Open the backend that `target` names, with its spool and its housekeeper; return it and who acts.

    What is spooled comes into the store. `beside`: see `locate`.
    """
    given = None if user is None else check_name("user", user)
    location = find_location(target, beside=beside)
    if options.secret_files == "capture":  # noqa: S105
        _require_private(location)
    if options.on_failure == "raise" or location.catalog is None:
        engine = Engine(_open_catalog(location), location, options)
    else:
        engine = _open_with_spool(location, location.catalog, options)
    acting = _default_user(engine) if given is None else given
    if options.collect == "auto" and engine.catalog.durable:
        from lastgood.upkeep.housekeeping import Housekeeping

        engine.housekeeper = Housekeeping(engine, acting)
    return engine, acting


def _require_private(location: Location) -> None:
    is_private = True
    with suppress(OSError):  # a store that is away is not read by anybody
        is_private = location.is_private()
    if not is_private:
        raise ForbiddenError(
            f"others can read the store at {location.place}, so it is not given files that look like secrets",
            hint=f"`chmod -R go= {location.place}` makes it private; else leave secret_files out",
        )


def _default_user(engine: Engine) -> str:
    """Return who acts if nobody is named: the operating system's user; in a private store, which only one user and root
    can open, its one owner: a person is called otherwise under sudo and in a container."""
    user, catalog = operating_system_user(), engine.location.catalog
    with suppress(OSError, CheckpointError):  # a store that is away or damaged says so when it is read
        if catalog is not None and not catalog.stat().st_mode & 0o077:
            owners = {task.owner for task in engine.catalog.tasks(None)}
            return owners.pop() if len(owners) == 1 else user
    return user


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


def find_location(target: str | os.PathLike[str] | None, *, beside: bool = False) -> Location:
    with _worded_errors():
        return locate(target, beside=beside)


def open_to_read(target: str | os.PathLike[str] | None, user: str | None) -> Store:
    """Open a store that is there so that nothing is written, made or waited for; what is spooled is not seen."""
    given = None if user is None else check_name("user", user)
    location = find_location(target)
    options = Options(collect="never", on_failure="raise")
    engine = Engine(_open_catalog(location, read_only=True), location, options)
    return Store(engine, _default_user(engine) if given is None else given)


def _open_catalog(location: Location, *, read_only: bool = False) -> Catalog:
    """Open the catalog of the store that lies there; make it if there is none, unless it is only read."""
    from lastgood.catalog import open_catalog

    with _worded_errors(location.place):
        if location.catalog is not None and not read_only:
            make_folder(location.catalog.parent)
        return open_catalog(location.catalog, read_only=read_only)


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
def _worded_errors(place: Path | None = None) -> Iterator[None]:
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
            f"a store cannot be opened at {place or error.filename}: {error.strerror}",
            hint="look at the path and its permissions; LASTGOOD_STORE names another",
        ) from error
    except UnicodeError as error:
        raise InvalidError("the store's path is not valid text", hint="give it a name in UTF-8") from error
