"""A checkpoint as values: its immutable record, where it stands, what was attested about it later; control states.

Layouts and digests are those of docs/reference/format.md. Bytes of a record are kept as they were written; they are
decoded for reading and never encoded again.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec

from lastgood.errors import ControlError, IntegrityError, InvalidError
from lastgood.model.identity import MAX_TEXT_BYTES, Moment, check_text, digest

LAYOUT = 1
PREVIEW_CHARACTERS = 200
COMPANIONS = ("artifacts", "decisions", "guidance", "participants")
"""What a snapshot holds beside the state."""
VALUES = ("state", *COMPANIONS)
MAX_METADATA_DEPTH = 32
PROVISIONAL = 1 << 31
"""Sequences from here on are no places in a store: what waits to come into one has them, behind all that is there."""

Lineage = Literal["automatic", "manual", "restored", "forked", "imported"]
MOVES: dict[str, tuple[str, ...]] = {
    "idle": ("running",),
    "running": ("waiting_for_input", "paused", "stopped", "completed", "failed"),
    "waiting_for_input": ("running", "stopped", "failed"),
    "paused": ("running", "stopped", "failed"),
    "stopped": ("running",),
    "completed": ("running",),
    "failed": ("running",),
}
"""The control states (A15), and which may follow each. From `completed` only by a session, which sees to it that there
are more rounds, or that a restart is meant."""
CONTROL_STATES = tuple(MOVES)


class ValueRef(msgspec.Struct, frozen=True, array_like=True):
    """A reference to an encoded value: its root blob, its size in one piece, how many elements it has."""

    digest: bytes
    size: int
    count: int = 0


class FileRoot(msgspec.Struct, frozen=True, array_like=True):
    """A captured folder. `base`: how a path of the checkpoint's evidence becomes one in here, what to take off and
    what to put before it; None: evidence is about something else."""

    name: str
    tree: bytes
    partial: bool
    file_count: int
    total_size: int
    git_head: str | None = None
    base: tuple[str, str] | None = None


class Skipped(NamedTuple):
    """Something that was left out of a checkpoint, and why."""

    path: str
    reason: str


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A piece of evidence as it was claimed, without results."""

    type: str
    description: str
    expected: dict[str, Any]
    metadata: dict[str, Any]


class Claims(msgspec.Struct, frozen=True, array_like=True):
    """An evidence pack as it was claimed."""

    claims: tuple[Claim, ...]
    require_all: bool = True
    allow_partial: bool = False
    min_verified: int = 0


class Record(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A checkpoint's immutable fields, in the fixed order that its checksum covers."""

    layout: int = LAYOUT
    id: str
    task_id: str
    parent_id: str | None = None
    parent_checksum: bytes | None = None
    lineage: str = "automatic"
    branch_description: str = ""
    type: str = "manual"
    step_id: str = "initial"
    iteration: int = 0
    iteration_state: str | None = None
    control_state: str = "idle"
    message: str = ""
    created_by: str = ""
    created_at: int = 0
    correlation_id: str | None = None
    work_item_id: str | None = None
    metadata: dict[str, Any] = {}
    key: str | None = None
    state: ValueRef | None = None
    artifacts: ValueRef | None = None
    decisions: ValueRef | None = None
    guidance: ValueRef | None = None
    participants: ValueRef | None = None
    files: tuple[FileRoot, ...] | None = None
    evidence: Claims | None = None
    redacted: tuple[str, ...] = ()
    prompt_preview: str | None = None

    def says_the_same_as(self, other: Record, ignoring: Collection[str]) -> bool:
        """Say whether both hold the same content, by whomever, whenever and after whatever it was saved."""
        names = [name for name in _CONTENT_FIELDS if name not in ignoring]
        mine, others = ([getattr(record, name) for name in names] for record in (self, other))
        return _encoder.encode(mine) == _encoder.encode(others)

    def has_content_of(self, other: Record) -> bool:
        """Say whether both hold the same state and the same files."""
        return self.state == other.state and _trees(self) == _trees(other)


def _trees(record: Record) -> list[tuple[str, bytes, bool]] | None:
    return None if record.files is None else [(root.name, root.tree, root.partial) for root in record.files]


_CONTENT_FIELDS = sorted(
    set(Record.__struct_fields__)
    - {"id", "parent_id", "parent_checksum", "branch_description", "created_by", "created_at", "correlation_id"}
)


class Placement(msgspec.Struct, frozen=True):
    """A checkpoint's place in its task. Assigned inside the commit, under a digest of its own."""

    branch_id: str
    sequence: int
    version: int
    last_event: int

    def digest(self, checksum: bytes) -> bytes:
        fields = [checksum, self.branch_id, self.sequence, self.version, self.last_event]
        return digest(_encoder.encode(fields))


class Head(msgspec.Struct, frozen=True):
    """A branch's newest checkpoint."""

    id: str
    checksum: bytes
    sequence: int
    branch_id: str


class Attestation(msgspec.Struct, frozen=True):
    """A statement about a checkpoint after it was made; appended, never edited."""

    number: int
    kind: str
    at_us: int
    actor: str
    data: dict[str, Any]

    at = Moment()

    def digest(self, checksum: bytes) -> bytes:
        fields = [checksum, self.number, self.kind, self.at_us, self.actor, self.data]
        return digest(_encoder.encode(fields))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)
encode_plain = encode_record = _encoder.encode
_plain_decoder = msgspec.msgpack.Decoder(dict[str, Any])


def decode_plain(data: bytes) -> dict[str, Any]:
    try:
        return _plain_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError("what was said about a checkpoint is damaged") from error


def decode_record(data: bytes, checksum: bytes, what: str) -> Record:
    """Return the record in `data`, checked against its checksum. Raises IntegrityError, naming `what`."""
    if digest(data) != checksum:
        raise IntegrityError(
            f"{what} is damaged: its record does not match its checksum",
            hint="restore an earlier checkpoint; this one cannot be trusted",
        )
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise IntegrityError(
            f"{what} has a record that cannot be read", hint="was it written by a newer version?"
        ) from error


# --- metadata ---


def check_metadata(metadata: object) -> None:
    """Refuse metadata that is not plain (what JSON has, with text keys) or too large: it lives in the record."""
    if type(metadata) is not dict:
        raise InvalidError(f"metadata is {type(metadata).__name__}, not dict", field="metadata")
    if not metadata:
        return
    _check_plain(metadata, ["metadata"])
    if len(encode_plain(metadata)) > MAX_TEXT_BYTES:
        raise InvalidError(f"metadata is larger than {MAX_TEXT_BYTES} bytes", hint="keep large values in the state")


def _check_plain(value: object, path: list[str | int]) -> None:
    """Check the value at `path`. Every save checks its metadata: nothing is put into words unless it is refused."""
    if len(path) > MAX_METADATA_DEPTH + 1:
        raise InvalidError(f"{_say(path)}: nested deeper than {MAX_METADATA_DEPTH} levels", field="metadata")
    if isinstance(value, dict) and type(value) is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                check_text(f"a key of {_say(path)}", key)
            path.append(key)
            _check_plain(item, path)
            path.pop()
    elif isinstance(value, list) and type(value) is list:
        kinds = set(map(type, value))
        if (kinds == {str} and "".join(value).isascii()) or (kinds == {float} and all(map(isfinite, value))):
            return  # as most are
        for index, item in enumerate(value):
            path.append(index)
            _check_plain(item, path)
            path.pop()
    elif type(value) is str and not value.isascii():
        check_text(_say(path), value)
    elif (why := _why_not(value)) is not None:
        raise InvalidError(f"{_say(path)}: {why}", hint="keep it in the state", field="metadata")


def _why_not(value: object) -> str | None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return None
    if isinstance(value, int) and kind is int:
        return None if -(1 << 63) <= value < 1 << 64 else "an integer beyond 64 bits"
    if isinstance(value, float) and kind is float:
        return None if isfinite(value) else f"{value} is not a JSON number"
    return f"{kind.__name__} cannot stand in metadata"


def _say(path: list[str | int]) -> str:
    """Write a path as `metadata.steps[3].name`."""
    said = [f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in path]
    return "".join(said)[1:]


# --- control states ---


def check_move(before: str, after: str) -> None:
    """Raise ControlError for a move that is not allowed. Staying in a state always is."""
    allowed = MOVES.get(before, ())
    if before != after and after not in allowed:
        raise ControlError(
            f"work that is {describe(before)} cannot become {describe(after)}",
            hint=f"it can become {' or '.join(map(describe, allowed))}",
            state=before,
            wanted=after,
        )


def refuse_restart(before: str, after: str | None) -> None:
    """Raise ControlError for a save outside of a session that would make completed work run."""
    if before == "completed" and after == "running":
        raise ControlError(
            "work that is completed cannot become running by a save",
            hint="add rounds, or begin a session with restart=True",
            state=before,
            wanted=after,
        )


def describe(state: str) -> str:
    return state.replace("_", " ")
