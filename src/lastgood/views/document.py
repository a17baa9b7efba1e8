"""How views become JSON: keys in camelCase, times in ISO 8601, and a tagged form for values that JSON does not have.

A tagged form is an object with one key that begins with `$`; docs/reference/command-line.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Self

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.identity import is_text

APPEND_LIST, REDACTED = "$appendList", "$redacted"


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object. Values that users stored are kept in it as `tagged` gives them."""

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """Copy the attributes of `source` that are fields here; `more` gives the others."""
        copied = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in more}
        return cls(**copied, **more)


def document(value: Any) -> Any:
    """Convert a view, or a value of the library made of structs and named tuples, to what a JSON encoder takes."""
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return {_camel(name): document(item) for name, item in fields if item is not msgspec.UNSET}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {_camel(name): document(item) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    if type(value) is dict:
        return {key: document(item) for key, item in value.items()}
    return value.isoformat() if isinstance(value, datetime) else tagged(value)


def tagged(value: Any) -> Any:
    """Convert a value that a user stored to plain JSON, nothing left out. InvalidError if it is nested too deeply."""
    try:
        return _plain(value)
    except RecursionError:
        raise InvalidError("this is nested too deeply to be shown", hint="read it with the Python library") from None


@cache
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return value if is_text(value) else {"$surrogates": _base64(value.encode("utf-8", "surrogatepass"))}
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else {"$int": hex(value)}
    if kind is float:
        return value if value - value == 0 else {"$float": str(value)}
    if kind is list:
        return _items(value)
    if kind is dict:
        return _map(value)
    return _other(value)


def _map(value: dict[Any, Any]) -> Any:
    if all(type(key) is str and not key.startswith("$") and is_text(key) for key in value):
        return {key: _plain(item) for key, item in value.items()}
    return {"$map": [[_plain(key), _plain(item)] for key, item in value.items()]}


def _other(value: Any) -> Any:
    """Find its form by the name of its class, so that none of them needs to be imported here."""
    kind = type(value)
    if (form := _FORMS.get((kind.__module__, kind.__name__))) is None:
        return {"$other": [kind.__name__, str(value)]}
    tag, build = form
    return {tag: build(value)}


def _items(value: Any) -> list[Any]:
    return [_plain(item) for item in value]


def _members(value: Any) -> list[Any]:
    return sorted(map(_plain, value), key=msgspec.json.encode)


_FORMS: dict[tuple[str, str], tuple[str, Callable[[Any], Any]]] = {
    ("builtins", "tuple"): ("$tuple", _items),
    ("builtins", "set"): ("$set", _members),
    ("builtins", "frozenset"): ("$frozenset", _members),
    ("builtins", "bytes"): ("$bytes", lambda value: _base64(value)),
    ("builtins", "bytearray"): ("$bytearray", lambda value: _base64(value)),
    ("builtins", "complex"): ("$complex", lambda value: [_plain(value.real), _plain(value.imag)]),
    ("decimal", "Decimal"): ("$decimal", str),
    ("uuid", "UUID"): ("$uuid", str),
    ("datetime", "datetime"): ("$datetime", lambda value: value.isoformat()),
    ("datetime", "date"): ("$date", lambda value: value.isoformat()),
    ("datetime", "time"): ("$time", lambda value: value.isoformat()),
    ("datetime", "timedelta"): ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    ("lastgood.codec.append_list", "AppendList"): (APPEND_LIST, _items),
    ("lastgood.codec.decode", "Redacted"): (REDACTED, lambda value: True),
}


def _base64(data: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()
