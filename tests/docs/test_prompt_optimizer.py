"""The example of a prompt optimizer: rounds of layers that people take part in (A1, A11, A15, C1 to C3)."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import lastgood
from lastgood import Store

MAIN = Path(__file__).parents[2] / "examples" / "prompt_optimizer" / "main.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prompt_optimizer", MAIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Steered:
    """The pipeline in a thread of its own. When `stage` of a round is done, it is asked to pause."""

    def __init__(self, store: Store, example: ModuleType, round_: int, stage: str) -> None:
        self.control = store.task("prompt").control if store.tasks() else None
        self.store = store
        self.outcome: lastgood.types.Outcome | None = None
        self._when = (round_, stage)
        self._thread = threading.Thread(target=lambda: self._run(example.pipeline))
        self._thread.start()

    def _run(self, pipeline: lastgood.Pipeline) -> None:
        self.outcome = pipeline.run(self.store.task("prompt"), on_progress=self._pause, signals=False)

    def _pause(self, event: Any) -> None:
        if event.kind == "succeeded" and (event.progress.round, event.stage) == self._when:
            self.store.task("prompt").control.pause()

    def wait_until_paused(self) -> lastgood.Control:
        while not self.store.tasks() or self.store.task("prompt").control.state != "paused":
            assert self._thread.is_alive()
            threading.Event().wait(0.01)
        return self.store.task("prompt").control

    def end(self) -> lastgood.types.Outcome:
        self._thread.join(60)
        assert self.outcome is not None
        return self.outcome


def test_each_round_makes_the_prompt_better(store: Store, example: ModuleType) -> None:
    outcome = example.pipeline.run(store.task("prompt"))
    scores = outcome.state["scores"]
    assert scores == sorted(scores)
    assert len(scores) == 4
    assert scores[-1] > scores[0]
    done = [one.step_id for one in reversed(store.list_checkpoints("prompt")) if one.type == "stage_succeeded"]
    assert done == [layer.__name__ for layer in example.LAYERS] * 3
    assert [one.iteration for one in store.list_checkpoints("prompt", 1)] == [3]


def test_people_edit_and_guide_while_it_is_paused(store: Store, example: ModuleType) -> None:
    work = Steered(store, example, 1, "propose_candidates")
    control = work.wait_until_paused()
    best = "\n".join([example.FIRST_PROMPT, '"crashes" means bug.', '"error" means bug.', '"thank" means praise.'])
    control.edit("candidate 2", best)
    control.guide("do without: love")
    control.resume()
    outcome = work.end()
    assert outcome.state["current_prompt"].startswith(best)
    assert "love" not in outcome.state["current_prompt"]
    head = store.task("prompt").head
    assert head is not None
    assert [said["text"] for said in head.guidance] == ["do without: love"]
    edited = [one for one in store.list_checkpoints("prompt") if one.type == "edited"]
    assert edited[0].artifacts[1]["version"] == 2


def test_it_goes_back_and_another_way_on_a_branch(store: Store, example: ModuleType) -> None:
    task = store.task("prompt")
    first = example.pipeline.run(task)
    evaluated = [one for one in reversed(store.list_checkpoints("prompt")) if one.step_id == "evaluate"]
    task.restore(evaluated[0])
    task.control.guide("do without: crashes error love thank")
    again = example.pipeline.run(task)
    assert again.state["current_prompt"] != first.state["current_prompt"]
    assert again.state["scores"][:2] == first.state["scores"][:2]
    side = task.fork(evaluated[1], name="another way")
    third = example.pipeline.run(side)
    assert third.state == first.state  # nothing was said on that branch
    assert len(store.branches("prompt")) == 3


def test_more_rounds_go_on_where_it_was_done(store: Store, example: ModuleType) -> None:
    task = store.task("prompt")
    first = example.pipeline.run(task)
    assert example.pipeline.run(task).checkpoint.id == first.checkpoint.id
    task.control.add_rounds(2)
    more = example.pipeline.run(task)
    assert len(more.state["scores"]) == 6
    assert more.state["scores"][-1] >= first.state["scores"][-1]


def test_the_function_that_stands_for_a_model_does_as_it_is_told(example: ModuleType) -> None:
    perfect = '"love" means praise. "thank" means praise. "crashes" means bug. "error" means bug.'
    assert example.score(perfect) == 1.0
    work: Callable[[str], float] = example.score
    assert work(example.FIRST_PROMPT) == 0.3


def test_people_can_do_what_its_page_shows(tmp_path: Path) -> None:
    """In the order of the page, in two terminals."""
    lines = [line for line in MAIN.with_name("README.md").read_text().splitlines() if line.startswith("    ")]
    plain, stepwise, pause, *steering, more_rounds, log, back = [shlex.split(line, comments=True) for line in lines]
    assert [words[1] for words in steering] == ["edit", "guide", "resume"]
    environment = {**os.environ, "LASTGOOD_STORE": "WORKDIR"}
    (tmp_path / "better.txt").write_text('Sort each message. "error" means bug. "crashes" means bug.')

    def begin(words: list[str]) -> subprocess.Popen[str]:
        program = {"python": ["-W", "error", str(MAIN)], "lastgood": ["-m", "lastgood.cli.main", words[1]]}[words[0]]
        pipe = subprocess.PIPE
        command = [sys.executable, *program, *words[2:]]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe, text=True)

    def finish(words: list[str]) -> str:
        with begin(words) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, words
        return said

    with begin(stepwise) as work:
        assert work.stdin is not None
        assert work.stdout is not None
        for layer in ("find_patterns", "distil_rules", "propose_candidates"):
            assert work.stdout.readline() == f"round 1: {layer} begins; Enter lets it go on\n"
            if layer == "propose_candidates":
                finish(pause)
            print(file=work.stdin, flush=True)
            assert work.stdout.readline() == f"round 1: {layer}\n"
        for words in steering:
            finish(words)
        said, _ = work.communicate("\n" * 9, timeout=60)
    assert work.returncode == 0
    assert '"crashes" means bug.' in said.partition("done: ")[2]
    assert "love" not in said
    finish(more_rounds)
    assert "round 5: evaluate" in finish(plain)
    assert "stage_succeeded" in finish(log)
    assert finish(back).startswith("restored ")
