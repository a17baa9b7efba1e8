"""A checkpoint that waits: the commit that its store could not take, and what can be told of it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lastgood.catalog.values import Actor, Blob, Commit, NewBranch, StoredCheckpoint
from lastgood.errors import IntegrityError
from lastgood.model.checkpoint import PROVISIONAL, Attestation, Head, Placement
from lastgood.model.identity import digest


class Waiting(msgspec.Struct, frozen=True):
    """What the spool's index knows of an entry. `follows`: its writer went where the task's active branch is."""

    number: int
    task: int
    owner: str
    task_id: str
    branch_id: str
    id: str
    parent_id: str | None
    checksum: bytes
    follows: bool
    at: int
    size: int

    @property
    def placement(self) -> Placement:
        return Placement(self.branch_id, PROVISIONAL + self.number, 0, 0)

    def as_head(self) -> Head:
        return Head(self.id, self.checksum, self.placement.sequence, self.branch_id)


class Body(msgspec.Struct, frozen=True, array_like=True):
    """All the rest: the commit without its blobs, and which blobs these are."""

    commit: Commit
    actor: Actor
    blobs: Sequence[bytes] = ()
    file_blobs: Sequence[bytes] = ()


class Entry(msgspec.Struct, frozen=True):
    waiting: Waiting
    body: Body

    def stored(self) -> StoredCheckpoint:
        """As if it lay in a catalog, in a place that is none."""
        waiting, commit = self.waiting, self.body.commit
        last = next((data for kind, data in reversed(commit.attestations) if kind == "verification"), None)
        return StoredCheckpoint(
            id=waiting.id,
            owner=waiting.owner,
            task_id=waiting.task_id,
            task_number=-waiting.task,
            data=commit.data,
            checksum=waiting.checksum,
            placement=waiting.placement,
            placement_digest=waiting.placement.digest(waiting.checksum),
            verified=last is not None and bool(last.get("verified")),
            verified_at=None if last is None else waiting.at,
            deleted=False,
            tags=(),
        )

    def attestations(self) -> list[tuple[Attestation, bytes]]:
        commit, at, user = self.body.commit, self.waiting.at, self.body.actor.user
        said = [Attestation(n, kind, at, user, data) for n, (kind, data) in enumerate(commit.attestations, 1)]
        return [(each, each.digest(self.waiting.checksum)) for each in said]

    def branch(self) -> NewBranch | None:
        """The branch that it begins."""
        return self.body.commit.branch if isinstance(self.body.commit.branch, NewBranch) else None


def is_provisional(sequence: int) -> bool:
    return sequence >= PROVISIONAL


def body_of(commit: Commit, actor: Actor) -> Body:
    """Without content, which lies beside it, and without a step to begin: that would be over when it is replayed."""
    bare = msgspec.structs.replace(commit, blobs=(), file_blobs=(), begins=None)
    return Body(bare, actor, [blob.digest for blob in commit.blobs], [blob.digest for blob in commit.file_blobs])


def encode_body(body: Body) -> bytes:
    return _encoder.encode(body)


def decode_body(data: object, checksum: object) -> Body:
    """IntegrityError when it is not what was written, or not of a checkpoint with this checksum."""
    try:
        assert isinstance(data, bytes)
        body = _decoder.decode(data)
    except (AssertionError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged() from error
    if body.commit.checksum != checksum or digest(body.commit.data) != checksum:
        raise damaged()
    return body


def whole(body: Body, blobs: Mapping[bytes, Blob]) -> Commit:
    """The commit with the state's blobs that it brings. IntegrityError when one is missing."""
    if missing := [key for key in body.blobs if key not in blobs]:
        raise IntegrityError(f"{len(missing)} part(s) of a spooled checkpoint are gone", hint="the spool is damaged")
    return msgspec.structs.replace(body.commit, blobs=[blobs[key] for key in body.blobs])


def damaged() -> IntegrityError:
    return IntegrityError("a spooled checkpoint is damaged", hint="look at the disk that the spool lies on")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Body)
