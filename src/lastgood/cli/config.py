"""`lastgood config`"""

from __future__ import annotations

from typing import Any

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, table
from lastgood.local.location import CONFIG, find_config
from lastgood.observe.log import operating_system_user


@subcommand
@workspace_options
def command(call: Invocation) -> None:
    """Show the configuration that holds here, and where each value comes from."""
    location = call.locate()
    user = call.user or operating_system_user()
    values = {
        "store": (
            ":memory:" if location.catalog is None else str(location.catalog),
            "--store" if call.store is not None else location.found_by,
        ),
        "task": (call.task_id(), _task_source(call)),
        "user": (user, "--user" if call.user is not None else "operating system"),
        "owner": (call.owner or user, "--owner" if call.owner is not None else "user"),
        "workspace": (_folders_text(call), _workspace_source(call)),
    }
    data: dict[str, Any] = {name: {"value": value, "source": source} for name, (value, source) in values.items()}
    data["workspace"]["value"] = call.folders()
    rows = [[name, printable(value), printable(source)] for name, (value, source) in values.items()]
    answer(call, data, table(rows, ("name", "value", "source")))


def _folders_text(call: Invocation) -> str:
    folders = call.folders()
    if isinstance(folders, dict):
        return ", ".join(f"{name}={path}" for name, path in folders.items())
    return folders or "none"


def _workspace_source(call: Invocation) -> str:
    if call.no_files:
        return "--no-files"
    if call.workspace:
        return "--workspace"
    config = find_config()
    return str(config.folder / CONFIG) if config is not None and config.workspace is not None else "nothing names one"


def _task_source(call: Invocation) -> str:
    if call.task is not None:
        return "--task"
    config = find_config()
    if config is None:
        return "name of the folder"
    return str(config.folder / CONFIG) if config.task is not None else f"name of the folder of {CONFIG}"
