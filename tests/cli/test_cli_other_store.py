"""`--store` of another project, in a folder that has a lastgood.toml of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def other(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of another folder with a task of the same name; the current folder has a store of its own."""
    there = folder / "there"
    for place, text in ((there, "theirs"), (folder / "here", "ours")):
        place.mkdir()
        monkeypatch.chdir(place)
        (place / "a.txt").write_text(text)
        run("init", "--task", "app")
    return str(there / ".lastgood")


@pytest.mark.parametrize("given", ["option", "variable"])
@pytest.mark.parametrize(
    "words",
    [
        ["restore", "@1"],
        ["restore", "@1", "a.txt"],
        ["restore", "@1", "--dry-run"],
        ["save", "-m", "mine"],
        ["save", "--set", "n=1"],
        ["undo"],
        ["diff"],
        ["run-step", "x", "--", "true"],
    ],
    ids=lambda words: " ".join(words),
)
def test_it_is_not_combined_with_the_folder_here(
    run: Run, data: Run, other: str, words: list[str], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given == "variable":
        monkeypatch.setenv("LASTGOOD_STORE", other)
    options = ["--store", other] if given == "option" else []
    failed = run(*options, *words, code=2).stderr
    assert f"is of another store than {other}" in failed
    assert "hint: --workspace DIR says whose files are meant; --no-files leaves files alone" in failed
    assert Path("a.txt").read_text() == "ours"
    assert data("--store", other, "log")["total"] == 1


def test_a_workspace_that_is_named_is_taken(run: Run, data: Run, other: str) -> None:
    run("--store", other, "restore", "@1", "--workspace", ".")
    assert Path("a.txt").read_text() == "theirs"
    run("--store", other, "save", "--set", "n=1", "--no-files")
    assert data("--store", other, "log")["total"] == 3


def test_it_can_be_read_all_the_same(run: Run, data: Run, other: str) -> None:
    run("--store", other, "save", "--set", "n=1", "--no-files")
    assert len(run("--store", other, "log").stdout.splitlines()) == 2
    assert run("--store", other, "cat", "HEAD", "a.txt").stdout == "theirs"
    assert "a.txt" in run("--store", other, "ls").stdout
    assert "app" in run("--store", other, "show", "HEAD").stdout
    assert "+ n: 1" in run("--store", other, "diff", "@1", "@2").stdout
    assert "is of another store" in data("--store", other, "status")["workspace"]["problem"]
    run("--store", other, "restore", "@1", "--to", "copy")
    assert Path("copy/a.txt").read_text() == "theirs"


def test_the_same_store_by_another_path_and_a_backup_of_it_go_on_with_the_folder(
    run: Run, other: str, tmp_path: Path
) -> None:
    Path("../link").symlink_to(".")
    run("backup", "../backup")
    for store in ("../link/here/.lastgood", "../backup"):
        Path("a.txt").write_text("changed")
        run("--store", store, "restore", "@1")
        assert Path("a.txt").read_text() == "ours"


def test_a_backup_of_a_store_that_is_gone_is_not_called_that_of_another(run: Run, other: str) -> None:
    run("backup", "../copy")
    shutil.rmtree(".lastgood")
    Path("a.txt").write_text("ruined")
    failed = run("--store", "../copy", "restore", "HEAD", code=2).stderr
    assert "is not there: whether" in failed
    assert "another store" not in failed
    assert failed.endswith("hint: if it is, add --workspace .\n")
    run("--store", "../copy", "restore", "HEAD", "--workspace", ".")
    assert Path("a.txt").read_text() == "ours"


@pytest.mark.parametrize("words", [["log"], ["save", "--set", "n=1"], ["status"], ["restore", "@1"]])
@pytest.mark.parametrize("gone", ["", ".lastgood", "lastgood.toml"])
def test_the_folder_of_a_project_is_not_its_store(run: Run, other: str, words: list[str], gone: str) -> None:
    """`save` had made a new store among the files there."""
    there = Path(other).parent
    if gone:
        (there / gone).rename(there / "away")
    before = sorted(there.iterdir())
    failed = run("--store", "../there", *words, code=2).stderr
    assert "is a folder that has a store, not the store itself" in failed
    assert "hint: give --store ../there/.lastgood, or" in failed
    assert sorted(there.iterdir()) == before
