"""The tree of branches: what is drawn, compared with literal pictures."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.cli.branch import draw
from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType
from lastgood.views.branch import read_tree

Run = Callable[..., Any]


@pytest.fixture
def store() -> Iterator[lastgood.Store]:
    with lastgood.open(":memory:", user="ann") as opened:
        yield opened


def saved(task: lastgood.Task, count: int, word: str = "turn") -> None:
    for number in range(1, count + 1):
        task.save(number, message=f"{word} {number}")


def picture(
    store: lastgood.Store,
    *,
    width: int | None = None,
    limit: int = 20,
    now: dt.datetime | None = None,
) -> str:
    tree = read_tree(store, "work", limit)
    return "\n" + "\n".join(draw(tree, width=width, now=now)) + "\n"


def ended(code: int) -> EvidencePack:
    claim = Evidence(EvidenceType.COMMAND_EXIT, "tests pass", {"exit_code": 0}, {"actual_exit_code": code})
    return EvidencePack([claim])


def test_a_linear_history_is_one_line_with_marks_tags_and_the_active_head(store: lastgood.Store) -> None:
    task = store.task("work")
    task.save(1, message="plan agreed\nin detail")
    task.save(2, message="tests", type="step", evidence=ended(0))
    task.tag(task.find("@2"), "green")
    task.save(3, message="tests", type="step", evidence=ended(1))
    assert (
        picture(store)
        == """
main (active)
* @3 x now  step    tests
o @2 v now  step    [green] tests
o @1 ? now  manual  plan agreed
"""
    )


def test_a_long_run_is_folded_and_a_short_one_is_not(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 6)
    assert "..." not in picture(store)
    saved(task, 36, "later")
    task.tag(task.find("@10"), "kept")
    assert (
        picture(store)
        == """
main (active)
* @42 ? now  manual  later 36
o @41 ? now  manual  later 35
o @40 ? now  manual  later 34
: ... 29 checkpoints ...
o @10 ? now  manual  [kept] later 4
: ... 8 checkpoints ...
o @1  ? now  manual  turn 1
"""
    )


def test_after_a_restore_the_active_line_goes_straight_and_what_was_left_hangs_aside(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 4)
    task.restore("@2", message="it was better")
    made = task.branches()[-1]
    saved(task, 1, "again")
    assert (
        picture(store)
        == f"""
{made.name} (active)  {made.description}
*   @6 ? now  manual    again 1
o   @5 ? now  restored  from @2: it was better
| main
| o @4 ? now  manual    turn 4
| o @3 ? now  manual    turn 3
|/
o   @2 ? now  manual    turn 2
o   @1 ? now  manual    turn 1
"""
    )


def test_a_fork_of_a_fork_stands_in_a_column_of_its_own(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 3)
    side = task.fork("@2", name="b")
    side.save(1, message="in b 1")
    side.fork(name="c", paused=True)
    side.save(2, message="in b 2")
    side.save(3, message="in b 3")
    assert (
        picture(store)
        == """
main (active)
*     @3 ? now  manual  turn 3
| b
| o   @8 ? now  manual  in b 3
| o   @7 ? now  manual  in b 2
| | c (paused)
| | o @6 ? now  forked  from @5
| |/
| o   @5 ? now  manual  in b 1
| o   @4 ? now  forked  from @2
|/
o     @2 ? now  manual  turn 2
o     @1 ? now  manual  turn 1
"""
    )


def test_forks_of_the_active_head_stand_above_it(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 2)
    task.fork(name="b")
    task.fork(name="c")
    assert (
        picture(store)
        == """
  c
  o @4 ? now  forked  from @2
 /
| b
| o @3 ? now  forked  from @2
|/
+ main (active)
*   @2 ? now  manual  turn 2
o   @1 ? now  manual  turn 1
"""
    )


def test_what_is_left_of_a_deleted_branch_is_drawn_as_such(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 1)
    side = task.fork(name="b")
    saved(side, 3, "in b")
    side.fork("@3", name="c")
    task.delete_branch("b")
    assert (
        picture(store)
        == """
  c
  o @6 ? now  forked  from @3
  + b (deleted)
  o @3 ? now  manual  in b 1
  o @2 ? now  forked  from @1
 /
+ main (active)
*   @1 ? now  manual  turn 1
"""
    )


def test_where_a_branch_began_stays_visible_when_that_checkpoint_is_deleted_or_purged(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 3)
    task.fork("@2", name="b")
    store.delete_checkpoint(task.find("@2").id)
    assert "o   @2 ? now  manual  (deleted) turn 2" in picture(store).splitlines()
    store.purge_checkpoint(task.find("@2").id)
    assert "o   @2                (purged)" in picture(store).splitlines()


def test_deleted_checkpoints_that_nothing_hangs_on_are_not_drawn(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 3)
    store.delete_checkpoint(task.find("@2").id)
    assert (
        picture(store)
        == """
main (active)
* @3 ? now  manual  turn 3
o @1 ? now  manual  turn 1
"""
    )


def test_a_narrow_terminal_cuts_the_lines(store: lastgood.Store) -> None:
    task = store.task("work")
    task.save(1, message="a message that is longer than the terminal is wide")
    task.fork(name="a branch with a long name, too")
    assert (
        picture(store, width=32)
        == """
  a branch with a long name, too
  o @2 ? now  forked  from @1
 /
+ main (active)
*   @1 ? now  manual  a message…
"""
    )
    assert all(len(line) <= 5 for line in picture(store, width=5).splitlines())


def test_ages_are_told_in_the_largest_unit(store: lastgood.Store) -> None:
    saved(store.task("work"), 1)
    began = store.task("work").head
    assert began is not None
    for seconds, told in ((59, "now"), (60, "1m"), (7_300, "2h"), (90_000, "1d"), (700_000, "1w"), (9e7, "2y")):
        assert f" {told}  " in picture(store, now=began.created_at + dt.timedelta(seconds=seconds))


def test_a_huge_history_is_drawn_from_what_matters_and_counted_exactly(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 300)
    task.fork("@5", name="old")
    saved(task, 1100, "later")
    assert (
        picture(store)
        == """
main (active)
*   @1401 ? now  manual  later 1100
o   @1400 ? now  manual  later 1099
o   @1399 ? now  manual  later 1098
: ... 1,392 checkpoints ...
| old
| o @301  ? now  forked  from @5
|/
o   @5    ? now  manual  turn 5
: ... 4 checkpoints ...
"""
    )


def test_branches_beyond_the_limit_are_left_out_and_said(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 2)
    for name in ("b", "c", "d"):
        task.fork("@1", name=name)
    tree = read_tree(store, "work", 2, "ann")
    assert tree.left_out == 2
    assert [line for line in picture(store, limit=2).splitlines() if "@" not in line] == [
        "",
        "main (active)",
        "| d",
        "|/",
    ]


def test_a_line_that_comes_from_what_is_not_drawn_says_so(store: lastgood.Store) -> None:
    task = store.task("work")
    saved(task, 2)
    for _ in range(3):
        task.restore("HEAD")
    assert picture(store, limit=1).splitlines()[-1] == ": ... goes on from @3, on a branch that is not shown ..."


def test_a_damaged_checkpoint_is_drawn_as_such(run: Run, three: Path) -> None:
    sql = "UPDATE checkpoints SET record = CAST(record || x'00' AS BLOB) WHERE number & 4294967295 = 2"
    with lastgood.open(three / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(lambda connection: connection.execute(sql))
    assert "o @2 !              (damaged)" in run("branch").stdout.splitlines()


def test_the_command_draws_it(run: Run, three: Path) -> None:
    run("fork", "--name", "b")
    assert run("branch").stdout.splitlines()[2] == " /"
    assert "1 older branch not shown" in run("branch", "-n", "1").stderr


def test_colors_and_the_width_are_those_of_the_terminal(run: Run, on_a_terminal: Run, three: Path) -> None:
    run("save", "--set", "n=4", "-m", "m" * 500)
    assert "\x1b[" in on_a_terminal("branch", NO_COLOR="")
    shown = on_a_terminal("branch", NO_COLOR="1", columns=40)
    assert "\x1b[" not in shown
    assert max(map(len, shown.splitlines())) == 40


def test_a_hostile_branch_name_cannot_steer_the_terminal(run: Run, three: Path) -> None:
    run("fork", "--name", "a\u202eb", "--description", "\x1b[2J")
    for command in (["branch"], ["branch", "--json"], ["log"], ["history"]):
        assert not set(run(*command).stdout) & set("\x1b\u202e")
