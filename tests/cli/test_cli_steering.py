"""Steering work that another process does, from the command line (A11, A15)."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

import lastgood
from lastgood.cli.app import app
from lastgood.cli.invocation import Invocation

Run = Callable[..., Any]

PROGRAM = """
import sys
import lastgood

memory = {"n": 0}
with lastgood.open(".lastgood") as store:
    task = store.task("work")
    with task.session(state=lambda: memory, load=memory.update, executor="the program") as session:
        print("begun", flush=True)
        for line in sys.stdin:
            word, _, more = line.strip().partition(" ")
            said = "done"
            if word == "boundary":
                session.boundary()
            elif word == "ask":
                said = session.ask("Deploy?", choices=["yes", "no"])
            elif word == "save":
                memory["n"] = int(more)
                session.save(artifacts=[{"id": "a", "name": "prompt", "version": 1, "content": "old"}])
            elif word == "told":
                said = " ".join(one["text"] for one in session.guidance if "text" in one)
            elif word == "n":
                said = str(memory["n"])
            print(said, flush=True)
    print(session.stopped, flush=True)
"""


class Program:
    """A loop that somebody wrote, in a process of its own: it does what it reads, and says when it has."""

    def __init__(self, script: str = PROGRAM) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True)
        assert self.hear() == "begun"

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def do(self, word: str) -> str:
        self.tell(word)
        return self.hear()

    def end(self) -> str:
        """Let it come to its end; the last that it says."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        said = self.hear()
        self.process.wait(timeout=60)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def begin(folder: Path) -> Iterator[Callable[[], Program]]:
    """Begin the program."""
    (folder / "lastgood.toml").write_text('store = ".lastgood"\ntask = "work"\n')
    begun: list[Program] = []

    def begin() -> Program:
        begun.append(Program())
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


@pytest.fixture
def program(begin: Callable[[], Program]) -> Program:
    return begin()


def wait_until(data: Run, state: str) -> None:
    while data("status")["runControlState"] != state:
        pass


def test_work_is_paused_and_resumed_by_others(run: Run, data: Run, program: Program) -> None:
    asked = data("pause", "work", "--id", "mine")
    assert (asked["fulfilled"], asked["alive"], asked["runControlState"]) == (False, True, "running")
    assert (asked["request"]["kind"], asked["request"]["status"], asked["request"]["id"]) == ("pause", "open", "mine")
    program.tell("boundary")
    assert data("pause", "--id", "mine", "--wait")["runControlState"] == "paused"
    assert run("pause").stdout == "it is paused already\n"
    assert run("resume", "work", "--wait").stdout == "work was resumed, and is running now\n"
    assert program.hear() == "done"
    assert program.end() == "None"


def test_people_are_told_when_it_will_be_done(run: Run, program: Program) -> None:
    said = run("pause")
    assert said.stdout == "Request to pause sent; work will pause at its next boundary\n"
    assert run("guide", "be brief").stdout == "Guidance sent; work will see it at its next boundary\n"
    assert said.stderr.startswith("request ")


@pytest.mark.parametrize(("kind", "reason"), [("stop", "stopped"), ("cancel", "cancelled")])
def test_work_is_ended_at_its_next_boundary(run: Run, data: Run, program: Program, kind: str, reason: str) -> None:
    run(kind, "work")
    assert program.do("boundary") == reason
    program.process.wait(timeout=60)
    assert data("status")["head"]["type"] == reason
    again = data("retry")
    assert (again["fulfilled"], again["alive"], again["runControlState"]) == (False, False, "stopped")
    assert "the work is not running" in again["note"]


def test_waiting_ends_with_11_when_it_is_not_done_in_time(run: Run, data: Run, program: Program) -> None:
    assert data("stop", "--wait", "0", code=11)["fulfilled"] is False
    run("stop", "work", "--wait", "0s", code=11)
    assert program.do("boundary") == "stopped"


def test_what_waits_for_a_program_that_was_killed_is_done_all_the_same(
    run: Run, process: Run, data: Run, program: Program
) -> None:
    """Nobody is left to come to a boundary."""
    data("stop", "--id", "mine")
    program.kill()
    assert data("stop", "--id", "mine", "--wait")["runControlState"] == "stopped"


def test_what_cannot_be_done_any_more_is_refused_with_its_reason(run: Run, program: Program) -> None:
    run("pause", "--id", "mine")
    program.end()
    refused = run("pause", "--id", "mine", "--wait", code=4).stderr
    assert "work that is completed cannot be paused" in refused
    assert "lastgood status --task work" in refused
    error = json.loads(run("stop", "--json", code=4).stderr)["error"]
    assert (error["code"], error["detail"]) == ("control", "work that is completed cannot be stopped")


def test_guidance_reaches_the_work(run: Run, data: Run, program: Program) -> None:
    run("guide", "work", "shorter")
    run("guide", "work", "-", input="and\nclearer\n")
    program.do("boundary")
    assert program.do("told") == "shorter and"
    assert program.hear() == "clearer"
    assert [one["text"] for one in data("show")["guidance"]] == ["shorter", "and\nclearer"]
    assert "guidance     shorter" in run("show").stdout


def test_more_rounds_are_asked_for(run: Run, data: Run, program: Program) -> None:
    run("rounds", "work", "2", "--id", "two")
    program.do("boundary")
    assert data("rounds", "work", "2", "--id", "two")["fulfilled"] is True
    assert data("show")["guidance"][0]["rounds"] == 2
    run("rounds", "work", "0", code=2)


def test_a_question_is_shown_and_answered(run: Run, data: Run, program: Program) -> None:
    assert data("answer")["question"] is None
    assert run("answer", "work").stderr == "it asks no question\n"
    program.tell("ask")
    wait_until(data, "waiting_for_input")
    assert run("answer", "work").stdout == "Deploy?\n  1  yes\n  2  no\n"
    assert data("answer", "work")["question"]["choices"] == ["yes", "no"]
    assert "'perhaps' is not one of the choices" in run("answer", "work", "perhaps", code=2).stderr
    assert run("answer", "work", "yes", "--wait").stdout == "work was answered, and is running now\n"
    assert program.hear() == "yes"
    assert "decision     Deploy? yes" in run("show").stdout
    assert "has asked nothing" in run("answer", "work", "no", code=4).stderr


def test_an_artifact_is_edited_from_a_file_or_stdin(run: Run, data: Run, program: Program, folder: Path) -> None:
    program.do("save 1")
    (folder / "new").write_text("new\n")
    run("edit", "work", "prompt", "--file", "new")
    program.do("boundary")
    shown = data("show")["artifacts"][0]
    assert (shown["content"], shown["version"]) == ("new\n", 2)
    run("edit", "work", "a", "--file", "-", input="newer")
    program.do("boundary")
    assert data("show")["artifacts"][0]["content"] == "newer"
    assert "artifact     prompt (version 3)" in run("show").stdout
    assert "there is no artifact 'nothing'" in run("edit", "work", "nothing", "--file", "-", input="x", code=3).stderr
    assert "Missing option '--file'" in run("edit", "work", "prompt", code=2).stderr


def test_what_is_not_text_is_edited_as_json(run: Run, data: Run, three: Path) -> None:
    with lastgood.open(three / ".lastgood") as store:
        store.task("work").save({}, artifacts=[{"name": "rules", "content": {"a": [1]}}])
    assert data("edit", "work", "rules", "--file", "-", input='{"a": [1, 2]}')["fulfilled"] is True
    assert data("show")["artifacts"][0]["content"] == {"a": [1, 2]}
    assert "is not JSON" in run("edit", "work", "rules", "--file", "-", input="{", code=2).stderr


class Terminal:
    """A command whose stdin, stdout and stderr are a terminal."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.parent, child = pty.openpty()
        command = [sys.executable, "-m", "lastgood.cli.main", *arguments]
        given = {**os.environ, **environment}
        self.process = subprocess.Popen(command, env=given, stdin=child, stdout=child, stderr=child)
        os.close(child)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.parent, text.encode())

    def read_until(self, text: str) -> None:
        while text not in self.shown:
            self.shown += os.read(self.parent, 4096).decode()

    def end(self) -> int:
        try:
            while chunk := os.read(self.parent, 4096):
                self.shown += chunk.decode()
        except OSError:
            pass  # Linux says so when the other side is closed
        os.close(self.parent)
        return self.process.wait(timeout=60)


def test_on_a_terminal_an_answer_is_asked_for(data: Run, program: Program) -> None:
    program.tell("ask")
    wait_until(data, "waiting_for_input")
    terminal = Terminal("answer", "work")
    terminal.read_until("answer:")
    terminal.type("perhaps\n")
    terminal.read_until("not one of the choices")
    terminal.type("2\n")
    assert terminal.end() == 0
    assert program.hear() == "no"


def test_while_a_session_works_there_a_restore_is_asked_of_it(run: Run, data: Run, program: Program) -> None:
    program.do("save 1")
    program.do("save 2")
    asked = data("restore", "@2", "--id", "back")
    assert (asked["fulfilled"], asked["request"]["kind"], asked["request"]["data"]["what"]) == (
        False,
        "restore",
        "both",
    )
    program.tell("boundary")
    assert run("restore", "@2", "--id", "back", "--wait").stdout == "work was restored, and is running now\n"
    assert program.hear() == "done"
    assert program.do("n") == "1"
    assert (
        "cannot be asked for some files alone" in run("restore", "@2", "--path", "x", "--workspace", ".", code=4).stderr
    )
    run("restore", "@2", "--dry-run")


def test_a_restore_that_a_killed_program_did_not_come_to_is_done_with_the_files_here(
    run: Run, data: Run, program: Program, folder: Path
) -> None:
    here = ("--workspace", "files")
    (folder / "files").mkdir()
    program.do("save 1")
    data("restore", "@1", "--id", "back")
    program.kill()
    (folder / "files" / "a").write_text("one")
    good = data("save", *here)["checkpoint"]["sequence"]
    (folder / "files" / "a").write_text("two")
    run("save", *here)
    assert data("restore", f"@{good}", "--id", "other", "--wait", *here)["fulfilled"] is True
    assert (folder / "files" / "a").read_text() == "one"
    assert data("restore", "@1", "--id", "back", "--wait", *here)["fulfilled"] is True
    assert data("requests")["requests"] == []
    assert data("show", "--state") == {"n": 0}


def test_with_force_the_lease_is_taken_away_and_the_program_is_refused(run: Run, data: Run, program: Program) -> None:
    """C6."""
    program.do("save 1")
    program.do("save 2")
    said = run("restore", "@2", "--force")
    assert "restored @2" in said.stdout
    assert said.stderr.count("WARNING: ") == 2
    assert "the lease of the program was taken away" in said.stderr
    assert data("status")["worker"] is None
    assert program.do("save 3") == ""
    assert program.process.wait(timeout=60) == 1
    assert data("show")["sequence"] == data("status")["head"]["sequence"] == 4
    kinds = [entry["kind"] for entry in data("history")["entries"]]
    assert "taken_over" in kinds
    assert run("restore", "@2", "--force").stderr.count("WARNING") == 0


def test_status_says_who_works_on_it_what_it_asks_and_what_is_asked(run: Run, data: Run, program: Program) -> None:
    worker = data("status")["worker"]
    assert (worker["executor"], worker["pid"], worker["process"]) == ("the program", program.process.pid, "running")
    assert worker["leaseLive"] is True
    program.tell("ask")
    wait_until(data, "waiting_for_input")
    run("pause", "--id", "mine")
    shown = run("status").stdout
    for line in ("work         waiting for input", "asks         Deploy? (yes, no)", "requested    pause by "):
        assert line in shown
    assert f"run by       the program since {worker['since'][:4]}" in shown
    assert f"(process {program.process.pid})" in shown
    assert "advice       it waits for an answer: `lastgood answer work`" in shown
    program.kill()
    shown = run("status").stdout
    assert "(its process is gone; the next run takes over at once)" in shown
    assert "it is not running" in shown
    assert data("status")["worker"]["process"] == "gone"


def test_status_says_how_far_a_pipeline_has_come(run: Run, data: Run, three: Path) -> None:
    """C1; also when others made the newest checkpoints."""
    assert data("status")["progress"] is None
    told: dict[str, Any] = {"pipeline": "p", "run": "r", "completed": ["fetch"], "last": 0, "plan": ["train", "test"]}
    told |= {"round": 2, "rounds": 3, "attempts": 2}
    with lastgood.open(three / ".lastgood") as store:
        store.task("work").save({}, type="stage_succeeded", control_state="running", metadata={"progress": told})
    run("stop", "work")
    assert "progress     1 of 3 stages done, then train (begun 2 times); round 2 of 3\n" in run("status").stdout
    progress = data("status")["progress"]
    assert (progress["stages"], progress["completed"]) == (["fetch", "train", "test"], 1)
    for broken in ("x", {"completed": 3}, {"finished": 2}):
        with lastgood.open(three / ".lastgood") as store:
            store.task("work").save({}, metadata={"progress": broken})
        assert data("status")["progress"] is None


def test_requests_are_listed_and_taken_back(run: Run, data: Run, program: Program) -> None:
    assert run("requests").stderr == "no pending requests\n"
    asked = data("guide", "work", "shorter\x1b[2J")["request"]["id"]
    run("pause", "--id", "mine")
    listed = run("requests", "work").stdout
    assert "\x1b" not in listed
    assert [one["kind"] for one in data("requests")["requests"]] == ["guide", "pause"]
    assert data("requests", "--withdraw", asked)["withdrawn"]["status"] == "refused"
    assert run("requests", "--withdraw", "mi").stdout == "withdrew the request to pause (mine)\n"
    run("requests", "--withdraw", "mine", code=3)
    program.do("boundary")
    assert program.do("told") == ""


def test_a_task_that_is_not_there_is_said_so(run: Run, three: Path) -> None:
    for arguments in (["pause", "nothing"], ["guide", "nothing", "x"], ["answer", "nothing"], ["requests", "nothing"]):
        assert "there is no task 'nothing'" in run(*arguments, code=3).stderr
    assert "name one" in run("pause", "work", "--task", "other", code=2).stderr


def offered(*words: str) -> list[str]:
    shell = ShellComplete(app, {"obj": Invocation()}, "lastgood", "_LASTGOOD_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_the_shell_is_told_tasks_artifacts_choices_and_requests(run: Run, data: Run, program: Program) -> None:
    program.do("save 1")
    run("guide", "work", "x", "--id", "mine")
    program.tell("ask")
    wait_until(data, "waiting_for_input")
    assert offered("pause", "w") == ["work"]
    assert offered("edit", "work", "p") == ["prompt"]
    assert offered("answer", "work", "") == ["yes", "no"]
    run("pause", "--id", "later")
    assert "later" in offered("requests", "--withdraw", "l")
    assert offered("--store", "nowhere", "pause", "") == []


def test_wait_takes_a_span_of_time_or_nothing(run: Run, three: Path) -> None:
    for words in (["work", "--wait"], ["--wait", "--task", "work"], ["--wait", "90s", "work"], ["--wait=5", "work"]):
        assert "cannot be paused" in run("pause", *words, code=4).stderr
    assert "'work' is no span of time" in run("pause", "--wait", "work", code=2).stderr
