"""The story that `lastgood demo` tells: an agent's job that crashes, resumes, breaks its tests, goes back, branches.

The job is to write slug.py in a folder of its own. What the agent needs to go on (its messages, its source) is its
state; that its tests passed is evidence. Every run of the agent opens the store anew.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lastgood.cli.invocation import open_quietly
from lastgood.errors import EvidenceError

if TYPE_CHECKING:
    from lastgood import Checkpoint, Store, Task

TASK = "write-slug"
TESTS = 'from slug import slug\n\nassert slug("Hello, World") == "hello-world"\n'
FIRST = 'def slug(text):\n    return "-".join(text.lower().replace(",", "").split())\n'
BROKEN = 'def slug(text):\n    return text.lower().replace(" ", "_")\n'
OTHER = 'import re\n\n\ndef slug(text):\n    return "-".join(re.findall(r"\\w+", text.lower()))\n'
_WORKER = "from lastgood.cli.story import work_until_killed; work_until_killed(__import__('sys').argv[1])"


class ClaimChecker(Protocol):
    """A printer of the story."""

    def check(self, claim: str, holds: bool) -> None:
        """Print a sentence, and whether it holds."""

    def show(self, picture: list[str]) -> None: ...


class DemoJob:
    """The agent's folder, and the store beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"

    def open(self) -> Store:
        return open_quietly(self.folder / "store", base_path=self.work)

    def write(self, name: str, text: str) -> None:
        (self.work / name).write_text(text, encoding="utf-8")


def run_story(folder: Path, claims: ClaimChecker) -> None:
    """Run all scenes in order. Sequences are part of the story: each scene knows where the work stands."""
    job = DemoJob(folder)
    job.work.mkdir()
    job.write("check.py", TESTS)
    scenes: list[Callable[[DemoJob, ClaimChecker], None]] = [
        plan, implement, crash, resume, break_the_tests, go_back, branch, look_back, change_the_world,
    ]  # fmt: skip
    for scene in scenes:
        scene(job, claims)


def plan(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store, store.task(TASK).step("plan", message="plan agreed") as step:
        job.write("plan.md", "1. implement 2. document 3. refactor\n")
        step.state = {"messages": ["user: write slug.py"], "source": ""}
        step.expect_file("plan.md")
    claims.check(
        "@1  an agent agreed on a plan and saved its state; that plan.md is as it was is evidence",
        _is(step.checkpoint, 1, verified=True),
    )


def implement(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store:
        made = _attempt(job, store.task(TASK), "implement", FIRST)
    claims.check("@2  it wrote slug.py and ran the tests: they pass, so this is verified", _is(made, 2, verified=True))


def crash(job: DemoJob, claims: ClaimChecker) -> None:
    command = [sys.executable, "-c", _WORKER, str(job.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:  # noqa: S603
        assert agent.stdout is not None
        at_work = agent.stdout.readline() == "at work\n"
        agent.kill()
    killed = at_work and agent.returncode == -signal.SIGKILL
    claims.check("    in the middle of the step 'document' its process was killed (kill -9)", killed)


def resume(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store:
        found = store.recovery(TASK)
        kept = _is(found.head, 2, verified=True) and found.head is not None and found.head.state["source"] == FIRST
        whole = found.head is not None and not store.check_checkpoint(found.head.id, evidence=False).problems
        claims.check("@2  opened anew, the work stands where it was, every byte what was saved", kept and whole)
        flying = [step.name for step in found.interrupted]
        claims.check(
            f"    what was in flight is known: {', '.join(flying)}, in a process that is gone", len(flying) == 1
        )
        for step in found.interrupted:
            store.abandon_step(step.id, "done again")
        made = _document(job, store.task(TASK))
    claims.check("@3  the step is done again, and verified", flying == ["document"] and _is(made, 3, verified=True))


def break_the_tests(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store:
        task = store.task(TASK)
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


def go_back(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store:
        task = store.task(TASK)
        good = task.last_good()
        claims.check("    the last good checkpoint is @3", _is(good, 3, verified=True))
        assert good is not None, "said just now"
        restored = task.restore(good, message="the refactoring was wrong")
        same = restored.state == good.state and restored.state["source"] == FIRST
        left = store.find_checkpoint("@4", TASK).state["source"] == BROKEN
        job.write("slug.py", restored.state["source"])
    claims.check(
        "@5  it went back: the state is exactly that of @3, and @4 stays on the branch that was left", same and left
    )


def branch(job: DemoJob, claims: ClaimChecker) -> None:
    with job.open() as store:
        task = store.task(TASK)
        made = _attempt(job, task.fork(name="try-regex"), "refactor", OTHER)
        unmoved = task.refresh()
        claims.check(
            "@7  another way was tried on a branch of its own: its tests pass, and the work stands where it was",
            _is(made, 7, verified=True) and _is(unmoved, 5, verified=False),
        )
        heads = [task.switch("try-regex").sequence, task.undo().sequence, task.redo().sequence]
    claims.check("    the work goes on there; going there was undone, and done again", heads == [7, 5, 7])


def look_back(job: DemoJob, claims: ClaimChecker) -> None:
    from lastgood.cli.branch import ASCII, draw, terminal_glyphs, terminal_width
    from lastgood.views.branch import read_tree

    with job.open() as store:
        kinds = {entry.kind for entry in store.history(TASK, limit=1000)}
        wanted = {"created", "step_abandoned", "restored", "branched", "switched", "undone", "redone"}
        claims.check("    the history tells all of it in one order, and keeps it", wanted <= kinds)
        tree = read_tree(store, TASK, 20)
        marks = re.findall(r"(\S) +@(\d) ([vx?])", "\n".join(draw(tree, glyphs=ASCII, width=None)))
        picture = draw(tree, glyphs=terminal_glyphs(), width=terminal_width())
    claims.check(
        "    this is its tree: * where the work stands, v verified, x not, ? without evidence",
        ["".join(mark) for mark in marks] == ["*7v", "o6?", "o5?", "o4x", "o3v", "o2v", "o1v"],
    )
    claims.show(picture)


def change_the_world(job: DemoJob, claims: ClaimChecker) -> None:
    job.write("plan.md", "1. something else\n")
    with job.open() as store:
        first, second = (store.verify_checkpoint(store.find_checkpoint(name, TASK).id) for name in ("@1", "@2"))
    claims.check(
        "    evidence is about the world as it is: plan.md was changed, and @1 is verified no more, @2 still is",
        (first, second) == (False, True),
    )


def work_until_killed(folder: str) -> None:
    """What the agent does that is killed: it has written half of the document, and not said that it is done."""
    job = DemoJob(Path(folder))
    with job.open() as store, store.task(TASK).step("document"):
        job.write("README.md", "# sl")
        sys.stdout.write("at work\n")
        sys.stdout.flush()
        signal.pause()


def _attempt(job: DemoJob, task: Task, name: str, source: str) -> Checkpoint:
    """A step that writes slug.py and runs its tests, without compiled files: versions may be but a moment apart."""
    with task.step(name, message=f"{name} slug.py") as step:
        step.state = {**step.state, "messages": [*step.state["messages"], f"agent: {name}"], "source": source}
        job.write("slug.py", source)
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        step.run([sys.executable, "-B", "check.py"], cwd=job.work, description="the tests pass", **silent)
    assert step.checkpoint is not None, "a step ends in a checkpoint"
    return step.checkpoint


def _document(job: DemoJob, task: Task) -> Checkpoint | None:
    with task.step("document", message="document slug.py") as step:
        job.write("README.md", "# slug\n\nMakes a slug of a text.\n")
        step.expect_file("README.md")
    return step.checkpoint


def _is(checkpoint: Checkpoint | None, sequence: int, *, verified: bool) -> bool:
    return checkpoint is not None and (checkpoint.sequence, checkpoint.verified) == (sequence, verified)
