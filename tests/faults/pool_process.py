"""The process of a pool: forks a worker for each job, and sees it to its end."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import shim
from tests.faults.helper import LONGEST, ask_for_helpers, fork_helper
from tests.faults.memory import Memory
from tests.faults.warm_up import settle, warm_up

_ENDINGS = {0: "done", 1: "raised", shim.REFUSED: "refused", -signal.SIGKILL: "killed"}


class Place(NamedTuple):
    """Where a worker puts what it gives, and the names of the modules that it had to import."""

    answer: Path
    imported: Path


class Worker(NamedTuple):
    """A process that does a job. `requests`: where it asks for helpers."""

    pid: int
    requests: socket.socket

    def wait(self, awaited: int, seconds: int) -> bool:
        """Wait for something to be read, and fork helpers until then. Return whether it came in time."""
        helpers: list[int] = []
        watched, deadline = [awaited, self.requests.fileno()], time.monotonic() + seconds
        try:
            while True:
                ready = select.select(watched, [], [], max(0.0, deadline - time.monotonic()))[0]
                if not ready or awaited in ready:
                    return bool(ready)
                helper = fork_helper(self.requests)
                if helper is None:
                    watched.pop()
                else:
                    helpers.append(helper)
        finally:
            for helper in helpers:
                os.kill(helper, signal.SIGKILL)
                os.waitpid(helper, 0)

    def finish(self) -> int:
        """Kill it, and what it has started. Return its exit code."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.requests.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Staying(NamedTuple):
    """A worker that has done a job, and waits for the next one."""

    worker: Worker
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
            ended = _watch(_fork(lambda: _do_job(place, job, arguments)), seconds)  # noqa: B023  # at once
        if place.imported.exists():
            _import(place.imported)
        sys.stdout.write(ended + "\n")
        sys.stdout.flush()
    if staying is not None:
        staying.worker.finish()


def _import(imported: Path) -> None:
    """Import what a worker had to, so that the next ones have it."""
    for module in json.loads(imported.read_text()):
        with suppress(ImportError):
            importlib.import_module(module)
    imported.unlink()
    settle()


# --- workers for one job ------------------------------------------------------------------------------------------


def _fork(work: Callable[[], bool]) -> Worker:
    """Fork a worker that exits with 0 if its work says so, else with 1."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        done = False
        try:
            here.close()
            _detach()
            ask_for_helpers(there)
            done = work()
        finally:
            os._exit(0 if done else 1)
    there.close()
    return Worker(pid, here)


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


def _watch(worker: Worker, seconds: int) -> str:
    """Wait for a worker to end. Return how it did."""
    watched = os.pidfd_open(worker.pid)
    try:
        hung = not worker.wait(watched, seconds)
    finally:
        os.close(watched)
    code = worker.finish()
    return "hung" if hung else _ENDINGS.get(code, str(code))


# --- a worker that stays ------------------------------------------------------------------------------------------


def _start(place: Place) -> Staying:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def work() -> bool:
        here.close()
        return _stay(there, place)

    worker = _fork(work)
    there.close()
    return Staying(worker, here)


def _stay(channel: socket.socket, place: Place) -> bool:
    """Do jobs, as long as nothing is remembered of them."""
    memory, stays = Memory(), True
    while stays and (line := channel.recv(LONGEST)):
        done = _do_job(place, *json.loads(line))
        memory.forget()
        stays = done and memory.is_as_it_was()
        channel.send(json.dumps(["done" if done else "raised", stays]).encode())
    return True


def _have_done(staying: Staying, job: str, arguments: dict[str, Any], seconds: int) -> tuple[str, Staying | None]:
    """Have a worker that stays do a job. Return how it ended, and the worker if it is still there."""
    staying.channel.send(json.dumps([job, arguments]).encode())
    hung = not staying.worker.wait(staying.channel.fileno(), seconds)
    said = b"" if hung else staying.channel.recv(LONGEST)
    ended, stays = json.loads(said) if said else ("", False)
    if stays:
        return ended, staying
    staying.channel.close()
    code = staying.worker.finish()
    return ended or ("hung" if hung else _ENDINGS.get(code, str(code))), None


if __name__ == "__main__":
    serve(Place(Path(sys.argv[1]), Path(sys.argv[1]).with_name("imported")), int(sys.argv[2]), bool(int(sys.argv[3])))
