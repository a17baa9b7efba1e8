"""A store and a model of it, each told in the same plain words, so that they can be compared.

Ids are a store's own: checkpoints are told by their sequence, branches by the order in which they began.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.backend import read_folder, state_of
from tests.faults.model import Model
from tests.faults.model_values import Branch, Line, Point, Tree

import lastgood
from lastgood.engine.load import find_line, find_stored
from lastgood.files.roots import identify
from lastgood.local.process import is_alive

MANY = 1000
View = dict[str, Any]


Counts = dict[str, int]
"""How many checkpoints of each task are not told, because they are known; None in the place of one: none is told."""


def tell_model(model: Model, known: Counts | None) -> View:
    tasks = {line.id: _tell_line(line, known) for line in model.lines.values()}
    steps = [(step.task_id, step.type, step.orphaned) for step in model.steps]
    return {"tasks": tasks, "steps": steps, "log": list(model.log), "disk": dict(model.disk)}


def _tell_line(line: Line, known: Counts | None) -> View:
    number = {id(branch): index for index, branch in enumerate(line.branches)}

    def numbered(branch: Branch | None) -> int | None:
        return None if branch is None else number[id(branch)]

    shown = [b for b in line.branches if not b.deleted or any(p.is_listed for p in b.points)]
    view: View = {
        "events": [(e.number, e.kind, numbered(e.branch), e.point and e.point.sequence) for e in line.events],
        "listed": [point.sequence for point in line.listed()],
        "branches": [
            (numbered(b), b.head.sequence, b.head.version, b.deleted, b.head.control, len(line.listed(b)))
            for b in shown
        ],
        "active": numbered(line.active),
        "bound": numbered(line.bound),
        "tags": {name: point.sequence for name, point in sorted(line.tags.items())},
    }
    if known is not None:
        new = [point for point in line.points[known.get(line.id, 0) :] if not point.purged]
        view["points"] = {point.sequence: _tell_point(line, point, numbered(point.branch)) for point in new}
    return view


def _tell_point(line: Line, point: Point, branch: int | None) -> View:
    content = point.content
    return {
        "is": (content.type, point.lineage, content.key, point.control),
        "place": (branch, point.sequence, point.version, point.event, point.parent and point.parent.sequence),
        "marks": (bool(point.recorded), point.recorded is not None, point.deleted, line.tags_of(point)),
        "state": content.state,
        "files": None if point.files is None else dict(point.files),
    }


class Telling:
    """Of one store, with what a model knows of its ids."""

    def __init__(self, store: lastgood.Store, model: Model, work: Path) -> None:
        self._store = store
        self._work = work
        self._sequences = {p.id: p.sequence for line in model.lines.values() for p in line.points if p.id}
        self._known = {line.id: [b.id for b in line.branches if b.id] for line in model.lines.values()}

    def tell(self, known: Counts | None) -> View:
        store = self._store
        tasks = {info.id: self._tell_task(info.id, known) for info in store.tasks()}
        return {
            "tasks": dict(sorted(tasks.items())),
            "steps": [(step.task_id, step.type, is_alive(step.process) is False) for step in store.open_steps()],
            "log": [event.kind for event in store._engine.catalog.events(None, limit=MANY)],
            "disk": dict(read_folder(self._work)),
        }

    def _tell_task(self, id: str, known: Counts | None) -> View:
        store = self._store
        page = store.page_checkpoints(id, MANY)
        assert page.total == len(page.checkpoints)
        self._sequences |= {each.id: each.sequence or 0 for each in page.checkpoints}
        infos = store.branches(id)
        order = list(self._known.get(id, []))
        order += [info.id for info in infos if info.id not in order]
        number = {branch_id: index for index, branch_id in enumerate(order)}
        task = store.task(id)
        bound = store._engine.catalog.bound(store.user, id, identify(str(self._work.resolve())))
        events = [
            (e.sequence, e.kind, number.get(e.branch_id), self._sequence(e.checkpoint_id))
            for e in reversed(store.history(id, limit=MANY))
        ]
        view: View = {
            "events": events,
            "listed": [each.sequence for each in page.checkpoints],
            "branches": [
                (number[i.id], i.head and i.head.sequence, i.version, i.deleted, i.control_state, i.checkpoints)
                for i in infos
            ],
            "active": number[task.branch_id or ""],
            "bound": None if bound is None else number[bound],
            "tags": {name: head.sequence for name, head in sorted(store.tags(id).items())},
        }
        if known is not None:
            view["points"] = dict(self._tell_points(id, known.get(id, 0), events, number))
        return view

    def _tell_points(
        self, id: str, known: int, events: list[Any], number: dict[str, int]
    ) -> Iterator[tuple[int, View]]:
        purged = {sequence for _, kind, _, sequence in events if kind == "purged"}
        made = {sequence for _, kind, _, sequence in events if kind in ("created", "branched")}
        task = find_line(self._store._engine.catalog, self._store.user, id).task
        for sequence in sorted(made - purged - set(range(known + 1))):
            stored = self._store._engine.catalog.checkpoint_at(task, sequence)
            assert stored is not None, f"{sequence} of {id} is gone, and was not purged"
            found = self._store.find_checkpoint(stored.id)
            assert self._store.check_checkpoint(stored.id, evidence=False).problems == []
            yield sequence, self._tell_point(found, number)

    def _tell_point(self, found: lastgood.Checkpoint, number: dict[str, int]) -> View:
        parent = None if found.parent_id is None else self._sequence(found.parent_id)
        has_files = found.record.files is not None
        return {
            "is": (found.type, found.lineage, found.key, found.control_state),
            "place": (number[found.branch_id or ""], found.sequence, found.version, found.last_event, parent),
            "marks": (found.verified, found.last_verified_at is not None, found.deleted, found.tags),
            "state": _number_of(found.state),
            "files": dict(read_files(self._store, found.id)) if has_files else None,
        }

    def _sequence(self, checkpoint_id: str | None) -> int | None:
        if checkpoint_id is None:
            return None
        if checkpoint_id not in self._sequences:
            stored = find_stored(self._store._engine.catalog, self._store.user, checkpoint_id)
            self._sequences[checkpoint_id] = stored.placement.sequence
        return self._sequences[checkpoint_id]


def read_files(store: lastgood.Store, checkpoint_id: str, folder: str = "") -> Tree:
    """All that a checkpoint holds of files."""
    found = Tree()
    for info in store.list_files(checkpoint_id, folder):
        if info.kind == "folder":
            found[info.path] = ("folder", info.mode or 0, b"")
            found.update(read_files(store, checkpoint_id, info.path))
        elif info.kind == "link":
            found[info.path] = ("link", 0, (info.target or "").encode())
        elif info.kind == "file":
            found[info.path] = ("file", info.mode or 0, b"".join(store.stream_file(checkpoint_id, info.path)))
    return found


def _number_of(state: Any) -> Any:
    """As the model tells a state; one that nobody saved is told whole."""
    number = state.get("n") if isinstance(state, dict) else None
    return number if state == state_of(number) else state


def learn(store: lastgood.Store, model: Model) -> None:
    """The ids of what is new in the model."""
    steps = [step.id for step in store.open_steps()]
    for begun, step_id in zip(model.steps, steps, strict=True):
        begun.id = step_id
    for line in model.lines.values():
        task = find_line(store._engine.catalog, store.user, line.id).task
        for point in line.points:
            if not point.id or not point.branch.id:
                stored = store._engine.catalog.checkpoint_at(task, point.sequence)
                assert stored is not None
                point.id, point.branch.id = stored.id, stored.placement.branch_id


def differences(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """Each place in which two views are not the same, in a line."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys(), key=str):
            if expected.get(key) != found.get(key):
                yield from differences(expected.get(key), found.get(key), f"{where}/{key}")
    elif isinstance(expected, list) and isinstance(found, list):
        common = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
        at = min(len(expected), len(found)) if common is None else common
        yield f"{where}[{at}:]: {_short(expected[at:])} expected, {_short(found[at:])} found"
    else:
        yield f"{where}: {_short(expected)} expected, {_short(found)} found"


def _short(told: Any) -> str:
    text = repr(told)
    return text if len(text) < 300 else f"{text[:300]}…"
