"""kill -9 under load: nothing acknowledged is lost, nothing half done is seen, nobody repairs (A2, A16, I1-I4)."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lastgood

ROUNDS = int(os.environ.get("LASTGOOD_CRASH_ROUNDS", "40"))
CHUNKS = 5

WRITER = r"""
import hashlib, json, os, random, sys
import lastgood
store = lastgood.open(sys.argv[1], user="writer")
dice = random.Random(int(sys.argv[2]))
tasks = [store.task("a"), store.task("b")]
ledger = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
states = [task.state if task.head else {"log": [], "n": 0} for task in tasks]
while True:
    which = dice.randrange(2)
    state = states[which]
    state["log"].append("entry %d " % dice.getrandbits(40) * dice.randrange(1, 60))
    del state["log"][: max(0, len(state["log"]) - 150)]
    state["n"] += 1
    state["raw"] = os.urandom(dice.choice([0, 10, 3000, 40000]))
    saved = tasks[which].save(state, message="n%d" % state["n"], artifacts=[{"n": state["n"]}])
    if dice.random() < 0.1:
        tasks[which].tag(saved, "t%d" % state["n"])
    if dice.random() < 0.1 and saved.parent_id:
        store.delete_checkpoint(saved.parent_id)
    digest = hashlib.sha256(repr(state).encode()).hexdigest()
    os.write(ledger, json.dumps([saved.id, which, saved.sequence, saved.checksum, digest]).encode() + b"\n")
    os.write(1, b".")
"""


def _digest_of(state: Any) -> str:
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _kill_a_writer(folder: Path, ledger: Path, dice: random.Random) -> None:
    """Let a writer work for some acknowledgements and a moment more, then kill it where it stands."""
    command = [sys.executable, "-c", WRITER, str(folder), str(dice.getrandbits(30)), str(ledger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        for _ in range(dice.choice([0, 1, 2, 5, 20, 60])):
            assert child.stdout.read(1) == b".", child.stderr.read().decode()[-800:]
        for _ in range(dice.randrange(60_000)):
            pass
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.returncode == -signal.SIGKILL, child.stderr.read().decode()[-800:]


def _read_ledger(ledger: Path) -> list[list[Any]]:
    if not ledger.exists():
        return []
    # The last line may be torn: its write was not finished, so nobody was told.
    return [json.loads(line) for line in ledger.read_bytes().split(b"\n")[:-1]]


def _check(folder: Path, ledger: Path) -> None:
    with lastgood.open(folder, user="writer") as store:
        acknowledged = _read_ledger(ledger)
        for id_, which, sequence, checksum, digest in acknowledged:
            checkpoint = store.get_checkpoint(id_)
            assert (checkpoint.task_id, checkpoint.sequence) == ("ab"[which], sequence)
            assert checkpoint.checksum == checksum
            assert _digest_of(checkpoint.state) == digest
        for info in store.tasks():
            listed = store.page_checkpoints(info.id, 1000)
            assert len(listed.checkpoints) == listed.total
            for checkpoint in listed.checkpoints:
                assert checkpoint.integrity_ok
                assert store.examine_checkpoint(checkpoint.id) == []
                assert checkpoint.state["n"] == checkpoint.artifacts[0]["n"]
            head = store.task(info.id).head
            assert head is not None
            assert head.id == listed.checkpoints[0].id
            assert head.sequence == info.last_sequence
            told = [row[2] for row in acknowledged if "ab"[row[1]] == info.id]
            assert info.last_sequence >= max(told, default=0)
            # At most one save per kill was under way: it may be there whole, or not at all.
            created = [event for event in _events(store, info.id) if event.kind == "created"]
            assert len(created) == info.last_sequence
            assert len({event.checkpoint_id for event in created}) == info.last_sequence


def _events(store: lastgood.Store, task_id: str) -> list[Any]:
    found: list[Any] = []
    while page := store.events(task_id, after=found[-1].sequence if found else 0, limit=1000):
        found += page
    assert [event.sequence for event in found] == list(range(1, len(found) + 1))
    return found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_writer_killed_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, chunk: int) -> None:
    """A2, A16, I1 to I4: one store, killed and opened again round after round."""
    seed = int(os.environ.get("LASTGOOD_CRASH_SEED", random.SystemRandom().getrandbits(32))) + chunk
    print(f"LASTGOOD_CRASH_SEED={seed - chunk}")  # noqa: T201
    dice = random.Random(seed)
    folder, ledger = tmp_path / "store", tmp_path / "ledger"
    for _ in range(-(-ROUNDS // CHUNKS)):
        _kill_a_writer(folder, ledger, dice)
        if folder.exists():
            _check(folder, ledger)


def test_a_writer_goes_on_after_a_kill_where_it_was(tmp_path: Path) -> None:
    """A16: reopening finds the last good checkpoint, and the next save continues it."""
    folder, ledger = tmp_path / "store", tmp_path / "ledger"
    dice = random.Random(11)
    while not _read_ledger(ledger):
        _kill_a_writer(folder, ledger, dice)
    with lastgood.open(folder, user="writer") as store:
        task = store.task("ab"[_read_ledger(ledger)[-1][1]])
        before = task.head
        assert before is not None
        after = task.save({"log": [], "n": -1}, artifacts=[{"n": -1}])
        assert after.parent_id == before.id
        assert after.sequence == (before.sequence or 0) + 1
    _check(folder, ledger)


def test_the_check_would_notice_a_lost_checkpoint(tmp_path: Path) -> None:
    """The harness can fail: a ledger that names a checkpoint the store does not have is a violation."""
    folder, ledger = tmp_path / "store", tmp_path / "ledger"
    with lastgood.open(folder, user="writer") as store:
        state = {"n": 1}
        saved = store.task("a").save(state, artifacts=[{"n": 1}])
        row = [saved.id, 0, saved.sequence, saved.checksum, _digest_of(state)]
    ledger.write_text(json.dumps(row) + "\n")
    _check(folder, ledger)
    ledger.write_text(json.dumps([row[0], 0, 1, saved.checksum, "0"]) + "\n")
    with pytest.raises(AssertionError):
        _check(folder, ledger)
    ledger.write_text(json.dumps(["gone", *row[1:]]) + "\n")
    with pytest.raises(lastgood.NotFoundError):
        _check(folder, ledger)
