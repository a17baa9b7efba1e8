"""What a store counts of itself: exactly, cheaply, and whatever happens to whom in the middle of it (A5, A13)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import ConflictError, Evidence, EvidencePack, EvidenceType, Store, UnavailableError
from lastgood.engine.commit import Draft
from lastgood.observe.meter import MAX_CHARACTERS, MAX_VALUES, Meter
from lastgood.observe.metrics import BYTES, METRICS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fail_commits(store: Store) -> Callable[[], None]:
    """Until what is given is called, nothing can be stored."""

    def fail(*_: Any) -> Any:
        raise UnavailableError("the disk reported an error; nothing was saved")

    vars(store._engine.catalog)["commit"] = fail
    return lambda: vars(store._engine.catalog).pop("commit")


# --- what is counted ---------------------------------------------------------------------------------------------


@pytest.fixture
def unspooled(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "unspooled", on_failure="raise") as opened:
        yield opened


def test_saves_are_counted_by_what_became_of_them_and_by_type(unspooled: Store) -> None:
    """A13"""
    store, task = unspooled, unspooled.task("t")
    task.save({"n": 1}, type="tool_executed")
    task.save({"n": 2}, key="once")
    task.save({"n": 2}, key="once")
    with task.step("edit") as step:
        step.state["n"] = 3
    mend = fail_commits(store)
    with pytest.raises(UnavailableError):
        task.save({"n": 4})
    assert task.save({"n": 4}, on_failure="continue").status == "lost"
    mend()
    found = store.metrics()
    assert found.value("saves", outcome="stored") == 3
    assert found.value("saves", outcome="stored", type="tool_executed") == 1
    assert found.value("saves", outcome="stored", type="step") == 1
    assert found.value("saves", type="manual") == 4
    assert [found.value("saves", outcome=outcome) for outcome in ("repeated", "failed", "lost")] == [1, 1, 1]
    assert found.saves_per_minute == found.value("saves_per_minute") == pytest.approx(3, abs=1.5)
    assert found.value("lastgood_saves_total") == found.value("saves") == 6


def test_who_conflicts_has_not_failed_to_save(store: Store) -> None:
    """Nothing is wrong with the store then; nor is one that is tried again on top of the new head counted twice."""
    stale, other = store.task("t"), store.task("t")
    stale.save({"n": 1})
    with pytest.raises(ConflictError):
        other.save({"n": 2})
    other.append({"n": 3})
    found = store.metrics()
    assert (found.value("saves"), found.value("saves", outcome="stored")) == (2, 2)


def test_how_long_saves_took_and_how_large_they_were_is_told_in_buckets(store: Store) -> None:
    """A13"""
    task = store.task("t")
    text = os.urandom(40_000).hex()
    first, second = task.save({"text": text}), task.save({"text": text, "n": 2})
    families = {family.name: family for family in store.metrics().families}
    states, new = families["save_state_bytes"].histogram, families["save_new_bytes"].histogram
    took = families["save_duration_seconds"].histogram
    assert states is not None
    assert new is not None
    assert took is not None
    assert states.sum == first.state_size + second.state_size
    assert dict(states.buckets)[65_536] == 0
    assert dict(states.buckets)[262_144] == states.count == 2
    assert 40_000 < new.sum < 100_000  # the text once, compressed
    assert dict(new.buckets)[4096] == 1  # the second save, which had it already
    assert new.buckets[-1][1] == new.count == 2  # each bucket has those below it, too
    assert took.count == 2
    assert 0 < took.sum < 60


def test_a_value_that_is_the_end_of_a_bucket_is_in_it() -> None:
    meter = Meter()
    for size in (BYTES[0], BYTES[0] + 1, BYTES[-1] + 1):
        meter.count_stored("manual", 0.0, size, 0)
    (family,) = (one for one in meter.snapshot().families if one.name == "save_state_bytes")
    assert family.histogram is not None
    assert [count for _, count in family.histogram.buckets] == [1] + [2] * 11
    assert (family.histogram.count, family.histogram.sum) == (3, BYTES[0] * 2 + 1 + BYTES[-1] + 1)


def test_the_duration_of_a_save_begins_before_its_files_are_read(store: Store, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for n in range(3):
        (project / f"{n}.txt").write_text(str(n))
    task = store.task("t", workspace=project)
    task.save({})
    (project / "0.txt").write_text("changed")
    task.save({})
    took: list[float] = []
    clock = Clock()
    clock.now = Draft(state={}).began + 1e6
    store.meter._clock = clock
    store.meter.listen(lambda name, value: took.append(value) if name == "save_duration_seconds" else None)
    task.save({})
    assert 0.9e6 < took[0] <= 1e6


def _holding(missing: str | None = None) -> EvidencePack:
    claim = Evidence(EvidenceType.COMMAND_EXIT, "it ended well", {"exit_code": 0}, metadata={"actual_exit_code": 0})
    there = Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": missing or "x", "type": "file"})
    return EvidencePack([claim] if missing is None else [claim, there])


def test_verifications_and_evidence_that_fails_are_counted(store: Store) -> None:
    """A13: when a checkpoint is made, and whenever it is checked again."""
    task = store.task("t")
    assert store.metrics().verification_success_rate is None
    plain = task.save({"n": 0})
    good = task.save({"n": 1}, evidence=_holding())
    bad = task.save({"n": 2}, evidence=_holding("nowhere.txt"))
    for checkpoint in (plain, good, bad):
        store.verify_checkpoint(checkpoint.id)
    found = store.metrics()
    results = {result: found.value("verifications", result=result) for result in ("verified", "failed", "unverified")}
    assert results == {"verified": 2, "failed": 2, "unverified": 1}
    assert found.verification_success_rate == found.value("verification_success_ratio") == 0.5
    assert found.value("evidence_failures", type="artifact_exists") == 2
    assert found.value("evidence_failures") == 2


def test_evidence_that_nobody_checked_is_not_counted(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "s", auto_verify=False) as store:
        store.task("t").save({}, evidence=_holding("nowhere.txt"))
        assert store.metrics().value("verifications") == 0


def test_a_damaged_checkpoint_counts_against_the_rate(store: Store) -> None:
    saved = store.task("t").save({}, evidence=_holding())
    blobs = store._engine.catalog.checkpoint
    vars(store._engine.catalog)["checkpoint"] = lambda *about: _spoilt(blobs(*about))
    assert not store.verify_checkpoint(saved.id)
    del vars(store._engine.catalog)["checkpoint"]
    found = store.metrics()
    assert found.value("verifications", result="damaged") == 1
    assert found.verification_success_rate == 0.5


def _spoilt(stored: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(stored, data=stored.data[:-1] + bytes([stored.data[-1] ^ 1]))


def test_the_cache_is_told(tmp_path: Path) -> None:
    """A5, A13"""
    with lastgood.open(tmp_path / "s") as store:
        made = [store.task("t").save({"n": n}).id for n in range(3)]
    with lastgood.open(tmp_path / "s", cache_checkpoints=2) as store:
        for name in [*made, made[2]]:
            _ = store.find_checkpoint(name).state
        found, figures = store.metrics(), store._engine.cache.figures()
        names = ("entries", "bytes", "hits", "misses", "evictions")
        assert [found.value(f"cache_{name}") for name in names] == [getattr(figures, name) for name in names]
        assert (figures.entries, figures.hits, figures.misses, figures.evictions) == (2, 1, 3, 1)


def test_bytes_of_the_store_are_told(store: Store) -> None:
    store.task("t").save({})
    assert store.metrics().value("store_bytes") == store.size() > 0


def test_the_size_of_the_store_is_asked_for_at_most_once_a_minute() -> None:
    """It lists all packs."""
    clock, asked = Clock(), iter((10.0, 20.0))
    meter = Meter(clock)
    assert meter.remember_size(lambda: next(asked)) == 10
    clock.now += 59
    assert meter.remember_size(lambda: next(asked)) == 10
    clock.now += 1
    assert meter.remember_size(lambda: next(asked)) == 20


def test_a_store_that_is_away_still_tells_what_it_counted(tmp_path: Path) -> None:
    def away() -> int:
        raise UnavailableError("the disk is away")

    with lastgood.open(tmp_path / "s") as store:
        store.task("t").save({})
        vars(store._engine.catalog)["disk_use"] = away
        assert "store_bytes" not in {family.name for family in store.metrics().families}
        assert store.metrics().value("saves") == 1
    assert store.metrics().value("saves") == 1  # closed


def test_the_rate_is_of_the_last_minutes_and_follows_what_changes() -> None:
    """A13"""
    clock = Clock()
    meter = Meter(clock)

    def save(count: int, seconds: float) -> float:
        for _ in range(count):
            clock.now += seconds / count
            meter.count_stored("manual", clock.now, 0, 0)
        return meter.snapshot().saves_per_minute

    assert meter.snapshot().saves_per_minute == 0
    assert save(1, 0.0) == 1
    assert save(1200, 600.0) == pytest.approx(120, rel=0.01)
    assert save(30, 600.0) == pytest.approx(3, rel=0.3)
    clock.now += 600
    assert meter.snapshot().saves_per_minute < 0.001


# --- labels ------------------------------------------------------------------------------------------------------


def test_types_are_an_open_set_but_not_an_endless_one(store: Store) -> None:
    task = store.task("t")
    for n in range(MAX_VALUES + 20):
        task.save({}, type=f"type_{n}")
    task.save({}, type="type_0")
    found = store.metrics()
    assert found.value("saves", type="other") == 20
    assert found.value("saves", type="type_0") == 2
    assert found.value("saves") == MAX_VALUES + 21
    for n in range(MAX_VALUES + 20):
        store.meter.count("evidence_failures", {"type": f"{n:03}" + "x" * 1000})
    found = store.metrics()
    told = next(family for family in found.families if family.name == "evidence_failures").samples
    assert len(told) == MAX_VALUES + 1
    assert max(len(sample.labels["type"]) for sample in told) == MAX_CHARACTERS
    assert sum(sample.value for sample in told) == MAX_VALUES + 20


def test_failed_saves_and_stored_ones_share_their_types(store: Store) -> None:
    for n in range(MAX_VALUES):
        store.meter.count_save("failed", f"type_{n}")
    store.task("t").save({}, type="one_more")
    assert store.metrics().value("saves", outcome="stored", type="other") == 1


def test_every_counter_of_the_table_can_be_counted() -> None:
    meter = Meter()
    for metric in METRICS.values():
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind == "counter":
            meter.count(metric.name, labels)
            meter.count(metric.name, labels, 2)
            assert meter.snapshot().value(metric.name, **labels) == 3


# --- whatever happens ----------------------------------------------------------------------------------------------


def test_threads_lose_no_count() -> None:
    meter = Meter()

    def work(name: str) -> None:
        for _ in range(5000):
            meter.count("evidence_failures", {"type": name})

    threads = [threading.Thread(target=work, args=(f"thread {n % 2}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = meter.snapshot()
    assert [found.value("evidence_failures", type=f"thread {n}") for n in range(2)] == [10_000, 10_000]


def test_a_signal_handler_may_count_while_its_thread_counts() -> None:
    meter = Meter()
    with meter._lock:
        meter.count("alerts", {"code": "session"})
        meter.count_stored("manual", 0.0, 0, 0)
        assert meter.snapshot().value("alerts") == meter.snapshot().value("saves") == 1


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_begins_at_nothing(store: Store) -> None:
    """What was counted before is the parent's to tell; a lock that it held is not missed."""
    task = store.task("t")
    task.save({"n": 1})
    _ = store.find_checkpoint(store.list_checkpoints("t")[0].id).state
    assert store.metrics().value("saves") == 1
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.meter._lock:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            before = store.metrics()
            task.save({"n": 2})
            after = store.metrics()
            told = [before.value("saves"), before.value("cache_misses"), after.value("saves"), after.since > before.at]
            os.write(writing, json.dumps(told).encode())
        finally:
            os._exit(0)
    done.set()
    holder.join()
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = json.load(pipe)
    assert os.waitpid(pid, 0)[1] == 0
    assert told == [0, 0, 1, False]
    assert store.metrics().value("saves") == 1


# --- telling it --------------------------------------------------------------------------------------------------


def test_a_snapshot_is_plain_data(store: Store) -> None:
    """A13: JSON."""
    store.task("t").save({})
    found = store.metrics()
    told = json.loads(json.dumps(found.to_dict()))
    assert told["saves_per_minute"] == found.saves_per_minute > 0.5
    family = next(family for family in told["families"] if family["name"] == "saves")
    assert family["samples"] == [{"value": 1, "labels": {"outcome": "stored", "type": "manual"}}]
    store.task("t").append({})
    assert found.value("saves") == 1
    with pytest.raises(AttributeError):
        found.saves_per_minute = 5  # type: ignore[misc]


def test_nothing_is_imported_that_nobody_asked_for() -> None:
    code = """if True:
        import sys, lastgood
        with lastgood.open(":memory:") as store:
            store.task("t").save({})
            store.metrics().to_prometheus()
            print({"prometheus_client", "opentelemetry", "urllib.request", "http.client"} & {*sys.modules})
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["set()"]


def table(page: str, head: str) -> list[list[str]]:
    """The rows of the table of a page that begins with `head`."""
    text = (Path(__file__).parents[2] / "docs" / "reference" / page).read_text()
    rows = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_the_documentation_has_every_metric_as_it_is() -> None:
    documented = table("metrics.md", "| name | kind |")
    declared = [
        [f"`{metric.exposed}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help]
        for metric in METRICS.values()
    ]
    assert documented == declared
