"""What every catalog must do for steps."""

from __future__ import annotations

from typing import Any

from lastgood.catalog.values import Blob, FulfilledRequest, NewBranch
from lastgood.errors import ConflictError, NotFoundError
from lastgood.model.identity import new_id
from lastgood.model.work import OpenStep, Process, Request
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, refused


class StepsConformance(CatalogCase):
    """A part of CatalogConformance."""

    def step(self, task_id: str = "task", owner: str = ADA, **fields: Any) -> OpenStep:
        return OpenStep(
            id=fields.pop("id", None) or new_id(),
            owner=owner,
            task_id=task_id,
            name="work",
            type="step",
            began_at=1 + len(self.catalog.open_steps(None)),
            began_by=owner,
            process=Process("host", 1),
            **fields,
        )

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
        self.save(parent=first, new=NewBranch("side", "side", active=False))
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
        self.save(parent=first, new=NewBranch("side", "side", active=False))
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
