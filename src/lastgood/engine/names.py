"""The names by which people call a checkpoint: HEAD, @12, a tag, an id or its beginning, each with ~2."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lastgood.catalog.values import StoredCheckpoint
from lastgood.errors import InvalidError, NotFoundError
from lastgood.model.checkpoint import decode_record
from lastgood.model.identity import check_name

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog

HEAD = "HEAD"
_STEPS = re.compile(r"(.+?)(~\d{0,9})+", re.DOTALL)
_SHORTEST_PREFIX = 4


def resolve(catalog: Catalog, owner: str, name: str, task_id: str | None = None) -> str:
    """Return the id of the checkpoint called `name`: `HEAD`, `@sequence`, a tag (of a task), an id or its beginning.

    Any of them may be followed by `~n`: its n-th ancestor.
    """
    check_name("checkpoint", name)
    base, steps = _steps(name)
    stored = _find(catalog, owner, base, task_id)
    for _ in range(steps):
        stored = _parent(catalog, stored, name)
    return stored.id


def _steps(name: str) -> tuple[str, int]:
    if not _STEPS.fullmatch(name):
        return name, 0
    base, _, rest = name.partition("~")
    return base, sum(int(part or 1) for part in rest.split("~"))


def _find(catalog: Catalog, owner: str, name: str, task_id: str | None) -> StoredCheckpoint:
    found: StoredCheckpoint | None = None
    position = None if task_id is None else catalog.position(owner, task_id)
    task = position.task if position else None
    if name == HEAD:
        found = position.head if position else None
    elif name.startswith("@"):
        if not name[1:].isdecimal():
            raise InvalidError(f"{name!r} is not a sequence", hint="as in @12")
        found = catalog.checkpoint_at(task, min(int(name[1:][:12]), (1 << 32) - 1)) if task else None
    else:
        found = (catalog.checkpoint_at(task, name) if task else None) or catalog.checkpoint(owner, name)
        if found is None and len(name) >= _SHORTEST_PREFIX:
            found = _by_prefix(catalog, owner, name)
    if found is None:
        raise NotFoundError(f"there is no checkpoint {name!r}", hint="`lastgood log` lists them")
    return found


def _by_prefix(catalog: Catalog, owner: str, prefix: str) -> StoredCheckpoint | None:
    ids = catalog.find(owner, prefix)
    if len(ids) > 1:
        raise InvalidError(
            f"several checkpoints begin with {prefix!r}", hint="give more characters, or @sequence", candidates=ids
        )
    return catalog.checkpoint(owner, ids[0]) if ids else None


def _parent(catalog: Catalog, stored: StoredCheckpoint, name: str) -> StoredCheckpoint:
    parent: StoredCheckpoint | None = None
    if stored.data is not None:
        record = decode_record(stored.data, stored.checksum, f"checkpoint {stored.id}")
        if record.parent_id is not None:
            parent = catalog.checkpoint(stored.owner, record.parent_id)
    if parent is None:
        raise NotFoundError(f"{name!r} goes back further than there are checkpoints", hint="`lastgood log` lists them")
    return parent
