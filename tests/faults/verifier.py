"""Whether a store keeps its promises after all that: asked in a fresh process, by the ledger alone (I1 to I4)."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.faults.facts import ask
from tests.faults.ledger import Account, Content, read_account, state_digest, tree_digest, tree_lines
from tests.faults.sandbox import Sandbox
from tests.faults.worker import USER, bring_back, changed_host, open_store

import lastgood
from lastgood.local.process import boot_id

PAGE = 1000
EDITED = "edited"
"""A file, and what is in it: somebody went on by hand before the workspace was opened again."""
MIXED = "as an interrupted restore left it"
"""The message of what lay in a workspace when somebody opened it, before it was put right: what is in it may be new."""
LEFT = "as the system left it when it stopped"
"""The same after power loss: files may be half written."""


def verify(folder: str, disk: str, after: str = "") -> list[str]:
    """Return every broken promise, a sentence each. The work then goes on, and everything is verified again."""
    sandbox = Sandbox(Path(folder), Path(disk))
    account = read_account(sandbox.ledger)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, changed_host(sandbox, after):
        return list(_verify(sandbox, account, Path(scratch)))


def _verify(sandbox: Sandbox, account: Account, scratch: Path) -> Iterator[str]:
    bring_back(sandbox)
    if not sandbox.store.exists():
        if set(account.acknowledged) - account.removing:
            yield "I1 the store is gone"
        return
    try:
        if sandbox.spool.is_dir():
            yield from _replay(sandbox)
        store = open_store(sandbox, spools=False)
    except Exception as error:
        yield f"I4 the store does not open: {error!r}"
        return
    with store:
        try:
            if account.mending:
                yield from _mend(store, account, scratch / "damaged")
            yield from _examine(store, account, scratch / "before", collected=False)
            yield from _look_at_workspace(sandbox, store, account)
            yield from _ask(store, account)
            yield from _examine_backups(sandbox, account, scratch / "backups")
            yield from _go_on(sandbox, store)
            yield from _examine(store, account, scratch / "after", collected=True)
            if account.workspace is not None:
                _continue(sandbox, store)
        except Exception as error:
            yield f"I4 the store cannot be used: {error!r}"


def _replay(sandbox: Sandbox) -> Iterator[str]:
    """Open the store with its spool, which replays it: nothing may be left there."""
    with open_store(sandbox) as store:
        figures = store.spool_figures()
        if figures.depth or figures.aside:
            yield f"I1 {figures.depth} still wait for the store, {figures.aside} were set aside"


class _Reader:
    """Reads what the checkpoints of a store hold, with the files of each copied into a folder of their own."""

    def __init__(self, store: lastgood.Store, scratch: Path) -> None:
        scratch.mkdir()
        self.store = store
        self._places = (scratch / str(number) for number in itertools.count())
        self._tasks: dict[tuple[str, str], lastgood.Task] = {}
        self.place = scratch
        """Where the files were copied to last."""

    def read(self, checkpoint: lastgood.Checkpoint, owner: str) -> Content:
        self.place, files = next(self._places), None
        if checkpoint.record.files is not None:
            self._task(checkpoint.task_id, owner).copy_files(checkpoint.id, self.place)
            files = tree_digest(self.place)
        return Content(state_digest(checkpoint.state), files)

    def find(self, id: str, owner: str) -> lastgood.Checkpoint:
        return self.store.find_checkpoint(id, owner=owner)

    def _task(self, id: str, owner: str) -> lastgood.Task:
        if (id, owner) not in self._tasks:
            self._tasks[id, owner] = self.store.task(id, owner=owner)
        return self._tasks[id, owner]


def _mend(store: lastgood.Store, account: Account, scratch: Path) -> Iterator[str]:
    """Repair a store that was damaged on purpose: what was damaged is refused or right, before and after."""
    reader = _Reader(store, scratch)
    for one, told in account.acknowledged.items():
        with suppress(lastgood.IntegrityError, lastgood.NotFoundError):
            if reader.read(reader.find(one, told["owner"]), told["owner"]) != told["content"]:
                yield f"I3 {one} is damaged, and given as if it was not"
    store.repair(accept_loss=any(account.mending))


def _examine(store: lastgood.Store, account: Account, scratch: Path, *, collected: bool) -> Iterator[str]:
    reader = _Reader(store, scratch)
    for one, told in account.acknowledged.items():
        if one not in account.removing or (one in account.hidden and not collected):
            yield from _examine_acknowledged(reader, one, told, account)
    yield from _examine_visible(reader, account)
    report = store.check(read_data=True)
    for finding in report.findings:
        if not finding.uses or not {use.id for use in finding.uses} <= account.damaged:
            yield f"I4 check finds {finding.code}: {finding.sentence}"


def _examine_acknowledged(reader: _Reader, one: str, told: dict[str, Any], account: Account) -> Iterator[str]:
    try:
        checkpoint = reader.find(one, told["owner"])
        if reader.read(checkpoint, told["owner"]) != told["content"]:
            yield f"I1 {one} does not hold what was saved"
        if told["sequence"] and checkpoint.sequence != told["sequence"]:
            yield f"I1 {one} stands in another place"
        if checkpoint.verified != told.get("verified", checkpoint.verified) and one not in account.damaged:
            yield f"I1 it is forgotten whether {one} is verified"
    except Exception as error:
        if one not in account.damaged or not isinstance(error, lastgood.IntegrityError):
            yield f"I1 {one} was acknowledged and cannot be read: {error!r}"


def _examine_visible(reader: _Reader, account: Account) -> Iterator[str]:
    store = reader.store
    for info in store.tasks():
        page = store.page_checkpoints(info.id, PAGE, owner=info.owner)
        if page.total != len(page.checkpoints):
            yield f"I2 {info.id} lists {len(page.checkpoints)} of {page.total} checkpoints"
        sequences = [checkpoint.sequence for checkpoint in page.checkpoints]
        if len(set(sequences)) != len(sequences):
            yield f"I2 {info.id} has two checkpoints with one sequence number"
        for message, count in Counter(checkpoint.message for checkpoint in page.checkpoints).items():
            if message in account.asked and count > account.asked[message]:
                yield f"I2 {info.id} has {count} times what was asked for {account.asked[message]} times: {message}"
        for checkpoint in page.checkpoints:
            if checkpoint.id in account.removed:
                yield f"I1 {checkpoint.id} was removed, and is there"
            if checkpoint.id not in account.acknowledged:
                yield from _examine_unacknowledged(reader, checkpoint, info.owner, account)
        events = store.events(info.id, limit=PAGE, owner=info.owner)
        if [event.sequence for event in events] != list(range(1, len(events) + 1)):
            yield f"I2 events of {info.id} are not numbered one by one"


def _examine_unacknowledged(
    reader: _Reader, checkpoint: lastgood.Checkpoint, owner: str, account: Account
) -> Iterator[str]:
    """Verify a checkpoint that was not acknowledged: what was asked for, or a state and files that were there."""
    try:
        found = reader.read(reader.find(checkpoint.id, owner), owner)
    except Exception as error:
        yield f"I2 {checkpoint.id} is visible and cannot be read: {error!r}"
        return
    wanted = account.intended.get(checkpoint.message)
    if wanted is not None and found != wanted:
        yield f"I2 {checkpoint.id} ({checkpoint.message}) is not what was asked for"
    is_mixed, is_left = checkpoint.message == MIXED, checkpoint.message == LEFT
    are_known = is_left or (_is_mixture(reader.place, account) if is_mixed else found.files in account.trees)
    if found.state not in account.states or not are_known:
        yield f"I2 {checkpoint.id} ({checkpoint.message}) holds what nobody saved"


def _is_mixture(place: Path, account: Account) -> bool:
    """Tell whether each file is, as a whole, one that was there at some time."""
    known = {line for lines in account.told.values() for line in lines}
    return known.issuperset(tree_lines(place))


def _look_at_workspace(sandbox: Sandbox, store: lastgood.Store, account: Account) -> Iterator[str]:
    if account.workspace is None:
        return
    edited = sandbox.work / EDITED
    if is_edited := any(each.made is None for each in store._engine.catalog.journals()):
        edited.write_text(EDITED)
        account.told[EDITED] = tree_lines(sandbox.work)
    task = store.task("work", workspace=sandbox.work)
    task.diff()
    if is_edited and not edited.exists() and not _is_edit_kept(store):
        yield "I1 what was edited after the crash is nowhere"
    edited.unlink(missing_ok=True)
    if tree_digest(sandbox.work) not in account.workspace:
        yield "I1 the files in the workspace are neither those from before nor those from after"
    if not all(each.made and each.doubted and each.is_of(boot_id()) for each in task.recovery().restores):
        yield "I4 an interrupted restore is not taken back by opening the workspace"


def _is_edit_kept(store: lastgood.Store) -> bool:
    for checkpoint in store.list_checkpoints("work", PAGE):
        with suppress(lastgood.CheckpointError):  # it has no such file
            if store.read_file(checkpoint.id, EDITED) == EDITED.encode():
                return True
    return False


def _examine_backups(sandbox: Sandbox, account: Account, scratch: Path) -> Iterator[str]:
    """Each that is there under its name is a whole store, with all that was acknowledged before it was asked for."""
    scratch.mkdir()
    for name, told in account.backups.items():
        folder = sandbox.backups / name
        if not folder.exists():
            if told["made"]:
                yield f"I1 the backup {name} is gone"
        elif not name.endswith(".partial"):
            try:
                with lastgood.open(folder, user=USER, collect="never", on_failure="raise") as copy:
                    yield from _examine_backup(name, _Reader(copy, scratch / name), account, told["ids"])
            except Exception as error:
                yield f"I2 the backup {name} is there and cannot be used: {error!r}"


def _examine_backup(name: str, reader: _Reader, account: Account, ids: list[str]) -> Iterator[str]:
    told = ((one, account.acknowledged[one]) for one in ids if one not in account.removing)
    then = account._replace(removed=set())
    broken = [found for one, line in told for found in _examine_acknowledged(reader, one, line, account)]
    broken += _examine_visible(reader, then)
    broken += [f"check finds {finding.code}" for finding in reader.store.check(read_data=True).findings]
    yield from (f"{found} (in the backup {name})" for found in broken)


def _ask(store: lastgood.Store, account: Account) -> Iterator[str]:
    for fact, allowed in account.facts.items():
        answer = ask(store, fact)
        if answer not in allowed:
            yield f"I1 {fact} is {answer!r}, not one of {allowed!r}"


def _go_on(sandbox: Sandbox, store: lastgood.Store) -> Iterator[str]:
    """Save and collect, as the next run of a program would."""
    (sandbox.work / "next").write_bytes(b"of the next run")
    state = {"next": "run"}
    made = store.task("next", workspace=sandbox.work).save(state, message="the next run")
    store.collect(grace=0)
    if store.find_checkpoint(made.id).state != state:
        yield "I1 the next run does not get back what it saved"
    store.delete_task("next")


def _continue(sandbox: Sandbox, store: lastgood.Store) -> None:
    """Save on the task itself, with its files: nothing is in the way."""
    store.task("work", workspace=sandbox.work).save({"work": "goes on"})
