"""Fulfilment of requests: by a running session, at its boundaries and while it waits; or by a stand-in without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.commit import KEPT
from lastgood.engine.restore import restore
from lastgood.engine.save import advance, make_draft, place_in_work
from lastgood.errors import IntegrityError, InvalidError, LeaseError, UnavailableError
from lastgood.work.lease import HeldLease, name_executor
from lastgood.work.requests import NEEDS_PROGRAM, ControlledWork, end_request, find_answer, fulfil, open_requests

if TYPE_CHECKING:
    from lastgood.engine.handle import Handle
    from lastgood.model.task import Lease, Request
    from lastgood.work.autosave import Saver


STAND_IN_SECONDS = 10.0
PAUSE_SECONDS = 0.005
STANDING_IN = " (standing in)"
"""Suffix of the executor that fulfils a request without a session: no program works on the branch then."""


class Stopped(BaseException):
    """Raised by `boundary` and `ask` where the work is to end. `with task.session()` catches it; everything is saved.

    Not an Exception, so that code which goes on after errors does not go on after this.
    """

    def __init__(self, reason: Literal["stopped", "cancelled", "interrupted"]) -> None:
        super().__init__(f"the work was {reason}")
        self.reason = reason


class Inbox:
    """The open requests of a session's branch. `load` gives the program another state, when one is restored."""

    def __init__(self, handle: Handle, saver: Saver, load: Callable[[Any], object] | None) -> None:
        self._handle = handle
        self._saver = saver
        self._load = load
        self._fulfilled: set[str] = set()
        self._answer: str | None = None
        self._heard: set[str] = set()
        self._has_alerted = False

    def read(self) -> list[Request]:
        """Return the open requests, oldest first."""
        return [request for request in open_requests(self._handle) if request.id not in self._fulfilled]

    def fulfil(self) -> None:
        """Fulfil the open requests. Raises Stopped when one of them ends the work.

        After an answer the rest waits: the work must have it before something changes where it stands.
        """
        for request in self._read_or_alert():
            try:
                fulfil(ControlledWork(self._handle, self._mark, self._rewind), request)
            except UnavailableError as error:
                self._handle.alert(
                    f"what people asked for ({request.kind}) has to wait: {error}", error, code="session"
                )
                return
            head = self._handle.head
            if request.kind in ("stop", "cancel") and head is not None and head.control_state == "stopped":
                raise Stopped("stopped" if request.kind == "stop" else "cancelled")
            if self.has_answer:
                return

    @property
    def has_answer(self) -> bool:
        return self._answer is not None

    def take_answer(self) -> str | None:
        """Return, once, the answer that was given while the session waited for it."""
        answer, self._answer = self._answer, None
        return answer

    def find_earlier_answer(self, question_id: str) -> str | None:
        """Return, once, an answer that was given while no session waited for it."""
        given = find_answer(self._handle)
        if given is None or given.id in self._heard or given.decisions[-1]["id"] != question_id:
            return None
        self._heard.add(given.id)
        return str(given.decisions[-1]["answer"])

    def _mark(self, type: str, request: Request, *, outcome: dict[str, Any] | None = None, **fields: Any) -> None:
        """Save the present as a checkpoint that fulfils the request."""
        saved = self._saver.save(type, fulfils=(FulfilledRequest(request.id, outcome or {}, request.kind),), **fields)
        self._fulfilled.add(request.id)
        if type == "answered":
            self._answer = str(fields["decisions"][-1]["answer"])
            self._heard.add(saved.id)

    def _rewind(self, request: Request) -> None:
        """Restore the checkpoint that the request names."""
        data, present = request.data, self._saver.present()
        what = data.get("what", "both")
        if what != "files" and self._load is None and present is not KEPT:
            raise InvalidError("this program cannot take another state", hint="it gives `state` alone, and no `load`")
        how = {"verify": data.get("verify", True), "message": data.get("message", "")}
        how["skip_damaged"] = data.get("skip_damaged", False)
        if present is not KEPT:
            how["present"] = present
        result = restore(self._handle, data["checkpoint"], what, request=request.id, **how)
        self._fulfilled.add(request.id)
        self._saver.note_saves()
        if self._load is not None and what != "files":
            self._load(result.state)

    def _read_or_alert(self) -> list[Request]:
        """Return nothing while requests cannot be read: that is an alert, once, and the work goes on (A8)."""
        try:
            found = self.read()
        except (UnavailableError, IntegrityError) as error:
            if not self._has_alerted:
                self._handle.alert(f"what people ask of the work cannot be read: {error}", error, code="session")
            self._has_alerted = True
            return []
        self._has_alerted = False
        return found


def close_requests(handle: Handle) -> None:
    """Fulfil or refuse what a session that has ended left open; requests that let the work go on stay open."""
    for request in open_requests(handle):
        if request.kind == "restore":
            ended = FulfilledRequest(request.id, {"reason": "the work ended before it came to that: ask again"})
            end_request(handle, ended, "refused")
        elif request.kind not in NEEDS_PROGRAM:
            stand_in(handle, request)


def stand_in(handle: Handle, request: Request) -> None:
    """Fulfil a request on a branch that no session works on; the state and the files stay as they are.

    Holds a lease of its own meanwhile. LeaseError when a session has begun just now.
    """

    def mark(type: str, request: Request, *, outcome: dict[str, Any] | None = None, **fields: Any) -> None:
        fulfils = (FulfilledRequest(request.id, outcome or {}, request.kind),)
        about = {**place_in_work(handle.head), "type": type, "fulfils": fulfils, **fields}
        advance(handle, make_draft(KEPT, **about), capture=False)

    executor = name_executor() + STANDING_IN
    lease = HeldLease(handle.engine, handle.user, handle.owner, executor, STAND_IN_SECONDS)
    _hold_in_turn(lease, handle, request.branch_id)
    try:
        handle.refresh()
        fulfil(ControlledWork(handle, mark), request)
    finally:
        lease.drop(handle)


def _hold_in_turn(lease: HeldLease, handle: Handle, branch_id: str) -> None:
    """Acquire the lease; while another stand-in holds it, wait for that one: it is done in a moment."""
    deadline = time.monotonic() + STAND_IN_SECONDS
    while True:
        try:
            return lease.hold(handle, branch_id)
        except LeaseError as error:
            held: Lease | None = error.details["lease"]
            if held is None or not held.executor.endswith(STANDING_IN) or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_SECONDS)
