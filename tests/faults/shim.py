"""Faults at the Nth call that changes something on disk: how the shim is built, loaded and told what to do.

Only calls on paths below one folder count, so it does not matter what a process imports or prints.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

Kind = Literal["none", "kill", "tear", "fail", "short", "shutdown", "syncs"]

REFUSED = 86
"""What a process exits with that could not shut the file system down."""

_KINDS: tuple[Kind, ...] = ("none", "kill", "tear", "fail", "short", "shutdown", "syncs")
_SOURCE = Path(__file__).with_name("shim.c")


class Fault(NamedTuple):
    """What happens at the `at`-th call, counted from 1; with `forever` at each one from there on.

    kill: the process dies before the call. tear: half of a write is done, any other call whole, then it dies.
    fail: the call gives `error`. short: half of a write is done, and said so; only writes count then. shutdown: the
    file system goes away as if its power was cut, and the process dies. syncs: as fail, if the call is a sync.
    """

    kind: Kind = "none"
    at: int = 0
    error: int = 0
    forever: bool = False

    def __str__(self) -> str:
        what = errno.errorcode[self.error] if self.kind == "fail" else self.kind
        return f"{what} {'from' if self.forever else 'at'} call {self.at}"


UNDISTURBED = Fault()
TOLD = "LASTGOOD_FAULTS"
"""A variable of the environment: how a process that an armed one starts is armed."""
OWN_WORK, OWN_WORK_DONE = "own work", "own work done"
"""Marks around what a program does by itself."""
JOURNAL_ENDS = "journal ends"
"""A mark ahead of the transaction that ends the journal of a restore."""


class Arming(NamedTuple):
    """Which calls count (those below `root`), what happens, where they are counted and noted.

    `counter`: a file of eight zero bytes, which the processes that this one starts count on. `trace`: a file that all
    calls are noted in (trace.py), with the bytes they write if `with_data`. `device`: a folder of the file system that
    is shut down.
    """

    root: str
    counter: str
    fault: Fault = UNDISTURBED
    trace: str = ""
    with_data: bool = False
    device: str = ""


def no_compiler() -> str | None:
    """Return why there can be no shim here, or None."""
    return None if _compiler() else "there is no C compiler (cc or gcc), so no faults can be put into system calls"


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@functools.cache
def built() -> Path:
    """Return the shared library, compiled once for this process."""
    found = _compiler()
    if found is None:
        raise RuntimeError(no_compiler())
    folder = tempfile.TemporaryDirectory(prefix="lastgood-shim-")
    library = Path(folder.name, "shim.so")
    strict = ["-O1", "-Wall", "-Wextra", "-Werror"]
    command: list[str | Path] = [found, "-shared", "-fPIC", *strict, "-o", library, _SOURCE, "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    _kept.append(folder)
    return library


_kept: list[tempfile.TemporaryDirectory[str]] = []


def environment() -> dict[str, str]:
    """Return the environment for a process that is going to be armed."""
    return {**os.environ, "LD_PRELOAD": str(built())}


def arm(how: Arming) -> None:
    """From here on, in this process and in those that it starts. It must have been started with `environment()`."""
    fault = how.fault
    told = [how.root, _KINDS.index(fault.kind), fault.error, fault.at, int(fault.forever)]
    told += [how.counter, how.trace, int(how.with_data), how.device]
    inherit("\n".join(map(str, told)))


def inherit(told: str) -> None:
    """Arm this process as the one that was told so; those that it starts do the same by themselves."""
    root, fault, error, at, forever, counter, trace, with_data, device = told.split("\n")
    kind, call = (int(fault), int(error), int(at), int(forever)), (os.fsencode(counter), os.fsencode(trace))
    failed = _library().faults_arm(os.fsencode(root), *kind, *call, int(with_data), os.fsencode(device))
    if failed:
        raise OSError(failed, os.strerror(failed))
    os.environ[TOLD] = told


def disarm() -> None:
    _library().faults_disarm()
    os.environ.pop(TOLD, None)


@contextmanager
def pause() -> Iterator[None]:
    """What is done inside does not count: it is not the store that does it. Where a trace wants data it is noted,
    between two marks."""
    told = os.environ.get(TOLD, "").split("\n")
    if len(told) < 9:
        yield
        return
    if int(told[7]):
        mark(OWN_WORK)
        yield
        mark(OWN_WORK_DONE)
        return
    _library().faults_pause(1)
    try:
        yield
    finally:
        _library().faults_pause(0)


def mark(text: str) -> None:
    """Note something in the trace, between the calls before and after it; nothing where there is no shim."""
    if hasattr(_libc(), "faults_mark"):
        _libc().faults_mark(text.encode())


def count(counter: str | os.PathLike[str]) -> int:
    """Return how many calls there were."""
    return int.from_bytes(Path(counter).read_bytes(), "little")


def reset(counter: str | os.PathLike[str]) -> None:
    Path(counter).write_bytes(bytes(8))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def _library() -> Any:
    library = _libc()
    library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_int]
    library.faults_arm.argtypes += [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p]
    return library
