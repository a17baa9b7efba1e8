"""What every catalog must do for leases."""

from __future__ import annotations

from typing import Literal

from lastgood.catalog.values import NewBranch
from lastgood.errors import ConflictError, ControlError, LeaseError, NotFoundError
from lastgood.model.checkpoint import Head
from lastgood.model.identity import digest, new_id
from lastgood.model.work import Lease, Process
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, refused

HERE, THERE = Process("here", 1), Process("there", 2)
MINUTE, NO_TIME = 60.0, 0.0


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
                self.catalog.move(ADA, "task", way, ACTOR)
            assert self.catalog.move(ADA, "task", way, ACTOR, lease=lease.token).head.id == there.id
            held = self.catalog.lease(ADA, there.placement.branch_id)
            assert held is not None
            assert held.token == lease.token

    def test_nobody_is_sent_to_a_branch_that_someone_else_works_on(self) -> None:
        first = self.save().stored
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
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
        self.save(parent=first, new=NewBranch(new_id(), "side", active=False))

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
        assert self.catalog.events(None)[-1].kind == "taken_over"

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
