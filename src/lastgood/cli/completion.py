"""`lastgood completion`, and what a shell offers for arguments that name something in the store.

What cannot be read at once offers nothing. The store is opened so that nothing is written.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, NamedTuple

import click

from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import print_result, printable, shortened
from lastgood.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from click.shell_completion import CompletionItem

    from lastgood import Control, Store

MOST = 100
LONGEST_HELP = 60
MOST_DIGITS = 9
"""Of a sequence that is completed."""


@subcommand
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(call: Invocation, shell: str) -> None:
    """Print a script that makes Tab complete commands, options, and what is in the store: checkpoints, files, branches.

    In ~/.bashrc, or in ~/.zshrc after compinit: eval "$(lastgood completion bash)", or zsh.
    """
    from lastgood.cli.shells import script

    text = script(click.get_current_context().find_root().command, shell)
    print_result(call, {"shell": shell, "script": text}, [text])


class _Asked(NamedTuple):
    """What is to be completed: `typed` is the beginning of a word, `store` is open for reading."""

    ctx: click.Context
    call: Invocation
    store: Store
    typed: str

    @property
    def task(self) -> str:
        return self.ctx.params.get("work") or self.call.task_id()

    @property
    def control(self) -> Control:
        return self.store.task(self.task, owner=self.call.owner).control


def _completer(read: Callable[[_Asked], Iterable[str | tuple[str, str]]]) -> Callable[..., list[CompletionItem]]:
    """Make a function for `shell_complete` of what reads names, or names with a description."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        call = ctx.ensure_object(Invocation)
        found: list[CompletionItem] = []
        try:
            with call.open_to_read() as store:
                for one in read(_Asked(ctx, call, store, incomplete)):
                    name, text = one if isinstance(one, tuple) else (one, "")
                    if name.startswith(incomplete) and name.isprintable() and len(found) < MOST:
                        found.append(CompletionItem(name, help=shortened(printable(text), LONGEST_HELP) or None))
        except (CheckpointError, OSError):
            pass  # what was found before is offered
        return found

    return complete


def _checkpoints(asked: _Asked) -> Iterator[tuple[str, str]]:
    store, owner, task = asked.store, asked.call.owner, asked.task
    yield "HEAD", "the newest"
    yield "last-good", "the newest whose evidence holds"
    yield from ((name, f"@{at.sequence}") for name, at in store.tags(task, owner=owner).items())
    number = asked.typed[1:]
    if not number:
        yield from _sequences(asked, task, None, 0)
    elif asked.typed[0] == "@" and number.isdecimal():
        for more in range(MOST_DIGITS - len(number) + 1):
            yield from _sequences(asked, task, (int(number) + 1) * 10**more, int(number) * 10**more)


def _sequences(asked: _Asked, task: str, before: int | None, first: int) -> Iterator[tuple[str, str]]:
    for one in asked.store.page_checkpoints(task, MOST, before=before, owner=asked.call.owner).checkpoints:
        if one.sequence is not None and one.sequence >= first:
            yield f"@{one.sequence}", one.message if one.integrity_ok else "damaged"


def _files(asked: _Asked) -> Iterator[tuple[str, str] | str]:
    """Of CHECKPOINT:PATH."""
    name, colon, path = asked.typed.partition(":")
    if colon:
        yield from (f"{name}:{found}" for found in _paths(asked, name or "HEAD", path))
        return
    end = "" if asked.ctx.command.name == "ls" else ":"
    yield from ((f"{found}{end}", text) for found, text in _checkpoints(asked))


def _inside(asked: _Asked) -> Iterator[str]:
    """Of PATH beside CHECKPOINT. That of `restore` may be a pattern: what looks like one is not offered."""
    given, is_pattern = asked.ctx.params, asked.ctx.command.name == "restore"
    named = given.get("checkpoint") or given.get("file") or given.get("folder") or next(iter(asked.ctx.args), "HEAD")
    return (path for path in _paths(asked, named, asked.typed) if not (is_pattern and set(path) & set("*?[\\")))


def _paths(asked: _Asked, name: str, typed: str) -> Iterator[str]:
    """Yield what lies in the folder that the beginning of a path names, from the current folder; folders end with a
    slash."""
    call, above = asked.call, typed[: typed.rfind("/") + 1]
    checkpoint = asked.store.find_checkpoint(name, asked.task, owner=call.owner)
    for found in asked.store.list_files(checkpoint.id, call.in_workspace(above or "."), owner=call.owner):
        if found.kind != "left out":
            yield above + posixpath.basename(found.path) + ("/" if found.kind == "folder" else "")


def _artifacts(asked: _Asked) -> list[str]:
    head = asked.store.task(asked.task, owner=asked.call.owner).head
    found = [one for one in (head.artifacts if head else ()) if isinstance(one, dict)]
    return [str(one.get("name") or one.get("id")) for one in found]


complete_checkpoints = _completer(_checkpoints)
complete_files = _completer(_files)
complete_inside = _completer(_inside)
complete_tags = _completer(lambda asked: asked.store.tags(asked.task, owner=asked.call.owner))
complete_branches = _completer(
    lambda asked: [branch.name for branch in asked.store.branches(asked.task, owner=asked.call.owner)]
)
complete_tasks = _completer(lambda asked: [task.id for task in asked.store.tasks(owner=asked.call.owner)])
complete_artifacts = _completer(_artifacts)
complete_answers = _completer(lambda asked: (asked.control.question or {}).get("choices", []))
complete_steps = _completer(lambda asked: [one.id for one in asked.store.open_steps(asked.task)])
complete_requests = _completer(lambda asked: [one.id for one in asked.control.requests()])
