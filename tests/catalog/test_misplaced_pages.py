"""Pages of the database in each other's place: their checksums fit, and only what they hold can tell (I3, G6)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lastgood
from lastgood import CheckpointError
from lastgood.catalog.sqlite.connection import PAGE_SIZE
from lastgood.upkeep.check import check_at

FILE = "catalog.sqlite"
STATE = {"text": [f"entry {number} " * 40 for number in range(200)]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "store"
    with lastgood.open(folder, user="tester") as store:
        for number in range(10):
            saved = store.task("t").save({**STATE, "n": number}, message=f"save {number}", key=f"key {number}")
            store.tag(saved.id, f"tag {number}")
        store.task("t").step("open").begin()
        store.catalog._database._commits = 1000  # type: ignore[attr-defined]  # so that closing tidies the log away
    return folder


def _exchange(file: Path, one: int, other: int) -> None:
    data = bytearray(file.read_bytes())
    first, second = slice(one * PAGE_SIZE, (one + 1) * PAGE_SIZE), slice(other * PAGE_SIZE, (other + 1) * PAGE_SIZE)
    data[first], data[second] = data[second], data[first]
    file.write_bytes(data)


def _read_all(folder: Path) -> CheckpointError | None:
    """What is refused is an error of lastgood, and no other; wrong data is a failed assertion."""
    try:
        with lastgood.open(folder, user="tester", cache_checkpoints=0) as store:
            page = store.page_checkpoints("t")
            read = [(one.message, one.state) for one in page.checkpoints]
    except CheckpointError as error:
        return error
    assert read == [(f"save {number}", {**STATE, "n": number}) for number in reversed(range(10))]
    return None


@pytest.mark.parametrize("apart", [1, 7, 20])
def test_a_page_in_the_place_of_another_is_refused_and_found(whole: Path, tmp_path: Path, apart: int) -> None:
    """I3: reads are right or refused in lastgood's words, and a check ends and finds why, whichever page it is."""
    pages = (whole / FILE).stat().st_size // PAGE_SIZE
    folder = tmp_path / "store"
    for one in range(pages - apart):
        shutil.copytree(whole, folder)
        _exchange(folder / FILE, one, one + apart)
        refused = _read_all(folder)
        assert refused is None or check_at(folder).findings, one
        assert type(refused) is not CheckpointError, one
        shutil.rmtree(folder)
