"""A checkpoint as users hold it: the record at hand, the state loaded when it is asked for."""

from __future__ import annotations

import builtins
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, overload

from lastgood.errors import IntegrityError, InvalidError
from lastgood.model.checkpoint import Attestation, Head, Placement, Record, Skipped, ValueRef, encode_record
from lastgood.model.identity import check_name, check_type, digest, digest_text, moment, now, parse_digest

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

    def judge(self) -> Checkpoint | None:
        """Return the ancestor with the same state and files whose evidence speaks for this one, too."""


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
    One that is made by hand, or by `from_dict`, is apart from any store.
    """

    __slots__ = (
        "_checksum",
        "_evidence_pack",
        "_judge",
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
        checkpoint_id: str,
        task_id: str,
        checkpoint_type: str = "manual",
        *,
        snapshot_data: Any = None,
        evidence_pack: EvidencePack | None = None,
        sequence_number: int | None = None,
        work_item_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        created_at: datetime | None = None,
        created_by: str = "",
        message: str = "",
        branch_id: str | None = None,
        parent_id: str | None = None,
        verified: bool = False,
        last_verified_at: datetime | None = None,
        checksum: str | None = None,
    ) -> None:
        """Make a checkpoint to look at (D6). Without a `checksum` it has that of its record, which knows no content.

        InvalidError for what cannot be one.
        """
        try:
            record = Record(
                id=check_name("checkpoint_id", checkpoint_id),
                task_id=check_name("task_id", task_id),
                parent_id=parent_id,
                work_item_id=work_item_id,
                type=check_type("checkpoint_type", checkpoint_type),
                message=message,
                metadata=metadata or {},
                created_at=now() if created_at is None else _microseconds(created_at),
                created_by=created_by,
                evidence=evidence_pack.to_claims() if evidence_pack and evidence_pack.evidence_list else None,
            )
            is_placed = sequence_number is not None or branch_id is not None
            self._hold(
                record,
                digest(encode_record(record)) if checksum is None else parse_digest(checksum),
                Placement(branch_id or "", sequence_number or 0, 0, 0) if is_placed else None,
                _Detached(snapshot_data),
                verified=verified,
                verified_at=None if last_verified_at is None else _microseconds(last_verified_at),
                evidence_pack=evidence_pack,
            )
        except (TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidError):
                raise
            raise InvalidError(f"this is no checkpoint: {error}", hint="see Checkpoint.to_dict") from error
        self._values["state"] = snapshot_data

    @classmethod
    def _of(cls, record: Record, checksum: bytes, placement: Placement | None, source: Source, **about: Any) -> Self:
        """Return the checkpoint of a record; its content comes from `source`."""
        made = cls.__new__(cls)
        made._hold(record, checksum, placement, source, **about)
        return made

    def _hold(
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
        self._judge: list[Checkpoint | None] = []
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
        return (self._placement.sequence or None) if self._placement and self.status != "spooled" else None

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
    def damage(self) -> list[str]:
        """What was wrong with its bytes when that was last recorded, in words; empty: nothing is known to be.

        Evidence never clears it; that every byte was read again (`verify_checkpoint`) does.
        """
        if self.verified or self.last_verified_at is None:
            return []
        attestation = self._source.verification()
        found = attestation.data.get("problems") if attestation is not None else None
        return [str(problem) for problem in found] if isinstance(found, list) else []

    def judge(self) -> Checkpoint | None:
        """Return the ancestor whose evidence speaks for this one, too, because state and files are the same.

        None where it has evidence of its own, where none has, and where that one was purged.
        """
        if self.has_evidence or not self.integrity_ok or self.status != "stored":
            return None
        if not self._judge:
            self._judge.append(self._source.judge())
        return self._judge[0]

    @property
    def has_evidence(self) -> bool:
        return self._record.evidence is not None and bool(self._record.evidence.claims)

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
    def total_size(self) -> int:
        """Bytes of all files."""
        return sum(root.total_size for root in self._record.files or ())

    @property
    def can_restore(self) -> bool:
        """Whether, by what is recorded, a restore would not be refused: it is stored, intact, not deleted, and its
        evidence, its own or inherited, has not failed."""
        judge = self.judge() or self
        has_failed = judge.last_verified_at is not None and not judge.verified
        return self.status == "stored" and self.integrity_ok and not self.deleted and not has_failed

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
            about = {name: data[name] for name in _FIELDS & data.keys()}
            about["evidence_pack"] = EvidencePack.from_dict(data.get("evidence_pack") or {})
            for name in ("created_at", "last_verified_at"):
                if (text := data[name] if name == "created_at" else data.get(name)) is not None:
                    about[name] = datetime.fromisoformat(text)
            return cls(data["checkpoint_id"], data["task_id"], data["checkpoint_type"], **about)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InvalidError):
                raise
            raise InvalidError(f"not a checkpoint dictionary: {error}", hint="see Checkpoint.to_dict") from error

    def __repr__(self) -> str:
        place = self.status if self.sequence is None else f"@{self.sequence}"
        about = f" {self.message[:60]!r}" if self.message else ""
        return f"<Checkpoint {place} {self.type} of {self.task_id!r}{about} {self.id}>"

    def _repr_html_(self) -> str:
        place = self.status if self.sequence is None else f"@{self.sequence}"
        about = {"task": self.task_id, "type": self.type, "message": self.message, "verified": self.verified}
        return as_html(f"Checkpoint {place}", **about, created=f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC", id=self.id)

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
                hint="restore an earlier checkpoint; this one cannot be trusted",
                checkpoint_id=self.id,
            )


def as_html(title: str, **fields: object) -> str:
    """Return a table for notebooks; whatever the values are, they are text in it."""
    from html import escape

    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value)[:500])}</td></tr>" for name, value in fields.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


class Rows(list[T]):
    """A list that notebooks show as a table, a row for each value; whatever the values are, they are text in it."""

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><td>{escape(repr(one)[:500])}</td></tr>" for one in self[:1000])
        return f"<table>{rows}</table>"


def _holds_some(ref: ValueRef | None) -> bool:
    return ref is not None and ref.count > 0


def _microseconds(at: datetime) -> int:
    return (at - moment(0)) // timedelta(microseconds=1)


_FIELDS = {"snapshot_data", "sequence_number", "work_item_id", "metadata", "created_by", "message", "branch_id"}
_FIELDS |= {"parent_id", "verified", "checksum"}


class _Detached:
    """The source of a checkpoint that is apart from any store: it has a state, and nothing else."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def load(self, name: str, classes: bool) -> Any:
        from lastgood.codec.decode import decode
        from lastgood.codec.encode import encode

        return decode(encode(self._state), classes=classes) if name == "state" else None

    def verification(self) -> None:
        return None

    def judge(self) -> None:
        return None

    def attestations(self) -> list[Attestation]:
        return []
