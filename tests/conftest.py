"""What the tests share: a store of their own, the interpreters of this clone, and hypothesis without clocks."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from tests.support.disks import small_disk
from tests.support.programs import KilledError, Program
from tests.support.volume import Volume, no_volume
from tests.support.volume import mounted as mounted_volume

import lastgood

hypothesis.settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("here")

HERE = Path(__file__).parent
ONCE = [HERE / "faults", HERE / "first_use", HERE / "tools", HERE / "upkeep"]
"""Folders whose tests do not depend on the Python, as those marked `once` elsewhere: about failing disks, killed
processes, garbage and repair, and what a terminal shows."""


def pytest_configure(config: pytest.Config) -> None:
    """The workers of one run draw the same sample of faults. Programs that tests start hear signals, also when the
    tests were started by something that ignores them (nohup, a shell's `&`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("LASTGOOD_FAULTS_SEED", str(random.SystemRandom().getrandbits(32)))
    state = tempfile.TemporaryDirectory(prefix="lastgood-state-")
    os.environ["XDG_STATE_HOME"] = state.name  # what tests spool stays out of the user's folder
    os.environ["XDG_CONFIG_HOME"] = f"{state.name}/config"  # and what they trust
    config.add_cleanup(state.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in ONCE):
            item.add_marker(pytest.mark.once)


def pytest_report_header(config: pytest.Config) -> str:
    return f"faults are drawn by LASTGOOD_FAULTS_SEED={os.environ['LASTGOOD_FAULTS_SEED']}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", user="tester") as opened:
        yield opened


@pytest.fixture
def program(store: lastgood.Store) -> Program:
    return Program(store.task("work"))


@pytest.fixture
def person(store: lastgood.Store, program: Program) -> lastgood.Control:
    """A control of a task whose program was killed."""
    with pytest.raises(KilledError), program.session():
        raise KilledError
    return store.task("work").control


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    with small_disk(tmp_path / "disk") as mounted:
        yield mounted


@pytest.fixture
def volume() -> Iterator[Volume]:
    """A file system that can lose its power, or become read-only."""
    if obstacle := no_volume():
        pytest.skip(obstacle)
    with mounted_volume() as volume:
        yield volume


@pytest.fixture
def count_descriptors() -> Callable[[], int]:
    """A function that counts the open descriptors. What earlier tests left to the garbage is closed before."""
    gc.collect()
    folder = Path("/proc/self/fd")
    return lambda: len(list(folder.iterdir())) if folder.exists() else 0


@pytest.fixture(scope="session")
def interpreters() -> list[Path]:
    """The Pythons of the environments of this clone that have lastgood."""
    candidates = sorted(Path(__file__).parent.parent.glob(".venv-3.*/bin/python"))
    return [python for python in candidates if _has_lastgood(python)]


def _has_lastgood(python: Path) -> bool:
    command = [str(python), "-c", "import lastgood.store, lastgood.codec.split, ormsgpack"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
