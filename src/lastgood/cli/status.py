"""`lastgood status`"""

from __future__ import annotations

from typing import Any

from lastgood.cli.command import subcommand
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, local_time, printable, short_id, size_text
from lastgood.cli.summary import moment_text, summary
from lastgood.engine.checkpoint import Checkpoint
from lastgood.model.identity import moment


@subcommand
def command(call: Invocation) -> None:
    """Say where the store is and how it was found, and where the task stands."""
    location = call.locate()
    data: dict[str, Any] = {
        "store": ":memory:" if location.catalog is None else str(location.catalog),
        "found_by": location.found_by,
        "exists": location.catalog is not None and location.catalog.exists(),
        "task": call.task_id(),
        "format": None,
        "store_id": None,
        "created_at": None,
        "size": None,
        "checkpoints": 0,
        "head": None,
    }
    head: Checkpoint | None = None
    if data["exists"]:
        with call.open() as store:
            info = store.info()
            task = store.catalog.task(call.owner or store.user, data["task"])
            head = store.task(data["task"], owner=call.owner).head
            data |= {
                "format": info.format,
                "store_id": info.id,
                "created_at": moment_text(moment(info.created_at)),
                "size": store.size(),
                "checkpoints": task.checkpoints if task else 0,
                "head": summary(head) if head else None,
            }
    answer(call, data, _lines(data, head))


def _lines(data: dict[str, Any], head: Checkpoint | None) -> list[str]:
    fields = {"store": data["store"], "found by": data["found_by"]}
    if not data["exists"]:
        fields["state"] = "not there yet; the first save makes it"
    else:
        fields |= {"format": data["format"], "size": size_text(data["size"])}
    fields["task"] = data["task"]
    if head is not None:
        when = local_time(head.created_at)
        fields["head"] = f"@{head.sequence} {short_id(head.id)} {when} {head.message.partition(chr(10))[0]}"
    fields["checkpoints"] = str(data["checkpoints"])
    return [f"{name:<12} {printable(value)}" for name, value in fields.items()]
