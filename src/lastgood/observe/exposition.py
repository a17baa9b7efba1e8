"""Metrics as text, in the exposition format 0.0.4 of Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lastgood.observe.snapshot import Family, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(families: Iterable[Family]) -> str:
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    name = family.exposed
    yield f"# HELP {name} {_escape(family.help)}"
    yield f"# TYPE {name} {family.kind}"
    for sample in family.samples:
        yield f"{name}{_labels(sample.labels)} {number(sample.value)}"
    if family.histogram is not None:
        yield from _histogram_lines(name, family.histogram)


def _histogram_lines(name: str, histogram: Histogram) -> Iterator[str]:
    for bound, count in (*histogram.buckets, (math.inf, histogram.count)):
        yield f"{name}_bucket{_labels({'le': number(bound)})} {count}"
    yield f"{name}_sum {number(histogram.sum)}"
    yield f"{name}_count {histogram.count}"


def _labels(labels: Mapping[str, str]) -> str:
    told = ",".join(f'{name}="{_quote(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _escape(text: str) -> str:
    """Text of a HELP line: it ends with the line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quote(text: str) -> str:
    """The value of a label; what UTF-8 does not have is replaced."""
    return _escape(text).replace('"', '\\"').encode(errors="replace").decode()


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
