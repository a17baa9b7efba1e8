"""What every catalog must do for requests."""

from __future__ import annotations

from typing import Any

from lastgood.catalog.values import FulfilledRequest
from lastgood.errors import ConflictError, LeaseError, NotFoundError
from lastgood.model.identity import new_id
from lastgood.model.work import Process, Request
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, refused


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
        old = self.catalog.acquire_lease(ADA, branch, Process("here", 1), "one", 0, ACTOR)
        self.catalog.acquire_lease(ADA, branch, Process("there", 2), "two", 60, ACTOR)
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
        lease = self.catalog.acquire_lease(ADA, branch, Process("here", 1), "one", 60, ACTOR)
        request = self.post(branch)
        restored = self.restore(first, "back", expects=second.id, lease=lease.token)
        assert self.wanted(restored.placement.branch_id) == [request.id]
        assert self.wanted(branch) == []

    def test_requests_go_with_their_task(self) -> None:
        branch = self.save().stored.placement.branch_id
        request = self.post(branch)
        self.catalog.delete_task(ADA, "task", ACTOR)
        assert self.request(request.id) is None
