"""Putting files back, some and all, and comparing two checkpoints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Series, at_most, interleave
from benchmarks.report import Findings
from benchmarks.sides import Ours, Pair, Settings, settled
from benchmarks.tree import change


def measure_restore(settings: Settings) -> Findings:
    series = time_restores(settings.pair, 9)
    watching = Ours(settings.folder / "watched", settings.pair.trees["ours"], watch=True)
    watched = time_restores(settings.pair, 9, watching)
    watching.close()
    return Findings(
        [
            at_most(measure, ours.median, theirs.median, most, str(ours), str(theirs))
            for measure, most, ours, theirs in (
                ("restore after 100 files changed", 1, series["ours"], series["theirs"]),
                ("… with the watcher", 0.2, watched["ours"], watched["theirs"]),
            )
        ],
        ["Restoring: 80 files edited, 10 deleted, 10 added. Ours saves these first, and syncs; git does neither."],
    )


def time_restores(pair: Pair, rounds: int, ours: Ours | None = None) -> dict[str, Series]:
    """Time both sides; `ours`: another store of our tree."""
    ours = ours or pair.ours
    base = ours.save()
    pair.theirs.save("--allow-empty")

    def restore_ours() -> None:
        result = ours.task.restore(base)
        assert (len(result.restored), len(result.deleted), result.failed) == (90, 10, ()), result

    actions: dict[str, Callable[[], Any]] = {
        "ours": restore_ours,
        "theirs": lambda: pair.theirs.run("git reset -q --hard && git clean -fdq"),
    }

    def timed(side: str) -> Callable[[], float]:
        rounds_done = iter(range(1 << 20))

        def restore() -> float:
            put_back = _disturb(pair.choose(side, 90, next(rounds_done)))
            took = settled(actions[side])
            put_back()
            return took

        return restore

    turns = {side: timed(side) for side in actions}
    interleave(turns, 1)
    return interleave(turns, rounds)


def _disturb(paths: list[Path]) -> Callable[[], None]:
    """Edit most of these, delete ten, add ten; gives a check that all of it was taken back."""
    before = {path: path.read_bytes() for path in paths}
    added = [path.with_name(f"added-{path.name}") for path in paths[:10]]
    change(paths[10:], 0)
    for path, beside in zip(paths[:10], added, strict=True):
        path.rename(beside)
        change([beside], 0)

    def check() -> None:
        assert {path: path.read_bytes() for path in paths} == before
        assert not any(path.exists() for path in added)

    return check


def measure_copy(settings: Settings) -> Findings:
    """Everything, into an empty folder."""
    pair, to = settings.pair, settings.folder / "copy"
    head = pair.ours.task.head
    assert head is not None
    count = len(pair.ours.task.copy_files(head, to=to))
    shutil.rmtree(to)

    def copy_theirs() -> None:
        more = {"GIT_WORK_TREE": str(to), "GIT_INDEX_FILE": str(settings.folder / "index")}
        pair.theirs.run(f"cd '{to}' && git checkout -q HEAD -- .", **more)

    actions: dict[str, Callable[[], Any]] = {
        "ours": lambda: pair.ours.task.copy_files(head, to=to),
        "theirs": copy_theirs,
    }

    def timed(side: str) -> Callable[[], float]:
        def copy() -> float:
            to.mkdir()
            took = settled(actions[side])
            found = sum(len(files) for _, _, files in os.walk(to))
            assert found >= settings.files, f"{found:,} files were written by {side}"
            shutil.rmtree(to)
            (settings.folder / "index").unlink(missing_ok=True)
            return took

        return copy

    series = interleave({side: timed(side) for side in actions}, 3)
    ours, theirs = series["ours"], series["theirs"]
    return Findings(
        [at_most(f"full restore of {count:,} paths", ours.median, theirs.median, 1, str(ours), str(theirs))], []
    )


def measure_diff(settings: Settings) -> Findings:
    pair = settings.pair
    before = pair.ours.save()
    pair.theirs.save("--allow-empty")
    pair.change(10)
    after = pair.ours.save()
    pair.theirs.save()

    def diff_ours() -> None:
        files = pair.ours.task.diff(before, after).files
        assert len(files.changes) == 10
        assert files.patch()

    def diff_theirs() -> None:
        assert pair.theirs.run("git diff HEAD~1 HEAD").count(b"\ndiff --git") == 9

    actions = {"ours": lambda: settled(diff_ours), "theirs": lambda: settled(diff_theirs)}
    interleave(actions, 2)
    series = interleave(actions, 25)
    ours, theirs = series["ours"], series["theirs"]
    return Findings([at_most("diff, 10 files apart", ours.median, theirs.median, 1, str(ours), str(theirs))], [])
