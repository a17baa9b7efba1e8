"""Making a new store: what must be on disk before the first save is acknowledged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lastgood


def test_the_folders_that_lead_to_a_new_store_are_synced_before_its_catalog_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power loss would take the store away with all that was acknowledged."""
    synced: list[tuple[int, bool]] = []
    store = tmp_path / "made" / "deep" / "store"
    really = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (store / "catalog.sqlite").exists()))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    lastgood.open(store).close()

    for folder in (store.parent, store.parent.parent, tmp_path):
        assert (folder.stat().st_ino, False) in synced
    assert (store.stat().st_ino, True) in synced
