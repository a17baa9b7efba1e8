"""Evidence against those who mean harm: paths, races, special files, SQL, malicious databases, and locks (D8)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import sqlite3
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lastgood.evidence import files as files_module
from lastgood.evidence.files import hash_open
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.local.database import _kept, _Reading, close_kept, find_row
from lastgood.local.paths import signature
from lastgood.local.process import descriptors
from lastgood.model.evidence import Evidence

SECRET = b"the secret outside"
SECRET_DIGEST = hashlib.sha256(SECRET).hexdigest()
INSIDE = b"nothing to hide"
INSIDE_DIGEST = hashlib.sha256(INSIDE).hexdigest()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "out").mkdir(parents=True)
    (folder / "inside").write_bytes(INSIDE)
    (tmp_path / "outside").mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "outside" / "secret").write_bytes(SECRET)
    make_database(tmp_path / "secret.db")
    return folder


@pytest.fixture
def verifier(base: Path) -> Iterator[EvidenceVerifier]:
    with EvidenceVerifier(base, sleep=lambda seconds: None) as opened:
        yield opened


@contextmanager
def acting_as_nobody() -> Iterator[None]:
    """Nothing is forbidden to root, so root is someone else for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def make_database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("CREATE TABLE tasks (id INTEGER PRIMARY KEY, status TEXT)")
        connection.execute("INSERT INTO tasks VALUES (1, 'done')")
        for statement in statements:
            connection.execute(statement)


def check(verifier: EvidenceVerifier, type: str, /, **expected: Any) -> str:
    """What is recorded as the error; "holds" when it does."""
    evidence = Evidence(type, "a claim", expected)
    verifier.verify_evidence(evidence)
    return evidence.verification_error or "holds"


def check_row(verifier: EvidenceVerifier, path: object, /, **expected: Any) -> str:
    return check(verifier, "db_row", **({"table": "tasks", "where": {"id": 1}, "db_path": str(path)} | expected))


def picture(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}


class TestPaths:
    LINKS = (
        ("link", "../secret"),
        ("absolute", "{outside}/secret"),
        ("folder", "../outside"),
        ("up", ".."),
        ("chain", "chain2"),
        ("chain2", "out/../link"),
        ("out/deep", "../../secret"),
        ("database", "../secret.db"),
        ("prefix", "{base}-not/secret"),
    )

    @pytest.mark.parametrize(
        "path",
        [
            "..",
            "../secret",
            "out/../../secret",
            "./../secret",
            "out//..//..//secret",
            "link",
            "absolute",
            "folder/secret",
            "folder/../secret",
            "up/secret",
            "up/outside/secret",
            "chain",
            "out/deep",
            "out/../link",
            "link/",
            "../base/inside",
            "../base",
            "prefix",
        ],
    )
    def test_no_path_leads_out_of_the_base(self, verifier: EvidenceVerifier, base: Path, path: str) -> None:
        """D8"""
        self.make_links(base)
        for kind in ("artifact_exists", "file_sha256"):
            error = check(verifier, kind, path=path, sha256=SECRET_DIGEST)
            assert error.startswith("check_error: ")
            assert "leads out" in error
            assert SECRET_DIGEST not in error

    @pytest.mark.parametrize("path", ["../secret.db", "database", "up/secret.db"])
    def test_no_database_outside_is_read(self, verifier: EvidenceVerifier, base: Path, path: str) -> None:
        """D8"""
        self.make_links(base)
        assert "leads out" in check_row(verifier, path)

    def test_links_that_stay_inside_are_followed(self, verifier: EvidenceVerifier, base: Path) -> None:
        """D8"""
        (base / "a").symlink_to("out/../b")
        (base / "b").symlink_to(base / "out" / "c")
        (base / "out" / "c").symlink_to("../inside")
        (base / "d").symlink_to("out")
        (base / "self").symlink_to(base)
        for path in ("a", "b", "out/c", "d/c", "d/../inside", "self/self/a"):
            assert check(verifier, "file_sha256", path=path, sha256=INSIDE_DIGEST) == "holds"
        make_database(base / "app.db")
        (base / "alias.db").symlink_to("self/app.db")
        assert check_row(verifier, "alias.db") == "holds"

    def test_links_that_lead_nowhere_or_round_and_round_are_refused(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        (base / "dangling").symlink_to("nothing")
        (base / "loop").symlink_to("loop")
        (base / "ping").symlink_to("pong/x")
        (base / "pong").symlink_to("ping/x")
        for number in range(60):
            (base / f"l{number}").symlink_to(f"l{number + 1}")
        (base / "l60").write_bytes(INSIDE)
        assert check(verifier, "artifact_exists", path="dangling") == "mismatch: dangling does not exist"
        for path in ("loop", "loop/x", "ping", "l0"):
            assert "too many symbolic links" in check(verifier, "artifact_exists", path=path)
        assert check(verifier, "artifact_exists", path="l30") == "holds"
        assert check(verifier, "artifact_exists", path=str(base / "loop")).startswith("check_error: ")

    @pytest.mark.parametrize(
        "path",
        ["", "\0", "inside\0", "in\0side", "x" * 5000, "x" * 300, "a/" * 2000 + "b", "\ud800", "inside\udcff"],
    )
    def test_what_no_file_is_called_is_refused_politely(self, verifier: EvidenceVerifier, path: str) -> None:
        for kind in ("artifact_exists", "file_sha256", "db_row"):
            error = check(verifier, kind, path=path, db_path=path, sha256=INSIDE_DIGEST, table="tasks", where={"id": 1})
            assert error.startswith(("check_error: ", "mismatch: "))
            assert "\0" not in error
            assert len(error) < 500

    @pytest.mark.parametrize("path", ["~", "~root", "$HOME", "out\\..\\inside", "C:\\inside", "file:inside", "*"])
    def test_a_path_is_taken_literally(self, verifier: EvidenceVerifier, path: str) -> None:
        assert check(verifier, "artifact_exists", path=path).endswith("does not exist")

    def make_links(self, base: Path) -> None:
        for name, target in self.LINKS:
            (base / name).symlink_to(target.format(base=base, outside=base.parent))
        (base.parent / "base-not").mkdir()
        (base.parent / "base-not" / "secret").write_bytes(SECRET)


@contextmanager
def swapping(path: Path, harmless: Path, harmful: Path) -> Iterator[None]:
    """A thread that lets `path` be one and the other in turn, as fast as it can."""
    done = threading.Event()
    first, second = path.with_name("swap1"), path.with_name("swap2")

    def swap() -> None:
        while not done.is_set():
            first.symlink_to(harmful)
            first.rename(path)
            os.link(harmless, first)
            first.rename(path)

    def swap_folder() -> None:
        while not done.is_set():
            path.rename(second)
            first.symlink_to(harmful)
            first.rename(path)
            path.unlink()
            second.rename(path)

    thread = threading.Thread(target=swap_folder if path.is_dir() else swap)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()


class Forgetful(dict[Any, str]):
    def __setitem__(self, key: Any, value: str) -> None:
        """Remember nothing."""


class TestRaces:
    def test_a_file_swapped_for_a_link_to_a_secret_is_never_hashed(
        self, verifier: EvidenceVerifier, base: Path, tmp_path: Path
    ) -> None:
        """D8"""
        (base / "target").write_bytes(INSIDE)
        verifier._files._known = Forgetful()  # so that every round reads
        with swapping(base / "target", base / "inside", tmp_path / "secret"):
            errors = {check(verifier, "file_sha256", path="target", sha256=SECRET_DIGEST) for _ in range(1500)}
        assert "holds" not in errors
        assert not any(SECRET_DIGEST in error for error in errors)
        assert any(INSIDE_DIGEST in error for error in errors)

    @pytest.mark.parametrize("path", ["target", "out/target"])
    def test_a_file_swapped_at_the_worst_moment_is_not_hashed(
        self, verifier: EvidenceVerifier, base: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D8: a link after the last look, just before it is opened."""
        (base / path).write_bytes(INSIDE)
        really_open = os.open

        def swap_and_open(name: str, flags: int, *, dir_fd: int | None = None) -> int:
            if name == "target":
                (base / path).unlink()
                (base / path).symlink_to(tmp_path / "secret")
            return really_open(name, flags, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", swap_and_open)
        error = check(verifier, "file_sha256", path=path, sha256=SECRET_DIGEST)
        assert error.startswith("check_error: ")
        assert SECRET_DIGEST not in error

    def test_a_folder_swapped_for_a_link_to_another_is_never_entered(
        self, verifier: EvidenceVerifier, base: Path, tmp_path: Path
    ) -> None:
        """D8: the secret stands outside alone, so that even its existence must not be told."""
        with swapping(base / "out", base / "out", tmp_path / "outside"):
            errors = {check(verifier, "artifact_exists", path="out/secret") for _ in range(1500)}
            errors |= {check(verifier, "file_sha256", path="out/secret", sha256=SECRET_DIGEST) for _ in range(1500)}
        assert "holds" not in errors
        assert not any(SECRET_DIGEST in error for error in errors)

    def test_a_database_swapped_for_a_link_to_another_is_never_believed(
        self, verifier: EvidenceVerifier, base: Path, tmp_path: Path
    ) -> None:
        """D8"""
        make_database(base / "own.db", "UPDATE tasks SET status = 'open'")
        os.link(base / "own.db", base / "app.db")
        with swapping(base / "app.db", base / "own.db", tmp_path / "secret.db"):
            errors = {check_row(verifier, "app.db", values={"status": "done"}) for _ in range(400)}
        assert "holds" not in errors

    def test_a_file_that_never_stops_changing_is_refused(
        self, verifier: EvidenceVerifier, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:

        def write_meanwhile(descriptor: int, max_bytes: int, deadline: float) -> str:
            with (base / "inside").open("ab") as file:
                file.write(b".")
            return hash_open(descriptor, max_bytes, deadline)

        monkeypatch.setattr(files_module, "hash_open", write_meanwhile)
        error = check(verifier, "file_sha256", path="inside", sha256=INSIDE_DIGEST)
        assert error == "check_error: inside changed while it was read"
        assert (base / "inside").read_bytes() == INSIDE + b".."


class TestSpecialFiles:
    def test_what_is_no_regular_file_is_never_opened(
        self, verifier: EvidenceVerifier, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(base)
        os.mkfifo(base / "pipe")
        with closing(socket.socket(socket.AF_UNIX)) as listening:
            listening.bind("socket")
            for path, kind in (("pipe", "pipe"), ("socket", "socket"), ("out", "directory"), ("/dev/zero", "device")):
                assert check(verifier, "artifact_exists", path=path) == "holds"
                wrong = f"mismatch: {path} is a {kind}, not a file"
                assert check(verifier, "artifact_exists", path=path, type="file") == wrong
                assert check(verifier, "file_sha256", path=path, sha256=INSIDE_DIGEST) == wrong
                assert check_row(verifier, path) == f"check_error: the database is a {kind}, not a file"

    def test_ten_gigabytes_of_nothing_are_not_read(self, verifier: EvidenceVerifier, base: Path) -> None:
        (base / "sparse").touch()
        os.truncate(base / "sparse", 10 << 30)
        error = check(verifier, "file_sha256", path="sparse", sha256=INSIDE_DIGEST)
        assert error.startswith("check_error: the file has 10,737,418,240 bytes, more than the 4,294,967,296 that")

    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
    @pytest.mark.parametrize("path", ["/proc/self/status", "/proc/self/mem", "/proc/self/pagemap", "/proc/meminfo"])
    def test_files_that_the_kernel_makes_up_do_no_harm(self, base: Path, path: str) -> None:
        with EvidenceVerifier(base, max_file_bytes=1 << 20) as verifier:
            assert check(verifier, "file_sha256", path=path, sha256=INSIDE_DIGEST) != "holds"

    def test_what_may_not_be_read_could_not_be_checked(self) -> None:
        with tempfile.TemporaryDirectory() as folder, EvidenceVerifier(folder) as verifier:
            Path(folder).chmod(0o755)
            (Path(folder) / "inside").touch(0)
            with acting_as_nobody():
                error = check(verifier, "file_sha256", path="inside", sha256=INSIDE_DIGEST)
        assert error == "check_error: inside cannot be read: permission denied"


ODD_TABLES = (
    "tasks",
    'we"ird',
    "dash-es",
    "select",
    "semi;colon",
    "[brackets]",
    "ünïcode",
    "spa ce",
    "'quoted'",
    "-- x",
)
ODD_COLUMNS = ("id", 'c"ol', "group", "a;b", "[x]", "--", "ö")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EvidenceVerifier, Path]]:
    folder = tmp_path_factory.mktemp("odd")
    columns = ", ".join('"' + name.replace('"', '""') + '" INTEGER' for name in ODD_COLUMNS)
    with closing(sqlite3.connect(folder / "odd.db")) as connection:
        for name in ODD_TABLES:
            quoted = '"' + name.replace('"', '""') + '"'
            connection.execute(f"CREATE TABLE {quoted} ({columns})")
            connection.execute(f"INSERT INTO {quoted} VALUES ({', '.join('1' for _ in ODD_COLUMNS)})")
        connection.commit()
    with EvidenceVerifier(folder) as verifier:
        yield verifier, folder


TRICKS = (
    *('"', "'", "`", "[", "]", ";", "--", "/*", "*/", "\0", " ", ",", "(", ")", "*", "%", "?", "\u202e", "K", "ſ"),
    *("DROP TABLE tasks", "OR 1=1", "UNION SELECT", "ATTACH", "x'00'", "rowid", "oid", "_rowid_", "main.", "temp."),
    *("sqlite_schema", "sqlite_master", "sqlite_temp_master", "pragma_table_list", "json_each"),
)
fragments = st.sampled_from((*ODD_TABLES, *ODD_COLUMNS, *TRICKS))
wordy = st.text().filter(lambda text: not any(map(str.isdigit, text)))
names = st.lists(fragments, min_size=1, max_size=3).map("".join) | st.text(max_size=8)


def is_among(name: str, known: tuple[str, ...]) -> bool:
    lowered = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
    return name.translate(lowered) in known


class TestNames:
    @pytest.mark.parametrize("table", ODD_TABLES)
    def test_odd_names_that_are_in_the_schema_match(self, odd: tuple[EvidenceVerifier, Path], table: str) -> None:
        everything = dict.fromkeys(ODD_COLUMNS, 1)
        result = check(odd[0], "db_row", table=table, where=everything, values=everything, db_path="odd.db")
        assert result == "holds"

    @settings(max_examples=200)
    @given(table=names, column=names, other=names)
    @example(table='tasks" --', column="id", other="id")
    @example(table="sqlite_schema", column="type", other="name")
    @example(table="tasks", column="rowid", other="id")
    @example(table="tasks", column='id" IS 1 OR "id', other="id")
    @example(table="TASKS", column="ID", other="Group")
    def test_only_names_that_are_in_the_schema_match(
        self, odd: tuple[EvidenceVerifier, Path], table: str, column: str, other: str
    ) -> None:
        """D8: whatever is claimed, names are looked up and the database stays as it is."""
        verifier, folder = odd
        before = picture(folder)
        result = check(verifier, "db_row", table=table, where={column: 1}, values={other: 1}, db_path="odd.db")
        known = is_among(table, ODD_TABLES) and is_among(column, ODD_COLUMNS) and is_among(other, ODD_COLUMNS)
        assert (result == "holds") is known
        assert known or result.startswith(("mismatch: the database has no table", "mismatch: the table", "check_error"))
        assert picture(folder) == before

    @settings(max_examples=60)
    @given(value=st.none() | st.booleans() | st.integers() | st.floats() | wordy | st.binary())
    @example(value="1 OR 1")
    @example(value="1")
    def test_no_value_is_more_than_a_value(self, odd: tuple[EvidenceVerifier, Path], value: object) -> None:
        verifier, folder = odd
        before = picture(folder)
        result = check(verifier, "db_row", table="tasks", where={"id": value}, db_path="odd.db")
        assert (result == "holds") is (value in (1, "1"))  # the column says that "1" is 1
        assert picture(folder) == before


WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    connection.execute(statement)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)  # as a crash would leave it
"""


@contextmanager
def writer(path: Path, *statements: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that did this to the database and has it open; at its end it goes without cleaning up."""
    command = [sys.executable, "-c", WRITER, str(path), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


class TestWriters:
    def test_a_database_that_a_writer_has_locked_is_tried_again_and_then_given_up(self, base: Path) -> None:
        """D9"""
        waits: list[float] = []
        make_database(base / "app.db")
        with EvidenceVerifier(base, attempts=3, sleep=waits.append) as verifier:
            with writer(base / "app.db", "BEGIN EXCLUSIVE"):
                error = check_row(verifier, "app.db")
                assert error.startswith("check_error: the database is locked")
                assert len(waits) == 2
            assert check_row(verifier, "app.db") == "holds"

    def test_a_writer_that_only_prepares_does_not_disturb(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(base / "app.db")
        with writer(base / "app.db", "BEGIN IMMEDIATE", "UPDATE tasks SET status = 'open'"):
            assert check_row(verifier, "app.db", values={"status": "done"}) == "holds"

    def test_a_wal_writer_does_not_disturb_and_only_what_is_committed_counts(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        make_database(base / "app.db", "PRAGMA journal_mode = WAL")
        committed, open_one = "UPDATE tasks SET status = 'committed'", "UPDATE tasks SET status = 'not yet'"
        with writer(base / "app.db", committed, "BEGIN EXCLUSIVE", open_one):
            before = sorted(path.name for path in base.iterdir())
            assert check_row(verifier, "app.db", values={"status": "committed"}) == "holds"
            assert check_row(verifier, "app.db", values={"status": "not yet"}).startswith("mismatch: ")
            assert sorted(path.name for path in base.iterdir()) == before

    def test_reading_a_closed_wal_database_leaves_no_trace(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(base / "app.db")
        with closing(sqlite3.connect(base / "app.db")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE more (x)")
        before = picture(base)
        assert set(before) == {"app.db", "inside"}
        assert check_row(verifier, "app.db") == "holds"
        assert picture(base) == before

    def test_a_database_of_a_crashed_wal_writer_is_read_without_a_trace(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        make_database(base / "app.db", "PRAGMA journal_mode = WAL")
        with writer(base / "app.db", "UPDATE tasks SET status = 'committed'"):
            pass
        before = picture(base)
        assert {"app.db-wal", "app.db-shm"} < set(before)
        assert check_row(verifier, "app.db", values={"status": "committed"}) == "holds"
        assert picture(base) == before

    def test_a_log_that_nobody_can_read_without_writing_is_refused(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        make_database(base / "app.db", "PRAGMA journal_mode = WAL")
        with writer(base / "app.db", "UPDATE tasks SET status = 'committed'"):
            pass
        (base / "app.db-shm").unlink()
        before = picture(base)
        assert check_row(verifier, "app.db").startswith("check_error: the database has changes in a log")
        assert picture(base) == before

    def test_the_journal_of_a_crashed_writer_is_left_to_its_program(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        make_database(base / "app.db", "CREATE TABLE bulk (x)")
        fill = "INSERT INTO bulk WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        fill += "SELECT randomblob(900) FROM n"
        spill = ("PRAGMA cache_size = 5", "BEGIN", "UPDATE tasks SET status = 'torn'", fill)
        with writer(base / "app.db", *spill):
            pass
        before = picture(base)
        assert len(before["app.db-journal"][0]) > 0
        assert check_row(verifier, "app.db", values={"status": "torn"}).startswith(
            "check_error: the database is locked by a writer, or by one that did not finish"
        )
        assert picture(base) == before

    def test_a_log_that_is_a_link_is_not_followed(self, verifier: EvidenceVerifier, base: Path, tmp_path: Path) -> None:
        for ending in ("-wal", "-journal", "-shm"):
            make_database(base / f"app{ending}.db")
            (base / f"app{ending}.db{ending}").symlink_to(tmp_path / "secret")
            assert "not a regular file" in check_row(verifier, f"app{ending}.db")


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"


def forge(path: Path, sql: str, *, type: str = "table", name: str = "tasks", root: int = 2) -> None:
    """Rewrite the schema's entry, as nobody's program would."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET type = ?, name = ?, rootpage = ?, sql = ? WHERE name = 'tasks'",
            (type, name, root, sql),
        )
        connection.commit()


class TestMaliciousDatabases:
    def test_views_and_virtual_tables_are_refused(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(
            base / "app.db",
            f"CREATE VIEW bomb AS {ENDLESS}",
            "CREATE VIEW innocent AS SELECT * FROM tasks",
            "CREATE VIRTUAL TABLE words USING fts5(id)",
            "CREATE VIRTUAL TABLE boxes USING rtree(id, a, b)",
        )
        for view in ("bomb", "innocent"):
            assert check_row(verifier, "app.db", table=view) == f"mismatch: the database has no table {view}"
        for virtual in ("words", "boxes"):
            assert check_row(verifier, "app.db", table=virtual) == f"check_error: {virtual} is not an ordinary table"
        assert check_row(verifier, "app.db") == "holds"

    @pytest.mark.parametrize(
        "sql",
        [
            f"CREATE VIEW tasks AS {ENDLESS}",
            "CREATE VIEW tasks AS SELECT 1 AS id",
            "CREATE VIRTUAL TABLE tasks USING fts5(id)",
            "CREATE TABLE other (id)",
            "CREATE TABLE tasks AS SELECT 1",
            "DROP TABLE tasks",
            "",
            "CREATE TABLE tasks (" + "(" * 5000,
        ],
    )
    def test_a_schema_that_lies_is_not_believed(self, verifier: EvidenceVerifier, base: Path, sql: str) -> None:
        make_database(base / "app.db")
        forge(base / "app.db", sql)
        before = picture(base)
        assert check_row(verifier, "app.db").startswith(("check_error: ", "mismatch: "))
        assert picture(base) == before

    def test_a_view_behind_another_s_name_does_not_run(self, verifier: EvidenceVerifier, base: Path) -> None:
        """The entry of that name looks like a table; another entry's text makes the view."""
        make_database(base / "app.db", "CREATE TABLE other (x)")
        forge(base / "app.db", f"CREATE VIEW tasks AS {ENDLESS}", type="view", name="behind", root=0)
        with closing(sqlite3.connect(base / "app.db")) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_master SET name = 'tasks' WHERE name = 'other'")
            connection.commit()
        assert check_row(verifier, "app.db").startswith("check_error: ")

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT * FROM secrets",
            "SELECT * FROM tasks, secrets",
            "SELECT * FROM innocent",
            "SELECT random()",
            "SELECT * FROM json_each('[1]')",
            ENDLESS,
            "PRAGMA journal_mode = WAL",
            "PRAGMA query_only = OFF",
            "ATTACH ':memory:' AS other",
            "CREATE TEMP TABLE t (x)",
            "DELETE FROM tasks",
        ],
    )
    def test_a_restrained_connection_reads_one_table_and_does_nothing_else(self, base: Path, statement: str) -> None:
        """Whatever a schema talks SQLite into, this is the wall behind the others."""
        make_database(base / "app.db", "CREATE TABLE secrets (x)", "CREATE VIEW innocent AS SELECT * FROM tasks")
        with closing(_Reading(str(base / "app.db"), "mode=rw", signature((base / "app.db").stat()))) as reading:
            connection, reading._deadline = reading._connection, float("inf")
            with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized"):
                connection.execute("SELECT * FROM tasks")
            reading._readable.add("tasks")
            assert connection.execute("SELECT id FROM tasks").fetchall() == [(1,)]
            with pytest.raises(sqlite3.DatabaseError, match=r"prohibited|not authorized|vtable constructor failed"):
                connection.execute(statement)

    def test_a_database_that_is_kept_open_is_read_as_it_is_now(self, base: Path) -> None:
        """One with a rollback journal stays open between two requests; whatever happens to it meanwhile is seen."""
        path = str(base / "app.db")
        make_database(base / "app.db")

        def holds(table: str = "tasks") -> bool:
            place = (path, os.lstat(path))
            return find_row(lambda: place, table, {"id": 1}, {}, float("inf")) is None

        assert holds()
        (kept,) = _kept
        assert holds()
        assert _kept == [kept]
        with closing(sqlite3.connect(path)) as writer:  # it holds no lock
            writer.execute("PRAGMA busy_timeout = 0")
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("DELETE FROM tasks")
            writer.execute("CREATE TABLE later (id)")
            writer.execute("INSERT INTO later VALUES (1)")
            writer.commit()
        assert not holds()
        assert holds("later")
        (base / "app.db").unlink()
        make_database(base / "app.db")
        assert holds()
        assert _kept != [kept]
        with closing(sqlite3.connect(path)) as writer:
            assert writer.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
        assert holds()
        assert _kept == []  # in WAL mode nothing is kept
        close_kept()

    def test_a_helper_that_has_nothing_to_do_lets_go_of_the_database(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        make_database(base / "app.db")
        assert check_row(verifier, "app.db") == "holds"
        child = verifier._rows._process
        assert child is not None
        held = Path(f"/proc/{child._process.pid}/fd")
        if not held.exists():
            pytest.skip("this system does not tell what another process has open")

        def is_held() -> bool:
            try:
                return any(os.path.realpath(file) == str(base / "app.db") for file in held.iterdir())
            except FileNotFoundError:  # it lets go of it at this moment
                return True

        deadline = time.monotonic() + 60
        while is_held():
            assert time.monotonic() < deadline

    def test_triggers_and_indexes_do_not_matter(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(
            base / "app.db",
            "CREATE TRIGGER t AFTER INSERT ON tasks BEGIN DELETE FROM tasks; END",
            "CREATE INDEX i ON tasks (upper(status))",
            "CREATE TABLE made (id INTEGER, twice AS (id * 2), loud AS (upper('x')) STORED)",
            "INSERT INTO made VALUES (1)",
        )
        assert check_row(verifier, "app.db") == "holds"
        assert check_row(verifier, "app.db", table="made", values={"twice": 2, "loud": "X"}) == "holds"

    def test_a_huge_value_is_not_loaded(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(base / "app.db", "CREATE TABLE big (id, x)", "INSERT INTO big VALUES (1, zeroblob(70000000))")
        error = check_row(verifier, "app.db", table="big", values={"x": b""})
        assert error == "check_error: the table holds a value that is too large to compare"

    def test_a_crowded_schema_is_no_obstacle(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(base / "app.db", *(f"CREATE TABLE t{number} (x)" for number in range(2000)))
        assert check_row(verifier, "app.db") == "holds"

    def test_a_search_without_end_stops_at_the_deadline(self, base: Path) -> None:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        make_database(base / "app.db", "CREATE TABLE long (id, x)", f"INSERT INTO long {numbers} SELECT 7, i FROM n")
        with EvidenceVerifier(base) as verifier:
            assert check_row(verifier, "app.db", table="long", where={"id": 7, "x": 300_000}) == "holds"
            verifier._timeout = 0.0
            error = check_row(verifier, "app.db", table="long", where={"id": 7, "x": -1})
        assert error in ("check_error: reading the database took too long", "check_error: reading took too long")

    @pytest.mark.parametrize("offset", [0, 16, 18, 20, 28, 40, 56, 100, 105, 4096, 4100])
    def test_a_damaged_database_is_never_believed_and_never_kills(
        self, verifier: EvidenceVerifier, base: Path, offset: int
    ) -> None:
        make_database(base / "app.db")
        content = bytearray((base / "app.db").read_bytes())
        content[offset : offset + 8] = bytes(byte ^ 0xFF for byte in content[offset : offset + 8])
        (base / "app.db").write_bytes(content)
        before = picture(base)
        result = check_row(verifier, "app.db", values={"status": "never"})
        assert result.startswith(("check_error: ", "mismatch: "))
        assert picture(base) == before

    @pytest.mark.parametrize("size", [1, 15, 16, 99, 100, 512, 4095, 4097])
    def test_a_database_that_was_cut_short_is_never_believed(
        self, verifier: EvidenceVerifier, base: Path, size: int
    ) -> None:
        make_database(base / "app.db")
        os.truncate(base / "app.db", size)
        assert check_row(verifier, "app.db").startswith(("check_error: ", "mismatch: "))

    def test_text_that_is_not_unicode_is_survived(self, verifier: EvidenceVerifier, base: Path) -> None:
        make_database(base / "app.db", "CREATE TABLE bad (id, x)", "INSERT INTO bad VALUES (1, CAST(x'fffe' AS TEXT))")
        assert check_row(verifier, "app.db", table="bad", values={"x": "fine"}).endswith("another x")
        content = (base / "app.db").read_bytes().replace(b"CREATE TABLE bad (id, x)", b"CREATE TABLE bad (id, \xff)")
        (base / "app.db").write_bytes(content)
        assert check_row(verifier, "app.db", table="bad") == "holds"

    def test_what_a_database_holds_is_not_told(self, verifier: EvidenceVerifier, base: Path) -> None:
        """D10"""
        make_database(
            base / "app.db", "CREATE TABLE users (id, hunter2, password)", "INSERT INTO users VALUES (1, 2, 'pw')"
        )
        for values in ({"password": "guess"}, {"passwd": "guess"}):
            error = check_row(verifier, "app.db", table="users", values=values)
            assert "hunter2" not in error
            assert "pw" not in error


TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(7)
"""
TRY_WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    sys.exit(7)
"""


def is_locked(path: Path, attempt: str = TRY_LOCK) -> bool:
    """Whether another process is kept out."""
    status = subprocess.run([sys.executable, "-c", attempt, str(path)], check=False).returncode
    assert status in (0, 7)
    return status == 7


class TestLocks:
    def test_the_danger_is_real(self, base: Path) -> None:
        """What all of this is for: reading a file by hand drops the locks on it."""
        with (base / "inside").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            assert is_locked(base / "inside")
            (base / "inside").read_bytes()
            assert not is_locked(base / "inside")

    def test_a_lock_on_a_file_survives_evidence_about_it(self, verifier: EvidenceVerifier, base: Path) -> None:
        with (base / "inside").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            for path in ("inside", str(base / "inside"), "out/../inside"):
                assert check(verifier, "artifact_exists", path=path) == "holds"
                assert check(verifier, "file_sha256", path=path, sha256=INSIDE_DIGEST) == "holds"
                assert check(verifier, "file_sha256", path=path, sha256=SECRET_DIGEST).startswith("mismatch: ")
            assert is_locked(base / "inside")
        assert not is_locked(base / "inside")

    @pytest.mark.parametrize("mode", ["DELETE", "WAL"])
    def test_a_transaction_survives_evidence_about_its_database(
        self, verifier: EvidenceVerifier, base: Path, mode: str
    ) -> None:
        make_database(base / "app.db")
        digest = hashlib.sha256((base / "app.db").read_bytes()).hexdigest()
        with closing(sqlite3.connect(base / "app.db", isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE tasks SET status = 'mine'")
            assert is_locked(base / "app.db", TRY_WRITE)
            for path in base.iterdir():
                if path.is_file():
                    check(verifier, "file_sha256", path=path.name, sha256=digest)
            assert check_row(verifier, "app.db", values={"status": "done"}) == "holds"
            assert is_locked(base / "app.db", TRY_WRITE)
            connection.execute("COMMIT")
            assert check_row(verifier, "app.db", values={"status": "mine"}) == "holds"

    def test_a_lock_that_is_taken_while_the_file_is_read_survives(
        self, verifier: EvidenceVerifier, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The descriptor is parked, and closed once nobody else has the file."""
        taken = []

        def lock_meanwhile(descriptor: int, max_bytes: int, deadline: float) -> str:
            taken.append((base / "inside").open("r+b"))
            fcntl.lockf(taken[0], fcntl.LOCK_EX)
            return hash_open(descriptor, max_bytes, deadline)

        monkeypatch.setattr(files_module, "hash_open", lock_meanwhile)
        assert check(verifier, "file_sha256", path="inside", sha256=INSIDE_DIGEST) == "holds"
        assert is_locked(base / "inside")
        assert len(descriptors._parked) == 1
        taken[0].close()
        monkeypatch.undo()
        (base / "other").write_bytes(INSIDE)
        assert check(verifier, "file_sha256", path="other", sha256=INSIDE_DIGEST) == "holds"
        assert not descriptors._parked
        assert not descriptors._ours
