"""Spans around operations, for a trace that others collect; nothing is done unless spans are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, Protocol, TypeVar

from lastgood.observe.log import current_correlation

P = ParamSpec("P")
R = TypeVar("R")


class Span(Protocol):
    """A span of a trace."""

    def set_attribute(self, key: str, value: str | bool) -> None: ...


Spans = Callable[[str, Mapping[str, str]], AbstractContextManager[Span]]
"""Begins a span by its name and attributes."""


class Tracing(Protocol):
    """A meter, as operations see it: with `spans` when they are wanted."""

    spans: Spans | None


def spanned(
    name: str, meter_of: Callable[[Any], Tracing], about: Callable[..., Mapping[str, str]]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run the decorated operation inside a span if its meter has `spans`; else as it is, for 0.2 us.

    `meter_of` gets the operation's first argument, `about` all that are given by position.
    """

    def decorate(operation: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(operation)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            spans = meter_of(args[0]).spans
            if spans is None:
                return operation(*args, **kwargs)
            with spans(name, _named(about(*args))) as span:
                result = operation(*args, **kwargs)
                _describe(span, result)
                return result

        return inside

    return decorate


def _named(about: Mapping[str, str]) -> dict[str, str]:
    named = {f"lastgood.{name}": value for name, value in about.items()}
    if (correlation_id := current_correlation()) is not None:
        named["lastgood.correlation_id"] = correlation_id
    return named


def _describe(span: Span, result: object) -> None:
    """Copy the attributes of a checkpoint, or of the result of checking one."""
    made = getattr(result, "checkpoint", result)
    for name in ("checkpoint_id", "status", "verified"):
        if (value := getattr(made, name, None)) is not None:
            span.set_attribute(f"lastgood.{name}", value)
