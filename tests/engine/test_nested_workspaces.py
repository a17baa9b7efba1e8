"""A folder and one inside it, both workspaces: what is done to the files in both is done one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lastgood.errors import BusyError
from lastgood.files.roots import locked, open_roots


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    for folder in ("outer/inner/deep", "outer/other"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "outer"


def in_thread(work: Callable[[], bool]) -> bool:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return answers[0]


def in_child(work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]


@pytest.mark.parametrize("somebody_else", [in_thread, in_child])
@pytest.mark.parametrize(
    ("held", "wanted", "is_free"),
    [
        ("", "inner", False),
        ("", "inner/deep", False),
        ("inner", "", False),
        ("inner/deep", "", False),
        ("inner", "inner", False),
        ("inner", "other", True),
        ("inner/deep", "other", True),
    ],
)
def test_nobody_has_a_folder_while_somebody_has_one_above_or_below_it(
    outer: Path, held: str, wanted: str, is_free: bool, somebody_else: Callable[[Callable[[], bool]], bool]
) -> None:
    locks = outer.parent / "locks"

    def get() -> bool:
        try:
            with locked(open_roots(outer / wanted), locks, seconds=0):
                return True
        except BusyError:
            return False

    with locked(open_roots(outer / held), locks):
        assert somebody_else(get) == is_free
    assert somebody_else(get)


def test_a_thread_that_has_the_outer_one_may_take_the_inner_one_and_not_the_other_way_round(outer: Path) -> None:
    locks = outer.parent / "locks"
    with locked(open_roots(outer), locks), locked(open_roots(outer / "inner"), locks):
        pass
    with (
        locked(open_roots(outer / "inner"), locks),
        pytest.raises(BusyError),
        locked(open_roots(outer), locks, seconds=60),
    ):
        pass
    with locked(open_roots(outer), locks, seconds=0):
        pass
