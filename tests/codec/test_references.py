"""What a value refers to is found without making a value of it: exactly the blobs that joining it needs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ormsgpack import Ext, packb
from tests.codec.test_splitting import ANY_SIZE, some_large_value

from lastgood import AppendList
from lastgood.codec.decode import SPLIT_LIST, SPLIT_TEXT
from lastgood.codec.join import ELEMENTS, check, is_plain, references_below, references_in
from lastgood.codec.split import REFERENCE, Split, Splitter
from lastgood.errors import IntegrityError
from lastgood.model.identity import SHA256

Blobs = dict[bytes, bytes]


def reached(split: Split, blobs: Blobs) -> set[bytes]:
    waiting = references_in(split.root)
    found = set()
    while waiting:
        reference = waiting.pop()
        found.add(reference[1:])
        if not is_plain(reference):
            waiting += references_below(reference, blobs[reference[1:]])
    return found


def needed(split: Split, blobs: Blobs) -> set[bytes]:
    asked: set[bytes] = set()

    def fetch(digests: Sequence[bytes]) -> Blobs:
        asked.update(digests)
        return {key: blobs[key] for key in digests}

    check(split.root, split.ref.size, fetch)
    return asked


def same(value: Any) -> int:
    split = Splitter(ANY_SIZE, SHA256).split(value)
    found = reached(split, split.blobs)
    assert found == needed(split, split.blobs)
    return len(found)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_value_refers_to_what_joining_it_needs(seed: int) -> None:
    """B6: whoever follows the references finds all that must not go, and nothing else."""
    same(some_large_value(random.Random(seed)))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_an_append_list_refers_to_what_joining_it_needs(seed: int) -> None:
    dice = random.Random(seed)
    same({"messages": AppendList(some_large_value(dice, 1) for _ in range(dice.randrange(40)))})


def test_parts_within_parts_are_found() -> None:
    inner = [f"line {n}\n" * 20 for n in range(400)]
    assert same({"a": [[*inner, n] for n in range(30)], "b": {str(n): inner[n:] for n in range(40)}}) > 40


EVERY_HEADER: list[Any] = [
    None, True, False, 0, -1, 127, 128, -128, 1 << 15, -(1 << 15), 1 << 31, -(1 << 31), 1 << 63, -(1 << 63), 1.5,
    "", "x" * 31, "x" * 32, "x" * 300, "x" * 70_000, b"", b"x" * 300, b"x" * 70_000, [], [0] * 15, [0] * 16,
    [0] * 70_000, {}, {str(n): n for n in range(15)}, {str(n): n for n in range(16)},
    {str(n): n for n in range(70_000)}, *(Ext(1, b"x" * size) for size in (0, 1, 2, 3, 4, 8, 16, 17, 300, 70_000)),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(EVERY_HEADER)))
def test_nothing_that_stands_before_hides_a_reference(index: int) -> None:
    reference = b"\0" + b"d" * (REFERENCE - 1)
    split = packb(Ext(SPLIT_LIST, packb([1, reference, b""])))
    assert references_in(packb(EVERY_HEADER[index]) + split) == [reference]
    assert references_in(packb([EVERY_HEADER[index], 1])) == []


def test_what_looks_like_a_reference_in_text_is_none() -> None:
    tail = packb(Ext(SPLIT_LIST, packb([1, b"\0" * REFERENCE, b""])))
    assert references_in(packb(Ext(SPLIT_TEXT, packb([len(tail), b"", tail])))) == []
    assert references_in(packb(tail)) == []


def test_a_part_that_holds_nothing_split_leads_nowhere() -> None:
    plain = b"\0" + b"d" * (REFERENCE - 1)
    assert is_plain(plain)
    assert references_below(plain, b"\xc1 not even msgpack") == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1", b"\xa5abc", b"\xc4", b"\xc7\x20\x20", b"\xd8\x20", b"\xcb123", b"\xda\x00",
        packb(Ext(SPLIT_LIST, b"\x01")), packb(Ext(SPLIT_LIST, packb([1, b"short", b""]))),
        packb(Ext(SPLIT_LIST, packb([1, b"", "text"]))),
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        references_in(data)


def test_a_node_refers_to_what_lies_one_level_below() -> None:
    node, low, high = b"\2" + b"n" * 32, b"\1" + b"a" * 32, b"\3" + b"b" * 32
    assert references_below(node, low + low) == [low, low]
    for wrong in (low + high, low + b"x"):
        with pytest.raises(IntegrityError):
            references_below(node, wrong)
    assert references_below(ELEMENTS + b"r" * 32, b"\x01\x02") == []
