"""G2, modelled: whatever a file system that promises no more than POSIX may have kept when the power fails.

Real ones hide a missing sync of a folder, because the next sync of anything takes it along. Here one undisturbed run
is noted with all that it wrote, and for each call the disk is laid out as it may look if the power fails before it.

What power loss may take, as docs/reference/format.md says: the beginning of a step, the announcement of a
pack, the witness, caches, copies of files elsewhere; and steps of a collection. None of them is acknowledged as saved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from tests.faults.campaign import Campaign, Plan, Trial
from tests.faults.disk_model import (
    Disk,
    Surviving,
    all_kept,
    all_lost,
    by_chance,
    content_first,
    lay_out,
    look_at,
    names_first,
    surviving,
)
from tests.faults.prepared_scenario import PreparedScenario, open_scenario
from tests.faults.scenarios import SCENARIOS
from tests.faults.shim import JOURNAL_ENDS, OWN_WORK, OWN_WORK_DONE, no_compiler
from tests.faults.trace import Call, Op, read_trace

PARTS = tuple(name for name, scenario in SCENARIOS.items() if scenario.beside is None)
"""What an undisturbed process does beside the scenario is not noted, so nobody knows what was durable."""
CHANCES = 2
"""So many random states for each call, beside the three that are certain."""


class Point(NamedTuple):
    """The power fails before this call, when so many lines of the ledger had been written; this is one of the states
    that the disk may be in."""

    call: int
    lines: int
    how: str
    found: Surviving


def run(scenario: str, plan: Plan) -> Iterator[Trial]:
    with open_scenario(scenario, path=plan.path) as prepared:
        outcome = prepared.run(trace=True, with_data=True)
        if outcome.error:
            yield Trial(f"{scenario}, undisturbed", [outcome.error])
            return
        calls, ledger = (
            read_trace(prepared.sandbox.trace),
            prepared.sandbox.ledger.read_bytes().splitlines(keepends=True),
        )
        yield Trial(f"{scenario}, the model against the disk", _differences(prepared, calls))
        chosen: set[tuple[int, str]] | None = None
        if plan.points is not None:  # made twice, because all states at once would take gigabytes
            there_are = [(point.call, point.how) for point in _points(prepared, calls, len(ledger), plan.seed)]
            chosen = set(plan.choose(there_are))
        for point in _points(prepared, calls, len(ledger), plan.seed):
            if chosen is None or (point.call, point.how) in chosen:
                _lay_out(prepared, point, ledger)
                yield Trial(f"{scenario}, {point.how} before call {point.call}", prepared.verify("laid out"))


def _differences(prepared: PreparedScenario, calls: list[Call]) -> list[str]:
    """Whoever keeps everything must get what is there. What SQLite maps into memory passes no call."""
    disk = _beginning(prepared)
    for call in calls:
        disk.follow(call)
    modelled, real = surviving(disk, all_kept), look_at(prepared.sandbox.disk)
    return [
        f"the model is wrong about {path or 'the folder'}"
        for path in sorted(modelled.keys() | real.keys())
        if modelled.get(path) != real.get(path) and not path.endswith("-shm")
    ]


def _points(prepared: PreparedScenario, calls: list[Call], lines: int, seed: int) -> Iterator[Point]:
    """Every state once: most calls change nothing about what is durable. Not while the program changes its own files:
    what becomes of them is not the store's business."""
    disk, seen = _beginning(prepared), set[int]()
    written = lines - sum(map(_is_line, calls))
    is_own = False
    end = Call(calls[-1].number + 1, Op.SYNCALL, str(prepared.sandbox.disk))
    for call in [*calls, end]:
        if call.op == Op.MARK:
            written += _is_line(call)
            is_own = (is_own and call.path != OWN_WORK_DONE) or call.path == OWN_WORK
            continue
        for how, found in [] if is_own else _states(disk, random.Random(f"{seed} {call.number}")):
            state = hash((written, tuple(found.items())))
            if state not in seen:
                seen.add(state)
                yield Point(call.number, written, how, found)
        disk.follow(call)


def _is_line(call: Call) -> bool:
    """Whether it stands for a line of the ledger."""
    return call.op == Op.MARK and call.path not in (OWN_WORK, OWN_WORK_DONE, JOURNAL_ENDS)


def _states(disk: Disk, dice: random.Random) -> Iterator[tuple[str, Surviving]]:
    yield "all lost that was not synced", surviving(disk, all_lost)
    yield "only names kept that were not synced", surviving(disk, names_first)
    yield "only content kept that was not synced", surviving(disk, content_first)
    for number in range(CHANCES):
        yield f"some kept that was not synced ({number})", surviving(disk, by_chance(dice))


def _beginning(prepared: PreparedScenario) -> Disk:
    return Disk(prepared.sandbox.disk, prepared.sandbox.beginning())


def _lay_out(prepared: PreparedScenario, point: Point, ledger: list[bytes]) -> None:
    prepared.sandbox.clear()
    lay_out(point.found, prepared.sandbox.disk)
    prepared.sandbox.ledger.write_bytes(b"".join(ledger[: point.lines]))


CAMPAIGN = Campaign(
    "reorder",
    "G2",
    "whatever POSIX lets a disk forget, nothing acknowledged is lost",
    PARTS,
    run,
    no_compiler,
)
