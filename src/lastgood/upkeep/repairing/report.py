"""What a repair did, or would do."""

from __future__ import annotations

import msgspec

from lastgood.upkeep.checking.report import CheckReport, Code, Finding


class Mended(msgspec.Struct, frozen=True):
    """Something that is whole again, and how. `name` as in a finding."""

    code: Code
    name: str
    sentence: str


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """`accepted`: how many lost commits were given up. `lost`: what could not be mended, with the checkpoints and paths
    that need it; these are refused. `quarantine`: the folder that has a copy of all that was changed.

    `check` is how the store is now; of a dry run, how it was found.
    """

    dry_run: bool
    accepted: int
    mended: tuple[Mended, ...]
    lost: tuple[Finding, ...]
    check: CheckReport
    quarantine: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing is damaged any more."""
        return not self.lost
