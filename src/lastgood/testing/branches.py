"""What every catalog must do with branches: make, list and delete them, and move a task between checkpoints."""

from __future__ import annotations

from lastgood.catalog.values import HistoryRange, NewBranch, NewEvent
from lastgood.errors import ConflictError, NotFoundError
from lastgood.model.identity import new_id
from lastgood.testing.case import ACTOR, ADA, CatalogCase, refused


class BranchesConformance(CatalogCase):
    """A part of CatalogConformance."""

    # --- branches ------------------------------------------------------------------------------------------------

    def test_a_branch_lists_its_ancestors_and_its_own(self) -> None:
        one, two, three = self.chain(3)
        four = self.fork(two, "side")
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
        self.fork(first, "quiet")
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
        branch = self.branch("side")
        assert (branch.origin_id, branch.origin_sequence, branch.metadata) == (two.id, 2, {"isBranch": True})

    def test_a_branch_without_an_origin_may_begin_beside_the_others(self) -> None:
        """C10: a task was begun twice, and nobody's beginning is dropped."""
        first = self.save().stored
        with refused(ConflictError):
            self.save(new=NewBranch("plain", "main"))
        apart = self.save(new=NewBranch("apart", "main", active=False, may_rename=True, is_apart=True)).stored
        after = self.save(parent=apart).stored
        assert (apart.placement.sequence, apart.placement.version) == (2, 1)
        assert self.listed(self.along("apart")) == [after.id, apart.id]
        assert self.listed(self.whole()) == [after.id, apart.id, first.id]
        assert self.task().active_branch_id == first.placement.branch_id
        branch = self.branch("apart")
        assert (branch.name, branch.origin_id) == ("main 2", None)
        self.catalog.require_ready()

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
        self.purge(first)
        for origin in (first, other):
            with refused(NotFoundError):
                self.save(parent=origin, new=NewBranch(new_id(), "side"))
        assert self.active() == second.id
        assert len(self.catalog.branches(self.task())) == 1

    def test_a_branch_made_after_a_deletion_counts_what_is_left(self) -> None:
        first, second, _ = self.chain(3)
        self.attest("deleted", first)
        self.save(parent=second, new=NewBranch("side", "side"))
        assert self.catalog.count(self.along("side")) == len(self.listed(self.along("side"))) == 2

    def test_nothing_continues_a_checkpoint_that_was_purged(self) -> None:
        """B6: what it would share with it may be gone."""
        (first,) = self.chain(1)
        side = self.fork(first, "side")
        self.purge(side)
        for keep_root in (False, True):
            with refused(ConflictError):
                self.save(parent=side, keep_root=keep_root)
            with refused(NotFoundError):
                self.save(parent=side, keep_root=keep_root, new=NewBranch(new_id(), "other", active=False))

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
        note = NewEvent("restored", first.placement.branch_id, first.id, {"by": "test"})
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
        notes = [NewEvent("restored", first.placement.branch_id, None, {"n": n}) for n in range(3)]
        second = self.save(parent=first, notes=notes).stored
        events = self.catalog.events(self.task(), after=1)
        assert [(event.sequence, event.data.get("n")) for event in events] == [(2, 0), (3, 1), (4, 2), (5, None)]
        assert (second.placement.last_event, self.task().last_event) == (5, 5)

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

    def test_verified_ones_are_listed_newest_first_along_branches(self) -> None:
        one, two, three = self.chain(3)
        back = self.restore(two, "back", expects=three.id)
        for row in (one, three, back):
            self.attest("verification", row, verified=True)
        along = self.along(back.placement.branch_id)
        assert self.listed(along, verified=True) == [back.id, one.id]
        assert self.listed(self.whole(), verified=True) == [back.id, three.id, one.id]
        assert self.listed(self.whole(), verified=True, limit=2, before=4) == [three.id, one.id]

    def test_an_attestation_may_depend_on_nothing_having_happened(self) -> None:
        one, _ = self.chain(2)
        seen = self.task().last_event
        self.catalog.attest(ADA, [one.id], "tag", {"name": "kept"}, ACTOR, last_event=seen)
        with refused(ConflictError):
            self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR, last_event=seen)
        self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR, last_event=self.task().last_event)

    def test_the_last_verified_is_the_newest_on_its_line(self) -> None:
        one, two, three = self.chain(3, type="step")
        for row in (one, two):
            self.attest("verification", row, verified=True)
        self.attest("verification", three, verified=False)
        line = self.along(one.placement.branch_id)
        last = self.last_verified(line)
        assert last is not None
        assert (last.id, last.verified) == (two.id, True)
        assert self.last_verified(line, "hourly") is None
        assert self.last_verified(self.whole()) == last
        self.attest("verification", two, verified=False)
        last = self.last_verified(line, "step")
        assert last is not None
        assert last.id == one.id

    def test_finds_ids_by_their_beginning_and_nothing_more(self) -> None:
        self.save("a", id="abc%1")
        self.save("b", id="abc_2")
        self.save("c", id="abd")
        assert self.catalog.find(ADA, "abc", 10) == ["abc%1", "abc_2"]
        assert self.catalog.find(ADA, "abc_", 10) == ["abc_2"]
        assert self.catalog.find(ADA, "%", 10) == []


class MovesConformance(CatalogCase):
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
        assert [self.move("undo").head.id for _ in range(2)] == [on.id, second.id]
        with refused(ConflictError):
            self.move("undo")
        assert [self.move("redo").head.id for _ in range(2)] == [on.id, again.id]
        with refused(ConflictError):
            self.move("redo")
        kinds = [event.kind for event in self.catalog.events(self.task(), after=5)]
        assert kinds == ["undone", "undone", "redone", "redone"]

    def test_a_commit_after_an_undo_ends_redoing(self) -> None:
        first, second = self.chain(2)
        self.restore(first, "back")
        self.move("undo")
        third = self.save(parent=second).stored
        with refused(ConflictError):
            self.move("redo")
        assert self.active() == third.id

    def test_a_commit_on_another_branch_does_not_end_redoing(self) -> None:
        first, _ = self.chain(2)
        side = self.fork(first, "side")
        back = self.restore(first, "back")
        self.move("undo")
        self.save(parent=side)
        assert self.move("redo").head.id == back.id

    def test_a_new_move_ends_redoing(self) -> None:
        first, _ = self.chain(2)
        self.restore(first, "one")
        self.move("undo")
        self.restore(first, "two")
        with refused(ConflictError):
            self.move("redo")

    def test_undo_and_redo_expect_the_head_that_the_writer_saw(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        with refused(ConflictError):
            self.move("undo", expects=second.id)
        self.move("undo", expects=back.id)
        with refused(ConflictError):
            self.move("redo", expects=back.id)
        assert self.active() == second.id

    def test_another_branch_is_made_active_and_that_can_be_undone(self) -> None:
        first, second = self.chain(2)
        side = self.fork(first, "side")
        assert self.catalog.move(ADA, side.placement.branch_id, "switch", ACTOR).head.id == side.id
        assert self.catalog.move(ADA, side.placement.branch_id, "switch", ACTOR).head.id == side.id  # again: nothing
        assert self.move("undo").head.id == second.id

    def test_a_switch_expects_the_head_that_the_writer_saw_and_is_logged(self) -> None:
        first, second = self.chain(2)
        side = self.fork(first, "side")
        for seen in (first, side):
            with refused(ConflictError) as caught:
                self.catalog.move(ADA, side.placement.branch_id, "switch", ACTOR, expects=seen.id)
            assert caught[0].head.id == second.id
        assert self.active() == second.id
        self.catalog.move(ADA, side.placement.branch_id, "switch", ACTOR, expects=second.id)
        assert self.active() == side.id
        (event,) = self.catalog.events(self.task(), after=3)
        assert (event.kind, event.branch_id) == ("switched", side.placement.branch_id)

    def test_moves_belong_to_their_task(self) -> None:
        first, _ = self.chain(2)
        back = self.restore(first, "back")
        self.chain(1, "other")
        with refused(ConflictError):
            self.catalog.move(ADA, "other", "undo", ACTOR)
        assert self.active() == back.id

    def test_no_move_leads_to_a_branch_whose_newest_checkpoint_was_deleted(self) -> None:
        first, second = self.chain(2)
        back = self.restore(first, "back")
        self.attest("deleted", second)
        with refused(ConflictError):
            self.move("undo")
        with refused(ConflictError):
            self.catalog.move(ADA, second.placement.branch_id, "switch", ACTOR)
        assert self.active() == back.id
        self.attest("undeleted", second)
        assert self.move("undo").head.id == second.id
        self.attest("deleted", back)
        with refused(ConflictError):
            self.move("redo")
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
        origin = self.fork(first, "a")
        heir = self.fork(origin, "b")
        self.attest("tag", heir, name="green")
        assert self.catalog.delete_branch(ADA, "b", ACTOR) == 0
        assert self.catalog.delete_branch(ADA, "a", ACTOR) == 0
        assert self.listed(self.whole()) == [heir.id, origin.id, first.id]

    def test_a_deleted_branch_leaves_what_others_descend_from_by_way_of_a_deleted_one(self) -> None:
        (first,) = self.chain(1)
        origin = self.fork(first, "a")
        between = self.fork(origin, "b")
        heir = self.fork(between, "c")
        self.attest("deleted", between)
        for branch_id in ("b", "a"):
            assert self.catalog.delete_branch(ADA, branch_id, ACTOR) == 0
        assert self.listed(self.along("c")) == [heir.id, origin.id, first.id]

    def test_a_deleted_branch_leaves_what_others_descend_from(self) -> None:
        first, _ = self.chain(2)
        side = self.fork(first, "side")
        kept = self.save(parent=side).stored
        tagged = self.save(parent=kept).stored
        last = self.save(parent=tagged).stored
        heir = self.fork(kept, "heir")
        self.attest("tag", tagged, name="green")
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
            self.move("undo")
        assert self.active() == back.id

    def test_the_history_of_a_branch_is_what_its_ancestors_knew_and_its_own(self) -> None:
        first, second = self.chain(2)
        side = self.fork(first, "side")
        self.attest("tag", first, name="late")  # after the branch began
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
