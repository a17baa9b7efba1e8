"""What a store counts while it works, and the spans around its operations, for a trace that others collect."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from lastgood.local.process import renew_after_fork
from lastgood.model.identity import moment, now
from lastgood.observe.log import current_correlation
from lastgood.observe.metrics import METRICS, Family, Histogram, Metrics, Sample

if TYPE_CHECKING:
    from lastgood.model.evidence import EvidencePack

R = TypeVar("R")
Outcome = Literal["stored", "repeated", "spooled", "lost", "failed"]
Listener = Callable[[str, float], None]

MAX_VALUES = 50
"""Of one label. Types of checkpoints and evidence are an open set, and every value costs memory wherever it is kept."""
MAX_CHARACTERS = 64
OTHER = "other"
RATE_SECONDS = 60.0
FRESH_SECONDS = 60.0


class Span(Protocol):
    """A span of a trace."""

    def set_attribute(self, key: str, value: str | bool) -> None: ...


Spans = Callable[[str, Mapping[str, str]], AbstractContextManager[Span]]
"""Begins a span by its name and attributes."""


class Describe(Protocol):
    """Describes the result of an operation in its span, and returns it."""

    def __call__(self, result: R, /) -> R: ...


class Measured(Protocol):
    """A store, as exporters of metrics see it."""

    @property
    def meter(self) -> Meter: ...

    def metrics(self) -> Metrics: ...


class Meter:
    """A store's counters in one process; a forked child begins at nothing. Safe for threads and signal handlers.

    `spans`, if set, begins the span around each operation.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._listeners: tuple[Listener, ...] = ()
        self.spans: Spans | None = None
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """Start at nothing: what was counted before a fork() is the parent's."""
        self._lock = threading.RLock()
        self._counters: dict[tuple[str, tuple[str, ...]], float] = {}
        self._known: dict[tuple[str, int], set[str]] = {}
        self._buckets = {name: [0] * (len(one.bounds) + 1) for name, one in METRICS.items() if one.bounds}
        self._sums: dict[str, float] = dict.fromkeys(self._buckets, 0)
        self._rate, self._rated_at = 0.0, self._clock()
        self._size: tuple[float, float] | None = None
        self.since = now()

    # --- counting ------------------------------------------------------------------------------------------

    def count(self, name: str, labels: Mapping[str, str] | None = None, amount: float = 1) -> None:
        """Add to a counter of `METRICS`; its labels are those that it has there."""
        given = labels or {}
        values = tuple([str(given[label]) for label in METRICS[name].labels])
        with self._lock:
            self._add(name, values, amount)

    def count_save(self, outcome: Outcome, type: str) -> None:
        """Count a checkpoint that was to be saved, and was not stored now."""
        with self._lock:
            self._add("saves", (outcome, type), 1)

    def count_stored(self, type: str, began: float, state_bytes: int, new_bytes: int) -> None:
        """Count a checkpoint that was stored just now; saving it `began` then, by the monotonic clock."""
        at = self._clock()
        values = (
            ("save_duration_seconds", at - began),
            ("save_state_bytes", state_bytes),
            ("save_new_bytes", new_bytes),
        )
        with self._lock:
            self._add("saves", ("stored", type), 1)
            for name, value in values:
                self._buckets[name][bisect_left(METRICS[name].bounds, value)] += 1
                self._sums[name] += value
            self._rate, self._rated_at = self._rate_at(at) + 1, at
        for listener in self._listeners:
            for name, value in values:
                with suppress(Exception):  # a save that is stored does not fail by its listeners
                    listener(name, value)

    def count_verification(self, pack: EvidencePack, *, intact: bool = True) -> None:
        """Count a checkpoint that was checked, by what its evidence gave."""
        unknown = pack.is_undecided or not pack.evidence_list
        result = "verified" if pack.is_verified else "unverified" if unknown else "failed"
        self.count("verifications", {"result": result if intact else "damaged"})
        for evidence in pack.evidence_list:
            if evidence.verification_status == "failed":
                self.count("evidence_failures", {"type": evidence.evidence_type})

    def _add(self, name: str, values: tuple[str, ...], amount: float) -> None:
        try:
            self._counters[name, values] += amount
        except KeyError:
            key = name, tuple(self._bound(name, index, value) for index, value in enumerate(values))
            self._counters[key] = self._counters.get(key, 0) + amount

    def _bound(self, name: str, index: int, value: str) -> str:
        """Return the label's value, or `OTHER` when there are too many."""
        value = value[:MAX_CHARACTERS]
        known = self._known.setdefault((name, index), set())
        if value not in known:
            if len(known) >= MAX_VALUES:
                return OTHER
            known.add(value)
        return value

    def _rate_at(self, at: float) -> float:
        """Return the saves of about a minute: each weighs 1 at first, and 1/e after a minute."""
        return self._rate * math.exp((self._rated_at - at) / RATE_SECONDS)

    # --- listeners and spans -------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called with each value of a histogram, in the thread that saves. Returns how to end that."""
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return stop

    def span(self, name: str, **about: str) -> AbstractContextManager[Describe]:
        """Run the operation in the block inside a span if spans are collected; else as it is."""
        return _NO_SPAN if self.spans is None else _begin_span(self.spans, name, about)

    # --- reading -------------------------------------------------------------------------------------------

    def snapshot(self, values: Mapping[str, float | None] | None = None) -> Metrics:
        """Return all that was counted, with these `values` of gauges and of counters that have no labels. None is left
        out."""
        with self._lock:
            counters = dict(self._counters)
            histograms = {name: _histogram(name, counts, self._sums[name]) for name, counts in self._buckets.items()}
            rate = self._rate_at(self._clock())
        share = _success_rate(counters)
        given = {"saves_per_minute": rate, "verification_success_ratio": share, **(values or {})}
        for name, value in given.items():
            if value is not None:
                counters[name, ()] = float(value)
        return Metrics(
            at=moment(now()),
            since=moment(self.since),
            saves_per_minute=rate,
            verification_success_rate=share,
            families=tuple(_families(counters, histograms)),
        )

    def remember_size(self, ask: Callable[[], float]) -> float:
        """Return what `ask` gives, or gave within the last minute: it lists all packs."""
        at = self._clock()
        if self._size is None or at - self._size[0] >= FRESH_SECONDS:
            self._size = at, float(ask())
        return self._size[1]


def _success_rate(counters: Mapping[tuple[str, tuple[str, ...]], float]) -> float | None:
    verified, failed, damaged = (
        counters.get(("verifications", (result,)), 0) for result in ("verified", "failed", "damaged")
    )
    total = verified + failed + damaged
    return verified / total if total else None


def _families(
    counters: Mapping[tuple[str, tuple[str, ...]], float], histograms: Mapping[str, Histogram]
) -> Iterator[Family]:
    """Pair each metric with its values; those without any are left out."""
    samples: dict[str, list[Sample]] = {}
    for (name, values), count in sorted(counters.items()):
        samples.setdefault(name, []).append(Sample(count, dict(zip(METRICS[name].labels, values, strict=True))))
    for metric in METRICS.values():
        found, histogram = tuple(samples.get(metric.name, ())), histograms.get(metric.name)
        if metric.kind == "counter" and not metric.labels and not found:
            found = (Sample(0.0),)
        if found or histogram is not None:
            yield Family(metric.name, metric.exposed, metric.kind, metric.help, metric.unit, found, histogram)


def _histogram(name: str, counts: list[int], total: float) -> Histogram:
    buckets, count = [], 0
    for bound, new in zip(METRICS[name].bounds, counts, strict=False):
        count += new
        buckets.append((bound, count))
    return Histogram(tuple(buckets), total, count + counts[-1])


# --- spans ---


@contextmanager
def _begin_span(spans: Spans, name: str, about: Mapping[str, str]) -> Iterator[Describe]:
    named = {f"lastgood.{key}": value for key, value in about.items()}
    if (correlation_id := current_correlation()) is not None:
        named["lastgood.correlation_id"] = correlation_id
    with spans(name, named) as span:

        def describe(result: R) -> R:
            made = getattr(result, "checkpoint", result)  # a checkpoint, or the result of checking one
            for key in ("checkpoint_id", "status", "verified"):
                if (value := getattr(made, key, None)) is not None:
                    span.set_attribute(f"lastgood.{key}", value)
            return result

        yield describe


def _return(result: R) -> R:
    return result


_NO_SPAN: nullcontext[Describe] = nullcontext(_return)
