"""What a stage of a pipeline costs beyond the function itself, against a step of DBOS on SQLite.

    python -m benchmarks.runner [--only NAME ...] [--stages N] [--rounds N] [--folder FOLDER]

Both sides run the same functions in one process, take turns, and sync before they go on. A full run replaces its
section of RESULTS.md; any other only prints.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import lastgood
from benchmarks.measure import Row, Series, at_least, inform, interleave, seconds
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all

STAGES, ROUNDS = 20, 60
PARTS = ("stage",)


def main(arguments: list[str]) -> int:
    options = _options(arguments)

    def measure(folder: Path) -> Report:
        return Report(_explain(options), [measure_part("stage", folder, lambda own: _measure_stage(own, options))])

    is_full = (options.stages, options.rounds) == (STAGES, ROUNDS)
    return run_all("runner", options.folder, measure, is_full=is_full)


def _measure_stage(folder: Path, options: argparse.Namespace) -> Findings:
    theirs = _Theirs(folder / "theirs", options.stages)
    with lastgood.open(folder / "ours", collect="never") as store:
        ours = _Ours(store, options.stages)
        actions: dict[str, Callable[[], float]] = {
            "direct": lambda: seconds(lambda: _run_directly(options.stages)),
            "ours": ours.run,
            "theirs": theirs.run,
        }
        interleave(actions, 3)  # warm
        found = interleave(actions, options.rounds)
    theirs.close()
    each = {name: Series(time / options.stages for time in series) for name, series in found.items()}
    beyond = {name: Series(time - each["direct"].median for time in each[name]) for name in ("ours", "theirs")}
    rows: list[Row] = [
        at_least(
            "a stage, beyond calling its function",
            beyond["ours"].median,
            beyond["theirs"].median,
            2,
            str(beyond["ours"]),
            f"{beyond['theirs']}, a DBOS step",
        ),
        inform("… beside the function alone", each["ours"], each["direct"]),
    ]
    return Findings(rows, [])


def _add_one(state: dict[str, Any]) -> None:
    state["n"] = state["n"] + 1


def _run_directly(stages: int) -> None:
    state = {"n": 0}
    for _ in range(stages):
        _add_one(state)
    assert state["n"] == stages


class _Ours:
    """A pipeline whose stages count, on a new task each time."""

    def __init__(self, store: lastgood.Store, stages: int) -> None:
        self._store = store
        self._stages = stages
        self._runs = 0
        self._pipeline = lastgood.Pipeline([self._stage(number) for number in range(stages)])

    def run(self) -> float:
        self._runs += 1
        task = self._store.task(f"run {self._runs}")
        took = seconds(lambda: self._pipeline.run(task))
        assert task.state["n"] == self._stages
        return took

    def _stage(self, number: int) -> Callable[[Any], None]:
        def stage(ctx: Any) -> None:
            ctx.state.setdefault("n", 0)
            _add_one(ctx.state)

        stage.__name__ = f"stage_{number}"
        return stage


class _Theirs:
    """A workflow of DBOS whose steps count. Its database is set to WAL, as ours is; synchronous=FULL is its default."""

    def __init__(self, folder: Path, stages: int) -> None:
        from dbos import DBOS

        folder.mkdir()
        file = folder / "dbos.sqlite"
        config: Any = {
            "name": "bench",
            "system_database_url": f"sqlite:///{file}",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
        self._dbos = DBOS
        with closing(sqlite3.connect(file)) as connection:  # before anybody has it open
            connection.execute("PRAGMA journal_mode = WAL")
        DBOS(config=config)

        def count(n: int) -> int:
            state = {"n": n}
            _add_one(state)
            return state["n"]

        step: Callable[[int], int] = DBOS.step()(count)

        def workflow() -> int:
            n = 0
            for _ in range(stages):
                n = step(n)
            return n

        self._workflow: Callable[[], int] = DBOS.workflow()(workflow)
        DBOS.launch()
        with closing(sqlite3.connect(file)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        self._stages = stages

    def run(self) -> float:
        given: list[int] = []
        took = seconds(lambda: given.append(self._workflow()))
        assert given == [self._stages]
        return took

    def close(self) -> None:
        self._dbos.destroy()


def _explain(options: argparse.Namespace) -> list[str]:
    from importlib.metadata import version

    return [
        f"The peer is DBOS {version('dbos')} with its SQLite database, in WAL mode and synchronous=FULL like ours.",
        f"{options.stages} stages a run, each of which adds one; {options.rounds} runs of each side, taking turns.",
        "Ours also holds a lease, begins and ends a session, and notes the beginning of each stage; what a run costs",
        "once is part of its stages' cost on both sides. Medians, with p10..p90 in parentheses.",
    ]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = parser_of("runner", PARTS)
    parser.add_argument("--stages", type=number_from(1), default=STAGES, help="of one run")
    parser.add_argument("--rounds", type=number_from(2), default=ROUNDS, help="runs of each side")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
