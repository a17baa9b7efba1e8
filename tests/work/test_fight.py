"""Executors that fight over one branch, with clocks that are wrong and processes that sleep for longer than a lease:
exactly one line of history, and every zombie hears that it is one (C5, C6). In full with LASTGOOD_FULL=1."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.competing_executor import HOUR, LEASE
from tests.support.programs import Program, another_host

import lastgood
from lastgood import ConflictError, LeaseError, Store

pytestmark = pytest.mark.once

FULL = bool(os.environ.get("LASTGOOD_FULL"))
ROOT = Path(__file__).parents[2]


def fight(folder: Path, executors: int, saves: int, pauses: int, seed: int) -> None:
    """Let them fight; now and then one is stopped for longer than its lease, and goes on."""
    dice = random.Random(seed)
    skews = [0, 3 * HOUR, -3 * HOUR, HOUR, -7 * HOUR][:executors]
    command = [sys.executable, "-m", "tests.support.competing_executor", str(folder)]
    processes = [
        subprocess.Popen(
            [*command, f"executor {number}", str(skew), str(seed + number), str(saves)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number, skew in enumerate(skews)
    ]
    try:
        for _ in range(pauses):
            chosen = dice.choice(processes)
            if chosen.poll() is None:
                chosen.send_signal(signal.SIGSTOP)
                threading.Event().wait(LEASE * 2)
                chosen.send_signal(signal.SIGCONT)
        for process in processes:
            _, wrong = process.communicate(timeout=600)
            assert process.returncode == 0, wrong.decode()
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def read_ledgers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.ledger") for line in path.read_text().splitlines()]


def require_one_line(folder: Path, saves: int) -> None:
    with lastgood.open(folder / "store", user="tester") as store:
        assert len(store.branches("work")) == 1
        line: list[lastgood.Checkpoint] = []
        while page := store.list_checkpoints("work", 1000, before=line[-1].sequence if line else None):
            line += page
        line.reverse()
        assert len(line) >= saves
        assert [one.sequence for one in line] == list(range(1, len(line) + 1))
        assert [one.parent_id for one in line] == [None, *(one.id for one in line[:-1])]
        told = {said["saved"]: said for said in read_ledgers(folder) if "saved" in said}
        assert set(told) <= {one.id for one in line}, "what was acknowledged is there"
        steps = [one for one in line if one.type == "step"]
        states = [one.state for one in steps]
        assert [state["n"] for state in states] == list(range(1, len(states) + 1)), "each went on from the last"
        tokens = [state["by"][1] for state in states]
        assert tokens == sorted(tokens), "nobody saved after another had taken over"


@pytest.mark.parametrize("executors", [2, 5])
def test_exactly_one_line_of_history(tmp_path: Path, executors: int) -> None:
    saves, pauses = (2000, 60) if FULL else (60, 3)
    fight(tmp_path, executors, saves, pauses, seed=executors)
    require_one_line(tmp_path, saves)


def test_a_zombie_hears_it_wherever_it_wakes_up(store: Store, tmp_path: Path) -> None:
    """The same without processes: someone takes over while this one sleeps, and this one does each thing it can do."""

    def save() -> object:
        return session.save()

    def boundary() -> object:
        session.boundary()
        return None

    def ask() -> object:
        return session.ask("Deploy?")

    def handle() -> object:
        return program.task.save({"n": "zombie"})

    def restore() -> object:
        return program.task.restore(program.task.head or "")

    def leave() -> object:
        return session.__exit__(None, None, None)

    with another_host(tmp_path / "store") as far:
        for deed in (save, boundary, ask, handle, restore, leave):
            program = Program(store.task(f"work {deed.__name__}"))
            session = program.session()
            session.__enter__()
            program.memory["n"] = 1
            before = program.task.head
            other = Program(far.task(f"work {deed.__name__}"))
            with other.session() as taken:
                assert other.memory == {"n": 0}
                session._lease.renew()
                with pytest.raises(ConflictError) as caught:
                    deed()
                assert isinstance(caught.value, LeaseError) or deed is restore, deed
                if deed is not leave:
                    session.__exit__(LeaseError, caught.value, None)
                assert far.task(f"work {deed.__name__}").head.id == before.id  # type: ignore[union-attr]
                taken.save()


def test_threads_that_share_a_transaction_are_each_checked(store: Store, tmp_path: Path) -> None:
    """Group commit: a zombie's save goes along with those of others, and it alone is refused."""
    task = store.task("work")
    with (
        another_host(tmp_path / "store") as far,
        suppress(LeaseError),
        task.session() as zombie,
        far.task("work").session(),
    ):
        begin = threading.Barrier(8)
        refused: list[str] = []

        def one(number: int) -> None:
            mine = None if number == 0 else store.task(f"other {number}")
            begin.wait(30)
            for n in range(10):
                try:
                    zombie.save() if mine is None else mine.save({"n": n})
                except LeaseError:
                    refused.append(f"{number}")

        threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert refused == ["0"] * 10
        assert [store.task(f"other {number}").state for number in range(1, 8)] == [{"n": 9}] * 7


def test_two_who_begin_new_work_at_once_work_on_the_same(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "a", user="tester") as one, lastgood.open(tmp_path / "a", user="tester") as two:
        second = two.task("work")

        def begin_meanwhile() -> dict[str, Any]:
            if one.task("work").head is None:
                one.task("work").save({"n": "first"}, type="started", control_state="running")
            return {"n": "second"}

        with second.session(state=begin_meanwhile):
            assert second.state == {"n": "first"}
            with pytest.raises(LeaseError), one.task("work").session():
                pass
        assert len(one.branches("work")) == 1
