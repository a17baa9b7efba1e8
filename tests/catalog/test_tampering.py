"""Rows changed behind the store's back, with page checksums that fit: digests alone can tell (A4, I3)."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
import pytest
from zstandard import ZstdCompressor

import lastgood
from lastgood import IntegrityError
from lastgood.codec import compress as compression
from lastgood.model.checkpoint import encode_record
from lastgood.model.digest import digest

LARGE = {"messages": [f"message {n} " * 60 for n in range(80)]}


def change(store: lastgood.Store, sql: str, *bindings: Any) -> None:
    def work(connection: apsw.Connection) -> None:
        connection.execute(sql, bindings)
        assert connection.changes() > 0

    store.catalog._database.write(work)  # type: ignore[attr-defined]


def test_a_well_formed_record_that_is_not_the_one_saved_is_refused(store: lastgood.Store) -> None:
    saved = store.task("t").save({"n": 1}, message="true")
    forged = encode_record(msgspec.structs.replace(saved.record, message="forged"))
    change(store, "UPDATE checkpoints SET record = ?", forged)
    with pytest.raises(IntegrityError):
        store.get_checkpoint(saved.id)
    (listed,) = store.list_checkpoints("t")
    assert (listed.integrity_ok, listed.message) == (False, "")
    assert store.examine_checkpoint(saved.id)


@pytest.mark.parametrize("table", ["blobs", "checkpoints"])
def test_content_of_the_right_size_that_is_not_what_was_saved_is_refused(store: lastgood.Store, table: str) -> None:
    saved = store.task("t").save(LARGE)
    column, size = ("data", "size") if table == "blobs" else ("root", "root_size")
    change(store, f"UPDATE {table} SET {column} = zeroblob({size}), encoding = 0")
    store._cache.drop(store.user, saved.id)  # as others see it
    with pytest.raises(IntegrityError) as caught:
        _ = store.get_checkpoint(saved.id).state
    assert caught.value.details["checkpoint_id"] == saved.id
    assert store.examine_checkpoint(saved.id)


def test_a_parent_that_was_made_anew_is_noticed_by_its_child(store: lastgood.Store) -> None:
    task = store.task("t")
    first, second = task.save({"n": 1}), task.save({"n": 2})
    forged = encode_record(msgspec.structs.replace(first.record, message="forged"))
    change(store, "UPDATE checkpoints SET record = ?, checksum = ? WHERE id = ?", forged, digest(forged), first.id)
    assert store.examine_checkpoint(second.id) == ["its parent is not the one it was made from"]


def test_rows_whose_ids_were_swapped_are_refused(store: lastgood.Store) -> None:
    task = store.task("t")
    first, second = task.save({"n": 1}), task.save({"n": 2})
    for old, new in ((first.id, "aside"), (second.id, first.id), ("aside", second.id)):
        change(store, "UPDATE checkpoints SET id = ? WHERE id = ?", new, old)
    for checkpoint in (first, second):
        with pytest.raises(IntegrityError):
            store.get_checkpoint(checkpoint.id)


def test_a_frame_that_promises_more_than_was_recorded_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_frame(*_: Any, **__: Any) -> bytes:
        raise AssertionError("it was decompressed")

    bomb = ZstdCompressor().compress(bytes(1 << 20))
    monkeypatch.setattr(compression._tools, "decompress", open_frame)
    with pytest.raises(IntegrityError):
        compression.decompress(compression.ZSTD, bomb, 10)
