"""What is affected by damage: the checkpoints, and in them the paths and values, that need damaged packs and blobs."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lastgood.catalog.upkeep import Audit
from lastgood.catalog.values import FILES
from lastgood.codec.join import Reference, is_plain
from lastgood.engine.walk import Visit, Walk, companion_references, state_references, tree_references
from lastgood.errors import IntegrityError
from lastgood.model.identity import digest_text
from lastgood.model.tree import File, Folder
from lastgood.upkeep.check_content import state_root
from lastgood.upkeep.inventory import Damage, Inventory, Key
from lastgood.upkeep.report import MAX_PARTS, Finding, Use
from lastgood.upkeep.snapshot import CatalogSnapshot, assess_checkpoint

if TYPE_CHECKING:
    from lastgood.engine.walk import Read
    from lastgood.model.checkpoint import FileRoot

Cause = int
"""The number of a finding, which several damaged blobs may belong to."""
MAX_SEPARATE = 64
"""So many damaged blobs of one kind and place are findings of their own; more of them are one finding."""


def attribute(
    audit: Audit, snapshot: CatalogSnapshot, inventory: Inventory, packs: Sequence[Finding], read: Read
) -> Iterator[Finding]:
    """Complete findings with the checkpoints that need what is damaged, and add those of blobs.

    What is gone from the catalog by now was collected meanwhile, and is left out.
    """
    present = {row.name for row in audit.packs()}
    drafts = [pack for pack in packs if pack.name in present or "packs" in audit.unreadable]
    causes = _assign(inventory.damage, drafts)
    uses = find_uses(audit, snapshot, read, causes)
    blobs = _by_culprit(causes)
    for number, draft in enumerate(drafts):
        keys = blobs.get(number, [])
        if not keys or uses.get(number) or _is_still_there(audit, keys):
            yield _complete(draft, keys, uses.get(number, []))


def attribute_without_catalog(inventory: Inventory, packs: Sequence[Finding]) -> Iterator[Finding]:
    """As `attribute`, where it is not known what needs them."""
    drafts = list(packs)
    blobs = _by_culprit(_assign(inventory.damage, drafts))
    for number, draft in enumerate(drafts):
        yield _complete(draft, blobs.get(number, []), [])


def _by_culprit(causes: Mapping[Key, int]) -> Mapping[int, list[Key]]:
    blobs: defaultdict[int, list[Key]] = defaultdict(list)
    for key, cause in causes.items():
        blobs[cause].append(key)
    return blobs


def _assign(damage: Mapping[Key, Damage], drafts: list[Finding]) -> dict[Key, int]:
    """Return the finding that each damaged blob belongs to. Findings of blobs are added to the `drafts`."""
    broken = {draft.name: number for number, draft in enumerate(drafts)}
    causes: dict[Key, int] = {}
    groups: defaultdict[Damage, list[Key]] = defaultdict(list)
    for key, what in damage.items():
        if what.code == "blob_missing" and what.pack in broken:
            causes[key] = broken[what.pack]
        else:
            groups[what].append(key)
    for what, keys in groups.items():
        if len(keys) > MAX_SEPARATE:
            causes |= dict.fromkeys(keys, len(drafts))
            where = f" of the pack {what.pack}" if what.pack else ""
            sentence = f"{len(keys):,} blobs{where}: each {what.sentence}"
            name = what.pack or f"{len(keys)} blobs"
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=sentence))
            continue
        for key in keys:
            causes[key] = len(drafts)
            name = digest_text(key[1])
            drafts.append(Finding(code=what.code, kind="blob", name=name, sentence=f"blob {name} {what.sentence}"))
    return causes


def _is_still_there(audit: Audit, keys: Iterable[Key]) -> bool:
    return any(audit.read(partition, [digest]) for partition, digest in keys)


def _complete(draft: Finding, keys: Iterable[Key], uses: Sequence[Use]) -> Finding:
    owners = {(use.owner, use.task_id) for use in uses}
    owner, task_id = next(iter(owners)) if len(owners) == 1 else (None, None)
    blobs = tuple(digest_text(digest) for _, digest in keys)
    return msgspec.structs.replace(draft, blobs=blobs, uses=tuple(uses), owner=owner, task_id=task_id)


# --- what needs them ----------------------------------------------------------------------------------------------


class _Paths(NamedTuple):
    """Paths that need a damaged blob: the first of them, and how many there are."""

    first: tuple[bytes, ...]
    total: int


def find_uses(
    audit: Audit, snapshot: CatalogSnapshot, read: Read, causes: Mapping[Key, Cause]
) -> defaultdict[Cause, list[Use]]:
    """Find the checkpoints that need damaged blobs, by finding."""
    damaged: defaultdict[int, dict[bytes, Cause]] = defaultdict(dict)
    for (partition, digest), cause in causes.items():
        damaged[partition][digest] = cause
    walk = Walk(read, lambda partition, reference, error: None)  # what is malformed is among the damaged
    tracers = {partition: _Tracer(partition, bad, walk) for partition, bad in damaged.items()}
    uses: defaultdict[Cause, list[Use]] = defaultdict(list)
    for row in audit.checkpoints():
        record = assess_checkpoint(snapshot, row).record
        if record is None:
            continue
        parts: defaultdict[Cause, list[str]] = defaultdict(list)
        more: Counter[Cause] = Counter()
        if (tracer := tracers.get(row.task)) is not None:
            values = [(name, [reference]) for name, reference in companion_references(record)]
            with suppress(IntegrityError):  # a state whose root is damaged has a finding already
                values.insert(0, ("state", state_references(record, state_root(row))))
            for name, references in values:
                for cause in sorted({cause for one in references for cause in tracer.trace(one)}):
                    parts[cause].append(name)
        if (tracer := tracers.get(FILES)) is not None:
            for root, reference in zip(record.files or (), tree_references(record), strict=True):
                for cause, paths in tracer.trace(reference).items():
                    parts[cause] += [_text(root, path) for path in paths.first]
                    more[cause] += paths.total - len(paths.first)
        owner, task_id = snapshot.owner_and_task(row.task)
        for cause, names in parts.items():
            uses[cause].append(Use(owner, task_id, row.sequence, row.id, tuple(names), more[cause]))
    return uses


def _text(root: FileRoot, path: bytes) -> str:
    text = os.fsdecode(path) or "."
    return f"{root.name}:{text}" if root.name else text


class _Tracer:
    """A search for the damage that a reference of one partition leads to, with the paths to it."""

    def __init__(self, partition: int, bad: Mapping[bytes, Cause], walk: Walk) -> None:
        self._partition = partition
        self._bad = bad
        self._walk = walk
        self._below: dict[Reference, list[tuple[bytes, Reference]]] = {}
        self._found: dict[Reference, dict[Cause, _Paths]] = {}

    def trace(self, reference: Reference) -> Mapping[Cause, _Paths]:
        """Return what a reference leads to. Goes depth first without recursion: a path may have two thousand
        folders."""
        for visit in self._walk.follow(self._partition, [reference]):
            self._below[visit.reference] = [
                (name, one) for name, one in _named(visit) if not is_plain(one) or one[1:] in self._bad
            ]
        waiting = [reference]
        while waiting:
            one = waiting[-1]
            missing = [child for _, child in self._below.get(one, ()) if child not in self._found]
            if one in self._found:
                waiting.pop()
            elif missing and one[1:] not in self._bad:
                waiting += missing
            else:
                self._found[one] = self._gather(one)
                waiting.pop()
        return self._found[reference]

    def _gather(self, reference: Reference) -> dict[Cause, _Paths]:
        if (cause := self._bad.get(reference[1:])) is not None:
            return {cause: _Paths((b"",), 1)}
        found: dict[Cause, _Paths] = {}
        for name, child in self._below.get(reference, ()):
            for cause, paths in self._found[child].items():
                if not name:  # a part of the same file or value
                    found[cause] = paths
                    continue
                first, total = found.get(cause, _Paths((), 0))
                new = tuple(name + path for path in paths.first)
                found[cause] = _Paths((*first, *new)[:MAX_PARTS], total + paths.total)
        return found


def _named(visit: Visit) -> Iterator[tuple[bytes, Reference]]:
    """Yield what a blob refers to, with what it adds to the path."""
    if not visit.entries:
        return ((b"", reference) for reference in visit.below)
    entries = (entry for entry in visit.entries if isinstance(entry, File | Folder))
    names = (entry.name + b"/" if isinstance(entry, Folder) else entry.name for entry in entries)
    return zip(names, visit.below, strict=True)
