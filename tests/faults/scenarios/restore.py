"""Going back: state and files, files alone, some of them, or the state alone."""

from __future__ import annotations

from tests.faults import shim
from tests.faults.ledger import tree_lines
from tests.faults.scenarios.scenario import Scenario, some_state
from tests.faults.worker import LEFT_OUT, Worker, captured, write_files

UNSAVED = {"not": "saved yet"}


def save_changes(worker: Worker) -> None:
    """Three saves of files that become others: changed, moved, of another kind, with other modes, gone."""
    work = worker.sandbox.work
    with shim.pause():
        (work / ".lastgoodignore").write_text(f"*{LEFT_OUT}\n")
        (work / f"notes{LEFT_OUT}").write_text("never captured")
        (work / "empty").mkdir()
        (work / "link").symlink_to("a")
    write_files(work, ["a", "b", "deep/c", "deep/d/e", "deep/d/f", "script"], seed=1, size=400)
    worker.save(worker.task, some_state(0), "save 0")
    with shim.pause():
        (work / "b").unlink()
        (work / "link").unlink()
        (work / "link").symlink_to("deep")
        (work / "script").chmod(0o755)
    write_files(work, ["deep/c", "empty/no more", "g"], seed=2, size=500)
    worker.save(worker.task, some_state(1), "save 1")
    with shim.pause():
        (work / "g").unlink()
        (work / "link").unlink()
        for name in ("e", "f"):
            (work / "deep" / "d" / name).unlink()
        (work / "deep" / "d").rmdir()
    write_files(work, ["deep/d", "g/h", "link", "a"], seed=3, size=600)
    worker.save(worker.task, some_state(2), "save 2")


def edit(worker: Worker, seed: int = 9) -> None:
    """What was not saved yet."""
    write_files(worker.sandbox.work, ["a", "fresh/i", "deep/c"], seed=seed, size=350)
    with shim.pause():
        (worker.sandbox.work / "script").unlink(missing_ok=True)
        (worker.sandbox.work / "fresh" / f"draft{LEFT_OUT}").write_text("never captured either")


def _restore_whole(worker: Worker) -> None:
    task = worker.task
    edit(worker)
    chosen = worker.kept("save 0")
    worker.move(
        "restore",
        lambda: task.restore(chosen, present=UNSAVED),
        to=worker.lines("save 0"),
        present=UNSAVED,
        state=some_state(0),
    )
    worker.save(task, some_state(5), "after the restore")


def _restore_files(worker: Worker) -> None:
    task, chosen = worker.task, worker.kept("save 1")
    worker.move("restore", lambda: task.restore(chosen, "files"), to=worker.lines("save 1"), present=task.state)
    worker.save(task, some_state(5), "after the restore")


def _restore_some_files(worker: Worker) -> None:
    task = worker.task
    edit(worker)
    chosen, paths = worker.kept("save 0"), ["a", "b", "deep/c"]
    worker.move(
        "restore",
        lambda: task.restore(chosen, "files", paths=paths),
        to=_with_some(worker, "save 0", paths),
        present=task.state,
    )


def _with_some(worker: Worker, message: str, paths: list[str]) -> list[str]:
    """The files as they are, but for these."""

    def is_chosen(line: str) -> bool:
        return line.partition("\0")[0] in paths

    others = [line for line in captured(tree_lines(worker.sandbox.work)) if not is_chosen(line)]
    return sorted([*others, *filter(is_chosen, worker.lines(message))])


def _restore_state(worker: Worker) -> None:
    task = worker.task
    edit(worker)
    here, chosen = captured(tree_lines(worker.sandbox.work)), worker.kept("save 0")
    worker.move(
        "restore",
        lambda: task.restore(chosen, "state", present=UNSAVED),
        to=here,
        present=UNSAVED,
        state=some_state(0),
    )
    worker.save(task, some_state(5), "after the restore")


SCENARIOS = {
    "restore whole": Scenario(save_changes, _restore_whole),
    "restore files": Scenario(save_changes, _restore_files),
    "restore some files": Scenario(save_changes, _restore_some_files),
    "restore state": Scenario(save_changes, _restore_state),
}
