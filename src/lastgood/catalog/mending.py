"""What is set right in a catalog, as one value: nothing in it is new but the place of bytes that were found again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lastgood.catalog.contract import Blob, NewPack


class NameFix(NamedTuple):
    """A key or a tag; without a sequence it goes."""

    task: int
    name: str
    sequence: int | None


class Tombstone(NamedTuple):
    """What is left of a checkpoint that is gone: its place, its id and checksum. `placement`: the place's digest."""

    task: int
    sequence: int
    branch: int
    owner: str
    id: str
    version: int
    last_event: int
    checksum: bytes
    placement: bytes


class Mending(msgspec.Struct, frozen=True, kw_only=True):
    """Checkpoints are named by task and sequence, everything else by its number.

    `tombstones` stand in holes from now on. `checksums`: (task, sequence, checksum).
    `marks`: (task, sequence, type, deleted, verified, verified_at).
    `branches`: (branch, head, version, own, inherited). `tasks`: (task, last_sequence, last_event, checkpoints).
    `active`: (task, branch). `moves`: (task, number), `workspaces`: (task, host, path), `steps`: (owner, id) and
    `journals`: ids, all of which go.

    `blobs`: (partition, blob) whose bytes were found again and lie in the catalog from now on. `packs`: those of files
    lie there from now on. `lost`: (partition, digest) that nobody has any more; who asks for one is told that it is
    missing, and who saves the same content stores it anew. `retired`: names of packs that nothing lies in any more.
    """

    tombstones: Sequence[Tombstone] = ()
    checksums: Sequence[tuple[int, int, bytes]] = ()
    marks: Sequence[tuple[int, int, str, int, int, int | None]] = ()
    branches: Sequence[tuple[int, int, int, int, int]] = ()
    tasks: Sequence[tuple[int, int, int, int]] = ()
    active: Sequence[tuple[int, int]] = ()
    keys: Sequence[NameFix] = ()
    tags: Sequence[NameFix] = ()
    moves: Sequence[tuple[int, int]] = ()
    workspaces: Sequence[tuple[int, str, str]] = ()
    steps: Sequence[tuple[str, str]] = ()
    journals: Sequence[str] = ()
    blobs: Sequence[tuple[int, Blob]] = ()
    packs: Sequence[NewPack] = ()
    lost: Sequence[tuple[int, bytes]] = ()
    retired: Sequence[str] = ()

    def is_empty(self) -> bool:
        return not any(getattr(self, name) for name in self.__struct_fields__)
