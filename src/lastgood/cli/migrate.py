"""`lastgood migrate`"""

from __future__ import annotations

from lastgood.catalog.sqlite.connection import open_connection
from lastgood.catalog.sqlite.migration import migrations
from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer


@subcommand
def command(call: Invocation) -> None:
    """Bring the store to the newest format that this version writes. Opening a store does that, too."""
    place = call.locate().catalog
    before = int(open_connection(place).pragma("user_version")) if place is not None and place.exists() else 0
    with call.open() as store:
        info = store.info()
    applied = [one.name for one in migrations() if before < one.number <= info.migration]
    lines = [f"applied {name}" for name in applied] or ["nothing was pending"]
    answer(call, {"format": info.format, "applied": applied}, [*lines, f"the store has format {info.format}"])
