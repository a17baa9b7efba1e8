"""What "comes back exactly" means: a value as a nested tuple that differs wherever two values differ at all."""

from __future__ import annotations

import dataclasses
import datetime as dt
import struct
from collections import OrderedDict, deque
from decimal import Decimal
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

Print = tuple[Any, ...]


def exactly(value: Any) -> Print:
    """Type and content, all the way down: 1, True and 1.0 differ, so do -0.0 and 0.0; NaN is equal to NaN."""
    return (type(value), *_content(value))


def _content(value: Any) -> Print:
    kind = type(value)
    if isinstance(value, Enum):
        return (value.name, str(value.value))
    if kind is float:
        return (struct.pack(">d", value),)
    if kind is complex:
        return (struct.pack(">dd", value.real, value.imag),)
    if kind is Decimal:
        return (value.as_tuple(),)
    if kind in (dt.datetime, dt.time):
        return (value.replace(tzinfo=None, fold=0), value.fold, _zone(value.tzinfo))
    if kind in (set, frozenset):
        return tuple(sorted(map(exactly, value), key=repr))
    if kind is deque:
        return (value.maxlen, *map(exactly, value))
    if isinstance(value, list | tuple):
        return tuple(map(exactly, value))
    if kind is OrderedDict or isinstance(value, dict):
        return tuple((exactly(key), exactly(item)) for key, item in value.items())
    if dataclasses.is_dataclass(value):
        names = (field.name for field in dataclasses.fields(value))
        return tuple((name, exactly(getattr(value, name))) for name in names)
    if hasattr(value, "model_fields_set"):
        return (exactly(value.__dict__), exactly(value.__pydantic_extra__))
    return (value,)


def _zone(zone: dt.tzinfo | None) -> Print:
    if isinstance(zone, ZoneInfo):
        return ("zone", zone.key)
    return () if zone is None else (zone.utcoffset(None), zone.tzname(None))
