"""Requests of people to running work, kept until they are fulfilled."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RequestKind = Literal["pause", "resume", "stop", "cancel", "retry", "rounds", "guide", "edit", "answer", "restore"]
RequestStatus = Literal["open", "fulfilled", "refused"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, about one branch. Asking again with the same `id` is harmless. `outcome` is its result, once it is
    fulfilled or refused."""

    id: str
    branch_id: str
    kind: RequestKind
    data: dict[str, Any]
    at: int
    actor: str
    correlation_id: str | None = None
    status: RequestStatus = "open"
    ended_at: int | None = None
    outcome: dict[str, Any] = {}
