"""Small records in transactions: the contract, and one package for each backend that keeps it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.catalog.contract import Catalog


def open_catalog(address: str | os.PathLike[str] | None, *, read_only: bool = False) -> Catalog:
    """Open the catalog at that address, made if there is none: the path of a SQLite file; None: one in memory.

    `read_only`: nothing is made or written, and nobody is waited for; UnavailableError where that is needed.
    """
    from lastgood.catalog.sqlite.catalog import SQLiteCatalog  # drivers are loaded when they are needed

    return SQLiteCatalog(None if address is None else Path(address), read_only=read_only)
