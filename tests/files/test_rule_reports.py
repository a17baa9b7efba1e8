"""Ignore rules that do nothing are told with every save (B1): what they were to leave out is captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood import Store
from lastgood.files.rules import MAX_RULES

IDLE = "rules: line 2 can never match"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / ".gitignore").write_text("*.log\n[a-\n")
    (folder / "src" / "app.py").write_text("one")
    return folder


@pytest.mark.parametrize("watch", [False, True])
def test_they_are_told_as_long_as_they_lie_there(store: Store, work: Path, watch: bool) -> None:
    """Also by a save for which nobody has looked at that folder again."""
    task = store.task("t", workspace=work, watch=watch)
    assert task.save({}).skipped == (("src/.gitignore", IDLE),)
    assert task.save({}).skipped == (("src/.gitignore", IDLE),)
    (work / "other.txt").write_text("elsewhere")
    assert task.save({}).skipped == (("src/.gitignore", IDLE),)
    (work / "src" / ".gitignore").write_text("*.log\n")
    assert task.save({}).skipped == ()


def test_the_ignore_file_itself_is_captured(store: Store, work: Path) -> None:
    saved = store.task("t", workspace=work).save({})
    assert store.read_file(saved.id, "src/.gitignore") == b"*.log\n[a-\n"


def test_the_repositorys_own_rules_are_told_of_and_so_is_the_folder_of_several(store: Store, work: Path) -> None:
    (work / ".git" / "info").mkdir(parents=True)
    (work / ".git" / "info" / "exclude").write_text("# nothing\n/\n")
    (work / "src" / ".lastgoodignore").write_text("\n".join(f"n{number}" for number in range(MAX_RULES + 2)))
    saved = store.task("t", workspace={"app": work}).save({})
    assert set(saved.skipped) == {
        ("app:.git/info/exclude", IDLE),
        ("app:src/.gitignore", IDLE),
        ("app:src/.lastgoodignore", "rules: 2 of its rules left out: a file may have 10,000"),
    }


def test_an_ignore_file_that_is_a_link_is_not_followed_and_that_is_told(store: Store, work: Path) -> None:
    (work / ".gitignore").symlink_to("src/.gitignore")
    saved = store.task("t", workspace=work).save({})
    assert (".gitignore", "rules: it cannot be read, so none of its rules hold") in saved.skipped


def test_a_list_of_files_is_captured_whatever_the_rules_say_and_nothing_is_told_of_them(
    store: Store, work: Path
) -> None:
    assert store.task("t", workspace=work).save({}, files=["src/app.py"]).skipped == ()
