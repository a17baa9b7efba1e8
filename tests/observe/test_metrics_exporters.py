"""Metrics as others read them: by their own parsers, readers and exporters (A13)."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import lastgood
from lastgood import Evidence, EvidencePack, EvidenceType, InvalidError, Store, UnavailableError, UnstorableError, aio
from lastgood.observe import opentelemetry, prometheus
from lastgood.observe.metrics import METRICS, Family, Sample, render

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def work(store: Store) -> None:
    """Something of everything."""
    task = store.task("t")
    first = task.save({"n": 1})
    task.save({"n": 2}, type="tool_executed", evidence=failing())
    task.fork(first, name="aside", verify=False)
    task.restore(first)
    store.task("u").save({})
    store.delete_task("u")
    _ = store.find_checkpoint(first.id).state
    store._engine.alert("something", code="quota")
    at = store.meter._clock()
    store.meter._clock = lambda: at  # the rate of saves stays what it is


def failing() -> EvidencePack:
    return EvidencePack([Evidence(EvidenceType.ARTIFACT_EXISTS, "it is there", {"path": "nowhere", "type": "file"})])


def samples_of(metrics: Any) -> Samples:
    found: Samples = {}
    for metric in metrics:
        for sample in metric.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found


# --- Prometheus ------------------------------------------------------------------------------------------------


def test_the_text_is_what_prometheus_reads(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "s", max_bytes=1 << 40) as store:
        work(store)
        found = store.metrics()
        text = found.to_prometheus()
    parsed = {metric.name: metric for metric in text_string_to_metric_families(text)}
    assert set(parsed) == {metric.exposed.removesuffix("_total") for metric in METRICS.values()}
    for metric in METRICS.values():
        told = parsed[metric.exposed.removesuffix("_total")]
        assert (told.type, told.documentation) == (metric.kind, metric.help)
    samples = samples_of(parsed.values())
    for family in found.families:
        for sample in family.samples:
            assert samples.pop((family.exposed, frozenset(sample.labels.items()))) == sample.value
        if family.histogram is not None:
            for bound, count in (*family.histogram.buckets, (math.inf, family.histogram.count)):
                (key,) = [
                    key
                    for key in samples
                    if key[0] == f"{family.exposed}_bucket" and float(dict(key[1])["le"]) == bound
                ]
                assert samples.pop(key) == count
            assert samples.pop((f"{family.exposed}_sum", frozenset())) == family.histogram.sum
            assert samples.pop((f"{family.exposed}_count", frozenset())) == family.histogram.count
    assert samples == {}
    assert text.endswith("\n")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(TEXT, TEXT, st.floats())
def test_any_text_and_any_number_come_back(value: str, told: str, number: float) -> None:
    """A label may hold whatever a type of evidence is called; a help whatever a program registers."""
    family = Family("x", "x", "gauge", f"a {told} b", samples=(Sample(number, {"type": value}),))
    (parsed,) = text_string_to_metric_families(render([family]))
    (sample,) = parsed.samples
    assert sample.labels == {"type": value}
    assert sample.value == number or (math.isnan(sample.value) and math.isnan(number))
    assert " ".join(parsed.documentation.split()) == " ".join(f"a {told} b".split())


def test_text_that_is_no_unicode_can_still_be_told() -> None:
    family = Family("x", "x", "counter", "help", samples=(Sample(1, {"type": "a\ud800b"}),))
    assert render([family]).encode().endswith(b'x{type="a?b"} 1\n')


def test_a_registry_reads_the_same_as_the_text(store: Store) -> None:
    registry = CollectorRegistry(auto_describe=True)
    prometheus.register(store, registry=registry)
    work(store)
    theirs = samples_of(text_string_to_metric_families(generate_latest(registry).decode()))
    mine = samples_of(text_string_to_metric_families(store.metrics().to_prometheus()))
    for name in ("lastgood_save_duration_seconds_sum",):
        assert theirs[name, frozenset()] == mine[name, frozenset()]
    assert theirs == mine


def test_two_stores_are_told_apart_in_one_registry(tmp_path: Path) -> None:
    registry = CollectorRegistry(auto_describe=True)
    with lastgood.open(tmp_path / "a") as a, lastgood.open(tmp_path / "b") as b:
        prometheus.register(a, name="a", registry=registry)
        remove = prometheus.register(b, name="b", registry=registry)
        prometheus.register(a, name="a", registry=registry)  # twice is harmless
        with pytest.raises(InvalidError, match="another store"):
            prometheus.register(b, name="a", registry=registry)
        a.task("t").save({})
        b.task("t").save({})
        b.task("t").append({})
        told = {"outcome": "stored", "type": "manual"}
        assert registry.get_sample_value("lastgood_saves_total", {**told, "store": "a"}) == 1
        assert registry.get_sample_value("lastgood_saves_total", {**told, "store": "b"}) == 2
        assert registry.get_sample_value("lastgood_save_new_bytes_bucket", {"store": "b", "le": "+Inf"}) == 2
        remove()
        assert registry.get_sample_value("lastgood_saves_total", {**told, "store": "b"}) is None
        prometheus.register(a, name="b", registry=registry)
        remove()  # of what is another's now
        assert registry.get_sample_value("lastgood_saves_total", {**told, "store": "b"}) == 1


def test_one_metric_may_be_asked_for_by_its_name(store: Store) -> None:
    registry = CollectorRegistry(auto_describe=True)
    prometheus.register(store, registry=registry)
    store.task("t").save({})
    text = generate_latest(registry.restricted_registry(["lastgood_saves_total"])).decode()
    assert [metric.name for metric in text_string_to_metric_families(text)] == ["lastgood_saves"]


def test_a_registry_keeps_no_store_alive() -> None:
    registry = CollectorRegistry()
    store = lastgood.open(":memory:")
    prometheus.register(store, registry=registry)
    collected: list[Metric] = list(registry.collect())
    assert collected
    store.close()
    del store
    gc.collect()
    assert list(registry.collect()) == []


# --- OpenTelemetry ---------------------------------------------------------------------------------------------


@pytest.fixture
def reader() -> Iterator[tuple[InMemoryMetricReader, MeterProvider]]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield reader, provider
    provider.shutdown()


@pytest.fixture
def tracing() -> Iterator[tuple[InMemorySpanExporter, TracerProvider]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter, provider
    provider.shutdown()


def points_of(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """By the name of a metric, what one collection gave."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if list(metric.data.data_points)
    }


def test_a_reader_collects_all_that_the_text_has(
    tmp_path: Path, reader: tuple[InMemoryMetricReader, MeterProvider]
) -> None:
    with lastgood.open(tmp_path / "s", max_bytes=1 << 40) as store:
        opentelemetry.instrument(store, name="agents", meter_provider=reader[1])
        work(store)
        points = points_of(reader[0])
        families = {family.name: family for family in store.metrics().families}
    assert set(points) == {f"lastgood.{name}" for name in METRICS} == {f"lastgood.{name}" for name in families}
    for name, family in families.items():
        found = points[f"lastgood.{name}"]
        if family.histogram is None:
            mine = {frozenset({**one.labels, "lastgood.store": "agents"}.items()): one.value for one in family.samples}
            assert {frozenset(point.attributes.items()): point.value for point in found} == mine
        else:
            (point,) = found
            assert point.explicit_bounds == METRICS[name].bounds
            assert (point.count, point.attributes) == (family.histogram.count, {"lastgood.store": "agents"})
            assert point.sum == pytest.approx(family.histogram.sum)


def test_each_collection_is_of_its_own_moment(store: Store, reader: tuple[InMemoryMetricReader, MeterProvider]) -> None:
    stop = opentelemetry.instrument(store, meter_provider=reader[1])
    for n in range(1, 4):
        store.task("t").append({})
        assert [point.value for point in points_of(reader[0])["lastgood.saves"]] == [n]
    stop()
    store.task("t").append({})
    assert "lastgood.saves" not in points_of(reader[0])
    assert store.metrics().value("saves") == 4


def test_a_save_a_restore_and_a_verification_are_spans(
    store: Store, tracing: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    """A7: the correlation id, too."""
    stop = opentelemetry.instrument(store, tracer_provider=tracing[1])
    task = store.task("t")
    tracer = tracing[1].get_tracer("the program")
    claim = Evidence(EvidenceType.ARTIFACT_EXISTS, "the root is there", {"path": "/"})
    with tracer.start_as_current_span("work"), lastgood.correlation("c-1"):
        saved = task.save({"n": 1}, evidence=EvidencePack([claim]))
        task.save({"n": 2})
        made = task.restore(saved).checkpoint
    task.append({})
    with task.step("edit"):
        pass
    stop()
    task.append({})
    spans = tracing[0].get_finished_spans()
    names = ["save", "save", "verify", "restore", "work", "save", "save"]
    assert [span.name.removeprefix("lastgood.") for span in spans] == names
    first, _, verify, restore, outer = spans[:5]
    about = {"lastgood.task_id": "t", "lastgood.correlation_id": "c-1"}
    stored = {**about, "lastgood.status": "stored"}
    assert dict(first.attributes or {}) == {**stored, "lastgood.checkpoint_id": saved.id, "lastgood.verified": True}
    assert dict(restore.attributes or {}) == {**stored, "lastgood.checkpoint_id": made.id, "lastgood.verified": False}
    found = {**about, "lastgood.checkpoint_id": saved.id, "lastgood.verified": True}
    assert dict(verify.attributes or {}) == found
    assert (first.parent, restore.parent) == (outer.context, outer.context)
    assert verify.parent == restore.context
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}


def test_a_span_says_that_it_failed_and_of_what_kind_the_error_was(
    store: Store, tracing: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    """Neither its words nor where it came from."""
    opentelemetry.instrument(store, tracer_provider=tracing[1])
    with pytest.raises(UnstorableError):
        store.task("t").save({"secret": object()})

    def fail(*_: Any) -> Any:
        raise UnavailableError("away")

    vars(store._engine.catalog)["commit"] = fail
    store._engine.spool = None
    assert store.task("t").save({}, on_failure="continue").status == "lost"
    refused, lost = tracing[0].get_finished_spans()
    assert refused.status.status_code == StatusCode.ERROR
    assert dict(refused.attributes or {}) == {"lastgood.task_id": "t", "error.type": "unstorable"}
    assert (refused.status.description, refused.events) == (None, ())
    assert (lost.attributes or {})["lastgood.status"] == "lost"


def test_tracing_that_breaks_breaks_no_save(store: Store, tracing: tuple[InMemorySpanExporter, TracerProvider]) -> None:
    class Broken(SimpleSpanProcessor):
        def on_start(self, *_: Any, **__: Any) -> None:
            raise LookupError("on start")

    class BrokenAtTheEnd(SimpleSpanProcessor):
        def on_end(self, *_: Any, **__: Any) -> None:
            raise LookupError("on end")

    for n, kind in enumerate((BrokenAtTheEnd, Broken), 1):
        tracing[1].add_span_processor(kind(tracing[0]))
        stop = opentelemetry.instrument(store, tracer_provider=tracing[1])
        assert store.task("t").append({}).status == "stored"
        assert store.metrics().value("saves") == n
        stop()


def test_a_listener_that_breaks_breaks_no_save(store: Store) -> None:
    heard: list[str] = []
    store.meter.listen(lambda name, value: heard.append(name))
    store.meter.listen(lambda name, value: 1 / 0)  # type: ignore[arg-type]
    store.meter.listen(lambda name, value: heard.append(name))
    assert store.task("t").save({}).status == "stored"
    assert sorted(heard) == sorted([metric.name for metric in METRICS.values() if metric.kind == "histogram"] * 2)


def test_without_providers_nothing_happens(store: Store) -> None:
    stop = opentelemetry.instrument(store)
    assert store.task("t").save({}).status == "stored"
    stop()


def test_work_in_a_loop_has_metrics_and_spans_of_its_caller(
    tmp_path: Path, tracing: tuple[InMemorySpanExporter, TracerProvider]
) -> None:
    import asyncio

    async def main() -> None:
        async with aio.open(tmp_path / "store") as store:
            opentelemetry.instrument(store._far, tracer_provider=tracing[1])
            task = await store.task("t")
            with tracing[1].get_tracer("the program").start_as_current_span("work"):
                await task.save({})
            assert (await store.metrics()).value("saves") == 1

    asyncio.run(main())
    save, outer = tracing[0].get_finished_spans()
    assert save.parent == outer.context
