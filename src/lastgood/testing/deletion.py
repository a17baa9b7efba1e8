"""What every catalog must do when something is deleted or purged, and what it logs of it."""

from __future__ import annotations

from lastgood.catalog.values import NewBranch
from lastgood.errors import ConflictError, NotFoundError
from lastgood.model.identity import digest
from lastgood.testing.case import ACTOR, ADA, CatalogCase, refused


class DeletionConformance(CatalogCase):
    """A part of CatalogConformance."""

    def test_a_deleted_one_is_not_listed_and_still_a_parent(self) -> None:
        one, two, three = self.chain(3)
        self.save(parent=two, new=NewBranch("side", "side", active=False))
        self.catalog.attest(ADA, [two.id], "deleted", {}, ACTOR)
        self.catalog.attest(ADA, [two.id], "deleted", {}, ACTOR)
        assert self.listed(self.whole())[1:] == [three.id, one.id]
        assert [self.catalog.count(line) for line in (self.whole(), self.along("side"))] == [3, 2]
        kept = self.catalog.checkpoint(ADA, two.id)
        assert kept is not None
        assert kept.deleted
        self.save(parent=three)
        self.catalog.attest(ADA, [two.id], "undeleted", {}, ACTOR)
        assert [self.catalog.count(line) for line in (self.whole(), self.along("side"))] == [5, 3]

    def test_counts_follow_deletions_through_branches_of_branches(self) -> None:
        one, two = self.chain(2)
        three = self.save(parent=one, new=NewBranch("b", "b")).stored
        self.save(parent=three, new=NewBranch("c", "c"))
        self.catalog.attest(ADA, [one.id, two.id], "deleted", {}, ACTOR)
        for name in ("b", "c"):
            line = self.along(name)
            assert self.catalog.count(line) == len(self.catalog.checkpoints(line))
        assert self.catalog.count(self.whole()) == 2

    def test_the_active_head_cannot_be_deleted_or_purged(self) -> None:
        first = self.save().stored
        with refused(ConflictError):
            self.catalog.attest(ADA, [first.id], "deleted", {}, ACTOR)
        with refused(ConflictError):
            self.catalog.purge([(ADA, first.id)], ACTOR, all_or_none=True)
        assert self.listed(self.whole()) == [first.id]

    def test_several_are_attested_together_or_not_at_all(self) -> None:
        one, two = self.chain(2)
        with refused(ConflictError):
            self.catalog.attest(ADA, [one.id, two.id], "deleted", {}, ACTOR)
        assert self.listed(self.whole()) == [two.id, one.id]

    def test_a_purge_leaves_a_tombstone_and_nothing_else(self) -> None:
        one, two, three = self.chain(3)
        self.catalog.attest(ADA, [two.id], "tag", {"name": "green"}, ACTOR)
        self.catalog.purge([(ADA, two.id)], ACTOR, all_or_none=True)
        stone = self.catalog.checkpoint(ADA, two.id)
        assert stone is not None
        assert (stone.data, stone.checksum, stone.placement, stone.tags) == (None, two.checksum, two.placement, ())
        assert self.catalog.root(stone) is None
        assert self.catalog.checkpoint_at(self.task(), "green") is None
        assert self.listed(self.whole()) == [three.id, one.id]
        assert self.catalog.count(self.whole()) == 2
        assert [a.kind for a, _ in self.catalog.attestations(ADA, two.id)] == ["purged"]
        with refused(NotFoundError):
            self.catalog.purge([(ADA, two.id)], ACTOR, all_or_none=True)
        with refused(ConflictError):
            self.save(parent=three, id=two.id)

    def test_one_that_was_deleted_and_then_purged_is_counted_out_once(self) -> None:
        one, two, _ = self.chain(3)
        self.save(parent=two, new=NewBranch("side", "side", active=False))
        self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR)
        self.catalog.purge([(ADA, one.id)], ACTOR, all_or_none=True)
        for line in (self.whole(), self.along("side"), self.along(two.placement.branch_id)):
            assert self.catalog.count(line) == len(self.listed(line))

    def test_nothing_is_verified_by_a_purged_one_and_its_key_is_free(self) -> None:
        one = self.save(key="k", attestations=[("verification", {"verified": True})]).stored
        two = self.save(parent=one).stored
        self.catalog.purge([(ADA, one.id)], ACTOR, all_or_none=True)
        stone = self.catalog.checkpoint(ADA, one.id)
        assert stone is not None
        assert (stone.verified, stone.verified_at) == (False, None)
        assert self.last_verified(self.along(one.placement.branch_id)) is None
        assert not self.save(parent=two, key="k", message="other").repeated

    def test_a_deleted_task_is_gone_with_everything_and_that_is_logged(self) -> None:
        made = self.chain(3, blobs=(b"content",))
        kept = self.save("kept").stored
        assert self.catalog.delete_task(ADA, "task", ACTOR) == 3
        assert self.catalog.position(ADA, "task") is None
        assert self.catalog.checkpoint(ADA, made[0].id) is None
        assert self.catalog.blobs(made[0].task_number, [digest(b"content")]) == {}
        assert self.catalog.checkpoint(ADA, kept.id) == kept
        events = self.catalog.events(None)
        assert [(event.kind, event.actor, event.data["task_id"]) for event in events] == [("task_deleted", ADA, "task")]
        again = self.save().stored
        assert again.placement.sequence == 1
        assert again.task_number != made[0].task_number

    def test_events_carry_actor_and_correlation_and_are_paged(self) -> None:
        self.chain(4)
        events = self.catalog.events(self.task(), after=1, limit=2)
        assert [event.sequence for event in events] == [2, 3]
        assert {(event.actor, event.correlation_id) for event in events} == {(ADA, "correlation-1")}

    def test_events_are_dense_and_in_order_and_outlive_a_purge(self) -> None:
        one, two, three = self.chain(3)
        self.catalog.attest(ADA, [one.id, two.id], "verification", {"verified": True}, ACTOR)
        self.save(parent=three, new=NewBranch("side", "side"))
        self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR)
        self.catalog.purge([(ADA, two.id)], ACTOR, all_or_none=True)
        events, after = [], 0
        while page := self.catalog.events(self.task(), after=after, limit=2):
            events += page
            after = page[-1].sequence
        assert [event.sequence for event in events] == list(range(1, 9))
        kinds = ["created", "created", "created", "verified", "verified", "branched", "deleted", "purged"]
        assert [event.kind for event in events] == kinds
        assert [event.checkpoint_id for event in events][:3] == [one.id, two.id, three.id]
        assert {event.actor for event in events} == {ADA}
        assert self.catalog.events(self.task(), after=4, limit=100) == events[4:]

    def test_blobs_belong_to_their_task(self) -> None:
        mine = self.save(blobs=(b"secret",)).stored
        other = self.save("other").stored
        assert self.catalog.blobs(other.task_number, [digest(b"secret")]) == {}
        assert set(self.catalog.blobs(mine.task_number, [digest(b"secret")])) == {digest(b"secret")}
