"""A store's metrics and spans by OpenTelemetry (the extra `lastgood[opentelemetry]`, which brings the API alone).

    from lastgood.observe import opentelemetry

    opentelemetry.instrument(store)     # with the providers that the program has set, or sets later

Counters and gauges are read when a reader collects; durations and sizes are recorded as they happen. Each save,
restore and verification is a span: `lastgood.save`, `lastgood.restore`, `lastgood.verify`. Of an error a span has
its kind only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from importlib.metadata import version
from threading import Event
from types import TracebackType
from typing import Self
from weakref import ref

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Status, StatusCode, Tracer, TracerProvider

from lastgood.errors import CheckpointError
from lastgood.observe.meter import Measured
from lastgood.observe.metrics import METRICS

SCOPE = "lastgood"


def instrument(
    store: Measured,
    *,
    name: str = "",
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Callable[[], None]:
    """Have `store` observed. Returns how to end that. With a `name`, all of it has the attribute `lastgood.store`."""
    labels = {"lastgood.store": name} if name else {}
    observed, ended = ref(store), Event()

    def observe(name: str, _: CallbackOptions) -> Iterable[Observation]:
        held = None if ended.is_set() else observed()
        families = () if held is None else held.metrics().families
        samples = (sample for family in families if family.name == name for sample in family.samples)
        return [Observation(sample.value, {**sample.labels, **labels}) for sample in samples]

    meter = metrics.get_meter(SCOPE, version("lastgood"), meter_provider)
    record: dict[str, Callable[[float], None]] = {}
    for metric in METRICS.values():
        described = f"{SCOPE}.{metric.name}", (partial(observe, metric.name),), metric.unit, metric.help
        if metric.kind == "counter":
            meter.create_observable_counter(*described)
        elif metric.kind == "gauge":
            meter.create_observable_gauge(*described)
        else:
            histogram = meter.create_histogram(
                described[0], metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.bounds
            )
            record[metric.name] = partial(histogram.record, attributes=labels)
    stop_listening = store.meter.listen(lambda name, value: record[name](value))
    tracer = trace.get_tracer(SCOPE, version("lastgood"), tracer_provider)
    store.meter.spans = spans = partial(_Span, tracer, labels)

    def stop() -> None:
        stop_listening()
        ended.set()
        if store.meter.spans is spans:
            store.meter.spans = None

    return stop


class _Span(AbstractContextManager["_Span"]):
    """A span around an operation, which neither fails by tracing nor ends otherwise than without it."""

    def __init__(self, tracer: Tracer, labels: Mapping[str, str], name: str, about: Mapping[str, str]) -> None:
        self._manager = tracer.start_as_current_span(f"{SCOPE}.{name}", attributes={**about, **labels})
        self._span: trace.Span | None = None

    def __enter__(self) -> Self:
        with suppress(Exception):
            self._span = self._manager.__enter__()
        return self

    def set_attribute(self, key: str, value: str | bool) -> None:
        with suppress(Exception):
            if self._span is not None:
                self._span.set_attribute(key, value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        with suppress(Exception):
            if error is not None:
                self.set_attribute("error.type", error.code if isinstance(error, CheckpointError) else _name(error))
                self._span.set_status(Status(StatusCode.ERROR))
            self._manager.__exit__(None, None, None)  # which would put the words of the error into the span


def _name(error: BaseException) -> str:
    return type(error).__name__
