"""Journals of file restores: which of them were interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.local.process import is_alive, this_process
from lastgood.model.work import Journal

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog

restores_under_way: set[str] = set()
"""Journals that a thread of this process is working on."""


def interrupted_restores(catalog: Catalog, task_id: str, owner: str) -> list[Journal]:
    """Return the restores of a task's files that were begun on this host and that no process works on any more."""
    found = catalog.journals(this_process().host)
    mine = [journal for journal in found if (journal.task_id, journal.owner) == (task_id, owner)]
    return [journal for journal in mine if not _is_under_way(journal)]


def _is_under_way(journal: Journal) -> bool:
    if journal.process == this_process():
        return journal.id in restores_under_way
    return is_alive(journal.process) is not False
