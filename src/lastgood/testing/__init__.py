"""Suites that every backend must pass, as tests. A backend's test file is a factory for one:

    class TestMyCatalog(CatalogConformance):
        def make_catalog(self) -> Catalog:
            return MyCatalog(...)

Works with pytest and needs nothing of it.
"""

from __future__ import annotations

from lastgood.testing.branches import BranchesConformance, MovesConformance
from lastgood.testing.collection import CollectionConformance
from lastgood.testing.folders import FoldersConformance
from lastgood.testing.objects import ObjectStoreConformance
from lastgood.testing.records import AttestationsConformance, CommitsConformance, DeletionConformance
from lastgood.testing.upkeep import AuditConformance, UsageConformance
from lastgood.testing.work import LeasesConformance, RequestsConformance, StepsConformance

__all__ = ["CatalogConformance", "ObjectStoreConformance"]


class CatalogConformance(
    CommitsConformance,
    BranchesConformance,
    MovesConformance,
    StepsConformance,
    LeasesConformance,
    RequestsConformance,
    AttestationsConformance,
    DeletionConformance,
    FoldersConformance,
    UsageConformance,
    AuditConformance,
    CollectionConformance,
):
    """A suite to inherit: `make_catalog` makes a fresh, empty catalog."""
