"""trust: what a lastgood.toml may do that names what is outside its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_configuration(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_a_file_that_leads_out_needs_trust_once(run: Run, data: Run, folder: Path) -> None:
    """S1, S2"""
    (folder / "lastgood.toml").write_text('store = "../elsewhere"\n')
    refused = run("status", code=7).stderr
    assert f"hint: read it; `lastgood trust {folder / 'lastgood.toml'}` then allows it" in refused
    assert run("trust").stdout == f"trusted {folder / 'lastgood.toml'}, as it is now\n"
    assert data("status")["store"] == str(folder / "../elsewhere/catalog.sqlite")
    assert list(data("trust", "--list")["trusted"]) == [str(folder / "lastgood.toml")]
    (folder / "lastgood.toml").write_text('store = "../another"\n')
    run("status", code=7)
    assert data("trust", str(folder / "lastgood.toml"), "--remove") == {"removed": True}
    assert data("trust", "--remove") == {"removed": False}
    assert data("trust", "--list") == {"trusted": {}}


def test_nothing_to_trust_is_an_error(run: Run) -> None:
    run("trust", code=3)
    run("trust", "--list", "--remove", code=2)


def test_init_trusts_what_it_wrote(run: Run, folder: Path) -> None:
    run("init", "--store", "../elsewhere")
    run("save", "--set", "n=1")
    assert (folder / "../elsewhere/catalog.sqlite").exists()


def test_a_limit_is_kept_by_the_store_not_by_a_file(run: Run, data: Run, folder: Path) -> None:
    """S1: `max_bytes` in a cloned file made one save purge the checkpoints of an unrelated task."""
    import lastgood

    run("init")
    run("limit", "10G", "--dry-run", "--keep")
    with lastgood.open() as store:
        assert store.info().max_bytes is None
    run("limit", "10G", "--keep", "--yes")
    with lastgood.open() as store:
        assert store.info().max_bytes == 10 << 30
    (folder / "lastgood.toml").write_text("max_bytes = 1\n")
    assert "`lastgood limit SIZE --keep` sets it" in run("log", code=2).stderr
