"""G9: a disk that is nearly full. Nothing is corrupted, what is there can be read, and room can be made."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.ledger import read_account
from tests.faults.pool import Outcome, WorkerPool
from tests.faults.prepared_scenario import QUICK
from tests.faults.sandbox import Sandbox, make_sandbox
from tests.faults.shim import no_compiler

KIB, PAGE = 1 << 10, 4 << 10
FULL = "disk_full"
SIZES = 40
SMALLEST = (4, 8, 16, 32, 48, 64, 96, 128, 160, 200)
AMPLE = 256 << 20
ROOM = (0, 64 * KIB, 256 * KIB)
"""How much is freed outside of the store, at first and when that is not enough
(docs/how-to/keep-the-store-small.md, A full disk)."""
PARTS = ("a quarter of the sizes", "another quarter", "a third quarter", "the last quarter")


def run(part: str, plan: Plan) -> Iterator[Trial]:
    scratch = tempfile.TemporaryDirectory(prefix="lastgood-faults-", dir=QUICK if QUICK.is_dir() else None)
    with scratch as folder, WorkerPool(Path(folder), path=plan.path) as pool:
        needed = _measure(Path(folder) / "ample", pool)
        for size in plan.choose(_sizes(needed)[PARTS.index(part) :: len(PARTS)]):
            yield Trial(f"{size // KIB} KiB of {needed // KIB}", _try(Path(folder) / str(size), pool, size))


def _sizes(needed: int) -> list[int]:
    """From where nothing fits to where all but the last bytes do."""
    first = [size * KIB for size in SMALLEST]
    step = (needed - first[-1]) / (SIZES - len(first))
    return first + [int(needed - step * left) // PAGE * PAGE for left in range(SIZES - len(first) - 1, -1, -1)]


def _measure(folder: Path, pool: WorkerPool) -> int:
    """How much all of it takes."""
    with _mounted(folder, AMPLE) as sandbox:
        outcome = _run(pool, sandbox, "full_disk:fill")
        errors = read_account(sandbox.ledger).errors
        if outcome.ended != "done" or errors:
            raise RuntimeError(f"it does not even work on an empty disk: {outcome.error or errors}")
        figures = os.statvfs(sandbox.store)
        return (figures.f_blocks - figures.f_bfree) * figures.f_frsize


def _try(folder: Path, pool: WorkerPool, size: int) -> list[str]:
    with _mounted(folder, size) as sandbox:
        outcome = _run(pool, sandbox, "full_disk:fill")
        if outcome.ended != "done":
            return [f"filling {outcome.ended}: {outcome.error[-2000:]}"]
        errors = read_account(sandbox.ledger).errors
        found = [f"{one['operation']}: {one['code']}, {one['sentence']}" for one in errors if one["code"] != FULL]
        if size // PAGE % 2:  # as after it was copied without them
            (sandbox.store / "catalog.sqlite-shm").unlink(missing_ok=True)
        ballast = sandbox.store / "ballast"
        _fill_up(ballast)
        found += [f"on the full disk: {one}" for one in _read(pool, sandbox, size)]
        found += [f"making room: {one}" for one in _reclaim(pool, sandbox, size)]
        found += [f"after that: {one}" for one in _ask(pool, sandbox, "full_disk:read")]
        ballast.unlink()
        _mount(sandbox.store, AMPLE, "remount,")
        return found + [f"with room again: {one}" for one in _ask(pool, sandbox, "verifier:verify")]


def _read(pool: WorkerPool, sandbox: Sandbox, size: int) -> list[str]:
    """It works, with a file of SQLite's that is there; to make that file takes a little room."""
    has_shm = (sandbox.store / "catalog.sqlite-shm").exists()
    said = _ask(pool, sandbox, "full_disk:read")
    if has_shm or not said or not said[0].startswith(f"{FULL}: "):
        return said
    _mount(sandbox.store, size + ROOM[1], "remount,")
    return _ask(pool, sandbox, "full_disk:read")


def _reclaim(pool: WorkerPool, sandbox: Sandbox, size: int) -> list[str]:
    """Deleting, collecting and saving works, at the latest with a little room."""
    said: list[str] = []
    for room in ROOM[1:] if _is_larger(sandbox, size) else ROOM:
        _mount(sandbox.store, size + room, "remount,")
        said = _ask(pool, sandbox, "full_disk:reclaim")
        if not read_account(sandbox.ledger).acknowledged:  # with nothing in it there is nothing to free
            said = [one for one in said if not one.startswith(f"{FULL}: ")]
        if not all(one.startswith(f"{FULL}: ") for one in said):
            return said
    return said


def _is_larger(sandbox: Sandbox, size: int) -> bool:
    """Whether room was made already, so that it could be read."""
    figures = os.statvfs(sandbox.store)
    return figures.f_blocks * figures.f_frsize > size


def _fill_up(ballast: Path) -> None:
    """Until not a byte is left."""
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, bytes(PAGE))
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _ask(pool: WorkerPool, sandbox: Sandbox, job: str) -> list[str]:
    outcome = _run(pool, sandbox, job)
    return outcome.given if outcome.ended == "done" else [f"{job} {outcome.ended}: {outcome.error[-2000:]}"]


def _run(pool: WorkerPool, sandbox: Sandbox, job: str) -> Outcome:
    return pool.run(f"tests.faults.{job}", folder=str(sandbox.folder), disk=str(sandbox.disk))


@contextmanager
def _mounted(folder: Path, size: int) -> Iterator[Sandbox]:
    """A sandbox whose store has a disk of its own; its files and the ledger lie elsewhere."""
    folder.mkdir()
    sandbox = make_sandbox(folder)
    sandbox.store.mkdir(mode=0o700)
    _mount(sandbox.store, size)
    try:
        yield sandbox
    finally:
        subprocess.run(["umount", "-l", str(sandbox.store)], check=True)


def _mount(place: Path, size: int, how: str = "") -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"{how}size={size},mode=700", "tmpfs", str(place)]
    subprocess.run(command, check=True, capture_output=True)


def obstacle() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "small disks are mounted, which takes root on Linux"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _mounted(Path(folder) / "probe", 64 * KIB):
                return no_compiler()
        except (OSError, subprocess.CalledProcessError):
            return "mounting is not allowed here"


CAMPAIGN = Campaign(
    "full", "G9", "on a full disk nothing is corrupted, reads work, and room can be made", PARTS, run, obstacle
)
