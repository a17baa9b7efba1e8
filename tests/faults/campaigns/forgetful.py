"""G3, modelled: a sync that fails, and a disk that has forgotten for good what it was to write.

After a failed fsync Linux takes the pages for written: a second one succeeds and brings nothing to the disk. So whoever
tries again must write again. Each sync of a run fails once; then the power fails, and what was acknowledged is looked
for. And each fails with all that follow it, so that only another process can write again, which has to know it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.campaigns.reorder import PARTS
from tests.faults.disk_model import Disk, all_lost, lay_out, surviving
from tests.faults.pool import Outcome
from tests.faults.prepared_scenario import PreparedScenario, open_scenario, tried
from tests.faults.shim import OWN_WORK, OWN_WORK_DONE, Fault, no_compiler
from tests.faults.trace import Call, Op, read_trace

_SYNCS = (Op.SYNC, Op.DATASYNC)


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_scenario(scenario, path=plan.path) as prepared:
        prepared.run(trace=True, with_data=True)
        for at in plan.choose(list(_syncs(read_trace(prepared.sandbox.trace)))):
            outcome = prepared.run(Fault("fail", at, errno.EIO), trace=True, with_data=True)
            yield from _cut_power(prepared, f"{scenario}, the sync of call {at} fails, then the power", outcome)
            outcome = prepared.run(Fault("syncs", at, errno.EIO, forever=True), trace=True, with_data=True)
            another = prepared.call("worker:save_again")
            name = f"{scenario}, each sync from call {at} fails, another process saves, then the power fails"
            yield from _cut_power(prepared, name, outcome, another)


def _syncs(calls: Iterable[Call]) -> Iterator[int]:
    """Those of the store: a program looks after its own files itself."""
    is_own = False
    for call in calls:
        if call.op == Op.MARK:
            is_own = (is_own and call.path != OWN_WORK_DONE) or call.path == OWN_WORK
        elif call.op in _SYNCS and not is_own:
            yield call.number


def _cut_power(prepared: PreparedScenario, name: str, outcome: Outcome, *others: Outcome) -> Iterator[Trial]:
    ended = [f"the worker {one.ended}: {one.error}" for one in (outcome, *others) if one.ended != "done"]
    _lose_what_was_not_synced(prepared)
    yield from tried(name, outcome, ended + prepared.verify("laid out"))


def _lose_what_was_not_synced(prepared: PreparedScenario) -> None:
    disk = Disk(prepared.sandbox.disk, prepared.sandbox.beginning())
    for call in read_trace(prepared.sandbox.trace):
        disk.follow(call)
    prepared.sandbox.clear()
    found = surviving(disk, all_lost)
    # What a restore had staged, and removed when it gave up, may come back: litter that is never captured.
    lay_out({path: thing for path, thing in found.items() if not path.endswith(".tmp")}, prepared.sandbox.disk)


CAMPAIGN = Campaign("forgetful", "G3", "a sync that failed is never taken for one that worked", PARTS, run, no_compiler)
