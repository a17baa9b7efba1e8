"""Keeping to a quota and checking a store; and what all measures of a store's upkeep share."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from benchmarks.history import TASK, History, copy_store
from benchmarks.measure import at_most, duration, files_size, interleave, reaches, seconds, size
from benchmarks.report import Findings
from benchmarks.tree import change, make_tree
from lastgood.catalog.values import IndexedBlob
from lastgood.opening import open_store
from lastgood.store import Store

ROUNDS = 5
FILES, CHECKPOINTS, CHANGES, TAGGED = 2_000, 100, 200, 5
"""Of the store that gets a quota: its history is most of it, as it must be for half of it to be enough."""


class Settings(NamedTuple):
    folder: Path
    history: History


class Upkeep(Protocol):
    """What is measured of a store."""

    def collect(self, *, grace: Any = None, dry_run: bool = False, progress: Any = None) -> Any: ...

    def check(self, *, read_data: bool = False) -> Any: ...

    def limit(self, max_bytes: int, *, dry_run: bool = False) -> Any: ...


def upkeep(store: Store) -> Upkeep:
    return cast(Upkeep, store)


def settled(action: Callable[[], Any]) -> float:
    """How long it takes when nothing is left to do of what came before: no garbage, no unwritten pages."""
    gc.collect()
    os.sync()
    return seconds(action)


@contextmanager
def fresh(source: Path, target: Path) -> Iterator[Path]:
    """A copy to work on."""
    copy_store(source, target)
    try:
        yield target
    finally:
        shutil.rmtree(target)


# --- a quota -------------------------------------------------------------------------------------------------------


def measure_limit(settings: Settings) -> Findings:
    """Half of what a store takes; tagged checkpoints and the head must stay whole."""
    tree, place = settings.folder / "tree", settings.folder / "store"
    made = make_tree(tree, FILES)
    with open_store(place) as store:
        task = store.task(TASK, workspace=tree, watch=True)
        saved = []
        for step in range(CHECKPOINTS):
            start = step * CHANGES % (len(made.files) - CHANGES)
            change(made.files[start : start + CHANGES], step)
            saved.append(task.save({"step": step}).id)
        tagged = saved[:: CHECKPOINTS // TAGGED]
        for number, checkpoint_id in enumerate(tagged):
            store.tag(checkpoint_id, f"kept-{number}")
        quota = store.usage().disk_bytes // 2
        took = settled(lambda: upkeep(store).limit(quota))
        after = store.usage()
        protected = [*tagged, saved[-1]]
        lost = [
            checkpoint_id
            for checkpoint_id in protected
            if store.check_checkpoint(checkpoint_id, evidence=False).problems
        ]
    row = at_most(
        "quota of half the store",
        after.disk_bytes,
        quota,
        1.05,
        f"{size(after.disk_bytes)}, {len(lost)} of {len(protected)} protected lost",
        size(quota),
    )
    row = row._replace(result="MISSED") if lost else row
    return Findings(
        [row],
        [
            f"The quota: a store of {FILES:,} files and {CHECKPOINTS} checkpoints with {CHANGES} changes each.",
            f"{TAGGED} were tagged; {len(after.checkpoints)} are left. It took {duration(took)}.",
        ],
    )


# --- checking ------------------------------------------------------------------------------------------------------


def measure_check(settings: Settings) -> Findings:
    """The structure alone, and every byte, beside hashing as many bytes of the same content."""
    place, sample = settings.history.store, settings.folder / "content"
    with open_store(place) as store:
        kept = sum(blob.size for blob in _blobs(store))
        _write_content(settings.history.tree, sample, kept)

        def check(read_data: bool) -> float:
            def look() -> None:
                assert upkeep(store).check(read_data=read_data).ok, "the store is damaged"

            return settled(look)

        series = interleave(
            {
                "structure": lambda: check(False),
                "data": lambda: check(True),
                "hash": lambda: settled(lambda: _hash(sample)),
            },
            ROUNDS,
        )
    structure, data, hashing = series["structure"], series["data"], series["hash"]
    ours, theirs = kept / data.median, kept / hashing.median
    return Findings(
        [
            at_most("check, structure alone", structure.median, 2, 1, str(structure), "2 s"),
            reaches("check --read-data", ours, theirs, 0.6, f"{size(ours)}/s", f"{size(theirs)}/s, sha256sum"),
        ],
        [
            f"Checked: {size(kept)} of content before compression, {size(files_size(place.rglob('*')))} on disk.",
            "sha256sum reads as many bytes of the same tree's files, end to end in one file.",
        ],
    )


def _blobs(store: Store) -> Iterator[IndexedBlob]:
    after = 0
    while page := store._engine.catalog.indexed(after):
        yield from page
        after = page[-1].number


def _hash(file: Path) -> None:
    subprocess.run(["sha256sum", file], stdout=subprocess.DEVNULL, check=True)


def _write_content(tree: Path, target: Path, count: int) -> None:
    """`count` bytes of the files of a tree, end to end; from the first one again if there are not so many."""
    with target.open("wb") as file:
        while file.tell() < count:
            for path in sorted(path for path in tree.rglob("*") if path.is_file()):
                file.write(path.read_bytes()[: count - file.tell()])
                if file.tell() >= count:
                    return
