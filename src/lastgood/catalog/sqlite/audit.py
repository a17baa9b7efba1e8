"""Every row of a catalog file, also of a damaged one. Runs inside a reading transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from lastgood.catalog.relational.connection import MAX_SEQUENCE, SHIFT, Row
from lastgood.catalog.relational.records import read_blobs
from lastgood.catalog.sqlite.connection import SQLiteConnection, ends_within_page, translate
from lastgood.catalog.upkeep import (
    AttestationRow,
    Audit,
    BlobRow,
    BranchRow,
    CheckpointRow,
    JournalRow,
    MoveRow,
    NameRow,
    PackRow,
    SliceRow,
    StepRow,
    TaskRow,
    WorkspaceRow,
)
from lastgood.catalog.values import Blob
from lastgood.errors import IntegrityError
from lastgood.model.identity import DIGEST_SIZE

LAST_KEY = (1 << 63) - 1
AT_ONCE = 500
DIGEST_BITS = 8 * DIGEST_SIZE
MAX_PROBLEMS = 20


_CHECKPOINT = tuple[
    int, int, str, str, str, int, int, int, int, int | None, bytes, bytes,
    bytes | None, int | None, int | None, bytes | None,
]  # fmt: skip
_ATTESTATION = tuple[int, int, int, str, int, str, bytes, bytes]
_NAME = tuple[int, str, int]
_MOVE = tuple[int, int, int, int, int | None, int | None]


class _Keys(NamedTuple):
    """How the keys of a table are numbers, so that reading can go on behind what is damaged."""

    columns: str
    marks: str
    last: int
    to_bindings: Callable[[int], Row]
    of: Callable[[Row], int]


def _numbered(column: str) -> _Keys:
    return _Keys(column, "?", LAST_KEY, lambda key: (key,), lambda row: int(row[0]))


_SLICES = _Keys(
    "partition, digest",
    "?, ?",
    LAST_KEY << DIGEST_BITS,
    lambda key: (key >> DIGEST_BITS, (key & (1 << DIGEST_BITS) - 1).to_bytes(DIGEST_SIZE, "big")),
    lambda row: (row[0] << DIGEST_BITS) + int.from_bytes(row[1], "big"),
)


class SQLiteAudit(Audit):
    def __init__(self, connection: apsw.Connection, lost: int = 0) -> None:
        self._connection = connection
        self.lost = lost
        self.unreadable: list[str] = []

    def problems(self) -> list[str]:
        try:
            found = self._connection.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})").fetchall()
        except apsw.Error as error:
            return [str(translate(error))]
        pages = self._connection.execute("PRAGMA page_count").get
        if found == [("ok",)] and ends_within_page(Path(self._connection.filename), pages):
            return ["its last page is cut off"]
        return [] if found == [("ok",)] else [line for (text,) in found for line in str(text).splitlines()]

    def tasks(self) -> Iterator[TaskRow]:
        columns = "task, owner, id, active_branch, last_sequence, last_event, checkpoints"
        return self._scan("tasks", columns, _numbered("task"), TaskRow)

    def branches(self) -> Iterator[BranchRow]:
        columns = """branch, task, owner, id, name, origin_branch, origin, origin_id, head, version, own, inherited,
                     deleted"""
        return self._scan("branches", columns, _numbered("branch"), BranchRow)

    def checkpoints(self) -> Iterator[CheckpointRow]:
        columns = """number, branch, owner, id, type, version, last_event, deleted, verified, verified_at, checksum,
                     placement, record, root_size, encoding, root"""
        found = self._scan("checkpoints", columns, _numbered("number"), _CHECKPOINT)
        return (CheckpointRow(*_place(row[0]), *row[1:]) for row in found)

    def attestations(self) -> Iterator[AttestationRow]:
        columns = "attestation, checkpoint, number, kind, at, actor, data, digest"
        found = self._scan("attestations", columns, _numbered("attestation"), _ATTESTATION)
        return (AttestationRow(*_place(row[1]), *row[2:]) for row in found)

    def events(self) -> Iterator[tuple[int, int]]:
        return (_place(row[0]) for row in self._scan("events", "number", _numbered("number"), tuple[int]))

    def keys(self) -> Iterator[NameRow]:
        return map(_name, self._read_through("keys", "SELECT task, key, number FROM keys", _NAME))

    def tags(self) -> Iterator[NameRow]:
        return map(_name, self._read_through("tags", "SELECT task, name, number FROM tags", _NAME))

    def moves(self) -> Iterator[MoveRow]:
        sql = "SELECT task, number, from_branch, to_branch, before, after FROM moves"
        return map(_move, self._read_through("moves", sql, _MOVE))

    def workspaces(self) -> Iterator[WorkspaceRow]:
        sql = "SELECT task, path, inode, device, boot, branch FROM workspaces"
        return self._read_through("workspaces", sql, WorkspaceRow)

    def journals(self) -> Iterator[JournalRow]:
        return self._read_through("journals", "SELECT id, owner, task_id, journal FROM journals", JournalRow)

    def steps(self) -> Iterator[StepRow]:
        sql = "SELECT owner, id, task_id, step, size, encoding, snapshot FROM steps"
        return self._read_through("steps", sql, StepRow)

    def packs(self) -> Iterator[PackRow]:
        return self._scan("packs", "pack, name, size", _numbered("pack"), PackRow)

    def blobs(self, *, data: bool = False) -> Iterator[BlobRow]:
        # SQLite knows the length of bytes that it does not read.
        columns = f"""blob, partition, digest, size, encoding, pack, position, coalesce(length, length(data)),
                      {"data" if data else "NULL"}"""
        return self._scan("blobs", columns, _numbered("blob"), BlobRow)

    def slices(self) -> Iterator[SliceRow]:
        return self._scan("slices", "partition, digest, size, whole, position", _SLICES, SliceRow)

    def read(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        wanted = list(digests)
        try:
            return read_blobs(SQLiteConnection(self._connection), partition, wanted)
        except (apsw.Error, IntegrityError) as error:
            _require_damage(error)
        found: dict[bytes, Blob] = {}
        for digest in wanted:
            try:
                found |= read_blobs(SQLiteConnection(self._connection), partition, [digest])
            except (apsw.Error, IntegrityError) as error:
                _require_damage(error)
        return found

    def raw(self, table: str, *, has_rowid: bool) -> Iterator[Row]:
        """The rows of a table as they are, as many as can be read."""
        if table == "slices":
            return self._scan(table, "*", _SLICES, tuple)
        if not has_rowid:
            return self._read_through(table, f"SELECT * FROM {table}", tuple)
        return (row[1:] for row in self._scan(table, "rowid, *", _numbered("rowid"), tuple))

    def _scan(self, table: str, columns: str, keys: _Keys, shape: Any) -> Iterator[Any]:
        """The rows of a table in the order of its keys, which come first; what is damaged is passed over."""
        sql = f"SELECT {columns} FROM {table} WHERE ({keys.columns}) >= ({keys.marks}) ORDER BY {keys.columns}"
        start: int | None = 0
        while start is not None:
            try:
                rows: list[Row] = self._connection.execute(f"{sql} LIMIT {AT_ONCE}", keys.to_bindings(start)).fetchall()
            except apsw.Error as error:
                _require_damage(error)
                self._say_unreadable(table)
                for row in self._rows_before_damage(sql, keys.to_bindings(start)):
                    start = max(start, self._key(table, keys, row) + 1)
                    yield from self._shaped(table, [row], shape)
                start = self._next_readable(f"{sql} LIMIT 1", keys, start)
                continue
            yield from self._shaped(table, rows, shape)
            # A page in the wrong place has keys out of order: never go back to where this has been.
            after = self._key(table, keys, rows[-1]) + 1 if len(rows) == AT_ONCE else 0
            start = after if after > start else None

    def _shaped(self, table: str, found: list[Row], shape: Any) -> list[Any]:
        """Without those that cannot be rows of the table."""
        believed = []
        try:
            return msgspec.convert(found, list[shape])
        except msgspec.ValidationError:
            self._say_unreadable(table)
        for row in found:
            with suppress(msgspec.ValidationError):
                believed.append(msgspec.convert(row, shape))
        return believed

    def _key(self, table: str, keys: _Keys, row: Row) -> int:
        try:
            return keys.of(row)
        except (TypeError, ValueError):  # it is no row of this table
            self._say_unreadable(table)
            return -1

    def _rows_before_damage(self, sql: str, bindings: Row) -> Iterator[Row]:
        try:
            yield from self._connection.execute(sql, bindings)
        except apsw.Error as error:
            _require_damage(error)

    def _next_readable(self, sql: str, keys: _Keys, start: int) -> int | None:
        """The first key from which on reading succeeds, behind `start`, from where it does not."""
        step = 1
        while not self._is_readable(sql, keys.to_bindings(start + step)):
            step *= 2
            if start + step > keys.last:
                return None
        low, high = start + step // 2, start + step
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_readable(sql, keys.to_bindings(middle)) else (middle, high)
        return high

    def _is_readable(self, sql: str, bindings: Row) -> bool:
        try:
            self._connection.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            _require_damage(error)
            return False
        return True

    def _read_through(self, table: str, sql: str, shape: Any) -> Iterator[Any]:
        """The rows of a table, up to the first that cannot be read."""
        try:
            for row in self._connection.execute(sql):
                yield from self._shaped(table, [row], shape)
        except apsw.Error as error:
            _require_damage(error)
            self._say_unreadable(table)

    def _say_unreadable(self, table: str) -> None:
        if table not in self.unreadable:
            self.unreadable.append(table)


def _require_damage(error: apsw.Error | IntegrityError) -> None:
    """Whatever else is wrong is not for an audit to pass over."""
    translated = error if isinstance(error, IntegrityError) else translate(error)
    if not isinstance(translated, IntegrityError):
        raise translated from error


def _place(number: int) -> tuple[int, int]:
    return number >> SHIFT, number & MAX_SEQUENCE


def _name(row: Row) -> NameRow:
    return NameRow(row[0], row[1], *_place(row[2]))


def _move(row: Row) -> MoveRow:
    before, after = (None if number is None else _place(number) for number in row[4:])
    return MoveRow(row[0], row[1], row[2], row[3], before, after)
