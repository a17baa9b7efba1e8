"""Steps: with evidence about files, with a list that only grows, and one that fails and puts its files back."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.ledger import Content, state_digest, tree_lines
from tests.faults.scenarios.scenario import Scenario
from tests.faults.worker import Worker, captured, write_files

import lastgood


def _talk(worker: Worker) -> None:
    write_files(worker.sandbox.work, ["a", "b", "deep/c"], seed=1, size=400)
    said = lastgood.AppendList()
    for number in range(3):
        said.append({"turn": number, "text": f"turn {number} " * 40})
        worker.save(worker.task, {"said": said, "n": number}, f"save {number}")


def _step_with_evidence(worker: Worker) -> None:
    task = worker.task
    state = task.state
    for number in range(2):
        worker.doing = name = f"step {number}"
        worker.ledger.expect(f"step {name}", [False, True])
        step = task.step(name, message=name).begin()
        write_files(worker.sandbox.work, ["a", f"out/{number}"], seed=10 + number, size=300)
        step.expect_file("a")
        step.expect_file(f"out/{number}")
        state["said"].append({"turn": name, "text": f"more {number} " * 40})
        step.state = state
        content = Content(state_digest(state), worker.look())
        worker.make(name, content, step.commit, head_of="work")
        worker.ledger.expect(f"step {name}", [False])


class _MishapError(Exception):
    pass


class _Failed(NamedTuple):
    failed: list[tuple[str, str]]


def _step_that_fails(worker: Worker) -> None:
    """What it did to the files is kept in a checkpoint, and they are as they were when it began."""
    task, before = worker.task, captured(tree_lines(worker.sandbox.work))

    def fail() -> _Failed:
        """What did not work besides is noted with what went wrong first."""
        error = _MishapError("as planned")
        step.__exit__(_MishapError, error, None)
        return _Failed([("mishap", note) for note in getattr(error, "__notes__", ())])

    worker.ledger.expect("step mishap", [False, True])
    step = task.step("mishap", on_error="restore").begin()
    _break_files(worker)
    worker.move("mishap", fail, to=before, present=task.state)
    worker.ledger.expect("step mishap", [False])
    worker.save(task, _later(task.state), "after the mishap")


def _break_files(worker: Worker) -> None:
    write_files(worker.sandbox.work, ["a", "out/new", "deep/more/d"], seed=20, size=300)
    with shim.pause():
        (worker.sandbox.work / "b").unlink()


def _later(state: Any) -> Any:
    state["said"].append("later")
    return state


SCENARIOS = {
    "step with evidence": Scenario(_talk, _step_with_evidence),
    "step that fails": Scenario(_talk, _step_that_fails),
}
