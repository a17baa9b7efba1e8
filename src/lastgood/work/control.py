"""What people ask of work, from any process: persisted, met at the next boundary, or at once when nobody is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.catalog.values import FulfilledRequest
from lastgood.engine.commit import KEPT
from lastgood.errors import ConflictError, EvidenceError, IntegrityError, InvalidError, LeaseError, NotFoundError
from lastgood.local.process import is_alive
from lastgood.model.control import describe
from lastgood.model.identity import check_name, check_number, check_text, new_id, now
from lastgood.model.lease import Lease
from lastgood.model.metadata import check_metadata
from lastgood.model.request import Request, RequestKind
from lastgood.observe.log import current_correlation
from lastgood.work.holding import Hold, name_executor
from lastgood.work.steering import check_answer, find_artifact, find_question, meet
from lastgood.work.wishes import is_holding, judge

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.restore import What
    from lastgood.task import Task

STAND_IN_SECONDS = 10.0
STANDING_IN = " (standing in)"
"""Behind the name of who does something for work that nobody runs: nobody works on the branch then."""
_NEEDS_THE_PROGRAM = ("resume", "retry", "rounds")
"""Someone must run the work: what is asked waits for that."""


class Asked(msgspec.Struct, frozen=True):
    """What came of asking. `met`: it is done. `alive`: a session works on the branch. `note` says it to people."""

    note: str
    request: Request | None = None
    met: bool = False
    alive: bool = False


class Control:
    """Of one branch: the one that a handle is on when asked. `id` makes a wish idempotent: the same one again gives
    what came of the first. Illegal wishes are refused with a ControlError that says why."""

    def __init__(self, task: Task) -> None:
        self._given = task
        self._task = task.store.task(task.id, owner=task.owner)  # the given one expects the head that it has seen

    @property
    def state(self) -> str:
        """The control state, as it is now."""
        return self._refreshed().control_state

    @property
    def question(self) -> dict[str, Any] | None:
        """What the work asks: its `id`, `text` and `choices`. None: it asks nothing."""
        self._refreshed()
        return find_question(self._task)

    @property
    def lease(self) -> Lease | None:
        """Who works on the branch. None: nobody who is known to be alive. On this host a process is, also when it was
        silent for so long that its lease ran out."""
        lease = self._task.store.catalog.lease(self._task.owner, self._refreshed().branch_id or "")
        if lease is None or lease.executor.endswith(STANDING_IN):
            return None
        known = is_alive(lease.process)
        return lease if known or (known is None and lease.is_live) else None

    def pause(self, *, id: str | None = None) -> Asked:
        """At its next boundary the work is saved as paused, and waits."""
        return self._ask("pause", {}, id)

    def resume(self, *, id: str | None = None) -> Asked:
        """Paused, stopped or failed work goes on."""
        return self._ask("resume", {}, id)

    def retry(self, *, id: str | None = None) -> Asked:
        """Work that was stopped or has failed is tried again, from its last checkpoint."""
        return self._ask("retry", {}, id)

    def stop(self, *, id: str | None = None) -> Asked:
        """At its next boundary the work is saved as stopped, and ends."""
        return self._ask("stop", {}, id)

    def cancel(self, *, id: str | None = None) -> Asked:
        """As `stop`, and what there is is marked as not good: `last_good` passes it over."""
        return self._ask("cancel", {}, id)

    def add_rounds(self, rounds: int, *, id: str | None = None) -> Asked:
        """More rounds than were planned; also for work that is completed, when it is run again."""
        return self._ask("rounds", {"rounds": check_number("rounds", rounds, low=1)}, id)

    def guide(self, text: str, *, id: str | None = None) -> Asked:
        """Tell the work something."""
        return self._ask("guide", {"text": self._task.without_secrets(check_text("text", text))}, id)

    def edit(self, artifact: str, content: Any, *, over: str | None = None, id: str | None = None) -> Asked:
        """Replace the content of an artifact, by its id or its name. `over`: the digest of the content that was looked
        at; if it is another one by then, the edit is refused."""
        wanted = {"artifact": check_name("artifact", artifact), "content": content}
        if over is not None:
            wanted["over"] = over
        check_metadata(wanted)
        if (told := self._asked_before(id, "edit", wanted)) is not None:
            return told
        find_artifact(self._refreshed().artifacts, artifact)
        return self._ask("edit", wanted, id)

    def answer(self, answer: str, *, question: str | None = None, id: str | None = None) -> Asked:
        """Decide what the work asked. `question`: its id, so that another one is not answered by mistake."""
        wanted = {"answer": check_text("answer", answer)} | ({} if question is None else {"question": question})
        if (told := self._asked_before(id, "answer", wanted)) is not None:
            return told
        judge("answer", self.state)
        if (asked := self.question) is not None:
            if question not in (None, asked["id"]):
                raise InvalidError("that question is not open any more", hint="look what is asked now")
            check_answer(asked, answer)
            question = asked["id"]
        return self._ask("answer", {"question": question, "answer": answer}, id)

    def restore(
        self,
        checkpoint: Checkpoint | str,
        what: What = "both",
        *,
        verify: bool = True,
        message: str = "",
        id: str | None = None,
    ) -> Asked:
        """The session that works on the branch goes back at its next boundary; without one it is done at once."""
        wanted = {"what": what, "verify": verify, "message": message}
        if (told := self._asked_before(id, "restore", wanted)) is not None:
            return told
        chosen = self._task.find(checkpoint) if isinstance(checkpoint, str) else checkpoint
        return self._ask("restore", {"checkpoint": chosen.id, **wanted}, id)

    def withdraw(self, request_id: str) -> None:
        """What was asked is not wanted any more. ConflictError when it is done already."""
        ended = FulfilledRequest(check_name("request id", request_id), {"reason": f"withdrawn by {self._task.user}"})
        self._task.end_request(ended, "refused")

    def requests(self) -> list[Request]:
        """What was asked, and nobody did yet."""
        self._refreshed()
        return self._task.requests()

    def follow(self, request_id: str) -> Request | None:
        """What came of a request so far."""
        return self._task.store.catalog.request(self._task.owner, check_name("request id", request_id))

    def again(self, request: Request) -> Asked:
        """What came of a request by now. When whoever was to do it is gone, it is done here if it can be."""
        return self._tell(self.follow(request.id) or request, alive=self.lease is not None)

    def _ask(self, kind: RequestKind, data: dict[str, Any], id: str | None) -> Asked:
        task, catalog = self._task, self._task.store.catalog
        if (told := self._asked_before(id, kind, data)) is not None:
            return told
        head, alive = self._refreshed(), self.lease is not None
        state = head.control_state
        if judge(kind, state) == "already" and is_holding(kind, state, (one.kind for one in task.requests())):
            return Asked(f"it is {describe(state)} already", met=True, alive=alive)
        request = Request(
            id=id or new_id(),
            branch_id=head.branch_id or "",
            kind=kind,
            data=data,
            at=now(),
            actor=task.user,
            correlation_id=current_correlation(),
        )
        posted = catalog.post_request(task.owner, request, task.store.actor())
        return self._tell(posted, alive=alive and self.lease is not None)  # it may have ended meanwhile

    def _tell(self, request: Request, *, alive: bool) -> Asked:
        """What came of it; first it is done, when nobody is there to do it and no program is needed."""
        if request.status == "open" and not alive and request.kind not in _NEEDS_THE_PROGRAM:
            try:
                self._stand_in(request)
            except LeaseError:  # someone began to work on it just now: then it is theirs to do
                alive = True
            request = self.follow(request.id) or request
        return _told(request, alive=alive)

    def _stand_in(self, request: Request) -> None:
        if request.kind != "restore":
            StandIn(self._task).meet(request)
            return
        data = request.data
        try:
            self._given.rewind(
                data["checkpoint"],
                data["what"],
                verify=data["verify"],
                message=data["message"],
                request=request.id,
            )
        except LeaseError:
            raise
        except (InvalidError, NotFoundError, ConflictError, IntegrityError, EvidenceError) as error:
            self._task.end_request(FulfilledRequest(request.id, {"reason": str(error)}), "refused")
            raise

    def _asked_before(self, id: str | None, kind: RequestKind, data: dict[str, Any]) -> Asked | None:
        """What came of the same wish, if it was asked with this id."""
        earlier = None if id is None else self.follow(id)
        if earlier is None or earlier.kind != kind or not data.items() <= earlier.data.items():
            return None
        return self._tell(earlier, alive=self.lease is not None)

    def _refreshed(self) -> Checkpoint:
        head = self._task.refresh()
        if head is None:
            raise NotFoundError(f"there is no task {self._task.id!r}", hint="`lastgood tasks` lists them")
        return head


def settle(task: Task) -> None:
    """The work on the branch has ended, and so has its session: what it did not come to is done without it, or refused.
    What sets it going again stays open."""
    for request in task.requests():
        if request.kind == "restore":
            ended = FulfilledRequest(request.id, {"reason": "the work ended before it came to that: ask again"})
            task.end_request(ended, "refused")
        elif request.kind not in _NEEDS_THE_PROGRAM:
            StandIn(task).meet(request)


class StandIn:
    """Does what needs no program for work that nobody runs: the state and the files stay as they are."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def meet(self, request: Request) -> None:
        """When someone began to work on it just now the request is theirs; what waits for an answer stays open."""
        hold = Hold(self.task.store, self.task.owner, name_executor() + STANDING_IN, STAND_IN_SECONDS)
        with self.task.store.catalog.queue():  # one who stands in does not keep another from it
            self.task.take_lease(lambda: hold.take(request.branch_id).token)
            try:
                self.task.refresh()
                meet(self, request)
            finally:
                self.task.drop_lease(hold.token, hold.release)

    def mark(self, type: str, request: Request, *, outcome: dict[str, Any] | None = None, **fields: Any) -> Checkpoint:
        """See Steered."""
        return self.task.advance(
            KEPT, capture=False, type=type, met=(FulfilledRequest(request.id, outcome or {}),), **fields
        )

    def rewind(self, request: Request) -> None:
        """See Steered; never asked of a stand-in: without a session a restore is done directly."""
        raise NotImplementedError


def _told(request: Request, *, alive: bool) -> Asked:
    status: Literal["open", "met", "refused"] = request.status
    if status == "refused":
        note = f"it was refused: {request.outcome.get('reason', '')}"
    elif status == "met":
        note = f"it is done, on the branch {request.outcome['branch']}" if request.kind == "restore" else "it is done"
    elif alive:
        note = "it is done when the work comes to its next boundary"
    else:
        note = "nobody is running the work: it is done when someone does (`lastgood run`)"
    return Asked(note, request, met=status == "met", alive=alive)
