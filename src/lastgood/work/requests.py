"""Requests of people to the work on a branch: which are allowed in each control state, and how each is fulfilled.

A request is fulfilled in the very commit that does what it asks, or ended with the reason why it is refused (A11, A15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from lastgood.catalog.values import FulfilledRequest
from lastgood.codec.encode import encode
from lastgood.engine.engine import acting
from lastgood.engine.load import find_line, load_checkpoint, wrap
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
from lastgood.model.checkpoint import describe
from lastgood.model.identity import Moment, check_name, check_text, digest
from lastgood.observe.log import correlation

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.handle import Handle
    from lastgood.model.task import Request, RequestKind

# --- what is allowed ---------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    """What a kind of request needs and does: the control states it is allowed in, and those that are as requested."""

    allowed: tuple[str, ...]
    already: tuple[str, ...] = ()
    state: str | None = None
    """The control state afterwards; None: as it was."""
    type: str = ""
    """The type of the checkpoint that fulfils it."""
    refusal: str = ""
    opposite: tuple[str, ...] = ()


_ACTIVE = ("running", "waiting_for_input", "paused")
_ANY = ("idle", *_ACTIVE, "stopped", "completed", "failed")
_ENDED_EARLY = ("stopped", "failed")
_GOING = ("running", "waiting_for_input")
_RULES = {
    "pause": _Rule(_GOING, ("paused",), "paused", "paused", "cannot be paused", ("resume", "retry")),
    "resume": _Rule(("paused", *_ENDED_EARLY), _GOING, "running", "resumed", "cannot be resumed", ("pause",)),
    "retry": _Rule(_ENDED_EARLY, _GOING, "running", "resumed", "cannot be retried", ("pause",)),
    "stop": _Rule(_ACTIVE, ("stopped",), "stopped", "stopped", "cannot be stopped"),
    "cancel": _Rule(_ACTIVE, ("stopped",), "stopped", "cancelled", "cannot be canceled"),
    "rounds": _Rule((*_ACTIVE, "completed"), type="rounds_added", refusal="cannot be given more rounds"),
    "answer": _Rule(("waiting_for_input",), state="running", refusal="has asked nothing"),
    "guide": _Rule(_ANY, type="guided"),
    "edit": _Rule(_ANY),
    "restore": _Rule(_ANY),
}
_ADVICE = {
    "idle": "it was never run: run it first",
    "running": "it is running",
    "waiting_for_input": "it waits for an answer",
    "paused": "resume it first",
    "stopped": "retry it, or fork it",
    "completed": "it is completed: add rounds, or run it again with restart=True",
    "failed": "retry it, or restore a good checkpoint",
}
MESSAGE_CHARACTERS = 2000
"""So much of what was said stands in the message of the checkpoint; all of it is in its guidance or decisions."""
NEEDS_PROGRAM = ("resume", "retry", "rounds")
"""Kinds that only a program can fulfil: such a request waits until the work is run."""


def check_allowed(kind: RequestKind, state: str) -> Literal["allowed", "already"]:
    """Return "already" when work in that state is as requested. ControlError, with the reason, when it cannot be."""
    rule = _RULES[kind]
    if state in rule.already:
        return "already"
    if state not in rule.allowed:
        raise ControlError(
            f"work that is {describe(state)} {rule.refusal}", hint=_ADVICE.get(state), state=state, wanted=kind
        )
    return "allowed"


def stays_fulfilled(kind: RequestKind, state: str, open_kinds: Iterable[RequestKind]) -> bool:
    """Return whether work that is as requested already still is when all open requests, oldest first, are fulfilled."""
    for one in open_kinds:
        state = _RULES[one].state or state
    try:
        return check_allowed(kind, state) == "already"
    except ControlError:
        return True


# --- the requests of a branch ------------------------------------------------------------------------------


def open_requests(handle: Handle) -> list[Request]:
    """Return the open requests to the branch that the handle is on, oldest first."""
    branch_id = handle.branch_id
    return [] if branch_id is None else handle.catalog.requests(handle.owner, branch_id=branch_id)


def end_request(handle: Handle, ended: FulfilledRequest, status: Literal["fulfilled", "refused"]) -> None:
    """End a request without a checkpoint. LeaseError when a session works through the handle and has lost its lease."""
    handle.catalog.end_request(handle.owner, ended, status, acting(handle.user), lease=handle.lease)


# --- fulfilling --------------------------------------------------------------------------------------------


class ControlledWork(NamedTuple):
    """Work that requests are fulfilled on: a session's, or that of a branch which no program works on.

    `mark` saves a checkpoint of a type that fulfils a request, with an outcome and fields. `rewind` restores the
    checkpoint that a request names; None: that is done elsewhere.
    """

    handle: Handle
    mark: Callable[..., object]
    rewind: Callable[[Request], None] | None = None


def fulfil(work: ControlledWork, request: Request) -> None:
    """Do what is requested, or refuse it with the reason; leave it open when that has to wait for an answer.

    Raises what is wrong with the work, not with the request: LeaseError, ConflictError, UnstorableError,
    UnavailableError. Then the request is as it was. All of it belongs to the correlation of whoever asked.
    """
    with correlation_of(request):
        _fulfil(work, request)


def correlation_of(request: Request) -> AbstractContextManager[object]:
    """Return the correlation in which a request was made; without one, that of the caller goes on."""
    return nullcontext() if request.correlation_id is None else correlation(request.correlation_id)


def _fulfil(work: ControlledWork, request: Request) -> None:
    try:
        if check_allowed(request.kind, _state(work)) == "already":
            _refuse_earlier(work, request, _RULES[request.kind].opposite, "the contrary was wanted since")
            _end(work, request, "fulfilled", {"note": f"it was {describe(_state(work))} already"})
        else:
            _HANDLERS.get(request.kind, _change_state)(work, request)
    except _NotYet:
        return
    except (LeaseError, UnstorableError):
        raise
    except (InvalidError, NotFoundError, ControlError, EvidenceError) as error:
        _end(work, request, "refused", {"reason": str(error)})
    except (ConflictError, IntegrityError) as error:
        if request.kind == "restore":  # that checkpoint is deleted, or damaged
            _end(work, request, "refused", {"reason": str(error)})
        elif any(request.id == one.id for one in open_requests(work.handle)):  # else it was withdrawn
            raise


def _end(
    work: ControlledWork, request: Request, status: Literal["fulfilled", "refused"], outcome: dict[str, Any]
) -> None:
    try:
        end_request(work.handle, FulfilledRequest(request.id, outcome), status)
    except LeaseError:
        raise
    except ConflictError:
        pass  # it was withdrawn


def _change_state(work: ControlledWork, request: Request) -> None:
    """Pause, resume, retry, stop or cancel."""
    state = _RULES[request.kind].state
    if state == "paused" and _state(work) == "waiting_for_input":
        raise _NotYet
    if state == "stopped":
        _end_others(work, request)
    work.mark(_RULES[request.kind].type, request, control_state=state)


def _end_others(work: ControlledWork, request: Request) -> None:
    """End requests that a stop makes pointless: they must not stop or pause the work when it is run again."""
    _refuse_earlier(work, request, ("pause", "resume", "retry"), "it was stopped instead")
    for other in open_requests(work.handle):
        if other.id != request.id and other.kind in ("stop", "cancel"):
            _end(work, other, "fulfilled", {"note": "it was stopped already"})


def _refuse_earlier(work: ControlledWork, request: Request, kinds: Sequence[str], reason: str) -> None:
    for other in open_requests(work.handle):
        if other.id == request.id:
            return
        if other.kind in kinds:
            _end(work, other, "refused", {"reason": reason})


def _add_guidance(work: ControlledWork, request: Request) -> None:
    """Add guidance or rounds."""
    name = "text" if request.kind == "guide" else "rounds"
    said = request.data[name]
    entry = {"id": request.id, name: said, "by": request.actor, "at": request.at_us}
    message = said if request.kind == "guide" else f"{said} more round{'' if said == 1 else 's'}"
    guidance = [*_companions(work, "guidance"), entry]
    work.mark(_RULES[request.kind].type, request, guidance=guidance, message=message[:MESSAGE_CHARACTERS])


def _edit(work: ControlledWork, request: Request) -> None:
    artifacts = _companions(work, "artifacts")
    artifact = find_artifact(artifacts, request.data["artifact"])
    if request.data.get("over") not in (None, content_digest(artifact)):
        raise ControlError("the artifact was changed meanwhile", hint="look at it again, and edit what is there now")
    version = next_version(artifact)
    edited = {"content": request.data["content"], "version": version, "edited_by": request.actor}
    artifacts[artifacts.index(artifact)] = {**artifact, **edited}
    about = {"message": request.data["artifact"], "artifacts": artifacts}
    work.mark("edited", request, outcome={"version": version}, **about)


def _answer(work: ControlledWork, request: Request) -> None:
    question = find_question(work.handle)
    if question is None:
        raise ControlError("nothing is asked", hint="it was answered already, or the work went on")
    if request.data.get("question") not in (None, question["id"]):
        raise ControlError("that question is not open any more", hint="look what is asked now: task.control.question")
    answer = request.data["answer"]
    check_answer(question, answer)
    decision = {
        "id": question["id"],
        "question": question["text"],
        "answer": answer,
        "by": request.actor,
        "at": request.at_us,
    }
    decisions = [*_companions(work, "decisions"), decision]
    message = f"{question['text']} {answer}"[:MESSAGE_CHARACTERS]
    work.mark("answered", request, control_state="running", decisions=decisions, message=message)


def _restore(work: ControlledWork, request: Request) -> None:
    if _state(work) == "waiting_for_input":
        raise _NotYet
    if work.rewind is not None:
        work.rewind(request)


class _NotYet(Exception):  # noqa: N818
    """Raised while the work waits for an answer: the request stays open."""


_HANDLERS = {"guide": _add_guidance, "rounds": _add_guidance, "edit": _edit, "answer": _answer, "restore": _restore}
"""What fulfils a request; those of other kinds change the control state."""


def _state(work: ControlledWork) -> str:
    head = work.handle.head
    return "idle" if head is None else head.control_state


def _companions(work: ControlledWork, name: str) -> list[Any]:
    head = work.handle.head
    return [] if head is None else list(getattr(head, name) or ())


# --- questions, artifacts and rounds -----------------------------------------------------------------------

_WITHOUT_PROGRAM = ("guided", "edited", "rounds_added", "paused", "resumed", "idle", "before_restore", "restored")
"""Types of checkpoints that are made without the program going on."""


def make_question(text: str, choices: Sequence[str] | None, key: str | None) -> dict[str, Any]:
    """Return a question; its id depends on its key, or else its text, and on the choices."""
    check_text("question", text)
    for choice in choices or ():
        check_text("a choice", choice)
    name = text if key is None else check_name("key", key)
    about = {"key": name, "text": text, "choices": list(choices or ())}
    return {"id": digest("\0".join((name, *(choices or ()))).encode()).hex()[:32], **about}


def find_question(handle: Handle) -> dict[str, Any] | None:
    """Return what the work asks, while it waits for an answer."""
    head = handle.head
    if head is None or head.control_state != "waiting_for_input":
        return None
    question = head.metadata.get("question")
    if question is None:  # something was saved since it was asked
        line = find_line(handle.catalog, handle.owner, head.branch_id or "")
        asked = handle.catalog.checkpoints(line, limit=1, type="question")
        question = wrap(handle.engine, asked[0]).metadata.get("question") if asked else None
    return question if isinstance(question, dict) else None


def find_answer(handle: Handle) -> Checkpoint | None:
    """Return the checkpoint of the last answer, unless the work has gone on since, or is on another branch."""
    found = handle.head
    while found is not None and found.type in _WITHOUT_PROGRAM and found.parent_id is not None:
        branch_id = found.branch_id
        try:
            found = load_checkpoint(handle.engine, handle.owner, found.parent_id)
        except NotFoundError:
            return None
        if found.branch_id != branch_id:
            return None
    return found if found is not None and found.type == "answered" else None


class Guidance(msgspec.Struct, frozen=True):
    """What a person told the work."""

    id: str
    text: str
    by: str
    at_us: int

    at = Moment()


def guidance_of(checkpoint: Checkpoint | None) -> list[Guidance]:
    """Return the guidance in a checkpoint, oldest first, without what is of another shape."""
    given = [] if checkpoint is None else checkpoint.guidance
    found = [one for one in given if isinstance(one, dict) and "text" in one]
    return [Guidance(str(one.get("id")), str(one["text"]), str(one.get("by", "")), _time(one)) for one in found]


def _time(entry: dict[str, Any]) -> int:
    value = entry.get("at")
    return value if isinstance(value, int) and 0 <= value < 1 << 56 else 0


def last_of_program(handle: Handle) -> Checkpoint | None:
    """Return the newest checkpoint that the program made itself; None where there is none, or it was purged."""
    found = handle.head
    while found is not None and (found.type in _WITHOUT_PROGRAM or found.type in ("started", "completed", "failed")):
        try:
            found = None if found.parent_id is None else load_checkpoint(handle.engine, handle.owner, found.parent_id)
        except NotFoundError:
            return None
    return found


def check_answer(question: Mapping[str, Any], answer: object) -> None:
    """Raise InvalidError when the answer is not one of the choices."""
    choices = question.get("choices")
    if choices and answer not in choices:
        raise InvalidError(f"{str(answer)[:80]!r} is not one of the choices", hint=f"one of {', '.join(choices)}")


def find_artifact(artifacts: Sequence[Any], wanted: str) -> dict[str, Any]:
    """Return an artifact by its id or its name. NotFoundError when there is none."""
    for artifact in artifacts:
        if isinstance(artifact, dict) and wanted in (artifact.get("id"), artifact.get("name")):
            return artifact
    raise NotFoundError(f"there is no artifact {wanted!r}", hint="task.head.artifacts lists them")


def content_digest(artifact: Mapping[str, Any]) -> str:
    """Return the digest of an artifact's content, so that an edit of older content can be refused."""
    return digest(encode(artifact.get("content"))).hex()


def next_version(artifact: Mapping[str, Any]) -> Any:
    """Return the version after an artifact's. One that is not an integer is the program's own, and stays."""
    version = artifact.get("version", 0)
    return version + 1 if type(version) is int else version


def count_rounds(guidance: Sequence[Any]) -> int:
    """Return how many rounds people added."""
    return sum(entry["rounds"] for entry in guidance if isinstance(entry, dict) and "rounds" in entry)
