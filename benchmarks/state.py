"""Saving, listing and loading state, against LangGraph's SQLite checkpointer and against bare SQLite.

    python -m benchmarks.state [--only NAME ...] [--turns N] [--checkpoints N] [--folder FOLDER]

Both sides are durable alike (WAL, synchronous=FULL), take turns, and are timed around the one call alone.
A full run replaces its section of RESULTS.md; a shortened one only prints.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from ormsgpack import packb
from zstandard import ZstdCompressor

from benchmarks.bulk import TASK, USER, make_store, small_state
from benchmarks.conversation import Message, conversation
from benchmarks.evidence import measure_evidence
from benchmarks.growth import measure_appending
from benchmarks.measure import (
    Row,
    Series,
    at_least,
    at_most,
    duration,
    environment_with,
    files_size,
    interleave,
    say,
    seconds,
    size,
)
from benchmarks.memory import conversation_memory
from benchmarks.peer import THREAD, Peer
from benchmarks.report import Findings, Report, measure_part, number_from, parser_of, run_all
from benchmarks.writers import measure_writers
from lastgood.codec.append_list import AppendList
from lastgood.engine.checkpoint import Checkpoint
from lastgood.local.location import CONFIG, config_text
from lastgood.opening import open_store
from lastgood.store import Store
from lastgood.task import Task

TURNS, CHECKPOINTS, FEW = 1000, 1_000_000, 1000
FULL, PAGE, WAL_BYTES = 2, 4096, 4096 * 1000
SAVE_PAGES = 12  # about what one save of ours writes to the WAL
PAGE_OF_LIST = 1000


class Settings(NamedTuple):
    folder: Path
    turns: int
    checkpoints: int


# --- the floor: what the disk takes, whoever writes --------------------------------------------------------


class Floor:
    """A bare write and fdatasync, over and over the same few megabytes as a WAL is written."""

    def __init__(self, file: Path, pages: int) -> None:
        self._data = os.urandom(pages * PAGE)
        self._at = 0
        self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR, 0o600)
        os.pwrite(self._descriptor, bytes(WAL_BYTES + len(self._data)), 0)
        os.fsync(self._descriptor)
        self._sync = getattr(os, "fdatasync", os.fsync)

    def write(self) -> None:
        os.pwrite(self._descriptor, self._data, self._at)
        self._sync(self._descriptor)
        self._at = (self._at + len(self._data)) % WAL_BYTES

    def close(self) -> None:
        os.close(self._descriptor)


# --- a conversation, against LangGraph ---------------------------------------------------------------------


def measure_conversation(settings: Settings) -> Findings:
    ours, theirs = settings.folder / "ours", settings.folder / "theirs"
    theirs.mkdir()
    messages = conversation(settings.turns)
    packed = packb(messages)
    ratio = len(packed) / len(ZstdCompressor(level=3).compress(packed))
    note = (
        f"The conversation: {len(messages):,} messages, {size(len(packed))}; zstd -3 of it as one piece: {ratio:.2f}x."
    )
    rows = _save_conversation(ours, theirs, messages, settings)
    our_size, their_size = files_size(ours.rglob("*")), files_size(theirs.rglob("*"))
    rows.append(
        at_least("store of the conversation", our_size, their_size, 250, size(our_size), size(their_size)),
    )
    rows += _list_conversation(ours, theirs / "peer.sqlite", len(messages))
    rows += _load_conversation(ours, theirs / "peer.sqlite", messages)
    return Findings(rows, [note])


def _save_conversation(ours: Path, theirs: Path, messages: list[Message], settings: Settings) -> list[Row]:
    series = {"ours": Series(), "theirs": Series(), "floor": Series(), "appended": Series()}
    store, peer = open_store(ours, user=USER), Peer(theirs / "peer.sqlite")
    appending = open_store(settings.folder / "appended", user=USER, warn_state_bytes=1 << 30)
    appended, appended_task = AppendList(), appending.task(THREAD)
    floor = Floor(settings.folder / "floor", SAVE_PAGES)
    peer.require_durability()
    task = store.task(THREAD)
    said: list[Message] = []

    def save_ours(step: int) -> None:
        state = {"messages": said, "step": step}
        series["ours"].append(seconds(lambda: task.save(state)))

    def save_theirs(step: int) -> None:
        checkpoint = peer.checkpoint(step, {"messages": said, "step": step})
        config: list[Any] = []
        series["theirs"].append(seconds(lambda: config.append(peer.put(checkpoint, step))))
        peer.keep(config[0])

    def save_appended(step: int) -> None:
        state = {"messages": appended, "step": step}
        took = seconds(lambda: appended.append(said[-1]))
        series["appended"].append(took + seconds(lambda: appended_task.save(state)))

    order = [save_ours, save_theirs, save_appended]
    for step, message in enumerate(messages):
        said.append(message)
        for save in order[step % 3 :] + order[: step % 3]:
            save(step)
        series["floor"].append(seconds(floor.write))
        if step % 100 == 99:
            say(f"  turn {step + 1:,} of {len(messages):,}")
    for thing in (store, appending, peer, floor):
        thing.close()
    return _save_rows(series["ours"], series["appended"], series["theirs"], series["floor"])


def _save_rows(ours: Series, appended: Series, theirs: Series, floor: Series) -> list[Row]:
    our_end, added_end, their_end = Series(ours[-100:]), Series(appended[-100:]), Series(theirs[-100:])
    end = f"{their_end.median / our_end.median:.3g}x less"
    total = f"{sum(theirs) / sum(ours):.3g}x less"
    return [
        at_least("a save of the conversation", ours.median, theirs.median, 5, str(ours), str(theirs)),
        Row("… with AppendList", str(appended), str(theirs), f"{theirs.median / appended.median:.3g}x less"),
        Row("… of its last 100 turns", str(our_end), str(their_end), end),
        Row("… with AppendList", str(added_end), str(their_end), f"{their_end.median / added_end.median:.3g}x less"),
        Row("… all of them together", duration(sum(ours)), duration(sum(theirs)), total),
        Row(f"… beside a bare {SAVE_PAGES * PAGE >> 10} KiB write + sync", str(ours), str(floor), _times(ours, floor)),
    ]


def _times(ours: Series, other: Series) -> str:
    return f"{ours.median / other.median:.3g}x"


def _list_conversation(ours: Path, theirs: Path, count: int) -> list[Row]:
    store, peer = open_store(ours, user=USER), Peer(theirs)

    def list_ours() -> float:
        found: list[Checkpoint] = []
        took = seconds(lambda: found.extend(_all_checkpoints(store)))
        assert len(found) == count, f"{len(found)} of {count} checkpoints were listed"
        return took

    def list_theirs() -> float:
        found: list[int] = []
        took = seconds(lambda: found.append(peer.list()))
        assert found == [count], f"the peer listed {found} of {count} checkpoints"
        return took

    say("  listing")
    series = interleave({"ours": _settled(list_ours), "theirs": _settled(list_theirs)}, 5)
    store.close()
    peer.close()
    ours_, theirs_ = series["ours"], series["theirs"]
    measure = f"listing its {count:,} checkpoints"
    return [at_least(measure, ours_.median, theirs_.median, 100, str(ours_), str(theirs_))]


def _all_checkpoints(store: Store) -> list[Checkpoint]:
    found = page = store.list_checkpoints(THREAD, PAGE_OF_LIST)
    while len(page) == PAGE_OF_LIST and page[-1].sequence != 1:
        page = store.list_checkpoints(THREAD, PAGE_OF_LIST, before=page[-1].sequence)
        found = found + page
    return found


def _load_conversation(ours: Path, theirs: Path, messages: list[Message]) -> list[Row]:
    wanted = {"messages": messages, "step": len(messages) - 1}

    def load_ours() -> Any:
        store = open_store(ours, user=USER)
        return store, store.task(THREAD).state

    def load_theirs() -> Any:
        peer = Peer(theirs)
        return peer, peer.latest()

    def timed(load: Callable[[], Any]) -> Callable[[], float]:
        def once() -> float:
            found: list[Any] = []
            took = seconds(lambda: found.append(load()))
            handle, state = found[0]
            handle.close()
            assert state == wanted, "what was loaded is not what was saved"
            return took

        return _settled(once)

    say("  loading")
    series = interleave({"ours": timed(load_ours), "theirs": timed(load_theirs)}, 30)
    ours_, theirs_ = series["ours"], series["theirs"]
    measure = "opening and loading the latest, verified"
    return [at_most(measure, ours_.median, theirs_.median, 2, str(ours_), f"{theirs_}, unverified")]


def _settled(action: Callable[[], float]) -> Callable[[], float]:
    """`action`, never paying for the garbage of whoever came before."""

    def settled() -> float:
        gc.collect()
        return action()

    return settled


# --- small saves, against bare SQLite ----------------------------------------------------------------------


class Bare:
    """A plain table in a WAL database with synchronous=FULL; each insert is a transaction of its own."""

    def __init__(self, file: Path) -> None:
        self._connection = apsw.Connection(str(file))
        assert self._connection.pragma("journal_mode", "wal") == "wal"
        self._connection.pragma("synchronous", FULL)
        assert self._connection.pragma("synchronous") == FULL
        self._connection.execute("CREATE TABLE saves (number INTEGER PRIMARY KEY, data BLOB)")

    def insert(self, data: bytes) -> None:
        self._connection.execute("INSERT INTO saves (data) VALUES (?)", (data,))

    def close(self) -> None:
        self._connection.close()


def measure_small(settings: Settings) -> Findings:
    store, bare = open_store(settings.folder / "small", user=USER), Bare(settings.folder / "bare.sqlite")
    floor = Floor(settings.folder / "small-floor", 1)
    task = store.task(TASK)
    steps = {"ours": 0, "bare": 0}

    def next_state(who: str) -> dict[str, Any]:
        steps[who] += 1
        return small_state(steps[who])

    def save() -> float:
        state = next_state("ours")
        return seconds(lambda: task.save(state))

    def insert() -> float:
        data = packb(next_state("bare"))
        return seconds(lambda: bare.insert(data))

    actions = {"ours": save, "bare": insert, "floor": lambda: seconds(floor.write)}
    interleave(actions, 50)
    series = interleave(actions, 1000)
    for thing in (store, bare, floor):
        thing.close()
    ours, other = series["ours"], series["bare"]
    bytes_ = len(packb(small_state(1000)))
    rows = [
        at_most(f"a small save ({bytes_} bytes)", ours.median, other.median, 1.5, str(ours), f"{other}, bare insert"),
        Row("… beside a bare 4 KiB write + sync", str(ours), str(series["floor"]), _times(ours, series["floor"])),
    ]
    return Findings(rows, [])


# --- few and many checkpoints ------------------------------------------------------------------------------


class Sized:
    """A store with so many checkpoints, and what is measured on it."""

    def __init__(self, folder: Path, checkpoints: int) -> None:
        say(f"  making {checkpoints:,} checkpoints")
        self.each = make_store(folder, checkpoints)
        self.checkpoints = checkpoints
        self._store = open_store(folder, user=USER)
        self._task: Task = self._store.task(TASK)
        self._step = checkpoints
        task = self._store.tasks()[0]
        assert task.checkpoints == checkpoints
        self.branches = len(self._store._engine.catalog.branches(task))
        self.size = self._store.size()

    def save(self) -> float:
        self._step += 1
        state = small_state(self._step)
        return seconds(lambda: self._task.save(state))

    def last_verified(self) -> float:
        found: list[Checkpoint | None] = []
        took = seconds(lambda: found.append(self._store.get_last_verified_checkpoint(TASK)))
        assert found[0] is not None
        assert found[0].verified
        return took

    def list(self) -> float:
        found: list[Checkpoint] = []
        took = seconds(lambda: found.extend(self._store.list_checkpoints(TASK, 20)))
        assert len(found) == 20
        return took

    def close(self) -> None:
        self._store.close()


def measure_scale(settings: Settings) -> Findings:
    few = Sized(settings.folder / "few", FEW)
    many = Sized(settings.folder / "many", settings.checkpoints)
    operations = {"save": Sized.save, "latest verified": Sized.last_verified, "list of 20": Sized.list}
    plan = [(name, store) for name in operations for store in (few, many)]
    series = {(name, store.checkpoints): Series() for name, store in plan}
    say("  measuring")
    for name, store in plan * 20:
        operations[name](store)
    plan *= 300
    random.Random(1).shuffle(plan)
    for name, store in plan:
        series[name, store.checkpoints].append(operations[name](store))
    rows = []
    for name in operations:
        ours, other = series[name, many.checkpoints], series[name, few.checkpoints]
        measure = f"{name}, {many.checkpoints:,} checkpoints against {few.checkpoints:,}"
        rows.append(at_most(measure, ours.median, other.median, 2, str(ours), str(other)))
    note = (
        f"The large store: {many.checkpoints:,} checkpoints of one task on {many.branches} branches, "
        f"{size(many.size)}, {size(many.size / many.checkpoints)} each; made without syncing, "
        f"{duration(many.each)} each. The small one has {few.branches} branch(es)."
    )
    few.close()
    many.close()
    return Findings(rows, [note])


# --- the command -------------------------------------------------------------------------------------------


def measure_command(settings: Settings) -> Findings:
    targets = {"--version": 1.5, "log": 5.0}
    command = Path(sys.executable).with_name("lastgood")
    if importlib.util.find_spec("lastgood.cli.main") is None or not command.exists():
        missing = [Row(f"lastgood {name}", "not there", "–", "–", f"<= {at}x", "–") for name, at in targets.items()]
        return Findings(missing, [])
    folder = _folder_with_task(settings.folder / "project")
    environment = environment_with(settings.folder / "bytecode")

    def run(*line: str) -> Callable[[], float]:
        def once() -> float:
            done: list[subprocess.CompletedProcess[str]] = []
            took = seconds(lambda: done.append(_run(line, folder, environment)))
            if done[0].returncode:
                raise RuntimeError(f"{Path(line[0]).name} {' '.join(line[1:])} failed: {done[0].stderr.strip()}")
            return took

        return once

    actions = {name: run(str(command), name) for name in targets}
    actions["bare"] = run(sys.executable, "-c", "pass")
    interleave(actions, 3)
    series = interleave(actions, 25)
    bare = series["bare"]
    rows = [
        at_most(
            f"lastgood {name}", series[name].median, bare.median, target, str(series[name]), f"{bare}, python -c pass"
        )
        for name, target in targets.items()
    ]
    return Findings(rows, [])


def _run(line: tuple[str, ...], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)


def _folder_with_task(folder: Path) -> Path:
    """A project with a `lastgood.toml` and 20 checkpoints."""
    folder.mkdir()
    (folder / CONFIG).write_text(config_text({"store": "store", "task": TASK}))
    with open_store(folder / "store") as store:
        task = store.task(TASK)
        for step in range(20):
            task.save(small_state(step), message=f"step {step}")
    return folder


# --- memory ------------------------------------------------------------------------------------------------


def measure_memory(settings: Settings) -> Findings:
    ours, theirs = (conversation_memory(side, settings.turns, settings.folder) for side in ("ours", "theirs"))
    ratio = f"{ours / theirs:.3g}x"
    return Findings([Row("peak memory of the conversation", size(ours), size(theirs), ratio)], [])


# --- all of it ---------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Settings], Findings]] = {
    "command": measure_command,
    "small": measure_small,
    "appending": lambda settings: Findings(measure_appending(settings.folder), []),
    "writers": lambda settings: Findings(measure_writers(settings.folder), []),
    "evidence": lambda settings: Findings(measure_evidence(settings.folder), []),
    "conversation": measure_conversation,
    "memory": measure_memory,
    "scale": measure_scale,
}

EXPLANATION = [
    "Medians, with p10..p90 in parentheses. Both sides take turns in one run, with WAL and synchronous=FULL.",
    "The peer is langgraph-checkpoint-sqlite's SqliteSaver with its default serializer; messages are dictionaries.",
    "Only the peer's `put` is timed, not the `put_writes` that LangGraph calls as well; its listing is not kept.",
    "Sizes are those of all files of a store after it was closed.",
]


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    names = options.only or list(PARTS)

    def measure(folder: Path) -> Report:
        settings = Settings(folder, options.turns, options.checkpoints)
        return Report(EXPLANATION, [measure_part(name, folder, _part(name, settings)) for name in names])

    asked = options.turns, options.checkpoints, set(names)
    return run_all("state", options.folder, measure, is_full=asked == (TURNS, CHECKPOINTS, set(PARTS)))


def _part(name: str, settings: Settings) -> Callable[[Path], Findings]:
    return lambda folder: PARTS[name](settings._replace(folder=folder))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = parser_of("state", PARTS)
    parser.add_argument("--turns", type=number_from(100), default=TURNS, help="messages of the conversation")
    parser.add_argument("--checkpoints", type=number_from(100), default=CHECKPOINTS, help="of the large store")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
