"""How two values differ."""

from __future__ import annotations

import copy
import datetime as dt
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.compare.state import StateChange, compare, same

NAN = float("nan")
leaves = (
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.text(max_size=2) | st.binary(max_size=1)
    | st.sampled_from([Decimal("1.0"), Decimal("1.00"), Decimal("NaN"), dt.date(2024, 1, 1)])
    | st.sampled_from([frozenset([1]), frozenset([True]), frozenset([NAN])])
)  # fmt: skip
keys = st.text(max_size=2) | st.sampled_from([0, 1, True, False, 1.0, None, (1,), (True,)])
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=1), inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=20,
)


def apply(before: Any, changes: list[StateChange]) -> Any:
    """`before` with the changes made: one level at a time, what is deeper first."""
    here = [change for change in changes if not change.path]
    if here:
        return here[0].after
    if not changes:
        return before
    below: dict[int, tuple[Any, list[StateChange]]] = {}
    direct: list[StateChange] = []
    for change in changes:
        if len(change.path) == 1 and change.kind != "changed":
            direct.append(change)
        else:
            step = change.path[0]
            below.setdefault(id(_own(before, step)), (_own(before, step), []))[1].append(_shifted(change))
    return _rebuilt(before, list(below.values()), direct)


def _shifted(change: StateChange) -> StateChange:
    return change._replace(path=change.path[1:])


def _own(before: Any, step: Any) -> Any:
    """The key itself of the container, where it is a map; an index as it is."""
    if type(before) is not dict:
        return step
    return next(key for key in before if same(key, step))


def _rebuilt(before: Any, below: list[tuple[Any, list[StateChange]]], direct: list[StateChange]) -> Any:
    removed = [change.path[0] for change in direct if change.kind == "removed"]
    added = [(change.path[0], change.after) for change in direct if change.kind == "added"]
    if type(before) is dict:
        pairs = [(key, apply(item, _for(below, key))) for key, item in before.items()]
        pairs = [(key, item) for key, item in pairs if not any(same(key, one) for one in removed)]
        return dict(pairs + added)
    items = [apply(item, _for(below, index)) for index, item in enumerate(before)]
    for index in sorted(removed, reverse=True):
        del items[index]
    for index, item in sorted(added, key=lambda pair: pair[0]):
        items.insert(index, item)
    return type(before)(items)


def _for(below: list[tuple[Any, list[StateChange]]], step: Any) -> list[StateChange]:
    return [change for own, changes in below if same(own, step) for change in changes]


@given(values, values)
def test_applying_the_changes_gives_the_value_after(before: Any, after: Any) -> None:
    assert same(apply(before, compare(before, after)), after)


@given(values)
def test_a_value_does_not_differ_from_its_copy(value: Any) -> None:
    assert compare(value, copy.deepcopy(value)) == []


@given(values, values)
def test_there_are_changes_exactly_where_values_are_not_the_same(before: Any, after: Any) -> None:
    assert (compare(before, after) == []) == same(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (1, 1.0),
        (True, 1.0),
        (0.0, -0.0),
        ([], ()),
        (b"a", bytearray(b"a")),
        ({1}, {True}),
        ({1}, frozenset([1])),
        (None, False),
        (Decimal("1.0"), Decimal("1.00")),
        (
            dt.datetime(2024, 1, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ),
    ],
)
def test_values_that_python_takes_for_equal_differ_when_their_types_do(before: Any, after: Any) -> None:
    assert compare({"a": before}, {"a": after}) == [StateChange(("a",), "changed", before, after)]


@pytest.mark.parametrize("value", [NAN, [NAN], (NAN,), {"a": NAN}, {NAN}, {NAN: 1}, complex(NAN, 1), Decimal("NaN")])
def test_nan_is_the_same_as_nan(value: Any) -> None:
    assert compare(value, copy.deepcopy(value)) == []
    assert compare([float("nan")], [float("inf") - float("inf")]) == []


def test_maps_are_compared_by_key_whatever_their_order() -> None:
    assert compare({"a": 1, "b": 2}, {"b": 2, "a": 1}) == []
    assert compare({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        StateChange(("a",), "removed", before=1),
        StateChange(("b",), "changed", 2, 3),
        StateChange(("c",), "added", after=4),
    ]


def test_an_insertion_is_one_change_not_a_shift_of_all_that_follows() -> None:
    assert compare([1, 2, 3], [1, 9, 2, 3]) == [StateChange((1,), "added", after=9)]
    assert compare([1, 2, 3], [2, 3]) == [StateChange((0,), "removed", before=1)]
    assert compare([1, 1], [1, 1, 1]) == [StateChange((2,), "added", after=1)]


def test_a_change_deep_inside_is_named_by_its_path() -> None:
    before = {"messages": [{"role": "user"}, {"role": "user", "parts": (1, 2)}]}
    after = {"messages": [{"role": "user"}, {"role": "user", "parts": (1, 3)}]}
    assert compare(before, after) == [StateChange(("messages", 1, "parts", 1), "changed", 2, 3)]


def test_keys_that_cannot_be_told_apart_make_the_whole_map_one_value() -> None:
    before: Any = {float("nan"): 1, float("nan"): 2}
    assert compare(before, {float("nan"): 2, float("nan"): 1}) == []
    after: Any = {float("nan"): 1, float("nan"): 3}
    assert compare(before, after) == [StateChange((), "changed", before, after)]


def test_the_work_grows_with_the_size_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    from lastgood.compare import state as difference

    calls = 0
    original = difference.same

    def counting(one: Any, other: Any) -> bool:
        nonlocal calls
        calls += 1
        return original(one, other)

    monkeypatch.setattr(difference, "same", counting)
    size = 5000
    compare(list(range(size)), list(range(size, 0, -1)))
    assert calls <= 3 * size


def test_values_nested_deeper_than_pythons_stack_are_compared() -> None:
    depth = sys.getrecursionlimit() + 100

    def nested(leaf: int) -> list[Any]:
        value: list[Any] = [leaf]
        for _ in range(depth):
            value = [value]
        return value

    (change,) = compare(nested(1), nested(2))
    assert (len(change.path), change.before, change.after) == (depth + 1, 1, 2)
