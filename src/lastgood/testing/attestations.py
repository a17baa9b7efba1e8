"""What every catalog must do for what is said of a checkpoint later: verifications, tags, marks."""

from __future__ import annotations

from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.testing.means import ACTOR, ADA, CatalogMeans
from lastgood.testing.refusal import refused


class AttestationsConformance(CatalogMeans):
    """A part of CatalogConformance."""

    def test_attestations_are_appended_with_digests(self) -> None:
        first = self.save().stored
        self.catalog.attest(ADA, [first.id], "verification", {"verified": True}, ACTOR)
        self.catalog.attest(ADA, [first.id], "tag", {"name": "green"}, ACTOR)
        found = self.catalog.attestations(ADA, first.id)
        assert [(a.number, a.kind, a.actor) for a, _ in found] == [(1, "verification", ADA), (2, "tag", ADA)]
        assert all(attestation.digest(first.checksum) == kept for attestation, kept in found)
        assert [event.kind for event in self.catalog.events(self.task())] == ["created", "verified", "tagged"]

    def test_a_verification_is_dated_by_its_attestation_and_the_log_tells_only_how_it_ended(self) -> None:
        first = self.save().stored
        data = {"verified": True, "results": [["verified", None, 1]]}
        (said,) = self.catalog.attest(ADA, [first.id], "verification", data, ACTOR)
        stored = self.catalog.checkpoint(ADA, first.id)
        assert stored is not None
        assert (stored.verified, stored.verified_at) == (True, said.at)
        assert self.catalog.attestations(ADA, first.id)[0][0].data == data
        assert self.catalog.events(self.task())[-1].data == {"verified": True}

    def test_what_holds_already_is_answered_with_what_said_it_last(self) -> None:
        first, _ = self.chain(2)
        for kind in ("deleted", "undeleted", "deleted"):
            (last,) = self.catalog.attest(ADA, [first.id], kind, {}, ACTOR)
        assert self.catalog.attest(ADA, [first.id], "deleted", {}, ACTOR) == [last]
        assert [a.number for a, _ in self.catalog.attestations(ADA, first.id)] == [1, 2, 3]

    def test_a_deleted_one_is_neither_tagged_nor_verified(self) -> None:
        first, _ = self.chain(2)
        self.catalog.attest(ADA, [first.id], "deleted", {}, ACTOR)
        for kind, data in (("tag", {"name": "green"}), ("verification", {"verified": True})):
            with refused(NotFoundError):
                self.catalog.attest(ADA, [first.id], kind, data, ACTOR)
        assert self.catalog.tags(self.task()) == {}
        assert [a.kind for a, _ in self.catalog.attestations(ADA, first.id)] == ["deleted"]

    def test_an_unknown_attestation_is_refused(self) -> None:
        first = self.save().stored
        with refused(InvalidError):
            self.catalog.attest(ADA, [first.id], "blessed", {}, ACTOR)

    def test_a_tag_names_one_checkpoint_and_moves_on_purpose(self) -> None:
        one, two = self.chain(2)
        self.catalog.attest(ADA, [one.id], "tag", {"name": "green"}, ACTOR)
        self.catalog.attest(ADA, [one.id], "tag", {"name": "green"}, ACTOR)
        with refused(ConflictError):
            self.catalog.attest(ADA, [two.id], "tag", {"name": "green"}, ACTOR)
        self.catalog.attest(ADA, [two.id], "tag", {"name": "green", "move": True}, ACTOR)
        tagged = self.catalog.tagged(self.task(), "green")
        assert tagged is not None
        assert (tagged.id, tagged.tags) == (two.id, ("green",))
        assert [a.kind for a, _ in self.catalog.attestations(ADA, one.id)] == ["tag", "untag"]
        self.catalog.attest(ADA, [two.id], "untag", {"name": "green"}, ACTOR)
        assert self.catalog.tagged(self.task(), "green") is None

    def test_a_tag_is_taken_only_from_the_checkpoint_that_has_it(self) -> None:
        one, two = self.chain(2)
        self.catalog.attest(ADA, [two.id], "tag", {"name": "green"}, ACTOR)
        self.catalog.attest(ADA, [one.id], "untag", {"name": "green"}, ACTOR)
        assert [head.id for head in self.catalog.tags(self.task()).values()] == [two.id]
        assert self.catalog.attestations(ADA, one.id) == []
