"""Questions about tasks and checkpoints that are not there: answered as the types say, never by an exception (D4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastgood import CheckpointManager, Evidence, EvidencePack, EvidenceType, NotFoundError, Store, aio
from lastgood import open as open_store

ANSWERS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "get_checkpoint": (lambda store: store.get_checkpoint("unknown"), None),
    "get_last_verified_checkpoint": (lambda store: store.get_last_verified_checkpoint("new"), None),
    "get_last_verified_checkpoint of a type": (lambda store: store.get_last_verified_checkpoint("new", "step"), None),
    "last_good": (lambda store: store.last_good("new"), None),
    "list_checkpoints": (lambda store: store.list_checkpoints("new"), []),
    "verify_checkpoint": (lambda store: store.verify_checkpoint("unknown"), False),
    "delete_checkpoint": (lambda store: store.delete_checkpoint("unknown"), False),
    "delete_old_checkpoints": (lambda store: store.delete_old_checkpoints("new", 3), 0),
}


@pytest.mark.parametrize("opened", [open_store, CheckpointManager])
@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_not_there_is_answered_and_not_raised(
    tmp_path: Path, opened: Callable[[Path], Store], name: str
) -> None:
    """D4, finding 9."""
    ask, answer = ANSWERS[name]
    with opened(tmp_path / "store") as store:
        assert ask(store) == answer
        store.task("t").save({})
        assert ask(store) == answer


@pytest.mark.parametrize("opened", [aio.open, aio.open_manager])
@pytest.mark.parametrize("name", ANSWERS)
def test_awaited_it_is_answered_alike(tmp_path: Path, opened: Callable[[Path], Any], name: str) -> None:
    """D4, finding 9: aio."""
    ask, answer = ANSWERS[name]

    async def main() -> None:
        async with opened(tmp_path / "store") as store:
            assert await ask(store) == answer
            task = await store.task("new")
            assert await task.last_good() is None

    asyncio.run(main())


def test_a_new_task_has_no_last_good_checkpoint(store: Store) -> None:
    """D4, finding 9: a handle answers as the store does."""
    assert store.task("new").last_good() is None


def test_a_rollback_to_an_unknown_checkpoint_is_refused(tmp_path: Path) -> None:
    """D4: there is no state to return."""
    with CheckpointManager(tmp_path / "store") as manager, pytest.raises(NotFoundError, match="no checkpoint"):
        manager.rollback_to_checkpoint("unknown")


def test_the_resume_loop_runs_on_a_new_task_and_goes_on_afterwards(tmp_path: Path) -> None:
    """D4, finding 9: example 3 of requirements D."""
    (tmp_path / "run.log").write_text("done")
    there = Evidence(EvidenceType.ARTIFACT_EXISTS, "log written", {"path": "run.log"})

    def run(rounds: int) -> list[int]:
        with CheckpointManager(tmp_path / "store", base_path=tmp_path) as manager:
            last = manager.get_last_verified_checkpoint("task-123")
            done: list[int] = [] if last is None else manager.rollback_to_checkpoint(last.checkpoint_id)["done"]
            while len(done) < rounds:
                done = [*done, len(done)]
                step_id = manager.begin_step("task-123", "tool_executed", {"done": done})
                assert manager.commit_step(step_id, EvidencePack([there])).verified
            return done

    assert run(2) == [0, 1]
    assert run(4) == [0, 1, 2, 3]
