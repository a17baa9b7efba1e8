"""A pipeline of many stages that is killed at random moments, again and again: a program that kills, and a ledger.

    python -m tests.support.killed_pipeline STORE LEDGER KILLS SEED

Each stage appends to the ledger, which lies outside the store; after each kill somebody else looks which stages the
store has recorded as finished, and appends that. When a task is done the next one begins, until enough were killed.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
from pathlib import Path
from typing import Any

import lastgood

STAGES = 20
SECONDS = 0.1
"""Of a run: the first guess, which follows what is seen."""


def main() -> None:
    store, ledger, kills, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with lastgood.open(":memory:") as opened:
        lastgood.Pipeline([lambda ctx: ctx.state]).run(opened.task("imports"))  # once, and not in each child
    chance, killed, task, length = random.Random(seed), 0, 0, SECONDS
    note(ledger, "began", task)
    while killed < kills:
        if run_and_kill(store, ledger, task, chance.uniform(0, length)):
            killed += 1
            length *= 1.1  # too short a guess kills the beginnings alone
            aside(record_finished, store, ledger, task)
        else:
            length *= 0.8
            aside(record_finished, store, ledger, task)
            task += 1
            note(ledger, "began", task)
    aside(run, store, ledger, task)
    aside(record_finished, store, ledger, task)


def run_and_kill(store: Path, ledger: Path, task: int, after: float) -> bool:
    """Whether it was killed before it was done."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        in_child(run, store, ledger, task, writing)
    os.close(writing)
    os.read(reading, 1)  # it begins
    select.select([reading], [], [], after)  # until it is over, or the moment has come
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    os.close(reading)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "the pipeline failed by itself"
    return False


def run(store: Path, ledger: Path, task: int, begun: int | None = None) -> None:
    def effect(ctx: lastgood.StageContext) -> None:
        note(ledger, "ran", task, stage=ctx.stage, attempt=ctx.attempt, key=ctx.key)
        ctx.state.setdefault("done", []).append(ctx.stage)

    stages = [lastgood.stage(name=f"stage {number}")(effect) for number in range(STAGES)]
    with lastgood.open(store, user="tester") as opened:
        if begun is not None:
            os.write(begun, b".")
        lastgood.Pipeline(stages).run(opened.task(f"task {task}"))


def record_finished(store: Path, ledger: Path, task: int) -> None:
    """What the catalog has, whatever pipelines make of it."""
    with lastgood.open(store, user="tester") as opened:
        try:
            found = opened.list_checkpoints(f"task {task}", 1000, "stage_succeeded")
        except lastgood.NotFoundError:
            found = []
        head = opened.task(f"task {task}").head
        done = head.state.get("done", []) if head else []
        state = head.control_state if head else None
        note(ledger, "recorded", task, stages=[one.step_id for one in reversed(found)], done=done, state=state)


def note(ledger: Path, what: str, task: int, **more: Any) -> None:
    line = json.dumps({"what": what, "task": task, **more}) + "\n"
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def aside(work: Any, *arguments: Any) -> None:
    """In a process of its own, which is not killed."""
    child = os.fork()
    if child == 0:
        in_child(work, *arguments)
    assert os.waitpid(child, 0)[1] == 0, f"{work.__name__} failed"


def in_child(work: Any, *arguments: Any) -> None:
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
