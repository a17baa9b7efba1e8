"""A checkpoint as users hold it: the record at hand, the state loaded when it is asked for."""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, overload

from lastgood.errors import IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Attestation, Head, Placement, Record, Skipped, ValueRef
from lastgood.model.identity import digest_text, moment, parse_digest

if TYPE_CHECKING:
    from lastgood.model.evidence import EvidencePack

Status = Literal["stored", "spooled", "lost"]

T = TypeVar("T")


class Source(Protocol):
    """Where a checkpoint's content comes from."""

    def load(self, name: str, classes: bool) -> Any:
        """Return a value by its name; with `classes` False, values of registered classes as plain data."""

    def verification(self) -> Attestation | None:
        """Return what was recorded last about its evidence."""

    def attestations(self) -> list[Attestation]:
        """Return all attestations of it, oldest first."""


class _RecordField(Generic[T]):
    """A field of the record, readable on the checkpoint."""

    _name = ""

    def __set_name__(self, owner: builtins.type, name: str) -> None:
        self._name = self._name or name  # the first name that it is given; others are aliases

    @overload
    def __get__(self, checkpoint: None, owner: builtins.type) -> Self: ...

    @overload
    def __get__(self, checkpoint: Checkpoint, owner: builtins.type) -> T: ...

    def __get__(self, checkpoint: Checkpoint | None, owner: builtins.type) -> Self | T:
        return self if checkpoint is None else getattr(checkpoint._record, self._name)


class Checkpoint:
    """An immutable checkpoint. Reading its metadata never touches its state.

    `state` (also `snapshot_data`) is fetched, verified and decoded on first use, once per object; it is never
    the object that was saved. `integrity_ok` is about the record; content is checked when it is read.
    """

    __slots__ = (
        "_checksum",
        "_evidence_pack",
        "_placement",
        "_record",
        "_source",
        "_values",
        "deleted",
        "integrity_ok",
        "last_verified_at",
        "skipped",
        "status",
        "tags",
        "verified",
    )

    def __init__(
        self,
        record: Record,
        checksum: bytes,
        placement: Placement | None,
        source: Source,
        *,
        verified: bool = False,
        verified_at: int | None = None,
        tags: tuple[str, ...] = (),
        deleted: bool = False,
        integrity_ok: bool = True,
        status: Status = "stored",
        evidence_pack: EvidencePack | None = None,
    ) -> None:
        self._record = record
        self._placement = placement
        self._source = source
        self._values: dict[str, Any] = {}
        self._checksum = checksum
        self.verified = verified
        self.last_verified_at = None if verified_at is None else moment(verified_at)
        self.tags = tags
        self.deleted = deleted
        self.integrity_ok = integrity_ok
        self.status: Status = status
        self.skipped: tuple[Skipped, ...] = ()
        self._evidence_pack = evidence_pack

    @property
    def record(self) -> Record:
        """The immutable record, as its checksum covers it."""
        return self._record

    id = _RecordField[str]()
    task_id = _RecordField[str]()
    parent_id = _RecordField[str | None]()
    lineage = _RecordField[str]()
    branch_description = _RecordField[str]()
    type = _RecordField[str]()
    step_id = _RecordField[str]()
    iteration = _RecordField[int]()
    iteration_state = _RecordField[str | None]()
    control_state = _RecordField[str]()
    message = _RecordField[str]()
    created_by = _RecordField[str]()
    work_item_id = _RecordField[str | None]()
    key = _RecordField[str | None]()
    metadata = _RecordField[dict[str, Any]]()
    prompt_preview = _RecordField[str | None]()
    redacted = _RecordField[tuple[str, ...]]()

    @property
    def checksum(self) -> str:
        """`sha256:…` over every field of the record."""
        return digest_text(self._checksum)

    def as_head(self) -> Head:
        placement = self._placement
        return Head(self.id, self._checksum, placement.sequence if placement else 0, self.branch_id or "")

    @property
    def created_at(self) -> datetime:
        return moment(self._record.created_at)

    @property
    def correlation_id(self) -> str:
        return self._record.correlation_id or self._record.id

    @property
    def branch_id(self) -> str | None:
        return self._placement.branch_id if self._placement else None

    @property
    def sequence(self) -> int | None:
        """Its place in the task, from 1; None while it is not in the store."""
        return self._placement.sequence if self._placement and self.status != "spooled" else None

    @property
    def version(self) -> int | None:
        """How often its branch had been advanced, this one included."""
        return self._placement.version if self._placement and self.status != "spooled" else None

    @property
    def last_event(self) -> int | None:
        return self._placement.last_event if self._placement and self.status != "spooled" else None

    @property
    def evidence_pack(self) -> EvidencePack:
        """What was claimed, and what checking it gave when it was last recorded; empty when nothing was claimed."""
        if self._evidence_pack is None:
            self._evidence_pack = self._read_evidence()
        return self._evidence_pack

    @property
    def state_size(self) -> int:
        """Bytes of the encoded state."""
        return self._record.state.size if self._record.state else 0

    @property
    def has_artifacts(self) -> bool:
        return _holds_some(self._record.artifacts)

    @property
    def has_guidance(self) -> bool:
        return _holds_some(self._record.guidance)

    @property
    def file_count(self) -> int:
        return sum(root.file_count for root in self._record.files or ())

    @property
    def state(self) -> Any:
        """What was saved. Raises IntegrityError rather than return damaged data."""
        return self._value("state")

    @property
    def artifacts(self) -> list[Any]:
        return self._value("artifacts") or []

    @property
    def decisions(self) -> list[Any]:
        return self._value("decisions") or []

    @property
    def guidance(self) -> list[Any]:
        return self._value("guidance") or []

    @property
    def participants(self) -> list[Any]:
        return self._value("participants") or []

    @property
    def attestations(self) -> list[Attestation]:
        """What was said of it since it was made (tags, verifications, deletion), oldest first."""
        return self._source.attestations()

    def load(self, into: builtins.type[T]) -> T:
        """Return the state as a value of the class `into`: a dataclass, a pydantic model, a TypedDict, …"""
        from lastgood.codec.classes import as_type

        return as_type(self.plain_state(), into)

    def fresh_state(self) -> Any:
        """Decode the state anew: a copy that nobody else has."""
        self._require_intact()
        return self._source.load("state", True)

    def plain_state(self) -> Any:
        """Decode the state anew, with values of registered classes as plain data."""
        self._require_intact()
        return self._source.load("state", False)

    # The names of the evidence-first interface.
    checkpoint_id = id  # noqa: A003
    checkpoint_type = type  # noqa: A003
    sequence_number = sequence
    snapshot_data = state

    def to_dict(self) -> dict[str, Any]:
        """Everything, state included, under the names of the evidence-first interface."""
        return {
            "checkpoint_id": self.id,
            "task_id": self.task_id,
            "branch_id": self.branch_id,
            "parent_id": self.parent_id,
            "work_item_id": self.work_item_id,
            "checkpoint_type": self.type,
            "sequence_number": self.sequence,
            "message": self.message,
            "snapshot_data": self.state,
            "evidence_pack": self.evidence_pack.to_dict(),
            "metadata": self.metadata,
            "created_at": self.created_at.isoformat(),
            "created_by": self.created_by,
            "verified": self.verified,
            "last_verified_at": self.last_verified_at.isoformat() if self.last_verified_at else None,
            "checksum": self.checksum,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Make a checkpoint to look at, apart from any store. Its checksum is what the dictionary says."""
        from lastgood.model.evidence import EvidencePack

        try:
            pack = EvidencePack.from_dict(data["evidence_pack"]) if data.get("evidence_pack") else EvidencePack()
            record = Record(
                id=data["checkpoint_id"],
                task_id=data["task_id"],
                parent_id=data.get("parent_id"),
                work_item_id=data.get("work_item_id"),
                type=data["checkpoint_type"],
                message=data.get("message", ""),
                metadata=data.get("metadata") or {},
                created_at=_microseconds(data["created_at"]),
                created_by=data.get("created_by", ""),
            )
            placement = Placement(data.get("branch_id") or "", data["sequence_number"], 0, 0)
            at = data.get("last_verified_at")
            checkpoint = cls(
                record,
                parse_digest(data["checksum"]),
                placement,
                _Detached(),
                verified=data.get("verified", False),
                verified_at=_microseconds(at) if at else None,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidError(f"not a checkpoint dictionary: {error}", hint="see Checkpoint.to_dict") from error
        checkpoint._evidence_pack = pack
        checkpoint._values["state"] = data.get("snapshot_data")
        return checkpoint

    def __repr__(self) -> str:
        return f"<Checkpoint {self.id} {self.type} @{self.sequence} of {self.task_id!r}>"

    def _value(self, name: str) -> Any:
        self._require_intact()
        if name not in self._values:
            self._values[name] = self._source.load(name, True)
        return self._values[name]

    def _read_evidence(self) -> EvidencePack:
        from lastgood.model.evidence import EvidencePack

        claims = self._record.evidence
        pack = EvidencePack() if claims is None else EvidencePack.from_claims(claims)
        if pack.evidence_list and (attestation := self._source.verification()) is not None:
            from lastgood.engine.proof import apply_data

            apply_data(pack, attestation)
        return pack

    def _require_intact(self) -> None:
        if not self.integrity_ok:
            raise IntegrityError(
                f"checkpoint {self.id} is damaged: its record does not match its checksum",
                hint="go back to an earlier checkpoint; this one cannot be trusted",
                checkpoint_id=self.id,
            )


def _holds_some(ref: ValueRef | None) -> bool:
    return ref is not None and ref.count > 0


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - moment(0)) // timedelta(microseconds=1)


class _Detached:
    def load(self, name: str, classes: bool) -> Any:
        raise NotFoundError("this checkpoint was made from a dictionary and has no store to load from")

    def verification(self) -> None:
        return None

    def attestations(self) -> list[Attestation]:
        return []
