"""Where a store is found, what it refuses to open, who may read it, and how its format moves on."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import lastgood
from lastgood import FormatError, InvalidError, LostCommitsError, NotFoundError, UnavailableError
from lastgood.catalog.sqlite import connection as connections
from lastgood.catalog.sqlite.database import FileDatabase
from lastgood.catalog.sqlite.migration import Migration, migrations
from lastgood.catalog.sqlite.queue import Queue
from lastgood.cli.app import app
from lastgood.model.identity import new_id


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LASTGOOD_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    work = tmp_path / "work" / "deep"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    return tmp_path


def test_without_anything_the_users_data_directory_is_taken(home: Path) -> None:
    lastgood.open().close()
    assert (home / "data" / "lastgood" / "catalog.sqlite").is_file()


def test_a_config_above_wins_over_the_default(home: Path) -> None:
    (home / "work" / "lastgood.toml").write_text('store = "here"\n')
    lastgood.open().close()
    assert (home / "work" / "here" / "catalog.sqlite").is_file()


def test_the_environment_wins_over_the_config(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "work" / "lastgood.toml").write_text('store = "here"\n')
    monkeypatch.setenv("LASTGOOD_STORE", str(home / "elsewhere"))
    lastgood.open().close()
    assert (home / "elsewhere" / "catalog.sqlite").is_file()
    assert not (home / "work" / "here").exists()


@pytest.mark.parametrize("name", ["registry.sqlite", "registry.db", "deep/er/registry.sqlite"])
def test_a_path_with_a_databases_ending_is_the_catalog_itself(home: Path, name: str) -> None:
    with lastgood.open(home / name) as store:
        store.task("t").save({})
    assert (home / name).is_file()
    assert (home / f"{name}-lock").is_file()


def test_memory_leaves_nothing_and_says_so(home: Path) -> None:
    before = sorted(home.rglob("*"))
    with lastgood.open(":memory:") as store:
        store.task("t").save({"n": 1})
        assert store.task("t").state == {"n": 1}
        assert not store._engine.catalog.durable
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("config", ["store = 5\n", "stores = 'x'\n", "not toml", "store = 'x'\ntask = ['a']\n"])
def test_a_wrong_config_is_named(home: Path, config: str) -> None:
    (home / "work" / "lastgood.toml").write_text(config)
    with pytest.raises(InvalidError, match=r"lastgood\.toml"):
        lastgood.open()


@pytest.mark.parametrize("target", ["postgresql://host/db", "redis://host", "nonsense://x", "", "a\0b"])
def test_a_target_without_a_backend_is_refused(target: str) -> None:
    with pytest.raises(InvalidError):
        lastgood.open(target)


def test_a_file_that_is_no_store_is_left_alone(home: Path) -> None:
    (home / "text.sqlite").write_text("not a database, but long enough to be looked at " * 100)
    plain = apsw.Connection(str(home / "plain.sqlite"))
    plain.execute("CREATE TABLE t (a)")
    plain.close()
    before = {name: (home / name).read_bytes() for name in ("text.sqlite", "plain.sqlite")}
    for name in before:
        with pytest.raises(FormatError):
            lastgood.open(home / name)
    assert {name: (home / name).read_bytes() for name in before} == before
    (home / "file").write_text("x")
    with pytest.raises(InvalidError, match="not a store"):
        lastgood.open(home / "file")


def test_only_the_user_may_read_whatever_the_umask(home: Path) -> None:
    old = os.umask(0)
    try:
        with lastgood.open(home / "private") as store:
            store.task("t").save({})
            modes = {
                path.name: stat.S_IMODE(path.stat().st_mode)
                for path in [home / "private", *(home / "private").iterdir()]
            }
    finally:
        os.umask(old)
    assert modes.pop("private") == 0o700
    assert len(modes) == 4
    assert set(modes.values()) == {0o600}


def test_an_unwritable_place_is_a_clear_error(home: Path) -> None:
    (home / "blocked").write_text("")
    with pytest.raises((UnavailableError, InvalidError), match=str(home / "blocked")):
        lastgood.open(home / "blocked" / "store")


def test_what_is_fixed_at_creation_is_there(home: Path) -> None:
    """A2"""
    lastgood.open(home / "s").close()
    connection = connections.open_connection(home / "s" / "catalog.sqlite")
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2
    assert connection.pragma("auto_vacuum") == 2
    assert connection.pragma("page_size") == 4096
    assert connection.pragma("application_id") == 0x6C676F64
    assert connection.reserve_bytes() == 8
    assert int(connection.pragma("checksum_verification")) == 1


def test_other_users_of_apsw_keep_their_default_file_system(home: Path) -> None:
    lastgood.open(home / "s").close()
    assert apsw.vfs_names()[0] != "cksmvfs"


def test_a_closed_store_says_so(home: Path) -> None:
    store = lastgood.open(home / "s")
    task = store.task("t")
    store.close()
    store.close()
    with pytest.raises(UnavailableError, match="closed"):
        task.save({})


def test_a_store_half_created_is_created_again(home: Path) -> None:
    (home / "s").mkdir()
    (home / "s" / ".catalog.sqlite.123.new").write_bytes(b"half")
    with lastgood.open(home / "s") as store:
        store.task("t").save({})


def test_what_somebody_who_was_killed_while_creating_has_left_is_removed(home: Path) -> None:
    place = home / "beside"
    place.mkdir()
    for name in (f".s.sqlite.{new_id()}.new", f".s.sqlite.{new_id()}.new-wal", ".s.sqlite.mine.new", "s.sqlite.new"):
        (place / name).write_bytes(b"unfinished")
    lastgood.open(place / "s.sqlite").close()
    assert {path.name for path in place.iterdir() if path.read_bytes() == b"unfinished"} == {
        ".s.sqlite.mine.new",
        "s.sqlite.new",
    }


def test_a_new_database_is_not_put_beside_the_remains_of_an_old_one(home: Path) -> None:
    """The old log would be replayed into the new file."""
    with lastgood.open(home / "s.sqlite") as store:
        store.task("t").save({})
    (home / "s.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(lastgood.IntegrityError, match="is gone"):
            lastgood.open(home / "s.sqlite")
    assert not (home / "s.sqlite").exists()
    for remains in home.glob("s.sqlite-*"):
        remains.unlink()
    lastgood.open(home / "s.sqlite").close()


def test_a_witness_that_cannot_be_written_does_not_fail_a_stored_save(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "no space")

    with lastgood.open(home / "s") as store:
        task = store.task("t")
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            assert task.save({"n": 1}).status == "stored"
        task.save({"n": 2})


# --- format ------------------------------------------------------------------------------------------------------


NEXT = len(migrations()) + 1


def _next(format: str, sql: str) -> tuple[Migration, ...]:
    return (*migrations(), Migration(NEXT, f"{NEXT:04}_test", format, sql))


def test_a_store_that_is_migrated_has_the_tables_of_a_fresh_one(home: Path) -> None:
    more = _next("2.9", "CREATE TABLE added (a); ALTER TABLE checkpoints ADD COLUMN extra TEXT;")
    FileDatabase(home / "old.sqlite").close()
    schemas: list[object] = []
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    for name in ("old.sqlite", "new.sqlite"):
        database = FileDatabase(home / name, known=more)
        schemas.append(database.read(lambda connection: connection.execute(schema).fetchall()))
        database.close()
    assert schemas[0] == schemas[1]


def test_a_pending_migration_is_applied_on_opening_and_only_once(home: Path) -> None:
    lastgood.open(home / "s.sqlite").close()
    more = _next("2.9", "CREATE TABLE added (a);")
    for _ in range(2):
        database = FileDatabase(home / "s.sqlite", known=more)
        known = database.read(lambda connection: connection.execute("SELECT number, format FROM migrations").fetchall())
        assert known[-1] == (NEXT, "2.9")
        assert database.read(lambda connection: connection.execute("SELECT count(*) FROM added").get) == 0
        database.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(home: Path) -> None:
    lastgood.open(home / "s.sqlite").close()
    broken = _next("2.1", "CREATE TABLE added (a); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(lastgood.CheckpointError):
        FileDatabase(home / "s.sqlite", known=broken)
    with lastgood.open(home / "s.sqlite") as store:
        assert store.info().migration == NEXT - 1
    database = FileDatabase(home / "s.sqlite", known=_next("2.1", "CREATE TABLE added (a);"))
    database.close()


def test_a_newer_minor_format_is_read_and_written(home: Path) -> None:
    with lastgood.open(home / "s.sqlite") as store:
        store.task("t").save({"n": 1})
    FileDatabase(home / "s.sqlite", known=_next("2.9", "ALTER TABLE checkpoints ADD COLUMN extra TEXT;")).close()
    with lastgood.open(home / "s.sqlite") as store:
        assert store.info().format == "2.9"
        task = store.task("t")
        assert task.state == {"n": 1}
        task.save({"n": 2})


def test_a_newer_major_format_is_refused_and_left_alone(home: Path) -> None:
    lastgood.open(home / "s.sqlite").close()
    FileDatabase(home / "s.sqlite", known=_next("3.0", "CREATE TABLE future (a);")).close()
    before = (home / "s.sqlite").read_bytes()
    with pytest.raises(FormatError, match=r"format 3\.0") as caught:
        lastgood.open(home / "s.sqlite")
    assert caught.value.hint is not None
    assert "upgrade" in caught.value.hint
    assert (home / "s.sqlite").read_bytes() == before


# --- witness -----------------------------------------------------------------------------------------------------


def test_lost_commits_are_said_until_the_loss_is_accepted(home: Path) -> None:
    with lastgood.open(home / "s.sqlite") as store:
        store.task("t").save({"n": 1})
    queue = Queue(home / "s.sqlite-lock")
    with queue.turn():
        queue.testify((queue.witness() or 0) + 3)
    queue.close()
    with lastgood.open(home / "s.sqlite") as store:
        for _ in range(2):
            with pytest.raises(LostCommitsError, match="3 acknowledged"):
                store.task("t")
        assert store._engine.catalog.accept_loss() == 3
        store.task("t").save({"n": 2})
        assert store.task("t").state == {"n": 2}


@pytest.mark.parametrize("content", [b"", b"x", b"LGW1" + b"\xff" * 24, b"\0" * 28])
def test_a_witness_that_is_no_witness_proves_nothing(home: Path, content: bytes) -> None:
    with lastgood.open(home / "s.sqlite") as store:
        store.task("t").save({"n": 1})
    (home / "s.sqlite-lock").write_bytes(content)
    with lastgood.open(home / "s.sqlite") as store:
        task = store.task("t")
        assert task.state == {"n": 1}
        task.save({"n": 2})
    queue = Queue(home / "s.sqlite-lock")
    assert queue.witness() == 2
    queue.close()


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_a_fifo_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path, end: str) -> None:
    """I3, G6: SQLite would read from it for ever."""
    with lastgood.open(tmp_path / "store") as store:
        store.task("t").save({"n": 1})
    file = tmp_path / "store" / f"catalog.sqlite{end}"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(lastgood.IntegrityError, match="something else"):
        lastgood.open(tmp_path / "store")


def _put_hot_journal(file: Path) -> None:
    """Put one there that says that the catalog had 8 TiB."""
    header = struct.pack(">8sIIIII", bytes.fromhex("d9d505f920a163d7"), 0, 0, 1 << 31, 512, 4096)
    file.write_bytes(header.ljust(512, b"\0") + bytes(4096))


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere"), _put_hot_journal])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_journal_beside_the_catalog_is_refused(tmp_path: Path, put: Callable[[Path], None], is_link: bool) -> None:
    """I3, G6: SQLite waited for a fifo, and did what the journal of somebody else says. Also beside a link's target."""
    with lastgood.open(tmp_path / "store") as store:
        store.task("t").save({"n": 1})
    catalog = tmp_path / "store/catalog.sqlite"
    if is_link:
        for file in (tmp_path / "store").glob("catalog.sqlite*"):
            file.rename(tmp_path / file.name)
        catalog.symlink_to(catalog := tmp_path / "catalog.sqlite")
    size, journal = catalog.stat().st_size, catalog.with_name("catalog.sqlite-journal")
    put(journal)
    opened = f"import lastgood; lastgood.open({str(tmp_path / 'store')!r})"  # where it can be ended: SQLite waits
    told = subprocess.run([sys.executable, "-c", opened], capture_output=True, text=True, timeout=30)
    assert "IntegrityError: catalog.sqlite-journal is there" in told.stderr
    assert catalog.stat().st_size == size
    journal.rmdir() if journal.is_dir() else journal.unlink()
    journal.touch()  # an empty one says nothing
    with lastgood.open(tmp_path / "store") as store:
        assert store.task("t").state == {"n": 1}


# --- without a home, without a working directory --------------------------------------------------------------------


@pytest.fixture
def homeless() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a Python as a user whom the system does not know, with no HOME, as `docker run --user 12345` does."""
    setpriv = shutil.which("setpriv")  # unlike setuid it leaves root's rights, to read the interpreter by
    if setpriv is None or os.geteuid() != 0:
        pytest.skip("NOT TESTED, a user without a home: that needs root and setpriv")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            command = [setpriv, "--reuid=12345", "--regid=12345", "--clear-groups", sys.executable, *words]
            return subprocess.run(command, cwd=folder, env={}, capture_output=True, text=True)

        if (told := run("-c", "").stderr).endswith("No such file or directory\n"):
            pytest.skip(f"NOT TESTED, a user without a home: this Python does not start for another user: {told}")
        yield run


def test_a_user_without_a_home_is_told_what_to_name(homeless: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """C2: a traceback from `open()` and from `status`."""
    for words in (["status"], ["log"], ["trust", "--list"], ["save", "--set", "n=1"]):
        done = homeless("-m", "lastgood.cli.main", *words)
        assert (done.returncode, done.stderr.splitlines()) == (
            3,
            [
                "error: this user has no home directory",
                "hint: set HOME, or name the store in LASTGOOD_STORE",
            ],
        )
    program = "import lastgood; lastgood.open()"
    assert "lastgood.errors.NotFoundError: this user has no home directory" in homeless("-c", program).stderr
    program = "import lastgood; print(lastgood.open('s').task('t').save({}).status)"
    assert homeless("-c", program).stdout == "stored\n"
    assert homeless("-m", "lastgood.cli.main", "--store", "s", "--task", "t", "save", "--set", "n=1").returncode == 0


def test_an_absolute_path_needs_no_working_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """W6: where the working directory was deleted, it was refused."""
    gone = home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with lastgood.open(home / "s") as store:
        store.task("t").save({"n": 1})
    lastgood.open().close()
    with pytest.raises(NotFoundError, match="the current folder was deleted"):
        lastgood.open("s")
    for words, code in ((["--task", "t", "show"], 0), (["--task", "t", "save", "--set", "n=2"], 0), (["log"], 3)):
        with pytest.raises(SystemExit) as ended:
            app.main(["--store", str(home / "s"), *words])
        assert ended.value.code == code, capsys.readouterr().err
    assert "the current folder was deleted" in capsys.readouterr().err


# --- who acts -------------------------------------------------------------------------------------------------------


def become(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Be called otherwise, as under sudo and in a container."""
    for variable in ("LOGNAME", "USER"):
        monkeypatch.setenv(variable, name)


def test_a_private_store_has_one_owner_whoever_opens_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First use 8: under sudo the task "was never saved", and a second one was made."""
    become(monkeypatch, "ada")
    with lastgood.open(home / "s") as store:
        store.task("book").save({"n": 1})
    become(monkeypatch, "root")
    with lastgood.open(home / "s") as store:
        assert (store.user, store.task("book").state) == ("ada", {"n": 1})
        store.task("book").save({"n": 2})
    with lastgood.CheckpointManager(home / "s") as manager:
        assert manager.user == "ada"
        assert [task.owner for task in manager.tasks()] == ["ada"]
    with lastgood.open(home / "s", user="root") as store:
        assert store.task("book").head is None


def test_a_shared_store_has_as_many_owners_as_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, "ada")
    with lastgood.open(home / "s") as store:
        store.task("book").save({"n": 1})
    (home / "s").chmod(0o770)
    for file in (home / "s").iterdir():
        file.chmod(0o660)
    become(monkeypatch, "bob")
    with lastgood.open(home / "s") as store:
        assert store.user == "bob"


def test_a_task_that_was_never_saved_is_told_with_the_one_that_may_be_meant(home: Path) -> None:
    """First use 8"""
    with lastgood.open(home / "s", user="ada") as store:
        store.task("book").save({"n": 1})
    for user, task, hint in (
        ("bob", "book", "'ada' has one of this name: owner='ada'"),
        ("ada", "bok", "there is one task: store.task('book')"),
        ("bob", "bok", "store.tasks() lists them"),
    ):
        with lastgood.open(home / "s", user=user) as store, pytest.raises(NotFoundError) as refused:
            store.history(task)
        assert (str(refused.value), refused.value.hint) == (f"there is no task {task!r}", hint)
