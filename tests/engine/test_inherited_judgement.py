"""Evidence that speaks for copies, too: what equals a judged checkpoint inherits its judgement; what good means."""

from __future__ import annotations

from pathlib import Path

import pytest

import lastgood
from lastgood.errors import EvidenceError
from lastgood.views.checkpoint import verification, view_checkpoint


@pytest.fixture
def task(store: lastgood.Store, tmp_path: Path) -> lastgood.Task:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/file").write_text("first")
    return store.task("work", workspace=tmp_path / "work")


def judge(task: lastgood.Task, number: int, *, holds: bool) -> lastgood.Checkpoint:
    """Make a checkpoint that a command has judged."""
    with task.step("tests") as step:
        step.state = {"number": number}
        step.run(["true" if holds else "false"], check=False)
    assert step.checkpoint is not None
    assert step.checkpoint.verified is holds
    return step.checkpoint


def id_of(checkpoint: lastgood.Checkpoint | None) -> str | None:
    return None if checkpoint is None else checkpoint.id


def shown(store: lastgood.Store, checkpoint: lastgood.Checkpoint) -> tuple[str, str | None]:
    view = view_checkpoint(store.find_checkpoint(checkpoint.id))
    return view.verification, view.inherited_from


def test_a_save_of_the_same_after_failed_tests_is_failed_too(store: lastgood.Store, task: lastgood.Task) -> None:
    """First use 5: `save -m wip` with the same state and files."""
    good = judge(task, 1, holds=True)
    bad = judge(task, 2, holds=False)
    wip = task.save({"number": 2}, message="wip")
    again = task.append({"number": 2}, message="wip, again")
    assert id_of(task.last_good()) == id_of(task.last_good(any=True)) == good.id
    assert shown(store, wip) == shown(store, again) == ("failed", bad.id)
    assert not view_checkpoint(wip).can_restore
    with pytest.raises(EvidenceError):
        task.restore(wip)


def test_a_restored_one_inherits_and_so_does_a_forked_one(store: lastgood.Store, task: lastgood.Task) -> None:
    """First use 5: a failed checkpoint that is restored all the same does not become good."""
    good = judge(task, 1, holds=True)
    bad = judge(task, 2, holds=False)
    forced = task.restore(bad, verify=False).checkpoint
    assert shown(store, forced) == ("failed", bad.id)
    assert id_of(task.last_good(any=True)) == good.id
    restored = task.restore(good).checkpoint
    assert shown(store, restored) == ("verified", good.id)
    assert id_of(task.last_good()) == restored.id
    forked = task.fork(restored).head
    assert forked is not None
    assert shown(store, forked) == ("verified", good.id)
    assert store.verify_checkpoint(forked.id)


def test_files_that_are_restored_inherit_from_whom_they_equal(
    store: lastgood.Store, task: lastgood.Task, tmp_path: Path
) -> None:
    """First use 5"""
    good = judge(task, 1, holds=True)
    (tmp_path / "work/file").write_text("second")
    task.save({"number": 1})
    back = task.restore(good, "files").checkpoint
    assert shown(store, back) == ("verified", good.id)


def test_what_differs_in_state_or_files_inherits_nothing(
    store: lastgood.Store, task: lastgood.Task, tmp_path: Path
) -> None:
    """First use 5"""
    judge(task, 1, holds=False)
    assert shown(store, task.save({"number": 2})) == ("unverified", None)
    judge(task, 3, holds=False)
    (tmp_path / "work/file").write_text("other")
    assert shown(store, task.save({"number": 3})) == ("unverified", None)
    failed = judge(task, 4, holds=False)
    assert shown(store, store.task("work").append({"number": 4})) == ("failed", failed.id), "it keeps the files"


def test_an_inherited_judgement_follows_the_one_it_is_from(
    store: lastgood.Store, task: lastgood.Task, tmp_path: Path
) -> None:
    """First use 5: it is checked again as that one is."""
    claim = lastgood.Evidence("artifact_exists", "it is there", {"path": str(tmp_path / "there")})
    (tmp_path / "there").touch()
    first = task.save({"number": 1}, evidence=lastgood.EvidencePack([claim]))
    copy = task.save({"number": 1})
    assert id_of(task.last_good()) == copy.id
    (tmp_path / "there").unlink()
    assert task.last_good() is None
    assert shown(store, copy) == ("failed", first.id)


def test_where_there_is_evidence_good_means_verified(store: lastgood.Store, task: lastgood.Task) -> None:
    """First use 5, D9"""
    plain = task.save({"number": 0})
    assert id_of(task.last_good()) == plain.id, "where nothing is judged, one that is whole will do"
    assert verification(plain) == "unverified"
    assert any("unverified" in said for said in task.recovery().advice)
    good = judge(task, 1, holds=True)
    later = task.save({"number": 2})
    assert id_of(task.last_good()) == good.id
    assert id_of(task.last_good(any=True)) == later.id
    assert id_of(store.last_good("work", any=True)) == later.id
    recovery = task.recovery()
    assert (id_of(recovery.last_good), recovery.clean) == (good.id, True)
    assert "unverified" in recovery.advice[-1]
    assert f"task.restore('@{good.sequence}')" in recovery.advice[-1]


def test_where_no_evidence_holds_none_is_good(task: lastgood.Task) -> None:
    """First use 5, A16: and recovery names one that is whole, as what it is."""
    plain = task.save({"number": 0})
    judge(task, 1, holds=False)
    assert task.last_good() is None
    assert id_of(task.last_good(any=True)) == plain.id
    recovery = task.recovery()
    assert (recovery.last_good, recovery.clean) == (None, False)
    assert "unverified" in recovery.advice[-1]
    assert f"task.restore('@{plain.sequence}')" in recovery.advice[-1]
