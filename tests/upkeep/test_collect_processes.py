"""Collecting while other processes save what is just being removed: nothing is missing (B6).

LASTGOOD_ROUNDS says how many rounds they make. A collector that is killed is a scenario of tests/faults.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lastgood

ROUNDS = int(os.environ.get("LASTGOOD_ROUNDS", "40"))

SMALL_STEPS = """
import os, random, sys, time
import lastgood
from lastgood.engine import blobs
from lastgood.upkeep import collect, repack
blobs.INLINE_BLOBS, collect.AT_ONCE, repack.AT_ONCE = 3, 3, 2
blobs.PACK_BYTES = repack.PACK_BYTES = 20_000
"""

# What one round saves, the next one purges, and the one after it saves again: while it is being condemned.
SAVER = (
    SMALL_STEPS
    + """
from pathlib import Path
from lastgood.engine.workspace import Workspace
root, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
again = [0]
forget = Workspace.forget
def counted(self):
    again[0] += 1
    forget(self)
Workspace.forget = counted
def commit_later(commit):  # what was relied on may go in between
    def slowly(*about):
        time.sleep(0.02 * dice.random())
        return commit(*about)
    return slowly
dice = random.Random(name)
work = root / name
work.mkdir()
store = lastgood.open(root / "store", user=name, collect="never", cache_checkpoints=0)
store.catalog.commit = commit_later(store.catalog.commit)
task = store.task("t", workspace=work)
expected = {}
def require_whole(checkpoint):
    store.filing.blobs._small.clear()
    state, files = expected[checkpoint.id]
    assert store.get_checkpoint(checkpoint.id).state == state
    assert {path: store.read_file(checkpoint.id, path) for path in files} == files
before = None
for number in range(rounds):
    for index, path in enumerate("abcdefgh"):
        whose = "everybody" if index % 2 else name
        which = random.Random(f"{whose} {path} {number // (1 + index % 3) % 2}")
        (work / path).write_bytes(which.randbytes([10, 700, 3000][index % 3]))
    log = [f"line {dice.randrange(3)} of the log " * 20 for _ in range(dice.choice([2, 40, 90]))]
    state = {"log": log if dice.random() < 0.5 else (before.state["log"] if before else []) + log}
    saved = task.save(state)
    expected[saved.id] = state, {path.name: path.read_bytes() for path in work.iterdir()}
    require_whole(saved)
    if before is not None:
        require_whole(before)
        if dice.random() < 0.1:
            saved = task.restore(before.id).checkpoint
            expected[saved.id] = expected[before.id]
            require_whole(saved)
        if before.id not in (task.head.id, saved.id):
            store.purge_checkpoint(before.id)
    before = saved
print(again[0])
"""
)

COLLECTOR = (
    SMALL_STEPS
    + """
store = lastgood.open(sys.argv[1], collect="never")
runs = removed = 0
while os.path.exists(sys.argv[2]):
    found = store.collect(grace=0)
    runs, removed = runs + 1, removed + found.removed
print(runs, removed)
"""
)


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    told, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return told


def test_three_processes_save_what_a_fourth_is_condemning_and_nothing_is_missing(tmp_path: Path) -> None:
    """B6: each save relies on what is just being condemned, removed, moved or brought back by others."""
    going = tmp_path / "going"
    going.touch()
    with lastgood.open(tmp_path / "store", collect="never"):
        pass
    collector = start(COLLECTOR, tmp_path / "store", going)
    savers = [start(SAVER, tmp_path, name, ROUNDS) for name in ("ada", "ben", "cem")]
    try:
        again = [int(finish(saver)) for saver in savers]
    finally:
        going.unlink()
        told = finish(collector)
    print(f"{ROUNDS} rounds of 3, files read again: {again}, runs and blobs removed: {told.strip()}")  # noqa: T201
    with lastgood.open(tmp_path / "store", collect="never") as store:
        assert store.check(read_data=True).findings == ()
        store.collect(grace=0)
        usage = store.usage()
        assert (usage.unreferenced_bytes, usage.stray_bytes, usage.unreadable) == (0, 0, 0)
        assert store.check(read_data=True).findings == ()
