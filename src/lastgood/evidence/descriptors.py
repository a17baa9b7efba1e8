"""Which files this process has open, and how to close one without harm.

POSIX drops every lock that a process holds on a file as soon as any of its descriptors of that file is closed. So a
file that is open elsewhere in this process is never opened here, and a descriptor of a file that was opened elsewhere
meanwhile is parked until nobody else has it.
"""

from __future__ import annotations

import os
import threading

from lastgood.local.fork import renew_after_fork


class Descriptors:
    """The descriptors that evidence reads through; one object for the process."""

    def __init__(self) -> None:
        self._ours: set[int] = set()
        self._parked: set[int] = set()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a child, which inherits no locks and no threads: what other threads were reading can be closed."""
        self._lock = threading.Lock()
        for descriptor in self._ours:
            os.close(descriptor)
        self._ours.clear()
        self._parked.clear()

    def adopt(self, descriptor: int) -> None:
        with self._lock:
            self._ours.add(descriptor)

    def is_open_elsewhere(self, file: os.stat_result) -> bool:
        """Whether someone else in this process has the file open; True when that cannot be told."""
        try:
            numbers = os.listdir("/dev/fd")  # noqa: PTH208
        except OSError:
            return True
        return any(
            (number := int(name)) not in self._ours and _is_of(number, file) for name in numbers if name.isdecimal()
        )

    def release(self, descriptor: int, file: os.stat_result) -> None:
        """Close an adopted descriptor, or park it while someone else has the file open."""
        with self._lock:
            self._parked.add(descriptor)
            for parked in list(self._parked):
                self._close_if_alone(parked, file if parked == descriptor else os.fstat(parked))

    def _close_if_alone(self, parked: int, file: os.stat_result) -> None:
        if not self.is_open_elsewhere(file):
            self._parked.discard(parked)
            self._ours.discard(parked)
            os.close(parked)


def _is_of(descriptor: int, file: os.stat_result) -> bool:
    try:
        found = os.fstat(descriptor)
    except OSError:  # the listing's own, or closed since
        return False
    return found.st_ino == file.st_ino and found.st_dev == file.st_dev


descriptors = Descriptors()
