"""Checkpoints that are made by hand, as the evidence-first interface describes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

import lastgood
from lastgood import Checkpoint, Evidence, EvidencePack, EvidenceType, InvalidError

AT = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def made() -> Checkpoint:
    pack = EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "log written", {"path": "run.log"})])
    return Checkpoint(
        checkpoint_id="cp-1",
        task_id="task-123",
        work_item_id="item",
        checkpoint_type="tool_executed",
        sequence_number=7,
        snapshot_data={"tool": "bash", "args": [1, 2]},
        evidence_pack=pack,
        metadata={"k": "v"},
        created_at=AT,
        verified=True,
        last_verified_at=AT,
    )


def test_a_checkpoint_is_made_of_the_fields_of_the_evidence_first_interface() -> None:
    """D6"""
    one = made()
    assert (one.checkpoint_id, one.task_id, one.work_item_id) == ("cp-1", "task-123", "item")
    assert (one.checkpoint_type, one.sequence_number, one.metadata) == ("tool_executed", 7, {"k": "v"})
    assert (one.created_at, one.verified, one.last_verified_at) == (AT, True, AT)
    assert one.snapshot_data == {"tool": "bash", "args": [1, 2]}
    assert one.has_evidence
    assert one.evidence_pack.evidence_list[0].description == "log written"
    assert (one.artifacts, one.attestations, one.judge(), one.damage) == ([], [], None, [])


def test_a_checkpoint_made_by_hand_goes_through_a_dictionary_and_back() -> None:
    """D6"""
    one = made()
    data = json.loads(json.dumps(one.to_dict()))
    again = Checkpoint.from_dict(data)
    assert again.to_dict() == one.to_dict()
    assert (again.checksum, again.has_evidence) == (one.checksum, True)
    state = again.fresh_state()
    state["args"].append(3)
    assert again.snapshot_data == {"tool": "bash", "args": [1, 2]}
    assert again.load(dict) == again.snapshot_data


def test_the_least_that_a_checkpoint_is_made_of() -> None:
    one = Checkpoint("cp", "t")
    assert (one.type, one.sequence, one.branch_id, one.state, one.verified) == ("manual", None, None, None, False)
    assert one.created_at.tzinfo is UTC
    assert Checkpoint.from_dict(one.to_dict()).to_dict() == one.to_dict()


def test_a_spooled_checkpoint_goes_through_a_dictionary_and_back() -> None:
    one = Checkpoint("cp", "t", branch_id="b")
    assert (one.sequence, one.branch_id) == (None, "b")
    assert Checkpoint.from_dict(one.to_dict()).to_dict() == one.to_dict()


@pytest.mark.parametrize(
    "wrong",
    [{"checkpoint_id": 3}, {"created_at": "today"}, {"created_at": AT.replace(tzinfo=None)}, {"evidence_pack": [1]}],
)
def test_what_cannot_be_a_checkpoint_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        Checkpoint(**{"checkpoint_id": "cp", "task_id": "t", **wrong})


@pytest.mark.parametrize("wrong", [{"created_at": "yesterday"}, {"checksum": "no"}, {"evidence_pack": 3}])
def test_what_is_no_checkpoint_dictionary_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        Checkpoint.from_dict({**made().to_dict(), **wrong})


def test_every_name_of_the_evidence_first_interface_is_exported() -> None:
    """D"""
    names = {"CheckpointManager", "CheckpointError", "Checkpoint", "Evidence", "EvidencePack", "EvidenceType"}
    names |= {"EvidenceVerifier", "VerificationStatus", "register_evidence"}
    assert names <= set(lastgood.__all__)
    assert all(getattr(lastgood, name) for name in names)
