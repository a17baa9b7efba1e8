"""Capturing, restoring and comparing files, against a shadow git repository as coding agents keep one.

    python -m benchmarks.files [--only NAME ...] [--files N] [--scale] [--folder FOLDER]

Both sides have the same tree, each its own copy, and take turns at the same changes. A full run with --scale replaces
its section of RESULTS.md; any other only prints.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import (
    Row,
    Series,
    at_least,
    at_most,
    environment_with,
    files_size,
    interleave,
    peak_memory,
    say,
    seconds,
    size,
)
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all
from benchmarks.tree import Made, allocated, change, make_tree
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.location import CONFIG, config_text
from lastgood.engine.store import open_store

FILES, TASK = 50_000, "files"
CHECKPOINTS, CHANGES = 1000, 10
LARGE, MIB = 1 << 30, 1 << 20
ROOT = Path(__file__).resolve().parents[1]


# --- the two sides -----------------------------------------------------------------------------------------


class Ours:
    """A task with a workspace, and one handle that stays open."""

    def __init__(self, folder: Path, tree: Path, *, watch: bool = False) -> None:
        self.folder = folder
        self._store = open_store(folder)
        self.task = self._store.task(TASK, workspace=tree, watch=watch)
        self._step = 0

    def save(self) -> Checkpoint:
        self._step += 1
        return self.task.save({"step": self._step})

    def close(self) -> None:
        self._store.close()


class Shadow:
    """A repository beside the tree, which git is told of by its environment. Everything else is git's default.

    Automatic gc is off, because it would go on behind the measurements; `pack` does its work.
    """

    def __init__(self, folder: Path, tree: Path) -> None:
        self.folder = folder
        self._tree = tree
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self._environment = {
            **kept,
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(tree),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            **_git_settings({"user.name": "bench", "user.email": "bench@localhost", "gc.auto": "0"}),
        }
        self.run("git init -q")

    def run(self, line: str, **more: str) -> bytes:
        command = ["sh", "-c", line]
        done = subprocess.run(
            command, cwd=self._tree, env={**self._environment, **more}, stdout=subprocess.PIPE, check=True
        )
        return done.stdout

    def save(self, *options: str) -> None:
        self.run(" ".join(["git add -A && git commit -q -m step", *options]))

    def pack(self) -> None:
        self.run("git gc -q")


def _git_settings(settings: dict[str, str]) -> dict[str, str]:
    """As git takes them from its environment."""
    named = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        named |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return named


class Pair:
    """The same tree for both sides; each has captured it once, and packed it as it would by itself."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder = folder
        self.trees = {"ours": folder / "our-tree", "theirs": folder / "their-tree"}
        say(f"  making {files:,} files, and capturing them once")
        self.made: dict[str, Made] = {side: make_tree(tree, files) for side, tree in self.trees.items()}
        self._step = 0
        self.ours = Ours(folder / "our-store", self.trees["ours"])
        self.ours.save()
        self.theirs = Shadow(folder / "their-repository", self.trees["theirs"])
        self.theirs.save()
        self.theirs.pack()

    def choose(self, side: str, count: int, seed: int) -> list[Path]:
        return random.Random(seed).sample(self.made[side].files, count)

    def change(self, count: int) -> dict[str, list[Path]]:
        """The same edit on both sides, in files that differ from time to time."""
        self._step += 1
        chosen = {side: self.choose(side, count, self._step) for side in self.trees}
        for paths in chosen.values():
            change(paths, self._step)
        return chosen

    def close(self) -> None:
        self.ours.close()


class Settings(NamedTuple):
    folder: Path
    files: int
    pair: Pair


def settled(action: Callable[[], Any]) -> float:
    """How long it takes when nothing is left to do of what came before: no garbage, no unwritten pages."""
    gc.collect()
    os.sync()
    return seconds(action)


# --- the first capture -------------------------------------------------------------------------------------


def measure_first(settings: Settings) -> Findings:
    pair = settings.pair
    series, sizes = _first_captures(pair, settings.folder, 3)
    ours, theirs, source = series["ours"], series["theirs"], pair.made["ours"].allocated
    return Findings(
        [
            at_least("first capture", ours.median, theirs.median, 5, str(ours), str(theirs)),
            at_most(
                "… its store beside the tree", sizes["ours"], source, 0.5, size(sizes["ours"]), f"{size(source)}, du"
            ),
            _inform("… beside git's, before gc", sizes["ours"], sizes["theirs"], size),
        ],
        [],
    )


def _first_captures(pair: Pair, folder: Path, rounds: int) -> tuple[dict[str, Series], dict[str, int]]:
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


# --- small changes, and none -------------------------------------------------------------------------------


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
            _inform("… without the watcher", one["ours"], one["theirs"]),
            at_most("nothing changed, library", ours.median, theirs.median, 1, str(ours), str(theirs)),
        ],
        [],
    )


# --- putting files back ------------------------------------------------------------------------------------


def measure_restore(settings: Settings) -> Findings:
    series = _restores(settings.pair, 9)
    ours, theirs = series["ours"], series["theirs"]
    return Findings(
        [at_most("restore after 100 files changed", ours.median, theirs.median, 1, str(ours), str(theirs))],
        ["Restoring: 80 files edited, 10 deleted, 10 added. Ours saves these first, and syncs; git does neither."],
    )


def _restores(pair: Pair, rounds: int) -> dict[str, Series]:
    base = pair.ours.save()
    pair.theirs.save("--allow-empty")

    def restore_ours() -> None:
        result = pair.ours.task.restore(base)
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


# --- comparing ---------------------------------------------------------------------------------------------


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


# --- one large file ----------------------------------------------------------------------------------------


def measure_large(settings: Settings) -> Findings:
    """A byte inserted in the middle of 1 GiB that does not compress; each save in a process of its own."""
    tree, store = settings.folder / "tree", settings.folder / "store"
    tree.mkdir()
    _write_large(tree / "large.bin", LARGE)
    first_peak = _save_apart(store, tree)
    before = files_size(store.rglob("*"))
    _insert_byte(tree / "large.bin", LARGE // 2)
    peak = max(first_peak, _save_apart(store, tree))
    more = files_size(store.rglob("*")) - before
    return Findings(
        [
            _bounded("1 GiB file, a byte inserted: stored more", more, 8 * MIB),
            _bounded("… peak memory of a save, with its worker", peak, 200 * MIB),
        ],
        [],
    )


def _bounded(measure: str, ours: int, target: int) -> Row:
    met = "met" if ours <= target else "MISSED"
    return Row(measure, f"{ours / MIB:,.1f} MiB", "–", "–", f"<= {target // MIB} MiB", met)


def _write_large(path: Path, length: int) -> None:
    rng = random.Random(1)
    with path.open("wb") as file:
        for _ in range(length // MIB):
            file.write(rng.randbytes(MIB))


def _insert_byte(path: Path, at: int) -> None:
    new = path.with_suffix(".new")
    with path.open("rb") as old, new.open("wb") as file:
        for start in range(0, path.stat().st_size, MIB):
            if start == at:
                file.write(b"!")
            file.write(old.read(MIB))
    new.replace(path)


def _save_apart(store: Path, tree: Path) -> int:
    """The peak memory of a process that opens the store, saves and ends, and of its largest worker."""
    code = f"from benchmarks.files import save_and_tell; save_and_tell({str(store)!r}, {str(tree)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def save_and_tell(store: str, tree: str) -> None:
    ours = Ours(Path(store), Path(tree))
    ours.save()
    ours.close()
    unit = 1 if sys.platform == "darwin" else 1024
    print(peak_memory() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)


# --- many checkpoints --------------------------------------------------------------------------------------


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


# --- few and many files ------------------------------------------------------------------------------------


def measure_scale(settings: Settings) -> Findings:
    rows = []
    for files in (settings.files // 10, settings.files, settings.files * 4):
        folder = settings.folder / str(files)
        folder.mkdir()
        pair = Pair(folder, files)
        say("  measuring")
        first, _ = _first_captures(pair, folder, 1)
        none = interleave(
            {
                "ours": lambda pair=pair: settled(pair.ours.save),  # type: ignore[misc]
                "theirs": lambda pair=pair: settled(lambda: pair.theirs.save("--allow-empty")),  # type: ignore[misc]
            },
            5,
        )
        restored = _restores(pair, 3)
        for name, series in {"first capture": first, "nothing changed": none, "restore of 100": restored}.items():
            rows.append(_inform(f"{files:,} files: {name}", series["ours"], series["theirs"]))
        pair.close()
        shutil.rmtree(folder)
    return Findings(rows, [])


def _inform(measure: str, ours: Any, theirs: Any, show: Callable[[Any], str] = str) -> Row:
    numbers = [each.median if isinstance(each, Series) else each for each in (ours, theirs)]
    return Row(measure, show(ours), show(theirs), f"{numbers[0] / numbers[1]:.3g}x")


# --- all of it ---------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Settings], Findings]] = {
    "first": measure_first,
    "command": measure_command,
    "library": measure_library,
    "restore": measure_restore,
    "copy": measure_copy,
    "diff": measure_diff,
    "large": measure_large,
    "many": measure_many,
    "scale": measure_scale,
}


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    names = options.only or [name for name in PARTS if name != "scale" or options.scale]

    def measure(folder: Path) -> Report:
        pair = Pair(folder, options.files)
        settings = Settings(folder, options.files, pair)
        findings = [measure_part(name, folder, _part(name, settings)) for name in names]
        pair.close()
        return Report(_explain(pair), findings)

    return run_all("files", options.folder, measure, is_full=(options.files, set(names)) == (FILES, set(PARTS)))


def _part(name: str, settings: Settings) -> Callable[[Path], Findings]:
    return lambda folder: PARTS[name](settings._replace(folder=folder))


def _explain(pair: Pair) -> list[str]:
    made = pair.made["ours"]
    version = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    missing = [name for name in ("restic", "borg") if shutil.which(name) is None]
    return [
        f"{version}; not measured: restic, borg{' (not installed)' if len(missing) == 2 else ''}",
        f"The tree: {made.total:,} files, {made.folders:,} folders, {size(made.size)}; du: {size(made.allocated)}.",
        "Medians, with p10..p90 in parentheses. Warm caches; both sides take turns, each on its own copy of the tree.",
        "What was written before is synced before each timing, outside of it.",
        "Theirs is `git add -A && git commit -q` in a shadow repository, GIT_DIR elsewhere, with git's defaults.",
        "Automatic gc is off, since it would go on behind the timings; one `git gc` follows the first commit.",
        "By default git does not sync loose objects; ours is durable when it returns.",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = parser_of("files", PARTS)
    parser.add_argument("--files", type=number_from(1000), default=FILES, help="of the tree")
    parser.add_argument("--scale", action="store_true", help="also with a tenth and with four times as many files")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
