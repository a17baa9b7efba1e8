"""The process of a pool: forks a worker for each job, and sees it to its end."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.memory import Memory
from tests.faults.warm_up import settle, warm_up

_ENDINGS = {0: "done", 1: "raised", shim.REFUSED: "refused", -signal.SIGKILL: "killed"}
_LONGEST = 1 << 16


class Place(NamedTuple):
    """Where a worker puts what it gives, and the names of the modules that it had to import."""

    answer: Path
    imported: Path


class Staying(NamedTuple):
    """A worker that has done a job, and waits for the next one."""

    pid: int
    channel: socket.socket


def serve(place: Place, seconds: int, warm: bool) -> None:
    if warm:
        try:
            warm_up(place.answer.parent)
        except Exception:  # lastgood has a bug, which is for a campaign to find
            os.execv(sys.executable, [*sys.orig_argv[:-1], "0"])
    settle()
    staying: Staying | None = None
    for line in sys.stdin.buffer:
        job, arguments, stays = json.loads(line)
        if stays:
            ended, staying = _have_done(staying or _start(place), job, arguments, seconds)
        else:
            ended = _watch(_fork(place, job, arguments), seconds)
        if place.imported.exists():
            _import(place.imported)
        sys.stdout.write(ended + "\n")
        sys.stdout.flush()
    if staying is not None:
        staying.channel.close()
        os.waitpid(staying.pid, 0)


def _import(imported: Path) -> None:
    """Import what a worker had to, so that the next ones have it."""
    for module in json.loads(imported.read_text()):
        with suppress(ImportError):
            importlib.import_module(module)
    imported.unlink()
    settle()


# --- workers for one job ------------------------------------------------------------------------------------------


def _fork(place: Place, job: str, arguments: dict[str, Any]) -> int:
    worker = os.fork()
    if worker == 0:
        status = 1
        try:
            _detach()
            status = 0 if _do_job(place, job, arguments) else 1
        finally:
            os._exit(status)
    return worker


def _detach() -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)


def _do_job(place: Place, job: str, arguments: dict[str, Any]) -> bool:
    """Do it, and write what came of it. Return whether it raised nothing."""
    known = set(sys.modules)
    try:
        module, function = job.split(":")
        given = getattr(importlib.import_module(module), function)(**arguments)
        place.answer.write_text(json.dumps([given, ""]))
        if new := [module for module in sys.modules if module not in known]:
            place.imported.write_text(json.dumps(new))
    except BaseException:
        place.answer.write_text(json.dumps([None, traceback.format_exc()]))
        return False
    return True


def _watch(worker: int, seconds: int) -> str:
    """Wait for a worker to end; kill what it has started. Return how it ended."""
    watched = os.pidfd_open(worker)
    try:
        hung = not select.select([watched], [], [], seconds)[0]
    finally:
        os.close(watched)
    code = _finish(worker)
    return "hung" if hung else _ENDINGS.get(code, str(code))


def _finish(worker: int) -> int:
    """Kill a worker and what it has started. Return its exit code."""
    with suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


# --- a worker that stays ------------------------------------------------------------------------------------------


def _start(place: Place) -> Staying:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.fork()
    if worker == 0:
        try:
            here.close()
            _detach()
            _stay(there, place)
        finally:
            os._exit(1)
    there.close()
    return Staying(worker, here)


def _stay(channel: socket.socket, place: Place) -> None:
    """Do jobs, as long as nothing is remembered of them."""
    memory, stays = Memory(), True
    while stays and (line := channel.recv(_LONGEST)):
        done = _do_job(place, *json.loads(line))
        memory.forget()
        stays = done and memory.is_as_it_was()
        channel.send(json.dumps(["done" if done else "raised", stays]).encode())


def _have_done(worker: Staying, job: str, arguments: dict[str, Any], seconds: int) -> tuple[str, Staying | None]:
    """Have a worker that stays do a job. Return how it ended, and the worker if it is still there."""
    worker.channel.send(json.dumps([job, arguments]).encode())
    hung = not select.select([worker.channel], [], [], seconds)[0]
    said = b"" if hung else worker.channel.recv(_LONGEST)
    ended, stays = json.loads(said) if said else ("", False)
    if stays:
        return ended, worker
    worker.channel.close()
    code = _finish(worker.pid)
    return ended or ("hung" if hung else _ENDINGS.get(code, str(code))), None


if __name__ == "__main__":
    serve(Place(Path(sys.argv[1]), Path(sys.argv[1]).with_name("imported")), int(sys.argv[2]), bool(int(sys.argv[3])))
