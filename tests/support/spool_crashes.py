"""A program that is killed at every call that changes something on disk, while it spools or replays.

Started with the shim; prints what was found wrong, and how many points were tried.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.shim import Arming, Fault, Kind, arm
from tests.support.outages import ask_nobody

import lastgood

MOST_CALLS = 400


def main() -> None:
    folder, what, kind, every = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    template, scene = folder / "template", folder / "scene"
    expected = _prepare(scene)
    shutil.copytree(scene, template, symlinks=True)
    problems: list[str] = []
    point, tried = 1, 0
    while point < MOST_CALLS:
        shutil.rmtree(scene)
        shutil.copytree(template, scene, symlinks=True)
        act = _replay if what == "replay" else _spool
        is_over, told = _die(folder, scene, kind, point, act)
        tried += 1
        problems += [f"{kind} at call {point}: {each}" for each in _judge(scene, expected, told)]
        if is_over:
            break
        point += every
    sys.stdout.write(json.dumps({"tried": tried, "problems": problems}))


def _open(scene: Path) -> lastgood.Store:
    store = lastgood.open(scene / "store", user="tester", spool=scene / "spool", collect="never")
    ask_nobody(store)
    return store


def _prepare(scene: Path) -> dict[str, list[str]]:
    """A store that was away: a line that goes on, one that others have gone on with, one with files. What has to be
    found in the end, by task, in order."""
    work = scene / "work"
    work.mkdir(parents=True)
    expected: dict[str, list[str]] = {"plain": [], "moved": [], "files": []}
    with _open(scene) as store:
        tasks: dict[str, Any] = {name: store.task(name) for name in ("plain", "moved")}
        tasks["files"] = store.task("files", workspace=work)
        for name, task in tasks.items():
            expected[name].append(task.save({"n": 0}).id)
        (scene / "store").rename(scene / "away")
        for number in range(1, 4):
            (work / "file").write_bytes(os.urandom(400_000))
            for name, task in tasks.items():
                saved = task.save({"n": number, "large": ["x" * 500] * 20 * number})
                assert saved.status == "spooled"
                expected[name].append(saved.id)
    (scene / "away").rename(scene / "store")
    with lastgood.open(scene / "store", user="tester", on_failure="raise") as other:
        other.task("moved").save({"n": 100})
    return expected


def _replay(scene: Path, tell: Callable[[str], None]) -> None:
    with _open(scene) as store:  # which brings what is spooled there
        assert store.spool_figures().depth == 0


def _spool(scene: Path, tell: Callable[[str], None]) -> None:
    """Goes on with one of them while the store is away; tells what was acknowledged."""
    (scene / "store").rename(scene / "away")
    with _open(scene) as store:
        task = store.task("plain")
        for number in range(10, 14):
            tell(task.save({"n": number, "more": ["y" * 300] * 40}).id)


def _die(folder: Path, scene: Path, kind: str, point: int, act: Callable[..., None]) -> tuple[bool, list[str]]:
    """Whether it came to its end before it was killed; what it had told by then."""
    counter = folder / "counter"
    counter.write_bytes(bytes(8))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        fault: Kind = "tear" if kind == "tear" else "kill"
        arm(Arming(str(scene), str(counter), Fault(fault, point)))
        act(scene, lambda acknowledged: os.write(writing, f"{acknowledged}\n".encode()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = file.read().split()
    _, status = os.waitpid(child, 0)
    if (scene / "away").exists():
        (scene / "away").rename(scene / "store")
    return status == 0, told


def _judge(scene: Path, expected: dict[str, list[str]], told: list[str]) -> list[str]:
    problems = []
    with _open(scene) as store:
        figures = store.spool_figures()
        if figures.depth or figures.aside:
            problems.append(f"{figures.depth} wait still, {figures.aside} were set aside")
        for name, ids in expected.items():
            newest = store.get_checkpoint(ids[-1])
            line = [each.id for each in reversed(store.list_checkpoints(newest.branch_id or "", limit=1000))]
            if line[: len(ids)] != ids:
                problems.append(f"{name}: {line} and not {ids}")
            if name == "plain" and told and line[len(ids) : len(ids) + len(told)] != told:
                problems.append(f"acknowledged {told}, there are {line[len(ids) :]}")
        listed = [each.id for name in expected for each in store.list_checkpoints(name, limit=1000)]
        if len(set(listed)) != len(listed) or len(store.branches("moved")) != 2:
            problems.append("something came twice")
        problems += [finding.sentence for finding in store.check(read_data=True).findings]
    return problems


if __name__ == "__main__":
    main()
