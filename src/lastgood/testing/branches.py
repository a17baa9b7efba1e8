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
        with refused(ConflictError) as caught:
            self.save(new=NewBranch("plain", "main"))
        assert (caught[0].head.id, self.task().checkpoints) == (first.id, 1)
        apart = self.save(new=NewBranch("apart", "main", active=False, may_rename=True, is_apart=True)).stored
        after = self.save(parent=apart).stored
        assert (apart.placement.sequence, apart.placement.version) == (2, 1)
        assert self.listed(self.along("apart")) == [after.id, apart.id]
        assert self.listed(self.whole()) == [after.id, apart.id, first.id]
        assert self.task().active_branch_id == first.placement.branch_id
        branch = self.branch("apart")
        assert (branch.name, branch.origin_id) == ("main-2", None)
        self.catalog.require_ready()

    def test_the_name_of_a_branch_is_used_once_in_a_task_and_gets_a_number_when_it_may(self) -> None:
        first = self.save().stored
        with refused(ConflictError):
            self.save(parent=first, new=NewBranch("another", "main"))
        for _ in range(3):
            self.save(parent=first, new=NewBranch(new_id(), "again", active=False, may_rename=True))
        self.save("other", self.save("other").stored, new=NewBranch(new_id(), "again"))
        assert [branch.name for branch in self.catalog.branches(self.task())] == ["main", "again", "again-2", "again-3"]
        assert [branch.name for branch in self.catalog.branches(self.task("other"))] == ["main", "again"]

    def test_a_task_cannot_take_the_id_of_a_branch(self) -> None:
        first = self.save().stored
        self.fork(first, "branch-id")
        with refused(ConflictError):
            self.save("branch-id")
        self.catalog.delete_branch(ADA, "branch-id", ACTOR)
        with refused(NotFoundError):
            self.save("branch-id")

    def test_nothing_continues_a_checkpoint_that_was_purged_or_is_another_tasks(self) -> None:
        """B6: what it would share with it may be gone."""
        (first,) = self.chain(1)
        side, other = self.fork(first, "side"), self.save("other").stored
        self.purge(side)
        for keep_root in (False, True):
            with refused(ConflictError):
                self.save(parent=side, keep_root=keep_root)
            for origin in (side, other):
                with refused(NotFoundError):
                    self.save(parent=origin, keep_root=keep_root, new=NewBranch(new_id(), "new", active=False))
        assert len(self.catalog.branches(self.task())) == 2

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
        branch = first.placement.branch_id
        notes = [NewEvent("restored", branch, about, {"n": n}) for n, about in enumerate((first.id, None))]
        new = self.save(parent=first, new=NewBranch(new_id(), "side"), notes=notes).stored
        events = self.catalog.events(self.task(), after=1)
        assert [(event.sequence, event.kind) for event in events] == [(2, "restored"), (3, "restored"), (4, "branched")]
        told = [(event.branch_id, event.checkpoint_id, event.data) for event in events[:2]]
        assert told == [(branch, first.id, {"n": 0}), (branch, None, {"n": 1})]
        assert (new.placement.last_event, self.task().last_event) == (4, 4)

    # --- listing -------------------------------------------------------------------------------------------------

    def test_pages_are_newest_first_and_complete(self) -> None:
        placements = [row.placement for row in self.chain(7)]
        assert [(place.sequence, place.version) for place in placements] == [(n, n) for n in range(1, 8)]
        pages, before = [], None
        while page := self.catalog.checkpoints(self.whole(), before=before, limit=3):
            pages.append([row.placement.sequence for row in page])
            before = page[-1].placement.sequence
        assert pages == [[7, 6, 5], [4, 3, 2], [1]]

    def test_lists_and_counts_by_type(self) -> None:
        one = self.save(type="manual").stored
        two = self.save(parent=one, type="hourly").stored
        three = self.save(parent=two, type="manual").stored
        side = self.save(parent=two, new=NewBranch("side", "side"), type="hourly").stored
        assert self.listed(self.whole(), type="manual") == [three.id, one.id]
        assert self.listed(self.along("side"), type="hourly") == [side.id, two.id]
        assert self.catalog.count(self.whole(), "hourly") == 2
        assert self.catalog.count(self.along(one.placement.branch_id), "hourly") == 1

    def test_those_whose_last_verification_held_are_listed_newest_first_along_branches(self) -> None:
        one, two, three = self.chain(3, type="step")
        back = self.restore(two, "back", expects=three.id)
        for row in (one, two, three, back):
            self.attest("verification", row, verified=True)
        self.attest("verification", two, verified=False)
        along = self.along(back.placement.branch_id)
        assert self.listed(along, verified=True) == [back.id, one.id]
        assert self.listed(along, verified=True, limit=1, type="step") == [one.id]
        assert self.listed(along, verified=True, type="hourly") == []
        assert self.listed(self.whole(), verified=True) == [back.id, three.id, one.id]
        assert self.listed(self.whole(), verified=True, limit=2, before=4) == [three.id, one.id]

    def test_an_attestation_may_depend_on_nothing_having_happened(self) -> None:
        one, _ = self.chain(2)
        seen = self.task().last_event
        self.catalog.attest(ADA, [one.id], "tag", {"name": "kept"}, ACTOR, last_event=seen)
        with refused(ConflictError):
            self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR, last_event=seen)
        self.catalog.attest(ADA, [one.id], "deleted", {}, ACTOR, last_event=self.task().last_event)

    def test_finds_ids_by_their_beginning_and_nothing_more(self) -> None:
        self.save("a", id="abc%1")
        self.save("b", id="abc_2")
        self.save("c", id="abd")
        assert self.catalog.find(ADA, "abc", 10) == ["abc%1", "abc_2"]
        assert self.catalog.find(ADA, "abc_", 10) == ["abc_2"]
        assert self.catalog.find(ADA, "%", 10) == []

    # --- moves ---------------------------------------------------------------------------------------------------

    def test_every_move_expects_the_head_that_the_writer_saw(self) -> None:
        first, second = self.chain(2)
        self.fork(first, "side")
        with refused(ConflictError) as caught:
            self.restore(first, "back", expects=first.id)
        assert (caught[0].head.id, self.active()) == (second.id, second.id)
        back = self.restore(first, "back", expects=second.id)
        with refused(ConflictError):
            self.move("undo", expects=second.id)
        self.move("undo", expects=back.id)
        with refused(ConflictError):
            self.move("redo", expects=back.id)
        with refused(ConflictError) as caught:
            self.catalog.move(ADA, "side", "switch", ACTOR, expects=first.id)
        assert (caught[0].head.id, self.active()) == (second.id, second.id)
        self.catalog.move(ADA, "side", "switch", ACTOR, expects=second.id)
        assert self.task().active_branch_id == "side"

    def test_moves_of_a_task_are_undone_and_redone_in_order(self) -> None:
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
        self.chain(1, "other")
        with refused(ConflictError):
            self.catalog.move(ADA, "other", "undo", ACTOR)
        assert self.active() == again.id

    def test_a_commit_or_a_move_after_an_undo_ends_redoing_and_a_commit_elsewhere_does_not(self) -> None:
        first, second = self.chain(2)
        side = self.fork(first, "side")
        back = self.restore(first, "back")
        self.move("undo")
        self.save(parent=side)
        assert self.move("redo").head.id == back.id
        self.move("undo")
        self.restore(first, "again")
        with refused(ConflictError):
            self.move("redo")
        self.move("undo")
        third = self.save(parent=second).stored
        with refused(ConflictError):
            self.move("redo")
        assert self.active() == third.id

    def test_another_branch_is_made_active_which_is_logged_and_can_be_undone(self) -> None:
        first, second = self.chain(2)
        side = self.fork(first, "side")
        for _ in range(2):  # again: nothing
            assert self.catalog.move(ADA, "side", "switch", ACTOR).head.id == side.id
        (event,) = self.catalog.events(self.task(), after=3)
        assert (event.kind, event.branch_id) == ("switched", "side")
        assert self.move("undo").head.id == second.id

    def test_no_move_leads_to_a_branch_that_was_deleted_or_whose_newest_checkpoint_was(self) -> None:
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
        self.attest("undeleted", back)
        self.move("redo")
        with refused(ConflictError):  # the active one is not deleted
            self.catalog.delete_branch(ADA, back.placement.branch_id, ACTOR)
        self.catalog.delete_branch(ADA, first.placement.branch_id, ACTOR)
        with refused(ConflictError):
            self.move("undo")
        with refused(ConflictError) as caught:  # who follows the active branch is told where it is
            self.save(parent=second, only_if_active=True)
        assert caught[0].head.id == self.active() == back.id

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
        self.fork(first, "gone")
        self.attest("tag", tagged, name="green")
        assert self.catalog.delete_branch(ADA, "gone", ACTOR) == 1
        assert self.catalog.delete_branch(ADA, "side", ACTOR) == 1
        assert self.catalog.branch(ADA, "side") is None
        assert self.catalog.position(ADA, "side") is None
        there = {row.id for row in self.catalog.checkpoints(self.whole())}
        assert {side.id, kept.id, tagged.id, heir.id} <= there
        assert last.id not in there
        told = [(branch.name, branch.deleted) for branch in self.catalog.branches(self.task())]
        assert told == [("main", False), ("side", True), ("heir", False)]
        told = [(branch.name, branch.deleted) for branch in self.catalog.branches(self.task(), deleted=True)]
        assert told == [("main", False), ("side", True), ("heir", False), ("gone", True)]
        (event,) = self.catalog.history(self.whole(), limit=1)
        assert (event.kind, event.data["name"], event.data["checkpoints"]) == ("branch_deleted", "side", 1)
        self.save(parent=first, new=NewBranch(new_id(), "side", active=False))  # the name is free
        with refused(NotFoundError):
            self.save(parent=last)
        with refused(NotFoundError):
            self.catalog.delete_branch(ADA, "side", ACTOR)

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
