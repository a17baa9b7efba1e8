"""Values as JSON has them. What JSON does not have stands in an object with one key that begins with `$`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastgood.errors import InvalidError
from lastgood.model.identity import is_text


def tagged(value: Any) -> Any:
    """`value` in plain JSON, nothing left out. Raises InvalidError for what is nested too deeply to be shown."""
    try:
        return _plain(value)
    except RecursionError:
        raise InvalidError("this is nested too deeply to be shown", hint="read it with the Python library") from None


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
    """By the name of the class, so that none of them needs to be imported here."""
    kind = type(value)
    if (form := _FORMS.get((kind.__module__, kind.__name__))) is None:
        return {"$other": [kind.__name__, str(value)]}
    tag, build = form
    return {tag: build(value)}


def _items(value: Any) -> list[Any]:
    return [_plain(item) for item in value]


def _members(value: Any) -> list[Any]:
    import msgspec

    return sorted(map(_plain, value), key=msgspec.json.encode)


APPEND_LIST, REDACTED = "$appendList", "$redacted"

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
