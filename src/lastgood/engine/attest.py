"""What is said of checkpoints after they were made: tags, deletions, purges."""

from __future__ import annotations

from typing import Any

from lastgood.engine.engine import Engine, acting
from lastgood.engine.load import find_stored
from lastgood.observe.log import log_action


def attest(
    engine: Engine,
    user: str,
    owner: str,
    ids: list[str],
    kind: str,
    data: dict[str, Any],
    *,
    last_event: int | None = None,
) -> None:
    """Append an attestation to each of these checkpoints, which belong to one task. `last_event`: see the catalog."""
    if ids:
        task_id = find_stored(engine.catalog, owner, ids[0]).task_id
        engine.catalog.attest(owner, ids, kind, data, acting(user), last_event=last_event)
        log_action(user, kind, task_id, checkpoints=ids)
