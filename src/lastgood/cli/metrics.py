"""`lastgood metrics`"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.invocation import ANY_PATH, Invocation, subcommand
from lastgood.cli.output import path_text, print_result, say
from lastgood.observe.metrics import PREFIX, Family, Sample, render
from lastgood.upkeep.reach import all_pages

if TYPE_CHECKING:
    from lastgood import Store

PAGE = 1000


@subcommand
@click.option("--output", type=ANY_PATH, metavar="FILE", help="Write to this file, at once.")
def metrics(call: Invocation, output: str | None) -> None:
    """Print figures of the store as text for Prometheus: tasks, checkpoints, bytes, what waits in the spool.

    Read-only. --output replaces the file at once, for text-file collectors.
    """
    call.require_store()
    spooled = _spooled(call)
    with call.open_to_read() as store:
        families = [*_families(store, call.owner), *spooled]
    if output is None:
        print_result(call, {"metrics": families}, [render(families).rstrip("\n")])
        return
    _replace(Path(output), render(families))
    say(call, f"wrote {path_text(output)}")


def _families(store: Store, owner: str | None) -> Iterator[Family]:
    tasks = list(all_pages(lambda after=0: store.tasks(owner=owner, after=after, limit=PAGE), lambda last: last.number))
    yield _gauge("store_bytes", "Bytes that the store takes on disk.", [Sample(store.size())])
    yield _gauge("tasks", "Tasks in the store.", [Sample(len(tasks))])
    counts, times, damaged = [], [], []
    for task in tasks:
        labels = {"task": task.id, "owner": task.owner}
        counts.append(Sample(task.checkpoints, labels))
        head = store.task(task.id, owner=task.owner).head
        if head is not None:
            is_damaged = not head.integrity_ok or bool(head.damage)
            damaged.append(Sample(float(is_damaged), labels))
            times += [Sample(head.created_at.timestamp(), labels)] if head.integrity_ok else []
    yield _gauge("task_checkpoints", "Checkpoints of each task.", counts)
    yield _gauge("task_last_save_timestamp_seconds", "When the newest checkpoint of each task was saved.", times)
    yield _gauge("task_head_damaged", "1: the newest checkpoint of the task is known to be damaged.", damaged)


def _spooled(call: Invocation) -> list[Family]:
    from lastgood.spool.entries import Entries
    from lastgood.spool.file import NAME, spool_folder

    catalog, depth, size = call.locate().catalog, 0, 0
    folder = None if catalog is None else spool_folder(catalog, call.options())
    if folder is not None and (folder / NAME).exists():
        entries = Entries(folder)
        try:
            depth, size, *_ = entries.figures()
        finally:
            entries.close()
    return [
        _gauge("spool_checkpoints", "Checkpoints that wait in the spool for the store.", [Sample(depth)]),
        _gauge("spool_bytes", "Bytes that wait in the spool.", [Sample(size)]),
    ]


def _gauge(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(name, PREFIX + name, "gauge", text, samples=tuple(samples))


def _replace(path: Path, text: str) -> None:
    """Write a file that others may read; whoever reads it sees the old text or the new one. A device is written to."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
