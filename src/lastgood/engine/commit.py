"""The path of a save: encode the snapshot, describe it in a record, commit both at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lastgood.catalog.values import (
    Actor,
    AppliedRestore,
    Blob,
    Commit,
    Committed,
    FulfilledRequest,
    NewBranch,
    NewEvent,
    NewSlice,
    StoredCheckpoint,
)
from lastgood.codec.compress import compress
from lastgood.errors import InvalidError
from lastgood.model.checkpoint import (
    COMPANIONS,
    CONTROL_STATES,
    PREVIEW_CHARACTERS,
    VALUES,
    Head,
    Lineage,
    Record,
    ValueRef,
    check_metadata,
    decode_plain,
    decode_record,
    encode_plain,
    encode_record,
)
from lastgood.model.identity import BlobId, check_name, check_number, check_text, check_type, digest, new_id, now
from lastgood.observe.log import current_correlation
from lastgood.secrets.redaction import Redaction

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.codec.split import Split, Splitter
    from lastgood.engine.gather import CapturedFiles
    from lastgood.engine.proof import Proof
    from lastgood.model.checkpoint import FileRoot
    from lastgood.model.task import OpenStep


class NextStep(Protocol):
    """A step that begins with the commit of the one before it."""

    def as_open(self) -> OpenStep: ...

    def note_begun(self) -> None: ...


class _Kept:
    """The state, or the files, that the parent has, whatever they are."""

    def __repr__(self) -> str:
        return "KEPT"


KEPT = _Kept()
NOT_GIVEN: Any = object()
"""The default of an argument that may be None."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants saved, checked field by field; nothing is stored if any is refused.

    `state` and `files`: KEPT are the parent's; `files` are else those that were captured. `proof` is its
    evidence. `step` is the open step that this ends; `notes` come into the log with it. `journal`, `applied`,
    `files_move`, `keeps_redo`, `fulfils` and `begins` as in Commit. `began` is when, by the monotonic clock.

    `own_id`, for a checkpoint that is not given one, and `created_at` stay the same however often it is tried, and
    where: a commit that failed may be found in the store after a crash, and what was spooled instead is the same then.
    """

    state: Any
    files: CapturedFiles | _Kept = KEPT
    journal: str | None = None
    applied: AppliedRestore | None = None
    files_move: bool = False
    keeps_redo: bool = False
    fulfils: tuple[FulfilledRequest, ...] = ()
    lineage: Lineage | None = None
    proof: Proof | None = None
    step: str | None = None
    begins: NextStep | None = None
    notes: tuple[NewEvent, ...] = ()
    companions: Mapping[str, list[Any]] = {}
    message: str = ""
    type: str = "manual"
    step_id: str = "initial"
    iteration: int = 0
    iteration_state: str | None = None
    control_state: str | None = None
    work_item_id: str | None = None
    metadata: dict[str, Any] = {}
    key: str | None = None
    id: str | None = None
    began: float = msgspec.field(default_factory=time.monotonic)
    own_id: str = msgspec.field(default_factory=new_id)
    created_at: int = msgspec.field(default_factory=now)

    def __post_init__(self) -> None:
        check_text("message", self.message)
        if self.type != "manual":
            check_type("type", self.type)
        if self.step_id != "initial":
            check_name("step_id", self.step_id)
        check_number("iteration", self.iteration)
        for field in ("iteration_state", "work_item_id", "key", "id"):
            if (value := getattr(self, field)) is not None:
                check_name(field, value)
        if self.control_state is not None and self.control_state not in CONTROL_STATES:
            raise InvalidError(
                f"there is no control state {str(self.control_state)[:80]!r}",
                hint=f"one of {', '.join(CONTROL_STATES)}",
            )
        check_metadata(self.metadata)
        for name, value in self.companions.items():
            if type(value) is not list:
                raise InvalidError(f"{name} is {type(value).__name__}, not list", field=name)


class Ground(msgspec.Struct, frozen=True):
    """What a save stands on: the branch to advance, the head it continues, that head's record, the lease there."""

    owner: str
    task_id: str
    branch: str | NewBranch
    head: Head | None
    parent: Record | None
    only_if_active: bool
    lease: int | None = None


class Splitters:
    """One splitter for each value of a snapshot; they follow one line of checkpoints."""

    def __init__(self, max_bytes: int, blob_id: BlobId) -> None:
        self._max_bytes = max_bytes
        self._blob_id = blob_id
        self._splitters: dict[str, Splitter] = {}
        self._kept: tuple[str, bytes] | None = None
        self.new_bytes = 0
        """That the last save has brought."""
        self.roots: dict[bytes, bytes] = {}
        """Of the values that came with the last save, by their digests."""

    def follow(self, head: Head | None) -> None:
        """Prepare for a save that continues `head`: forget what is remembered of another checkpoint."""
        if self._kept != ((head.branch_id, head.checksum) if head else None):
            for splitter in self._splitters.values():
                splitter.forget()

    def split(self, name: str, value: object) -> Split:
        if name not in self._splitters:
            from lastgood.codec.split import Splitter

            self._splitters[name] = Splitter(self._max_bytes, self._blob_id)
        return self._splitters[name].split(value, name)

    def keep(self, splits: Mapping[str, Split], stored: StoredCheckpoint) -> None:
        for name in splits:
            self._splitters[name].keep()
        self.roots = {split.ref.digest: split.root for split in splits.values()}
        self._kept = stored.placement.branch_id, stored.checksum


def write_checkpoint(
    catalog: Catalog,
    ground: Ground,
    draft: Draft,
    splitters: Splitters,
    user: str,
    redaction: Redaction,
    *,
    append: bool = False,
) -> tuple[Record, Committed]:
    """Commit `draft` on `ground`, or with `append` on any head; return its record, and what the commit came to."""
    splitters.follow(None if append else ground.head)  # another head may have nothing of what this one has
    draft, redacted = _redact(ground, draft, redaction)
    given = {"state": draft.state, **draft.companions}
    splits = {name: splitters.split(name, value) for name, value in given.items() if value is not KEPT}
    correlation_id = current_correlation()
    refs = {name: split.ref for name, split in splits.items()}
    record = _describe(ground, draft, refs, redacted, user, correlation_id)
    data = encode_record(record)
    commit = Commit(
        owner=ground.owner,
        record=record,
        data=data,
        checksum=digest(data),
        branch=ground.branch,
        only_if_active=ground.only_if_active,
        append=append,
        may_repeat=draft.key is not None or draft.id not in (None, draft.step),
        inherited=_inherited(draft),
        root=_blob(splits["state"].ref.digest, splits["state"].root) if "state" in splits else None,
        keep_root="state" not in splits,
        blobs=[_blob(key, content) for key, content in _contents(splits)],
        slices=[NewSlice(*part) for split in splits.values() for part in split.slices],
        step=draft.step,
        notes=(*draft.notes, *_fulfilments(ground, draft, record)),
        journal=draft.journal,
        applied=draft.applied,
        files_move=draft.files_move,
        keeps_redo=draft.keeps_redo,
        lease=ground.lease,
        fulfilled=draft.fulfils,
        begins=draft.begins.as_open() if draft.begins else None,
        **_file_content(draft.files),
        attestations=_attested(draft.proof),
    )
    committed = catalog.commit(commit, Actor(user, correlation_id))
    if committed.begun and draft.begins is not None:
        draft.begins.note_begun()
    splitters.new_bytes = _new_bytes(commit)
    if not committed.repeated:
        splitters.keep(splits, committed.stored)
        if append and committed.stored.data is not None:
            record = decode_record(committed.stored.data, committed.stored.checksum, "it")
    return record, committed


def _fulfilments(ground: Ground, draft: Draft, record: Record) -> Iterator[NewEvent]:
    """Yield what the log says of the requests that this checkpoint fulfils."""
    branch_id = ground.branch if isinstance(ground.branch, str) else ground.branch.id
    for one in draft.fulfils:
        about = {"request": one.id, "kind": one.kind, "checkpoint": record.id, **one.outcome}
        yield NewEvent("request_fulfilled", branch_id, None, about)


def _file_content(files: CapturedFiles | _Kept) -> dict[str, Any]:
    if isinstance(files, _Kept):
        return {}
    gathered = files.gathered
    return {
        "file_blobs": gathered.blobs,
        "packs": gathered.packs,
        "relies_on": gathered.relies_on,
        "base": files.base,
        "binding": files.binding,
    }


def _new_bytes(commit: Commit) -> int:
    """Count the bytes that it has to write: the record, content as it is stored, packs."""
    size = len(commit.data) if commit.root is None else len(commit.data) + len(commit.root.data)
    for blob in commit.blobs:
        size += len(blob.data)
    for blob in commit.file_blobs:
        size += len(blob.data)
    for pack in commit.packs:
        size += pack.size
    return size


def _attested(proof: Proof | None) -> list[tuple[str, dict[str, Any]]]:
    """Wait for what checking the evidence gave. It goes on in parallel, so this comes last."""
    verification = proof.finish() if proof else None
    return [] if verification is None else [("verification", verification)]


def _inherited(draft: Draft) -> tuple[str, ...]:
    """List the fields that the caller left as they were."""
    names = [name for name in COMPANIONS if name not in draft.companions]
    if draft.control_state is None:
        names.append("control_state")
    if draft.state is KEPT:
        names += ("state", "prompt_preview", "redacted")
    if draft.files is KEPT:
        names.append("files")
    return tuple(names)


def _redact(ground: Ground, draft: Draft, redaction: Redaction) -> tuple[Draft, tuple[str, ...]]:
    """Return the draft without secrets, and the paths in its state where one was left out."""
    if draft.metadata and (metadata := redaction.plain(draft.metadata)) is not draft.metadata:
        draft = msgspec.structs.replace(draft, metadata=metadata)
    if draft.state is KEPT:
        return draft, ground.parent.redacted if ground.parent else ()
    if not redaction.state:
        return draft, ()
    from lastgood.codec.redact import redact_state

    state, paths = redact_state(draft.state, redaction.paths)
    return msgspec.structs.replace(draft, state=state) if paths else draft, paths


def _describe(
    ground: Ground,
    draft: Draft,
    refs: dict[str, ValueRef],
    redacted: tuple[str, ...],
    user: str,
    correlation_id: str | None,
) -> Record:
    inherited = {name: getattr(ground.parent, name) for name in VALUES} if ground.parent else {}
    new_branch = ground.branch if isinstance(ground.branch, NewBranch) else None
    return Record(
        id=draft.id or draft.own_id,
        task_id=ground.task_id,
        parent_id=ground.head.id if ground.head else None,
        parent_checksum=ground.head.checksum if ground.head else None,
        lineage=draft.lineage or ("manual" if draft.type == "manual" else "automatic"),
        branch_description=new_branch.description
        if new_branch
        else ground.parent.branch_description
        if ground.parent
        else "",
        type=draft.type,
        step_id=draft.step_id,
        iteration=draft.iteration,
        iteration_state=draft.iteration_state,
        control_state=draft.control_state or (ground.parent.control_state if ground.parent else "idle"),
        message=draft.message,
        created_by=user,
        created_at=draft.created_at,
        correlation_id=correlation_id,
        work_item_id=draft.work_item_id,
        metadata=decode_plain(encode_plain(draft.metadata)) if draft.metadata else {},
        key=draft.key,
        files=_roots(draft.files, ground.parent),
        evidence=draft.proof.claims if draft.proof else None,
        redacted=redacted,
        prompt_preview=_preview(draft.state, ground.parent),
        **{**inherited, **refs},
    )


def _roots(files: CapturedFiles | _Kept, parent: Record | None) -> tuple[FileRoot, ...] | None:
    if isinstance(files, _Kept):
        return parent.files if parent else None
    return files.roots


def _preview(state: object, parent: Record | None) -> str | None:
    if state is KEPT:
        return parent.prompt_preview if parent else None
    if type(state) is not dict:
        return None
    prompt = state.get("current_prompt", state.get("prompt"))
    if type(prompt) is not str:
        return None
    return prompt[:PREVIEW_CHARACTERS].encode("utf-8", "replace").decode()


def _contents(splits: Mapping[str, Split]) -> Iterator[tuple[bytes, bytes]]:
    """Yield all blobs but the state's root, which lies with the checkpoint itself."""
    for name, split in splits.items():
        yield from split.blobs.items()
        if name != "state":
            yield split.ref.digest, split.root


def _blob(key: bytes, content: bytes) -> Blob:
    encoding, stored = compress(content)
    return Blob(key, len(content), encoding, stored)
