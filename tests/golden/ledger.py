"""What a golden store must give back, noted while it is written: from what was handed to it, not from what it says.

Only what the store makes up itself is taken from its answers: ids, checksums, and the kinds of events.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import struct
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from tests.support.file_trees import Found, Spec, flatten

import lastgood

SHORT = 600
"""Values are readable in an expectation up to so many characters; of longer ones it has the digest."""


class ExpectedCheckpoint(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Values as `fingerprint` gives them, files as `listing` does; `evidence`: what checking each piece gave."""

    owner: str
    task: str
    branch: str
    sequence: int
    parent: str | None
    checksum: str
    state: str
    about: dict[str, str] = {}
    files: dict[str, str] | None = None
    evidence: list[str] = []
    verified: bool = False
    redacted: list[str] = []
    tags: list[str] = []
    deleted: bool = False
    purged: bool = False


class ExpectedTask(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`lines`: the checkpoints of each branch, oldest first, deleted and purged ones among them. `names` of branches
    that were given one. `redo`: where it leads. `events`: as the code that wrote them told them."""

    owner: str
    id: str
    active: str
    lines: dict[str, list[str]]
    names: dict[str, str] = {}
    redo: str | None = None
    events: list[str] = []


class ExpectedStep(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One that is open; `snapshot`: the state that it was begun with."""

    task: str
    type: str
    name: str
    work_item: str
    metadata: str
    snapshot: str | None = None


class Expectation(msgspec.Struct, kw_only=True):
    format: str
    tasks: list[ExpectedTask] = []
    checkpoints: dict[str, ExpectedCheckpoint] = {}
    steps: dict[str, ExpectedStep] = {}
    requests: dict[str, str] = {}
    """What became of each."""


class Ledger:
    """Kept beside the store by whoever writes it."""

    def __init__(self, format: str) -> None:
        self.expected = Expectation(format=format)
        self.names: dict[str, str] = {}
        self.redo: dict[str, str] = {}
        self._sequences: Counter[tuple[str, str]] = Counter()

    def note(
        self,
        saved: lastgood.Checkpoint,
        state: Any,
        *,
        parent: str | None,
        owner: str = "golden",
        files: dict[str, str] | None = None,
        evidence: Sequence[str] = (),
        verified: bool | None = None,
        redacted: Sequence[str] = (),
        **about: Any,
    ) -> str:
        """A checkpoint that was made from this; its id."""
        assert saved.branch_id is not None
        self._sequences[owner, saved.task_id] += 1
        self.expected.checkpoints[saved.id] = ExpectedCheckpoint(
            owner=owner,
            task=saved.task_id,
            branch=saved.branch_id,
            sequence=self._sequences[owner, saved.task_id],
            parent=parent,
            checksum=saved.checksum,
            state=fingerprint(state),
            about={name: fingerprint(value) for name, value in about.items()},
            files=files,
            evidence=list(evidence),
            verified={"verified"} == set(evidence) if verified is None else verified,
            redacted=list(redacted),
        )
        return saved.id

    def __getitem__(self, id_: str) -> ExpectedCheckpoint:
        return self.expected.checkpoints[id_]

    def line(self, id_: str | None) -> list[str]:
        """What leads to a checkpoint, oldest first, itself included."""
        line: list[str] = []
        while id_ is not None:
            line.insert(0, id_)
            id_ = self[id_].parent
        return line

    def finish(self, store: lastgood.Store, active: dict[tuple[str, str], str]) -> Expectation:
        """`active`: the checkpoint that each task goes on from."""
        for (owner, task), head in active.items():
            newest = {
                it.branch: id_ for id_, it in self.expected.checkpoints.items() if (it.owner, it.task) == (owner, task)
            }
            events = store.events(task, owner=owner, limit=1000)
            self.expected.tasks.append(
                ExpectedTask(
                    owner=owner,
                    id=task,
                    active=self[head].branch,
                    lines={branch: self.line(id_) for branch, id_ in newest.items()},
                    names={branch: name for branch, name in self.names.items() if branch in newest},
                    redo=self.redo.get(task),
                    events=[f"{event.kind} {event.checkpoint_id or ''}".strip() for event in events],
                )
            )
        return self.expected


def listing(spec: Spec, *, without: Sequence[str] = ()) -> dict[str, str]:
    """What lies in a folder that was built by `spec`, but for paths that begin so."""
    return told(
        {path: what for path, what in flatten(spec).items() if not os.fsdecode(path).startswith(tuple(without))}
    )


def told(found: Found) -> dict[str, str]:
    """Of each path what it is, with its mode and the digest of its content, or its target."""

    def say(kind: str, *what: Any) -> str:
        if kind == "link":
            return f"link to {os.fsdecode(what[0])}"
        return " ".join([kind, f"{what[0]:04o}", *(sha256(content).hexdigest() for content in what[1:])])

    return {os.fsdecode(path): say(*what) for path, what in found.items()}


def fingerprint(value: Any) -> str:
    """A text that differs wherever two values differ in type or content: readable, or the digest of what would be."""
    text = json.dumps(_plain(value))
    return text if len(text) <= SHORT else f"sha256:{sha256(text.encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    """Every type by its name and every order as it is, so that neither repr nor hashing has a say."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is list:
        return [_plain(item) for item in value]
    return {kind.__name__: _content(value)}


def _content(value: Any) -> Any:
    if isinstance(value, float | complex):
        return struct.pack(">dd", value.real, value.imag).hex()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=json.dumps)
    if isinstance(value, dict):
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, dt.datetime | dt.time):
        return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)]
    if isinstance(value, dt.timedelta):
        return [value.days, value.seconds, value.microseconds]
    if isinstance(value, Sequence | deque):
        return [_plain(item) for item in value]
    return str(value)


def _zone(zone: dt.tzinfo | None) -> list[str]:
    if isinstance(zone, ZoneInfo):
        return ["zone", zone.key]
    return [] if zone is None else [str(zone.utcoffset(None)), str(zone.tzname(None))]
