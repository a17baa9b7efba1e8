"""Evidence about processes of this machine (D1). Nothing is sent to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from lastgood.errors import InvalidError, UnavailableError
from lastgood.evidence.check import Deadline, Surroundings, require_integer, require_text, take_fields
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence

_MAX_PID = (1 << 31) - 1
# The moment of boot has whole seconds, and a program that notes when it started a process does so a little later.
_TOLERANCE_SECONDS = 2.0
_KERNEL_NAME_BYTES = 15
_PS = ("/bin/ps", "-ww", "-o", "pid=", "-o", "stat=", "-o", "lstart=", "-o", "comm=")


class RunningProcess(NamedTuple):
    """A process of this machine. `started` is in seconds since 1970; one that `ended` has not been waited for."""

    pid: int
    name: str
    started: float
    ended: bool


def check_process(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """process_exists: {"pid", "started": seconds since 1970 or an ISO 8601 time} and/or {"name"}.

    `started` distinguishes the process from a later one of the same number. The name is that of the program's file,
    without folders; without a pid any process of that name will do. One that ended and was not waited for does not
    count.
    """
    fields = take_fields(evidence, ("pid", "started", "name"))
    pid = None if fields.get("pid") is None else require_integer(fields["pid"], "pid", 1, _MAX_PID)
    name = None if fields.get("name") is None else _require_name(fields["name"])
    started = None if fields.get("started") is None else _require_moment(fields["started"])
    deadline = surroundings.outside.deadline(surroundings.deadline, None)
    if pid is not None:
        return _compare(find_process(pid, deadline), pid, name, started)
    if name is None or started is not None:
        raise InvalidError('the claim says no process: it has neither "pid" nor "name"')
    found = any(process.name == name and not process.ended for process in list_processes(deadline))
    return None if found else f"there is no process {show(name)}"


def find_process(pid: int, deadline: Deadline) -> RunningProcess | None:
    """Find a process; InvalidError when it is there and may not be looked at."""
    if not _has_proc():
        return next(read_with_ps(deadline, "-p", str(pid)), None)
    if (found := _read(pid, _boot_moment())) is None and _is_hidden(pid):
        raise InvalidError(f"the process {pid} belongs to someone else and cannot be looked at")
    return found


def list_processes(deadline: Deadline) -> Iterator[RunningProcess]:
    """List those that this user can see."""
    if not _has_proc():
        yield from read_with_ps(deadline, "-A")
        return
    boot = _boot_moment()
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdecimal() and (found := _read(int(entry), boot)) is not None:
            yield found


def read_with_ps(deadline: Deadline, *which: str) -> Iterator[RunningProcess]:
    """Read processes from `ps`, which every system has."""
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603
            [*_PS, *which],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C", "TZ": "UTC"},
            timeout=deadline.left(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError("the processes of this machine cannot be listed") from error
    for line in done.stdout.decode(errors="surrogateescape").splitlines():
        if len(words := line.split(None, 7)) < 8:
            continue
        pid, state, _, month, day, time, year, command = words
        started = datetime.strptime(f"{month} {day} {time} {year} +0000", "%b %d %H:%M:%S %Y %z")
        yield RunningProcess(int(pid), command.rstrip().rpartition("/")[2], started.timestamp(), state.startswith("Z"))


def _compare(found: RunningProcess | None, pid: int, name: str | None, started: float | None) -> str | None:
    if found is None:
        return f"there is no process {pid}"
    if found.ended:
        return f"the process {pid} has ended"
    if name is not None and found.name != name:
        return f"the process {pid} is {show(found.name)}, not {show(name)}"
    if started is not None and abs(found.started - started) > _TOLERANCE_SECONDS:
        return f"the process {pid} is another one: it did not start at that time"
    return None


def _require_name(value: object) -> str:
    name = require_text(value, "name")
    if "/" in name or "\0" in name:
        raise InvalidError("the claim's name of a process is the name of a program, without folders")
    return name


def _require_moment(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1 << 40:
        return float(value)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidError(
            'the claim\'s "started" is not a time', hint="give seconds since 1970, or ISO 8601 with a time zone"
        )
    return moment.timestamp()


def _has_proc() -> bool:
    return sys.platform == "linux" and os.path.exists("/proc/self/stat")  # noqa: PTH110


def _boot_moment() -> float:
    """Return when the system was started, in seconds since 1970."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    raise UnavailableError("this system does not say when it was started")


def _read(pid: int, boot: float) -> RunningProcess | None:
    folder = Path("/proc", str(pid))
    try:
        before, _, after = (folder / "stat").read_bytes().rpartition(b")")
        if f"\nTgid:\t{pid}\n".encode() not in (folder / "status").read_bytes():  # a thread of another process
            return None
        kernel_name, fields = before.partition(b"(")[2], after.split()
        name = kernel_name if len(kernel_name) < _KERNEL_NAME_BYTES else _long_name(folder, kernel_name)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return RunningProcess(pid, os.fsdecode(name), started, fields[0] in (b"Z", b"X"))


def _long_name(folder: Path, kernel_name: bytes) -> bytes:
    """Complete a name that the kernel cut off: the first word of the command line has the rest."""
    with (folder / "cmdline").open("rb") as file:
        called = file.read(4096).partition(b"\0")[0].rpartition(b"/")[2]
    return called if called.startswith(kernel_name) else kernel_name


def _is_hidden(pid: int) -> bool:
    """Tell whether a process is there, though /proc does not show it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not os.path.exists(f"/proc/{pid}")  # noqa: PTH110
