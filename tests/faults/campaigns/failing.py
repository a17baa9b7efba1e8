"""G3: a disk that reports an error, is full, or writes less than it was asked to: once, or from then on; and one that
takes nothing any more, as Linux makes it when it has failed.

What lastgood says must be an error of its own that names the disk, and the next run must find everything in order.
What one call could not do may be made good by another (a short write is completed, a draft is swept later): then there
is no error, and all that was acknowledged must be there.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.ledger import read_account
from tests.faults.prepared_scenario import PreparedScenario, open_scenario, tried
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import Fault, no_compiler

_NEVER = 1 << 40
_ERRORS = [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EROFS, True)]
_HONEST = {
    errno.EIO: {"unavailable", "store_away"},
    errno.ENOSPC: {"disk_full", "unavailable", "store_away"},
    errno.EROFS: {"unavailable", "store_away"},
    0: set[str](),
}
"""What may be said of each. That something is damaged, missing or in conflict would send people the wrong way."""
_EITHER = "disk_full", "there is no room to open the store, or its disk fails"
"""What is said where SQLite does not tell which: the code with this sentence, and no other."""


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_scenario(scenario, path=plan.path) as prepared:
        for fault in plan.choose(_points(prepared)):
            outcome = prepared.run(fault)
            surprise = [] if outcome.ended == "done" else [f"the worker {outcome.ended}: {outcome.error}"]
            found = [*surprise, *_dishonest(prepared, fault), *prepared.verify()]
            yield from tried(f"{scenario}, {fault}", outcome, found)


def _points(prepared: PreparedScenario) -> list[Fault]:
    prepared.run(Fault("short", _NEVER))
    writes = prepared.calls()
    prepared.run()
    calls = prepared.calls()
    errors = [Fault("fail", at, error, forever) for error, forever in _ERRORS for at in range(1, calls + 1)]
    return errors + [Fault("short", at, 0, forever) for forever in (False, True) for at in range(1, writes + 1)]


def _dishonest(prepared: PreparedScenario, fault: Fault) -> Iterator[str]:
    for said in read_account(prepared.sandbox.ledger).errors:
        if said["code"] not in _HONEST[fault.error] and (said["code"], said["sentence"]) != _EITHER:
            yield f"G3 at {said['operation']!r} it said {said['code']}: {said['sentence']}"


CAMPAIGN = Campaign(
    "failing",
    "G3",
    "a disk that fails is reported as such, and the next run is clean",
    tuple(SCENARIOS),
    run,
    no_compiler,
)
