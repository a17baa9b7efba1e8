"""`lastgood status`"""

from __future__ import annotations

from typing import Any

from lastgood.cli.command import subcommand, workspace_options
from lastgood.cli.drift import Drift, look_at_files
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, printable, size_text
from lastgood.cli.spool import figures_data, in_words
from lastgood.cli.standing import Standing, look_at_work
from lastgood.cli.summary import line, moment_text, summary
from lastgood.engine.recovery import Recovery
from lastgood.model.identity import moment
from lastgood.store import Store


@subcommand
@workspace_options
def command(call: Invocation) -> None:
    """Say where the store is and how it was found, where the task stands, what was interrupted, and what to do.

    With a workspace: which branch's files lie there, and what changed in them since the last checkpoint.
    """
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
        "branch": None,
        "branches": 0,
        "checkpoints": 0,
        "head": None,
        "last_good": None,
        "steps": [],
        "control_state": None,
        "worker": None,
        "question": None,
        "requests": [],
        "progress": None,
        "workspace": None,
        "spool": None,
        "advice": [],
    }
    found: Recovery | None = None
    here: Drift | None = None
    work: Standing | None = None
    waiting: str | None = None
    if data["exists"] or (location.catalog is not None and call.keeps_spool(location.catalog)):
        with call.open_to_work() as store:
            found = store.recovery(data["task"], owner=call.owner)
            data["spool"] = figures_data(figures := store.spool_figures())
            waiting = in_words(figures)
            data |= _facts(call, store, data["task"], found) if found.away is None else _few_facts(found)
            if found.head is not None and found.away is None:
                work = look_at_work(store, data["task"], found.owner, found.head)
                data |= work.described()
                data["advice"] += work.advice()
            here = look_at_files(call, store, found.head) if found.away is None else None
            data["workspace"] = here and here.described()
            data["advice"] += here.advice() if here else []
    answer(call, data, _lines(call, data, found, work, here, waiting))


def _facts(call: Invocation, store: Store, task_id: str, found: Recovery) -> dict[str, Any]:
    from lastgood.cli.steps import described

    info = store.info()
    position = store.catalog.position(call.owner or store.user, task_id)
    branches = store.branches(task_id, owner=call.owner) if position else []
    return {
        "format": info.format,
        "store_id": info.id,
        "created_at": moment_text(moment(info.created_at)),
        "size": store.size(),
        "branch": {"id": position.branch.id, "name": position.branch.name} if position else None,
        "branches": sum(not branch.deleted for branch in branches),
        "checkpoints": position.task.checkpoints if position else 0,
        "head": summary(found.head) if found.head else None,
        "last_good": found.last_good.id if found.last_good else None,
        "steps": [described(step) for step in (*found.interrupted, *found.running)],
        "advice": list(found.advice),
    }


def _few_facts(found: Recovery) -> dict[str, Any]:
    """What can be told of a store that is away."""
    return {
        "head": summary(found.head) if found.head else None,
        "last_good": found.last_good.id if found.last_good else None,
        "advice": list(found.advice),
    }


def _lines(
    call: Invocation,
    data: dict[str, Any],
    found: Recovery | None,
    work: Standing | None,
    here: Drift | None,
    waiting: str | None,
) -> list[str]:
    fields = [("store", data["store"]), ("found by", data["found_by"])]
    if found is None:
        makes = "the first save" if call.locate().config is None else "`lastgood init`"
        fields.append(("state", f"not there; {makes} makes a new one"))
    elif found.away is None:
        fields += [("format", data["format"]), ("size", size_text(data["size"]))]
    fields.append(("task", data["task"]))
    if data["branch"] is not None:
        more = f" (one of {data['branches']})" if data["branches"] > 1 else ""
        fields.append(("branch", data["branch"]["name"] + more))
    if found is not None and found.head is not None:
        fields.append(("head", line(found.head) if found.head.integrity_ok else f"{found.head.id} (damaged)"))
        if found.last_good is not None and found.last_good.id != found.head.id:
            fields.append(("last good", line(found.last_good)))
    fields.append(("checkpoints", str(data["checkpoints"])))
    fields += work.fields() if work else []
    fields += [("open step", f"{step['name']}: {step['process']}") for step in data["steps"]]
    fields += [("spool", waiting)] if waiting else []
    fields += here.fields() if here else []
    fields += [("advice", said) for said in data["advice"]]
    return [f"{name:<12} {printable(value)}" for name, value in fields]
