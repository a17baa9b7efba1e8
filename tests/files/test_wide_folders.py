"""Folders of many files: their trees lie in parts, so that a save costs what changed (hostile use W4)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.damage import ask, tamper

import lastgood
from lastgood.catalog.values import Blob
from lastgood.compare.trees import compare_trees
from lastgood.engine.blobs import Gathered
from lastgood.engine.commit import Draft
from lastgood.engine.gather import CapturedFiles
from lastgood.engine.save import save_draft
from lastgood.errors import IntegrityError
from lastgood.files.plan import make_plan
from lastgood.model import tree as trees
from lastgood.model.checkpoint import FileRoot
from lastgood.model.identity import digest
from lastgood.model.tree import (
    Entry,
    File,
    Folder,
    Left,
    Link,
    differing_entries,
    encode_tree,
    one_by_one,
    open_differing,
    open_tree,
    parts_of,
    put_tree,
)

pytestmark = pytest.mark.once


class Blobs(dict[bytes, bytes]):
    """Blobs by id. `new`: those that the last `put_entries` brought; `asked`: what was read."""

    def __init__(self) -> None:
        self.new: list[bytes] = []
        self.asked: list[bytes] = []

    def put(self, data: bytes) -> bytes:
        key = digest(data)
        if key not in self:
            self.new.append(data)
        self[key] = data
        return key

    def put_entries(self, entries: Sequence[Entry]) -> bytes:
        self.new = []
        return put_tree(encode_tree(entries), self.put)

    def read(self, key: bytes) -> bytes:
        self.asked.append(key)
        return self[key]

    def open(self, key: bytes) -> trees.Tree:
        return open_tree(self[key], one_by_one(self.read))


def named(count: int, seed: int = 0) -> list[Entry]:
    dice = random.Random(seed)
    return [File(b"file-%06d.txt" % n, 0o644, dice.randrange(9999), dice.randbytes(32)) for n in range(count)]


def changed(entries: Sequence[Entry], at: int) -> list[Entry]:
    return [*entries[:at], File(entries[at].name, 0o644, 7, digest(b"%d" % at)), *entries[at + 1 :]]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make folders wide, and lists of their parts long, that are neither."""
    narrow_all(monkeypatch)


def narrow_all(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"WHOLE": 600, "PART": 200, "PART_MIN": 100, "PART_MAX": 800}
    sizes |= {"LIST_BELOW": 64, "LIST_MIN": 2, "LIST_MAX": 8}
    for name, size in sizes.items():
        monkeypatch.setattr(trees, name, size)


_NAMES = st.binary(min_size=1, max_size=12).filter(trees.is_name)
_ENTRIES = st.one_of(
    st.builds(File, _NAMES, st.just(0o644), st.integers(0, 1 << 40), st.binary(min_size=32, max_size=32)),
    st.builds(Folder, _NAMES, st.just(0o755), st.binary(min_size=32, max_size=32)),
    st.builds(Link, _NAMES, st.just(b"x" * 50)),
    st.builds(Left, _NAMES, st.just("ignored")),
)
_MANY = st.lists(_ENTRIES, max_size=120, unique_by=lambda entry: entry.name)


# --- trees ----------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(_MANY, _MANY, st.randoms())
def test_any_entries_come_back_and_their_id_depends_on_nothing_else(
    one: list[Entry], other: list[Entry], dice: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        narrow_all(patch)
        blobs = Blobs()
        olds, news = (sorted(entries, key=lambda entry: entry.name) for entries in (one, other))
        old = blobs.put_entries(one)
        new = blobs.put_entries(other)
        dice.shuffle(one)
        assert blobs.put_entries(one) == old
        assert blobs.open(old) == tuple(olds)
        assert blobs.open(new) == tuple(news)
        differing = open_differing(old, new, one_by_one(blobs.read))
        assert differing_entries(*differing) == differing_entries(tuple(olds), tuple(news))


def test_a_folder_that_is_not_wide_is_one_blob_as_ever() -> None:
    blobs = Blobs()
    entries = named(500)
    key = blobs.put_entries(entries)
    assert dict(blobs) == {key: encode_tree(entries)}


@pytest.mark.parametrize("change", ["content", "added", "removed"])
def test_one_change_among_fifty_thousand_costs_a_part_and_a_list(change: str) -> None:
    """Hostile use W4: it was 3 MB, 2 MB of them stored."""
    blobs = Blobs()
    entries = named(50_000)
    blobs.put_entries(entries)
    costs = []
    for at in range(500, 50_000, 5000):
        new = {
            "content": changed(entries, at),
            "added": [*entries, File(b"file-%06d-x" % at, 0o644, 1, bytes(32))],
            "removed": entries[:at] + entries[at + 1 :],
        }[change]
        blobs.put_entries(new)
        assert len(blobs.new) <= 4
        costs.append(sum(map(len, blobs.new)))
    assert sum(costs) / len(costs) < 40_000
    assert max(costs) < 80_000


def test_a_million_files_have_lists_of_parts_and_a_change_costs_a_part_and_two_lists() -> None:
    blobs = Blobs()
    entries: list[Entry] = [File(b"%07d" % n, 0o644, n, n.to_bytes(32, "big")) for n in range(1_000_000)]
    key = blobs.put_entries(entries)
    assert blobs[key][:2] == b"\x92\x03"
    assert blobs.open(key) == tuple(entries)
    blobs.put_entries(changed(entries, 500_000))
    assert len(blobs.new) <= 4
    assert sum(map(len, blobs.new)) < 80_000


def test_names_that_never_end_a_part_and_those_that_always_do_are_held_by_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for mark in (0, (1 << 32) - 1):
        monkeypatch.setattr(trees, "crc32", lambda data, mark=mark: mark)
        blobs = Blobs()
        key = blobs.put_entries(named(20_000))
        parts = [len(data) for data in blobs.values() if not parts_of(data)]
        assert len(blobs.open(key)) == 20_000
        assert min(sorted(parts)[1:]) >= trees.PART_MIN
        assert max(parts) < trees.PART_MAX + 100


def test_comparing_wide_folders_reads_only_the_parts_that_differ() -> None:
    blobs = Blobs()
    entries = named(50_000)
    old, new = blobs.put_entries(entries), blobs.put_entries(changed(entries, 25_000))
    (found,) = compare_trees(old, new, blobs.read)
    assert found.path == b"file-025000.txt"
    assert len(set(blobs.asked)) <= 20  # of 500


# --- hostile lists ----------------------------------------------------------------------------------------------


def list_of(layout: int, *parts: bytes) -> bytes:
    return msgspec.msgpack.encode((layout, b"".join(parts)))


def hostile(put: Callable[[bytes], bytes]) -> dict[str, bytes]:
    """Store lists of parts that no capture makes; return their ids."""
    first, second = (put(encode_tree([File(name, 0o644, 0, put(b""))])) for name in (b"a", b"b"))
    both, empty = put(encode_tree([File(name, 0o644, 0, put(b"")) for name in (b"a", b"b")])), put(encode_tree([]))
    listed = put(list_of(2, first, second))
    return {
        "out of order": put(list_of(2, second, first)),
        "twice": put(list_of(2, first, first)),
        "a name twice": put(list_of(2, both, second)),
        "empty": put(list_of(2)),
        "an empty part": put(list_of(2, first, empty)),
        "cut off": put(list_of(2, first, second)[:-1]),
        "an id cut off": put(list_of(2, first, second[:-1])),
        "no bytes": put(msgspec.msgpack.encode((2, 7))),
        "too deep": put(list_of(3, put(list_of(3, listed)))),
        "a list among parts": put(list_of(2, first, listed)),
        "a part among lists": put(list_of(3, listed, both)),
        "lists out of order": put(list_of(3, put(list_of(2, second)), put(list_of(2, first)))),
        "deeper than any": put(list_of(4, listed)),
    }


@pytest.mark.parametrize("kind", hostile(digest))
def test_lists_that_no_capture_makes_are_refused_by_all_and_told_by_check(kind: str, tmp_path: Path) -> None:
    blobs = Blobs()
    key = hostile(blobs.put)[kind]
    with pytest.raises(IntegrityError):
        blobs.open(key)
    with pytest.raises(IntegrityError):
        make_plan(key, None, blobs.read)
    with pytest.raises(IntegrityError):
        compare_trees(None, key, blobs.read)
    with lastgood.open(tmp_path / "store", user="ada", collect="never") as store:
        (work := tmp_path / "work").mkdir()
        task = store.task("t", workspace=work)
        gathered = Gathered([Blob(each, len(data), 0, data) for each, data in blobs.items()])
        captured = CapturedFiles((FileRoot("", key, False, 2, 0, None, None),), (), gathered, None, {})
        made = save_draft(task._handle, Draft(state={}, files=captured), "raise")
        assert "tree" in {finding.code for finding in store.check().findings}
        assert store.check_checkpoint(made.id).problems
        with pytest.raises(IntegrityError):
            task.copy_files(made, tmp_path / "copy")


def test_a_list_that_says_one_part_a_million_times_is_refused_before_any_is_read() -> None:
    blobs = Blobs()
    part = blobs.put(encode_tree(named(1)))
    with pytest.raises(IntegrityError):
        blobs.open(blobs.put(list_of(2, *[part] * 1_000_000)))
    assert blobs.asked == []


# --- stores -----------------------------------------------------------------------------------------------------

FILES = 2000


class Work:
    """A wide folder, saved twice; one file differs."""

    def __init__(self, folder: Path) -> None:
        self.place, self.folder = folder / "store", folder / "work"
        (self.folder / "wide").mkdir(parents=True)
        for number in range(FILES):
            self.file(number).write_text(str(number))
        self.store = lastgood.open(self.place, user="ada", collect="never")
        self.task = self.store.task("t", workspace=self.folder)
        self.first = self.task.save({})
        self.file(1000).write_text("other")
        self.second = self.task.save({})

    def file(self, number: int) -> Path:
        return self.folder / "wide" / f"file-{number:06}.txt"

    def parts(self, checkpoint: lastgood.Checkpoint) -> set[bytes]:
        (root,) = checkpoint.record.files or ()
        (wide,) = self.store._engine.blobs.read_tree(root.tree)
        assert isinstance(wide, Folder)
        return set(self.store._engine.blobs.list_parts(wide.tree))


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path)
    yield made
    made.store.close()


def test_a_second_save_brings_what_changed_and_both_come_back(work: Work) -> None:
    """Hostile use W4, end to end."""
    first, second = work.parts(work.first), work.parts(work.second)
    assert len(first) > 5
    assert len(second - first) == 1
    (change,) = work.task.diff(work.first, work.second).files.changes
    assert change.path == "wide/file-001000.txt"
    assert work.store.check(read_data=True).ok
    assert not work.store.check_checkpoint(work.first.id).problems
    work.task.restore(work.first)
    assert work.file(1000).read_text() == "1000"
    work.file(7).unlink()
    work.task.restore(work.second)
    assert work.file(1000).read_text() == "other"
    assert work.file(7).read_text() == "7"
    assert len(work.store.list_files(work.second.id, "wide")) == FILES


@pytest.mark.usefixtures("narrow")
def test_so_do_folders_with_lists_of_parts(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert len(work.parts(work.second) - work.parts(work.first)) <= 2
    assert work.store.check(read_data=True).ok
    work.task.restore(work.first)
    assert work.file(1000).read_text() == "1000"
    work.store.close()


def test_collecting_keeps_the_parts_that_a_checkpoint_needs_and_no_others(work: Work) -> None:
    first, second = work.parts(work.first), work.parts(work.second)
    work.store.purge_checkpoint(work.first.id)
    for _ in range(2):
        work.store.collect(grace=0)
    assert work.store._engine.blobs.has(first | second) == second
    assert work.store.check(read_data=True).ok
    assert not work.store.check_checkpoint(work.second.id).problems


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_damaged_part_is_found_and_named_with_its_folder(work: Work, how: str, tmp_path: Path) -> None:
    (part,) = work.parts(work.second) - work.parts(work.first)
    work.store.close()
    assert ask(work.place, "SELECT count(*) FROM blobs WHERE digest = ? AND pack IS NULL", part) == 1
    sql = {"missing": "DELETE FROM blobs", "damaged": "UPDATE blobs SET data = zeroblob(length(data))"}[how]
    tamper(work.place, f"{sql} WHERE digest = ?", part)
    with lastgood.open(work.place, user="ada", collect="never") as store:
        task = store.task("t", workspace=work.folder)
        (finding,) = store.check(read_data=True).findings
        assert [(use.id, use.parts) for use in finding.uses] == [(work.second.id, ("wide/",))]
        assert not store.check_checkpoint(work.first.id).problems
        (problem,) = store.check_checkpoint(work.second.id).problems
        assert problem.startswith("wide/: ")
        with pytest.raises(IntegrityError):
            task.copy_files(work.second, tmp_path / "copy")
        work.file(1000).write_text("third")
        assert not store.check_checkpoint(task.save({}).id).problems


def test_damage_in_several_parts_that_is_one_finding_counts_the_files_of_all(work: Work) -> None:
    lost = range(0, FILES, 20)
    work.store.close()
    for number in lost:
        tamper(work.place, "DELETE FROM blobs WHERE digest = ?", digest(str(number).encode()))
    with lastgood.open(work.place, user="ada", collect="never") as store:
        (finding,) = store.check().findings
    assert [len(use.parts) + use.more for use in finding.uses] == [len(lost), len(lost) - 1]  # 1000 is another by then
    assert all(part.startswith("wide/file-") for use in finding.uses for part in use.parts)
