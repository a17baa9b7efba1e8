"""A handle on a task: what people do with one line of work."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft
from lastgood.engine.cursor import Cursor, is_gone
from lastgood.engine.lease import retry_without_dead_lease
from lastgood.engine.options import OnFailure, check_on_failure
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    IntegrityError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from lastgood.local.process import this_process
from lastgood.model.checkpoint import COMPANIONS
from lastgood.model.identity import check_flag
from lastgood.model.task import BranchInfo
from lastgood.observe.log import spanned

if TYPE_CHECKING:
    from lastgood.catalog.values import FulfilledRequest, Position, StoredCheckpoint
    from lastgood.engine.difference import Difference
    from lastgood.engine.history import Entry
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.restore import Restored, Way, What
    from lastgood.engine.rewind import FilesPlan
    from lastgood.engine.staleness import Run
    from lastgood.engine.step import OnError, Step
    from lastgood.engine.workspace import Folders, Workspace
    from lastgood.evidence.verifier import EvidenceVerifier
    from lastgood.model.evidence import EvidencePack
    from lastgood.model.request import Request
    from lastgood.model.step import OpenStep
    from lastgood.store import Store
    from lastgood.work.control import Control
    from lastgood.work.progress import Progress
    from lastgood.work.session import Session

T = TypeVar("T")
NOT_GIVEN: Any = object()

_spanned = partial(spanned, meter_of=lambda task: task._store.meter, about=lambda task, *_: {"task_id": task.task_id})


class Task:
    """One line of work, as this handle last saw or wrote it.

    A save continues the head that this handle knows; if someone else has moved it, ConflictError is raised and
    nothing is stored. A handle opened by a task's id follows the active branch and conflicts once another one is
    active; opened by a branch's id it stays on that branch. Safe to use from several threads, one save at a time.
    """

    def __init__(
        self, store: Store, id: str, owner: str, workspace: Folders | None = None, *, watch: bool = False
    ) -> None:
        self._store = store
        self._cursor = Cursor(store, id, owner)
        self._workspace: Workspace | None = None
        if workspace is not None:
            from lastgood.engine.workspace import Workspace

            self._workspace = Workspace(store, workspace, watch=watch)
            store.filing.keep(self._workspace)
            if store.catalog.journals(this_process().host):
                from lastgood.engine.rewind import Rewind

                Rewind(store, self._cursor, self._workspace).recover()

    # --- where it stands -----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What it was opened by: the task's id, or a branch's."""
        return self._cursor.id

    @property
    def task_id(self) -> str:
        """The task's own id, also on a handle that was opened by a branch's."""
        return self._cursor.task_id

    @property
    def branch_id(self) -> str | None:
        """The branch that this handle is on; None before the first checkpoint."""
        return self._cursor.branch if isinstance(self._cursor.branch, str) else None

    @property
    def owner(self) -> str:
        return self._cursor.owner

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that this handle goes on from; None before the first."""
        return self._cursor.head

    @property
    def state(self) -> Any:
        """The head's state: a fresh copy for each head, never the object that was saved."""
        return self._cursor.require_head().state

    def load(self, into: type[T]) -> T:
        """The head's state as a value of the class `into`."""
        return self._cursor.require_head().load(into)

    def refresh(self) -> Checkpoint | None:
        """Look where the task is now, and go on from there."""
        return self._cursor.refresh()

    def find(self, name: str) -> Checkpoint:
        """A checkpoint of this task by any name people use: `HEAD~1`, a tag, `@12`, the beginning of an id."""
        return self._store.find_checkpoint(name, self.id, owner=self.owner)

    def last_good(self, *, verified: bool = False, type: str | None = None) -> Checkpoint | None:
        """The newest on this branch that is intact and whose evidence holds now; None: there is none.

        One without evidence is not known to be bad, and will do; `verified=True` demands evidence. Checkpoints of
        failed stages, of cancelled work and of what a restore left behind are passed over.
        """
        branch = self._cursor.require_head().branch_id or ""
        return self._store.last_good(branch, verified=verified, checkpoint_type=type, owner=self.owner)

    def history(self, *, all: bool = False, **wanted: Any) -> list[Entry]:
        """What happened on this branch and before it began; with `all`, on every branch. See `Store.history`."""
        if self.head is None:
            return []
        line = self.task_id if check_flag("all", all) else self.head.branch_id
        return self._store.history(line or "", owner=self.owner, **wanted)

    def recovery(self) -> Recovery:
        """What was in flight, what is the last good checkpoint, and what to do."""
        return self._store.recovery(self.id, owner=self.owner)

    # --- going on ------------------------------------------------------------------------------------------

    @_spanned("save")
    def save(
        self,
        state: Any,
        *,
        message: str = "",
        type: str = "manual",
        step_id: str = "initial",
        iteration: int = 0,
        iteration_state: str | None = None,
        control_state: str | None = None,
        work_item_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
        id: str | None = None,
        artifacts: list[Any] | None = None,
        decisions: list[Any] | None = None,
        guidance: list[Any] | None = None,
        participants: list[Any] | None = None,
        evidence: EvidencePack | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        on_failure: OnFailure | None = None,
    ) -> Checkpoint:
        """Save the whole state, and the files of the workspace if there is one, as one checkpoint on top of the head.

        `files` limits it to these, whatever the ignore rules say; `saved.skipped` tells what was left out.
        Artifacts, decisions, guidance and participants stay as they were unless given. `key` makes the save
        idempotent: the same key with the same content returns the checkpoint that is stored, with other content
        it conflicts; `id` names the checkpoint and does the same. `evidence` is checked first, and stored with
        what checking gave, whatever that is. Raises ConflictError and UnstorableError always; other failures as
        `on_failure` says. "spool": while the store is away it is kept in the spool (status "spooled"), and raised when
        that cannot take it either. "continue": as "spool", but then its status is "lost". "raise": raised at once.
        """
        with self._cursor.proving(evidence, state) as proof:
            draft = _draft(
                state,
                proof=proof,
                message=message,
                type=type,
                step_id=step_id,
                iteration=iteration,
                iteration_state=iteration_state,
                control_state=control_state,
                work_item_id=work_item_id,
                metadata=metadata,
                key=key,
                id=id,
                artifacts=artifacts,
                decisions=decisions,
                guidance=guidance,
                participants=participants,
            )
            policy = _policy(on_failure)
            return self._with_files(draft, files, lambda ready: self._cursor.save(ready, policy), policy)

    @_spanned("save")
    def append(
        self,
        state: Any,
        *,
        evidence: EvidencePack | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        on_failure: OnFailure | None = None,
        **fields: Any,
    ) -> Checkpoint:
        """As `save`, on top of whatever the head is at that moment: for one-shot writers that read nothing."""
        with self._cursor.proving(evidence, state) as proof:
            draft = _draft(state, **{**fields, "proof": proof})
            policy = _policy(on_failure)
            return self._with_files(draft, files, lambda ready: self._cursor.save_on_top(ready, policy), policy)

    def step(self, name: str, *, type: str = "step", on_error: OnError = "keep", **fields: Any) -> Step:
        """One piece of work that ends in a checkpoint, or is recorded as failed: `with task.step("edit") as step:`.

        Takes the fields of `save` that describe a checkpoint (message, metadata, iteration, work_item_id, …). When the
        work fails, files stay as they are; with `on_error="restore"` they become those of the head it began from, and
        what it had made of them is kept in a checkpoint.
        """
        from lastgood.engine.step import Step, check_fields, check_on_error

        check_on_error(on_error, has_workspace=self._workspace is not None)
        return Step(self, name, type, check_fields(fields), on_error)

    def tag(self, checkpoint: Checkpoint | str, name: str, *, move: bool = False) -> None:
        """Name a checkpoint of this task."""
        checkpoint_id = checkpoint if isinstance(checkpoint, str) else checkpoint.id
        self._store.tag(checkpoint_id, name, move=move, owner=self.owner)

    # --- working, and being steered ------------------------------------------------------------------------

    def session(self, **how: Any) -> Session:
        """Work on this branch as the only one, and let people steer it: `with task.session(state=…, load=…) as s:`.

        See `Session` for what can be given.
        """
        from lastgood.work.session import Session

        return Session(self, **how)

    @property
    def control(self) -> Control:
        """Pause, resume, stop, guide, answer, … the work on this branch, whichever process runs it."""
        from lastgood.work.control import Control

        return Control(self, self._store.task(self.id, owner=self.owner))

    def progress(self) -> Progress | None:
        """How far a pipeline on this branch has come by now, whichever process runs it; None: none is under way."""
        from lastgood.work.progress import current_progress

        return current_progress(self)

    # --- going back, and aside -----------------------------------------------------------------------------

    @_spanned("restore")
    def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        paths: Sequence[str] | None = None,
        present: Any = NOT_GIVEN,
        verify: bool = True,
        message: str = "",
    ) -> Restored:
        """Go back: a new branch begins at `checkpoint`, becomes the active one, and this handle goes on there.

        The files of the workspace become the checkpoint's again; what was never captured is left alone. With
        `what="files"` the state stays and no branch begins; `paths` (exact ones, or globs) limits that to some. Its
        evidence must hold, unless `verify=False`. `present` is the program's state as it is now; if it, or a file, is
        not what was saved last, it is saved first on the branch that is left (`result.before`). Nothing is lost:
        `undo()` goes back to where it was. Raises ConflictError when the head is another one than this handle saw,
        LeaseError while a session elsewhere works on the branch: then ask it to (`task.control.restore`).
        """
        return self.rewind(checkpoint, what, paths=paths, present=present, verify=verify, message=message)

    def rewind(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        paths: Sequence[str] | None = None,
        present: Any = NOT_GIVEN,
        verify: bool = True,
        message: str = "",
        request: str | None = None,
    ) -> Restored:
        """As `restore`, which meets the request of that id at the same moment."""
        from lastgood.engine.restore import check_what

        check_what(what, has_workspace=self._workspace is not None)
        if paths is not None and what != "files":
            raise InvalidError("paths limit a restore of files", hint='give what="files" with them')
        with self._cursor.lock:
            chosen = self._choose(checkpoint)
            if self._workspace is not None and what != "state" and (what == "files" or chosen.record.files is not None):
                from lastgood.engine.rewind import Rewind

                rewind = Rewind(self._store, self._cursor, self._workspace)
                with rewind.locked():
                    return rewind.insist(
                        lambda: rewind.restore(
                            chosen,
                            what,
                            paths,
                            present,
                            verify=check_flag("verify", verify),
                            message=message,
                            request=request,
                        )
                    )
            return self._go_back(
                chosen,
                "restore",
                present=present,
                verify=check_flag("verify", verify),
                message=message,
                request=request,
            )

    def plan(self, checkpoint: Checkpoint | str, *, paths: Sequence[str] | None = None) -> FilesPlan:
        """What restoring the files of `checkpoint` would do; nothing is touched."""
        from lastgood.engine.rewind import plan_files

        workspace = self._require_workspace()
        with workspace.locked():
            present = workspace.capture(self.head)
            try:
                return plan_files(self._store, workspace, self._choose(checkpoint), present, only=paths)
            finally:
                self._store.filing.blobs.drop(present.gathered)

    def copy_files(
        self,
        checkpoint: Checkpoint | str,
        to: str | os.PathLike[str],
        *,
        paths: Sequence[str] | None = None,
    ) -> tuple[str, ...]:
        """Put the files of `checkpoint` into another folder, which is made if need be; the paths. Nothing is recorded.

        What lies there already is never overwritten or removed: ConflictError names it, and nothing is written.
        """
        from lastgood.engine.rewind import copy_files

        return copy_files(self._store, self._choose(checkpoint), os.fspath(to), paths)

    def diff(
        self,
        before: Checkpoint | str = "HEAD",
        after: Checkpoint | str | None = None,
        *,
        paths: Sequence[str] | None = None,
    ) -> Difference:
        """How two checkpoints differ, in state and files; without `after`, how the files on disk differ from one."""
        from lastgood.engine.difference import Difference, FilesDiff

        old, blobs = self._choose(before), self._store.filing.blobs
        if after is not None:
            new = self._choose(after)
            files = FilesDiff(old.record.files or (), new.record.files or (), blobs.read, paths)
            return Difference(old, new, files)
        workspace = self._require_workspace()
        present = workspace.capture(old)
        files = FilesDiff(old.record.files or (), present.roots, blobs.read_with(present.gathered), paths)
        if present.gathered.packs:
            weakref.finalize(files, blobs.drop, present.gathered).atexit = False
        return Difference(old, None, files)

    def fork(
        self,
        checkpoint: Checkpoint | str = "HEAD",
        *,
        name: str | None = None,
        description: str = "",
        metadata: dict[str, Any] | None = None,
        paused: bool = False,
        verify: bool = True,
    ) -> Task:
        """A new branch that begins at `checkpoint`, and a handle on it. Everything else stays as it is."""
        from lastgood.engine.restore import draft_restored, plan_branch, require_restorable

        with self._cursor.lock:
            chosen = self._choose(checkpoint)
            require_restorable(self._store, chosen, self.owner, evidence=check_flag("verify", verify), demanded=False)
            new = plan_branch(
                self._store,
                chosen,
                self.owner,
                name=name,
                description=description,
                metadata=metadata,
                active=False,
            )
            state = "paused" if check_flag("paused", paused) else None
            draft = draft_restored(chosen, new, chosen.branch_id or "", "fork", control_state=state)
            made = self._cursor.begin_branch(chosen, new, draft, follow=False)
        return self._store.task(made.branch_id or "", owner=self.owner)

    def undo(self) -> Checkpoint:
        """Take back the last restore (or switch), any number of times; the head that is gone on from now."""
        return self._move("undo")

    def redo(self) -> Checkpoint:
        """Restore again what `undo` took back. A save in between ends that."""
        return self._move("redo")

    def switch(self, branch: str) -> Checkpoint:
        """Make a branch, by its name or its id, the task's active one, and go on there."""
        cursor, chosen = self._cursor, self._branch_named(branch)

        def go() -> Position:
            expects = cursor.expected()
            catalog, actor = self._store.catalog, self._store.actor()
            position = retry_without_dead_lease(
                catalog, lambda: catalog.activate(self.owner, chosen.id, actor, expects=expects, lease=cursor.lease)
            )
            cursor.id = cursor.task_id
            cursor.adopt(position)
            return position

        with cursor.lock:
            stays = chosen.id == self.branch_id  # its files lie there already, perhaps edited since
            return self._travel(lambda: None if stays else self._newest(chosen), go)

    def branches(self) -> list[BranchInfo]:
        """Oldest first."""
        return self._store.branches(self.task_id, owner=self.owner) if self.head else []

    def delete_branch(self, branch: str) -> int:
        """Delete a branch, by its name or its id, and what only it has; how many checkpoints. Not the active one."""
        return self._store.delete_branch(self._branch_named(branch).id, owner=self.owner)

    # --- for the rest of the engine ------------------------------------------------------------------------

    @property
    def user(self) -> str:
        return self._store.user

    def verifier(self) -> EvidenceVerifier:
        return self._store.verifier()

    def begin(self, step: OpenStep) -> None:
        self._store.catalog.begin_step(step, None, self._cursor.lease)

    @_spanned("save")
    def commit_step(
        self,
        step: Step,
        state: Any,
        begun: Checkpoint | Literal["any"] | None,
        fields: dict[str, Any],
        runs: Sequence[Run],
        then: Step | None,
    ) -> Checkpoint:
        """The checkpoint of a step: on top of whatever is there if its state is the head's, else where it began."""
        with self._cursor.proving(step.evidence, state) as proof:
            about = {"type": step.type, "step_id": step.name, "id": step.id, "step": step.id, "proof": proof}
            draft = _draft(state, **{**fields, **about, "begins": then})

            def save(ready: Draft) -> Checkpoint:
                if self._workspace is not None and runs:
                    from lastgood.engine.staleness import mark_stale

                    before = self.head.record.files if self.head else None
                    mark_stale(ready, step.evidence, runs, before or (), self._store, self._workspace)
                return self._cursor.save_from(ready, begun)

            return self._with_files(draft, None, save)

    def stamps(self) -> dict[str, int]:
        """The present, as the files of the workspace are stamped, by folder; empty without one."""
        return {} if self._workspace is None else self._workspace.stamps()

    def without_secrets(self, text: str) -> str:
        return self._store.options.redaction.text(text)

    def fail_step(self, step: Step, reason: str) -> None:
        self._store.end_step(step.id, "step_failed", reason, owner=self.owner)

    def alert(self, message: str, error: Exception | None, code: str = "step_unsettled") -> None:
        self._store.alert(message, self.task_id, error, code=code)

    @property
    def store(self) -> Store:
        return self._store

    def take_lease(self, take: Callable[[], int]) -> None:
        """A session works through this handle from now on. `take` gives its token; whoever saves meanwhile waits."""
        with self._cursor.lock:
            self._cursor.lease = take()

    def drop_lease(self, token: int, release: Callable[[], None]) -> None:
        """That session does not any more. Another one may, whose token this is not."""
        with self._cursor.lock:
            if self._cursor.lease == token:
                self._cursor.lease = None
            release()

    def advance(
        self,
        state: Any = KEPT,
        *,
        capture: bool = True,
        only_if_changed: bool = False,
        only_on: Checkpoint | None = None,
        **fields: Any,
    ) -> Checkpoint:
        """As `save`, for a session: KEPT is the head's state, and without `capture` the files are the head's, too.
        With `only_if_changed`, what is as the head has it is not saved, with `only_on` nothing when the head is
        another one by now: then the head."""
        cursor, draft = self._cursor, _draft(state, **fields)

        def save(ready: Draft) -> Checkpoint:
            head = cursor.head
            if only_on is not None and head is not None and head.id != only_on.id:
                return head
            if only_if_changed and head is not None and (state is KEPT or cursor.is_unchanged(state, head)):
                roots = ready.files.roots if isinstance(ready.files, tuple) else head.record.files
                if roots == head.record.files:
                    return head
            return cursor.save(ready)

        with cursor.lock:
            if not capture:
                return save(msgspec.structs.replace(draft, files=KEPT))
            return self._with_files(draft, None, save)

    def bring_files(self) -> None:
        """Put the head's files into the workspace, where it is not known to have this branch's."""
        head, workspace = self.head, self._workspace
        if workspace is not None and head is not None and head.record.files is not None:
            bound = workspace.bound(self.owner, self.task_id)
            if any(branch != self.branch_id for branch in bound):
                self.restore(head, "files", verify=False, message="brought along")

    def requests(self) -> list[Request]:
        """What people want of the work on this branch, and nobody did yet."""
        branch_id = self.branch_id
        return [] if branch_id is None else self._store.catalog.open_requests(self.owner, branch_id)

    def end_request(self, ended: FulfilledRequest, status: Literal["met", "refused"]) -> None:
        """Through the handle of a session: only as long as that holds its lease."""
        self._store.catalog.end_request(self.owner, ended, status, self._store.actor(), lease=self._cursor.lease)

    @_spanned("save")
    def append_draft(self, draft: Draft) -> Checkpoint:
        return self._cursor.save_on_top(draft)

    @_spanned("restore")
    def roll_back(self, chosen: Checkpoint) -> Restored:
        """As `restore` of the state, for one-shot callers: evidence is demanded, and the head may be any."""
        return self._go_back(chosen, "rollback", present=NOT_GIVEN, verify=True, message="")

    def __repr__(self) -> str:
        return f"<Task {self.id!r} at {self.head!r}>"

    def _go_back(
        self, chosen: Checkpoint, way: Way, *, present: Any, verify: bool, message: str, request: str | None = None
    ) -> Restored:
        from lastgood.engine.restore import Restored, draft_restored, meets, plan_branch, require_restorable

        cursor = self._cursor
        require_restorable(self._store, chosen, self.owner, evidence=verify, demanded=way == "rollback")
        with self._workspace_locked(), self._store.catalog.queue():  # all of it, or nothing
            if way == "rollback":
                cursor.refresh()
            else:
                cursor.require_unmoved()
            if present is not NOT_GIVEN and not (cursor.head and cursor.is_unchanged(present, cursor.head)):
                kept = Draft(state=present, type="before_restore", message=f"before restoring {chosen.id}")
                cursor.save(kept, policy="raise")
            before, expects = cursor.head, cursor.expected()
            new = plan_branch(self._store, chosen, self.owner, active=cursor.is_active, expects=expects)
            files = self._workspace.capture(None, takes_over=True) if self._workspace else None
            about: dict[str, Any] = {"message": message, "control_state": cursor.steered_state()}
            about["met"] = meets(request, new.id)
            draft = draft_restored(chosen, new, self.branch_id or "", way, files=files or KEPT, **about)
            try:
                return Restored(chosen.id, cursor.begin_branch(chosen, new, draft, follow=True), before)
            finally:
                if files is not None:
                    self._store.filing.blobs.let_go(files.gathered)

    def _workspace_locked(self) -> AbstractContextManager[None]:
        """The workspace's lock comes before the writers' queue, always."""
        return nullcontext() if self._workspace is None else self._workspace.locked()

    def _require_workspace(self) -> Workspace:
        if self._workspace is None:
            raise InvalidError("there is no workspace", hint="open it: store.task(…, workspace=folder)")
        return self._workspace

    def _with_files(
        self,
        draft: Draft,
        files: Sequence[str | os.PathLike[str]] | None,
        save: Callable[[Draft], Checkpoint],
        policy: OnFailure | None = None,
    ) -> Checkpoint:
        """Save the draft with the files as they are now; again, all read anew, as long as stored content was gone."""
        workspace = self._workspace
        if workspace is None:
            if files is not None:
                raise InvalidError("there is no workspace", hint="store.task(…, workspace=folder) captures files")
            return save(draft)

        unfinished = workspace.unfinished[0] if workspace.unfinished and files is None else None

        def capture_and_save(since: Checkpoint | None, *, away: UnavailableError | None = None) -> Checkpoint:
            try:
                captured = workspace.capture(since, files=files, away=away is not None)
            except (UnavailableError, NotFoundError, IntegrityError) as error:
                if not is_gone(error) and not (away is None and spools(error)):
                    self.alert(f"a checkpoint of {self.task_id!r} was not saved: {error}", error, code="save_failed")
                raise
            if away is not None and spool is not None:
                spool.away(away)
            try:
                saved = save(msgspec.structs.replace(draft, files=captured, journal=unfinished))
            finally:
                self._store.filing.blobs.let_go(captured.gathered)
            workspace.settle(unfinished)
            saved.skipped = captured.skipped
            return saved

        spool = self._store.spool

        def spools(error: CheckpointError) -> bool:
            if spool is None or policy == "raise" or not isinstance(error, UnavailableError):
                return False
            return spool.takes(error) and "workspace" not in error.details

        try:
            if spool is not None:
                spool.make_way(self.owner, self.task_id)
            return self._insist_on_files(capture_and_save)
        except UnavailableError as error:
            if not spools(error):
                raise
            return capture_and_save(self.head, away=error)

    def _insist_on_files(self, capture_and_save: Callable[[Checkpoint | None], Checkpoint]) -> Checkpoint:
        workspace = self._require_workspace()
        for since in (self.head, None):
            try:
                return capture_and_save(since)
            except IntegrityError as error:
                if not is_gone(error):
                    raise
                workspace.forget()
        with self._workspace_locked(), self._store.catalog.queue():  # nobody removes anything meanwhile
            return capture_and_save(None)

    def _newest(self, branch: BranchInfo) -> StoredCheckpoint | None:
        head = self._store.stored(branch.head.id, self.owner) if branch.head else None
        if head is not None and head.deleted:
            raise ConflictError(
                "the newest checkpoint of the branch to go to was deleted",
                hint="undelete it first, or fork another one",
            )
        return head

    def _travel(self, find: Callable[[], StoredCheckpoint | None], go: Callable[[], Position]) -> Checkpoint:
        """Go to another branch, or to other files of this one, with the files that belong there: those of the
        checkpoint that `find` finds. What is refused is refused before a file is touched."""
        if self._workspace is None:
            go()
            return self._cursor.require_head()
        from lastgood.engine.rewind import Rewind

        rewind = Rewind(self._store, self._cursor, self._workspace)
        with rewind.locked():
            if self._cursor.is_active:
                self._cursor.require_unmoved()
            destination = find()
            return rewind.travel(self._store.wrap_intact(destination) if destination else None, go)

    def _move(self, way: Literal["undo", "redo"]) -> Checkpoint:
        cursor, catalog = self._cursor, self._store.catalog
        if cursor.by_branch:
            raise InvalidError(f"{way} moves a whole task", hint=f"open it by its id: store.task({self.task_id!r})")
        move = catalog.undo if way == "undo" else catalog.redo

        def go() -> Position:
            actor, expects = self._store.actor(), cursor.expected()
            position = retry_without_dead_lease(
                catalog, lambda: move(self.owner, self.task_id, actor, expects=expects, lease=cursor.lease)
            )
            head = cursor.adopt(position)
            cursor.say(way, head, head.control_state)
            return position

        with cursor.lock:
            cursor.require_head()
            return self._travel(lambda: catalog.destination(self.owner, self.task_id, way), go)

    def _choose(self, checkpoint: Checkpoint | str) -> Checkpoint:
        """As it lies in this store, whatever the object at hand says."""
        if isinstance(checkpoint, str):
            chosen = self.find(checkpoint)
        else:
            chosen = self._store.get_checkpoint(checkpoint.id, owner=self.owner)
            if chosen.checksum != checkpoint.checksum:
                raise InvalidError(f"checkpoint {chosen.id} is not this store's", hint="give its id, or one from here")
        if chosen.task_id != self.task_id:
            raise InvalidError(f"checkpoint {chosen.id} belongs to another task", hint=f"open {chosen.task_id!r}")
        return chosen

    def _branch_named(self, branch: str) -> BranchInfo:
        found = [info for info in self.branches() if branch in (info.id, info.name) and not info.deleted]
        if not found:
            raise NotFoundError(f"{self.task_id!r} has no branch {branch!r}", hint="`lastgood branch` lists them")
        return found[0]


def _draft(state: Any, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Draft:
    companions = {name: value for name in COMPANIONS if (value := fields.pop(name, None)) is not None}
    try:
        return Draft(state=state, companions=companions, metadata={} if metadata is None else metadata, **fields)
    except TypeError as error:
        raise InvalidError(f"a checkpoint has no such field: {error}", hint="see Task.save") from error


def _policy(on_failure: OnFailure | None) -> OnFailure | None:
    if on_failure is not None:
        check_on_failure(on_failure)
    return on_failure
