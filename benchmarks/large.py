"""One large file, changed in the middle."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Row, files_size, peak_memory
from benchmarks.report import Findings
from benchmarks.sides import Ours, Settings

LARGE, MIB = 1 << 30, 1 << 20
ROOT = Path(__file__).resolve().parents[1]


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
    code = f"from benchmarks.large import save_and_tell; save_and_tell({str(store)!r}, {str(tree)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def save_and_tell(store: str, tree: str) -> None:
    ours = Ours(Path(store), Path(tree))
    ours.save()
    ours.close()
    unit = 1 if sys.platform == "darwin" else 1024
    print(peak_memory() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit)
