"""Whether a checkpoint is what was saved, down to the last byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from lastgood.catalog.contract import Catalog
from lastgood.catalog.values import StoredCheckpoint
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import VALUES, Record, decode_record
from lastgood.model.tree import File

if TYPE_CHECKING:
    from lastgood.engine.blobs import FileBlobs


def examine(catalog: Catalog, stored: StoredCheckpoint, blobs: FileBlobs | None = None) -> list[str]:
    """What is wrong, in words; nothing when all is well. A tombstone has only its place to be examined.

    The content of files is read if `blobs` are given.
    """
    problems: list[str] = []
    if stored.placement.digest(stored.checksum) != stored.placement_digest:
        problems.append("its place (branch, sequence) does not match its digest")
    problems += _examine_attestations(catalog, stored)
    if stored.data is None:
        return problems
    try:
        record = decode_record(stored.data, stored.checksum, "it")
    except IntegrityError:
        return [*problems, "its record does not match its checksum"]
    problems += _examine_lineage(catalog, stored, record) + _examine_content(catalog, stored, record)
    return problems + (_examine_files(blobs, record) if blobs else [])


def _examine_attestations(catalog: Catalog, stored: StoredCheckpoint) -> list[str]:
    try:
        found = catalog.attestations(stored.owner, stored.id)
    except IntegrityError as error:
        return [str(error)]
    return [
        f"attestation {attestation.number} ({attestation.kind}) does not match its digest"
        for attestation, digest in found
        if attestation.digest(stored.checksum) != digest
    ]


def _examine_lineage(catalog: Catalog, stored: StoredCheckpoint, record: Record) -> list[str]:
    if record.parent_id is None:
        return []
    parent = catalog.checkpoint(stored.owner, record.parent_id)
    if parent is None:
        return ["its parent is gone without a tombstone"]
    return [] if parent.checksum == record.parent_checksum else ["its parent is not the one it was made from"]


def _examine_files(blobs: FileBlobs, record: Record) -> list[str]:
    from lastgood.engine.browse import walk_files

    problems = []
    files: dict[bytes, tuple[bytes, File]] = {}
    for root in record.files or ():
        try:
            for path, entry in walk_files(blobs, root):
                if isinstance(entry, File):
                    files.setdefault(entry.digest, (path, entry))
        except IntegrityError as error:
            problems.append(str(error))
    stream = blobs.stream_ahead([file for _, file in files.values()])
    for path, file in files.values():
        try:
            _examine_file(stream(file), file)
        except IntegrityError as error:
            problems.append(f"{os.fsdecode(path)}: {error}".encode("utf-8", "replace").decode())
    return problems


def _examine_file(content: Iterator[bytes], file: File) -> None:
    whole = sha256()
    for piece in content:
        whole.update(piece)
    if whole.digest() != file.digest:
        raise IntegrityError("its content is not what its hash says")


def _examine_content(catalog: Catalog, stored: StoredCheckpoint, record: Record) -> list[str]:
    from lastgood.engine.states import check_value

    problems = []
    for name in VALUES:
        try:
            check_value(catalog, stored, record, name)
        except IntegrityError as error:
            problems.append(str(error))
    return problems
