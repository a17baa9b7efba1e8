"""What every catalog must do with checkpoints: commit, find, attest, delete and purge them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lastgood.catalog.values import FILES, Blob, ContainingBlob, FulfilledRequest, NewBranch, NewSlice
from lastgood.errors import ConflictError, ControlError, IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Head, decode_record
from lastgood.model.identity import digest, new_id
from lastgood.testing.case import ACTOR, ADA, BEN, CatalogCase, digests, inline, pack, pack_name, refused


class RecordsConformance(CatalogCase):
    """A part of CatalogConformance."""

    # --- committing --------------------------------------------------------------------------------------------

    def test_what_was_committed_comes_back_as_it_was(self) -> None:
        done = self.save(root=b"the state", blobs=(b"one", b"two"), message="hello", metadata={"tokens_in": 5})
        stored = self.catalog.checkpoint(ADA, done.stored.id)
        assert stored == done.stored
        assert stored is not None
        assert stored.data is not None
        assert digest(stored.data) == stored.checksum
        assert stored.placement.digest(stored.checksum) == stored.placement_digest
        assert self.catalog.root(stored) == Blob(b"", 9, 0, b"the state")
        keys = digests(b"one", b"two", b"three")
        found = self.catalog.blobs(stored.task_number, keys)
        assert {key: blob.data for key, blob in found.items()} == {keys[0]: b"one", keys[1]: b"two"}
        assert self.catalog.blobs(self.save("other").stored.task_number, keys) == {}

    def test_a_slice_reads_as_before_and_names_its_whole_which_stays_one(self) -> None:
        first = self.save(blobs=(b"alpha", b"beta")).stored
        whole, larger = digests(b"alphabetagamma", b"alphabetagammadelta")
        parts = ((b"alpha", 0), (b"beta", 5), (b"never stored", 9))
        slices = [NewSlice(digest(part), whole, position) for part, position in parts]
        second = self.save(parent=first, blobs=(b"alphabetagamma",), slices=slices).stored
        self.save(parent=second, blobs=(b"alphabetagammadelta",), slices=[NewSlice(whole, larger, 0)])
        found = self.catalog.blobs(first.task_number, [*digests(b"beta", b"never stored"), whole, larger])
        assert found.keys() == {digest(b"beta"), whole, larger}
        beta = found[digest(b"beta")]
        assert (beta.size, beta.whole) == (4, ContainingBlob(whole, 14, 5))
        assert beta.data[5:9] == b"beta"

    def test_the_first_commit_creates_the_task_and_its_branch(self) -> None:
        assert self.catalog.position(ADA, "task") is None
        first = self.save().stored
        task = self.task()
        assert (task.owner, task.checkpoints, task.last_sequence) == (ADA, 1, 1)
        branch = self.branch(task.active_branch_id)
        assert branch.name == "main"
        assert branch.head == Head(first.id, first.checksum, 1, branch.id)

    def test_a_stale_writer_is_refused_and_told_the_head(self) -> None:
        first, second = self.chain(2)
        with refused(ConflictError) as caught:
            self.save(parent=first)
        assert caught[0].head == Head(second.id, second.checksum, 2, second.placement.branch_id)
        assert self.task().checkpoints == 2

    def test_a_commit_that_appends_goes_on_from_whatever_the_head_is(self) -> None:
        first, second = self.chain(2)
        message, work = "what the head says", "W-1"
        third = self.save(
            parent=second, root=b"state", message=message, work_item_id=work, control_state="running"
        ).stored
        kept = ("message", "work_item_id", "control_state")
        fourth = self.save(parent=first, append=True, inherited=kept, keep_root=True).stored
        assert fourth.data is not None
        record = decode_record(fourth.data, fourth.checksum, "it")
        assert (record.parent_id, record.parent_checksum) == (third.id, third.checksum)
        assert (record.message, record.work_item_id, record.control_state) == (message, work, "running")
        assert self.catalog.root(fourth) == self.catalog.root(third)
        assert self.catalog.checkpoint(ADA, fourth.id) == fourth
        with refused(ControlError):
            self.save(parent=first, append=True, control_state="idle")

    def test_a_commit_that_appends_follows_the_active_branch(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back", expects=second.id)
        new = NewBranch(new_id(), "main")
        fourth = self.save(parent=second, append=True, only_if_active=True).stored
        fifth = self.save(new=new, append=True).stored
        assert (fourth.placement.branch_id, fifth.placement.branch_id) == (back.placement.branch_id,) * 2
        assert self.active() == fifth.id
        begun = self.save("another", new=new, append=True).stored
        assert (begun.placement.branch_id, begun.placement.sequence) == (new.id, 1)
        with refused(NotFoundError):
            self.save(parent=second, branch="nowhere", append=True)

    def test_a_refused_commit_changes_nothing(self) -> None:
        first, second = self.chain(2, blobs=(b"s",), file_blobs=[inline(b"a")])
        branch = first.placement.branch_id
        request = self.post(branch, id="wanted")
        self.catalog.begin_step(self.step(id="open"), None)
        for partition, content in ((FILES, b"a"), (first.task_number, b"s")):
            self.catalog.condemn(partition, [digest(content)], 100)
        before, events = self.task(), self.catalog.events(self.task())
        what: dict[str, Any] = {"id": "refused", "key": "k", "blobs": (b"s", b"orphan"), "packs": [pack("one", b"p")]}
        what |= {"step": "open", "begins": self.step(id="next"), "fulfilled": [FulfilledRequest("wanted", {})]}
        with refused(ConflictError):
            self.save(parent=first, relies_on=digests(b"a"), **what)
        with refused(IntegrityError):
            self.save(parent=second, relies_on=digests(b"a", b"gone"), **what)
        assert (self.task(), self.catalog.events(before)) == (before, events)
        assert self.catalog.checkpoint(ADA, "refused") is None
        assert {(blob.digest, blob.condemned) for blob in self.catalog.indexed()} == {
            (digest(b"a"), 100),
            (digest(b"s"), 100),
        }
        assert [step.id for step in self.catalog.open_steps(ADA)] == ["open"]
        assert self.catalog.requests(ADA, branch_id=branch) == [request]
        assert [one.name for one in self.catalog.announced()] == [pack_name("one")]

    def test_an_unknown_branch_or_one_of_another_task_is_not_found(self) -> None:
        first = self.save().stored
        other = self.save("other").stored
        for branch in ("no such branch", other.placement.branch_id):
            with refused(NotFoundError):
                self.save(parent=first, branch=branch)

    def test_the_same_key_or_id_returns_the_stored_one_before_the_head_is_looked_at(self) -> None:
        names: dict[str, dict[str, Any]] = {"by key": {"key": "k"}, "by id": {"id": "mine"}}
        for task, name in names.items():
            first = self.save(task, message="m", **name).stored
            second = self.save(task, first).stored
            again = self.save(task, message="m", **name)
            assert (again.repeated, again.stored) == (True, self.catalog.checkpoint(ADA, first.id))
            with refused(ConflictError):
                self.save(task, second, message="other", **name)
            assert self.task(task).checkpoints == 2

    def test_keys_belong_to_a_task_of_an_owner(self) -> None:
        self.save(key="k", message="m")
        assert not self.save("other", key="k", message="n").repeated
        assert not self.save(key="k", message="m", owner=BEN).repeated

    def test_what_the_caller_left_as_it_was_does_not_make_a_repetition_differ(self) -> None:
        first = self.save(key="k", message="m", iteration=1).stored
        again = self.save(key="k", message="m", iteration=2, inherited=["iteration"])
        assert (again.repeated, again.stored.id) == (True, first.id)
        with refused(ConflictError):
            self.save(key="k", message="other", iteration=2, inherited=["iteration"])

    def test_what_is_attested_with_a_commit_is_there_with_it_and_the_last_verification_counts(self) -> None:
        said = [("verification", {"verified": False}), ("verification", {"verified": True})]
        stored = self.save(attestations=said).stored
        assert stored == self.catalog.checkpoint(ADA, stored.id)
        found = self.catalog.attestations(ADA, stored.id)
        assert [(a.number, a.kind, a.actor, a.data) for a, _ in found] == [
            (1, "verification", ADA, {"verified": False}),
            (2, "verification", ADA, {"verified": True}),
        ]
        assert all(attestation.digest(stored.checksum) == kept for attestation, kept in found)
        assert (stored.verified, stored.verified_at) == (True, found[1][0].at_us)
        later = self.save(parent=stored, attestations=said[::-1]).stored
        assert not later.verified
        assert self.listed(self.along(stored.placement.branch_id), verified=True) == [stored.id]
        assert [event.kind for event in self.catalog.events(self.task())] == ["created", "created"]

    def test_control_states_follow_each_other_as_they_may(self) -> None:
        """A15."""
        first = self.save(control_state="running")
        second = self.save(parent=first.stored, control_state="completed")
        assert (first.previous_control_state, second.previous_control_state) == ("idle", "running")
        with refused(ControlError) as caught:
            self.save(parent=second.stored, control_state="paused")
        assert (caught[0].details["state"], caught[0].details["wanted"]) == ("completed", "paused")
        assert self.active() == second.stored.id
        self.save(parent=second.stored, control_state="completed")

    def test_one_of_many_threads_wins(self) -> None:
        first = self.save().stored
        gate = threading.Barrier(8)

        def race(_: int) -> tuple[bool, str]:
            gate.wait()
            try:
                return True, self.save(parent=first).stored.id
            except ConflictError as error:
                return False, error.head.id

        with ThreadPoolExecutor(8) as pool:
            outcomes = sorted(pool.map(race, range(8)))
        winner = self.active()
        assert outcomes == [(False, winner)] * 7 + [(True, winner)]

    # --- owners --------------------------------------------------------------------------------------------------

    def test_ids_live_in_their_owners_namespace(self) -> None:
        self.save(id="same", owner=ADA, message="ada's")
        self.save(id="same", owner=BEN, message="ben's")
        assert self.catalog.checkpoint(ADA, "same") != self.catalog.checkpoint(BEN, "same")
        assert [task.owner for task in self.catalog.tasks(None)] == [BEN, ADA]
        assert [task.owner for task in self.catalog.tasks(ADA)] == [ADA]

    def test_another_owners_things_are_not_found(self) -> None:
        mine = self.save(id="mine-1").stored
        assert self.catalog.position(BEN, "task") is None
        assert self.catalog.branch(BEN, mine.placement.branch_id) is None
        assert self.catalog.checkpoint(BEN, mine.id) is None
        assert self.catalog.find(BEN, "mine") == []
        for act in (
            lambda: self.catalog.attest(BEN, [mine.id], "deleted", {}, ACTOR),
            lambda: self.catalog.purge([(BEN, mine.id)], ACTOR, all_or_none=True),
            lambda: self.catalog.delete_task(BEN, "task", ACTOR),
            lambda: self.catalog.attestations(BEN, mine.id),
        ):
            with refused(NotFoundError):
                act()

    # --- attestations --------------------------------------------------------------------------------------------

    def test_attestations_are_appended_with_digests_and_the_log_tells_only_how_a_verification_ended(self) -> None:
        first = self.save().stored
        data = {"verified": True, "results": [["verified", None, 1]]}
        (said,) = self.attest("verification", first, **data)
        self.attest("tag", first, name="green")
        found = self.catalog.attestations(ADA, first.id)
        assert [(a.number, a.kind, a.actor, a.data) for a, _ in found] == [
            (1, "verification", ADA, data),
            (2, "tag", ADA, {"name": "green"}),
        ]
        assert all(attestation.digest(first.checksum) == kept for attestation, kept in found)
        stored = self.stored(first)
        assert (stored.verified, stored.verified_at) == (True, said.at_us)
        events = self.catalog.events(self.task())
        assert [event.kind for event in events] == ["created", "verified", "tagged"]
        assert events[1].data == {"verified": True}

    def test_what_holds_already_is_answered_with_what_said_it_last(self) -> None:
        first, _ = self.chain(2)
        for kind in ("deleted", "undeleted", "deleted"):
            (last,) = self.catalog.attest(ADA, [first.id], kind, {}, ACTOR)
        assert self.attest("deleted", first) == [last]
        assert [a.number for a, _ in self.catalog.attestations(ADA, first.id)] == [1, 2, 3]

    def test_a_deleted_one_is_neither_tagged_nor_verified_and_nothing_unknown_is_said(self) -> None:
        first, _ = self.chain(2)
        self.attest("deleted", first)
        with refused(NotFoundError):
            self.attest("tag", first, name="green")
        with refused(NotFoundError):
            self.attest("verification", first, verified=True)
        with refused(InvalidError):
            self.attest("blessed", first)
        assert self.catalog.tags(self.task()) == {}
        assert [a.kind for a, _ in self.catalog.attestations(ADA, first.id)] == ["deleted"]

    def test_a_tag_names_one_checkpoint_and_moves_on_purpose(self) -> None:
        one, two = self.chain(2)
        self.attest("tag", one, name="green")
        self.attest("tag", one, name="green")
        with refused(ConflictError):
            self.attest("tag", two, name="green")
        self.attest("untag", two, name="green")  # it does not have it
        assert [head.id for head in self.catalog.tags(self.task()).values()] == [one.id]
        assert self.catalog.attestations(ADA, two.id) == []
        self.attest("tag", two, name="green", move=True)
        tagged = self.catalog.checkpoint_at(self.task(), "green")
        assert tagged is not None
        assert (tagged.id, tagged.tags) == (two.id, ("green",))
        assert [a.kind for a, _ in self.catalog.attestations(ADA, one.id)] == ["tag", "untag"]
        self.attest("untag", two, name="green")
        assert self.catalog.checkpoint_at(self.task(), "green") is None

    # --- deletion ------------------------------------------------------------------------------------------------

    def test_a_deleted_one_is_not_listed_and_still_a_parent(self) -> None:
        one, two, three = self.chain(3)
        self.fork(two, "side")
        self.attest("deleted", two)
        self.attest("deleted", two)
        assert self.listed(self.whole())[1:] == [three.id, one.id]
        assert [self.catalog.count(line) for line in (self.whole(), self.along("side"))] == [3, 2]
        kept = self.stored(two)
        assert kept.deleted
        self.save(parent=three)
        self.attest("undeleted", two)
        assert [self.catalog.count(line) for line in (self.whole(), self.along("side"))] == [5, 3]

    def test_counts_follow_deletions_and_purges_through_branches_of_branches(self) -> None:
        one, two = self.chain(2)
        three = self.save(parent=one, new=NewBranch("b", "b")).stored
        self.save(parent=three, new=NewBranch("c", "c"))
        self.attest("deleted", one, two)
        self.save(parent=three, new=NewBranch("made since", "d"))
        ranges = [self.whole(), *map(self.along, (two.placement.branch_id, "b", "c", "made since"))]
        for _ in range(2):
            assert [self.catalog.count(among) for among in ranges] == [3, 0, 1, 2, 2]
            assert [len(self.listed(among)) for among in ranges] == [3, 0, 1, 2, 2]
            self.catalog.purge([(ADA, one.id)], ACTOR)  # it was counted out when it was deleted

    def test_the_active_head_is_not_deleted_or_purged_nor_what_would_go_with_it(self) -> None:
        one, head = self.chain(2)
        with refused(ConflictError):
            self.attest("deleted", one, head)
        with refused(ConflictError):
            self.purge(one, head)
        assert self.listed(self.whole()) == [head.id, one.id]

    def test_a_purge_leaves_a_tombstone_and_nothing_else(self) -> None:
        one = self.save().stored
        two = self.save(parent=one, key="k", attestations=[("verification", {"verified": True})]).stored
        three = self.save(parent=two).stored
        self.attest("tag", two, name="green")
        self.purge(two)
        stone = self.stored(two)
        assert (stone.data, stone.checksum, stone.placement, stone.tags) == (None, two.checksum, two.placement, ())
        assert (stone.verified, stone.verified_at) == (False, None)
        assert self.catalog.root(stone) is None
        assert self.catalog.checkpoint_at(self.task(), "green") is None
        assert self.listed(self.whole()) == [three.id, one.id]
        assert self.listed(self.along(one.placement.branch_id), verified=True) == []
        assert self.catalog.count(self.whole()) == 2
        assert [a.kind for a, _ in self.catalog.attestations(ADA, two.id)] == ["purged"]
        with refused(NotFoundError):
            self.purge(two)
        with refused(ConflictError):
            self.save(parent=three, id=two.id)
        assert not self.save(parent=three, key="k", message="other").repeated

    def test_a_deleted_task_is_gone_with_everything_and_that_is_logged(self) -> None:
        made = self.chain(3, blobs=(b"content",), file_blobs=[inline(b"shared")])
        kept = self.save("kept").stored
        self.catalog.begin_step(self.step(id="mine"), None)
        self.catalog.begin_step(self.step(id="theirs", owner=BEN), None)
        self.post(made[0].placement.branch_id, id="wanted")
        assert self.catalog.delete_task(ADA, "task", ACTOR) == 3
        assert self.catalog.position(ADA, "task") is None
        assert self.catalog.checkpoint(ADA, made[0].id) is None
        assert self.catalog.blobs(made[0].task_number, [digest(b"content")]) == {}
        assert self.catalog.requests(ADA, id="wanted") == []
        assert self.catalog.has_blobs(FILES, [digest(b"shared")]) == {digest(b"shared")}  # it is the store's
        assert [step.id for step in self.catalog.open_steps(None)] == ["theirs"]
        assert self.catalog.checkpoint(ADA, kept.id) == kept
        events = self.catalog.events(None)
        assert [(event.kind, event.actor, event.data["task_id"]) for event in events] == [("task_deleted", ADA, "task")]
        again = self.save().stored
        assert again.placement.sequence == 1
        assert again.task_number != made[0].task_number

    def test_events_are_dense_and_in_order_and_outlive_a_purge(self) -> None:
        one, two, three = self.chain(3)
        self.attest("verification", one, two, verified=True)
        self.save(parent=three, new=NewBranch("side", "side"))
        self.attest("deleted", one)
        self.purge(two)
        events, after = [], 0
        while page := self.catalog.events(self.task(), after=after, limit=2):
            events += page
            after = page[-1].sequence
        assert [event.sequence for event in events] == list(range(1, 9))
        kinds = ["created", "created", "created", "verified", "verified", "branched", "deleted", "purged"]
        assert [event.kind for event in events] == kinds
        assert [event.checkpoint_id for event in events][:3] == [one.id, two.id, three.id]
        assert {event.actor for event in events} == {ADA}
        assert {event.correlation_id for event in events} == {"correlation-1"}
        assert self.catalog.events(self.task(), after=4, limit=100) == events[4:]
