"""Redaction of the state by path (docs/reference/format.md, ext 16)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from lastgood.codec.append_list import AppendList, append_list_of, encoded_elements
from lastgood.codec.classes import class_name, take_apart
from lastgood.codec.decode import Redacted
from lastgood.codec.encode import encode
from lastgood.errors import CheckpointError, InvalidError
from lastgood.secrets.redaction import ANY, Paths, write_step

MAX_LISTED = 64  # concrete paths for each rule; beyond, the rule itself says it
_MAX_PATH = 200  # characters

Where = tuple["Where", object] | None
"""Where a value stands, innermost first."""


_WITHOUT_PARTS = (
    *(type(None), bool, int, float, complex, str, bytes, bytearray, Decimal, UUID, Enum, PurePath, Redacted),
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo),
)


def redact_state(state: Any, paths: Paths) -> tuple[Any, tuple[str, ...]]:
    """Return `state` with `Redacted` wherever a rule leads, and the paths where that is, rule by rule.

    Nothing of the caller's is changed: only containers on the way to something redacted are copied, and the same
    object comes back when nothing was. A rule that matched more than 64 times is listed as it is written. Rules
    lead through dicts, lists, tuples and append lists (whose elements are decoded for it); one that leads to something
    inside an object or a set is refused with InvalidError rather than let a secret through.
    """
    if not paths.next:
        return state, ()
    walk = _Walk(paths)
    return walk.redact(state, [paths], None), walk.listed()


class _Walk:
    """A state being redacted."""

    def __init__(self, paths: Paths) -> None:
        self._found: dict[str, list[str]] = {rule: [] for rule in _rules(paths)}

    def listed(self) -> tuple[str, ...]:
        """Return each concrete path; the rule itself in place of too many, or of one too long to be listed."""
        paths: dict[str, None] = {}
        for rule, found in self._found.items():
            many = len(found) > MAX_LISTED or any(len(path) > _MAX_PATH for path in found)
            paths.update(dict.fromkeys([rule] if many else found))
        return tuple(paths)

    def redact(self, value: Any, rules: list[Paths], where: Where) -> Any:
        """Return `value` after `rules`, which all lead here; the same object when nothing in it is redacted."""
        rule = next((paths.rule for paths in rules if paths.rule is not None), None)
        if rule is not None:
            if len(found := self._found[rule]) <= MAX_LISTED:
                found.append(_write_path(where))
            return Redacted()
        if isinstance(value, _WITHOUT_PARTS):
            return value
        kind = type(value)
        if kind is dict:
            return self._redact_map(value, rules, where)
        if kind is list or kind is tuple:
            return self._redact_items(value, rules, where)
        if kind is AppendList:
            return self._redact_append_list(value, rules, where)
        self._refuse_inside(value, rules, where)
        return value

    def _redact_map(self, value: dict[Any, Any], rules: list[Paths], where: Where) -> Any:
        entries = dict(value)  # of one moment: other threads may change it meanwhile
        changed = {}
        for key in _keys(entries, rules):
            if len(after := _after(rules, str(key) if type(key) is int else key)) > 0:
                new = self.redact(entries[key], after, (where, key))
                if new is not entries[key]:
                    changed[key] = new
        return {**entries, **changed} if changed else value

    def _redact_items(self, value: Sequence[Any], rules: list[Paths], where: Where) -> Any:
        items = list(value)
        changed = self._changed_items(items, rules, where)
        if not changed:
            return value
        items = [changed.get(index, item) for index, item in enumerate(items)]
        return tuple(items) if type(value) is tuple else items

    def _redact_append_list(self, value: Any, rules: list[Paths], where: Where) -> Any:
        elements = encoded_elements(value)[:]  # of one moment: others may append
        changed = self._changed_items(append_list_of(elements), rules, where)
        for index, new in changed.items():
            elements[index] = encode(new)
        return append_list_of(elements) if changed else value

    def _changed_items(self, value: Sequence[Any], rules: list[Paths], where: Where) -> dict[int, Any]:
        changed: dict[int, Any] = {}
        for index in _indexes(len(value), rules):
            item = value[index]
            new = self.redact(item, _after(rules, str(index)), (where, index))
            if new is not item:
                changed[index] = new
        return changed

    def _refuse_inside(self, value: Any, rules: list[Paths], where: Where) -> None:
        """Raise InvalidError if a rule leads to anything in `value`, which cannot be copied with a part replaced."""
        plain: Any = list(value) if isinstance(value, set | frozenset) else _taken_apart(value)
        inner = _Walk(Paths())
        inner._found = {rule: [] for rule in self._found}
        inner.redact(plain, rules, where)
        if any(inner._found.values()):
            raise InvalidError(
                f"{_write_path(where) or 'the state'}: a redaction rule leads to something inside a "
                f"{class_name(type(value))}, where it cannot be redacted",
                hint="end the rule at the whole of it, or keep that part in a dict or list",
                path=_write_path(where),
            )


def _rules(paths: Paths) -> Iterator[str]:
    if paths.rule is not None:
        yield paths.rule
    for after in paths.next.values():
        yield from _rules(after)


def _after(rules: Iterable[Paths], step: object) -> list[Paths]:
    found = []
    for paths in rules:
        if isinstance(step, str) and (named := paths.next.get(step)) is not None:
            found.append(named)
        if (every := paths.next.get(ANY)) is not None:
            found.append(every)
    return found


def _keys(value: dict[Any, Any], rules: list[Paths]) -> list[Any]:
    """Return the keys that rules may lead to: all of them, or only those that are named."""
    if any(ANY in paths.next for paths in rules):
        return list(value)
    named = dict.fromkeys(step for paths in rules for step in paths.next if step is not None)
    keys: list[Any] = [step for step in named if step in value]
    return keys + [int(step) for step in named if step.isdecimal() and len(step) < 19 and int(step) in value]


def _indexes(count: int, rules: list[Paths]) -> Iterable[int]:
    if any(ANY in paths.next for paths in rules):
        return range(count)
    named = {step for paths in rules for step in paths.next if step is not None and step.isdecimal()}
    return sorted({int(step) for step in named if len(step) < 19 and int(step) < count})


def _taken_apart(value: object) -> Any:
    try:
        parts = take_apart(value)
    except (CheckpointError, Warning, RecursionError):
        raise
    except Exception:  # from the class's own code; storing it will meet the same, and say so
        return None
    return None if parts is None else parts[1]


def _write_path(where: Where) -> str:
    parts: list[str] = []
    while where is not None:
        where, step = where
        parts.append(write_step(step))
    return "".join(reversed(parts)).removeprefix(".")
