"""Small promises that a new user meets (finding 13)."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest
from tests.support.outages import gone

import lastgood
from lastgood import (
    CheckpointManager,
    Evidence,
    EvidencePack,
    EvidenceType,
    InvalidError,
    Store,
    VerificationStatus,
)

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "src").mkdir(parents=True)
    (place / "src" / "a.txt").write_text("a")
    (place / "b.txt").write_text("bb")
    return place


def test_absolute_paths_inside_the_workspace_are_taken(store: Store, folder: Path, tmp_path: Path) -> None:
    """B1, finding 13: also by way of a link to it."""
    task = store.task("t", workspace=folder)
    (tmp_path / "link").symlink_to(folder)
    for given in (folder / "src" / "a.txt", str(folder / "src" / ".." / "src" / "a.txt"), tmp_path / "link/src/a.txt"):
        saved = task.save({}, files=[given])
        assert [(one.path, one.kind) for one in store.list_files(saved.id, "src")] == [("src/a.txt", "file")]
        assert saved.file_count == 1


def test_absolute_paths_of_named_folders_are_taken_in_theirs(store: Store, folder: Path, tmp_path: Path) -> None:
    """B1, finding 13."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("other")
    task = store.task("t", workspace={"app": folder, "infra": other})
    saved = task.save({}, files=[other / "b.txt"])
    assert store.read_file(saved.id, "infra:b.txt") == b"other"
    assert saved.file_count == 1


def test_absolute_paths_elsewhere_are_refused(store: Store, folder: Path, tmp_path: Path) -> None:
    """B1, finding 13: nothing outside of the workspace is captured by name."""
    (tmp_path / "secret").write_text("x")
    (folder / "out").symlink_to(tmp_path)
    task = store.task("t", workspace=folder)
    for given in (tmp_path / "secret", folder / ".." / "secret", f"{folder}-not", folder / "out" / "secret"):
        with pytest.raises(InvalidError):
            task.save({}, files=[given])


def test_a_checkpoint_says_its_size_and_whether_it_can_be_restored(store: Store, folder: Path) -> None:
    """A12, E1, finding 13."""
    task = store.task("t", workspace=folder)
    first = task.save({})
    task.save({"n": 2})
    assert (first.total_size, first.can_restore) == (3, True)
    store.delete_checkpoint(first.id)
    assert not store.find_checkpoint(first.id).can_restore
    missing = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "there", {"path": "nowhere"})])
    assert not task.save({"n": 3}, evidence=missing).can_restore


def test_the_status_of_evidence_is_an_enum(store: Store) -> None:
    """D2, finding 13: its values are the words."""
    assert [status.value for status in VerificationStatus] == ["pending", "verified", "failed", "stale"]
    claim = Evidence(EvidenceType.ARTIFACT_EXISTS, "there", {"path": "nowhere"})
    assert claim.verification_status is VerificationStatus.PENDING
    saved = store.task("t").save({}, evidence=EvidencePack([claim]))
    (stored,) = store.find_checkpoint(saved.id).evidence_pack.evidence_list
    assert stored.verification_status == VerificationStatus.FAILED
    again = Evidence.from_dict(stored.to_dict())
    assert again.verification_status is VerificationStatus.FAILED
    assert type(again.to_dict()["verification_status"]) is str


def test_recovery_says_which_steps_are_this_processes_own(store: Store) -> None:
    """A16, finding 13."""
    task = store.task("t")
    task.save({})
    task.step("edit").begin()
    (advice, _) = task.recovery().advice
    assert advice == "the step 'edit' is open in this process: commit it, or let it fail"


def test_importing_everything_leaves_open_alone() -> None:
    """Finding 13."""
    names: dict[str, object] = {}
    exec("from lastgood import *; from lastgood.aio import *", names)
    assert names.get("open", builtins.open) is builtins.open
    assert "Store" in names
    assert callable(lastgood.open)
    assert "open" in dir(lastgood)


def test_a_message_that_is_no_text_is_refused(store: Store) -> None:
    task = store.task("t")
    saved = task.save({})
    with pytest.raises(lastgood.InvalidError, match="message is int"):
        task.restore(saved, message=5)  # type: ignore[arg-type]


def test_secrets_in_messages_are_masked(store: Store) -> None:
    """D10, finding 13: in checkpoints, in the history, in what restores and forks are told."""
    task = store.task("t")
    saved = task.save({}, message=f"uses {TOKEN}")
    task.restore(saved, message=f"because of {TOKEN}")
    task.step("edit", message=f"with {TOKEN}").begin().commit()
    said = [entry.message for entry in store.history("t")]
    assert said
    assert not any(TOKEN in text for text in (*said, saved.message))
    assert saved.message.startswith("uses ")


def test_the_next_step_ends_one_whose_failure_could_not_be_recorded(tmp_path: Path) -> None:
    """A16, finding 13: the store was away when it failed; it must not stay open as long as the process lives."""
    place = tmp_path / "store"
    with CheckpointManager(place, user="ada", spool=tmp_path / "spool") as store:
        task = store.task("t")
        task.save({})
        for begin in (lambda: task.step("next").begin().commit(), lambda: store.begin_step("t", "step", {})):
            failed = task.step("edit").begin()
            with gone(place):
                failed.__exit__(RuntimeError, RuntimeError("it broke"), None)
            assert [one.id for one in store.open_steps("t")] == [failed.id]
            begin()
            assert failed.id not in [one.id for one in store.open_steps("t")]
            (entry,) = [entry for entry in store.history("t", kinds=["step_failed"]) if entry.data["step"] == failed.id]
            assert "it broke" in entry.data["reason"]
