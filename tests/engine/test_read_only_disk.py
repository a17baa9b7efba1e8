"""A disk that can only be read: a copy that somebody mounted, or one that the kernel has given up (A8, C10, I1, I4)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.volume import Volume

import lastgood
from lastgood import UnavailableError

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


@pytest.mark.parametrize("end", ["-wal", "-shm", "-lock"])
def test_where_one_of_its_files_is_not_there_it_is_refused_in_words(volume: Volume, end: str) -> None:
    save_and_die(volume)
    (volume.folder / "store" / f"catalog.sqlite{end}").unlink()
    volume.make_read_only()
    with pytest.raises(UnavailableError) as refused:
        lastgood.open(volume.folder / "store", spool=None)
    assert "permissions" in (refused.value.hint or "")
