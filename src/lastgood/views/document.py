"""How values of the library become JSON: keys in camelCase, times in ISO 8601, and a tagged form for values that JSON
does not have.

A tagged form is an object with one key that begins with `$`; docs/reference/command-line.md lists them, and the keys of
every object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.identity import is_text, moment, without_unit

APPEND_LIST, REDACTED = "$appendList", "$redacted"

STORED = frozenset(("artifacts", "data", "decisions", "expected", "guidance", "metadata", "outcome", "question"))
"""Fields that hold what users stored: it keeps its own keys, and is tagged."""

SHAPES = {
    "Attestation": "kind at actor data",
    "BranchInfo": "id name description deleted origin_id origin_sequence version control_state:run_control_state "
    "checkpoints created_at created_by metadata",
    "CheckReport": "ok depth findings standings:tasks looked_at",
    "Collected": "purged removed freed condemned condemned_bytes packs_removed packs_rewritten strays dry_run",
    "Evidence": "evidence_type description expected metadata verification_status:status verification_error:error "
    "verified_at",
    "EvidencePack": "evidence_list require_all allow_partial min_verified",
    "FileRoot": "name partial file_count total_size git_head",
    "OpenStep": "id task_id branch_id name type began_at began_by",
    "RepairReport": "ok accepted mended lost quarantine check",
    "Restored": "checkpoint_id new_checkpoint_id branch_id restored added deleted missing",
    "SpoolFigures": "depth bytes max_bytes oldest aside away durable folder left",
    "TaskInfo": "number id owner checkpoints active_branch_id created_at",
    "Usage": "disk_bytes catalog_bytes free_bytes packs pack_bytes stored_bytes unreferenced_bytes stray_bytes "
    "unreadable tasks",
    "Waiting": "id owner task_id at:since",
}
"""Of values that are not shown as they are, by the name of their class: the fields that are, each as `name` or as
`name:shown_as`."""


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A JSON object that is made of several values."""


def document(value: Any) -> Any:
    """Convert a view, or a value of the library, to what a JSON encoder takes."""
    kind: Any = type(value)
    if fields := _fields(kind):
        items = ((key, name, getattr(value, name)) for name, key in fields)
        return {key: _shown(name, item) for key, name, item in items if item is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    if kind is dict:
        return {key: document(item) for key, item in value.items()}
    if isinstance(value, str):
        return tagged(str(value))
    return value.isoformat() if isinstance(value, datetime) else tagged(value)


def compose(value: Any = None, /, **more: Any) -> dict[str, Any]:
    """Return the JSON object of `value`, with `more` fields."""
    composed: dict[str, Any] = {} if value is None else document(value)
    return composed | {_camel(name): _shown(name, item) for name, item in more.items() if item is not msgspec.UNSET}


def tagged(value: Any) -> Any:
    """Convert a value that a user stored to plain JSON, nothing left out. InvalidError if it is nested too deeply."""
    try:
        return _plain(value)
    except RecursionError:
        raise InvalidError("this is nested too deeply to be shown", hint="read it with the Python library") from None


@cache
def _fields(kind: Any) -> tuple[tuple[str, str], ...]:
    """Return the fields of a struct, a named tuple or what else has a shape, and their keys; nothing of others."""
    names: Iterable[str] = getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
    if kind.__name__ in SHAPES and kind.__module__.startswith("lastgood."):
        names = SHAPES[kind.__name__].split()
    names = map(without_unit, names)
    return tuple((name, _camel(key or name)) for name, _, key in (word.partition(":") for word in names))


def _shown(name: str, value: Any) -> Any:
    if name in STORED:
        return tagged(value)
    is_time = type(value) is int and (name == "at" or name.endswith("_at"))
    return moment(value).isoformat() if is_time else document(value)


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
