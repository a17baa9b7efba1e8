"""Disk usage, and what a garbage collection came to, as every surface shows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.views.document import View

if TYPE_CHECKING:
    from lastgood import Collected, Usage


class UsageView(View, frozen=True, kw_only=True):
    """How many bytes a store takes. `checkpoints` is left out unless they were asked for."""

    store: str
    disk_bytes: int
    catalog_bytes: int
    free_bytes: int
    packs: int
    pack_bytes: int
    stored_bytes: int
    unreferenced_bytes: int
    stray_bytes: int
    unreadable: int
    tasks: Sequence[Any]
    checkpoints: Sequence[Any] | msgspec.UnsetType = msgspec.UNSET


class CollectedView(View, frozen=True, kw_only=True):
    """What a garbage collection came to. `condemned` blobs wait for a run after `waits_until`.

    `deleted`: how many deleted checkpoints are kept for now.
    """

    purged: int
    removed: int
    freed: int
    condemned: int
    condemned_bytes: int
    packs_removed: int
    packs_rewritten: int
    strays: int
    dry_run: bool
    waits_until: datetime | None
    deleted: int


def view_usage(place: str, usage: Usage, checkpoints: bool) -> UsageView:
    """Return disk usage as JSON shows it; with every checkpoint if that is wanted."""
    return UsageView.of(usage, store=place, checkpoints=usage.checkpoints if checkpoints else msgspec.UNSET)


def view_collected(collected: Collected, deleted: int, until: datetime | None) -> CollectedView:
    """Return what a garbage collection came to as JSON shows it."""
    return CollectedView.of(collected, deleted=deleted, waits_until=until)
