"""The spool of an open store: keeps checkpoints that the store cannot take, and brings them there when it is back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from lastgood.catalog import open_catalog
from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import Actor, Commit, Committed, NewBranch
from lastgood.engine.engine import Engine
from lastgood.engine.options import Options
from lastgood.errors import (
    CheckpointError,
    ConflictError,
    DiskFullError,
    FormatVersionError,
    NestedWriteError,
    ReplayBusyError,
    StoreAwayError,
    UnavailableError,
)
from lastgood.local.location import BRING_BACK
from lastgood.model.checkpoint import Record, decode_record
from lastgood.model.identity import moment, now
from lastgood.observe.log import log_warning
from lastgood.spool.breaker import Breaker
from lastgood.spool.entries import Entries, Waiting, any_pending
from lastgood.spool.file import find_moved, free_bytes, spool_folder
from lastgood.spool.overlay import AbsentCatalog, Overlay

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.commit import Draft, Ground, Splitters
    from lastgood.spool.replay import Replayed

ALERT_SHARE = 0.8
RESERVE_BYTES = 4 << 20
LOW_BYTES = 256 << 20
"""With less than this free where the spool lies, room is reserved while there is some."""
SHARE_RESERVED = 8
LOOK_SECONDS = 1.0
"""Finding out how much room there is takes a tenth of the time of a save: it is not done with each."""
PATIENCE_SECONDS, PAUSE_SECONDS = 2.0, 0.01


class SpoolFigures(msgspec.Struct, frozen=True):
    """What waits for the store. `aside` cannot come into it and is kept; not `durable`: gone with the process.

    `away` is why the store takes nothing now, None while it does. `left` are folders of spools that were put out of the
    way, for another store or as damaged.
    """

    depth: int = 0
    bytes: int = 0
    max_bytes: int = 0
    oldest: datetime | None = None
    aside: int = 0
    away: str | None = None
    durable: bool = True
    folder: str | None = None
    left: tuple[str, ...] = ()


class Spool:
    """The spool of one store in one process. Safe to use from several threads."""

    def __init__(self, engine: Engine, catalog: Catalog, file: Path) -> None:
        self._engine = engine
        self._target = file
        self.entries = Entries(spool_folder(file, engine.options))
        self.entries.damaged = self._alert_damage
        self._overlay = Overlay(catalog, self.entries, self)
        self.breaker = Breaker(self._probe, self._alert_failure)
        self._store_id: str | None = None
        self._is_nearly_full = False
        self._has_steps = False
        self._has_room = False
        self._next_look = 0.0
        self.closed = False
        self._may_write = engine.location.may_write()  # a permission that is taken away later may come back
        self.needs_disk = False
        self.clock: Callable[[], float] = time.monotonic
        self.pause: Callable[[float], None] = time.sleep

    @property
    def catalog(self) -> Catalog:
        """The store's catalog, with what is spooled shown in it."""
        return cast(Catalog, self._overlay)

    @property
    def folder(self) -> Path | None:
        """The folder that it lies in; None: in memory."""
        return self.entries.folder

    def figures(self) -> SpoolFigures:
        """Return what waits for the store, and why the store is away."""
        depth, size, oldest, aside = self.entries.figures()
        away = self.breaker.error
        return SpoolFigures(
            depth,
            size,
            self._engine.options.spool_bytes,
            None if oldest is None else moment(oldest),
            aside,
            None if away is None else str(away),
            self.entries.durable,
            None if self.folder is None else str(self.folder),
            tuple(map(str, find_moved(self.folder))),
        )

    def replay_on_open(self) -> None:
        """Bring what is spooled into the store that was just opened, if it is there; raise nothing if it is away."""
        if (reason := self._overlay.open_error) is not None:
            self.away(reason)
        elif self.entries.has_pending() or find_moved(self.folder, "other-store"):
            try:
                self.replay(wait=False)
            except ReplayBusyError:
                pass
            except UnavailableError as error:
                self.away(error)
            except CheckpointError as error:
                self._alert_failure(error)

    def count(self, owner: str, task_id: str) -> tuple[int, int]:
        """Return how many checkpoints of a task wait for the store, and how many were set aside."""
        aside = [each for each, _ in self.entries.aside() if (each.owner, each.task_id) == (owner, task_id)]
        return len(self.entries.pending(owner, task_id)), len(aside)

    # --- before a save -------------------------------------------------------------------------------------

    def require_here(self) -> None:
        """UnavailableError, at once, while the store is away."""
        if (error := self.breaker.error) is not None:
            self.breaker.start()  # in a child that was forked meanwhile there is no thread
            raise StoreAwayError(str(error), hint=error.hint) from error

    def make_way(self, owner: str | None = None, task_id: str | None = None) -> None:
        """Bring everything that is spooled into the store. UnavailableError while that is away.

        Where the store is damaged, a checkpoint of another task that cannot come into it keeps nothing from going on.
        """
        if self.breaker.error is not None:
            self.require_here()
        has_pending, has_steps = self.entries.find_work()
        if has_pending:
            try:
                self.replay()
            except UnavailableError:
                raise
            except CheckpointError as error:
                if self.entries.pending(owner, task_id):
                    raise
                self._alert_failure(error)
        elif self._store_id is None:
            self._store_id = self._overlay.backend.info().id
        if has_steps is not self._has_steps:
            self._has_steps = has_steps
            self._overlay.watch_steps(has_steps)
        if not self._has_room and (at := self.clock()) >= self._next_look:
            self._next_look = at + LOOK_SECONDS
            self._reserve_room()

    def takes(self, error: UnavailableError) -> bool:
        """Return whether a save that failed with this error may be spooled."""
        if self.closed or not self._may_write or isinstance(error, NestedWriteError):
            return False
        if self.needs_disk:
            self.entries.create()
        return self.entries.durable or not self.needs_disk

    def wants_files_of(self, draft: Draft, error: UnavailableError) -> bool:
        """Return whether it may be spooled, once its files are captured without the store."""
        return self.takes(error) and not is_self_contained(draft)

    def away(self, error: UnavailableError) -> None:
        """Note that the store did not answer: from now on saves do not wait for it."""
        if isinstance(error, StoreAwayError):
            return
        if self.breaker.open(error):
            self.entries.create()
            where = "in the spool" if self.entries.durable else "in memory alone, and are gone with this process"
            self._engine.alert(
                f"{error}; until the store takes them checkpoints are kept {where}",
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
        """Keep a checkpoint. Its record is as the store would have it, its placement is provisional.

        Raises `error` when it needs content that only the store has, DiskFullError when there is no room.
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
        """Commit as a catalog does, as far as is known here: what others did in the store shows when it is back."""
        if (earlier := self._find_earlier(commit) if commit.may_repeat else None) is not None:
            stored = self.entries.entry(earlier).stored()
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

        entry, used, _ = self.entries.add(
            commit, actor, branch_id=branch_id, follows=follows, store_id=self._store_id, admit=admit
        )
        if commit.step is not None:
            self.entries.end_step(commit.owner, commit.step)
        self._warn_of_bound(used)
        return Committed(entry.stored(), commit.record.control_state)

    def _find_earlier(self, commit: Commit) -> Waiting | None:
        """Return what waits under this key or this id. ConflictError if that says something else."""
        record = commit.record
        earlier, what = self.entries.waiting(commit.owner, record.id), f"the id {record.id!r}"
        if earlier is None and record.key is not None:
            earlier, what = self.entries.keyed(commit.owner, record.task_id, record.key), f"the key {record.key!r}"
        if earlier is None:
            return None
        there = self.entries.entry(earlier).body.commit
        if decode_record(there.data, there.checksum, "it").says_the_same_as(record, commit.inherited):
            return earlier
        raise ConflictError(
            f"{what} is taken by a checkpoint with other content", hint="use a new key", head=earlier.as_head()
        )

    def _with_state(self, ground: Ground, head: Checkpoint | None, draft: Draft) -> Draft:
        """Return it with the state that it inherits, where that lies in the store and can still be read there."""
        from lastgood.engine.commit import KEPT, Splitters

        parent, options = ground.parent, self._engine.options
        if draft.state is not KEPT or parent is None or parent.state is None or head is None:
            return draft
        if head.status != "stored" or parent.redacted or options.redaction.state:
            return draft
        try:
            state = head.fresh_state()
            splitters = Splitters(options.max_state_bytes, self._engine.blob_id)
            if splitters.split("state", state).ref == parent.state:
                return msgspec.structs.replace(draft, state=state)
        except CheckpointError:
            pass  # it is read there when the store is back
        return draft

    # --- the store is back ---------------------------------------------------------------------------------

    def replay(self, *, wait: bool = True) -> Replayed:
        """Bring all that waits into the store. UnavailableError when it is away; what came there before stays there."""
        from lastgood.spool.replay import Replayed, replay_moved

        deadline = self.clock() + (PATIENCE_SECONDS if wait else 0)
        backend, done = self._overlay.backend, Replayed()
        backend.require_ready()
        replay_moved(self.folder, lambda: backend.info().id, lambda entries: self._replay_moved(entries, deadline))
        if self.entries.has_pending():
            done = self._replay(self.entries, deadline)
        self.breaker.shut()
        return done

    def discard(self) -> Replayed:
        """Give up all that waits or was set aside, and steps that were begun there. It is kept, and never read."""
        from lastgood.spool.replay import Replayed

        deadline = self.clock() + PATIENCE_SECONDS
        has_work, (waiting, _, _, aside) = any(self.entries.find_work()), self.entries.figures()
        if not has_work and not aside:
            return Replayed()
        with self.entries.replaying(lambda: self._wait(deadline)):
            kept = self.entries.move_folder("discarded")
        if kept is None and self.entries.durable:
            raise UnavailableError("the spool cannot be put out of the way", hint=f"look at {self.folder}")
        log_warning(f"{waiting + aside} spooled checkpoint(s) were given up", kept=str(kept))
        return Replayed(discarded=waiting + aside, kept=None if kept is None else str(kept))

    def _replay_moved(self, entries: Entries, deadline: float) -> None:
        """Replay another spool of this store; steps that were begun in it go on in the store."""
        self._replay(entries, deadline)
        for step, snapshot in entries.steps():
            if self._overlay.backend.open_step(step.owner, step.id) is None:
                self._overlay.backend.begin_step(step, snapshot, None)
            entries.end_step(step.owner, step.id)

    def _replay(self, entries: Entries, deadline: float) -> Replayed:
        from lastgood.spool.replay import Replay

        with entries.replaying(lambda: self._wait(deadline)):
            backend = self._overlay.backend
            self._require_same_store(entries, backend)
            done = Replay(self._engine, entries, backend, lambda: self.closed).run()
        if done.stored:
            log_warning(f"the store is back: {done.stored} spooled checkpoint(s) came into it", left=done.left)
        return done

    def gauges(self) -> dict[str, float]:
        """Return the values of the spool's gauges, by name."""
        figures = self.figures()
        age = 0.0 if figures.oldest is None else max(0.0, (moment(now()) - figures.oldest).total_seconds())
        return {"spool_checkpoints": figures.depth, "spool_bytes": figures.bytes, "spool_oldest_seconds": age}

    def close(self) -> None:
        self.closed = True
        self.breaker.close()
        depth = self.entries.figures()[0] if not self.entries.durable else 0
        if depth:
            told = f"{depth} checkpoint(s) were in memory alone and are gone"
            self._engine.alert(f"{told}: {self.breaker.error}" if self.breaker.error else told, code="spool_lost")
        self.entries.close()

    def _probe(self) -> None:
        if not self.closed:
            self.replay(wait=False)

    def _alert_failure(self, error: CheckpointError) -> None:
        if not self.closed:
            self._engine.alert(
                f"what is spooled could not be brought into the store: {error}", None, error, code="spool"
            )

    def _alert_damage(self, error: CheckpointError, kept: Path | None) -> None:
        self._engine.alert(
            f"the spool is damaged and was put out of the way: {error}; it is kept in {kept}", None, error, code="spool"
        )

    def _wait(self, deadline: float) -> bool:
        if self.clock() >= deadline or self.closed:
            return False
        self.pause(PAUSE_SECONDS)
        return True

    def reopen(self) -> Catalog:
        """Open the catalog of a store that was away when it was opened. It is never made."""
        if self.closed or not self._target.exists():
            raise UnavailableError("the store is not there", hint=BRING_BACK)
        try:
            found = open_catalog(self._target)
        except OSError as error:
            if isinstance(error, CheckpointError):
                raise
            told = f"the store cannot be opened: {(error.strerror or str(error)).lower()}"
            raise UnavailableError(told, hint="look at its path and permissions") from error
        self._require_same_store(self.entries, found)
        return found

    def _require_same_store(self, entries: Entries, backend: Catalog) -> None:
        """Move the spool away if it waits for another store that was here before."""
        meant, found = entries.get_meta("store_id"), backend.info().id
        if meant in (None, found):
            return
        depth = entries.figures()[0]
        moved = entries.move_folder("other-store")
        self._engine.alert(
            f"{depth} checkpoint(s) were spooled for another store that was here before; they are kept in {moved}",
            code="spool",
        )

    # --- room ----------------------------------------------------------------------------------------------

    def _reserve_room(self) -> None:
        """Reserve some while there is some: a disk that fills up is what makes stores go away."""
        if self.folder is None or (free := free_bytes(self.folder)) is None or free >= LOW_BYTES:
            return
        self._has_room = True
        if self.entries.get_meta("reserved") is not None:
            return
        size = min(RESERVE_BYTES, free // SHARE_RESERVED, self._engine.options.spool_bytes)
        try:
            self.entries.reserve(size)
            self.entries.set_meta("reserved", size)
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
    """Return whether it brings all content of files that its parent does not have."""
    files = draft.files
    return not isinstance(files, tuple) or not (files.gathered.packs or files.gathered.relies_on)


# --- opening a store that may be away -------------------------------------------------------------------------------


def open_or_stand_in(catalog: Path, open_it: Callable[[], Catalog], options: Options) -> Catalog:
    """Open the catalog of a store.

    Where the store is away and something is spooled for it, the catalog refuses everything; above all no new store is
    made in the place of one that was moved away. Of a store that nothing is spooled for nothing is known: opening it
    fails, or makes a new store, as it would without a spool.
    """
    spool_folder(catalog, options)  # refuses a folder that cannot be one, before anything is opened
    if not os.path.exists(catalog) and has_spooled(catalog, options):  # noqa: PTH110  # raises nothing
        error = UnavailableError("the store is not there", hint=BRING_BACK)
        return cast(Catalog, AbsentCatalog(catalog, error))
    try:
        return open_it()
    except UnavailableError as error:
        if not has_spooled(catalog, options):
            raise
        return cast(Catalog, AbsentCatalog(catalog, error))


def has_spooled(catalog: Path, options: Options) -> bool:
    """Return whether checkpoints wait for the store of this catalog; not if the spool is damaged."""
    if (folder := spool_folder(catalog, options)) is None:
        return False
    entries = Entries(folder)
    try:
        return entries.read(any_pending, False)
    except FormatVersionError:
        raise
    except CheckpointError:  # it is reported when the store is opened
        return False
    finally:
        entries.close()
