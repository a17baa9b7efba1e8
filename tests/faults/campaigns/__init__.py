"""Every campaign, by its name, in the order of the table."""

from __future__ import annotations

from tests.faults.campaign import Campaign
from tests.faults.campaigns import failing, kill, planted, recovery

CAMPAIGNS: dict[str, Campaign] = {
    campaign.name: campaign for campaign in (kill.CAMPAIGN, failing.CAMPAIGN, recovery.CAMPAIGN, planted.CAMPAIGN)
}
