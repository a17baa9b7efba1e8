"""run-step, steps, and what recovery says after a crash."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.crash import run_until_crash

import lastgood
from lastgood.engine.step import Step
from lastgood.model.task import Process

Run = Callable[..., Any]


def failures(data: Run) -> list[tuple[str, str]]:
    return [(one["data"]["name"], one["data"]["reason"]) for one in data("history", "--kind", "step_failed")["entries"]]


@pytest.fixture
def crashed(three: Path) -> str:
    """A step of `work` was in flight when its process was killed; the step's id."""
    code = """
import os, lastgood
step = lastgood.open().task("work").step("deploy").begin()
print(step.id, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    return done.stdout.strip()


def test_a_command_is_run_as_a_step_and_its_exit_code_and_files_are_evidence(
    run: Run, data: Run, process: Run, three: Path
) -> None:
    """D7: the exit code recorded when it ran is compared."""
    command = ["--", "sh", "-c", "echo made; echo content > out.txt"]
    done = process("run-step", "build", "--expect-file", "out.txt", *command)
    assert (done.returncode, done.stdout) == (0, "made\n")
    assert done.stderr.splitlines()[0].endswith(" @4 of work: verified")
    assert "  ok: out.txt is as it was" in done.stderr.splitlines()
    shown = data("show")
    assert (shown["type"], shown["stepId"], shown["description"]) == ("step", "build", "build")
    assert (shown["verified"], shown["verification"]) == (True, "verified")
    first, second = shown["evidence"]["evidenceList"]
    assert first["metadata"]["actual_exit_code"] == 0
    assert first["metadata"]["output_tail"] == "made\n"
    assert second["expected"]["path"] == "out.txt"
    assert json.loads(run("show", "--state").stdout) == {"n": 3}
    assert data("steps") == {"steps": []}


def test_with_json_stdout_has_the_document_alone(process: Run, folder: Path) -> None:
    done = process("run-step", "s", "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 4")
    said = json.loads(done.stdout)
    assert (done.returncode, said["exitCode"], said["checkpoint"]["verification"]) == (4, 4, "failed")
    assert sorted(done.stderr.splitlines()) == ["err", "out"]
    (claim,) = said["evidence"]
    assert (claim["evidenceType"], claim["status"]) == ("command_exit", "failed")
    assert claim["description"] == "sh -c 'echo out; echo err >&2; exit 4' ends with 0"
    assert claim["error"] == "mismatch: the command ended with 4, not 0"


def test_a_step_whose_command_fails_is_saved_as_not_verified(run: Run, data: Run, three: Path) -> None:
    result = run("run-step", "tests", "-m", "all tests", "--type", "tool_executed", "--", "false", code=1)
    assert "@4 of work: NOT verified" in result.stderr
    assert "FAILED: `false` exited 1 (expected 0)" in result.stderr
    said = data("log")["checkpoints"][0]
    assert (said["description"], said["type"], said["verification"]) == ("all tests", "tool_executed", "failed")


def test_a_step_whose_evidence_is_stale_is_called_unverified_as_in_the_log(
    run: Run, data: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been called NOT verified, which says that something is wrong."""
    (folder / "notes.txt").write_text("one")
    run("init")
    commit = Step.commit

    def remove_and_commit(step: Step) -> Any:
        (folder / "notes.txt").unlink()
        return commit(step)

    monkeypatch.setattr(Step, "commit", remove_and_commit)
    told = run("run-step", "tests", "--", "true").stderr
    assert "saved @2 of work: unverified\n  stale: " in told
    assert "notes.txt was removed after the command had ended" in told
    assert data("log")["checkpoints"][0]["verification"] == "unverified"


def test_another_exit_code_can_be_expected_and_is_still_the_exit_code(run: Run, data: Run, three: Path) -> None:
    run("run-step", "tests", "--expect", "3", "--", "sh", "-c", "exit 3", code=3)
    assert data("show")["verified"] is True


def test_a_file_that_is_not_there_fails_the_evidence(run: Run, data: Run, three: Path) -> None:
    result = run("run-step", "build", "--expect-file", "missing.txt", "--", "true")
    assert "NOT verified" in result.stderr
    assert "missing.txt is there: " in result.stderr


def test_a_file_is_named_as_one_types_it_and_kept_from_the_base_path(
    run: Run, data: Run, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base path is the folder of lastgood.toml, wherever below it one stands."""
    (three / "sub").mkdir()
    (three / "sub" / "a.txt").write_text("a")
    (three.parent / "b.txt").write_text("b")
    monkeypatch.chdir(three / "sub")
    outside = ("run-step", "s", "--expect-file", "a.txt", "--expect-file", "../../b.txt", "--", "true")
    run(*outside, code=7)
    run("trust")
    run(*outside)
    monkeypatch.chdir(three)
    paths = [one["expected"].get("path") for one in data("show")["evidence"]["evidenceList"]]
    assert paths == [None, "sub/a.txt", str(three.parent / "b.txt")]
    run("verify")


@pytest.mark.parametrize(
    ("command", "code", "kind"), [("no-such-command", 127, "not_found"), ("./not-executable", 126, "invalid")]
)
def test_a_command_that_cannot_be_started_is_said_in_words_and_recorded(
    run: Run, data: Run, three: Path, command: str, code: int, kind: str
) -> None:
    (three / "not-executable").write_text("")
    result = run("run-step", "s", "--", command, code=code)
    assert f"error: the command '{command}' cannot be started: " in result.stderr
    assert "hint: " in result.stderr
    assert json.loads(run("--json", "run-step", "s", "--", command, code=code).stderr)["error"]["code"] == kind
    assert data("log")["total"] == 3
    assert [name for name, _ in failures(data)] == ["s", "s"]
    assert data("steps") == {"steps": []}


def test_a_command_that_a_signal_ended_ends_as_in_a_shell(run: Run, data: Run, three: Path) -> None:
    run("run-step", "s", "--", "sh", "-c", "kill -KILL $$", code=137)
    assert data("show")["verification"] == "failed"


@pytest.mark.parametrize(
    ("number", "code", "reason"),
    [
        (signal.SIGINT, 130, "stopped with Ctrl-C"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_being_stopped_stops_the_command_and_is_recorded_as_failed(
    data: Run, three: Path, number: signal.Signals, code: int, reason: str
) -> None:
    command = [sys.executable, "-m", "lastgood.cli.main", "run-step", "long", "--", sys.executable, "-c"]
    child = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"  # at the latest it ends with this test
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, child], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        pid = int(process.stdout.readline())
        process.send_signal(number)
        assert process.stderr.read().strip() == (
            "interrupted; the command was ended, and the step long is recorded as failed"
        )
        assert process.wait(timeout=60) == code
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert failures(data) == [("long", reason)]
    assert (data("log")["total"], data("steps")) == (3, {"steps": []})


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["s"], "there is no command"),
        (["s", "--"], "there is no command"),
        ([], "Missing argument"),
        (["", "--", "true"], "step is empty"),
        (["s", "--type", "Not Snake", "--", "true"], "type is not snake_case"),
        (["s", "--expect", "x", "--", "true"], "not a valid integer"),
    ],
)
def test_a_bad_request_runs_nothing(run: Run, three: Path, arguments: list[str], problem: str) -> None:
    assert problem in run("run-step", *arguments, code=2).stderr


def test_the_first_step_of_a_task_makes_the_store_and_the_task(run: Run, data: Run, folder: Path) -> None:
    run("run-step", "s", "--", "true")
    assert json.loads(run("show", "--state").stdout) == {}
    assert data("log")["total"] == 1


def test_options_after_the_dashes_are_the_commands_own(run: Run, three: Path) -> None:
    assert run("run-step", "s", "--", "no-such-command", "--json", code=127).stderr.startswith("error: ")
    assert run("run-step", "", "--", "true", "--json", code=2).stderr.startswith("error: ")


def test_an_open_step_is_listed_with_who_began_it_and_whether_that_process_is_there(
    run: Run, data: Run, three: Path
) -> None:
    with lastgood.open() as store:
        step = store.task("work").step("edit").begin()
        (listed,) = data("steps")["steps"]
        assert (listed["id"], listed["name"], listed["beganBy"]) == (step.id, "edit", store.user)
        assert (listed["process"], listed["pid"]) == ("running", os.getpid())
        assert f"running ({os.getpid()} on " in run("steps").stdout
        assert run("steps", "--abandon", step.id, "--yes").stdout == f"abandoned edit ({step.id})\n"
        with pytest.raises(lastgood.ConflictError):
            step.commit()


def test_a_step_of_another_host_is_neither_running_nor_gone(data: Run, three: Path) -> None:
    with lastgood.open() as store:
        step = store.task("work").step("edit").begin()
        known, _ = store._engine.catalog.open_step(store.user, step.id) or (None, None)
        assert known is not None
        elsewhere = msgspec.structs.replace(known, id="other", process=Process("elsewhere", 1))
        store._engine.catalog.begin_step(elsewhere, None)
        assert [one["process"] for one in data("steps")["steps"]] == ["running", "unknown"]


def test_after_a_crash_status_says_what_was_in_flight_and_what_to_do(run: Run, data: Run, crashed: str) -> None:
    """A16: reopening finds the last good checkpoint and says what it found."""
    said = data("status")
    assert [(one["id"], one["process"]) for one in said["steps"]] == [(crashed, "gone")]
    assert said["lastGood"] == said["head"]["id"]
    assert crashed in said["advice"][0]
    shown = run("status").stdout
    assert "open step    deploy (its process: gone)\n" in shown
    assert "advice       the step 'deploy' was in flight when its process ended" in shown


@pytest.mark.parametrize(
    "command", [["log"], ["save", "--set", "n=4"], ["show"], ["status"], ["init"], ["restore", "@1"]]
)
def test_an_interrupted_step_is_told_by_status_alone(process: Run, crashed: str, command: list[str]) -> None:
    done = process(*command)
    assert done.returncode == 0
    assert "deploy" not in done.stderr


def test_an_interrupted_step_is_given_up_by_its_id_or_the_beginning_of_it(run: Run, data: Run, crashed: str) -> None:
    run("steps", "--abandon", "nothing", code=3)
    run("steps", "--abandon", "", code=3)
    assert data("steps", "--abandon", crashed[:13])["abandoned"]["name"] == "deploy"
    assert data("steps") == {"steps": []}
    assert (run("steps").stdout, run("steps").stderr) == ("", "no step of work is open\n")
    assert data("history", "--kind", "step_abandoned")["entries"][0]["data"]["name"] == "deploy"
    assert run("steps", "--abandon", crashed, code=3).stderr.startswith("error: there is no open step")


def test_steps_that_begin_alike_are_told_apart(run: Run, three: Path) -> None:
    with lastgood.open() as store:
        steps = [store.task("work").step(name).begin() for name in ("a", "b")]
        assert "several open steps begin with" in run("steps", "--abandon", steps[0].id[:4], code=2).stderr


def test_a_restore_whose_folder_is_gone_for_good_is_abandoned_as_its_advice_says(
    run: Run, data: Run, folder: Path
) -> None:
    (folder / "file").write_text("old")
    run("init", "--here")
    (folder / "file").write_text("new")
    run("save")
    run_until_crash(
        "rewind.FilesRestore._look_again = lambda *_: os._exit(9)\n"
        "with lastgood.open(sys.argv[1], collect='never') as store:\n"
        "    store.task('work', workspace=sys.argv[2]).restore('@1')\n",
        folder / ".lastgood",
        folder,
    )
    folder.rename(folder.parent / "gone")
    store = f"--store={folder.parent / 'gone' / '.lastgood'}"
    advice = data(store, "status", "--task", "work")["advice"][0]
    (command,) = re.findall(r"if it is gone for good, `lastgood (.*steps --abandon \S+)` ends this", advice)
    assert run(*shlex.split(command)).stdout.startswith("abandoned an interrupted restore (")
    assert "interrupted" not in data(store, "status", "--task", "work")["advice"][0]
