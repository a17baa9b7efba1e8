"""A checkpoint as every surface shows it, its evidence, and all that belongs to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from lastgood.views.document import View, tagged

if TYPE_CHECKING:
    from datetime import datetime

    from lastgood import Checkpoint, Evidence, EvidencePack, FileChange, Store
    from lastgood.model.checkpoint import Attestation, FileRoot

VerificationState = Literal["verified", "failed", "unverified", "damaged"]


class CheckpointView(View, frozen=True, kw_only=True):
    """A checkpoint. Where `integrity_ok` is false only id, task, branch, sequence and checksum mean anything.

    `state` is the iteration's. `can_restore`: by what is recorded a restore would not be refused.
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
    tags: list[str]
    key: str | None
    work_item_id: str | None
    correlation_id: str
    metadata: dict[str, Any]
    verified: bool
    verification: VerificationState
    last_verified_at: datetime | None
    checksum: str
    integrity_ok: bool
    can_restore: bool
    deleted: bool
    created_at: datetime
    created_by: str


class ListedCheckpointView(CheckpointView, frozen=True, kw_only=True):
    """A checkpoint in a list. `head`: it is the newest of the task's active branch."""

    head: bool


class CheckpointPageView(View, frozen=True, kw_only=True):
    """Checkpoints, newest first, and how many there are in all."""

    checkpoints: list[ListedCheckpointView]
    total: int


class CheckpointDetailView(CheckpointView, frozen=True, kw_only=True):
    """A checkpoint with all that belongs to it but its state. `files`: what changed against the parent."""

    artifacts: Any
    decisions: Any
    guidance: Any
    evidence: EvidencePackView
    attestations: list[AttestationView]
    file_roots: list[FileRootView]
    files: list[FileChange] | None


class EvidenceView(View, frozen=True, kw_only=True):
    """One claim, and what checking it gave last."""

    evidence_type: str
    description: str
    expected: Any
    metadata: Any
    status: Literal["verified", "failed", "stale", "pending"]
    error: str | None
    verified_at: datetime | None


class EvidencePackView(View, frozen=True, kw_only=True):
    """The claims of a checkpoint, and how many of them must hold."""

    evidence_list: list[EvidenceView]
    require_all: bool
    allow_partial: bool
    min_verified: int


class AttestationView(View, frozen=True, kw_only=True):
    """Something that was said about a checkpoint after it was made."""

    kind: str
    at: datetime
    actor: str
    data: Any


class FileRootView(View, frozen=True, kw_only=True):
    """A captured folder. `partial`: only files that were listed; `git_head`: what the repository there stood on."""

    name: str
    partial: bool
    file_count: int
    total_size: int
    git_head: str | None


def view_checkpoint(checkpoint: Checkpoint) -> CheckpointView:
    """Return a checkpoint as JSON shows it."""
    return CheckpointView.of(checkpoint, **_derived(checkpoint))


def view_listed(checkpoint: Checkpoint, head_id: str | None) -> ListedCheckpointView:
    """Return a checkpoint as a list shows it."""
    return ListedCheckpointView.of(checkpoint, **_derived(checkpoint), head=checkpoint.id == head_id)


def view_detail(store: Store, checkpoint: Checkpoint, owner: str | None) -> CheckpointDetailView:
    """Return a checkpoint with all that belongs to it but its state."""
    changes = changes_since_parent(store, checkpoint, owner)
    return CheckpointDetailView.of(
        checkpoint,
        **_derived(checkpoint),
        artifacts=tagged(checkpoint.artifacts),
        decisions=tagged(checkpoint.decisions),
        guidance=tagged(checkpoint.guidance),
        evidence=_view_pack(checkpoint.evidence_pack),
        attestations=[_view_attestation(one) for one in checkpoint.attestations],
        file_roots=[_view_root(root) for root in checkpoint.record.files or ()],
        files=changes,
    )


def changes_since_parent(store: Store, checkpoint: Checkpoint, owner: str | None) -> list[FileChange] | None:
    """Compare the files with the parent's; None where no files were captured."""
    if checkpoint.record.files is None:
        return None
    return store.compare_files(None, checkpoint.id, owner=owner).changes


def verification(checkpoint: Checkpoint) -> VerificationState:
    """Return what is recorded. Without evidence, or with evidence that cannot be checked now: unverified."""
    if not checkpoint.integrity_ok:
        return "damaged"
    if checkpoint.verified:
        return "verified"
    if checkpoint.last_verified_at is None:
        return "unverified"
    return "unverified" if checkpoint.evidence_pack.is_undecided else "failed"


def view_evidence(evidence: list[Evidence]) -> list[EvidenceView]:
    """Return pieces of evidence as JSON shows them."""
    return [
        EvidenceView.of(
            one,
            evidence_type=str(one.evidence_type),
            expected=tagged(one.expected),
            metadata=tagged(one.metadata),
            status=one.verification_status,
            error=one.verification_error,
        )
        for one in evidence
    ]


def _derived(checkpoint: Checkpoint) -> dict[str, Any]:
    result = verification(checkpoint)
    return {
        "state": checkpoint.iteration_state,
        "run_control_state": checkpoint.control_state,
        "description": checkpoint.message,
        "has_user_guidance": checkpoint.has_guidance,
        "total_size": sum(root.total_size for root in checkpoint.record.files or ()),
        "tags": list(checkpoint.tags),
        "verification": result,
        "can_restore": checkpoint.status == "stored" and result not in ("failed", "damaged"),
    }


def _view_pack(pack: EvidencePack) -> EvidencePackView:
    return EvidencePackView.of(pack, evidence_list=view_evidence(pack.evidence_list))


def _view_attestation(attestation: Attestation) -> AttestationView:
    from lastgood.model.identity import moment

    return AttestationView.of(attestation, at=moment(attestation.at), data=tagged(attestation.data))


def _view_root(root: FileRoot) -> FileRootView:
    return FileRootView.of(root)
