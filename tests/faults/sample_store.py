"""The stores that are damaged: with something of everything in them, all they can be asked, and what they must say.

Two states of one store: `closed` tidily, with all in the database file; and `killed`, with dozens of commits in the
log alone. Beside each lies `old`, the same store some commits earlier.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.ledger import state_digest, tree_digest
from tests.support import damage

import lastgood
from lastgood import CheckpointError

USER = "ada"
STATES = ("closed", "killed")
PAGE = 1000
DERIVED = frozenset(("tasks", "events", "tags", "branches", "verified", "typed", "marks", "said"))
"""Questions about what serves to find things, and what was said of them: if that is wrong, a check says so
(docs/how-to/check-and-repair.md, Findings). What was saved is never wrong, whether somebody checks or not."""

Range = tuple[str, int, int]
"""A file below the store, and from where to where in it."""


LOCK: Range = ("catalog.sqlite-lock", 0, 1 << 62)


class Truth(NamedTuple):
    """What a store must answer to each question, and which bytes it has to read for that."""

    answers: dict[str, Any]
    touched: dict[str, list[Range]]


# --- made, as jobs of a pool --------------------------------------------------------------------------------------


def make(folder: str) -> None:
    """Make `folder/closed/{store,old}` and `folder/killed/{store,old}`; the files of all are in `folder/work`."""
    here = Path(folder)
    store, work, dice = here / "store", here / "work", random.Random(5)
    for kind in STATES:
        (here / kind).mkdir()
    _make_files(work, dice)
    with open_copy(store) as opened:
        _work_with_files(opened, work, dice)
        damage._work_with_branches(opened)
        _close_tidily(opened)
    with open_copy(store) as opened:
        damage._work_with_evidence(opened, work)
        shutil.copytree(store, here / "closed" / "old")
        _save_packs(opened, work, dice)
        opened.collect(grace=0)
        _close_tidily(opened)
    shutil.copytree(store, here / "closed" / "store")
    with open_copy(store) as opened:
        _save_much(opened, work, range(5))
        shutil.copytree(store, here / "killed" / "old")
        _save_much(opened, work, range(5, 10))
        shutil.copytree(store, here / "killed" / "store")
    shutil.rmtree(store)


def _make_files(work: Path, dice: random.Random) -> None:
    """Write small files, a large one that is stored in chunks, and things that are no files."""
    for number in range(12):
        place = work / "part" / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.bin").write_bytes(dice.randbytes(300))
    (work / "big.bin").write_bytes(dice.randbytes(530_000))
    (work / "empty folder").mkdir()
    (work / "empty").write_bytes(b"")
    (work / "link").symlink_to("big.bin")
    (work / "script").write_text("echo\n")


def _work_with_files(store: lastgood.Store, work: Path, dice: random.Random) -> None:
    task = store.task("work", workspace=work)
    log: list[Any] = []
    made = []
    for number in range(6):
        log.append(
            {"number": number, "text": f"turn {number} " * 400, "large": [f"{number} {one} " * 40 for one in range(60)]}
        )
        (work / "part" / "0" / "0.bin").write_bytes(dice.randbytes(300))
        state = {"log": log, "many": {f"key {n}": "v" * 40 for n in range(40)}, "said": lastgood.AppendList(log)}
        made.append(task.save(state, message=f"save {number}", key=f"key {number}"))
    store.tag(made[2].id, "green")
    store.delete_checkpoint(made[3].id)
    store.purge_checkpoint(made[4].id)
    task.restore(made[1].id)
    task.undo()
    task.fork(made[2].id, name="side")
    with lastgood.open(store._engine.catalog.address, user="ben") as other:
        other.task("work").save({"n": 1}, message="of another owner")
    store.task("gone").save({"n": 1})
    store.delete_task("gone")
    task.step("in flight").begin()


def _save_packs(store: lastgood.Store, work: Path, dice: random.Random) -> None:
    task = store.task("packs", workspace=work)
    for number in range(2):
        for one in range(2):
            (work / "part" / "1" / f"large {one}").write_bytes(dice.randbytes(140_000))
            (work / "part" / "1" / f"small {one}").write_bytes(dice.randbytes(300))
        store.tag(task.save({"packs": number}).id, f"pack {number}")


def _save_much(store: lastgood.Store, work: Path, numbers: range) -> None:
    task, talk = store.task("late", workspace=work), store.task("talk")
    for number in numbers:
        (work / "script").write_text(f"echo {number}\n")
        task.save({"late": number, "text": f"said {number} " * 60}, key=f"late {number}")
        talk.save({"turns": [f"late turn {number} " * 90]})


def _close_tidily(store: lastgood.Store) -> None:
    store._engine.catalog._database._commits = PAGE  # type: ignore[attr-defined]  # so that the log is tidied away


def open_copy(store: Path) -> lastgood.Store:
    return lastgood.open(store, user=USER, base_path=store.with_name("work"), collect="never", cache_checkpoints=0)


# --- asked ----------------------------------------------------------------------------------------------------------


class Questions:
    """Everything that a store can be asked, one question at a time. Content that was read once is not read again."""

    def __init__(self, store: lastgood.Store, scratch: Path) -> None:
        self._store = store
        self._scratch = scratch
        self._content: dict[str, str] = {}

    def ask(self, question: str) -> Any:
        """Return the store's answer as plain values. Raises what the store raises."""
        kind, *about = question.split("\t")
        asked: Callable[..., Any] = getattr(self, f"_{kind}")
        return json.loads(json.dumps(asked(*about)))

    def _tasks(self) -> Any:
        return sorted((info.owner, info.id, info.checkpoints) for info in self._store.tasks(limit=PAGE))

    def _list(self, owner: str, id: str) -> Any:
        page = self._store.page_checkpoints(id, PAGE, owner=owner)
        return [page.total, [_facts(one) for one in page.checkpoints]]

    def _marks(self, owner: str, id: str) -> Any:
        listed = self._store.list_checkpoints(id, PAGE, owner=owner)
        return [(one.id, one.tags, one.verified) for one in listed]

    def _typed(self, owner: str, id: str, kind: str) -> Any:
        page = self._store.page_checkpoints(id, PAGE, kind, owner=owner)
        return [page.total, [one.id for one in page.checkpoints]]

    def _events(self, owner: str, id: str) -> Any:
        return [_digest(event) for event in self._store.events(id, limit=PAGE, owner=owner)]

    def _tags(self, owner: str, id: str) -> Any:
        return {name: _digest(head) for name, head in self._store.tags(id, owner=owner).items()}

    def _branches(self, owner: str, id: str) -> Any:
        return [_digest(branch) for branch in self._store.branches(id, owner=owner)]

    def _verified(self, owner: str, id: str) -> Any:
        found = self._store.get_last_verified_checkpoint(id, owner=owner)
        return found and found.id

    def _checkpoint(self, owner: str, id: str) -> Any:
        """Its record, its place and its state."""
        one = self._store.find_checkpoint(id, owner=owner)
        return [_facts(one), state_digest(one.state)]

    def _said(self, owner: str, id: str) -> Any:
        return [_digest(said) for said in self._store.find_checkpoint(id, owner=owner).attestations]

    def _files(self, owner: str, id: str) -> Any:
        """Names, kinds, permissions and bytes of all its files."""
        return _digest(sorted(self._walk(owner, id, "")))

    def _walk(self, owner: str, id: str, folder: str) -> list[tuple[Any, ...]]:
        found = []
        for info in self._store.list_files(id, folder, owner=owner):
            found.append((*info, self._content_of(owner, id, info)))
            if info.kind == "folder":
                found += self._walk(owner, id, info.path)
        return found

    def _content_of(self, owner: str, id: str, info: Any) -> str:
        if info.kind != "file":
            return ""
        if info.sha256 not in self._content:
            data = b"".join(self._store.stream_file(id, info.path, owner=owner))
            self._content[info.sha256] = hashlib.sha256(data).hexdigest()
        return self._content[info.sha256]

    def _copied(self, owner: str, id: str) -> Any:
        place = self._scratch / id
        try:
            self._store.task(self._store.find_checkpoint(id, owner=owner).task_id, owner=owner).copy_files(id, place)
            return tree_digest(place)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _facts(one: lastgood.Checkpoint) -> list[Any]:
    return [one.id, one.sequence, one.parent_id, one.checksum, one.message, one.type, one.created_at.isoformat()]


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


# --- learned, as jobs of a pool -----------------------------------------------------------------------------------


def learn(folder: str, state: str) -> None:
    """Write `folder/state/truth`: all that the store says as long as it is whole."""
    from tests.faults.read_ranges import record_reads

    here, store = Path(folder), Path(folder) / "store"
    shutil.copytree(here / state / "store", store)
    touched: dict[str, list[Range]] = {}
    with record_reads(store) as seen:
        with open_copy(store) as opened:
            report = opened.check(read_data=True)
            if report.findings:
                raise RuntimeError(f"the store is not whole from the beginning: {report.findings}")
            asking = Questions(opened, here)
            answers = {question: asking.ask(question) for question in _all_questions(opened)}
        for question, answer in {"open": None, **answers}.items():
            seen.clear()
            with open_copy(store) as opened:
                if question != "open" and Questions(opened, here).ask(question) != answer:
                    raise RuntimeError(f"the store does not say the same twice: {question}")
            touched[question] = [*sorted(seen), LOCK]  # the witness is read with every question
    shutil.rmtree(store)
    (here / state / "truth").write_text(json.dumps([answers, touched]))


@functools.cache
def read_truth(folder: Path, state: str) -> Truth:
    answers, touched = json.loads((folder / state / "truth").read_text())
    return Truth(answers, {question: [(*one,) for one in ranges] for question, ranges in touched.items()})


def _all_questions(store: lastgood.Store) -> list[str]:
    questions = ["tasks"]
    for info in store.tasks(limit=PAGE):
        of_task = ("list", *sorted(DERIVED - {"tasks", "said"}))
        questions += ["\t".join([kind, info.owner, info.id, *["manual"][: kind == "typed"]]) for kind in of_task]
        listed = store.page_checkpoints(info.id, PAGE, owner=info.owner).checkpoints
        for one in listed:
            questions.append(f"checkpoint\t{info.owner}\t{one.id}")
            if one.tags or one.verified:
                questions.append(f"said\t{info.owner}\t{one.id}")
            if one.record.files:
                questions.append(f"files\t{info.owner}\t{one.id}")
        questions += [f"copied\t{info.owner}\t{one.id}" for one in listed[:1] if one.record.files]
    return questions


def is_refusal(error: Exception) -> bool:
    """Damage in the words of lastgood: not "this is a bug", nor that somebody asked for something wrong."""
    kinds = (lastgood.IntegrityError, lastgood.FormatError, lastgood.UnavailableError, lastgood.NotFoundError)
    return isinstance(error, CheckpointError) and isinstance(error, kinds)
