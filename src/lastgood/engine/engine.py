"""The engine: what is open of one store. It has no user and no verbs for people; operations take it as an argument."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakSet

from lastgood.catalog.values import Actor, Committed
from lastgood.engine.cache import CheckpointCache
from lastgood.engine.options import Options
from lastgood.errors import LeaseError, UnavailableError
from lastgood.local.location import LocalFolder, Location
from lastgood.local.process import boot_id, is_alive, renew_after_fork
from lastgood.model.identity import SHA256, now
from lastgood.observe.alerts import Alarms
from lastgood.observe.log import current_correlation
from lastgood.observe.meter import Meter

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.commit import Draft, Ground, Splitters
    from lastgood.evidence.verifier import EvidenceVerifier
    from lastgood.files.plan import RestorePlan
    from lastgood.files.roots import Root
    from lastgood.model.checkpoint import Record
    from lastgood.model.task import Journal
    from lastgood.objects.contract import ObjectStore
    from lastgood.observe.alerts import Severity

T = TypeVar("T")

SYNC_MICROSECONDS = 60_000_000
"""After so long the system has written restored files by itself, as a rule: making sure of that costs little then."""
HOUSEKEEPING_INTERVAL = 256
"""Of a task's checkpoints, each so many: the save that makes it asks the housekeeper, in whichever process."""


class Closable(Protocol):
    def close(self) -> None: ...


class SpoolPort(Closable, Protocol):
    """The spool as a save sees it: it keeps checkpoints that the store cannot take, and brings them there later."""

    @property
    def folder(self) -> Path | None:
        """The folder that it lies in; None: in memory."""

    needs_disk: bool
    """Whether nothing is taken into memory alone: a command has ended before the store is back."""

    def make_way(self, owner: str | None = None, task_id: str | None = None) -> None:
        """Bring everything that is spooled into the store. UnavailableError while that is away."""

    def takes(self, error: UnavailableError) -> bool:
        """Return whether a save that failed with this error may be spooled."""

    def wants_files_of(self, draft: Draft, error: UnavailableError) -> bool:
        """Return whether it may be spooled, once its files are captured without the store."""

    def away(self, error: UnavailableError) -> None:
        """Note that the store did not answer."""

    def take(
        self,
        user: str,
        ground: Ground,
        head: Checkpoint | None,
        draft: Draft,
        splitters: Splitters,
        error: UnavailableError,
    ) -> tuple[Record, Committed]:
        """Keep a checkpoint. Raises `error` when it needs content that only the store has."""

    def count(self, owner: str, task_id: str) -> tuple[int, int]:
        """Return how many checkpoints of a task wait for the store, and how many were set aside."""

    def gauges(self) -> dict[str, float]:
        """Return the values of its gauges, by name."""


class Housekeeper(Closable, Protocol):
    """Collects garbage in the background. `start` begins that, when it is due."""

    start: Callable[[Engine, str], None]

    def note(self, sequence: int, new_bytes: int) -> None:
        """Note that a checkpoint was stored, and how many bytes it brought."""


class Engine:
    """The backends and services of one open store. Safe to use from several threads.

    `catalog` shows what is spooled, too, when there is a spool. `spool` and `housekeeper` are set by whoever opens
    the store.
    """

    blob_id = SHA256
    """How blobs are named. A catalog that says otherwise is refused when it is opened."""

    def __init__(self, catalog: Catalog, location: Location, options: Options) -> None:
        self.catalog = catalog
        self.location = location
        self.options = options
        self.meter = Meter()
        self.alerts = Alarms(self.meter, options.on_alert, options.redaction.text)
        self.cache = CheckpointCache(options.cache_checkpoints, options.cache_alert_bytes, self.alerts.warn_of_cache)
        self.local = LocalFolder(location)
        self.base_path = _absolute(options.base_path or os.curdir)
        self.unrecorded: dict[str, tuple[str, str]] = {}
        """Steps that failed while the store was away, by id: their owner, and why. The next step to begin ends them."""
        self.spool: SpoolPort | None = None
        self.housekeeper: Housekeeper | None = None
        self.sync_apart: Callable[[Journal, Sequence[tuple[Root, RestorePlan]]], None] | None = None
        """Makes restored files durable where this process ends too soon for that."""
        self._verifier: EvidenceVerifier | None = None
        self._opened: WeakSet[Closable] = WeakSet()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._verifier_lock = threading.Lock()

    @cached_property
    def objects(self) -> ObjectStore | None:
        """The packs; None in memory, where there are none."""
        from lastgood.objects.local import LocalObjects
        from lastgood.objects.verified import VerifiedObjects

        folder = self.location.objects
        return None if folder is None else VerifiedObjects(LocalObjects(folder))

    @cached_property
    def blobs(self) -> FileBlobs:
        """The content of files."""
        from lastgood.engine.blobs import FileBlobs

        return FileBlobs(self.catalog, self.objects, self.blob_id)

    def verifier(self) -> EvidenceVerifier:
        """Return the one verifier of this store's evidence: it keeps hashes and a helper process."""
        with self._verifier_lock:
            if self._verifier is None:
                from lastgood.evidence.verifier import EvidenceVerifier

                self._verifier = EvidenceVerifier(
                    self.base_path,
                    database=self.location.registry or self.location.catalog,
                    network=self.options.network,
                    confined=self.location.is_confined(),
                )
            return self._verifier

    def size(self) -> int:
        """Return the bytes that the catalog and the packs take on disk."""
        packs = self.objects.list("packs/") if self.objects is not None else ()
        return self.catalog.disk_use().size + sum(pack.size for pack in packs)

    def alert(
        self,
        message: str,
        task_id: str | None = None,
        error: Exception | None = None,
        *,
        code: str = "alert",
        severity: Severity = "error",
    ) -> None:
        self.alerts.send(message, task_id, error, code, severity)

    def close_with(self, opened: Closable) -> None:
        """Close `opened` with the store, if it still exists then."""
        self._opened.add(opened)

    def close(self) -> None:
        if self.housekeeper is not None:
            self.housekeeper.close()
        if self.spool is not None:
            self.spool.close()
        with self._verifier_lock:
            verifier, self._verifier = self._verifier, None
        if verifier is not None:
            verifier.close()
        for opened in list(self._opened):
            opened.close()
        self.local.close()
        self.catalog.close()


def acting(user: str) -> Actor:
    """Return who acts, in the correlation of this call."""
    return Actor(user, current_correlation())


def _absolute(path: str | os.PathLike[str]) -> str:
    """Return where `path` leads from here, now; `path` itself from a folder that is gone."""
    try:
        return os.path.abspath(path)  # noqa: PTH100
    except FileNotFoundError:
        return os.fspath(path)


# --- what processes that ended left behind ---------------------------------------------------------------------------


def retry_without_dead_lease(catalog: Catalog, work: Callable[[], T]) -> T:
    """Run `work`; if a lease blocks it and the holder's process is dead, release the lease and run it once more."""
    try:
        return work()
    except LeaseError as error:
        release_dead_lease(catalog, error)
    return work()


def release_dead_lease(catalog: Catalog, error: LeaseError) -> None:
    """Release the lease that `error` is about; raise `error` unless the holder's process is known to be dead."""
    lease = error.details["lease"]
    if lease is None or is_alive(lease.process) is not False:
        raise error
    catalog.release_lease(lease.token)


def interrupted_restores(engine: Engine, task_id: str, owner: str) -> list[Journal]:
    """Return the restores of a task's files that were begun and that nobody works on any more, and those whose files
    may be lost since the system has started anew, or when it does, because the disk did not confirm them."""
    pending = pending_restores(engine, task_id, owner)
    return [each for each in pending if each.made is None or each.doubted or not each.is_of(boot_id())]


def pending_restores(engine: Engine, task_id: str, owner: str) -> list[Journal]:
    """Return the restores of a task's files that are interrupted, or whose files are in place and should be durable by
    now. The locks of the folders tell who works on one: they are held by a process, whatever it and its host are
    called, and by no dead one."""
    mine = [each for each in engine.catalog.journals() if (each.task_id, each.owner) == (task_id, owner)]
    boot, since = boot_id() if mine else "", now() - SYNC_MICROSECONDS
    mine = [each for each in mine if (each.applied_at_us or 0) < since or each.doubted or not each.is_of(boot)]
    if not mine:
        return []
    from lastgood.files.roots import is_held

    locks = engine.local.path() / "locks"
    return [journal for journal in mine if not any(is_held(folder, locks) for folder in journal.folders)]
