"""A pool of workers: a process that is warmed up, and forks one for each job (pool_process.py).

It has no store open, and remembers nothing of the one that it was warmed up with, so each worker is as fresh as a
process that was just started, and costs 7 ms instead of 300. Jobs are named functions of modules with plain arguments;
what they give must be plain, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.faults import shim
from tests.faults.compiled import compiled

SECONDS = 120


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
        command = [sys.executable, "-m", "tests.faults.pool_process", str(self._answer), str(seconds), str(int(warm))]
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, job: str, **arguments: Any) -> Outcome:
        """Let a worker do `module:function`."""
        self.begin(job, **arguments)
        return self.end()

    def ask(self, job: str, **arguments: Any) -> Outcome:
        """Let a worker do `module:function` that stays for the next one, as long as it remembers nothing of those
        before (memory.py), in half the time. Not what may kill it, or what others can tell is the same process."""
        self._begin(job, arguments, stays=True)
        return self.end()

    def begin(self, job: str, **arguments: Any) -> None:
        """Start a worker, whose outcome `end` waits for."""
        self._begin(job, arguments)

    def _begin(self, job: str, arguments: dict[str, Any], *, stays: bool = False) -> None:
        assert self._process.stdin is not None
        self._answer.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps([job, arguments, stays]).encode() + b"\n")
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
