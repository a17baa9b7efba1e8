"""How a store names its content: fixed when it is created, used by all that writes, reads or checks blobs."""

from __future__ import annotations

import hmac
import os
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.damage import tamper
from tests.support.file_trees import look
from tests.support.outages import gone, open_store

import lastgood
from lastgood.catalog.sqlite.connection import open_connection
from lastgood.engine import readers
from lastgood.engine.engine import Engine
from lastgood.errors import FormatError, IntegrityError
from lastgood.model.identity import SHA256, BlobId
from lastgood.model.tree import File, KeyedFile, decode_tree, encode_tree

KEY = b"k" * 32
STATE = {"messages": [f"message {number} " * 30 for number in range(400)], "round": 1}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workspace, while all stores have keyed ids."""
    monkeypatch.setattr(Engine, "blob_id", BlobId(KEY))
    work = tmp_path / "work"
    work.mkdir()
    for number in range(30):
        (work / f"file {number}").write_bytes(os.urandom(20_000))
    (work / "small").write_text("some text\n")
    (work / "empty").touch()
    (work / "large").write_bytes(os.urandom(2 << 20))
    return tmp_path


def blobs_in(store: lastgood.Store) -> dict[bytes, bytes]:
    """Every blob of files that the store has, by its id, whatever its bytes give."""
    engine = store._engine
    with closing(open_connection(Path(str(engine.catalog.address)))) as connection:
        keys = [key for (key,) in connection.execute("SELECT digest FROM blobs WHERE partition = 0")]
    return engine.blobs.read_all(keys)


def test_a_keyed_id_is_an_hmac_and_says_nothing_of_its_key() -> None:
    keyed = BlobId(KEY)
    assert SHA256.of(b"x") == sha256(b"x").digest() == SHA256.digest_of(b"x", SHA256.of(b"x"))
    assert keyed.of(b"x") == hmac.new(KEY, b"x", "sha256").digest()
    assert keyed.digest_of(b"x", keyed.of(b"x")) == sha256(b"x").digest()
    assert repr(KEY)[2:-1] not in repr(keyed)


def test_a_file_has_a_digest_and_a_blob_id() -> None:
    """They are one where ids are digests: the tree does not say it twice."""
    plain = File(b"a", 0o644, 1, b"d" * 32)
    keyed = KeyedFile(b"b", 0o644, 1, b"d" * 32, None, b"i" * 32)
    assert decode_tree(encode_tree([keyed, plain])) == (plain, keyed)
    assert (plain.blob, keyed.blob, keyed.digest) == (b"d" * 32, b"i" * 32, b"d" * 32)
    with pytest.raises(IntegrityError):
        decode_tree(encode_tree([KeyedFile(b"b", 0o644, 1, b"d" * 32, None, b"i" * 31)]))


@pytest.mark.parametrize("workers", [False, True])
def test_everything_works_with_keyed_ids(place: Path, monkeypatch: pytest.MonkeyPatch, workers: bool) -> None:
    """B1, B3, B6, D11: capture, here and by workers, restore, compare, evidence, verify, collect, check, repair."""
    if workers:
        monkeypatch.setattr(readers, "MANY_FILES", 1)
        monkeypatch.setattr(readers, "processors", lambda: 2)
    work = place / "work"
    with lastgood.open(place / "store", user="ada", base_path=work) as store:
        task = store.task("t", workspace=work)
        with task.step("make") as step:
            step.state = dict(STATE)
            step.expect_file("small")
        first, before = task.head, look(work)
        assert first is not None
        (work / "small").write_text("other text\n")
        (work / "large").write_bytes((work / "large").read_bytes()[: 1 << 20])
        second = task.save({**STATE, "round": 2})
        assert {change.path for change in task.diff(first, second).files.changes} == {"small", "large"}
        (infos,) = [info for info in store.list_files(first.id) if info.path == "small"]
        assert infos.sha256 == f"sha256:{sha256(b'some text' + os.linesep.encode()).hexdigest()}"
        assert task.restore(first).state == STATE
        assert look(work) == before
        assert store.verify_checkpoint(first.id)
        store.purge_checkpoint(second.id)
        store.collect(grace=0)
        assert store.check(read_data=True).ok
        assert store.repair().check.ok
        assert store.read_file(first.id, "large") == (work / "large").read_bytes()
        found = blobs_in(store)
        assert all(BlobId(KEY).of(data) == key for key, data in found.items())
        content = [file.read_bytes() for file in work.iterdir() if file.stat().st_size < 1 << 20]
        assert {BlobId(KEY).of(data) for data in content} <= found.keys()
        assert not {SHA256.of(data) for data in content} & found.keys()


def test_what_another_key_named_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content of one store is not taken for that of another."""
    with lastgood.open(place / "store", user="ada") as store:
        saved = store.task("t", workspace=place / "work").save(STATE)
    monkeypatch.setattr(Engine, "blob_id", BlobId(b"another key"))
    with lastgood.open(place / "store", user="ada") as store:
        with pytest.raises(IntegrityError):
            store.find_checkpoint(saved.id).state  # noqa: B018
        with pytest.raises(IntegrityError):
            store.read_file(saved.id, "small")
        assert not store.check(read_data=True).ok


def test_a_spool_takes_keyed_ids_along(place: Path) -> None:
    """C10: what is spooled has the ids that it will have in the store."""
    with open_store(place / "store") as store:
        task = store.task("t", workspace=place / "work")
        task.save(STATE)
        with gone(place / "store"):
            (place / "work" / "small").write_text("written while the store was away\n")
            spooled = task.save({**STATE, "round": 2})
            assert spooled.status == "spooled"
        assert store.replay().stored == 1
        assert store.read_file(spooled.id, "small") == b"written while the store was away\n"
        assert store.find_checkpoint(spooled.id).state == {**STATE, "round": 2}
        assert store.check(read_data=True).ok


def test_lost_content_is_found_again_by_its_keyed_id(place: Path) -> None:
    with lastgood.open(place / "store", user="ada") as store:
        saved = store.task("t", workspace=place / "work").save(STATE)
    (pack,) = (file for file in (place / "store" / "objects" / "packs").rglob("*") if file.is_file())
    pack.unlink()
    with lastgood.open(place / "store", user="ada") as store:
        assert not store.check().ok
        assert store.repair().check.ok
        assert store.read_file(saved.id, "large") == (place / "work" / "large").read_bytes()


def test_a_store_that_names_its_content_in_an_unknown_way_is_refused(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        store.task("t").save({"n": 1})
    tamper(tmp_path / "store", "UPDATE meta SET value = 'hmac-sha256' WHERE key = 'blob_id'")
    with pytest.raises(FormatError, match="names its content by 'hmac-sha256'"):
        lastgood.open(tmp_path / "store", user="ada", on_failure="raise")
    tamper(tmp_path / "store", "UPDATE meta SET value = 'sha256' WHERE key = 'blob_id'")
    with lastgood.open(tmp_path / "store", user="ada") as store:
        assert store.task("t").state == {"n": 1}
