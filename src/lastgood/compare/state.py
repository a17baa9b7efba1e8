"""How two values differ: which parts were added, removed or changed, and where."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple

from lastgood.codec.append_list import AppendList

Kind = Literal["added", "removed", "changed"]
Trail = tuple["Trail", Any] | None
"""Where a value stands, innermost first; made into a path only for what differs."""

_EXACT = (str, int, bool, bytes, bytearray, type(None))


class StateChange(NamedTuple):
    """A difference. `path` leads to it: keys of maps, indexes of lists, AppendLists and tuples.

    The index of something removed is its place in the value before; of something added, in the value after.
    """

    path: tuple[Any, ...]
    kind: Kind
    before: Any = None
    after: Any = None


def compare(before: Any, after: Any) -> list[StateChange]:
    """Return what turns `before` into `after`, in the order of the values; empty when they are the same.

    Values of different types differ (1, True and 1.0 do), NaN is the same as NaN, the order of a map's keys does
    not matter. Lists are aligned by what they have in common at the beginning and at the end. Time grows with
    the size of the values times their depth, never with the square of a list's length.
    """
    changes: list[StateChange] = []
    todo: list[StateChange | tuple[Trail, Any, Any]] = [(None, before, after)]
    while todo:
        step = todo.pop()
        if isinstance(step, StateChange):
            changes.append(step)
            continue
        trail, old, new = step
        if type(old) is type(new) is AppendList:
            old, new = list(old), list(new)
        if type(old) is type(new) is dict and (parts := _compare_maps(trail, old, new)) is not None:
            todo.extend(reversed(parts))
        elif type(old) is type(new) and type(old) in (list, tuple):
            todo.extend(reversed(_compare_lists(trail, old, new)))
        elif not same(old, new):
            changes.append(StateChange(_path(trail), "changed", old, new))
    return changes


def same(one: Any, other: Any) -> bool:
    """Return whether both are the same value, down to their types."""
    todo = [(one, other)]
    while todo:
        one, other = todo.pop()
        kind = type(one)
        if kind is not type(other):
            return False
        if kind is AppendList:
            one, other, kind = list(one), list(other), list
        if kind in _EXACT:
            if one != other:
                return False
        elif kind in (list, tuple, dict) and len(one) != len(other):
            return False
        elif kind is list or kind is tuple:
            todo.extend(reversed(list(zip(one, other, strict=True))))
        elif kind is dict:
            parts = _compare_maps(None, one, other)
            if parts is None:
                return Counter(map(_mark, one.items())) == Counter(map(_mark, other.items()))
            if any(isinstance(part, StateChange) for part in parts):
                return False
            todo.extend((old, new) for _, old, new in parts)
        elif _mark(one) != _mark(other):
            return False
    return True


def _compare_maps(trail: Trail, old: dict[Any, Any], new: dict[Any, Any]) -> list[Any] | None:
    """Compare by key; None when keys cannot be told apart (several NaN)."""
    olds, news = _by_mark(old), _by_mark(new)
    if olds is None or news is None:
        return None
    parts: list[Any] = []
    for mark, key in olds.items():
        if mark in news:
            parts.append(((trail, key), old[key], new[news[mark]]))
        else:
            parts.append(StateChange(_path((trail, key)), "removed", before=old[key]))
    parts += [
        StateChange(_path((trail, key)), "added", after=new[key]) for mark, key in news.items() if mark not in olds
    ]
    return parts


def _compare_lists(trail: Trail, old: Any, new: Any) -> list[Any]:
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and same(old[start], new[start]):
        start += 1
    end = 0
    while end < shorter - start and same(old[-1 - end], new[-1 - end]):
        end += 1
    paired = shorter - end
    parts: list[Any] = [((trail, index), old[index], new[index]) for index in range(start, paired)]
    parts += [StateChange(_path((trail, i)), "removed", before=old[i]) for i in range(paired, len(old) - end)]
    parts += [StateChange(_path((trail, i)), "added", after=new[i]) for i in range(paired, len(new) - end)]
    return parts


def _by_mark(value: dict[Any, Any]) -> dict[Any, Any] | None:
    if all(type(key) is str for key in value):
        return {key: key for key in value}
    marks = {_mark(key): key for key in value}
    return marks if len(marks) == len(value) else None


def _mark(value: Any) -> Any:
    """Return something hashable that is equal for the same values, and only for them."""
    kind = type(value)
    if kind is str:
        return value
    if kind in _EXACT:
        return kind, bytes(value) if kind is bytearray else value
    if kind is tuple or kind is list or kind is AppendList:
        return kind, tuple(map(_mark, value))
    if kind is set or kind is frozenset:
        return kind, frozenset(Counter(map(_mark, value)).items())
    if kind is dict:
        return kind, frozenset(Counter(map(_mark, value.items())).items())
    return kind, repr(value)  # equality alone takes 1.0 for 1.00 (Decimal) and one time zone for another


def _path(trail: Trail) -> tuple[Any, ...]:
    steps = []
    while trail is not None:
        trail, step = trail
        steps.append(step)
    return tuple(reversed(steps))
