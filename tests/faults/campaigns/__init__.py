"""Every campaign, by its name, in the order of the table."""

from __future__ import annotations

from tests.faults.campaign import Campaign
from tests.faults.campaigns import (
    crowd,
    damage,
    failing,
    forgetful,
    full,
    golden,
    kill,
    machine,
    ordering,
    planted,
    power,
    recovery,
    reorder,
)

_ORDER = (kill, power, reorder, failing, forgetful, recovery, ordering, damage, crowd, full, machine, golden, planted)

CAMPAIGNS: dict[str, Campaign] = {module.CAMPAIGN.name: module.CAMPAIGN for module in _ORDER}
