"""Where a handle stands on a task, and how it is moved: by saving on top of it, or onto a new branch."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lastgood.catalog.values import Committed, NewBranch, Position
from lastgood.codec.decode import decode
from lastgood.codec.encode import encode
from lastgood.codec.redact import redact_state
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft, Ground, Splitters, write_checkpoint
from lastgood.engine.lease import retry_without_dead_lease
from lastgood.engine.options import OnFailure
from lastgood.errors import (
    BusyError,
    CheckpointError,
    ConflictError,
    IntegrityError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from lastgood.local.fork import renew_after_fork
from lastgood.model.checkpoint import PROVISIONAL, Head, Record
from lastgood.model.control import refuse_restart
from lastgood.model.digest import SIZE
from lastgood.model.identity import new_id
from lastgood.model.task import MAIN
from lastgood.observe.log import is_logging, log_operation, log_warning

if TYPE_CHECKING:
    from lastgood.engine.verification import Proof
    from lastgood.model.evidence import EvidencePack
    from lastgood.observe.meter import Meter
    from lastgood.store import Store


ANY: Final = "any"
"""Whatever head there is."""


class Cursor:
    """A task or a branch as it was last seen or written. `lock` makes several calls one; they all take it, too."""

    task_id: str
    branch: str | NewBranch
    head: Checkpoint | None
    by_branch: bool
    is_active: bool

    def __init__(self, store: Store, id: str, owner: str) -> None:
        self.store = store
        self.id = id
        self.owner = owner
        self.by_branch = False
        self.lease: int | None = None
        """The token of the session that works through this handle."""
        self.renew_locks()
        renew_after_fork(self)
        self._splitters = Splitters(store.options.max_state_bytes)
        self._spool_splitters = Splitters(store.options.max_state_bytes)
        self._warned = False
        self.refresh()

    def renew_locks(self) -> None:
        self.lock = threading.RLock()
        self.lease = None  # of a child: the session is its parent's

    # --- standing ------------------------------------------------------------------------------------------

    def refresh(self) -> Checkpoint | None:
        with self.lock:
            position = self.store.catalog.position(self.owner, self.id)
            if position is not None:
                return self.adopt(position)
            if self.by_branch:
                raise NotFoundError(f"the branch {self.id!r} is gone", hint="open the task by its own id")
            self.is_active = True
            self.task_id, self.branch = self.id, NewBranch(new_id(), MAIN)
            self.head = None
            return None

    def adopt(self, position: Position) -> Checkpoint:
        self.by_branch = position.by_branch
        self.is_active = position.task.active_branch_id == position.branch.id
        self.task_id, self.branch = position.task.id, position.branch.id
        self.head = self.store.wrap_intact(position.head)
        return self.head

    def require_head(self) -> Checkpoint:
        if self.head is None:
            raise NotFoundError(f"{self.id!r} has no checkpoint yet", hint="ask `if task.head` first")
        return self.head

    def expected(self) -> str | None:
        """The head of the active branch as it was seen here, if this is on that branch."""
        return self.head.id if self.head is not None and self.is_active else None

    def steered_state(self) -> str | None:
        """The control state that a session keeps when it goes to another branch. None: there is no session."""
        return None if self.lease is None or self.head is None else self.head.control_state

    # --- saving --------------------------------------------------------------------------------------------

    def proving(self, evidence: EvidencePack | None, state: Any) -> AbstractContextManager[Proof | None]:
        """What is to prove a checkpoint of `state`. It is being checked; that is waited for just before the commit."""
        if evidence is None or evidence == type(evidence)():  # a step of which nothing is expected
            return nullcontext()
        from lastgood.engine.verification import proving

        options, head = self.store.options, self.head
        snapshot = (lambda: _plain(state)) if state is not KEPT else head and head.plain_state
        return proving(evidence, self.store.verifier if options.auto_verify else None, snapshot, options.redaction)

    def save(self, draft: Draft, policy: OnFailure | None = None) -> Checkpoint:
        """On top of the head that was seen here. ConflictError when it is another one now."""
        with self.lock:
            if draft.state is KEPT and self.head is None:
                draft = msgspec.structs.replace(draft, state={})
            if self.lease is None and self.head is not None:
                refuse_restart(self.head.control_state, draft.control_state)
            try:
                record, committed = self._write_or_spool(draft, policy or self.store.options.on_failure)
            except (ConflictError, InvalidError):
                raise
            except CheckpointError as error:
                if is_gone(error) or self._leans_on_store(draft, error):  # whoever captured the files reads them anew
                    raise
                told = f"a checkpoint of {self.task_id!r} was not saved: {error}"
                self.store.alert(told, self.task_id, error, code="save_failed")
                if (policy or self.store.options.on_failure) == "continue":
                    self.store.meter.count_save("lost", draft.type)
                    return self._lost(draft)
                self.store.meter.count_save("failed", draft.type)
                raise
            if committed.repeated:
                saved = self.store.wrap(committed.stored)
            else:
                saved = self.store.hold(
                    committed.stored, record, evidence_pack=draft.proof.pack if draft.proof else None
                )
                self.say("save" if saved.status == "stored" else "spool", saved, committed.previous_control_state)
            if not committed.repeated or self._is_behind(saved):
                self.head, self.branch = saved, committed.stored.placement.branch_id
            return saved

    def save_on_top(self, draft: Draft, policy: OnFailure | None = None) -> Checkpoint:
        """On top of the head as it is, wherever it was seen here. Others are held back if they keep moving it."""
        with self.lock:
            for _ in range(2):
                seen = self.head
                try:
                    return self.save(draft, policy)
                except ConflictError:
                    if _place(self.refresh()) == _place(seen):
                        raise  # nothing has moved: it is about something else
            with self.store.catalog.queue():
                self.refresh()
                return self.save(draft, policy)

    def save_from(self, draft: Draft, begun: Checkpoint | Literal["any"] | None) -> Checkpoint:
        """On top of `begun`, which must still be the head; unless the state is what it was there: then on any head."""
        if draft.state is KEPT or begun == ANY:
            return self.save_on_top(draft)
        with self.lock:
            try:
                if _place(self.head) != _place(begun):
                    raise self._moved("this step looked at its state")
                return self.save(draft)
            except ConflictError:
                if begun is None or not self.is_unchanged(draft.state, begun):
                    raise
            return self.save_on_top(msgspec.structs.replace(draft, state=KEPT))

    def is_unchanged(self, state: Any, checkpoint: Checkpoint) -> bool:
        """Whether `state` is what `checkpoint` holds."""
        kept, _ = redact_state(state, self.store.options.redaction.paths)
        split = Splitters(self.store.options.max_state_bytes).split("state", kept)
        return checkpoint.record.state is not None and split.ref.digest == checkpoint.record.state.digest

    def require_unmoved(self) -> None:
        """ConflictError when what was seen here is not what is there: the head, or whether this branch is active."""
        with self.lock:
            position = self.store.catalog.position(self.owner, self.id)
            head = _place(position.branch.head if position else None)
            active = position is None or position.task.active_branch_id == position.branch.id
            if head != _place(self.head) or active != self.is_active:
                raise self._moved("this handle last saw it")

    def begin_branch(self, chosen: Checkpoint, new: NewBranch, draft: Draft, *, follow: bool) -> Checkpoint:
        """A branch whose first checkpoint continues `chosen`; with `follow`, go on there."""
        with self.lock:
            self._make_way()
            lease = self.lease if follow else None
            ground = Ground(self.owner, self.task_id, new, chosen.as_head(), chosen.record, False, lease)
            record, committed = self._write(ground, draft)
            made = self.store.hold(committed.stored, record)
            self.say("restore" if follow else "fork", made, committed.previous_control_state)
            if follow:
                self.head, self.branch = made, new.id
                self.id = new.id if self.by_branch else self.id
            return made

    def _write_or_spool(self, draft: Draft, policy: OnFailure) -> tuple[Record, Committed]:
        """In the store, behind all that is spooled for it; or in the spool, while the store is away."""
        try:
            self._make_way()
            return self._write(self._ground(), draft)
        except UnavailableError as error:
            spool = self.store.spool
            if spool is None or policy == "raise" or not spool.takes(error):
                raise
            taken = spool.take(self._ground(), self.head, draft, self._spool_splitters, error)
            self.store.meter.count_save("spooled", draft.type)
            return taken

    def _leans_on_store(self, draft: Draft, error: CheckpointError) -> bool:
        """Whether the spool would take it, if its files were captured without the store."""
        spool = self.store.spool
        return isinstance(error, UnavailableError) and spool is not None and spool.wants_files_of(draft, error)

    def _make_way(self) -> None:
        """What is spooled is in the store, and this goes on from where it is there."""
        if self.store.spool is None:
            return
        self.store.spool.make_way(self.owner, self.task_id)
        if self.head is None or self.head.status != "spooled":
            return
        stored = self.store.catalog.checkpoint(self.owner, self.head.id)
        if stored is None or stored.placement.sequence >= PROVISIONAL:
            raise ConflictError(
                "the checkpoint to go on from was spooled and could not come into the store",
                hint="it is kept in the spool (`lastgood spool`); task.refresh() goes on from what is in the store",
            )
        if stored.placement.branch_id != self.branch:  # others had gone on: it has a branch of its own
            self.is_active = False
        self.head, self.branch = self.store.wrap_intact(stored), stored.placement.branch_id

    def _write(self, ground: Ground, draft: Draft) -> tuple[Record, Committed]:
        store = self.store
        about = store.catalog, ground, draft, self._splitters, store.user, store.options.redaction
        try:
            record, committed = retry_without_dead_lease(store.catalog, lambda: write_checkpoint(*about))
        except BusyError:  # once more: whoever held it may be gone
            record, committed = write_checkpoint(*about)
        if store.housekeeping is not None:
            packs = draft.files.gathered.packs if isinstance(draft.files, tuple) else ()
            store.housekeeping.note(committed.stored.placement.sequence, sum(pack.size for pack in packs))
        if not committed.repeated and self._splitters.roots:
            store.remember(committed.stored, self._splitters.roots)
        if committed.repeated:
            store.meter.count_save("repeated", draft.type)
        else:
            _count_stored(store.meter, draft, record, self._splitters.new_bytes)
        return record, committed

    def _ground(self) -> Ground:
        head, only_if_active = self.head, not self.by_branch and self.is_active
        if head is None:
            return Ground(self.owner, self.task_id, self.branch, None, None, only_if_active)
        return Ground(self.owner, self.task_id, self.branch, head.as_head(), head.record, only_if_active, self.lease)

    def _is_behind(self, saved: Checkpoint) -> bool:
        """Whether `saved`, which had been stored before, lies further on the line that this is on."""
        if saved.deleted:
            return False
        head = self.head
        return head is None or (head.branch_id == saved.branch_id and (head.sequence or 0) < (saved.sequence or 0))

    def _lost(self, draft: Draft) -> Checkpoint:
        record = Record(id=draft.id or draft.own_id, task_id=self.task_id, type=draft.type, message=draft.message)
        return Checkpoint(record, bytes(SIZE), None, _NeverStored(), status="lost")

    def _moved(self, since: str) -> ConflictError:
        position = self.store.catalog.position(self.owner, self.id)
        return ConflictError(
            f"{self.task_id!r} has moved on since {since}",
            hint="look at error.head, then task.refresh() and try again on top of it",
            head=position.branch.head if position else None,
        )

    # --- saying --------------------------------------------------------------------------------------------

    def say(self, action: str, checkpoint: Checkpoint, previous: str) -> None:
        if is_logging():
            log_operation(
                action,
                user=self.store.user,
                task_id=self.task_id,
                correlation_id=checkpoint.correlation_id,
                prev_state=previous,
                new_state=checkpoint.control_state,
                iteration_state=checkpoint.iteration_state,
                at=checkpoint.record.created_at,
                checkpoint_id=checkpoint.id,
            )
        limit = self.store.options.warn_state_bytes
        if checkpoint.state_size > limit and not self._warned:
            self._warned = True
            log_warning(
                f"the state of {self.task_id} takes {checkpoint.state_size:,} bytes, more than {limit:,}: "
                "keep large content in files",
                task_id=self.task_id,
            )


def is_gone(error: CheckpointError) -> bool:
    """Whether content of files that a save relied on was removed before it was committed."""
    return isinstance(error, IntegrityError) and "blobs" in error.details


def _plain(state: Any) -> Any:
    """As it will come back to whoever looks at the stored state; the state itself where it is none that is stored."""
    try:
        return decode(encode(state), classes=False)
    except CheckpointError:
        return state


def _place(checkpoint: Checkpoint | Head | None) -> tuple[str, bytes] | None:
    """What a head is known by, wherever it lies: what was spooled gets another place when it comes into the store."""
    head = checkpoint.as_head() if isinstance(checkpoint, Checkpoint) else checkpoint
    return None if head is None else (head.id, head.checksum)


class _NeverStored:
    def load(self, name: str, classes: bool) -> Any:
        raise NotFoundError("this checkpoint was lost: it could not be stored", hint="save again")

    def verification(self) -> None:
        return None


def _count_stored(meter: Meter, draft: Draft, record: Record, new_bytes: int) -> None:
    """Count a checkpoint that was stored, what its evidence gave, and the restore or fork that it records."""
    files = sum(root.file_count for root in draft.files.roots) if isinstance(draft.files, tuple) else 0
    meter.count_stored(draft.type, draft.began, record.state.size if record.state is not None else 0, new_bytes, files)
    if draft.proof is not None and draft.proof.finish() is not None:
        meter.count_verification(draft.proof.pack)
    for note in draft.notes:
        if note.data.get("by") == "fork":
            meter.count("forks")
        else:
            meter.count("restores", {"what": note.data.get("what", "state")})
