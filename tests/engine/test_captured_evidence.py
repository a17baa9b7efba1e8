"""Evidence about files that a checkpoint captured itself (D11): what comes back is what is checked."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import lastgood
from lastgood import Evidence, EvidencePack, Store, Task
from lastgood.evidence.files import CapturedFile, CheckpointFiles, Files


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "app" / "out").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def store(base: Path) -> Iterator[Store]:
    with lastgood.open(base / "store", base_path=base / "app", user="ada") as store:
        yield store


@pytest.fixture
def task(store: Store, base: Path) -> Task:
    return store.task("t", workspace=base / "app")


def test_evidence_about_a_captured_file_holds_though_the_disk_has_changed(store: Store, task: Task, base: Path) -> None:
    """D11: else one could never go back to where a file still was right."""
    report = base / "app" / "out" / "report.md"
    report.write_text("good")
    with task.step("write") as step:
        step.expect_file("out/report.md")
    made = step.checkpoint
    assert made is not None
    assert made.verified
    report.write_text("bad")
    assert store.verify_checkpoint(made.id)
    assert not store.verify_checkpoint(made.id, live=True)
    assert store.find_checkpoint(made.id).verified, "looking at the disk was recorded"
    task.restore(made)
    assert report.read_text() == "good"


def test_when_committing_the_disk_is_looked_at(store: Store, task: Task, base: Path) -> None:
    pack = EvidencePack([Evidence("artifact_exists", "there", {"path": "out/report.md", "type": "file"})])
    made = task.save({}, evidence=pack)
    assert not made.verified
    (base / "app" / "out" / "report.md").write_text("too late")
    assert not store.verify_checkpoint(made.id)
    assert store.verify_checkpoint(made.id, live=True)


def test_links_folders_and_what_was_left_out(store: Store, task: Task, base: Path) -> None:
    """What was captured is looked up in the checkpoint, links followed; what was left out, on disk."""
    app = base / "app"
    (app / "data.txt").write_text("1")
    (app / "link").symlink_to("data.txt")
    (app / "far").symlink_to("out/../data.txt")
    (app / ".env").write_text("TOKEN=1")
    names = {"data.txt": "file", "link": "file", "far": "file", "out": "directory", ".env": "file"}
    claims = [Evidence("artifact_exists", name, {"path": name, "type": kind}) for name, kind in names.items()]
    made = task.save({}, evidence=EvidencePack(claims))
    assert made.verified
    assert store.verify_checkpoint(made.id)
    for name in ("far", "link", "data.txt", ".env"):
        (app / name).unlink()
    held = {piece.description: piece.verified for piece in store.check_checkpoint(made.id).pack.evidence_list}
    assert held == {"data.txt": True, "link": True, "far": True, "out": True, ".env": False}


@pytest.mark.parametrize(("where", "path"), [("app", "x"), (".", "app/x"), ("app/out", "x")])
def test_paths_mean_the_same_wherever_the_workspace_lies(base: Path, where: str, path: str) -> None:
    folder = base / "app" / "out" if where == "app/out" else base / "app"
    (folder / "x").write_text("1")
    with lastgood.open(base / "store", base_path=base / where, user="ada") as store:
        task = store.task("t", workspace=base / "app")
        pack = EvidencePack([Evidence("artifact_exists", "there", {"path": path, "type": "file"})])
        made = task.save({}, evidence=pack)
        (folder / "x").unlink()
        assert (made.verified, store.verify_checkpoint(made.id)) == (True, True)


def test_a_row_is_looked_for_in_the_database_as_it_was(store: Store, task: Task, base: Path) -> None:
    database = base / "app" / "jobs.sqlite"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE jobs (id TEXT, status TEXT)")
    connection.execute("INSERT INTO jobs VALUES ('a', 'done')")
    connection.commit()
    row = {"table": "jobs", "where": {"id": "a"}, "values": {"status": "done"}, "db_path": "jobs.sqlite"}
    made = task.save({}, evidence=EvidencePack([Evidence("db_row", "done", row)]))
    connection.execute("UPDATE jobs SET status = 'failed'")
    connection.commit()
    connection.close()
    assert (made.verified, store.verify_checkpoint(made.id)) == (True, True)
    assert not store.verify_checkpoint(made.id, live=True)


def test_a_database_is_put_down_once_and_no_other_in_its_place(tmp_path: Path) -> None:
    """The helper process may be reading it when the check asks where it is for the second time."""
    captured = {
        name: CapturedFile(stat.S_IFREG | 0o644, 5, name.encode(), lambda name=name: iter([name.encode()]))  # type: ignore[misc]
        for name in ("one", "two")
    }
    with closing(
        CheckpointFiles(Files(str(tmp_path), absolute=True, max_bytes=0, hash_elsewhere=None), captured.__getitem__)
    ) as files:
        first, second = Path(files.place("one")), Path(files.place("two"))
        before = first.stat()
        assert files.place("one") == str(first)
        assert first.stat() == before
        assert (first.read_text(), second.read_text()) == ("one", "two")


def test_rows_of_several_databases_are_each_looked_for_in_their_own(store: Store, task: Task, base: Path) -> None:
    claims = []
    for number in range(12):
        with closing(sqlite3.connect(base / "app" / f"{number}.sqlite")) as connection:
            connection.execute("CREATE TABLE jobs (id INTEGER)")
            connection.execute("INSERT INTO jobs VALUES (?)", (number,))
            connection.commit()
        row = {"table": "jobs", "where": {"id": number}, "db_path": f"{number}.sqlite"}
        claims.append(Evidence("db_row", f"has {number}", row))
    made = task.save({}, evidence=EvidencePack(claims))
    for number in range(12):
        (base / "app" / f"{number}.sqlite").unlink()
    checked = store.check_checkpoint(made.id).pack
    assert [piece.verification_error for piece in checked.evidence_list] == [None] * 12


def test_evidence_about_the_outside_world_is_checked_there(store: Store, task: Task, base: Path) -> None:
    outside = base / "outside.txt"
    outside.write_text("1")
    made = task.save({}, evidence=EvidencePack([Evidence("artifact_exists", "there", {"path": str(outside)})]))
    outside.unlink()
    assert (made.verified, store.verify_checkpoint(made.id)) == (True, False)


def test_a_step_that_fails_may_take_its_files_back(store: Store, task: Task, base: Path) -> None:
    """D: the failure is recorded, the files are those it began with, and what it made of them is kept."""
    good = base / "app" / "good.txt"
    good.write_text("good")
    task.save({"n": 1})

    def go_wrong() -> None:
        good.write_text("bad")
        (base / "app" / "new.txt").write_text("new")
        raise RuntimeError("gone wrong")

    with pytest.raises(RuntimeError, match="gone wrong"), task.step("edit", on_error="restore"):
        go_wrong()
    assert (good.read_text(), (base / "app" / "new.txt").exists()) == ("good", False)
    kept = next(one for one in store.list_checkpoints("t") if one.type == "before_restore")
    assert store.read_file(kept.id, "good.txt") == b"bad"
    assert "step_failed" in [entry.kind for entry in task.history()]
    with pytest.raises(RuntimeError, match="gone wrong"), task.step("edit"):
        go_wrong()
    assert good.read_text() == "bad"


def test_a_step_that_cannot_take_its_files_back_says_so(base: Path) -> None:
    """Promise 8: failure is loud. What the caller hears is what went wrong first, and this with it."""
    alerts: list[lastgood.types.Alert] = []
    good = base / "app" / "good.txt"
    (base / "app" / ".gitignore").write_text("*.log\n")
    good.write_text("good")

    def go_wrong() -> None:
        good.unlink()
        good.mkdir()
        (good / "uncaptured.log").write_text("in the way")
        raise RuntimeError("gone wrong")

    with lastgood.open(base / "told", user="ada", on_alert=alerts.append) as store:
        task = store.task("t", workspace=base / "app")
        task.save({"n": 1})
        with pytest.raises(RuntimeError, match="gone wrong") as raised, task.step("edit", on_error="restore"):
            go_wrong()
    (note,) = raised.value.__notes__
    assert note.startswith("the step 'edit' has left files that were not put back: ")
    assert "good.txt" in note
    assert [alert.message for alert in alerts] == [note]


def test_files_are_only_taken_back_where_there_are_some(store: Store) -> None:
    with pytest.raises(lastgood.InvalidError, match="no files to restore"):
        store.task("other").step("edit", on_error="restore")
