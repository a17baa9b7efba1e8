"""Evidence is checked, and what came of it is recorded: every type, the cache, retries, threads and helpers (D)."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lastgood.errors import BusyError, ForbiddenError, InvalidError, NotFoundError, UnavailableError
from lastgood.evidence import check, files
from lastgood.evidence.check import Surroundings, register_evidence
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.local import database
from lastgood.local.paths import is_settled, signature
from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType

CONTENT = b"all is well\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    (folder / "out").mkdir(parents=True)
    (folder / "report.txt").write_bytes(CONTENT)
    (folder / "out" / "deep.txt").write_bytes(CONTENT)
    with sqlite3.connect(folder / "app.sqlite") as connection:
        connection.execute("CREATE TABLE tasks (task_id TEXT PRIMARY KEY, status TEXT, tries INTEGER, any_value, note)")
        connection.execute("INSERT INTO tasks VALUES ('task-123', 'completed', 3, 1, NULL)")
        connection.execute("INSERT INTO tasks VALUES ('task-124', 'failed', 4, '1', x'00ff')")
    connection.close()
    return folder


@pytest.fixture
def verifier(base: Path) -> Iterator[EvidenceVerifier]:
    with EvidenceVerifier(base) as opened:
        yield opened


@pytest.fixture
def own_types() -> Iterator[None]:
    before = dict(check._checks)
    yield
    check._checks.clear()
    check._checks.update(before)


def claim(type: str, expected: Any, metadata: Any = None) -> Evidence:
    return Evidence(type, "a claim", expected, {} if metadata is None else metadata)


def error_of(verifier: EvidenceVerifier, evidence: Evidence, snapshot: object = None) -> str | None:
    """Verify, and see that what is recorded is of one piece."""
    holds = verifier.verify_evidence(evidence, snapshot)
    assert evidence.verified is holds
    assert evidence.verification_status == ("verified" if holds else "failed")
    assert isinstance(evidence.verified_at, datetime)
    assert evidence.verified_at.tzinfo is not None
    assert holds is (evidence.verification_error is None)
    assert holds or str(evidence.verification_error).startswith(("mismatch: ", "check_error: "))
    return evidence.verification_error


def row(**expected: Any) -> Evidence:
    return claim("db_row", {"table": "tasks", "where": {"task_id": "task-123"}, "db_path": "app.sqlite"} | expected)


class TestFiles:
    @pytest.mark.parametrize(
        "expected",
        [
            {"path": "report.txt"},
            {"path": "report.txt", "type": "file"},
            {"path": "report.txt", "type": "any"},
            {"path": "out", "type": "directory"},
            {"path": "out/", "type": "directory"},
            {"path": "out/deep.txt", "type": "file"},
            {"path": "out/../report.txt"},
            {"path": "./out//./deep.txt"},
            {"path": ".", "type": "directory"},
            {"path": "out/..", "type": "directory"},
        ],
    )
    def test_an_artifact_that_is_there_holds(self, verifier: EvidenceVerifier, expected: dict[str, str]) -> None:
        """D1"""
        assert error_of(verifier, claim("artifact_exists", expected)) is None

    @pytest.mark.parametrize(
        ("expected", "error"),
        [
            ({"path": "gone.txt"}, "mismatch: gone.txt does not exist"),
            ({"path": "report.txt/below"}, "mismatch: report.txt/below does not exist"),
            ({"path": "report.txt/"}, "mismatch: report.txt/ does not exist"),
            ({"path": "gone/../report.txt"}, "mismatch: gone/../report.txt does not exist"),
            ({"path": "out", "type": "file"}, "mismatch: out is a directory, not a file"),
            ({"path": "report.txt", "type": "directory"}, "mismatch: report.txt is a file, not a directory"),
            ({"path": "report.txt", "type": "socket"}, "check_error: the type of an artifact"),
            ({"path": "report.txt", "type": ["file"]}, "check_error: the type of an artifact"),
            ({}, "check_error: the path is missing"),
            ({"path": None}, "check_error: the path is missing"),
            ({"path": 7}, "check_error: the path is missing"),
            ({"path": b"report.txt"}, "check_error: the path is missing"),
        ],
    )
    def test_an_artifact_that_is_not_there_fails(
        self, verifier: EvidenceVerifier, expected: dict[str, Any], error: str
    ) -> None:
        """D1, D2"""
        assert str(error_of(verifier, claim("artifact_exists", expected))).startswith(error)

    @pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper(), f"sha256:{DIGEST}"])
    def test_a_digest_is_taken_in_every_usual_spelling(self, verifier: EvidenceVerifier, digest: str) -> None:
        assert error_of(verifier, claim("file_sha256", {"path": "report.txt", "sha256": digest})) is None

    @pytest.mark.parametrize(
        ("expected", "error"),
        [
            ({"path": "report.txt", "sha256": "0" * 64}, f"mismatch: report.txt has the SHA-256 {DIGEST}"),
            ({"path": "gone.txt", "sha256": DIGEST}, "mismatch: gone.txt does not exist"),
            ({"path": "out", "sha256": DIGEST}, "mismatch: out is a directory, not a file"),
            ({"path": "report.txt"}, "check_error: the claim's sha256"),
            ({"path": "report.txt", "sha256": DIGEST[:-1]}, "check_error: the claim's sha256"),
            ({"path": "report.txt", "sha256": DIGEST + "\n"}, "check_error: the claim's sha256"),
            ({"path": "report.txt", "sha256": "٣" * 64}, "check_error: the claim's sha256"),
            ({"path": "report.txt", "sha256": bytes(32)}, "check_error: the claim's sha256"),
        ],
    )
    def test_a_file_with_another_digest_fails(
        self, verifier: EvidenceVerifier, expected: dict[str, Any], error: str
    ) -> None:
        assert str(error_of(verifier, claim("file_sha256", expected))).startswith(error)

    def test_a_large_file_is_hashed_in_pieces(self, verifier: EvidenceVerifier, base: Path) -> None:
        content = os.urandom(3_000_001)
        (base / "large").write_bytes(content)
        assert verifier.hash_file("large") == hashlib.sha256(content).hexdigest()

    def test_an_empty_file_has_a_digest(self, verifier: EvidenceVerifier, base: Path) -> None:
        (base / "empty").touch()
        assert verifier.hash_file("empty") == hashlib.sha256().hexdigest()

    def test_absolute_paths_are_read_anywhere_unless_they_are_refused(self, base: Path, tmp_path: Path) -> None:
        """D8"""
        (tmp_path / "elsewhere").write_bytes(CONTENT)
        evidence = claim("file_sha256", {"path": str(tmp_path / "elsewhere"), "sha256": DIGEST})
        with EvidenceVerifier(base) as library, EvidenceVerifier(base, absolute_paths=False) as server:
            assert error_of(library, evidence) is None
            assert not server.verify_evidence(evidence)
        assert (evidence.verification_status, evidence.verified_at) == ("pending", None)
        assert "absolute path" in str(evidence.verification_error)

    def test_hashing_a_file_for_oneself_says_what_is_wrong(self, verifier: EvidenceVerifier) -> None:
        assert verifier.hash_file("report.txt") == DIGEST
        with pytest.raises(NotFoundError):
            verifier.hash_file("gone")
        for path in ("out", "", "../base/report.txt"):
            with pytest.raises(InvalidError):
                verifier.hash_file(path)

    def test_the_base_is_the_working_directory_of_construction(
        self, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(base)
        with EvidenceVerifier() as verifier:
            monkeypatch.chdir(tmp_path)
            assert verifier.hash_file("report.txt") == DIGEST

    def test_a_base_that_is_a_link_or_is_made_or_replaced_later_is_followed(self, base: Path, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(base)
        with EvidenceVerifier(link) as linked, EvidenceVerifier(tmp_path / "later") as later:
            assert linked.hash_file("report.txt") == DIGEST
            missing = claim("artifact_exists", {"path": "report.txt"})
            assert error_of(later, missing) == "mismatch: report.txt does not exist"
            base.rename(tmp_path / "later")
            assert error_of(later, missing) is None
            (tmp_path / "later").rename(tmp_path / "moved")
            (tmp_path / "later").mkdir()
            assert error_of(later, missing) == "mismatch: report.txt does not exist"

    def test_a_file_beyond_the_bound_is_not_read(self, base: Path) -> None:
        with EvidenceVerifier(base, max_file_bytes=len(CONTENT) - 1) as verifier:
            error = error_of(verifier, claim("file_sha256", {"path": "report.txt", "sha256": DIGEST}))
        assert error == "check_error: the file has 12 bytes, more than the 11 that evidence reads"

    def test_reading_ends_at_the_deadline(self, base: Path) -> None:
        with EvidenceVerifier(base, timeout=-1.0) as verifier:
            error = error_of(verifier, claim("file_sha256", {"path": "report.txt", "sha256": DIGEST}))
        assert error == "check_error: reading the file took too long"


class TestCommands:
    @pytest.mark.parametrize(
        ("metadata", "snapshot"),
        [
            ({"actual_exit_code": 0}, None),
            ({"actual_exit_code": 0}, {"exit_code": 1}),
            ({}, {"exit_code": 0}),
            ({"command": "make"}, {"commands": {"make": {"exit_code": 0}}, "exit_code": 1}),
            ({"command": "make"}, {"commands": {"other": {"exit_code": 1}}, "exit_code": 0}),
            ({"command": ["make"]}, {"exit_code": 0}),
            ({"actual_exit_code": None}, lambda: {"exit_code": 0}),
            (None, {"exit_code": 0}),
        ],
    )
    def test_the_recorded_code_is_compared(
        self, verifier: EvidenceVerifier, metadata: dict[str, Any], snapshot: object
    ) -> None:
        """D7"""
        assert error_of(verifier, claim("command_exit", {"exit_code": 0}, metadata), snapshot) is None

    @pytest.mark.parametrize("snapshot", [None, {}, {"commands": {"make": 0}}, {"exit_code": None}, [0], "state", 0])
    def test_without_a_recorded_code_it_fails_and_says_so(self, verifier: EvidenceVerifier, snapshot: object) -> None:
        """D7"""
        error = error_of(verifier, claim("command_exit", {"exit_code": 0}, {"command": "make"}), snapshot)
        assert error == "check_error: no exit code was recorded for this command"

    @pytest.mark.parametrize("expected", [{}, {"exit_code": None}, {"exit_code": "0"}, {"exit_code": False}])
    def test_a_claim_without_an_integer_fails(self, verifier: EvidenceVerifier, expected: dict[str, Any]) -> None:
        """D7"""
        error = error_of(verifier, claim("command_exit", expected, {"actual_exit_code": 0}))
        assert error == "check_error: the claim names no exit code"

    @pytest.mark.parametrize("code", [False, "0", 0.0, [0]])
    def test_a_recorded_code_that_is_no_integer_fails(self, verifier: EvidenceVerifier, code: object) -> None:
        error = error_of(verifier, claim("command_exit", {"exit_code": 0}, {"actual_exit_code": code}))
        assert str(error).startswith("check_error")

    def test_another_code_is_a_mismatch(self, verifier: EvidenceVerifier) -> None:
        error = error_of(verifier, claim("command_exit", {"exit_code": 0}, {"actual_exit_code": -9}))
        assert error == "mismatch: the command ended with -9, not 0"

    def test_nothing_is_run(self, verifier: EvidenceVerifier, base: Path) -> None:
        """D7: the command would leave a file."""
        evidence = claim("command_exit", {"exit_code": 0}, {"command": f"touch {base}/ran", "actual_exit_code": 0})
        assert error_of(verifier, evidence) is None
        assert not (base / "ran").exists()

    def test_the_snapshot_is_asked_for_once_and_only_when_needed(self, verifier: EvidenceVerifier) -> None:
        asked = []

        def give() -> object:
            asked.append(1)
            return {"exit_code": 0}

        recorded = claim("command_exit", {"exit_code": 0}, {"actual_exit_code": 0})
        assert verifier.verify_evidence_pack(EvidencePack([recorded, recorded]), give)
        assert not asked
        assert verifier.verify_evidence_pack(EvidencePack([claim("command_exit", {"exit_code": 0})] * 3), give)
        assert asked == [1]

    def test_a_snapshot_that_cannot_be_had_fails_the_claims_that_need_it(self, verifier: EvidenceVerifier) -> None:
        def give() -> object:
            raise UnavailableError("the state is away")

        needy, other = claim("command_exit", {"exit_code": 0}), claim("artifact_exists", {"path": "report.txt"})
        assert not verifier.verify_evidence_pack(EvidencePack([needy, other]), give)
        assert (needy.verification_error, other.verified) == ("check_error: the state is away", True)

    def test_a_snapshot_that_cannot_be_had_fails_every_claim_that_needs_it(self, verifier: EvidenceVerifier) -> None:
        def give() -> object:
            raise UnavailableError("the state is away")

        needy = [claim("command_exit", {"exit_code": 0}) for _ in range(3)]
        verifier.verify_multiple(needy, give)
        assert {piece.verification_error for piece in needy} == {"check_error: the state is away"}


class TestRows:
    @pytest.mark.parametrize(
        "expected",
        [
            {"values": {"status": "completed"}},
            {},
            {"values": {}},
            {"where": {"status": "completed", "tries": 3}},
            {"where": {"note": None}},
            {"where": {"note": b"\x00\xff"}, "values": {"task_id": "task-124"}},
            {"table": "TASKS", "where": {"Task_ID": "task-123"}, "values": {"STATUS": "completed"}},
            {"values": {"tries": 3.0}},
            {"values": {"any_value": True}},
            {"values": {"tries": "3"}},  # an INTEGER column says that "3" is 3
        ],
    )
    def test_a_row_that_is_there_holds(self, verifier: EvidenceVerifier, expected: dict[str, Any]) -> None:
        """D1"""
        assert error_of(verifier, row(**expected)) is None

    @pytest.mark.parametrize(
        ("expected", "error"),
        [
            ({"values": {"status": "failed"}}, "mismatch: the row of tasks has another status"),
            (
                {"values": {"status": "failed", "tries": 3, "note": 1}},
                "mismatch: the row of tasks has another status, note",
            ),
            ({"values": {"any_value": "1"}}, "mismatch: the row of tasks has another any_value"),
            ({"values": {"status": None}}, "mismatch: the row of tasks has another status"),
            ({"where": {"task_id": "nobody"}}, "mismatch: no row of tasks is where the claim says"),
            ({"table": "nothing"}, "mismatch: the database has no table nothing"),
            ({"where": {"colour": 1}}, "mismatch: the table tasks has no column colour"),
            ({"where": {"rowid": 1}}, "mismatch: the table tasks has no column rowid"),
            ({"values": {"colour": 1}}, "mismatch: the table tasks has no column colour"),
            ({"db_path": "gone.sqlite"}, "mismatch: the database does not exist"),
            ({"db_path": "report.txt"}, "check_error: the file is not an SQLite database"),
            ({"db_path": "out"}, "check_error: the database is a directory"),
            ({"db_path": "../app.sqlite"}, "check_error: ../app.sqlite leads out"),
            ({"db_path": ""}, "check_error: the path is empty"),
            ({"db_path": 3}, "check_error: the path is missing"),
            ({"table": None}, "check_error: the claim names no table"),
            ({"where": {}}, "check_error: the claim does not say which row"),
            ({"where": None}, 'check_error: "where" of the claim is not a dictionary'),
            ({"where": ["task_id"]}, 'check_error: "where" of the claim is not a dictionary'),
            ({"where": {1: 1}}, 'check_error: "where" of the claim is not a dictionary'),
            ({"values": "status"}, 'check_error: "values" of the claim is not a dictionary'),
            ({"values": {"status": ["completed"]}}, "check_error: the claim's value for status"),
            ({"values": {"tries": 1 << 63}}, "check_error: the claim's value for tries"),
            ({"values": {"note": float("nan")}}, "check_error: the claim's value for note"),
            ({"values": {"status": "\ud800"}}, "check_error: the claim holds text that is not Unicode"),
            ({"values": {f"c{n}": n for n in range(101)}}, 'check_error: "values" of the claim names more than'),
            ({"values": {"status": "x" * (5 << 20)}}, "check_error: the claim is too large"),
        ],
    )
    def test_a_row_that_is_not_there_fails(
        self, verifier: EvidenceVerifier, expected: dict[str, Any], error: str
    ) -> None:
        """D1, D8"""
        assert str(error_of(verifier, row(**expected))).startswith(error)

    def test_the_database_is_that_of_the_claim_else_of_its_metadata_else_of_the_store(
        self, base: Path, tmp_path: Path
    ) -> None:
        """D8"""
        where = {"table": "tasks", "where": {"task_id": "task-123"}}
        with EvidenceVerifier(tmp_path, database=base / "app.sqlite") as of_store, EvidenceVerifier(base) as alone:
            assert error_of(of_store, claim("db_row", where)) is None
            assert error_of(of_store, claim("db_row", where, {"db_path": "base/app.sqlite"})) is None
            both = claim("db_row", where | {"db_path": "base/app.sqlite"}, {"db_path": "gone.sqlite"})
            assert error_of(of_store, both) is None
            assert error_of(alone, claim("db_row", where)) == "check_error: the claim names no database"

    def test_an_empty_file_is_a_database_without_tables(self, verifier: EvidenceVerifier, base: Path) -> None:
        (base / "empty.sqlite").touch()
        assert error_of(verifier, row(db_path="empty.sqlite")) == "mismatch: the database has no table tasks"
        assert (base / "empty.sqlite").stat().st_size == 0

    @pytest.mark.parametrize("name", ["a?b.db", "a#b.db", "a%41b.db", "a b&c=d.db", "ä.db", "file:x.db", "mode=memory"])
    def test_a_path_is_no_uri(self, verifier: EvidenceVerifier, base: Path, name: str) -> None:
        (base / "app.sqlite").rename(base / name)
        assert error_of(verifier, row(db_path=name)) is None
        assert error_of(verifier, row(db_path=str(base / name))) is None

    def test_any_of_several_rows_is_enough(self, verifier: EvidenceVerifier, base: Path) -> None:
        with sqlite3.connect(base / "app.sqlite") as connection:
            connection.execute("INSERT INTO tasks VALUES ('a', 'queued', 7, 0, 0), ('b', 'done', 7, 0, 0)")
        connection.close()
        assert error_of(verifier, row(where={"tries": 7}, values={"status": "done"})) is None

    def test_the_order_of_columns_does_not_matter(self, verifier: EvidenceVerifier) -> None:
        """How a row is looked for is remembered; what is looked for is not."""
        both = {"status": "completed", "tries": 3}
        other_way = dict(reversed(both.items()))
        for where, values in [(both, {}), (other_way, {}), ({"task_id": "task-123"}, both)]:
            assert error_of(verifier, row(where=where, values=values)) is None
            assert error_of(verifier, row(where=where, values=dict(reversed(values.items())))) is None
        assert error_of(verifier, row(where={"tries": 3}, values={"status": "completed"})) is None
        assert error_of(verifier, row(where={"tries": "completed", "status": 3})) is not None

    def test_a_column_that_is_looked_by_is_told_from_one_that_is_compared(self, verifier: EvidenceVerifier) -> None:
        assert error_of(verifier, row(where={"tries": 3, "status": "failed"})) == (
            "mismatch: no row of tasks is where the claim says"
        )
        assert error_of(verifier, row(where={"tries": 3}, values={"status": "failed"})) == (
            "mismatch: the row of tasks has another status"
        )

    def test_tables_with_the_same_columns_are_told_apart(self, verifier: EvidenceVerifier, base: Path) -> None:
        with sqlite3.connect(base / "app.sqlite") as connection:
            connection.execute("CREATE TABLE others (task_id TEXT)")
        connection.close()
        for _ in range(2):
            assert error_of(verifier, row()) is None
            assert error_of(verifier, row(table="others")) == "mismatch: no row of others is where the claim says"

    def test_a_schema_that_changes_between_two_looks_is_seen(self, verifier: EvidenceVerifier, base: Path) -> None:
        late = row(values={"colour": "red"})
        no_table = row(table="late", where={"id": 1})
        assert error_of(verifier, late) == "mismatch: the table tasks has no column colour"
        assert error_of(verifier, no_table) == "mismatch: the database has no table late"
        with sqlite3.connect(base / "app.sqlite") as connection:
            connection.execute("ALTER TABLE tasks ADD COLUMN colour TEXT DEFAULT 'red'")
            connection.execute("CREATE TABLE late (id)")
            connection.execute("INSERT INTO late VALUES (1)")
        assert error_of(verifier, late) is None
        assert error_of(verifier, no_table) is None
        with connection:
            connection.execute("ALTER TABLE tasks DROP COLUMN colour")
            connection.execute("DROP TABLE late")
            connection.execute("CREATE VIEW late AS SELECT 1 AS id")
        connection.close()
        assert error_of(verifier, late) == "mismatch: the table tasks has no column colour"
        assert error_of(verifier, no_table) == "mismatch: the database has no table late"

    @pytest.mark.parametrize("then", ["CREATE VIEW late AS SELECT 1 AS id", "CREATE TABLE late (other)"])
    def test_a_question_that_was_asked_just_before_is_answered_by_the_new_schema(
        self, verifier: EvidenceVerifier, base: Path, then: str
    ) -> None:
        late = row(table="late", where={"id": 1})
        with closing(sqlite3.connect(base / "app.sqlite", isolation_level=None)) as connection:
            connection.executescript("CREATE TABLE late (id); INSERT INTO late VALUES (1)")
            assert error_of(verifier, late) is None
            connection.executescript(f"DROP TABLE late; {then}")
        assert str(error_of(verifier, late)).startswith("mismatch: the ")

    def test_many_kinds_of_claims_about_one_database_are_all_answered(self, verifier: EvidenceVerifier) -> None:
        for number in range(150):
            assert error_of(verifier, row(values={f"c{number}": 1})) == (
                f"mismatch: the table tasks has no column c{number}"
            )
        assert error_of(verifier, row()) is None

    def test_a_base_that_is_replaced_is_replaced_for_databases_too(
        self, verifier: EvidenceVerifier, base: Path, tmp_path: Path
    ) -> None:
        assert error_of(verifier, row()) is None
        base.rename(tmp_path / "moved")
        base.mkdir()
        assert error_of(verifier, row()) == "mismatch: the database does not exist"
        (tmp_path / "moved" / "app.sqlite").rename(base / "app.sqlite")
        assert error_of(verifier, row()) is None

    def test_a_database_replaced_by_another_is_read_anew(self, verifier: EvidenceVerifier, base: Path) -> None:
        assert error_of(verifier, row(values={"status": "completed"})) is None
        with sqlite3.connect(base / "new.sqlite") as connection:
            connection.execute("CREATE TABLE tasks (task_id TEXT, status TEXT)")
            connection.execute("INSERT INTO tasks VALUES ('task-123', 'queued')")
        connection.close()
        (base / "new.sqlite").replace(base / "app.sqlite")
        error = error_of(verifier, row(values={"status": "completed"}))
        assert error == "mismatch: the row of tasks has another status"

    def test_a_database_that_changes_while_it_is_read_without_locks_is_read_again(
        self, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D8: one in WAL mode that nobody has open is read as if it could not change."""
        path = str(base / "app.sqlite")
        query = database._query

        def write(sql: str) -> None:
            with sqlite3.connect(path) as connection:
                connection.execute(sql)
            connection.close()

        def disturbed(*about: Any) -> str | None:
            monkeypatch.undo()
            found = query(*about)
            write("UPDATE tasks SET status = 'withdrawn'")
            return found

        write("PRAGMA journal_mode = WAL")
        monkeypatch.setattr(database, "_query", disturbed)
        claimed = {"task_id": "task-123"}, {"status": "completed"}
        found = database.find_row(lambda: (path, os.lstat(path)), "tasks", *claimed, float("inf"))
        assert found == "the row of tasks has another status"

    def test_no_database_with_a_log_is_kept_open(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """An idle reader would keep its writers from tidying up when they close."""
        path = str(base / "app.sqlite")
        query = database._query

        def without_readers(path: str, mode: str, *about: Any) -> str | None:
            if mode != "mode=ro":  # as where no reader ever registered
                refused = sqlite3.OperationalError("planted")
                refused.sqlite_errorcode = sqlite3.SQLITE_READONLY
                raise refused
            return query(path, mode, *about)

        monkeypatch.setattr(database, "_query", without_readers)
        writer = sqlite3.connect(path)
        try:
            writer.execute("PRAGMA journal_mode = WAL")
            writer.execute("UPDATE tasks SET tries = 5")
            writer.commit()
            claimed = {"task_id": "task-123"}, {"tries": 5}
            assert database.find_row(lambda: (path, os.lstat(path)), "tasks", *claimed, float("inf")) is None
            assert database._kept == []
        finally:
            database.close_kept()
            writer.close()


class TestBadEvidence:
    @pytest.mark.parametrize(
        "evidence",
        [
            Evidence("no_such_type", "", {}),
            Evidence("", "", {}),
            Evidence(None, "", {}),  # type: ignore[arg-type]
            Evidence([], "", {}),  # type: ignore[arg-type]
            Evidence("\ud800", "", {}),
            *(
                Evidence(kind, 5, expected, metadata)  # type: ignore[arg-type]
                for kind in EvidenceType
                for expected in (None, [], "path", 3, object())
                for metadata in (None, [], object())
            ),
        ],
    )
    def test_absurd_evidence_fails_and_never_raises(self, verifier: EvidenceVerifier, evidence: Evidence) -> None:
        """D2"""
        error = error_of(verifier, evidence)
        assert error is not None
        assert error.startswith("check_error: ")
        error.encode()

    def test_what_is_no_evidence_is_refused_before_anything_is_checked(self, verifier: EvidenceVerifier) -> None:
        good = claim("artifact_exists", {"path": "report.txt"})
        with pytest.raises(InvalidError):
            verifier.verify_multiple([good, {"path": "report.txt"}])  # type: ignore[list-item]
        assert good.verification_status == "pending"

    @pytest.mark.parametrize("count", [-1, True, "1", None])
    def test_a_pack_with_an_absurd_rule_is_refused(self, count: Any) -> None:
        with pytest.raises(InvalidError):
            EvidencePack([], min_verified=count)

    @pytest.mark.parametrize("data", [None, [], {"evidence_list": None}, {"evidence_list": [3]}])
    def test_a_dictionary_that_is_no_pack_is_refused(self, data: Any) -> None:
        with pytest.raises(InvalidError):
            EvidencePack.from_dict(data)

    def test_a_date_that_is_none_is_refused(self) -> None:
        data = claim("artifact_exists", {}).to_dict() | {"verified_at": "yesterday"}
        with pytest.raises(InvalidError):
            Evidence.from_dict(data)


class TestPacks:
    def test_the_four_core_types_hold_together(self, verifier: EvidenceVerifier) -> None:
        """D1, D3, D10"""
        pack = EvidencePack(
            [
                claim(EvidenceType.ARTIFACT_EXISTS, {"path": "report.txt", "type": "file"}),
                claim(EvidenceType.FILE_SHA256, {"path": "report.txt", "sha256": DIGEST}),
                claim(EvidenceType.COMMAND_EXIT, {"exit_code": 0}, {"actual_exit_code": 0}),
                row(values={"status": "completed"}),
            ]
        )
        assert verifier.verify_evidence_pack(pack)
        assert pack.verification_summary() == {"total": 4, "verified": 4, "failed": 0, "is_verified": True}

    @pytest.mark.parametrize(
        ("rule", "holds"),
        [
            ({}, False),
            ({"require_all": False, "allow_partial": True, "min_verified": 2}, True),
            ({"require_all": False, "allow_partial": True, "min_verified": 3}, False),
            ({"require_all": False, "min_verified": 2}, True),
        ],
    )
    def test_a_mismatch_is_weighed_by_the_pack_s_rule(
        self, verifier: EvidenceVerifier, rule: dict[str, Any], holds: bool
    ) -> None:
        """D3"""
        paths = ["report.txt", "out", "gone"]
        pack = EvidencePack([claim("artifact_exists", {"path": path}) for path in paths], **rule)
        assert verifier.verify_evidence_pack(pack) is holds

    def test_a_check_that_could_not_be_made_spoils_a_pack_that_is_not_partial(self, verifier: EvidenceVerifier) -> None:
        """D3"""
        pieces = [claim("artifact_exists", {"path": path}) for path in ("report.txt", "")]
        assert not verifier.verify_evidence_pack(EvidencePack(pieces, require_all=False))
        assert verifier.verify_evidence_pack(EvidencePack(pieces, require_all=False, allow_partial=True))

    def test_an_empty_pack_does_not_hold(self, verifier: EvidenceVerifier) -> None:
        """D3, D5"""
        nothing = {"total": 0, "verified": 0, "failed": 0, "success_rate": 0.0, "all_passed": False}
        assert not verifier.verify_evidence_pack(EvidencePack())
        assert verifier.verify_multiple([]) == nothing

    def test_several_are_counted(self, verifier: EvidenceVerifier) -> None:
        """D5"""
        pieces = [claim("artifact_exists", {"path": path}) for path in ("report.txt", "out", "gone", "app.sqlite")]
        some = {"total": 4, "verified": 3, "failed": 1, "success_rate": 0.75, "all_passed": False}
        assert verifier.verify_multiple(pieces) == some
        assert verifier.verify_multiple(pieces[:2])["all_passed"] is True

    def test_slow_checks_run_side_by_side(self, verifier: EvidenceVerifier, own_types: None) -> None:
        """D10: each waits until all of them are there; one after the other they never would be."""
        together = threading.Barrier(4, timeout=60)

        def meet(evidence: Evidence, surroundings: Surroundings) -> None:
            together.wait()

        register_evidence("meets", meet)
        assert verifier.verify_multiple([claim("meets", {}) for _ in range(4)])["all_passed"]

    def test_many_files_are_hashed_right_by_many_threads(self, verifier: EvidenceVerifier, base: Path) -> None:
        """D10"""
        pieces = []
        for number in range(60):
            content = bytes([number]) * 50_000
            (base / f"f{number}").write_bytes(content)
            digest = hashlib.sha256(content).hexdigest() if number % 7 else DIGEST
            pieces.append(claim("file_sha256", {"path": f"f{number}", "sha256": digest}))
        verifier.verify_multiple(pieces)
        assert [piece.verified for piece in pieces] == [bool(number % 7) for number in range(60)]

    def test_what_is_asked_for_and_never_finished_leaves_the_verifier_free(self, verifier: EvidenceVerifier) -> None:
        """A commit that is refused does not wait for its evidence, and the next one gets an answer of its own."""
        abandoned = row(values={"status": "failed"})
        with verifier.checking([abandoned, row()]):
            assert not verifier._rows.is_free()
        assert verifier._rows.is_free()
        assert error_of(verifier, row(values={"status": "completed"})) is None
        assert abandoned.verification_status == "pending"

    def test_between_asking_and_finishing_is_time_for_something_else(self, verifier: EvidenceVerifier) -> None:
        pieces = [row(), row(values={"tries": 4}), claim("artifact_exists", {"path": "report.txt"})]
        with verifier.checking(pieces) as finish:
            assert [piece.verification_status for piece in pieces] == ["pending", "pending", "verified"]
            finish()
        assert [piece.verification_status for piece in pieces] == ["verified", "failed", "verified"]

    @pytest.mark.usefixtures("own_types")
    def test_the_time_for_a_check_begins_when_it_is_its_turn(self, base: Path) -> None:
        register_evidence("in_time", lambda evidence, surroundings: None if surroundings.remaining() else "too late")
        with EvidenceVerifier(base, timeout=-1.0) as verifier:
            late = claim("in_time", {})
            with verifier.checking([late]) as finish:
                verifier._timeout = 60.0
                finish()
        assert late.verified

    @pytest.mark.usefixtures("own_types")
    def test_every_result_is_there_when_all_are_said_to_be_checked(self, verifier: EvidenceVerifier) -> None:
        """Also of those that another thread took, which ends only when this one has nothing left but to wait."""
        main, taken, returned = threading.get_ident(), threading.Event(), threading.Event()

        def is_waiting() -> bool:
            frame = sys._current_frames()[main]
            return frame.f_code.co_name in ("join", "_wait_for_tstate_lock")

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            if threading.get_ident() == main:
                taken.wait(60)
            else:
                taken.set()
                while not is_waiting() and not returned.is_set():
                    pass

        register_evidence("meets", check)
        pieces = [claim("meets", {}) for _ in range(2)]
        result = verifier.verify_multiple(pieces)
        returned.set()
        assert result["all_passed"]

    def test_cheap_evidence_starts_no_thread(self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch) -> None:
        started: list[threading.Thread] = []
        monkeypatch.setattr(threading.Thread, "start", started.append)
        pieces = [claim("file_sha256", {"path": "report.txt", "sha256": DIGEST}), row()]
        assert verifier.verify_multiple(pieces)["all_passed"]
        assert not started


@pytest.mark.usefixtures("own_types")
class TestOwnTypes:
    def test_a_registered_type_is_checked_with_its_surroundings(self, verifier: EvidenceVerifier, base: Path) -> None:
        """D1"""

        def check_line(evidence: Evidence, surroundings: Surroundings) -> str | None:
            assert surroundings.base_path == str(base)
            assert surroundings.hash_file("report.txt") == DIGEST
            assert surroundings.stat("gone") is None
            assert surroundings.remaining() > 0
            assert surroundings.snapshot == {"a": 1}
            lines = Path(surroundings.base_path, evidence.expected["path"]).read_text().splitlines()
            return None if evidence.expected["line"] in lines else "the line is not there"

        register_evidence("has_line", check_line)
        good = claim("has_line", {"path": "report.txt", "line": "all is well"})
        assert error_of(verifier, good, {"a": 1}) is None
        bad = claim("has_line", {"path": "report.txt", "line": "fire"})
        assert error_of(verifier, bad, {"a": 1}) == "mismatch: the line is not there"

    @pytest.mark.parametrize(
        ("said", "error"),
        [
            ("", "mismatch: the claim does not hold"),
            (True, "check_error: the check returned bool, not None or a sentence"),
            (False, "check_error: the check returned bool, not None or a sentence"),
            ("\ud800", "mismatch: ?"),
            ("x" * 5000, "mismatch: " + "x" * 990),
        ],
    )
    def test_whatever_a_check_returns_is_understood(self, verifier: EvidenceVerifier, said: Any, error: str) -> None:
        register_evidence("says", lambda evidence, surroundings: said)
        assert error_of(verifier, claim("says", {})) == error

    @pytest.mark.parametrize(
        ("raised", "error"),
        [
            (KeyError("hunter2"), "check_error: the check failed with KeyError"),
            (SystemExit("hunter2"), "check_error: the check failed with SystemExit"),
            (RecursionError("hunter2"), "check_error: the check failed with RecursionError"),
            (UnavailableError("the service is away"), "check_error: the service is away"),
            (NotFoundError("no such service"), "check_error: no such service"),
        ],
    )
    def test_whatever_a_check_raises_fails_that_evidence_alone(
        self, verifier: EvidenceVerifier, raised: BaseException, error: str
    ) -> None:
        """D2, D10: of foreign exceptions only the type is told, for their text may hold secrets."""

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            raise raised

        register_evidence("raises", check)
        pieces = [claim("raises", {}), claim("artifact_exists", {"path": "report.txt"}), claim("raises", {})]
        verifier.verify_multiple(pieces)
        assert [piece.verification_error for piece in pieces] == [error, None, error]

    def test_what_a_check_is_not_to_look_at_stays_pending_and_says_why(self, verifier: EvidenceVerifier) -> None:
        """D2, D3, D5: it has not failed, and it spoils a pack that is not partial."""

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            raise ForbiddenError("production is not to be looked at", hint="ask for it")

        register_evidence("forbids", check)
        pieces = [claim("forbids", {}), claim("artifact_exists", {"path": "report.txt"})]
        assert verifier.verify_multiple(pieces) == {
            "total": 2,
            "verified": 1,
            "failed": 0,
            "success_rate": 0.5,
            "all_passed": False,
        }
        assert (pieces[0].verification_status, pieces[0].verified_at) == ("pending", None)
        assert pieces[0].verification_error == "production is not to be looked at; ask for it"
        assert not EvidencePack(pieces, require_all=False).is_verified
        assert EvidencePack(pieces, require_all=False, allow_partial=True).is_verified

    @pytest.mark.parametrize("pieces", [1, 5])
    def test_an_interruption_passes(self, verifier: EvidenceVerifier, pieces: int) -> None:
        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            raise KeyboardInterrupt

        register_evidence("interrupts", check)
        with pytest.raises(KeyboardInterrupt):
            verifier.verify_multiple([claim("interrupts", {}) for _ in range(pieces)])

    def test_a_type_is_not_replaced_by_accident(self, verifier: EvidenceVerifier) -> None:
        with pytest.raises(InvalidError):
            register_evidence("file_sha256", lambda evidence, surroundings: None)
        register_evidence("file_sha256", lambda evidence, surroundings: "never", replace=True)
        assert error_of(verifier, claim("file_sha256", {})) == "mismatch: never"

    @pytest.mark.parametrize("type", ["", "Has Line", "1st", "x" * 65, "a-b", "ä"])
    def test_a_type_has_a_plain_name(self, type: str) -> None:
        with pytest.raises(InvalidError):
            register_evidence(type, lambda evidence, surroundings: None)

    def test_a_check_can_be_called(self) -> None:
        with pytest.raises(InvalidError):
            register_evidence("called", None)  # type: ignore[arg-type]

    def test_what_is_busy_is_tried_again_after_longer_and_longer_waits(self, base: Path) -> None:
        """D9"""
        waits: list[float] = []

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            if len(waits) < evidence.expected["busy"]:
                raise BusyError("the service is busy")

        register_evidence("busy", check)
        with EvidenceVerifier(base, attempts=4, sleep=waits.append) as verifier:
            assert error_of(verifier, claim("busy", {"busy": 3})) is None
            assert waits == sorted(waits)
            assert waits[-1] == 4 * waits[0] > 0
            waits.clear()
            assert error_of(verifier, claim("busy", {"busy": 9})) == "check_error: the service is busy"
            assert len(waits) == 3

    def test_what_is_busy_is_not_waited_for_beyond_the_deadline(self, base: Path) -> None:
        waits: list[float] = []

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            raise BusyError("the service is busy")

        register_evidence("busy", check)
        with EvidenceVerifier(base, timeout=0.0, sleep=waits.append) as verifier:
            assert error_of(verifier, claim("busy", {})) == "check_error: the service is busy"
        assert not waits

    def test_what_is_away_for_good_is_not_tried_again(self, base: Path) -> None:
        waits: list[float] = []

        def check(evidence: Evidence, surroundings: Surroundings) -> None:
            raise UnavailableError("the service is away")

        register_evidence("away", check)
        with EvidenceVerifier(base, sleep=waits.append) as verifier:
            assert error_of(verifier, claim("away", {})) == "check_error: the service is away"
        assert not waits


def settle(path: Path) -> os.stat_result:
    """Wait, without a clock, until files written now are stamped clearly later than this one."""
    probe = path.with_name("probe")
    while True:
        probe.write_bytes(b"")
        if is_settled(signature(path.stat()), probe.stat().st_mtime_ns):
            probe.unlink()
            return path.stat()


class TestCache:
    def test_an_unchanged_file_is_not_read_again(
        self, verifier: EvidenceVerifier, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """D10"""
        settle(base / "report.txt")
        assert verifier.hash_file("report.txt") == DIGEST
        monkeypatch.setattr(os, "read", pytest.fail)
        monkeypatch.setattr(os, "open", pytest.fail)
        assert verifier.hash_file("report.txt") == DIGEST

    def test_a_file_rewritten_in_place_with_its_old_size_and_time_is_seen(
        self, verifier: EvidenceVerifier, base: Path
    ) -> None:
        """D10"""
        path = base / "report.txt"
        before = settle(path)
        assert verifier.hash_file("report.txt") == DIGEST
        with path.open("r+b") as file:
            file.write(CONTENT.upper())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
        assert verifier.hash_file("report.txt") == hashlib.sha256(CONTENT.upper()).hexdigest()

    def test_a_file_that_was_just_written_is_not_remembered(self) -> None:
        """D10: within one tick of the kernel's clock a second write leaves no trace in the stamps."""
        modified, changed, tick = 100 * 10**9, 100 * 10**9 + 5, 10_000_000
        for stamps in ((modified, changed), (changed, modified + 1)):
            seen = (0o100644, 5, *stamps, 1, 1)
            assert not is_settled(seen, changed)
            assert not is_settled(seen, changed + tick)
            assert is_settled(seen, changed + 3 * tick)

    def test_stamps_of_whole_seconds_are_trusted_later(self) -> None:
        coarse = (0o100644, 5, 100 * 10**9, 100 * 10**9, 1, 1)
        assert not is_settled(coarse, 102 * 10**9)
        assert is_settled(coarse, 103 * 10**9)

    def test_a_rewrite_at_once_is_seen_round_after_round(self, verifier: EvidenceVerifier, base: Path) -> None:
        for number in range(300):
            content = b"%012d" % number
            with (base / "report.txt").open("r+b") as file:
                file.write(content)
            assert verifier.hash_file("report.txt") == hashlib.sha256(content).hexdigest()

    def test_only_so_many_are_remembered(
        self, verifier: EvidenceVerifier, base: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "CACHE_ENTRIES", 2)
        for number in range(3):
            path = base / str(number)
            path.touch()
            settle(path)
            verifier.hash_file(str(number))
        assert len(verifier._files._known) == 1


def helpers_of(verifier: EvidenceVerifier) -> list[int]:
    return [
        helper._process._process.pid for helper in (verifier._rows, verifier._hashes) if helper._process is not None
    ]


class TestHelper:
    def test_files_alone_need_none(self, verifier: EvidenceVerifier) -> None:
        verifier.hash_file("report.txt")
        assert helpers_of(verifier) == []

    def test_one_is_kept_and_ends_with_its_verifier(self, base: Path) -> None:
        with EvidenceVerifier(base) as verifier:
            assert error_of(verifier, row()) is None
            first = helpers_of(verifier)
            assert error_of(verifier, row()) is None
            assert helpers_of(verifier) == first
        with pytest.raises(ProcessLookupError):
            os.kill(first[0], 0)

    def test_the_one_for_files_ends_with_its_verifier_too(self, base: Path) -> None:
        with EvidenceVerifier(base) as verifier, (base / "report.txt").open("rb"):
            assert verifier.hash_file("report.txt") == DIGEST
            (pid,) = helpers_of(verifier)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_forgotten_verifier_takes_its_helper_along(self, base: Path) -> None:
        verifier = EvidenceVerifier(base)
        assert error_of(verifier, row()) is None
        (pid,) = helpers_of(verifier)
        del verifier
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_one_that_died_is_replaced(self, verifier: EvidenceVerifier) -> None:
        assert error_of(verifier, row()) is None
        (first,) = helpers_of(verifier)
        os.kill(first, signal.SIGKILL)
        assert error_of(verifier, row()) is None
        assert helpers_of(verifier) != [first]

    def test_one_that_found_nothing_or_nothing_readable_is_kept_too(self, verifier: EvidenceVerifier) -> None:
        assert error_of(verifier, row()) is None
        first = helpers_of(verifier)
        for path in ("gone.sqlite", "report.txt", "out"):
            assert error_of(verifier, row(db_path=path)) is not None
        assert error_of(verifier, row()) is None
        assert helpers_of(verifier) == first

    def test_one_that_cannot_be_started_keeps_nobody_from_asking(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", "")
            for _ in range(2):
                assert str(error_of(verifier, row())).startswith("check_error: there is no Python interpreter")
                assert verifier._rows.is_free()
        assert error_of(verifier, row()) is None

    def test_one_that_is_busy_until_the_deadline_is_not_waited_for_any_longer(self, verifier: EvidenceVerifier) -> None:
        asked = threading.Thread(target=error_of, args=(verifier, row()), daemon=True)
        with verifier._rows._lock:
            verifier._timeout = 0.01
            asked.start()
            asked.join(60)
            assert not asked.is_alive()
        verifier._timeout = 30.0
        assert error_of(verifier, row()) is None

    def test_an_answer_that_makes_no_sense_ends_it(self, verifier: EvidenceVerifier) -> None:
        assert error_of(verifier, row()) is None
        process = verifier._rows._process
        assert process is not None
        process.channel._end.close()
        process.channel._end, other_end = socket.socketpair()
        with other_end:
            other_end.sendall(b"\0\0\0\0\0\0\0\2hello")
            error = error_of(verifier, row())
        assert error == "check_error: the helper process gave an answer that makes no sense"
        assert helpers_of(verifier) == []
        assert error_of(verifier, row()) is None

    def test_one_that_hangs_is_ended_at_the_deadline_and_replaced(self, base: Path) -> None:
        with EvidenceVerifier(base, timeout=30) as verifier:
            assert error_of(verifier, row()) is None
            (stuck,) = helpers_of(verifier)
            os.kill(stuck, signal.SIGSTOP)
            verifier._timeout = 0.05
            assert error_of(verifier, row()) == "check_error: reading took too long"
            with pytest.raises(ProcessLookupError):
                os.kill(stuck, 0)
            verifier._timeout = 30
            assert error_of(verifier, row()) is None

    def test_closing_does_not_wait_for_an_answer(self, base: Path) -> None:
        verifier = EvidenceVerifier(base, timeout=600)
        assert error_of(verifier, row()) is None
        os.kill(helpers_of(verifier)[0], signal.SIGSTOP)
        evidence = row()
        asking = threading.Thread(target=verifier.verify_evidence, args=(evidence,))
        asking.start()
        while not verifier._rows._lock.locked():
            pass
        verifier.close()
        asking.join()
        assert evidence.verification_error == "check_error: this verifier was closed"

    def test_many_threads_share_it(self, verifier: EvidenceVerifier) -> None:
        pieces = [row(values={"tries": 3 if number % 3 else 4}) for number in range(40)]
        verifier.verify_multiple(pieces)
        assert [piece.verified for piece in pieces] == [bool(number % 3) for number in range(40)]
        assert len(helpers_of(verifier)) == 1

    def test_a_closed_verifier_says_so(self, base: Path) -> None:
        verifier = EvidenceVerifier(base, database=base / "app.sqlite")
        verifier.close()
        verifier.close()
        of_store = claim("db_row", {"table": "tasks", "where": {"task_id": "task-123"}})
        for evidence in (claim("artifact_exists", {"path": "report.txt"}), row(), of_store):
            assert error_of(verifier, evidence) == "check_error: this verifier was closed"
        assert helpers_of(verifier) == []

    def test_nothing_of_the_environment_reaches_it(
        self, verifier: EvidenceVerifier, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("API_TOKEN", "hunter2")
        assert error_of(verifier, row()) is None
        environment = Path(f"/proc/{helpers_of(verifier)[0]}/environ")
        if environment.exists():
            assert b"hunter2" not in environment.read_bytes()


def in_a_child(work: Callable[[], bool]) -> int:
    """Fork, work there, and give its exit status: 0 when the work gave True."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
class TestFork:
    def test_a_child_verifies_with_a_helper_of_its_own(self, verifier: EvidenceVerifier) -> None:
        """D10"""
        assert error_of(verifier, row()) is None
        parents = helpers_of(verifier)

        def work() -> bool:
            holds = verifier.verify_evidence(row()) and verifier.hash_file("report.txt") == DIGEST
            own = helpers_of(verifier)
            verifier.close()
            return holds and own != parents

        assert in_a_child(work) == 0
        assert error_of(verifier, row()) is None
        assert helpers_of(verifier) == parents

    def test_a_child_is_free_of_locks_that_others_held(self, verifier: EvidenceVerifier) -> None:
        """The thread that holds them is not there to give them back."""
        assert error_of(verifier, row()) is None
        holder = threading.Event(), threading.Event()

        def hold() -> None:
            with verifier._rows._lock:
                holder[0].set()
                holder[1].wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        holder[0].wait(60)
        try:
            signal.alarm(60)
            assert in_a_child(lambda: verifier.verify_evidence(row()) and bool(verifier.hash_file("report.txt"))) == 0
        finally:
            signal.alarm(0)
            holder[1].set()
            thread.join()
