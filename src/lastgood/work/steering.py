"""Doing what people asked for: each request becomes a checkpoint, and is met with it (A11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from lastgood.catalog.values import FulfilledRequest
from lastgood.codec.encode import encode
from lastgood.engine.checkpoint import Checkpoint
from lastgood.errors import (
    ConflictError,
    ControlError,
    EvidenceError,
    IntegrityError,
    InvalidError,
    LeaseError,
    NotFoundError,
    UnstorableError,
)
from lastgood.model.control import describe
from lastgood.model.digest import digest
from lastgood.model.request import Request
from lastgood.task import Task
from lastgood.work.wishes import judge

_OPPOSED = {"pause": ("resume", "retry"), "resume": ("pause",), "retry": ("pause",)}
_ASIDE = ("guided", "edited", "rounds_added", "paused", "resumed", "idle", "before_restore", "restored")
"""Checkpoints that are made without the program going on."""


class Steered(Protocol):
    """Work that can be steered: a session, or whoever stands in for one that is not alive."""

    @property
    def task(self) -> Task: ...

    def mark(self, type: str, request: Request, *, outcome: dict[str, Any] | None = None, **fields: Any) -> Checkpoint:
        """The present as a checkpoint that meets the request."""

    def rewind(self, request: Request) -> None:
        """Go back to the checkpoint that the request names."""


def meet(work: Steered, request: Request) -> None:
    """Do it, or refuse it with the reason; what cannot be done yet stays open, and what nobody wants any more is left.

    Raises what is wrong with the work, not with the request: LeaseError, ConflictError, UnstorableError,
    UnavailableError. Then the request is as it was.
    """
    try:
        _do(work, request)
    except _Later:
        return
    except (LeaseError, UnstorableError):
        raise
    except (InvalidError, NotFoundError, ControlError, EvidenceError) as error:
        _end(work, request, "refused", {"reason": str(error)})
    except (ConflictError, IntegrityError) as error:
        if request.kind == "restore":  # that checkpoint is deleted, or damaged
            _end(work, request, "refused", {"reason": str(error)})
        elif any(request.id == wanted.id for wanted in work.task.requests()):
            raise


def find_question(task: Task) -> dict[str, Any] | None:
    """What the work asks, while it waits for an answer."""
    head = task.head
    if head is None or head.control_state != "waiting_for_input":
        return None
    question = head.metadata.get("question")
    if question is None:  # something was saved since it was asked
        asked = task.store.list_checkpoints(head.branch_id or "", 1, "question", owner=task.owner)
        question = asked[0].metadata.get("question") if asked else None
    return question if isinstance(question, dict) else None


def find_answer(task: Task) -> Checkpoint | None:
    """The checkpoint of what the work was answered last, unless it has gone on since, or was led elsewhere."""
    found = task.head
    while found is not None and found.type in _ASIDE and found.parent_id is not None:
        branch_id = found.branch_id
        try:
            found = task.store.get_checkpoint(found.parent_id, owner=task.owner)
        except NotFoundError:
            return None
        if found.branch_id != branch_id:
            return None
    return found if found is not None and found.type == "answered" else None


def check_answer(question: Mapping[str, Any], answer: object) -> None:
    choices = question.get("choices")
    if choices and answer not in choices:
        raise InvalidError(f"{str(answer)[:80]!r} is not one of the choices", hint=f"one of {', '.join(choices)}")


def _do(work: Steered, request: Request) -> None:
    if judge(request.kind, _state(work)) == "already":
        _refuse_earlier(work, request, _OPPOSED.get(request.kind, ()), "the contrary was wanted since")
        _end(work, request, "met", {"note": f"it was {describe(_state(work))} already"})
    else:
        _MEETINGS[request.kind](work, request)


def _end(work: Steered, request: Request, status: Literal["met", "refused"], outcome: dict[str, Any]) -> None:
    try:
        work.task.end_request(FulfilledRequest(request.id, outcome), status)
    except LeaseError:
        raise
    except ConflictError:
        pass  # somebody has withdrawn it


def find_artifact(artifacts: Sequence[Any], wanted: str) -> dict[str, Any]:
    """By its id or its name. NotFoundError: there is none."""
    for artifact in artifacts:
        if isinstance(artifact, dict) and wanted in (artifact.get("id"), artifact.get("name")):
            return artifact
    raise NotFoundError(f"there is no artifact {wanted!r}", hint="`lastgood show` lists them")


def content_digest(artifact: Mapping[str, Any]) -> str:
    """Of what an artifact holds now, so that nobody edits over what they have not seen."""
    return digest(encode(artifact.get("content"))).hex()


def next_version(artifact: Mapping[str, Any]) -> Any:
    """People may number them in their own way: then it stays."""
    version = artifact.get("version", 0)
    return version + 1 if type(version) is int else version


def _pause(work: Steered, request: Request) -> None:
    if _state(work) == "waiting_for_input":
        raise _Later
    work.mark("paused", request, control_state="paused")


def _resume(work: Steered, request: Request) -> None:
    work.mark("resumed", request, control_state="running")


def _stop(work: Steered, request: Request) -> None:
    _settle_others(work, request)
    work.mark("stopped", request, control_state="stopped")


def _cancel(work: Steered, request: Request) -> None:
    _settle_others(work, request)
    work.mark("cancelled", request, control_state="stopped")


def _settle_others(work: Steered, request: Request) -> None:
    """When stopped work is run again, it is not stopped by who wanted the same now, nor paused, or the like, by who
    wanted that before."""
    _refuse_earlier(work, request, ("pause", "resume", "retry"), "it was stopped instead")
    for other in work.task.requests():
        if other.id != request.id and other.kind in ("stop", "cancel"):
            _end(work, other, "met", {"note": "it was stopped already"})


def _refuse_earlier(work: Steered, request: Request, kinds: Sequence[str], reason: str) -> None:
    for other in work.task.requests():
        if other.id == request.id:
            return
        if other.kind in kinds:
            _end(work, other, "refused", {"reason": reason})


def _guide(work: Steered, request: Request) -> None:
    said = {"id": request.id, "text": request.data["text"], "by": request.actor, "at": request.at}
    work.mark("guided", request, guidance=[*_companions(work, "guidance"), said])


def _add_rounds(work: Steered, request: Request) -> None:
    said = {"id": request.id, "rounds": request.data["rounds"], "by": request.actor, "at": request.at}
    work.mark("rounds_added", request, guidance=[*_companions(work, "guidance"), said])


def _edit(work: Steered, request: Request) -> None:
    artifacts = _companions(work, "artifacts")
    artifact = find_artifact(artifacts, request.data["artifact"])
    if request.data.get("over") not in (None, content_digest(artifact)):
        raise ControlError("the artifact was changed meanwhile", hint="look at it again, and edit what is there now")
    version = next_version(artifact)
    edited = {"content": request.data["content"], "version": version, "edited_by": request.actor}
    artifacts[artifacts.index(artifact)] = {**artifact, **edited}
    work.mark("edited", request, outcome={"version": version}, artifacts=artifacts)


def _answer(work: Steered, request: Request) -> None:
    question = find_question(work.task)
    if question is None:
        raise ControlError("nothing is asked", hint="it was answered already, or the work went on")
    if request.data.get("question") not in (None, question["id"]):
        raise ControlError("that question is not open any more", hint="look what is asked now: `lastgood status`")
    answer = request.data["answer"]
    check_answer(question, answer)
    decision = {
        "id": question["id"],
        "question": question["text"],
        "answer": answer,
        "by": request.actor,
        "at": request.at,
    }
    work.mark(
        "answered",
        request,
        control_state="running",
        decisions=[*_companions(work, "decisions"), decision],
    )


def _restore(work: Steered, request: Request) -> None:
    if _state(work) == "waiting_for_input":
        raise _Later
    work.rewind(request)


class _Later(Exception):  # noqa: N818
    """Not while the work waits for an answer: the request stays open."""


_MEETINGS: dict[str, Callable[[Steered, Request], None]] = {
    "pause": _pause,
    "resume": _resume,
    "retry": _resume,
    "stop": _stop,
    "cancel": _cancel,
    "guide": _guide,
    "rounds": _add_rounds,
    "edit": _edit,
    "answer": _answer,
    "restore": _restore,
}


def _state(work: Steered) -> str:
    head = work.task.head
    return "idle" if head is None else head.control_state


def _companions(work: Steered, name: str) -> list[Any]:
    head = work.task.head
    return [] if head is None else list(getattr(head, name) or ())
