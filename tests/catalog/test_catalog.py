"""The SQLite catalog keeps the contract, on disk and in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lastgood.catalog.contract import Catalog
from lastgood.catalog.sqlite.catalog import SQLiteCatalog
from lastgood.testing import CatalogConformance


class TestSQLiteFile(CatalogConformance):
    def make_catalog(self) -> Catalog:
        return SQLiteCatalog(Path(tempfile.mkdtemp()) / "catalog.sqlite")

    def test_what_was_acknowledged_is_there_when_it_is_opened_again(self) -> None:
        folder = Path(tempfile.mkdtemp())
        self.catalog.close()
        self.catalog = SQLiteCatalog(folder / "catalog.sqlite")
        made = self.chain(3)
        self.catalog.close()
        self.catalog = SQLiteCatalog(folder / "catalog.sqlite")
        assert self.listed(self.whole()) == [row.id for row in reversed(made)]


class TestSQLiteMemory(CatalogConformance):
    def make_catalog(self) -> Catalog:
        return SQLiteCatalog(None)
