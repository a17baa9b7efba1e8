"""A disk that can only be read: a copy that somebody mounted, or one that the kernel has given up (A8, C10, I1, I4)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.volume import Volume

import lastgood
from lastgood import BusyError, UnavailableError

pytestmark = pytest.mark.once

LARGE = bytes(range(256)) * 8192


_SAVE_AND_DIE = """
import os, signal, sys, lastgood
store, work = sys.argv[1:]
task = lastgood.open(store, spool=None).task("work", workspace=work)
for round in range(3):
    task.save({"round": round})
os.kill(os.getpid(), signal.SIGKILL)
"""


def save_and_die(volume: Volume) -> None:
    work = volume.folder / "work"
    work.mkdir()
    (work / "large").write_bytes(LARGE)
    done = subprocess.run([sys.executable, "-c", _SAVE_AND_DIE, volume.folder / "store", work], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_store_on_a_disk_that_can_only_be_read_gives_all_that_it_has(volume: Volume, tmp_path: Path) -> None:
    save_and_die(volume)
    volume.make_read_only()
    with lastgood.open(volume.folder / "store", spool=None) as store:
        task = store.task("work")
        assert [one.state["round"] for one in store.list_checkpoints("work")] == [2, 1, 0]
        task.copy_files("HEAD", tmp_path / "copy")
        assert not store.check(read_data=True).findings
    assert (tmp_path / "copy" / "large").read_bytes() == LARGE


CHANGES: dict[str, Callable[[lastgood.Task], object]] = {
    "save": lambda task: task.save({"round": 9}),
    "begin a step": lambda task: task.step("edit").__enter__(),
    "tag": lambda task: task.tag(task.find("HEAD"), "green"),
    "fork": lambda task: task.fork("HEAD", name="other"),
    "restore": lambda task: task.restore("HEAD~1", what="state"),
    "session": lambda task: task.session().__enter__(),
}


def test_what_would_change_it_is_refused_in_words_and_changes_nothing(volume: Volume) -> None:
    save_and_die(volume)
    volume.make_read_only()
    with lastgood.open(volume.folder / "store", on_failure="raise") as store:
        for name, change in CHANGES.items():
            with pytest.raises(UnavailableError, match="can only be read") as refused:
                change(store.task("work"))
            assert refused.value.hint, name
        assert store.task("work").state == {"round": 2}


def test_when_the_kernel_gives_a_disk_up_everybody_reads_on_and_what_is_saved_is_spooled(
    volume: Volume, tmp_path: Path
) -> None:
    where, spool = volume.folder / "store", tmp_path / "spool"
    with lastgood.open(where, spool=spool) as store:
        task = store.task("work")
        before = task.save({"round": 1})
        volume.sync()
        volume.give_up()
        after = task.save({"round": 2})
        assert (before.status, after.status) == ("stored", "spooled")
        assert store.find_checkpoint(before.id).state == {"round": 1}
    with lastgood.open(where, spool=spool) as store:
        assert store.find_checkpoint(before.id).state == {"round": 1}
        assert store.task("work").state == {"round": 2}
    volume.come_back()
    with lastgood.open(where, spool=spool) as store:
        store.replay()
        assert [one.id for one in store.list_checkpoints("work")] == [after.id, before.id]
        assert store.list_checkpoints("work")[0].status == "stored"


def test_who_opened_it_when_it_could_only_be_read_opens_it_again_to_write(volume: Volume, tmp_path: Path) -> None:
    """Half of it could be written already: the log, and not the witness of what is in it."""
    save_and_die(volume)
    volume.make_read_only()
    where, spool = volume.folder / "store", tmp_path / "spool"
    with lastgood.open(where, spool=spool) as store:
        task = store.task("work")
        volume.make_writable()
        with ThreadPoolExecutor(1) as pool:  # a thread has a connection of its own
            assert pool.submit(task.save, {"round": 3}).result().status == "spooled"
        assert task.save({"round": 4}).status == "spooled"
    with lastgood.open(where, spool=spool) as store:
        store.replay()
        assert [one.state["round"] for one in store.list_checkpoints("work")] == [4, 3, 2, 1, 0]


def back_up_to(volume: Volume, tmp_path: Path) -> Path:
    """Make a store of three checkpoints, and put a backup of it there: its log is empty."""
    (work := tmp_path / "work").mkdir()
    (work / "large").write_bytes(LARGE)
    with lastgood.open(tmp_path / "store", spool=None) as store:
        task = store.task("work", workspace=work)
        for number in range(3):
            task.save({"round": number})
        return store.backup(volume.folder / "copy").path


@pytest.mark.parametrize("ends", [(), ("-shm",)])
def test_a_backup_on_a_read_only_disk_is_read_and_backed_up(
    volume: Volume, tmp_path: Path, ends: tuple[str, ...]
) -> None:
    """SQLite wants to begin a log there, and cannot."""
    copy = back_up_to(volume, tmp_path)
    for end in ends:
        (copy / f"catalog.sqlite{end}").unlink()
    volume.make_read_only()
    with lastgood.open(copy, spool=tmp_path / "spool") as store:
        assert store.backup(tmp_path / "again").checkpoints == 3
        assert store.check(read_data=True).ok
        assert b"".join(store.stream_file(store.task("work").find("HEAD").id, "large")) == LARGE
        assert store.task("work", workspace=False).save({"round": 9}).status == "spooled"
        with pytest.raises(UnavailableError, match=r"would lack 1 checkpoint.* can only be read here"):
            store.backup(tmp_path / "third")
    with lastgood.open(tmp_path / "again", spool=None) as store:
        assert [one.state["round"] for one in store.list_checkpoints("work")] == [2, 1, 0]


def as_somebody() -> list[str]:
    """Without root's right to write anywhere, and with the one to read: the interpreter may be root's alone."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("NOT TESTED, a store that may only be read: that needs root and setpriv")
    rights = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    return [setpriv, "--reuid=12345", "--regid=12345", "--clear-groups", *rights, sys.executable]


_SAVE_WITHOUT_PERMISSION = """
import os, sys, lastgood
theirs, mine, work = sys.argv[1:]
with lastgood.open(theirs, user="ada", spool=mine + "-spool") as store:
    for task in (store.task("work", workspace=False), store.task("other", workspace=work)):
        for save in (lambda: task.save({"n": 2}), lambda: task.step("edit").__enter__()):
            try:
                print(save().status)
            except lastgood.UnavailableError as error:
                print(error)
    print(store.task("work", workspace=False).save({}, on_failure="continue").status, store.spool_figures().depth)
with lastgood.open(mine, user="ada", spool=mine + "-spool") as store:
    task = store.task("work")
    print(task.save({}).status)
    for folder, _, files in os.walk(mine):
        for each in [folder, *(os.path.join(folder, file) for file in files)]:
            os.chmod(each, 0o500)
    print(task.save({"n": 2}).status)
"""


def test_a_save_that_is_not_permitted_is_refused_and_a_permission_that_is_taken_away_may_come_back(
    tmp_path: Path,
) -> None:
    """C10: it is no outage; what is spooled for a store that one may only read might never come into it."""
    somebody = as_somebody()
    with tempfile.TemporaryDirectory() as folder:
        theirs, mine, work = (Path(folder) / name for name in ("theirs", "mine", "work"))
        work.mkdir()
        with lastgood.open(theirs, user="ada", spool=None) as store:
            store.task("work").save({"n": 1})
        subprocess.run(["chmod", "-R", "a+rX", theirs], check=True)
        for each in (Path(folder), work):
            os.chown(each, 12345, 12345)
        script = [*somebody, "-c", _SAVE_WITHOUT_PERMISSION, *map(str, (theirs, mine, work))]
        done = subprocess.run(script, capture_output=True, text=True, env={}, check=False)
    refused = ["the store can only be read here"] * 4
    assert done.stdout.splitlines() == [*refused, "lost 0", "stored", "spooled"], done.stderr


def test_a_store_that_a_user_may_only_read_is_read_and_backed_up(tmp_path: Path) -> None:
    somebody = as_somebody()
    with lastgood.open(tmp_path / "store", spool=None) as store:
        store.task("work").save({})
        store.backup(tmp_path / "copy")
    with tempfile.TemporaryDirectory() as theirs:
        os.chown(theirs, 12345, 12345)
        words = ["-m", "lastgood.cli.main", "--store", f"{tmp_path}/copy", "backup", f"{theirs}/backup"]
        done = subprocess.run([*somebody, *words], capture_output=True, text=True, env={}, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("backed up 1 checkpoint ")


def test_what_others_write_to_it_meanwhile_is_seen_and_no_read_is_of_two_moments(
    volume: Volume, tmp_path: Path
) -> None:
    """SQLite is told that nothing changes there, and would go on with the pages that it has read."""
    copy = back_up_to(volume, tmp_path)
    (copy / "catalog.sqlite-shm").unlink()
    volume.make_read_only()
    with lastgood.open(copy, spool=None, on_failure="raise") as store:
        assert store.page_checkpoints("work").total == 3
        volume.make_writable()
        with lastgood.open(copy, spool=None) as other, pytest.raises(BusyError, match="written while it was read"):
            store._engine.catalog._read(lambda _: other.task("work").save({"round": 3}))  # type: ignore[attr-defined]
        assert store.page_checkpoints("work").total == 4


@pytest.mark.parametrize("end", ["-wal", "-shm", "-lock"])
def test_where_one_of_its_files_is_not_there_it_is_refused_in_words(volume: Volume, end: str) -> None:
    save_and_die(volume)
    (volume.folder / "store" / f"catalog.sqlite{end}").unlink()
    volume.make_read_only()
    with pytest.raises(UnavailableError) as refused:
        lastgood.open(volume.folder / "store", spool=None)
    assert "permissions" in (refused.value.hint or "")
