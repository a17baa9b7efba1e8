"""A step: work that is begun, and then committed as one checkpoint or recorded as failed."""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, get_args

from lastgood.engine.commit import KEPT
from lastgood.engine.engine import Engine, acting
from lastgood.engine.handle import Handle
from lastgood.engine.load import BRIEFLY, logged
from lastgood.engine.restore import restore
from lastgood.engine.save import ANY, make_draft, proving, save_drifted, save_step
from lastgood.engine.staleness import Run
from lastgood.errors import CheckpointError, ConflictError, InvalidError, NotFoundError, UnavailableError
from lastgood.local.process import this_process
from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType
from lastgood.model.identity import check_name, check_path, check_type, new_id, now
from lastgood.model.task import EventKind, OpenStep
from lastgood.observe.log import is_logging

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.command import Command

ERROR_CHARACTERS = 2000
OnError = Literal["keep", "restore"]
P = ParamSpec("P")
T = TypeVar("T")


class Step:
    """One piece of work on a task; a context manager. Made by `task.step(...)`.

    Between `begin` and `commit` it is listed among the open steps, also after its process was killed. What is
    expected of it becomes the evidence of its checkpoint; a step whose evidence does not hold is stored all the
    same, as not verified. On an exception the head stays where it is and the failure is recorded. With a workspace
    the files that it finds are saved first, unless they are those of the head: `before` is that checkpoint.
    """

    def __init__(
        self,
        handle: Handle,
        name: str,
        type: str,
        fields: dict[str, Any],
        on_error: OnError = "keep",
        *,
        told: dict[str, Any] | None = None,
    ) -> None:
        """`fields` may be completed until it is committed; `told` is for whoever finds it open."""
        self.id = new_id()
        self.name = check_name("step", name)
        self.type = check_type("type", type)
        self.evidence = EvidencePack()
        self.checkpoint: Checkpoint | None = None
        self.before: Checkpoint | None = None
        """The checkpoint of the files as it found them, if these were not saved."""
        self._handle = handle
        self._fields = fields
        self._told = told or {}
        self._on_error = on_error
        self._state: Any = KEPT
        self._from: Checkpoint | Literal["any"] | None = None
        self._open = False
        self._ground: Checkpoint | None = None
        self._running: set[Command] = set()
        self._runs: list[Run] = []
        self._began: Mapping[str, int] = {}

    @property
    def state(self) -> Any:
        """A private copy of the head's state ({} before the first checkpoint). Change it, or set it.

        A step that never touches it goes on from whatever the head is when it commits; one that changed it must
        find the head that it began with.
        """
        if self._state is KEPT:
            head = self._handle.head
            self._state = {} if head is None else head.fresh_state()
            self._from = head
        return self._state

    @state.setter
    def state(self, value: Any) -> None:
        if self._state is KEPT:
            self._from = self._handle.head
        self._state = value

    def put(self, state: Any) -> None:
        """Set the state that it ends with, whatever the head is when it commits."""
        self._state, self._from = state, ANY

    def begin(self) -> Self:
        if self._open or self.checkpoint is not None:
            raise ConflictError(f"the step {self.name!r} was begun already", hint="begin a new one: task.step(…)")
        handle = self._handle
        end_failed(handle.engine, handle.user)
        self._began = {} if handle.workspace is None else handle.workspace.stamps(wait=False)
        self.before = save_drifted(handle, "before_step", f"before {self.name}")
        about = handle.engine, handle.user, handle.owner, handle.branch_id or handle.task_id
        with logged(*about, "begin_step", step_id=self.id):
            handle.engine.catalog.begin_step(self.as_open(), None, handle.lease)
        self.note_begun()
        self._ground = handle.head
        return self

    def as_open(self) -> OpenStep:
        """Return its record as an open step that begins now."""
        return OpenStep(
            id=self.id,
            owner=self._handle.owner,
            task_id=self._handle.task_id,
            name=self.name,
            type=self.type,
            began_at_us=now(),
            began_by=self._handle.user,
            process=this_process(),
            branch_id=self._handle.branch_id,
            work_item_id=self._fields.get("work_item_id"),
            metadata=self._told,
        )

    def note_begun(self) -> None:
        self._open = True

    @property
    def is_open(self) -> bool:
        return self._open

    def expect(self, *evidence: Evidence) -> None:
        """Claim something; it is checked when the step commits."""
        self.evidence.evidence_list.extend(evidence)

    def expect_file(self, path: str | os.PathLike[str], description: str | None = None) -> None:
        """Claim that a file is as it is now. One that is not there yet must be there when the step commits."""
        name = check_path("path", path)
        try:
            digest = self._handle.engine.verifier().hash_file(name)
        except NotFoundError:
            missing = {"path": name, "type": "file"}
            self.expect(Evidence(EvidenceType.ARTIFACT_EXISTS, description or f"{name} is there", missing))
        else:
            as_now = {"path": name, "sha256": digest}
            self.expect(Evidence(EvidenceType.FILE_SHA256, description or f"{name} is as it was", as_now))

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        expect: int = 0,
        check: bool = False,
        description: str | None = None,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Run a command as `subprocess.run` does; that it ended with the code `expect` becomes evidence.

        Its output goes where it would have gone, and its end is kept with the evidence. Another exit code raises
        CalledProcessError only with `check=True`. There is no shell: give a list. Files of the workspace that change
        afterwards, before the step commits, make that evidence stale.
        """
        from lastgood.engine.command import Command

        line = Command(command, options, self._without_secrets)
        self._running.add(line)
        try:
            result = line.run()
        finally:
            self._running.discard(line)
            shown = self._without_secrets(line.text)
            claimed = description or f"{shown[:500]} ends with {expect}"
            claim = Evidence(EvidenceType.COMMAND_EXIT, claimed, {"exit_code": expect}, metadata=line.record())
            self.expect(claim)
        if (workspace := self._handle.workspace) is not None:
            self._runs.append(Run(claim, workspace.names(self._began), workspace.stamps()))
        if check and result.returncode != expect:
            raise subprocess.CalledProcessError(result.returncode, result.args, result.stdout, result.stderr)
        return result

    def stop(self) -> None:
        """Kill the commands that `run` waits for in other threads; they end as killed ones do."""
        for line in list(self._running):
            line.stop()

    def commit(self) -> Checkpoint:
        """Make the checkpoint. Raises ConflictError when the state was changed and the head is another one now."""
        return self.commit_and_begin(None)

    def commit_and_begin(self, then: Step | None) -> Checkpoint:
        """Commit; `then` begins in the same commit, unless a request is open (`then.is_open` says whether it did)."""
        if not self._open:
            raise ConflictError(f"the step {self.name!r} is not open", hint="begin it: `with task.step(…) as step`")
        with BRIEFLY:
            self.checkpoint = _commit(self._handle, self, self._state, then)
        if then is not None and then.is_open:
            then._ground = self.checkpoint
        if self.checkpoint.status == "lost":
            self._give_up("its checkpoint could not be stored")
        self._open = False
        return self.checkpoint

    def fail(self, reason: BaseException | str) -> None:
        """End it without a checkpoint, and record why."""
        if not self._open:
            raise ConflictError(f"the step {self.name!r} is not open", hint="begin it: `with task.step(…) as step`")
        self._open = False
        told = self._without_secrets(in_words(reason)[: 10 * ERROR_CHARACTERS])
        end_step(
            self._handle.engine, self._handle.user, self._handle.owner, self.id, "step_failed", told[:ERROR_CHARACTERS]
        )

    def __call__(self, work: Callable[P, T]) -> Callable[P, T]:
        """Make each call of a function a step: `@task.step("edit")`."""
        if inspect.iscoroutinefunction(work):
            raise InvalidError(f"{work.__name__} is a coroutine", hint="a step of lastgood.aio awaits it")

        @functools.wraps(work)
        def stepped(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.again():
                return work(*args, **kwargs)

        return stepped

    def again(self) -> Step:
        """Return a step like this one that has not begun."""
        return Step(self._handle, self.name, self.type, self._fields, self._on_error, told=self._told)

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if error is None:
            try:
                self.commit()
            except BaseException as failure:
                self._give_up(failure)
                raise
        else:
            self._give_up(error)

    def _give_up(self, reason: BaseException | str) -> None:
        """Record the failure, and put the files back if that was asked for. What went wrong first is what the caller
        must hear; what goes wrong here is noted with it, and sent as an alert."""
        if self._open:
            told = self._without_secrets(in_words(reason)[: 10 * ERROR_CHARACTERS])[:ERROR_CHARACTERS]
            if not self._insist(reason, "was not recorded as failed", lambda: self.fail(reason)):
                self._handle.engine.unrecorded[self.id] = self._handle.owner, told
            if self._on_error == "restore" and self._ground is not None:
                self._insist(reason, "has left files that were not put back", self._put_back)

    def _insist(self, reason: BaseException | str, otherwise: str, work: Callable[[], None]) -> bool:
        try:
            work()
            return True
        except Exception as error:
            told = self._without_secrets(f"the step {self.name!r} {otherwise}: {in_words(error)}")
            if isinstance(reason, BaseException):
                reason.add_note(told)
            self._handle.engine.alert(told, self._handle.task_id, error, code="step_unsettled")
            return False

    def _put_back(self) -> None:
        assert self._ground is not None
        done = restore(self._handle, self._ground, "files", verify=False, message=f"{self.name} failed")
        if done.failed:
            path, why = done.failed[0]
            raise UnavailableError(f"{len(done.failed)} of them, the first is {path} ({why})")

    def _without_secrets(self, text: str) -> str:
        return self._handle.engine.options.redaction.text(text)

    def __repr__(self) -> str:
        return f"<Step {self.name!r} of {self._handle.id!r}{' open' if self._open else ''}>"


def _commit(handle: Handle, step: Step, state: Any, then: Step | None) -> Checkpoint:
    """Make the checkpoint of a step: on top of whatever is there if its state is the head's, else where it began."""
    span = handle.engine.meter.span("save", task_id=handle.task_id)
    with span as describe, proving(handle, step.evidence, state) as proof:
        about = {"type": step.type, "step_id": step.name, "id": step.id, "step": step.id, "proof": proof}
        draft = make_draft(state, **{**step._fields, **about, "begins": then})
        return describe(save_step(handle, draft, step._from, step.evidence, step._runs))


def end_failed(engine: Engine, user: str) -> None:
    """End the steps of this process whose failure could not be recorded when they failed: the store was away."""
    for step_id, (owner, reason) in list(engine.unrecorded.items()):
        try:
            end_step(engine, user, owner, step_id, "step_failed", reason)
        except UnavailableError:
            return
        except CheckpointError:
            pass  # it was ended meanwhile, or its task is gone
        engine.unrecorded.pop(step_id, None)


def end_step(engine: Engine, user: str, owner: str, step_id: str, kind: EventKind, reason: str) -> None:
    """End a step without a checkpoint; the log keeps why."""
    found = engine.catalog.open_step(owner, check_name("step id", step_id)) if is_logging() else None
    task_id = found[0].task_id if found else step_id
    with logged(engine, user, owner, task_id, kind, step_id=step_id):
        engine.catalog.end_step(owner, step_id, kind, {"reason": reason}, acting(user))


def in_words(reason: BaseException | str) -> str:
    try:
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
    except Exception:  # an exception that cannot be put into words has a name at least
        text = type(reason).__name__
    return text.encode(errors="replace").decode()


def check_on_error(on_error: object, *, has_workspace: bool) -> None:
    if on_error not in get_args(OnError):
        raise InvalidError(f"on_error cannot be {str(on_error)[:80]!r}", hint=f"one of {', '.join(get_args(OnError))}")
    if on_error == "restore" and not has_workspace:
        raise InvalidError("there are no files to restore", hint="open the task with its workspace")
