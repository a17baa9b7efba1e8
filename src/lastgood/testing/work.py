"""What every catalog must do for work under way: steps, leases and requests."""

from __future__ import annotations

from typing import Any, Literal

from lastgood.catalog.values import Blob, FulfilledRequest, StoredCheckpoint
from lastgood.errors import ConflictError, LeaseError, NotFoundError
from lastgood.model.checkpoint import Head
from lastgood.model.identity import digest, new_id
from lastgood.model.task import Lease, Process
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, refused

HERE, THERE = Process("here", 1), Process("there", 2)
MINUTE, NO_TIME = 60.0, 0.0


class WorkConformance(CatalogCase):
    """A part of CatalogConformance."""

    def begin(self, task_id: str = "task", owner: str = ADA, **fields: Any) -> str:
        step = self.step(task_id, owner, **fields)
        self.catalog.begin_step(step, Blob(b"", 4, 0, b"snap"))
        return step.id

    def acquire(self, branch_id: str, seconds: float = MINUTE, executor: str = "one", over: int | None = None) -> Lease:
        process = HERE if executor == "one" else THERE
        return self.catalog.acquire_lease(ADA, branch_id, process, executor, seconds, ACTOR, over=over)

    def wanted(self, branch_id: str) -> list[str]:
        return [request.id for request in self.catalog.requests(ADA, branch_id=branch_id)]

    def _held_and_wanted(self, where: StoredCheckpoint) -> tuple[int | None, list[str]]:
        lease = self.catalog.lease(ADA, where.placement.branch_id)
        return lease.token if lease else None, self.wanted(where.placement.branch_id)

    # --- steps -----------------------------------------------------------------------------------------------------

    def test_a_step_is_open_until_its_commit(self) -> None:
        step = self.begin()
        other = self.begin("another")
        assert [found.id for found in self.catalog.open_steps(ADA)] == [step, other]
        assert [found.id for found in self.catalog.open_steps(ADA, "task")] == [step]
        assert [found.id for found in self.catalog.open_steps(None)] == [step, other]
        assert self.catalog.open_steps(BEN) == []
        found = self.catalog.open_step(ADA, step)
        assert found is not None
        assert found[1] == Blob(b"", 4, 0, b"snap")
        first = self.save(step=step).stored
        assert self.catalog.open_step(ADA, step) is None
        with refused(ConflictError):
            self.save(parent=first, step=step)
        assert self.active() == first.id

    def test_an_id_is_of_one_open_step_of_its_owner(self) -> None:
        self.begin(id="same")
        self.begin(id="same", owner=BEN, task_id="ben's")
        with refused(ConflictError):
            self.begin("another", id="same")
        assert [(step.owner, step.task_id) for step in self.catalog.open_steps(None)] == [(ADA, "task"), (BEN, "ben's")]
        self.save(step="same")
        assert [step.owner for step in self.catalog.open_steps(None)] == [BEN]
        self.catalog.end_step(BEN, "same", "step_failed", {}, ACTOR)
        assert self.catalog.open_steps(None) == []

    def test_a_commit_begins_the_step_that_follows(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        following = self.step(branch_id=branch, metadata={"attempt": 1})
        made = self.save(parent=first, step=self.begin(), begins=following)
        assert (made.begun, made.repeated) == (True, False)
        assert self.catalog.open_step(ADA, following.id) == (following, None)
        last = self.save(parent=made.stored, step=following.id)
        assert not last.begun
        assert self.catalog.open_steps(ADA) == []

    def test_a_step_does_not_follow_where_somebody_wants_something(self) -> None:
        first = self.save().stored
        self.fork(first, "side")
        self.post("side")
        second = self.save(parent=first, begins=self.step(id="second"))
        assert second.begun, "a request to another branch was in its way"
        wanted = self.post(first.placement.branch_id)
        third = self.save(parent=second.stored, step="second", begins=self.step(id="third"))
        assert (third.begun, self.active()) == (False, third.stored.id)
        assert self.catalog.open_steps(ADA) == []
        met = FulfilledRequest(wanted.id, {})
        assert self.save(parent=third.stored, fulfilled=[met], begins=self.step(id="fourth")).begun

    def test_what_is_repeated_ends_its_step_but_begins_none_and_no_step_begins_twice(self) -> None:
        first = self.save(id="mine", step=self.begin()).stored
        again = self.save(id="mine", step=self.begin(), begins=self.step())
        assert (again.repeated, again.begun, again.stored.id) == (True, False, first.id)
        assert self.catalog.open_steps(ADA) == []
        self.begin(id="taken")
        with refused(ConflictError):
            self.save(parent=first, begins=self.step(id="taken"))
        assert self.active() == first.id

    def test_a_step_that_ends_otherwise_is_logged_on_the_branch_where_it_began(self) -> None:
        early = self.begin()
        self.catalog.end_step(ADA, early, "step_failed", {"reason": "no task yet"}, ACTOR)
        (event,) = self.catalog.events(None)
        assert (event.kind, event.data["task_id"], event.data["reason"]) == ("step_failed", "task", "no task yet")
        (first,) = self.chain(1)
        self.fork(first, "side")
        for branch_id in ("side", None):
            self.catalog.end_step(ADA, self.begin(branch_id=branch_id, id="late"), "step_abandoned", {}, ACTOR)
        ended = self.catalog.events(self.task(), after=2)
        assert [event.kind for event in ended] == ["step_abandoned"] * 2
        assert [event.branch_id for event in ended] == ["side", first.placement.branch_id]
        with refused(ConflictError):
            self.catalog.end_step(ADA, "late", "step_abandoned", {}, ACTOR)
        assert self.catalog.open_steps(ADA) == []

    # --- leases ----------------------------------------------------------------------------------------------------

    def test_one_at_a_time_works_on_a_branch_and_who_is_gone_is_taken_over_at_once(self) -> None:
        branch = self.save().stored.placement.branch_id
        mine = self.acquire(branch)
        assert (mine.branch_id, mine.process, mine.executor, mine.is_live) == (branch, HERE, "one", True)
        assert self.catalog.lease(ADA, branch) == mine
        assert self.catalog.lease(BEN, branch) is None
        with refused(LeaseError) as caught:
            self.acquire(branch, executor="two")
        assert caught[0].details["lease"].token == mine.token
        assert "taken_over" not in [event.kind for event in self.catalog.events(self.task())]
        new = self.acquire(branch, executor="two", over=mine.token)
        with refused(LeaseError):
            self.acquire(branch, over=mine.token)
        assert self.catalog.lease(ADA, branch) == new

    def test_only_whoever_holds_a_live_lease_advances_the_branch(self) -> None:
        first, second = self.chain(2)
        branch = first.placement.branch_id
        lease = self.acquire(branch)
        for token in (None, lease.token + 1):
            with refused(LeaseError):
                self.save(parent=second, lease=token)
        with refused(ConflictError) as caught:  # where the head is comes before who works there
            self.save(parent=first)
        assert not isinstance(caught[0], LeaseError)
        assert isinstance(caught[0].head, Head)
        assert self.active() == second.id
        third = self.save(parent=second, lease=lease.token).stored
        self.catalog.release_lease(lease.token)
        self.catalog.release_lease(lease.token)
        assert self.catalog.lease(ADA, branch) is None
        self.save(parent=third)

    def test_a_lease_that_ran_out_keeps_nobody_from_saving_and_is_good_until_it_is_taken_over(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        old = self.acquire(branch, NO_TIME)
        assert not old.is_live
        second = self.save(parent=self.save(parent=first).stored, lease=old.token).stored
        new = self.acquire(branch, executor="two")
        assert new.token > old.token
        assert [event.kind for event in self.catalog.events(self.task())][-1] == "taken_over"
        with refused(LeaseError) as caught:
            self.save(parent=second, lease=old.token)
        assert caught[0].details["lease"].executor == "two"
        with refused(LeaseError):
            self.catalog.renew_lease(old.token, MINUTE)
        self.catalog.release_lease(old.token)
        assert self.active() == second.id
        self.save(parent=second, lease=new.token)

    def test_whoever_lost_the_branch_hears_that_wherever_its_head_is_now(self) -> None:
        """C6: a zombie is told that it is one, not to try again on top of the new head; nor does it end requests."""
        first = self.save().stored
        branch = first.placement.branch_id
        old = self.acquire(branch, NO_TIME)
        new = self.acquire(branch, executor="two")
        request = self.post(branch)
        with refused(LeaseError):
            self.catalog.end_request(ADA, FulfilledRequest(request.id, {}), "refused", ACTOR, lease=old.token)
        assert self.wanted(branch) == [request.id]
        second = self.save(parent=first, lease=new.token).stored
        with refused(LeaseError):
            self.save(parent=first, lease=old.token)
        self.restore(first, "elsewhere", expects=second.id, lease=new.token)
        with refused(LeaseError):
            self.save(parent=first, lease=old.token, only_if_active=True)

    def test_renewing_prolongs_it_and_its_token_is_never_given_again(self) -> None:
        branch = self.save().stored.placement.branch_id
        old = self.acquire(branch, NO_TIME)
        renewed = self.catalog.renew_lease(old.token, MINUTE)
        assert renewed.is_live
        assert renewed.expires_at > old.expires_at
        assert (renewed.token, renewed.acquired_at) == (old.token, old.acquired_at)
        with refused(LeaseError):
            self.acquire(branch, executor="two")
        self.catalog.release_lease(old.token)
        with refused(LeaseError):
            self.catalog.renew_lease(old.token, MINUTE)
        assert self.acquire(branch).token > old.token

    def test_there_is_no_lease_or_request_without_its_branch(self) -> None:
        self.save()
        with refused(NotFoundError):
            self.acquire(new_id())
        with refused(NotFoundError):
            self.post(new_id())

    def test_lease_and_requests_go_along_when_the_work_goes_to_another_branch(self) -> None:
        first, second = self.chain(2)
        left = first.placement.branch_id
        lease, request = self.acquire(left), self.post(left)
        with refused(LeaseError):
            self.restore(first, "elsewhere")
        restored = self.restore(first, "back", expects=second.id, lease=lease.token)
        assert self._held_and_wanted(restored) == (lease.token, [request.id])
        assert self._held_and_wanted(second) == (None, [])
        ways: list[Literal["undo", "redo"]] = ["undo", "redo"]
        for way, there in zip(ways, (second, restored), strict=True):
            with refused(LeaseError):
                self.move(way)
            assert self.move(way, lease=lease.token).head.id == there.id
            assert self._held_and_wanted(there) == (lease.token, [request.id])
        self.save(parent=restored, lease=lease.token)

    def test_nobody_is_sent_to_a_branch_that_someone_else_works_on_but_it_may_be_forked(self) -> None:
        first = self.save().stored
        self.fork(first, "side")
        self.acquire("side")
        with refused(LeaseError):
            self.catalog.move(ADA, "side", "switch", ACTOR)
        with refused(LeaseError):
            self.catalog.delete_branch(ADA, "side", ACTOR)
        with refused(LeaseError):
            self.catalog.delete_task(ADA, "task", ACTOR)
        assert self.active() == first.id
        self.acquire(first.placement.branch_id)
        self.fork(first, "fork")

    # --- leases of the store ---------------------------------------------------------------------------------------

    def test_a_lease_of_the_store_is_held_by_one_process_at_a_time(self) -> None:
        self.save()
        about = (HERE, "one", MINUTE, ACTOR)
        mine = self.catalog.acquire_lease(None, "collect", *about)
        assert (mine.name, mine.branch_id, mine.is_live) == ("collect", "", True)
        assert self.catalog.acquire_lease(None, "another", *about).token > mine.token
        with refused(LeaseError) as caught:
            self.catalog.acquire_lease(None, "collect", THERE, "two", MINUTE, ACTOR)
        assert caught[0].details["lease"] == self.catalog.lease(None, "collect") == mine
        self.catalog.release_lease(mine.token)
        assert self.catalog.lease(None, "collect") is None
        with refused(LeaseError):
            self.catalog.renew_lease(mine.token, MINUTE)
        self.catalog.acquire_lease(None, "collect", THERE, "two", NO_TIME, ACTOR)
        assert self.catalog.acquire_lease(None, "collect", *about).executor == "one"
        assert "taken_over" not in {event.kind for event in self.catalog.events(None)}  # nothing of anybody's changed

    def test_blobs_are_removed_under_a_lease_only_while_it_is_held(self) -> None:
        first = self.save(blobs=(b"garbage",)).stored
        task, garbage = first.task_number, [digest(b"garbage")]
        lease = self.catalog.acquire_lease(None, "collect", HERE, "one", MINUTE, ACTOR)
        self.catalog.condemn(task, garbage, 100)
        self.catalog.release_lease(lease.token)
        for before in (100, None):
            with refused(LeaseError):
                self.catalog.remove_blobs(task, garbage, before, lease=lease.token)
        again = self.catalog.acquire_lease(None, "collect", HERE, "one", MINUTE, ACTOR)
        assert self.catalog.remove_blobs(task, garbage, 100, lease=again.token) == 1

    def test_a_lease_of_the_store_keeps_nobody_from_saving(self) -> None:
        first = self.save().stored
        self.catalog.acquire_lease(None, first.placement.branch_id, HERE, "one", MINUTE, ACTOR)
        self.save(parent=first)
        assert self.catalog.delete_task(ADA, "task", ACTOR) == 2
        assert self.catalog.lease(None, first.placement.branch_id) is not None

    # --- requests --------------------------------------------------------------------------------------------------

    def test_a_request_is_open_until_a_commit_fulfils_it(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        one, two = self.post(branch, "guide", text="shorter"), self.post(branch)
        assert self.catalog.requests(ADA, branch_id=branch) == [one, two]
        assert self.catalog.requests(BEN, branch_id=branch) == []
        assert [event.kind for event in self.catalog.events(self.task())].count("requested") == 2
        second = self.save(parent=first, fulfilled=[FulfilledRequest(one.id, {"seen": 1})]).stored
        assert self.wanted(branch) == [two.id]
        (found,) = self.catalog.requests(ADA, id=one.id)
        assert (found.status, found.outcome, found.data) == ("fulfilled", {"seen": 1}, {"text": "shorter"})
        assert found.ended_at is not None
        assert self.catalog.requests(BEN, id=one.id) == []
        with refused(ConflictError):
            self.save(parent=second, fulfilled=[FulfilledRequest(one.id, {})])
        assert self.active() == second.id

    def test_asking_again_with_the_same_id_is_harmless(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        one = self.post(branch, id="mine", reason="lunch")
        assert self.post(branch, id="mine", reason="lunch") == one
        assert self.wanted(branch) == ["mine"]
        with refused(ConflictError):
            self.post(branch, id="mine", reason="dinner")
        self.save(parent=first, fulfilled=[FulfilledRequest("mine", {})])
        assert self.post(branch, id="mine", reason="lunch").status == "fulfilled"

    def test_a_request_that_is_refused_says_why(self) -> None:
        branch = self.save().stored.placement.branch_id
        request = self.post(branch)
        self.catalog.end_request(ADA, FulfilledRequest(request.id, {"reason": "it is over"}), "refused", ACTOR)
        (found,) = self.catalog.requests(ADA, id=request.id)
        assert (found.status, found.outcome) == ("refused", {"reason": "it is over"})
        assert self.wanted(branch) == []
        last = self.catalog.events(self.task())[-1]
        assert (last.kind, last.data["reason"]) == ("request_refused", "it is over")
        with refused(ConflictError):
            self.catalog.end_request(ADA, FulfilledRequest(request.id, {}), "fulfilled", ACTOR)
