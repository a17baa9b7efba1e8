"""The spool of an open store: takes what the store could not, and brings it there when the store is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from lastgood.catalog import open_catalog
from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import Actor, Commit, Committed, NewBranch
from lastgood.engine.engine import Engine, why_away
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    DiskFullError,
    NestedWriteError,
    ReplayBusyError,
    StoreAwayError,
    UnavailableError,
)
from lastgood.model.checkpoint import Record, decode_record
from lastgood.model.identity import moment, now
from lastgood.observe.log import log_warning
from lastgood.spool.breaker import Breaker
from lastgood.spool.entry import Entry, Waiting, body_of
from lastgood.spool.file import SpoolFile
from lastgood.spool.left import bring_back, find_left
from lastgood.spool.overlay import Overlay
from lastgood.spool.place import free_bytes, spool_folder

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.commit import Draft, Ground, Splitters
    from lastgood.spool.replay import Replayed

ALERT_SHARE = 0.8
RESERVE_BYTES = 4 << 20
LOW_BYTES = 256 << 20
"""With less than this free where the spool lies, room is reserved while there is some."""
SHARE_RESERVED = 8
LOOK_SECONDS = 1.0
"""Looking at the room there is costs as much as a tenth of a save: not each one looks."""
PATIENCE_SECONDS, PAUSE_SECONDS = 2.0, 0.01


class SpoolFigures(msgspec.Struct, frozen=True):
    """What waits for the store. `aside` cannot come into it and is kept; not `durable`: gone with the process.

    `away` is why the store takes nothing now, None while it does; `last_error` is what was wrong the last time. `left`
    are folders of spools that were put out of the way, for another store or as damaged.
    """

    depth: int = 0
    bytes: int = 0
    max_bytes: int = 0
    oldest: datetime | None = None
    aside: int = 0
    away: str | None = None
    last_error: str | None = None
    durable: bool = True
    folder: str | None = None
    left: tuple[str, ...] = ()


class Spool:
    """Of one store in one process. Safe for threads."""

    def __init__(self, engine: Engine, catalog: Catalog, file: Path) -> None:
        self._engine = engine
        self._target = file
        self.file = SpoolFile(spool_folder(file, engine.options))
        self.file.damaged = self._tell_damage
        self._overlay = Overlay(catalog, self.file, self)
        self.breaker = Breaker(self._ask, self._tell_failure)
        self._store_id: str | None = None
        self._last_error: UnavailableError | None = None
        self._is_nearly_full = False
        self._has_looked = False
        self._has_room = False
        self._looks_again = 0.0
        self.closed = False
        self.clock: Callable[[], float] = time.monotonic
        self.pause: Callable[[float], None] = time.sleep

    @property
    def catalog(self) -> Catalog:
        """The store's, with what is spooled shown in it."""
        return cast(Catalog, self._overlay)

    @property
    def folder(self) -> Path | None:
        """Where it lies; None: in memory."""
        return self.file.folder

    @property
    def is_away(self) -> bool:
        return self.breaker.error is not None

    def figures(self) -> SpoolFigures:
        depth, size, oldest, aside = self.file.figures()
        away, last = self.breaker.error, self._last_error
        return SpoolFigures(
            depth,
            size,
            self._engine.options.spool_bytes,
            None if oldest is None else moment(oldest),
            aside,
            None if away is None else why_away(away),
            None if last is None else why_away(last),
            self.file.durable,
            None if self.folder is None else str(self.folder),
            tuple(map(str, find_left(self.folder))),
        )

    def greet(self) -> None:
        """Whoever opens the store brings what is spooled into it, if it is there."""
        if (absence := self._overlay.absence) is not None:
            self.away(absence)
        elif self.file.has_pending() or find_left(self.folder, "other-store"):
            try:
                self.replay(wait=False)
            except ReplayBusyError:
                pass
            except UnavailableError as error:
                self.away(error)
            except CheckpointError as error:
                self._tell_failure(error)

    def count(self, owner: str, task_id: str) -> tuple[int, int]:
        """Return how many checkpoints of a task wait for the store, and how many were set aside."""
        aside = [each for each, _ in self.file.aside() if (each.owner, each.task_id) == (owner, task_id)]
        return len(self.file.pending(owner, task_id)), len(aside)

    # --- before a save -------------------------------------------------------------------------------------

    def require_here(self) -> None:
        """UnavailableError, at once, while the store is away."""
        if (error := self.breaker.error) is not None:
            self.breaker.start()  # in a child that was forked meanwhile nobody asks
            raise StoreAwayError(f"the store is away: {why_away(error)}", hint=error.hint) from error

    def make_way(self, owner: str | None = None, task_id: str | None = None) -> None:
        """What is spooled comes first: it is in the store when this returns. UnavailableError while that is away.

        Where the store is damaged, and something of another task cannot come into it, that keeps nobody from going on.
        """
        self.require_here()
        if self.file.has_pending():
            try:
                self.replay()
            except UnavailableError:
                raise
            except CheckpointError as error:
                if self.file.pending(owner, task_id):
                    raise
                self._tell_failure(error)
        elif not self._has_looked:
            self._store_id = self._overlay.behind.info().id
            self._has_looked = True
        self._keep_room()

    def takes(self, error: UnavailableError) -> bool:
        """Whether a save that failed with this may be spooled."""
        return not self.closed and not isinstance(error, NestedWriteError)

    def wants_files_of(self, draft: Draft, error: UnavailableError) -> bool:
        """Whether it may be spooled, once its files are captured without the store."""
        return self.takes(error) and not is_self_contained(draft)

    def away(self, error: UnavailableError) -> None:
        """The store did not answer: from now on nobody waits for it."""
        if isinstance(error, StoreAwayError):  # known already
            return
        self._last_error = error
        if self.breaker.open(error):
            self.file.make()
            where = "in the spool" if self.file.durable else "in memory alone, and are gone with this process"
            self._engine.alert(
                f"the store is away: {why_away(error)}; until it is back checkpoints are kept {where}",
                None,
                error,
                code="store_away",
            )

    # --- a save --------------------------------------------------------------------------------------------

    def take(
        self,
        user: str,
        ground: Ground,
        head: Checkpoint | None,
        draft: Draft,
        splitters: Splitters,
        error: UnavailableError,
    ) -> tuple[Record, Committed]:
        """Keep a checkpoint here. Its record is as the store would have it; its place is none yet.

        Raises `error` when it leans on content that only the store has, DiskFullError when there is no room.
        """
        from lastgood.engine.commit import write_checkpoint

        if not is_self_contained(draft):
            raise error
        self.away(error)
        draft = self._with_state(ground, head, draft)
        about = cast(Catalog, self), ground, draft, splitters, user, self._engine.options.redaction
        record, committed = write_checkpoint(*about)
        before = ground.parent.control_state if ground.parent else "idle"
        return record, msgspec.structs.replace(committed, previous_control_state=before)

    def commit(self, commit: Commit, actor: Actor) -> Committed:
        """As a catalog does it, as far as is known here: what others have done in the store shows when it is back."""
        if (earlier := self._find_earlier(commit) if commit.may_repeat else None) is not None:
            stored = self.file.entry(earlier).stored()
            return Committed(stored, commit.record.control_state, repeated=True)
        branch = commit.branch
        branch_id = branch.id if isinstance(branch, NewBranch) else branch
        follows = branch.active if isinstance(branch, NewBranch) else commit.only_if_active
        most = self._engine.options.spool_bytes

        def admit(newest: Waiting | None, size: int) -> None:
            if newest is not None:
                raise ConflictError(
                    f"{commit.record.task_id!r} has moved on",
                    hint="look at error.head, then task.refresh() and try again on top of it",
                    head=newest.as_head(),
                )
            if size > most:
                raise DiskFullError(
                    f"the spool is full: it may take {most:,} bytes", hint="bring the store back, or raise spool_bytes"
                )

        body = body_of(commit, actor)
        waiting, used = self.file.add(
            body,
            commit.blobs,
            commit.file_blobs,
            branch_id=branch_id,
            follows=follows,
            store_id=self._store_id,
            admit=admit,
        )
        if commit.step is not None:
            self.file.end_step(commit.owner, commit.step)
        self._warn_of_bound(used)
        self._engine.alerts.check_spool(self.file.depth(), used)
        return Committed(Entry(waiting, body).stored(), commit.record.control_state)

    def _find_earlier(self, commit: Commit) -> Waiting | None:
        record = commit.record
        earlier, what = self.file.waiting(commit.owner, record.id), f"the id {record.id!r}"
        if earlier is None and record.key is not None:
            earlier, what = self.file.keyed(commit.owner, record.task_id, record.key), f"the key {record.key!r}"
        if earlier is None:
            return None
        there = self.file.entry(earlier).body.commit
        if decode_record(there.data, there.checksum, "it").says_the_same_as(record, commit.inherited):
            return earlier
        raise ConflictError(
            f"{what} is taken by a checkpoint with other content", hint="use a new key", head=earlier.as_head()
        )

    def _with_state(self, ground: Ground, head: Checkpoint | None, draft: Draft) -> Draft:
        """With the state that it goes on with, where that lies in the store and can still be read there."""
        from lastgood.engine.commit import KEPT, Splitters

        parent, options = ground.parent, self._engine.options
        if draft.state is not KEPT or parent is None or parent.state is None or head is None:
            return draft
        if head.status != "stored" or parent.redacted or options.redaction.state:
            return draft
        try:
            state = head.fresh_state()
            if Splitters(options.max_state_bytes).split("state", state).ref == parent.state:
                return msgspec.structs.replace(draft, state=state)
        except CheckpointError:
            pass  # it is read there when the store is back
        return draft

    # --- the store is back ---------------------------------------------------------------------------------

    def replay(self, *, wait: bool = True) -> Replayed:
        """Bring all that waits into the store. UnavailableError when it is away; whatever got there stays there."""
        from lastgood.spool.replay import Replayed

        deadline = self.clock() + (PATIENCE_SECONDS if wait else 0)
        behind, done = self._overlay.behind, Replayed()
        try:
            behind.require_ready()
            bring_back(self.folder, lambda: behind.info().id, lambda file: self._bring(file, deadline))
            if self.file.has_pending():
                done = self._bring(self.file, deadline)
        except UnavailableError as error:
            self._last_error = error
            raise
        self.breaker.shut()
        return done

    def _bring(self, file: SpoolFile, deadline: float) -> Replayed:
        from lastgood.spool.replay import Replay

        with file.replaying(lambda: self._wait(deadline)):
            behind = self._overlay.behind
            self._require_same_store(file, behind)
            done = Replay(file, behind, self._blobs(behind), self._engine.alert, lambda: self.closed).run()
        if done.stored:
            log_warning(f"the store is back: {done.stored} spooled checkpoint(s) came into it", left=done.left)
        return done

    def gauges(self) -> dict[str, Callable[[], float]]:
        """What metrics tell of it, by name."""

        def age() -> float:
            oldest = self.figures().oldest
            return 0.0 if oldest is None else max(0.0, (moment(now()) - oldest).total_seconds())

        return {
            "spool_checkpoints": lambda: self.figures().depth,
            "spool_bytes": lambda: self.figures().bytes,
            "spool_oldest_seconds": age,
        }

    def close(self) -> None:
        self.closed = True
        self.breaker.close()
        depth = self.file.figures()[0] if not self.file.durable else 0
        if depth:
            said = f"{depth} checkpoint(s) were in memory alone and are gone: the store is away"
            self._engine.alert(said, code="spool_lost")
        self.file.close()

    def _ask(self) -> None:
        """In the background."""
        if not self.closed:
            self.replay(wait=False)

    def _tell_failure(self, error: CheckpointError) -> None:
        if not self.closed:
            self._engine.alert(
                f"what is spooled could not be brought into the store: {error}", None, error, code="spool"
            )

    def _tell_damage(self, error: CheckpointError, kept: Path | None) -> None:
        self._engine.alert(
            f"the spool is damaged and was put out of the way: {error}; it is kept in {kept}", None, error, code="spool"
        )

    def _wait(self, deadline: float) -> bool:
        if self.clock() >= deadline or self.closed:
            return False
        self.pause(PAUSE_SECONDS)
        return True

    def reopen(self) -> Catalog:
        """The catalog of a store that was away when it was opened. It is never made."""
        if self.closed or not self._target.exists():
            raise UnavailableError("the store is not there", hint="bring it back to where it was")
        try:
            found = open_catalog(self._target)
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            raise UnavailableError("the store cannot be opened", hint="look at the disk and the log") from error
        self._require_same_store(self.file, found)
        return found

    def _require_same_store(self, file: SpoolFile, behind: Catalog) -> None:
        """What waits for a store that was here must not come into another one that is here now."""
        meant, found = file.fact("store_id"), behind.info().id
        if meant in (None, found):
            return
        depth = file.figures()[0]
        left = file.leave_behind("other-store")
        self._engine.alert(
            f"{depth} checkpoint(s) were spooled for another store that was here before; they are kept in {left}",
            code="spool",
        )

    def _blobs(self, behind: Catalog) -> FileBlobs:
        from lastgood.engine.blobs import FileBlobs

        return FileBlobs(behind, self._engine.objects)

    # --- room ----------------------------------------------------------------------------------------------

    def _keep_room(self) -> None:
        """Reserve some while there is some: a disk that fills up is what makes stores go away."""
        if self.folder is None or self._has_room or (at := self.clock()) < self._looks_again:
            return
        self._looks_again = at + LOOK_SECONDS
        free = free_bytes(self.folder)
        if free is None or free >= LOW_BYTES:
            return
        self._has_room = True
        if self.file.fact("reserved") is not None:
            return
        size = min(RESERVE_BYTES, free // SHARE_RESERVED, self._engine.options.spool_bytes)
        try:
            self.file.reserve(size)
            self.file.note("reserved", size)
        except CheckpointError as error:
            said = f"the disk is nearly full, and no room could be reserved for the spool: {error}"
            self._engine.alert(said, error=error, code="spool")

    def _warn_of_bound(self, used: int) -> None:
        most = self._engine.options.spool_bytes
        is_nearly_full = used >= ALERT_SHARE * most
        if is_nearly_full and not self._is_nearly_full:
            said = f"the spool is nearly full: {used:,} of {most:,} bytes; when it is, saves fail"
            self._engine.alert(said, code="spool_nearly_full")
        self._is_nearly_full = is_nearly_full


def is_self_contained(draft: Draft) -> bool:
    """Whether it brings all content of files that its parent does not have."""
    files = draft.files
    return not isinstance(files, tuple) or not (files.gathered.packs or files.gathered.relies_on)
