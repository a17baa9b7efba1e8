"""What every catalog must do, as tests. A backend's test file is a factory for it:

    class TestMyCatalog(CatalogConformance):
        def make_catalog(self) -> Catalog:
            return MyCatalog(...)

Works with pytest and needs nothing of it.
"""

from __future__ import annotations

from lastgood.testing.attestations import AttestationsConformance
from lastgood.testing.audit import AuditConformance
from lastgood.testing.branches import BranchesConformance
from lastgood.testing.collection import CollectionConformance
from lastgood.testing.commits import CommitsConformance
from lastgood.testing.deletion import DeletionConformance
from lastgood.testing.files import FilesConformance
from lastgood.testing.leases import LeasesConformance
from lastgood.testing.moves import MovesConformance
from lastgood.testing.requests import RequestsConformance
from lastgood.testing.steps import StepsConformance
from lastgood.testing.usage import UsageConformance


class CatalogConformance(
    CommitsConformance,
    BranchesConformance,
    MovesConformance,
    StepsConformance,
    LeasesConformance,
    RequestsConformance,
    AttestationsConformance,
    DeletionConformance,
    FilesConformance,
    UsageConformance,
    AuditConformance,
    CollectionConformance,
):
    """Inherit, and say with `make_catalog` how a fresh, empty catalog is made."""
