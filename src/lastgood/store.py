"""The store: the one facade over everything that is kept.

Operations are imported by the methods that need them, so that a command that only lists starts at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import Actor, HistoryRange, StoredCheckpoint, StoreInfo
from lastgood.engine.cache import CacheFigures, CheckpointCache
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.filing import Filing
from lastgood.engine.lease import retry_without_dead_lease
from lastgood.engine.options import Options
from lastgood.errors import (
    CheckpointError,
    DiskFullError,
    IntegrityError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from lastgood.local.fork import renew_after_fork
from lastgood.local.location import locate, make_folder, options_for
from lastgood.model.checkpoint import PROVISIONAL, Attestation, Head, Record, decode_record
from lastgood.model.identity import check_flag, check_name, check_number, check_tag, check_text, check_type, now
from lastgood.model.step import OpenStep
from lastgood.model.task import BranchInfo, Event, EventKind, TaskInfo
from lastgood.observe.alerts import Alarms
from lastgood.observe.log import (
    current_correlation,
    is_logging,
    log_operation,
    log_warning,
    operating_system_user,
)
from lastgood.observe.meter import Meter
from lastgood.upkeep.housekeeping import Housekeeping

if TYPE_CHECKING:
    from lastgood.engine.browse import FileInfo
    from lastgood.engine.difference import FilesDiff
    from lastgood.engine.history import Entry
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.verification import Verification
    from lastgood.engine.workspace import Folders
    from lastgood.evidence.verifier import EvidenceVerifier
    from lastgood.model.evidence import EvidencePack
    from lastgood.observe.alerts import Severity
    from lastgood.observe.metrics import Metrics
    from lastgood.spool.replay import Replayed
    from lastgood.spool.spool import Spool, SpoolFigures
    from lastgood.task import Task
    from lastgood.upkeep.checking.reading import Progress
    from lastgood.upkeep.checking.report import CheckReport
    from lastgood.upkeep.collect import Collected
    from lastgood.upkeep.collect import Progress as Collecting
    from lastgood.upkeep.limit import Limited
    from lastgood.upkeep.repairing.report import RepairReport
    from lastgood.upkeep.usage import Usage


def open_store(target: str | os.PathLike[str] | None = None, *, user: str | None = None, **options: Any) -> Store:
    """Open a store, creating it if it is not there.

    `target` is a folder, a file ending in `.sqlite` or `.db`, or `":memory:"`. Without one: the environment's
    `LASTGOOD_STORE`, else what the nearest `lastgood.toml` upwards names, else the user's data directory.
    `user` is who acts (default: the operating system's user). For the rest see `Options`. Steps that were in
    flight when their process ended are said in the log; `store.recovery(task_id)` says what to do. A store that is
    away can be opened if checkpoints are spooled for it: these can be read and gone on from.
    """
    settings = Options(**{**options_for(target), **options})
    store = Store(open_backend(target, settings), user_or_default(user), settings)
    store.announce_interrupted()
    return store


def user_or_default(user: str | None) -> str:
    return operating_system_user() if user is None else check_name("user", user)


def open_backend(target: str | os.PathLike[str] | None, options: Options) -> Catalog:
    """As `open_catalog`; for a store that is away, and that something is spooled for, a catalog that refuses."""
    if options.on_failure == "raise":
        return open_catalog(target)
    from lastgood.spool.known import open_or_stand_in

    return open_or_stand_in(lambda: open_catalog(target), lambda: locate(target).catalog, options)


def open_catalog(target: str | os.PathLike[str] | None) -> Catalog:
    """The catalog of the store that `target` names; made if it is not there."""
    from lastgood.catalog.sqlite.catalog import SQLiteCatalog

    try:
        location = locate(target)
        if location.catalog is not None:
            make_folder(location.catalog.parent)
        return SQLiteCatalog(location.catalog)
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


class CheckpointPage(NamedTuple):
    """Some checkpoints, newest first, and how many there are in all."""

    checkpoints: list[Checkpoint]
    total: int


class Store:
    """Everything that is kept, as one user sees it. Safe to use from several threads; a context manager.

    Ids are unique per owner. Methods act on what the store's user owns; `owner=` names another.
    """

    def __init__(self, catalog: Catalog, user: str, options: Options | None = None) -> None:
        self.user = user
        self.options = options or Options()
        self.meter = Meter()
        self.alarms = Alarms(
            self.meter,
            self.options.thresholds,
            on_alert=self.options.on_alert,
            redact=self.options.redaction.text,
            cache_bytes=self.options.cache_alert_bytes,
            max_bytes=self.options.max_bytes,
        )
        self._cache = CheckpointCache(self.options.cache_checkpoints, self.alarms.check_cache)
        self.spool = self._open_spool(catalog)
        self.catalog = catalog if self.spool is None else self.spool.catalog
        self._verifier: EvidenceVerifier | None = None
        self.filing = Filing(self.catalog)
        self.housekeeping = Housekeeping(self) if self.options.collect == "auto" and catalog.durable else None
        self._base_path = _absolute(self.options.base_path or os.curdir)
        self.renew_locks()
        renew_after_fork(self)

    # --- tasks ---------------------------------------------------------------------------------------------

    def task(
        self,
        task_id: str,
        *,
        workspace: Folders | None = None,
        watch: bool = False,
        owner: str | None = None,
    ) -> Task:
        """A handle on a task, or on one branch of it by that branch's id. Nothing is written before a save.

        With a `workspace` (a folder, or several: {"app": "./app", "infra": "../infra"}) each save captures the files in
        it, too, and a restore brings them back. With `watch` the folder is watched for as long as the store is open,
        so that a save costs the changed paths and not the tree (Linux; elsewhere it changes nothing).
        """
        from lastgood.task import Task

        watch = check_flag("watch", watch)
        return Task(self, check_name("task id", task_id), self._owner(owner), workspace, watch=watch)

    def tasks(self, *, owner: str | None = None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        """Newest first. `after` is the number of the last one seen; without `owner`, everybody's."""
        owner = None if owner is None else check_name("owner", owner)
        return self.catalog.tasks(owner, check_number("after", after), check_number("limit", limit, low=1))

    def delete_task(self, task_id: str, *, owner: str | None = None) -> int:
        """Remove a task with all of its checkpoints, for good. How many it had."""
        about = (self._owner(owner), check_name("task id", task_id), self.actor())
        count = retry_without_dead_lease(self.catalog, lambda: self.catalog.delete_task(*about))
        self.meter.count("deletes", {"what": "task"})
        self.log("delete_task", task_id)
        return count

    # --- checkpoints ---------------------------------------------------------------------------------------

    def get_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Checkpoint:
        """One checkpoint, also when it is deleted. Raises NotFoundError; IntegrityError if its record is damaged."""
        return self.wrap_intact(self.stored(checkpoint_id, self._owner(owner)))

    def find_checkpoint(self, name: str, task_id: str | None = None, *, owner: str | None = None) -> Checkpoint:
        """By any name people use: an id or the beginning of one, a tag, `HEAD`, `@12`, any of them with `~2`."""
        from lastgood.engine.revision import resolve

        owner = self._owner(owner)
        task_id = None if task_id is None else check_name("task id", task_id)
        return self.get_checkpoint(resolve(self.catalog, owner, name, task_id), owner=owner)

    def list_checkpoints(
        self,
        task_id: str,
        limit: int = 100,
        checkpoint_type: str | None = None,
        *,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Checkpoint]:
        """Newest first: a task's on all branches, or by a branch's id its ancestors and its own.

        At most 1,000 at a time; `before` is the sequence of the last one seen.
        """
        return self.page_checkpoints(task_id, limit, checkpoint_type, before=before, owner=owner).checkpoints

    def page_checkpoints(
        self,
        task_id: str,
        limit: int = 100,
        checkpoint_type: str | None = None,
        *,
        before: int | None = None,
        owner: str | None = None,
    ) -> CheckpointPage:
        """As `list_checkpoints`, with the exact total."""
        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = self.line(task_id, self._owner(owner))
        before = None if before is None else check_number("before", before)
        rows = self.catalog.checkpoints(line, before=before, limit=check_number("limit", limit, low=1), type=kind)
        return CheckpointPage([self.wrap(row) for row in rows], self.catalog.count(line, kind))

    def get_last_verified_checkpoint(
        self, task_id: str, checkpoint_type: str | None = None, *, owner: str | None = None
    ) -> Checkpoint | None:
        """The newest on the active branch whose last recorded verification held."""
        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = self.line(task_id, self._owner(owner), active=True)
        row = self.catalog.last_verified(line, kind)
        return None if row is None else self.wrap(row)

    def last_good(
        self,
        task_id: str,
        *,
        verified: bool = False,
        checkpoint_type: str | None = None,
        owner: str | None = None,
    ) -> Checkpoint | None:
        """The newest on the active branch that is intact and whose evidence holds now. See `Task.last_good`."""
        from lastgood.engine.recovery import find_last_good

        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = self.line(task_id, self._owner(owner), active=True)
        return find_last_good(self, line, verified=check_flag("verified", verified), type=kind)

    def verify_checkpoint(self, checkpoint_id: str, *, live: bool = False, owner: str | None = None) -> bool:
        """Whether it is verified now: every stored byte is what was saved, there is evidence, and it holds.

        Evidence about files that it captured itself is checked against these; with `live`, against the disk. What
        checking gave is recorded, unless it was live. One without evidence is never verified; see `check_checkpoint`.
        """
        return self.check_checkpoint(checkpoint_id, live=live, owner=owner).verified

    def check_checkpoint(self, checkpoint_id: str, *, live: bool = False, owner: str | None = None) -> Verification:
        """As `verify_checkpoint`, with all that was found: damage in words, and each piece of evidence."""
        from lastgood.engine.verification import verify_stored

        stored = self.stored(checkpoint_id, self._owner(owner))
        return verify_stored(self, stored, files=True, live=check_flag("live", live))

    def examine_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> list[str]:
        """What is wrong with its stored bytes (record, place, lineage, attestations, content), in words."""
        from lastgood.engine.verify import examine

        return examine(self.catalog, self.stored(checkpoint_id, self._owner(owner)), self.filing.blobs)

    def rollback_to_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Any:
        """Go back to a checkpoint that verifies: its state. The task's next checkpoint continues from there.

        Raises EvidenceError or IntegrityError (both are CheckpointErrors) if it does not verify. Touches no files.
        """
        owner = self._owner(owner)
        chosen = self.get_checkpoint(checkpoint_id, owner=owner)
        return self.task(chosen.task_id, owner=owner).roll_back(chosen).state

    @property
    def base_path(self) -> str:
        """Where relative paths of evidence begin."""
        return self._base_path

    def list_files(self, checkpoint_id: str, path: str = "", *, owner: str | None = None) -> list[FileInfo]:
        """What lies in a folder of a checkpoint. With several roots, paths look like `app:src/main.py`."""
        from lastgood.engine.browse import list_files, require_files

        roots = require_files(self.get_checkpoint(checkpoint_id, owner=owner).record)
        return list_files(self.filing.blobs, roots, path)

    def read_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> bytes:
        """The content of a file at a checkpoint, checked; where a link points. Raises NotFoundError."""
        return b"".join(self.stream_file(checkpoint_id, path, owner=owner))

    def stream_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> Iterator[bytes]:
        """As `read_file`, piece by piece: memory does not grow with the file."""
        from lastgood.engine.browse import read_file, require_files

        roots = require_files(self.get_checkpoint(checkpoint_id, owner=owner).record)
        return read_file(self.filing.blobs, roots, path)

    def compare_files(
        self, before: str | None, after: str, *, paths: Sequence[str] | None = None, owner: str | None = None
    ) -> FilesDiff:
        """How the files of two checkpoints differ. `before` None: against its parent (everything, when it has none)."""
        from lastgood.engine.browse import require_files
        from lastgood.engine.difference import FilesDiff

        new = self.get_checkpoint(after, owner=owner)
        old_id = new.parent_id if before is None else before
        old = None if old_id is None else self.stored(old_id, self._owner(owner))
        earlier = None if old is None or old.data is None else self.wrap_intact(old)
        if before is None:
            roots = (earlier.record.files or ()) if earlier else ()
        else:
            roots = require_files(self.get_checkpoint(before, owner=owner).record)
        return FilesDiff(roots, require_files(new.record), self.filing.blobs.read, paths)

    def tag(self, checkpoint_id: str, name: str, *, move: bool = False, owner: str | None = None) -> None:
        """Name a checkpoint. Tagged ones are kept by retention. One name, one checkpoint of a task."""
        self._attest([checkpoint_id], "tag", {"name": check_tag("tag", name), "move": check_flag("move", move)}, owner)

    def untag(self, checkpoint_id: str, name: str, *, owner: str | None = None) -> None:
        self._attest([checkpoint_id], "untag", {"name": check_tag("tag", name)}, owner)

    def tags(self, task_id: str, *, owner: str | None = None) -> dict[str, Head]:
        """The tags of a task, and where the checkpoint stands that each names."""
        return self.catalog.tags(self.line(task_id, self._owner(owner)).task)

    def delete_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> bool:
        """Mark as deleted: no longer listed, still a parent. False if it was already. Refuses the active head."""
        if self.stored(checkpoint_id, self._owner(owner)).deleted:
            return False
        self._attest([checkpoint_id], "deleted", {}, owner)
        self.meter.count("deletes", {"what": "checkpoint"})
        return True

    def undelete_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> None:
        self._attest([checkpoint_id], "undeleted", {}, owner)

    def purge_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> None:
        """Remove its record for good. A tombstone stays, so that descendants still verify and load.

        Refuses the active head, and what a restore of files that is under way, or was interrupted, may go back to.
        """
        owner = self._owner(owner)
        task_id = self.stored(checkpoint_id, self._owner(owner)).task_id
        self.catalog.purge(owner, checkpoint_id, self.actor())
        self._cache.drop(owner, checkpoint_id)
        self.meter.count("deletes", {"what": "purged"})
        self.log("purge", task_id)

    def delete_old_checkpoints(self, task_id: str, keep_count: int, *, owner: str | None = None) -> int:
        """Delete all but the newest `keep_count`; how many. The active head, tagged ones and the last verified stay."""
        from lastgood.upkeep.retention import select_old

        owner = self._owner(owner)
        with self.catalog.queue():
            old = select_old(self.catalog, self.line(task_id, owner), keep_count)
            self._attest(old, "deleted", {"by": "retention"}, owner)
        self.meter.count("deletes", {"what": "checkpoint"}, len(old))
        return len(old)

    def attestations(self, checkpoint_id: str, *, owner: str | None = None) -> list[Attestation]:
        """What was said about a checkpoint since it was made, oldest first."""
        return [attestation for attestation, _ in self.catalog.attestations(self._owner(owner), checkpoint_id)]

    def events(self, task_id: str, *, after: int = 0, limit: int = 100, owner: str | None = None) -> list[Event]:
        """A task's log, oldest first. `after` is the sequence of the last one seen."""
        task = self.line(task_id, self._owner(owner)).task
        return self.catalog.events(task, after=check_number("after", after), limit=check_number("limit", limit, low=1))

    def history(
        self, task_id: str, *, before: int | None = None, limit: int = 100, owner: str | None = None, **wanted: Any
    ) -> list[Entry]:
        """All that happened to a task, newest first; by a branch's id, what its ancestors knew and its own.

        `kinds`, `types`, `actor`, `checkpoint_id`, `iteration`, `since` and `until` narrow it down; `before` is the
        sequence of the last entry seen. At most 1,000 at a time.
        """
        from lastgood.engine.history import filter_of, read_history

        line = self.line(task_id, self._owner(owner))
        return read_history(self.catalog, line, filter_of(wanted), before=before, limit=limit)

    # --- branches and steps --------------------------------------------------------------------------------

    def branches(self, task_id: str, *, owner: str | None = None) -> list[BranchInfo]:
        """Of a task, oldest first. Deleted ones are told as such, while others descend from what is left of them."""
        return self.catalog.branches(self.line(task_id, self._owner(owner)).task)

    def delete_branch(self, branch_id: str, *, owner: str | None = None) -> int:
        """Delete a branch and what only it has; how many checkpoints. Tagged ones stay. Refuses the active branch."""
        owner = self._owner(owner)
        about = (owner, check_name("branch id", branch_id), self.actor())
        count = retry_without_dead_lease(self.catalog, lambda: self.catalog.delete_branch(*about))
        self.meter.count("deletes", {"what": "branch"})
        self.log("delete_branch", branch_id, checkpoints=count)
        return count

    def open_steps(self, task_id: str | None = None, *, owner: str | None = None) -> list[OpenStep]:
        """Steps that were begun and not ended, oldest first; also those whose process is gone."""
        task_id = None if task_id is None else check_name("task id", task_id)
        return self.catalog.open_steps(self._owner(owner), task_id)

    def abandon_step(self, step_id: str, reason: str = "", *, owner: str | None = None) -> None:
        """Give up a step that will not be committed; the log keeps it."""
        self.end_step(step_id, "step_abandoned", self.options.redaction.text(check_text("reason", reason)), owner=owner)

    def recovery(self, task_id: str, *, owner: str | None = None) -> Recovery:
        """What was in flight, what is the last good checkpoint, and what to do."""
        from lastgood.engine.recovery import examine_task

        return examine_task(self, check_name("task id", task_id), self._owner(owner))

    # --- the store itself ----------------------------------------------------------------------------------

    def info(self) -> StoreInfo:
        return self.catalog.info()

    def cache_figures(self) -> CacheFigures:
        return self._cache.figures()

    def metrics(self) -> Metrics:
        """What this process has counted of the store since it was opened here: saves, restores, verifications, cache,
        spool, size. `.to_prometheus()` and `.to_dict()` tell it to others."""
        figures = self.cache_figures()
        names = ("entries", "bytes", "hits", "misses", "evictions")
        values: dict[str, float | None] = {f"cache_{name}": getattr(figures, name) for name in names}
        values["store_max_bytes"] = self.options.max_bytes
        with suppress(CheckpointError, OSError):  # the backend is away, or the store is closed: nobody knows its size
            size = values["store_bytes"] = self.meter.remember_size(self.size)
            self.alarms.check_size(int(size))
        found = self.meter.snapshot(values)
        self.alarms.check_spool(int(found.value("spool_checkpoints")), int(found.value("spool_bytes")))
        return found

    def size(self) -> int:
        """Bytes on disk, of the catalog and the packs."""
        objects = self.filing.objects
        packs = objects.list("packs/") if objects is not None else ()
        return self.catalog.size() + sum(pack.size for pack in packs)

    def usage(self, task_id: str | None = None, *, owner: str | None = None) -> Usage:
        """How many bytes the store takes, what each task has of them, and what each checkpoint adds and frees.

        Everybody's, or only an owner's; of a task, or by a branch's id of that branch. Costs time and memory by what is
        stored, not by how often it is shared; what is in files is not read.
        """
        from lastgood.upkeep.usage import measure

        if task_id is None:
            found = measure(self.catalog, self.filing.blobs)
            return found if owner is None else found.of(check_name("owner", owner))
        line = self.line(task_id, self._owner(owner))
        branch_id = line.branch.id if line.branch else None
        return measure(self.catalog, self.filing.blobs).of(line.task.owner, line.task.id, branch_id)

    def collect(self, *, grace: float = 3600, dry_run: bool = False, progress: Collecting | None = None) -> Collected:
        """Remove what no checkpoint needs, whoever's it was, and give the room back; what that came to.

        Checkpoints that were deleted at least `grace` seconds ago are purged first. Content that nobody needs is
        condemned, and removed by a run at least `grace` seconds later; with 0 both happen at once, which is as safe:
        a save that relies on what is just being removed reads its files again. Others may save meanwhile, in any
        process. With `dry_run` nothing changes. `progress` is called with what is being done, how much of it, and of
        how much. IntegrityError when something is damaged that leads to others: then nothing is removed.
        """
        from lastgood.upkeep.collect import collect

        return collect(self, grace=grace, dry_run=dry_run, progress=progress)

    def limit(self, max_bytes: int, *, dry_run: bool = False, progress: Collecting | None = None) -> Limited:
        """Bring the store below `max_bytes` on disk: garbage goes first, then deleted checkpoints, then the oldest.

        Heads of active branches, tagged checkpoints and the last verified of each task stay, and so does history that
        would free nothing. What goes is purged: it cannot be brought back. With `dry_run` nothing changes, and the
        answer says what each would free. When it cannot be met the answer says why, and an alert is sent.
        """
        from lastgood.upkeep.limit import limit

        return limit(self, max_bytes, dry_run=dry_run, progress=progress)

    def check(
        self,
        *,
        read_data: bool = False,
        sample: float | None = None,
        seed: int | None = None,
        progress: Progress | None = None,
    ) -> CheckReport:
        """Whether everything in the store is what was stored, whoever owns it; what is damaged, who needs it, and what
        still works. Changes nothing, and does not raise for damage.

        By structure: the database, records, chains, places, references, directories, packs and their indexes. With
        `read_data` every byte of content is read, too; with `sample` (0.05) a random share of the blobs, which `seed`
        repeats. `progress` is called with the bytes read and to be read.
        """
        from lastgood.upkeep.check import check_store

        return check_store(
            self.catalog, self.filing.objects, read_data=read_data, sample=sample, seed=seed, progress=progress
        )

    def repair(
        self, *, accept_loss: bool = False, dry_run: bool = False, progress: Progress | None = None
    ) -> RepairReport:
        """Mend what can be mended: every byte is read, then the blob index is set right by the packs, counters and the
        like by records and attestations, and damaged or missing content is looked for in other packs, in other tasks
        and in the workspaces of this host. What nobody has any more is given up: reads refuse it, a later save of the
        same content stores it anew. Nothing is invented. The catalog is copied before it is changed, and damaged packs
        are kept, both in `quarantine` beside the store.

        Lost commits raise LostCommitsError unless `accept_loss`. With `dry_run` nothing is changed.
        """
        from lastgood.upkeep.repair import repair_store

        return repair_store(self, accept_loss=accept_loss, dry_run=dry_run, progress=progress)

    def spool_figures(self) -> SpoolFigures:
        """What waits for the store, because it could not take it."""
        from lastgood.spool.spool import SpoolFigures

        return SpoolFigures() if self.spool is None else self.spool.figures()

    def replay(self) -> Replayed:
        """Bring what is spooled into the store now; what became of it. UnavailableError while the store is away."""
        from lastgood.spool.replay import Replayed

        return Replayed() if self.spool is None else self.spool.replay()

    def close(self) -> None:
        if self.housekeeping is not None:
            self.housekeeping.close()
        if self.spool is not None:
            self.spool.close()
        with self._verifier_lock:
            verifier, self._verifier = self._verifier, None
        if verifier is not None:
            verifier.close()
        self.filing.close()
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- for the rest of the engine ------------------------------------------------------------------------

    def actor(self) -> Actor:
        return Actor(self.user, current_correlation())

    def line(self, id: str, owner: str, *, active: bool = False) -> HistoryRange:
        """What a task's or a branch's id stands for. With `active`, a task stands for its active branch."""
        position = self.catalog.position(owner, check_name("task id", id))
        if position is None:
            raise NotFoundError(f"there is no task {id!r}", hint="`lastgood tasks` lists them")
        return HistoryRange(position.task, position.branch if active or position.by_branch else None)

    def wrap_intact(self, stored: StoredCheckpoint) -> Checkpoint:
        checkpoint = self.wrap(stored)
        if not checkpoint.integrity_ok:
            raise IntegrityError(
                f"checkpoint {stored.id} is damaged: its record does not match its checksum",
                hint="go back to an earlier checkpoint; this one cannot be trusted",
                checkpoint_id=stored.id,
            )
        return checkpoint

    def wrap(self, stored: StoredCheckpoint) -> Checkpoint:
        """A checkpoint to hold; a damaged record shows nothing but its id and place."""
        if stored.data is None:
            raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="its tombstone keeps the lineage whole")
        try:
            record = decode_record(stored.data, stored.checksum, f"checkpoint {stored.id}")
            intact = (record.id, record.task_id) == (stored.id, stored.task_id)
            intact = intact and stored.placement.digest(stored.checksum) == stored.placement_digest
        except IntegrityError:
            record, intact = Record(id=stored.id, task_id=stored.task_id), False

        return self.hold(stored, record, integrity_ok=intact)

    def hold(
        self,
        stored: StoredCheckpoint,
        record: Record,
        *,
        integrity_ok: bool = True,
        evidence_pack: EvidencePack | None = None,
    ) -> Checkpoint:
        return Checkpoint(
            record,
            stored.checksum,
            stored.placement,
            _Stored(self.catalog, self._cache, stored, record),
            verified=stored.verified,
            verified_at=stored.verified_at,
            tags=stored.tags,
            deleted=stored.deleted,
            integrity_ok=integrity_ok,
            status="stored" if stored.placement.sequence < PROVISIONAL else "spooled",
            evidence_pack=evidence_pack,
        )

    def remember(self, stored: StoredCheckpoint, blobs: dict[bytes, bytes]) -> None:
        """What was just saved is most likely looked at next."""
        self._cache.put(stored.owner, stored.id, blobs)

    def verifier(self) -> EvidenceVerifier:
        """One for all of this store's evidence: it keeps hashes and a helper process."""
        with self._verifier_lock:
            if self._verifier is None:
                from lastgood.evidence.verifier import EvidenceVerifier

                self._verifier = EvidenceVerifier(
                    self._base_path, database=self.catalog.file, network=self.options.network
                )
            return self._verifier

    def end_step(self, step_id: str, kind: EventKind, reason: str, *, owner: str | None) -> None:
        owner = self._owner(owner)
        self.catalog.end_step(owner, check_name("step id", step_id), kind, {"reason": reason}, self.actor())
        self.log(kind, step_id)

    def _open_spool(self, catalog: Catalog) -> Spool | None:
        if self.options.on_failure == "raise" or catalog.file is None:
            return None
        from lastgood.spool.spool import Spool

        spool = Spool(self, catalog, catalog.file)
        for name, ask in spool.gauges().items():
            self.meter.register_gauge(name, "", ask)
        return spool

    def announce_interrupted(self) -> None:
        """Bring what is spooled into the store, and say in the log which steps were in flight when their process ended
        (A16)."""
        if self.spool is not None:
            self.spool.greet()
        with suppress(CheckpointError):  # what is wrong with the store is said by whoever reads from it
            steps = self.catalog.open_steps(None)
            if not steps:
                return
            from lastgood.engine.recovery import interrupted_steps

            for step in interrupted_steps(steps):
                log_warning(
                    f"the step {step.name!r} of {step.task_id!r} was in flight when its process ended",
                    task_id=step.task_id,
                    step_id=step.id,
                )

    def stored(self, checkpoint_id: str, owner: str) -> StoredCheckpoint:
        stored = self.catalog.checkpoint(owner, check_name("checkpoint id", checkpoint_id))
        if stored is None:
            raise NotFoundError(f"there is no checkpoint {checkpoint_id!r}", hint="`lastgood log` lists them")
        return stored

    def renew_locks(self) -> None:
        self._verifier_lock = threading.Lock()

    def alert(
        self,
        message: str,
        task_id: str | None = None,
        error: Exception | None = None,
        *,
        code: str = "alert",
        severity: Severity = "error",
    ) -> None:
        self.alarms.send(message, task_id, error, code, severity)

    def log(self, action: str, task_id: str, **more: Any) -> None:
        if is_logging():
            correlation_id = current_correlation()
            log_operation(action, user=self.user, task_id=task_id, correlation_id=correlation_id, at=now(), **more)

    def _owner(self, owner: str | None) -> str:
        return self.user if owner is None else check_name("owner", owner)

    def _attest(self, ids: list[str], kind: str, data: dict[str, Any], owner: str | None) -> None:
        if ids:
            owner = self._owner(owner)
            task_id = self.stored(ids[0], owner).task_id
            self.catalog.attest(owner, ids, kind, data, self.actor())
            self.log(kind, task_id, checkpoints=ids)


def _absolute(path: str | os.PathLike[str]) -> str:
    """Where `path` leads from here, now. From a folder that is gone it leads nowhere: then as it is."""
    try:
        return os.path.abspath(path)  # noqa: PTH100
    except FileNotFoundError:
        return os.fspath(path)


class _Stored:
    """The source of a checkpoint that lies in a catalog."""

    __slots__ = ("_cache", "_catalog", "_record", "_stored")

    def __init__(self, catalog: Catalog, cache: CheckpointCache, stored: StoredCheckpoint, record: Record) -> None:
        self._catalog = catalog
        self._cache = cache
        self._stored = stored
        self._record = record

    def load(self, name: str, classes: bool) -> Any:
        from lastgood.engine.states import load_value

        try:
            return load_value(self._catalog, self._cache, self._stored, self._record, name, classes=classes)
        except IntegrityError:
            now = self._catalog.checkpoint(self._stored.owner, self._stored.id)
            if now is None or now.data is None:
                raise NotFoundError(f"checkpoint {self._stored.id!r} was purged", hint="it is gone for good") from None
            raise

    def verification(self) -> Attestation | None:
        found = self._catalog.attestations(self._stored.owner, self._stored.id)
        for attestation, digest in reversed(found):
            if attestation.kind == "verification":
                return attestation if attestation.digest(self._stored.checksum) == digest else None
        return None
