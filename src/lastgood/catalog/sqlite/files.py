"""Content of files, the folders they lie in, and restores under way. Each function runs inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from lastgood.catalog.sqlite import shapes
from lastgood.catalog.sqlite.reading import Row, one_row, rows
from lastgood.catalog.values import FILES, Binding, Blob, Commit, NewPack
from lastgood.errors import ConflictError, IntegrityError, NotFoundError
from lastgood.model.digest import to_text
from lastgood.model.identity import now
from lastgood.model.journal import Journal, decode_journal, encode_journal

_INSERT = """
  INSERT INTO blobs (partition, digest, size, encoding, pack, position, length, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (partition, digest) DO UPDATE SET condemned = NULL WHERE condemned IS NOT NULL"""


def write_files(connection: apsw.Connection, commit: Commit, task: int, branch: int) -> None:
    """What a commit says of files: new content, content it relies on, folders, the restore it ends."""
    if commit.binding is not None:
        _bind(connection, commit.binding, task, branch)
    for pack in commit.packs:
        _insert_pack(connection, pack)
    if commit.file_blobs:
        connection.executemany(_INSERT, map(_inline, commit.file_blobs))
    if commit.relies_on:
        _require_blobs(connection, commit.relies_on)
    if commit.base not in (None, commit.record.parent_id):
        _require_base(connection, commit.owner, commit.base)
    if commit.journal is not None:
        end_journal(connection, commit.journal)


def has_blobs(connection: apsw.Connection, partition: int, digests: Iterable[bytes]) -> set[bytes]:
    sql = "SELECT digest FROM blobs WHERE partition = ? AND digest = ?"
    return {digest for (digest,) in connection.executemany(sql, ((partition, digest) for digest in digests))}


def has_any(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM blobs WHERE partition = ? LIMIT 1", (FILES,)).get is not None


def read_bound(connection: apsw.Connection, owner: str, task_id: str, host: str, path: str) -> str | None:
    sql = """SELECT b.id FROM workspaces w JOIN tasks t USING (task) JOIN branches b USING (branch)
             WHERE t.owner = ? AND t.id = ? AND w.host = ? AND w.path = ?"""
    branch_id: str | None = connection.execute(sql, (owner, task_id, host, path)).get
    return branch_id


def bind(connection: apsw.Connection, owner: str, branch_id: str, binding: Binding) -> None:
    sql = "SELECT task, branch FROM branches WHERE owner = ? AND id = ? AND deleted = 0"
    row = one_row(connection, sql, (owner, branch_id))
    if row is None:
        raise NotFoundError(f"there is no branch {branch_id!r}", hint="`lastgood branch` lists them")
    _bind(connection, binding._replace(takes_over=True), *row)


def begin_journal(connection: apsw.Connection, journal: Journal) -> None:
    connection.execute(
        "INSERT INTO journals VALUES (?, ?, ?, ?, ?, ?)",
        (journal.id, journal.host, journal.owner, journal.task_id, journal.began_at, encode_journal(journal)),
    )


def read_journals(connection: apsw.Connection, host: str) -> list[Journal]:
    sql = "SELECT journal, id FROM journals WHERE host = ? ORDER BY began_at, id"
    return [_journal(row) for row in rows(connection, sql, (host,), shapes.JOURNAL)]


def read_needed(connection: apsw.Connection) -> set[tuple[str, str]]:
    """Owner and id of the checkpoints that restores under way go to, or back to, on any host."""
    found = [_journal(row) for row in rows(connection, "SELECT journal, id FROM journals", (), shapes.JOURNAL)]
    return {(journal.owner, each) for journal in found for each in (journal.before, journal.chosen)}


def end_journal(connection: apsw.Connection, journal_id: str) -> None:
    connection.execute("DELETE FROM journals WHERE id = ?", (journal_id,))


def _bind(connection: apsw.Connection, binding: Binding, task: int, branch: int) -> None:
    for path in binding.paths:
        row = one_row(
            connection,
            """SELECT w.branch, b.id, b.name, b.deleted FROM workspaces w JOIN branches b USING (branch)
               WHERE w.task = ? AND w.host = ? AND w.path = ?""",
            (task, binding.host, path),
        )
        if row is not None and row[0] != branch and not row[3] and not binding.takes_over:
            raise ConflictError(
                f"the files in {path} are those of the branch {row[2]!r} now",
                hint="go on with the handle that restored them, or open the task again",
                branch_id=row[1],
            )
        if row is None or row[0] != branch:
            connection.execute(
                "INSERT OR REPLACE INTO workspaces VALUES (?, ?, ?, ?)", (task, binding.host, path, branch)
            )


def insert_pack_row(connection: apsw.Connection, pack: NewPack) -> int:
    """Its number, which it may have already."""
    connection.execute(
        "INSERT INTO packs (name, size, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (pack.name, pack.size, now()),
    )
    return int(connection.execute("SELECT pack FROM packs WHERE name = ?", (pack.name,)).get)


def _insert_pack(connection: apsw.Connection, pack: NewPack) -> None:
    connection.execute("DELETE FROM announced_packs WHERE name = ?", (pack.name,))
    if not connection.changes() and not connection.execute("SELECT 1 FROM packs WHERE name = ?", (pack.name,)).get:
        raise IntegrityError(
            "a pack that this checkpoint brings was taken for one that nobody will commit",
            hint="save again: the files are read anew",
            blobs=[],
        )
    number = insert_pack_row(connection, pack)
    connection.executemany(
        _INSERT,
        (
            (FILES, entry.digest, entry.size, entry.encoding, number, entry.position, entry.length, None)
            for entry in pack.entries
        ),
    )


def _inline(blob: Blob) -> Row:
    return FILES, blob.digest, blob.size, blob.encoding, None, None, None, blob.data


def _require_base(connection: apsw.Connection, owner: str, checkpoint_id: str | None) -> None:
    sql = "SELECT 1 FROM checkpoints WHERE id = ? AND owner = ? AND record IS NOT NULL"
    if connection.execute(sql, (checkpoint_id, owner)).get is None:
        raise IntegrityError(
            "the checkpoint whose files these go on from was purged",
            hint="save again: the files are read anew",
            blobs=[],
        )


def _require_blobs(connection: apsw.Connection, digests: Sequence[bytes]) -> None:
    missing = set(digests) - has_blobs(connection, FILES, digests)
    if missing:
        raise IntegrityError(
            "content of files that this checkpoint relies on is gone from the store",
            hint="save again: the files are read anew",
            blobs=sorted(map(to_text, missing)),
        )
    connection.executemany(
        "UPDATE blobs SET condemned = NULL WHERE partition = ? AND digest = ? AND condemned IS NOT NULL",
        ((FILES, digest) for digest in digests),
    )


def _journal(row: Row) -> Journal:
    try:
        return decode_journal(row[0])
    except msgspec.DecodeError as error:
        raise IntegrityError(f"what is known of the restore {row[1]!r} is damaged") from error
