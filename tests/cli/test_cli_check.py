"""`lastgood check` and `lastgood repair` on the command line."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.damage import CATALOG, flip, pack_file, tamper


@pytest.fixture
def with_files(run: Callable[..., Any], three: Path) -> Path:
    """The store of three checkpoints, and two more with files, enough of them for a pack."""
    (three / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    for number in range(150):
        (three / f"{number}.bin").write_bytes(os.urandom(3000))
    run("save", "-m", "with files")
    (three / "0.bin").write_bytes(b"other")
    run("save", "-m", "again")
    return three


def test_a_sound_store_is_clean(run: Callable[..., Any], data: Callable[..., Any], with_files: Path) -> None:
    assert "no damage" in run("check").stdout
    told = data("check", "--read-data")
    assert (told["ok"], told["depth"], told["findings"]) == (True, "data", [])
    assert told["lookedAt"]["checkpoints"] == 5
    assert told["tasks"][0]["newestIntact"]


def test_damage_ends_with_its_exit_code_and_names_blob_checkpoint_and_file(
    run: Callable[..., Any], data: Callable[..., Any], with_files: Path
) -> None:
    """Issue 3."""
    content = (with_files / "7.bin").read_bytes()
    pack = pack_file(with_files / ".lastgood")
    flip(pack, pack.read_bytes().index(content) + 5)
    assert data("check")["ok"]
    told = data("check", "--read-data", code=5)
    (finding,) = told["findings"]
    assert (finding["code"], finding["kind"], finding["taskId"]) == ("blob_damaged", "blob", "work")
    assert [use["parts"] for use in finding["uses"]] == [["7.bin"], ["7.bin"]]
    shown = run("check", "--read-data", code=5).stdout
    assert "blob_damaged: blob sha256:" in shown
    assert "work 2 checkpoints from @4 to @5: 7.bin" in shown
    assert "work: 2 of 5 checkpoints damaged; its newest checkpoint is damaged\n  restore " in shown
    assert "1 problem found" in shown


def test_a_store_that_is_not_there_is_not_made(run: Callable[..., Any], folder: Path) -> None:
    run("check", "--store", "nowhere", code=3)
    assert not (folder / "nowhere").exists()


def test_a_database_that_cannot_be_opened_is_a_finding(data: Callable[..., Any], with_files: Path) -> None:
    store = with_files / ".lastgood"
    (store / CATALOG).write_bytes(os.urandom(8192))
    for leftover in ("-wal", "-shm"):
        (store / f"{CATALOG}{leftover}").unlink(missing_ok=True)
    told = data("check", "--read-data", code=5)
    assert [finding["code"] for finding in told["findings"]] == ["database"]


def test_harmless_findings_are_told(run: Callable[..., Any], with_files: Path) -> None:
    tamper(with_files / ".lastgood", "UPDATE tasks SET checkpoints = 9 WHERE id = 'work'")
    shown = run("check", code=5).stdout
    assert "counter: the task 'work' has checkpoints 9; by its checkpoints it is 5" in shown


def test_paths_cannot_steer_a_terminal(run: Callable[..., Any], with_files: Path) -> None:
    (with_files / "evil\x1b[31m.bin").write_bytes(b"evil content")
    run("save")
    store = with_files / ".lastgood"
    tamper(store, "DELETE FROM blobs WHERE size = 12")
    result = run("check", code=5)
    assert "\x1b" not in result.stdout
    assert "evil" in result.stdout
    told = json.loads(run("check", "--json", code=5).stdout)
    assert told["findings"][0]["uses"][0]["parts"] == ["evil\x1b[31m.bin"]


# --- repair --------------------------------------------------------------------------------------------------


def test_repair_tells_what_it_mended_and_where_the_copy_is(
    run: Callable[..., Any], data: Callable[..., Any], with_files: Path
) -> None:
    """Issue 4: from the workspace that the store knows of."""
    pack = pack_file(with_files / ".lastgood")
    flip(pack, pack.read_bytes().index((with_files / "7.bin").read_bytes()) + 5)
    told = data("repair")
    assert (told["ok"], told["lost"], told["accepted"]) == (True, [], 0)
    (mended,) = told["mended"]
    assert mended["code"] == "blob_damaged"
    assert Path(told["quarantine"]).is_dir()
    assert "no damage" in run("check", "--read-data").stdout
    assert "nothing to repair" in run("repair").stdout


def test_repair_clears_the_damage_that_is_recorded_of_what_it_mended(
    run: Callable[..., Any], data: Callable[..., Any], with_files: Path
) -> None:
    pack = pack_file(with_files / ".lastgood")
    flip(pack, pack.read_bytes().index((with_files / "7.bin").read_bytes()) + 5)
    run("verify", "--all", code=5)

    def recorded() -> list[str]:
        return [one["verification"] for one in data("log")["checkpoints"]]

    assert recorded() == ["damaged"] * 2 + ["unverified"] * 3
    run("repair")
    assert recorded() == ["unverified"] * 5
    assert data("last-good")["checkpoint"]["sequence"] == 5


def test_repair_names_what_is_lost_and_ends_with_the_code_of_damage(
    run: Callable[..., Any], data: Callable[..., Any], with_files: Path
) -> None:
    content = (with_files / "7.bin").read_bytes()
    (with_files / "7.bin").unlink()
    pack = pack_file(with_files / ".lastgood")
    flip(pack, pack.read_bytes().index(content) + 5)
    shown = run("repair", code=5).stdout
    assert "blob_missing: blob sha256:" in shown
    assert "work 2 checkpoints from @4 to @5: 7.bin" in shown
    assert "1 cannot be repaired" in shown
    assert "what was changed is kept in\n  " in shown
    (with_files / "7.bin").write_bytes(content)
    run("save", "-m", "brings it back")
    assert data("check", "--read-data")["ok"]


def test_backup_says_what_it_copied_and_that_it_was_verified(run: Any, data: Any, three: Path) -> None:
    assert "backed up 3 checkpoints" in run("backup", "copy").stdout
    assert data("--store", "copy", "log", "--task", "work")["total"] == 3
    assert "exists" in run("backup", "copy", code=4).stderr
    assert data("backup", "another")["checkpoints"] == 3


def test_a_damaged_checkpoint_is_marked_passed_over_and_restored_in_part(
    run: Callable[..., Any], data: Callable[..., Any], folder: Path
) -> None:
    """First use 2: `last-good` and `status` pass over what `verify` has found damaged; the rest of it can be had."""
    (folder / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    run("init")
    for number in (1, 2):
        (folder / "big").write_bytes(random.Random(number).randbytes(300_000))
        (folder / "small").write_text(str(number))
        before = set((folder / ".lastgood/objects").rglob("*"))
        run("run-step", "tests", "--", "true")
    (pack,) = (path for path in set((folder / ".lastgood/objects").rglob("*")) - before if path.is_file())
    with pack.open("r+b") as opened:
        opened.seek(150_000)
        opened.write(b"damaged")
    assert "big: " in run("verify", "HEAD", code=5).stdout
    good, damaged = data("last-good")["checkpoint"], data("log")["checkpoints"][0]
    assert good["id"] != damaged["id"]
    assert (damaged["verification"], damaged["verified"], damaged["canRestore"]) == ("damaged", False, False)
    assert data("status")["lastGood"] == good["id"]
    assert good["id"][:18] in run("status").stdout
    assert "big: " in run("show", "HEAD").stdout
    run("save", "-m", "more")
    (folder / "small").write_text("other")
    (folder / "big").write_text("other")
    refused = run("restore", damaged["id"], code=5)
    assert f"checkpoint {damaged['id']} cannot be restored: big: " in refused.stderr
    assert f"`lastgood restore {damaged['id']} --skip-damaged`" in refused.stderr
    said = data("restore", damaged["id"], "--skip-damaged", code=10)
    assert ([one["path"] for one in said["failed"]], said["restored"]) == (["big"], ["small"])
    assert ((folder / "small").read_text(), (folder / "big").read_text()) == ("2", "other")
