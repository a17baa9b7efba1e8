"""Suites that every backend must pass; install lastgood and give them a factory."""

from __future__ import annotations

from lastgood.testing.catalog import CatalogConformance
from lastgood.testing.objects import ObjectStoreConformance

__all__ = ["CatalogConformance", "ObjectStoreConformance"]
