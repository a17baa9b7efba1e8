"""What a command proved is stale once files of the checkpoint have changed after it had ended (D2, D3, D7)."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.file_trees import QUICK

import lastgood
from lastgood import Checkpoint, Store, Task
from lastgood.engine import staleness
from lastgood.engine.staleness import take_stamp
from lastgood.model.tree import is_temporary

AFTER = "after the command had ended"

Change = Callable[[Path], object]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for name in ("src/app.py", "src/old.py", "lib/deep/part.py", "notes.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one")
    (folder / "lib" / "link").symlink_to("deep")
    (folder / ".gitignore").write_text("__pycache__/\n*.log\n")
    (folder / "lib" / "__pycache__").mkdir()
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    (tmp_path / "elsewhere" / "inner" / "file").write_text("long ago")
    return folder


@pytest.fixture
def task(store: Store, work: Path) -> Task:
    task = store.task("t", workspace=work)
    task.save({})
    return task


def shell(task: Task, line: str, then: Change = lambda work: None) -> Checkpoint:
    """A step that runs a line of shell in the workspace, and then does something else."""
    [root] = task._handle.require_workspace().roots
    with task.step("test") as step:
        step.run(["sh", "-c", line], cwd=root.path)
        then(Path(root.path))
    assert step.checkpoint is not None
    return step.checkpoint


def outcomes(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    pieces = checkpoint.evidence_pack.evidence_list
    return [(evidence.verification_status, evidence.verification_error) for evidence in pieces]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda work: (work / "src" / "app.py").write_text("two"), "src/app.py changed"),
        (lambda work: (work / "src" / "app.py").write_text("one"), "src/app.py changed"),
        (lambda work: (work / "src" / "app.py").chmod(0o700), "src/app.py changed"),
        (lambda work: (work / "src" / "new.py").write_text("new"), "src/new.py changed"),
        (lambda work: (work / "src" / "app.py").rename(work / "app.py"), "app.py changed|src/app.py was removed"),
        (lambda work: (work / "src" / "second").symlink_to("app.py"), "src/second changed"),
        (lambda work: (work / "lib").rename(work / "library"), "library changed|lib/.* was removed"),
        (lambda work: (work.parent / "elsewhere").rename(work / "src" / "more"), "src/more changed"),
        (lambda work: (work / "src").chmod(0o700), "src changed"),
        (lambda work: (work / "notes.txt").unlink(), "notes.txt was removed"),
        (lambda work: (work / "lib" / "link").unlink(), "lib/link was removed"),
        (lambda work: (work / "lib" / "deep").rename(work.parent / "away"), "lib/deep/part.py was removed"),
        (lambda work: (work / ".gitignore").write_text("*.py\n"), ".gitignore changed"),
    ],
)
def test_a_change_after_the_command_makes_its_evidence_stale(task: Task, change: Change, said: str) -> None:
    made = shell(task, "exit 0", change)
    [(status, error)] = outcomes(made)
    assert status == "stale"
    assert re.fullmatch(f"({said}) {AFTER}", error or "")
    assert not made.verified
    assert made.evidence_pack.verification_summary() == {
        "total": 1, "verified": 0, "failed": 0, "is_verified": False
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "true",
        "echo two > src/app.py; echo new > new.txt; chmod 700 src/old.py",
        "rm src/old.py notes.txt; rm -r lib",
        "mv lib library; mv ../elsewhere src/more; chmod 700 src",
        "mkdir -p build/__pycache__; echo text > build/out.log",
    ],
)
def test_what_the_command_itself_did_does_not_make_it_stale(task: Task, line: str) -> None:
    """The ordinary case: the tests are run, and the step commits at once."""
    for again in range(3):
        made = shell(task, line if not again else "date > notes.txt")
        assert outcomes(made) == [("verified", None)]


@pytest.mark.parametrize(
    "change",
    [
        lambda work: (work / "lib" / "__pycache__" / "part.pyc").write_text("bytes"),
        lambda work: (work / "src" / "__pycache__").mkdir(),
        lambda work: (work / "run.log").write_text("more"),
        lambda work: (work / "src" / "app.py").read_text(),
        lambda work: os.mkfifo(work / "src" / "pipe"),
        lambda work: (work / "src" / "app.log").write_text("more") and (work / "src" / "app.log").unlink(),
    ],
)
def test_what_is_not_captured_does_not_count(task: Task, change: Change) -> None:
    """Later commands leave caches in folders that are captured."""
    assert outcomes(shell(task, "echo two > src/app.py", change)) == [("verified", None)]


@pytest.mark.parametrize("line", ["rm notes.txt src/old.py", "rm -r lib/deep", "mv src/old.py old.py", "rm -r lib"])
def test_what_the_command_removed_is_its_own_work_also_where_ignored_files_come_and_go(task: Task, line: str) -> None:
    """It had been called removed after the command: the time of a folder is also that of the ignored files in it."""

    def touch(work: Path) -> None:
        for folder in ("", "src/", "lib/"):
            if (work / folder).is_dir():
                (work / f"{folder}noise.log").write_text("noise")
                (work / f"{folder}noise.log").unlink()

    assert outcomes(shell(task, line, touch)) == [("verified", None)]


def test_what_is_removed_after_the_command_counts_also_beside_what_it_removed(task: Task) -> None:
    made = shell(task, "rm src/old.py; rm -r lib", lambda work: (work / "src" / "app.py").unlink())
    assert outcomes(made) == [("stale", f"src/app.py was removed {AFTER}")]


def test_what_was_removed_before_the_command_does_not_count(task: Task, work: Path) -> None:
    """By the program itself, in the step; and by an earlier command, whose own work it is."""
    with task.step("test") as step:
        (work / "src" / "old.py").unlink()
        step.run(["rm", "notes.txt"], cwd=work)
        step.run(["true"])
        (work / "src" / "app.log").write_text("noise")
        (work / "src" / "app.log").unlink()
    assert step.checkpoint is not None
    assert outcomes(step.checkpoint) == [("verified", None), ("verified", None)]


@pytest.mark.parametrize(("ending", "outcome"), [("-shm", "verified"), ("-wal", "stale")])
def test_reading_a_database_does_not_count_and_writing_into_its_log_does(
    task: Task, work: Path, ending: str, outcome: str
) -> None:
    """L1, L2: what lies beside a database is a part of it."""
    (work / "app.db").write_bytes(b"SQLite format 3\0 and so on")
    change = lambda work: (work / f"app.db{ending}").write_text("more")  # noqa: E731
    assert [found[0] for found in outcomes(shell(task, "echo two > src/app.py", change))] == [outcome]


def test_a_cache_that_a_later_command_puts_in_its_place_as_a_whole_does_not_count(task: Task, work: Path) -> None:
    """As pytest makes its own: a folder that ignores all that is in it, and gets its name in the end."""

    def put_cache(work: Path) -> None:
        (work / "cache-1").mkdir()
        (work / "cache-1" / ".gitignore").write_text("*\n")
        (work / "cache-1").rename(work / ".cache")

    assert outcomes(shell(task, "true", put_cache)) == [("verified", None)]


def test_of_two_commands_the_one_that_ran_before_the_change_is_stale(task: Task, work: Path) -> None:
    with task.step("test") as step:
        step.run(["true"], description="first")
        step.run(["sh", "-c", "echo two > src/app.py"], cwd=work)
        step.run(["true"], description="last")
    assert step.checkpoint is not None
    stale = "stale", f"src/app.py changed {AFTER}"
    assert outcomes(step.checkpoint) == [stale, ("verified", None), ("verified", None)]
    assert not step.checkpoint.verified


def test_a_command_that_failed_and_files_that_changed_then_say_nothing_of_the_files(task: Task) -> None:
    made = shell(task, "exit 3", lambda work: (work / "src" / "app.py").write_text("mended"))
    assert outcomes(made) == [("stale", f"src/app.py changed {AFTER}")]
    assert outcomes(shell(task, "exit 3")) == [("failed", "mismatch: the command ended with 3, not 0")]


def test_stale_evidence_stays_stale_however_often_it_is_checked(tmp_path: Path, work: Path) -> None:
    """The recorded exit code is the right one for ever: it is the files that are others."""
    with lastgood.open(tmp_path / "kept", user="tester") as store:
        task = store.task("t", workspace=work)
        good = shell(task, "true")
        made = shell(task, "true", lambda work: (work / "src" / "app.py").write_text("two"))
        assert not store.verify_checkpoint(made.id)
        assert not store.verify_checkpoint(made.id, live=True)
    with lastgood.open(tmp_path / "kept", user="tester") as store:
        assert not store.verify_checkpoint(made.id)
        again = store.find_checkpoint(made.id)
        assert outcomes(again) == [("stale", f"src/app.py changed {AFTER}")]
        last = store.task("t").last_good()
        assert last is not None
        assert last.id == good.id
        assert store.verify_checkpoint(good.id)


def test_evidence_that_is_checked_later_only_is_stale_then(tmp_path: Path, work: Path) -> None:
    with lastgood.open(tmp_path / "kept", user="tester", auto_verify=False) as store:
        made = shell(store.task("t", workspace=work), "true", lambda work: (work / "notes.txt").write_text("two"))
        assert outcomes(made) == [("pending", None)]
        assert not store.verify_checkpoint(made.id)
        assert outcomes(store.find_checkpoint(made.id)) == [("stale", f"notes.txt changed {AFTER}")]


def test_other_evidence_of_the_step_is_not_touched(task: Task, work: Path) -> None:
    """A file that is expected is looked at when the step commits."""
    with task.step("test") as step:
        step.run(["true"])
        (work / "notes.txt").write_text("two")
        step.expect_file(work / "notes.txt")
    assert step.checkpoint is not None
    assert [status for status, _ in outcomes(step.checkpoint)] == ["stale", "verified"]


def test_without_a_workspace_a_command_proves_what_it_did(store: Store, work: Path) -> None:
    with store.task("t").step("test") as step:
        step.run(["true"])
        (work / "src" / "app.py").write_text("two")
    assert step.checkpoint is not None
    assert step.checkpoint.verified


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda work: (work / "src" / "app.py").write_text("two"), "src/app.py changed"),
        (lambda work: (work.parent / "elsewhere").rename(work / "src" / "more"), "src/more changed"),
        (lambda work: (work / "notes.txt").unlink(), "notes.txt was removed"),
        (lambda work: (work / "src" / "app.py").write_text("one"), "src/app.py changed"),
        (lambda work: (work / "lib").rename(work / "tmp").rename(work / "lib"), "lib changed"),
    ],
)
def test_a_change_that_another_capture_has_seen_is_a_change_all_the_same(
    store: Store, work: Path, watch: bool, change: Change, said: str
) -> None:
    """A capture that looks only at what changed since the last one knows when the rest did."""
    task = store.task("t", workspace=work, watch=watch)
    task.save({})

    def change_and_look(work: Path) -> None:
        change(work)
        task.diff()
        task.diff()

    assert outcomes(shell(task, "true", change_and_look)) == [("stale", f"{said} {AFTER}")]
    assert outcomes(shell(task, "true")) == [("verified", None)]


def test_a_parent_whose_files_cannot_be_read_does_not_keep_a_step_from_its_checkpoint(
    store: Store, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I3: what was removed is not known then, and the rest is."""

    def refuse(key: bytes) -> bytes:
        raise lastgood.IntegrityError("damaged")

    monkeypatch.setattr(store._engine.blobs, "read", refuse)
    assert outcomes(shell(task, "rm notes.txt")) == [("verified", None)]
    made = shell(task, "rm src/old.py", lambda work: (work / "src" / "app.py").write_text("two"))
    assert outcomes(made) == [("stale", f"src/app.py changed {AFTER}")]


@pytest.mark.skipif(QUICK is None, reason="needs a second file system")
def test_each_folder_goes_by_the_clock_of_its_own_file_system(store: Store, work: Path) -> None:
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        other = Path(folder)
        task = store.task("t", workspace={"app": work, "infra": other})
        with task.step("test") as step:
            step.run(["sh", "-c", f"echo 1 > {other}/main.tf; echo 1 > {work}/main.tf"])
        assert step.checkpoint is not None
        assert step.checkpoint.verified
        assert list(other.iterdir()) == [other / "main.tf"]
        with task.step("test") as step:
            step.run(["true"])
            (other / "main.tf").write_text("2")
        assert step.checkpoint is not None
        assert outcomes(step.checkpoint) == [("stale", f"infra:main.tf changed {AFTER}")]


# --- the probe ---------------------------------------------------------------------------------------------------


def test_every_change_is_before_or_after_a_stamp(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for _ in range(200):
        file.write_text("before")
        stamp = take_stamp([str(tmp_path)])
        assert file.stat().st_ctime_ns <= stamp
        file.write_text("after")
        assert file.stat().st_ctime_ns > stamp


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="needs files without a name")
def test_a_probe_leaves_nothing_and_does_not_touch_its_folder(tmp_path: Path) -> None:
    before = tmp_path.stat().st_ctime_ns
    take_stamp([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_ctime_ns == before


def test_where_every_file_has_a_name_a_probe_loses_it_before_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the folder would seem to have changed after the command; and captures leave such a name out."""
    names: list[str] = []
    unlink = os.unlink

    def note_and_unlink(path: str) -> None:
        names.append(Path(path).name)
        unlink(path)

    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr(os, "unlink", note_and_unlink)
    stamp = take_stamp([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
    assert tmp_path.stat().st_ctime_ns <= stamp
    assert is_temporary(os.fsencode(names[0]))


def test_where_nothing_can_be_written_the_clock_is_asked(tmp_path: Path) -> None:
    before = time.time_ns()
    assert before <= take_stamp([str(tmp_path / "not there")]) <= time.time_ns()


def test_a_file_system_whose_clock_stands_still_for_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some count in whole seconds. What is stamped alike is then taken for what was there before."""
    found = tmp_path.stat()
    monkeypatch.setattr(os, "fstat", lambda descriptor: found)
    monkeypatch.setattr(staleness, "PATIENCE_SECONDS", 0)
    assert take_stamp([str(tmp_path)]) == found.st_ctime_ns
