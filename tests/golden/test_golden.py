"""Stores of every format that ever was, opened by the code of today: all comes back as it was written (G12, A4, E2).

A failure here means that what people have on their disks can no longer be read. Mend the code, not the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path

import apsw
import pytest
from tests.golden import make, shelf
from tests.golden.ledger import Expectation, ExpectedCheckpoint, ExpectedStep, fingerprint, told
from tests.golden.shelf import REFUSED, VERSIONS, extract, unpack
from tests.support.file_trees import look

import lastgood
from lastgood import FormatError, LostCommitsError, NotFoundError
from lastgood.catalog.sqlite.connection import open_connection
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.catalog.sqlite.migration import Migration, migrations

FORMATS = list(dict.fromkeys(migration.format for migration in migrations()))
MADE_UP = "CREATE TABLE made_up (a INTEGER) STRICT; ALTER TABLE checkpoints ADD COLUMN made_up TEXT;"


class Golden:
    """A golden store, unpacked; not opened yet."""

    def __init__(self, version: str, folder: Path, stack: ExitStack) -> None:
        self.version = version
        self.folder = folder
        self.catalog = folder / "catalog.sqlite"
        self.expected = unpack(version, folder)
        self._stack = stack

    def open(self) -> lastgood.CheckpointManager:
        """By the one who wrote it; nothing is removed in the background."""
        return self._stack.enter_context(lastgood.CheckpointManager(self.folder, user="golden", collect="never"))

    def settle(self) -> None:
        """As if it had been closed in order: everything lies in the database."""
        with closing(open_connection(self.catalog)) as connection:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert self.log().stat().st_size == 0

    def log(self) -> Path:
        return self.folder / "catalog.sqlite-wal"


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Golden]:
    with ExitStack() as stack:
        yield Golden(request.param, tmp_path / request.param, stack)


def test_every_format_has_a_golden_store() -> None:
    """A new format fails here until `python -m tests.golden.make` has written its store."""
    assert list(VERSIONS) == FORMATS
    assert all(shelf.expectation(version).is_file() for version in VERSIONS)


def test_the_format_that_is_documented_is_the_newest() -> None:
    document = Path(__file__).parents[2] / "docs" / "reference" / "format.md"
    assert document.read_text().startswith(f"# The format, version {FORMATS[-1]}\n")


def test_a_golden_store_of_a_released_format_is_never_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "RELEASED", VERSIONS)
    before = {version: _digest(version) for version in VERSIONS}
    with pytest.raises(SystemExit, match="stays as it is"):
        make.main()
    assert {version: _digest(version) for version in VERSIONS} == before


def test_a_store_from_before_the_first_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    extract(REFUSED, folder := tmp_path / "store")
    before = _files(folder)
    with pytest.raises(FormatError, match=r"format 1\.4.*reads 2\.x") as caught:
        lastgood.open(folder, user="golden")
    assert "the version that wrote it" in (caught.value.hint or "")
    assert _files(folder) == before


@pytest.mark.parametrize("settled", [False, True], ids=["as it was killed", "as if closed"])
def test_everything_comes_back_as_it_was_written(golden: Golden, settled: bool) -> None:
    archived = _digest(golden.version)
    if settled:
        golden.settle()
    store = golden.open()
    assert store.info().format == FORMATS[-1]
    _require_as_written(store, golden.expected)
    assert _digest(golden.version) == archived


def test_every_byte_is_whole(golden: Golden) -> None:
    report = golden.open().check(read_data=True)
    assert report.findings == ()
    intact = {standing.task_id: standing for standing in report.standings if standing.owner == "golden"}
    for task in (task for task in golden.expected.tasks if task.owner == "golden"):
        left = [it for it in golden.expected.checkpoints.values() if it.task == task.id and it.owner == task.owner]
        assert intact[task.id].checkpoints == sum(not it.deleted for it in left)
        assert intact[task.id].head_intact


def test_the_log_that_the_killed_process_left_is_needed(golden: Golden) -> None:
    """Else nothing would show that a store opens with one."""
    golden.log().unlink()
    with pytest.raises(LostCommitsError):
        golden.open().tasks()


def test_what_was_migrated_has_the_tables_of_what_is_new(golden: Golden, tmp_path: Path) -> None:
    """With a migration that is made up, so that there is one."""
    newest = len(migrations()) + 1
    known = (*migrations(), Migration(newest, f"{newest:04}_made_up", "2.99", MADE_UP))
    for catalog in (golden.catalog, tmp_path / "new.sqlite"):
        FileDatabase(catalog, known=known).close()
    assert _schema(golden.catalog) == _schema(tmp_path / "new.sqlite")
    with closing(open_connection(golden.catalog)) as connection:
        applied = [tuple(row) for row in connection.execute("SELECT number, format FROM migrations ORDER BY number")]
    assert applied == [(migration.number, migration.format) for migration in known]
    _require_as_written(golden.open(), golden.expected)


def test_files_of_every_checkpoint_are_copied_into_an_empty_folder(golden: Golden, tmp_path: Path) -> None:
    store = golden.open()
    for number, (id_, it) in enumerate(_present(golden.expected)):
        checkpoint = store.find_checkpoint(id_, owner=it.owner)
        if it.files is None:
            assert checkpoint.record.files is None
            continue
        store.task(it.task, owner=it.owner).copy_files(checkpoint, folder := tmp_path / f"copy {number}")
        roots = {root.name for root in checkpoint.record.files or ()}
        found = told(look(folder))
        assert {path: what for path, what in found.items() if path not in roots} == it.files


def test_every_checkpoint_is_restored_into_an_empty_folder(golden: Golden, tmp_path: Path) -> None:
    """Each in a folder of its own: a branch begins there, and undo goes back to where the task was."""
    store = golden.open()
    for number, (id_, it) in enumerate(_present(golden.expected)):
        if it.deleted:
            continue
        folder = tmp_path / f"work {number}"
        roots = store.find_checkpoint(id_, owner=it.owner).record.files or ()
        places = {root.name: folder / root.name for root in roots if root.name}
        for place in [folder, *places.values()]:
            place.mkdir()
        task = store.task(it.task, owner=it.owner, workspace=None if it.files is None else places or folder)
        before = task.head
        restored = task.restore(id_, verify=False)
        assert restored.failed == ()
        assert fingerprint(restored.state) == it.state
        assert restored.checkpoint.parent_id == id_
        if it.files is not None:
            found = told(look(folder))
            assert {path: what for path, what in found.items() if path not in places} == it.files
        assert before is not None
        assert task.undo().branch_id == before.branch_id
    assert store.check(read_data=True).ok


def test_evidence_about_captured_files_still_holds(golden: Golden) -> None:
    store = golden.open()
    (second,) = [id_ for id_, it in golden.expected.checkpoints.items() if it.files and it.evidence]
    evidence = store.check_checkpoint(second).pack.evidence_list
    assert [item.verification_status for item in evidence] == ["verified", "failed"]  # the other one was not captured


def test_every_task_goes_on(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "new").write_text("new")
    store = golden.open()
    for it in golden.expected.tasks:
        task = store.task(it.id, owner=it.owner, workspace=tmp_path / "work")
        head = task.head
        assert head is not None
        assert head.id == _head(golden.expected, it.lines[it.active])
        saved = task.save({"before": head.state, "more": list(range(1000))})
        assert (saved.parent_id, saved.branch_id) == (head.id, it.active)
        expected = [
            known for known in golden.expected.checkpoints.values() if (known.owner, known.task) == (it.owner, it.id)
        ]
        assert saved.sequence == len(expected) + 1
    store.close()
    again = golden.open()
    _require_as_written(again, golden.expected, alone=False)
    assert again.check(read_data=True).ok


def test_a_key_that_was_used_still_stands_for_its_checkpoint(golden: Golden) -> None:
    store = golden.open()
    (id_, it) = next((id_, it) for id_, it in golden.expected.checkpoints.items() if it.about.get("key") == '"once"')
    with pytest.raises(lastgood.ConflictError):
        store.task(it.task).save({"another": "state"}, key="once")
    assert store.find_checkpoint("start", it.task).id == id_


def test_what_was_undone_can_be_redone(golden: Golden) -> None:
    store = golden.open()
    for it in golden.expected.tasks:
        if it.redo is not None:
            assert store.task(it.id).redo().id == it.redo
            assert store.task(it.id).undo().id == _head(golden.expected, it.lines[it.active])


def test_steps_that_were_open_are_committed_by_the_code_of_today(golden: Golden) -> None:
    store = golden.open()
    found = {
        step.id: ExpectedStep(
            task=step.task_id,
            type=step.type,
            name=step.name,
            work_item=step.work_item_id or "",
            metadata=fingerprint(step.metadata),
            snapshot=golden.expected.steps[step.id].snapshot if step.has_snapshot else None,
        )
        for step in store.open_steps()
    }
    assert found == golden.expected.steps
    for id_, it in golden.expected.steps.items():
        if it.snapshot is not None:
            committed = store.commit_step(id_, lastgood.EvidencePack())
            assert fingerprint(committed.state) == it.snapshot
        else:
            store.abandon_step(id_)
    assert store.open_steps() == []
    assert store.check(read_data=True).ok


def test_who_worked_and_what_was_wanted_is_known(golden: Golden) -> None:
    store = golden.open()
    found = {id_: store._engine.catalog.requests("golden", id=id_) for id_ in golden.expected.requests}
    assert {id_: request.status for id_, (request,) in found.items()} == golden.expected.requests
    if not found:
        return
    control = store.task("steered").control
    assert [request.id for request in control.requests()] == ["resumed"]
    assert control.lease is None  # it ran out long ago
    with store.task("steered").session(signals=False) as session:
        session.boundary()
        assert session.control_state == "running"
    assert control.requests() == []


def test_collecting_takes_nothing_that_is_needed(golden: Golden, tmp_path: Path) -> None:
    """What was deleted is purged."""
    store = golden.open()
    store.collect(grace=0)
    assert store.check(read_data=True).ok
    for number, (id_, it) in enumerate(_present(golden.expected)):
        if it.deleted:
            with pytest.raises(NotFoundError):
                store.find_checkpoint(id_, owner=it.owner)
            continue
        checkpoint = store.find_checkpoint(id_, owner=it.owner)
        assert fingerprint(checkpoint.state) == it.state
        if it.files is not None:
            store.task(it.task, owner=it.owner).copy_files(checkpoint, tmp_path / f"copy {number}")


def test_a_store_is_as_private_as_it_was(golden: Golden) -> None:
    for path in [golden.folder, *golden.folder.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def _require_as_written(store: lastgood.Store, expected: Expectation, *, alone: bool = True) -> None:
    """`alone`: nothing has happened to the store since."""
    for id_, it in expected.checkpoints.items():
        if it.purged:
            with pytest.raises(NotFoundError):
                store.find_checkpoint(id_, owner=it.owner)
        else:
            _require_checkpoint(store.find_checkpoint(id_, owner=it.owner), it)
            assert store.check_checkpoint(id_, owner=it.owner, evidence=False).problems == []
    for task in expected.tasks:
        names = {branch.id: branch.name for branch in store.branches(task.id, owner=task.owner)}
        assert task.names == {branch: names[branch] for branch in task.names}
        for branch, line in task.lines.items():
            wanted = [id_ for id_ in line if not expected.checkpoints[id_].deleted]
            if branch in names:
                listed = store.list_checkpoints(branch, 1000, owner=task.owner)
                assert [it.id for it in reversed(listed) if alone or it.id in expected.checkpoints] == wanted
        events = [
            f"{event.kind} {event.checkpoint_id or ''}".strip()
            for event in store.events(task.id, owner=task.owner, limit=1000)
        ]
        assert events[: len(task.events)] == task.events
        assert len(events) == len(task.events) or not alone


def _require_checkpoint(found: lastgood.Checkpoint, it: ExpectedCheckpoint) -> None:
    assert found.integrity_ok
    assert (found.task_id, found.branch_id, found.sequence) == (it.task, it.branch, it.sequence)
    assert (found.checksum, found.parent_id) == (it.checksum, it.parent)
    assert fingerprint(found.state) == it.state
    assert {name: fingerprint(getattr(found, name)) for name in it.about} == it.about
    assert [item.verification_status for item in found.evidence_pack.evidence_list] == it.evidence
    assert (found.verified, found.deleted, list(found.redacted)) == (it.verified, it.deleted, it.redacted)
    assert sorted(found.tags) == sorted(it.tags)


def _present(expected: Expectation) -> list[tuple[str, ExpectedCheckpoint]]:
    return [(id_, it) for id_, it in expected.checkpoints.items() if not it.purged]


def _head(expected: Expectation, line: list[str]) -> str:
    return next(id_ for id_ in reversed(line) if not expected.checkpoints[id_].purged)


def _schema(catalog: Path) -> list[str]:
    with closing(open_connection(catalog)) as connection:
        return sorted(row[0] for row in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def _files(folder: Path) -> dict[Path, bytes]:
    """Without SQLite's index of the log, which whoever opens the database writes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".sqlite-shm"}


def _digest(version: str) -> str:
    return sha256(shelf.archive(version).read_bytes()).hexdigest()
