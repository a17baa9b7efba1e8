"""collect: what no checkpoint needs any more goes, and what was done is said."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.catalog.values import Actor
from lastgood.model.task import Process
from lastgood.upkeep import collect as collecting

Run = Callable[..., Any]

NOTHING = {
    "purged": 0, "removed": 0, "freed": 0, "condemned": 0, "condemnedBytes": 0, "packsRemoved": 0,
    "packsRewritten": 0, "strays": 0, "dryRun": False, "waitsUntil": None, "deleted": 0,
}  # fmt: skip


@pytest.fixture
def three_with_files(run: Run, three: Path) -> Path:
    """Five checkpoints; the fourth, which is deleted, is the only one with a large file."""
    (three / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    (three / "large").write_bytes(random.Random(1).randbytes(300_000))
    run("save", "-m", "with a large file")
    (three / "large").unlink()
    run("save", "-m", "without")
    run("rm", "@4")
    return three


def packs(folder: Path) -> list[Path]:
    return list((folder / ".lastgood" / "objects" / "packs").glob("*/*"))


def test_a_store_without_garbage_is_left_as_it_is(run: Run, data: Run, three: Path) -> None:
    assert data("collect") == NOTHING
    assert run("collect", "--grace", "0", "--yes").stdout == "nothing to remove\n"


def test_what_was_just_deleted_is_kept(run: Run, data: Run, three_with_files: Path) -> None:
    """And `rm --undo` brings it back."""
    assert run("collect").stdout.splitlines() == [
        "nothing to remove",
        "kept: 1 checkpoint deleted within the grace period",
    ]
    assert data("collect", "--grace", "2d") == {**NOTHING, "deleted": 1}
    run("rm", "@4", "--undo")
    assert run("cat", "@4:large").stdout_bytes == random.Random(1).randbytes(300_000)


def test_with_no_grace_it_goes_at_once_and_the_room_with_it(run: Run, data: Run, three_with_files: Path) -> None:
    """B6: the rest is whole."""
    before = data("du")["diskBytes"]
    lines = run("collect", "--grace", "0", "--yes").stdout.splitlines()
    assert lines[0] == "purged 1 deleted checkpoint"
    assert [line.split()[0] for line in lines[1:]] == ["removed", "rewrote", "freed"]
    assert lines[-1].endswith(" KiB")
    assert data("du")["diskBytes"] < before - 290_000
    assert data("check", "--read-data")["ok"]
    assert data("collect", "--grace", "0", "--yes") == NOTHING  # there is an end to it
    run("rm", "@4", "--undo", code=3)


def test_a_dry_run_tells_the_same_and_changes_nothing(run: Run, data: Run, three_with_files: Path) -> None:
    before = data("du")["diskBytes"]
    foretold = data("collect", "--grace", "0", "--dry-run")
    assert run("collect", "--grace", "0", "--dry-run").stdout.startswith("would purge 1 deleted checkpoint\n")
    assert data("du")["diskBytes"] == before
    done = data("collect", "--grace", "0", "--yes")
    assert foretold["dryRun"]
    for key in ("purged", "removed", "condemned", "deleted"):
        assert foretold[key] == done[key]
    assert abs(foretold["freed"] - done["freed"]) < 2_000


def test_what_nothing_needs_waits_and_is_told_until_when(run: Run, data: Run, three_with_files: Path) -> None:
    run("rm", "@4", "--purge", "--yes")
    began = datetime.now(UTC)
    said = data("collect", "--grace", "30m")
    assert said["condemned"] > 0
    assert said["condemnedBytes"] > 290_000
    assert said["removed"] == said["freed"] == said["deleted"] == 0
    assert timedelta(minutes=30) <= datetime.fromisoformat(said["waitsUntil"]) - began < timedelta(minutes=40)
    nothing, waiting = run("collect").stdout.splitlines()
    assert nothing == "nothing to remove"
    assert waiting.startswith(f"not needed any more: {said['condemned']} blobs (")
    assert waiting.endswith(" removes them")
    assert data("collect", "--grace", "0", "--yes")["removed"] == said["condemned"]


def test_packs_that_nothing_lies_in_and_those_of_nobody_are_told(run: Run, three_with_files: Path) -> None:
    with lastgood.open(three_with_files / ".lastgood") as store:
        objects = store._engine.blobs.objects
        assert objects is not None
        objects.put("packs/aa/left-over", [b"x" * 3000])
        store.delete_task("work")
    lines = run("collect", "--grace", "0", "--yes").stdout.splitlines()
    assert "removed 1 empty pack" in lines
    assert "removed 1 pack that belonged to no checkpoint" in lines
    assert not packs(three_with_files)


@pytest.mark.parametrize("span", ["0", "90", "90s", "1.5h", "2 d", "1w"])
def test_a_span_can_be_given_in_any_unit(run: Run, three: Path, span: str) -> None:
    run("collect", "--grace", span)


@pytest.mark.parametrize("span", ["", "-1", "soon", "1x", "nan", "inf", "1e3", "99999999w", "h"])
def test_what_is_no_span_is_refused(run: Run, three: Path, span: str) -> None:
    assert "is no span of time" in run("collect", "--grace", span, code=2).stderr


def test_who_collects_at_the_same_time_is_told(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a minute; here, sooner."""
    monkeypatch.setattr(collecting, "PATIENCE_SECONDS", 0.03)
    run("collect")
    parent = Process(socket.gethostname(), os.getppid())
    with lastgood.open(three / ".lastgood") as store:
        store._engine.catalog.acquire_lease(None, "collect", parent, "another", 60.0, Actor("ben"))
        error = json.loads(run("collect", "--json", code=6).stderr)["error"]
    assert (error["code"], error["detail"]) == ("busy", "someone else is collecting this store")


def test_damage_that_hides_what_others_need_stops_it(run: Run, three_with_files: Path) -> None:
    with lastgood.open(three_with_files / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(
            lambda connection: connection.execute("UPDATE checkpoints SET record = zeroblob(9) WHERE number & 1")
        )
    before = packs(three_with_files)
    assert "is damaged" in run("collect", "--grace", "0", "--yes", code=5).stderr
    assert packs(three_with_files) == before != []


def test_a_store_that_is_not_there_is_not_made(run: Run, folder: Path) -> None:
    run("collect", code=3)
    assert list(folder.iterdir()) == []
