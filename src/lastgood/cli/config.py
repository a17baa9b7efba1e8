"""`lastgood config`"""

from __future__ import annotations

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, table
from lastgood.engine.context import operating_system_user
from lastgood.engine.location import CONFIG, find_config


@subcommand
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
    }
    data = {name: {"value": value, "source": source} for name, (value, source) in values.items()}
    rows = [[name, printable(value), printable(source)] for name, (value, source) in values.items()]
    answer(call, data, table(rows, ("name", "value", "source")))


def _task_source(call: Invocation) -> str:
    if call.task is not None:
        return "--task"
    config = find_config()
    if config is None:
        return "name of the folder"
    return str(config.folder / CONFIG) if config.task is not None else f"name of the folder of {CONFIG}"
