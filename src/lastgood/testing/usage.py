"""What every catalog must tell of all that lies in it."""

from __future__ import annotations

from lastgood.catalog.values import (
    FILES,
    Blob,
    CheckpointRoot,
    IndexedBlob,
    KnownPack,
    NewBranch,
    NewPack,
    NewSlice,
    PackedBlob,
    SlicedBlob,
)
from lastgood.model.digest import digest
from lastgood.model.identity import new_id
from lastgood.testing.means import ACTOR, ADA, CatalogMeans


class UsageConformance(CatalogMeans):
    """A part of CatalogConformance."""

    # --- checkpoints and branches --------------------------------------------------------------------------------

    def test_every_checkpoint_is_told_with_its_root_whoever_owns_it(self) -> None:
        first, second = self.chain(2, root=b"of ada")
        other = self.save("theirs", owner="somebody", root=b"of somebody").stored
        without = self.save("stateless", keep_root=False, root=b"").stored
        assert self.catalog.held() == [
            CheckpointRoot(first, Blob(b"", 6, 0, b"of ada")),
            CheckpointRoot(second, Blob(b"", 6, 0, b"of ada")),
            CheckpointRoot(other, Blob(b"", 11, 0, b"of somebody")),
            CheckpointRoot(without, Blob(b"", 0, 0, b"")),
        ]

    def test_a_deleted_checkpoint_holds_its_content_and_a_purged_one_does_not(self) -> None:
        first, second, third = self.chain(3)
        self.catalog.attest(ADA, [first.id], "deleted", {}, ACTOR)
        self.catalog.purge(ADA, second.id, ACTOR)
        assert [(held.stored.id, held.stored.deleted) for held in self.catalog.held()] == [
            (first.id, True),
            (third.id, False),
        ]

    def test_checkpoints_come_page_by_page(self) -> None:
        made = [*self.chain(3), *self.chain(2, "another")]
        self.catalog.purge(ADA, made[1].id, ACTOR)
        page = self.catalog.held(limit=2)
        assert [held.stored.id for held in page] == [made[0].id, made[2].id]
        page = self.catalog.held(page[-1].stored, limit=2)
        assert [held.stored.id for held in page] == [made[3].id, made[4].id]
        assert self.catalog.held(page[-1].stored) == []

    def test_deleted_branches_are_told_with_the_others(self) -> None:
        first = self.save().stored
        for name in ("kept", "gone"):
            self.save(parent=first, new=NewBranch(f"id of {name}", name, active=False))
        self.catalog.delete_branch(ADA, "id of gone", ACTOR)
        told = self.catalog.all_branches(self.task())
        assert [(branch.name, branch.deleted) for branch in told] == [("main", False), ("kept", False), ("gone", True)]

    # --- content -------------------------------------------------------------------------------------------------

    def test_every_blob_is_told_with_the_bytes_it_takes(self) -> None:
        stored = self.save(
            blobs=(b"state",),
            file_blobs=[Blob(digest(b"file"), 400, 1, b"zipped")],
            packs=[NewPack("packs/aa/one", 90, [PackedBlob(digest(b"packed"), 8, 20, 300, 1)])],
        ).stored
        told = {blob[1:6] for blob in self.catalog.indexed()}
        assert told == {
            (stored.task_number, digest(b"state"), 5, 5, None),
            (FILES, digest(b"file"), 400, 6, None),
            (FILES, digest(b"packed"), 300, 20, "packs/aa/one"),
        }

    def test_blobs_come_page_by_page(self) -> None:
        contents = [bytes([number]) for number in range(5)]
        self.save(blobs=tuple(contents))
        seen: list[IndexedBlob] = []
        while page := self.catalog.indexed(seen[-1].number if seen else 0, limit=2):
            assert len(page) <= 2
            seen += page
        assert sorted(blob.digest for blob in seen) == sorted(map(digest, contents))

    def test_a_slice_is_told_as_a_part_of_its_whole_and_not_as_a_blob(self) -> None:
        first = self.save(blobs=(b"alpha", b"beta")).stored
        whole = digest(b"alphabeta")
        slices = [NewSlice(digest(b"alpha"), whole, 0), NewSlice(digest(b"beta"), whole, 5)]
        self.save(parent=first, blobs=(b"alphabeta",), slices=slices)
        assert [blob.digest for blob in self.catalog.indexed()] == [whole]
        told = sorted(SlicedBlob(first.task_number, part.digest, whole) for part in slices)
        assert self.catalog.sliced() == told
        assert self.catalog.sliced(told[0]) == told[1:]
        assert self.catalog.sliced(limit=1) == told[:1]

    def test_packs_are_told_with_their_size(self) -> None:
        packs = [
            NewPack(f"packs/aa/{name}", 90, [PackedBlob(digest(name.encode()), 8, 1, 1, 0)]) for name in ("b", "a")
        ]
        self.save(packs=packs)
        assert self.catalog.packs() == [KnownPack("packs/aa/a", 90), KnownPack("packs/aa/b", 90)]

    def test_what_is_free_is_a_part_of_what_is_taken(self) -> None:
        self.save(new_id(), blobs=tuple(bytes([number]) * 9000 for number in range(50)))
        assert 0 <= self.catalog.free_bytes() <= self.catalog.size()
