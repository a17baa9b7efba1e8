"""The manager beside an application's own registry: our data lie in a folder next to it (D4, D8; finding 10)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import lastgood
from lastgood import CheckpointManager, Evidence, EvidencePack, EvidenceType
from lastgood.cli.app import app

ROW = {"table": "tasks", "where": {"task_id": "task-123"}, "values": {"status": "completed"}}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    place = Path("store/registry.sqlite")
    place.parent.mkdir()
    _write(place, "CREATE TABLE tasks (task_id TEXT, status TEXT)")
    return place


def _write(place: Path, *statements: str) -> None:
    with closing(sqlite3.connect(place)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _commit(manager: CheckpointManager) -> lastgood.Checkpoint:
    step_id = manager.begin_step("task-123", "tool_executed", {"n": 1})
    return manager.commit_step(step_id, EvidencePack([Evidence(EvidenceType.DB_ROW, "row is there", ROW)]))


def test_evidence_without_a_path_reads_the_applications_tables(registry: Path) -> None:
    """D8, finding 10."""
    with CheckpointManager() as manager:
        assert not _commit(manager).verified
        _write(registry, "INSERT INTO tasks VALUES ('task-123', 'completed')")
        made = _commit(manager)
        assert made.verified
    with CheckpointManager() as manager:
        last = manager.get_last_verified_checkpoint("task-123")
        assert last is not None
        assert last.id == made.id


def test_the_registry_is_never_written(registry: Path) -> None:
    """D4, finding 10: not a byte, and nothing new beside it but one folder."""
    before = registry.read_bytes()
    with CheckpointManager() as manager:
        _commit(manager)
    assert registry.read_bytes() == before
    assert sorted(path.name for path in registry.parent.iterdir()) == ["registry.lastgood", "registry.sqlite"]


def test_a_file_that_is_no_database_is_left_alone_too(tmp_path: Path) -> None:
    """D4, finding 10: whatever the application keeps there."""
    (tmp_path / "registry.db").write_text("not a database, but long enough to be looked at " * 100)
    before = (tmp_path / "registry.db").read_bytes()
    with CheckpointManager(tmp_path / "registry.db") as manager:
        manager.task("t").save({"n": 1})
    assert (tmp_path / "registry.db").read_bytes() == before


def test_a_registry_may_come_later(tmp_path: Path) -> None:
    """D4, finding 10: the application makes its own file when it likes."""
    place = tmp_path / "registry.sqlite"
    with CheckpointManager(place) as manager:
        manager.task("t").save({"n": 1})
        assert not place.exists()
        _write(place, "CREATE TABLE mine (a)")
        manager.task("t").append({"n": 2})
    with CheckpointManager(place) as manager:
        assert manager.task("t").state == {"n": 2}


def test_open_and_the_command_line_find_the_store_by_the_registrys_path(registry: Path) -> None:
    """D4, finding 10."""
    with CheckpointManager() as manager:
        made = manager.task("t").save({"n": 1}, message="by the manager")
    with lastgood.open(registry) as store:
        assert store.find_checkpoint("HEAD", "t").id == made.id
    for target in ("store/registry.sqlite", "store/registry.lastgood"):
        result = CliRunner().invoke(app, ["--store", target, "--task", "t", "show", "--json"])
        assert (result.exit_code, made.id in result.stdout) == (0, True), result.stderr


def test_a_file_that_is_a_store_already_is_used_as_such(tmp_path: Path) -> None:
    """D4, finding 10."""
    place = tmp_path / "registry.sqlite"
    with lastgood.open(place) as store:
        made = store.task("t").save({"n": 1})
    with CheckpointManager(place) as manager:
        assert manager.find_checkpoint("HEAD", "t").id == made.id
    assert not place.with_suffix(".lastgood").exists()


def test_a_damaged_store_is_not_taken_for_a_registry(tmp_path: Path) -> None:
    """D4, promise 2: it is refused, and no empty store takes its place."""
    place = tmp_path / "registry.sqlite"
    with lastgood.open(place) as store:
        store.task("t").save({"n": 1})
    place.write_bytes(b"\0" * place.stat().st_size)
    with pytest.raises((lastgood.FormatError, lastgood.IntegrityError)):
        CheckpointManager(place)
    assert not place.with_suffix(".lastgood").exists()
