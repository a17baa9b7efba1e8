"""A real file system that can lose its power: ext4 on a loop device, in a file that lies in memory."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

SIZE = 96 << 20
OPTIONS = "noauto_da_alloc,commit=300"
"""Nothing comes to the disk by itself: neither what a rename replaces, nor whatever is five seconds old."""

_QUICK = Path("/dev/shm")
_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN
_WITHOUT_FLUSHING = struct.pack("=I", 2)
_TRIES = 200


class Volume(NamedTuple):
    device: str
    folder: Path

    def sync(self) -> None:
        """All that is there is durable."""
        _do("sync", "--file-system", self.folder)

    def cut_power(self) -> None:
        """From now on nothing comes to the disk any more."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSHING)
        finally:
            os.close(descriptor)

    def come_back(self) -> None:
        """As after the next start of the machine: what was in memory is gone, the journal is replayed."""
        self._unmount()
        self._mount()

    def make_read_only(self) -> None:
        """As a person does, who mounts a copy, or another's disk."""
        _do("mount", "-o", "remount,ro", self.folder)

    def make_writable(self) -> None:
        _do("mount", "-o", "remount,rw", self.folder)

    def give_up(self) -> None:
        """As the kernel does when a disk fails: nothing is written any more, whoever has files open for it."""
        _do("mount", "-o", "remount,abort", self.folder)

    def _mount(self) -> None:
        _do("mount", "-t", "ext4", "-o", OPTIONS, self.device, self.folder)

    def _unmount(self) -> None:
        for _ in range(_TRIES):
            with suppress(subprocess.CalledProcessError):
                return _do("umount", self.folder)
            time.sleep(0.02)  # a process that was killed has not let go yet
        return _do("umount", self.folder)


@contextmanager
def mounted() -> Iterator[Volume]:
    """Empty; unmounted and gone in the end, also when this process is killed meanwhile. Needs to be root."""
    scratch = Path(tempfile.mkdtemp(prefix="lastgood-volume-", dir=_QUICK if _QUICK.is_dir() else None))
    try:
        volume = _attach(scratch)
    except BaseException:
        shutil.rmtree(scratch)
        raise
    with subprocess.Popen(
        ["sh", "-c", _CLEAN_UP, "sh", volume.folder, volume.device, scratch],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        volume._mount()
        yield volume


def _attach(scratch: Path) -> Volume:
    image, folder = scratch / "image", scratch / "mounted"
    with image.open("wb") as file:
        file.truncate(SIZE)
    folder.mkdir()
    _do("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", "-J", "size=8", image)
    attached = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)
    return Volume(attached.stdout.strip(), folder)


_CLEAN_UP = """
cat
tries=0
while mountpoint -q "$1" && ! umount "$1" && [ $tries -lt 200 ]; do tries=$((tries + 1)); sleep 0.02; done
mountpoint -q "$1" && umount --lazy "$1"
losetup --detach "$2"
rm -rf "$3"
"""
"""What a process of its own does as soon as nobody is at the other end of its input, for whatever reason."""


@functools.cache
def no_volume() -> str | None:
    """Why no file system can be mounted here, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root can mount a file system and cut its power"
    for tool in ("mkfs.ext4", "losetup", "mount", "umount", "mountpoint"):
        if shutil.which(tool) is None:
            return f"there is no {tool}, so no file system can be made"
    try:
        with mounted() as volume:
            volume.cut_power()
            volume.come_back()
    except (OSError, subprocess.CalledProcessError):
        return "no ext4 file system can be mounted here, or its power not be cut"
    return None


def _do(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)
