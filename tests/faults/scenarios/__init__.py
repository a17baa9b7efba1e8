"""What is done to a store while faults happen to it: all scenarios, by name. Each module has those of one subject."""

from __future__ import annotations

from tests.faults.scenarios import (
    backup,
    branches,
    collection,
    databases,
    deletion,
    host,
    migration,
    other_process,
    pipeline,
    repair,
    restore,
    save,
    session,
    spool,
    steps,
    threads,
)
from tests.faults.scenarios.scenario import Scenario as Scenario

SCENARIOS = {
    **save.SCENARIOS,
    **steps.SCENARIOS,
    **restore.SCENARIOS,
    **databases.SCENARIOS,
    **branches.SCENARIOS,
    **host.SCENARIOS,
    **deletion.SCENARIOS,
    **collection.SCENARIOS,
    **backup.SCENARIOS,
    **migration.SCENARIOS,
    **repair.SCENARIOS,
    **other_process.SCENARIOS,
    **threads.SCENARIOS,
    **session.SCENARIOS,
    **pipeline.SCENARIOS,
    **spool.SCENARIOS,
}
