"""What a person meets who lets an agent into a folder (first use)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_init_saves_the_folder_and_says_so(run: Run, data: Run, folder: Path) -> None:
    """Finding 1."""
    (folder / "my.txt").write_text("mine\n")
    assert "saved the files that are here as @1" in run("init").output
    run("run-step", "agent", "--", "sh", "-c", "echo ruined > my.txt")
    assert (folder / "my.txt").read_text() == "ruined\n"
    run("restore", "@1")
    assert (folder / "my.txt").read_text() == "mine\n"
    assert "saved" not in run("init").output
    assert data("log", "--all")["total"] == 3


def test_init_of_an_empty_folder_has_nothing_to_save(run: Run, data: Run) -> None:
    """Finding 1."""
    assert "saved" not in run("init").output
    assert not data("tasks")["tasks"]


def test_init_says_in_json_what_it_saved(data: Run, folder: Path) -> None:
    """Finding 1."""
    (folder / "my.txt").write_text("mine\n")
    assert data("init")["checkpoint"] == data("show", "@1")["id"]
    assert data("init")["checkpoint"] is None


def test_run_step_saves_what_it_finds_and_says_so(run: Run, folder: Path) -> None:
    """Finding 1: files that were changed since the last save."""
    run("init")
    (folder / "my.txt").write_text("mine\n")
    said = run("run-step", "agent", "--", "sh", "-c", "echo ruined > my.txt").stderr
    assert "Unsaved changes were saved first, as @1" in said
    run("restore", "@1")
    assert (folder / "my.txt").read_text() == "mine\n"


def test_a_store_whose_configuration_is_gone_is_found_and_used_again(run: Run, folder: Path) -> None:
    """`rm -rf *` leaves it, and every command said that there was none; a save made another one elsewhere."""
    (folder / "a.txt").write_text("precious")
    run("init", "--here")
    for path in (folder / "a.txt", folder / "lastgood.toml"):
        path.unlink()
    for words in (["status"], ["log"], ["restore", "HEAD"], ["save", "--set", "a=1"]):
        refused = run(*words, code=3).stderr
        assert f"there is a store in {folder}, and no lastgood.toml that names it" in refused
    run("init")
    run("restore", "@1")
    assert (folder / "a.txt").read_text() == "precious"
