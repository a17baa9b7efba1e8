"""`lastgood init`"""

from __future__ import annotations

import os
from pathlib import Path

import click

from lastgood.cli.invocation import Invocation, open_quietly, subcommand
from lastgood.cli.output import print_result, say
from lastgood.errors import ConflictError, InvalidError
from lastgood.local.location import CONFIG, FOLDER, VARIABLE, Config, config_text, find_config, locate
from lastgood.model.identity import check_name
from lastgood.views.document import compose
from lastgood.views.workspace import why_no_workspace

WORKSPACE = "."


@subcommand
@click.argument("path", default=".", type=click.Path(path_type=Path))
def init(call: Invocation, path: Path) -> None:
    """Set up a store in the folder PATH: a lastgood.toml and the store that it names. Its files are captured.

    --store and --task are written into it. What is there already is left as it is.
    """
    path.mkdir(parents=True, exist_ok=True)
    folder = path.resolve()
    written = not (folder / CONFIG).exists()
    config = _wanted(call, folder) if written else _existing(call, folder)
    if locate(config.store).catalog is None:
        raise InvalidError("a store in memory cannot be set up", hint="give --store a folder")
    target = folder / Path(config.store).expanduser()
    location = locate(target)
    assert location.catalog is not None, "a path is never in memory"
    created = not location.catalog.exists()
    with open_quietly(target, call.user) as store:
        store.info()  # refused where checkpoints wait for one that was there: they are that one's
        ignored = _keep_out_of_git(location.catalog.parent, folder)
        refused = why_no_workspace(store, str(folder)) if written else None
    if refused is not None:
        config = config._replace(workspace=None)
    if written:
        with (folder / CONFIG).open("x", encoding="utf-8") as file:
            file.write(_text(config))
    view = compose(
        config=str(folder / CONFIG),
        config_written=written,
        store=str(location.place),
        store_created=created,
        gitignore_written=ignored,
        task=config.task,
        workspace=config.workspace,
    )
    lines = [
        f"{'wrote' if written else 'kept '} {folder / CONFIG}",
        f"{'created' if created else 'kept '} {location.place}",
    ]
    print_result(call, view, lines)
    if refused is not None:
        say(call, f"note: {refused}, so files are not captured; `--workspace DIR` names another folder")
    _warn_of_variable(call)


def _wanted(call: Invocation, folder: Path) -> Config:
    store = FOLDER if call.store is None else call.store
    if not store.isprintable():
        raise InvalidError("store has a line break or a control character", hint="give another path", field="store")
    return Config(folder, store, None if call.task is None else check_name("task", call.task), WORKSPACE)


def _existing(call: Invocation, folder: Path) -> Config:
    config = find_config(folder)
    assert config is not None, "it was there a moment ago"
    for name, wanted, present in (("store", call.store, config.store), ("task", call.task, config.task)):
        if wanted is not None and wanted != present:
            says = f"says {name} = {present!r}" if present is not None else f"names no {name}"
            raise ConflictError(
                f"{folder / CONFIG} is there already and {says}, not {wanted!r}", hint="edit it, or remove it first"
            )
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
