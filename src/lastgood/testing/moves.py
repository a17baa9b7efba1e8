"""What every catalog must do for the active branch: restores, undo and redo, switches, deleted branches."""

from __future__ import annotations

from lastgood.catalog.values import HistoryRange, NewBranch
from lastgood.errors import ConflictError, NotFoundError
from lastgood.model.identity import new_id
from lastgood.testing.means import ACTOR, ADA, CatalogMeans
from lastgood.testing.refusal import refused


class MovesConformance(CatalogMeans):
    """A part of CatalogConformance."""

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
        own = self.catalog.history(HistoryRange(self.task(), branch))
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
