"""Control of the work on a branch, from any process: requests are stored, and fulfilled at the session's next boundary,
or at once when no session is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.engine import acting
from lastgood.engine.load import logged, no_such_task
from lastgood.engine.restore import restore
from lastgood.errors import ConflictError, EvidenceError, IntegrityError, InvalidError, LeaseError, NotFoundError
from lastgood.local.process import is_alive
from lastgood.model.checkpoint import check_metadata, describe
from lastgood.model.identity import check_flag, check_name, check_number, check_text, new_id, now
from lastgood.model.task import Lease, Request, RequestKind
from lastgood.observe.log import current_correlation
from lastgood.work.inbox import STANDING_IN, stand_in
from lastgood.work.requests import (
    NEEDS_PROGRAM,
    check_allowed,
    check_answer,
    correlation_of,
    end_request,
    find_artifact,
    find_question,
    open_requests,
    stays_fulfilled,
)

if TYPE_CHECKING:
    from lastgood.engine.branch import What
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.handle import Handle


class RequestResult(msgspec.Struct, frozen=True):
    """A request and what came of it. `fulfilled`: it is done. `alive`: a session works on the branch. `note` is for
    people."""

    note: str
    request: Request | None = None
    fulfilled: bool = False
    alive: bool = False


class Control:
    """The control of one branch: the one that a handle is on when asked. `id` makes a request idempotent: the same one
    again gives what came of the first. Requests that are not allowed are refused with a ControlError that says why."""

    def __init__(self, given: Handle, handle: Handle) -> None:
        """`given` is the caller's handle, which restores without a session go through; `handle` is another one on
        the same task or branch, free to be refreshed."""
        self._given = given
        self._handle = handle

    @property
    def state(self) -> str:
        """The control state, as it is now."""
        return self._refreshed().control_state

    @property
    def question(self) -> dict[str, Any] | None:
        """The open question: its `id`, `text` and `choices`. None: nothing is asked."""
        self._refreshed()
        return find_question(self._handle)

    @property
    def lease(self) -> Lease | None:
        """The lease of the session that works on the branch. None: no process that is known to be alive. On this host
        a process is known to be, also when it was silent for so long that its lease expired."""
        lease = self._handle.catalog.lease(self._handle.owner, self._refreshed().branch_id or "")
        if lease is None or lease.executor.endswith(STANDING_IN):
            return None
        known = is_alive(lease.process)
        return lease if known or (known is None and lease.is_live) else None

    def pause(self, *, id: str | None = None) -> RequestResult:
        """Pause the work: at its next boundary it is saved, and waits."""
        return self._request("pause", {}, id)

    def resume(self, *, id: str | None = None) -> RequestResult:
        """Let paused, stopped or failed work go on."""
        return self._request("resume", {}, id)

    def retry(self, *, id: str | None = None) -> RequestResult:
        """Try work again that was stopped or has failed, from its last checkpoint."""
        return self._request("retry", {}, id)

    def stop(self, *, id: str | None = None) -> RequestResult:
        """Stop the work: at its next boundary it is saved, and ends."""
        return self._request("stop", {}, id)

    def cancel(self, *, id: str | None = None) -> RequestResult:
        """Stop the work, and mark its last checkpoint as not good: `last_good` skips it."""
        return self._request("cancel", {}, id)

    def add_rounds(self, rounds: int, *, id: str | None = None) -> RequestResult:
        """Add rounds to those that were planned; also to work that is completed, for when it is run again."""
        return self._request("rounds", {"rounds": check_number("rounds", rounds, low=1)}, id)

    def guide(self, text: str, *, id: str | None = None) -> RequestResult:
        """Send guidance to the work."""
        return self._request(
            "guide", {"text": self._handle.engine.options.redaction.text(check_text("text", text))}, id
        )

    def edit(self, artifact: str, content: Any, *, over: str | None = None, id: str | None = None) -> RequestResult:
        """Replace the content of an artifact, by its id or its name. `over`: the digest of the content that was seen;
        if it is another one by then, the edit is refused."""
        wanted = {"artifact": check_name("artifact", artifact), "content": content}
        if over is not None:
            wanted["over"] = over
        check_metadata(wanted)
        if (earlier := self._find_earlier(id, "edit", wanted)) is not None:
            return earlier
        find_artifact(self._refreshed().artifacts, artifact)
        return self._request("edit", wanted, id)

    def answer(self, answer: str, *, question: str | None = None, id: str | None = None) -> RequestResult:
        """Answer the open question. `question`: its id, so that another one is not answered by mistake."""
        wanted = {"answer": check_text("answer", answer)} | ({} if question is None else {"question": question})
        if (earlier := self._find_earlier(id, "answer", wanted)) is not None:
            return earlier
        check_allowed("answer", self.state)
        if (asked := self.question) is not None:
            if question not in (None, asked["id"]):
                raise InvalidError("that question is not open any more", hint="look what is asked now")
            check_answer(asked, answer)
            question = asked["id"]
        return self._request("answer", {"question": question, "answer": answer}, id)

    def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        verify: bool = True,
        skip_damaged: bool = False,
        message: str = "",
        id: str | None = None,
    ) -> RequestResult:
        """Restore a checkpoint: the session does it at its next boundary; without one it is done at once."""
        masked = self._handle.engine.options.redaction.text(check_text("message", message))
        wanted = {"what": what, "verify": verify, "message": masked}
        wanted |= {"skip_damaged": True} if check_flag("skip_damaged", skip_damaged) else {}
        if (earlier := self._find_earlier(id, "restore", wanted)) is not None:
            return earlier
        chosen = self._handle.find(checkpoint) if isinstance(checkpoint, str) else checkpoint
        return self._request("restore", {"checkpoint": chosen.id, **wanted}, id)

    def withdraw(self, request_id: str) -> None:
        """Withdraw a request. ConflictError when it has ended already."""
        ended = FulfilledRequest(check_name("request id", request_id), {"reason": f"withdrawn by {self._handle.user}"})
        handle = self._handle
        with logged(handle.engine, handle.user, handle.owner, handle.id, "withdraw", request=request_id):
            end_request(handle, ended, "refused")

    def requests(self) -> list[Request]:
        """Return the open requests, oldest first."""
        self._refreshed()
        return open_requests(self._handle)

    def follow(self, request_id: str) -> Request | None:
        """Return a request as it is now; None: there is none of that id."""
        found = self._handle.catalog.requests(self._handle.owner, id=check_name("request id", request_id))
        return found[0] if found else None

    def again(self, request: Request) -> RequestResult:
        """Return what came of a request by now. If its session has ended, it is fulfilled here if it can be."""
        return self._follow_up(self.follow(request.id) or request, alive=self.lease is not None)

    def _request(self, kind: RequestKind, data: dict[str, Any], id: str | None) -> RequestResult:
        handle = self._handle
        if (earlier := self._find_earlier(id, kind, data)) is not None:
            return earlier
        head, alive = self._refreshed(), self.lease is not None
        state = head.control_state
        if check_allowed(kind, state) == "already" and stays_fulfilled(
            kind, state, (one.kind for one in open_requests(handle))
        ):
            return RequestResult(f"it is {describe(state)} already", fulfilled=True, alive=alive)
        request = Request(
            id=id or new_id(),
            branch_id=head.branch_id or "",
            kind=kind,
            data=data,
            at_us=now(),
            actor=handle.user,
            correlation_id=current_correlation(),
        )
        with logged(handle.engine, handle.user, handle.owner, request.branch_id, kind, request=request.id):
            posted = handle.catalog.post_request(handle.owner, request, acting(handle.user))
        return self._follow_up(posted, alive=alive and self.lease is not None)  # it may have ended meanwhile

    def _follow_up(self, request: Request, *, alive: bool) -> RequestResult:
        """Return what came of a request. Without a session it is fulfilled first, if that needs no program."""
        if request.status == "open" and not alive and request.kind not in NEEDS_PROGRAM:
            try:
                self._stand_in(request)
            except LeaseError:  # a session has begun just now: it fulfils the request
                alive = True
            request = self.follow(request.id) or request
        return _describe(request, alive=alive)

    def _stand_in(self, request: Request) -> None:
        if request.kind != "restore":
            stand_in(self._handle, request)
            return
        data = request.data
        how = {"verify": data["verify"], "message": data["message"], "request": request.id}
        try:
            with correlation_of(request):
                restore(self._given, data["checkpoint"], data["what"], **how)
        except LeaseError:
            raise
        except (InvalidError, NotFoundError, ConflictError, IntegrityError, EvidenceError) as error:
            end_request(self._handle, FulfilledRequest(request.id, {"reason": str(error)}), "refused")
            raise

    def _find_earlier(self, id: str | None, kind: RequestKind, data: dict[str, Any]) -> RequestResult | None:
        """Return what came of the same request, if one with this id was made before."""
        earlier = None if id is None else self.follow(id)
        if earlier is None or earlier.kind != kind or not data.items() <= earlier.data.items():
            return None
        return self._follow_up(earlier, alive=self.lease is not None)

    def _refreshed(self) -> Checkpoint:
        head = self._handle.refresh()
        if head is None:
            raise no_such_task(self._handle.engine.catalog, self._handle.owner, self._handle.id)
        return head


def _describe(request: Request, *, alive: bool) -> RequestResult:
    if request.status == "refused":
        note = f"it was refused: {request.outcome.get('reason', '')}"
    elif request.status == "fulfilled":
        note = f"it is done, on the branch {request.outcome['branch']}" if request.kind == "restore" else "it is done"
    elif alive:
        note = "it is done when the work comes to its next boundary"
    else:
        note = "the work is not running: it is done when it runs"
    return RequestResult(note, request, fulfilled=request.status == "fulfilled", alive=alive)
