"""`lastgood spool`, and what other commands say while the store is away (C10, A16)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.conftest import Run
from tests.support.disks import small_disk

import lastgood
from lastgood.catalog.sqlite import connection
from lastgood.model.identity import digest


@pytest.fixture
def away(three: Path) -> Path:
    """A task whose newest checkpoint is spooled, and whose store is gone; where to bring it back from."""
    import lastgood

    elsewhere = three / "elsewhere"
    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        (three / ".lastgood").rename(elsewhere)
        assert task.save({"n": 4}, message="number 4").status == "spooled"
    return elsewhere


def test_what_waits_is_listed_and_brought_when_the_store_is_back(
    run: Run, data: Callable[..., Any], three: Path, away: Path
) -> None:
    listed = data("spool")
    assert (listed["depth"], listed["away"]) == (1, "the store is not there")
    assert [each["taskId"] for each in listed["checkpoints"]] == ["work"]
    assert run("spool", "--replay", code=6).stderr.startswith("error: the store is not there\n")
    assert "spooled" in run("save", "--state", "-", input='{"n": 5}').stdout
    away.rename(three / ".lastgood")
    replayed = data("spool", "--replay")
    assert replayed["depth"] == 0
    shown = [each["sequence"] for each in data("log")["checkpoints"]]
    assert shown == [5, 4, 3, 2, 1]
    assert "nothing waits for the store" in run("spool").stderr


def test_nothing_is_spooled_behind_a_link_in_a_folder_that_came_from_somebody(
    run: Run, three: Path, tmp_path: Path
) -> None:
    """S2: the spool that a lastgood.toml names stays in its folder, but the folder that a store has in it led out."""
    private, catalog = tmp_path / "private", os.path.realpath(three / ".lastgood/catalog.sqlite")
    private.mkdir()
    (three / "lastgood.toml").write_text('store = ".lastgood"\ntask = "work"\nspool = "spool"\n')
    (three / "spool").mkdir()
    (three / "spool" / digest(os.fsencode(catalog)).hex()[:32]).symlink_to(private)
    with suppress(lastgood.InvalidError), lastgood.open() as store:
        (three / ".lastgood").rename(three / "elsewhere")
        store.task("work").save({"n": 4})
    assert list(private.iterdir()) == []
    assert "the spool's folder is a link" in run("save", "--set", "n=4", code=2).stderr


def test_a_replay_of_nothing_says_that_nothing_waits(run: Run, three: Path) -> None:
    assert run("spool", "--replay").stderr == "nothing waits for the store\n"


def test_a_store_that_is_gone_for_good_is_given_up_with_what_waits_for_it(
    run: Run, data: Callable[..., Any], three: Path, away: Path
) -> None:
    """Every command had ended with exit code 6, for ever, and none said how to go on."""
    (three / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    shutil.rmtree(away)
    refused = (["init"], ["save"], ["restore", "HEAD"], ["spool", "--replay"], ["rm", "--whole-task", "work", "--yes"])
    for command in refused:
        assert "`lastgood spool --discard`" in run(*command, code=6).stderr, command
    advice = " ".join(data("status")["advice"])
    assert "`lastgood spool --discard`" in advice
    assert "contradict" in run("spool", "--discard", "--replay", code=2).stderr
    given_up = run("spool", "--discard", "--yes").stderr
    assert given_up.startswith("gave up 1 checkpoint; what it was is kept in ")
    assert (Path(given_up.split(" kept in ")[1].split("\n")[0]) / "spool.sqlite").exists()
    assert "\ncreated " in run("init").stdout
    assert (data("spool")["depth"], data("spool")["left"]) == (0, [])
    assert run("spool", "--discard", "--yes").stderr == "nothing waits for the store\n"


def test_status_says_that_the_store_is_away_and_what_waits(run: Run, data: Callable[..., Any], away: Path) -> None:
    """A16"""
    found = data("status")
    assert (found["exists"], found["spool"]["depth"], found["head"]["status"]) == (False, 1, "spooled")
    assert found["advice"][0].startswith("the store is not there: ")
    assert "1 checkpoint waits for the store" in run("status").stdout
    assert run("log", code=6).stdout == ""
    assert not (away.parent / ".lastgood").exists()


def test_the_config_says_where_they_wait(run: Run, data: Callable[..., Any], three: Path) -> None:
    """Relative to its own folder, and seen by whoever looks from below."""
    import lastgood

    (three / "lastgood.toml").write_text('store = ".lastgood"\nspool = "waiting"\n')
    with lastgood.open() as store:
        task = store.task("work")
        (three / ".lastgood").rename(three / "elsewhere")
        assert task.save({"n": 4}, message="number 4").status == "spooled"
    found = data("spool")
    assert found["depth"] == 1
    assert Path(found["folder"]).parent == three / "waiting"
    (three / "elsewhere").rename(three / ".lastgood")
    assert data("spool", "--replay")["depth"] == 0
    assert [each["description"] for each in data("log")["checkpoints"]] == [f"number {one}" for one in (4, 3, 2, 1)]


def fill(disk: Path) -> None:
    """Leave no room, not even in blocks that files have already."""
    with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass


CAUSES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "full": ("the disk is full", fill),
    "read-only": (
        "the store can only be read here",
        lambda disk: subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True),
    ),
    "not there": ("the store is not there", lambda disk: (disk / "store").rename(disk / "elsewhere")),
    "locked": ("the store is locked by another program", lambda disk: None),
}


def test_a_store_that_can_only_be_read_is_said_in_words(run: Run, folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        (folder / "a.txt").write_text("one")
        run("init", "--store", f"{disk}/store")
        CAUSES["read-only"][1](disk)
        for words in (["restore", "HEAD"], ["diff"], ["undo"]):
            said = run(*words, code=6).stderr
            assert "the lock of the workspace, a file in the store, cannot be written: read-only file system" in said
            assert "hint: look at the store's disk and permissions" in said
        said = run("watch", code=6).stderr
        assert f"the store in {disk}/store cannot be written: read-only file system\nhint: watch saves into it" in said


def test_a_full_disk_is_named_with_what_is_left(run: Run, folder: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        (folder / "a.txt").write_text("one")
        run("init", "--store", f"{disk}/store")
        (folder / "a.txt").write_text("two")
        fill(disk)
        for words in (["tag", "x"], ["collect"], ["fork"]):
            said = run(*words, code=6).stderr
            assert "error: the disk is full\n" in said
            assert f"hint: free some space: 0 bytes are left in {disk}/store\n" in said


@pytest.mark.parametrize("cause", CAUSES)
def test_each_message_names_the_true_cause(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """A full disk had been called a store that is away."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(connection, "BUSY_MS", 10)
    told, bring_about = CAUSES[cause]
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", "4m"))
        (folder / "lastgood.toml").write_text(f'store = "{disk}/store"\n')
        run("trust")
        run("init")
        run("save", "--set", "n=1")
        if cause == "locked":
            other = stack.enter_context(closing(apsw.Connection(str(disk / "store" / "catalog.sqlite"))))
            other.execute("BEGIN IMMEDIATE")
        if cause == "not there":  # then a command saves only where something waits already
            with lastgood.open() as store:
                task = store.task("work")
                bring_about(disk)
                task.save({"n": 2})
        else:
            bring_about(disk)
        said = {
            "save": run("save", "--state", "-", input='{"n": 3}').stdout,
            "save of nothing": run("save", "--state", "-", input='{"n": 3}').stdout,
            "run-step": run("run-step", "s", "--", "true").stderr,
            "spool": run("spool").stderr,
            "status": run("status").stdout,
            "show": run("show").stdout,
            "replay": run("spool", "--replay", code=6).stderr,
        }
        assert {name for name, text in said.items() if told not in text} == {"save of nothing"}
        assert said["save of nothing"].startswith("nothing has changed since ")
        assert [name for name, text in said.items() if "away" in text] == []


@pytest.fixture
def another(run: Run, three: Path, away: Path) -> Path:
    """Another store has come to where the one that something is spooled for was."""
    run("save", "--set", "n=1", "--store", str(three / "another"))
    (three / "another").rename(three / ".lastgood")
    return three


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["log"],
        ["init"],
        ["save", "--set", "n=2"],
        ["run-step", "check", "--", "true"],
        ["restore", "HEAD", "--force"],
    ],
)
def test_what_was_spooled_for_another_store_is_said_by_the_command_that_finds_it(
    process: Callable[..., subprocess.CompletedProcess[str]], another: Path, words: list[str]
) -> None:
    """It is said this once: afterwards the spool is out of the way."""
    done = process(*words)
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if "spooled" in line]
    assert len(said) == 1
    assert said[0].startswith("alert: 1 checkpoint(s) were spooled for another store that was here before; they are")
    assert "spooled for" not in process(*words).stderr


def test_that_spooled_ones_landed_on_a_branch_of_their_own_is_said(run: Run, three: Path, away: Path) -> None:
    import lastgood

    with lastgood.open(away, user="somebody") as store:
        store.task("work", owner=lastgood.open(":memory:").user).append({"n": 40})
    away.rename(three / ".lastgood")
    said = run("status").stderr
    assert said.startswith("alert: a spooled checkpoint of 'work' is on a branch of its own now, 'main (spooled ")
    assert said.count("\n") == 1


def test_a_damaged_spool_is_told_and_programs_are_told_beside_the_document(
    process: Callable[..., subprocess.CompletedProcess[str]], data: Callable[..., Any], three: Path, away: Path
) -> None:
    spool = Path(data("spool")["folder"]) / "spool.sqlite"
    away.rename(three / ".lastgood")
    spool.write_bytes(b"rubbish " * 1000)
    done = process("save", "--set", "n=4", "--json")
    assert json.loads(done.stdout)["checkpoint"]["sequence"] == 4
    alert = json.loads(done.stderr)["alert"]
    assert (alert["code"], alert["severity"]) == ("spool", "error")
    assert alert["detail"].startswith("the spool is damaged and was put out of the way")


@pytest.mark.parametrize("words", [["log"], ["spool"], ["status"], ["show"]])
def test_that_the_store_is_away_is_said_once(
    process: Callable[..., subprocess.CompletedProcess[str]], away: Path, words: list[str]
) -> None:
    done = process(*words)
    assert "until the store takes" not in done.stderr
    assert done.stderr.count("the store is not there") <= 1


def test_what_is_spooled_is_shown_as_not_in_the_store_yet(run: Run, away: Path) -> None:
    shown = run("show").stdout
    assert "sequence     none yet: it is spooled, and not in the store\n" in shown
    assert "spool        the store is not there; 1 checkpoint waits for the store since " in shown
    told = run("status").stdout
    assert "advice       the store is not there: programs that have it open go on" in told


def test_asking_for_it_again_adds_no_words(three: Path, away: Path) -> None:
    import lastgood
    from lastgood.errors import UnavailableError

    with lastgood.open(three / ".lastgood") as store:
        spool = store._spool()
        assert spool is not None
        for _ in range(2):
            with pytest.raises(UnavailableError, match=r"(?m)^the store is not there$") as raised:
                store.replay()
            spool.breaker.open(raised.value)
        assert store.spool_figures().away == "the store is not there"
        with pytest.raises(UnavailableError, match=r"(?m)^the store is not there$"):
            spool.require_here()


def test_what_is_in_memory_alone_is_not_called_spooled(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W6: the command said "spooled", with exit code 0, and its memory was all that there was."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with small_disk(tmp_path / "disk", "8m") as disk:
        store = str(disk / "store")
        run("--store", store, "save", "--set", "n=1")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        failed = run("--store", store, "save", "--set", "n=2", code=6)
        assert failed.stdout == ""
        assert failed.stderr.startswith("error: ")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert run("--store", store, "save", "--set", "n=2").stdout.startswith("spooled ")
