"""`lastgood verify`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lastgood.catalog.contract import StoredCheckpoint
from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, short_id
from lastgood.engine.revision import resolve
from lastgood.engine.store import Store
from lastgood.errors import IntegrityError, InvalidError, LostCommitsError
from lastgood.model.task import TaskInfo


@subcommand
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="Every checkpoint of the store, or of the task given with --task.")
def command(call: Invocation, name: str | None, every: bool) -> None:
    """Check that every stored byte of the checkpoint NAME (default: HEAD) is what was saved."""
    if every and name is not None:
        raise click.UsageError("verify takes NAME or --all, not both")
    with call.open() as store:
        found = list(_examine_all(call, store) if every else [_examine_one(call, store, name or "HEAD")])
    damaged = [one for one in found if one["problems"]]
    answer(call, {"examined": len(found), "damaged": damaged}, _lines(damaged, len(found)))
    if damaged:
        click.get_current_context().exit(IntegrityError.exit_code)


def _examine_one(call: Invocation, store: Store, name: str) -> dict[str, Any]:
    owner = call.owner or store.user
    stored = store.catalog.checkpoint(owner, resolve(store.catalog, owner, name, call.task_id()))
    assert stored is not None, "it was found by its name"
    return _described(stored, _problems(store, stored))


def _examine_all(call: Invocation, store: Store) -> Iterator[dict[str, Any]]:
    """By sequence and one at a time, so that damage in one place does not hide the rest."""
    for task in _tasks(call, store):
        for sequence in range(1, task.last_sequence + 1):
            try:
                stored = store.catalog.checkpoint_at(task, sequence)
            except LostCommitsError:
                raise
            except IntegrityError as error:
                yield {"id": None, "task_id": task.id, "sequence": sequence, "problems": [str(error)]}
                continue
            if stored is None:
                problems = ["it is gone without a tombstone"]
                yield {"id": None, "task_id": task.id, "sequence": sequence, "problems": problems}
            else:
                yield _described(stored, _problems(store, stored))


def _tasks(call: Invocation, store: Store) -> Iterator[TaskInfo]:
    if call.task is not None:
        yield store.line(call.task, call.owner or store.user).task
        return
    after = 0
    while page := store.tasks(owner=call.owner, after=after):
        yield from page
        after = page[-1].number


def _problems(store: Store, stored: StoredCheckpoint) -> list[str]:
    try:
        return store.examine_checkpoint(stored.id, owner=stored.owner)
    except LostCommitsError:
        raise
    except (IntegrityError, InvalidError) as error:
        return [str(error)]


def _described(stored: StoredCheckpoint, problems: list[str]) -> dict[str, Any]:
    place = stored.placement.sequence
    return {"id": stored.id, "task_id": stored.task_id, "sequence": place, "problems": problems}


def _lines(damaged: list[dict[str, Any]], examined: int) -> list[str]:
    lines = [
        f"damaged: {printable(one['task_id'])} @{one['sequence']} {short_id(one['id'] or '')}: {printable(problem)}"
        for one in damaged
        for problem in one["problems"]
    ]
    return [*lines, f"{examined} examined, {len(damaged)} damaged"]
