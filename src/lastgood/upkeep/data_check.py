"""A process that reads every byte of a store, for a check that looks at its structure meanwhile.

It says whether all is as it was stored. If not, or if it ends before it has said so, the check reads everything itself:
what is damaged is found and told in one place.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import apsw
import msgspec
import zstandard

from lastgood.catalog import open_catalog
from lastgood.engine.readers import MANY_BYTES, processors
from lastgood.errors import CheckpointError
from lastgood.local.channel import HelperProcess, channel_to_parent
from lastgood.model.identity import BlobId
from lastgood.objects.local import LocalObjects
from lastgood.upkeep.check_content import Progress, check_pack_content, check_packs
from lastgood.upkeep.damage import read_inventory
from lastgood.upkeep.report import CheckCounts

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog
    from lastgood.objects.contract import ObjectStore

MAX_BYTES = 1 << 16


class DataCheckOrder(msgspec.Struct, frozen=True):
    """An order to read a store. `key`: of blob ids, if it has one."""

    catalog: str
    objects: str
    key: bytes | None


class DataCheckAnswer(msgspec.Struct, frozen=True):
    """How much of the packs was read. The last answer says what was counted, and whether everything `is_whole`."""

    done: int = 0
    total: int = 0
    counts: CheckCounts | None = None
    is_whole: bool = False


class DataCheck(HelperProcess[DataCheckAnswer]):
    """A process that reads a store."""

    @classmethod
    def of(cls, catalog: Catalog, objects: ObjectStore | None) -> Self | None:
        """Start it, if the store is so large that this pays, and a process can read it."""
        if objects is None or catalog.address is None or objects.address is None or processors() < 2:
            return None
        try:
            size = catalog.disk_use().size + sum(each.size for each in objects.list("packs/"))
            decoder = msgspec.msgpack.Decoder(DataCheckAnswer)
            packages = (apsw, zstandard)
            return cls(__name__, decoder, max_bytes=MAX_BYTES, packages=packages) if size >= MANY_BYTES else None
        except (CheckpointError, OSError):
            return None

    def begin(self, catalog: Catalog, objects: ObjectStore | None, blob_id: BlobId) -> None:
        """Have it read all that is stored now."""
        with suppress(OSError):  # it has ended, which is found in the end
            self.channel.send(DataCheckOrder(str(catalog.address), str(objects and objects.address), blob_id.key))

    def finish(self, counts: CheckCounts, progress: Progress | None) -> bool:
        """Wait for it, and count what it read; return whether it has read everything, and all is as it was stored."""
        try:
            while (answer := self.channel.receive()).counts is None:
                if progress is not None:
                    progress(answer.done, answer.total)
        except OSError:
            return False
        read = answer.counts
        counts.packs, counts.blobs_read, counts.bytes_read = read.packs, read.blobs_read, read.bytes_read
        return answer.is_whole


def serve() -> None:
    """Read a store: what the process runs."""
    channel = channel_to_parent(msgspec.msgpack.Decoder(DataCheckOrder), max_bytes=MAX_BYTES)
    order, counts = channel.receive(), CheckCounts()
    objects = LocalObjects(Path(order.objects))
    with closing(open_catalog(order.catalog, read_only=True)) as catalog, catalog.audit() as audit:
        inventory = read_inventory(audit, BlobId(order.key), counts, read_data=True)
        findings, readable = check_packs(objects, inventory, counts)
        is_complete = not audit.unreadable
    findings += check_pack_content(
        objects, inventory, readable, counts, lambda done, total: channel.send(DataCheckAnswer(done, total))
    )
    is_whole = is_complete and not findings and not inventory.damage
    channel.send(DataCheckAnswer(counts=counts, is_whole=is_whole))
