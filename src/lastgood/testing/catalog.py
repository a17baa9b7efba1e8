"""What every catalog must do, as tests. A backend's test file is a factory for it:

    class TestMyCatalog(CatalogConformance):
        def make_catalog(self) -> Catalog:
            return MyCatalog(...)

Works with pytest and needs nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from lastgood.catalog.contract import (
    Actor,
    Blob,
    Catalog,
    Commit,
    Committed,
    Line,
    NewBranch,
    Note,
    SliceOf,
    StoredCheckpoint,
    Whole,
)
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Head, Record, encode_record
from lastgood.model.digest import digest
from lastgood.model.identity import new_id
from lastgood.model.step import OpenStep, Process
from lastgood.model.task import TaskInfo
from lastgood.testing.files import FilesConformance
from lastgood.testing.refusal import refused

ADA, BEN = "ada", "ben"
ACTOR = Actor(ADA, "correlation-1")
_ABOUT_FILES = ("file_blobs", "packs", "relies_on", "binding", "journal", "files_move", "keeps_redo")


class CatalogConformance(FilesConformance):
    """Inherit, and say how a fresh, empty catalog is made."""

    catalog: Catalog
    ADA, ACTOR = ADA, ACTOR

    def make_catalog(self) -> Catalog:
        raise NotImplementedError

    def setup_method(self) -> None:
        self.catalog = self.make_catalog()

    def teardown_method(self) -> None:
        self.catalog.close()

    # --- means -----------------------------------------------------------------------------------------------

    def save(
        self,
        task_id: str = "task",
        parent: StoredCheckpoint | None = None,
        *,
        owner: str = ADA,
        new: NewBranch | None = None,
        branch: str | None = None,
        only_if_active: bool = False,
        root: bytes = b"root",
        blobs: tuple[bytes, ...] = (),
        slices: Sequence[SliceOf] = (),
        keep_root: bool = False,
        step: str | None = None,
        attestations: Sequence[tuple[str, dict[str, Any]]] = (),
        inherited: Sequence[str] = (),
        notes: Sequence[Note] = (),
        **fields: Any,
    ) -> Committed:
        """Commit a checkpoint on top of `parent`, on its branch unless another is given."""
        about_files = {name: fields.pop(name) for name in _ABOUT_FILES if name in fields}
        record = Record(
            id=fields.pop("id", None) or new_id(),
            task_id=task_id,
            parent_id=parent.id if parent else None,
            parent_checksum=parent.checksum if parent else None,
            created_by=owner,
            correlation_id=ACTOR.correlation_id,
            **fields,
        )
        data = encode_record(record)
        if new is None and parent is None and branch is None:
            new = NewBranch(new_id(), "main")
        commit = Commit(
            owner=owner,
            record=record,
            data=data,
            checksum=digest(data),
            branch=new or branch or (parent.placement.branch_id if parent else ""),
            only_if_active=only_if_active,
            root=None if keep_root else Blob(b"", len(root), 0, root),
            keep_root=keep_root,
            blobs=[Blob(digest(blob), len(blob), 0, blob) for blob in blobs],
            slices=slices,
            step=step,
            attestations=attestations,
            inherited=inherited,
            notes=notes,
            **about_files,
        )
        return self.catalog.commit(commit, ACTOR)

    def chain(self, count: int, task_id: str = "task", **fields: Any) -> list[StoredCheckpoint]:
        """`count` checkpoints on one branch of a new task, oldest first."""
        made: list[StoredCheckpoint] = []
        for _ in range(count):
            made.append(self.save(task_id, made[-1] if made else None, **fields).stored)
        return made

    def task(self, task_id: str = "task", owner: str = ADA) -> TaskInfo:
        task = self.catalog.task(owner, task_id)
        assert task is not None
        return task

    def whole(self, task_id: str = "task") -> Line:
        return Line(self.task(task_id))

    def along(self, branch_id: str, task_id: str = "task") -> Line:
        branch = self.catalog.branch(ADA, branch_id)
        assert branch is not None
        return Line(self.task(task_id), branch)

    def listed(self, line: Line, **how: Any) -> list[str]:
        return [row.id for row in self.catalog.checkpoints(line, **how)]

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
        found = self.catalog.blobs(stored.task_number, [digest(b"one"), digest(b"two"), digest(b"three")])
        assert {key: blob.data for key, blob in found.items()} == {digest(b"one"): b"one", digest(b"two"): b"two"}

    def test_a_slice_reads_as_before_and_names_its_whole(self) -> None:
        first = self.save(blobs=(b"alpha", b"beta")).stored
        whole = digest(b"alphabetagamma")
        slices = [SliceOf(digest(b"alpha"), whole, 0), SliceOf(digest(b"beta"), whole, 5)]
        self.save(
            parent=first, blobs=(b"alphabetagamma",), slices=[*slices, SliceOf(digest(b"never stored"), whole, 9)]
        )
        found = self.catalog.blobs(first.task_number, [digest(b"beta"), digest(b"never stored"), whole])
        assert found.keys() == {digest(b"beta"), whole}
        beta = found[digest(b"beta")]
        assert (beta.size, beta.whole) == (4, Whole(whole, 14, 5))
        assert beta.data[5:9] == b"beta"

    def test_a_blob_that_has_slices_stays_whole(self) -> None:
        first = self.save(blobs=(b"ab",)).stored
        second = self.save(parent=first, blobs=(b"abcd",), slices=[SliceOf(digest(b"ab"), digest(b"abcd"), 0)]).stored
        whole = digest(b"abcdefgh")
        self.save(parent=second, blobs=(b"abcdefgh",), slices=[SliceOf(digest(b"abcd"), whole, 0)])
        found = self.catalog.blobs(first.task_number, [digest(b"ab"), digest(b"abcd"), whole])
        assert found.keys() == {digest(b"ab"), digest(b"abcd"), whole}
        assert found[digest(b"ab")].data.startswith(b"ab")

    def test_the_first_commit_creates_the_task_and_its_branch(self) -> None:
        assert self.catalog.task(ADA, "task") is None
        first = self.save().stored
        task = self.task()
        assert (task.owner, task.checkpoints, task.last_sequence) == (ADA, 1, 1)
        branch = self.catalog.branch(ADA, task.active_branch_id)
        assert branch is not None
        assert branch.name == "main"
        assert branch.head == Head(first.id, first.checksum, 1, branch.id)

    def test_sequences_and_versions_are_dense(self) -> None:
        made = self.chain(5)
        assert [row.placement.sequence for row in made] == [1, 2, 3, 4, 5]
        assert [row.placement.version for row in made] == [1, 2, 3, 4, 5]

    def test_a_stale_writer_is_refused_and_told_the_head(self) -> None:
        first, second = self.chain(2)
        with refused(ConflictError) as caught:
            self.save(parent=first)
        assert caught[0].head == Head(second.id, second.checksum, 2, second.placement.branch_id)
        assert self.task().checkpoints == 2

    def test_a_task_begun_twice_is_a_conflict(self) -> None:
        first = self.save().stored
        with refused(ConflictError) as caught:
            self.save()
        assert caught[0].head.id == first.id
        assert self.task().checkpoints == 1

    def test_a_refused_commit_leaves_nothing(self) -> None:
        first, _ = self.chain(2)
        before = self.task()
        with refused(ConflictError):
            self.save(parent=first, blobs=(b"orphan",), key="k", id="refused")
        assert self.task() == before
        assert self.catalog.checkpoint(ADA, "refused") is None
        assert self.catalog.blobs(first.task_number, [digest(b"orphan")]) == {}
        assert len(self.catalog.events(before)) == 2

    def test_an_unknown_branch_or_one_of_another_task_is_not_found(self) -> None:
        first = self.save().stored
        other = self.save("other").stored
        for branch in ("no such branch", other.placement.branch_id):
            with refused(NotFoundError):
                self.save(parent=first, branch=branch)

    def test_the_same_key_returns_the_stored_one_before_the_head_is_looked_at(self) -> None:
        first = self.save(key="k", message="m").stored
        self.save(parent=first)
        again = self.save(key="k", message="m")
        assert again.repeated
        assert again.stored == self.catalog.checkpoint(ADA, first.id)
        assert self.task().checkpoints == 2

    def test_the_same_key_with_other_content_conflicts(self) -> None:
        first = self.save(key="k", message="m").stored
        with refused(ConflictError):
            self.save(parent=first, key="k", message="other")

    def test_keys_belong_to_their_task(self) -> None:
        self.save(key="k", message="m")
        assert not self.save("other", key="k", message="n").repeated

    def test_the_same_id_returns_the_stored_one_or_conflicts(self) -> None:
        first = self.save(id="mine", message="m").stored
        assert self.save(id="mine", message="m").repeated
        with refused(ConflictError):
            self.save(parent=first, id="mine", message="other")

    def test_keys_belong_to_their_owner(self) -> None:
        self.save(key="k", message="m")
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
        assert (stored.verified, stored.verified_at) == (True, found[1][0].at)
        later = self.save(parent=stored, attestations=said[::-1]).stored
        assert not later.verified
        assert self.catalog.last_verified(self.along(stored.placement.branch_id)) == stored
        assert [event.kind for event in self.catalog.events(self.task())] == ["created", "created"]

    def test_the_state_before_is_told(self) -> None:
        first = self.save(control_state="running")
        second = self.save(parent=first.stored, control_state="paused")
        assert (first.previous_control_state, second.previous_control_state) == ("idle", "running")

    def test_one_of_many_threads_wins(self) -> None:
        first = self.save().stored
        won: list[str] = []
        lost: list[str] = []
        gate = threading.Barrier(8)

        def race() -> None:
            gate.wait()
            try:
                won.append(self.save(parent=first).stored.id)
            except ConflictError as error:
                lost.append(error.head.id)

        threads = [threading.Thread(target=race) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert lost == won * 7

    # --- owners --------------------------------------------------------------------------------------------------

    def test_ids_live_in_their_owners_namespace(self) -> None:
        self.save(id="same", owner=ADA, message="ada's")
        self.save(id="same", owner=BEN, message="ben's")
        assert self.catalog.checkpoint(ADA, "same") != self.catalog.checkpoint(BEN, "same")
        assert [task.owner for task in self.catalog.tasks(None)] == [BEN, ADA]
        assert [task.owner for task in self.catalog.tasks(ADA)] == [ADA]

    def test_another_owners_things_are_not_found(self) -> None:
        mine = self.save(id="mine-1").stored
        assert self.catalog.task(BEN, "task") is None
        assert self.catalog.branch(BEN, mine.placement.branch_id) is None
        assert self.catalog.checkpoint(BEN, mine.id) is None
        assert self.catalog.find(BEN, "mine") == []
        for act in (
            lambda: self.catalog.attest(BEN, [mine.id], "deleted", {}, ACTOR),
            lambda: self.catalog.purge(BEN, mine.id, ACTOR),
            lambda: self.catalog.delete_task(BEN, "task", ACTOR),
            lambda: self.catalog.attestations(BEN, mine.id),
        ):
            with refused(NotFoundError):
                act()

    # --- branches ------------------------------------------------------------------------------------------------

    def test_a_branch_lists_its_ancestors_and_its_own(self) -> None:
        one, two, three = self.chain(3)
        four = self.save(parent=two, new=NewBranch("side", "side", active=False)).stored
        five = self.save(parent=three).stored
        assert self.listed(self.along("side")) == [four.id, two.id, one.id]
        assert self.listed(self.along(one.placement.branch_id)) == [five.id, three.id, two.id, one.id]
        assert self.listed(self.whole()) == [five.id, four.id, three.id, two.id, one.id]
        assert [self.catalog.count(line) for line in (self.along("side"), self.whole())] == [3, 5]

    def test_a_branch_of_a_branch_sees_no_further_than_its_origin(self) -> None:
        one, two = self.chain(2)
        three = self.save(parent=one, new=NewBranch("b", "b")).stored
        self.save(parent=three)
        five = self.save(parent=three, new=NewBranch("c", "c")).stored
        assert self.listed(self.along("c")) == [five.id, three.id, one.id]
        assert self.catalog.count(self.along("c")) == 3
        assert self.listed(self.along("c"), before=3) == [one.id]
        assert two.id not in self.listed(self.along("c"))

    def test_a_new_branch_becomes_active_when_asked(self) -> None:
        first = self.save().stored
        self.save(parent=first, new=NewBranch("quiet", "quiet", active=False))
        assert self.task().active_branch_id == first.placement.branch_id
        self.save(parent=first, new=NewBranch("loud", "loud", active=True))
        assert self.task().active_branch_id == "loud"
        with refused(ConflictError) as caught:
            self.save(parent=first, only_if_active=True)
        assert caught[0].head.branch_id == "loud"
        self.save(parent=first)
        assert self.task().active_branch_id == "loud"

    def test_the_first_on_a_branch_is_version_one_and_is_logged_as_branched(self) -> None:
        _, two = self.chain(2)
        side = self.save(parent=two, new=NewBranch("side", "side", metadata={"isBranch": True})).stored
        assert (side.placement.sequence, side.placement.version) == (3, 1)
        assert [event.kind for event in self.catalog.events(self.task())] == ["created", "created", "branched"]
        branch = self.catalog.branch(ADA, "side")
        assert branch is not None
        assert (branch.origin_id, branch.origin_sequence, branch.metadata) == (two.id, 2, {"isBranch": True})

    def test_a_branch_name_is_used_once(self) -> None:
        first = self.save().stored
        with refused(ConflictError):
            self.save(parent=first, new=NewBranch("another", "main"))

    def test_a_name_that_is_taken_gets_a_number_when_it_may(self) -> None:
        (first,) = self.chain(1)
        for _ in range(3):
            self.save(parent=first, new=NewBranch(new_id(), "again", active=False, may_rename=True))
        assert [branch.name for branch in self.catalog.branches(self.task())] == ["main", "again", "again 2", "again 3"]

    def test_names_of_branches_belong_to_their_task(self) -> None:
        self.save(new=NewBranch(new_id(), "same"))
        other = self.save("other").stored
        self.save("other", other, new=NewBranch(new_id(), "same"))
        assert [branch.name for branch in self.catalog.branches(self.task("other"))] == ["main", "same"]

    def test_a_branch_comes_from_a_checkpoint_of_its_own_task_that_is_still_there(self) -> None:
        first, second = self.chain(2)
        other = self.save("other").stored
        self.catalog.purge(ADA, first.id, ACTOR)
        for origin in (first, other):
            with refused(NotFoundError):
                self.save(parent=origin, new=NewBranch(new_id(), "side"))
        assert self.active() == second.id
        assert len(self.catalog.branches(self.task())) == 1

    def test_a_branch_made_after_a_deletion_counts_what_is_left(self) -> None:
        first, second, _ = self.chain(3)
        self.catalog.attest(ADA, [first.id], "deleted", {}, ACTOR)
        self.save(parent=second, new=NewBranch("side", "side"))
        assert self.catalog.count(self.along("side")) == len(self.listed(self.along("side"))) == 2

    def test_a_root_that_was_purged_cannot_be_kept(self) -> None:
        (first,) = self.chain(1)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        self.catalog.purge(ADA, side.id, ACTOR)
        with refused(NotFoundError):
            self.save(parent=side, keep_root=True)

    def test_a_kept_root_is_the_parents(self) -> None:
        (first,) = self.chain(1, root=b"kept")
        on = self.save(parent=first, keep_root=True).stored
        side = self.save(parent=first, keep_root=True, new=NewBranch(new_id(), "side", active=False)).stored
        for stored in (on, side):
            root = self.catalog.root(stored)
            assert root is not None
            assert root.data == b"kept"

    def test_notes_stand_in_the_log_before_their_checkpoint(self) -> None:
        (first,) = self.chain(1)
        note = Note("restored", first.placement.branch_id, first.id, {"by": "test"})
        new = self.save(parent=first, new=NewBranch(new_id(), "side"), notes=[note]).stored
        events = self.catalog.events(self.task())
        assert [event.kind for event in events] == ["created", "restored", "branched"]
        assert [event.sequence for event in events] == [1, 2, 3]
        assert (events[1].branch_id, events[1].checkpoint_id, events[1].data) == (
            first.placement.branch_id,
            first.id,
            {"by": "test"},
        )
        assert new.placement.last_event == 3

    def test_every_note_has_a_number_of_its_own(self) -> None:
        (first,) = self.chain(1)
        notes = [Note("restored", first.placement.branch_id, None, {"n": n}) for n in range(3)]
        second = self.save(parent=first, notes=notes).stored
        events = self.catalog.events(self.task(), after=1)
        assert [(event.sequence, event.data.get("n")) for event in events] == [(2, 0), (3, 1), (4, 2), (5, None)]
        assert (second.placement.last_event, self.task().last_event) == (5, 5)

    # --- the active branch -----------------------------------------------------------------------------------

    def restore(self, origin: StoredCheckpoint, name: str, expects: str | None = None) -> StoredCheckpoint:
        return self.save(parent=origin, new=NewBranch(new_id(), name, expects=expects)).stored

    def active(self) -> str:
        position = self.catalog.position(ADA, "task")
        assert position is not None
        return position.head.id

    def test_a_restore_that_expects_another_head_is_refused(self) -> None:
        first, second = self.chain(2)
        with refused(ConflictError) as caught:
            self.restore(first, "back", expects=first.id)
        assert caught[0].head.id == second.id
        assert self.active() == second.id
        back = self.restore(first, "back", expects=second.id)
        assert self.active() == back.id

    def test_moves_are_undone_and_redone_in_order(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        on = self.save(parent=back).stored
        again = self.restore(second, "again")
        assert [self.catalog.undo(ADA, "task", ACTOR).head.id for _ in range(2)] == [on.id, second.id]
        with refused(ConflictError):
            self.catalog.undo(ADA, "task", ACTOR)
        assert [self.catalog.redo(ADA, "task", ACTOR).head.id for _ in range(2)] == [on.id, again.id]
        with refused(ConflictError):
            self.catalog.redo(ADA, "task", ACTOR)
        kinds = [event.kind for event in self.catalog.events(self.task(), after=5)]
        assert kinds == ["undone", "undone", "redone", "redone"]

    def test_a_commit_after_an_undo_ends_redoing(self) -> None:
        first, second = self.chain(2)
        self.restore(first, "back")
        self.catalog.undo(ADA, "task", ACTOR)
        third = self.save(parent=second).stored
        with refused(ConflictError):
            self.catalog.redo(ADA, "task", ACTOR)
        assert self.active() == third.id

    def test_a_commit_on_another_branch_does_not_end_redoing(self) -> None:
        first, _ = self.chain(2)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        back = self.restore(first, "back")
        self.catalog.undo(ADA, "task", ACTOR)
        self.save(parent=side)
        assert self.catalog.redo(ADA, "task", ACTOR).head.id == back.id

    def test_a_new_move_ends_redoing(self) -> None:
        first, _ = self.chain(2)
        self.restore(first, "one")
        self.catalog.undo(ADA, "task", ACTOR)
        self.restore(first, "two")
        with refused(ConflictError):
            self.catalog.redo(ADA, "task", ACTOR)

    def test_undo_and_redo_expect_the_head_that_the_writer_saw(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        with refused(ConflictError):
            self.catalog.undo(ADA, "task", ACTOR, expects=second.id)
        self.catalog.undo(ADA, "task", ACTOR, expects=back.id)
        with refused(ConflictError):
            self.catalog.redo(ADA, "task", ACTOR, expects=back.id)
        assert self.active() == second.id

    def test_another_branch_is_made_active_and_that_can_be_undone(self) -> None:
        first, second = self.chain(2)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        assert self.catalog.activate(ADA, side.placement.branch_id, ACTOR).head.id == side.id
        assert self.catalog.activate(ADA, side.placement.branch_id, ACTOR).head.id == side.id  # the same again: nothing
        assert self.catalog.undo(ADA, "task", ACTOR).head.id == second.id

    def test_a_switch_expects_the_head_that_the_writer_saw_and_is_logged(self) -> None:
        first, second = self.chain(2)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        for seen in (first, side):
            with refused(ConflictError) as caught:
                self.catalog.activate(ADA, side.placement.branch_id, ACTOR, expects=seen.id)
            assert caught[0].head.id == second.id
        assert self.active() == second.id
        self.catalog.activate(ADA, side.placement.branch_id, ACTOR, expects=second.id)
        assert self.active() == side.id
        (event,) = self.catalog.events(self.task(), after=3)
        assert (event.kind, event.branch_id) == ("switched", side.placement.branch_id)

    def test_moves_belong_to_their_task(self) -> None:
        first, _ = self.chain(2)
        back = self.restore(first, "back")
        self.chain(1, "other")
        with refused(ConflictError):
            self.catalog.undo(ADA, "other", ACTOR)
        assert self.active() == back.id

    def test_no_move_leads_to_a_branch_whose_newest_checkpoint_was_deleted(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        self.catalog.attest(ADA, [second.id], "deleted", {}, ACTOR)
        with refused(ConflictError):
            self.catalog.undo(ADA, "task", ACTOR)
        with refused(ConflictError):
            self.catalog.activate(ADA, second.placement.branch_id, ACTOR)
        assert self.active() == back.id
        self.catalog.attest(ADA, [second.id], "undeleted", {}, ACTOR)
        assert self.catalog.undo(ADA, "task", ACTOR).head.id == second.id
        self.catalog.attest(ADA, [back.id], "deleted", {}, ACTOR)
        with refused(ConflictError):
            self.catalog.redo(ADA, "task", ACTOR)
        assert self.active() == second.id

    def test_who_follows_the_active_branch_is_told_where_it_is_when_his_own_was_deleted(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        self.catalog.delete_branch(ADA, second.placement.branch_id, ACTOR)
        with refused(ConflictError) as caught:
            self.save(parent=second, only_if_active=True)
        assert caught[0].head.id == back.id

    def test_a_deleted_branch_leaves_what_a_tagged_checkpoint_of_another_deleted_one_descends_from(self) -> None:
        (first,) = self.chain(1)
        origin = self.save(parent=first, new=NewBranch("a", "a", active=False)).stored
        heir = self.save(parent=origin, new=NewBranch("b", "b", active=False)).stored
        self.catalog.attest(ADA, [heir.id], "tag", {"name": "green"}, ACTOR)
        assert self.catalog.delete_branch(ADA, "b", ACTOR) == 0
        assert self.catalog.delete_branch(ADA, "a", ACTOR) == 0
        assert self.listed(self.whole()) == [heir.id, origin.id, first.id]

    def test_a_deleted_branch_leaves_what_others_descend_from_by_way_of_a_deleted_one(self) -> None:
        (first,) = self.chain(1)
        origin = self.save(parent=first, new=NewBranch("a", "a", active=False)).stored
        between = self.save(parent=origin, new=NewBranch("b", "b", active=False)).stored
        heir = self.save(parent=between, new=NewBranch("c", "c", active=False)).stored
        self.catalog.attest(ADA, [between.id], "deleted", {}, ACTOR)
        for branch_id in ("b", "a"):
            assert self.catalog.delete_branch(ADA, branch_id, ACTOR) == 0
        assert self.listed(self.along("c")) == [heir.id, origin.id, first.id]

    def test_a_deleted_branch_leaves_what_others_descend_from(self) -> None:
        first, _ = self.chain(2)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        kept = self.save(parent=side).stored
        tagged = self.save(parent=kept).stored
        last = self.save(parent=tagged).stored
        heir = self.save(parent=kept, new=NewBranch(new_id(), "heir", active=False)).stored
        self.catalog.attest(ADA, [tagged.id], "tag", {"name": "green"}, ACTOR)
        branch_id = side.placement.branch_id
        assert self.catalog.delete_branch(ADA, branch_id, ACTOR) == 1
        assert self.catalog.branch(ADA, branch_id) is None
        assert self.catalog.position(ADA, branch_id) is None
        there = {row.id for row in self.catalog.checkpoints(self.whole())}
        assert {side.id, kept.id, tagged.id, heir.id} <= there
        assert last.id not in there
        assert [branch.name for branch in self.catalog.branches(self.task()) if not branch.deleted] == ["main", "heir"]
        assert [branch.id for branch in self.catalog.branches(self.task()) if branch.deleted] == [branch_id]
        (event,) = self.catalog.history(self.whole(), limit=1)
        assert (event.kind, event.data["name"], event.data["checkpoints"]) == ("branch_deleted", "side", 1)
        self.save(parent=first, new=NewBranch(new_id(), "side", active=False))  # the name is free
        with refused(NotFoundError):
            self.save(parent=last)
        with refused(NotFoundError):
            self.catalog.delete_branch(ADA, branch_id, ACTOR)

    def test_the_active_branch_cannot_be_deleted_and_a_deleted_one_is_not_gone_back_to(self) -> None:
        first, _ = self.chain(2)
        back = self.restore(first, "back")
        with refused(ConflictError):
            self.catalog.delete_branch(ADA, back.placement.branch_id, ACTOR)
        self.catalog.delete_branch(ADA, first.placement.branch_id, ACTOR)
        with refused(ConflictError):
            self.catalog.undo(ADA, "task", ACTOR)
        assert self.active() == back.id

    def test_the_history_of_a_branch_is_what_its_ancestors_knew_and_its_own(self) -> None:
        first, second = self.chain(2)
        side = self.save(parent=first, new=NewBranch(new_id(), "side", active=False)).stored
        self.catalog.attest(ADA, [first.id], "tag", {"name": "late"}, ACTOR)  # after the branch began
        branch = self.catalog.branch(ADA, side.placement.branch_id)
        own = self.catalog.history(Line(self.task(), branch))
        assert [(event.kind, event.checkpoint_id) for event in own] == [("branched", side.id), ("created", first.id)]
        whole = self.catalog.history(self.whole())
        assert [(event.kind, event.checkpoint_id) for event in whole] == [
            ("tagged", first.id),
            ("branched", side.id),
            ("created", second.id),
            ("created", first.id),
        ]
        paged = self.catalog.history(self.whole(), limit=2) + self.catalog.history(self.whole(), before=3, limit=2)
        assert paged == whole

    # --- steps -----------------------------------------------------------------------------------------------

    def begin(self, task_id: str = "task", owner: str = ADA, **fields: Any) -> str:
        step = OpenStep(
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
        (event,) = self.catalog.store_events()
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

    # --- listing -------------------------------------------------------------------------------------------------

    def test_pages_are_newest_first_and_complete(self) -> None:
        made = [row.id for row in self.chain(7)]
        pages, before = [], None
        while page := self.catalog.checkpoints(self.whole(), before=before, limit=3):
            pages.append([row.id for row in page])
            before = page[-1].placement.sequence
        assert pages == [made[:3:-1], made[3:0:-1], made[:1]]

    def test_lists_and_counts_by_type(self) -> None:
        one = self.save(type="manual").stored
        two = self.save(parent=one, type="hourly").stored
        three = self.save(parent=two, type="manual").stored
        side = self.save(parent=two, new=NewBranch("side", "side"), type="hourly").stored
        assert self.listed(self.whole(), type="manual") == [three.id, one.id]
        assert self.listed(self.along("side"), type="hourly") == [side.id, two.id]
        assert self.catalog.count(self.whole(), "hourly") == 2
        assert self.catalog.count(self.along(one.placement.branch_id), "hourly") == 1

    def test_the_last_verified_is_the_newest_on_its_line(self) -> None:
        one, two, three = self.chain(3, type="step")
        for row in (one, two):
            self.catalog.attest(ADA, [row.id], "verification", {"verified": True}, ACTOR)
        self.catalog.attest(ADA, [three.id], "verification", {"verified": False}, ACTOR)
        line = self.along(one.placement.branch_id)
        last = self.catalog.last_verified(line)
        assert last is not None
        assert (last.id, last.verified) == (two.id, True)
        assert self.catalog.last_verified(line, "hourly") is None
        assert self.catalog.last_verified(self.whole()) == last
        self.catalog.attest(ADA, [two.id], "verification", {"verified": False}, ACTOR)
        last = self.catalog.last_verified(line, "step")
        assert last is not None
        assert last.id == one.id

    def test_finds_ids_by_their_beginning_and_nothing_more(self) -> None:
        self.save("a", id="abc%1")
        self.save("b", id="abc_2")
        self.save("c", id="abd")
        assert self.catalog.find(ADA, "abc", 10) == ["abc%1", "abc_2"]
        assert self.catalog.find(ADA, "abc_", 10) == ["abc_2"]
        assert self.catalog.find(ADA, "%", 10) == []

    # --- afterwards ----------------------------------------------------------------------------------------------

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
            self.catalog.purge(ADA, first.id, ACTOR)
        assert self.listed(self.whole()) == [first.id]

    def test_several_are_attested_together_or_not_at_all(self) -> None:
        one, two = self.chain(2)
        with refused(ConflictError):
            self.catalog.attest(ADA, [one.id, two.id], "deleted", {}, ACTOR)
        assert self.listed(self.whole()) == [two.id, one.id]

    def test_a_purge_leaves_a_tombstone_and_nothing_else(self) -> None:
        one, two, three = self.chain(3)
        self.catalog.attest(ADA, [two.id], "tag", {"name": "green"}, ACTOR)
        self.catalog.purge(ADA, two.id, ACTOR)
        stone = self.catalog.checkpoint(ADA, two.id)
        assert stone is not None
        assert (stone.data, stone.checksum, stone.placement, stone.tags) == (None, two.checksum, two.placement, ())
        assert self.catalog.root(stone) is None
        assert self.catalog.tagged(self.task(), "green") is None
        assert self.listed(self.whole()) == [three.id, one.id]
        assert self.catalog.count(self.whole()) == 2
        assert [a.kind for a, _ in self.catalog.attestations(ADA, two.id)] == ["purged"]
        with refused(NotFoundError):
            self.catalog.purge(ADA, two.id, ACTOR)
        with refused(ConflictError):
            self.save(parent=three, id=two.id)

    def test_one_that_was_deleted_and_then_purged_is_counted_out_once(self) -> None:
        one, two, _ = self.chain(3)
        self.save(parent=two, new=NewBranch("side", "side", active=False))
        self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR)
        self.catalog.purge(ADA, one.id, ACTOR)
        for line in (self.whole(), self.along("side"), self.along(two.placement.branch_id)):
            assert self.catalog.count(line) == len(self.listed(line))

    def test_nothing_is_verified_by_a_purged_one_and_its_key_is_free(self) -> None:
        one = self.save(key="k", attestations=[("verification", {"verified": True})]).stored
        two = self.save(parent=one).stored
        self.catalog.purge(ADA, one.id, ACTOR)
        stone = self.catalog.checkpoint(ADA, one.id)
        assert stone is not None
        assert (stone.verified, stone.verified_at) == (False, None)
        assert self.catalog.last_verified(self.along(one.placement.branch_id)) is None
        assert not self.save(parent=two, key="k", message="other").repeated

    def test_a_deleted_task_is_gone_with_everything_and_that_is_logged(self) -> None:
        made = self.chain(3, blobs=(b"content",))
        kept = self.save("kept").stored
        assert self.catalog.delete_task(ADA, "task", ACTOR) == 3
        assert self.catalog.task(ADA, "task") is None
        assert self.catalog.checkpoint(ADA, made[0].id) is None
        assert self.catalog.blobs(made[0].task_number, [digest(b"content")]) == {}
        assert self.catalog.checkpoint(ADA, kept.id) == kept
        events = self.catalog.store_events()
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
        self.catalog.purge(ADA, two.id, ACTOR)
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
