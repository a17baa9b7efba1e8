"""The store: the one facade over everything that is kept.

Operations are imported by the methods that need them, so that a command that only lists starts at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from lastgood.catalog.values import StoreInfo
from lastgood.engine.checkpoint import Checkpoint, Rows
from lastgood.engine.engine import Engine, acting, pending_restores, retry_without_dead_lease
from lastgood.engine.load import (
    attest,
    find_line,
    find_stored,
    load_checkpoint,
    logged,
    look_up,
    look_up_line,
    wrap,
    wrap_intact,
)
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.model.checkpoint import Head
from lastgood.model.identity import check_flag, check_name, check_number, check_tag, check_text, check_type
from lastgood.model.task import BranchInfo, Event, OpenStep, TaskInfo

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
        workspace: Folders | Literal[False] | None = None,
        watch: bool = False,
        owner: str | None = None,
    ) -> Task:
        """Return a handle on a task, or on one branch of it by that branch's id. Nothing is written before a save.

        With a `workspace` (a folder, or several: {"app": "./app", "infra": "../infra"}) each save captures the files in
        it, too, and a restore brings them back. Without one a save keeps the files of the head; a restore, an undo and
        a switch take the folder that has the branch's files. With `workspace=False` files are left alone.

        With `watch` the folder is watched for as long as the store is open, so that a save costs the changed paths and
        not the tree (Linux; elsewhere it changes nothing).
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
        if workspace is not None and workspace is not False:
            self._recover_files(task)
        return task

    def tasks(self, *, owner: str | None = None, after: int = 0, limit: int = 100) -> list[TaskInfo]:
        """List tasks, newest first. `after` is the number of the last one seen; without `owner`, everybody's."""
        owner = None if owner is None else check_name("owner", owner)
        return self._engine.catalog.tasks(owner, check_number("after", after), check_number("limit", limit, low=1))

    def delete_task(self, task_id: str, *, owner: str | None = None) -> int:
        """Remove a task with all of its checkpoints, for good. How many it had."""
        about = (self._owner(owner), check_name("task id", task_id), acting(self.user))
        from lastgood.engine.workspace import forget_files

        with self._logged("delete_task", task_id, owner):
            forget_files(self._engine, *about[:2])
            return retry_without_dead_lease(self._engine.catalog, lambda: self._engine.catalog.delete_task(*about))

    # --- checkpoints ---------------------------------------------------------------------------------------

    def get_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Checkpoint | None:
        """Return a checkpoint, also a deleted one; None: there is none of that id. `find_checkpoint` raises instead.

        Raises NotFoundError if it was purged, IntegrityError if its record is damaged.
        """
        stored = look_up(self._engine.catalog, self._owner(owner), checkpoint_id)
        return None if stored is None else wrap_intact(self._engine, stored)

    def find_checkpoint(self, name: str, task_id: str | None = None, *, owner: str | None = None) -> Checkpoint:
        """By any name people use: an id or the beginning of one, a tag, `HEAD`, `@12`, any of them with `~2`; or
        `last-good`, as `last_good` finds it."""
        from lastgood.engine.recovery import resolve_name

        owner = self._owner(owner)
        task_id = None if task_id is None else check_name("task id", task_id)
        return load_checkpoint(self._engine, owner, resolve_name(self._engine, self.user, owner, name, task_id))

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

        At most 1,000 at a time; `before` is the sequence of the last one seen. Of a task that is not there: none.
        """
        if look_up_line(self._engine.catalog, self._owner(owner), task_id) is None:
            return []
        return Rows(self.page_checkpoints(task_id, limit, checkpoint_type, before=before, owner=owner).checkpoints)

    def page_checkpoints(
        self,
        task_id: str,
        limit: int = 100,
        checkpoint_type: str | None = None,
        *,
        before: int | None = None,
        owner: str | None = None,
    ) -> CheckpointPage:
        """List checkpoints as `list_checkpoints` does, with the exact total. NotFoundError if there is no such task."""
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
        """Return the newest on the active branch whose last recorded verification held; None: there is none."""
        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = look_up_line(self._engine.catalog, self._owner(owner), task_id, active=True)
        rows = line and self._engine.catalog.checkpoints(line, limit=1, type=kind, verified=True)
        return wrap(self._engine, rows[0]) if rows else None

    def last_good(
        self,
        task_id: str,
        *,
        any: bool = False,
        checkpoint_type: str | None = None,
        owner: str | None = None,
    ) -> Checkpoint | None:
        """Find the newest on the active branch that is whole and whose evidence holds now. See `Task.last_good`."""
        from lastgood.engine.recovery import find_last_good

        kind = None if checkpoint_type is None else check_type("checkpoint_type", checkpoint_type)
        line = look_up_line(self._engine.catalog, self._owner(owner), task_id, active=True)
        wants_any = check_flag("any", any)
        return find_last_good(self._engine, self.user, line, any=wants_any, type=kind) if line else None

    def verify_checkpoint(self, checkpoint_id: str, *, live: bool = False, owner: str | None = None) -> bool:
        """Return whether it is verified now: every stored byte is what was saved, there is evidence, and it holds.

        Evidence about files that it captured itself is checked against these; with `live`, against the disk. What
        checking gave is recorded, unless it was live. One without evidence is never verified; see `check_checkpoint`.
        Nor is one that is not there.
        """
        if look_up(self._engine.catalog, self._owner(owner), checkpoint_id) is None:
            return False
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
        return verify_stored(self._engine, self.user, stored, files="read", live=check_flag("live", live))

    def rollback_to_checkpoint(self, checkpoint_id: str, *, owner: str | None = None) -> Any:
        """Go back to a checkpoint that verifies: its state. The task's next checkpoint continues from there.

        Raises EvidenceError or IntegrityError if it does not verify, NotFoundError if it is not there (all are
        CheckpointErrors). Touches no files.
        """
        owner = self._owner(owner)
        chosen = load_checkpoint(self._engine, owner, checkpoint_id)
        return self.task(chosen.task_id, owner=owner).roll_back(chosen).state

    def list_files(self, checkpoint_id: str, path: str = "", *, owner: str | None = None) -> list[FileInfo]:
        """List what lies in a folder of a checkpoint. With several roots, paths look like `app:src/main.py`."""
        from lastgood.engine.browse import list_files
        from lastgood.engine.load import require_files

        roots = require_files(self._load(checkpoint_id, owner).record)
        return list_files(self._engine.blobs, roots, path)

    def read_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> bytes | None:
        """Return the content of a file at a checkpoint, checked; of a link, where it points. None: it has no such file.

        NotFoundError where nobody knows: there is no such checkpoint, or the file was left out of it.
        """
        from lastgood.engine.browse import read_named

        content = read_named(self._engine.blobs, self._load(checkpoint_id, owner).record, path)
        return None if content is None else b"".join(content)

    def stream_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> Iterator[bytes]:
        """Yield the content of a file, piece by piece: memory does not grow with the file. Raises NotFoundError."""
        from lastgood.engine.browse import missing_file, read_named

        record, blobs = self._load(checkpoint_id, owner).record, self._engine.blobs
        content = read_named(blobs, record, path)
        if content is None:
            raise missing_file(blobs, record.files or (), path)
        return content

    def compare_files(
        self, before: str | None, after: str, *, paths: Sequence[str] | None = None, owner: str | None = None
    ) -> FilesDiff:
        """Compare the files of two checkpoints. `before` None: with those of its parent, if it has one."""
        from lastgood.engine.difference import FilesDiff
        from lastgood.engine.load import require_files

        new = self._load(after, owner)
        old_id = new.parent_id if before is None else before
        old = None if old_id is None else find_stored(self._engine.catalog, self._owner(owner), old_id)
        earlier = None if old is None or old.data is None else wrap_intact(self._engine, old)
        if before is None:
            roots = (earlier.record.files or ()) if earlier else ()
        else:
            roots = require_files(self._load(before, owner).record)
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
        """Mark as deleted: no longer listed, still a parent. Refuses the active head.

        False if it was deleted already, or is not there.
        """
        stored = look_up(self._engine.catalog, self._owner(owner), checkpoint_id)
        if stored is None or stored.deleted:
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
        with self._logged("purge", task_id, owner):
            self._engine.catalog.purge([(owner, checkpoint_id)], acting(self.user), all_or_none=True)
        self._engine.cache.drop(owner, checkpoint_id)

    def delete_old_checkpoints(self, task_id: str, keep_count: int, *, owner: str | None = None) -> int:
        """Delete all but the newest `keep_count`; how many. Heads of branches, tagged ones and the last verified stay.

        Of a task, what only branches have that are not active stays, too; name a branch to thin it out.
        """
        from lastgood.upkeep.usage import delete_old

        owner, keep_count = self._owner(owner), check_number("keep_count", keep_count)
        if look_up_line(self._engine.catalog, owner, task_id) is None:
            return 0
        with self._logged("delete_old", task_id, owner):
            return delete_old(self._engine, self.user, owner, task_id, keep_count)

    def events(
        self, task_id: str | None = None, *, after: int = 0, limit: int = 100, owner: str | None = None
    ) -> list[Event]:
        """Return a task's log, oldest first; without a task the store's own: tasks that were deleted, repairs. `after`
        is the sequence of the last one seen."""
        task = None if task_id is None else find_line(self._engine.catalog, self._owner(owner), task_id).task
        return self._engine.catalog.events(
            task, after=check_number("after", after), limit=check_number("limit", limit, low=1)
        )

    def history(
        self,
        task_id: str,
        *,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        actor: str | None = None,
        checkpoint_id: str | None = None,
        iteration: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
        owner: str | None = None,
    ) -> list[Entry]:
        """Return what happened to a task, newest first; by a branch's id, on its ancestors and on the branch itself.

        `kinds` are those of events, `types` those of checkpoints; what is from `since` on and before `until`; `before`
        is the sequence of the last entry seen. At most 1,000 at a time.
        """
        from lastgood.engine.history import Filter, read_history

        given = locals()
        wanted = Filter(**{name: given[name] for name in Filter.__struct_fields__})
        line = find_line(self._engine.catalog, self._owner(owner), task_id)
        return Rows(read_history(self._engine.catalog, line, wanted, before=before, limit=limit))

    # --- branches and steps --------------------------------------------------------------------------------

    def branches(self, task_id: str, *, owner: str | None = None) -> list[BranchInfo]:
        """List the branches of a task, oldest first; deleted ones, too, while others descend from them."""
        return Rows(self._engine.catalog.branches(find_line(self._engine.catalog, self._owner(owner), task_id).task))

    def delete_branch(self, branch_id: str, *, dry_run: bool = False, owner: str | None = None) -> int:
        """Delete a branch and what only it has; how many checkpoints. Tagged ones stay. Refuses the active branch. With
        `dry_run` nothing changes."""
        from lastgood.engine.branch import delete_branch

        return delete_branch(self._engine, self.user, self._owner(owner), branch_id, dry_run=dry_run)

    def open_steps(self, task_id: str | None = None, *, owner: str | None = None) -> list[OpenStep]:
        """Steps that were begun and not ended, oldest first; also those whose process is gone."""
        task_id = None if task_id is None else check_name("task id", task_id)
        return self._engine.catalog.open_steps(self._owner(owner), task_id)

    def abandon_step(self, step_id: str, reason: str = "", *, owner: str | None = None) -> None:
        """Give up a step that will not be committed; the log keeps it. Also an interrupted restore of files, by the id
        that `recovery` has: whatever lies in its folder stays so."""
        from lastgood.engine.step import end_step

        check_name("step id", step_id)
        for journal in self._engine.catalog.journals():
            if journal.id == step_id and journal in pending_restores(self._engine, journal.task_id, self._owner(owner)):
                self._engine.catalog.end_journal(step_id)
                told = f"an interrupted restore of {journal.task_id!r} was abandoned"
                return self._engine.alert(told, journal.task_id, code="restore_interrupted", severity="warning")
        reason = self._engine.options.redaction.text(check_text("reason", reason))
        return end_step(self._engine, self.user, self._owner(owner), step_id, "step_abandoned", reason)

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

        with self._logged("collect"):
            return collect(self._engine, self.user, grace=grace, dry_run=dry_run, progress=progress)

    def limit(
        self,
        max_bytes: int,
        *,
        dry_run: bool = False,
        planned: Limited | None = None,
        keep: bool = False,
        progress: Collecting | None = None,
    ) -> Limited:
        """Bring the store below `max_bytes` on disk: garbage goes first, then deleted checkpoints, then the oldest, and
        with them those that hold the same content.

        Heads of branches, what only branches have that are not active, what a session was asked to restore, tagged
        checkpoints and the last verified of each task stay, and so does history that would free nothing. What goes is
        purged: it cannot be brought back. With `dry_run` nothing changes, and the answer says what each would free;
        given as `planned`, no other checkpoint goes. When it cannot be met the answer says why, and an alert is sent.
        With `keep` the store keeps to it by itself from now on, whoever opens it, until another is set.
        """
        from lastgood.upkeep.usage import limit

        if check_flag("keep", keep) and not check_flag("dry_run", dry_run):
            self._engine.catalog.keep_below(check_number("max_bytes", max_bytes))
        with self._logged("limit"):
            return limit(self._engine, self.user, max_bytes, dry_run=dry_run, planned=planned, progress=progress)

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

        if waiting := self.spool_figures().depth:
            try:
                self.replay()
            except UnavailableError as error:
                told = f"a backup would lack {waiting} checkpoint(s) that wait for the store: {error}"
                raise UnavailableError(told, hint=error.hint) from error
        return back_up(self._engine, self.user, to, progress)

    def spool_figures(self) -> SpoolFigures:
        """Return what waits in the spool, because the store could not take it."""
        from lastgood.spool.spool import SpoolFigures

        spool = self._spool()
        return SpoolFigures() if spool is None else spool.figures()

    def replay(self, *, discard: bool = False) -> Replayed:
        """Bring what is spooled into the store now; what became of it. UnavailableError while the store is away.

        `discard`: give it up instead, with what was set aside, for a store that is gone for good; opened again, the
        store is made anew.
        """
        from lastgood.spool.replay import Replayed

        spool = self._spool()
        with self._logged("replay"):
            if spool is None:
                return Replayed()
            return spool.discard() if discard else spool.replay()

    def close(self) -> None:
        self._engine.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self._engine.location.place or ':memory:')!r} as {self.user!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _recover_files(self, task: Task) -> None:
        """Finish or take back the restores of files that were interrupted in the task's workspace."""
        if pending_restores(self._engine, task.task_id, task.owner):
            from lastgood.engine.restore_files import FilesRestore

            FilesRestore(task._handle).recover()

    def _spool(self) -> Spool | None:
        return cast("Spool | None", self._engine.spool)

    def _load(self, checkpoint_id: str, owner: str | None) -> Checkpoint:
        return load_checkpoint(self._engine, self._owner(owner), checkpoint_id)

    def _logged(self, action: str, task_id: str = "", owner: str | None = None) -> AbstractContextManager[None]:
        """Log an operation; without a task it is one on the whole store."""
        return logged(self._engine, self.user, self._owner(owner), task_id, action)

    def _owner(self, owner: str | None) -> str:
        return self.user if owner is None else check_name("owner", owner)

    def _attest(self, ids: list[str], kind: str, data: dict[str, Any], owner: str | None) -> None:
        attest(self._engine, self.user, self._owner(owner), ids, kind, data)
