"""`lastgood demo`: what is promised, tried on a store of its own. Each sentence is checked before it is printed."""

from __future__ import annotations

import functools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.failure import FAILED
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import json_text, size_text, styled
from lastgood.engine.store import open_store
from lastgood.errors import CheckpointError, ConflictError

TASK = "agent"
TURNS = 30
LONG_LIVED_TURNS = 100  # enough for the writer to tidy up when it closes
KILLS = 4
FLIPS = 40
_WORKER = "from lastgood.cli.demo import work; work(__import__('sys').argv[1])"


@subcommand
def command(call: Invocation) -> None:
    """Demonstrate what is promised, in a temporary folder. The exit code is 1 if anything does not hold."""
    claims = Claims(call)
    with tempfile.TemporaryDirectory(prefix="lastgood-demo-") as folder:
        path = Path(folder) / "store"
        for chapter in CHAPTERS:
            chapter(path, claims.check)
    if call.json:
        click.echo(json_text({"claims": claims.checked}))
    if not all(claim["holds"] for claim in claims.checked):
        click.get_current_context().exit(FAILED)


class Claims:
    def __init__(self, call: Invocation) -> None:
        self._call = call
        self.checked: list[dict[str, Any]] = []

    def check(self, claim: str, holds: bool) -> None:
        self.checked.append({"claim": claim, "holds": holds})
        if not self._call.json:
            word = styled("holds ", fg="green") if holds else styled("FAILED", fg="red")
            click.echo(f"{word} {claim}")


Check = Callable[[str, bool], None]


def save_turns(path: Path, check: Check) -> None:
    with open_store(path) as store:
        task = store.task(TASK)
        saved = [_turn(task) for _ in range(TURNS)]
    with open_store(path) as store:
        head = store.task(TASK).head
        kept = head is not None and head.state == _state(TURNS)
    check(f"an agent saved {len(saved)} turns; opened anew, the last one is exactly what was saved", kept)


def kill_the_writer(path: Path, check: Check) -> None:
    acknowledged: list[str] = []
    killed = 0
    for count in range(KILLS):
        said, status = _work_until_killed(path, after=3 + 4 * count)
        acknowledged += said
        killed += status == -signal.SIGKILL
    with open_store(path) as store:
        head = store.task(TASK).head
        stored = store.list_checkpoints(TASK, 1000)
        whole = all(store.verify_checkpoint(one.id) for one in stored)
        turns = [one.state["turn"] for one in reversed(stored)]
    names = {one.id for one in stored}
    check(f"an agent that never stops saving was killed {killed} times (kill -9)", killed == KILLS)
    check(
        f"each of the {len(acknowledged)} turns it had been told are stored is stored", names.issuperset(acknowledged)
    )
    check(
        "each time it went on from the last turn: none is missing, none was done twice",
        turns == list(range(1, len(stored) + 1)) and head is not None and head.state == _state(len(stored)),
    )
    check("every byte of every checkpoint is what was saved", whole)


def refuse_a_stale_writer(path: Path, check: Check) -> None:
    with open_store(path) as store:
        one, other = store.task(TASK), store.task(TASK)
        saved = _turn(one)
        try:
            _turn(other)
            refused = False
        except ConflictError as error:
            refused = error.head is not None and error.head.id == saved
    check("of two writers who saw the same turn, the second is refused and told where the work is now", refused)


def show_sizes(path: Path, check: Check) -> None:
    """With the write-ahead log and without: until a long-lived writer closes, the log is most of a small store."""
    with open_store(path) as store:
        task = store.task(TASK)
        for _ in range(LONG_LIVED_TURNS):
            _turn(task)
        with_log = store.size()
    with open_store(path) as store:
        sizes = [one.state_size for one in store.list_checkpoints(TASK, 1000)]
        taken = store.size()
    whole = sum(sizes)
    check(
        f"{len(sizes)} checkpoints, whose states written out in full are {size_text(whole)}, take {size_text(taken)} "
        f"on disk ({size_text(with_log)} until the writer closed and its write-ahead log was folded in)",
        taken < whole,
    )


def flip_bits(path: Path, check: Check) -> None:
    """Each flip on a copy of its own. Harmless is: all states still read exactly as they were saved."""
    truth = _read(path)
    chance = random.Random(7)  # noqa: S311
    detected = harmless = 0
    for number in range(FLIPS):
        copy = path.with_name(f"copy-{number}")
        shutil.copytree(path, copy)
        _flip(copy / chance.choice(["catalog.sqlite", "catalog.sqlite-wal"]), chance)
        try:
            harmless += _read(copy) == truth
        except CheckpointError:
            detected += 1
        shutil.rmtree(copy)
    check(
        f"one bit was flipped in each of {FLIPS} copies: {detected} times the damage was detected, {harmless} times it "
        "touched nothing that is read; wrong data came back never",
        detected > 0 and detected + harmless == FLIPS,
    )


def work(path: str) -> None:
    """What the agent that is killed does: go on from the last turn, say each one that is acknowledged."""
    with open_store(path) as store:
        task = store.task(TASK)
        while True:
            sys.stdout.write(f"{_turn(task)}\n")
            sys.stdout.flush()


def _turn(task: Any) -> str:
    turn = task.state["turn"] + 1 if task.head else 1
    saved: str = task.save(_state(turn), message=f"turn {turn}", type="iteration_end", iteration=turn).id
    return saved


def _state(turn: int) -> dict[str, Any]:
    return {"turn": turn, "messages": [_message(number) for number in range(turn)]}


@functools.cache
def _message(number: int) -> dict[str, str]:
    """Always the same for a number, and random enough that compression alone does not make it small."""
    chance = random.Random(number)  # noqa: S311
    words = (f"{chance.getrandbits(24):x}" for _ in range(100))
    return {"role": ("user", "assistant")[number % 2], "content": " ".join(words)}


def _work_until_killed(path: Path, *, after: int) -> tuple[list[str], int]:
    """The ids it was told are stored, up to its very end; and how it ended."""
    command = [sys.executable, "-c", _WORKER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603
        assert worker.stdout is not None
        said = [worker.stdout.readline() for _ in range(after)]
        worker.kill()
        said += worker.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")], worker.returncode


def _read(path: Path) -> list[Any]:
    with open_store(path) as store:
        return [(one.id, one.message, one.state) for one in store.list_checkpoints(TASK, 1000)]


def _flip(file: Path, chance: random.Random) -> None:
    place = chance.randrange(file.stat().st_size)
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << chance.randrange(8)]))


CHAPTERS = (save_turns, kill_the_writer, refuse_a_stale_writer, flip_bits, show_sizes)
