"""Every metric there is, and a snapshot of them: as values, as plain data, as text for Prometheus.

A new counter is a new row of `METRICS`; `engine.meter.count(name, labels)` takes it from then on.
docs/reference/metrics.md has the same rows; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

Kind = Literal["counter", "gauge", "histogram"]

PREFIX = "lastgood_"
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES = tuple(256 * 4**power for power in range(12))
"""From 256 bytes to 1 GiB."""


class Metric(NamedTuple):
    """A metric that is declared. `labels` are names; a histogram has `bounds`, the upper ends of its buckets."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = "1"
    bounds: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """Return its name as Prometheus has it."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


_METRICS = (
    Metric(
        "saves",
        "counter",
        "Checkpoints that were to be saved, by what became of them (stored, spooled, lost, failed; repeated: it had "
        "been stored before, under the same key or id) and by their type.",
        ("outcome", "type"),
    ),
    Metric("save_duration_seconds", "histogram", "How long a save took that was stored.", unit="s", bounds=SECONDS),
    Metric("save_state_bytes", "histogram", "The whole state of each stored checkpoint.", unit="By", bounds=BYTES),
    Metric(
        "save_new_bytes",
        "histogram",
        "What was written for each stored checkpoint: its record and new content, compressed.",
        unit="By",
        bounds=BYTES,
    ),
    Metric(
        "saves_per_minute",
        "gauge",
        "Checkpoints that are stored each minute; the last minute weighs most, and older ones less and less.",
    ),
    Metric(
        "verifications",
        "counter",
        "Checkpoints that were checked, by what came out (verified, failed, damaged; unverified: there is no evidence, "
        "or none that can be checked).",
        ("result",),
    ),
    Metric(
        "verification_success_ratio",
        "gauge",
        "Of the checkpoints that were checked and found verified, failed or damaged, the share that was verified.",
    ),
    Metric("evidence_failures", "counter", "Pieces of evidence that did not hold, by their type.", ("type",)),
    Metric("cache_entries", "gauge", "Checkpoints that are held in memory."),
    Metric("cache_bytes", "gauge", "Bytes of the checkpoints that are held in memory.", unit="By"),
    Metric("cache_hits", "counter", "States that were found in memory."),
    Metric("cache_misses", "counter", "States that had to be read from the store."),
    Metric("cache_evictions", "counter", "Checkpoints that had to leave memory for others."),
    Metric("spool_checkpoints", "gauge", "Checkpoints that wait in the spool for the backend."),
    Metric("spool_bytes", "gauge", "Bytes that wait in the spool.", unit="By"),
    Metric("spool_oldest_seconds", "gauge", "How long the oldest checkpoint in the spool has waited.", unit="s"),
    Metric("store_bytes", "gauge", "Bytes that the store takes on disk, at most a minute old.", unit="By"),
    Metric("alerts", "counter", "Alerts that were raised, by their code.", ("code",)),
)

METRICS = {metric.name: metric for metric in _METRICS}


class Sample(msgspec.Struct, frozen=True):
    """A value of a metric, with its labels."""

    value: float
    labels: dict[str, str] = {}


class Histogram(msgspec.Struct, frozen=True):
    """A distribution. `buckets` have their upper end and how many values were at most that; `count` is all values."""

    buckets: tuple[tuple[float, int], ...]
    sum: float
    count: int


class Family(msgspec.Struct, frozen=True):
    """A metric with its samples, or its histogram. `name` as in `METRICS`, `exposed` as Prometheus has it."""

    name: str
    exposed: str
    kind: Kind
    help: str
    unit: str = "1"
    samples: tuple[Sample, ...] = ()
    histogram: Histogram | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of what a store has counted in this process since it was opened or the process was forked (`since`).

    `saves_per_minute`: checkpoints that are stored each minute, the last minute weighing most.
    `verification_success_rate`: None until something was checked.
    """

    at: datetime
    since: datetime
    saves_per_minute: float
    verification_success_rate: float | None
    families: tuple[Family, ...]

    def value(self, name: str, **labels: str) -> float:
        """Sum the samples of a metric that have these labels; of a histogram, count the values. 0: there are none."""
        found = next((family for family in self.families if name in (family.name, family.exposed)), None)
        if found is None:
            return 0.0
        if found.histogram is not None:
            return float(found.histogram.count)
        return sum(one.value for one in found.samples if labels.items() <= one.labels.items())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as JSON has it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def to_prometheus(self) -> str:
        """Return text in the exposition format 0.0.4 of Prometheus."""
        return render(self.families)


# --- text for Prometheus ---


def render(families: Iterable[Family]) -> str:
    """Render metrics as text in the exposition format 0.0.4 of Prometheus."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def expose(family: Family) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the name, labels and value of each sample of a metric as Prometheus has them."""
    name, histogram = family.exposed, family.histogram
    for sample in family.samples:
        yield name, sample.labels, sample.value
    if histogram is not None:
        for bound, count in (*histogram.buckets, (math.inf, histogram.count)):
            yield f"{name}_bucket", {"le": number(bound)}, count
        yield f"{name}_sum", {}, histogram.sum
        yield f"{name}_count", {}, histogram.count


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.exposed} {_escape(family.help)}"
    yield f"# TYPE {family.exposed} {family.kind}"
    for name, labels, value in expose(family):
        yield f"{name}{_labels(labels)} {number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_quote(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    """Escape the text of a HELP line, which ends with the line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(text: str) -> str:
    """Escape the value of a label; what UTF-8 does not have is replaced."""
    return _escape(text).replace('"', '\\"').encode(errors="replace").decode()


def number(value: float) -> str:
    """Format a number as Prometheus does."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
