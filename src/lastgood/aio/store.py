"""The store, the manager of steps by id, and the verifier."""

from __future__ import annotations

from collections.abc import AsyncIterator

from lastgood import manager
from lastgood import store as engine
from lastgood.aio.bridge import Opened, Plain, bridged, opening
from lastgood.aio.checkpoint import Checkpoint, FilesDiff, Recovery, wrap_each, wrap_optional, wrap_page
from lastgood.aio.task import Task
from lastgood.evidence import verifier
from lastgood.opening import open_store as open_store_in_thread


class Store(Opened[engine.Store]):
    """As `lastgood.Store`. Made by `lastgood.aio.open(…)`."""

    __slots__ = ()

    user = Plain[str]()

    task = bridged(engine.Store.task, Task)
    tasks = bridged(engine.Store.tasks)
    delete_task = bridged(engine.Store.delete_task)

    get_checkpoint = bridged(engine.Store.get_checkpoint, wrap_optional)
    find_checkpoint = bridged(engine.Store.find_checkpoint, Checkpoint)
    list_checkpoints = bridged(engine.Store.list_checkpoints, wrap_each)
    page_checkpoints = bridged(engine.Store.page_checkpoints, wrap_page)
    get_last_verified_checkpoint = bridged(engine.Store.get_last_verified_checkpoint, wrap_optional)
    last_good = bridged(engine.Store.last_good, wrap_optional)
    verify_checkpoint = bridged(engine.Store.verify_checkpoint)
    check_checkpoint = bridged(engine.Store.check_checkpoint)
    rollback_to_checkpoint = bridged(engine.Store.rollback_to_checkpoint)
    tag = bridged(engine.Store.tag)
    untag = bridged(engine.Store.untag)
    tags = bridged(engine.Store.tags)
    list_files = bridged(engine.Store.list_files)
    read_file = bridged(engine.Store.read_file)

    async def stream_file(self, checkpoint_id: str, path: str, *, owner: str | None = None) -> AsyncIterator[bytes]:
        """See `lastgood.Store.stream_file`: `async for piece in store.stream_file(…)`."""
        pieces = await self._bridge.run(lambda: self._far.stream_file(checkpoint_id, path, owner=owner))
        while (piece := await self._bridge.run(lambda: next(pieces, None))) is not None:
            yield piece

    compare_files = bridged(engine.Store.compare_files, FilesDiff)
    delete_checkpoint = bridged(engine.Store.delete_checkpoint)
    undelete_checkpoint = bridged(engine.Store.undelete_checkpoint)
    purge_checkpoint = bridged(engine.Store.purge_checkpoint)
    delete_old_checkpoints = bridged(engine.Store.delete_old_checkpoints)
    events = bridged(engine.Store.events)
    history = bridged(engine.Store.history)

    branches = bridged(engine.Store.branches)
    delete_branch = bridged(engine.Store.delete_branch)
    open_steps = bridged(engine.Store.open_steps)
    abandon_step = bridged(engine.Store.abandon_step)
    recovery = bridged(engine.Store.recovery, Recovery)

    info = bridged(engine.Store.info)
    metrics = bridged(engine.Store.metrics)
    size = bridged(engine.Store.size)
    usage = bridged(engine.Store.usage)
    collect = bridged(engine.Store.collect)
    limit = bridged(engine.Store.limit)
    check = bridged(engine.Store.check)
    repair = bridged(engine.Store.repair)
    backup = bridged(engine.Store.backup)
    replay = bridged(engine.Store.replay)
    spool_figures = bridged(engine.Store.spool_figures)


class CheckpointManager(Store):
    """As `lastgood.CheckpointManager`. Made by `lastgood.aio.open_manager(…)`."""

    __slots__ = ()

    begin_step = bridged(manager.CheckpointManager.begin_step)
    commit_step = bridged(manager.CheckpointManager.commit_step, Checkpoint)


class EvidenceVerifier(Opened[verifier.EvidenceVerifier]):
    """As `lastgood.EvidenceVerifier`. Made by `lastgood.aio.open_verifier(…)`."""

    __slots__ = ()

    verify_evidence = bridged(verifier.EvidenceVerifier.verify_evidence)
    verify_evidence_pack = bridged(verifier.EvidenceVerifier.verify_evidence_pack)
    verify_multiple = bridged(verifier.EvidenceVerifier.verify_multiple)
    hash_file = bridged(verifier.EvidenceVerifier.hash_file)


open_store = opening(open_store_in_thread, Store)
open_manager = opening(manager.CheckpointManager, CheckpointManager)
open_verifier = opening(verifier.EvidenceVerifier, EvidenceVerifier)
