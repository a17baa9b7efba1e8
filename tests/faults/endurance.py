"""One process that saves for long: what it holds does not grow with what it has done."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.crowd import CrowdSandbox
from tests.faults.writer import Writer, open_store, take_small_steps

import lastgood
from lastgood.engine import blobs

MORE_BYTES = 8 << 20
"""Of resident memory: what SQLite and the allocator keep levels off below that (measured: 4 MB after 2,000 saves)."""
MORE_OBJECTS = 500
_MIX = {"save": 3, "save_files": 3, "append": 2, "append_files": 1, "restore": 1, "fork": 1}


_SOME = lastgood.Evidence(lastgood.EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": "."})


class _Held(NamedTuple):
    descriptors: int
    objects: int
    resident: int


def run_long(folder: str, store: str, saves: int, seed: int) -> list[str]:
    """Save often, and return what has grown from the first third of so many saves to the end."""
    sandbox = CrowdSandbox(Path(folder), Path(store))
    sandbox.prepare(["old"])
    take_small_steps()
    blobs.SMALL_BLOBS = blobs.TREES = 8  # caches are full from the beginning
    with open_store(sandbox) as opened:
        opened._engine.verifier().verify_evidence(_SOME)  # what is opened once stays open
        other = threading.Thread(target=opened.tasks)  # and SQLite keeps its file open for the next thread
        other.start()
        other.join()
        writer = Writer(sandbox, "old", seed, opened)
        writer.work(saves // 3, _MIX)
        opened.collect(grace=0)
        early = _look()
        writer.work(saves, _MIX)
        opened.collect(grace=0)
        return list(_compare(early, _look(), saves))


def _look() -> _Held:
    for thread in [each for each in threading.enumerate() if each.name == "lastgood sync"]:
        thread.join()
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return _Held(descriptors, len(gc.get_objects()), pages * os.sysconf("SC_PAGE_SIZE"))


def _compare(early: _Held, late: _Held, saves: int) -> Iterator[str]:
    if late.descriptors > early.descriptors:
        yield f"{late.descriptors} descriptors are open, and were {early.descriptors}"
    if late.objects - early.objects > saves + MORE_OBJECTS:  # the writer itself remembers what it has saved
        yield f"there are {late.objects} objects, and were {early.objects}, after {saves} saves"
    if late.resident - early.resident > MORE_BYTES:
        yield f"{late.resident} bytes are resident, and were {early.resident}"
