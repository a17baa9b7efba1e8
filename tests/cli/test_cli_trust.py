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


def _arrive(folder: Path) -> Path:
    """Put a store into the folder that this user has not set up, as an archive brings it."""
    import lastgood

    with lastgood.open(folder / ".lastgood") as store:
        store.task("work", workspace=folder).save({})
    (folder / ".lastgood/objects").mkdir(exist_ok=True)
    return folder / ".lastgood"


@pytest.mark.parametrize("part", ["objects/.drafts", "catalog.sqlite-lock", ".gitignore"])
def test_init_follows_no_link_of_a_store_that_was_there(run: Run, folder: Path, tmp_path: Path, part: str) -> None:
    (tmp_path / "private").mkdir()
    store = _arrive(folder)
    (store / part).unlink(missing_ok=True)
    (store / part).symlink_to(tmp_path / "private" / ("file" if part == ".gitignore" else ""))
    if part == ".gitignore":
        run("init")
    else:
        hint = "remove it; if you made it yourself, `lastgood init --store .lastgood` uses it"
        assert f"hint: {hint}" in run("init", code=7).stderr
        assert not (folder / "lastgood.toml").exists()
    assert list((tmp_path / "private").iterdir()) == []


def test_init_writes_nothing_through_a_link_in_the_place_of_the_store(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (folder / ".lastgood").symlink_to("../project")
    run("init", code=7)
    assert list((tmp_path / "project").iterdir()) == []
    run("init", "--store", ".lastgood")
    run("status")


def test_a_store_that_was_there_stays_confined_until_it_is_trusted(run: Run, folder: Path, tmp_path: Path) -> None:
    from lastgood.local.location import locate

    _arrive(folder)
    assert f"hint: if you made it yourself, run `lastgood trust {folder}`" in run("init").stderr
    assert locate().is_confined()
    run("trust")
    assert not locate().is_confined()


def test_init_keeps_the_store_that_it_made_before(run: Run, folder: Path) -> None:
    from lastgood.local.location import locate

    run("init")
    (folder / "lastgood.toml").unlink()
    assert run("init").stderr == ""
    assert not locate().is_confined()
    (folder / "lastgood.toml").unlink()
    (folder / ".lastgood/objects").mkdir(exist_ok=True)
    (folder / ".lastgood/objects/.drafts").symlink_to("../../..")
    run("init", code=7)


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
