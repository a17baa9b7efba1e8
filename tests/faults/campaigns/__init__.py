"""Every campaign, by its name, in the order of the table."""

from __future__ import annotations

from tests.faults.campaign import Campaign
from tests.faults.campaigns import (
    crowd,
    damage,
    failing,
    full,
    kill,
    machine,
    ordering,
    planted,
    power,
    recovery,
    reorder,
)

_ORDER = (kill, power, reorder, failing, recovery, ordering, damage, crowd, full, machine, planted)

CAMPAIGNS: dict[str, Campaign] = {module.CAMPAIGN.name: module.CAMPAIGN for module in _ORDER}
