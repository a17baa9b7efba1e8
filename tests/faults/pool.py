"""A pool of workers: a process that is warmed up (warm_up.py), and forks one for each job.

It has no store open, and remembers nothing of the one that it was warmed up with, so each worker is as fresh as a
process that was just started, and costs 5 ms instead of 300. Jobs are named functions of modules with plain arguments;
what they give must be plain, too.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.faults import shim
from tests.faults.compiled import compiled
from tests.faults.warm_up import settle, warm_up

SECONDS = 120
_ENDINGS = {0: "done", 1: "raised", shim.REFUSED: "refused", -signal.SIGKILL: "killed"}


class Outcome(NamedTuple):
    """How a worker ended: what it gave (None unless `ended` is "done"), or the traceback in `error`. `met`: whether it
    came as far as the fault that was meant for it."""

    ended: str  # done | raised | killed | hung | refused (the power could not be cut)
    given: Any = None
    error: str = ""
    met: bool = True

    @property
    def surprise(self) -> list[str]:
        """A sentence about an ending other than done and killed."""
        return [] if self.ended in ("done", "killed") else [f"the worker {self.ended}: {self.error}"]


class WorkerPool:
    """Runs one worker at a time: for two at once there are two pools."""

    def __init__(self, scratch: Path, *, path: str | None = None, seconds: int = SECONDS, warm: bool = True) -> None:
        """Start it. `path`: where lastgood is imported from. `seconds`: a worker that takes longer counts as hung.
        `warm`: not where a worker must be the first that loads SQLite's extensions."""
        source = path or str(compiled())
        environment = {**shim.environment(), "PYTHONPYCACHEPREFIX": str(compiled() / "beside")}
        environment["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [environment.get("PYTHONPATH")])])
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["LASTGOOD_FAULTS_KNOWN"] = str(scratch / "known")
        (scratch / "known").mkdir(exist_ok=True)
        self._answer = scratch / "answer"
        command = [sys.executable, "-m", "tests.faults.pool", str(self._answer), str(seconds), str(int(warm))]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, job: str, **arguments: Any) -> Outcome:
        """Let a worker do `module:function`."""
        self.begin(job, **arguments)
        return self.end()

    def begin(self, job: str, **arguments: Any) -> None:
        """Start a worker, whose outcome `end` waits for."""
        assert self._process.stdin is not None
        self._answer.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps([job, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def end(self) -> Outcome:
        assert self._process.stdout is not None
        ended = self._process.stdout.readline().decode().strip()
        if ended in ("killed", "hung", "refused"):
            return Outcome(ended)
        if not ended or not self._answer.exists():
            return Outcome("raised", error=f"the worker ended without a word ({ended})")
        given, error = json.loads(self._answer.read_text())
        return Outcome(ended, given, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def _serve(answer: Path, seconds: int, warm: bool) -> None:
    if warm:
        try:
            warm_up(answer.parent)
        except Exception:  # lastgood has a bug, which is for a campaign to find
            os.execv(sys.executable, [*sys.orig_argv[:-1], "0"])
    settle()
    imported = answer.with_name("imported")
    for line in sys.stdin.buffer:
        job, arguments = json.loads(line)
        worker = os.fork()
        if worker == 0:
            _do_job(job, arguments, answer, imported)
        ended = _watch(worker, seconds)
        if imported.exists():
            _import(imported)
        sys.stdout.write(ended + "\n")
        sys.stdout.flush()


def _import(imported: Path) -> None:
    """Import what a worker had to, so that the next ones have it."""
    for module in json.loads(imported.read_text()):
        with suppress(ImportError):
            importlib.import_module(module)
    imported.unlink()
    settle()


def _do_job(job: str, arguments: dict[str, Any], answer: Path, imported: Path) -> None:
    status, known = 1, set(sys.modules)
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        module, function = job.split(":")
        given = getattr(importlib.import_module(module), function)(**arguments)
        answer.write_text(json.dumps([given, ""]))
        if new := [module for module in sys.modules if module not in known]:
            imported.write_text(json.dumps(new))
        status = 0
    except BaseException:
        answer.write_text(json.dumps([None, traceback.format_exc()]))
    finally:
        os._exit(status)


def _watch(worker: int, seconds: int) -> str:
    """Wait for a worker to end; kill what it has started. Return how it ended."""
    watched = os.pidfd_open(worker)
    try:
        hung = not select.select([watched], [], [], seconds)[0]
    finally:
        os.close(watched)
    with suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    if hung:
        return "hung"
    code = os.waitstatus_to_exitcode(status)
    return _ENDINGS.get(code, str(code))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), bool(int(sys.argv[3])))
