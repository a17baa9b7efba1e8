"""Cutting the power of a real file system: it does lose what was not synced, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.volume import Volume, mounted, no_volume


def _write(path: Path, data: bytes, *, sync: bool = False) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def test_what_was_not_synced_is_lost_and_what_was_is_there(volume: Volume) -> None:
    _write(volume.folder / "before", b"all of it durable")
    volume.sync()
    _write(volume.folder / "synced", b"durable", sync=True)
    _write(volume.folder / "before", b"overwritten")
    _write(volume.folder / "lost", b"never synced")

    volume.cut_power()
    with pytest.raises(OSError):  # noqa: PT011
        _write(volume.folder / "after", b"nothing comes to the disk any more", sync=True)
    volume.come_back()

    assert (volume.folder / "synced").read_bytes() == b"durable"
    assert (volume.folder / "before").read_bytes() == b"all of it durable"
    assert not (volume.folder / "lost").exists()
    assert not (volume.folder / "after").exists()


def test_replacing_a_file_by_one_that_was_not_synced_leaves_neither_whole(volume: Volume) -> None:
    """So a campaign sees a missing fsync: the file system does not make up for it."""
    _write(volume.folder / "kept", b"old")
    volume.sync()
    _write(volume.folder / "draft", b"new")
    (volume.folder / "draft").rename(volume.folder / "kept")
    _write(volume.folder / "another", b"", sync=True)  # brings the rename along

    volume.cut_power()
    volume.come_back()

    assert (volume.folder / "kept").read_bytes() == b""


def test_two_can_be_used_at_once_and_nothing_is_left_of_them() -> None:
    if obstacle := no_volume():
        pytest.skip(obstacle)
    with mounted() as one, mounted() as other:
        assert one.device != other.device
        one.cut_power()
        _write(other.folder / "file", b"bytes", sync=True)
    for volume in (one, other):
        assert not volume.folder.exists()
        assert not Path("/sys/block", Path(volume.device).name, "loop", "backing_file").exists()


_KILLED = """
import os, signal
from tests.support.volume import mounted
with mounted() as volume:
    print(volume.device, volume.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_when_the_process_is_killed() -> None:
    if obstacle := no_volume():
        pytest.skip(obstacle)
    killed = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=False)
    device, folder = killed.stdout.split()
    assert killed.returncode == -signal.SIGKILL
    assert not Path(folder).exists()
    assert not Path("/sys/block", Path(device).name, "loop", "backing_file").exists()
