"""Damaged packs and blobs as findings, with the checkpoints that need them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lastgood.catalog.upkeep import Audit
from lastgood.model.digest import to_text
from lastgood.upkeep.checking.ledger import Ledger
from lastgood.upkeep.checking.report import Finding, Use
from lastgood.upkeep.checking.shelf import Damage, Key, Reader, Shelf
from lastgood.upkeep.checking.uses import find_uses

MAX_SEPARATE = 64
"""So many damaged blobs of one kind and place are told one by one; more of them together."""


def attribute(
    audit: Audit, ledger: Ledger, shelf: Shelf, packs: Sequence[Finding], reader: Reader
) -> Iterator[Finding]:
    """What is gone from the catalog by now was collected meanwhile, and is not told."""
    present = {row.name for row in audit.packs()}
    drafts = [pack for pack in packs if pack.name in present or "packs" in audit.unreadable]
    culprits = _blame(shelf.damage, drafts)
    uses = find_uses(audit, ledger, reader, culprits)
    blobs = _by_culprit(culprits)
    for number, draft in enumerate(drafts):
        keys = blobs.get(number, [])
        if not keys or uses.get(number) or _is_still_there(audit, keys):
            yield _complete(draft, keys, uses.get(number, []))


def blame_without_catalog(shelf: Shelf, packs: Sequence[Finding]) -> Iterator[Finding]:
    """Where nobody can say who needs them."""
    drafts = list(packs)
    blobs = _by_culprit(_blame(shelf.damage, drafts))
    for number, draft in enumerate(drafts):
        yield _complete(draft, blobs.get(number, []), [])


def _by_culprit(culprits: Mapping[Key, int]) -> Mapping[int, list[Key]]:
    blobs: defaultdict[int, list[Key]] = defaultdict(list)
    for key, culprit in culprits.items():
        blobs[culprit].append(key)
    return blobs


def _blame(damage: Mapping[Key, Damage], drafts: list[Finding]) -> dict[Key, int]:
    """Which finding each damaged blob belongs to. Findings of blobs are added to the `drafts`."""
    broken = {draft.name: number for number, draft in enumerate(drafts)}
    culprits: dict[Key, int] = {}
    groups: defaultdict[Damage, list[Key]] = defaultdict(list)
    for key, what in damage.items():
        if what.code == "blob_missing" and what.pack in broken:
            culprits[key] = broken[what.pack]
        else:
            groups[what].append(key)
    for what, keys in groups.items():
        if len(keys) > MAX_SEPARATE:
            culprits |= dict.fromkeys(keys, len(drafts))
            where = f" of the pack {what.pack}" if what.pack else ""
            sentence = f"{len(keys):,} blobs{where}: each {what.sentence}"
            name = what.pack or f"{len(keys)} blobs"
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=sentence))
            continue
        for key in keys:
            culprits[key] = len(drafts)
            name = to_text(key[1])
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=f"blob {name} {what.sentence}"))
    return culprits


def _is_still_there(audit: Audit, keys: Iterable[Key]) -> bool:
    return any(audit.read(partition, [digest]) for partition, digest in keys)


def _complete(draft: Finding, keys: Iterable[Key], uses: Sequence[Use]) -> Finding:
    owners = {(use.owner, use.task_id) for use in uses}
    owner, task_id = next(iter(owners)) if len(owners) == 1 else (None, None)
    blobs = tuple(to_text(digest) for _, digest in keys)
    return msgspec.structs.replace(draft, blobs=blobs, uses=tuple(uses), owner=owner, task_id=task_id)
