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


def test_what_is_no_file_is_written_to_and_not_replaced(run: Run, three: Path, tmp_path: Path) -> None:
    """As root `--output /dev/null` had replaced the device by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run("metrics", "--output", str(pipe))
    assert b"lastgood_tasks 1\n" in os.read(reader, 1 << 16)
    os.close(reader)
    assert pipe.is_fifo()
    run("metrics", "--output", str(tmp_path), code=6)
    assert tmp_path.is_dir()


def test_without_a_store_none_is_made(run: Run, folder: Path, tmp_path: Path) -> None:
    run("metrics", code=3)
    assert not (tmp_path / "data").exists()
