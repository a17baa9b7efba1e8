"""Evidence about what runs on this machine (D1). Nothing is sent to processes; a container engine is asked over its own
socket, in the one request that only reads."""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lastgood.errors import BusyError, ForbiddenError, InvalidError, UnavailableError
from lastgood.evidence.check import (
    NotYet,
    Surroundings,
    require_integer,
    require_text,
    seconds_until,
    take_fields,
)
from lastgood.evidence.connection import Address, connect, get, translated
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
    """process_exists: {"pid", "started": seconds since 1970} and/or {"name"}.

    `started` distinguishes the process from a later one of the same number. The name is that of the program's file,
    without folders; without a pid any process of that name will do. One that ended and was not waited for does not
    count.
    """
    surroundings.require_outside()
    fields = take_fields(evidence, ("pid", "started", "name"))
    pid = None if fields.get("pid") is None else require_integer(fields["pid"], "pid", 1, _MAX_PID)
    name = None if fields.get("name") is None else _require_name(fields["name"])
    started = fields.get("started")
    if started is not None and (not isinstance(started, int | float) or isinstance(started, bool) or not started >= 0):
        raise InvalidError('the claim\'s "started" is not a time', hint="give seconds since 1970")
    if pid is not None:
        return _compare(find_process(pid, surroundings.deadline), pid, name, started)
    if name is None or started is not None:
        raise InvalidError('the claim says no process: it has neither "pid" nor "name"')
    found = any(process.name == name and not process.ended for process in list_processes(surroundings.deadline))
    return None if found else f"there is no process {show(name)}"


def find_process(pid: int, deadline: float) -> RunningProcess | None:
    """Find a process that this user can see."""
    return _read(pid, _boot_moment()) if _has_proc() else next(read_with_ps(deadline, "-p", str(pid)), None)


def list_processes(deadline: float) -> Iterator[RunningProcess]:
    """List those that this user can see."""
    if not _has_proc():
        yield from read_with_ps(deadline, "-A")
        return
    boot = _boot_moment()
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdecimal() and (found := _read(int(entry), boot)) is not None:
            yield found


def read_with_ps(deadline: float, *which: str) -> Iterator[RunningProcess]:
    """Read processes from `ps`, which every system has."""
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603
            [*_PS, *which],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C", "TZ": "UTC"},
            timeout=seconds_until(deadline),
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


_NAME = re.compile("[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")
_ID = re.compile("[0-9a-f]{12,64}")
_MAX_SOCKET_PATH = 107
_BEGINNING = frozenset(("created", "initialized", "restarting", "stopping"))
"""States that do not last."""


def check_container(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """container_running: {"name" or "id", "socket": path of the engine's}; without a socket, the usual ones of Docker
    and Podman are asked, and it holds when one of them runs it."""
    fields = take_fields(evidence, ("name", "id", "socket"))
    key, wanted = _require_which(fields)
    surroundings.require_outside()
    named = None if fields.get("socket") is None else _require_socket(fields["socket"], surroundings)
    surroundings.require_connections()
    states, failure = [], None
    for path in _find_sockets() if named is None else [named]:
        try:
            container = _inspect(path, wanted, surroundings.deadline)
        except BusyError as error:  # another engine may be the one that runs it
            failure = error
            continue
        if container is not None and _is_claimed(container, key, wanted):
            states.append(_state_of(container))
    if "running" in states:
        return None
    if failure is not None:
        raise failure
    if not states:
        return f"there is no container {wanted}"
    said = f"the container {wanted} is not running: it is {show(states[0], 40)}"
    if _BEGINNING.intersection(states):
        raise NotYet(said)
    return said


def _require_which(fields: dict[str, Any]) -> tuple[str, str]:
    given = [(key, fields[key]) for key in ("name", "id") if fields.get(key) is not None]
    if len(given) != 1:
        raise InvalidError('the claim names a container by its "name" or by its "id"')
    (key, value), pattern = given[0], _NAME if given[0][0] == "name" else _ID
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidError(f"the claim's {key} is not that of a container")
    return key, str(value)


def _require_socket(path: object, surroundings: Surroundings) -> str:
    text = surroundings.allow_path(path)
    if not text.startswith("/"):
        raise InvalidError("the socket of a container engine is named by an absolute path")
    if len(os.fsencode(text)) > _MAX_SOCKET_PATH:
        raise InvalidError("the path is too long for that of a socket")
    if surroundings.network == "public" and text not in _usual_places():
        raise ForbiddenError(
            f"{show(text)} is not where a container engine usually listens, and evidence connects to nothing else here",
            hint='network="any" allows evidence about it, on the command line LASTGOOD_NETWORK=any',
        )
    return text


def _find_sockets() -> list[str]:
    if found := [place for place in _usual_places() if _is_socket(place)]:
        return found
    raise UnavailableError("there is no container engine here", hint='give the claim its "socket"')


def _usual_places() -> list[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = os.path.expanduser("~")  # noqa: PTH111
    places = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{home}/.docker/run/docker.sock"]
    return [*places, "/run/podman/podman.sock", f"{runtime}/podman/podman.sock"]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


def _inspect(path: str, wanted: str, deadline: float) -> dict[str, Any] | None:
    """Ask the engine about the container; None when it has none. BusyError when it cannot say."""
    try:
        with (
            translated("the container engine"),
            connect([Address(socket.AF_UNIX, path)], deadline) as connection,
        ):
            status, body = get(connection, f"/containers/{wanted}/json", "localhost", read_body=True)
    except NotYet as reason:  # only the engine knows
        raise BusyError(str(reason)) from reason
    if status == 404:
        return None
    if status != 200:
        raise BusyError(f"the container engine answered with {status}")
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError("the container engine gave an answer that makes no sense") from error


def _is_claimed(container: dict[str, Any], key: str, wanted: str) -> bool:
    """Compare what was found with the claim: engines take a name for an id, and the other way round."""
    if key == "id":
        return str(container.get("Id")).startswith(wanted)
    return str(container.get("Name")).removeprefix("/") == wanted


def _state_of(container: dict[str, Any]) -> str:
    state = container.get("State")
    status = state.get("Status") if isinstance(state, dict) else None
    if not isinstance(status, str):
        raise InvalidError("the container engine does not say how the container is")
    return status
