"""init, status, repair, tasks."""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_init_writes_a_config_and_a_private_store_that_git_ignores(data: Run, folder: Path) -> None:
    said = data("init")
    assert (folder / "lastgood.toml").read_text() == 'store = ".lastgood"\ntask = "work"\nworkspace = "."\n'
    assert (folder / ".lastgood" / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE((folder / ".lastgood").stat().st_mode) == 0o700
    assert said["configWritten"] is said["storeCreated"] is said["gitignoreWritten"] is True


def test_init_twice_changes_nothing(data: Run, folder: Path) -> None:
    data("init")
    before = (folder / "lastgood.toml").stat().st_mtime_ns
    said = data("init")
    assert (folder / "lastgood.toml").stat().st_mtime_ns == before
    assert said["configWritten"] is said["storeCreated"] is said["gitignoreWritten"] is False


def test_init_makes_the_folder_it_is_given_and_writes_the_task(data: Run, folder: Path) -> None:
    data("init", "new/place", "--task", 'a "b"')
    written = (folder / "new/place/lastgood.toml").read_text()
    assert written == 'store = ".lastgood"\ntask = "a \\"b\\""\nworkspace = "."\n'


@pytest.mark.parametrize("options", [["--store", "elsewhere"], ["--task", "other"]])
def test_init_refuses_what_an_existing_config_contradicts(run: Run, folder: Path, options: list[str]) -> None:
    run("init")
    before = (folder / "lastgood.toml").read_text()
    assert "is there already" in run("init", *options, code=4).stderr
    assert (folder / "lastgood.toml").read_text() == before


@pytest.mark.parametrize("store", [":memory:", "redis://x", "", "a\nb"])
def test_init_refuses_what_is_not_a_path_and_leaves_nothing(run: Run, folder: Path, store: str) -> None:
    run("init", "--store", store, code=2)
    assert list(folder.iterdir()) == []


def test_init_names_the_store_that_is_then_opened(
    run: Run, data: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    run("init", "place", "--store", "~/kept.sqlite")
    monkeypatch.chdir("place")
    said = data("status")
    assert (said["exists"], said["store"]) == (True, str(folder / "home" / "kept.sqlite"))


@pytest.fixture
def repository(folder: Path) -> Path:
    git("init", folder)
    (folder / "file").write_text("one\n")
    return folder


def git(words: str, folder: Path) -> str:
    done = subprocess.run(["git", *words.split()], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def test_in_a_repository_the_store_survives_git_clean(run: Run, data: Run, repository: Path) -> None:
    """First use 8"""
    said = run("init")
    assert "deleting .git deletes the store" in said.stderr
    assert (repository / "lastgood.toml").read_text() == 'store = ".git/lastgood"\ntask = "work"\nworkspace = "."\n'
    before = git("status --short --ignored", repository)
    run("save", "-m", "one")
    assert git("status --short --ignored", repository) == before
    assert [one["path"] for one in data("ls")["files"] if one["kind"] == "file"] == ["file", "lastgood.toml"]
    git("clean -fdxq", repository)
    assert not (repository / "file").exists()
    assert data("status")["foundBy"] == str(repository / ".git")
    run("restore", "@1")
    assert (repository / "file").read_text() == "one\n"
    assert (repository / "lastgood.toml").exists()
    assert sorted(path.name for path in (repository / ".git" / "lastgood").iterdir()) == [
        "catalog.sqlite",
        "catalog.sqlite-lock",
        "catalog.sqlite-shm",
        "catalog.sqlite-wal",
        "objects.cache",
    ]
    git("fsck --strict", repository)


def test_nothing_else_of_git_is_written(run: Run, repository: Path) -> None:
    """First use 8"""

    def contents() -> dict[Path, bytes]:
        files = [path for path in (repository / ".git").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files if "lastgood" not in path.parts}

    before = contents()
    run("init")
    run("save", "-m", "one")
    (repository / "file").write_text("two\n")
    run("restore", "@1")
    run("collect")
    assert contents() == before


def test_in_a_repository_the_store_is_put_here_if_asked(run: Run, repository: Path) -> None:
    run("init", "--here", "--store", "x", code=2)
    run("init", "--here")
    assert (repository / ".lastgood" / ".gitignore").exists()
    assert not (repository / ".git" / "lastgood").exists()
    run("init", "--here")
    (repository / "lastgood.toml").unlink()
    run("init")
    assert "is there already" in run("init", "--here", code=4).stderr


def test_where_git_cannot_be_written_the_store_is_the_users_own(
    run: Run, data: Run, repository: Path, tmp_path: Path
) -> None:
    """First use 8. A git directory that another repository has, too, is not this one's."""
    (repository / ".git").rename(tmp_path / "apart")
    (repository / ".git").write_text(f"gitdir: {tmp_path / 'apart'}\n")
    run("init")
    run("save", "-m", "one")
    assert data("status")["store"] == str(tmp_path / "data" / "lastgood" / "catalog.sqlite")


def test_a_renamed_folder_keeps_its_history(run: Run, data: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First use 8: the task was named after the folder at each command."""
    run("init")
    run("save", "--set", "n=1")
    folder.rename(folder.parent / "renamed")
    monkeypatch.chdir(folder.parent / "renamed")
    assert data("show")["taskId"] == "work"


def test_init_says_that_the_variable_wins(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_STORE", "/elsewhere")
    assert "LASTGOOD_STORE is set" in run("init").stderr


def test_status_tells_where_the_store_would_be(data: Run, folder: Path) -> None:
    said = data("status")
    assert said["exists"] is False
    assert said["foundBy"] == "default"
    assert not Path(said["store"]).exists()


def test_status_tells_how_the_store_was_found_and_where_the_task_stands(data: Run, three: Path) -> None:
    said = data("status")
    assert said["foundBy"] == str(three / "lastgood.toml")
    assert (said["taskId"], said["checkpoints"], said["head"]["sequence"]) == ("work", 3, 3)
    assert said["format"] == "2.0"
    assert said["size"] > 0


@pytest.mark.parametrize(
    "command",
    [
        "log",
        "show",
        "diff",
        "tag",
        "verify",
        "tasks",
        "du",
        "history",
        "undo",
        "fork",
        "branch",
        "steps",
        "last-good",
        "ls",
    ],
)
def test_reading_makes_no_store(run: Run, folder: Path, command: str) -> None:
    assert "there is no store" in run(command, code=3).stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["save", "--set", "n=4"], ["run-step", "check", "--", "true"], ["run", "jobs:pipeline"], ["log"]]
)
def test_a_store_that_the_config_names_and_that_is_gone_is_not_replaced(
    run: Run, data: Run, three: Path, words: list[str]
) -> None:
    """Its disk may be missing: work that began anew would be done twice."""
    (three / "jobs.py").write_text("import lastgood\npipeline = lastgood.Pipeline([print])\n")
    (three / ".lastgood").rename(three / "moved")
    refused = run(*words, code=3).stderr
    assert refused.startswith(
        f"error: there is no store at {three / '.lastgood'}, which {three / 'lastgood.toml'} names"
    )
    assert f"`lastgood init {three}` makes a new one" in refused
    assert "`lastgood init` makes a new one" in run("status").stdout
    assert not (three / ".lastgood").exists()
    assert data("init")["storeCreated"] is True
    run("save", "--set", "n=1")


@pytest.mark.parametrize("place", ["new", "new.sqlite"])
@pytest.mark.parametrize("words", [["save", "--set", "n=1"], ["run-step", "check", "--", "true"]])
def test_that_a_store_was_made_is_said_once(run: Run, folder: Path, words: list[str], place: str) -> None:
    said = f"a new store was made: {folder / place}\n"
    assert run("--store", place, *words).stderr.startswith(said)
    assert said not in run("--store", place, *words).stderr


def test_init_makes_no_store_in_the_place_of_one_that_checkpoints_wait_for(run: Run, three: Path) -> None:
    import lastgood

    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        (three / ".lastgood").rename(three / "moved")
        assert task.save({"n": 4}).status == "spooled"
    assert run("init", code=6).stderr.startswith("error: the store is not there\n")
    assert not (three / ".lastgood").exists()


def test_a_broken_config_is_named(run: Run, folder: Path) -> None:
    (folder / "lastgood.toml").write_text("store = ")
    assert "lastgood.toml cannot be read" in run("log", code=2).stderr


def test_repair_leaves_a_sound_store_alone(run: Run, three: Path) -> None:
    assert "nothing to repair" in run("repair").stdout


def test_lost_commits_are_refused_until_the_loss_is_accepted(run: Run, data: Run, three: Path) -> None:
    wal = three / ".lastgood" / "catalog.sqlite-wal"
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    (three / ".lastgood" / "catalog.sqlite-shm").unlink()
    assert "lastgood repair --accept-loss" in run("log", code=5).stderr
    assert run("verify", "--all", code=5).stdout == ""
    assert data("repair", "--accept-loss", "--yes")["accepted"] > 0
    assert data("log")["total"] < 3


def test_tasks_are_listed_newest_first_for_every_owner_or_one(data: Run, folder: Path) -> None:
    for user, task in (("ann", "one"), ("bob", "two")):
        data("save", "--set", "a=1", "--user", user, "--task", task)
    everybody = data("tasks")["tasks"]
    assert [(task["id"], task["owner"], task["checkpoints"]) for task in everybody] == [
        ("two", "bob", 1),
        ("one", "ann", 1),
    ]
    assert [task["id"] for task in data("tasks", "--owner", "ann")["tasks"]] == ["one"]
    assert [task["id"] for task in data("tasks", "--after", str(everybody[0]["number"]))["tasks"]] == ["one"]


def test_another_owners_task_needs_the_owner(run: Run, data: Run, folder: Path) -> None:
    run("save", "--set", "a=1", "--user", "ann", "--task", "t")
    run("log", "--user", "bob", "--task", "t", code=3)
    assert data("log", "--user", "bob", "--owner", "ann", "--task", "t")["total"] == 1


def test_a_command_about_a_task_that_is_not_there_says_so_and_exits_with_3(run: Run) -> None:
    """D4, finding 9: what a program is answered with None, a person is told in a sentence."""
    run("init")
    for command in (["log"], ["last-good"], ["verify"], ["show"], ["rm", "@1", "--yes"], ["history"]):
        assert "there is no" in run("--task", "nothing", *command, code=3).stderr


def test_a_restored_lastgood_toml_that_names_another_store_is_announced(run: Run, folder: Path) -> None:
    """First use: a backup is used in its place, and its newest checkpoint has the lastgood.toml of before."""
    (folder / "a.txt").write_text("one")
    run("init")
    run("backup", "../copy")
    (folder / "lastgood.toml").unlink()
    run("init", "--store", "../copy")
    said = run("restore", "@1").stderr
    assert "warning: lastgood.toml is that of @1 now and no longer leads to this store" in said
    command = re.search(r"Undo with `lastgood (.*)`", said)
    assert command is not None
    assert run(*shlex.split(command[1])).stdout.startswith("undone: ")
    assert "../copy" in (folder / "lastgood.toml").read_text()
    assert "warning" not in run("restore", "@2").stderr


def test_a_store_in_git_can_be_had_in_the_folder_as_the_note_says(run: Run, data: Run, repository: Path) -> None:
    said = run("init").stderr
    assert "remove lastgood.toml, and run `lastgood init --here`" in said
    assert "remove it first: what was saved stays in the store" in run("init", "--here", code=4).stderr
    (repository / "lastgood.toml").unlink()
    run("init", "--here")
    assert data("status")["store"] == str(repository / ".lastgood/catalog.sqlite")


def test_init_says_that_it_is_nested(run: Run, folder: Path) -> None:
    assert "note:" not in run("init").stderr
    said = run("init", "inner/most").stderr
    assert f"note: {folder} has a lastgood.toml, too; commands in this folder use the new one\n" in said
    assert "note:" not in run("init", "inner/most").stderr


def test_init_names_the_task_that_is_used(data: Run, folder: Path) -> None:
    (folder / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    (folder / "a.txt").write_text("a")
    assert data("init")["task"] == data("status")["taskId"] == "work"
