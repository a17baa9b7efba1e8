"""What a shell offers for arguments that name something in the store. What cannot be read offers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.cli.invocation import Invocation
from lastgood.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    import click

    from lastgood.store import Store
    from lastgood.work.control import Control

MOST = 100


def complete_tasks(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of tasks, newest first."""
    return _from_store(ctx, incomplete, lambda call, store: [task.id for task in store.tasks(owner=call.owner)])


def complete_artifacts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the artifacts of the task before it."""
    return _from_store(ctx, incomplete, lambda call, store: _artifacts(store, _task(ctx, call), call.owner))


def complete_answers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What the task before it lets one choose from."""
    return _from_store(
        ctx, incomplete, lambda call, store: (_control(ctx, call, store).question or {}).get("choices", [])
    )


def complete_requests(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of open requests."""
    return _from_store(ctx, incomplete, lambda call, store: [one.id for one in _control(ctx, call, store).requests()])


def _from_store(ctx: click.Context, incomplete: str, read: Callable[[Invocation, Store], list[str]]) -> list[str]:
    call = ctx.ensure_object(Invocation)
    try:
        with call.open() as store:
            found = read(call, store)
    except (CheckpointError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete) and name.isprintable()][:MOST]


def _task(ctx: click.Context, call: Invocation) -> str:
    return ctx.params.get("work") or call.task_id()


def _control(ctx: click.Context, call: Invocation, store: Store) -> Control:
    return store.task(_task(ctx, call), owner=call.owner).control


def _artifacts(store: Store, task: str, owner: str | None) -> list[str]:
    head = store.task(task, owner=owner).head
    found = [one for one in (head.artifacts if head else ()) if isinstance(one, dict)]
    return [str(one.get("name") or one.get("id")) for one in found]
