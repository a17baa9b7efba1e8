"""Views become JSON with keys in camelCase; what users stored keeps its own keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import lastgood
from lastgood.errors import InvalidError
from lastgood.model.checkpoint import Attestation, FileRoot
from lastgood.spool.entries import Waiting
from lastgood.views import checkpoint, restore, status
from lastgood.views.checkpoint import CheckpointView, view_checkpoint, view_detail
from lastgood.views.document import SHAPES, View, compose, document, tagged
from lastgood.views.history import TaskNames, view_entries

MODULES = (checkpoint, restore, status)
LISTED = [
    "id", "taskId", "branchId", "parentId", "iteration", "state", "runControlState", "type", "stepId", "description",
    "promptPreview", "hasArtifacts", "hasUserGuidance", "fileCount", "totalSize", "verified", "checksum", "integrityOk",
    "canRestore", "createdAt", "createdBy",
]  # fmt: skip


@pytest.fixture
def store() -> Iterator[lastgood.Store]:
    with lastgood.open(":memory:", user="ann") as store:
        yield store


@pytest.fixture
def task(store: lastgood.Store) -> lastgood.Task:
    return store.task("work")


def views() -> list[type[View]]:
    found = {value for module in MODULES for value in vars(module).values() if isinstance(value, type)}
    return sorted((one for one in found if issubclass(one, View) and one is not View), key=lambda one: one.__name__)


def test_a_checkpoint_has_every_field_that_a_list_shows(task: lastgood.Task) -> None:
    """A12, A18"""
    saved = task.save({"n": 1}, message="why", iteration=2, iteration_state="scoring", control_state="running")
    shown = document(view_checkpoint(saved))
    assert set(LISTED) <= set(shown)
    assert (shown["description"], shown["state"], shown["runControlState"]) == ("why", "scoring", "running")
    assert datetime.fromisoformat(shown["createdAt"]) == saved.created_at
    assert (shown["canRestore"], shown["totalSize"]) == (True, 0)
    json.dumps(shown)


@pytest.mark.parametrize("view", views(), ids=lambda view: view.__name__)
def test_every_view_is_documented_and_has_keys_in_camel_case(view: type[View]) -> None:
    assert view.__doc__
    assert not [name for name in view.__struct_encode_fields__ if "_" in name]


def test_the_keys_are_those_that_msgspec_gives_the_structs(task: lastgood.Task) -> None:
    shown = document(view_checkpoint(task.save({})))
    assert list(shown) == list(CheckpointView.__struct_encode_fields__)


def test_every_shape_names_fields_that_its_class_has() -> None:
    public = [getattr(home, name) for home in (lastgood, lastgood.types) for name in home.__all__]
    found = {value.__name__: value for value in public if isinstance(value, type)}
    found |= {value.__name__: value for value in (Attestation, FileRoot, Waiting)}
    for name, shape in SHAPES.items():
        kind = found[name]
        known = {*getattr(kind, "__annotations__", ()), *dir(kind)}
        assert {word.partition(":")[0] for word in shape.split()} <= known


def test_what_is_composed_has_the_fields_of_a_value_and_more(store: lastgood.Store, task: lastgood.Task) -> None:
    task.save({})
    (shown,) = (compose(one, active_now=True) for one in store.tasks())
    assert list(shown) == ["number", "id", "owner", "checkpoints", "activeBranchId", "createdAt", "activeNow"]
    assert datetime.fromisoformat(shown["createdAt"]).tzinfo is UTC


def test_what_was_stored_keeps_its_keys(store: lastgood.Store, task: lastgood.Task) -> None:
    saved = task.save({}, metadata={"my_key": {"a_b": 1}}, artifacts=[{"file_name": (1, 2)}])
    shown = view_detail(store, saved, None)
    assert shown["metadata"] == {"my_key": {"a_b": 1}}
    assert shown["artifacts"] == [{"file_name": {"$tuple": [1, 2]}}]
    task.control.guide("go on", id="mine")
    (entry, *_) = view_entries(store.history("work", kinds=["requested"]), TaskNames(store, "work", None))
    assert entry["data"]["kind"] == "guide"
    asked = task.control.follow("mine")
    assert asked is not None
    assert document(asked)["branchId"] == task.branch_id


def test_times_are_text_and_what_is_not_set_is_left_out() -> None:
    class Shown(View, frozen=True, kw_only=True):
        """A view."""

        at_last: datetime
        not_set: int | msgspec.UnsetType = msgspec.UNSET

    at = datetime(2026, 11, 18, tzinfo=UTC)
    assert document(Shown(at_last=at)) == {"atLast": "2026-11-18T00:00:00+00:00"}


def test_values_that_json_does_not_have_are_tagged() -> None:
    value = {"d": Decimal("1.50"), 1: b"x"}
    assert tagged(value) == {"$map": [["d", {"$decimal": "1.50"}], [1, {"$bytes": "eA=="}]]}
    assert document("\udcff") == {"$surrogates": "7bO/"}
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidError, match="nested too deeply"):
        tagged(deep)
