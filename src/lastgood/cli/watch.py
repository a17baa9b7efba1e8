"""`lastgood watch`"""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NoReturn

import click

from lastgood.cli.invocation import Invocation, subcommand
from lastgood.cli.output import counted, counting, path_text, print_result, say
from lastgood.errors import CheckpointError, InvalidError, UnavailableError
from lastgood.views.workspace import open_workspace

if TYPE_CHECKING:
    from lastgood import Store
    from lastgood.engine.workspace import Workspace
    from lastgood.files.roots import Root


@subcommand
@click.argument("folder", required=False, metavar="[DIR]")
def watch(call: Invocation, folder: str | None) -> None:
    """Watch DIR (default: the workspace of lastgood.toml) until Ctrl-C or SIGTERM.

    Meanwhile saves, and whatever else captures files into this store, look only at what changed. They are right
    without, too: in doubt they look at everything.
    """
    from lastgood.files.watch_server import WatchServer

    folders = folder if folder is not None else call.folders()
    if folders is None:
        raise InvalidError("there is no workspace to watch", hint="give a folder: `lastgood watch DIR`")
    if call.locate().catalog is None:
        raise InvalidError("a store in memory is this process's alone", hint="give --store a folder")
    with ExitStack() as stack:
        with call.open_to_work() as store:
            workspace = open_workspace(store, folders)
            places = [(root, workspace.watch_address(root)) for root in workspace.roots]
            server = stack.enter_context(WatchServer(places, on_failure=lambda root: _say_given_up(call, root)))
            _read_once(call, store, workspace)
        with suppress(KeyboardInterrupt):
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, _end))
            if watched := server.counts():
                _announce(call, watched)
            server.join()
            raise UnavailableError(
                "no folder is watched any more",
                hint="fs.inotify.max_user_watches, and max_user_instances, say how many may be; `sysctl` raises them",
            )


def _read_once(call: Invocation, store: Store, workspace: Workspace) -> None:
    """Read the files as the next save will find them. Where that cannot be done, that save will read them."""
    with suppress(CheckpointError), counting(call, "looking at files"):
        head = store.task(call.task_id(), owner=call.owner).head
        if head is not None and head.record.files is not None:
            workspace.capture(head)


def _announce(call: Invocation, watched: dict[Root, int]) -> None:
    folders = [{"name": root.name, "path": root.path, "watched": count} for root, count in watched.items()]
    print_result(call, {"folders": folders}, [_sentence(root, count) for root, count in watched.items()])


def _sentence(root: Root, count: int) -> str:
    path = path_text(root.path)
    if not count:
        return f"watching {path}; saves look only at what changed once one has looked at everything. Ctrl-C ends it."
    return f"watching {counted(count, 'folder')} of {path}; saves look only at what changed. Ctrl-C ends it."


def _say_given_up(call: Invocation, root: Root) -> None:
    say(
        call,
        f"note: {path_text(root.path)} is not watched any more, it would take more than fs.inotify.max_user_watches "
        "(or max_user_instances) allows; saves look at all of its files",
    )


def _end(*_: object) -> NoReturn:
    raise KeyboardInterrupt
