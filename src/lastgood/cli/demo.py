"""`lastgood demo`: a story, then what is promised, on stores of their own. Every sentence is checked."""

from __future__ import annotations

import functools
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from lastgood.cli.command import subcommand
from lastgood.cli.failure import FAILED
from lastgood.cli.invocation import Invocation, open_quietly
from lastgood.cli.output import json_text, styled
from lastgood.cli.story import run_story
from lastgood.errors import CheckpointError, ConflictError

TASK = "agent"
KILLS = 3
FLIPS = 30
_WORKER = "from lastgood.cli.demo import work; work(__import__('sys').argv[1])"


@subcommand
def demo(call: Invocation) -> None:
    """Tell the story of an agent's job, and try what is promised, in a temporary folder.

    The exit code is 1 if anything that is said does not hold.
    """
    claims = ClaimPrinter(call)
    with tempfile.TemporaryDirectory(prefix="lastgood-demo-") as folder:
        for number, chapter in enumerate(CHAPTERS):
            place = Path(folder) / str(number)
            place.mkdir()
            chapter(place, claims)
    if call.json:
        click.echo(json_text({"claims": claims.checked, "tree": claims.picture}))
    if not all(claim["holds"] for claim in claims.checked):
        click.get_current_context().exit(FAILED)


class ClaimPrinter:
    """The claims that were made, and whether they hold; printed at once, or kept for one JSON document."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self.checked: list[dict[str, Any]] = []
        self.picture: list[str] = []

    def check(self, claim: str, holds: bool) -> None:
        self.checked.append({"claim": claim.strip(), "holds": holds})
        if not self._call.json:
            word = styled("holds ", fg="green") if holds else styled("FAILED", fg="red")
            click.echo(f"{word} {claim}")

    def show(self, picture: list[str]) -> None:
        self.picture = picture
        if not self._call.json:
            click.echo("\n".join(["", *picture, ""]))


def kill_the_writer(folder: Path, claims: ClaimPrinter) -> None:
    acknowledged: list[str] = []
    killed = 0
    for count in range(KILLS):
        said, status = _work_until_killed(folder, after=3 + 4 * count)
        acknowledged += said
        killed += status == -signal.SIGKILL
    with open_quietly(folder / "store") as store:
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


def refuse_a_stale_writer(folder: Path, claims: ClaimPrinter) -> None:
    with open_quietly(folder / "store") as store:
        _turn(store.task(TASK))
        one, other = store.task(TASK), store.task(TASK)
        saved = _turn(one)
        try:
            _turn(other)
            refused = False
        except ConflictError as error:
            refused = error.head is not None and error.head.id == saved
    claims.check("of two writers who saw the same turn, the second is refused and told where the work is now", refused)


def flip_bits(folder: Path, claims: ClaimPrinter) -> None:
    """Each flip on a copy of its own. Harmless is: all states still read exactly as they were saved."""
    with open_quietly(folder / "store") as store:
        task = store.task(TASK)
        for _ in range(20):
            _turn(task)
    truth = _read(folder / "store")
    chance = random.Random(7)  # noqa: S311
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


def work(folder: str) -> None:
    """What the agent that is killed does: go on from the last turn, say each one that is acknowledged."""
    with open_quietly(Path(folder) / "store") as store:
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


def _work_until_killed(folder: Path, *, after: int) -> tuple[list[str], int]:
    """The ids it was told are stored, up to its very end; and how it ended."""
    command = [sys.executable, "-c", _WORKER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603
        assert worker.stdout is not None
        said = [worker.stdout.readline() for _ in range(after)]
        worker.kill()
        said += worker.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")], worker.returncode


def _read(store_path: Path) -> list[Any]:
    with open_quietly(store_path) as store:
        return [(one.id, one.message, one.state) for one in store.list_checkpoints(TASK, 1000)]


def _flip(file: Path, chance: random.Random) -> None:
    place = chance.randrange(file.stat().st_size)
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << chance.randrange(8)]))


CHAPTERS = (run_story, kill_the_writer, refuse_a_stale_writer, flip_bits)
