"""Operations that somebody may want to see as spans of a trace; `lastgood.observe.opentelemetry` asks for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from lastgood.observe.log import current_correlation

if TYPE_CHECKING:
    from lastgood.store import Store

P = ParamSpec("P")
R = TypeVar("R")


class Span(Protocol):
    def set_attribute(self, key: str, value: str | bool) -> None: ...


Spans = Callable[[str, Mapping[str, str]], AbstractContextManager[Span]]
"""Begins a span by its name and attributes."""


def spanned(
    name: str, store_of: Callable[[Any], Store], about: Callable[..., Mapping[str, str]]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The operation inside a span, when somebody has asked for spans; else as it is, for 0.2 us.

    `store_of` and `about` get what the operation gets: the first argument, and all that stand by position.
    """

    def decorate(operation: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(operation)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            spans = store_of(args[0]).meter.spans
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
    """By what a checkpoint, or what checking one came to, says of itself."""
    made = getattr(result, "checkpoint", result)
    for name in ("checkpoint_id", "status", "verified"):
        if (value := getattr(made, name, None)) is not None:
            span.set_attribute(f"lastgood.{name}", value)
