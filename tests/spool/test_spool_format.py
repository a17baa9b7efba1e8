"""The spool's file is what docs/reference/format.md says, and one of another version is refused (G12)."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from tests.support.outages import gone, open_store

import lastgood
from lastgood.catalog.sqlite.connection import open_connection
from lastgood.catalog.values import Commit
from lastgood.errors import FormatVersionError
from lastgood.model.checkpoint import PROVISIONAL
from lastgood.model.identity import digest
from lastgood.spool.file import NAME, VERSION

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "format.md"


def spool_one(tmp_path: Path) -> lastgood.Checkpoint:
    """Save one checkpoint while the store is away."""
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            return task.save({"n": 1, "log": ["x" * 300] * 9}, key="k")


def open_file(tmp_path: Path) -> apsw.Connection:
    """Whatever version it has."""
    (found,) = (tmp_path / "spool").rglob(NAME)
    return open_connection(found)


def select(tmp_path: Path, sql: str) -> list[Any]:
    with closing(open_file(tmp_path)) as connection:
        return connection.execute(sql).fetchall()


def set_version(tmp_path: Path, version: int) -> None:
    with closing(open_file(tmp_path)) as connection:
        connection.pragma("user_version", version)


def test_the_page_names_the_version_every_table_and_every_column(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("\n## The spool, ")[2]
    assert text.startswith(f"version {VERSION}\n")
    documented = {name: columns.split(", ") for name, columns in re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", text, re.M)}
    spool_one(tmp_path)
    names = select(tmp_path, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    tables = {name: [row[1] for row in select(tmp_path, f"PRAGMA table_info({name})")] for (name,) in names}
    assert tables == documented
    assert select(tmp_path, "PRAGMA user_version") == [(VERSION,)]


def test_an_entry_is_laid_out_as_the_page_says(tmp_path: Path) -> None:
    saved = spool_one(tmp_path)
    ((number, checksum, key),) = select(tmp_path, "SELECT number, checksum, key FROM entries")
    ((body,),) = select(tmp_path, "SELECT body FROM bodies")
    blobs = [key for (key,) in select(tmp_path, "SELECT digest FROM blobs")]
    commit, (user, correlation), state_blobs, file_blobs = msgspec.msgpack.decode(body)
    assert tuple(commit) == Commit.__struct_fields__
    assert f"sha256:{checksum.hex()}" == saved.checksum
    assert digest(commit["data"]) == checksum
    assert (key, user, correlation, file_blobs) == ("k", "tester", None, [])
    assert sorted(state_blobs) == sorted(blobs) != []
    assert commit["blobs"] == []
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        assert store.find_checkpoint(saved.id).status == "stored"
    assert PROVISIONAL + number > 2**31


@pytest.mark.parametrize("version", [0, VERSION + 1])
@pytest.mark.parametrize("is_away", [False, True])
def test_a_spool_of_another_version_is_refused_in_words_and_left_alone(
    tmp_path: Path, version: int, is_away: bool
) -> None:
    saved = spool_one(tmp_path)
    set_version(tmp_path, version)
    if is_away:
        (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(FormatVersionError, match=rf"spool .* has format {version}, .* reads {VERSION}\b"):
        open_store(tmp_path / "store", spool=tmp_path / "spool")
    if is_away:
        assert not (tmp_path / "store").exists()
        (tmp_path / "elsewhere").rename(tmp_path / "store")
    set_version(tmp_path, VERSION)
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        assert store.find_checkpoint(saved.id).status == "stored"
