"""Flipped bits in the database and its write-ahead log: detected or harmless, never wrong data (I3, G6, B9)."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import lastgood
from lastgood.catalog.sqlite import connection as connecting
from lastgood.errors import FormatError, IntegrityError, LostCommitsError

FLIPS = int(os.environ.get("LASTGOOD_FLIPS", "1000"))
CHUNKS = 8
CATALOG = "catalog.sqlite"
TASKS = ("first", "second")
DAMAGE = (IntegrityError, FormatError)


class Row(NamedTuple):
    """All that a reader is told about one checkpoint."""

    id: str
    sequence: int | None
    parent_id: str | None
    checksum: str
    message: str
    tags: tuple[str, ...]
    state: Any


@dataclass
class Truth:
    """A store on disk, and what it holds, kept in memory."""

    folder: Path
    rows: dict[str, list[Row]]
    events: dict[str, int]


def _fill(store: lastgood.Store, saves: int) -> None:
    dice = random.Random(3)
    logs: dict[str, list[str]] = {name: [] for name in TASKS}
    for n in range(saves):
        name = TASKS[n % 2]
        logs[name].append(f"entry {n} {dice.getrandbits(64):x} " * dice.randrange(1, 8))
        state = {"log": logs[name], "n": n, "raw": dice.randbytes(dice.choice([0, 30, 900])), "task": name}
        saved = store.task(name).save(state, message=f"save {n}", key=f"key {n}", metadata={"n": n})
        if n % 20 == 5:
            store.tag(saved.id, f"tag {n}")


def _read_rows(store: lastgood.Store, name: str) -> list[Row]:
    page = store.page_checkpoints(name, 1000)
    assert len(page.checkpoints) == page.total
    return [_row(checkpoint, repr(checkpoint.state)) for checkpoint in page.checkpoints]


def _row(one: lastgood.Checkpoint, state: Any) -> Row:
    return Row(one.id, one.sequence, one.parent_id, one.checksum, one.message, one.tags, state)


def _learn(folder: Path) -> Truth:
    with lastgood.open(folder, user="tester", cache_checkpoints=0) as store:
        rows = {name: _read_rows(store, name) for name in TASKS}
        return Truth(folder, rows, {name: len(store.events(name, limit=1000)) for name in TASKS})


@pytest.fixture(scope="module")
def in_database(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """A closed store whose every page is in the database file."""
    folder = tmp_path_factory.mktemp("database") / "store"
    with lastgood.open(folder, user="tester") as store:
        _fill(store, 200)
    truth = _learn(folder)
    wal = folder / f"{CATALOG}-wal"
    assert not wal.exists() or wal.stat().st_size == 0
    return truth


@pytest.fixture(scope="module")
def in_wal(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The files of a store copied while it was open: dozens of commits stand in the log alone."""
    folder = tmp_path_factory.mktemp("wal") / "store"
    copy = folder.with_name("copy")
    with lastgood.open(folder, user="tester") as store:
        _fill(store, 50)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    assert (copy / f"{CATALOG}-wal").stat().st_size > 200_000
    pristine = copy.with_name("pristine")
    shutil.copytree(copy, pristine)
    return Truth(copy, _learn(pristine).rows, _learn(pristine).events)


@contextlib.contextmanager
def _flipped(truth: Truth, scratch: Path, file: str, bit: int) -> Iterator[Path]:
    """A copy of the store with one bit of `file` the other way round."""
    shutil.copytree(truth.folder, scratch, ignore=shutil.ignore_patterns("*-shm"))
    try:
        with (scratch / file).open("r+b") as opened:
            opened.seek(bit // 8)
            byte = opened.read(1)[0]
            opened.seek(bit // 8)
            opened.write(bytes((byte ^ 1 << bit % 8,)))
        yield scratch
    finally:
        shutil.rmtree(scratch)


class Outcome(NamedTuple):
    detected: bool
    readable: int
    whole_store_refused: bool


def _examine(folder: Path, truth: Truth) -> Outcome:
    """Read everything there is. Wrong or missing data without an error is a failed assertion."""
    try:
        store = lastgood.open(folder, user="tester", cache_checkpoints=0)
    except DAMAGE:
        return Outcome(True, 0, True)
    detected, readable = False, 0
    with store:
        for name in TASKS:
            listed = False
            try:
                assert _read_rows(store, name) == truth.rows[name]
                listed = True
            except DAMAGE:
                detected = True
            try:
                assert len(store.events(name, limit=1000)) == truth.events[name]
            except DAMAGE:
                detected = True
            for row in truth.rows[name]:
                try:
                    one = store.get_checkpoint(row.id)
                    # What was listed whole has been compared, state and all.
                    assert _row(one, row.state if listed else repr(one.state)) == row
                    readable += 1
                except DAMAGE:
                    detected = True
    return Outcome(detected, readable, readable == 0)


def _bits(file: Path, chunk: int, label: str) -> list[int]:
    dice = random.Random(f"{label} {chunk}")
    return [dice.randrange(file.stat().st_size * 8) for _ in range(-(-FLIPS // CHUNKS))]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_flipped_bit_in_the_database_is_detected_or_harmless(in_database: Truth, tmp_path: Path, chunk: int) -> None:
    """I3, G6: never silently fewer or other rows; and most checkpoints stay readable."""
    total = sum(map(len, in_database.rows.values()))
    outcomes = []
    for bit in _bits(in_database.folder / CATALOG, chunk, "database"):
        with _flipped(in_database, tmp_path / "scratch", CATALOG, bit) as folder:
            outcomes.append(_examine(folder, in_database))
    for outcome in outcomes:
        assert outcome.detected or outcome.readable == total
    assert any(outcome.detected for outcome in outcomes)
    # One page holds an interior node of everything now and then, else a dozen rows.
    assert sum(outcome.readable for outcome in outcomes) > 0.7 * total * len(outcomes)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_flipped_bit_in_the_log_is_detected_or_harmless(in_wal: Truth, tmp_path: Path, chunk: int) -> None:
    """I3, G6: a log that ends early has lost acknowledged commits, and the witness says so."""
    total = sum(map(len, in_wal.rows.values()))
    file = f"{CATALOG}-wal"
    outcomes = []
    for bit in _bits(in_wal.folder / file, chunk, "log"):
        with _flipped(in_wal, tmp_path / "scratch", file, bit) as folder:
            outcomes.append(_examine(folder, in_wal))
    for outcome in outcomes:
        assert outcome.detected or outcome.readable == total
    assert any(outcome.detected for outcome in outcomes)


def test_every_bit_of_the_database_header_is_detected_or_harmless(in_database: Truth, tmp_path: Path) -> None:
    """I3: the first 100 bytes say how all the others are read, checksums included."""
    undetected = {}
    for bit in range(800):
        with _flipped(in_database, tmp_path / "scratch", CATALOG, bit) as folder:
            try:
                _examine_briefly(folder, in_database)
            except DAMAGE:
                pass
            except (AssertionError, lastgood.CheckpointError) as error:
                undetected[f"byte {bit // 8} bit {bit % 8}"] = type(error).__name__
    assert undetected == {}


def _examine_briefly(folder: Path, truth: Truth) -> None:
    with lastgood.open(folder, user="tester", cache_checkpoints=0) as store:
        for name in TASKS:
            page = store.page_checkpoints(name, 1000)
            assert len(page.checkpoints) == page.total == len(truth.rows[name])
            assert [_row(one, repr(one.state)) for one in page.checkpoints[:3]] == truth.rows[name][:3]


def test_every_bit_of_the_log_header_is_detected_or_harmless(in_wal: Truth, tmp_path: Path) -> None:
    """I3: a log whose header is not believed is no log at all, and its commits are lost."""
    total = sum(map(len, in_wal.rows.values()))
    for bit in range(32 * 8):
        with _flipped(in_wal, tmp_path / "scratch", f"{CATALOG}-wal", bit) as folder:
            outcome = _examine(folder, in_wal)
            assert outcome.detected or outcome.readable == total, bit


@pytest.mark.parametrize("keep", [0, 1, 31, 32, 40_000, 0.5, 0.9])
def test_a_log_that_was_cut_off_is_detected(in_wal: Truth, tmp_path: Path, keep: float) -> None:
    """I3, G6: truncation loses acknowledged commits; every read says so, and accepting it is a deliberate act."""
    folder = tmp_path / "copy"
    shutil.copytree(in_wal.folder, folder)
    wal = folder / f"{CATALOG}-wal"
    size = wal.stat().st_size
    os.truncate(wal, int(keep * size if 0 < keep < 1 else keep))
    with lastgood.open(folder, user="tester") as store:
        with pytest.raises(LostCommitsError):
            store.tasks()
        with pytest.raises(LostCommitsError):
            store.task("third")
        assert store.catalog.accept_loss() > 0
        for info in store.tasks():
            for one in store.list_checkpoints(info.id):
                assert store.examine_checkpoint(one.id) == []
        store.task("third").save({"after": "loss"})


@pytest.mark.parametrize("keep", [0, 100, 4096, 0.3, 0.9])
def test_a_database_that_was_cut_off_is_detected(in_database: Truth, tmp_path: Path, keep: float) -> None:
    """I3, G6."""
    folder = tmp_path / "copy"
    shutil.copytree(in_database.folder, folder)
    file = folder / CATALOG
    os.truncate(file, int(keep * file.stat().st_size if 0 < keep < 1 else keep))
    assert _examine(folder, in_database).detected


def test_a_zeroed_page_is_detected_or_harmless(in_database: Truth, tmp_path: Path) -> None:
    """I3, G6: it has a page checksum that fits: a lost write of the disk."""
    data = (in_database.folder / CATALOG).read_bytes()
    pages = len(data) // 4096
    total = sum(map(len, in_database.rows.values()))
    dice = random.Random(8)
    undetected = []
    for n in range(40):
        folder = tmp_path / f"copy {n}"
        shutil.copytree(in_database.folder, folder)
        one = dice.randrange(1, pages)
        changed = bytearray(data)
        changed[one * 4096 : one * 4096 + 4096] = bytes(4096)
        (folder / CATALOG).write_bytes(changed)
        try:
            outcome = _examine(folder, in_database)
            assert outcome.detected or outcome.readable == total
        except Exception as error:
            undetected.append((f"page {one + 1}", type(error).__name__))
        shutil.rmtree(folder)
    assert undetected == []


# --- damage behind valid page checksums -------------------------------------------------------------------


def _tamper(folder: Path, sql: str, *bindings: Any) -> None:
    """Change rows through the checksum VFS: only the digests can tell."""
    with contextlib.closing(connecting.open_connection(folder / CATALOG)) as connection:
        connection.execute(sql, bindings)


def _one_checkpoint(tmp_path: Path) -> tuple[Path, str]:
    folder = tmp_path / "store"
    with lastgood.open(folder, user="tester") as store:
        task = store.task("t")
        task.save({"n": 0})
        saved = task.save({"n": 1, "text": "x" * 5000}, message="secret", metadata={"a": 1})
        store.tag(saved.id, "good")
        return folder, saved.id


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE checkpoints SET record = CAST(substr(record, 1, length(record) - 1) || x'00' AS BLOB) WHERE id = ?",
        "UPDATE checkpoints SET record = x'' WHERE id = ?",
        "UPDATE checkpoints SET checksum = zeroblob(32) WHERE id = ?",
        "UPDATE checkpoints SET placement = zeroblob(32) WHERE id = ?",
        "UPDATE checkpoints SET version = 77 WHERE id = ?",
        "UPDATE checkpoints SET record = (SELECT record FROM checkpoints WHERE number & 255 = 1) WHERE id = ?",
    ],
)
def test_a_row_that_was_tampered_with_is_never_returned_as_data(tmp_path: Path, sql: str) -> None:
    """A4, I3: not by get, state, load or verify; the list says which it is."""
    folder, id_ = _one_checkpoint(tmp_path)
    _tamper(folder, sql, id_)
    with lastgood.open(folder, user="tester") as store:
        with pytest.raises(IntegrityError):
            store.get_checkpoint(id_)
        assert store.examine_checkpoint(id_)
        listed = store.list_checkpoints("t")
        assert [one.integrity_ok for one in listed] == [False, True]
        with pytest.raises(IntegrityError):
            _ = listed[0].state
        assert listed[1].state == {"n": 0}


@pytest.mark.parametrize("into", [dict, object, type(None), list])
def test_a_damaged_checkpoint_is_not_loaded_as_a_type(tmp_path: Path, into: type) -> None:
    """I3: `load` refuses damage as `state` does."""
    folder, id_ = _one_checkpoint(tmp_path)
    _tamper(folder, "UPDATE checkpoints SET checksum = zeroblob(32) WHERE id = ?", id_)
    with lastgood.open(folder, user="tester") as store, pytest.raises(IntegrityError):
        store.list_checkpoints("t")[0].load(into)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM blobs",
        "UPDATE blobs SET data = zeroblob(length(data))",
        "UPDATE blobs SET size = size + 1",
        "UPDATE blobs SET size = 0",
        "UPDATE blobs SET size = -1",
        "UPDATE blobs SET size = 1 << 40",
        "UPDATE blobs SET encoding = 1 - encoding",
        "UPDATE blobs SET encoding = 9",
        "UPDATE blobs SET data = NULL",
    ],
)
def test_a_blob_that_was_tampered_with_is_refused_and_named(tmp_path: Path, sql: str) -> None:
    """B9, I3: which checkpoint, which blob; nothing comes back. A frame's own promise of a size is not believed."""
    folder = tmp_path / "store"
    with lastgood.open(folder, user="tester") as store:
        id_ = store.task("t").save({"log": [f"entry {n} " * 20 for n in range(500)]}).id
    _tamper(folder, sql)
    with lastgood.open(folder, user="tester") as store:
        with pytest.raises(IntegrityError) as caught:
            _ = store.get_checkpoint(id_).state
        assert caught.value.details["checkpoint_id"] == id_
        assert caught.value.details["blob"].startswith("sha256:")
        assert store.examine_checkpoint(id_)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE attestations SET data = x'81a16101'",
        "UPDATE attestations SET actor = 'someone else'",
        "UPDATE attestations SET kind = 'verification'",
        "UPDATE attestations SET data = x'c1'",
        "UPDATE checkpoints SET branch = 99",
    ],
)
def test_verifying_notices_tampered_attestations_and_places(tmp_path: Path, sql: str) -> None:
    """A4: what changes later has digests of its own. Verification says no, or says that there is damage."""
    folder, id_ = _one_checkpoint(tmp_path)
    _tamper(folder, sql)
    with lastgood.open(folder, user="tester") as store, contextlib.suppress(IntegrityError, lastgood.NotFoundError):
        assert store.examine_checkpoint(id_) != []


def test_a_checkpoint_with_the_wrong_parent_does_not_verify(tmp_path: Path) -> None:
    """A4: lineage is hash-linked."""
    folder, id_ = _one_checkpoint(tmp_path)
    with lastgood.open(folder, user="tester") as store:
        first = store.list_checkpoints("t")[1].id
    _tamper(folder, "DELETE FROM checkpoints WHERE id = ?", first)
    with lastgood.open(folder, user="tester") as store:
        assert store.examine_checkpoint(id_)


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\0", os.urandom(8192), b"\0" * 8192], ids=len)
def test_a_file_that_is_not_a_store_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """I4: opened by mistake, it is refused and not a byte of it changes."""
    file = tmp_path / "some.sqlite"
    file.write_bytes(content)
    with pytest.raises(DAMAGE):
        lastgood.open(file)
    assert file.read_bytes() == content


def test_a_foreign_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """I4."""
    file = tmp_path / "other.db"
    with contextlib.closing(apsw.Connection(str(file))) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = file.read_bytes()
    with pytest.raises(FormatError):
        lastgood.open(file)
    assert file.read_bytes() == before


def test_a_damaged_witness_proves_nothing_and_hides_nothing(in_wal: Truth, tmp_path: Path) -> None:
    """Format, lock and witness: a witness that fails its own check is not believed, and all else reads as before."""
    for bit in range(0, 28 * 8, 5):
        with _flipped(in_wal, tmp_path / "scratch", f"{CATALOG}-lock", bit) as folder:
            total = sum(map(len, in_wal.rows.values()))
            assert _examine(folder, in_wal) == Outcome(False, total, False)


def test_a_list_with_holes_is_refused_and_the_pages_beside_them_are_not(store: lastgood.Store) -> None:
    """I3: never silently fewer rows. A row that is gone leaves its sequence and its count behind."""
    task = store.task("t")
    made = [task.save({"n": n}) for n in range(30)]
    database = store.catalog._database  # type: ignore[attr-defined]
    database.write(lambda c: c.execute("DELETE FROM checkpoints WHERE id = ?", (made[14].id,)))
    for listed in ("t", str(made[0].branch_id)):
        with pytest.raises(IntegrityError, match="holes"):
            store.list_checkpoints(listed)
    assert len(store.list_checkpoints("t", 10)) == 10
    assert len(store.list_checkpoints("t", 10, before=15)) == 10
    with pytest.raises(IntegrityError):
        store.list_checkpoints("t", 10, before=20)
