"""Steps: begun, and then committed with their evidence or recorded as failed; and what a crash leaves of them."""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import (
    CheckpointError,
    CheckpointManager,
    ConflictError,
    Evidence,
    EvidencePack,
    EvidenceType,
    EvidenceVerifier,
    InvalidError,
    NotFoundError,
    Store,
)
from lastgood.engine.proof import MAX_EVIDENCE, UNUSABLE, proving
from lastgood.engine.verify import REDACTED
from lastgood.evidence import check
from lastgood.evidence.check import register_evidence
from lastgood.types import Redaction

PYTHON = sys.executable
TOKEN = "ghp_" + "aB3d" * 9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada", base_path=tmp_path) as store:
        yield store


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[CheckpointManager]:
    with CheckpointManager(tmp_path / "registry.sqlite", base_path=tmp_path, user="ada") as manager:
        yield manager


def there(path: str) -> Evidence:
    return Evidence(EvidenceType.ARTIFACT_EXISTS, f"{path} is there", {"path": path})


def python(code: str) -> list[str]:
    return [PYTHON, "-c", code]


# --- committed, and failed ---------------------------------------------------------------------------------------


def test_a_step_ends_in_one_checkpoint_with_its_state_and_its_evidence(store: Store, tmp_path: Path) -> None:
    task = store.task("t")
    task.save({"round": 2})
    (tmp_path / "report.md").write_text("# done")
    with task.step("edit", type="tool_executed", message="the third", iteration=3) as step:
        step.state["round"] = 3
        step.expect_file("report.md")
        assert [begun.id for begun in store.open_steps("t")] == [step.id]
    assert step.checkpoint is not None
    saved = store.find_checkpoint(step.checkpoint.id)
    assert (saved.state, saved.type, saved.step_id, saved.id) == ({"round": 3}, "tool_executed", "edit", step.id)
    assert (saved.message, saved.iteration, saved.verified) == ("the third", 3, True)
    assert store.open_steps() == []


def test_the_state_of_a_step_is_a_private_copy(store: Store) -> None:
    task = store.task("t")
    task.save({"messages": ["hello"]})
    step = task.step("edit").begin()
    step.state["messages"].append("half done")
    step.fail("given up")
    assert task.state == {"messages": ["hello"]}


def test_a_step_on_a_task_without_checkpoints_begins_with_nothing(store: Store) -> None:
    task = store.task("t")
    with task.step("first"):
        pass
    assert task.state == {}
    with task.step("second") as step:
        step.state = ["any", "value"]
    assert task.state == ["any", "value"]


def test_on_an_exception_the_head_stays_and_the_failure_is_recorded(store: Store) -> None:
    task = store.task("t")
    head = task.save({"n": 1})
    with pytest.raises(ZeroDivisionError), task.step("divide") as step:
        step.state["n"] = 1 / 0
    assert store.task("t").head.id == head.id  # type: ignore[union-attr]
    assert store.open_steps() == []
    failed = task.history(kinds=["step_failed"])[0]
    assert (failed.data["name"], failed.data["step"]) == ("divide", step.id)
    assert failed.data["reason"] == "ZeroDivisionError: division by zero"


def test_a_step_whose_evidence_does_not_hold_is_stored_as_not_verified(store: Store) -> None:
    """D4: stored even when it does not verify, without raising."""
    with store.task("t").step("edit") as step:
        step.expect_file("never-written.txt")
    assert step.checkpoint is not None
    assert not step.checkpoint.verified
    [evidence] = store.find_checkpoint(step.checkpoint.id).evidence_pack.evidence_list
    assert evidence.verification_status == "failed"
    assert (evidence.verification_error or "").startswith("mismatch")


def test_a_file_that_changes_before_the_commit_is_not_as_it_was(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("one")
    with store.task("t").step("write") as step:
        step.expect_file("out.txt")
        (tmp_path / "out.txt").write_text("two")
    assert step.checkpoint is not None
    assert not step.checkpoint.verified


def test_a_step_is_begun_once_and_ended_once(store: Store) -> None:
    step = store.task("t").step("edit").begin()
    with pytest.raises(ConflictError, match="begun already"):
        step.begin()
    step.commit()
    for again in (step.begin, step.commit, lambda: step.fail("no")):
        with pytest.raises(ConflictError):
            again()


def test_a_step_that_ends_inside_its_block_is_left_alone(store: Store) -> None:
    task = store.task("t")
    with task.step("edit") as step:
        step.state["n"] = 1
        saved = step.commit()
    with task.step("other") as step:
        step.fail("not today")
    assert task.head is saved


def test_what_a_step_cannot_carry_is_refused_before_it_begins(store: Store) -> None:
    with pytest.raises(TypeError, match="evidence"):
        store.task("t").step("edit", evidence=EvidencePack())  # type: ignore[call-arg]
    assert store.open_steps() == []


def test_what_cannot_be_stored_fails_the_step(store: Store) -> None:
    task = store.task("t")
    with pytest.raises(InvalidError, match="state"), task.step("edit") as step:
        step.state = {"socket": threading.Lock()}
    assert store.open_steps() == []


# --- who conflicts -----------------------------------------------------------------------------------------------


def test_a_step_that_never_touched_the_state_goes_on_from_whatever_is_there(store: Store) -> None:
    task, other = store.task("t"), store.task("t")
    task.save({"n": 1})
    with task.step("look"):
        other.append({"n": 2})
    assert task.head is not None
    assert (task.state, task.head.parent_id) == ({"n": 2}, other.head.id)  # type: ignore[union-attr]


def test_a_step_that_only_read_the_state_does_not_conflict_either(store: Store) -> None:
    task, other = store.task("t"), store.task("t")
    task.save({"n": 1})
    with task.step("look") as step:
        assert step.state == {"n": 1}
        other.append({"n": 2})
    assert task.state == {"n": 2}


def test_a_step_that_changed_the_state_must_find_the_head_it_started_from(store: Store) -> None:
    task, other = store.task("t"), store.task("t")
    task.save({"n": 1})

    def edit() -> None:
        with task.step("edit") as step:
            step.state["n"] = 10
            other.append({"n": 2})

    with pytest.raises(ConflictError) as caught:
        edit()
    assert caught.value.head.id == other.head.id  # type: ignore[union-attr]
    assert store.task("t").state == {"n": 2}
    assert store.history("t")[0].kind == "step_failed"


def test_a_conflict_carries_the_present_head_not_the_one_that_the_handle_saw(store: Store) -> None:
    task = store.task("t")
    task.save({"n": 1})
    step = task.step("edit").begin()
    step.state["n"] = 10
    task.save({"n": 2})
    present = store.task("t").save({"n": 3})
    with pytest.raises(ConflictError) as caught:
        step.commit()
    assert caught.value.head.id == present.id


def test_a_step_begun_before_the_first_checkpoint_does_not_overwrite_what_came_since(store: Store) -> None:
    task = store.task("t")
    step = task.step("edit").begin()
    step.state["n"] = 10
    saved = task.save({"n": 2})
    with pytest.raises(ConflictError):
        step.commit()
    assert store.task("t").head.id == saved.id  # type: ignore[union-attr]


def test_an_untouched_step_follows_the_task_onto_another_branch(store: Store) -> None:
    task, other = store.task("t"), store.task("t")
    first = task.save({"n": 1})
    task.save({"n": 2})
    with task.step("look"):
        other.refresh()
        branch = other.restore(first).branch_id
        other.delete_branch("main")
    assert (task.branch_id, task.state) == (branch, {"n": 1})


def test_a_step_by_hand_that_is_refused_stays_open_and_can_be_given_up(store: Store) -> None:
    task = store.task("t")
    task.save({"n": 1})
    step = task.step("edit").begin()
    step.state["n"] = 10
    store.task("t").save({"n": 2})
    with pytest.raises(ConflictError):
        step.commit()
    assert [begun.id for begun in store.open_steps()] == [step.id]
    store.abandon_step(step.id, "started over")
    assert store.open_steps() == []
    assert store.history("t")[0].kind == "step_abandoned"
    with pytest.raises(ConflictError):
        step.commit()


def test_steps_of_several_threads_all_land(store: Store) -> None:
    """A handle each; none of them touches the state, so none conflicts."""
    store.task("t").save({"n": 0})
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            task = store.task("t")
            for number in range(5):
                with task.step(f"{name}-{number}"):
                    pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    saved = store.list_checkpoints("t")
    assert [c.sequence for c in saved] == list(range(21, 0, -1))
    assert len({c.step_id for c in saved}) == 21
    assert store.open_steps() == []


def test_threads_may_share_one_handle(store: Store) -> None:
    task = store.task("t")
    task.save({"n": 0})

    def work() -> None:
        for _ in range(5):
            with task.step("shared"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list_checkpoints("t", checkpoint_type="step")) == 20


# --- commands ----------------------------------------------------------------------------------------------------


def test_the_exit_code_of_a_command_is_evidence_and_is_never_run_again(store: Store, tmp_path: Path) -> None:
    """D7"""
    count = "import pathlib; p = pathlib.Path('ran'); p.write_text(p.read_text() + 'x' if p.exists() else 'x')"
    with store.task("t").step("test") as step:
        step.run(python(count), cwd=tmp_path)
    assert step.checkpoint is not None
    assert store.verify_checkpoint(step.checkpoint.id)
    assert (tmp_path / "ran").read_text() == "x"
    [evidence] = step.checkpoint.evidence_pack.evidence_list
    assert (evidence.evidence_type, evidence.metadata["actual_exit_code"]) == ("command_exit", 0)
    assert evidence.metadata["command"].startswith(PYTHON)


def test_another_exit_code_fails_the_evidence_and_raises_only_when_asked(store: Store) -> None:
    task = store.task("t")
    with task.step("test") as step:
        assert step.run(python("raise SystemExit(3)")).returncode == 3
    assert step.checkpoint is not None
    assert not step.checkpoint.verified
    with task.step("expected") as step:
        step.run(python("raise SystemExit(3)"), expect=3, check=True)
    assert step.checkpoint is not None
    assert step.checkpoint.verified
    with pytest.raises(subprocess.CalledProcessError), task.step("checked") as step:
        step.run(python("raise SystemExit(3)"), check=True)
    assert task.history()[0].kind == "step_failed"


def test_output_goes_where_it_would_have_gone_and_its_end_is_kept(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    with store.task("t").step("test") as step:
        result = step.run(python("import sys; print('x' * 9000 + 'the end'); print('oops', file=sys.stderr)"))
    shown = capfd.readouterr()
    assert (len(shown.out), shown.err, result.stdout) == (9008, "oops\n", None)
    tail = step.evidence.evidence_list[0].metadata["output_tail"]
    assert "the end" in tail
    assert "oops" in tail
    assert len(tail) < 9000


def test_captured_output_is_the_callers_and_its_end_is_kept_too(
    store: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    with store.task("t").step("test") as step:
        result = step.run(python("print(input())"), capture_output=True, text=True, input="hello")
    assert (result.stdout, result.stderr, capfd.readouterr().out) == ("hello\n", "", "")
    assert "hello" in step.evidence.evidence_list[0].metadata["output_tail"]


def test_a_command_that_takes_too_long_is_ended_and_is_no_success(store: Store) -> None:
    """D7: with no recorded exit code the evidence fails, and says so."""
    with store.task("t").step("wait") as step, pytest.raises(subprocess.TimeoutExpired):
        step.run(python("import signal; signal.pause()"), timeout=0.2)
    assert step.checkpoint is not None
    assert not step.checkpoint.verified
    [evidence] = step.checkpoint.evidence_pack.evidence_list
    assert "no exit code was recorded" in (evidence.verification_error or "")


@pytest.mark.parametrize("command", ["ls -la", "", [], b"ls"])
def test_there_is_no_shell(store: Store, command: Any) -> None:
    with store.task("t").step("test") as step:
        with pytest.raises(InvalidError, match="list"):
            step.run(command)
        with pytest.raises(InvalidError, match="shell"):
            step.run(["ls"], shell=True)


def test_a_command_that_cannot_be_started_fails_the_step(store: Store) -> None:
    task = store.task("t")
    task.save({})
    with pytest.raises(FileNotFoundError), task.step("test") as step:
        step.run(["/no/such/program"])
    assert task.history()[0].kind == "step_failed"


def test_secrets_in_commands_output_and_failures_are_never_written(store: Store, tmp_path: Path) -> None:
    """D10"""
    token = "ghp_" + "aB3d" * 9
    task = store.task("t")
    with task.step("call") as step:
        step.run(python(f"print('token={token}')"), capture_output=True)
    with pytest.raises(RuntimeError), task.step("fail"):
        raise RuntimeError(f"refused with {token}")
    assert step.checkpoint is not None
    [evidence] = store.find_checkpoint(step.checkpoint.id).evidence_pack.evidence_list
    assert token not in str(evidence.to_dict())
    assert "refused with" in task.history()[0].data["reason"]
    store.close()
    assert not any(token.encode() in file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file())


# --- steps by id -------------------------------------------------------------------------------------------------


def test_a_step_by_id_is_committed_with_the_snapshot_it_began_with(manager: CheckpointManager) -> None:
    """D4"""
    snapshot = {"tool": "bash"}
    step_id = manager.begin_step("t", "tool_executed", snapshot, work_item_id="w-9", metadata={"cost": 1})
    snapshot["tool"] = "changed afterwards"
    checkpoint = manager.commit_step(step_id, None)
    assert (checkpoint.snapshot_data, checkpoint.checkpoint_type) == ({"tool": "bash"}, "tool_executed")
    assert (checkpoint.work_item_id, checkpoint.metadata, checkpoint.step_id) == ("w-9", {"cost": 1}, step_id)


def test_steps_by_id_append_to_whatever_is_there(manager: CheckpointManager) -> None:
    first, second = (manager.begin_step("t", "step", {"n": n}) for n in (1, 2))
    two = manager.commit_step(second, None)
    other = manager.task("t").append({"n": 9})
    one = manager.commit_step(first, None)
    assert (other.parent_id, one.parent_id) == (two.id, other.id)


def test_a_step_is_committed_once_unless_its_checkpoint_id_makes_it_idempotent(manager: CheckpointManager) -> None:
    step_id = manager.begin_step("t", "step", {})
    pack = EvidencePack([there("run.log")])
    first = manager.commit_step(step_id, pack, checkpoint_id="mine")
    assert manager.commit_step(step_id, pack, checkpoint_id="mine").id == first.id == "mine"
    with pytest.raises(ConflictError):
        manager.commit_step(step_id, EvidencePack(), checkpoint_id="mine")
    with pytest.raises(CheckpointError):
        manager.commit_step(step_id, pack)
    with pytest.raises(NotFoundError, match="no open step"):
        manager.commit_step("never begun", pack)
    assert len(manager.list_checkpoints("t")) == 1


def test_the_callers_pack_is_left_as_it_is(manager: CheckpointManager, tmp_path: Path) -> None:
    """D2"""
    (tmp_path / "run.log").touch()
    pack = EvidencePack([there("run.log")])
    checkpoint = manager.commit_step(manager.begin_step("t", "step", {}), pack)
    assert not pack.evidence_list[0].verified
    assert checkpoint.evidence_pack.evidence_list[0].verified


def test_a_step_by_id_is_committed_by_another_process_later(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path / "r.db", user="ada") as manager:
        step_id = manager.begin_step("t", "step", {"n": 1})
    with CheckpointManager(tmp_path / "r.db", user="ada") as manager:
        assert [step.id for step in manager.open_steps("t")] == [step_id]
        assert manager.commit_step(step_id, None).state == {"n": 1}
        assert manager.open_steps() == []


def test_a_manager_goes_on_after_its_task_was_deleted_or_moved_by_others(manager: CheckpointManager) -> None:
    """`commit_step` appends to the head as it is, whatever the manager remembers."""
    first = manager.commit_step(manager.begin_step("t", "step", {"n": 1}), None)
    task = manager.task("t")
    task.restore(first)
    task.delete_branch("main")
    second = manager.commit_step(manager.begin_step("t", "step", {"n": 2}), None)
    assert second.branch_id == task.branch_id
    manager.delete_task("t")
    third = manager.commit_step(manager.begin_step("t", "step", {"n": 3}), None)
    assert (third.sequence, third.parent_id) == (1, None)


def test_a_branch_id_is_accepted_wherever_a_task_id_is(manager: CheckpointManager) -> None:
    task = manager.task("t")
    task.save({"n": 1})
    side = task.fork(name="side")
    step_id = manager.begin_step(side.id, "step", {"n": 2})
    assert [step.id for step in manager.open_steps("t")] == [step_id]
    assert [step.id for step in manager.recovery("t").running] == [step_id]
    checkpoint = manager.commit_step(step_id, None)
    assert (checkpoint.task_id, checkpoint.branch_id) == ("t", side.id)


# --- what becomes of evidence ------------------------------------------------------------------------------------


@pytest.fixture
def own_types() -> Iterator[None]:
    before = dict(check._checks)
    yield
    check._checks.clear()
    check._checks.update(before)


def prove(manager: CheckpointManager, *evidence: Evidence, **rule: Any) -> lastgood.Checkpoint:
    """A checkpoint with this evidence, as it was stored."""
    step_id = manager.begin_step("t", "step", {})
    return manager.find_checkpoint(manager.commit_step(step_id, EvidencePack(list(evidence), **rule)).id)


def pieces(checkpoint: lastgood.Checkpoint) -> list[Evidence]:
    return checkpoint.evidence_pack.evidence_list


def attested(manager: CheckpointManager, checkpoint: lastgood.Checkpoint) -> list[bool]:
    """What was recorded of it, verification by verification."""
    said = manager._engine.catalog.attestations("ada", checkpoint.id)
    return [attestation.data["verified"] for attestation, _ in said if attestation.kind == "verification"]


@pytest.mark.usefixtures("own_types")
def test_evidence_is_checked_once_however_often_its_result_is_asked_for(tmp_path: Path) -> None:
    """A commit that is tried again does not look at the world again."""
    checked: list[str] = []
    register_evidence("counted", lambda evidence, surroundings: checked.append(evidence.description))
    with EvidenceVerifier(tmp_path) as verifier:
        pack = EvidencePack([Evidence("counted", "one", {})])
        with proving(pack, lambda: verifier, {}, Redaction()) as proof:
            assert checked == []
            first = proof.finish()
            assert first is not None
            assert proof.finish() == first
    assert (first["verified"], checked) == (True, ["one"])


class Fails:
    """What raises whenever it is looked at."""

    def __fspath__(self) -> str:
        raise OSError("planted")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(object(), id="an object"),
        pytest.param(b"bytes", id="bytes"),
        pytest.param({1: "one"}, id="a key that is no text"),
        pytest.param({"deeper": [{"in": {2, 3}}]}, id="a set in a dictionary"),
        pytest.param((1 << 64,), id="a large integer"),
        pytest.param((-(1 << 63) - 1,), id="a small integer"),
        pytest.param("\ud800", id="text that is no Unicode"),
        pytest.param(Fails(), id="what raises"),
        pytest.param(list(range(20_000)), id="many"),
        pytest.param([["x"] * 100] * 200, id="many in all"),
    ],
)
@pytest.mark.parametrize("where", ["expected", "metadata"])
def test_a_piece_that_cannot_be_recorded_as_it_is_fails_alone(
    manager: CheckpointManager, tmp_path: Path, part: Any, where: str
) -> None:
    """D2, D4: what comes back is not what was claimed, so it is not called proved; the checkpoint is stored."""
    (tmp_path / "run.log").touch()
    spoiled = there("run.log")
    getattr(spoiled, where)["part"] = part
    stored = prove(manager, spoiled, there("run.log"))
    assert not stored.verified
    assert [piece.verification_error for piece in pieces(stored)] == [UNUSABLE, None]
    assert [piece.verification_status for piece in pieces(stored)] == ["failed", "verified"]


def test_what_is_nearly_plain_is_recorded_as_plain(manager: CheckpointManager, tmp_path: Path) -> None:
    (tmp_path / "run.log").touch()
    nearly = {"path": Path("run.log"), "type": "file", "pair": (1, 2.5), "limits": [(1 << 64) - 1, -(1 << 63)]}
    stored = prove(manager, Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", nearly))
    assert stored.verified
    assert pieces(stored)[0].expected == {
        "path": "run.log",
        "type": "file",
        "pair": [1, 2.5],
        "limits": [18446744073709551615, -9223372036854775808],
    }


@pytest.mark.parametrize("expected", [["run.log"], "run.log", None, 3])
def test_a_claim_that_is_no_dictionary_is_stored_as_failed_and_can_be_read(
    manager: CheckpointManager, expected: Any
) -> None:
    stored = prove(manager, Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", expected))
    assert [(piece.expected, piece.verification_error) for piece in pieces(stored)] == [({}, UNUSABLE)]
    assert manager.check_checkpoint(stored.id, evidence=False).problems == []


def test_what_the_caller_does_to_his_pack_afterwards_does_not_reach_the_checkpoint(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    """D2"""
    (tmp_path / "run.log").touch()
    pack = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "there", {"path": "run.log"}, {"by": ["ada"]})])
    checkpoint = manager.commit_step(manager.begin_step("t", "step", {}), pack)
    pack.evidence_list[0].expected["path"] = "other"
    pack.evidence_list[0].metadata["by"].append("ben")
    [piece] = pieces(checkpoint)
    assert (piece.expected, piece.metadata) == ({"path": "run.log"}, {"by": ["ada"]})


def test_a_pack_that_is_too_much_is_refused_and_its_step_stays_open(manager: CheckpointManager) -> None:
    step_id = manager.begin_step("t", "step", {})
    too_large = EvidencePack([there("x" * 4000) for _ in range(300)])
    too_many = EvidencePack([there("x")] * (MAX_EVIDENCE + 1))
    for pack in (too_large, too_many):
        with pytest.raises(InvalidError):
            manager.commit_step(step_id, pack)
    assert [step.id for step in manager.open_steps()] == [step_id]
    assert manager.commit_step(step_id, EvidencePack([there("x")])).sequence == 1


@pytest.mark.parametrize("rule", [{"min_verified": "2"}, {"min_verified": True}, {"require_all": 1}])
def test_a_rule_that_became_absurd_is_refused(manager: CheckpointManager, rule: dict[str, Any]) -> None:
    """D3"""
    pack = EvidencePack([there("run.log")])
    for name, value in rule.items():
        setattr(pack, name, value)
    with pytest.raises(InvalidError, match="rule"):
        manager.commit_step(manager.begin_step("t", "step", {}), pack)


def test_the_rule_of_a_pack_and_each_result_come_back(manager: CheckpointManager, tmp_path: Path) -> None:
    """D2, D3"""
    for name in ("one", "two"):
        (tmp_path / name).touch()
    claims = [there("one"), there("nowhere"), there("two")]
    for least, holds in ((2, True), (3, False)):
        pack = EvidencePack(claims, require_all=False, allow_partial=True, min_verified=least)
        made = manager.commit_step(manager.begin_step("t", "step", {}), pack)
        stored = manager.find_checkpoint(made.id)
        assert [checkpoint.verified for checkpoint in (made, stored)] == [holds, holds]
        assert stored.evidence_pack == made.evidence_pack
        assert [piece.verified for piece in pieces(stored)] == [True, False, True]
        assert all(piece.verified_at for piece in pieces(stored))
        assert manager.verify_checkpoint(made.id) is holds


def test_a_claim_with_a_secret_is_checked_with_it_and_never_again(manager: CheckpointManager, tmp_path: Path) -> None:
    """D10: without the secret nobody can say whether it still holds."""
    (tmp_path / f"{TOKEN}.log").touch()
    (tmp_path / "run.log").touch()
    in_a_list = Evidence(EvidenceType.ARTIFACT_EXISTS, f"for {TOKEN}", {"path": "run.log", "of": [{"who": [TOKEN]}]})
    for secret in (there(f"{TOKEN}.log"), in_a_list):
        stored = prove(manager, secret, there("run.log"))
        assert stored.verified
        assert TOKEN not in str(stored.evidence_pack.to_dict())
        assert manager.verify_checkpoint(stored.id) is False
        again = pieces(manager.find_checkpoint(stored.id))
        assert [piece.verification_status for piece in again] == ["stale", "verified"]
        assert again[0].verification_error == REDACTED
    manager.close()
    files = [file for file in (tmp_path / "registry.lastgood").rglob("*") if file.is_file()]
    assert files
    assert not any(TOKEN.encode() in file.read_bytes() for file in files)


@pytest.mark.usefixtures("own_types")
def test_what_a_check_says_is_recorded_without_secrets(manager: CheckpointManager) -> None:
    """D10: when it is committed, and when it is checked again."""
    register_evidence("leaks", lambda evidence, surroundings: f"the server refused {TOKEN}")
    stored = prove(manager, Evidence("leaks", "it answers", {}))
    assert manager.verify_checkpoint(stored.id) is False
    result = manager.check_checkpoint(stored.id)
    for shown in (pieces(stored), pieces(manager.find_checkpoint(stored.id)), result.pack.evidence_list):
        error = shown[0].verification_error or ""
        assert error.startswith("mismatch: the server refused ")
        assert TOKEN not in error


def test_looking_for_the_last_good_one_records_what_it_finds_new_and_nothing_twice(tmp_path: Path) -> None:
    """D9: one that was never checked is recorded as failed, too."""
    with CheckpointManager(tmp_path / "r.sqlite", base_path=tmp_path, user="ada", auto_verify=False) as manager:
        (tmp_path / "run.log").touch()
        good, bad, plain = prove(manager, there("run.log")), prove(manager, there("nowhere")), prove(manager)
        for _ in range(3):
            assert manager.last_good("t") is not None
            assert [attested(manager, each) for each in (good, bad, plain)] == [[True], [False], []]
        (tmp_path / "run.log").unlink()
        assert manager.recovery("t").last_good is None  # which only looks
        assert attested(manager, good) == [True]
        assert manager.last_good("t") is None
        assert attested(manager, good) == [True, False]
        assert manager.verify_checkpoint(good.id) is manager.verify_checkpoint(plain.id) is False
        assert (attested(manager, good), attested(manager, plain)) == ([True, False, False], [])


def test_damage_is_recorded_once_with_evidence_or_without(manager: CheckpointManager, tmp_path: Path) -> None:
    """A4, D4: bytes may come back; until then one that was proved is not, and one without claims is damaged."""
    (tmp_path / "run.log").touch()
    proved, plain = prove(manager, there("run.log")), prove(manager)
    catalog = manager._engine.catalog
    catalog._write(lambda connection: connection.run("UPDATE checkpoints SET root = x'00'"))  # type: ignore[attr-defined]
    for _ in range(2):
        assert manager.verify_checkpoint(proved.id) is manager.verify_checkpoint(plain.id) is False
        assert (attested(manager, proved), attested(manager, plain)) == ([True, False], [False])
    assert manager.get_last_verified_checkpoint("t") is None


# --- going back to what was proved -------------------------------------------------------------------------------


def test_the_examples_of_the_evidence_first_interface_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1 to D5: the acceptance examples, in one go."""
    monkeypatch.chdir(tmp_path)
    workdir = tmp_path / "work"
    workdir.mkdir()
    (workdir / "run.log").write_text("ok")
    (workdir / "report.txt").write_text("all good")
    digest = hashlib.sha256(b"all good").hexdigest()
    with closing(sqlite3.connect(workdir / "app.sqlite")) as database, database:
        database.execute("CREATE TABLE tasks (task_id TEXT, status TEXT)")
        database.execute("INSERT INTO tasks VALUES ('task-123', 'completed')")

    # 1. begin, commit, verified at once
    manager = CheckpointManager(db_path="store/registry.sqlite", base_path=workdir)
    step_id = manager.begin_step(
        task_id="task-123",
        checkpoint_type="tool_executed",
        snapshot={"tool": "bash", "command": "ls -la", "result": "success"},
    )
    pack = EvidencePack(
        [Evidence(evidence_type=EvidenceType.ARTIFACT_EXISTS, description="log written", expected={"path": "run.log"})]
    )
    checkpoint = manager.commit_step(step_id, pack)
    assert checkpoint.checkpoint_id
    assert checkpoint.verified

    # 2. all four core types in one pack
    four = EvidencePack(
        [
            Evidence(EvidenceType.ARTIFACT_EXISTS, "report is a file", {"path": "report.txt", "type": "file"}),
            Evidence(EvidenceType.FILE_SHA256, "report unchanged", {"path": "report.txt", "sha256": digest}),
            Evidence(
                EvidenceType.COMMAND_EXIT,
                "tests passed",
                {"exit_code": 0},
                metadata={"command": "pytest -q", "actual_exit_code": 0},
            ),
            Evidence(
                EvidenceType.DB_ROW,
                "row is there",
                {"table": "tasks", "where": {"task_id": "task-123"}, "values": {"status": "completed"}},
                metadata={"db_path": "app.sqlite"},
            ),
        ]
    )
    checkpoint = manager.commit_step(manager.begin_step("task-123", "tool_executed", {"n": 2}), four)
    assert checkpoint.verified, checkpoint.evidence_pack.to_dict()
    exits = EvidencePack([Evidence(EvidenceType.COMMAND_EXIT, "passed", {"exit_code": 0}, {"command": "pytest -q"})])
    recorded = ({"exit_code": 0}, {"commands": {"pytest -q": {"exit_code": 0}}}, {"other": 1})
    results = [manager.commit_step(manager.begin_step("exits", "step", state), exits) for state in recorded]
    assert [result.verified for result in results] == [True, True, False]
    error = results[2].evidence_pack.evidence_list[0].verification_error or ""
    assert "no exit code was recorded for this command" in error

    # 3. recovery
    last = manager.get_last_verified_checkpoint("task-123")
    assert last is not None
    snapshot = manager.rollback_to_checkpoint(last.checkpoint_id)
    assert snapshot == {"n": 2}

    # 4. partial packs
    three = [there("run.log"), there("report.txt"), there("nowhere")]
    pack = EvidencePack(evidence_list=three, require_all=False, allow_partial=True, min_verified=2)
    checkpoint = manager.commit_step(manager.begin_step("task-123", "step", {}), pack)
    summary = checkpoint.evidence_pack.verification_summary()
    assert summary == {"total": 3, "verified": 2, "failed": 1, "is_verified": True}
    manager.close()

    # 5. verify by hand
    with CheckpointManager(auto_verify=False) as manager:
        step_id = manager.begin_step("task-123", "step", {})
        checkpoint = manager.commit_step(step_id, EvidencePack([there("work/run.log"), there("work/nowhere")]))
        assert checkpoint.verified is False
        assert manager.verify_checkpoint(checkpoint.checkpoint_id) is False
        stored = manager.find_checkpoint(checkpoint.checkpoint_id)
        failed = [e.description for e in stored.evidence_pack.evidence_list if not e.verified]
        assert failed == ["work/nowhere is there"]

    # verifier alone
    with EvidenceVerifier(base_path=workdir) as verifier:
        result = verifier.verify_multiple(three)
    assert (result["total"], result["verified"], result["failed"], result["all_passed"]) == (3, 2, 1, False)
    assert result["success_rate"] == pytest.approx(2 / 3)


def test_a_loop_resumes_from_what_was_proved_and_falls_back_when_it_no_longer_is(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    """D4, D9: find the last verified, roll back, go on; when it does not verify any more, an earlier one does."""

    def work(n: int) -> None:
        (tmp_path / f"part-{n}").write_text(str(n))
        step_id = manager.begin_step("t", "tool_executed", {"done": n})
        assert manager.commit_step(step_id, EvidencePack([there(f"part-{n}")])).verified

    for n in (1, 2, 3):
        work(n)
    failed = manager.commit_step(manager.begin_step("t", "tool_executed", {"done": 4}), EvidencePack([there("no")]))
    assert not failed.verified

    last = manager.get_last_verified_checkpoint("t")
    assert last is not None
    assert manager.rollback_to_checkpoint(last.id) == {"done": 3}
    assert manager.task("t").state == {"done": 3}

    (tmp_path / "part-3").unlink()
    with pytest.raises(CheckpointError, match="part-3"):
        manager.rollback_to_checkpoint(last.id)
    good = manager.last_good("t")
    assert good is not None
    assert manager.rollback_to_checkpoint(good.id) == {"done": 2}
    work(5)
    assert [c.state["done"] for c in manager.list_checkpoints(manager.task("t").branch_id or "")] == [5, 2, 2, 1]


def test_a_checkpoint_without_evidence_is_not_rolled_back_to(manager: CheckpointManager) -> None:
    """D3, D4: an empty pack is not verified."""
    checkpoint = manager.commit_step(manager.begin_step("t", "step", {}), EvidencePack())
    assert manager.verify_checkpoint(checkpoint.id) is False
    with pytest.raises(CheckpointError, match="no evidence"):
        manager.rollback_to_checkpoint(checkpoint.id)


def test_the_last_good_one_need_not_have_evidence_if_that_is_asked_for(store: Store, tmp_path: Path) -> None:
    """D9: neither failed stages nor what a restore left behind will do."""
    task = store.task("t")
    (tmp_path / "run.log").touch()
    proved = task.save({"n": 1}, evidence=EvidencePack([there("run.log")]))
    plain = task.save({"n": 2})
    task.save({"n": 3}, evidence=EvidencePack([there("nowhere")]))
    task.save({"n": 4}, type="stage_failed")
    assert task.last_good(any=True).id == plain.id  # type: ignore[union-attr]
    assert task.last_good().id == proved.id  # type: ignore[union-attr]
    (tmp_path / "run.log").unlink()
    assert task.last_good() is None
    assert store.get_last_verified_checkpoint("t") is None


# --- after a crash -----------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import lastgood
store = lastgood.open(sys.argv[1], user="ada", base_path=sys.argv[2])
task = store.task("t")
task.save({"n": 1})
with task.step("deploy") as step:
    step.state["n"] = 2
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_step_whose_process_was_killed_is_found_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A16: what was in flight, what is the last good checkpoint, what to do; and the store opens without repair."""
    child = subprocess.run([PYTHON, "-c", KILLED, str(tmp_path / "s"), str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    with lastgood.open(tmp_path / "s", user="ada", base_path=tmp_path) as store:
        assert "'deploy'" in caplog.text
        recovery = store.recovery("t")
        [step] = recovery.interrupted
        assert (step.name, step.type, step.process.pid != os.getpid()) == ("deploy", "step", True)
        assert recovery.head is not None
        assert recovery.last_good is not None
        assert recovery.head.id == recovery.last_good.id
        assert (recovery.head.state, recovery.running, recovery.clean) == ({"n": 1}, (), False)
        assert any("deploy" in advice and step.id in advice for advice in recovery.advice)
        store.abandon_step(step.id, "done again")
        assert store.recovery("t").clean


def test_a_step_that_is_open_here_is_running_not_interrupted(store: Store) -> None:
    """A16"""
    task = store.task("t")
    task.save({})
    with task.step("edit") as step:
        recovery = task.recovery()
        assert ([begun.id for begun in recovery.running], recovery.interrupted) == ([step.id], ())
        assert any("is open in this process" in advice for advice in recovery.advice)
    assert task.recovery().clean


def test_recovery_names_one_to_go_back_to_when_the_newest_is_not_good(store: Store) -> None:
    """A16, D9"""
    task = store.task("t")
    task.save({"n": 1})
    task.save({"n": 2}, evidence=EvidencePack([there("nowhere")]))
    recovery = task.recovery()
    assert (recovery.last_good, recovery.clean) == (None, False)
    assert "task.restore('@1')" in recovery.advice[0]


def test_recovery_of_a_task_that_never_saved_says_so(store: Store) -> None:
    recovery = store.recovery("never")
    assert (recovery.head, recovery.last_good, recovery.clean) == (None, None, True)
    assert "nothing was saved yet" in recovery.advice[0]


def test_evidence_that_could_not_be_recorded_stays_failed_when_it_is_checked_again(tmp_path: Path) -> None:
    """D2, D6: what was lost of a claim cannot be checked, however well the rest holds."""
    (tmp_path / "run.log").touch()
    with CheckpointManager(tmp_path / "store", base_path=tmp_path) as manager:
        for lost in (1 << 64, object()):
            claim = Evidence("artifact_exists", "there", {"path": "run.log"}, metadata={"n": lost})
            made = manager.commit_step(manager.begin_step("t", "step", {}), EvidencePack([claim]))
            assert (made.verified, manager.verify_checkpoint(made.id)) == (False, False)
