"""Capturing a tree: for the first time, after one change, after none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Series, at_least, at_most, environment_with, inform, interleave, size
from benchmarks.report import Findings
from benchmarks.sides import TASK, Ours, Pair, Settings, Shadow, settled
from benchmarks.tree import allocated
from lastgood.local.location import CONFIG, config_text


def measure_first(settings: Settings) -> Findings:
    pair = settings.pair
    series, sizes = time_first_captures(pair, settings.folder, 3)
    ours, theirs, source = series["ours"], series["theirs"], pair.made["ours"].allocated
    return Findings(
        [
            at_least("first capture", ours.median, theirs.median, 5, str(ours), str(theirs)),
            at_most(
                "… its store beside the tree", sizes["ours"], source, 0.5, size(sizes["ours"]), f"{size(source)}, du"
            ),
            inform("… beside git's, before gc", sizes["ours"], sizes["theirs"], size),
        ],
        [],
    )


def time_first_captures(pair: Pair, folder: Path, rounds: int) -> tuple[dict[str, Series], dict[str, int]]:
    sizes: dict[str, int] = {}

    def capture_ours() -> float:
        made: list[Ours] = []

        def capture() -> None:
            made.append(Ours(folder / "store", pair.trees["ours"]))
            assert not made[0].save().skipped

        took = settled(capture)
        made[0].close()
        sizes["ours"] = allocated(folder / "store")
        shutil.rmtree(folder / "store")
        return took

    def capture_theirs() -> float:
        took = settled(lambda: Shadow(folder / "repository", pair.trees["theirs"]).save())
        sizes["theirs"] = allocated(folder / "repository")
        shutil.rmtree(folder / "repository")
        return took

    return interleave({"ours": capture_ours, "theirs": capture_theirs}, rounds), sizes


def measure_command(settings: Settings) -> Findings:
    """One file changed, then a new process that saves it."""
    pair = settings.pair
    line, what = _save_line(settings.folder, pair)
    environment = environment_with(settings.folder / "bytecode")

    def save() -> None:
        subprocess.run(line, cwd=settings.folder, env=environment, stdout=subprocess.DEVNULL, check=True)

    series = _after_one_change(pair, save, 15)
    pair.ours.task.refresh()
    ours, theirs = series["ours"], series["theirs"]
    row = at_most(f"one file changed, {what}", ours.median, theirs.median, 2, str(ours), str(theirs))
    return Findings([row], [])


def _after_one_change(pair: Pair, save: Callable[[], Any], rounds: int) -> dict[str, Series]:
    """Both sides save the same change, in turns; the first two rounds are not counted."""
    actions: dict[str, Callable[[], Any]] = {"ours": save, "theirs": pair.theirs.save}
    series = {side: Series() for side in actions}
    for round_ in range(rounds + 2):
        pair.change(1)
        for side in sorted(actions, reverse=round_ % 2 == 1):
            series[side].append(settled(actions[side]))
    return {side: Series(times[2:]) for side, times in series.items()}


def _save_line(folder: Path, pair: Pair) -> tuple[list[str], str]:
    """The command if it saves files, else the same in as few lines of Python."""
    store, tree = pair.ours.folder, pair.trees["ours"]
    (folder / CONFIG).write_text(config_text({"store": str(store), "task": TASK}))
    command = str(Path(sys.executable).with_name("lastgood"))
    told = subprocess.run([command, "save", "--help"], capture_output=True, text=True)
    if "--workspace" in told.stdout:
        return [command, "save", "--workspace", str(tree), "--set", "step=1"], "`lastgood save`"
    code = (
        "import lastgood, sys\n"
        "with lastgood.open(sys.argv[1]) as store:\n"
        f"    store.task({TASK!r}, workspace=sys.argv[2]).append({{'step': 1}})\n"
    )
    return [sys.executable, "-c", code, str(store), str(tree)], "`python -c` (no command yet)"


def measure_library(settings: Settings) -> Findings:
    """Through a handle that stays open: one file changed, and nothing."""
    pair = settings.pair
    one = _after_one_change(pair, pair.ours.save, 15)
    watching = Ours(settings.folder / "watched", pair.trees["ours"], watch=True)
    watching.save()
    watched = _after_one_change(pair, watching.save, 15)
    watching.close()
    actions = {
        "ours": lambda: settled(pair.ours.save),
        "theirs": lambda: settled(lambda: pair.theirs.save("--allow-empty")),
    }
    interleave(actions, 2)
    none = interleave(actions, 15)
    ours, theirs = none["ours"], none["theirs"]
    return Findings(
        [
            at_most(
                "one file changed, library, watcher",
                watched["ours"].median,
                watched["theirs"].median,
                0.1,
                str(watched["ours"]),
                str(watched["theirs"]),
            ),
            inform("… without the watcher", one["ours"], one["theirs"]),
            at_most("nothing changed, library", ours.median, theirs.median, 1, str(ours), str(theirs)),
        ],
        [],
    )
