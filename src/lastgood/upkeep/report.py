"""What checking and repairing a store give: findings, the checkpoints that they affect, and what still works."""

from __future__ import annotations

from typing import Literal

import msgspec

Code = Literal[
    "lost_commits", "database", "task", "branch", "counter", "event", "move", "workspace", "journal", "step",
    "missing", "record", "parent", "placement", "attestation", "derived", "key", "tag", "state",
    "blob_missing", "blob_damaged", "blob_place", "tree",
    "pack_missing", "pack_size", "pack_index", "pack_unreadable", "pack_damaged",
]  # fmt: skip
Kind = Literal["store", "task", "branch", "checkpoint", "blob", "pack", "step", "journal"]
Depth = Literal["structure", "data"]

MAX_PARTS = 1000
"""So many paths are listed for one checkpoint; the others are only counted."""


class Use(msgspec.Struct, frozen=True):
    """A checkpoint that something damaged is a part of. `id` None: it is gone itself. `parts`: the paths that need it,
    or the names of the values (`state`, …); `more`: how many beyond those."""

    owner: str
    task_id: str
    sequence: int
    id: str | None
    parts: tuple[str, ...] = ()
    more: int = 0


class Finding(msgspec.Struct, frozen=True):
    """A thing that is not as it was stored. `name`: its id, its object's name, or its digest as text.

    `blobs`: which are damaged or gone with it. `uses`: the checkpoints that cannot be trusted because of it; without
    any, no checkpoint is the worse for it.
    """

    code: Code
    kind: Kind
    name: str
    sentence: str
    owner: str | None = None
    task_id: str | None = None
    blobs: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Ids of the checkpoints that are affected."""
        return tuple(use.id for use in self.uses if use.id is not None)


class TaskHealth(msgspec.Struct, frozen=True):
    """A task and what still works of it: how many checkpoints there should be to go back to, how many of them are
    damaged or gone, whether the newest of the active branch is whole, and the newest of all that is (None: there is
    none)."""

    owner: str
    task_id: str
    checkpoints: int
    damaged: int
    head_intact: bool
    newest_intact: str | None


class CheckCounts(msgspec.Struct):
    """A count of what was checked. `bytes`: of content, as it is stored."""

    checkpoints: int = 0
    blobs: int = 0
    packs: int = 0
    blobs_read: int = 0
    bytes_read: int = 0


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """A check of a store."""

    depth: Depth
    findings: tuple[Finding, ...]
    standings: tuple[TaskHealth, ...] = ()
    looked_at: CheckCounts

    @property
    def ok(self) -> bool:
        return not self.findings


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """A repair of a store. `accepted`: how many lost commits were given up. `mended`: what is repaired. `lost`: what
    could not be, with the checkpoints and paths that need it; these are refused. `quarantine`: the folder that has a
    copy of all that was changed. `check` is how the store is now.
    """

    accepted: int
    mended: tuple[Finding, ...]
    lost: tuple[Finding, ...]
    check: CheckReport
    quarantine: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing is damaged any more."""
        return not self.lost
