"""Suites that every backend must pass, as tests. A backend's test file is a factory for one:

    class TestMyCatalog(CatalogConformance):
        def make_catalog(self) -> Catalog:
            return MyCatalog(...)

Works with pytest and needs nothing of it.
"""

from __future__ import annotations

from lastgood.testing.branches import BranchesConformance
from lastgood.testing.collection import CollectionConformance
from lastgood.testing.folders import FoldersConformance
from lastgood.testing.objects import ObjectStoreConformance
from lastgood.testing.records import RecordsConformance
from lastgood.testing.upkeep import AuditConformance
from lastgood.testing.work import WorkConformance

__all__ = ["CatalogConformance", "ObjectStoreConformance"]


class CatalogConformance(
    RecordsConformance,
    BranchesConformance,
    WorkConformance,
    FoldersConformance,
    AuditConformance,
    CollectionConformance,
):
    """A suite to inherit: `make_catalog` makes a fresh, empty catalog."""
