"""Programs that spool on a disk that fails to sync, or loses its power: what was acknowledged has to be there.

Started with the shim; prints what was found wrong, and how many points were tried. What was acknowledged stands as a
mark in the trace of all calls.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.faults.disk_model import Disk, all_lost, content_first, lay_out, names_first, surviving
from tests.faults.shim import UNDISTURBED, Arming, Fault, arm, mark, reset
from tests.faults.trace import Call, Op, read_trace
from tests.support.outages import ask_nobody

import lastgood
from lastgood.catalog.sqlite.connection import LONG_PAGES
from lastgood.spool import database
from lastgood.spool.file import SpoolFile

USER = "tester"
SAVES = 6
FEW_PAGES = 20
"""With so many the log is emptied, so that it is in between."""


class Scene:
    """A store that goes away for everybody who saves, and a disk for its spool."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.trace, self._counter = folder / "disk", folder / "trace", folder / "counter"
        self._beginning, self._store_folder, self._away = folder / "beginning", folder / "store", folder / "away"
        self._beginning.mkdir()
        self.store = lastgood.open(self._store_folder, user=USER, spool=self.disk / "spool", collect="never")
        ask_nobody(self.store)
        self._tasks = [self.store.task(f"task {number}") for number in range(SAVES)]

    def begin(self) -> None:
        for old in (self.disk, self.trace):
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        self.disk.mkdir()

    def spool(self, numbers: Iterable[int], fault: Fault = UNDISTURBED, long_pages: int = FEW_PAGES) -> None:
        """In a process of its own, noted with all that it writes."""
        reset(self._counter)
        child = os.fork()
        if child == 0:
            self._store_folder.rename(self._away)
            vars(database).update(LONG_PAGES=long_pages)
            arm(Arming(str(self.disk), str(self._counter), fault, str(self.trace), with_data=True))
            for number in numbers:
                self._save(number)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        self._away.rename(self._store_folder)

    def _save(self, number: int) -> None:
        assert self.store.spool is not None
        file = self.store.spool.file
        try:
            saved = self._tasks[number].save({"n": number, "large": ["x" * 100] * 100})
            if file.durable:  # where no spool can be made it says that it keeps things in memory alone
                mark(saved.id)
            sql = "INSERT OR REPLACE INTO meta VALUES ('not waited for', ?)"
            file.write(lambda connection: connection.execute(sql, (number,)), durable=False)
        except lastgood.CheckpointError:
            pass

    def calls(self) -> list[Call]:
        return read_trace(self.trace)

    def lose_power(self, calls: Iterable[Call]) -> Iterator[tuple[str, list[str]]]:
        """After these calls: in which way, and what is missing then of what was acknowledged."""
        disk, acknowledged = Disk(self.disk, self._beginning), []
        for call in calls:
            disk.follow(call)
            acknowledged += [call.path] * (call.op == Op.MARK)
        for survives in (all_lost, names_first, content_first):
            shutil.rmtree(self.disk)
            self.disk.mkdir()
            lay_out(surviving(disk, survives), self.disk)
            yield survives.__name__, self._missing(acknowledged)

    def _missing(self, acknowledged: list[str]) -> list[str]:
        assert self.store.spool is not None
        assert self.store.spool.folder is not None
        file = SpoolFile(self.store.spool.folder)
        try:
            return [id_ for id_ in acknowledged if not _is_whole(file, id_)]
        finally:
            file.close()


def _is_whole(file: SpoolFile, id_: str) -> bool:
    try:
        return (waiting := file.waiting(USER, id_)) is not None and file.entry(waiting).waiting.id == id_
    except lastgood.CheckpointError:
        return False


def cut(scene: Scene, every: int) -> Iterator[str]:
    """The power fails after each call of an undisturbed program."""
    scene.begin()
    scene.spool(range(SAVES))
    calls = scene.calls()
    for end in range(len(calls), 0, -every):
        for how, missing in scene.lose_power(calls[:end]):
            yield f"{how} after call {end}: {missing}" if missing else ""


def fail_once(scene: Scene, every: int) -> Iterator[str]:
    """Each sync fails once, and the disk forgets what it was to write."""
    return _fail(scene, every, lambda at: Fault("fail", at, errno.EIO))


def fail_for_good(scene: Scene, every: int) -> Iterator[str]:
    """From each sync on, all of a program fail."""
    return _fail(scene, every, lambda at: Fault("syncs", at, errno.EIO, forever=True))


def _fail(scene: Scene, every: int, fault: Callable[[int], Fault]) -> Iterator[str]:
    """Another program goes on after that, and does not empty the log; then the power fails."""
    scene.begin()
    scene.spool(range(SAVES - 2))
    syncs = [call.number for call in scene.calls() if call.op in (Op.SYNC, Op.DATASYNC)]
    for at in syncs[::-every]:
        scene.begin()
        scene.spool(range(SAVES - 2), fault(at))
        scene.spool(range(SAVES - 2, SAVES), long_pages=LONG_PAGES)
        for how, missing in scene.lose_power(scene.calls()):
            yield f"call {at}, a sync, failed, {how}: {missing}" if missing else ""


def main() -> None:
    folder, what, every = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    acts = {"cut": cut, "fail once": fail_once, "fail for good": fail_for_good}
    found = list(acts[what](Scene(folder), every))
    sys.stdout.write(json.dumps({"tried": len(found), "problems": [problem for problem in found if problem]}))


if __name__ == "__main__":
    main()
