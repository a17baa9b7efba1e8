"""A story whose every sentence is checked, then what is promised, tried out; in a temporary folder. See README.md.

The story is an agent's job: to write slug.py in a folder of its own. What the agent needs to go on (its messages, its
source) is its state; that its tests passed is evidence. Every run of the agent opens the store anew.
"""

from __future__ import annotations

import functools
import logging
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lastgood
from lastgood import Checkpoint, CheckpointError, ConflictError, EvidenceError, Store, Task

JOB = "write-slug"
TESTS = 'from slug import slug\n\nassert slug("Hello, World") == "hello-world"\n'
FIRST = 'def slug(text):\n    return "-".join(text.lower().replace(",", "").split())\n'
BROKEN = 'def slug(text):\n    return text.lower().replace(" ", "_")\n'
OTHER = 'import re\n\n\ndef slug(text):\n    return "-".join(re.findall(r"\\w+", text.lower()))\n'
TASK = "agent"
KILLS = 3
FLIPS = 30
HELD = {1: True, 2: True, 3: True, 4: False, 7: True}


def main(arguments: list[str]) -> int:
    """Run every chapter in a folder of its own. 1 if anything that is said does not hold."""
    if arguments:
        WORKERS[arguments[0]](Path(arguments[1]))
        return 0
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="lastgood-demo-") as folder:
        for chapter in CHAPTERS:
            place = Path(folder) / chapter.__name__
            place.mkdir()
            chapter(place, claims)
    return 0 if claims.hold else 1


class Claims:
    """Prints each claim, and whether it holds."""

    def __init__(self) -> None:
        self.hold = True

    def check(self, claim: str, holds: bool) -> None:
        print("holds " if holds else "FAILED", claim, flush=True)
        self.hold = self.hold and holds


class Job:
    """The agent's folder, and the store beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"

    def open(self) -> Store:
        return lastgood.open(self.folder / "store", base_path=self.work)

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(text, encoding="utf-8")


def run_story(folder: Path, claims: Claims) -> None:
    """Run all scenes in order. Sequences are part of the story: each scene knows where the work stands."""
    job = Job(folder)
    job.work.mkdir()
    job.write("check.py", TESTS)
    scenes: list[Callable[[Job, Claims], None]] = [
        plan, implement, crash, resume, break_the_tests, go_back, branch, look_back, change_the_world,
    ]  # fmt: skip
    for scene in scenes:
        scene(job, claims)


def plan(job: Job, claims: Claims) -> None:
    with job.open() as store, store.task(JOB).step("plan", message="plan agreed") as step:
        job.write("plan.md", "1. implement 2. document 3. refactor\n")
        step.state = {"messages": ["user: write slug.py"], "source": ""}
        step.expect_file("plan.md")
    claims.check(
        "@1  an agent agreed on a plan and saved its state; that plan.md is as it was is evidence",
        _is(step.checkpoint, 1, verified=True),
    )


def implement(job: Job, claims: Claims) -> None:
    with job.open() as store:
        made = _attempt(job, store.task(JOB), "implement", FIRST)
    claims.check("@2  it wrote slug.py and ran the tests: they pass, so this is verified", _is(made, 2, verified=True))


def crash(job: Job, claims: Claims) -> None:
    with start_worker("document", job.folder) as agent:
        assert agent.stdout is not None
        at_work = agent.stdout.readline() == "at work\n"
        agent.kill()
    killed = at_work and agent.returncode == -signal.SIGKILL
    claims.check("    in the middle of the step 'document' its process was killed (kill -9)", killed)


def resume(job: Job, claims: Claims) -> None:
    with job.open() as store:
        found = store.recovery(JOB)
        kept = _is(found.head, 2, verified=True) and found.head is not None and found.head.state["source"] == FIRST
        whole = found.head is not None and not store.check_checkpoint(found.head.id, evidence=False).problems
        claims.check("@2  opened anew, the work stands where it was, every byte what was saved", kept and whole)
        flying = [step.name for step in found.interrupted]
        claims.check(
            f"    what was in flight is known: {', '.join(flying)}, in a process that is gone", len(flying) == 1
        )
        for step in found.interrupted:
            store.abandon_step(step.id, "done again")
        made = _document(job, store.task(JOB))
    claims.check("@3  the step is done again, and verified", flying == ["document"] and _is(made, 3, verified=True))


def break_the_tests(job: Job, claims: Claims) -> None:
    with job.open() as store:
        task = store.task(JOB)
        made = _attempt(job, task, "refactor", BROKEN)
        reasons = [str(one.verification_error) for one in made.evidence_pack.evidence_list if not one.verified]
        claims.check(
            f"@4  a refactoring broke the tests: kept all the same, as NOT verified ({'; '.join(reasons)})",
            _is(made, 4, verified=False) and len(reasons) == 1,
        )
        try:
            task.restore("@4")
            refused = False
        except EvidenceError:
            refused = True
    claims.check("    nobody goes back to @4 by mistake: its evidence does not hold", refused)


def go_back(job: Job, claims: Claims) -> None:
    with job.open() as store:
        task = store.task(JOB)
        good = task.last_good()
        claims.check("    the last good checkpoint is @3", _is(good, 3, verified=True))
        assert good is not None, "said just now"
        restored = task.restore(good, message="the refactoring was wrong")
        same = restored.state == good.state and restored.state["source"] == FIRST
        left = store.find_checkpoint("@4", JOB).state["source"] == BROKEN
        job.write("slug.py", restored.state["source"])
    claims.check(
        "@5  it went back: the state is exactly that of @3, and @4 stays on the branch that was left", same and left
    )


def branch(job: Job, claims: Claims) -> None:
    with job.open() as store:
        task = store.task(JOB)
        made = _attempt(job, task.fork(name="try-regex"), "refactor", OTHER)
        unmoved = task.refresh()
        claims.check(
            "@7  another way was tried on a branch of its own: its tests pass, and the work stands where it was",
            _is(made, 7, verified=True) and _is(unmoved, 5, verified=False),
        )
        heads = [task.switch("try-regex").sequence, task.undo().sequence, task.redo().sequence]
    claims.check("    the work goes on there; going there was undone, and done again", heads == [7, 5, 7])


def look_back(job: Job, claims: Claims) -> None:
    with job.open() as store:
        kinds = {entry.kind for entry in store.history(JOB, limit=1000)}
        proven = [one for one in store.list_checkpoints(JOB) if one.evidence_pack.evidence_list]
        head = store.task(JOB).head
    wanted = {"created", "step_abandoned", "restored", "branched", "switched", "undone", "redone"}
    claims.check("    the history tells all of it in one order, and keeps it", wanted <= kinds)
    claims.check(
        "    this is its tree: * where the work stands, v verified, x not, ? without evidence",
        _is(head, 7, verified=True) and {one.sequence: one.verified for one in proven} == HELD,
    )
    command = [sys.executable, "-m", "lastgood.cli.main", "--store", str(job.folder / "store"), "--task", JOB, "branch"]
    subprocess.run(command, check=True)


def change_the_world(job: Job, claims: Claims) -> None:
    job.write("plan.md", "1. something else\n")
    with job.open() as store:
        first, second = (store.verify_checkpoint(store.find_checkpoint(name, JOB).id) for name in ("@1", "@2"))
    claims.check(
        "    evidence is about the world as it is: plan.md was changed, and @1 is verified no more, @2 still is",
        (first, second) == (False, True),
    )


def _attempt(job: Job, task: Task, name: str, source: str) -> Checkpoint:
    """A step that writes slug.py and runs its tests, without compiled files: versions may be but a moment apart."""
    with task.step(name, message=f"{name} slug.py") as step:
        step.state = {**step.state, "messages": [*step.state["messages"], f"agent: {name}"], "source": source}
        job.write("slug.py", source)
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        step.run([sys.executable, "-B", "check.py"], cwd=job.work, description="the tests pass", **silent)
    assert step.checkpoint is not None, "a step ends in a checkpoint"
    return step.checkpoint


def _document(job: Job, task: Task) -> Checkpoint | None:
    with task.step("document", message="document slug.py") as step:
        job.write("README.md", "# slug\n\nMakes a slug of a text.\n")
        step.expect_file("README.md")
    return step.checkpoint


def _is(checkpoint: Checkpoint | None, sequence: int, *, verified: bool) -> bool:
    return checkpoint is not None and (checkpoint.sequence, checkpoint.verified) == (sequence, verified)


def kill_the_writer(folder: Path, claims: Claims) -> None:
    acknowledged: list[str] = []
    killed = 0
    for count in range(KILLS):
        said, status = _work_until_killed(folder, after=3 + 4 * count)
        acknowledged += said
        killed += status == -signal.SIGKILL
    with lastgood.open(folder / "store") as store:
        stored = store.list_checkpoints(TASK, 1000)
        whole = not any(store.check_checkpoint(one.id, evidence=False).problems for one in stored)
        states = [one.state for one in reversed(stored)]
    claims.check(
        f"an agent that never stops saving was killed {killed} times (kill -9): each of the {len(acknowledged)} turns "
        "that it had been told are stored is stored, every byte of it",
        killed == KILLS and whole and {one.id for one in stored}.issuperset(acknowledged),
    )
    claims.check(
        "each time it went on from the last turn: none is missing, none was done twice",
        states == [_state(turn) for turn in range(1, len(stored) + 1)],
    )


def refuse_a_stale_writer(folder: Path, claims: Claims) -> None:
    with lastgood.open(folder / "store") as store:
        _turn(store.task(TASK))
        one, other = store.task(TASK), store.task(TASK)
        saved = _turn(one)
        try:
            _turn(other)
            refused = False
        except ConflictError as error:
            refused = error.head is not None and error.head.id == saved
    claims.check("of two writers who saw the same turn, the second is refused and told where the work is now", refused)


def flip_bits(folder: Path, claims: Claims) -> None:
    """Each flip on a copy of its own. Harmless is: all states still read exactly as they were saved."""
    with lastgood.open(folder / "store") as store:
        task = store.task(TASK)
        for _ in range(20):
            _turn(task)
    truth = _read(folder / "store")
    chance = random.Random(7)
    detected = harmless = 0
    for number in range(FLIPS):
        copy = folder / f"copy-{number}"
        shutil.copytree(folder / "store", copy)
        _flip(copy / chance.choice(["catalog.sqlite", "catalog.sqlite-wal"]), chance)
        try:
            harmless += _read(copy) == truth
        except CheckpointError:
            detected += 1
        shutil.rmtree(copy)
    claims.check(
        f"one bit was flipped in each of {FLIPS} copies of a store: {detected} times the damage was detected, "
        f"{harmless} times it touched nothing that is read; wrong data came back never",
        detected > 0 and detected + harmless == FLIPS,
    )


def start_worker(name: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, name, str(folder)], stdout=subprocess.PIPE, text=True)


def document_until_killed(folder: Path) -> None:
    """Write half of the document, and never say that it is done."""
    job = Job(folder)
    with job.open() as store, store.task(JOB).step("document"):
        job.write("README.md", "# sl")
        print("at work", flush=True)
        signal.pause()


def save_until_killed(folder: Path) -> None:
    """Go on from the last turn, and print each one that is acknowledged."""
    with lastgood.open(folder / "store") as store:
        task = store.task(TASK)
        while True:
            print(_turn(task), flush=True)


def _turn(task: Any) -> str:
    turn = task.state["turn"] + 1 if task.head else 1
    saved: str = task.save(_state(turn), message=f"turn {turn}", type="iteration_end", iteration=turn).id
    return saved


def _state(turn: int) -> dict[str, Any]:
    return {"turn": turn, "messages": [_message(number) for number in range(turn)]}


@functools.cache
def _message(number: int) -> dict[str, str]:
    """Always the same for a number, and random enough that compression alone does not make it small."""
    chance = random.Random(number)
    words = (f"{chance.getrandbits(24):x}" for _ in range(100))
    return {"role": ("user", "assistant")[number % 2], "content": " ".join(words)}


def _work_until_killed(folder: Path, *, after: int) -> tuple[list[str], int]:
    """The ids it was told are stored, up to its very end; and how it ended."""
    with start_worker("save", folder) as worker:
        assert worker.stdout is not None
        said = [worker.stdout.readline() for _ in range(after)]
        worker.kill()
        said += worker.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")], worker.returncode


def _read(store_path: Path) -> list[Any]:
    with lastgood.open(store_path) as store:
        return [(one.id, one.message, one.state) for one in store.list_checkpoints(TASK, 1000)]


def _flip(file: Path, chance: random.Random) -> None:
    place = chance.randrange(file.stat().st_size)
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << chance.randrange(8)]))


CHAPTERS: tuple[Callable[[Path, Claims], None], ...] = (run_story, kill_the_writer, refuse_a_stale_writer, flip_bits)
WORKERS = {"document": document_until_killed, "save": save_until_killed}

if __name__ == "__main__":
    logging.getLogger("lastgood").setLevel(logging.CRITICAL)  # steps that are interrupted are part of the story
    sys.exit(main(sys.argv[1:]))
