"""`store.repair`: what is damaged is had again from wherever it still is, and what is lost is told, never made up."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.damage import CATALOG, ask, copy, fill, flip, pack_file, tamper
from tests.support.outages import open_store

import lastgood
from lastgood import IntegrityError, LostCommitsError, UnavailableError
from lastgood.catalog.sqlite import database
from lastgood.codec.pack import read_index
from lastgood.model.identity import SHA256, digest_text
from lastgood.types import RepairReport
from lastgood.upkeep import repair as repairing
from lastgood.upkeep.check import examine
from lastgood.upkeep.salvage import BlobSearch, Quarantine


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    fill(folder)
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy whose workspaces are not there any more: nothing but the store itself can help."""
    made = copy(sound, tmp_path / "store")
    tamper(made, "UPDATE workspaces SET path = '/nowhere/' || path")
    return made


@pytest.fixture
def with_workspace(sound: Path, tmp_path: Path) -> Path:
    return copy(sound, tmp_path / "store")


def repair(store: Path, **how: Any) -> RepairReport:
    with lastgood.open(store, user="ada") as opened:
        return opened.repair(**how)


def everything(store: Path) -> dict[str, Any]:
    """All states and files of all checkpoints that can be read, by id."""
    found: dict[str, Any] = {}
    with lastgood.open(store, user="ada", cache_checkpoints=0) as opened:
        for task in opened.tasks():
            for one in opened.list_checkpoints(task.id, owner=task.owner):
                if not opened.check_checkpoint(one.id, owner=task.owner, evidence=False).problems:
                    found[one.id] = repr(one.state)
    return found


def is_clean(store: Path) -> bool:
    with lastgood.open(store, user="ada") as opened:
        return opened.check(read_data=True).ok


# --- nothing to do -------------------------------------------------------------------------------------------


def test_a_sound_store_is_left_alone(store: Path) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and "-shm" not in path.name}
    report = repair(store)
    assert report.ok
    assert (report.mended, report.lost, report.accepted, report.quarantine) == ((), (), 0, None)
    assert {path: path.read_bytes() for path in before} == before


# --- books ---------------------------------------------------------------------------------------------------

WORK = "(SELECT task FROM tasks WHERE id = 'work' AND owner = 'ada')"


@pytest.mark.parametrize(
    "sql",
    [
        f"UPDATE tasks SET checkpoints = 99 WHERE task = {WORK}",
        f"UPDATE tasks SET last_sequence = last_sequence - 1 WHERE task = {WORK}",
        f"UPDATE tasks SET last_event = 1 WHERE task = {WORK}",
        "UPDATE branches SET own = 0, inherited = 77, head = 1, version = 9",
        "UPDATE checkpoints SET deleted = 1 - deleted WHERE deleted < 2",
        "UPDATE checkpoints SET verified = 1 - verified, verified_at = 5 WHERE deleted < 2",
        "UPDATE checkpoints SET type = 'other'",
        f"UPDATE checkpoints SET checksum = zeroblob(32) WHERE number = ({WORK} << 32) + 4",
        "DELETE FROM keys",
        "DELETE FROM tags",
        "INSERT INTO tags SELECT task, 'invented', number FROM tags",
        "UPDATE keys SET number = number + 1",
        f"UPDATE moves SET from_branch = 999 WHERE task = {WORK}",
        "UPDATE workspaces SET branch = 999",
        "UPDATE steps SET step = x'c1'",
        "INSERT INTO journals VALUES ('j', 'ada', 'work', 1, x'c1', NULL, NULL)",
    ],
)
def test_books_are_rebuilt_from_records_and_attestations(store: Path, sql: str) -> None:
    """Issue 4: derived tables from records; a copy of what was there is kept."""
    whole = everything(store)
    tamper(store, sql)
    report = repair(store)
    assert report.ok
    assert report.mended
    assert is_clean(store)
    assert everything(store) == whole
    assert report.quarantine is not None
    assert (Path(report.quarantine) / CATALOG).stat().st_size > 0


def test_the_active_branch_is_found_again(store: Path) -> None:
    tamper(store, f"UPDATE tasks SET active_branch = 999 WHERE task = {WORK}")
    assert repair(store).ok
    with lastgood.open(store, user="ada") as opened:
        opened.task("work").save({"goes": "on"})


def test_a_repair_stands_in_the_stores_own_log(store: Path) -> None:
    tamper(store, "DELETE FROM tags")
    repair(store)
    with lastgood.open(store, user="ada") as opened:
        assert [event.kind for event in opened._engine.catalog.events(None)][-1] == "repaired"


# --- content that is still somewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM packs",
        "DELETE FROM blobs WHERE pack IS NOT NULL",
        "UPDATE blobs SET position = position + 1 WHERE pack IS NOT NULL",
        "UPDATE blobs SET size = 1, encoding = 0, length = 1 WHERE pack IS NOT NULL",
        "UPDATE packs SET size = size - 1",
    ],
)
def test_the_blob_index_is_rebuilt_from_packs(store: Path, sql: str) -> None:
    """Issue 4."""
    whole = everything(store)
    tamper(store, sql)
    report = repair(store)
    assert report.ok, report.lost
    assert report.mended
    assert is_clean(store)
    assert everything(store) == whole


@pytest.mark.parametrize("position", [0, 20, -60, -10])
def test_a_pack_with_a_damaged_header_head_or_index_is_written_anew_and_kept(store: Path, position: int) -> None:
    """Its blobs are whole: they go into a new pack, and the damaged one into quarantine, byte for byte."""
    whole, pack = everything(store), pack_file(store)
    flip(pack, position)
    damaged = pack.read_bytes()
    report = repair(store)
    assert report.ok, report.lost
    assert is_clean(store)
    assert everything(store) == whole
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "packs" / pack.parent.name / pack.name).read_bytes() == damaged


def test_content_is_read_again_from_the_workspace(with_workspace: Path, sound: Path) -> None:
    """Issue 4: the workspace file with the same hash, wherever in it; chunks of large files and directories, too."""
    whole = everything(with_workspace)
    pack_file(with_workspace).unlink()
    report = repair(with_workspace)
    needed = {part for finding in report.lost for use in finding.uses for part in use.parts}
    assert needed <= {"part 0/more 0/0.bin", "part 0/more 0/", "part 0/", "."}, "what has changed since is lost"
    for number in (1, 7, 119):
        path = f"part {number % 5}/more {number % 3}/{number}.bin"
        with lastgood.open(with_workspace, user="ada") as opened:
            head = opened.task("evidence").head
            assert head is not None
            assert opened.read_file(head.id, path) == (sound / "work" / path).read_bytes()
            assert opened.read_file(head.id, "big.bin") == (sound / "work" / "big.bin").read_bytes()
    assert set(everything(with_workspace)) <= set(whole)
    assert len(everything(with_workspace)) >= 10


def test_a_flipped_bit_in_content_is_mended_from_a_renamed_file(
    with_workspace: Path, sound: Path, tmp_path: Path
) -> None:
    content = (sound / "work" / "part 1" / "more 1" / "1.bin").read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "renamed").write_bytes(content)
    tamper(with_workspace, "UPDATE workspaces SET path = ?", str(elsewhere))
    pack = pack_file(with_workspace)
    flip(pack, pack.read_bytes().index(content) + 9)
    whole = everything(with_workspace)
    report = repair(with_workspace)
    assert report.ok
    (mended,) = report.mended
    assert mended.code == "blob_damaged"
    assert is_clean(with_workspace)
    assert len(everything(with_workspace)) > len(whole)


def test_a_part_of_a_state_is_had_again_from_another_task_or_a_larger_part(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    turns = [f"turn {number} " * 200 for number in range(30)]
    with lastgood.open(folder, user="ada") as opened:
        for name in ("one", "two"):
            task = opened.task(name)
            for count in range(1, 31):
                task.save({"turns": turns[:count]})
    whole = everything(folder)
    tamper(folder, "DELETE FROM blobs WHERE partition = 1 AND blob NOT IN (SELECT whole FROM slices)")
    runs = "partition = 2 AND blob IN (SELECT whole FROM slices)"
    tamper(folder, f"UPDATE blobs SET data = zeroblob(length(data)) WHERE {runs}")
    report = repair(folder)
    assert report.ok, report.lost
    assert is_clean(folder)
    assert everything(folder) == whole


def test_a_part_that_also_lies_in_a_larger_one_is_had_again_from_there(store: Path) -> None:
    whole = everything(store)
    both = f"SELECT digest FROM slices JOIN blobs USING (partition, digest) WHERE partition = {WORK}"
    tamper(store, f"UPDATE blobs SET data = zeroblob(length(data)) WHERE digest IN ({both})")
    report = repair(store)
    assert report.ok, report.lost
    assert {mended.code for mended in report.mended} == {"blob_damaged"}
    assert is_clean(store)
    assert everything(store) == whole


def test_a_larger_part_that_has_something_else_there_is_no_source(store: Path) -> None:
    """Never invents data: what is found counts only if it gives the id."""
    both = f"SELECT digest FROM slices JOIN blobs USING (partition, digest) WHERE partition = {WORK}"
    tamper(store, f"UPDATE blobs SET data = zeroblob(length(data)) WHERE digest IN ({both})")
    tamper(store, f"UPDATE slices SET position = position + 1 WHERE partition = {WORK}")
    readable = everything(store)
    assert not repair(store).ok
    assert everything(store) == readable
    with lastgood.open(store, user="ada") as opened:
        assert {finding.code for finding in opened.check(read_data=True).findings} == {"blob_missing"}


# --- content that nobody has -------------------------------------------------------------------------------------


def test_what_is_lost_is_told_with_checkpoints_and_paths_and_refused(store: Path, sound: Path) -> None:
    """Issue 4, I3: never invented. What else a damaged pack held is whole."""
    content = (sound / "work" / "part 1" / "more 1" / "1.bin").read_bytes()
    pack = pack_file(store)
    flip(pack, pack.read_bytes().index(content) + 9)
    report = repair(store)
    (lost,) = report.lost
    assert lost.code == "blob_missing"
    assert {part for use in lost.uses for part in use.parts} == {"part 1/more 1/1.bin"}
    with lastgood.open(store, user="ada") as opened:
        head = opened.task("evidence").head
        assert head is not None
        with pytest.raises(IntegrityError, match="missing"):
            opened.read_file(head.id, "part 1/more 1/1.bin")
        assert opened.read_file(head.id, "big.bin") == (sound / "work" / "big.bin").read_bytes()
        assert opened.get_last_verified_checkpoint("evidence") is None, "what has lost something is not verified"


def test_saving_the_same_content_again_heals_what_was_lost(store: Path, sound: Path) -> None:
    """A damaged row would be relied on by later saves; one that is gone is stored anew."""
    content = (sound / "work" / "part 1" / "more 1" / "1.bin").read_bytes()
    pack = pack_file(store)
    flip(pack, pack.read_bytes().index(content) + 9)
    repair(store)
    with lastgood.open(store, user="ada") as opened:
        opened.task("new", workspace=sound / "work").save({"n": 1})
        assert opened.check(read_data=True).ok


def test_a_lost_part_of_a_state_is_refused_and_the_rest_is_whole(store: Path) -> None:
    digest = ask(store, "SELECT digest FROM blobs WHERE partition = (SELECT task FROM tasks WHERE id = 'talk') "
                        "AND blob NOT IN (SELECT whole FROM slices)")  # fmt: skip
    tamper(store, "UPDATE blobs SET data = x'00', encoding = 0, size = 1 WHERE digest = ?", digest)
    readable = everything(store)
    report = repair(store)
    (lost,) = report.lost
    assert lost.name == digest_text(digest)
    assert {part for use in lost.uses for part in use.parts} == {"state"}
    assert everything(store) == readable


def test_a_damaged_record_stays_damaged_and_everything_else_goes_on(store: Path) -> None:
    tamper(store, f"UPDATE checkpoints SET record = x'00' WHERE number = ({WORK} << 32) + 4")
    report = repair(store)
    assert [finding.code for finding in report.lost] == ["record"]
    with lastgood.open(store, user="ada") as opened:
        opened.task("work").save({"goes": "on"})


@pytest.mark.parametrize("sequences", [(2,), (2, 3, 4), (4, 10), (1,)])
def test_a_tombstone_is_put_where_a_checkpoint_is_gone_and_the_task_goes_on(
    store: Path, sequences: tuple[int, ...]
) -> None:
    """Its id and checksum are known from its child, its place from its neighbours; a list with holes was refused."""
    ids = []
    for sequence in sequences:
        ids.append(ask(store, f"SELECT id FROM checkpoints WHERE number = ({WORK} << 32) + ?", sequence))
        tamper(store, f"DELETE FROM checkpoints WHERE number = ({WORK} << 32) + ?", sequence)
    with lastgood.open(store, user="ada") as opened, pytest.raises(IntegrityError):
        opened.list_checkpoints("work")
    report = repair(store)
    assert [mended.code for mended in report.mended if mended.code == "missing"] == ["missing"] * len(ids)
    assert report.ok, report.lost
    assert is_clean(store)
    with lastgood.open(store, user="ada") as opened:
        assert not set(ids) & {one.id for one in opened.list_checkpoints("work")}
        with pytest.raises(lastgood.NotFoundError, match="purged"):
            opened.find_checkpoint(ids[-1])
        opened.task("work").save({"goes": "on"})


def test_a_head_that_is_gone_is_not_made_up(store: Path) -> None:
    """Nobody knows its id."""
    tamper(
        store,
        f"DELETE FROM checkpoints WHERE number IN (SELECT max(number) FROM checkpoints WHERE number >> 32 = {WORK})",
    )
    report = repair(store)
    assert [finding.code for finding in report.lost] == ["missing"]


# --- the database itself -----------------------------------------------------------------------------------------


def test_damaged_pages_are_written_anew_from_what_can_be_read(store: Path) -> None:
    """An index costs nothing, a table what lay on that page; everything else reads as before."""
    whole, file = everything(store), store / CATALOG
    content = file.read_bytes()
    pages = len(content) // 4096
    losses = []
    for page in range(2, pages, max(1, pages // 25)):
        flip(file, page * 4096 + 2000)
        try:
            report = repair(store)
        except IntegrityError:  # it cannot even be opened: see below
            losses.append("unopened")
        else:
            assert report.quarantine is not None
            after = everything_listed(store)
            assert {id_: after[id_] for id_ in after if after[id_] is not None}.items() <= whole.items()
            assert "database" not in {finding.code for finding in report.lost}
            losses.append("none" if report.ok else "some")
        for leftover in ("", "-wal", "-shm", "-lock"):
            file.with_name(file.name + leftover).unlink(missing_ok=True)
        shutil.rmtree(store / "quarantine", ignore_errors=True)
        file.write_bytes(content)
    assert losses.count("none") >= 5
    assert losses.count("unopened") <= 2


def everything_listed(store: Path) -> dict[str, Any]:
    """As `everything`, by the rows themselves: a list with holes is refused."""
    found: dict[str, Any] = {}
    with lastgood.open(store, user="ada", cache_checkpoints=0) as opened:
        with opened._engine.catalog.audit() as audit:
            owners = {(row.owner, row.id) for row in audit.checkpoints() if row.record is not None and not row.deleted}
        for owner, id_ in owners:
            try:
                intact = not opened.check_checkpoint(id_, owner=owner, evidence=False).problems
                found[id_] = repr(opened.find_checkpoint(id_, owner=owner).state) if intact else None
            except (IntegrityError, lastgood.NotFoundError):
                found[id_] = None
    return found


def test_damage_in_the_table_of_slices_costs_what_lay_on_that_page(tmp_path: Path) -> None:
    """Reading goes on behind it: what can be read one by one comes along."""
    folder = tmp_path / "store"
    with lastgood.open(folder, user="ada") as opened:
        task = opened.task("t")
        turns: list[str] = []
        for number in range(400):
            turns.append(f"turn {number} " * 100)
            task.save({"turns": turns})
        opened._engine.catalog._database._commits = 1000  # type: ignore[attr-defined]
    leaf = "SELECT pageno FROM dbstat WHERE name = 'slices' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 1"
    before, page = ask(folder, "SELECT count(*) FROM slices"), ask(folder, leaf)
    flip(folder / CATALOG, (page - 1) * 4096 + 2000)
    report = repair(folder)
    lost = before - ask(folder, "SELECT count(*) FROM slices")
    assert 0 < lost < 120 < before
    assert {finding.code for finding in report.lost} == {"blob_missing"}


def test_a_rebuilt_database_goes_on_in_processes_that_have_it_open(store: Path) -> None:
    """It is the same file: what others write after the repair is there."""
    page = ask(store, "SELECT pageno FROM dbstat WHERE name = 'blobs_digest' AND pagetype = 'leaf'")
    with lastgood.open(store, user="ada") as other:
        before = other.task("branches").save({"before": "repair"})
        flip(store / CATALOG, (page - 1) * 4096 + 2000)
        assert repair(store).ok
        after = other.task("branches").save({"after": "repair"})
    with lastgood.open(store, user="ada") as opened:
        assert opened.check(read_data=True).ok
        assert [opened.find_checkpoint(one.id).state for one in (before, after)] == [
            {"before": "repair"},
            {"after": "repair"},
        ]


# --- lost commits, interruptions -------------------------------------------------------------------------


def _with_lost_commits(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    with lastgood.open(folder, user="ada") as opened:
        task = opened.task("t")
        for number in range(10):
            task.save({"n": number})
        shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    log = tmp_path / "copy" / f"{CATALOG}-wal"
    os.truncate(log, log.stat().st_size - 5000)
    return tmp_path / "copy"


def test_lost_commits_are_given_up_only_when_asked_to(tmp_path: Path) -> None:
    store = _with_lost_commits(tmp_path)
    with pytest.raises(LostCommitsError):
        repair(store)
    report = repair(store, accept_loss=True)
    assert report.ok
    assert report.accepted > 0
    assert report.quarantine is not None
    assert (Path(report.quarantine) / f"{CATALOG}-wal").exists()
    with lastgood.open(store, user="ada") as opened:
        opened.task("t").save({"after": "loss"})
        assert opened.check().ok


def test_a_repair_that_was_interrupted_after_it_put_a_pack_aside_is_finished_by_the_next(store: Path) -> None:
    """The pack that takes its place may bear its name, so for a moment it is in quarantine alone."""
    whole, pack = everything(store), pack_file(store)
    flip(pack, -60)
    kept = store / "quarantine" / "interrupted" / "packs" / pack.parent.name
    kept.mkdir(parents=True)
    pack.rename(kept / pack.name)
    report = repair(store)
    assert report.ok, report.lost
    assert is_clean(store)
    assert everything(store) == whole
    assert (kept / pack.name).exists()


def test_what_was_saved_anew_while_it_was_looked_for_is_not_given_up(store: Path, sound: Path) -> None:
    """A repair reads for long, and others save meanwhile: what they stored is theirs."""
    tamper(store, "DELETE FROM blobs WHERE size = 3000 AND partition = 0")
    with lastgood.open(store, user="ada") as opened:
        found = examine(opened._engine.catalog, opened._engine.objects, SHA256, read_data=True)
        pack = pack_file(store)
        aside = pack.rename(store / "aside")
        quarantine = Quarantine(opened._engine.location)
        search = BlobSearch(opened._engine, found)
        search.run()
        assert len(search.lost()) == 119
        aside.rename(pack)
        opened.task("new", workspace=sound / "work").save({"n": 1})
        repairing._change(opened._engine.catalog, opened.user, search, quarantine)
        assert opened.check(read_data=True).ok


def test_objects_that_are_not_mounted_are_not_given_up(store: Path) -> None:
    whole = everything(store)
    (store / "objects").rename(store / "elsewhere")
    with pytest.raises(UnavailableError, match="objects"):
        repair(store)
    (store / "elsewhere").rename(store / "objects")
    assert repair(store).ok
    assert everything(store) == whole


def put_a_file(place: Path) -> None:
    place.write_bytes(b"no folder")


def put_a_dead_link(place: Path) -> None:
    place.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_a_file, put_a_dead_link])
def test_packs_in_whose_place_is_something_else_are_not_given_up(
    with_workspace: Path, put: Callable[[Path], None]
) -> None:
    whole, packs = everything(with_workspace), with_workspace / "objects" / "packs"
    packs.rename(with_workspace / "elsewhere")
    put(packs)
    with pytest.raises(UnavailableError, match="nothing was repaired"):
        repair(with_workspace)
    packs.unlink()
    (with_workspace / "elsewhere").rename(packs)
    assert is_clean(with_workspace)
    assert everything(with_workspace) == whole


@pytest.mark.parametrize("put", [put_a_file, put_a_dead_link])
def test_what_cannot_come_to_the_packs_is_told_as_that(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """Not that a name was chosen badly: nobody has chosen one. So it is spooled, too."""
    work, packs = tmp_path / "work", tmp_path / "store" / "objects" / "packs"
    work.mkdir()
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        task = store.task("work", workspace=work)
        task.save({})
        packs.parent.mkdir(exist_ok=True)
        put(packs)
        (work / "large").write_bytes(os.urandom(1 << 20))
        with pytest.raises(UnavailableError, match="in the place of a folder"):
            task.save({}, on_failure="raise")
        spooled = task.save({})
        assert spooled.status == "spooled"
        packs.unlink()
        store.replay()
        assert not store.check_checkpoint(spooled.id, evidence=False).problems


def test_a_pack_that_cannot_be_read_just_now_is_not_given_up(store: Path) -> None:
    whole, pack = everything(store), pack_file(store)
    aside = pack.rename(store / "aside")
    pack.symlink_to(aside)  # which is not followed
    report = repair(store)
    assert [finding.code for finding in report.lost] == ["pack_unreadable"]
    pack.unlink()
    aside.rename(pack)
    assert is_clean(store)
    assert everything(store) == whole


def test_repairing_twice_is_repairing_once(store: Path) -> None:
    flip(pack_file(store), -60)
    assert repair(store).mended
    again = repair(store)
    assert (again.ok, again.mended, again.quarantine) == (True, (), None)


def test_a_store_in_memory_is_repaired_as_far_as_it_goes() -> None:
    with lastgood.open(":memory:", user="ada") as opened:
        opened.task("t").save({"n": 1}, key="k")
        opened._engine.catalog._write(lambda c: c.execute("DELETE FROM keys"))  # type: ignore[attr-defined]
        assert opened.repair().ok
        assert opened.check().ok


def test_the_quarantine_is_not_captured_with_a_workspace_that_the_store_lies_in(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "work" / "my.sqlite", user="ada") as opened:
        task = opened.task("t", workspace=tmp_path / "work")
        task.save({"n": 1}, key="k")
        opened._engine.catalog._write(lambda c: c.execute("DELETE FROM keys"))  # type: ignore[attr-defined]
        report = opened.repair()
        assert report.quarantine is not None
        assert Path(report.quarantine).parent == tmp_path / "work" / "my.quarantine"
        saved = task.save({"n": 2})
        assert not any("quarantine" in info.path and info.kind == "folder" for info in opened.list_files(saved.id))


def test_a_new_pack_holds_only_what_is_needed(store: Path) -> None:
    """Bytes that no row mentions stay in quarantine."""
    tamper(store, "DELETE FROM blobs WHERE size = 3000")
    for task in ("work", "evidence"):
        with lastgood.open(store, user="ada") as opened:
            opened.delete_task(task)
    flip(pack_file(store), -60)
    count = ask(store, "SELECT count(*) FROM blobs WHERE pack IS NOT NULL")
    assert repair(store).ok
    data = pack_file(store).read_bytes()
    assert len(read_index(lambda start, length: data[start : start + length], len(data)).entries) == count


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, lastgood.DiskFullError), (errno.EIO, UnavailableError)])
def test_a_database_that_finds_no_place_to_be_rebuilt_in_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """I4, found by the failing disk: it came as an error of the system."""

    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    with lastgood.open(tmp_path / "store") as store:
        saved = store.task("t").save({"n": 1})
        monkeypatch.setattr(database, "create_connection", fail)
        with pytest.raises(error, match="the database was not rebuilt"):
            store._engine.catalog.rebuild()
        assert store.find_checkpoint(saved.id).state == {"n": 1}
    assert not list((tmp_path / "store").glob("*.new*"))
