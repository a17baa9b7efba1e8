"""How much of a store each task, branch and checkpoint takes, what they share, and what deleting one would free."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec

from lastgood.model.identity import moment

MINUTE, HOUR, DAY = 60, 3600, 86_400
PERIODS = (MINUTE, HOUR, DAY, 7 * DAY, 28 * DAY)
MAX_PERIODS = 24


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What something has of the store, in bytes.

    `logical`: state and files as they were saved, each checkpoint by itself. `content`: all that is kept for them,
    everything once and before compression; records and trees count, too. `stored`: the same as it lies on disk.
    `unique`: as much of `stored` as nothing else reaches; so much becomes free when it is deleted and purged.
    """

    logical: int
    content: int
    stored: int
    unique: int

    @property
    def shared(self) -> int:
        """Bytes on disk that something else reaches, too."""
        return self.stored - self.unique

    @property
    def deduplication(self) -> float:
        """How many times over the content was saved."""
        return self.logical / self.content if self.content else 1.0

    @property
    def compression(self) -> float:
        """How many bytes of content one byte on disk holds."""
        return self.content / self.stored if self.stored else 1.0


class CheckpointUsage(Share, frozen=True, kw_only=True):
    """One checkpoint. `added`: the bytes on disk that it was the first to need, of those that are still there.

    A damaged record does not tell when it was made, nor what belongs to it.
    """

    id: str
    task_id: str
    owner: str
    branch_id: str
    sequence: int
    created_at: datetime | None
    deleted: bool
    added: int


class BranchUsage(Share, frozen=True, kw_only=True):
    """The checkpoints that were made on a branch, without those before it. `deleted_checkpoints` of them are marked as
    deleted, and hold their content until they are purged."""

    id: str
    name: str
    task_id: str
    owner: str
    checkpoints: int
    deleted_checkpoints: int
    deleted: bool


class TaskUsage(Share, frozen=True, kw_only=True):
    """All checkpoints of a task."""

    id: str
    owner: str
    checkpoints: int
    deleted_checkpoints: int


class Growth(NamedTuple):
    """What came in a period of so many seconds: checkpoints, the bytes they added, and all bytes until its end."""

    since: datetime
    seconds: int
    checkpoints: int
    added: int
    total: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """A store in bytes; see `Store.usage`.

    `unreferenced_bytes` are content that no checkpoint needs any more. `stray_bytes` lie in packs that the store does
    not know: of a save that was interrupted, or is under way. `free_bytes` of the catalog will be used again.
    `unreadable`: how many things were missing or damaged; what only they lead to counts as unreferenced.
    """

    catalog_bytes: int
    free_bytes: int
    packs: int
    pack_bytes: int
    unreferenced_bytes: int
    stray_bytes: int
    unreadable: int
    total: Share
    tasks: tuple[TaskUsage, ...]
    branches: tuple[BranchUsage, ...]
    checkpoints: tuple[CheckpointUsage, ...]

    @property
    def disk_bytes(self) -> int:
        return self.catalog_bytes + self.pack_bytes

    def growth(self) -> list[Growth]:
        """What `checkpoints` added, oldest first, in periods of a minute, an hour, a day, a week or more.

        At most 24 of them, without those in which nothing came.
        """
        return _growth([one for one in self.checkpoints if one.created_at is not None])

    def of(self, owner: str, task_id: str | None = None, branch_id: str | None = None) -> Usage:
        """The same store, and of tasks, branches and checkpoints only those of an owner, of a task, of a branch."""

        def belongs(one: BranchUsage | CheckpointUsage) -> bool:
            branch = one.id if isinstance(one, BranchUsage) else one.branch_id
            return one.owner == owner and task_id in (None, one.task_id) and branch_id in (None, branch)

        return msgspec.structs.replace(
            self,
            tasks=tuple(task for task in self.tasks if task.owner == owner and task_id in (None, task.id)),
            branches=tuple(filter(belongs, self.branches)),
            checkpoints=tuple(filter(belongs, self.checkpoints)),
        )


def _growth(checkpoints: Iterable[CheckpointUsage]) -> list[Growth]:
    made = sorted((int(one.created_at.timestamp()), one.added) for one in checkpoints if one.created_at is not None)
    if not made:
        return []
    first, last = made[0][0], made[-1][0]
    fitting = (period for period in PERIODS if last // period - first // period < MAX_PERIODS)
    # Nothing fits a history of more than two years: then whatever makes 24 of it.
    period = next(fitting, -(-(last - first) // (MAX_PERIODS - 1) // DAY) * DAY)
    found: list[Growth] = []
    total = 0
    for at, added in made:
        total += added
        since = moment(at // period * period * 1_000_000)
        if found and found[-1].since == since:
            count, before = found[-1].checkpoints, found[-1].added
            found[-1] = Growth(since, period, count + 1, before + added, total)
        else:
            found.append(Growth(since, period, 1, added, total))
    return found
