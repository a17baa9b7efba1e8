"""A store with something of everything in it, and the means to damage a copy of it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path
from typing import Any

import lastgood
from lastgood import Evidence, EvidencePack, EvidenceType
from lastgood.catalog.sqlite.connection import open_connection

CATALOG = "catalog.sqlite"


def fill(folder: Path) -> None:
    """`folder/store`, whose task `work` has its files in `folder/work`; closed, with all in the database file."""
    work = folder / "work"
    dice = random.Random(11)
    for number in range(120):
        place = work / f"part {number % 5}" / f"more {number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.bin").write_bytes(dice.randbytes(3000))
    (work / "big.bin").write_bytes(dice.randbytes(1_500_000))
    (work / "empty folder").mkdir()
    (work / "empty").write_bytes(b"")
    (work / "link").symlink_to("big.bin")
    (work / "script").write_text("echo\n")
    (work / ".env").write_text("SECRET=1")
    with lastgood.open(folder / "store", user="ada", base_path=work) as store:
        _work_with_files(store, work, dice)
        _work_with_branches(store)
        _work_with_evidence(store, work)
        talk = store.task("talk")
        turns: list[str] = []
        for number in range(20):
            turns.append(f"turn {number} {dice.random()} " * 150)
            talk.save({"turns": turns})
        with lastgood.open(folder / "store", user="ben") as other:
            other.task("work").save({"n": 1}, message="of another owner")
        store.task("gone").save({"n": 1})
        store.delete_task("gone")
        store.task("work", workspace=work).step("in flight").begin()
        store._engine.catalog._database._commits = 1000  # type: ignore[attr-defined]  # so that closing tidies the log away


def _work_with_files(store: lastgood.Store, work: Path, dice: random.Random) -> None:
    task = store.task("work", workspace=work)
    log: list[Any] = []
    made = []
    for number in range(12):
        large = [f"part {part} of {number} " * 40 for part in range(60)] if number % 5 == 0 else None
        log.append({"number": number, "text": f"turn {number} " * 400, "large": large})
        (work / "part 0" / "more 0" / "0.bin").write_bytes(dice.randbytes(2000))
        state = {"log": log, "many": {f"key {n}": "v" * 40 for n in range(40)}, "said": lastgood.AppendList(log)}
        made.append(task.save(state, message=f"save {number}", key=f"key {number}"))
    store.tag(made[2].id, "green")
    store.tag(made[3].id, "green", move=True)
    store.tag(made[4].id, "gone")
    store.untag(made[4].id, "gone")
    store.delete_checkpoint(made[5].id)
    store.delete_checkpoint(made[6].id)
    store.undelete_checkpoint(made[6].id)
    store.purge_checkpoint(made[7].id)
    task.restore(made[8].id)
    task.save({"log": log[:8], "after": "restore"})
    task.restore(made[9].id, what="files")
    task.undo()
    task.fork(made[3].id, name="side")


def _work_with_branches(store: lastgood.Store) -> None:
    task = store.task("branches")
    made = [task.save({"n": n}, artifacts=[{"id": "a", "content": "x" * 3000}]) for n in range(4)]
    side = task.fork(made[1].id, name="side")
    side.save({"n": "side"})
    deeper = side.fork(side.save({"n": "side again"}).id, name="deeper")
    deeper.save({"n": "deeper"})
    again = side.fork(made[1].id, name="again")
    again.save({"n": "again"})
    store.delete_branch(str(again.branch_id))
    task.restore(made[2].id)
    task.undo()
    task.redo()


def _work_with_evidence(store: lastgood.Store, work: Path) -> None:
    task = store.task("evidence", workspace=work)
    with task.step("write") as step:
        step.state = {"written": True}
        step.expect_file("script")
    pack = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "is there", {"path": "script"})])
    task.save({"n": 2}, evidence=pack)
    store.verify_checkpoint(task.save({"n": 3}, evidence=pack).id)
    task.save({"n": 4})


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source / "store", target)
    return target


def tamper(store: Path, sql: str, *bindings: Any) -> None:
    """Change rows with page checksums that fit."""
    with contextlib.closing(open_connection(store / CATALOG)) as connection:
        connection.execute(sql, bindings)
        assert connection.changes() > 0


def ask(store: Path, sql: str, *bindings: Any) -> Any:
    with contextlib.closing(open_connection(store / CATALOG)) as connection:
        row = connection.execute(sql, bindings).fetchone()
        return row and row[0]


def flip(file: Path, position: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        at = opened.tell()
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes((byte ^ 4,)))


def pack_file(store: Path) -> Path:
    """The largest pack."""
    found = [path for path in (store / "objects" / "packs").rglob("*") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_size)
