"""`lastgood metrics`: figures of a store, read without changing it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.test_cli_completion import content

Run = Callable[..., Any]


def test_a_store_tells_its_figures_and_nothing_is_written(run: Run, data: Run, three: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    lines = run("metrics").stdout.splitlines()
    assert "lastgood_tasks 1" in lines
    assert "# TYPE lastgood_task_checkpoints gauge" in lines
    assert next(line for line in lines if line.startswith('lastgood_task_checkpoints{task="work"')).endswith(" 3")
    assert next(line for line in lines if line.startswith("lastgood_task_head_damaged{")).endswith(" 0")
    assert "lastgood_spool_checkpoints 0" in lines
    assert {one["name"] for one in data("metrics")["metrics"]} > {"store_bytes", "task_last_save_timestamp_seconds"}
    assert content(tmp_path) == before


def test_hostile_labels_are_escaped(run: Run, three: Path) -> None:
    run("save", "--set", "a=1", "--task", 'x"} 1\\')
    assert 'task="x\\"} 1\\\\"' in run("metrics").stdout


def test_a_file_is_replaced_at_once(run: Run, three: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "lastgood.prom").write_text("old")
    run("metrics", "--output", str(place / "lastgood.prom"))
    assert "lastgood_tasks 1\n" in (place / "lastgood.prom").read_text()
    assert [path.name for path in place.iterdir()] == ["lastgood.prom"]
    run("metrics", "--output", str(place / "missing" / "x.prom"), code=6)


def test_what_is_no_file_is_written_to_and_stays_what_it_is(run: Run, three: Path, tmp_path: Path) -> None:
    """As root, a device of the system had become a file."""
    terminal, given = os.openpty()
    device = tmp_path / "device"
    device.symlink_to(os.ttyname(given))
    run("metrics", "--output", str(device))
    assert device.is_symlink()
    assert device.is_char_device()
    assert b"lastgood_tasks 1" in os.read(terminal, 4096)
    os.close(terminal)
    os.close(given)


def test_without_a_store_none_is_made(run: Run, folder: Path, tmp_path: Path) -> None:
    run("metrics", code=3)
    assert not (tmp_path / "data").exists()
