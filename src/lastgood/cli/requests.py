"""`lastgood requests`"""

from __future__ import annotations

import click

from lastgood.cli.asking import described, name_task, task_argument
from lastgood.cli.command import subcommand
from lastgood.cli.completing import complete_requests
from lastgood.cli.invocation import Invocation
from lastgood.cli.output import answer, fitted, json_text, local_time, printable, say, short_id, shortened, table
from lastgood.errors import InvalidError, NotFoundError
from lastgood.model.identity import moment
from lastgood.model.request import Request

PREVIEW = 200


@subcommand
@task_argument()
@click.option(
    "--withdraw", metavar="ID", shell_complete=complete_requests, help="Take one back; an id, or its beginning."
)
def command(call: Invocation, work: str | None, withdraw: str | None) -> None:
    """List what was asked of work and is not done yet, oldest first; or take it back."""
    name = name_task(call, work)
    with call.open_to_work() as store:
        control = store.task(name, owner=call.owner).control
        found = control.requests()
        if withdraw is None:
            rows = [request_row(request) for request in found]
            head = ("id", "request", "time", "by", "about")
            data = {"requests": [described(request) for request in found]}
            answer(call, data, map(fitted, table(rows, head) if rows else []))
            if not rows:
                say(call, "nothing is asked of it")
            elif control.lease is None:
                say(call, "nobody is running the work: it is done when someone does")
            return
        chosen = _chosen(found, withdraw)
        control.withdraw(chosen.id)
        ended = control.follow(chosen.id) or chosen
    answer(call, {"withdrawn": described(ended)}, [f"{chosen.kind} is not asked for any more ({chosen.id})"])


def request_row(request: Request) -> list[str]:
    about = ", ".join(f"{name}={json_text(value)}" for name, value in request.data.items() if value not in (None, ""))
    when = local_time(moment(request.at))
    return [short_id(request.id), request.kind, when, printable(request.actor), shortened(about, PREVIEW)]


def _chosen(requests: list[Request], name: str) -> Request:
    found = [request for request in requests if request.id.startswith(name)] if name else []
    exact = [request for request in found if request.id == name]
    if not found:
        raise NotFoundError(f"there is no open request {name!r}", hint="`lastgood requests` lists them")
    if len(found) > 1 and not exact:
        raise InvalidError(f"several open requests begin with {name!r}", hint="give more characters")
    return (exact or found)[0]
