"""restore, fork, undo, redo, branch: going back and aside, and what is refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lastgood

Run = Callable[..., Any]


@pytest.fixture
def failed(run: Run, three: Path) -> Path:
    """On top of three good checkpoints one whose evidence does not hold."""
    run("run-step", "tests", "--", "false", code=1)
    return three


def test_restore_goes_back_on_a_new_branch_and_keeps_what_was_left(run: Run, data: Run, three: Path) -> None:
    """E3: the state is the checkpoint's exactly; the original stays."""
    said = data("restore", "@2", "-m", "it was better")
    assert said["checkpointId"] == data("show", "@2")["id"]
    assert said["before"] == data("show", "@3")["id"]
    assert said["newCheckpointId"] == said["checkpoint"]["id"] == data("show", "HEAD")["id"]
    assert said["branch"] == "main-2"
    assert (said["checkpoint"]["type"], said["checkpoint"]["description"]) == ("restored", "it was better")
    assert json.loads(run("show", "--state").stdout) == {"n": 2}
    run("save", "--set", "m=1")
    assert data("show", "HEAD")["branchId"] == said["branchId"]


def test_restore_says_where_it_went_and_that_it_can_be_undone(run: Run, three: Path) -> None:
    result = run("restore", "@1")
    assert result.stdout.startswith("restored @1 as @4, on the new branch main-2\n")
    assert result.stderr == "Undo with `lastgood undo`\n"


def test_restore_refuses_evidence_that_does_not_hold_unless_it_is_overridden_by_name(
    run: Run, data: Run, failed: Path
) -> None:
    """D4: every restore verifies evidence too unless overridden by name."""
    refused = run("restore", "@4", code=9)
    assert refused.stdout == ""
    assert "is not verified: false ends with 0 (mismatch: the command ended with 1, not 0)" in refused.stderr
    assert "--override-evidence" in refused.stderr
    assert json.loads(run("restore", "@4", "--json", code=9).stderr)["error"]["code"] == "evidence"
    assert data("log")["total"] == 4
    assert data("restore", "@4", "--override-evidence")["checkpoint"]["sequence"] == 5


@pytest.mark.parametrize(("name", "code"), [("nothing", 3), ("@9", 3), ("@x", 2), ("@1", 4)])
def test_restore_refuses_what_is_not_there(run: Run, data: Run, three: Path, name: str, code: int) -> None:
    run("rm", "@1")
    assert "hint:" in run("restore", name, code=code).stderr
    assert data("log")["total"] == 2


def test_undo_and_redo_go_back_and_forth_until_a_save(run: Run, data: Run, three: Path) -> None:
    run("restore", "@1")
    undone = data("undo")
    assert (undone["action"], undone["branch"], undone["head"]["sequence"]) == ("undone", "main", 3)
    redone = data("redo")
    assert (redone["action"], redone["head"]["sequence"]) == ("redone", 4)
    assert run("undo").stdout.startswith("undone: main is the active branch\n@3 ")
    assert "nothing to undo" in run("undo", code=4).stderr
    run("save", "--set", "n=9")
    assert "nothing to redo" in run("redo", code=4).stderr


def test_undo_of_a_branch_is_refused_with_a_hint(run: Run, data: Run, three: Path) -> None:
    branch = data("fork")["branchId"]
    assert "hint:" in run("undo", "--task", branch, code=2).stderr


def test_fork_leaves_everything_as_it_is_and_can_be_worked_on_by_its_id(run: Run, data: Run, three: Path) -> None:
    said = data("fork", "@2", "--name", "try-b", "--description", "another way", "--paused")
    assert (said["branch"], said["runControlState"], said["checkpoint"]["type"]) == ("try-b", "paused", "forked")
    assert data("show")["sequence"] == 3
    run("save", "--set", "x=1", "--task", said["branchId"])
    assert json.loads(run("show", "--state", "--task", said["branchId"]).stdout) == {"n": 2, "x": 1}
    assert json.loads(run("show", "--state").stdout) == {"n": 3}


def test_fork_begins_at_the_head_unless_told_otherwise(run: Run, three: Path) -> None:
    lines = run("fork", "--name", "b c").stdout.splitlines()
    assert lines[0] == "forked @3 as @4, on the new branch b c"
    assert lines[1] == "Switch to it with `lastgood branch --switch 'b c'`"


def test_fork_refuses_a_name_that_is_taken_and_evidence_that_fails(run: Run, failed: Path) -> None:
    run("fork", "@1", "--name", "b")
    assert "branch named 'b' already" in run("fork", "@1", "--name", "b", code=4).stderr
    assert "--override-evidence" in run("fork", "--name", "c", code=9).stderr
    run("fork", "--name", "c", "--override-evidence")


def test_branches_are_switched_by_name_and_back_by_undo(run: Run, data: Run, three: Path) -> None:
    run("fork", "@1", "--name", "b")
    said = data("branch", "--switch", "b")
    assert (said["action"], said["branch"], said["head"]["sequence"]) == ("switched", "b", 4)
    assert data("status")["branch"]["name"] == "b"
    assert data("undo")["branch"] == "main"
    assert "no branch 'nothing'" in run("branch", "--switch", "nothing", code=3).stderr


def test_a_branch_is_deleted_with_what_only_it_has_and_never_the_active_one(run: Run, data: Run, three: Path) -> None:
    branch = data("fork", "@1", "--name", "b")["branchId"]
    run("save", "--set", "x=1", "--task", branch)
    assert "the active branch" in run("branch", "--delete", "main", code=4).stderr
    assert data("branch", "--delete", "b", "--yes") == {"deleted": "b", "checkpoints": 2}
    assert [one["name"] for one in data("branch")["branches"]] == ["main"]
    assert data("log")["total"] == 3
    run("branch", "--delete", "b", code=3)
    run("branch", "--delete", "b", "--switch", "main", code=2)


def test_branches_are_listed_for_programs_with_where_they_come_from(run: Run, data: Run, three: Path) -> None:
    run("fork", "@2", "--name", "b")
    main, side = data("branch")["branches"]
    assert (main["name"], main["active"], main["headSequence"], main["originId"]) == ("main", True, 3, None)
    assert (side["name"], side["active"], side["originSequence"], side["checkpoints"]) == ("b", False, 2, 3)
    assert side["metadata"]["restoredFrom"] == side["originId"] == data("show", "@2")["id"]


def test_the_log_is_the_line_of_the_head_and_with_all_names_branches(run: Run, data: Run, three: Path) -> None:
    run("fork", "--name", "side-line")
    assert [line.split()[0] for line in run("log").stdout.splitlines()] == ["*", "@2", "@1"]
    first, second, *_ = run("log", "--all").stdout.splitlines()
    assert first.split()[-1] == "@3"
    assert "side-line" in first
    assert "  main " in second
    assert len(data("log", "--all")["checkpoints"]) == len(data("log")["checkpoints"]) + 1


def test_a_large_state_is_restored_without_the_engines_own_log_on_stderr(process: Run, folder: Path) -> None:
    with lastgood.open(folder / "s") as store:
        task = store.task("work")
        task.save("x" * (1 << 21))
        task.save(1)
    for command in (["restore", "@1"], ["undo"], ["redo"], ["fork"], ["branch", "--switch", "main"]):
        done = process(*command, "--store", "s", "--json")
        assert (done.returncode, done.stderr) == (0, ""), command


def test_a_task_is_named_alike_everywhere(run: Run, data: Run, three: Path) -> None:
    """First use: TASK stands for --task, and a branch of the folder's task may be named by its name."""
    run("save", "--task", "other", "--set", "n=9")
    for command in ("log", "history", "branch", "status", "steps", "requests", "last-good", "du"):
        assert run(command, "other", "--json").stdout == run("--task", "other", command, "--json").stdout
        assert "name one" in run(command, "other", "--task", "work", code=2).stderr
    run("fork", "@1", "--name", "side")
    assert [one["sequence"] for one in data("log", "side")["checkpoints"]] == [4, 1]
    run("save", "--task", "side", "--set", "n=5")
    assert data("show", "HEAD", "--task", "side")["sequence"] == 5
    assert data("tasks")["tasks"][0]["id"] == "other"
    run("save", "--task", "main", "--set", "n=1")
    assert data("tasks")["tasks"][0]["id"] == "main", "a new task may be called as a branch is"


def test_what_stands_behind_the_task_may_stand_alone(run: Run, data: Run, three: Path) -> None:
    assert data("guide", "be brief")["taskId"] == "work"
    assert data("guide", "work", "be brief")["taskId"] == "work"
    assert data("--task", "work", "guide", "be brief")["request"]["data"]["text"] == "be brief"
    assert "work that is idle cannot be given more rounds" in run("rounds", "2", code=4).stderr
    assert "Missing" in run("guide", code=2).stderr
    assert "is not a valid whole number" in run("rounds", "many", code=2).stderr
    run("tag", "green")
    assert data("show", "green")["id"] == data("show", "HEAD")["id"]
    assert data("tag", "first", "@1")["checkpointId"] == data("show", "@1")["id"]


def test_a_save_on_a_branch_that_has_not_the_files_names_what_works(run: Run, folder: Path) -> None:
    """The hint had gone to the branch that is active already, which changed nothing."""
    (folder / "a.txt").write_text("one")
    run("init")
    run("fork", "HEAD", "--name", "par2")
    failed = run("--task", "par2", "save", "--set", "x=1", code=4).stderr
    assert "--no-files saves without files" in failed
    run("--task", "par2", "save", "--set", "x=1", "--no-files")
    run(*shlex.split(failed.split("hint: `lastgood ")[1].split("`")[0]))
    assert run("--task", "par2", "save", "--set", "x=2").stdout
