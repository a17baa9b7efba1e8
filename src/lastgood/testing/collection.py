"""What every catalog must do for garbage collection: nothing goes that was not condemned, and a commit acquits."""

from __future__ import annotations

from lastgood.catalog.values import (
    FILES,
    Blob,
    CheckpointRoot,
    KnownPack,
    NewPack,
    NewSlice,
    PackedBlob,
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


class CollectionConformance(CatalogCase):
    """A part of CatalogConformance."""

    # --- all there is --------------------------------------------------------------------------------------------

    def test_every_checkpoint_that_is_not_purged_is_told_page_by_page_with_its_root(self) -> None:
        first, second, third = self.chain(3, root=b"of ada")
        other = self.save("theirs", owner=BEN, root=b"of ben").stored
        without = self.save("stateless", root=b"").stored
        self.attest("deleted", first)
        self.purge(second)
        page = self.catalog.held(limit=2)
        of_ada, of_ben = Blob(b"", 6, 0, b"of ada"), Blob(b"", 6, 0, b"of ben")
        assert page == [CheckpointRoot(self.stored(first), of_ada), CheckpointRoot(third, of_ada)]
        page = self.catalog.held(page[-1].stored, limit=2)
        assert page == [CheckpointRoot(other, of_ben), CheckpointRoot(without, Blob(b"", 0, 0, b""))]
        assert self.catalog.held(page[-1].stored) == []

    def test_every_blob_is_told_page_by_page_with_the_bytes_it_takes(self) -> None:
        stored = self.save(
            blobs=(b"state",),
            file_blobs=[Blob(digest(b"file"), 400, 1, b"zipped")],
            packs=[NewPack("packs/aa/one", 90, [PackedBlob(digest(b"packed"), 8, 20, 300, 1)])],
        ).stored
        pages = [self.catalog.indexed(limit=2)]
        pages.append(self.catalog.indexed(pages[0][-1].number, limit=2))
        assert [len(page) for page in pages] == [2, 1]
        assert {blob[1:6] for page in pages for blob in page} == {
            (stored.task_number, digest(b"state"), 5, 5, None),
            (FILES, digest(b"file"), 400, 6, None),
            (FILES, digest(b"packed"), 300, 20, "packs/aa/one"),
        }

    # --- condemned, acquitted, removed ---------------------------------------------------------------------------

    def test_only_what_is_condemned_by_then_and_not_acquitted_is_removed(self) -> None:
        task = self._task_with(b"a", b"b", b"c", b"d")
        self.catalog.condemn(task, digests(b"a", b"d", b"never stored"), 100)
        self.catalog.condemn(task, digests(b"a", b"b"), 101)
        self.catalog.condemn(task, digests(b"d", b"never stored"), None)
        assert self._condemned(task) == {b"a": 100, b"b": 101, b"c": None, b"d": None}
        assert self.catalog.remove_blobs(task, digests(b"a", b"b", b"c", b"d", b"never stored"), 100) == 1
        assert self._condemned(task) == {b"b": 101, b"c": None, b"d": None}

    def test_each_partition_is_condemned_for_itself(self) -> None:
        mine, other = self._task_with(b"a"), self._task_with(b"a", task_id="other")
        self.save("files", file_blobs=[inline(b"a")])
        self.catalog.condemn(mine, [digest(b"a")], 100)
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        assert self.catalog.remove_blobs(other, [digest(b"a")], 100) == 0
        assert self.catalog.remove_blobs(FILES, [digest(b"a")], 100) == 1
        assert self._condemned(mine) == {b"a": 100}
        assert self._condemned(other) == {b"a": None}

    # --- a commit acquits ----------------------------------------------------------------------------------------

    def test_a_commit_acquits_what_it_brings_and_content_of_files_that_it_relies_on(self) -> None:
        contents = (b"a", b"b", b"c", b"d")
        first = self.save(blobs=contents, file_blobs=[inline(each) for each in contents]).stored
        for partition in (first.task_number, FILES):
            self.catalog.condemn(partition, digests(*contents), 100)
        packs = [pack("one", b"b")]
        self.save(parent=first, blobs=(b"a",), file_blobs=[inline(b"a")], packs=packs, relies_on=[digest(b"c")])
        assert self._condemned(first.task_number) == {b"a": None, b"b": 100, b"c": 100, b"d": 100}
        assert self._condemned(FILES) == {b"a": None, b"b": None, b"c": None, b"d": 100}

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

    def test_the_base_of_a_commit_may_be_deleted_but_is_the_owners_and_not_purged(self) -> None:
        first, second = self.chain(2)
        self.attest("deleted", first)
        self.save(parent=second, base=first.id)
        with refused(IntegrityError):
            self.save("theirs", owner=BEN, base=first.id)
        self.purge(first)
        with refused(IntegrityError) as caught:
            self.save("another", base=first.id)
        assert caught[0].details["blobs"] == []
        assert self.catalog.position(ADA, "another") is None

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

    def test_a_slice_is_told_as_a_part_of_its_whole_and_not_as_a_blob(self) -> None:
        (task, whole), (other, _) = self.slice(), self.slice("other")
        assert [(blob.partition, blob.digest) for blob in self.catalog.indexed()] == [(task, whole), (other, whole)]
        told = sorted(SlicedBlob(task, part, whole) for part in digests(b"alpha", b"beta"))
        assert self.catalog.sliced(limit=2) == told
        assert self.catalog.remove_blobs(other, digests(b"alpha", b"beta"), None) == 2
        assert self.catalog.sliced() == told
        assert self.catalog.sliced(told[0]) == told[1:]

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
        self.catalog.condemn(FILES, [digest(b"a")], 100)
        self.catalog.move_blobs(new, pack_name("one"))
        assert {blob.digest: blob.pack for blob in self.catalog.indexed()} == {
            digest(b"a"): new.name,
            digest(b"b"): pack_name("one"),
            digest(b"c"): pack_name("two"),
        }
        place = self.catalog.blobs(FILES, [digest(b"a")])[digest(b"a")].place
        assert place == PackRange(new.name, new.entries[1].position, 1)
        assert self._condemned(FILES) == {b"a": 100, b"b": None, b"c": None}
        assert self.catalog.announced() == []

    def test_packs_are_told_by_name_and_what_lies_in_one_by_place(self) -> None:
        self.save(packs=[pack("two", b"c"), pack("one", b"b", b"a")])
        assert self.catalog.packs() == [KnownPack(pack_name("one"), 90), KnownPack(pack_name("two"), 90)]
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

    # --- deleted checkpoints -------------------------------------------------------------------------------------

    def test_deleted_ones_are_told_with_their_owner_by_when_they_were_deleted_last(self) -> None:
        one, two, three, _ = self.chain(4)
        self.attest("deleted", one, two, three)
        first = max(said.at_us for said, _ in self.catalog.attestations(ADA, one.id))
        self.attest("undeleted", one, two)
        self.purge(three)
        while now() <= first:
            pass
        self.attest("deleted", one)
        assert self.catalog.deleted_before(first) == []
        assert self.catalog.deleted_before(now()) == [(ADA, one.id)]
        assert self.catalog.purge([(ADA, one.id)], ACTOR, deleted_before=first) == []
        assert self.catalog.purge([(ADA, one.id)], ACTOR, deleted_before=now()) == [one.id]

    def test_many_are_purged_at_once_and_who_cannot_be_stays(self) -> None:
        one, two, head = self.chain(3)
        theirs = self.chain(2, "theirs", owner=BEN)
        mine = [(ADA, each) for each in (one.id, "never", head.id, theirs[0].id)]
        assert self.catalog.purge([*mine, (BEN, theirs[0].id), (ADA, one.id)], ACTOR) == [one.id, theirs[0].id]
        assert [held.stored.id for held in self.catalog.held()] == [two.id, head.id, theirs[1].id]

    def test_who_was_undeleted_or_tagged_meanwhile_or_is_a_head_is_spared_on_request(self) -> None:
        one, two, three, _ = self.chain(4)
        side = self.fork(one, "side")
        self.attest("deleted", one, two)
        self.attest("undeleted", one)
        self.attest("tag", three, name="green")
        wanted = [(ADA, each.id) for each in (one, two, three)]
        assert self.catalog.purge(wanted, ACTOR, deleted_before=now()) == [two.id]
        assert self.catalog.purge([*wanted, (ADA, side.id)], ACTOR, spare_needed=True) == [one.id]
        assert self._is_whole(three)
        assert self._is_whole(side)

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
        assert 0 <= free <= self.catalog.disk_use().size
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
