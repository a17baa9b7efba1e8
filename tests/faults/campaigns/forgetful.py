"""G3, modelled: a sync that fails, and a disk that has forgotten for good what it was to write.

After a failed fsync Linux takes the pages for written: a second one succeeds and brings nothing to the disk. So whoever
tries again must write again. Each sync of a play fails once; then the power fails, and what was acknowledged is looked
for. And each fails with all that follow it, so that only another process can write again, which has to know it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.campaigns.reorder import PARTS
from tests.faults.remains import Disk, all_lost, lay_out, remains
from tests.faults.shim import OWN_WORK, OWN_WORK_DONE, Fault, no_compiler
from tests.faults.stage import Stage, open_stage, tried
from tests.faults.trace import Call, Op, read_trace
from tests.faults.troupe import Outcome

_SYNCS = (Op.SYNC, Op.DATASYNC)


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_stage(scenario, path=plan.path) as stage:
        stage.play(trace=True, with_data=True)
        for at in plan.choose(list(_syncs(read_trace(stage.world.trace)))):
            played = stage.play(Fault("fail", at, errno.EIO), trace=True, with_data=True)
            yield from _cut_power(stage, f"{scenario}, the sync of call {at} fails, then the power", played)
            played = stage.play(Fault("syncs", at, errno.EIO, forever=True), trace=True, with_data=True)
            another = stage.run("acting:save_again")
            name = f"{scenario}, each sync from call {at} fails, another process saves, then the power fails"
            yield from _cut_power(stage, name, played, another)


def _syncs(calls: Iterable[Call]) -> Iterator[int]:
    """Those of the store: a program looks after its own files itself."""
    is_own = False
    for call in calls:
        if call.op == Op.MARK:
            is_own = (is_own and call.path != OWN_WORK_DONE) or call.path == OWN_WORK
        elif call.op in _SYNCS and not is_own:
            yield call.number


def _cut_power(stage: Stage, name: str, played: Outcome, *others: Outcome) -> Iterator[Trial]:
    ended = [f"the actor {one.ended}: {one.error}" for one in (played, *others) if one.ended != "done"]
    _lose_what_was_not_synced(stage)
    yield from tried(name, played, ended + stage.verify())


def _lose_what_was_not_synced(stage: Stage) -> None:
    disk = Disk(stage.world.disk, stage.world.beginning())
    for call in read_trace(stage.world.trace):
        disk.follow(call)
    stage.world.clear()
    found = remains(disk, all_lost)
    # What a restore had staged, and removed when it gave up, may come back: litter that is never captured.
    lay_out({path: thing for path, thing in found.items() if not path.endswith(".tmp")}, stage.world.disk)


CAMPAIGN = Campaign("forgetful", "G3", "a sync that failed is never taken for one that worked", PARTS, run, no_compiler)
