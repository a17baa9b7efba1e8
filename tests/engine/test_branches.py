"""Going back, aside, and back again: restore, fork, undo, redo, switch, and the end of branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import (
    Checkpoint,
    ConflictError,
    Evidence,
    EvidenceError,
    EvidencePack,
    EvidenceType,
    InvalidError,
    NotFoundError,
    Store,
    Task,
)
from lastgood.engine.branch import plan_branch
from lastgood.types import BranchInfo


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with lastgood.open(tmp_path / "store", user="ada", base_path=tmp_path) as store:
        yield store


@pytest.fixture
def task(store: Store) -> Task:
    """A task with three checkpoints: n is 1, 2, 3."""
    task = store.task("t")
    for n in (1, 2, 3):
        task.save({"n": n}, message=f"n is {n}")
    return task


def named(task: Task, name: str) -> BranchInfo:
    return next(branch for branch in task.branches() if branch.name == name)


def ids(checkpoints: list[Checkpoint]) -> list[str]:
    return [checkpoint.id for checkpoint in checkpoints]


def log_written() -> EvidencePack:
    return EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "log written", {"path": "run.log"})])


# --- saving on an older checkpoint -------------------------------------------------------------------------------


def test_a_save_on_an_older_checkpoint_begins_a_branch_there(task: Task, store: Store) -> None:
    left, chosen = task.head, task.find("@1")
    made = task.save({"n": 10}, parent=chosen, message="another way")
    assert left is not None
    assert (made.parent_id, made.state, made.type, made.message) == (chosen.id, {"n": 10}, "manual", "another way")
    assert (task.head, task.branch_id) == (made, made.branch_id)
    assert made.branch_id != left.branch_id
    assert named(task, "main-2").description == f"main (Branched from {chosen.created_at:%Y-%m-%dT%H:%M:%S}Z)"
    assert task.save({"n": 11}).parent_id == made.id
    assert store.task("t").state == {"n": 11}
    assert named(task, "main").head.id == left.id  # type: ignore[union-attr]


def test_a_save_on_an_older_checkpoint_can_be_undone(task: Task) -> None:
    task.save({"n": 10}, parent="@1")
    assert task.undo().state == {"n": 3}
    assert task.redo().state == {"n": 10}


def test_a_save_on_the_head_is_a_save(task: Task) -> None:
    made = task.save({"n": 4}, parent="HEAD")
    assert (made.sequence, len(task.branches())) == (4, 1)


def test_a_save_on_an_older_checkpoint_through_a_stale_handle_is_refused(task: Task, store: Store) -> None:
    stale = store.task("t")
    task.save({"n": 4})
    with pytest.raises(ConflictError):
        stale.save({"n": 10}, parent="@1")
    assert len(task.branches()) == 1


def test_a_save_on_an_older_checkpoint_by_key_is_made_once(task: Task, store: Store) -> None:
    made = task.save({"n": 10}, parent="@1", key="once")
    again = store.task("t").save({"n": 10}, parent="@1", key="once")
    assert (again.id, len(task.branches())) == (made.id, 2)
    with pytest.raises(ConflictError):
        task.save({"n": 11}, parent="@1", key="once")


def test_a_save_on_a_checkpoint_of_another_task_is_refused(task: Task, store: Store) -> None:
    other = store.task("other").save({})
    with pytest.raises(InvalidError):
        task.save({"n": 10}, parent=other)


def test_a_save_on_an_older_checkpoint_captures_the_files_on_disk(store: Store, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    task = store.task("files", workspace=tmp_path / "work")
    for text in ("one", "two"):
        (tmp_path / "work" / "a").write_text(text)
        task.save({"text": text})
    (tmp_path / "work" / "a").write_text("three")
    made = task.save({"text": "three"}, parent="@1")
    assert (tmp_path / "work" / "a").read_text() == "three"
    assert store.read_file(made.id, "a") == b"three"
    (tmp_path / "work" / "a").write_text("four")
    assert store.read_file(task.save({}).id, "a") == b"four"
    without = store.task("files", workspace=False).save({}, parent="@1")
    assert store.read_file(without.id, "a") == b"one"


def test_a_save_on_an_older_checkpoint_masks_secrets_and_checks_evidence(task: Task, tmp_path: Path) -> None:
    (tmp_path / "run.log").touch()
    made = task.save({}, parent="@1", message="password=hunter2hunter2", evidence=log_written())
    assert "hunter2" not in made.message
    assert made.verified


# --- restore -----------------------------------------------------------------------------------------------------


def test_a_restore_goes_on_from_the_chosen_checkpoint_on_a_new_branch(task: Task, store: Store) -> None:
    left = task.head
    assert left is not None
    chosen = task.find("@1")
    result = task.restore(chosen)
    assert (result.checkpoint_id, result.state, result.before) == (chosen.id, {"n": 1}, left)
    assert result.checkpoint.parent_id == chosen.id
    assert task.head is not None
    assert task.head.id == result.new_checkpoint_id
    task.save({"n": 10})
    assert [c.state["n"] for c in store.list_checkpoints(task.branch_id or "")] == [10, 1, 1]
    assert store.task("t").state == {"n": 10}


def test_nothing_is_destroyed_by_a_restore(task: Task, store: Store) -> None:
    before = ids(store.list_checkpoints("t"))
    task.restore("@1")
    assert ids(store.list_checkpoints("t"))[1:] == before
    assert store.find_checkpoint(before[0]).state == {"n": 3}


def test_a_restored_branch_says_where_it_comes_from(task: Task) -> None:
    """E3"""
    chosen = task.find("@2")
    result = task.restore(chosen)
    branch = next(info for info in task.branches() if info.id == result.branch_id)
    assert branch.name == "main-2"
    assert branch.description == f"main (Restored from {chosen.created_at:%Y-%m-%dT%H:%M:%S}Z)"
    assert (branch.version, branch.created_by) == (1, "ada")
    assert (branch.origin_id, branch.origin_sequence) == (chosen.id, 2)
    assert branch.metadata == {
        "restoredFrom": chosen.id,
        "originalTask": "t",
        "restorePoint": chosen.created_at.isoformat(),
        "isBranch": True,
    }
    assert result.checkpoint.lineage == "restored"


def test_what_stands_beside_the_state_comes_along(store: Store) -> None:
    """E3: artifacts and guidance are those of the chosen checkpoint; later decisions are not in it."""
    task = store.task("t")
    chosen = task.save({}, artifacts=["plan"], decisions=["go"], guidance=["be brief"])
    task.save({}, artifacts=["other"], decisions=["go", "stop"])
    restored = task.restore(chosen).checkpoint
    assert (restored.artifacts, restored.decisions, restored.guidance) == (["plan"], ["go"], ["be brief"])


def test_several_branches_may_begin_at_one_checkpoint(task: Task) -> None:
    """E3"""
    chosen = task.find("@1")
    for _ in range(3):
        task.restore(chosen)
    names = [branch.name for branch in task.branches()]
    assert len(set(names)) == 4
    assert [branch.origin_id for branch in task.branches()] == [None, chosen.id, chosen.id, chosen.id]


def test_names_do_not_pile_up_when_a_restored_branch_is_restored(task: Task) -> None:
    for _ in range(3):
        assert task.head is not None
        task.restore(task.head)
    assert [branch.name for branch in task.branches()] == ["main", "main-2", "main-3", "main-4"]
    assert all(branch.description.count("Restored") == 1 for branch in task.branches()[1:])
    task.restore("@1")
    assert task.branches()[-1].name == "main-5"
    task.fork(name="release-2")
    task.switch("release-2")
    task.restore("HEAD")
    assert task.branches()[-1].name == "release-3"
    assert task.fork(description="why").branch_id == task.branches()[-1].id
    assert (task.branches()[-1].name, task.branches()[-1].description) == ("release-4", "why")


def test_the_present_is_saved_first_on_the_branch_that_is_left(task: Task, store: Store) -> None:
    left = task.branch_id or ""
    result = task.restore("@1", present={"n": 3, "unsaved": True})
    assert result.before is not None
    assert (result.before.type, result.before.branch_id) == ("before_restore", left)
    assert result.before.state == {"n": 3, "unsaved": True}
    assert store.list_checkpoints(left)[0].id == result.before.id


def test_a_present_that_was_saved_already_is_not_saved_again(task: Task, store: Store) -> None:
    head = task.head
    result = task.restore("@1", present={"n": 3})
    assert result.before is head
    assert len(store.list_checkpoints("t")) == 4


def test_a_restore_whose_evidence_does_not_hold_is_refused_unless_overridden_by_name(
    task: Task, tmp_path: Path
) -> None:
    """D4, D9"""
    (tmp_path / "run.log").write_text("done")
    proved = task.save({"n": 4}, evidence=log_written())
    task.save({"n": 5})
    (tmp_path / "run.log").unlink()
    with pytest.raises(EvidenceError, match="log written") as caught:
        task.restore(proved)
    assert (caught.value.exit_code, caught.value.details["checkpoint_id"]) == (9, proved.id)
    assert task.state == {"n": 5}
    assert task.restore(proved, verify=False).state == {"n": 4}


def test_a_refused_restore_saves_nothing(task: Task, store: Store, tmp_path: Path) -> None:
    proved = task.save({"n": 4}, evidence=log_written())
    with pytest.raises(EvidenceError):
        task.restore(proved, present={"n": 9})
    assert len(store.list_checkpoints("t")) == 4


def test_deleted_and_purged_checkpoints_are_not_restored(task: Task, store: Store) -> None:
    """E1"""
    first, second = task.find("@1"), task.find("@2")
    store.delete_checkpoint(first.id)
    store.purge_checkpoint(second.id)
    with pytest.raises(ConflictError, match="deleted"):
        task.restore(first.id)
    with pytest.raises(NotFoundError, match="purged"):
        task.restore(second.id)


def test_a_checkpoint_deleted_since_it_was_loaded_is_not_restored(task: Task, store: Store) -> None:
    """E1: what counts is what the store says, not what the object in hand remembers."""
    chosen = task.find("@1")
    store.delete_checkpoint(chosen.id)
    with pytest.raises(ConflictError, match="deleted"):
        task.restore(chosen)
    with pytest.raises(ConflictError, match="deleted"):
        task.fork(chosen)


def test_a_checkpoint_purged_since_it_was_loaded_is_refused_before_anything_is_saved(task: Task, store: Store) -> None:
    """E1"""
    chosen = task.find("@1")
    store.purge_checkpoint(chosen.id)
    with pytest.raises(NotFoundError, match="purged"):
        task.restore(chosen, verify=False, present={"n": "unsaved"})
    assert [c.state["n"] for c in store.list_checkpoints("t")] == [3, 2]


def test_what_descends_from_a_purged_checkpoint_still_verifies_and_restores(task: Task, store: Store) -> None:
    """E2"""
    store.purge_checkpoint(task.find("@1").id)
    second = task.find("@2")
    assert store.check_checkpoint(second.id, evidence=False).problems == []
    assert task.restore(second).state == {"n": 2}


def test_a_checkpoint_of_another_task_is_refused(task: Task, store: Store) -> None:
    other = store.task("u").save({})
    with pytest.raises(InvalidError, match="another task"):
        task.restore(other)


@pytest.mark.parametrize("what", ["files", "everything"])
def test_only_what_was_captured_can_be_restored(task: Task, what: Any) -> None:
    with pytest.raises(InvalidError):
        task.restore("@1", what=what)


def test_restore_and_branch_are_in_both_logs(task: Task, store: Store) -> None:
    """E6: `restored` in the original, `branched` in the new one; who and when stand there."""
    left, chosen = task.branch_id or "", task.find("@2")
    result = task.restore(chosen)
    restored, *_ = store.history(left)
    assert (restored.kind, restored.checkpoint_id, restored.actor) == ("restored", chosen.id, "ada")
    branched, *rest = store.history(result.branch_id)
    assert (branched.kind, branched.checkpoint_id) == ("branched", result.new_checkpoint_id)
    assert [entry.checkpoint_id for entry in rest] == [chosen.id, task.find("@1").id]


def test_what_happened_after_the_chosen_checkpoint_is_not_seen_from_the_new_branch(task: Task, store: Store) -> None:
    """E3, A17: nor what was said later about what it descends from."""
    chosen = task.find("@1")
    task.tag(chosen, "green")
    task.restore(chosen)
    assert [entry.kind for entry in task.history()] == ["branched", "created"]
    assert [entry.kind for entry in task.history(all=True)][:3] == ["branched", "restored", "tagged"]


# --- who conflicts -----------------------------------------------------------------------------------------------


def test_a_handle_from_before_a_restore_is_refused(task: Task, store: Store) -> None:
    stale = store.task("t")
    task.restore("@1")
    with pytest.raises(ConflictError) as caught:
        stale.save({"n": 99})
    assert task.head is not None
    assert caught.value.head.id == task.head.id


def test_a_handle_on_a_branch_stays_there_whatever_is_active(task: Task, store: Store) -> None:
    main = store.task(task.branch_id or "")
    task.restore("@1")
    main.save({"n": 4})
    assert store.task("t").state == {"n": 1}
    assert store.task(main.id).state == {"n": 4}


def test_a_restore_through_a_stale_handle_is_refused(task: Task, store: Store) -> None:
    stale, nobody = store.task("t"), store.task("u")
    task.save({"n": 4})
    with pytest.raises(ConflictError):
        stale.restore("@1")
    store.task("u").save({})
    with pytest.raises(ConflictError):
        nobody.restore("@1")
    assert len(store.branches("t")) == len(store.branches("u")) == 1


def test_a_restore_through_a_stale_handle_on_a_side_branch_is_refused(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    stale = store.task(side.id)
    side.save({"n": 7})
    with pytest.raises(ConflictError):
        stale.restore("@1")


def test_a_refused_restore_leaves_no_checkpoint_behind(task: Task, store: Store) -> None:
    """Promise 5: refused means refused, the saving of the present included."""
    main = store.task(task.branch_id or "")
    task.restore("@1")
    before = ids(store.list_checkpoints("t"))
    with pytest.raises(ConflictError):
        main.restore("@2", present={"n": "unsaved"})
    assert ids(store.list_checkpoints("t")) == before


def test_a_task_handle_whose_branch_is_gone_conflicts_and_carries_the_head(task: Task, store: Store) -> None:
    """A handle opened by task id conflicts once the active branch has moved; deleting the old one changes nothing."""
    stale = store.task("t")
    head = task.restore("@1").checkpoint
    task.delete_branch("main")
    with pytest.raises(ConflictError) as caught:
        stale.save({"n": 99})
    assert caught.value.head.id == head.id
    stale.refresh()
    assert stale.save({"n": 5}).parent_id == head.id


def test_a_handle_on_a_deleted_branch_never_begins_a_task(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    task.delete_branch("side")
    for way in (side.save, side.append):
        with pytest.raises((NotFoundError, ConflictError)):
            way({"n": 9})
    assert [info.id for info in store.tasks()] == ["t"]


def test_a_handle_on_a_branch_of_a_deleted_task_never_begins_a_task(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    store.delete_task("t")
    for way in (side.save, side.append):
        with pytest.raises((NotFoundError, ConflictError)):
            way({"n": 9})
    assert store.tasks() == []


# --- fork --------------------------------------------------------------------------------------------------------


def test_a_fork_leaves_everything_else_as_it_is(task: Task, store: Store) -> None:
    head, active = task.head, task.branch_id
    side = task.fork("@1", name="try-b", description="another way")
    side.save({"n": 50})
    assert (task.head, task.branch_id) == (head, active)
    assert store.task("t").state == {"n": 3}
    task.save({"n": 4})
    assert (side.state, side.task_id) == ({"n": 50}, "t")


def test_a_forks_branch_has_what_was_said_about_it(task: Task) -> None:
    """E3"""
    side = task.fork("@1", name="try-b", description="another way", metadata={"why": "speed"}, paused=True)
    info = named(task, "try-b")
    assert (info.id, info.description, info.control_state) == (side.id, "another way", "paused")
    assert info.metadata["why"] == "speed"
    assert info.metadata["isBranch"] is True
    assert side.head is not None
    assert (side.head.lineage, side.head.type, side.head.branch_description) == ("forked", "forked", "another way")


def test_a_forks_description_says_what_it_was_forked_from(task: Task) -> None:
    chosen = task.find("@2")
    made = task.fork(chosen)
    branch = next(one for one in task.branches() if one.id == made.id)
    assert branch.description == f"main (Forked from {chosen.created_at:%Y-%m-%dT%H:%M:%S}Z)"


def test_a_fork_without_a_checkpoint_begins_at_the_head(task: Task) -> None:
    assert task.head is not None
    assert task.fork().head.parent_id == task.head.id  # type: ignore[union-attr]


def test_a_branch_name_is_taken_once_and_free_again_after_deletion(task: Task) -> None:
    task.fork("@1", name="try")
    with pytest.raises(ConflictError, match="try"):
        task.fork("@2", name="try")
    task.delete_branch("try")
    task.fork("@2", name="try")
    assert named(task, "try").origin_sequence == 2


def test_paused_gates_sessions_but_never_saves(task: Task) -> None:
    side = task.fork("@1", paused=True)
    side.save({"n": 2})
    assert side.head is not None
    assert side.head.control_state == "paused"


def test_listing_by_branch_is_its_ancestors_and_its_own_by_task_all(task: Task, store: Store) -> None:
    """A10: the totals are exact, too."""
    side = task.fork("@2", name="side")
    side.save({"n": 30})
    task.save({"n": 4})
    assert [c.state["n"] for c in store.list_checkpoints(side.id)] == [30, 2, 2, 1]
    assert [c.state["n"] for c in store.list_checkpoints("t")] == [4, 30, 2, 3, 2, 1]
    assert store.page_checkpoints(side.id, 1).total == named(task, "side").checkpoints == 4
    store.delete_checkpoint(task.find("@1").id)
    assert store.page_checkpoints(side.id, 1).total == named(task, "side").checkpoints == 3


# --- undo, redo, switch ------------------------------------------------------------------------------------------


def test_undo_goes_back_to_where_it_was_any_number_of_times(task: Task, store: Store) -> None:
    heads = [task.head]
    for name in ("@1", "@2", "@3"):
        task.restore(name)
        heads.append(task.head)
    for expected in reversed(heads[:-1]):
        assert expected is not None
        assert task.undo().id == expected.id
    assert store.task("t").state == {"n": 3}
    with pytest.raises(ConflictError, match="nothing to undo"):
        task.undo()


def test_after_an_undo_what_a_restore_left_is_unverified_and_not_bad(task: Task) -> None:
    task.restore("@1", present={"n": 99})
    assert task.undo().type == "before_restore"
    (advice,) = task.recovery().advice
    assert advice.startswith("the newest checkpoint is unverified, neither good nor bad: go on from there, or restore")


def test_redo_goes_forward_again_as_often_as_was_undone(task: Task) -> None:
    heads = [task.restore(name).new_checkpoint_id for name in ("@1", "@2")]
    task.undo()
    task.undo()
    assert [task.redo().id, task.redo().id] == heads
    with pytest.raises(ConflictError, match="nothing to redo"):
        task.redo()


def test_a_save_after_an_undo_ends_redoing(task: Task) -> None:
    task.restore("@1")
    task.undo()
    task.save({"n": 4})
    with pytest.raises(ConflictError, match="nothing to redo"):
        task.redo()


def test_a_save_on_another_branch_does_not_end_redoing(task: Task) -> None:
    side = task.fork("@1", name="side")
    restored = task.restore("@1").new_checkpoint_id
    task.undo()
    side.save({"n": 7})
    assert task.redo().id == restored


def test_a_new_restore_ends_redoing(task: Task) -> None:
    task.restore("@1")
    task.undo()
    task.restore("@2")
    with pytest.raises(ConflictError, match="nothing to redo"):
        task.redo()


def test_undo_reverses_moves_and_never_saves(task: Task, store: Store) -> None:
    task.save({"n": 4})
    with pytest.raises(ConflictError):
        task.undo()
    assert store.task("t").state == {"n": 4}


def test_switching_is_a_move_like_a_restore(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    head = side.save({"n": 70})
    assert task.switch("side").id == head.id
    assert store.task("t").state == {"n": 70}
    assert task.undo().state == {"n": 3}
    assert task.redo().state == {"n": 70}
    assert [entry.kind for entry in store.history("t", limit=3)] == ["redone", "undone", "switched"]


def test_undo_and_redo_need_a_handle_that_saw_where_the_task_is(task: Task, store: Store) -> None:
    task.restore("@1")
    stale = store.task("t")
    task.save({"n": 5})
    for move in (stale.undo, lambda: stale.switch("main")):
        with pytest.raises(ConflictError) as caught:
            move()
        assert task.head is not None
        assert caught.value.head.id == task.head.id
    with pytest.raises(InvalidError, match="whole task"):
        store.task(task.branch_id or "").undo()


def test_moves_survive_a_reopening(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "s", user="ada") as store:
        task = store.task("t")
        first = task.save({"n": 1})
        last = task.save({"n": 2})
        task.restore(first)
    with lastgood.open(tmp_path / "s", user="ada") as store:
        assert store.task("t").undo().id == last.id
    with lastgood.open(tmp_path / "s", user="ada") as store:
        assert store.task("t").redo().state == {"n": 1}


# --- the end of branches -----------------------------------------------------------------------------------------


def test_deleting_a_branch_takes_what_only_it_has(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    own = [side.head.id if side.head else "", side.save({"n": 7}).id]
    assert task.delete_branch("side") == 2
    assert all(store.find_checkpoint(name).deleted for name in own)
    assert [branch.name for branch in task.branches()] == ["main"]
    assert [c.state["n"] for c in store.list_checkpoints("t")] == [3, 2, 1]
    assert store.list_checkpoints(side.id) == []


def test_what_others_descend_from_stays_and_so_does_what_is_tagged(task: Task, store: Store) -> None:
    side = task.fork("@1", name="side")
    kept, tagged, gone = (side.save({"n": n}) for n in (20, 21, 22))
    child = side.fork(kept, name="child")
    task.tag(tagged, "good")
    assert task.delete_branch("side") == 1
    assert store.find_checkpoint(gone.id).deleted
    assert [c.state["n"] for c in store.list_checkpoints(child.id)] == [20, 20, 1, 1]
    assert [b.deleted for b in task.branches()] == [False, True, False]
    assert task.find("good").state == {"n": 21}


def test_what_a_grandchild_descends_from_stays_when_the_branch_between_is_gone(task: Task, store: Store) -> None:
    side = task.fork("@3", name="side")
    assert side.head is not None
    grandchild = side.fork(side.head, name="grandchild")
    store.delete_checkpoint(side.head.id)
    task.delete_branch("side")
    task.switch("grandchild")
    assert task.delete_branch("main") == 0
    assert [c.state["n"] for c in store.list_checkpoints(grandchild.id)] == [3, 3, 2, 1]


def test_the_active_branch_and_its_head_are_not_deleted(task: Task, store: Store) -> None:
    assert task.head is not None
    with pytest.raises(ConflictError, match="active branch"):
        task.delete_branch("main")
    for way in (store.delete_checkpoint, store.purge_checkpoint):
        with pytest.raises(ConflictError, match="active branch"):
            way(task.head.id)


def test_a_branch_that_was_left_can_be_deleted_and_then_not_be_gone_back_to(task: Task) -> None:
    task.restore("@1")
    task.delete_branch("main")
    with pytest.raises(ConflictError, match="deleted"):
        task.undo()


def test_a_soft_deleted_checkpoint_stays_a_parent(task: Task, store: Store) -> None:
    side = store.task(task.branch_id or "")
    head = task.head
    assert head is not None
    task.restore("@1")
    store.delete_checkpoint(head.id)
    assert side.save({"n": 4}).parent_id == head.id


def test_a_deleted_checkpoint_keeps_its_tag_and_a_purged_one_gives_it_back(task: Task, store: Store) -> None:
    first = task.find("@1")
    task.tag(first, "green")
    store.delete_checkpoint(first.id)
    assert store.tags("t")["green"].id == first.id
    store.undelete_checkpoint(first.id)
    assert task.find("green").id == first.id
    store.purge_checkpoint(first.id)
    assert store.tags("t") == {}


def test_retention_spares_the_active_head_tagged_ones_and_the_last_verified(
    task: Task, store: Store, tmp_path: Path
) -> None:
    """A14"""
    (tmp_path / "run.log").touch()
    verified = task.save({"n": 4}, evidence=log_written())
    tagged = task.save({"n": 5})
    task.tag(tagged, "keep")
    head = task.save({"n": 6})
    assert store.delete_old_checkpoints("t", 0) == 3
    assert ids(store.list_checkpoints("t")) == [head.id, tagged.id, verified.id]


def test_deleting_a_task_takes_its_branches_moves_and_open_steps(task: Task, store: Store) -> None:
    """E2: it is audited, and its id is free again."""
    task.restore("@1")
    task.step("edit").begin()
    assert store.delete_task("t") == 4
    assert store.open_steps() == []
    assert store._engine.catalog.events(None)[-1].kind == "task_deleted"
    fresh = store.task("t")
    fresh.save({"n": 0})
    with pytest.raises(ConflictError, match="nothing to undo"):
        fresh.undo()
    assert [branch.name for branch in fresh.branches()] == ["main"]


# --- one history -------------------------------------------------------------------------------------------------


def test_one_history_tells_all_that_happened_in_order(task: Task, store: Store) -> None:
    """A17, E6"""
    with lastgood.correlation("request-7"):
        task.tag(task.find("@1"), "green")
    task.restore("@1")
    with pytest.raises(RuntimeError), task.step("edit"):
        raise RuntimeError("no")
    task.undo()
    kinds = [entry.kind for entry in store.history("t")]
    assert kinds == ["undone", "step_failed", "branched", "restored", "tagged", "created", "created", "created"]
    sequences = [entry.sequence for entry in store.history("t")]
    assert sequences == list(range(8, 0, -1))
    tagged = store.history("t", kinds=["tagged"])[0]
    assert (tagged.correlation_id, tagged.actor, tagged.data["name"]) == ("request-7", "ada", "green")


def test_a_history_is_narrowed_down_and_paged(store: Store) -> None:
    """A17"""
    task = store.task("t")
    saved = [task.save({}, type=t, iteration=i) for i, t in enumerate(["manual", "tool_executed", "manual"])]
    assert [e.checkpoint_id for e in task.history(types=["manual"])] == [saved[2].id, saved[0].id]
    assert [e.type for e in task.history(iteration=1)] == ["tool_executed"]
    assert [e.sequence for e in task.history(checkpoint_id=saved[0].id)] == [1]
    assert task.history(actor="somebody") == []
    assert [e.sequence for e in task.history(since=saved[1].created_at, until=saved[2].created_at)] == [2]
    assert [e.sequence for e in task.history(before=3, limit=1)] == [2]
    with pytest.raises(InvalidError, match="not a list"):
        task.history(kinds="created")


def test_a_restore_that_another_writer_overtakes_is_refused(
    store: lastgood.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 5: between reading the head and beginning the branch nobody is held back, and nothing is lost."""
    task, other = store.task("t"), store.task("t")
    first = task.save({"n": 1})
    task.save({"n": 2})

    def overtake(*about: Any, **how: Any) -> Any:
        other.refresh()
        other.save({"n": 3})
        return plan_branch(*about, **how)

    monkeypatch.setattr("lastgood.engine.restore.plan_branch", overtake)
    with pytest.raises(ConflictError) as refused:
        task.restore(first)
    assert refused.value.head.id == store.list_checkpoints("t")[0].id
    assert (len(other.branches()), store.task("t").state) == (1, {"n": 3})
