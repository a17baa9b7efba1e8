"""This process, and whether another one is still alive."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lastgood.model.step import Process

ENDED = -1
_this: Process | None = None


def this_process() -> Process:
    global _this
    if _this is None or _this.pid != os.getpid():
        _this = Process(socket.gethostname(), os.getpid(), _started(os.getpid()) or 0, _space())
    return _this


def is_alive(process: Process) -> bool | None:
    """None: it ran on another host or in another container, so nobody here can say."""
    if process.host != socket.gethostname() or process.space not in (0, this_process().space):
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    started = _started(process.pid)
    return started is None or (started != ENDED and process.started in (0, started))


def _space() -> int:
    """Within which a number stands for one process alone; 0 where the system does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _started(pid: int) -> int | None:
    """When a process began, in the clock ticks of this boot; None where the system does not tell so cheaply."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        fields = stat.rpartition(b")")[2].split()
        return ENDED if fields[0] in (b"Z", b"X") else int(fields[19])  # ended, and its parent does not know yet
    except (OSError, ValueError, IndexError):
        return None
