"""Collecting while other processes save, and killed where it stands: nothing is missing, the next run finishes (B6).

LASTGOOD_ROUNDS says how many rounds the saving processes make, LASTGOOD_KILLS how often a collector is killed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.collect_model import Holding, read_holding

import lastgood
from lastgood.engine import blobs

ROUNDS = int(os.environ.get("LASTGOOD_ROUNDS", "40"))
KILLS = int(os.environ.get("LASTGOOD_KILLS", "20"))

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


# --- killed ----------------------------------------------------------------------------------------------------------


def litter(root: Path, seed: int) -> dict[tuple[str, str], Holding]:
    """Work that leaves garbage of every kind behind; what remains of it, by owner and id."""
    dice = random.Random(seed)
    work = root / "work"
    work.mkdir(exist_ok=True)
    with (
        pytest.MonkeyPatch.context() as patch,
        lastgood.open(root / "store", user="ada", collect="never") as store,
    ):
        patch.setattr(blobs, "INLINE_BLOBS", 5)
        for old in store.list_checkpoints("t")[1:] if store.tasks() else ():
            store.purge_checkpoint(old.id)
        task, made, log = store.task("t", workspace=work), [], list[str]()
        for number in range(5):
            for path in dice.sample(range(40), 35 if number == 1 else 9):
                (work / f"{path}").write_bytes(dice.randbytes(1500))
            log += [f"{dice.random()} " * 12 for _ in range(150)]
            made.append(task.save({"log": log, "number": number}, artifacts=[{"n": "artifact " * 300}]))
        store.task("gone", workspace=work).save({"log": log})
        store.delete_task("gone")
        for checkpoint in made[1:3]:
            store.purge_checkpoint(checkpoint.id)
        store.delete_checkpoint(made[3].id)
        objects = store.filing.objects
        assert objects is not None
        objects.put(f"packs/aa/stray-{seed}", [b"stray"])
        held = [each.stored for each in store.catalog.held() if not each.stored.deleted]
        return {(each.owner, each.id): read_holding(store, each.owner, each.id) for each in held}


def require_whole(root: Path, remains: dict[tuple[str, str], Holding]) -> None:
    """The store opens, everything is there, and the next run finishes what was begun."""
    with lastgood.open(root / "store", user="ada", collect="never") as store:
        assert store.check(read_data=True).findings == ()
        for (owner, checkpoint_id), holding in remains.items():
            assert read_holding(store, owner, checkpoint_id) == holding
        store.collect(grace=0)
        usage = store.usage()
        assert (usage.unreferenced_bytes, usage.stray_bytes, usage.unreadable) == (0, 0, 0)
        assert store.catalog.flights() == []
    with lastgood.open(root / "store", user="ada", collect="never") as store:
        assert store.check(read_data=True).findings == ()
        for (owner, checkpoint_id), holding in remains.items():
            assert read_holding(store, owner, checkpoint_id) == holding


DOOMED = (
    SMALL_STEPS
    + """
store = lastgood.open(sys.argv[1], collect="never")
store.collect(grace=0, progress=lambda *_: os.write(1, b"."))
os.write(1, b"!")
"""
)


def test_a_collector_killed_at_any_moment_has_lost_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("LASTGOOD_CRASH_SEED", random.SystemRandom().getrandbits(32)))
    print(f"LASTGOOD_CRASH_SEED={seed}")  # noqa: T201
    dice = random.Random(seed)
    killed = 0
    for number in range(KILLS):
        remains = litter(tmp_path, seed + number)
        command = [sys.executable, "-c", DOOMED, str(tmp_path / "store")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as child:
            assert child.stdout is not None
            assert child.stdout.read(1) == b"."
            for _ in range(dice.choice([0, 1, 3, 10, 20, 30, 40])):
                if child.stdout.read(1) == b"!":
                    break
            for _ in range(dice.randrange(30_000)):
                pass
            child.send_signal(signal.SIGKILL)
            killed += not child.stdout.read().endswith(b"!")
        require_whole(tmp_path, remains)
    print(f"{killed} of {KILLS} were killed before they were done")  # noqa: T201


# Every call by which a run changes something, and every word of progress: it ends before the first, the second, ...
STEPPING = (
    SMALL_STEPS
    + """
import json, shutil
from pathlib import Path
root, collect.AT_ONCE, repack.AT_ONCE = Path(sys.argv[1]), 30, 30
CALLS = "purge_all condemn acquit remove_blobs remove_slices move_blobs remove_packs announce withdraw shrink".split()
def collect_until(last, folder):
    store = lastgood.open(folder / "store", user="ada", collect="never")
    steps = []
    def step(name):
        steps.append(name)
        if len(steps) == last:
            os._exit(9)
    def counted(thing, name):
        call = getattr(thing, name)
        setattr(thing, name, lambda *about, **more: (step(name), call(*about, **more))[1])
    for name in CALLS:
        counted(store.catalog, name)
    for name in ("adopt", "delete", "sweep"):
        counted(store.filing.objects, name)
    store.collect(grace=0, progress=lambda phase, *_: step(phase))
    (folder / "steps").write_text(json.dumps(steps))
    os._exit(0)
last = 0
while True:
    last += 1
    folder = root / str(last)
    folder.mkdir()
    shutil.copytree(root / "store", folder / "store")
    child = os.fork()
    if not child:
        collect_until(last, folder)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 9:
        break
print(last)
"""
)


def test_a_collector_that_ends_before_any_of_its_steps_has_lost_nothing(tmp_path: Path) -> None:
    """Deterministic: each call that changes the store is the one that does not come."""
    remains = litter(tmp_path, 7)
    last = int(finish(start(STEPPING, tmp_path)))
    steps = json.loads((tmp_path / f"{last}" / "steps").read_text())
    assert len(steps) == last - 1
    assert {"purge_all", "condemn", "remove_blobs", "remove_slices", "move_blobs", "remove_packs"} <= set(steps)
    assert {"announce", "adopt", "delete", "sweep"} <= set(steps)
    for number in range(1, last + 1):
        require_whole(tmp_path / f"{number}", remains)
        shutil.rmtree(tmp_path / f"{number}")


def test_a_collector_killed_again_and_again_comes_to_an_end(tmp_path: Path) -> None:
    """A second crash while the first is being mended is no worse."""
    remains = litter(tmp_path, 8)
    script = SMALL_STEPS + (
        "store = lastgood.open(sys.argv[1], collect='never')\n"
        "store.collect(grace=0, progress=lambda phase, done, of: phase == sys.argv[2] and os._exit(9))\n"
    )
    for phase in ("condemn", "remove", "repack"):
        process = start(script, tmp_path / "store", phase)
        process.communicate()
        assert process.returncode in (0, 9)
    require_whole(tmp_path, remains)
