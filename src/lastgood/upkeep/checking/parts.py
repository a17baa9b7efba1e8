"""The parts that values of checkpoints are made of: each is looked for once, however many checkpoints share it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lastgood.catalog.upkeep import Audit, CheckpointRow
from lastgood.codec.compress import decompress
from lastgood.codec.pieces import Reference, is_plain, references_below, references_in
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import VALUES
from lastgood.model.digest import digest
from lastgood.upkeep.checking.ledger import Known
from lastgood.upkeep.checking.shelf import Reader, Shelf


class Parts:
    """What the values of all checkpoints refer to, gathered as the checkpoints are read."""

    def __init__(self) -> None:
        self.damaged_roots: list[tuple[Known, str]] = []
        """Checkpoints whose state does not begin as it should, and how."""
        self._found: defaultdict[int, set[Reference]] = defaultdict(set)
        self._roots: defaultdict[int, set[bytes]] = defaultdict(set)

    def add(self, known: Known, row: CheckpointRow) -> None:
        if known.record is None:
            return
        for name, root in companion_roots(known):
            assert name != "state"
            self._roots[row.task].add(root)
        try:
            self._found[row.task].update(references_of_state(known, row))
        except IntegrityError as error:
            self.damaged_roots.append((known, str(error)))

    def walk(self, shelf: Shelf, audit: Audit) -> None:
        """Read what refers to more, and see that all the rest is there."""
        reader = Reader(shelf, audit, None)
        for partition in sorted(self._found.keys() | self._roots.keys()):
            new = self._found[partition]
            for _, data in reader.read(partition, self._roots[partition]):
                new.update(_below(shelf, partition, data))
            seen: set[Reference] = set()
            while new:
                seen |= new
                by_digest = {reference[1:]: reference for reference in new if not is_plain(reference)}
                shelf.require(partition, (reference[1:] for reference in new), audit)
                below: set[Reference] = set()
                for key, data in reader.read(partition, by_digest):
                    below.update(_below(shelf, partition, data, by_digest[key]))
                new = below - seen


def companion_roots(known: Known) -> Iterator[tuple[str, bytes]]:
    """The values beside the state: their roots are blobs like any other."""
    for name in VALUES:
        ref = getattr(known.record, name)
        if name != "state" and ref is not None:
            yield name, ref.digest


def references_of_state(known: Known, row: CheckpointRow) -> list[Reference]:
    """What the root of a state refers to, which lies with its checkpoint. IntegrityError, in words."""
    ref = known.record.state if known.record else None
    if ref is None:
        return []
    if row.root is None or row.root_size is None or row.encoding is None:
        raise IntegrityError("its state is missing")
    try:
        root = decompress(row.encoding, row.root, row.root_size)
    except IntegrityError as error:
        raise IntegrityError("its state is not what was stored") from error
    if digest(root) != ref.digest:
        raise IntegrityError("its state is not what was stored")
    return references_in(root)


def _below(shelf: Shelf, partition: int, data: bytes, reference: Reference | None = None) -> list[Reference]:
    try:
        return references_in(data) if reference is None else references_below(reference, data)
    except IntegrityError:
        shelf.lose((partition, digest(data)), "blob_damaged", "is not well formed")
        return []
