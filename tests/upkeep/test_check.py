"""`store.check`: a sound store is clean, and each kind of damage is named exactly, with who needs what is damaged."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.damage import CATALOG, ask, copy, fill, flip, pack_file, tamper

import lastgood
from lastgood.codec.pack import PackWriter, pack_name, read_index
from lastgood.model.identity import digest as digest_of
from lastgood.model.identity import digest_text
from lastgood.opening import check_at
from lastgood.types import CheckReport
from lastgood.upkeep import data_check


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    fill(folder)
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return copy(sound, tmp_path / "store")


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every store for so large that another process reads its content."""
    monkeypatch.setattr(data_check, "MANY_BYTES", 0)


def check(store: Path, *, read_data: bool = False) -> CheckReport:
    with lastgood.open(store, user="ada") as opened:
        return opened.check(read_data=read_data)


def codes(report: CheckReport) -> list[str]:
    return [finding.code for finding in report.findings]


def checkpoint(store: Path, task: str = "work", sequence: int = 4) -> str:
    sql = "SELECT c.id FROM checkpoints c JOIN tasks t ON t.task = c.number >> 32 WHERE t.id = ? AND t.owner = 'ada' "
    return str(ask(store, sql + "AND c.number & 0xffffffff = ?", task, sequence))


# --- a sound store -------------------------------------------------------------------------------------------


def test_a_sound_store_with_something_of_everything_is_clean(store: Path) -> None:
    """Issue 3, I3: branches, restores, purges, deletes, tags, steps, evidence, packs, inline and large files."""
    for read_data in (False, True):
        report = check(store, read_data=read_data)
        assert report.ok
        assert [one.damaged for one in report.standings] == [0, 0, 0, 0, 0]
        assert all(one.head_intact and one.newest_intact for one in report.standings)


def test_what_was_looked_at_is_counted(store: Path) -> None:
    by_structure, by_bytes = check(store).looked_at, check(store, read_data=True).looked_at
    assert by_structure.checkpoints == ask(store, "SELECT count(*) FROM checkpoints")
    assert by_structure.blobs == ask(store, "SELECT count(*) FROM blobs")
    assert (by_structure.blobs_read, by_structure.bytes_read) == (0, 0)
    assert by_bytes.blobs_read == by_bytes.blobs
    assert by_bytes.bytes_read > 1_500_000


def test_checking_changes_nothing(store: Path) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != f"{CATALOG}-shm"}
    check(store, read_data=True)
    assert {path: path.read_bytes() for path in before} == before


def test_a_store_in_memory_is_checked_as_any_other() -> None:
    with lastgood.open(":memory:", user="ada") as opened:
        opened.task("t").save({"text": "x" * 10_000})
        assert opened.check(read_data=True).ok


def test_an_empty_store_is_clean(tmp_path: Path) -> None:
    report = check(tmp_path / "new", read_data=True)
    assert report.ok
    assert report.standings == ()


def test_progress_tells_how_many_bytes_are_read_of_how_many(store: Path) -> None:
    told: list[tuple[int, int]] = []
    with lastgood.open(store, user="ada") as opened:
        opened.check(read_data=True, progress=lambda done, total: told.append((done, total)))
    assert told
    assert told[-1][0] == told[-1][1] > 1_000_000


def test_a_large_store_is_read_by_another_process_as_this_one_would(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = check(store, read_data=True)
    monkeypatch.setattr(data_check, "MANY_BYTES", 0)
    monkeypatch.delattr("lastgood.upkeep.check.check_pack_content")
    told: list[tuple[int, int]] = []
    with lastgood.open(store, user="ada") as opened:
        assert opened.check(read_data=True, progress=lambda done, total: told.append((done, total))) == alone
    assert told[-1][0] == told[-1][1] > 1_000_000


@pytest.mark.parametrize("where", ["pack", "catalog"])
def test_what_another_process_finds_damaged_is_told_as_if_this_one_had_read_it(
    store: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "pack":
        flip(pack_file(store), 2000)
    else:
        tamper(store, "UPDATE blobs SET data = zeroblob(length(data)) WHERE pack IS NULL AND partition = 0")
    alone = check(store, read_data=True)
    monkeypatch.setattr(data_check, "MANY_BYTES", 0)
    assert not alone.ok
    assert check(store, read_data=True) == alone


def test_a_check_reads_everything_itself_when_the_other_process_dies(
    store: Path, many: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[data_check.DataCheck] = []

    def die(self: data_check.DataCheck, *_: object) -> None:
        begun.append(self)
        self.kill()

    monkeypatch.setattr(data_check.DataCheck, "begin", die)
    report = check(store, read_data=True)
    assert begun
    assert report.ok
    assert report.looked_at.blobs_read == report.looked_at.blobs


def test_a_check_beside_saves_restores_and_purges_finds_nothing(tmp_path: Path, many: None) -> None:
    """It needs nobody to stop: what comes and goes meanwhile is no damage."""
    work = tmp_path / "work"
    work.mkdir()
    reports: list[CheckReport] = []
    over = threading.Event()
    with lastgood.open(tmp_path / "store", user="ada") as opened:

        def check_again_and_again() -> None:
            while not over.is_set() or not reports:
                reports.append(opened.check(read_data=True))

        checking = threading.Thread(target=check_again_and_again)
        checking.start()
        task = opened.task("t", workspace=work)
        made = []
        for number in range(25):
            (work / f"{number}.bin").write_bytes(os.urandom(300_000 if number % 3 else 10))
            made.append(task.save({"log": ["entry"] * number * 50}))
            if number % 5 == 4:
                opened.purge_checkpoint(made[number - 3].id)
                task.restore(made[number - 1].id)
        over.set()
        checking.join()
    assert [finding for report in reports for finding in report.findings] == []


# --- records and books ---------------------------------------------------------------------------------------

WORK = "(SELECT task FROM tasks WHERE id = 'work' AND owner = 'ada')"
AT = f"number = ({WORK} << 32) + 4"
VERIFIED = "(SELECT min(number) FROM checkpoints WHERE verified = 1)"
FREE = f"number = ({WORK} << 32) + 2"


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        (f"UPDATE checkpoints SET record = substr(record, 1, length(record) - 1) || x'00' WHERE {AT}", "record"),
        (f"UPDATE checkpoints SET record = x'' WHERE {AT}", "record"),
        (f"UPDATE checkpoints SET checksum = zeroblob(32) WHERE {AT}", "record"),
        (f"UPDATE checkpoints SET placement = zeroblob(32) WHERE {AT}", "placement"),
        (f"UPDATE checkpoints SET version = version + 1 WHERE {AT}", "placement"),
        (f"UPDATE checkpoints SET last_event = last_event + 1 WHERE {AT}", "placement"),
        (f"UPDATE checkpoints SET root = zeroblob(root_size), encoding = 0 WHERE {AT}", "state"),
        (f"UPDATE checkpoints SET root = NULL WHERE {AT}", "state"),
        (f"UPDATE checkpoints SET root_size = root_size + 1 WHERE {AT}", "state"),
        (f"UPDATE attestations SET actor = 'mallory' WHERE checkpoint = ({WORK} << 32) + 4", "attestation"),
        (f"UPDATE attestations SET data = x'c1' WHERE checkpoint = ({WORK} << 32) + 4", "attestation"),
    ],
)
def test_damage_in_a_checkpoints_own_row_is_named_with_that_checkpoint(store: Path, sql: str, code: str) -> None:
    """A4: record, checksum, place, state, attestations; nothing else is said, and no other checkpoint is affected."""
    sql = sql.replace("SET record = substr", "SET record = CAST(substr").replace("|| x'00'", "|| x'00' AS BLOB)")
    tamper(store, sql)
    report = check(store)
    (finding,) = report.findings
    id_ = checkpoint(store)
    assert (finding.code, finding.kind, finding.name, finding.task_id) == (code, "checkpoint", id_, "work")
    assert finding.checkpoints == (id_,)
    standing = report.standings[0]
    assert (standing.damaged, standing.head_intact) == (1, True)
    assert standing.newest_intact != id_


@pytest.mark.parametrize(
    ("sql", "code", "name"),
    [
        (f"UPDATE tasks SET checkpoints = checkpoints + 1 WHERE task = {WORK}", "counter", "work"),
        (f"UPDATE tasks SET last_sequence = last_sequence - 1 WHERE task = {WORK}", "counter", "work"),
        (f"UPDATE tasks SET last_event = last_event - 1 WHERE task = {WORK}", "counter", "work"),
        (f"UPDATE tasks SET active_branch = 999 WHERE task = {WORK}", "task", "work"),
        (f"UPDATE branches SET own = own + 1 WHERE task = {WORK} AND name = 'side'", "counter", None),
        (f"UPDATE branches SET inherited = 0 WHERE task = {WORK} AND name = 'side'", "counter", None),
        (f"UPDATE branches SET head = 1 WHERE task = {WORK} AND name = 'side'", "counter", None),
        (f"UPDATE branches SET version = 7 WHERE task = {WORK} AND name = 'side'", "counter", None),
        (f"UPDATE branches SET origin_id = 'x' WHERE task = {WORK} AND name = 'side'", "branch", None),
        (f"UPDATE checkpoints SET deleted = 1 WHERE {FREE}", "derived", None),
        (f"UPDATE checkpoints SET verified = 1 WHERE {FREE}", "derived", None),
        (f"UPDATE checkpoints SET type = 'other' WHERE {FREE}", "derived", None),
        (f"UPDATE checkpoints SET verified_at = 1 WHERE number = {VERIFIED}", "derived", None),
        ("UPDATE checkpoints SET deleted = 0 WHERE deleted = 1 AND id = :deleted", "derived", None),
        ("DELETE FROM keys WHERE key = 'key 3'", "key", "key 3"),
        ("UPDATE keys SET number = number + 1 WHERE key = 'key 3'", "key", "key 3"),
        ("INSERT INTO keys SELECT task, 'invented', number FROM keys WHERE key = 'key 3'", "key", "invented"),
        ("DELETE FROM tags WHERE name = 'green'", "tag", "green"),
        ("UPDATE tags SET number = number - 1 WHERE name = 'green'", "tag", "green"),
        ("INSERT INTO tags SELECT task, 'invented', number FROM tags", "tag", "invented"),
        (f"DELETE FROM events WHERE number IN (SELECT min(number) FROM events WHERE number >> 32 = {WORK})", "event",
         "work"),
        (f"DELETE FROM events WHERE kind = 'created' AND number >> 32 = {WORK}", "event", "work"),
        ("DELETE FROM events WHERE number >> 32 = 0", "event", "store"),
        ("UPDATE moves SET from_branch = 999 WHERE number = 1 AND task = " + WORK, "move", "work 1"),
        ("UPDATE workspaces SET branch = 999 WHERE task = " + WORK, "workspace", None),
        ("UPDATE steps SET step = x'c1'", "step", None),
        ("INSERT INTO journals VALUES ('j', 'ada', 'work', 1, x'c1', NULL, NULL)", "journal", "j"),
    ],
)  # fmt: skip
def test_books_that_disagree_are_named_and_no_checkpoint_is_the_worse_for_it(
    store: Path, sql: str, code: str, name: str | None
) -> None:
    """Counters, marks, keys, tags, moves and the log serve only to find things."""
    deleted = ask(store, "SELECT id FROM checkpoints WHERE deleted = 1 AND number >> 32 = " + WORK)
    tamper(store, sql.replace(":deleted", f"'{deleted}'"))
    report = check(store)
    (finding,) = report.findings
    assert finding.code == code
    assert name is None or finding.name == name
    assert finding.uses == ()
    assert [one.damaged for one in report.standings] == [0, 0, 0, 0, 0]


def test_a_verification_that_is_gone_shows_in_what_is_listed(store: Path) -> None:
    tamper(store, "DELETE FROM attestations WHERE kind = 'verification' AND number = 2")
    assert codes(check(store)) == ["derived"]


def test_an_attestation_that_is_gone_from_the_middle_is_noticed(store: Path) -> None:
    tamper(store, "DELETE FROM attestations WHERE kind = 'verification' AND number = 1 AND checkpoint IN "
                  "(SELECT checkpoint FROM attestations WHERE number = 2)")  # fmt: skip
    assert codes(check(store)) == ["attestation"]


def test_a_checkpoint_that_is_gone_is_named_by_its_place(store: Path) -> None:
    """Sequences are dense: a row that is gone leaves a hole. Its children are whole; that is said once."""
    tamper(store, f"DELETE FROM checkpoints WHERE {FREE}")
    report = check(store)
    (finding,) = report.findings
    assert (finding.code, finding.name, finding.task_id) == ("missing", "@2", "work")
    assert [(use.id, use.sequence) for use in finding.uses] == [(None, 2)]


def test_a_parent_that_was_made_anew_is_noticed(store: Path) -> None:
    """A4: lineage is hash-linked."""
    other = f"SELECT checksum FROM checkpoints WHERE number = ({WORK} << 32) + 1"
    tamper(store, f"UPDATE checkpoints SET checksum = ({other}), record = NULL, root = NULL, deleted = 2 WHERE {FREE}")
    report = check(store)
    assert "parent" in codes(report)
    assert checkpoint(store, sequence=3) in _damaged(report)


def test_a_task_whose_row_is_gone_is_noticed(store: Path) -> None:
    tamper(store, "DELETE FROM tasks WHERE id = 'branches'")
    assert codes(check(store)) == ["task"]


# --- parts of values -----------------------------------------------------------------------------------------


TALK = "partition = (SELECT task FROM tasks WHERE id = 'talk')"


@pytest.mark.parametrize("table", ["blobs", "slices"])
@pytest.mark.parametrize("how", ["DELETE FROM {}", "UPDATE {} SET size = size + 100000"])
def test_a_part_of_a_state_that_is_gone_is_named_with_all_who_need_it(store: Path, table: str, how: str) -> None:
    """B9: which blob, which checkpoints, which of their values."""
    of = TALK + (" AND blob NOT IN (SELECT whole FROM slices)" if table == "blobs" else "")
    digest = ask(store, f"SELECT digest FROM {table} WHERE {of}")
    tamper(store, how.format(table) + " WHERE digest = ?", digest)
    report = check(store, read_data=True)
    (finding,) = report.findings
    assert finding.code in ("blob_missing", "blob_damaged")
    assert finding.name == digest_text(digest)
    assert finding.blobs == (digest_text(digest),)
    assert set(finding.checkpoints) == _checkpoints_that_refuse(store) != set()
    assert {part for use in finding.uses for part in use.parts} == {"state"}


def _damaged(report: lastgood.types.CheckReport) -> set[str]:
    return {id_ for finding in report.findings for id_ in finding.checkpoints}


def _checkpoints_that_refuse(store: Path) -> set[str]:
    """Those that `check_checkpoint`, which knows nothing of `check`, finds something wrong with."""
    with lastgood.open(store, user="ada") as opened:
        ids = [one.id for task in opened.tasks(owner="ada") for one in opened.list_checkpoints(task.id)]
        return {id_ for id_ in ids if opened.check_checkpoint(id_, evidence=False).problems}


def test_a_part_whose_bytes_changed_is_found_by_reading_data(store: Path) -> None:
    digest = ask(store, f"SELECT digest FROM blobs WHERE {TALK} AND blob IN (SELECT whole FROM slices)")
    tamper(store, "UPDATE blobs SET data = zeroblob(size), encoding = 0 WHERE digest = ?", digest)
    report = check(store, read_data=True)
    assert set(codes(report)) == {"blob_damaged"}
    assert digest_text(digest) in {finding.name for finding in report.findings}
    assert _damaged(report) == _checkpoints_that_refuse(store) != set()


@pytest.mark.parametrize("change", ["data = NULL", "data = x'00', encoding = 0", "encoding = 9"])
def test_a_part_that_cannot_be_what_it_was_is_named(store: Path, change: str) -> None:
    digest = ask(store, f"SELECT digest FROM blobs WHERE {TALK} AND blob NOT IN (SELECT whole FROM slices)")
    tamper(store, f"UPDATE blobs SET {change} WHERE digest = ?", digest)
    (finding,) = check(store, read_data="9" in change).findings
    assert (finding.name, finding.task_id) == (digest_text(digest), "talk")
    assert set(finding.checkpoints) == _checkpoints_that_refuse(store) != set()


def test_whichever_part_is_gone_those_who_cannot_be_read_without_it_are_named(store: Path, tmp_path: Path) -> None:
    """At any depth: pieces, runs, nodes, parts of elements. No more and no fewer than refuse to be read."""
    sql = "SELECT group_concat(hex(digest)) FROM blobs WHERE partition > 0 AND blob NOT IN (SELECT whole FROM slices)"
    digests = [bytes.fromhex(text) for text in ask(store, sql).split(",")]
    for number, digest in enumerate(digests[:: max(1, len(digests) // 12)]):
        damaged = tmp_path / f"copy {number}"
        shutil.copytree(store, damaged)
        tamper(damaged, "DELETE FROM blobs WHERE partition > 0 AND digest = ?", digest)
        damaged_ones = _damaged(check(damaged)) - _deleted(damaged)
        assert damaged_ones == _checkpoints_that_refuse(damaged), digest.hex()


def test_damage_in_a_larger_part_spares_what_lies_by_itself_too(store: Path) -> None:
    own = "SELECT s.whole FROM slices s JOIN blobs b USING (partition, digest)"
    digest = ask(store, f"SELECT digest FROM blobs WHERE partition = {WORK} AND blob IN ({own})")
    tamper(store, "UPDATE blobs SET data = zeroblob(size), encoding = 0 WHERE digest = ?", digest)
    report = check(store, read_data=True)
    assert report.findings
    assert _damaged(report) - _deleted(store) == _checkpoints_that_refuse(store) != set()


def test_a_part_that_lies_by_itself_and_in_another_is_read_from_where_it_is_whole(store: Path) -> None:
    """As readers do: a slice is looked for only where there is no blob of its own."""
    sql = f"SELECT digest FROM slices WHERE partition = {WORK} AND digest IN (SELECT digest FROM blobs)"
    tamper(store, "DELETE FROM slices WHERE digest = ?", ask(store, sql))
    assert check(store, read_data=True).ok


def test_a_damaged_companion_is_named_as_such(store: Path) -> None:
    task = "(SELECT task FROM tasks WHERE id = 'branches')"
    digest = ask(store, f"SELECT digest FROM blobs WHERE partition = {task}")
    tamper(store, "DELETE FROM blobs WHERE digest = ?", digest)
    (finding,) = check(store).findings
    assert {part for use in finding.uses for part in use.parts} == {"artifacts"}


# --- files and packs -----------------------------------------------------------------------------------------


def _entry(store: Path, kind: Callable[[bytes], bool]) -> tuple[str, int, int]:
    """A blob of the pack whose stored bytes are of a kind: its id as text, position and length."""
    data = pack_file(store).read_bytes()
    for entry in read_index(lambda start, length: data[start : start + length], len(data)).entries:
        if kind(data[entry.position : entry.position + entry.length]):
            return digest_text(entry.blob_id), entry.position, entry.length
    raise AssertionError("there is no such blob")


def test_a_flipped_bit_in_content_is_found_by_reading_data_and_named_with_paths(store: Path, sound: Path) -> None:
    """Issue 3: the damaged checkpoint, blob and file; and what still works."""
    content = (sound / "work" / "part 1" / "more 1" / "1.bin").read_bytes()
    name, position, length = _entry(store, lambda stored: stored == content)
    flip(pack_file(store), position + length // 2)
    assert check(store).ok
    report = check(store, read_data=True)
    (finding,) = report.findings
    assert (finding.code, finding.kind, finding.name) == ("blob_damaged", "blob", name)
    assert {part for use in finding.uses for part in use.parts} == {"part 1/more 1/1.bin"}
    assert set(finding.checkpoints) == _checkpoints_that_refuse(store) | _deleted(store)
    assert {use.task_id for use in finding.uses} == {"work", "evidence"}
    assert [one.newest_intact is None for one in report.standings] == [True, False, True, False, False]


def _deleted(store: Path) -> set[str]:
    return {str(ask(store, f"SELECT id FROM checkpoints WHERE deleted = 1 AND number >> 32 = {WORK}"))}


def test_a_flipped_bit_in_a_directory_is_found_by_structure(store: Path) -> None:
    name, position, length = _entry(store, lambda stored: b"1.bin" in stored and b"4.bin" not in stored)
    flip(pack_file(store), position + length - 3)
    report = check(store)
    (finding,) = report.findings
    assert (finding.code, finding.name) == ("blob_damaged", name)
    (part,) = {part for use in finding.uses for part in use.parts}
    assert part.startswith("part 1/more ")
    assert part.endswith("/")


def test_a_chunk_of_a_large_file_is_named_with_the_file(store: Path, sound: Path) -> None:
    content = (sound / "work" / "big.bin").read_bytes()
    _, position, length = _entry(store, lambda stored: len(stored) > 10_000 and stored in content)
    flip(pack_file(store), position + length - 1)
    (finding,) = check(store, read_data=True).findings
    assert {part for use in finding.uses for part in use.parts} == {"big.bin"}


def test_a_chunk_that_the_catalog_has_lost_is_found_by_structure(store: Path) -> None:
    digest = ask(store, "SELECT digest FROM blobs WHERE partition = 0 AND size > 200000")
    tamper(store, "DELETE FROM blobs WHERE digest = ?", digest)
    (finding,) = check(store).findings
    assert (finding.code, finding.name) == ("blob_missing", digest_text(digest))
    assert {part for use in finding.uses for part in use.parts} == {"big.bin"}


def test_a_damaged_copy_of_a_blob_that_is_read_from_elsewhere_hurts_nobody(store: Path, sound: Path) -> None:
    content = (sound / "work" / "part 1" / "more 1" / "1.bin").read_bytes()
    written: list[bytes] = []
    writer = PackWriter(written.append)
    writer.add(digest_of(content), content)
    index = writer.finish()
    assert index.digest is not None
    copied = store / "objects" / pack_name(index.digest)
    copied.parent.mkdir(exist_ok=True)
    copied.write_bytes(b"".join(written))
    tamper(store, "INSERT INTO packs (name, size, created_at) VALUES (?, ?, 1)", pack_name(index.digest), index.size)
    assert check(store, read_data=True).ok
    flip(copied, index.entries[0].position + 7)
    (finding,) = check(store, read_data=True).findings
    assert (finding.code, finding.name, finding.uses) == ("pack_damaged", pack_name(index.digest), ())


def test_a_damaged_index_of_a_pack_is_named_and_its_blobs_are_not(store: Path) -> None:
    pack = pack_file(store)
    flip(pack, -60)
    for read_data in (False, True):
        (finding,) = check(store, read_data=read_data).findings
        assert (finding.code, finding.name) == ("pack_index", f"packs/{pack.parent.name}/{pack.name}")
        assert (finding.uses, finding.blobs) == ((), ())


@pytest.mark.parametrize("position", [0, 5, 20, 56])
def test_a_flipped_bit_between_the_blobs_of_a_pack_is_found_and_nobody_needs_it(store: Path, position: int) -> None:
    flip(pack_file(store), position)
    (finding,) = check(store, read_data=True).findings
    assert (finding.code, finding.uses) == ("pack_damaged", ())


def test_every_region_of_a_pack_is_covered(store: Path) -> None:
    """G6: whichever byte changes, reading data finds it."""
    pack = pack_file(store)
    whole = pack.read_bytes()
    for position in range(0, len(whole), len(whole) // 60):
        flip(pack, position)
        assert not check(store, read_data=True).ok, position
        pack.write_bytes(whole)


def test_a_pack_that_is_gone_is_one_finding_with_all_that_it_held(store: Path) -> None:
    pack = pack_file(store)
    pack.unlink()
    report = check(store)
    (finding,) = report.findings
    assert (finding.code, finding.kind) == ("pack_missing", "pack")
    assert len(finding.blobs) == ask(store, "SELECT count(*) FROM blobs WHERE pack IS NOT NULL")
    assert set(finding.checkpoints) == _checkpoints_that_refuse(store) | _deleted(store)


def test_a_pack_that_was_cut_off_loses_what_lay_behind(store: Path) -> None:
    pack = pack_file(store)
    os.truncate(pack, pack.stat().st_size // 2)
    for read_data in (False, True):
        (finding,) = check(store, read_data=read_data).findings
        assert finding.code == "pack_size"
        half = "SELECT count(*) FROM blobs WHERE pack IS NOT NULL AND position + length > ?"
        assert len(finding.blobs) == ask(store, half, pack.stat().st_size) > 0
        assert set(finding.checkpoints) == _checkpoints_that_refuse(store) | _deleted(store)


@pytest.mark.parametrize(
    "change", ["position = position + 1", "length = length - 1", "size = size + 1", "encoding = 1 - encoding"]
)
def test_a_row_that_contradicts_its_pack_is_named(store: Path, change: str) -> None:
    digest = ask(store, "SELECT digest FROM blobs WHERE pack IS NOT NULL AND size = 3000")
    tamper(store, f"UPDATE blobs SET {change} WHERE digest = ?", digest)
    (finding,) = check(store).findings
    assert (finding.code, finding.name) == ("blob_place", digest_text(digest))
    assert set(finding.checkpoints) == _checkpoints_that_refuse(store) | _deleted(store)


def test_content_that_the_catalog_has_lost_is_named_with_paths(store: Path) -> None:
    digest = ask(store, "SELECT digest FROM blobs WHERE pack IS NULL AND partition = 0 AND size = 2000")
    tamper(store, "DELETE FROM blobs WHERE digest = ?", digest)
    (finding,) = check(store).findings
    assert (finding.code, finding.name) == ("blob_missing", digest_text(digest))
    assert {part for use in finding.uses for part in use.parts} == {"part 0/more 0/0.bin"}


def test_many_lost_blobs_are_told_together(store: Path) -> None:
    tamper(store, "DELETE FROM blobs WHERE partition = 0 AND size = 3000")
    (finding,) = check(store).findings
    assert (finding.code, len(finding.blobs)) == ("blob_missing", 119)
    assert "119 blobs" in finding.sentence
    assert len(finding.uses[0].parts) >= 119


def test_a_pack_that_the_catalog_does_not_know_any_more_takes_its_blobs_along(store: Path) -> None:
    tamper(store, "DELETE FROM packs")
    report = check(store)
    assert set(codes(report)) == {"blob_place"}


def test_a_condemned_blob_is_normal(store: Path) -> None:
    tamper(store, "UPDATE blobs SET condemned = 1")
    assert check(store, read_data=True).ok


# --- the database itself -------------------------------------------------------------------------------------


def test_a_damaged_page_is_told_and_all_that_can_be_read_is_checked_all_the_same(store: Path) -> None:
    """Whatever page it is: check never raises, and never calls it clean."""
    file = store / CATALOG
    whole = file.read_bytes()
    for page in range(2, len(whole) // 4096, max(1, len(whole) // 4096 // 40)):
        flip(file, page * 4096 + 2000)
        report = check_at(store)
        assert "database" in codes(report), page
        file.write_bytes(whole)


def test_a_damaged_page_of_checkpoints_hides_only_those_on_it(sound: Path, tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", user="ada") as opened:
        task = opened.task("t")
        for number in range(200):
            task.save({"n": number, "text": os.urandom(200).hex()})
        opened._engine.catalog._database._commits = 1000  # type: ignore[attr-defined]
    file = tmp_path / "store" / CATALOG
    middle = ask(tmp_path / "store", "SELECT pageno FROM dbstat WHERE name = 'checkpoints' AND pagetype = 'leaf' "
                                     "ORDER BY path LIMIT 1 OFFSET 10")  # fmt: skip
    flip(file, (middle - 1) * 4096 + 3000)
    report = check(tmp_path / "store")
    assert set(codes(report)) == {"database", "missing"}
    gone = {use.sequence for finding in report.findings for use in finding.uses}
    assert 0 < len(gone) < 20
    assert report.looked_at.checkpoints == 200 - len(gone)
    assert report.standings[0].head_intact


def test_lost_commits_are_told_and_the_rest_is_checked(sound: Path, tmp_path: Path) -> None:
    """One flipped bit in the log drops every later commit; only the witness shows it."""
    folder = tmp_path / "store"
    with lastgood.open(folder, user="ada") as opened:
        task = opened.task("t")
        for number in range(10):
            task.save({"n": number})
        shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    log = tmp_path / "copy" / f"{CATALOG}-wal"
    os.truncate(log, log.stat().st_size - 5000)
    report = check(tmp_path / "copy")
    assert codes(report) == ["lost_commits"]
    assert report.standings[0].head_intact
    assert report.looked_at.checkpoints < 10
