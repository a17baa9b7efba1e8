"""What every catalog must do for work under way: steps, leases and requests."""

from __future__ import annotations

from typing import Any, Literal

from lastgood.catalog.values import Blob, FulfilledRequest, NewBranch
from lastgood.errors import ConflictError, ControlError, LeaseError, NotFoundError
from lastgood.model.checkpoint import Head
from lastgood.model.identity import digest, new_id
from lastgood.model.task import Lease, Process, Request
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, refused

HERE, THERE = Process("here", 1), Process("there", 2)
MINUTE, NO_TIME = 60.0, 0.0


class StepsConformance(CatalogCase):
    """A part of CatalogConformance."""

    def begin(self, task_id: str = "task", owner: str = ADA, **fields: Any) -> str:
        step = self.step(task_id, owner, **fields)
        self.catalog.begin_step(step, Blob(b"", 4, 0, b"snap"))
        return step.id

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

    def test_a_refused_commit_leaves_its_step_open(self) -> None:
        first, _ = self.chain(2)
        step = self.begin()
        with refused(ConflictError):
            self.save(parent=first, step=step)
        assert [found.id for found in self.catalog.open_steps(ADA)] == [step]

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

    def test_a_commit_that_was_stored_before_ends_its_step_too(self) -> None:
        first = self.save(id="mine", step=self.begin()).stored
        again = self.save(id="mine", step=self.begin())
        assert (again.repeated, again.stored.id) == (True, first.id)
        assert self.catalog.open_steps(ADA) == []

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
        branch = first.placement.branch_id
        self.fork(first, "side")
        asked = [
            Request(id=new_id(), branch_id=where, kind="pause", data={}, at=7, actor=ADA) for where in ("side", branch)
        ]
        self.catalog.post_request(ADA, asked[0], ACTOR)
        second = self.save(parent=first, begins=self.step(id="second"))
        assert second.begun, "a request to another branch was in its way"
        self.catalog.post_request(ADA, asked[1], ACTOR)
        third = self.save(parent=second.stored, step="second", begins=self.step(id="third"))
        assert (third.begun, self.active()) == (False, third.stored.id)
        assert self.catalog.open_steps(ADA) == []
        assert self.save(
            parent=third.stored, fulfilled=[FulfilledRequest(asked[1].id, {})], begins=self.step(id="fourth")
        ).begun

    def test_what_is_refused_or_repeated_begins_nothing(self) -> None:
        first, second = self.chain(2)
        with refused(ConflictError):
            self.save(parent=first, begins=self.step())
        third = self.save(parent=second, id="mine").stored
        again = self.save(parent=second, id="mine", begins=self.step())
        assert (again.repeated, again.begun) == (True, False)
        assert self.catalog.open_steps(ADA) == []
        self.begin(id="taken")
        with refused(ConflictError):
            self.save(parent=third, begins=self.step(id="taken"))
        assert self.active() == third.id

    def test_the_end_of_a_step_is_logged_on_the_branch_where_it_began(self) -> None:
        (first,) = self.chain(1)
        self.fork(first, "side")
        for branch_id in ("side", None):
            self.catalog.end_step(ADA, self.begin(branch_id=branch_id), "step_failed", {}, ACTOR)
        ended = self.catalog.events(self.task(), after=2)
        assert [event.branch_id for event in ended] == ["side", first.placement.branch_id]

    def test_a_step_that_ends_otherwise_is_logged(self) -> None:
        early = self.begin()
        self.catalog.end_step(ADA, early, "step_failed", {"reason": "no task yet"}, ACTOR)
        (event,) = self.catalog.events(None)
        assert (event.kind, event.data["task_id"], event.data["reason"]) == ("step_failed", "task", "no task yet")
        self.chain(1)
        late = self.begin()
        self.catalog.end_step(ADA, late, "step_abandoned", {}, ACTOR)
        assert [event.kind for event in self.catalog.events(self.task())] == ["created", "step_abandoned"]
        with refused(ConflictError):
            self.catalog.end_step(ADA, late, "step_abandoned", {}, ACTOR)
        assert self.catalog.open_steps(ADA) == []

    def test_open_steps_go_with_their_task(self) -> None:
        self.chain(1)
        self.begin()
        self.catalog.delete_task(ADA, "task", ACTOR)
        assert self.catalog.open_steps(ADA) == []

    def test_open_steps_of_another_owner_stay(self) -> None:
        self.chain(1)
        theirs = self.begin(owner=BEN)
        self.catalog.delete_task(ADA, "task", ACTOR)
        assert [step.id for step in self.catalog.open_steps(None)] == [theirs]

    def test_a_task_cannot_take_the_id_of_a_branch(self) -> None:
        self.save(new=NewBranch("branch-id", "main"))
        with refused(ConflictError):
            self.save("branch-id")

    def test_a_task_cannot_take_the_id_of_a_branch_that_was_deleted(self) -> None:
        first, _ = self.chain(2)
        self.save(parent=first, new=NewBranch("branch-id", "side", active=False))
        self.catalog.delete_branch(ADA, "branch-id", ACTOR)
        with refused(NotFoundError):
            self.save("branch-id")


class LeasesConformance(CatalogCase):
    """A part of CatalogConformance."""

    def acquire(self, branch_id: str, seconds: float = MINUTE, executor: str = "one", over: int | None = None) -> Lease:
        process = HERE if executor == "one" else THERE
        return self.catalog.acquire_lease(ADA, branch_id, process, executor, seconds, ACTOR, over=over)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.catalog.events(self.task())]

    def test_one_at_a_time_works_on_a_branch(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        mine = self.acquire(branch)
        assert (mine.branch_id, mine.process, mine.executor, mine.is_live) == (branch, HERE, "one", True)
        assert self.catalog.lease(ADA, branch) == mine
        assert self.catalog.lease(BEN, branch) is None
        with refused(LeaseError) as caught:
            self.acquire(branch, executor="two")
        assert caught[0].details["lease"].token == mine.token
        assert "taken_over" not in self.kinds()

    def test_only_whoever_holds_a_live_lease_advances_the_branch(self) -> None:
        first = self.save().stored
        lease = self.acquire(first.placement.branch_id)
        with refused(LeaseError):
            self.save(parent=first)
        with refused(LeaseError):
            self.save(parent=first, lease=lease.token + 1)
        assert self.active() == first.id
        second = self.save(parent=first, lease=lease.token).stored
        self.catalog.release_lease(lease.token)
        self.catalog.release_lease(lease.token)
        assert self.catalog.lease(ADA, first.placement.branch_id) is None
        self.save(parent=second)

    def test_a_lease_that_ran_out_is_good_until_it_is_taken_over(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        old = self.acquire(branch, NO_TIME)
        assert not old.is_live
        second = self.save(parent=first, lease=old.token).stored
        new = self.acquire(branch, executor="two")
        assert new.token > old.token
        assert self.kinds()[-1] == "taken_over"
        with refused(LeaseError) as caught:
            self.save(parent=second, lease=old.token)
        assert caught[0].details["lease"].executor == "two"
        with refused(LeaseError):
            self.catalog.renew_lease(old.token, MINUTE)
        self.catalog.release_lease(old.token)
        assert self.active() == second.id
        self.save(parent=second, lease=new.token)

    def test_a_lease_that_ran_out_keeps_nobody_else_from_saving(self) -> None:
        first = self.save().stored
        self.acquire(first.placement.branch_id, NO_TIME)
        self.save(parent=first)

    def test_a_lease_whose_holder_is_gone_is_taken_over_at_once(self) -> None:
        branch = self.save().stored.placement.branch_id
        old = self.acquire(branch)
        new = self.acquire(branch, executor="two", over=old.token)
        with refused(LeaseError):
            self.acquire(branch, over=old.token)
        assert self.catalog.lease(ADA, branch) == new

    def test_whoever_lost_the_branch_hears_that_wherever_its_head_is_now(self) -> None:
        """C6: a zombie is told that it is one, not to try again on top of the new head."""
        first = self.save().stored
        branch = first.placement.branch_id
        old = self.acquire(branch, NO_TIME)
        new = self.acquire(branch, executor="two")
        second = self.save(parent=first, lease=new.token).stored
        with refused(LeaseError):
            self.save(parent=first, lease=old.token)
        self.restore(first, "elsewhere", expects=second.id, lease=new.token)
        with refused(LeaseError):
            self.save(parent=first, lease=old.token, only_if_active=True)

    def test_renewing_prolongs_it(self) -> None:
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

    def test_a_token_is_never_given_again(self) -> None:
        branch = self.save().stored.placement.branch_id
        tokens = []
        for _ in range(3):
            lease = self.acquire(branch)
            tokens.append(lease.token)
            self.catalog.release_lease(lease.token)
        assert tokens == sorted(set(tokens))

    def test_there_is_no_lease_without_its_branch(self) -> None:
        self.save()
        with refused(NotFoundError):
            self.acquire(new_id())

    def test_a_lease_goes_along_to_the_branch_of_a_restore(self) -> None:
        first, second = self.chain(2)
        lease = self.acquire(first.placement.branch_id)
        with refused(LeaseError):
            self.restore(first, "elsewhere")
        restored = self.restore(first, "back", expects=second.id, lease=lease.token)
        entered = self.catalog.lease(ADA, restored.placement.branch_id)
        assert entered is not None
        assert entered.token == lease.token
        assert self.catalog.lease(ADA, first.placement.branch_id) is None
        self.save(parent=restored, lease=lease.token)

    def test_a_lease_goes_along_with_undo_and_redo(self) -> None:
        first, second = self.chain(2)
        lease = self.acquire(first.placement.branch_id)
        restored = self.restore(first, "back", expects=second.id, lease=lease.token)
        ways: list[Literal["undo", "redo"]] = ["undo", "redo"]
        for way, there in zip(ways, (second, restored), strict=True):
            with refused(LeaseError):
                self.move(way)
            assert self.move(way, lease=lease.token).head.id == there.id
            held = self.catalog.lease(ADA, there.placement.branch_id)
            assert held is not None
            assert held.token == lease.token

    def test_nobody_is_sent_to_a_branch_that_someone_else_works_on(self) -> None:
        first = self.save().stored
        side = self.fork(first, "side")
        self.acquire(side.placement.branch_id)
        with refused(LeaseError):
            self.catalog.move(ADA, side.placement.branch_id, "switch", ACTOR)
        with refused(LeaseError):
            self.catalog.delete_branch(ADA, side.placement.branch_id, ACTOR)
        with refused(LeaseError):
            self.catalog.delete_task(ADA, "task", ACTOR)
        assert self.active() == first.id

    def test_who_works_on_one_branch_keeps_nobody_from_forking_it(self) -> None:
        first = self.save().stored
        self.acquire(first.placement.branch_id)
        self.fork(first, "side")

    def test_a_move_that_is_not_allowed_is_refused_with_its_reason(self) -> None:
        """A15."""
        first = self.save(control_state="running").stored
        second = self.save(parent=first, control_state="completed").stored
        with refused(ControlError) as caught:
            self.save(parent=second, control_state="paused")
        assert (caught[0].details["state"], caught[0].details["wanted"]) == ("completed", "paused")
        assert self.active() == second.id
        assert isinstance(self.save(parent=second, control_state="completed").stored.placement.branch_id, str)

    def test_a_refused_commit_says_where_the_head_is_before_who_works_there(self) -> None:
        first, second = self.chain(2)
        self.acquire(first.placement.branch_id)
        with refused(LeaseError):
            self.save(parent=second)
        with refused(ConflictError) as caught:
            self.save(parent=first)
        assert not isinstance(caught[0], LeaseError)
        assert isinstance(caught[0].head, Head)

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


class RequestsConformance(CatalogCase):
    """A part of CatalogConformance."""

    def post(self, branch_id: str, kind: Any = "pause", id: str | None = None, **data: Any) -> Request:
        wanted = Request(id=id or new_id(), branch_id=branch_id, kind=kind, data=data, at=7, actor=ADA)
        return self.catalog.post_request(ADA, wanted, ACTOR)

    def wanted(self, branch_id: str) -> list[str]:
        return [request.id for request in self.catalog.requests(ADA, branch_id=branch_id)]

    def test_a_request_is_open_until_a_commit_fulfils_it(self) -> None:
        first = self.save().stored
        branch = first.placement.branch_id
        one, two = self.post(branch, "guide", text="shorter"), self.post(branch)
        assert self.catalog.requests(ADA, branch_id=branch) == [one, two]
        assert self.catalog.requests(BEN, branch_id=branch) == []
        assert [event.kind for event in self.catalog.events(self.task())].count("requested") == 2
        second = self.save(parent=first, fulfilled=[FulfilledRequest(one.id, {"seen": 1})]).stored
        assert self.wanted(branch) == [two.id]
        found = self.request(one.id)
        assert found is not None
        assert (found.status, found.outcome, found.data) == ("fulfilled", {"seen": 1}, {"text": "shorter"})
        assert found.ended_at is not None
        assert self.request(one.id, BEN) is None
        with refused(ConflictError):
            self.save(parent=second, fulfilled=[FulfilledRequest(one.id, {})])
        assert self.active() == second.id

    def test_a_commit_that_is_refused_fulfils_nothing(self) -> None:
        first, _ = self.chain(2)
        request = self.post(first.placement.branch_id)
        with refused(ConflictError):
            self.save(parent=first, fulfilled=[FulfilledRequest(request.id, {})])
        assert self.wanted(first.placement.branch_id) == [request.id]

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
        found = self.request(request.id)
        assert found is not None
        assert (found.status, found.outcome) == ("refused", {"reason": "it is over"})
        assert self.wanted(branch) == []
        last = self.catalog.events(self.task())[-1]
        assert (last.kind, last.data["reason"]) == ("request_refused", "it is over")
        with refused(ConflictError):
            self.catalog.end_request(ADA, FulfilledRequest(request.id, {}), "fulfilled", ACTOR)

    def test_whoever_lost_the_branch_ends_no_request_of_it(self) -> None:
        """C6: what a zombie knows of the work is out of date."""
        branch = self.save().stored.placement.branch_id
        old = self.catalog.acquire_lease(ADA, branch, HERE, "one", 0, ACTOR)
        self.catalog.acquire_lease(ADA, branch, THERE, "two", 60, ACTOR)
        request = self.post(branch)
        with refused(LeaseError):
            self.catalog.end_request(ADA, FulfilledRequest(request.id, {}), "refused", ACTOR, lease=old.token)
        assert self.wanted(branch) == [request.id]

    def test_there_is_no_request_about_a_branch_that_is_not_there(self) -> None:
        self.save()
        with refused(NotFoundError):
            self.post(new_id())

    def test_what_is_wanted_goes_along_when_the_work_goes_to_another_branch(self) -> None:
        first, second = self.chain(2)
        branch = first.placement.branch_id
        lease = self.catalog.acquire_lease(ADA, branch, HERE, "one", 60, ACTOR)
        request = self.post(branch)
        restored = self.restore(first, "back", expects=second.id, lease=lease.token)
        assert self.wanted(restored.placement.branch_id) == [request.id]
        assert self.wanted(branch) == []

    def test_requests_go_with_their_task(self) -> None:
        branch = self.save().stored.placement.branch_id
        request = self.post(branch)
        self.catalog.delete_task(ADA, "task", ACTOR)
        assert self.request(request.id) is None
