"""What may be asked of work in each control state, and what is to be done about it (A15). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from lastgood.errors import ControlError
from lastgood.model.control import describe
from lastgood.model.request import RequestKind

Verdict = Literal["ask", "already"]

_ACTIVE = ("running", "waiting_for_input", "paused")
_ASKED_IN: dict[str, tuple[str, ...]] = {
    "pause": ("running", "waiting_for_input"),
    "resume": ("paused", "stopped", "failed"),
    "stop": _ACTIVE,
    "cancel": _ACTIVE,
    "retry": ("stopped", "failed"),
    "rounds": (*_ACTIVE, "completed"),
    "answer": ("waiting_for_input",),
    "guide": ("idle", *_ACTIVE, "stopped", "completed", "failed"),
    "edit": ("idle", *_ACTIVE, "stopped", "completed", "failed"),
    "restore": ("idle", *_ACTIVE, "stopped", "completed", "failed"),
}
_ALREADY: dict[str, tuple[str, ...]] = {
    "pause": ("paused",),
    "resume": ("running", "waiting_for_input"),
    "retry": ("running", "waiting_for_input"),
    "stop": ("stopped",),
    "cancel": ("stopped",),
}
_ADVICE = {
    "idle": "it was never run: run it first",
    "running": "it is running",
    "waiting_for_input": "it waits for an answer",
    "paused": "resume it first",
    "stopped": "retry it, or fork it",
    "completed": "it is done: add rounds, or run it again with restart",
    "failed": "retry it, or go back to a good checkpoint",
}

_AFTER = {
    "pause": "paused",
    "resume": "running",
    "retry": "running",
    "answer": "running",
    "stop": "stopped",
    "cancel": "stopped",
}


def judge(kind: RequestKind, state: str) -> Verdict:
    """ControlError, with the reason, when work in that state cannot do it. The same wish twice is harmless."""
    if state in _ALREADY.get(kind, ()):
        return "already"
    if state not in _ASKED_IN[kind]:
        raise ControlError(
            f"work that is {describe(state)} {_cannot(kind)}", hint=_ADVICE.get(state), state=state, wanted=kind
        )
    return "ask"


def is_holding(kind: RequestKind, state: str, wanted: Iterable[RequestKind]) -> bool:
    """Whether what is so already still will be when all that is wanted, oldest first, is done, too."""
    for one in wanted:
        state = _AFTER.get(one, state)
    try:
        return judge(kind, state) == "already"
    except ControlError:
        return True


def _cannot(kind: RequestKind) -> str:
    if kind == "answer":
        return "has asked nothing"
    if kind == "rounds":
        return "cannot be given more rounds"
    return f"cannot be {'retried' if kind == 'retry' else kind.rstrip('e') + 'ed' if kind != 'stop' else 'stopped'}"
