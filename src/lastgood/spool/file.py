"""What the spool keeps: entries in the order in which they came, what they hold, and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from lastgood.catalog.values import FILES, Blob
from lastgood.errors import CheckpointError, FormatError, IntegrityError
from lastgood.model.identity import now
from lastgood.model.work import OpenStep, decode_step, encode_step
from lastgood.spool.database import SpoolDatabase
from lastgood.spool.entry import Body, Entry, Waiting, decode_body, encode_body

T = TypeVar("T")
PAGE = 64

_WAITING = """SELECT e.number, e.task, e.owner, t.id, e.branch, e.id, e.parent, e.checksum, e.follows, e.at, e.size
              FROM entries e JOIN tasks t USING (task)"""
_PENDING = "NOT EXISTS (SELECT 1 FROM aside a WHERE a.number = e.number)"


class SpoolFile(SpoolDatabase):
    """`folder` None: in memory, gone with the process.

    When the index of what waits is damaged, nobody can say what there is: the whole file is put out of the way, and
    `damaged` is told where to. A damaged entry is refused alone.
    """

    damaged: Callable[[CheckpointError, Path | None], None] = staticmethod(lambda error, kept: None)

    # --- keeping -------------------------------------------------------------------------------------------

    def add(
        self,
        body: Body,
        blobs: Sequence[Blob],
        file_blobs: Sequence[Blob],
        *,
        branch_id: str,
        follows: bool,
        store_id: str | None,
        admit: Callable[[Waiting | None, int], None],
    ) -> tuple[Waiting, int]:
        """Keep an entry; how many bytes are taken then. `admit` is told the end of another line that continues the same
        parent, if there is one, and how many bytes will be taken, and may refuse by raising. All in one transaction."""
        commit, data = body.commit, encode_body(body)
        record = commit.record
        size = len(data) + sum(len(blob.data) for blob in (*blobs, *file_blobs))

        def insert(connection: apsw.Connection) -> tuple[Waiting, int]:
            task = _number_task(connection, commit.owner, record.task_id)
            used = _used(connection)
            admit(_continuing(connection, task, record.parent_id), used + size)
            if not any_pending(connection):  # an earlier store that lay here is none of this one's business
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('store_id', ?)", (store_id,))
            values = (task, branch_id, commit.owner, record.id, record.parent_id, commit.checksum, record.key)
            connection.execute(
                "INSERT INTO entries (task, branch, owner, id, parent, checksum, key, follows, at, size) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, follows, at := now(), size),
            )
            number = connection.last_insert_rowid()
            connection.execute("INSERT INTO bodies VALUES (?, ?)", (number, data))
            for partition, brought in ((task, blobs), (FILES, file_blobs)):
                connection.executemany(
                    "INSERT INTO blobs (task, digest, size, encoding, data) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT DO NOTHING",
                    ((partition, *blob[:4]) for blob in brought),
                )
            names = (commit.owner, record.task_id, branch_id, record.id, record.parent_id, commit.checksum)
            return Waiting(number, task, *names, follows, at, size), _used(connection)

        return self.write(insert)

    def remove(self, numbers: Sequence[int]) -> None:
        """They are in the store. Not waited for: who finds them again finds them there, too."""
        if not numbers:
            return

        def delete(connection: apsw.Connection) -> None:
            for table in ("entries", "bodies", "aside"):
                connection.executemany(f"DELETE FROM {table} WHERE number = ?", ((number,) for number in numbers))
            connection.execute("DELETE FROM blobs WHERE task <> ? AND task NOT IN (SELECT task FROM entries)", (FILES,))
            connection.execute("DELETE FROM blobs WHERE NOT EXISTS (SELECT 1 FROM entries)")

        self.write(delete, durable=False)

    def set_aside(self, number: int, reason: str) -> None:
        """It cannot come into the store, and stays here."""
        sql = "INSERT INTO aside VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self.write(lambda connection: connection.execute(sql, (number, reason, now())))

    # --- looking -------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Whether there is nothing that waits, and nothing set aside."""
        sql = "SELECT 1 FROM entries LIMIT 1"
        return self._look(lambda connection: connection.execute(sql).get is None, True)

    def has_pending(self) -> bool:
        return self._look(any_pending, False)

    def pending(self, owner: str | None = None, task_id: str | None = None) -> list[Waiting]:
        """In the order in which they came."""
        where = f"WHERE {_PENDING} AND (?1 IS NULL OR e.owner = ?1) AND (?2 IS NULL OR t.id = ?2) ORDER BY e.number"
        return self._look(lambda connection: _read(connection, where, (owner, task_id)), [])

    def pages(self) -> Iterator[list[Waiting]]:
        """All that wait now, in the order in which they came, some at a time: nobody is kept from saving for long."""
        newest: Any = self._look(lambda connection: connection.execute("SELECT max(number) FROM entries").get, None)
        where = f"WHERE {_PENDING} AND e.number > ? AND e.number <= ? ORDER BY e.number LIMIT {PAGE}"
        after = 0
        while page := self._page(where, (after, newest or 0)):
            yield page
            after = page[-1].number

    def _page(self, where: str, about: tuple[object, ...]) -> list[Waiting]:
        return self._look(lambda connection: _read(connection, where, about), [])

    def aside(self) -> list[tuple[Waiting, str]]:
        def read(connection: apsw.Connection) -> list[tuple[Waiting, str]]:
            reasons = dict(connection.execute("SELECT number, reason FROM aside"))
            found = _read(connection, "WHERE e.number IN (SELECT number FROM aside) ORDER BY e.number", ())
            return [(waiting, reasons[waiting.number]) for waiting in found]

        return self.read(read, [])

    def on_branch(self, owner: str, branch_id: str) -> list[Waiting]:
        """As `pending`, of a branch."""
        where = f"WHERE {_PENDING} AND e.owner = ? AND e.branch = ? ORDER BY e.number"
        return self._look(lambda connection: _read(connection, where, (owner, branch_id)), [])

    def waiting(self, owner: str, checkpoint_id: str) -> Waiting | None:
        """Also one that was set aside."""
        where = "WHERE e.owner = ? AND e.id = ?"
        return self._first(where, (owner, checkpoint_id))

    def keyed(self, owner: str, task_id: str, key: str) -> Waiting | None:
        where = f"WHERE {_PENDING} AND e.owner = ? AND t.id = ? AND e.key = ?"
        return self._first(where, (owner, task_id, key))

    def find(self, owner: str, prefix: str, limit: int) -> list[str]:
        sql = "SELECT id FROM entries WHERE owner = ? AND substr(id, 1, ?) = ? ORDER BY id LIMIT ?"
        about = (owner, len(prefix), prefix, limit)
        return self.read(lambda connection: [id_ for (id_,) in connection.execute(sql, about)], [])

    def entry(self, waiting: Waiting) -> Entry:
        """IntegrityError when it is damaged, or was removed meanwhile."""
        sql = "SELECT body FROM bodies WHERE number = ?"
        body = self.read(lambda connection: connection.execute(sql, (waiting.number,)).get, None)
        return Entry(waiting, decode_body(body, waiting.checksum))

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        def read(connection: apsw.Connection) -> dict[bytes, Blob]:
            sql = "SELECT digest, size, encoding, data FROM blobs WHERE task = ? AND digest = ?"
            return {row[0]: Blob(*row) for row in connection.executemany(sql, ((partition, key) for key in digests))}

        return self.read(read, {})

    def task(self, number: int) -> tuple[str, str] | None:
        """Owner and id of the task that has this number here."""
        sql = "SELECT owner, id FROM tasks WHERE task = ?"
        row: Any = self.read(lambda connection: connection.execute(sql, (number,)).fetchone(), None)
        return None if row is None else (row[0], row[1])

    def depth(self) -> int:
        """How many there are, with those that were set aside."""
        return self.read(lambda connection: int(connection.execute("SELECT count(*) FROM entries").get), 0)

    def figures(self) -> tuple[int, int, int | None, int]:
        """How many wait, how many bytes they take, since when the oldest does, how many were set aside."""

        def read(connection: apsw.Connection) -> tuple[int, int, int | None, int]:
            sql = f"SELECT count(*), min(e.at) FROM entries e WHERE {_PENDING}"
            row: Any = connection.execute(sql).fetchone()
            count, oldest = row
            aside = connection.execute("SELECT count(*) FROM aside").get
            return count, _used(connection) if count or aside else 0, oldest, aside

        nothing: tuple[int, int, int | None, int] = (0, 0, None, 0)
        return self.read(read, nothing)

    def _first(self, where: str, about: tuple[object, ...]) -> Waiting | None:
        found: list[Waiting] = self._look(lambda connection: _read(connection, where, about), [])
        return found[0] if found else None

    def _look(self, work: Callable[[apsw.Connection], T], nothing: T) -> T:
        try:
            return self.read(work, nothing)
        except (IntegrityError, FormatError) as error:
            self.damaged(error, self.leave_behind("damaged"))
            return nothing

    # --- steps that were begun while the store was away -------------------------------------------------------

    def begin_step(self, step: OpenStep, snapshot: Blob | None) -> None:
        values = (snapshot.size, snapshot.encoding, snapshot.data) if snapshot else (None, None, None)
        about = (step.owner, step.id, step.task_id, encode_step(step), *values)
        self.write(lambda connection: connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)", about))

    def steps(self) -> list[tuple[OpenStep, Blob | None]]:
        """Those that were begun while the store was away, and have not ended."""

        def read(connection: apsw.Connection) -> list[tuple[OpenStep, Blob | None]]:
            found = connection.execute("SELECT step, size, encoding, snapshot FROM steps ORDER BY rowid")
            return [(decode_step(row[0]), None if row[3] is None else Blob(b"", *row[1:])) for row in found]

        return self.read(read, [])

    def end_step(self, owner: str, step_id: str) -> bool:
        """Whether it was one of these."""

        def delete(connection: apsw.Connection) -> bool:
            connection.execute("DELETE FROM steps WHERE owner = ? AND id = ?", (owner, step_id))
            return bool(connection.changes())

        return bool(self.steps()) and self.write(delete)


def any_pending(connection: apsw.Connection) -> bool:
    return connection.execute(f"SELECT 1 FROM entries e WHERE {_PENDING} LIMIT 1").get is not None


def _number_task(connection: apsw.Connection, owner: str, task_id: str) -> int:
    connection.execute("INSERT INTO tasks (owner, id) VALUES (?, ?) ON CONFLICT DO NOTHING", (owner, task_id))
    return int(connection.execute("SELECT task FROM tasks WHERE owner = ? AND id = ?", (owner, task_id)).get)


def _continuing(connection: apsw.Connection, task: int, parent_id: str | None) -> Waiting | None:
    """The end of the line that begins with another child of this parent."""
    where, last = f"WHERE e.task = ? AND e.parent IS ? AND {_PENDING} ORDER BY e.number DESC LIMIT 1", None
    while found := _read(connection, where, (task, last.id if last else parent_id)):
        last = found[0]
    return last


def follow(children: Mapping[str | None, Waiting], parent_id: str | None) -> Waiting | None:
    """The end of the line that goes on from a checkpoint; None when nothing does."""
    last = None
    while (child := children.get(last.id if last else parent_id)) is not None:
        last = child
    return last


def _read(connection: apsw.Connection, where: str, about: tuple[object, ...]) -> list[Waiting]:
    rows: Iterable[Any] = connection.execute(f"{_WAITING} {where}", about)
    return [Waiting(*row) for row in rows]


def _used(connection: apsw.Connection) -> int:
    """Bytes of pages that hold something."""
    size: int = connection.pragma("page_size")
    return size * int(connection.pragma("page_count") - connection.pragma("freelist_count"))
