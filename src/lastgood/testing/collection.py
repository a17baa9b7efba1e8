"""What every catalog must do for garbage collection: nothing goes that was not condemned, and a commit acquits."""

from __future__ import annotations

from lastgood.catalog.values import (
    FILES,
    KnownPack,
    NewSlice,
    PackRange,
    SlicedBlob,
    StoredCheckpoint,
)
from lastgood.errors import ConflictError, IntegrityError
from lastgood.model.identity import digest, now
from lastgood.model.task import Process
from lastgood.testing.case import (
    ACTOR,
    ADA,
    BEN,
    SOMEBODY,
    CatalogCase,
    digests,
    inline,
    journal,
    pack,
    pack_name,
    refused,
)

HOUR = 3_600_000_000


class CollectionConformance(CatalogCase):
    """A part of CatalogConformance."""

    # --- condemned, acquitted, removed ---------------------------------------------------------------------------

    def test_only_what_is_condemned_by_then_is_removed(self) -> None:
        task = self._task_with(b"a", b"b", b"c")
        self.catalog.condemn(task, [digest(b"a")], 100)
        self.catalog.condemn(task, [digest(b"b")], 101)
        assert self._condemned(task) == {b"a": 100, b"b": 101, b"c": None}
        assert self.catalog.remove_blobs(task, digests(b"a", b"b", b"c"), 100) == 1
        assert self._condemned(task) == {b"b": 101, b"c": None}

    def test_who_is_condemned_stays_so_since_the_first_time(self) -> None:
        task = self._task_with(b"a")
        self.catalog.condemn(task, [digest(b"a")], 100)
        self.catalog.condemn(task, [digest(b"a")], 200)
        assert self._condemned(task) == {b"a": 100}

    def test_who_is_acquitted_is_not_removed(self) -> None:
        task = self._task_with(b"a", b"b")
        self.catalog.condemn(task, digests(b"a", b"b"), 100)
        self.catalog.condemn(task, digests(b"a", b"never stored"), None)
        assert self.catalog.remove_blobs(task, digests(b"a", b"b"), 100) == 1
        assert self._condemned(task) == {b"a": None}

    def test_each_partition_is_condemned_for_itself(self) -> None:
        mine, other = self._task_with(b"a"), self._task_with(b"a", task_id="other")
        self.save("files", file_blobs=[inline(b"a")])
        self.catalog.condemn(mine, [digest(b"a")], 100)
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        assert self.catalog.remove_blobs(other, [digest(b"a")], 100) == 0
        assert self.catalog.remove_blobs(FILES, [digest(b"a")], 100) == 1
        assert self._condemned(mine) == {b"a": 100}
        assert self._condemned(other) == {b"a": None}

    def test_condemning_what_is_not_there_is_no_error(self) -> None:
        task = self._task_with()
        self.catalog.condemn(task, [digest(b"never")], 100)
        assert self.catalog.remove_blobs(task, [digest(b"never")], 100) == 0

    # --- a commit acquits ----------------------------------------------------------------------------------------

    def test_a_commit_acquits_parts_of_its_state_that_it_brings(self) -> None:
        first = self.save(blobs=(b"a", b"b")).stored
        self.catalog.condemn(first.task_number, digests(b"a", b"b"), 100)
        self.save(parent=first, blobs=(b"a",))
        assert self._condemned(first.task_number) == {b"a": None, b"b": 100}

    def test_a_commit_acquits_content_of_files_that_it_brings_in_line_or_in_a_pack(self) -> None:
        self.save(file_blobs=[inline(b"a"), inline(b"b"), inline(b"c")])
        self.catalog.condemn(FILES, digests(b"a", b"b", b"c"), 100)
        self.save("second", file_blobs=[inline(b"a")], packs=[pack("one", b"b")])
        assert self._condemned(FILES) == {b"a": None, b"b": None, b"c": 100}

    def test_a_commit_acquits_content_of_files_that_it_relies_on(self) -> None:
        self.save(file_blobs=[inline(b"a"), inline(b"b")])
        self.catalog.condemn(FILES, digests(b"a", b"b"), 100)
        self.save("second", relies_on=[digest(b"a")])
        assert self._condemned(FILES) == {b"a": None, b"b": 100}
        assert self.catalog.remove_blobs(FILES, digests(b"a", b"b"), 100) == 1

    def test_a_commit_that_is_refused_acquits_nobody(self) -> None:
        first = self.save(blobs=(b"s",), file_blobs=[inline(b"a")]).stored
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        self.catalog.condemn(first.task_number, [digest(b"s")], 100)
        with refused(IntegrityError):
            self.save(parent=first, blobs=(b"s",), relies_on=digests(b"a", b"gone"))
        assert self._condemned(FILES) == {b"a": 100}
        assert self._condemned(first.task_number) == {b"s": 100}

    def test_what_was_removed_can_be_brought_again(self) -> None:
        first = self.save(blobs=(b"s",), file_blobs=[inline(b"a")]).stored
        for partition, key in ((first.task_number, digest(b"s")), (FILES, digest(b"a"))):
            self.catalog.condemn(partition, [key], 100)
            assert self.catalog.remove_blobs(partition, [key], 100) == 1
        with refused(IntegrityError):
            self.save("second", relies_on=[digest(b"a")])
        self.save(parent=first, blobs=(b"s",), file_blobs=[inline(b"a")])
        assert self.catalog.blobs(first.task_number, [digest(b"s")])[digest(b"s")].data == b"s"
        assert self.catalog.blobs(FILES, [digest(b"a")])[digest(b"a")].data == b"a"

    # --- what a commit stands on ---------------------------------------------------------------------------------

    def test_a_commit_whose_base_was_purged_is_refused(self) -> None:
        first, second = self.chain(2)
        self.save(parent=second, base=first.id)
        self.purge(first)
        with refused(IntegrityError) as caught:
            self.save("another", base=first.id)
        assert caught[0].details["blobs"] == []
        assert self.catalog.position(ADA, "another") is None

    def test_a_base_may_be_deleted_and_must_be_the_owners(self) -> None:
        first, second = self.chain(2)
        self.attest("deleted", first)
        self.save(parent=second, base=first.id)
        with refused(IntegrityError):
            self.save("theirs", owner=BEN, base=first.id)

    def test_a_pack_that_nobody_announced_is_refused(self) -> None:
        one = pack("one", b"a")
        self.catalog.announce([one.name], SOMEBODY)
        self.catalog.announce([one.name], None)
        first = self.save().stored
        with refused(IntegrityError) as caught:
            self.save(parent=first, packs=[one], announces=False)
        assert caught[0].details["blobs"] == []
        assert self.catalog.packs() == []

    # --- slices --------------------------------------------------------------------------------------------------

    def test_a_blob_that_others_are_parts_of_is_not_removed(self) -> None:
        task, whole = self.slice()
        self.catalog.condemn(task, [whole], 100)
        assert self.catalog.remove_blobs(task, [whole], 100) == 0
        assert self.catalog.blobs(task, [digest(b"alpha")])[digest(b"alpha")].data == b"alphabeta"
        assert self.catalog.remove_blobs(task, digests(b"alpha", b"never"), None) == 1
        assert self.catalog.remove_blobs(task, [whole], 100) == 0
        assert self.catalog.remove_blobs(task, digests(b"beta"), None) == 1
        assert self.catalog.remove_blobs(task, [whole], 100) == 1
        assert self.catalog.blobs(task, [whole, *digests(b"alpha", b"beta")]) == {}

    def test_slices_of_one_task_are_not_those_of_another(self) -> None:
        task, whole = self.slice()
        other, _ = self.slice("other")
        assert self.catalog.remove_blobs(other, digests(b"alpha", b"beta"), None) == 2
        assert self.catalog.sliced() == sorted(SlicedBlob(task, digest(part), whole) for part in (b"alpha", b"beta"))

    def test_a_part_that_is_removed_and_brought_again_is_there(self) -> None:
        task, whole = self.slice()
        head = self.catalog.held()[-1].stored
        again = self.save(parent=head, blobs=(b"alpha",)).stored
        self.catalog.remove_blobs(task, digests(b"alpha", b"beta"), None)
        assert self.catalog.blobs(task, [digest(b"alpha")])[digest(b"alpha")].data == b"alpha"
        self.save(parent=again, slices=[NewSlice(digest(b"alpha"), whole, 0)])
        assert self.catalog.sliced() == [SlicedBlob(task, digest(b"alpha"), whole)]

    # --- packs ---------------------------------------------------------------------------------------------------

    def test_blobs_move_from_the_pack_they_lie_in_and_from_no_other(self) -> None:
        self.save(packs=[pack("one", b"a", b"b"), pack("two", b"c")])
        new = pack("new", b"c", b"a", b"never")
        self.catalog.announce([new.name], SOMEBODY)
        self.catalog.move_blobs(new, pack_name("one"))
        assert {blob.digest: blob.pack for blob in self.catalog.indexed()} == {
            digest(b"a"): new.name,
            digest(b"b"): pack_name("one"),
            digest(b"c"): pack_name("two"),
        }
        place = self.catalog.blobs(FILES, [digest(b"a")])[digest(b"a")].place
        assert place == PackRange(new.name, new.entries[1].position, 1)
        assert self.catalog.announced() == []

    def test_blobs_that_are_condemned_move_and_stay_condemned(self) -> None:
        self.save(packs=[pack("one", b"a")])
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        self.catalog.move_blobs(pack("new", b"a"), pack_name("one"))
        assert self._condemned(FILES) == {b"a": 100}

    def test_a_pack_tells_what_lies_in_it_by_place(self) -> None:
        self.save(packs=[pack("one", b"b", b"a"), pack("two", b"c")])
        assert [blob.digest for blob in self.catalog.indexed(pack=pack_name("one"))] == digests(b"b", b"a")
        assert self.catalog.indexed(pack=pack_name("none")) == []

    def test_only_packs_in_which_nothing_lies_are_removed(self) -> None:
        self.save(packs=[pack("one", b"a"), pack("two", b"b")])
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        self.catalog.remove_blobs(FILES, [digest(b"a")], 100)
        gone = self.catalog.remove_packs([pack_name("one"), pack_name("two"), pack_name("never")])
        assert gone == [pack_name("one")]
        assert self.catalog.packs() == [KnownPack(pack_name("two"), 90)]

    # --- packs on their way --------------------------------------------------------------------------------------

    def test_a_pack_is_announced_until_it_is_withdrawn_or_committed(self) -> None:
        before = now()
        other = Process("another host", 7, 8)
        self.catalog.announce([pack_name("one"), pack_name("two")], SOMEBODY)
        self.catalog.announce([pack_name("three")], other)
        told = self.catalog.announced()
        assert [(flight.name, flight.process) for flight in sorted(told)] == [
            (pack_name("one"), SOMEBODY),
            (pack_name("three"), other),
            (pack_name("two"), SOMEBODY),
        ]
        assert all(before <= flight.at <= now() for flight in told)
        self.catalog.announce([pack_name("one"), pack_name("never")], None)
        self.save(packs=[pack("two", b"a")], announces=False)
        assert [flight.name for flight in self.catalog.announced()] == [pack_name("three")]

    def test_a_commit_that_is_refused_withdraws_nothing(self) -> None:
        with refused(IntegrityError):
            self.save(packs=[pack("one", b"a")], relies_on=[digest(b"gone")])
        assert [flight.name for flight in self.catalog.announced()] == [pack_name("one")]

    # --- deleted checkpoints -------------------------------------------------------------------------------------

    def test_deleted_ones_are_told_with_their_owner_once_they_are_old_enough(self) -> None:
        one, two, three, _ = self.chain(4)
        self.attest("deleted", one, two, three)
        self.attest("undeleted", two)
        self.purge(three)
        assert self.catalog.deleted_before(now()) == [(ADA, one.id)]
        assert self.catalog.deleted_before(now() - HOUR) == []

    def test_what_counts_is_when_it_was_deleted_last(self) -> None:
        one, _ = self.chain(2)
        self.attest("deleted", one)
        first = max(said.at for said, _ in self.catalog.attestations(ADA, one.id))
        self.attest("undeleted", one)
        while now() <= first:
            pass
        self.attest("deleted", one)
        assert self.catalog.deleted_before(first) == []
        assert self.catalog.purge([(ADA, one.id)], ACTOR, deleted_before=first) == []
        assert self.catalog.purge([(ADA, one.id)], ACTOR, deleted_before=now()) == [one.id]

    def test_many_are_purged_at_once_and_who_cannot_be_stays(self) -> None:
        one, two, head = self.chain(3)
        theirs = self.chain(2, "theirs", owner=BEN)
        wanted = [
            (ADA, one.id),
            (ADA, "never"),
            (ADA, head.id),
            (ADA, theirs[0].id),
            (BEN, theirs[0].id),
            (ADA, one.id),
        ]
        assert self.catalog.purge(wanted, ACTOR) == [one.id, theirs[0].id]
        assert [held.stored.id for held in self.catalog.held()] == [two.id, head.id, theirs[1].id]

    def test_who_was_undeleted_or_tagged_meanwhile_is_spared_on_request(self) -> None:
        one, two, three, _ = self.chain(4)
        self.attest("deleted", one, two)
        self.attest("undeleted", one)
        self.attest("tag", three, name="green")
        wanted = [(ADA, each.id) for each in (one, two, three)]
        assert self.catalog.purge(wanted, ACTOR, deleted_before=now()) == [two.id]
        assert self.catalog.purge(wanted, ACTOR, spare_tagged=True) == [one.id]
        assert self._is_whole(three)

    def test_who_is_needed_by_a_restore_under_way_is_spared(self) -> None:
        one, two, three, _ = self.chain(4)
        under_way = journal(one, two)
        self.catalog.begin_journal(under_way)
        wanted = [(ADA, each.id) for each in (one, two, three)]
        assert self.catalog.purge(wanted, ACTOR) == [three.id]
        for needed in (one, two):
            with refused(ConflictError):
                self.purge(needed)
        self.catalog.end_journal(under_way.id)
        assert self.catalog.purge(wanted, ACTOR) == [one.id, two.id]

    # --- room ----------------------------------------------------------------------------------------------------

    def test_free_bytes_are_given_back_until_none_are_left(self) -> None:
        self.save(blobs=tuple(bytes([number]) * 9000 for number in range(100)))
        self.save("kept", blobs=(b"kept",))
        self.catalog.delete_task(ADA, "task", ACTOR)
        free = self.catalog.disk_use().free
        while (left := self.catalog.shrink(1 << 16)) < free:
            free = left
        assert self.catalog.disk_use().free == free
        assert free == 0 or not self.catalog.durable  # nobody asks memory to become less
        assert self._is_whole(self.catalog.held()[0].stored)

    def _is_whole(self, stored: StoredCheckpoint) -> bool:
        found = self.catalog.checkpoint(stored.owner, stored.id)
        return found is not None and found.data is not None and self.catalog.root(found) is not None

    def _task_with(self, *contents: bytes, task_id: str = "task") -> int:
        return self.save(task_id, blobs=contents).stored.task_number

    def _condemned(self, partition: int) -> dict[bytes, int | None]:
        """Return since when each is condemned, by content: those of these tests are a letter."""
        letters = {digest(bytes([letter])): bytes([letter]) for letter in range(256)}
        found = [blob for blob in self.catalog.indexed() if blob.partition == partition]
        return {letters[blob.digest]: blob.condemned for blob in found}
