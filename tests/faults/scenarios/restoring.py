"""Going back: state and files, files alone, some of them, or the state alone."""

from __future__ import annotations

from tests.faults import shim
from tests.faults.acting import LEFT_OUT, Actor, captured, write_files
from tests.faults.ledger import tree_lines
from tests.faults.scenarios.scenario import Scenario, some_state

UNSAVED = {"not": "saved yet"}


def save_changes(actor: Actor) -> None:
    """Three saves of files that become others: changed, moved, of another kind, with other modes, gone."""
    work = actor.world.work
    with shim.pause():
        (work / ".lastgoodignore").write_text(f"*{LEFT_OUT}\n")
        (work / f"notes{LEFT_OUT}").write_text("never captured")
        (work / "empty").mkdir()
        (work / "link").symlink_to("a")
    write_files(work, ["a", "b", "deep/c", "deep/d/e", "deep/d/f", "script"], seed=1, size=400)
    actor.save(actor.task, some_state(0), "save 0")
    with shim.pause():
        (work / "b").unlink()
        (work / "link").unlink()
        (work / "link").symlink_to("deep")
        (work / "script").chmod(0o755)
    write_files(work, ["deep/c", "empty/no more", "g"], seed=2, size=500)
    actor.save(actor.task, some_state(1), "save 1")
    with shim.pause():
        (work / "g").unlink()
        (work / "link").unlink()
        for name in ("e", "f"):
            (work / "deep" / "d" / name).unlink()
        (work / "deep" / "d").rmdir()
    write_files(work, ["deep/d", "g/h", "link", "a"], seed=3, size=600)
    actor.save(actor.task, some_state(2), "save 2")


def edit(actor: Actor, seed: int = 9) -> None:
    """What was not saved yet."""
    write_files(actor.world.work, ["a", "fresh/i", "deep/c"], seed=seed, size=350)
    with shim.pause():
        (actor.world.work / "script").unlink(missing_ok=True)
        (actor.world.work / "fresh" / f"draft{LEFT_OUT}").write_text("never captured either")


def _restore_whole(actor: Actor) -> None:
    task = actor.task
    edit(actor)
    chosen = actor.kept("save 0")
    actor.move(
        "restore",
        lambda: task.restore(chosen, present=UNSAVED),
        to=actor.lines("save 0"),
        present=UNSAVED,
        state=some_state(0),
    )
    actor.save(task, some_state(5), "after the restore")


def _restore_files(actor: Actor) -> None:
    task, chosen = actor.task, actor.kept("save 1")
    actor.move("restore", lambda: task.restore(chosen, "files"), to=actor.lines("save 1"), present=task.state)
    actor.save(task, some_state(5), "after the restore")


def _restore_some_files(actor: Actor) -> None:
    task = actor.task
    edit(actor)
    chosen, paths = actor.kept("save 0"), ["a", "b", "deep/c"]
    actor.move(
        "restore",
        lambda: task.restore(chosen, "files", paths=paths),
        to=_with_some(actor, "save 0", paths),
        present=task.state,
    )


def _with_some(actor: Actor, message: str, paths: list[str]) -> list[str]:
    """The files as they are, but for these."""

    def is_chosen(line: str) -> bool:
        return line.partition("\0")[0] in paths

    others = [line for line in captured(tree_lines(actor.world.work)) if not is_chosen(line)]
    return sorted([*others, *filter(is_chosen, actor.lines(message))])


def _restore_state(actor: Actor) -> None:
    task = actor.task
    edit(actor)
    here, chosen = captured(tree_lines(actor.world.work)), actor.kept("save 0")
    actor.move(
        "restore",
        lambda: task.restore(chosen, "state", present=UNSAVED),
        to=here,
        present=UNSAVED,
        state=some_state(0),
    )
    actor.save(task, some_state(5), "after the restore")


SCENARIOS = {
    "restore whole": Scenario(save_changes, _restore_whole),
    "restore files": Scenario(save_changes, _restore_files),
    "restore some files": Scenario(save_changes, _restore_some_files),
    "restore state": Scenario(save_changes, _restore_state),
}
