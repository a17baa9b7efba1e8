"""What verifying checkpoints, checking a store and repairing it gave, as every surface shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.errors import IntegrityError, InvalidError, LostCommitsError
from lastgood.model.evidence import Evidence
from lastgood.views.checkpoint import EvidenceView, view_evidence
from lastgood.views.document import View
from lastgood.views.records import PlacedCheckpoint, find_task, place_at, resolve_place

if TYPE_CHECKING:
    from lastgood import CheckReport, RepairReport, Store, TaskInfo

ExaminedResult = Literal["verified", "unverified", "failed", "damaged", "intact"]


class Examined(msgspec.Struct, frozen=True):
    """What was found of one checkpoint; `id` is None where it cannot be read."""

    id: str | None
    task_id: str
    sequence: int
    result: ExaminedResult
    problems: list[str] = []
    evidence: list[Evidence] = []


class ExaminedEvidenceView(View, frozen=True, kw_only=True):
    """A checkpoint whose evidence does not hold, or cannot be checked."""

    id: str | None
    task_id: str
    sequence: int
    evidence: list[EvidenceView]


class DamagedView(View, frozen=True, kw_only=True):
    """A checkpoint that is damaged, and how."""

    id: str | None
    task_id: str
    sequence: int
    problems: list[str]


class VerificationView(View, frozen=True, kw_only=True):
    """What verifying checkpoints gave. `undecided`: of the unverified those with evidence."""

    examined: int
    verified: int
    unverified: int
    intact: int
    undecided: list[ExaminedEvidenceView]
    failed: list[ExaminedEvidenceView]
    damaged: list[DamagedView]


class CheckView(View, frozen=True, kw_only=True):
    """What checking a store gave. `tasks`: what still works of each; `remarks` are no damage."""

    ok: bool
    depth: str
    seed: int | None
    findings: Sequence[Any]
    remarks: Sequence[Any]
    tasks: Sequence[Any]
    looked_at: Any


class RepairView(View, frozen=True, kw_only=True):
    """What a repair did, or would do. `lost` could not be repaired; `check` is the store as it is now."""

    ok: bool
    dry_run: bool
    accepted: int
    mended: Sequence[Any]
    lost: Sequence[Any]
    quarantine: str | None
    check: CheckView


def view_check(report: CheckReport) -> CheckView:
    """Return what checking a store gave as JSON shows it."""
    return CheckView.of(report, tasks=report.standings)


def view_repair(report: RepairReport) -> RepairView:
    """Return what a repair did as JSON shows it."""
    return RepairView.of(report, check=view_check(report.check))


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


def view_verification(found: list[Examined]) -> VerificationView:
    """Return what verifying gave as JSON shows it."""
    by_result = {
        result: [one for one in found if one.result == result] for result in ("verified", "unverified", "intact")
    }
    return VerificationView(
        examined=len(found),
        verified=len(by_result["verified"]),
        unverified=len(by_result["unverified"]),
        intact=len(by_result["intact"]),
        undecided=[_view_evidence(one) for one in by_result["unverified"] if one.evidence],
        failed=[_view_evidence(one) for one in found if one.result == "failed"],
        damaged=[DamagedView.of(one) for one in found if one.result == "damaged"],
    )


def _view_evidence(one: Examined) -> ExaminedEvidenceView:
    return ExaminedEvidenceView.of(one, evidence=view_evidence(one.evidence))


def _tasks(store: Store, owner: str | None) -> Iterator[TaskInfo]:
    after = 0
    while page := store.tasks(owner=owner, after=after):
        yield from page
        after = page[-1].number


def _examine(store: Store, place: PlacedCheckpoint, bytes_only: bool) -> Examined:
    evidence: list[Evidence] = []
    result: ExaminedResult = "intact"
    try:
        if bytes_only or place.checkpoint is None:  # of a purged one only its tombstone is left
            problems = store.check_checkpoint(place.id, owner=place.owner, evidence=False).problems
        else:
            checked = store.check_checkpoint(place.id, owner=place.owner)
            problems, evidence = checked.problems, checked.pack.evidence_list
            neither = not evidence or checked.pack.is_undecided
            result = "verified" if checked.verified else "unverified" if neither else "failed"
    except LostCommitsError:
        raise
    except (IntegrityError, InvalidError) as error:
        problems = [str(error)]
    result = "damaged" if problems else result
    return Examined(place.id, place.task_id, place.sequence, result, problems, evidence)
