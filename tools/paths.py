"""The paths of four operations through the source: which modules run, and which are entered again from below.

Each operation runs on a store of its own in a temporary folder, after one of its kind has warmed it up, in a process of
its own: `python -m tools.paths NAME` prints the path as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
Operation = Generator[Callable[[], Any], None, None]
SOURCE = os.path.join(ROOT, "src", "lastgood", "")


class Walked(NamedTuple):
    """The modules whose functions an operation ran, and each entry into a module from one that it had called."""

    modules: set[str]
    reentries: list[str]


class Tracer:
    """Records the calls between the modules below a folder, in every thread that begins while it runs."""

    def __init__(self, folder: str = SOURCE) -> None:
        self._folder = folder
        self._threads = threading.local()
        self.walked = Walked(set(), [])

    def __enter__(self) -> Tracer:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._folder) or code.co_name == "<module>":
            return
        stack: list[str] = self._threads.__dict__.setdefault("stack", [])
        if event == "call":
            module = code.co_filename[len(self._folder) : -len(".py")]
            self.walked.modules.add(module)
            if module in stack and stack[-1] != module:
                self.walked.reentries.append(f"{stack[-1]} -> {module}: {code.co_name}, line {frame.f_lineno}")
            stack.append(module)
        elif event == "return" and stack:
            stack.pop()


def walk(name: str) -> Walked:
    """Trace one of OPERATIONS in a new process."""
    command = [sys.executable, "-m", "tools.paths", name]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    modules, reentries = json.loads(said)
    return Walked(set(modules), reentries)


def _save(folder: Path) -> Operation:
    import lastgood

    with lastgood.open(folder / "store", user="tracer") as store:
        task = store.task("work")
        for number in (1, 2):
            yield partial(task.save, {"number": number})


def _save_files(folder: Path) -> Operation:
    import lastgood

    with lastgood.open(folder / "store", user="tracer") as store:
        task = store.task("work", workspace=_workspace(folder))
        for number in (1, 2):
            (folder / "workspace" / "notes.txt").write_text(f"draft {number}")
            yield partial(task.save, {"number": number})


def _restore_files(folder: Path) -> Operation:
    import lastgood

    with lastgood.open(folder / "store", user="tracer") as store:
        task = store.task("work", workspace=_workspace(folder))
        saved = task.save({"number": 1})
        yield lambda: task.save({"number": 2})
        (folder / "workspace" / "notes.txt").write_text("unwanted")
        yield lambda: task.restore(saved)


def _command(folder: Path) -> Operation:
    workspace = _workspace(folder)
    words = ["--store", str(folder / "store"), "save", "--task", "work", "--workspace", str(workspace), "-m", "why"]
    yield lambda: subprocess.run([sys.executable, "-m", "lastgood.cli.main", *words], check=True, capture_output=True)
    (workspace / "notes.txt").write_text("changed")
    yield lambda: _run_command(words)


def _run_command(words: list[str]) -> None:
    from lastgood.cli.main import main

    sys.argv = ["lastgood", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        main()
    if "saved" not in said.getvalue():
        raise RuntimeError(f"`lastgood save` failed: {said.getvalue()}")


def _workspace(folder: Path) -> Path:
    workspace = folder / "workspace"
    (workspace / "source").mkdir(parents=True)
    (workspace / "notes.txt").write_text("draft")
    (workspace / "source" / "main.py").write_text("print(1)\n")
    return workspace


OPERATIONS: dict[str, Callable[[Path], Operation]] = {
    "task.save": _save,
    "task.save with files": _save_files,
    "task.restore with files": _restore_files,
    "lastgood save": _command,
}
"""Each gives what to do before, and then what is traced."""


def main(name: str) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
        operation = OPERATIONS[name](Path(folder))
        next(operation)()
        traced = next(operation)
        with Tracer() as tracer:
            traced()
        operation.close()
    print(json.dumps([sorted(tracer.walked.modules), tracer.walked.reentries]))


if __name__ == "__main__":
    main(sys.argv[1])
