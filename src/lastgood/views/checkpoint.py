"""A checkpoint as every surface shows it, with all that belongs to one, and what verifying it gave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.errors import IntegrityError, InvalidError, LostCommitsError
from lastgood.views.document import View, compose
from lastgood.views.records import PlacedCheckpoint, find_task, place_at, resolve_place

if TYPE_CHECKING:
    from datetime import datetime

    from lastgood import Checkpoint, Evidence, Store
    from lastgood.types import FileChange, TaskInfo

VerificationState = Literal["verified", "failed", "unverified", "damaged"]
ExaminedResult = Literal["verified", "unverified", "failed", "damaged", "intact"]


class CheckpointView(View, frozen=True, kw_only=True):
    """A checkpoint. Where `integrity_ok` is false only id, task, branch, sequence and checksum mean anything.

    `state` is the iteration's. `inherited_from`: the checkpoint with the same state and files whose evidence
    `verification` is about. `can_restore`: by what is recorded a restore would not be refused.
    """

    id: str
    task_id: str
    branch_id: str | None
    parent_id: str | None
    sequence: int | None
    status: Literal["stored", "spooled"]
    iteration: int
    state: str | None
    run_control_state: str
    type: str
    step_id: str
    description: str
    prompt_preview: str | None
    lineage: str
    has_artifacts: bool
    has_user_guidance: bool
    file_count: int
    total_size: int
    state_size: int
    tags: tuple[str, ...]
    key: str | None
    work_item_id: str | None
    correlation_id: str
    metadata: dict[str, Any]
    verified: bool
    verification: VerificationState
    inherited_from: str | None
    last_verified_at: datetime | None
    checksum: str
    integrity_ok: bool
    can_restore: bool
    deleted: bool
    created_at: datetime
    created_by: str


class Examined(msgspec.Struct, frozen=True):
    """What was found of one checkpoint; `id` is None where it cannot be read."""

    id: str | None
    task_id: str
    sequence: int
    result: ExaminedResult
    problems: list[str] = []
    evidence: list[Evidence] = []
    inherited_from: str | None = None


def view_checkpoint(checkpoint: Checkpoint) -> CheckpointView:
    """Return a checkpoint as JSON shows it."""
    result = verification(checkpoint)
    derived: dict[str, Any] = {
        "state": checkpoint.iteration_state,
        "run_control_state": checkpoint.control_state,
        "description": checkpoint.message,
        "has_user_guidance": checkpoint.has_guidance,
        "verification": result,
        "inherited_from": inherited_from(checkpoint),
    }
    names = [name for name in CheckpointView.__struct_fields__ if name not in derived]
    return CheckpointView(**derived, **{name: getattr(checkpoint, name) for name in names})


def view_listed(checkpoint: Checkpoint, head_id: str | None) -> dict[str, Any]:
    """Return a checkpoint as a list shows it. `head`: it is the newest of the task's active branch."""
    return compose(view_checkpoint(checkpoint), head=checkpoint.id == head_id)


def view_detail(store: Store, checkpoint: Checkpoint, owner: str | None) -> dict[str, Any]:
    """Return a checkpoint with all that belongs to it but its state. `files`: what changed against the parent."""
    return compose(
        view_checkpoint(checkpoint),
        artifacts=checkpoint.artifacts,
        decisions=checkpoint.decisions,
        guidance=checkpoint.guidance,
        evidence=checkpoint.evidence_pack,
        attestations=checkpoint.attestations,
        file_roots=checkpoint.record.files or (),
        files=changes_since_parent(store, checkpoint, owner),
    )


def holds_whole_folders(checkpoint: Checkpoint) -> bool:
    """Whether it can be compared: it has files, and not only some that were listed."""
    return any(not root.partial for root in checkpoint.record.files or ())


def changes_since_parent(store: Store, checkpoint: Checkpoint, owner: str | None) -> list[FileChange] | None:
    """Compare the files with the parent's; None where no files were captured."""
    if checkpoint.record.files is None:
        return None
    return store.compare_files(None, checkpoint.id, owner=owner).changes


def verification(checkpoint: Checkpoint) -> VerificationState:
    """Return what is recorded, of itself or of the checkpoint that it inherits from. Without evidence, or with evidence
    that cannot be checked now: unverified."""
    if not checkpoint.integrity_ok:
        return "damaged"
    if checkpoint.verified:
        return "verified"
    if checkpoint.damage:
        return "damaged"
    if (judge := checkpoint.judge()) is not None:
        result = verification(judge)
        return "unverified" if result == "damaged" else result
    if checkpoint.last_verified_at is None or not checkpoint.has_evidence:
        return "unverified"
    return "unverified" if checkpoint.evidence_pack.is_undecided else "failed"


def inherited_from(checkpoint: Checkpoint) -> str | None:
    """Return the id of the checkpoint whose evidence speaks for this one; None: none does, or its own."""
    judge = checkpoint.judge()
    return None if judge is None else judge.id


def examine_one(store: Store, name: str, task_id: str, owner: str | None, *, bytes_only: bool) -> Examined:
    """Verify a checkpoint by its name; `bytes_only`: without looking at its evidence."""
    return _examine(store, resolve_place(store, owner, name, task_id), bytes_only)


def examine_all(store: Store, task_id: str | None, owner: str | None, *, bytes_only: bool) -> Iterator[Examined]:
    """Verify every checkpoint of a task, or of the store: by sequence and one at a time, so that damage in one place
    does not hide the rest."""
    for task in _tasks(store, owner) if task_id is None else [find_task(store, owner, task_id)]:
        for sequence in range(1, task.last_sequence + 1):
            try:
                place = place_at(store, task, sequence)
            except LostCommitsError:
                raise
            except IntegrityError as error:
                yield Examined(None, task.id, sequence, "damaged", [str(error)])
                continue
            if place is None:
                yield Examined(None, task.id, sequence, "damaged", ["it is gone without a tombstone"])
            else:
                yield _examine(store, place, bytes_only)


def view_verification(found: list[Examined]) -> dict[str, Any]:
    """Return what verifying gave as JSON shows it. `undecided`: of the unverified those with evidence."""
    by_result: dict[ExaminedResult, list[Examined]] = {}
    for one in found:
        by_result.setdefault(one.result, []).append(one)
    return compose(
        examined=len(found),
        verified=len(by_result.get("verified", ())),
        unverified=len(by_result.get("unverified", ())),
        intact=len(by_result.get("intact", ())),
        undecided=[_view(one, evidence=one.evidence) for one in by_result.get("unverified", ()) if one.evidence],
        failed=[_view(one, evidence=one.evidence) for one in by_result.get("failed", ())],
        damaged=[_view(one, problems=one.problems) for one in by_result.get("damaged", ())],
    )


def _view(one: Examined, **more: Any) -> dict[str, Any]:
    return compose(id=one.id, task_id=one.task_id, sequence=one.sequence, **more)


def _tasks(store: Store, owner: str | None) -> Iterator[TaskInfo]:
    after = 0
    while page := store.tasks(owner=owner, after=after):
        yield from page
        after = page[-1].number


def _examine(store: Store, place: PlacedCheckpoint, bytes_only: bool) -> Examined:
    evidence: list[Evidence] = []
    inherited: str | None = None
    result: ExaminedResult = "intact"
    try:
        if bytes_only or place.checkpoint is None:  # of a purged one only its tombstone is left
            problems = store.check_checkpoint(place.id, owner=place.owner, evidence=False).problems
        else:
            checked = store.check_checkpoint(place.id, owner=place.owner)
            problems, evidence, inherited = checked.problems, checked.pack.evidence_list, checked.inherited_from
            neither = not evidence or checked.pack.is_undecided
            result = "verified" if checked.verified else "unverified" if neither else "failed"
    except LostCommitsError:
        raise
    except (IntegrityError, InvalidError) as error:
        problems = [str(error)]
    result = "damaged" if problems else result
    return Examined(place.id, place.task_id, place.sequence, result, problems, evidence, inherited)
