"""What is done to a store while faults happen to it: all scenarios, by name. Each module has those of one subject."""

from __future__ import annotations

from tests.faults.scenarios import (
    branching,
    collecting,
    joining,
    migrating,
    removing,
    repairing,
    restoring,
    saving,
    sharing,
    staging,
    steering,
    stepping,
)
from tests.faults.scenarios.scenario import Scenario as Scenario

SCENARIOS = {
    **saving.SCENARIOS,
    **stepping.SCENARIOS,
    **restoring.SCENARIOS,
    **branching.SCENARIOS,
    **removing.SCENARIOS,
    **collecting.SCENARIOS,
    **migrating.SCENARIOS,
    **repairing.SCENARIOS,
    **sharing.SCENARIOS,
    **joining.SCENARIOS,
    **steering.SCENARIOS,
    **staging.SCENARIOS,
}
