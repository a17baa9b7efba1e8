"""Requests: what people want of work, kept until it is met."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RequestKind = Literal["pause", "resume", "stop", "cancel", "retry", "rounds", "guide", "edit", "answer", "restore"]
RequestStatus = Literal["open", "met", "refused"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One wish, about one branch. `id` may be given by who asks, who may ask again with the same one. `outcome` says
    what came of it, once it is met or refused."""

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
