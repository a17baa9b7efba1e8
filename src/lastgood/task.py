"""A handle on a task: what people do with one line of work."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from lastgood.engine.checkpoint import Checkpoint, Rows, as_html
from lastgood.engine.commit import NOT_GIVEN
from lastgood.engine.handle import Handle
from lastgood.engine.load import BRIEFLY, attest, find_line
from lastgood.engine.options import OnFailure, check_on_failure
from lastgood.engine.save import append, make_draft, proving, save
from lastgood.model.identity import check_flag, check_name, check_path, check_tag, check_type
from lastgood.model.task import BranchInfo

if TYPE_CHECKING:
    from lastgood.engine.branch import Restored, What
    from lastgood.engine.difference import Difference
    from lastgood.engine.engine import Engine
    from lastgood.engine.history import Entry
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.restore_files import FilesPlan
    from lastgood.engine.step import OnError, Step
    from lastgood.engine.workspace import Folders
    from lastgood.model.evidence import EvidencePack
    from lastgood.observe.meter import Describe
    from lastgood.work.autosave import Autosave
    from lastgood.work.clock import Clock
    from lastgood.work.control import Control
    from lastgood.work.progress import Progress
    from lastgood.work.session import Session

T = TypeVar("T")


class Task:
    """One line of work, as this handle last saw or wrote it.

    A save continues the head that this handle knows; if someone else has moved it, ConflictError is raised and
    nothing is stored. A handle opened by a task's id follows the active branch and conflicts once another one is
    active; opened by a branch's id it stays on that branch. Safe to use from several threads, one save at a time.
    """

    def __init__(
        self,
        engine: Engine,
        user: str,
        id: str,
        owner: str,
        workspace: Folders | Literal[False] | None = None,
        *,
        watch: bool = False,
    ) -> None:
        self._handle = Handle(engine, user, id, owner, workspace, watch=watch)

    # --- where it stands -----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """What it was opened by: the task's id, or a branch's."""
        return self._handle.id

    @property
    def task_id(self) -> str:
        """The task's own id, also on a handle that was opened by a branch's."""
        return self._handle.task_id

    @property
    def branch_id(self) -> str | None:
        """The branch that this handle is on; None before the first checkpoint."""
        return self._handle.branch_id

    @property
    def owner(self) -> str:
        return self._handle.owner

    @property
    def head(self) -> Checkpoint | None:
        """The checkpoint that this handle goes on from; None before the first."""
        return self._handle.head

    @property
    def state(self) -> Any:
        """The head's state: a fresh copy for each head, never the object that was saved."""
        return self._handle.require_head().state

    @overload
    def load(self, into: type[T]) -> T: ...

    @overload
    def load(self, into: type[T], *, default: T) -> T: ...

    @overload
    def load(self, *, default: Any = NOT_GIVEN) -> Any: ...

    def load(self, into: type[Any] | None = None, *, default: Any = NOT_GIVEN) -> Any:
        """Return the head's state, as a value of the class `into` if one is given; `default` where no state was
        saved yet: there is no checkpoint, or the state is empty (`{}`), as after `lastgood init`."""
        if default is not NOT_GIVEN and (self.head is None or self.state == {}):
            return default
        return self.state if into is None else self._handle.require_head().load(into)

    def refresh(self) -> Checkpoint | None:
        """Look where the task is now, and go on from there."""
        return self._handle.refresh()

    def find(self, name: str) -> Checkpoint:
        """Find a checkpoint of this task by any name people use: `HEAD~1`, a tag, `@12`, `last-good`, the beginning of
        an id."""
        return self._handle.find(name)

    def last_good(self, *, any: bool = False, type: str | None = None) -> Checkpoint | None:
        """Find the newest on this branch that is whole and whose evidence holds now; None: there is none.

        One without evidence has that of an ancestor with the same state and files. Where nothing on the branch has
        evidence, and with `any=True`, one that is unverified will do. Whole: no damage is recorded, every byte of the
        record and the state is what was saved, and all that its files need is there; content in packs is not read.
        Checkpoints of failed stages, of cancelled work and of what a restore left behind are passed over.
        """
        from lastgood.engine.recovery import find_last_good

        handle, kind = self._handle, None if type is None else check_type("checkpoint_type", type)
        if handle.head is None:
            return None
        line = find_line(handle.catalog, self.owner, handle.head.branch_id or "", active=True)
        return find_last_good(handle.engine, handle.user, line, any=check_flag("any", any), type=kind)

    def history(
        self,
        *,
        all: bool = False,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        actor: str | None = None,
        checkpoint_id: str | None = None,
        iteration: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Return what happened on this branch and before it began; with `all`, on every branch. See `Store.history`."""
        from lastgood.engine.history import Filter, read_history

        given = locals()
        wanted = Filter(**{name: given[name] for name in Filter.__struct_fields__})
        if self.head is None:
            return []
        line = find_line(
            self._handle.catalog, self.owner, self.task_id if check_flag("all", all) else self.head.branch_id or ""
        )
        return Rows(read_history(self._handle.catalog, line, wanted, before=before, limit=limit))

    def recovery(self) -> Recovery:
        """Report what was in flight, what the last good checkpoint is, and what to do."""
        from lastgood.engine.recovery import examine_task

        return examine_task(self._handle.engine, self._handle.user, check_name("task id", self.id), self.owner)

    # --- going on ------------------------------------------------------------------------------------------

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
        parent: Checkpoint | str | None = None,
    ) -> Checkpoint:
        """Save the whole state, and the files of the workspace, as one checkpoint on top of the head.

        A handle without a workspace keeps the files of the head.
        `files` limits it to these, whatever the ignore rules say; `saved.skipped` tells what was left out.
        Artifacts, decisions, guidance and participants stay as they were unless given. `key` makes the save
        idempotent: the same key with the same content returns the checkpoint that is stored, with other content
        it conflicts; `id` names the checkpoint and does the same. `evidence` is checked first, and stored with
        what checking gave, whatever that is. Raises ConflictError and UnstorableError always; other failures as
        `on_failure` says. "spool": while the store is away it is kept in the spool (status "spooled"), and raised when
        that cannot take it either. "continue": as "spool", but then its status is "lost". "raise": raised at once.

        With a `parent` that is not the head a new branch begins there, as by a restore of the state: it becomes the
        active one, this handle goes on on it, `undo()` takes that back. Files are those on disk; without a workspace,
        the parent's. It is never spooled. ConflictError when the head is another one than this handle saw.
        """
        way: Callable[..., Checkpoint] = save
        if parent is not None:
            from lastgood.engine.branch import save_on_parent

            way = partial(save_on_parent, parent=parent)
        return self._save(
            way,
            state,
            evidence,
            files,
            on_failure,
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

    def append(
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
        only_if_changed: bool = False,
    ) -> Checkpoint:
        """Save on top of whatever the head is at that moment: for one-shot writers that read nothing. As `save`.

        With `only_if_changed` a state and files that are the head's are not saved, and the head is returned.
        """
        fields = dict(locals())
        for name in ("self", "state", "evidence", "files", "on_failure", "only_if_changed"):
            del fields[name]
        way = partial(append, only_if_changed=check_flag("only_if_changed", only_if_changed))
        return self._save(way, state, evidence, files, on_failure, **fields)

    def step(
        self,
        name: str,
        *,
        type: str = "step",
        on_error: OnError = "keep",
        message: str = "",
        iteration: int = 0,
        iteration_state: str | None = None,
        control_state: str | None = None,
        work_item_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        key: str | None = None,
        artifacts: list[Any] | None = None,
        decisions: list[Any] | None = None,
        guidance: list[Any] | None = None,
        participants: list[Any] | None = None,
    ) -> Step:
        """Return a step, which ends in a checkpoint or is recorded as failed: `with task.step("edit") as step:`.

        Or of each call of a function: `@task.step("edit")`. The fields are those of `save`. When the work fails,
        files stay as they are; with `on_error="restore"` they become those of the head it began from, and what it
        had made of them is kept in a checkpoint.
        """
        fields = {name: value for name, value in locals().items() if name not in ("self", "name", "type", "on_error")}
        from lastgood.engine.step import Step, check_on_error

        check_on_error(on_error, has_workspace=self._handle.workspace is not None)
        return Step(self._handle, name, type, fields, on_error)

    def tag(self, checkpoint: Checkpoint | str, name: str, *, move: bool = False) -> None:
        """Name a checkpoint of this task."""
        checkpoint_id = checkpoint.id if isinstance(checkpoint, Checkpoint) else check_name("checkpoint", checkpoint)
        data = {"name": check_tag("tag", name), "move": check_flag("move", move)}
        attest(self._handle.engine, self._handle.user, self.owner, [checkpoint_id], "tag", data)

    # --- working, and being steered ------------------------------------------------------------------------

    def session(
        self,
        *,
        state: Callable[[], Any] | None = None,
        load: Callable[[Any], object] | None = None,
        executor: str | None = None,
        lease: float = 30.0,
        autosave: Autosave | None = None,
        restart: bool = False,
        anytime: bool = False,
        signals: bool = True,
        deadline: float = 10.0,
        _clock: Clock | None = None,
    ) -> Session:
        """Work on this branch as the only one, and let people steer it: `with task.session(state=…, load=…) as s:`.

        `state` returns the program's state, `load` puts another in its place; both are called in boundaries, in the
        thread that is there. With `anytime` the state may be read from another thread at any moment: then it is
        saved in time also when there is no boundary for long. `executor` names this instance of the program,
        `lease` is how many seconds others wait before they take over from it when it is silent. `restart` begins
        work again that was stopped; completed work is reopened. With `signals`, SIGTERM and SIGINT let the work
        come to its next boundary, for at most `deadline` seconds.
        """
        from lastgood.work.session import Session

        return Session(
            self._handle,
            self,
            state=state,
            load=load,
            executor=executor,
            lease=lease,
            autosave=autosave,
            restart=restart,
            anytime=anytime,
            signals=signals,
            deadline=deadline,
            clock=_clock,
            reopen=True,
        )

    @property
    def control(self) -> Control:
        """Pause, resume, stop, guide, answer, … the work on this branch, whichever process runs it."""
        from lastgood.work.control import Control

        return Control(self._handle, Handle(self._handle.engine, self._handle.user, self.id, self.owner))

    def progress(self) -> Progress | None:
        """Return how far a pipeline on this branch has come, whichever process runs it; None: none is under way."""
        from lastgood.work.progress import current_progress

        return current_progress(self._handle.engine, self.owner, self.id)

    # --- going back, and aside -----------------------------------------------------------------------------

    def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        paths: Sequence[str] | None = None,
        present: Any = NOT_GIVEN,
        verify: bool = True,
        skip_damaged: bool = False,
        message: str = "",
    ) -> Restored:
        """Go back: a new branch begins at `checkpoint`, becomes the active one, and this handle goes on there.

        The files of the workspace become the checkpoint's again; what was never captured is left alone. Without one
        the folder is taken that has this branch's files; InvalidError if that is not here, unless `what="state"`. With
        `what="files"` the state stays and no branch begins; `paths` (exact ones, or globs) limits that to some. Its
        evidence must hold, unless `verify=False`. If something of it is missing or damaged nothing is touched, and the
        IntegrityError names it; with `skip_damaged=True` what is whole is restored, the rest stays as it is and is
        listed in `result.failed`. `present` is the program's state as it is now; if it, or a file, is
        not what was saved last, it is saved first on the branch that is left (`result.before`). Nothing is lost:
        `undo()` goes back to where it was. Raises ConflictError when the head is another one than this handle saw,
        LeaseError while a session elsewhere works on the branch: then ask it to (`task.control.restore`).
        """
        from lastgood.engine.restore import restore

        about: dict[str, Any] = {"paths": paths, "present": present, "verify": verify, "skip_damaged": skip_damaged}
        about["message"] = message
        with BRIEFLY, self._span("restore") as describe:
            return describe(restore(self._handle, checkpoint, what, **about))

    def plan(self, checkpoint: Checkpoint | str, *, paths: Sequence[str] | None = None) -> FilesPlan:
        """Plan what restoring the files of `checkpoint` would do; nothing is touched."""
        from lastgood.engine.restore import find_workspace
        from lastgood.engine.restore_files import naming_damage, plan_files

        find_workspace(self._handle)
        workspace, blobs = self._handle.require_workspace(), self._handle.blobs
        chosen = self._handle.choose(checkpoint)
        with naming_damage(self._handle, chosen, "never"), workspace.locked():
            present = workspace.capture(self.head)
            try:
                return plan_files(blobs, workspace, chosen, present, only=paths)
            finally:
                blobs.drop(present.gathered)

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
        from lastgood.engine.restore_files import copy_files, naming_damage

        chosen = self._handle.choose(checkpoint)
        with naming_damage(self._handle, chosen, "never"):
            return copy_files(self._handle.engine, chosen, check_path("to", to), paths)

    def diff(
        self,
        before: Checkpoint | str = "HEAD",
        after: Checkpoint | str | None = None,
        *,
        paths: Sequence[str] | None = None,
    ) -> Difference:
        """Compare two checkpoints, in state and files; without `after`, one with the files on disk."""
        from lastgood.engine.difference import Difference, FilesDiff

        old, blobs = self._handle.choose(before), self._handle.blobs
        if after is not None:
            new = self._handle.choose(after)
            files = FilesDiff(old.record.files or (), new.record.files or (), blobs.read, paths)
            return Difference(old, new, files)
        workspace = self._handle.require_workspace()
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
        """Begin a branch at `checkpoint`, and return a handle on it. Everything else stays as it is.

        The handle has no workspace, because that still has this branch's files: its saves keep those of `checkpoint`.
        To work on them, open the branch with a folder of its own: `store.task(made.id, workspace=folder)`, then
        `restore("HEAD", "files")`.
        """
        from lastgood.engine.branch import fork

        about: dict[str, Any] = {"name": name, "description": description, "metadata": metadata}
        with BRIEFLY:
            made = fork(self._handle, checkpoint, **about, paused=paused, verify=verify)
        return Task(self._handle.engine, self._handle.user, made.branch_id or "", self.owner)

    def undo(self) -> Checkpoint:
        """Take back the last restore (or switch), any number of times; the head that is gone on from now."""
        from lastgood.engine.restore import undo_or_redo

        with BRIEFLY:
            return undo_or_redo(self._handle, "undo")

    def redo(self) -> Checkpoint:
        """Restore again what `undo` took back. A save in between ends that."""
        from lastgood.engine.restore import undo_or_redo

        with BRIEFLY:
            return undo_or_redo(self._handle, "redo")

    def switch(self, branch: str) -> Checkpoint:
        """Make a branch, by its name or its id, the task's active one, and go on there."""
        from lastgood.engine.restore import switch

        with BRIEFLY:
            return switch(self._handle, branch)

    def branches(self) -> list[BranchInfo]:
        """List the branches of the task, oldest first."""
        from lastgood.engine.branch import list_branches

        return Rows(list_branches(self._handle))

    def delete_branch(self, branch: str, *, dry_run: bool = False) -> int:
        """Delete a branch, by its name or its id, and what only it has; how many checkpoints. Not the active one. With
        `dry_run` nothing changes."""
        from lastgood.engine.branch import delete_branch, find_branch

        handle = self._handle
        return delete_branch(handle.engine, handle.user, self.owner, find_branch(handle, branch).id, dry_run=dry_run)

    def roll_back(self, checkpoint: Checkpoint) -> Restored:
        """Restore the state for a one-shot caller: evidence is demanded, and the head may be any."""
        from lastgood.engine.restore import roll_back

        with BRIEFLY, self._span("restore") as describe:
            return describe(roll_back(self._handle, checkpoint))

    def _save(
        self,
        way: Callable[..., Checkpoint],
        state: Any,
        evidence: EvidencePack | None,
        files: Sequence[str | os.PathLike[str]] | None,
        on_failure: OnFailure | None,
        **fields: Any,
    ) -> Checkpoint:
        with BRIEFLY, self._span("save") as describe, proving(self._handle, evidence, state) as proof:
            draft = make_draft(state, proof=proof, **fields)
            if on_failure is not None:
                check_on_failure(on_failure)
            return describe(way(self._handle, draft, files, on_failure))

    def _span(self, name: str) -> AbstractContextManager[Describe]:
        return self._handle.engine.meter.span(name, task_id=self.task_id)

    def __repr__(self) -> str:
        head = self.head
        place = "nothing yet" if head is None else head.status if head.sequence is None else f"@{head.sequence}"
        return f"<Task {self.id!r} at {place}>"

    def _repr_html_(self) -> str:
        return as_html("Task", id=self.id, owner=self.owner, branch=self.branch_id, head=self.head)
