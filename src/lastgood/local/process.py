"""This process: its identity, its locks across fork(), the files that it has open; and whether another is alive."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from glob import glob
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

from lastgood.model.task import Process


class HasLocks(Protocol):
    def renew_locks(self) -> None: ...


class Holdable(Protocol):
    def hold(self) -> None: ...

    def let_go(self) -> None: ...


_renewed: WeakSet[HasLocks] = WeakSet()
_held: WeakSet[Holdable] = WeakSet()


def renew_after_fork(holder: HasLocks) -> None:
    """Have `holder.renew_locks()` called in every child that is forked while it lives."""
    _renewed.add(holder)


def hold_for_fork(holder: Holdable) -> None:
    """Have `holder.hold()` called before each fork(), and `holder.let_go()` afterwards in the parent."""
    _held.add(holder)


def _call_all(holders: WeakSet[Any], method: str) -> None:
    """Call it of each, whatever one of them raises: a lock that is not renewed would be waited for without end."""
    failure: Exception | None = None
    for holder in list(holders):
        try:
            getattr(holder, method)()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


os.register_at_fork(
    before=partial(_call_all, _held, "hold"),
    after_in_parent=partial(_call_all, _held, "let_go"),
    after_in_child=partial(_call_all, _renewed, "renew_locks"),
)


ENDED = -1
_this: Process | None = None


def this_process() -> Process:
    global _this
    if _this is None or _this.pid != os.getpid():
        _this = Process(_host(), os.getpid(), _started(os.getpid()) or 0, _space())
    return _this


def is_alive(process: Process) -> bool | None:
    """Tell whether a process lives; None when it ran on another host or in another container."""
    if process.host != _host() or process.space not in (0, this_process().space):
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _started(process.pid)
    return started is None or (started != ENDED and process.started in (0, started))


BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """Return what the system is known by from one start to the next, in all containers; "" where it is not told."""
    try:
        return BOOT_FILE.read_text("ascii").strip()
    except (OSError, UnicodeError):
        return ""


def _host() -> str:
    import socket  # which evidence about files does without

    return socket.gethostname()


def _space() -> int:
    """Return the number of the namespace in which a pid stands for one process alone; 0 where it is not known."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """Return when a process began, in clock ticks of this boot; None where that is not known so cheaply."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
        fields = status.rpartition(b")")[2].split()
        return ENDED if fields[0] in (b"Z", b"X") else int(fields[19])  # ended, and its parent does not know yet
    except (OSError, ValueError, IndexError):
        return None


def move_off_standard_streams(descriptor: int) -> int:
    """Return the descriptor, or another one in its place if it is 0, 1 or 2, as in a program without standard output:
    what is printed must not end up in a file of ours."""
    if descriptor > 2:
        return descriptor
    import fcntl

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def find_open_files() -> dict[tuple[int, int], int]:
    """Return the device and inode of each file that a process has open to write, and its pid; of processes of other
    users, and where there is no /proc, none."""
    found: dict[tuple[int, int], int] = {}
    for folder in glob("/proc/[0-9]*/fd"):  # noqa: PTH207
        with suppress(OSError), os.scandir(folder) as descriptors:
            for descriptor in descriptors:
                with suppress(OSError):
                    status = descriptor.stat()
                    can_write = descriptor.stat(follow_symlinks=False).st_mode & stat.S_IWUSR
                    if can_write and stat.S_ISREG(status.st_mode):
                        found[status.st_dev, status.st_ino] = int(folder.split("/")[2])
    return found


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_AT_ONCE = 64
"""So many descriptors are closed with one look at all others."""


class Descriptors:
    """A set of descriptors of files that are not ours, closed without harm; one object for the process.

    POSIX drops every lock that a process holds on a file as soon as any of its descriptors of that file is closed. So a
    file that is open elsewhere in this process is not opened, and a descriptor of a file that was opened elsewhere
    meanwhile is parked until nothing else has it.
    """

    def __init__(self) -> None:
        self._ours: set[int] = set()
        self._parked: set[int] = set()
        self._patience = _AT_ONCE
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Close, in a forked child, what threads that it does not have were reading."""
        self._lock = threading.Lock()
        for descriptor in self._ours:
            os.close(descriptor)
        self._ours.clear()
        self._parked.clear()

    def adopt(self, descriptor: int) -> None:
        with self._lock:
            self._ours.add(descriptor)

    def is_open_elsewhere(self, file: os.stat_result) -> bool:
        """Tell whether another part of this process has the file open; True when that is not known."""
        return self.find_elsewhere()(file)

    def find_elsewhere(self) -> Callable[[os.stat_result], bool]:
        """Find all that other parts of this process have open now, and return what `is_open_elsewhere` says of it: for
        many files, with one look at the descriptors, of which there may be many, too."""
        try:
            numbers = os.listdir("/dev/fd")  # noqa: PTH208
        except OSError:
            return lambda file: True
        found = set()
        for number in [int(name) for name in numbers if name.isdecimal()]:
            if number not in self._ours:
                with suppress(OSError):  # the listing's own, or closed since
                    found.add(_identify(os.fstat(number)))
        return lambda file: _identify(file) in found

    def close(self, descriptor: int, file: os.stat_result) -> None:
        """Adopt a descriptor and release it, together with others that come later: see `close_parked`."""
        self.adopt(descriptor)
        with self._lock:
            self._parked.add(descriptor)
            if len(self._parked) < self._patience:
                return
        self.close_parked()

    def release(self, descriptor: int, file: os.stat_result) -> None:
        """Close an adopted descriptor, or park it while another part of the process has the file open."""
        with self._lock:
            self._parked.add(descriptor)
        self.close_parked()

    def close_parked(self) -> None:
        """Close what is parked and open nowhere else."""
        with self._lock:
            if not self._parked:
                return
            self._close_unshared()
            self._patience = len(self._parked) + _AT_ONCE

    def _close_unshared(self) -> None:
        is_open_elsewhere = self.find_elsewhere()
        for parked in [one for one in self._parked if not is_open_elsewhere(os.fstat(one))]:
            self._parked.discard(parked)
            self._ours.discard(parked)
            os.close(parked)


def _identify(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


descriptors = Descriptors()
