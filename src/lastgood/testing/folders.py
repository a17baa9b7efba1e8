"""What every catalog must do for folders: the packs of their files, which folder a task has, interrupted restores."""

from __future__ import annotations

from typing import Literal

import msgspec

from lastgood.catalog.values import FILES, AppliedRestore, Binding, NewPack, PackedBlob, PackRange
from lastgood.errors import ConflictError, IntegrityError, NotFoundError
from lastgood.model.identity import digest, digest_text
from lastgood.testing.case import ACTOR, ADA, CatalogCase, folder, inline, journal, refused

HERE = Binding([folder("/srv/app"), folder("/srv/infra")])


class FoldersConformance(CatalogCase):
    """A part of CatalogConformance."""

    # --- content -------------------------------------------------------------------------------------------------

    def test_content_of_files_is_the_stores_and_comes_with_a_commit(self) -> None:
        one, other = inline(b"one"), inline(b"other")
        self.save("without files", blobs=(b"state",))
        assert not self.catalog.may_have_files()
        self.save(file_blobs=[one, other])
        assert self.catalog.may_have_files()
        self.save("another task", file_blobs=[one])
        keys = [one.digest, other.digest, digest(b"never")]
        assert self.catalog.blobs(FILES, keys) == {one.digest: one, other.digest: other}
        assert self.catalog.has_blobs(FILES, keys) == {one.digest, other.digest}

    def test_content_in_a_pack_is_found_by_its_place_unless_it_was_stored_before(self) -> None:
        before, packed = inline(b"a"), digest(b"b")
        self.save(file_blobs=[before])
        entries = [PackedBlob(before.digest, 8, 1, 1, 0), PackedBlob(packed, 9, 20, 300, 1)]
        for task_id in ("another", "third"):  # the same pack may come twice
            self.save(task_id, packs=[NewPack("packs/aa/one", 40, entries)])
        place = PackRange("packs/aa/one", 9, 20)
        found = self.catalog.blobs(FILES, [before.digest, packed])
        assert found.pop(before.digest) == before
        assert [(blob.size, blob.encoding, blob.place) for blob in found.values()] == [(300, 1, place)]

    def test_content_that_is_relied_on_must_be_there(self) -> None:
        there = inline(b"there")
        self.save(file_blobs=[there])
        self.save("second", relies_on=[there.digest])
        with refused(IntegrityError) as caught:
            self.save("third", relies_on=[there.digest, digest(b"gone")])
        assert caught[0].details["blobs"] == [digest_text(digest(b"gone"))]
        assert self.catalog.position(ADA, "third") is None

    # --- folders -------------------------------------------------------------------------------------------------

    def test_a_folder_has_the_files_of_one_branch(self) -> None:
        """B3: a handle from before a restore cannot save the restored files as its own."""
        first = self.save(binding=HERE).stored
        other = self.fork(first, "other", binding=HERE._replace(takes_over=True))
        assert self._bound("/srv/app") == self._bound("/srv/infra") == other.placement.branch_id
        with refused(ConflictError) as caught:
            self.save(parent=first, binding=HERE)
        assert caught[0].details["branch_id"] == other.placement.branch_id
        self.save(parent=other, binding=HERE)
        self.save(parent=first)
        assert self.catalog.folders_of(ADA, other.placement.branch_id) == sorted(HERE.folders, key=lambda one: one.path)
        assert self.catalog.folders_of(ADA, first.placement.branch_id) == []
        assert self.catalog.folders_of("bob", other.placement.branch_id) == []

    def test_a_folder_is_given_to_a_branch_by_the_move_to_it_which_applies_the_journal(self) -> None:
        first = self.save(binding=HERE).stored
        self.save("another", binding=HERE)
        self.fork(first, "other")
        self.catalog.begin_journal(begun := journal(first, first))
        with refused(NotFoundError):
            self.catalog.move(ADA, "no such branch", "switch", ACTOR, applied=AppliedRestore(begun.id, 7, first.id))
        assert self.catalog.journals() == [begun]
        for at in (8, 9):  # also when it is the active one already
            applied = AppliedRestore(begun.id, at, first.id)
            self.catalog.move(ADA, "other", "switch", ACTOR, binding=HERE, applied=applied)
            assert self._bound("/srv/app") == self._bound("/srv/infra") == "other"
            assert self.catalog.journals() == [msgspec.structs.replace(begun, made=first.id, applied_at_us=at)]
        assert self.catalog.bound(ADA, "third", folder("/srv/app")) is None

    def test_a_folder_is_known_by_its_inode_and_device_and_after_a_start_of_the_system_by_its_path(self) -> None:
        """W2: another container has it at another path; the number of its device may change."""
        here = folder("/srv/app")
        branch = self.save(binding=Binding([here])).stored.placement.branch_id
        change = msgspec.structs.replace
        later = change(here, boot="next boot", device="8")
        for same in (here, change(here, path="/mnt"), later):
            assert self.catalog.bound(ADA, "task", same) == branch
            assert same.is_same(here)
            assert here.is_same(same)
        unlike = change(here, inode="other"), change(here, device="8"), change(later, path="/mnt")
        for other in (*unlike, change(here, boot="", path="/mnt")):
            assert self.catalog.bound(ADA, "task", other) is None
            assert not other.is_same(here)
        self.catalog.move(ADA, branch, "switch", ACTOR, binding=Binding([later]))
        assert self.catalog.bound(ADA, "task", change(later, path="/mnt")) == branch

    # --- restores under way --------------------------------------------------------------------------------------

    def test_a_journal_is_there_until_it_ends(self) -> None:
        first = self.save().stored
        one, two, three = (journal(first, first, number) for number in (1, 2, 3))
        for begun in (two, one, three):
            self.catalog.begin_journal(begun)
        assert self.catalog.journals() == [one, two, three]
        second = self.save(parent=first, journal=one.id, applied=AppliedRestore(three.id, 5)).stored
        applied = msgspec.structs.replace(three, made=second.id, applied_at_us=5)
        assert self.catalog.journals() == [two, applied]
        self.save(parent=second, journal=three.id)  # what was applied is not given up
        self.catalog.begin_journal(msgspec.structs.replace(three, doubted=True))
        assert self.catalog.journals() == [two, msgspec.structs.replace(applied, doubted=True)]
        for begun in (two, three):
            self.catalog.end_journal(begun.id)
        assert self.catalog.journals() == []

    def test_a_restore_of_files_alone_can_be_undone_and_redone_until_the_user_saves(self) -> None:
        before = self.save().stored
        after = self.save(parent=before, files_move=True).stored
        assert self.catalog.destination(ADA, "task", "undo") == before
        undone = self.move("undo")
        assert (undone.files, undone.head.id) == (before.id, after.id)
        assert self.catalog.destination(ADA, "task", "redo") == after
        with refused(ConflictError):
            self.catalog.destination(ADA, "task", "undo")
        put_back = self.save(parent=after, keeps_redo=True).stored
        redone = self.move("redo")
        assert (redone.files, redone.head.id) == (after.id, put_back.id)
        self.move("undo")
        self.save(parent=put_back)
        with refused(ConflictError):
            self.catalog.destination(ADA, "task", "redo")
        with refused(ConflictError):
            self.move("redo")

    def test_several_restores_of_files_are_undone_one_after_the_other(self) -> None:
        made = [self.save().stored]
        for _ in range(3):
            made.append(self.save(parent=made[-1], files_move=True).stored)
        head, seen = made[-1], []
        ways: list[Literal["undo", "redo"]] = ["undo", "undo", "redo", "redo"]
        for way in ways:
            seen.append(self.move(way).files)
            head = self.save(parent=head, keeps_redo=True).stored
        assert seen == [made[2].id, made[1].id, made[2].id, made[3].id]

    def _bound(self, path: str) -> str | None:
        return self.catalog.bound(ADA, "task", folder(path))
