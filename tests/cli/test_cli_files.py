"""Files on the command line: captured, put back, compared, looked at."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import CountedStage, count, counting

Run = Callable[..., Any]

HOSTILE = [b"red\x1b[31m", b"two\nlines", b"not\xffutf8", "turn\u202eed".encode(), b"tab\there"]
CONTROL = set("\x1b\x9b\x07\x7f\u202e\r\t")


@pytest.fixture
def work(run: Run, folder: Path) -> Path:
    """A workspace with two checkpoints: @1 has a.txt and src/b.py, in @2 a.txt changed, b.py went and c.txt came."""
    run("init", "--task", "work")
    (folder / "a.txt").write_text("one\n")
    (folder / "src").mkdir()
    (folder / "src" / "b.py").write_text("b = 1\n")
    run("save", "--set", "n=1", "-m", "first")
    (folder / "a.txt").write_text("two\n")
    (folder / "src" / "b.py").unlink()
    (folder / "c.txt").write_text("c\n")
    run("save", "--set", "n=2", "-m", "second")
    return folder


def tree(folder: Path) -> dict[str, str]:
    """What a user sees there, but for the store and its settings."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".lastgood" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in files if path.name != "lastgood.toml"}


FIRST = {"a.txt": "one\n", "src/b.py": "b = 1\n"}
SECOND = {"a.txt": "two\n", "c.txt": "c\n"}


# --- save ---------------------------------------------------------------------------------------------------------


def test_save_captures_the_workspace_and_says_what_was_left_out(run: Run, data: Run, work: Path) -> None:
    """B1, and secrets are left out visibly."""
    (work / ".env").write_text("TOKEN=1")
    result = run("save", "--set", "n=3")
    assert result.stdout.endswith("of work with 3 files (56 bytes)\n")
    assert result.stderr.startswith("left out: .env (secret)\nto keep .env: ")
    said = data("save", "--set", "n=4")
    assert said["skipped"] == [{"path": ".env", "reason": "secret"}]
    assert said["checkpoint"]["fileCount"] == 3


def test_save_and_status_say_which_ignore_rules_do_nothing(run: Run, data: Run, work: Path) -> None:
    """B1: else what was meant to be left out is captured, and nobody knows why."""
    (work / "src").mkdir(exist_ok=True)
    (work / "src" / ".gitignore").write_text("*.log\n[a-\n")
    (work / "src" / "[a-").write_text("meant to be left out")
    wrong = {"path": "src/.gitignore", "reason": "rules: line 2 can never match"}
    assert run("save").stderr == "ignore rules: src/.gitignore: line 2 can never match\n"
    assert data("save", "--always")["skipped"] == [wrong]
    assert data("status")["workspace"]["skipped"] == [wrong]
    assert "ignore rules src/.gitignore: line 2 can never match\n" in run("status").stdout
    (work / "src" / ".gitignore").write_text("*.log\n")
    assert run("save").stderr == ""
    assert data("status")["workspace"]["skipped"] == []


def test_save_of_files_alone_keeps_the_heads_state_and_begins_with_an_empty_one(run: Run, folder: Path) -> None:
    run("init")
    run("save", "-m", "files")
    assert json.loads(run("show", "--state").stdout) == {}
    run("save", "--state", "-", input='{"a": {"$appendList": [1]}}')
    run("save", "-m", "files again")
    assert json.loads(run("show", "--state").stdout) == {"a": {"$appendList": [1]}}


def test_without_files_nothing_is_captured_and_a_state_is_needed(run: Run, data: Run, work: Path) -> None:
    (work / "a.txt").write_text("three\n")
    assert data("save", "--set", "n=3", "--no-files")["checkpoint"]["fileCount"] == 3, "those of the head are kept"
    assert run("cat", "HEAD:a.txt").stdout == "two\n"
    assert data("--task", "bare", "save", "--set", "n=3", "--no-files")["checkpoint"]["fileCount"] == 0
    assert "nothing to save" in run("save", "--no-files", code=2).stderr
    assert "contradict" in run("save", "--no-files", "--workspace", ".", code=2).stderr


def test_a_list_of_files_wins_over_what_is_ignored_and_is_named_from_here(
    run: Run, data: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1: an explicit list wins over the default exclusions. If one is not there nothing is saved."""
    (work / "src" / ".env").write_text("TOKEN=1")
    monkeypatch.chdir(work / "src")
    refused = run("save", "-m", "listed", "--files", ".env", "../a.txt", "--files", "gone", code=3)
    assert "there is no file or folder 'gone'" in refused.stderr
    assert "hint: " in refused.stderr
    assert data("log")["total"] == 2
    run("save", "-m", "listed", "--files", ".env", "--files", "../a.txt")
    listed = [one["path"] for one in data("ls", "HEAD", "..", "-R")["files"] if one["kind"] == "file"]
    assert listed == ["a.txt", "src/.env"]
    assert data("show")["fileRoots"][0]["partial"] is True
    assert "not a path below" in run("save", "--files", "../..", code=2).stderr
    assert "does not take 'x'" in run("save", "--set", "n=1", "x", code=2).stderr
    assert "there is no workspace" in run("save", "--files", "../a.txt", "--no-files", "--set", "n=1", code=2).stderr


def test_several_folders_have_names(run: Run, data: Run, folder: Path) -> None:
    for name in ("app", "infra"):
        (folder / name).mkdir()
        (folder / name / "main").write_text(name)
    both = ["--workspace", "app=app", "--workspace", "infra=./infra"]
    run("save", "-m", "both", *both)
    assert [one["path"] for one in data("ls")["files"]] == ["app", "infra"]
    assert run("cat", "HEAD:infra:main").stdout == "infra"
    (folder / "infra" / "main").write_text("changed")
    (folder / "app" / ".mcp.json").write_text("{}")
    run("save", *both)
    (folder / "app" / ".mcp.json").unlink()
    assert data("restore", "@2", *both)["announced"] == ["app:.mcp.json"]
    assert data("restore", "@1", *both)["restored"] == ["infra:main"]
    assert (folder / "infra" / "main").read_text() == "infra"


@pytest.mark.parametrize("given", [["a", "b"], ["x=a", "b"], ["x=a", "x=b"]])
def test_several_folders_without_names_are_refused(run: Run, folder: Path, given: list[str]) -> None:
    options = [word for one in given for word in ("--workspace", one)]
    assert "need a name each" in run("save", *options, code=2).stderr
    assert list(folder.iterdir()) == []


def test_a_folder_with_an_equals_sign_is_named_with_a_slash(run: Run, data: Run, folder: Path) -> None:
    (folder / "a=b").mkdir()
    (folder / "a=b" / "file").write_text("x")
    run("save", "--workspace", "./a=b")
    assert [one["path"] for one in data("ls")["files"]] == ["file"]


def test_the_workspace_of_the_config_is_relative_to_it(
    run: Run, data: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("app", "infra", "deep"):
        (folder / name).mkdir()
    (folder / "lastgood.toml").write_text('[workspace]\napp = "app"\ninfra = "./infra"\n')
    run("init")
    monkeypatch.chdir(folder / "deep")
    run("save", "-m", "from below")
    assert [one["path"] for one in data("ls")["files"]] == ["app", "infra"]


@pytest.mark.parametrize("text", ["workspace = 1", "[workspace]\na = 1", "[workspace.a]\nb = 'c'", "workspaces = '.'"])
def test_a_config_that_names_no_folder_is_refused(run: Run, folder: Path, text: str) -> None:
    (folder / "lastgood.toml").write_text(text)
    assert " in lastgood.toml" in run("save", "--set", "n=1", code=2).stderr


def test_init_leaves_the_home_directory_alone(
    run: Run, data: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    result = run("init")
    assert "the home directory cannot be a workspace" in result.stderr
    assert (folder / "lastgood.toml").read_text() == 'store = ".lastgood"\ntask = "work"\n'
    run("save", "--set", "n=1")
    assert data("init")["workspace"] is None


def test_a_step_captures_the_files_that_its_command_left(run: Run, data: Run, work: Path) -> None:
    """A1: whatever wrote them."""
    run("run-step", "write", "--", sys.executable, "-c", "open('made.txt', 'w').write('made')")
    assert run("cat", "HEAD:made.txt").stdout == "made"
    run("run-step", "again", "--no-files", "--", sys.executable, "-c", "open('made.txt', 'w').write('new')")
    assert run("cat", "HEAD:made.txt").stdout == "made"


# --- restore, undo, redo -------------------------------------------------------------------------------------------


def test_restore_puts_files_and_state_back_after_saving_what_was_not_saved(run: Run, data: Run, work: Path) -> None:
    """B3: exactly; promise 3: nothing is destroyed."""
    (work / "a.txt").write_text("not saved\n")
    said = data("restore", "@1")
    assert tree(work) == FIRST
    assert json.loads(run("show", "--state").stdout) == {"n": 1}
    assert (said["restored"], said["deleted"], said["failed"]) == (["a.txt", "src/b.py"], ["c.txt"], [])
    assert said["savedFirst"] == said["before"] == data("show", "@3")["id"]
    assert run("cat", "@3:a.txt").stdout == "not saved\n"


def test_restore_tells_people_what_happened_and_how_to_undo_it(run: Run, work: Path) -> None:
    (work / "a.txt").write_text("not saved\n")
    result = run("restore", "@1")
    assert result.stdout.splitlines()[1:] == ["+ src/b.py", "~ a.txt", "- c.txt"]
    assert result.stdout.startswith("restored @1 as @4, on the new branch main-2\n")
    assert result.stderr == "Unsaved changes were saved first, as @3\nUndo with `lastgood undo`\n"


def test_a_restore_that_would_change_nothing_makes_nothing(run: Run, data: Run, work: Path) -> None:
    said = run("restore", "HEAD")
    assert said.stdout == "nothing to restore: everything is already as in @2\n"
    run("restore", "@2", "--what", "state")
    run("restore", "@2", "--path", "a.txt")
    answer = data("restore", "@2", "--what", "files")
    assert (answer["newCheckpointId"], answer["checkpoint"]["sequence"], data("log")["total"]) == (None, 2, 2)
    (work / "a.txt").write_text("not saved\n")
    assert "restored @2 as @4" in run("restore", "HEAD").stdout
    assert tree(work) == SECOND


def test_a_dry_run_and_the_run_print_the_same_list_with_whole_folders_in_one_line(run: Run, work: Path) -> None:
    for number in range(30):
        path = work / "lib" / "deep" / f"{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    run("save")
    shutil.rmtree(work / "lib")
    (work / "new" / "deeper").mkdir(parents=True)
    (work / "new" / "deeper" / "one").write_text("1\n")
    (work / "new" / "two").write_text("2\n")
    (work / "a.txt").write_text("changed\n")
    planned = run("restore", "@3", "--dry-run").stdout
    assert planned == "+ lib/ (30 files)\n~ a.txt\n- new/ (2 files)\n"
    assert run("restore", "@3").stdout.split("\n", 1)[1] == planned


def test_undo_and_redo_take_the_files_along_any_number_of_levels(run: Run, data: Run, work: Path) -> None:
    run("restore", "@1")
    run("restore", "@2")
    (work / "a.txt").write_text("edited\n")
    said = data("undo")
    assert tree(work) == FIRST
    assert (said["restored"], said["deleted"]) == (["a.txt", "src/b.py"], ["c.txt"])
    assert run("cat", f"{said['savedFirst']}:a.txt").stdout == "edited\n"
    lines = run("undo").stdout.splitlines()
    assert lines[0] == "undone: main is the active branch"
    assert lines[2:] == ["~ a.txt", "+ c.txt", "- src/b.py"]
    assert tree(work) == SECOND
    run("redo")
    assert tree(work) == FIRST
    run("redo")
    assert tree(work) == {**SECOND, "a.txt": "edited\n"}


def test_files_alone_are_restored_by_path_and_the_state_stays(run: Run, data: Run, work: Path) -> None:
    said = data("restore", "@1", "--path", "src/**")
    assert said["restored"] == ["src/b.py"]
    assert tree(work) == {**SECOND, "src/b.py": "b = 1\n"}
    assert (said["branch"], json.loads(run("show", "--state").stdout)) == ("main", {"n": 2})
    assert run("undo").stdout.splitlines()[2:] == ["- src/b.py"]
    assert tree(work) == SECOND
    assert "nothing that these paths name differs from @2" in run("restore", "@2", "--path", "c.txt").stdout
    assert run("restore", "@1", "--what", "files").stdout.startswith("restored the files of @1 as @5, on main\n")
    assert tree(work) == FIRST


def test_the_state_alone_is_restored_and_no_file_is_touched(run: Run, data: Run, work: Path) -> None:
    said = data("restore", "@1", "--what", "state")
    assert (said["restored"], said["deleted"]) == ([], [])
    assert tree(work) == SECOND
    assert json.loads(run("show", "--state").stdout) == {"n": 1}


def test_a_dry_run_shows_the_plan_and_touches_nothing(run: Run, data: Run, work: Path) -> None:
    (work / ".mcp.json").write_text("{}")
    run("save", "--set", "n=3")
    (work / ".mcp.json").unlink()
    result = run("restore", "@1", "--dry-run")
    assert result.stdout == "+ src/b.py\n~ a.txt\n- c.txt\n"
    assert result.stderr.splitlines()[-3:] == [
        "3 paths would change, 10 bytes to write",
        "the state would change in 1 place",
        "nothing was changed",
    ]
    said = data("restore", "@3", "--dry-run")
    assert (said["added"], said["announced"], said["size"]) == ([".mcp.json"], [".mcp.json"], 2)
    assert "run by themselves would be written" in run("restore", "@3", "--dry-run", "--what", "files").stderr
    assert run("restore", "@1", "--dry-run", "--what", "state").stdout == ""
    assert run("restore", "@1", "--dry-run", "--path", "c.txt").stdout == "- c.txt\n"
    assert tree(work) == SECOND
    assert data("log")["total"] == 3


def test_a_restore_warns_of_a_file_that_tools_obey_in_a_folder_whose_name_is_no_text(run: Run, work: Path) -> None:
    folder = work / os.fsdecode(b"not\xffutf8")
    folder.mkdir()
    (folder / ".mcp.json").write_text("{}")
    run("save", "--set", "n=3")
    (folder / ".mcp.json").unlink()
    assert '"not\\377utf8/.mcp.json"' in run("restore", "@3").stderr


def test_files_are_copied_elsewhere_and_nothing_else_changes(run: Run, data: Run, work: Path) -> None:
    said = data("restore", "@1", "--to", "../copy")
    assert (said["copied"], said["to"]) == (["a.txt", "lastgood.toml", "src", "src/b.py"], str(work.parent / "copy"))
    assert tree(work.parent / "copy") == FIRST
    assert "is there already" in run("restore", "@1", "--to", "../copy", code=4).stderr
    assert run("restore", "@1", "--to", "../some", "--path", "a.txt").stdout == "+ a.txt\n"
    assert (tree(work), data("log")["total"]) == (SECOND, 2)
    for more in (["--dry-run"], ["--what", "state"]):
        run("restore", "@1", "--to", "../other", *more, code=2)


def test_what_cannot_be_put_back_is_named_and_the_rest_is(run: Run, data: Run, work: Path) -> None:
    """B9, promise 4: an uncaptured file is never removed to make place."""
    block(work)
    result = run("restore", "@1", code=10)
    assert "failed: src/b.py: " in result.stderr
    assert (work / "a.txt").read_text() == "one\n"
    assert (work / "src" / "b.py" / ".env").read_text() == "TOKEN=1"
    assert result.stderr.endswith("Undo with `lastgood undo`\n")
    assert [one["path"] for one in data("restore", "@1", code=10)["failed"]] == ["src/b.py"]


def test_undo_names_what_cannot_be_put_back_once(run: Run, work: Path) -> None:
    run("restore", "@1")
    run("undo")
    block(work)
    said = run("redo", code=10)
    assert said.stderr.splitlines()[-1] == "failed: src/b.py: it could not be put back"
    assert said.stderr.count("could not be put back") == 1
    assert (work / "src" / "b.py" / ".env").read_text() == "TOKEN=1"


def block(work: Path) -> None:
    """Where @1 has the file src/b.py a folder lies now, with something in it that is not captured."""
    (work / "src" / "b.py").mkdir()
    (work / "src" / "b.py" / ".env").write_text("TOKEN=1")


def test_without_a_workspace_files_cannot_be_restored_and_state_can(run: Run, work: Path) -> None:
    assert "--workspace DIR" in run("restore", "@1", "--what", "files", "--no-files", code=2).stderr
    run("restore", "@1", "--no-files")
    assert tree(work) == SECOND


def test_a_checkpoint_without_files_leaves_those_on_disk(run: Run, work: Path) -> None:
    run("--task", "bare", "save", "--set", "n=3", "--no-files")
    assert "@1 holds no files; those on disk stay" in run("--task", "bare", "restore", "@1").stderr
    assert tree(work) == SECOND


def test_switching_branches_changes_the_files_and_saving_on_another_is_refused(run: Run, data: Run, work: Path) -> None:
    """A stale writer is refused: the files here are those of one branch."""
    branch = data("fork", "@1", "--name", "side")["branchId"]
    refused = run("save", "--set", "n=9", "--task", branch, code=4)
    assert "are those of the branch 'main'" in refused.stderr
    assert "branch --switch" in refused.stderr
    assert data("branch", "--switch", "side")["deleted"] == ["c.txt"]
    assert tree(work) == FIRST
    run("save", "--set", "n=9")
    assert data("status")["workspace"]["folders"][0]["branch"] == "side"


# --- status, diff, show --------------------------------------------------------------------------------------------


def test_status_tells_what_changed_since_the_last_checkpoint_and_whose_files_they_are(
    run: Run, data: Run, work: Path
) -> None:
    assert "changed      nothing since @2" in run("status").stdout
    (work / "a.txt").write_text("edited\n")
    (work / "new").mkdir()
    here = data("status")["workspace"]
    assert [(one["path"], one["change"]) for one in here["changes"]] == [("a.txt", "modified"), ("new", "added")]
    assert here["folders"] == [{"name": "", "path": str(work), "branch": "main", "branchId": data("show")["branchId"]}]
    assert here["since"] == data("show", "@2")["id"]
    assert "changed      ~ a.txt\n             + new\n" in run("status").stdout
    assert data("log")["total"] == 2


def test_status_still_answers_when_the_workspace_is_gone(run: Run, data: Run, work: Path) -> None:
    here = data("status", "--workspace", "nowhere")["workspace"]
    assert "is not there" in here["problem"]
    assert data("status", "--no-files")["workspace"] is None


def test_an_interrupted_restore_is_told_by_status_and_ended_by_the_next_command(
    run: Run, data: Run, work: Path
) -> None:
    """A16: reopening says what it found; an interrupted restore is finished or undone."""
    begin_and_die()
    said = data("status")
    assert [one["before"] for one in said["workspace"]["interrupted"]] == [data("show", "@2")["id"]]
    assert ["was interrupted" in one for one in said["advice"]].count(True) == 1
    run("save", "--set", "n=1", "--task", "another")
    assert len(data("status")["workspace"]["interrupted"]) == 1
    assert tree(work) == {"a.txt": "one\n", "c.txt": "c\n"}
    assert "had been interrupted" in run("diff").stderr
    assert tree(work) == SECOND
    assert data("status")["workspace"]["interrupted"] == []


KILLED = """
import os, signal, lastgood
from pathlib import Path
from lastgood.engine import restore_files as rewind

def apply(*_, **__):
    Path("a.txt").write_text("one\\n")
    os.kill(os.getpid(), signal.SIGKILL)

rewind.apply = apply
with lastgood.open(".lastgood") as store:
    store.task("work", workspace=".").restore("@1")
"""


def begin_and_die() -> None:
    """Restore @1 in a process that is killed when one of the files is there."""
    done = subprocess.run([sys.executable, "-c", KILLED], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def test_diff_is_a_patch_that_git_applies(run: Run, process: Run, work: Path, tmp_path: Path) -> None:
    """B5: applying it gives the other side; the state in the same view is passed over."""
    run("restore", "@1", "--to", str(tmp_path / "copy"))
    patch = process("diff", "@1", "@2").stdout
    assert patch.startswith("- n: 1\n+ n: 2\ndiff --git ")
    (tmp_path / "patch").write_text(patch)
    subprocess.run(["git", "apply", str(tmp_path / "patch")], cwd=tmp_path / "copy", check=True, timeout=60)
    assert tree(tmp_path / "copy") == SECOND


def test_diff_compares_with_the_disk_unless_told_otherwise(run: Run, data: Run, work: Path) -> None:
    """B5."""
    assert "the files on disk are those of" in run("diff").stderr
    (work / "a.txt").write_text("edited\n")
    assert "-two\n+edited\n" in run("diff").stdout
    said = data("diff")
    assert (said["after"], said["changes"]) == (None, [])
    assert [(one["path"], one["change"], one["added"], one["removed"]) for one in said["files"]] == [
        ("a.txt", "modified", 1, 1)
    ]
    assert run("diff", "--stat").stdout == "a.txt +1 -1\n"
    assert run("diff", "--summary").stdout == "1 file changed (a.txt); 1 line added, 1 removed.\n"
    assert run("diff", "@1", "--summary").stdout.endswith("The state differs in 1 place.\n")
    assert run("diff", "--state").stdout == "- n: 1\n+ n: 2\n"
    assert run("diff", "--no-files", "--stat").stdout.splitlines()[:3] == ["- n: 1", "+ n: 2", "a.txt +1 -1"]


def test_diff_is_limited_to_files_and_to_paths(run: Run, data: Run, work: Path) -> None:
    assert (
        run("diff", "@1", "@2", "--files", "--stat").stdout
        == "a.txt +1 -1\nc.txt +1 -0 (added)\nsrc/b.py +0 -1 (deleted)\n"
    )
    assert run("diff", "@1", "@2", "--stat", "--", "./src", "c.txt").stdout.count("\n") == 2
    assert "the files of" in run("diff", "@1", "@2", "--", "lastgood.toml").stderr
    for muddled in (["--state", "--files"], ["--stat", "--summary"], ["--state", "--", "a.txt"]):
        run("diff", *muddled, code=2)


def test_diff_says_when_there_are_no_files_to_compare(run: Run, data: Run, work: Path) -> None:
    run("--task", "bare", "save", "--set", "n=3", "--no-files")
    assert "@1 holds no files" in run("--task", "bare", "diff").stderr
    run("--task", "bare", "save", "--set", "n=4", "--no-files")
    assert data("--task", "bare", "diff", "@1", "@2")["files"] is None


def test_a_save_of_listed_files_hides_no_other_change(run: Run, data: Run, work: Path) -> None:
    """It is shown as what it is, and what has changed is found by the last checkpoint that holds everything."""
    (work / "a.txt").write_text("listed\n")
    (work / "c.txt").write_text("not listed\n")
    assert "with only 1 file (" in run("save", "--files", "a.txt", "-m", "part").stdout
    assert "part (only 1 listed file)" in run("log").stdout
    assert [one["path"] for one in data("status")["workspace"]["changes"]] == ["a.txt", "c.txt"]
    assert "since @2, the last one with whole folders" in run("status").stdout
    compared = run("diff")
    assert "@3 holds only files that were listed; compared with @2" in compared.stderr
    assert "c.txt" in compared.stdout
    assert "@3 holds only files that were listed; files are not compared" in run("diff", "@3").stderr
    (work / "a.txt").write_text("edited\n")
    restored = run("restore", "@3")
    assert "others stay as they are" in restored.stderr
    assert (work / "c.txt").read_text() == "not listed\n"


def test_show_lists_files_with_their_changes(run: Run, data: Run, work: Path) -> None:
    """B2, B4: time, message, files with change types, size and hash."""
    shown = data("show")
    assert [(one["path"], one["change"], one["size"]) for one in shown["files"]] == [
        ("a.txt", "modified", 4),
        ("c.txt", "added", 2),
        ("src/b.py", "deleted", 6),
    ]
    assert shown["files"][0]["sha256"].startswith("sha256:")
    lines = run("show").stdout.splitlines()
    assert [line.strip() for line in lines[-3:]] == ["~ a.txt", "+ c.txt", "- src/b.py"]
    assert "files        3 (56 bytes)" in lines


# --- cat, ls -------------------------------------------------------------------------------------------------------


def test_cat_prints_the_bytes_as_they_were(run: Run, data: Run, work: Path) -> None:
    """B5: file content at a checkpoint can be read."""
    content = bytes(range(256)) * 5000
    (work / "bytes").write_bytes(content)
    (work / "link").symlink_to("a.txt")
    run("save", "-m", "bytes")
    assert run("cat", "HEAD:bytes").stdout_bytes == content
    assert run("cat", ":link").stdout == "a.txt"
    assert run("cat", "@1:a.txt").stdout == "one\n"
    assert data("cat", "@1:a.txt")["content"] == {"$bytes": "b25lCg=="}


@pytest.mark.parametrize(
    ("name", "code"),
    [("HEAD", 2), ("HEAD:", 2), ("HEAD:nothing", 3), ("HEAD:src", 3), ("HEAD:../x", 2), ("@9:a.txt", 3)],
)
def test_cat_refuses_what_is_no_file_of_a_checkpoint(run: Run, work: Path, name: str, code: int) -> None:
    result = run("cat", name, code=code)
    assert (result.stdout, "hint:" in result.stderr) == ("", True)


def test_cat_of_what_was_left_out_says_so(run: Run, work: Path) -> None:
    (work / ".env").write_text("TOKEN=1")
    run("save", "-m", "with a secret")
    assert "was left out of this checkpoint (secret)" in run("cat", "HEAD:.env", code=3).stderr


def test_ls_lists_a_folder_or_all_below(run: Run, data: Run, work: Path) -> None:
    (work / ".env").write_text("TOKEN=1")
    (work / "link").symlink_to("a.txt")
    (work / "a.txt").chmod(0o600)
    run("save", "-m", "more")
    assert run("ls").stdout.splitlines() == [
        ".env (left out: secret)",
        ".lastgood (left out: store)",
        "a.txt",
        "c.txt",
        "lastgood.toml",
        "link",
        "src/",
    ]
    assert run("ls", "@1:src").stdout == run("ls", "@1:src/b.py").stdout == "src/b.py\n"
    assert run("ls", "-R", "@1").stdout.splitlines()[-2:] == ["src/", "src/b.py"]
    long = run("ls", "-l").stdout.splitlines()
    assert long[2].split() == ["-rw-------", "4", "a.txt"]
    assert long[5].split() == ["lrwxrwxrwx", "-", "link", "->", "a.txt"]
    assert next(one for one in data("ls")["files"] if one["path"] == "a.txt")["mode"] == "0600"
    assert "`lastgood ls` lists" in run("ls", "HEAD:nothing", code=3).stderr
    run("--task", "bare", "save", "--set", "n=1", "--no-files")
    assert "holds no files" in run("--task", "bare", "ls", code=3).stderr


def test_names_cannot_steer_the_terminal_whatever_prints_them(run: Run, work: Path) -> None:
    for name in HOSTILE:
        (Path(os.fsdecode(os.fsencode(work) + b"/" + name))).write_text("x\n")
        secret = os.fsdecode(os.fsencode(work) + b"/" + name + b".pem")
        Path(secret).write_text("-----BEGIN PRIVATE KEY-----\n")
    commands: list[list[str]] = [
        ["status"], ["diff"], ["diff", "--stat"], ["diff", "--summary"], ["diff", "--json"], ["save", "-m", "hostile"],
        ["show"], ["show", "--json"], ["ls", "-l"], ["ls", "--json"], ["restore", "@1", "--dry-run"],
        ["restore", "HEAD", "--to", "../copy"], ["restore", "@1"], ["undo"], ["redo"], ["undo", "--json"],
    ]  # fmt: skip
    for command in commands:
        result = run(*command)
        assert not CONTROL & set(result.stdout + result.stderr), command
    assert '"not\\377utf8"\n' in run("ls").stdout
    assert run("cat", "HEAD:not\udcffutf8").stdout == "x\n"


def test_content_on_a_terminal_is_escaped_and_colored(run: Run, on_a_terminal: Run, work: Path) -> None:
    (work / "a.txt").write_text("\x1b]0;title\x07 plain\ttab\n")
    run("save", "-m", "hostile content")
    shown = on_a_terminal("cat", "HEAD:a.txt")
    assert shown == "\\x1b]0;title\\x07 plain\ttab\r\n"
    patch = on_a_terminal("diff", "@2", "HEAD", "--files")
    assert "\x1b[32m+\\x1b]0;title\\x07 plain\ttab\x1b[0m" in patch


# --- long work -----------------------------------------------------------------------------------------------------


def test_long_work_counts_seconds_and_wipes_them_away() -> None:
    answers = iter([False, False, True])
    stream = io.StringIO()
    count(lambda seconds: next(answers), "saving", stream, CountedStage())
    assert stream.getvalue() == "\rsaving: 1 s\rsaving: 2 s\r           \r"


def test_long_work_tells_how_far_it_has_come() -> None:
    stage, stream = CountedStage(), io.StringIO()
    told = iter([(0, 0), (1500, 3000), (3000, 3000)])

    def wait(seconds: float) -> bool:
        done, of = next(told)
        stage("read", done, of)
        return done == 3000

    count(wait, "saving", stream, stage)
    first, second = "saving: 1 s, read", "saving: 2 s, read 1,500 of 3,000 (50%), 750/s"
    assert stream.getvalue() == f"\r{first}\r{second}\r{' ' * len(second)}\r"


def test_progress_has_sizes_and_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, stream = CountedStage(), io.StringIO()
    stage("bytes read", 3 << 20, 12 << 20)
    assert stage.text() == ", bytes read 3.0 MiB of 12.0 MiB (25%), 3.0 MiB/s"
    monkeypatch.setattr("lastgood.cli.output.terminal_width", lambda stream: 30)
    answers = iter([False, True])
    count(lambda seconds: next(answers), "checking", stream, stage)
    assert max(map(len, stream.getvalue().split("\r"))) < 30


def test_saving_and_restoring_many_files_tell_how_far_they_have_come(work: Path) -> None:
    told: list[tuple[str, int, int]] = []
    for number in range(500):
        (work / f"{number}").write_text(f"{number}")
    with lastgood.open(work / "elsewhere") as store, lastgood.reporting(lambda *each: told.append(each)):
        task = store.task("t", workspace=work)
        first = task.save({})
        for number in range(500):
            (work / f"{number}").unlink()
        task.restore(first)
    assert {doing for doing, _, _ in told} == {"read", "put back"}
    assert all(0 <= done <= of for _, done, of in told)


def test_a_repair_tells_how_far_it_has_come(work: Path) -> None:
    told: list[tuple[str, int, int]] = []
    (work / "large").write_bytes(os.urandom(1 << 20))
    with lastgood.open(work / "elsewhere") as store, lastgood.reporting(lambda *each: told.append(each)):
        store.task("t", workspace=work).save({})
        told.clear()
        store.repair()
    assert told[-1][0] == "bytes read"
    assert told[-1][1] == told[-1][2] > 1 << 20


def test_short_work_counts_nothing() -> None:
    stream = io.StringIO()
    count(lambda seconds: True, "saving", stream, CountedStage())
    assert stream.getvalue() == ""


def test_the_counter_ends_with_the_work_also_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    before = threading.active_count()

    def fail() -> None:
        with counting(Invocation(), "saving"):
            assert threading.active_count() == before + 1
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert threading.active_count() == before


def test_paths_begin_at_the_current_folder(run: Run, data: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First use: a person in app/src types `lastgood cat @1 b.py`."""
    run("save", "--always")
    run("restore", "@1")
    monkeypatch.chdir(work / "src")
    assert run("cat", "@1", "b.py").stdout == run("cat", "@1:b.py").stdout == "b = 1\n"
    assert run("cat", "@1", "../a.txt").stdout == FIRST["a.txt"]
    assert run("cat", "@1", str(work / "a.txt")).stdout == FIRST["a.txt"]
    assert "given twice" in run("cat", "@1:b.py", "b.py", code=2).stderr
    assert run("ls").stdout == "src/b.py\n"
    (work / "src" / "b.py").write_text("b = 2\n")
    (work / "a.txt").write_text("changed\n")
    assert run("diff", "--stat", "--", "*.py").stdout == "src/b.py +1 -1\n"
    assert run("restore", "@1", "b.py").stdout.splitlines()[1:] == ["~ src/b.py"]
    assert (work / "a.txt").read_text() == "changed\n"
    assert run("restore", "@1", "..", "--dry-run").stdout == "~ a.txt\n"
    assert "~ a.txt" in run("restore", "@1", "../a.txt", "b.py").stdout


@pytest.mark.parametrize(("name", "meant"), [("HEAD", "@2"), ("HEAD~1", "@1")])
def test_restoring_one_file_of_head_does_not_change_what_head_means_for_the_next(
    run: Run, work: Path, name: str, meant: str
) -> None:
    (work / "a.txt").write_text("ruined\n")
    (work / "c.txt").write_text("ruined, too\n")
    run("restore", name, "a.txt")
    assert "c.txt\n" in run("restore", name, "c.txt", "--dry-run").stdout
    second = run("restore", name, "c.txt")
    assert second.stdout.startswith(f"restored the files of {meant} as @5, on main\n")
    assert f"HEAD was made by a restore; without restores {name} is {meant}\n" in second.stderr
    assert {**tree(work), **FIRST} == ({**SECOND, **FIRST} if name == "HEAD" else FIRST)
    assert (work / "a.txt").read_text() == (SECOND if name == "HEAD" else FIRST)["a.txt"]


def test_what_only_restores_made_can_still_be_named_from_head(run: Run, work: Path) -> None:
    (work / "a.txt").write_text("ruined\n")
    run("restore", "HEAD", "a.txt")
    assert run("restore", "HEAD~3", "a.txt").stdout.startswith("restored the files of @1 as @5, on main\n")


def test_after_an_undo_head_means_what_it_meant_before(run: Run, work: Path) -> None:
    (work / "a.txt").write_text("ruined\n")
    for _ in range(2):
        assert run("restore", "HEAD").stdout.startswith("restored @2 as ")
        assert tree(work) == SECOND
        run("undo")
        assert (work / "a.txt").read_text() == "ruined\n"


def test_what_was_restored_on_purpose_is_head_once_it_is_changed_again(run: Run, work: Path) -> None:
    run("restore", "@1", "a.txt")
    (work / "a.txt").write_text("ruined\n")
    again = run("restore", "HEAD", "a.txt")
    assert (work / "a.txt").read_text() == "one\n"
    assert "without restores HEAD is @2: `lastgood restore @2`\n" in again.stderr
    assert run("log", "-n", "1").stdout.endswith("restored  files of an earlier checkpoint\n")


MISTYPED = {
    "restore": ["restore", "@1", "src/d.py"],
    "restore, beside a right one": ["restore", "@1", "a.txt", "src/d.py"],
    "restore --path": ["restore", "@1", "--path", "src/d.py"],
    "restore --dry-run": ["restore", "@1", "src/d.py", "--dry-run"],
    "restore --to": ["restore", "@1", "src/d.py", "--to", "copy"],
    "diff": ["diff", "@1", "--", "src/d.py"],
    "diff of two": ["diff", "@2", "@1", "--", "src/d.py"],
    "cat": ["cat", "@1", "src/d.py"],
    "cat with a colon": ["cat", "@1:src/d.py"],
    "ls": ["ls", "@1", "src/d.py"],
}


@pytest.mark.parametrize("command", MISTYPED)
def test_a_mistyped_path_is_refused_with_what_may_be_meant_and_changes_nothing(
    run: Run, data: Run, work: Path, command: str
) -> None:
    before = tree(work), data("log")["total"]
    error = run(*MISTYPED[command], code=3).stderr
    assert error.startswith("error: there is no 'src/d.py' in ")
    assert error.endswith("hint: did you mean src/b.py?\n")
    assert (tree(work), data("log")["total"]) == before
    assert not (work / "copy").exists()


@pytest.mark.parametrize(("typed", "meant"), [("b.py", "src/b.py"), ("srv", "src"), ("src/B.PY", "src/b.py")])
def test_a_path_of_another_folder_or_case_is_found_by_its_name(run: Run, work: Path, typed: str, meant: str) -> None:
    assert run("restore", "@1", typed, code=3).stderr.endswith(f"hint: did you mean {meant}?\n")


def test_where_nothing_is_like_it_the_command_that_lists_paths_is_named(run: Run, work: Path) -> None:
    assert run("restore", "@1", "**/*.rs", code=3).stderr == (
        "error: there is no '**/*.rs' in @1, nor among the files on disk that are captured\n"
        "hint: `lastgood ls` lists what there is\n"
    )


def test_a_path_that_only_the_disk_has_is_no_mistake(run: Run, work: Path) -> None:
    (work / "new.txt").write_text("new\n")
    assert run("diff", "--stat", "--", "new.txt").stdout == "new.txt +1 -0 (added)\n"
    assert "- new.txt\n" in run("restore", "@1", "new.txt").stdout
    assert "did you mean new.txt?" in run("diff", "@4", "@3", "--", "mew.txt", code=3).stderr
    (work / "newer.txt").write_text("newer\n")
    assert "did you mean newer.txt?" in run("diff", "--", "never.txt", code=3).stderr


def test_a_folder_with_the_characters_of_a_pattern_is_found_from_within(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "[id]").mkdir()
    for name in ("one.py", "two.py"):
        (work / "[id]" / name).write_text("1\n")
    run("save")
    monkeypatch.chdir(work / "[id]")
    for name in ("one.py", "two.py"):
        (work / "[id]" / name).write_text("2\n")
    assert run("restore", "HEAD", "one*").stdout.splitlines()[1:] == ["~ [id]/one.py"]
    assert run("restore", "@3", "two.py").stdout.splitlines()[1:] == ["~ [id]/two.py"]


def test_restore_ends_with_what_was_left_out_and_is_gone(run: Run, folder: Path) -> None:
    (folder / ".env").write_text("TOKEN=1")
    (folder / "lib" / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    first = run("init", "--task", "work")
    hint = "to keep .env: echo '!/.env' >> .lastgoodignore"
    assert first.stderr.count(hint) == 1
    (folder / ".env").unlink()
    (folder / "lib" / ".git").rmdir()
    told = ["warning: gone from disk, and not in the checkpoint, which left them out:"]
    told += ["  .env (secret)", "  lib/.git (repository)"]
    assert "\n".join(told) in run("restore", "@1", "--dry-run").stderr
    assert run("restore", "@1").stderr.splitlines()[-3:] == told
    missing = json.loads(run("--json", "restore", "@1").stdout)["missing"]
    assert missing == [
        {"path": ".env", "reason": "secret"},
        {"path": "lib/.git", "reason": "repository"},
    ]


def test_secrets_that_ignore_rules_name_are_told_once_and_again_when_they_are_gone(
    run: Run, data: Run, folder: Path
) -> None:
    """They are left out without a word by each later save: else every .env in a .gitignore were noise."""
    (folder / ".gitignore").write_text(".env\n*.key\nbuild\n")
    for name in (".env", "keys/server.key", "build/out.o", "a.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    both = ".env (ignored; it looks like a secret)"
    keys = "keys/server.key (ignored; it looks like a secret)"
    first = run("init", "--task", "work").stderr.splitlines()
    assert first[:2] == [f"left out: {both}", f"left out: {keys}"]
    assert first[2].startswith("to keep .env: ")
    assert "build" not in "".join(first)
    (folder / "a.txt").write_text("two")
    assert run("save").stderr == ""
    assert "left out" not in run("status").stdout
    assert f"left out     {both}\n{'':<13}{keys}\nadvice " in run("status", "-v").stdout
    (folder / ".env").unlink()
    shutil.rmtree(folder / "build")
    assert run("restore", "@1").stderr.splitlines()[-2:] == ["  .env (ignored)", "  build (ignored)"]
    assert keys in run("save", "--task", "other").stderr
    assert keys in run("run-step", "build", "--task", "another", "--", "true").stderr
    assert data("save", "--task", "third")["skipped"] == [{"path": "keys/server.key", "reason": keys[17:-1]}]
    assert data("save", "--task", "third", "--always")["skipped"] == []


def test_a_secret_is_kept_as_the_hint_says(run: Run, folder: Path) -> None:
    (folder / ".env").write_text("TOKEN=1")
    run("init", "--task", "work")
    (folder / ".lastgoodignore").write_text("!/.env\n")
    assert "left out" not in run("save", "--set", "n=1").stderr
    (folder / ".env").unlink()
    run("restore", "HEAD")
    assert (folder / ".env").read_text() == "TOKEN=1"


@pytest.fixture
def elsewhere(run: Run, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder than the workspace, in which --store and --task have to be given."""
    monkeypatch.setenv("LASTGOOD_STORE", str(work / ".lastgood"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return work


def test_a_restore_from_elsewhere_takes_the_files_along(run: Run, data: Run, elsewhere: Path) -> None:
    assert run("--task", "work", "restore", "@1", "--dry-run").stdout.splitlines()[-1] == "- c.txt"
    assert data("--task", "work", "restore", "@1")["deleted"] == ["c.txt"]
    assert tree(elsewhere) == FIRST
    assert data("--task", "work", "undo")["deleted"] == ["src/b.py"]
    assert tree(elsewhere) == SECOND
    run("--task", "work", "redo")
    assert tree(elsewhere) == FIRST
    run("--task", "work", "restore", "@2", "--path", "c.txt")
    assert (elsewhere / "c.txt").exists()


def test_a_folder_that_is_not_there_any_more_is_asked_for(run: Run, elsewhere: Path) -> None:
    store = elsewhere.rename(elsewhere.with_name("moved")) / ".lastgood"
    for words in (["restore", "@1"], ["restore", "@1", "--dry-run"]):
        failed = run("--store", str(store), "--task", "work", *words, code=2).stderr
        assert f"the files of this branch lie in {elsewhere}" in failed
        assert "hint: give --workspace DIR, or go into the folder; --no-files leaves files alone" in failed
    run("--store", str(store), "--task", "work", "restore", "@1", "--workspace", str(store.parent))
    assert tree(store.parent) == FIRST
    for words in (["--what", "state"], ["--no-files"]):
        run("--store", str(store), "--task", "work", "restore", "@2", *words)


def test_files_of_another_branch_can_be_gone_on_with_as_the_hint_says(run: Run, work: Path) -> None:
    run("restore", "@1", "--no-files")
    (work / "a.txt").write_text("mine\n")
    failed = run("save", "--set", "n=3", code=4).stderr
    hint = failed.split("hint: `lastgood ")[1].split("`")[0]
    run(*hint.split())
    assert run("save", "--set", "n=3").stdout
    assert run("cat", "HEAD:a.txt").stdout == "mine\n"


@pytest.mark.parametrize("words", [["diff"], ["restore"], ["log"], ["ls"]], ids=lambda words: words[0])
def test_a_path_in_the_place_of_a_checkpoint_gets_the_command_that_takes_it(
    run: Run, work: Path, words: list[str]
) -> None:
    (work / "src/b.py").write_text("changed\n")
    (work / "my file").write_text("changed\n")
    run("save")
    (work / "src/b.py").write_text("changed again\n")
    failed = run(*words, "src/b.py", code=3).stderr
    hint = failed.split("hint: `lastgood ")[1].split("` takes it as a path")[0]
    assert shlex.split(hint)[-1] == "src/b.py"
    assert run(*shlex.split(hint)).stdout
    assert "'my file'" in run(*words, "my file", code=3).stderr.split("hint: ")[1]
    assert "takes it as a path" not in run(*words, "nowhere", code=3).stderr


def test_a_summary_does_not_say_that_nothing_changed_where_the_state_did(run: Run, work: Path) -> None:
    run("save", "--set", "n=77")
    said = run("diff", "HEAD~1", "HEAD", "--summary").stdout
    assert said == "No file changed. The state differs in 1 place.\n"


def test_a_suggested_path_can_be_typed_where_the_person_stands(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "src").mkdir(exist_ok=True)
    (work / "src/calc.py").write_text("1")
    run("save")
    commands = [["cat", "HEAD"], ["ls", "HEAD"], ["restore", "HEAD"], ["diff", "--"]]
    for place, typed, meant in (
        ("src", "cacl.py", "calc.py"),
        ("src", "../aa.txt", "../a.txt"),
        (".", "src/cacl.py", "src/calc.py"),
    ):
        monkeypatch.chdir(work / place)
        for words in commands:
            assert f"hint: did you mean {meant}?\n" in run(*words, typed, code=3).stderr
            run(*words, meant)
    monkeypatch.chdir(work.parent)
    failed = run("--store", str(work / ".lastgood"), "--task", "work", "cat", "HEAD", "src/cacl.py", code=3).stderr
    assert "hint: did you mean src/calc.py?\n" in failed


def test_restoring_one_deleted_path_after_another_finds_both_in_what_was_saved(run: Run, work: Path) -> None:
    """The second was refused: the checkpoint that the first restore had made of the disk does not have it."""
    (work / "src").mkdir(exist_ok=True)
    (work / "src/e.py").write_text("e\n")
    run("save", "--set", "n=3")
    for path in ("a.txt", "c.txt", "src/e.py"):
        (work / path).unlink()
    (work / "src").rmdir()
    run("restore", "HEAD", "a.txt")
    assert "+ c.txt" in run("restore", "HEAD", "c.txt", "--dry-run").stdout
    assert run("restore", "HEAD", "c.txt").stdout.startswith("restored the files of @3 as ")
    assert run("restore", "HEAD", "src").stdout.startswith("restored the files of @3 as ")
    assert tree(work) == {**SECOND, "src/e.py": "e\n"}
    assert "there is no 'nope' in @3" in run("restore", "HEAD", "nope", code=3).stderr


@pytest.mark.parametrize("paths", [[], ["src/b.py"]], ids=["all", "some"])
def test_a_restore_in_part_is_not_taken_for_a_whole_one(run: Run, data: Run, work: Path, paths: list[str]) -> None:
    """`restore HEAD` had said "nothing to restore" and exited 0, though the files were still not put back."""
    block(work)
    first = run("restore", "@1", *paths, code=10)
    assert f"`lastgood {shlex.join(['restore', '@1', *paths])}` tries again" in first.stderr
    head = data("show")["sequence"]
    command = "`lastgood diff @1` shows what differs" if paths else "`lastgood restore @1` tries again"
    said = f"@{head} is @1 in part, some was not put back: {command}"
    assert said in data("status")["advice"]
    if not paths:
        assert f"warning: {said}\n" in run("restore", "HEAD", code=10).stderr
        shutil.rmtree(work / "src/b.py")
        run("restore", "@1")
        assert tree(work) == FIRST
        assert "in part" not in " ".join(data("status")["advice"])


def test_an_undo_in_part_is_named_in_status_too(run: Run, data: Run, work: Path) -> None:
    run("restore", "@1")
    run("undo")
    block(work)
    run("redo", code=10)
    told = " ".join(data("status")["advice"])
    assert "is @3 in part, some was not put back: `lastgood restore @3` tries again" in told


def test_a_restore_that_only_lacks_what_was_left_out_makes_nothing(run: Run, data: Run, work: Path) -> None:
    """Each one had made another branch, since the trees differ in what they left out."""
    (work / ".env").write_text("TOKEN=1")
    run("save", "--set", "n=3")
    (work / ".env").unlink()
    (work / "a.txt").write_text("ruined\n")
    run("restore", "@3")
    count = data("log", "--all")["total"]
    again = run("restore", "@3")
    assert again.stdout == "nothing to restore: everything is already as in @3\n"
    assert ".env (secret)" in again.stderr
    assert data("log", "--all")["total"] == count
    (work / "a.txt").chmod(0o755)
    assert run("restore", "@3").stdout.startswith("restored @3 as ")
