"""What an argument cannot be is said as an InvalidError, whatever was given (docs/reference/errors.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastgood import Evidence, InvalidError, Store, Task

CLAIM = Evidence("artifact_exists", "it is there", {"path": "a"})

CALLS: dict[str, tuple[Callable[[Task, Any], object], object]] = {
    "a claim that is in no pack": (lambda task, value: task.save({}, evidence=value), CLAIM),
    "claims that are in no pack": (lambda task, value: task.append({}, evidence=value), [CLAIM]),
    "a function as evidence": (lambda task, value: task.save({}, evidence=value), len),
    "one path as files": (lambda task, value: task.append({}, files=value), "file"),
    "a number as files": (lambda task, value: task.append({}, files=value), 5),
    "one path as paths": (lambda task, value: task.diff("@1", paths=value), "file"),
    "a number as paths": (lambda task, value: task.plan("@1", paths=value), 5),
    "numbers as paths": (lambda task, value: task.plan("@1", paths=value), [5]),
    "a number as a folder": (lambda task, value: task.copy_files("@1", to=value), 5),
    "a number as a file": (lambda task, value: task.step("s").expect_file(value), 5),
    "bytes as kinds": (lambda task, value: task.history(kinds=value), b"created"),
    "a number as a type": (lambda task, value: task.load(value), 5),
    "a number to roll back to": (lambda task, value: task.roll_back(value), 5),
    "a number to tag": (lambda task, value: task.tag(value, "name"), 5),
    "a list as a step": (lambda task, value: Store(task._handle.engine, "a").abandon_step(value), ["id"]),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_an_argument_cannot_be_is_said(store: Store, tmp_path: Path, what: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("one")
    task = store.task("t", workspace=tmp_path / "work")
    task.save({"n": 1})
    call, value = CALLS[what]
    with pytest.raises(InvalidError):
        call(task, value)


def test_a_claim_that_is_in_no_pack_is_told_how_it_gets_there(store: Store) -> None:
    with pytest.raises(InvalidError) as refused:
        store.task("t").save({}, evidence=CLAIM)  # type: ignore[arg-type]
    assert refused.value.hint == "give EvidencePack([Evidence(…), …])"
