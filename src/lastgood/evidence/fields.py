"""The fields of a claim about the world outside, taken out of it or refused.

A field that nobody knows is refused, too: a condition that is misspelt would hold whatever happens.
"""

from __future__ import annotations

from typing import Any

from lastgood.errors import InvalidError
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence

MAX_TEXT = 8192


def take_fields(evidence: Evidence, known: tuple[str, ...]) -> dict[str, Any]:
    """What the evidence expects; InvalidError for anything but a dictionary of known fields."""
    expected = evidence.expected
    if not isinstance(expected, dict):
        raise InvalidError("what the evidence expects is not a dictionary")
    for name in expected:
        if name not in known:
            raise InvalidError(
                f"the claim has a field {show(name)}, which means nothing", hint=f"it can have {', '.join(known)}"
            )
    return expected


def require_integer(value: object, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidError(f"the claim's {what} is missing or is not a number from {low} to {high}")
    return int(value)


def require_text(value: object, what: str) -> str:
    """Text of ordinary length that can be written down."""
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        raise InvalidError(f"the claim's {what} is missing, empty, too long or not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidError(f"the claim's {what} is not Unicode") from error
    return str(value)


def take_timeout(value: object) -> float | None:
    """Seconds; None when the claim has no opinion."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 3600:
        raise InvalidError("the claim's timeout is not a number of seconds, more than 0 and at most 3600")
    return float(value)
