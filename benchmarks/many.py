"""Many checkpoints, and few and many files."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path

from benchmarks.captures import time_first_captures
from benchmarks.measure import Series, at_most, files_size, inform, interleave, say, seconds, size
from benchmarks.report import Findings
from benchmarks.restores import time_restores
from benchmarks.sides import Ours, Pair, Settings, settled

CHECKPOINTS, CHANGES = 1000, 10


def measure_many(settings: Settings) -> Findings:
    """The write-ahead log has its full size before growth is looked at."""
    pair, times, sizes = settings.pair, Series(), {}
    middle = (100 + CHECKPOINTS) // 2
    pair.ours.save()
    for step in range(1, CHECKPOINTS + 1):
        pair.change(CHANGES)
        gc.collect()
        times.append(seconds(pair.ours.save))
        if step in (100, middle, CHECKPOINTS):
            sizes[step] = files_size(pair.ours.folder.rglob("*"))
            say(f"  {step:,} of {CHECKPOINTS:,}")
    first, last = Series(times[:100]), Series(times[-100:])
    early, late = sizes[middle] - sizes[100], sizes[CHECKPOINTS] - sizes[middle]
    each = size(late / (CHECKPOINTS - middle))
    old, new = _old_and_new(pair, settings.folder / "new-store", 40)
    saves = f"save {CHECKPOINTS - 99:,} to {CHECKPOINTS:,} against 1 to 100"
    return Findings(
        [
            at_most(saves, last.median, first.median, 1.2, str(last), str(first)),
            at_most("… against a new store, in turns", old.median, new.median, 1.2, str(old), str(new)),
            at_most("… store growth, 2nd half against 1st", late, early, 1.2, size(late), size(early)),
        ],
        [f"Many checkpoints: {CHANGES} files edited before each; later ones take {each} each."],
    )


def _old_and_new(pair: Pair, folder: Path, rounds: int) -> tuple[Series, Series]:
    """The same changes saved by the store of many checkpoints and by one of few, so that the machine's moods cancel."""
    stores, series = {"old": pair.ours, "new": Ours(folder, pair.trees["ours"])}, {"old": Series(), "new": Series()}
    stores["new"].save()
    for round_ in range(rounds):
        pair.change(CHANGES)
        for name in sorted(stores, reverse=round_ % 2 == 1):
            series[name].append(settled(stores[name].save))
    stores["new"].close()
    return series["old"], series["new"]


def measure_scale(settings: Settings) -> Findings:
    rows = []
    for files in (settings.files // 10, settings.files, settings.files * 4):
        folder = settings.folder / str(files)
        folder.mkdir()
        pair = Pair(folder, files)
        say("  measuring")
        first, _ = time_first_captures(pair, folder, 1)
        none = interleave(
            {
                "ours": lambda pair=pair: settled(pair.ours.save),  # type: ignore[misc]
                "theirs": lambda pair=pair: settled(lambda: pair.theirs.save("--allow-empty")),  # type: ignore[misc]
            },
            5,
        )
        restored = time_restores(pair, 3)
        for name, series in {"first capture": first, "nothing changed": none, "restore of 100": restored}.items():
            rows.append(inform(f"{files:,} files: {name}", series["ours"], series["theirs"]))
        pair.close()
        shutil.rmtree(folder)
    return Findings(rows, [])
