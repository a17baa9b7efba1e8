"""Whether all that a crowd was told is true, and what they made hangs together: asked in a fresh process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.faults.crowd import CrowdSandbox
from tests.faults.ledger import Account, Content, read_account, state_digest, tree_digest
from tests.faults.writer import open_store

import lastgood
from lastgood.catalog.values import StoredCheckpoint
from lastgood.model.checkpoint import decode_record
from lastgood.model.task import TaskInfo

PAGE = 1000


def verify_crowd(folder: str, store: str) -> list[str]:
    """Return every broken promise, a sentence each."""
    sandbox = CrowdSandbox(Path(folder), Path(store))
    accounts = {file.name: read_account(file) for file in sandbox.ledger("").iterdir()}
    with open_store(sandbox) as opened:
        return [*_complaints(accounts), *_examine(sandbox, opened, accounts)]


def _complaints(accounts: Mapping[str, Account]) -> Iterator[str]:
    """Return errors that writers were given: nobody did anything wrong or was stuck, so there may be none."""
    for name, account in accounts.items():
        yield from (f"{name} was refused {error['operation']}: {error['sentence']}" for error in account.errors)


def _examine(sandbox: CrowdSandbox, store: lastgood.Store, accounts: Mapping[str, Account]) -> Iterator[str]:
    for name, account in accounts.items():
        yield from _read_all(store, name, account, sandbox.folder / "copy")
        store.task(f"{name} files", workspace=sandbox.work(name))
    if journals := [each for each in store._engine.catalog.journals() if each.made is None]:
        yield f"{len(journals)} interrupted restore(s) are not taken back by opening the workspace"
    everybody = _join(accounts)
    for info in store.tasks(limit=PAGE):
        yield from _look_at_numbers(store, info)
        yield from _look_at_visible(store, info, everybody)
    yield from _check(store, "afterwards")
    store.collect(grace=0)
    usage, flights = store.usage(), store._engine.catalog.announced()
    if usage.unreferenced_bytes or usage.stray_bytes or usage.unreadable or flights:
        yield f"the next collection leaves something behind: {usage.unreferenced_bytes=} {usage.stray_bytes=} {flights}"
    yield from _check(store, "after one more collection")


def _check(store: lastgood.Store, when: str) -> Iterator[str]:
    for finding in store.check(read_data=True).findings:
        yield f"{when} check finds {finding.code}: {finding.sentence}"


class _Told(NamedTuple):
    """What all ledgers together say: ids, messages of what was asked for, digests of states."""

    acknowledged: set[str]
    removed: set[str]
    asked_for: set[str]
    states: set[str]


def _join(accounts: Mapping[str, Account]) -> _Told:
    told = _Told(set(), set(), set(), set())
    for account in accounts.values():
        told.acknowledged.update(account.acknowledged)
        told.removed.update(account.removed)
        told.asked_for.update(account.intended)
        told.states.update(account.states)
    return told


# --- what was acknowledged ------------------------------------------------------------------------------------------


def _read_all(store: lastgood.Store, name: str, account: Account, copy: Path) -> Iterator[str]:
    for told in account.acknowledged.values():
        if (one := told["id"]) in account.removing:
            continue
        try:
            checkpoint = store.find_checkpoint(one)
            if _read(store, checkpoint, copy) != told["content"]:
                yield f"{one} of {name} does not hold what was saved"
            if (checkpoint.sequence, checkpoint.task_id) != (told["sequence"], told["task"]):
                yield f"{one} of {name} stands in another place"
        except Exception as error:
            yield f"{one} of {name} was acknowledged and cannot be read: {error!r}"


def _read(store: lastgood.Store, checkpoint: lastgood.Checkpoint, copy: Path) -> Content:
    files = None
    if checkpoint.record.files is not None:
        store.task(checkpoint.task_id).copy_files(checkpoint.id, copy)
        files = tree_digest(copy)
        shutil.rmtree(copy)
    return Content(state_digest(checkpoint.state), files)


# --- what is there --------------------------------------------------------------------------------------------------


def _look_at_visible(store: lastgood.Store, info: TaskInfo, told: _Told) -> Iterator[str]:
    """All that was repeated was acknowledged in the end, once. What nobody was told of comes with a fork or a restore;
    the files that an interrupted restore has left are any."""
    seen, before = 0, None
    while page := store.page_checkpoints(info.id, PAGE, before=before).checkpoints:
        for checkpoint in page:
            seen += 1
            if checkpoint.id in told.removed:
                yield f"{checkpoint.id} was removed, and is there"
            if checkpoint.id in told.acknowledged:
                continue
            if checkpoint.message in told.asked_for:
                yield f"{checkpoint.id} ({checkpoint.message}) was made a second time"
            if checkpoint.type not in ("forked", "before_restore", "restored"):
                yield f"{checkpoint.id} ({checkpoint.type}) is there, and nobody asked for it"
            if state_digest(checkpoint.state) not in told.states:
                yield f"{checkpoint.id} ({checkpoint.type}) holds what nobody saved"
        before = page[-1].sequence
    if seen != info.checkpoints:
        yield f"{info.id} lists {seen} of {info.checkpoints} checkpoints"


def _look_at_numbers(store: lastgood.Store, info: TaskInfo) -> Iterator[str]:
    """Checkpoints, with the tombstones of those that are gone, and events are numbered one by one from 1; so are the
    checkpoints of each branch, and each continues the one before."""
    newest: dict[str, StoredCheckpoint] = {}
    for number in range(1, info.last_sequence + 1):
        stored = store._engine.catalog.checkpoint_at(info, number)
        if stored is None:
            yield f"{info.id} has no checkpoint with the number {number} of {info.last_sequence}"
            continue
        before = newest.get(stored.placement.branch_id)
        if stored.placement.version != (before.placement.version if before else 0) + 1:
            yield f"{stored.id} has the version {stored.placement.version} on its branch of {info.id}"
        if before is not None and stored.data is not None:
            record = decode_record(stored.data, stored.checksum, stored.id)
            if (record.parent_id, record.parent_checksum) != (before.id, before.checksum):
                yield f"{stored.id} does not continue {before.id}, which is before it on its branch of {info.id}"
        newest[stored.placement.branch_id] = stored
    events = 0
    while page := store.events(info.id, after=events, limit=PAGE):
        if [event.sequence for event in page] != list(range(events + 1, events + 1 + len(page))):
            yield f"events of {info.id} after {events} are not numbered one by one"
        events = page[-1].sequence
    if events != info.last_event:
        yield f"{info.id} has {events} events, and counts {info.last_event}"
