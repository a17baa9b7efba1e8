"""What the spool holds: checkpoints in the order in which they were saved, their content, and open steps.

An entry is the commit that the store could not take. An index lists the entries; their bodies stand apart, so that one
that is damaged can be set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from lastgood.catalog.values import FILES, Actor, Blob, Commit, NewBranch, StoredCheckpoint
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import PROVISIONAL, Attestation, Head, Placement
from lastgood.model.identity import digest, now
from lastgood.model.task import OpenStep, decode_step, encode_step
from lastgood.spool.file import PENDING, SpoolFile, damaged_entry

PAGE = 64

_WAITING = """SELECT e.number, e.task, e.owner, t.id, e.branch, e.id, e.parent, e.checksum, e.follows, e.at, e.size
              FROM entries e JOIN tasks t USING (task)"""


class Waiting(msgspec.Struct, frozen=True):
    """An entry as the index lists it. `follows`: its writer followed the task's active branch."""

    number: int
    task: int
    owner: str
    task_id: str
    branch_id: str
    id: str
    parent_id: str | None
    checksum: bytes
    follows: bool
    at: int
    size: int

    @property
    def placement(self) -> Placement:
        """A provisional placement, after all that are stored."""
        return Placement(self.branch_id, PROVISIONAL + self.number, 0, 0)

    def as_head(self) -> Head:
        return Head(self.id, self.checksum, self.placement.sequence, self.branch_id)


class Body(msgspec.Struct, frozen=True, array_like=True):
    """A commit without its blobs, and which blobs these are."""

    commit: Commit
    actor: Actor
    blobs: Sequence[bytes] = ()
    file_blobs: Sequence[bytes] = ()


class SpooledCheckpoint(msgspec.Struct, frozen=True):
    """A spooled checkpoint: its line in the index, and its body."""

    waiting: Waiting
    body: Body

    def stored(self) -> StoredCheckpoint:
        """Return it as a StoredCheckpoint with a provisional sequence number."""
        waiting, commit = self.waiting, self.body.commit
        last = next((data for kind, data in reversed(commit.attestations) if kind == "verification"), None)
        return StoredCheckpoint(
            id=waiting.id,
            owner=waiting.owner,
            task_id=waiting.task_id,
            task_number=-waiting.task,
            data=commit.data,
            checksum=waiting.checksum,
            placement=waiting.placement,
            placement_digest=waiting.placement.digest(waiting.checksum),
            verified=last is not None and bool(last.get("verified")),
            verified_at=None if last is None else waiting.at,
            deleted=False,
            tags=(),
        )

    def attestations(self) -> list[tuple[Attestation, bytes]]:
        """Return what it attests, with the digests."""
        commit, at, user = self.body.commit, self.waiting.at, self.body.actor.user
        said = [Attestation(n, kind, at, user, data) for n, (kind, data) in enumerate(commit.attestations, 1)]
        return [(each, each.digest(self.waiting.checksum)) for each in said]

    def branch(self) -> NewBranch | None:
        """Return the branch that it begins."""
        return self.body.commit.branch if isinstance(self.body.commit.branch, NewBranch) else None


class Entries(SpoolFile):
    """The entries and steps in a spool's file."""

    # --- keeping -------------------------------------------------------------------------------------------

    def add(
        self,
        commit: Commit,
        actor: Actor,
        *,
        branch_id: str,
        follows: bool,
        store_id: str | None,
        admit: Callable[[Waiting | None, int], None],
    ) -> tuple[SpooledCheckpoint, int, int]:
        """Keep a commit; return its entry, and how many bytes and entries there are then, in one transaction.

        `admit` is called with the end of another line that continues the same parent, if there is one, and how many
        bytes will be taken; it may refuse by raising.
        """
        body = _make_body(commit, actor)
        data, record = _encoder.encode(body), commit.record
        size = len(data) + sum(len(blob.data) for blob in (*commit.blobs, *commit.file_blobs))

        def insert(connection: apsw.Connection) -> tuple[SpooledCheckpoint, int, int]:
            task = _number_task(connection, commit.owner, record.task_id)
            admit(_continuing(connection, task, record.parent_id), _used(connection) + size)
            if not any_pending(connection):  # the id of an earlier store that lay here does not matter any more
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('store_id', ?)", (store_id,))
            values = (task, branch_id, commit.owner, record.id, record.parent_id, commit.checksum, record.key)
            connection.execute(
                "INSERT INTO entries (task, branch, owner, id, parent, checksum, key, follows, at, size) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, follows, at := now(), size),
            )
            number = connection.last_insert_rowid()
            connection.execute("INSERT INTO bodies VALUES (?, ?)", (number, data))
            for partition, brought in ((task, commit.blobs), (FILES, commit.file_blobs)):
                connection.executemany(
                    "INSERT INTO blobs (task, digest, size, encoding, data) VALUES (?, ?, ?, ?, ?) "
                    "ON CONFLICT DO NOTHING",
                    ((partition, *blob[:4]) for blob in brought),
                )
            names = (commit.owner, record.task_id, branch_id, record.id, record.parent_id, commit.checksum)
            entry = SpooledCheckpoint(Waiting(number, task, *names, follows, at, size), body)
            return entry, _used(connection), int(connection.execute("SELECT count(*) FROM entries").get)

        return self.write(insert)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries that are in the store. Not durable: one that comes back is found in the store again."""
        if not numbers:
            return

        def delete(connection: apsw.Connection) -> None:
            for table in ("entries", "bodies", "aside"):
                connection.executemany(f"DELETE FROM {table} WHERE number = ?", ((number,) for number in numbers))
            connection.execute("DELETE FROM blobs WHERE task <> ? AND task NOT IN (SELECT task FROM entries)", (FILES,))
            connection.execute("DELETE FROM blobs WHERE NOT EXISTS (SELECT 1 FROM entries)")

        self.write(delete, durable=False)

    def set_aside(self, number: int, reason: str) -> None:
        """Keep an entry that cannot come into the store, and do not try it again."""
        sql = "INSERT INTO aside VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        self.write(lambda connection: connection.execute(sql, (number, reason, now())))

    # --- the index -----------------------------------------------------------------------------------------

    def has_pending(self) -> bool:
        """Return whether a checkpoint waits for the store."""
        return self.find_work()[0]

    def pending(self, owner: str | None = None, task_id: str | None = None) -> list[Waiting]:
        """List what waits for the store, of a task or of all, in the order in which it was saved."""
        where = f"WHERE {PENDING} AND (?1 IS NULL OR e.owner = ?1) AND (?2 IS NULL OR t.id = ?2) ORDER BY e.number"
        return self._list(where, owner, task_id)

    def pending_on(self, owner: str, branch_id: str) -> list[Waiting]:
        """As `pending`, of a branch."""
        return self._list(f"WHERE {PENDING} AND e.owner = ? AND e.branch = ? ORDER BY e.number", owner, branch_id)

    def pages(self) -> Iterator[list[Waiting]]:
        """Yield all that wait now, some at a time, so that saves need not wait for long."""
        newest: Any = self.read_index(
            lambda connection: connection.execute("SELECT max(number) FROM entries").get, None
        )
        where = f"WHERE {PENDING} AND e.number > ? AND e.number <= ? ORDER BY e.number LIMIT {PAGE}"
        after = 0
        while page := self._list(where, after, newest or 0):
            yield page
            after = page[-1].number

    def aside(self) -> list[tuple[Waiting, str]]:
        """List what was set aside, and why."""

        def read(connection: apsw.Connection) -> list[tuple[Waiting, str]]:
            reasons = dict(connection.execute("SELECT number, reason FROM aside"))
            found = _read(connection, "WHERE e.number IN (SELECT number FROM aside) ORDER BY e.number", ())
            return [(waiting, reasons[waiting.number]) for waiting in found]

        return self.read(read, [])

    def waiting(self, owner: str, checkpoint_id: str) -> Waiting | None:
        """Return the entry of this id, also if it was set aside."""
        return next(iter(self._list("WHERE e.owner = ? AND e.id = ?", owner, checkpoint_id)), None)

    def keyed(self, owner: str, task_id: str, key: str) -> Waiting | None:
        """Return the entry of this idempotency key."""
        where = f"WHERE {PENDING} AND e.owner = ? AND t.id = ? AND e.key = ?"
        return next(iter(self._list(where, owner, task_id, key)), None)

    def find(self, owner: str, prefix: str, limit: int) -> list[str]:
        """List ids that begin with `prefix`."""
        sql = "SELECT id FROM entries WHERE owner = ? AND substr(id, 1, ?) = ? ORDER BY id LIMIT ?"
        about = (owner, len(prefix), prefix, limit)
        return self.read(lambda connection: [id_ for (id_,) in connection.execute(sql, about)], [])

    def task(self, number: int) -> tuple[str, str] | None:
        """Return owner and id of the task that has this number here."""
        sql = "SELECT owner, id FROM tasks WHERE task = ?"
        row: Any = self.read(lambda connection: connection.execute(sql, (number,)).fetchone(), None)
        return None if row is None else (row[0], row[1])

    def figures(self) -> tuple[int, int, int | None, int]:
        """Return how many wait, how many bytes they take, since when the oldest does, how many were set aside."""

        def read(connection: apsw.Connection) -> tuple[int, int, int | None, int]:
            sql = f"SELECT count(*), min(e.at) FROM entries e WHERE {PENDING}"
            row: Any = connection.execute(sql).fetchone()
            count, oldest = row
            aside = connection.execute("SELECT count(*) FROM aside").get
            return count, _used(connection) if count or aside else 0, oldest, aside

        nothing: tuple[int, int, int | None, int] = (0, 0, None, 0)
        return self.read(read, nothing)

    def _list(self, where: str, *about: object) -> list[Waiting]:
        return self.read_index(lambda connection: _read(connection, where, about), [])

    # --- content -------------------------------------------------------------------------------------------

    def entry(self, waiting: Waiting) -> SpooledCheckpoint:
        """Return an entry. IntegrityError when it is damaged, or was removed meanwhile."""
        sql = "SELECT body FROM bodies WHERE number = ?"
        body = self.read(lambda connection: connection.execute(sql, (waiting.number,)).get, None)
        return SpooledCheckpoint(waiting, _decode_body(body, waiting.checksum))

    def blobs(self, partition: int, digests: Iterable[bytes]) -> dict[bytes, Blob]:
        def read(connection: apsw.Connection) -> dict[bytes, Blob]:
            sql = "SELECT digest, size, encoding, data FROM blobs WHERE task = ? AND digest = ?"
            return {row[0]: Blob(*row) for row in connection.executemany(sql, ((partition, key) for key in digests))}

        return self.read(read, {})

    def commit_of(self, entry: SpooledCheckpoint) -> Commit:
        """Return the commit with the blobs of its state. IntegrityError when one is missing."""
        keys = entry.body.blobs
        found = self.blobs(entry.waiting.task, keys)
        if missing := [key for key in keys if key not in found]:
            raise IntegrityError(
                f"{len(missing)} part(s) of a spooled checkpoint are gone", hint="the spool is damaged"
            )
        return msgspec.structs.replace(entry.body.commit, blobs=[found[key] for key in keys])

    # --- steps that were begun while the store was away ----------------------------------------------------

    def begin_step(self, step: OpenStep, snapshot: Blob | None) -> None:
        values = (snapshot.size, snapshot.encoding, snapshot.data) if snapshot else (None, None, None)
        about = (step.owner, step.id, step.task_id, encode_step(step), *values)
        self.write(lambda connection: connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)", about))

    def steps(self) -> list[tuple[OpenStep, Blob | None]]:
        """List the steps that were begun while the store was away, and have not ended."""

        def read(connection: apsw.Connection) -> list[tuple[OpenStep, Blob | None]]:
            found = connection.execute("SELECT step, size, encoding, snapshot FROM steps ORDER BY rowid")
            return [(decode_step(row[0]), None if row[3] is None else Blob(b"", *row[1:])) for row in found]

        return self.read(read, [])

    def end_step(self, owner: str, step_id: str) -> bool:
        """Remove a step; return whether it was one of these."""

        def delete(connection: apsw.Connection) -> bool:
            connection.execute("DELETE FROM steps WHERE owner = ? AND id = ?", (owner, step_id))
            return bool(connection.changes())

        return bool(self.steps()) and self.write(delete)


def is_provisional(sequence: int) -> bool:
    """Return whether a sequence number is that of a spooled checkpoint."""
    return sequence >= PROVISIONAL


def any_pending(connection: apsw.Connection) -> bool:
    return connection.execute(f"SELECT 1 FROM entries e WHERE {PENDING} LIMIT 1").get is not None


def follow(children: Mapping[str | None, Waiting], parent_id: str | None) -> Waiting | None:
    """Return the end of the line that continues a checkpoint; None when nothing does."""
    last = None
    while (child := children.get(last.id if last else parent_id)) is not None:
        last = child
    return last


def _number_task(connection: apsw.Connection, owner: str, task_id: str) -> int:
    connection.execute("INSERT INTO tasks (owner, id) VALUES (?, ?) ON CONFLICT DO NOTHING", (owner, task_id))
    return int(connection.execute("SELECT task FROM tasks WHERE owner = ? AND id = ?", (owner, task_id)).get)


def _continuing(connection: apsw.Connection, task: int, parent_id: str | None) -> Waiting | None:
    """Return the end of the line that begins with another child of this parent."""
    where, last = f"WHERE e.task = ? AND e.parent IS ? AND {PENDING} ORDER BY e.number DESC LIMIT 1", None
    while found := _read(connection, where, (task, last.id if last else parent_id)):
        last = found[0]
    return last


def _read(connection: apsw.Connection, where: str, about: tuple[object, ...]) -> list[Waiting]:
    rows: Iterable[Any] = connection.execute(f"{_WAITING} {where}", about)
    return [Waiting(*row) for row in rows]


def _used(connection: apsw.Connection) -> int:
    """Return the bytes of pages that hold something."""
    size: int = connection.pragma("page_size")
    return size * int(connection.pragma("page_count") - connection.pragma("freelist_count"))


def _make_body(commit: Commit, actor: Actor) -> Body:
    """Leave out the content, which lies beside it, and a step to begin: that would be over when it is replayed."""
    bare = msgspec.structs.replace(commit, blobs=(), file_blobs=(), begins=None)
    return Body(bare, actor, [blob.digest for blob in commit.blobs], [blob.digest for blob in commit.file_blobs])


def _decode_body(data: object, checksum: object) -> Body:
    """IntegrityError when it is not what was written, or not of a checkpoint with this checksum."""
    try:
        assert isinstance(data, bytes)
        body = _decoder.decode(data)
    except (AssertionError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_entry() from error
    if body.commit.checksum != checksum or digest(body.commit.data) != checksum:
        raise damaged_entry()
    return body


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Body)
