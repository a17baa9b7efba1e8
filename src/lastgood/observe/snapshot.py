"""All metrics of a store at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.errors import CheckpointError
from lastgood.model.identity import moment, now
from lastgood.observe.table import METRICS, Kind, Metric
from lastgood.observe.tally import Distribution, Tally

if TYPE_CHECKING:
    from lastgood.store import Store


class Sample(msgspec.Struct, frozen=True):
    value: float
    labels: dict[str, str] = {}


class Histogram(msgspec.Struct, frozen=True):
    """`buckets`: by their upper ends, how many values were at most that; `count` is all of them."""

    buckets: tuple[tuple[float, int], ...]
    sum: float
    count: int


class Family(msgspec.Struct, frozen=True):
    """One metric: its samples, or its histogram. `name` as in table.py, `exposed` as Prometheus has it."""

    name: str
    exposed: str
    kind: Kind
    help: str
    unit: str = "1"
    samples: tuple[Sample, ...] = ()
    histogram: Histogram | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has counted in this process since it was opened (`since`), or since the process was forked.

    `saves_last_minute`: checkpoints that were stored in the last 60 seconds. `verification_success_rate`: None until
    something was checked.
    """

    at: datetime
    since: datetime
    saves_last_minute: int
    verification_success_rate: float | None
    families: tuple[Family, ...]

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; of a histogram, how many values. 0: there are none."""
        found = next((family for family in self.families if name in (family.name, family.exposed)), None)
        if found is None:
            return 0.0
        if found.histogram is not None:
            return float(found.histogram.count)
        return sum(one.value for one in found.samples if labels.items() <= one.labels.items())

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told

    def to_prometheus(self) -> str:
        """As text in the exposition format 0.0.4 of Prometheus."""
        from lastgood.observe.exposition import render

        return render(self.families)


def take(store: Store) -> Metrics:
    """As `Store.metrics`."""
    tally, recent = store.meter.read()
    rate = _success_rate(tally)
    gauges: dict[str, float | None] = {"saves_last_minute": recent, "verification_success_ratio": rate}
    gauges |= _store_gauges(store)
    figures = store.cache_figures()
    gauges |= {"cache_entries": figures.entries, "cache_bytes": figures.bytes}
    for name in ("hits", "misses", "evictions"):
        tally.add(f"cache_{name}", (), getattr(figures, name))
    registered = store.meter.read_gauges()
    gauges |= {name: value for name, (_, value) in registered.items()}
    extra = (Metric(name, "gauge", told) for name, (told, _) in registered.items() if name not in METRICS)
    store.alarms.look_at_spool(int(gauges.get("spool_checkpoints") or 0), int(gauges.get("spool_bytes") or 0))
    return Metrics(
        at=moment(now()),
        since=moment(store.meter.since),
        saves_last_minute=recent,
        verification_success_rate=rate,
        families=tuple(_families((*METRICS.values(), *extra), tally, gauges)),
    )


def _store_gauges(store: Store) -> dict[str, float | None]:
    most = store.options.max_bytes
    try:
        size = store.meter.remember_size(store.size)
    except (CheckpointError, OSError):  # the backend is away, or the store is closed: nobody knows
        return {"store_max_bytes": most}
    store.alarms.look_at_store(int(size))
    return {"store_bytes": size, "store_max_bytes": most}


def _success_rate(tally: Tally) -> float | None:
    verified, failed, damaged = (
        tally.counters.get(("verifications", (result,)), 0) for result in ("verified", "failed", "damaged")
    )
    total = verified + failed + damaged
    return verified / total if total else None


def _families(metrics: tuple[Metric, ...], tally: Tally, gauges: dict[str, float | None]) -> Iterator[Family]:
    counted: dict[str, list[Sample]] = {}
    for (name, values), count in sorted(tally.counters.items()):
        counted.setdefault(name, []).append(Sample(count, dict(zip(METRICS[name].labels, values, strict=True))))
    for metric in metrics:
        samples, histogram = tuple(counted.get(metric.name, ())), None
        if metric.kind == "histogram":
            histogram = _histogram(tally.histograms[metric.name])
        elif metric.kind == "gauge" and (value := gauges.get(metric.name)) is not None:
            samples = (Sample(float(value)),)
        elif metric.kind == "counter" and not metric.labels and not samples:
            samples = (Sample(0.0),)
        if samples or histogram is not None:
            yield Family(metric.name, metric.exposed, metric.kind, metric.help, metric.unit, samples, histogram)


def _histogram(found: Distribution) -> Histogram:
    buckets, count = [], 0
    for bound, new in zip(found.bounds, found.counts, strict=False):
        count += new
        buckets.append((bound, count))
    return Histogram(tuple(buckets), found.sum, count + found.counts[-1])
