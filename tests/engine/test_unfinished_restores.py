"""A restore that fails, and cannot be taken back either: who tries again, and when nobody does any more (I4, B9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.file_trees import Bench, bench

import lastgood
from lastgood import UnavailableError
from lastgood.engine import restore_files as rewind
from lastgood.files.apply import apply

pytestmark = pytest.mark.once

FIRST, SECOND = {"n": 1}, {"n": 2}


@contextmanager
def failing_disk(steps: int) -> Iterator[None]:
    """So many times a plan is carried out, and the disk does not confirm it; then it is not carried out at all."""
    left = [steps]

    def fail(*plan: Any, **how: Any) -> Any:
        if left[0]:
            left[0] -= 1
            apply(*plan, **how)
        raise UnavailableError("the disk did not confirm what was restored")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewind, "apply", fail)
        yield


@pytest.fixture
def place() -> Iterator[Bench]:
    """Two saves, and a restore of the first that has changed the files and could not be taken back."""
    with bench() as made:
        task = made.task()
        for state, text in ((FIRST, "first"), (SECOND, "second")):
            (made.root / "a").write_text(text)
            task.save(state, message=text)
        with failing_disk(1), pytest.raises(UnavailableError) as caught:
            task.restore(task.find("@1"))
        assert any("could not be put back" in note for note in caught.value.__notes__)
        assert (made.root / "a").read_text() == "first"
        yield made


def _journals(store: lastgood.Store) -> int:
    return sum(each.made is None for each in store._engine.catalog.journals())


def test_who_opens_the_workspace_next_takes_it_back(place: Bench) -> None:
    """I4: also in the same process."""
    assert _journals(place.store) == 1
    task = place.task()
    assert (place.root / "a").read_text() == "second"
    assert _journals(place.store) == 0
    assert task.recovery().restores == ()


def test_a_restore_by_the_same_handle_takes_it_back_first() -> None:
    """Else it would be taken back after that one."""
    with bench() as made:
        task = made.task()
        for state, text in ((FIRST, "first"), (SECOND, "second")):
            (made.root / "a").write_text(text)
            task.save(state)
        with failing_disk(1), pytest.raises(UnavailableError):
            task.restore(task.find("@1"))
        with failing_disk(0), pytest.raises(UnavailableError):
            task.restore(task.find("@1"))
        assert _journals(made.store) == 1
        task.restore(task.find("@1"))
        assert _journals(made.store) == 0
        made.task()
        assert (made.root / "a").read_text() == "first"
        assert task.state == FIRST


def test_a_save_of_the_files_as_they_are_ends_it() -> None:
    """What somebody has saved since is not taken away from him."""
    with bench() as made:
        task = made.task()
        for state, text in ((FIRST, "first"), (SECOND, "second")):
            (made.root / "a").write_text(text)
            task.save(state)
        with failing_disk(1), pytest.raises(UnavailableError):
            task.restore(task.find("@1"))
        (made.root / "a").write_text("third")
        task.refresh()
        task.save({"n": 3})
        assert _journals(made.store) == 0
        made.task()
        assert (made.root / "a").read_text() == "third"


def test_what_can_never_be_put_back_does_not_keep_anybody_out(place: Bench) -> None:
    """I4: the task opens, says so, and can be worked with."""
    with failing_disk(0):
        task = place.task()
    assert _journals(place.store) == 1
    task.save({"n": 3})
    assert _journals(place.store) == 0
