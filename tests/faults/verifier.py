"""Whether a store keeps its promises after all that: asked in a fresh process, by the ledger alone (I1 to I4)."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.faults.acting import open_store
from tests.faults.ledger import Account, Content, read_account, state_digest, tree_digest
from tests.faults.world import World

import lastgood

PAGE = 1000


def verify(folder: str, disk: str) -> list[str]:
    """Every promise that is broken, in a sentence each; then the work goes on, and all is asked again."""
    world = World(Path(folder), Path(disk))
    account = read_account(world.ledger)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        return list(_verify(world, account, Path(scratch)))


def _verify(world: World, account: Account, scratch: Path) -> Iterator[str]:
    if not world.store.exists():
        if set(account.acknowledged) - account.removing:
            yield "I1 the store is gone"
        return
    try:
        store = open_store(world)
    except Exception as error:
        yield f"I4 the store does not open: {error!r}"
        return
    with store:
        try:
            yield from _examine(store, account, scratch / "before")
            yield from _look_at_workspace(world, store, account)
            yield from _go_on(world, store)
            yield from _examine(store, account, scratch / "after")
        except Exception as error:
            yield f"I4 the store cannot be used: {error!r}"


def _examine(store: lastgood.Store, account: Account, scratch: Path) -> Iterator[str]:
    places = (scratch / str(number) for number in itertools.count())
    scratch.mkdir()
    for one, told in account.acknowledged.items():
        if one not in account.removing:
            try:
                found = _read(store, one, next(places))
                if found != told["content"]:
                    yield f"I1 {one} does not hold what was saved"
                if store.get_checkpoint(one).sequence != told["sequence"]:
                    yield f"I1 {one} stands in another place"
            except Exception as error:
                yield f"I1 {one} was acknowledged and cannot be read: {error!r}"
    yield from _examine_visible(store, account, places)
    report = store.check(read_data=True)
    yield from (f"I4 check finds {finding.code}: {finding.sentence}" for finding in report.findings)


def _examine_visible(store: lastgood.Store, account: Account, places: Iterator[Path]) -> Iterator[str]:
    for info in store.tasks():
        page = store.page_checkpoints(info.id, PAGE)
        if page.total != len(page.checkpoints):
            yield f"I2 {info.id} lists {len(page.checkpoints)} of {page.total} checkpoints"
        sequences = [checkpoint.sequence for checkpoint in page.checkpoints]
        if len(set(sequences)) != len(sequences):
            yield f"I2 {info.id} has two checkpoints with one sequence number"
        for checkpoint in page.checkpoints:
            if checkpoint.id in account.removed:
                yield f"I1 {checkpoint.id} was removed, and is there"
            if checkpoint.id not in account.acknowledged:
                yield from _examine_unacknowledged(store, checkpoint, account, next(places))
        events = store.events(info.id, limit=PAGE)
        if [event.sequence for event in events] != list(range(1, len(events) + 1)):
            yield f"I2 events of {info.id} are not numbered one by one"


def _examine_unacknowledged(
    store: lastgood.Store, checkpoint: lastgood.Checkpoint, account: Account, place: Path
) -> Iterator[str]:
    """It may be there, whole: what was asked for, or a state and files that somebody had."""
    try:
        found = _read(store, checkpoint.id, place)
    except Exception as error:
        yield f"I2 {checkpoint.id} is visible and cannot be read: {error!r}"
        return
    wanted = account.intended.get(checkpoint.message)
    if wanted is not None and found != wanted:
        yield f"I2 {checkpoint.id} ({checkpoint.message}) is not what was asked for"
    if found.state not in account.states or found.files not in account.trees:
        yield f"I2 {checkpoint.id} ({checkpoint.message}) holds what nobody saved"


def _read(store: lastgood.Store, id: str, place: Path) -> Content:
    checkpoint = store.get_checkpoint(id)
    files = None
    if checkpoint.record.files is not None:
        store.task(checkpoint.task_id).copy_files(id, place)
        files = tree_digest(place)
    return Content(state_digest(checkpoint.state), files)


def _look_at_workspace(world: World, store: lastgood.Store, account: Account) -> Iterator[str]:
    if account.workspace is None:
        return
    task = store.task("work", workspace=world.work)
    task.diff()
    if tree_digest(world.work) not in account.workspace:
        yield "I1 the files in the workspace are neither those from before nor those from after"
    if task.recovery().restores:
        yield "I4 an interrupted restore is not taken back by opening the workspace"


def _go_on(world: World, store: lastgood.Store) -> Iterator[str]:
    """Save, collect, restore: what the next run of a program would do."""
    (world.work / "next").write_bytes(b"of the next run")
    state = {"next": "run"}
    made = store.task("next", workspace=world.work).save(state, message="the next run")
    store.collect(grace=0)
    if store.get_checkpoint(made.id).state != state:
        yield "I1 the next run does not get back what it saved"
    store.delete_task("next")
