"""The store: the one facade over everything that is kept.

Operations are imported by the methods that need them, so that a command that only lists starts at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from lastgood.catalog.values import StoreInfo
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.engine import Engine, acting, interrupted_restores, retry_without_dead_lease
from lastgood.engine.load import attest, find_line, find_stored, load_checkpoint, wrap, wrap_intact
from lastgood.errors import CheckpointError
from lastgood.model.checkpoint import Head
from lastgood.model.identity import check_flag, check_name, check_number, check_tag, check_text, check_type
from lastgood.model.task import BranchInfo, Event, OpenStep, TaskInfo
from lastgood.observe.log import log_action

if TYPE_CHECKING:
    from lastgood.engine.browse import FileInfo
    from lastgood.engine.difference import FilesDiff
    from lastgood.engine.history import Entry
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.verify import Verification
    from lastgood.engine.workspace import Folders
    from lastgood.observe.meter import Meter
    from lastgood.observe.metrics import Metrics
    from lastgood.spool.replay import Replayed
    from lastgood.spool.spool import Spool, SpoolFigures
    from lastgood.task import Task
    from lastgood.upkeep.backup import BackedUp
    from lastgood.upkeep.check_content import Progress
    from lastgood.upkeep.collect import Collected
    from lastgood.upkeep.collect import Progress as Collecting
    from lastgood.upkeep.report import CheckReport, RepairReport
    from lastgood.upkeep.usage import Limited, Usage


class CheckpointPage(NamedTuple):
    """Some checkpoints, newest first, and how many there are in all."""

    checkpoints: list[Checkpoint]
    total: int


class Store:
    """Everything that is kept, as one user sees it. Safe to use from several threads; a context manager.

    Ids are unique per owner. Methods act on what the store's user owns; `owner=` names another.
    """

    def __init__(self, engine: Engine, user: str) -> None:
        self._engine = engine
        self.user = user

    # --- tasks ---------------------------------------------------------------------------------------------

    def task(
        self,
        task_id: str,
        *,
        workspace: Folders | None = None,
        watch: bool = False,
        owner: str | None = None,
    ) -> Task:
        """Return a handle on a task, or on one branch of it by that branch's id. Nothing is written before a save.

        With a `workspace` (a folder, or several: {"app": "./app", "infra": "../infra"}) each save captures the files in
        it, too, and a restore brings them back. With `watch` the folder is watched for as long as the store is open,
        so that a save costs the changed paths and not the tree (Linux; elsewhere it changes nothing).
        """
        from lastgood.task import Task

        task = Task(
            self._engine,
            self.user,
            check_name("task id", task_id),
            self._owner(owner),
            workspace,
            watch=check_flag("watch", watch),
        )
        if workspace is not None:
            self._recover_files(task)
        return task

    def tasks(self, *, owner: str | None = None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        """List tasks, newest first. `after` is the number of the last one seen; without `owner`, everybody's."""
        owner = None if owner is None else check_name("owner", owner)
        return self._engine.catalog.tasks(owner, check_number("after", after), check_number("limit", limit, low=1))

    def delete_task(self, task_id: str, *, owner: str | None = None) -> int:
        """Remove a task with all of its checkpoints, for good. How many it had."""
        about = (self._owner(owner), check_name("task id", task_id), acting(self.user))
        count = retry_without_dead_lease(self._engine.catalog, lambda: self._engine.catalog.delete_task(*about))
        log_action(self.user, "delete_task", task_id)
        return count

    # --- checkpoints ---------------------------------------------------------------------------------------

    def get_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Checkpoint:
        """Return a checkpoint, also a deleted one. Raises NotFoundError; IntegrityError if its record is damaged."""
        return load_checkpoint(self._engine, self._owner(owner), checkpoint_id)

    def find_checkpoint(self, name: str, task_id: str | None = None, *, owner: str | None = None) -> Checkpoint:
        """By any name people use: an id or the beginning of one, a tag, `HEAD`, `@12`, any of them with `~2`."""
        from lastgood.engine.load import resolve

        owner = self._owner(owner)
        task_id = None if task_id is None else check_name("task id", task_id)
        return self.get_checkpoint(resolve(self._engine.catalog, owner, name, task_id), owner=owner)

    def list_checkpoints(
        self,
        task_id: str,
        limit: int = 100,
        checkpoint_type: str | None = None,
        *,
        before: int | None = None,
        owner: str | None = None,
    ) -> list[Checkpoint]:
        """List checkpoints, newest first: a task's on all branches, or by a branch's id its ancestors and its own.

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
        """List checkpoints as `list_checkpoints` does, with the exact total."""
        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = find_line(self._engine.catalog, self._owner(owner), task_id)
        before = None if before is None else check_number("before", before)
        rows = self._engine.catalog.checkpoints(
            line, before=before, limit=check_number("limit", limit, low=1), type=kind
        )
        return CheckpointPage([wrap(self._engine, row) for row in rows], self._engine.catalog.count(line, kind))

    def get_last_verified_checkpoint(
        self, task_id: str, checkpoint_type: str | None = None, *, owner: str | None = None
    ) -> Checkpoint | None:
        """Return the newest on the active branch whose last recorded verification held."""
        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = find_line(self._engine.catalog, self._owner(owner), task_id, active=True)
        row = next(iter(self._engine.catalog.checkpoints(line, limit=1, type=kind, verified=True)), None)
        return None if row is None else wrap(self._engine, row)

    def last_good(
        self,
        task_id: str,
        *,
        verified: bool = False,
        checkpoint_type: str | None = None,
        owner: str | None = None,
    ) -> Checkpoint | None:
        """Find the newest on the active branch that is intact and whose evidence holds now. See `Task.last_good`."""
        from lastgood.engine.recovery import find_last_good

        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = find_line(self._engine.catalog, self._owner(owner), task_id, active=True)
        return find_last_good(self._engine, self.user, line, verified=check_flag("verified", verified), type=kind)

    def verify_checkpoint(self, checkpoint_id: str, *, live: bool = False, owner: str | None = None) -> bool:
        """Return whether it is verified now: every stored byte is what was saved, there is evidence, and it holds.

        Evidence about files that it captured itself is checked against these; with `live`, against the disk. What
        checking gave is recorded, unless it was live. One without evidence is never verified; see `check_checkpoint`.
        """
        return self.check_checkpoint(checkpoint_id, live=live, owner=owner).verified

    def check_checkpoint(
        self, checkpoint_id: str, *, evidence: bool = True, live: bool = False, owner: str | None = None
    ) -> Verification:
        """Verify it, and return all that was found: damage in words, and each piece of evidence.

        Without `evidence` only the stored bytes are checked (record, place, lineage, attestations, content), and
        nothing is recorded.
        """
        from lastgood.engine.verify import check_bytes, verify_stored

        stored = find_stored(self._engine.catalog, self._owner(owner), checkpoint_id)
        if not check_flag("evidence", evidence):
            return check_bytes(self._engine, stored)
        return verify_stored(self._engine, self.user, stored, files=True, live=check_flag("live", live))

    def rollback_to_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Any:
        """Go back to a checkpoint that verifies: its state. The task's next checkpoint continues from there.

        Raises EvidenceError or IntegrityError (both are CheckpointErrors) if it does not verify. Touches no files.
        """
        owner = self._owner(owner)
        chosen = self.get_checkpoint(checkpoint_id, owner=owner)
        return self.task(chosen.task_id, owner=owner).roll_back(chosen).state

    def list_files(self, checkpoint_id: str, path: str = "", *, owner: str | None = None) -> list[FileInfo]:
        """List what lies in a folder of a checkpoint. With several roots, paths look like `app:src/main.py`."""
        from lastgood.engine.browse import list_files
        from lastgood.engine.load import require_files

        roots = require_files(self.get_checkpoint(checkpoint_id, owner=owner).record)
        return list_files(self._engine.blobs, roots, path)

    def read_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> bytes:
        """Return the content of a file at a checkpoint, checked; of a link, where it points. Raises NotFoundError."""
        return b"".join(self.stream_file(checkpoint_id, path, owner=owner))

    def stream_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> Iterator[bytes]:
        """Yield the content of a file, piece by piece: memory does not grow with the file."""
        from lastgood.engine.browse import read_file
        from lastgood.engine.load import require_files

        roots = require_files(self.get_checkpoint(checkpoint_id, owner=owner).record)
        return read_file(self._engine.blobs, roots, path)

    def compare_files(
        self, before: str | None, after: str, *, paths: Sequence[str] | None = None, owner: str | None = None
    ) -> FilesDiff:
        """Compare the files of two checkpoints. `before` None: with those of its parent, if it has one."""
        from lastgood.engine.difference import FilesDiff
        from lastgood.engine.load import require_files

        new = self.get_checkpoint(after, owner=owner)
        old_id = new.parent_id if before is None else before
        old = None if old_id is None else find_stored(self._engine.catalog, self._owner(owner), old_id)
        earlier = None if old is None or old.data is None else wrap_intact(self._engine, old)
        if before is None:
            roots = (earlier.record.files or ()) if earlier else ()
        else:
            roots = require_files(self.get_checkpoint(before, owner=owner).record)
        return FilesDiff(roots, require_files(new.record), self._engine.blobs.read, paths)

    def tag(self, checkpoint_id: str, name: str, *, move: bool = False, owner: str | None = None) -> None:
        """Name a checkpoint. Tagged ones are kept by retention. One name, one checkpoint of a task."""
        self._attest([checkpoint_id], "tag", {"name": check_tag("tag", name), "move": check_flag("move", move)}, owner)

    def untag(self, checkpoint_id: str, name: str, *, owner: str | None = None) -> None:
        self._attest([checkpoint_id], "untag", {"name": check_tag("tag", name)}, owner)

    def tags(self, task_id: str, *, owner: str | None = None) -> dict[str, Head]:
        """Return the tags of a task, and where the checkpoint stands that each names."""
        return self._engine.catalog.tags(find_line(self._engine.catalog, self._owner(owner), task_id).task)

    def delete_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> bool:
        """Mark as deleted: no longer listed, still a parent. False if it was already. Refuses the active head."""
        if find_stored(self._engine.catalog, self._owner(owner), checkpoint_id).deleted:
            return False
        self._attest([checkpoint_id], "deleted", {}, owner)
        return True

    def undelete_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> None:
        self._attest([checkpoint_id], "undeleted", {}, owner)

    def purge_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> None:
        """Remove its record for good. A tombstone stays, so that descendants still verify and load.

        Refuses the active head, and what a restore of files that is under way, or was interrupted, may go back to.
        """
        owner = self._owner(owner)
        task_id = find_stored(self._engine.catalog, self._owner(owner), checkpoint_id).task_id
        self._engine.catalog.purge([(owner, checkpoint_id)], acting(self.user), all_or_none=True)
        self._engine.cache.drop(owner, checkpoint_id)
        log_action(self.user, "purge", task_id)

    def delete_old_checkpoints(self, task_id: str, keep_count: int, *, owner: str | None = None) -> int:
        """Delete all but the newest `keep_count`; how many. The active head, tagged ones and the last verified stay."""
        from lastgood.upkeep.usage import delete_old

        owner = self._owner(owner)
        return delete_old(self._engine, self.user, owner, task_id, keep_count)

    def events(self, task_id: str, *, after: int = 0, limit: int = 100, owner: str | None = None) -> list[Event]:
        """Return a task's log, oldest first. `after` is the sequence of the last one seen."""
        task = find_line(self._engine.catalog, self._owner(owner), task_id).task
        return self._engine.catalog.events(
            task, after=check_number("after", after), limit=check_number("limit", limit, low=1)
        )

    def history(
        self, /, task_id: str, *, before: int | None = None, limit: int = 100, owner: str | None = None, **wanted: Any
    ) -> list[Entry]:
        """Return what happened to a task, newest first; by a branch's id, on its ancestors and on the branch itself.

        `kinds`, `types`, `actor`, `checkpoint_id`, `iteration`, `since` and `until` narrow it down; `before` is the
        sequence of the last entry seen. At most 1,000 at a time.
        """
        from lastgood.engine.history import filter_of, read_history

        line = find_line(self._engine.catalog, self._owner(owner), task_id)
        return read_history(self._engine.catalog, line, filter_of(wanted), before=before, limit=limit)

    # --- branches and steps --------------------------------------------------------------------------------

    def branches(self, task_id: str, *, owner: str | None = None) -> list[BranchInfo]:
        """List the branches of a task, oldest first; deleted ones, too, while others descend from them."""
        return self._engine.catalog.branches(find_line(self._engine.catalog, self._owner(owner), task_id).task)

    def delete_branch(self, branch_id: str, *, owner: str | None = None) -> int:
        """Delete a branch and what only it has; how many checkpoints. Tagged ones stay. Refuses the active branch."""
        from lastgood.engine.branch import delete_branch

        return delete_branch(self._engine, self.user, self._owner(owner), branch_id)

    def open_steps(self, task_id: str | None = None, *, owner: str | None = None) -> list[OpenStep]:
        """Steps that were begun and not ended, oldest first; also those whose process is gone."""
        task_id = None if task_id is None else check_name("task id", task_id)
        return self._engine.catalog.open_steps(self._owner(owner), task_id)

    def abandon_step(self, step_id: str, reason: str = "", *, owner: str | None = None) -> None:
        """Give up a step that will not be committed; the log keeps it."""
        from lastgood.engine.step import end_step

        reason = self._engine.options.redaction.text(check_text("reason", reason))
        end_step(self._engine, self.user, self._owner(owner), step_id, "step_abandoned", reason)

    def recovery(self, task_id: str, *, owner: str | None = None) -> Recovery:
        """Report what was in flight, what the last good checkpoint is, and what to do."""
        from lastgood.engine.recovery import examine_task

        return examine_task(self._engine, self.user, check_name("task id", task_id), self._owner(owner))

    # --- the store itself ----------------------------------------------------------------------------------

    def info(self) -> StoreInfo:
        return self._engine.catalog.info()

    @property
    def meter(self) -> Meter:
        """The counters of this process."""
        return self._engine.meter

    def metrics(self) -> Metrics:
        """Return what this process has counted of the store since it was opened here: saves, verifications, cache,
        spool, size. `.to_prometheus()` and `.to_dict()` are for others."""
        engine, figures = self._engine, self._engine.cache.figures()
        names = ("entries", "bytes", "hits", "misses", "evictions")
        values: dict[str, float | None] = {f"cache_{name}": getattr(figures, name) for name in names}
        with suppress(CheckpointError, OSError):  # the backend is away, or the store is closed: nobody knows its size
            values["store_bytes"] = engine.meter.remember_size(engine.size)
        with suppress(CheckpointError, OSError):
            values.update({} if engine.spool is None else engine.spool.gauges())
        return engine.meter.snapshot(values)

    def size(self) -> int:
        """Bytes on disk, of the catalog and the packs."""
        return self._engine.size()

    def usage(self, task_id: str | None = None, *, owner: str | None = None) -> Usage:
        """Measure how many bytes the store takes, what each task has of them, and what each checkpoint adds and frees.

        Everybody's, or only an owner's; of a task, or by a branch's id of that branch. Costs time and memory by what is
        stored, not by how often it is shared; what is in files is not read.
        """
        from lastgood.upkeep.usage import measure

        if task_id is None:
            found = measure(self._engine.catalog, self._engine.blobs)
            return found if owner is None else found.of(check_name("owner", owner))
        line = find_line(self._engine.catalog, self._owner(owner), task_id)
        branch_id = line.branch.id if line.branch else None
        return measure(self._engine.catalog, self._engine.blobs).of(line.task.owner, line.task.id, branch_id)

    def collect(self, *, grace: float = 3600, dry_run: bool = False, progress: Collecting | None = None) -> Collected:
        """Remove what no checkpoint needs, whoever's it was, and give the room back; what that came to.

        Checkpoints that were deleted at least `grace` seconds ago are purged first. Content that nobody needs is
        condemned, and removed by a run at least `grace` seconds later; with 0 both happen at once, which is as safe:
        a save that relies on what is just being removed reads its files again. Others may save meanwhile, in any
        process. With `dry_run` nothing changes. `progress` is called with what is being done, how much of it, and of
        how much. IntegrityError when something is damaged that leads to others: then nothing is removed.
        """
        from lastgood.upkeep.collect import collect

        return collect(self._engine, self.user, grace=grace, dry_run=dry_run, progress=progress)

    def limit(self, max_bytes: int, *, dry_run: bool = False, progress: Collecting | None = None) -> Limited:
        """Bring the store below `max_bytes` on disk: garbage goes first, then deleted checkpoints, then the oldest.

        Heads of active branches, tagged checkpoints and the last verified of each task stay, and so does history that
        would free nothing. What goes is purged: it cannot be brought back. With `dry_run` nothing changes, and the
        answer says what each would free. When it cannot be met the answer says why, and an alert is sent.
        """
        from lastgood.upkeep.usage import limit

        return limit(self._engine, self.user, max_bytes, dry_run=dry_run, progress=progress)

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> CheckReport:
        """Check whether everything in the store is what was stored, whoever owns it, and report what is damaged, who
        needs it, and what still works. Changes nothing, and does not raise for damage.

        By structure: the database, records, chains, places, references, directories, packs and their indexes. With
        `read_data` every byte of content is read, too. `progress` is called with the bytes read and to be read.
        """
        from lastgood.upkeep.check import check_store

        engine = self._engine
        return check_store(engine.catalog, engine.objects, engine.blob_id, read_data=read_data, progress=progress)

    def repair(self, *, accept_loss: bool = False) -> RepairReport:
        """Mend what can be mended: every byte is read, then the blob index is set right by the packs, counters and the
        like by records and attestations, and damaged or missing content is looked for in other packs, in other tasks
        and in the workspaces of this host. What nobody has any more is given up: reads refuse it, a later save of the
        same content stores it anew. Nothing is invented. The catalog is copied before it is changed, and damaged packs
        are kept, both in `quarantine` beside the store.

        Lost commits raise LostCommitsError unless `accept_loss`.
        """
        from lastgood.upkeep.repair import repair_store

        return repair_store(self._engine, self.user, accept_loss=accept_loss)

    def backup(
        self, to: str | os.PathLike[str], *, progress: Callable[[str, int, int], None] | None = None
    ) -> BackedUp:
        """Copy the whole store to the folder `to`, which must not exist, while others work with it.

        It holds every checkpoint that was acknowledged before this was called, is read and checked to the last byte
        before it gets its name, and is opened like any store: `lastgood.open(to)`. A damaged store is refused.
        """
        from lastgood.upkeep.backup import back_up

        self.replay()
        return back_up(self._engine, to, progress)

    def spool_figures(self) -> SpoolFigures:
        """Return what waits in the spool, because the store could not take it."""
        from lastgood.spool.spool import SpoolFigures

        spool = self._spool()
        return SpoolFigures() if spool is None else spool.figures()

    def replay(self) -> Replayed:
        """Bring what is spooled into the store now; what became of it. UnavailableError while the store is away."""
        from lastgood.spool.replay import Replayed

        spool = self._spool()
        return Replayed() if spool is None else spool.replay()

    def close(self) -> None:
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _recover_files(self, task: Task) -> None:
        """Finish or take back the restores of files that were interrupted in the task's workspace."""
        if interrupted_restores(self._engine.catalog, task.task_id, task.owner):
            from lastgood.engine.restore_files import FilesRestore

            FilesRestore(task._handle).recover()

    def _spool(self) -> Spool | None:
        return cast("Spool | None", self._engine.spool)

    def _owner(self, owner: str | None) -> str:
        return self.user if owner is None else check_name("owner", owner)

    def _attest(self, ids: list[str], kind: str, data: dict[str, Any], owner: str | None) -> None:
        attest(self._engine, self.user, self._owner(owner), ids, kind, data)
