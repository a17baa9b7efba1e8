"""The catalog's contract over any database that offers a connection: each method is one transaction."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Concatenate

from lastgood.catalog.contract import Catalog
from lastgood.catalog.relational import branches, collection, commit, deletion, records, sessions
from lastgood.catalog.relational.connection import P, T, Work


def _read(work: Work[P, T]) -> Callable[Concatenate[RelationalCatalog, P], T]:
    def method(self: RelationalCatalog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._read(work, *args, **kwargs)

    return method


def _write(work: Work[P, T]) -> Callable[Concatenate[RelationalCatalog, P], T]:
    def method(self: RelationalCatalog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write(work, *args, **kwargs)

    return method


def _write_soon(work: Work[P, T]) -> Callable[Concatenate[RelationalCatalog, P], T]:
    def method(self: RelationalCatalog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._write_soon(work, *args, **kwargs)

    return method


class RelationalCatalog(Catalog):
    """What transactions there are; a database adds how one is opened, and what only it can do."""

    info = _read(records.read_info)
    keep_below = _write(records.keep_below)
    commit = _write(commit.commit)
    tasks = _read(records.read_tasks)
    position = _read(records.read_position)
    checkpoint = _read(records.read_checkpoint)
    checkpoint_at = _read(records.read_checkpoint_at)
    find = _read(records.find_ids)
    tags = _read(records.read_tags)
    checkpoints = _read(records.read_checkpoints)
    count = _read(records.count)
    root = _read(records.read_root)
    blobs = _read(records.read_blobs)
    has_blobs = _read(records.has_blobs)
    may_have_files = _read(records.has_files)
    attest = _write(deletion.attest_all)
    attestations = _read(records.read_attestations)
    events = _read(records.read_events)
    history = _read(records.read_history)

    move = _write(branches.move)
    destination = _read(branches.read_destination)

    begin_step = _write_soon(sessions.begin_step)
    open_step = _read(sessions.read_step)
    open_steps = _read(sessions.read_steps)
    end_step = _write(sessions.end_step)

    acquire_lease = _write_soon(sessions.acquire_lease)
    renew_lease = _write_soon(sessions.renew_lease)
    release_lease = _write_soon(sessions.release_lease)
    lease = _read(sessions.read_lease)

    post_request = _write(sessions.post_request)
    requests = _read(sessions.read_requests)
    end_request = _write(sessions.end_request)

    bound = _read(branches.read_bound)
    folders_of = _read(branches.read_folders_of)
    begin_journal = _write(branches.begin_journal)
    journals = _read(branches.read_journals)
    end_journal = _write(branches.end_journal)

    branch = _read(records.read_branch)
    branches = _read(records.read_branches)
    delete_branch = _write(deletion.delete_branch)
    delete_task = _write(deletion.delete_task)
    deleted_before = _read(deletion.read_deleted)
    purge = _write(deletion.purge)

    held = _read(collection.read_held)
    indexed = _read(collection.read_indexed)
    sliced = _read(collection.read_sliced)
    packs = _read(collection.read_packs)
    announced = _read(collection.read_announced)
    announce = _write_soon(collection.announce)
    condemn = _write_soon(collection.condemn)
    remove_blobs = _write_soon(collection.remove_blobs)
    move_blobs = _write_soon(collection.move_blobs)
    remove_packs = _write(collection.remove_packs)

    @abstractmethod
    def _read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` finds in a snapshot."""

    @abstractmethod
    def _write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `work` returns, when all that it did is durable; if it raises, nothing has happened."""

    @abstractmethod
    def _write_soon(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write without waiting for the disk: it survives this process, and power loss once a durable write follows."""
