"""One line in the log for each operation: who, what, on which task, from which state to which (A7; finding 12)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lastgood import CheckpointError, CheckpointManager, Evidence, EvidencePack, EvidenceType, Task, correlation

FIELDS = {"correlation_id", "user_id", "task_id", "action", "prev_state", "new_state", "iteration_state", "timestamp"}
PAUSED = {"control_state": "paused", "iteration_state": "judging"}
MISSING = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": "nowhere"})])


class Ground(NamedTuple):
    """A paused task with a running branch beside it, an open step and an open request."""

    manager: CheckpointManager
    task: Task
    side: str
    old: str
    step: str


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    manager = CheckpointManager(tmp_path / "store", base_path=tmp_path, user="ada")
    task = manager.task("t")
    first = task.save({"n": 1}, control_state="running", iteration_state="judging")
    side = task.fork(first, name="side")
    task.save({"n": 2}, **PAUSED)  # type: ignore[arg-type]
    step = manager.begin_step("t", "step", {})
    return Ground(manager, task, side.id, first.id, step)


Act = Callable[[Ground], Any]
STAYS = ("paused", "paused")
OPERATIONS: dict[str, tuple[Act, str, tuple[str, str] | None]] = {
    "save": (
        lambda on: on.task.save({}, control_state="running", iteration_state="judging"),
        "save",
        ("paused", "running"),
    ),
    "append": (lambda on: on.task.append({}, iteration_state="judging"), "save", STAYS),
    "step": (lambda on: on.task.step("s", iteration_state="judging").begin(), "begin_step", STAYS),
    "begin_step": (lambda on: on.manager.begin_step("t", "step", {}), "begin_step", STAYS),
    "fail": (lambda on: on.task.step("s").begin().fail("no"), "step_failed", STAYS),
    "abandon_step": (lambda on: on.manager.abandon_step(on.step), "step_abandoned", STAYS),
    "tag": (lambda on: on.manager.tag(on.old, "green"), "tag", STAYS),
    "Task.tag": (lambda on: on.task.tag(on.old, "green"), "tag", STAYS),
    "untag": (lambda on: _untag(on), "untag", STAYS),
    "delete_checkpoint": (lambda on: on.manager.delete_checkpoint(on.old), "deleted", STAYS),
    "undelete_checkpoint": (lambda on: _undelete(on), "undeleted", STAYS),
    "purge_checkpoint": (lambda on: on.manager.purge_checkpoint(on.old), "purge", STAYS),
    "delete_old_checkpoints": (lambda on: on.manager.delete_old_checkpoints("t", 0), "delete_old", STAYS),
    "verify_checkpoint": (lambda on: on.manager.verify_checkpoint(on.old), "verify", STAYS),
    "restore": (lambda on: on.task.restore(on.old), "restore", None),
    "rollback": (lambda on: on.manager.task("t").restore(on.old, "state"), "restore", None),
    "fork": (lambda on: on.task.fork(on.old), "fork", None),
    "undo": (lambda on: (on.task.switch("side"), on.task.undo()), "undo", ("running", "paused")),
    "redo": (lambda on: (on.task.switch("side"), on.task.undo(), on.task.redo()), "redo", ("paused", "running")),
    "switch": (lambda on: on.task.switch("side"), "switch", ("paused", "running")),
    "delete_branch": (lambda on: on.manager.delete_branch(on.side), "delete_branch", ("running", "running")),
    "Task.delete_branch": (lambda on: on.task.delete_branch("side"), "delete_branch", ("running", "running")),
    "delete_task": (lambda on: on.manager.delete_task("t"), "delete_task", STAYS),
    "resume": (lambda on: on.task.control.resume(), "resume", STAYS),
    "guide": (lambda on: on.task.control.guide("x"), "guide", STAYS),
    "stop": (lambda on: on.task.control.stop(), "stop", STAYS),
    "withdraw": (lambda on: on.task.control.withdraw(on.task.control.resume(id="r").request.id), "withdraw", STAYS),  # type: ignore[union-attr]
    "session": (lambda on: _hold(on.task), "session_begun", STAYS),
    "session's end": (lambda on: _hold(on.task), "session_ended", STAYS),
}
OF_THE_STORE: dict[str, Act] = {
    "collect": lambda on: on.manager.collect(grace=0),
    "limit": lambda on: on.manager.limit(1 << 40),
    "replay": lambda on: on.manager.replay(),
    "repair": lambda on: on.manager.repair(),
}


def _untag(on: Ground) -> None:
    on.manager.tag(on.old, "green")
    on.manager.untag(on.old, "green")


def _undelete(on: Ground) -> None:
    on.manager.delete_checkpoint(on.old)
    on.manager.undelete_checkpoint(on.old)


def _hold(task: Task) -> None:
    with task.session(), contextlib.suppress(RuntimeError):
        raise KeyboardInterrupt


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.lastgood for record in caplog.records]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_leaves_a_line_with_all_of_its_fields(
    ground: Ground, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A7, finding 12."""
    act, action, states = OPERATIONS[name]
    with caplog.at_level(logging.INFO, "lastgood"), correlation("c-1"), contextlib.suppress(KeyboardInterrupt):
        act(ground)
    line = [line for line in _lines(caplog) if line.get("action") == action][-1]
    assert line.keys() >= FIELDS
    told = {name: line[name] for name in ("correlation_id", "user_id", "task_id", "iteration_state")}
    assert told == {"correlation_id": "c-1", "user_id": "ada", "task_id": "t", "iteration_state": "judging"}
    assert line["timestamp"] > 0
    if states is not None:
        assert (line["prev_state"], line["new_state"]) == states


@pytest.mark.parametrize("name", OF_THE_STORE)
def test_what_is_about_the_whole_store_leaves_a_line_too(
    ground: Ground, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A7, finding 12."""
    with caplog.at_level(logging.INFO, "lastgood"), correlation("c-1"):
        OF_THE_STORE[name](ground)
    line = next(line for line in _lines(caplog) if line.get("action") == name)
    assert (line["correlation_id"], line["user_id"], line["task_id"]) == ("c-1", "ada", "")


@pytest.mark.parametrize("name", [*OPERATIONS, *OF_THE_STORE])
def test_each_line_has_a_correlation_also_where_none_was_given(
    ground: Ground, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A7, finding 12."""
    act = OPERATIONS[name][0] if name in OPERATIONS else OF_THE_STORE[name]
    with caplog.at_level(logging.INFO, "lastgood"), contextlib.suppress(KeyboardInterrupt):
        act(ground)
    lines = [line for line in _lines(caplog) if "action" in line]
    assert lines
    assert all(line["correlation_id"] for line in lines)


def test_what_is_refused_leaves_a_line(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    """A7, B8, finding 12: conflicts and constraint violations, with the reason."""
    with caplog.at_level(logging.INFO, "lastgood"):
        for refused in (lambda: ground.manager.task("t").save({"n": 9}, id=ground.old), lambda: _tag_twice(ground)):
            caplog.clear()
            with pytest.raises(CheckpointError) as caught:
                refused()
            line = [line for line in _lines(caplog) if line.get("error")][-1]
            assert (line["error"], line["task_id"]) == (caught.value.code, "t")
            assert line["reason"]


def _tag_twice(ground: Ground) -> None:
    ground.task.tag(ground.old, "green")
    ground.task.tag("HEAD" if ground.task.head is None else ground.task.head.id, "green")


def test_evidence_that_fails_leaves_a_line(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    """A7, finding 12: when it is committed, and when it is checked again; without secrets."""
    with caplog.at_level(logging.INFO, "lastgood"):
        made = ground.task.append({}, evidence=MISSING)
        ground.manager.verify_checkpoint(made.id)
    lines = [line for line in _lines(caplog) if line.get("action") == "evidence_failed"]
    assert [(line["checkpoint_id"], line["description"]) for line in lines] == [(made.id, "it is there")] * 2


def test_files_that_are_missing_or_unreadable_leave_a_line(
    ground: Ground, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A7, B7, finding 12."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "there").write_text("x")
    task = ground.manager.task("files", workspace=folder)
    with caplog.at_level(logging.INFO, "lastgood"):
        task.save({}, files=["there", "not-there"])
    (line,) = [line for line in _lines(caplog) if line.get("action") == "file_skipped"]
    assert (line["path"], line["task_id"], line["reason"].startswith("missing")) == ("not-there", "files", True)
