"""`lastgood run`: a pipeline that somebody wrote, on a task, in a process of its own (C2, C3)."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lastgood.cli.progress import EventLines

Run = Callable[..., Any]

JOBS = '''
import sys
from types import SimpleNamespace

import lastgood


class Pipeline:
    """As much of a pipeline as the command line needs."""

    name = "fake"

    def __init__(self, stages):
        self.stages = stages

    def run(self, task, *, restart, on_progress):
        def tell(kind, index=-1, **more):
            names = tuple(stage.__name__ for stage in self.stages)
            progress = SimpleNamespace(plan=names, round=1, rounds=1)
            stage = names[index] if index >= 0 else None
            about = {"attempt": 1, "seconds": 0.25, "error": None, **more}
            on_progress(SimpleNamespace(kind=kind, progress=progress, stage=stage, index=index, **about))

        session = task.session(restart=restart)
        with session:
            tell("begun")
            for index, stage in enumerate(self.stages):
                session.boundary()
                tell("started", index)
                try:
                    stage()
                except RuntimeError as error:
                    tell("failed", index, error=str(error))
                    raise lastgood.StageError(f"the stage {stage.__name__} failed: {error}", hint="mend it") from error
                session.save(type="stage_succeeded", step_id=stage.__name__)
                tell("succeeded", index)
        return SimpleNamespace(checkpoint=task.head, stopped=session.stopped)


def fetch():
    print("fetched", flush=True)


def mumble():
    print("mumbled")


def wait():
    sys.stdin.readline()


def crash():
    raise RuntimeError("no such luck\\x1b[2J")


good = Pipeline([fetch, fetch])
mumbling = Pipeline([mumble])
waiting = Pipeline([fetch, wait, fetch])
bad = Pipeline([fetch, crash])


def make():
    return Pipeline([fetch])


class Here:
    pipeline = good


number = 3
'''


@pytest.fixture
def jobs(run: Run, folder: Path) -> Path:
    (folder / "lastgood.toml").write_text('store = ".lastgood"\ntask = "work"\n')
    run("init")
    (folder / "jobs.py").write_text(JOBS)
    return folder


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lastgood.cli.main", "run", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        yield process
        if process.poll() is None:
            process.kill()


def test_a_pipeline_is_run_to_its_end(process: Run, data: Run, jobs: Path) -> None:
    done = process("run", "jobs:good")
    assert (done.returncode, done.stdout) == (0, "fetched\nfetched\nwork: completed, @4\n")
    assert done.stderr.splitlines() == [
        "begins",
        "stage 1 of 2: fetch",
        "stage 1 of 2: fetch: done in 0.2 s",
        "stage 2 of 2: fetch",
        "stage 2 of 2: fetch: done in 0.2 s",
    ]
    assert data("status")["runControlState"] == "completed"


@pytest.mark.parametrize("target", ["jobs:make", "jobs:Here.pipeline"])
def test_a_function_may_make_it_and_it_may_lie_deeper(process: Run, jobs: Path, target: str) -> None:
    assert process("run", target, "--task", "other").returncode == 0


def test_with_json_stdout_has_the_document_alone(process: Run, jobs: Path) -> None:
    done = process("run", "jobs:mumbling", "--json", PYTHONUNBUFFERED="")
    said = json.loads(done.stdout)
    assert (said["pipeline"], said["stopped"], said["runControlState"]) == ("fake", None, "completed")
    assert said["checkpoint"]["type"] == "completed"
    assert done.stderr == "mumbled\n"


def test_completed_work_says_that_it_is_completed(process: Run, folder: Path) -> None:
    (folder / "real.py").write_text(
        "import lastgood\ndef one(state):\n    return {'n': 1}\npipeline = lastgood.Pipeline([one])\n"
    )
    assert "already completed" not in process("run", "real:pipeline").stderr
    again = process("run", "real:pipeline")
    assert (again.returncode, again.stderr) == (0, "already completed; --restart runs it again\n")


def test_completed_work_is_reopened_by_a_session_of_ones_own(process: Run, jobs: Path) -> None:
    for options in ([], [], ["--restart"]):
        assert process("run", "jobs:good", *options).returncode == 0


def test_a_stage_that_fails_ends_it_with_8_and_its_trace(process: Run, jobs: Path) -> None:
    done = process("run", "jobs:bad")
    assert done.returncode == 8
    assert "stage 2 of 2: crash: failed: no such luck\\x1b[2J\n" in done.stderr
    assert "line" in done.stderr.partition("Traceback")[2]
    assert "\x1b" not in done.stderr
    assert done.stderr.endswith("error: the stage crash failed: no such luck\\x1b[2J\nhint: mend it\n")
    as_json = process("run", "jobs:bad", "--json")
    assert json.loads(as_json.stderr.splitlines()[-1])["error"]["code"] == "stage"


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("jobs", 2, "is not MODULE:NAME"),
        ("jobs:", 2, "is not MODULE:NAME"),
        ("../jobs:good", 2, "is not MODULE:NAME"),
        ("nowhere:good", 3, "there is no module 'nowhere'"),
        ("jobs.deeper:good", 3, "there is no module 'jobs.deeper'"),
        ("jobs:nothing", 3, "there is no 'nothing'"),
        ("jobs:number", 2, "jobs:number is int, not a pipeline"),
        ("broken:good", 2, "the module broken cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("jobs:crash", 2, "jobs:crash cannot make its pipeline: RuntimeError"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_words(process: Run, jobs: Path, target: str, code: int, said: str) -> None:
    (jobs / "broken.py").write_text("import nowhere\n")
    done = process("run", target, "--store", "new")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert ("Traceback" in done.stderr) == ("see above" in done.stderr)
    assert not (jobs / "new").exists()


def test_work_that_someone_stopped_ends_with_12(run: Run, jobs: Path) -> None:
    with running("jobs:waiting") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "fetched\n"
        assert "is working on this branch" in run("save", "--set", "n=1", code=4).stderr
        run("stop", "work")
        out, err = process.communicate("go on\n", timeout=60)
    assert (process.returncode, out.partition(",")[0]) == (12, "work: stopped")
    assert "lastgood retry work" in err
    run("retry", "work")
    with running("jobs:good") as process:
        process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_to_end_it_comes_to_its_boundary_and_can_be_run_again(
    data: Run, jobs: Path, number: signal.Signals, code: int
) -> None:
    """C2: it is left running, to be gone on with."""
    with running("jobs:waiting") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "stage 2 of 3: wait" not in process.stderr.readline():
            pass
        process.send_signal(number)
        _, err = process.communicate("go on\n", timeout=60)
    assert (process.returncode, "run it again" in err) == (code, True)
    assert "Traceback" not in err
    status = data("status")
    assert (status["runControlState"], status["worker"]) == ("running", None)
    assert status["head"]["stepId"] == "wait"


def event(kind: str, index: int = -1, **more: Any) -> Any:
    progress = SimpleNamespace(plan=("fetch", "train"), round=more.pop("round", 1), rounds=more.pop("rounds", 1))
    about = {"attempt": 1, "seconds": 75.0, "error": None, **more}
    return SimpleNamespace(
        kind=kind, progress=progress, stage=progress.plan[index] if index >= 0 else None, index=index, **about
    )


def test_that_it_waits_for_a_person_is_said_once() -> None:
    stream, state = io.StringIO(), ["running"]
    lines = EventLines(stream, lambda: state[0])
    for state[0] in ("running", "paused", "paused", "running", "waiting_for_input"):
        lines(event("heartbeat", 1))
    assert stream.getvalue().splitlines() == [
        "it is paused; `lastgood resume` resumes it",
        "it asks; see `lastgood answer`",
    ]


REAL = """
import lastgood

def first(ctx):
    ctx.state["n"] = 1

def second(ctx):
    ctx.state["n"] += 1

pipeline = lastgood.Pipeline([first, second], name="counting")
"""


def test_a_pipeline_of_the_library_is_run(process: Run, data: Run, jobs: Path) -> None:
    (jobs / "real.py").write_text(REAL)
    done = process("run", "real:pipeline", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pipeline"] == "counting"
    assert data("show", "--state") == {"n": 2}
    shown = process("run", "real:pipeline", "--restart").stderr.splitlines()
    assert "stage 2 of 2: second" in shown
    assert process("run", "real:pipeline").returncode == 0


LEAVING = """
import os
import lastgood

def work(ctx):
    os.rename(".lastgood", "elsewhere")

def more(ctx):
    pass

pipeline = lastgood.Pipeline([work, more])
"""


def test_work_that_ends_while_the_store_is_away_says_that_it_is_spooled(process: Run, jobs: Path) -> None:
    (jobs / "leaving.py").write_text(LEAVING)
    done = process("run", "leaving:pipeline")
    assert (done.returncode, done.stdout) == (0, "work: completed, spooled\n")
    assert "alert: the store is not there; until " in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("it is not in the store yet: the store is not there; ")
    assert " checkpoints wait for the store since " in last


SECRETIVE = """
import lastgood

def work(ctx):
    url = "https://deploy:hunter2@example.org"
    raise RuntimeError(f"cannot reach {url}, password=hunter2")

pipeline = lastgood.Pipeline([work])

def make():
    work(None)
"""


@pytest.mark.parametrize(("name", "code"), [("pipeline", 8), ("make", 2)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_trace_is_printed_without_its_secrets(
    process: Run, jobs: Path, name: str, code: int, options: list[str]
) -> None:
    (jobs / "secretive.py").write_text(SECRETIVE)
    done = process("run", f"secretive:{name}", *options)
    assert done.returncode == code
    assert "cannot reach https://" in done.stderr
    assert ("in work\n" in done.stderr) == (not options)
    assert "hunter2" not in done.stderr + done.stdout
