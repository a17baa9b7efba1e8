"""A folder that was cloned, with whatever `lastgood.toml` and links somebody put there: no command of its user reads,
writes or deletes anything outside of it (S1, S2; G14)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.file_trees import QUICK

import lastgood
from lastgood.cli.app import app

pytestmark = pytest.mark.once

CANARY = "canary-outside"
"""The name of each file that nobody may open."""
PARTS = ["..", ".", "in", "link", "deep", ".git", "outside", "store", ".lastgood", "~", "home", "", "x.sqlite"]
LINKS = ["link", "in/link", ".lastgood", ".lastgood/objects", "store"]
ABSOLUTE = ["@/outside", "@/outside/store", "@/home/.local/share/lastgood", "s3://b/x"]
COMMANDS = [["save", "-m", "one"], ["status"], ["log"], ["restore", "HEAD", "--yes"], ["collect"]]

_paths = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join)
_texts = _paths | st.sampled_from(ABSOLUTE) | st.text()
_values = _texts | st.dictionaries(st.sampled_from(["a", "b"]), _texts, min_size=1)
_keys = st.sampled_from(["store", "workspace", "spool", "collect", "task", "max_bytes"])
_links = st.dictionaries(st.sampled_from(LINKS), _paths, max_size=2)


class Watch:
    """Notes each file outside that is opened, once it is on; a hook cannot be taken away again."""

    def __init__(self) -> None:
        self.is_on = False
        self.opened: list[str] = []
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_on and event == "open" and isinstance(arguments[0], str | bytes):
            path = os.fsdecode(arguments[0])
            if CANARY in path:
                self.opened.append(path)


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def _toml(values: dict[str, Any], folder: Path) -> str:
    def show(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {show(one)}" for key, one in value.items()) + "}"
        text = str(value).replace("@", str(folder), 1) if str(value).startswith("@/") else str(value)
        return '"' + "".join(f"\\U{ord(one):08x}" for one in text) + '"'

    return "".join(f"{key} = {show(value)}\n" for key, value in values.items())


@contextmanager
def _cloned(links: dict[str, str]) -> Iterator[Path]:
    """A folder with links to anywhere; beside it the user's own store, keys, and another folder."""
    with tempfile.TemporaryDirectory(dir=QUICK) as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(os.path.realpath(name))
        for variable in ("LASTGOOD_STORE", "SUDO_UID", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.delenv(variable, raising=False)
        patch.setenv("HOME", str(folder / "home"))
        for place in ("home/.ssh", "outside", "outside/store/objects/.drafts", "outside/deep"):
            (folder / place).mkdir(parents=True)
            (folder / place / CANARY).write_text("secret")
        with lastgood.open(folder / "home" / ".local" / "share" / "lastgood") as store:
            store.task("unrelated").save({"n": 1})
        for place in ("cloned/in/deep", "cloned/.lastgood"):
            (folder / place).mkdir(parents=True)
        (folder / "cloned" / "file").write_text("inside")
        for link, target in links.items():
            path = folder / "cloned" / link
            if not path.exists() and path.parent.is_dir():
                path.symlink_to(target.replace("~", str(folder / "home")) or ".")
        patch.chdir(folder / "cloned")
        yield folder


def _outside(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return all that is the user's own, but for the notes that this program keeps for itself."""
    found = {}
    for place in ("home/.ssh", "home/.local/share/lastgood", "outside"):
        for path in [folder / place, *(folder / place).rglob("*")]:
            status = path.lstat()
            found[str(path)] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


@given(st.dictionaries(_keys, _values, max_size=4), _links)
@example({"store": "@/home/.local/share/lastgood"}, {})
@example({"workspace": "@/home/.ssh"}, {})
@example({"workspace": "link"}, {"link": "../outside"})
@example({"store": "in/../link"}, {"link": "../outside"})
@example({"spool": "../outside"}, {})
@example({}, {"store": "../outside/store", ".lastgood/objects": "../../outside/store/objects"})
@settings(max_examples=40, deadline=None)
def test_nothing_outside_is_read_or_touched(watch: Watch, values: dict[str, Any], links: dict[str, str]) -> None:
    with _cloned(links) as folder:
        (folder / "cloned" / "lastgood.toml").write_text(_toml(values, folder))
        before = _outside(folder)
        watch.opened.clear()
        watch.is_on = True
        for command in COMMANDS:
            error = CliRunner().invoke(app, command).exception
            assert error is None or isinstance(error, SystemExit), repr(error)
        watch.is_on = False
        assert _outside(folder) == before
        assert watch.opened == []
