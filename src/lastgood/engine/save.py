"""Saving: where a save goes. The files are captured, the evidence is checked, and one commit goes into the store;
or into the spool, while the store is away.

What is tried again, and how often:

    content that the commit relied on is gone    twice: the files are read anew; then all content is brought along
    the lease of a process that has ended        once, without the lease (engine/engine.py)
    others held the store for too long           once
    the head has moved, and any head will do     twice, then the commit itself takes what the head is
    the store is away                            once, into the spool, with files captured without the store
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lastgood.catalog.values import Committed, NewBranch
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft, Ground, Splitters, write_checkpoint
from lastgood.engine.engine import HOUSEKEEPING_INTERVAL, Engine, release_dead_lease
from lastgood.engine.handle import Handle, identity_of
from lastgood.engine.load import hold, log_evidence, log_on, wrap, wrap_intact
from lastgood.engine.options import OnFailure
from lastgood.errors import (
    BusyError,
    CheckpointError,
    ConflictError,
    ContentGoneError,
    FolderBusyError,
    IntegrityError,
    InvalidError,
    LeaseError,
    NotFoundError,
    UnavailableError,
)
from lastgood.model.checkpoint import COMPANIONS, PROVISIONAL, Attestation, Record, refuse_restart
from lastgood.model.identity import DIGEST_SIZE
from lastgood.observe.log import is_logging, log_action, log_warning

if TYPE_CHECKING:
    from lastgood.engine.gather import CapturedFiles
    from lastgood.engine.proof import Proof
    from lastgood.engine.staleness import Run
    from lastgood.engine.workspace import Workspace
    from lastgood.model.checkpoint import Skipped
    from lastgood.model.evidence import EvidencePack
    from lastgood.observe.meter import Meter

ANY: Final = "any"
"""Whatever head there is."""
Files = Sequence[str | os.PathLike[str]] | None
"""Paths of a save that captures these alone."""
_PLACE = ("step_id", "iteration", "iteration_state", "work_item_id")


# --- the ways to save --------------------------------------------------------------------------------------


def save(handle: Handle, draft: Draft, files: Files = None, policy: OnFailure | None = None) -> Checkpoint:
    """Save on top of the head that was seen here. ConflictError when it is another one now."""
    return _with_files(handle, draft, files, lambda ready: save_draft(handle, ready, policy), policy)


def append(
    handle: Handle, draft: Draft, files: Files = None, policy: OnFailure | None = None, *, only_if_changed: bool = False
) -> Checkpoint:
    """Save on top of whatever the head is at that moment. With `only_if_changed`, what is as the head has it is not
    saved: then the head is returned."""

    def commit(ready: Draft) -> Checkpoint:
        head = handle.head if only_if_changed else None
        return head if head is not None and _is_as_in(handle, ready, head) else save_on_top(handle, ready, policy)

    return _with_files(handle, draft, files, commit, policy)


def save_step(
    handle: Handle, draft: Draft, begun: Checkpoint | Literal["any"] | None, pack: EvidencePack, runs: Sequence[Run]
) -> Checkpoint:
    """Save what a step came to: on any head if its state is the head's, else on `begun`, the head that it began with.

    `runs` are its commands: their evidence is stale when files changed after them.
    """

    def commit(ready: Draft) -> Checkpoint:
        if handle.workspace is not None and runs:
            from lastgood.engine.staleness import mark_stale

            before = handle.head.record.files if handle.head else None
            mark_stale(ready, pack, runs, before or (), handle.engine.blobs, handle.workspace.roots)
        return _save_from(handle, ready, begun)

    return _with_files(handle, draft, None, commit)


def save_drifted(
    handle: Handle, type: str, message: str, describe: Callable[[Checkpoint, CapturedFiles], str] | None = None
) -> Checkpoint | None:
    """Save the files, unless they are the head's; on any head, as the state is its own. `describe` makes the message of
    what has changed since the head.

    Return the checkpoint; None: there was nothing to save.
    """
    if handle.workspace is None:
        return None
    seen = handle.head

    def commit(ready: Draft) -> Checkpoint:
        if seen is not None and isinstance(ready.files, tuple) and not has_drifted(ready.files, seen):
            return seen
        if seen is not None and isinstance(ready.files, tuple) and describe is not None:
            ready = msgspec.structs.replace(ready, message=describe(seen, ready.files))
        return save_on_top(handle, _redact_message(handle.engine, ready))

    draft = make_draft(KEPT, type=type, message=message, **place_in_work(seen))
    made = _with_files(handle, draft, None, commit)
    return None if made is seen else made


def place_in_work(head: Checkpoint | None) -> dict[str, Any]:
    """Return where the work is at its head: the fields of a checkpoint that is made without the work going on."""
    return {} if head is None else {name: getattr(head, name) for name in _PLACE}


def has_drifted(present: CapturedFiles, head: Checkpoint | None) -> bool:
    """Return whether the files are not those of the head; uncaptured ones that were saved by name count as its own."""
    recorded = {} if head is None else {(root.name, root.partial): root.tree for root in head.record.files or ()}
    return any(recorded.get((root.name, root.partial)) != root.tree for root in present.roots)


def advance(
    handle: Handle,
    draft: Draft,
    *,
    capture: bool = True,
    only_if_changed: bool = False,
    only_on: Checkpoint | None = None,
) -> Checkpoint:
    """Save for a session. Without `capture` the files are the head's, too. With `only_if_changed`, what is as the head
    has it is not saved, with `only_on` nothing when the head is another one by now: then the head is returned."""

    def commit(ready: Draft) -> Checkpoint:
        head = handle.head
        if only_on is not None and head is not None and head.id != only_on.id:
            return head
        if only_if_changed and head is not None and _is_as_in(handle, ready, head):
            return head
        return save_draft(handle, ready)

    with handle.lock:
        if not capture:
            return commit(_redact_message(handle.engine, draft))
        return _with_files(handle, draft, None, commit)


def make_draft(state: Any, *, metadata: dict[str, Any] | None = None, **fields: Any) -> Draft:
    """Return what is to be saved, each field checked."""
    companions = {name: value for name in COMPANIONS if (value := fields.pop(name, None)) is not None}
    try:
        return Draft(state=state, companions=companions, metadata={} if metadata is None else metadata, **fields)
    except TypeError as error:
        raise InvalidError(f"a checkpoint has no such field: {error}", hint="see Task.save") from error


def _redact_message(engine: Engine, draft: Draft) -> Draft:
    if draft.message and (message := engine.options.redaction.text(draft.message)) is not draft.message:
        return msgspec.structs.replace(draft, message=message)
    return draft


def proving(handle: Handle, evidence: EvidencePack | None, state: Any) -> AbstractContextManager[Proof | None]:
    """Begin to check the evidence of a checkpoint of `state`. The result is waited for just before the commit."""
    if evidence is None or (not getattr(evidence, "evidence_list", True) and evidence == type(evidence)()):
        return nullcontext()
    from lastgood.engine.proof import proving

    engine, head = handle.engine, handle.head
    snapshot = (lambda: _plain(state)) if state is not KEPT else head and head.plain_state
    verifier = engine.verifier if engine.options.auto_verify else None
    return proving(evidence, verifier, snapshot, engine.options.redaction)


# --- files -------------------------------------------------------------------------------------------------


def _with_files(
    handle: Handle,
    draft: Draft,
    files: Files,
    commit: Callable[[Draft], Checkpoint],
    policy: OnFailure | None = None,
) -> Checkpoint:
    """Commit the draft with the files as they are now; again, all read anew, as long as stored content was gone."""
    engine, workspace = handle.engine, handle.workspace
    draft = _redact_message(engine, draft)
    if workspace is None:
        if files is not None:
            raise InvalidError("there is no workspace", hint="store.task(…, workspace=folder) captures files")
        return commit(draft)
    spool = engine.spool
    unfinished = workspace.unfinished[0] if workspace.unfinished and files is None else None

    def spools(error: CheckpointError) -> bool:
        if spool is None or policy == "raise" or not isinstance(error, UnavailableError):
            return False
        return spool.takes(error) and not isinstance(error, FolderBusyError)

    def capture_and_commit(
        since: Checkpoint | None, *, relies: bool = True, away: UnavailableError | None = None
    ) -> Checkpoint:
        try:
            captured = workspace.capture(since, files=files, away=away is not None, relies=relies)
        except (UnavailableError, NotFoundError, IntegrityError) as error:
            if not isinstance(error, ContentGoneError) and not (away is None and spools(error)):
                told = f"a checkpoint of {handle.task_id!r} was not saved: {error}"
                engine.alert(told, handle.task_id, error, code="save_failed")
            raise
        if away is not None and spool is not None:
            spool.away(away)
        try:
            saved = commit(msgspec.structs.replace(draft, files=captured, journal=unfinished))
        finally:
            engine.blobs.withdraw_packs(captured.gathered)
        workspace.settle(unfinished)
        saved.skipped = workspace.list_skipped(captured, is_first=saved.sequence == 1)
        _log_skipped(handle, captured.skipped)
        return saved

    try:
        if spool is not None:
            spool.make_way(handle.owner, handle.task_id)
        return _retry_gone(workspace, handle.head, capture_and_commit)
    except UnavailableError as error:
        if not spools(error):
            raise
        return capture_and_commit(handle.head, away=error)


def _retry_gone(
    workspace: Workspace, head: Checkpoint | None, capture_and_commit: Callable[..., Checkpoint]
) -> Checkpoint:
    """Capture and commit; when content that the commit relied on was removed, read the files anew."""
    for since in (head, None):
        try:
            return capture_and_commit(since)
        except ContentGoneError:
            workspace.forget()
    return capture_and_commit(None, relies=False)


# --- the head ----------------------------------------------------------------------------------------------


def save_draft(handle: Handle, draft: Draft, policy: OnFailure | None = None, *, append: bool = False) -> Checkpoint:
    """Save on top of the head that was seen here, with the files that the draft has; with `append`, on any head."""
    engine = handle.engine
    with handle.lock:
        if draft.state is KEPT and handle.head is None:
            draft = msgspec.structs.replace(draft, state={})
        if handle.lease is None and handle.head is not None:
            refuse_restart(handle.head.control_state, draft.control_state)
        try:
            record, committed = _write_or_spool(handle, draft, policy or engine.options.on_failure, append)
        except (ConflictError, InvalidError) as error:
            _log_refusal(handle, error)
            raise
        except ContentGoneError:
            raise
        except CheckpointError as error:
            if _needs_own_files(handle, draft, error):  # whoever captured the files reads them anew
                raise
            told = f"a checkpoint of {handle.task_id!r} was not saved: {error}"
            engine.alert(told, handle.task_id, error, code="save_failed")
            if (policy or engine.options.on_failure) == "continue":
                engine.meter.count_save("lost", draft.type)
                return _lost(handle, draft)
            engine.meter.count_save("failed", draft.type)
            raise
        if committed.repeated:
            saved = wrap(engine, committed.stored)
        else:
            saved = hold(engine, committed.stored, record, evidence_pack=draft.proof.pack if draft.proof else None)
            log_save(handle, "save" if saved.status == "stored" else "spool", saved, committed.previous_control_state)
            if draft.proof is not None:
                log_evidence(engine, handle.user, handle.owner, committed.stored, draft.proof.pack)
        if not committed.repeated or handle.is_behind(saved):
            handle.head, handle.branch = saved, committed.stored.placement.branch_id
        return saved


def save_on_top(handle: Handle, draft: Draft, policy: OnFailure | None = None) -> Checkpoint:
    """Save on top of the head as it is, wherever it was seen here; if it keeps moving, of whatever it is by then."""
    with handle.lock:
        for _ in range(2):
            seen = handle.head
            try:
                return save_draft(handle, draft, policy)
            except ConflictError:
                if identity_of(handle.refresh()) == identity_of(seen):
                    raise  # nothing has moved: it is about something else
        return save_draft(handle, draft, policy, append=True)


def _save_from(handle: Handle, draft: Draft, begun: Checkpoint | Literal["any"] | None) -> Checkpoint:
    """Save on `begun`, which must still be the head; unless the state is what it was there: then on any head."""
    if draft.state is KEPT or begun == ANY:
        return save_on_top(handle, draft)
    with handle.lock:
        try:
            if identity_of(handle.head) != identity_of(begun):
                raise handle.moved("this step looked at its state")
            return save_draft(handle, draft)
        except ConflictError:
            if begun is None or not is_unchanged(handle, draft.state, begun):
                raise
        return save_on_top(handle, msgspec.structs.replace(draft, state=KEPT))


def begin_branch(handle: Handle, chosen: Checkpoint, new: NewBranch, draft: Draft, *, follow: bool) -> Checkpoint:
    """Begin a branch whose first checkpoint continues `chosen`; with `follow`, go on there."""
    with handle.lock:
        _make_way(handle)
        lease = handle.lease if follow else None
        ground = Ground(handle.owner, handle.task_id, new, chosen.as_head(), chosen.record, False, lease)
        record, committed = _write(handle, ground, draft)
        if committed.repeated:  # under its key or id it was saved before
            return wrap(handle.engine, committed.stored)
        made = hold(handle.engine, committed.stored, record)
        action = {"restored": "restore", "forked": "fork"}.get(record.lineage, "save")
        log_save(handle, action, made, committed.previous_control_state)
        if follow:
            handle.head, handle.branch = made, new.id
            handle.id = new.id if handle.by_branch else handle.id
        return made


def _is_as_in(handle: Handle, draft: Draft, head: Checkpoint) -> bool:
    """Return whether the state and the files of a draft are what `head` holds, and the store has lost nothing of it
    that was captured again."""
    if draft.state is not KEPT and not is_unchanged(handle, draft.state, head):
        return False
    files = draft.files
    if not isinstance(files, tuple):
        return True
    # From where evidence is named says nothing about the files.
    ours, theirs = (
        [msgspec.structs.replace(root, base=None) for root in roots or ()] for roots in (files.roots, head.record.files)
    )
    return ours == theirs and not any((files.gathered.blobs, files.gathered.packs))


def is_unchanged(handle: Handle, state: Any, checkpoint: Checkpoint) -> bool:
    """Return whether `state` is what `checkpoint` holds."""
    from lastgood.codec.redact import redact_state

    options = handle.engine.options
    kept, _ = redact_state(state, options.redaction.paths)
    split = Splitters(options.max_state_bytes, handle.engine.blob_id).split("state", kept)
    return checkpoint.record.state is not None and split.ref.digest == checkpoint.record.state.digest


# --- store or spool ----------------------------------------------------------------------------------------


def _write_or_spool(handle: Handle, draft: Draft, policy: OnFailure, append: bool) -> tuple[Record, Committed]:
    """Commit to the store, behind all that is spooled for it; or to the spool, while the store is away."""
    try:
        _make_way(handle)
        return _write(handle, handle.ground(), draft, append)
    except UnavailableError as error:
        spool = handle.engine.spool
        if spool is None or policy == "raise" or not spool.takes(error):
            raise
        about = handle.ground(), handle.head, draft, handle.spool_splitters
        taken = spool.take(handle.user, *about, error)
        handle.engine.meter.count_save("spooled", draft.type)
        return taken


def _needs_own_files(handle: Handle, draft: Draft, error: CheckpointError) -> bool:
    """Return whether the spool would take it, if its files were captured without the store."""
    spool = handle.engine.spool
    return isinstance(error, UnavailableError) and spool is not None and spool.wants_files_of(draft, error)


def _make_way(handle: Handle) -> None:
    """Bring what is spooled into the store, and go on from where the head is there."""
    engine, head = handle.engine, handle.head
    if engine.spool is None:
        return
    engine.spool.make_way(handle.owner, handle.task_id)
    if head is None or head.status != "spooled":
        return
    stored = engine.catalog.checkpoint(handle.owner, head.id)
    if stored is None or stored.placement.sequence >= PROVISIONAL:
        raise ConflictError(
            "the checkpoint to go on from was spooled and could not come into the store",
            hint="it is kept in the spool (store.spool_figures()); task.refresh() goes on from what is in the store",
        )
    if stored.placement.branch_id != handle.branch:  # others had gone on: it has a branch of its own
        handle.is_active = False
    handle.head, handle.branch = wrap_intact(engine, stored), stored.placement.branch_id


def _write(handle: Handle, ground: Ground, draft: Draft, append: bool = False) -> tuple[Record, Committed]:
    """Commit to the store, and note what it cost."""
    engine, splitters = handle.engine, handle.splitters
    about = engine.catalog, ground, draft, splitters, handle.user, engine.options.redaction
    try:
        record, committed = write_checkpoint(*about, append=append)
    except LeaseError as error:
        release_dead_lease(engine.catalog, error)
        record, committed = write_checkpoint(*about, append=append)
    except BusyError:  # the process that held it may be gone
        record, committed = write_checkpoint(*about, append=append)
    stored = committed.stored
    if engine.housekeeper is not None:
        packs = draft.files.gathered.packs if isinstance(draft.files, tuple) else ()
        if packs or stored.placement.sequence % HOUSEKEEPING_INTERVAL == 0:
            engine.housekeeper.note(stored.placement.sequence, sum(pack.size for pack in packs))
    if not committed.repeated and splitters.roots:  # what was just saved is most likely looked at next
        engine.cache.put(stored.owner, stored.id, splitters.roots)
    if committed.repeated:
        engine.meter.count_save("repeated", draft.type)
    else:
        _count_stored(engine.meter, draft, record, splitters.new_bytes)
    return record, committed


def _count_stored(meter: Meter, draft: Draft, record: Record, new_bytes: int) -> None:
    """Count a checkpoint that was stored, and what its evidence gave."""
    meter.count_stored(draft.type, draft.began, record.state.size if record.state is not None else 0, new_bytes)
    if draft.proof is not None and draft.proof.finish() is not None:
        meter.count_verification(draft.proof.pack)


def log_save(handle: Handle, action: str, checkpoint: Checkpoint, previous: str) -> None:
    """Log a checkpoint that was made or moved to, and warn once of a state that is large."""
    if is_logging():
        log_action(
            handle.user,
            action,
            handle.task_id,
            correlation_id=checkpoint.correlation_id,
            prev_state=previous,
            new_state=checkpoint.control_state,
            iteration_state=checkpoint.iteration_state,
            timestamp=checkpoint.record.created_at,
            checkpoint_id=checkpoint.id,
        )
    limit = handle.engine.options.warn_state_bytes
    if checkpoint.state_size > limit and not handle.has_warned:
        handle.has_warned = True
        log_warning(
            f"the state of {handle.task_id} takes {checkpoint.state_size:,} bytes, more than {limit:,}: "
            "keep large content in files",
            task_id=handle.task_id,
        )


def _log_refusal(handle: Handle, error: CheckpointError) -> None:
    """Log why nothing was saved: a conflict, a name that is taken, a bad value."""
    if is_logging():
        state = handle.head.control_state if handle.head else "idle"
        about = {"error": error.code, "reason": handle.engine.options.redaction.text(str(error))}
        log_action(handle.user, "save", handle.task_id, prev_state=state, new_state=state, **about)


def _log_skipped(handle: Handle, skipped: Sequence[Skipped]) -> None:
    """Log what is not in a checkpoint and should be: files that were not there, or could not be read."""
    for one in skipped:
        if one.reason.startswith(("missing", "unreadable", "unstable")):
            place = handle.engine, handle.user, handle.owner, handle.task_id
            log_on(*place, "file_skipped", path=one.path, reason=one.reason)


def _lost(handle: Handle, draft: Draft) -> Checkpoint:
    record = Record(id=draft.id or draft.own_id, task_id=handle.task_id, type=draft.type, message=draft.message)
    return Checkpoint._of(record, bytes(DIGEST_SIZE), None, _NeverStored(), status="lost")


def _plain(state: Any) -> Any:
    """Return the state as it will be read back; the state itself where it cannot be stored."""
    from lastgood.codec.decode import decode
    from lastgood.codec.encode import encode

    try:
        return decode(encode(state), classes=False)
    except CheckpointError:
        return state


class _NeverStored:
    """The source of a checkpoint that could not be stored."""

    def load(self, name: str, classes: bool) -> Any:
        raise NotFoundError("this checkpoint was lost: it could not be stored", hint="save again")

    def verification(self) -> None:
        return None

    def judge(self) -> None:
        return None

    def attestations(self) -> list[Attestation]:
        return []
