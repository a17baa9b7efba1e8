"""Rows changed behind the store's back, with page checksums that fit: digests alone can tell (A4, I3).

What damages bytes of a file is tried by the campaign `damage` of tests/faults.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from tests.support.damage import CATALOG, tamper
from zstandard import ZstdCompressor

import lastgood
from lastgood import IntegrityError
from lastgood.catalog.sqlite.connection import SQLiteConnection, open_connection
from lastgood.codec import compress as compression
from lastgood.errors import FormatError, LostCommitsError
from lastgood.model.checkpoint import encode_record
from lastgood.model.identity import digest

pytestmark = pytest.mark.once

DAMAGE = (IntegrityError, FormatError)
LARGE = {"messages": [f"message {n} " * 60 for n in range(80)]}


def change(store: lastgood.Store, sql: str, *bindings: Any) -> None:
    def work(connection: SQLiteConnection) -> None:
        connection.raw.execute(sql, bindings)
        assert connection.raw.changes() > 0

    store._engine.catalog._write(work)  # type: ignore[attr-defined]


def test_a_well_formed_record_that_is_not_the_one_saved_is_refused(store: lastgood.Store) -> None:
    saved = store.task("t").save({"n": 1}, message="true")
    forged = encode_record(msgspec.structs.replace(saved.record, message="forged"))
    change(store, "UPDATE checkpoints SET record = ?", forged)
    with pytest.raises(IntegrityError):
        store.find_checkpoint(saved.id)
    (listed,) = store.list_checkpoints("t")
    assert (listed.integrity_ok, listed.message) == (False, "")
    assert store.check_checkpoint(saved.id, evidence=False).problems


@pytest.mark.parametrize("table", ["blobs", "checkpoints"])
def test_content_of_the_right_size_that_is_not_what_was_saved_is_refused(store: lastgood.Store, table: str) -> None:
    saved = store.task("t").save(LARGE)
    column, size = ("data", "size") if table == "blobs" else ("root", "root_size")
    change(store, f"UPDATE {table} SET {column} = zeroblob({size}), encoding = 0")
    store._engine.cache.drop(store.user, saved.id)  # as others see it
    with pytest.raises(IntegrityError) as caught:
        _ = store.find_checkpoint(saved.id).state
    assert caught.value.details["checkpoint_id"] == saved.id
    assert store.check_checkpoint(saved.id, evidence=False).problems


def test_a_parent_that_was_made_anew_is_noticed_by_its_child(store: lastgood.Store) -> None:
    task = store.task("t")
    first, second = task.save({"n": 1}), task.save({"n": 2})
    forged = encode_record(msgspec.structs.replace(first.record, message="forged"))
    change(store, "UPDATE checkpoints SET record = ?, checksum = ? WHERE id = ?", forged, digest(forged), first.id)
    assert store.check_checkpoint(second.id, evidence=False).problems == ["its parent is not the one it was made from"]


def test_rows_whose_ids_were_swapped_are_refused(store: lastgood.Store) -> None:
    task = store.task("t")
    first, second = task.save({"n": 1}), task.save({"n": 2})
    for old, new in ((first.id, "aside"), (second.id, first.id), ("aside", second.id)):
        change(store, "UPDATE checkpoints SET id = ? WHERE id = ?", new, old)
    for checkpoint in (first, second):
        with pytest.raises(IntegrityError):
            store.find_checkpoint(checkpoint.id)


def test_a_frame_that_promises_more_than_was_recorded_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_frame(*_: Any, **__: Any) -> bytes:
        raise AssertionError("it was decompressed")

    bomb = ZstdCompressor().compress(bytes(1 << 20))
    monkeypatch.setattr(compression._tools, "decompress", open_frame)
    with pytest.raises(IntegrityError):
        compression.decompress(compression.ZSTD, bomb, 10)


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
    tamper(folder, sql, id_)
    with lastgood.open(folder, user="tester") as store:
        with pytest.raises(IntegrityError):
            store.find_checkpoint(id_)
        assert store.check_checkpoint(id_, evidence=False).problems
        listed = store.list_checkpoints("t")
        assert [one.integrity_ok for one in listed] == [False, True]
        with pytest.raises(IntegrityError):
            _ = listed[0].state
        assert listed[1].state == {"n": 0}


@pytest.mark.parametrize("into", [dict, object, type(None), list])
def test_a_damaged_checkpoint_is_not_loaded_as_a_type(tmp_path: Path, into: type) -> None:
    """I3: `load` refuses damage as `state` does."""
    folder, id_ = _one_checkpoint(tmp_path)
    tamper(folder, "UPDATE checkpoints SET checksum = zeroblob(32) WHERE id = ?", id_)
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
    tamper(folder, sql)
    with lastgood.open(folder, user="tester") as store:
        with pytest.raises(IntegrityError) as caught:
            _ = store.find_checkpoint(id_).state
        assert caught.value.details["checkpoint_id"] == id_
        assert caught.value.details["blob"].startswith("sha256:")
        assert store.check_checkpoint(id_, evidence=False).problems


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
    tamper(folder, sql)
    with lastgood.open(folder, user="tester") as store, contextlib.suppress(IntegrityError, lastgood.NotFoundError):
        assert store.check_checkpoint(id_, evidence=False).problems != []


def test_a_checkpoint_with_the_wrong_parent_does_not_verify(tmp_path: Path) -> None:
    """A4: lineage is hash-linked."""
    folder, id_ = _one_checkpoint(tmp_path)
    with lastgood.open(folder, user="tester") as store:
        first = store.list_checkpoints("t")[1].id
    tamper(folder, "DELETE FROM checkpoints WHERE id = ?", first)
    with lastgood.open(folder, user="tester") as store:
        assert store.check_checkpoint(id_, evidence=False).problems


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


def test_a_list_with_holes_is_refused_and_the_pages_beside_them_are_not(store: lastgood.Store) -> None:
    """I3: never silently fewer rows. A row that is gone leaves its sequence and its count behind."""
    task = store.task("t")
    made = [task.save({"n": n}) for n in range(30)]
    change(store, "DELETE FROM checkpoints WHERE id = ?", made[14].id)
    for listed in ("t", str(made[0].branch_id)):
        with pytest.raises(IntegrityError, match="holes"):
            store.list_checkpoints(listed)
    assert len(store.list_checkpoints("t", 10)) == 10
    assert len(store.list_checkpoints("t", 10, before=15)) == 10
    with pytest.raises(IntegrityError):
        store.list_checkpoints("t", 10, before=20)


@pytest.mark.parametrize("keep", [0, 0.5])
def test_a_log_that_was_cut_off_is_detected_and_its_loss_can_be_accepted(tmp_path: Path, keep: float) -> None:
    """I3, G6: truncation loses acknowledged commits; every read says so, and accepting it is a deliberate act."""
    folder, copy = tmp_path / "store", tmp_path / "copy"
    with lastgood.open(folder, user="tester") as store:
        for n in range(50):
            store.task("t").save({"n": n, "text": f"entry {n} " * 100})
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    log = copy / f"{CATALOG}-wal"
    os.truncate(log, int(keep * log.stat().st_size))
    with lastgood.open(copy, user="tester") as store:
        with pytest.raises(LostCommitsError):
            store.tasks()
        with pytest.raises(LostCommitsError):
            store.task("third")
        assert store._engine.catalog.accept_loss() > 0
        for info in store.tasks():
            for one in store.list_checkpoints(info.id):
                assert store.check_checkpoint(one.id, evidence=False).problems == []
        store.task("third").save({"after": "loss"})


def test_a_database_that_is_cut_off_gives_nothing_wrong(tmp_path: Path) -> None:
    """I3: of a page that is there in part the rest reads as zeros, and no checksum is compared; nor is the file's size,
    where a log says how many pages there are."""
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        for number in range(20):
            store.task("t").save({"n": number}, message=f"save {number} {'x' * 300}")
    with contextlib.closing(open_connection(tmp_path / "store" / CATALOG)) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        store.task("another").save({"n": 1})
        truth = _list(store)
        sound = Path(shutil.copytree(tmp_path / "store", tmp_path / "sound"))  # as if it was killed here
    whole, refused = (sound / CATALOG).stat().st_size, 0
    for size in range(whole - 6 * 4096 + 700, whole, 1009):
        copy = Path(shutil.copytree(sound, tmp_path / f"cut at {size}"))
        os.truncate(copy / CATALOG, size)
        try:
            with lastgood.open(copy, user="ada", on_failure="raise", collect="never") as opened:
                assert _list(opened) == truth, size
        except DAMAGE:
            refused += 1
        shutil.rmtree(copy)
    assert refused


def _list(store: lastgood.Store) -> list[tuple[str, int | None, str]]:
    return [(one.id, one.sequence, one.message) for one in store.list_checkpoints("t")]


def test_a_repair_makes_a_database_whole_that_is_cut_off(tmp_path: Path) -> None:
    """G6: a byte is gone, and with it a page at most; what is read from then on, also in the same process, is right."""
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        for number in range(20):
            store.task("t").save({"n": number}, message=f"save {number} {'x' * 300}")
        truth = _list(store)
    file = tmp_path / "store" / CATALOG
    with contextlib.closing(open_connection(file)) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    for lost in (1, 9):
        copy = Path(shutil.copytree(tmp_path / "store", tmp_path / f"without {lost}"))
        os.truncate(copy / CATALOG, file.stat().st_size - lost)
        with lastgood.open(copy, user="ada", on_failure="raise", collect="never") as opened:
            assert [finding.code for finding in opened.check().findings][:1] == ["database"]
            opened.repair()
            found = _list(opened)
            assert found
            assert set(found) <= set(truth)
            opened.task("t").append({"n": 99})
        with lastgood.open(copy, user="ada", on_failure="raise", collect="never") as again:
            assert len(_list(again)) == len(found) + 1
            assert "database" not in [finding.code for finding in again.check().findings]
