"""`lastgood init`, `lastgood trust`"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.invocation import Invocation, open_quietly, subcommand
from lastgood.cli.output import counting, print_result, printable, say, say_skipped
from lastgood.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from lastgood.local.location import (
    CONFIG,
    FOLDER,
    GIT_STORE,
    VARIABLE,
    Config,
    config_text,
    data_folder,
    default_task,
    find_config,
    find_config_file,
)
from lastgood.views.document import compose
from lastgood.views.workspace import why_no_workspace

if TYPE_CHECKING:
    from lastgood import Checkpoint

WORKSPACE = "."


@subcommand
@click.argument("path", default=".", type=click.Path(path_type=Path, readable=False))
@click.option("--here", is_flag=True, help="Put the store into the folder, also in a git repository.")
def init(call: Invocation, path: Path, here: bool) -> None:
    """Set up a store for the folder PATH: a lastgood.toml and the store that it names. The files that are there are
    saved as the first checkpoint.

    In a git repository the store is put into the git directory, where `git clean` leaves it alone; elsewhere into the
    folder. --store and --task are written into the file. Nothing that exists is overwritten.
    """
    if here and call.store is not None:
        raise InvalidError("--here and --store contradict each other", hint="give one of them")
    call.store = FOLDER if here else call.store
    path.mkdir(parents=True, exist_ok=True)
    folder = path.resolve()
    written = not (folder / CONFIG).exists()
    config = _wanted(call, folder) if written else _existing(call, folder)
    location = config.location()
    if location.catalog is None:
        raise InvalidError("a store in memory cannot be set up", hint="give --store a folder")
    created = not location.catalog.exists()
    with open_quietly(location.place, call.user) as store:
        store.info()  # refused where checkpoints wait for one that was there: they are that one's
        ignored = config.store != GIT_STORE and _keep_out_of_git(location.catalog.parent, folder)
        refused = why_no_workspace(store, str(folder)) if written else None
    if refused is not None:
        config = config._replace(workspace=None)
    if written:
        with (folder / CONFIG).open("x", encoding="utf-8") as file:
            file.write(_text(config))
        _trust_own(folder)
    first = None if config.workspace is None else _save_first(call, config, location.place)
    view = compose(
        config=str(folder / CONFIG),
        config_written=written,
        store=str(location.place),
        store_created=created,
        gitignore_written=ignored,
        task=default_task(config),
        workspace=config.workspace,
        checkpoint=None if first is None else first.id,
    )
    lines = [
        f"{'wrote' if written else 'kept'} {folder / CONFIG}",
        f"{'created' if created else 'kept'} {location.place}",
    ]
    if first is not None:
        lines.append(f"saved the files that are here as @{first.sequence}")
    print_result(call, view, lines)
    if first is not None:
        say_skipped(call, first, first.skipped)
    if config.store == GIT_STORE and created:
        instead = f"to have it in the folder instead, remove {CONFIG}, and run `lastgood init --here`"
        say(call, f"note: deleting .git deletes the store; {instead}")
    if refused is not None:
        say(call, f"note: {refused}, so files are not captured; `--workspace DIR` names another folder")
    if written and (above := find_config_file(folder.parent)) is not None:
        say(call, f"note: {above.path.parent} has a {CONFIG}, too; commands in this folder use the new one")
    _warn_of_variable(call)


def _trust_own(folder: Path) -> None:
    """Note what was written a moment ago as the user's own; trust it, where that is needed: who names a store has
    agreed to it."""
    from lastgood.local.trust import trust

    made = True
    try:
        find_config(folder)
    except ForbiddenError:
        made = False
    with suppress(InvalidError, NotFoundError):  # without a home nothing can be said; commands tell what needs it
        if (file := find_config_file(folder)) is not None:
            trust(file, made=made)


def _wanted(call: Invocation, folder: Path) -> Config:
    store = _usual_store(folder) if call.store is None else call.store
    if not store.isprintable():
        raise InvalidError("store has a line break or a control character", hint="give another path", field="store")
    return Config(folder, store, default_task(Config(folder, task=call.task)), WORKSPACE)


def _usual_store(folder: Path) -> str:
    """Return the store of a folder that is to have one: in a git repository in its git directory, as `git clean` would
    take it from the folder; where that cannot be written, the user's own store."""
    from lastgood.local.git import find_repository

    found = find_repository(folder)
    if found is None:
        return FOLDER
    return GIT_STORE if found.directory is not None and os.access(found.directory, os.W_OK) else str(data_folder())


def _save_first(call: Invocation, config: Config, target: Path | None) -> Checkpoint | None:
    """Save the folder as it is, so that nothing can be lost from now on; None: it is empty, or its task was saved."""
    own = {CONFIG, ".git", target.name if target is not None else ""}
    if {path.name for path in config.folder.iterdir()} <= own:
        return None
    with open_quietly(target, call.user) as store, counting(call, "saving"):
        task = store.task(default_task(config), workspace=config.folders())
        return None if task.head is not None else task.append({}, message="as `lastgood init` found it")


def _existing(call: Invocation, folder: Path) -> Config:
    config = find_config(folder)
    assert config is not None, "it was there a moment ago"
    for name, wanted, present in (("store", call.store, config.store), ("task", call.task, config.task)):
        if wanted is not None and wanted != present:
            says = f"says {name} = {present!r}" if present is not None else f"names no {name}"
            hint = "edit it, or remove it first: what was saved stays in the store that it names"
            raise ConflictError(f"{folder / CONFIG} is there already and {says}, not {wanted!r}", hint=hint)
    return config


def _text(config: Config) -> str:
    values = {"store": config.store, "task": config.task, "workspace": config.workspace}
    return config_text({name: value for name, value in values.items() if value is not None})


def _keep_out_of_git(store: Path, folder: Path) -> bool:
    """Write a .gitignore, only in a folder of the store's own, below the one that is set up."""
    ignore = store / ".gitignore"
    if folder not in store.parents or store.name == folder.name or ignore.exists():
        return False
    ignore.write_text("*\n", encoding="utf-8")
    return True


def _warn_of_variable(call: Invocation) -> None:
    if value := os.environ.get(VARIABLE):
        say(call, f"note: {VARIABLE} is set to {value} and wins over {CONFIG}")


@subcommand
@click.argument("path", default=".", type=click.Path(path_type=Path, readable=False))
@click.option("--list", "list_", is_flag=True, help="List what is trusted.")
@click.option("--remove", is_flag=True, help="Stop trusting it.")
def trust(call: Invocation, path: Path, list_: bool, remove: bool) -> None:
    """Trust the lastgood.toml of the folder PATH, or above it, as it is now: read it first.

    This is needed once for a file that names a store or a workspace outside its folder, or that others may write, and
    again when it has changed.
    """
    from lastgood.local import trust as own

    if list_ and remove:
        raise InvalidError("--list and --remove contradict each other", hint="give one of them")
    if list_:
        trusted = {path: what for path, what in own.read_trusted().items() if not what.startswith(own.MADE)}
        print_result(call, compose(trusted=trusted), [printable(file) for file in trusted])
        return
    file, folder = None, path.resolve()
    folder = folder.parent if folder.name == CONFIG else folder
    if not remove and (file := find_config_file(folder)) is None:
        raise NotFoundError(f"there is no {CONFIG} in {folder}, or above it", hint="`lastgood init` writes one")
    if file is not None:
        own.trust(file)
        print_result(call, compose(trusted=str(file.path)), [f"trusted {printable(str(file.path))}, as it is now"])
        return
    removed = own.forget(folder / CONFIG)
    said = f"{printable(str(folder / CONFIG))} is not trusted any more" if removed else "it was not trusted"
    print_result(call, compose(removed=removed), [said])
