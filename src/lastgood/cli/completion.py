"""`lastgood completion`, and what a shell offers for arguments that name something in the store.

What cannot be read offers nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import print_result
from lastgood.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lastgood import Control, Store

MOST = 100


@subcommand
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(call: Invocation, shell: str) -> None:
    """Print the completion script of SHELL; `eval "$(lastgood completion bash)"` turns it on."""
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, "click knows all three"
    root = click.get_current_context().find_root().command
    script = complete(root, {}, "lastgood", "_LASTGOOD_COMPLETE").source()
    print_result(call, {"shell": shell, "script": script}, [script])


def _task(ctx: click.Context, call: Invocation) -> str:
    return ctx.params.get("work") or call.task_id()


def _control(ctx: click.Context, call: Invocation, store: Store) -> Control:
    return store.task(_task(ctx, call), owner=call.owner).control


def _artifacts(store: Store, task: str, owner: str | None) -> list[str]:
    head = store.task(task, owner=owner).head
    found = [one for one in (head.artifacts if head else ()) if isinstance(one, dict)]
    return [str(one.get("name") or one.get("id")) for one in found]


def _completer(read: Callable[[click.Context, Invocation, Store], list[str]]) -> Callable[..., list[str]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        call = ctx.ensure_object(Invocation)
        try:
            with call.open() as store:
                found = read(ctx, call, store)
        except (CheckpointError, OSError):
            return []
        return [name for name in found if name.startswith(incomplete) and name.isprintable()][:MOST]

    return complete


complete_tasks = _completer(lambda ctx, call, store: [task.id for task in store.tasks(owner=call.owner)])
complete_artifacts = _completer(lambda ctx, call, store: _artifacts(store, _task(ctx, call), call.owner))
complete_answers = _completer(lambda ctx, call, store: (_control(ctx, call, store).question or {}).get("choices", []))
complete_requests = _completer(lambda ctx, call, store: [one.id for one in _control(ctx, call, store).requests()])
