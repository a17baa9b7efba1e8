"""Metadata is plain: what JSON has, with text keys. It lives in the record, so it is small."""

from __future__ import annotations

from math import isfinite

from lastgood.errors import InvalidError
from lastgood.model.checkpoint import encode_plain
from lastgood.model.identity import MAX_TEXT_BYTES, check_text

MAX_DEPTH = 32


def check_metadata(metadata: object) -> None:
    if type(metadata) is not dict:
        raise InvalidError(f"metadata is {type(metadata).__name__}, not dict", field="metadata")
    if not metadata:
        return
    _check(metadata, ["metadata"])
    if len(encode_plain(metadata)) > MAX_TEXT_BYTES:
        raise InvalidError(f"metadata is larger than {MAX_TEXT_BYTES} bytes", hint="keep large values in the state")


def _check(value: object, path: list[str | int]) -> None:
    """`path` leads to it. Every save checks its metadata: nothing is put into words unless it is refused."""
    if len(path) > MAX_DEPTH + 1:
        raise InvalidError(f"{_say(path)}: nested deeper than {MAX_DEPTH} levels", field="metadata")
    if isinstance(value, dict) and type(value) is dict:
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                check_text(f"a key of {_say(path)}", key)
            path.append(key)
            _check(item, path)
            path.pop()
    elif isinstance(value, list) and type(value) is list:
        for index, item in enumerate(value):
            if type(item) is not str or not item.isascii():
                path.append(index)
                _check(item, path)
                path.pop()
    elif type(value) is str and not value.isascii():
        check_text(_say(path), value)
    elif (why := _why_not(value)) is not None:
        raise InvalidError(f"{_say(path)}: {why}", hint="keep it in the state", field="metadata")


def _why_not(value: object) -> str | None:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return None
    if isinstance(value, int) and kind is int:
        return None if -(1 << 63) <= value < 1 << 64 else "an integer beyond 64 bits"
    if isinstance(value, float) and kind is float:
        return None if isfinite(value) else f"{value} is not a JSON number"
    return f"{kind.__name__} cannot stand in metadata"


def _say(path: list[str | int]) -> str:
    """`metadata.steps[3].name`"""
    said = [f"[{part}]" if isinstance(part, int) else f".{part[:40]}" for part in path]
    return "".join(said)[1:]
