"""Restoring files: planned, the present saved, journalled, applied, recorded; interrupted restores are taken back.

Everything happens under the workspace's lock. With the checkpoint of what is really on disk a journal is applied; it
ends when that is durable, which nobody waits for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from lastgood.catalog.values import AppliedRestore, NewEvent, Position
from lastgood.engine.blobs import FileBlobs, Gathered
from lastgood.engine.branch import (
    Restored,
    What,
    cannot_restore,
    draft_restored,
    fulfilments,
    plan_branch,
    require_restorable,
)
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, NOT_GIVEN, Draft
from lastgood.engine.engine import Engine, pending_restores, release_dead_lease
from lastgood.engine.gather import CapturedFiles
from lastgood.engine.handle import Handle
from lastgood.engine.load import find_stored, load_checkpoint, require_files
from lastgood.engine.save import begin_branch, has_drifted, is_unchanged, place_in_work, save_draft
from lastgood.engine.verify import Recording, verify_stored
from lastgood.engine.workspace import Workspace, sync_restored
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    ContentGoneError,
    FolderBusyError,
    IntegrityError,
    InvalidError,
    LeaseError,
    LostCommitsError,
    NotFoundError,
    UnavailableError,
)
from lastgood.files.apply import Applied, apply
from lastgood.files.folders import remove_temporary, sync
from lastgood.files.plan import Enter, PutFile, Remove, RestorePlan, make_plan
from lastgood.files.roots import Root, identify
from lastgood.files.scan import Changed
from lastgood.local.paths import join, split
from lastgood.local.process import boot_id, this_process
from lastgood.model.checkpoint import Skipped
from lastgood.model.identity import new_id, now
from lastgood.model.task import Journal
from lastgood.model.tree import File
from lastgood.observe.log import report

if TYPE_CHECKING:
    from lastgood.engine.content import FilesCheck
    from lastgood.files.selection import Selection

T = TypeVar("T")
REPORT_EVERY = 100
TAKEN_BACK = "as it was before the interruption"
IN_PART = "(in part: "


class RootPlan(NamedTuple):
    """What is to be done in one folder."""

    root: Root
    plan: RestorePlan


class FilesPlan(NamedTuple):
    """What restoring a checkpoint's files will do; paths with their root's name before them. `damaged`: what is left
    as it is, because it cannot be had, and why."""

    roots: tuple[RootPlan, ...]
    damaged: tuple[tuple[str, str], ...] = ()

    @property
    def restored(self) -> tuple[str, ...]:
        return self._paths("restored")

    @property
    def added(self) -> tuple[str, ...]:
        """What of `restored` is not there now, uncaptured files included."""
        hidden = in_the_way(self)
        return tuple(
            shown(root, step.path)
            for root, plan in self.roots
            for step in plan.steps
            if (isinstance(step, Enter) and step.what == "make")
            or (isinstance(step, PutFile) and step.old is None and step.path not in hidden.get(root.name, ()))
        )

    @property
    def deleted(self) -> tuple[str, ...]:
        return self._paths("deleted")

    @property
    def announced(self) -> tuple[str, ...]:
        """What will be written and is run by tools that nobody named: hooks, settings of editors and agents."""
        return self._paths("announced")

    @property
    def size(self) -> int:
        return sum(root.plan.size for root in self.roots)

    def missing(self) -> tuple[Skipped, ...]:
        """Return what the checkpoint left out and is not on disk now, secrets and repositories first."""
        gone = [
            Skipped(shown(root.root, path), why)
            for root in self.roots
            for path, why in root.plan.left
            if not os.path.lexists(os.path.join(os.fsencode(root.root.path), path))  # noqa: PTH118
        ]
        first = ("secret", "repository")
        return tuple(sorted(gone, key=lambda one: (one.reason == "ignored", one.reason not in first)))

    def without_later(self, stamp: int) -> FilesPlan:
        """Return the same plan without what was changed after `stamp`, in nanoseconds."""
        return self._replace(
            roots=tuple(
                RootPlan(root, plan.without([path for path in plan.paths() if _changed_at(root, path) > stamp]))
                for root, plan in self.roots
            )
        )

    def touches(self) -> dict[str, Changed]:
        """Return what may change by it, by root."""
        return {root.root.name: Changed(root.plan.touches(), set()) for root in self.roots}

    def _paths(self, which: str) -> tuple[str, ...]:
        return tuple(shown(root.root, path) for root in self.roots for path in getattr(root.plan, which))


def plan_files(
    blobs: FileBlobs,
    workspace: Workspace,
    chosen: Checkpoint,
    present: CapturedFiles,
    *,
    only: Sequence[str] | None = None,
    skip_damaged: FilesCheck | None = None,
) -> FilesPlan:
    """Plan the way from the files as they were captured just now to those of `chosen`. Uncaptured files may be
    overwritten if they were captured by name. `skip_damaged`: leave what it finds damaged as it is."""
    if chosen.record.files is None:
        raise InvalidError("there are no files in this checkpoint", hint='what="state" brings its state back')
    now_there = {root.name: root.tree for root in present.roots if not root.partial}
    by_name = {root.name: root.tree for root in present.roots if root.partial}
    plans = []
    damaged: list[tuple[str, str]] = []
    for target in chosen.record.files:
        root = next((root for root in workspace.roots if root.name == target.name), None)
        if root is None:
            raise InvalidError(
                f"the workspace has no folder {target.name!r}", hint="open the task with the folders it was saved with"
            )
        there = now_there.get(target.name)
        how: dict[str, Any] = {"only": _select(only, target.name), "saved": by_name.get(target.name)}
        how |= {"partial": target.partial, "files": target.file_count}
        if skip_damaged is None:
            read = blobs.read_differing(target.tree, there, present.gathered)
            plan = make_plan(target.tree, there, read, **how)
        else:
            unlisted: list[bytes] = []
            plan = make_plan(target.tree, there, blobs.read_with(present.gathered), unreadable=unlisted, **how)
            lost = skip_damaged.find_damaged(plan.contents())
            damaged += [(shown(root, (path or b".") + b"/"), skip_damaged.unlisted) for path in unlisted]
            damaged += [(shown(root, path), problem) for path, problem in lost.items()]
            plan = plan.without(lost.keys())
        plans.append(RootPlan(root, plan))
    return FilesPlan(tuple(plans), tuple(damaged))


def _changed_at(root: Root, path: bytes) -> int:
    """Return when what lies there was changed last, removed, or moved there with a folder around it.

    A removal shows in the mtime of the folder, with whatever else came and went there: as later changes of a folder are
    on disk no sooner than earlier ones, nothing of a restore is lost there then. A folder that was moved has a later
    ctime than mtime; what is in it has not.
    """
    place, found = os.path.join(os.fsencode(root.path), path), None  # noqa: PTH118
    stamps = [0]
    while len(place) > len(os.fsencode(root.path)):
        with suppress(OSError):
            folder = os.lstat(place)
            if found is None or folder.st_ctime_ns != folder.st_mtime_ns:
                stamps.append(folder.st_ctime_ns)
            found = folder
        place = split(place)[0]
        if found is None:
            with suppress(OSError):
                found = os.lstat(place)
                stamps.append(found.st_mtime_ns)
    return max(stamps)


def _select(paths: Sequence[str] | None, root: str) -> Selection | None:
    if paths is None:
        return None
    from lastgood.files.selection import select

    return select(paths, root)


def in_the_way(plan: FilesPlan) -> dict[str, list[bytes]]:
    """Uncaptured files that restoring would overwrite, by root: they are saved by name first."""
    found: dict[str, list[bytes]] = {}
    for root in plan.roots:
        for path in root.plan.uncaptured:
            if os.path.lexists(os.path.join(os.fsencode(root.root.path), path)):  # noqa: PTH118
                found.setdefault(root.root.name, []).append(path)
    return found


def plan_journal(plan: FilesPlan, chosen: Checkpoint, before: Checkpoint, owner: str) -> Journal:
    return Journal(
        id=new_id(),
        owner=owner,
        task_id=chosen.task_id,
        began_at_us=now(),
        process=this_process(),
        chosen=chosen.id,
        before=before.id,
        folders=tuple(dict.fromkeys(identify(root.root.path) for root in plan.roots)),
    )


@contextmanager
def naming_damage(handle: Handle, chosen: Checkpoint, record: Recording = "changed") -> Iterator[None]:
    """Say of damage that is met in the block which files of `chosen` it is in, and record it."""
    try:
        yield
    except LostCommitsError:
        raise
    except IntegrityError as error:
        stored = find_stored(handle.engine.catalog, handle.owner, chosen.id)
        found = verify_stored(handle.engine, handle.user, stored, record, files="read")
        if found.intact:  # it was met elsewhere
            raise
        raise cannot_restore(chosen, found.problems) from error


class FilesRestore:
    """Restores the files of a task for one handle. All but `recover` inside `locked`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._engine = handle.engine
        self._workspace = handle.require_workspace()
        self._captured: list[CapturedFiles] = []

    @contextmanager
    def locked(self, seconds: float = 30) -> Iterator[None]:
        """Hold the lock of the workspace; at the end, withdraw the packs that were captured and not committed."""
        with self._workspace.locked(seconds):
            try:
                yield
            finally:
                for captured in self._captured:
                    self._engine.blobs.withdraw_packs(captured.gathered)
                self._captured.clear()

    def restore(
        self,
        chosen: Checkpoint,
        what: What,
        only: Sequence[str] | None,
        state: Any,
        *,
        verify: bool,
        message: str,
        skip_damaged: What | None = None,
        request: str | None = None,
    ) -> Restored:
        """Restore files, and the state unless `what` is "files" (see `Task.restore`)."""
        handle, engine = self._handle, self._engine
        demands: dict[str, Any] = {"evidence": verify, "demanded": False, "skip_damaged": skip_damaged}
        require_restorable(engine, handle.user, chosen, handle.owner, **demands)
        self._settle()
        handle.require_unmoved()
        check = _files_check(engine) if skip_damaged else None
        with naming_damage(handle, chosen):
            present, plan = self._look_and_keep(chosen, only, state, f"before restoring @{chosen.sequence}", check)
        before, added = handle.require_head(), plan.added
        with naming_damage(handle, chosen), self._journalled(plan, chosen, before) as journal:
            applied = self._apply(plan)
            done = self._note_applied(journal, plan)
            after = self._look_again(present, plan)
            failed = plan.damaged + _failures(applied, lacking=True)
            record = self._append if what == "files" else self._branch
            made = record(chosen, after, done, " ".join(filter(None, (message, _in_part(failed)))), request)
        if request is not None:  # whoever asked for it does not get the result
            self._warn_of_missing(plan)
        restored = tuple(shown(root, path) for root, done in applied for path in done.restored)
        restored_set = set(restored)
        return Restored(
            chosen.id,
            made,
            before,
            restored,
            tuple(shown(root, path) for root, done in applied for path in done.deleted),
            failed,
            tuple(path for path in added if path in restored_set),
            plan.missing(),
        )

    def _look(
        self, wanted: Checkpoint, only: Sequence[str] | None, check: FilesCheck | None = None
    ) -> tuple[CapturedFiles, FilesPlan]:
        """Capture the files as they are, with uncaptured ones that `wanted` would overwrite, and plan the restore."""
        blobs, workspace = self._engine.blobs, self._workspace
        present = self._capture(self._handle.head)
        plan = plan_files(blobs, workspace, wanted, present, only=only, skip_damaged=check)
        if self._is_too_fresh(plan):
            present = self._capture(self._handle.head)
            plan = plan_files(blobs, workspace, wanted, present, only=only, skip_damaged=check)
        if named := in_the_way(plan):
            self._captured.append(by_name := workspace.capture_named(named))
            present = present.joined(by_name)
            plan = plan_files(blobs, workspace, wanted, present, only=only, skip_damaged=check)
        return present, plan

    def _is_too_fresh(self, plan: FilesPlan) -> bool:
        """Return whether a database in use was written in the very moment of the capture: that it still is what was
        captured is told by its stamps alone, and another capture, some moments later, can rely on these."""
        for root in plan.roots:
            recall = self._workspace.recall(root.root)
            for step in root.plan.steps:
                if isinstance(step, PutFile | Remove) and step.beside:
                    for path in (step.path, *(join(split(step.path)[0], name) for name in step.beside)):
                        with suppress(OSError):
                            found = os.lstat(os.path.join(os.fsencode(root.root.path), path))  # noqa: PTH118
                            if not path.endswith(b"-shm") and recall(path, found) is None:
                                return True
        return False

    def _look_again(self, present: CapturedFiles, plan: FilesPlan) -> CapturedFiles:
        """Capture the files as they are after the plan was carried out."""
        return self._capture(self._handle.head, trusted=present.roots, takes_over=True, touched=plan.touches())

    def _capture(self, since: Checkpoint | None, **how: Any) -> CapturedFiles:
        self._captured.append(self._workspace.capture(since, **how))
        return self._captured[-1]

    def travel(self, destination: Checkpoint | None, go: Callable[..., Position]) -> Checkpoint:
        """`go` to `destination`, whose files come first: the move takes the folders over and ends the journal, so
        whoever finds a journal knows that the task has not moved."""
        handle, engine = self._handle, self._engine
        self._settle()
        binding = self._workspace.binding(takes_over=True)
        if destination is None or destination.record.files is None:
            self.insist(lambda: self._keep(self._capture(handle.head), NOT_GIVEN, "before another branch"))
            go(binding=binding)
            return handle.require_head()
        with naming_damage(handle, destination):
            told = f"before switching to @{destination.sequence}"
            present, plan = self._look_and_keep(destination, None, NOT_GIVEN, told)
        before = handle.require_head()
        with naming_damage(handle, destination), self._journalled(plan, destination, before, enters=True) as journal:
            applied = self._apply(plan)
            position = go(binding=binding, applied=self._note_applied(journal, plan, destination.id))
        self._warn_of_missing(plan)
        failed = _failures(applied, lacking=True)
        if position.files is None and not failed:
            return handle.require_head()
        made = self._record(self._look_again(present, plan), _in_part(failed))
        made.skipped = tuple(Skipped(path, reason) for path, reason in failed)
        if failed:
            told = f"{len(failed)} file(s) could not be put back, the first is {failed[0][0]}"
            engine.alert(told, handle.task_id, code="restore_incomplete")
        return made

    def _warn_of_missing(self, plan: FilesPlan) -> None:
        missing = [one.path for one in plan.missing() if one.reason != "ignored"]
        if missing:
            told = f"{len(missing)} path(s) that the checkpoint left out are gone from disk, the first is {missing[0]}"
            self._engine.alert(told, self._handle.task_id, code="left_out_missing", severity="warning")

    def _record(self, after: CapturedFiles, message: str) -> Checkpoint:
        """Save the files as they are now, on the branch that was moved to."""
        captured = [after]

        def save() -> Checkpoint:
            files = captured.pop() if captured else self._capture(None, takes_over=True)
            draft = Draft(state=KEPT, files=files, type="restored", lineage="restored", message=message)
            return save_draft(self._handle, msgspec.structs.replace(draft, keeps_redo=True), policy="raise")

        return self.insist(save)

    def insist(self, go: Callable[[], T]) -> T:
        """`go`, and again with all files read anew, if it gave up because content that it relied on was removed."""
        for _ in range(2):
            try:
                return go()
            except ContentGoneError:
                self._workspace.forget()
        return go()

    def recover(self) -> None:
        """Take back what a process that is gone had begun here, or this one could not end. What was in place, and may
        be lost by now, is put there again. The last one first: it has seen, and saved, what the others left."""
        for journal in reversed(pending_restores(self._engine, self._handle.task_id, self._handle.owner)):
            if self._workspace.has_all(journal.folders):
                with suppress(FolderBusyError), self.locked(seconds=0):  # then somebody else is at it
                    self._recover(journal)

    def _recover(self, journal: Journal) -> None:
        journals = {each.id: each for each in self._engine.catalog.journals()}
        if journals.get(journal.id) != journal:  # somebody else was at it
            return
        said = f"a restore of {journal.task_id!r} had been interrupted; it is taken back now"
        try:
            self._handle.refresh()
            if journal.made is None:
                self._take_back(journal)
            elif journal.is_of(boot_id()):
                if not journal.doubted:
                    self.sync_applied(journal)
                return
            else:
                said = f"the system stopped before restored files of {journal.task_id!r} were on disk; they are now"
                if (latest := self._find_latest(journal.made)) is None:
                    self._engine.catalog.end_journal(journal.id)
                    return
                self._put_again(journal, latest)
            for each in journals.values():
                if each.began_at_us < journal.began_at_us and journal.is_about(each.folders):
                    self._engine.catalog.end_journal(each.id)
            self._engine.alert(said, journal.task_id, code="restore_interrupted", severity="warning")
        except CheckpointError as error:
            if journal.made is None and not isinstance(error, UnavailableError):
                raise
            if journal.made is None:
                self._workspace.unfinished.append(journal.id)
            self._tell_unfinished(journal, error)

    def sync_applied(self, journal: Journal) -> None:
        """Make sure that restored files are durable, and end their journal."""
        sync_restored(self._engine, journal, self._plan_sync(journal))

    def _plan_sync(self, journal: Journal) -> list[tuple[Root, RestorePlan]]:
        """Return what a restore did, from the checkpoints before and after it."""
        engine, trees = self._engine, []
        for id_ in (journal.made or "", journal.before):
            with suppress(NotFoundError):  # it was purged: then everything may have been written
                held = load_checkpoint(engine, self._handle.owner, id_).record.files or ()
                trees.append({root.name: root.tree for root in held if not root.partial})
        read = engine.blobs.read_with(Gathered())
        there, was = [*trees, {}, {}][:2]
        return [(root, make_plan(there.get(root.name), was.get(root.name), read)) for root in self._workspace.roots]

    def _find_latest(self, made_id: str) -> Checkpoint | None:
        """Return what was in the folders last, as far as it is known: the head, if that was captured after what the
        restore made; None if that was purged and the head is another branch's."""
        handle, made = self._handle, None
        with suppress(NotFoundError):
            made = load_checkpoint(self._engine, handle.owner, made_id)
        head, bound = handle.head, self._workspace.bound(handle.owner, handle.task_id)
        if head is None or not head.record.files or any(root.partial for root in head.record.files):
            return made
        is_later = made is None or (head.sequence or 0) > (made.sequence or 0)
        return head if is_later and all(branch == handle.branch_id for branch in bound) else made

    def _put_again(self, journal: Journal, made: Checkpoint) -> None:
        """Put the files of `made` back where others are that are older than the restore, or none."""

        def look_and_put() -> FilesPlan:
            present, whole = self._look(made, None)
            plan = whole.without_later(1000 * (journal.applied_at_us or 0))
            if any(root.plan.steps for root in plan.roots):
                self._keep(present._replace(binding=None), NOT_GIVEN, "as the system left it when it stopped")
            return plan

        self._workspace.forget()
        plan = self.insist(look_and_put)
        self._sweep()  # not before: it shows in the stamps of folders
        self._finish(journal, plan)

    def _look_and_keep(
        self,
        wanted: Checkpoint,
        only: Sequence[str] | None,
        state: Any,
        message: str,
        check: FilesCheck | None = None,
    ) -> tuple[CapturedFiles, FilesPlan]:
        """Capture and plan as `_look` does, and save the present in a checkpoint."""

        def look_and_keep() -> tuple[CapturedFiles, FilesPlan]:
            present, plan = self._look(wanted, only, check)
            self._keep(present, state, message)
            return present, plan

        return self.insist(look_and_keep)

    def _keep(self, present: CapturedFiles, state: Any, message: str) -> None:
        handle = self._handle
        is_new = state is not NOT_GIVEN and not (handle.head and is_unchanged(handle, state, handle.head))
        if is_new or has_drifted(present, handle.head):
            about = {"type": "before_restore", "message": message, **place_in_work(handle.head)}
            kept = Draft(state=state if is_new else KEPT, files=present, keeps_redo=True, **about)
            save_draft(handle, kept, policy="raise")

    def _append(
        self, chosen: Checkpoint, after: CapturedFiles, applied: AppliedRestore, message: str, request: str | None
    ) -> Checkpoint:
        handle = self._handle
        branch_id = handle.require_head().branch_id or ""
        draft = Draft(
            state=KEPT,
            files=after,
            applied=applied,
            files_move=True,
            type="restored",
            lineage="restored",
            message=message,
            fulfils=fulfilments(request, branch_id),
            notes=(NewEvent("restored", branch_id, chosen.id, {"by": "restore", "what": "files"}),),
            **place_in_work(handle.head),
        )
        return save_draft(handle, draft, policy="raise")

    def _branch(
        self, chosen: Checkpoint, after: CapturedFiles, applied: AppliedRestore, message: str, request: str | None
    ) -> Checkpoint:
        handle = self._handle
        left = handle.require_head().branch_id or ""
        expects = handle.expected()
        new = plan_branch(self._engine, chosen, handle.owner, active=handle.is_active, expects=expects)
        about = {"message": message, "control_state": handle.steered_state(), "files": after, "applied": applied}
        draft = draft_restored(chosen, new, left, "restore", what="both", fulfils=fulfilments(request, new.id), **about)
        return begin_branch(handle, chosen, new, draft, follow=True)

    def _apply(self, plan: FilesPlan) -> list[tuple[Root, Applied]]:
        return [(root.root, self._apply_one(root.root, root.plan)) for root in plan.roots]

    def _apply_one(self, root: Root, plan: RestorePlan) -> Applied:
        files = [step.new for step in plan.steps if isinstance(step, PutFile) and isinstance(step.new, File)]
        content = self._engine.blobs.stream_ahead(files)
        done, recall, trusted = _Reporting(plan).done, self._workspace.recall(root), self._engine.location.is_own()
        return apply(root.path, plan, content, on_done=done, recall=recall, trusted=trusted)

    def _note_applied(self, journal: Journal, plan: FilesPlan, made: str = "") -> AppliedRestore:
        """Return when all was in place. What no capture finds again, because a rule leaves it out now, is durable."""
        done = AppliedRestore(journal.id, now(), made)
        for root in plan.roots:
            if any(isinstance(step, PutFile) and step.hidden for step in root.plan.steps):
                sync(root.root.path, root.plan)
        return done

    @contextmanager
    def _journalled(
        self,
        plan: FilesPlan,
        chosen: Checkpoint,
        before: Checkpoint,
        enters: bool = False,
    ) -> Iterator[Journal]:
        """Keep a journal while the block runs, whose last commit applies it; what fails before that is taken back at
        once.

        LeaseError, and nothing is done, while a session works on the branch, or on that of `chosen` if it is entered.
        Until then it is noted as unfinished: an interrupt can come at any point, also while it is being taken back.
        """
        journal = plan_journal(plan, chosen, before, self._handle.owner)
        self._workspace.unfinished.append(journal.id)
        try:
            branches = [one.branch_id or "" for one in ((before, chosen) if enters else (before,))]
            catalog, lease = self._engine.catalog, self._handle.lease
            try:
                catalog.begin_journal(journal, branches, lease)
            except LeaseError as error:
                release_dead_lease(catalog, error)
                catalog.begin_journal(journal, branches, lease)
            yield journal
        except BaseException as error:
            try:
                if any(each.id == journal.id and each.made is None for each in self._engine.catalog.journals()):
                    self._take_back(journal)
            except CheckpointError as failure:  # the first error is what the caller must hear
                error.add_note(f"lastgood: {self._tell_unfinished(journal, failure)}")
            else:
                self._workspace.settle(journal.id)
            raise
        self._workspace.settle(journal.id)
        self._workspace.make_durable(journal, plan.roots)

    def _sweep(self) -> None:
        """Remove the temporary files of a restore that was cut short."""
        for root in self._workspace.roots:
            try:
                remove_temporary(root.path)
            except OSError as error:
                told = f"what a restore left in the workspace cannot be removed: {error.strerror}"
                raise UnavailableError(told, hint="look at the disk and the folder's rights") from error

    def _take_back(self, journal: Journal) -> None:
        """Put the folders back to what they were when the restore began, after keeping what lies there now."""
        self._sweep()
        if not journal.is_of(boot_id()):
            self._workspace.forget()  # files may be older, or half written, and look as they were
        before = load_checkpoint(self._engine, self._handle.owner, journal.before)

        def look_and_keep() -> FilesPlan:
            present, plan = self._look(before, None)
            # Whose files these are stays as it was: a restore may have been about to take the folder over.
            self._keep(present._replace(binding=None), NOT_GIVEN, "as an interrupted restore left it")
            return plan

        self._finish(journal, self.insist(look_and_keep))

    def _finish(self, journal: Journal, plan: FilesPlan) -> None:
        """Carry it out, and end the journal; it stays open if something could not be put back."""
        if failed := _failures(self._apply(plan)):
            raise UnavailableError(
                f"{len(failed)} file(s) could not be put back, the first is {failed[0][0]}: {failed[0][1]}",
                hint="look at the disk and the folder, then open the task with its workspace again",
            )
        for root in plan.roots:
            sync(root.root.path, root.plan)
        self.insist(self._record_present)
        self._engine.catalog.end_journal(journal.id)

    def _record_present(self) -> None:
        """Save the files as they are now, if the head is what lay there in between: nobody would go on from that."""
        head = self._handle.head
        present = self._capture(head)._replace(binding=None)
        if has_drifted(present, head):
            about = {"type": "before_restore", "message": TAKEN_BACK, **place_in_work(head)}
            save_draft(self._handle, Draft(state=KEPT, files=present, keeps_redo=True, **about), policy="raise")

    def _settle(self) -> None:
        """Take back first what this handle could not take back before."""
        unfinished = self._workspace.unfinished
        for journal in self._engine.catalog.journals() if unfinished else ():
            if journal.id in unfinished and journal.made is None:
                self._take_back(journal)
        unfinished.clear()

    def _tell_unfinished(self, journal: Journal, error: Exception) -> str:
        """Whoever opens the workspace next, or restores with this handle, tries again, unless its files are saved as
        they are before that."""
        said = f"the files of an interrupted restore could not be put back: {error}"
        self._engine.alert(said, journal.task_id, error, code="restore_incomplete")
        return said


def _files_check(engine: Engine) -> FilesCheck:
    from lastgood.engine.content import FilesCheck

    return FilesCheck(engine)


def copy_files(engine: Engine, chosen: Checkpoint, to: str, only: Sequence[str] | None) -> tuple[str, ...]:
    """Write the files of `chosen` into another folder, and return their paths. Several roots become folders of their
    names."""
    roots = sorted(require_files(chosen.record), key=lambda root: root.partial)
    if any("/" in root.name or root.name in (".", "..") for root in roots):
        raise InvalidError("a folder of this checkpoint has a name that leads elsewhere", hint="restore it in place")
    plans = []
    for root in roots:
        read = engine.blobs.read_differing(root.tree, None, Gathered())
        plans.append((root, make_plan(root.tree, None, read, only=_select(only, root.name), files=root.file_count)))
    places = [Root(root.name, os.path.realpath(os.path.join(to, root.name))) for root, _ in plans]  # noqa: PTH118
    for place, (_, plan) in zip(places, plans, strict=True):
        for path in plan.restored if _is_occupied(place) else ():
            if os.path.lexists(os.path.join(os.fsencode(place.path), path)):  # noqa: PTH118
                raise ConflictError(
                    f"{shown(place, path)} is there already",
                    hint="give a folder that is empty or new; nothing was written",
                )
    copied: list[str] = []
    for place, (_, plan) in zip(places, plans, strict=True):
        Path(place.path).mkdir(parents=True, exist_ok=True)
        files = [step.new for step in plan.steps if isinstance(step, PutFile) and isinstance(step.new, File)]
        content, trusted = engine.blobs.stream_ahead(files), engine.location.is_own()
        applied = apply(place.path, plan, content, on_done=_Reporting(plan).done, copying=True, trusted=trusted)
        if applied.failed:
            first = applied.failed[0]
            raise UnavailableError(
                f"{shown(place, first.path)} could not be written: {first.reason}",
                hint="look at the folder and its rights",
            )
        copied += [shown(place, path) for path in applied.restored]
    return tuple(dict.fromkeys(copied))


def _is_occupied(place: Root) -> bool:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place.path) as entries:
        return any(True for _ in entries)
    return False


def _failures(applied: Sequence[tuple[Root, Applied]], *, lacking: bool = False) -> tuple[tuple[str, str], ...]:
    """Return what is not as it shall be; with `lacking`, also what is there without all that it had."""
    told = [(root, each) for root, done in applied for each in (*done.failed, *(done.lacking if lacking else ()))]
    return tuple((shown(root, each.path), each.reason) for root, each in told)


def _in_part(failed: Sequence[tuple[str, str]]) -> str:
    """Say in a checkpoint's message that not all was put back, as nothing else in it tells."""
    if not failed:
        return ""
    first = failed[0][0].encode(errors="backslashreplace").decode()
    return f"{IN_PART}{len(failed)} not put back, the first is {first})"


def shown(root: Root, path: bytes) -> str:
    text = os.fsdecode(path)
    return f"{root.name}:{text}" if root.name else text


class _Reporting:
    """A report of how far it has come."""

    def __init__(self, plan: RestorePlan) -> None:
        self._of, self._done = len(plan.steps), 0

    def done(self, path: bytes) -> None:
        self._done += 1
        if self._done % REPORT_EVERY == 0:
            report("put back", self._done, self._of)
