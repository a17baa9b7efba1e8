"""Every metric there is: its name, what it tells, its labels. docs/metrics.md has the same rows; a test compares them.

A new counter is a new row here; `store.meter.count(name, labels)` takes it from then on.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

PREFIX = "lastgood_"
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES = tuple(256 * 4**power for power in range(12))
"""From 256 bytes to 1 GiB."""


class Metric(NamedTuple):
    """`labels` are the names of its labels; a histogram has `bounds`, the upper ends of its buckets."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = "1"
    bounds: tuple[float, ...] = ()

    @property
    def exposed(self) -> str:
        """Its name as Prometheus has it."""
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
    Metric("saves_last_minute", "gauge", "Checkpoints that were stored in the last 60 seconds."),
    Metric("files_captured", "counter", "Files in the captured folders of stored checkpoints, new or not."),
    Metric("restores", "counter", "Times that a task went back, by what came back (both, state, files).", ("what",)),
    Metric("forks", "counter", "Branches that were begun beside the active one."),
    Metric(
        "deletes",
        "counter",
        "What was deleted by request: checkpoints that were marked, checkpoints that were purged, branches, tasks.",
        ("what",),
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
    Metric("store_max_bytes", "gauge", "The most that it may take (max_bytes), if that is set.", unit="By"),
    Metric("lease_takeovers", "counter", "Branches whose lease was taken over from somebody who had let it expire."),
    Metric("requests_met", "counter", "Requests to running work that a session has met, by their kind.", ("kind",)),
    Metric("alerts", "counter", "Alerts that were raised, by their code.", ("code",)),
)

METRICS = {metric.name: metric for metric in _METRICS}
