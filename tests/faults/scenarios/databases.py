"""SQLite databases in the workspace, which their programs left in the middle of their work, with a log of commits or
with a journal. What is captured and restored is what was committed, and no log of another moment is beside it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import Worker, write_files

DATABASES = {"logged.db": "wal", "deep/journaled.db": "persist"}
PAGES = 30
"""So many rows of a page each are in every transaction."""


def _write(path: Path, mode: str, number: int, *, dies: bool) -> None:
    """Commit a transaction; `dies`: in a process that is gone then, in the middle of the next one."""
    child = os.fork() if dies else 0
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("PRAGMA cache_size = 5")  # what does not fit is written before the commit
    database.execute("CREATE TABLE IF NOT EXISTS t (x, y)")
    for half_done in (False, True) if dies else (False,):
        database.execute("BEGIN")
        database.execute("UPDATE t SET y = ?", (f"{number} {half_done} " * 300,))
        rows = [(number, f"{number} {half_done} {row} " * 300) for row in range(PAGES)]
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)
        if not half_done:
            database.execute("COMMIT")
    if dies:
        os._exit(0)
    database.close()


def _write_all(worker: Worker, number: int, *, dies: bool) -> None:
    for name, mode in DATABASES.items():
        _write(worker.work / name, mode, number, dies=dies)


def _save_databases(worker: Worker) -> None:
    """A save of databases at rest; then a program has gone on with both, and died."""
    write_files(worker.work, ["a", "deep/b"], seed=1, size=400)
    _write_all(worker, 0, dies=False)
    worker.save(worker.task, some_state(0), "save 0")
    _write_all(worker, 1, dies=True)
    assert (worker.work / "logged.db-wal").stat().st_size


def _restore(worker: Worker) -> None:
    task, chosen, files = worker.task, worker.kept("save 0"), worker.lines("save 0")
    worker.move("restore", lambda: task.restore(chosen), to=files, present=some_state(0), state=some_state(0))
    worker.save(task, some_state(5), "after the restore")


SCENARIOS = {"restore databases": Scenario(_save_databases, _restore)}
