"""What checking finds without putting things together is what putting them together needs."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.test_splitting import ANY_SIZE, Blobs, some_large_value

import lastgood
from lastgood.codec.join import Reference, check, is_plain, references_below, references_in
from lastgood.codec.split import Splitter
from lastgood.errors import IntegrityError
from lastgood.model.identity import SHA256
from lastgood.model.tree import Entry, File, Folder, Left, Link, Versions, decode_tree, encode_tree


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.booleans())
def test_tracing_a_value_finds_exactly_the_blobs_that_joining_it_fetches(seed: int, appended: bool) -> None:
    """Issue 3: every state part referenced exists."""
    dice = random.Random(seed)
    value = {"one": some_large_value(dice), "two": some_large_value(dice)}
    if appended:
        value["said"] = lastgood.AppendList([some_large_value(dice, 2) for _ in range(30)])
    split = Splitter(ANY_SIZE, SHA256).split(value, "state")
    fetched: set[bytes] = set()

    def fetch(digests: Sequence[bytes]) -> Blobs:
        fetched.update(digests)
        return {key: split.blobs[key] for key in digests}

    check(split.root, split.ref.size, fetch)
    assert _trace(split.root, split.blobs) == fetched


def _trace(root: bytes, blobs: Blobs) -> set[bytes]:
    found: set[Reference] = set()
    new = set(references_in(root))
    while new:
        found |= new
        needed = [reference for reference in new if not is_plain(reference)]
        new = {below for one in needed for below in references_below(one, blobs[one[1:]])} - found
    return {reference[1:] for reference in found}


def test_damaged_references_are_refused_as_damage() -> None:
    split = Splitter(ANY_SIZE, SHA256).split({"log": [f"entry {n} " * 20 for n in range(900)]}, "state")
    for at in range(0, len(split.root), 7):
        damaged = split.root[:at] + bytes((split.root[at] ^ 0xFF,)) + split.root[at + 1 :]
        try:
            references_in(damaged)
        except IntegrityError:
            continue


_NAMES = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
_ENTRIES = st.one_of(
    st.builds(File, name=_NAMES, mode=st.just(0o644), size=st.integers(0, 3), digest=st.just(b"f" * 32)),
    st.builds(Folder, name=_NAMES, mode=st.just(0o755), tree=st.sampled_from([b"1" * 32, b"2" * 32])),
    st.builds(Link, name=_NAMES, target=st.just(b"x")),
    st.builds(Left, name=_NAMES, why=st.just("ignored")),
)
_TREES = st.lists(st.lists(_ENTRIES, unique_by=lambda entry: entry.name), max_size=12)


@settings(max_examples=200)
@given(_TREES)
def test_versions_of_directories_give_every_entry_that_reading_each_whole_gives(trees: list[list[Entry]]) -> None:
    versions = Versions()
    seen: set[Entry] = set()
    for entries in trees:
        data = encode_tree(entries)
        new, summary = versions.decode_new(data)
        seen.update(new)
        assert set(decode_tree(data)) <= seen
        names = sorted(entry.name for entry in entries) or [b""]
        assert (summary.first, summary.last) == (names[0], names[-1])
        assert summary.files == sum(isinstance(entry, File | Link) for entry in entries)
        assert sorted(summary.trees) == sorted(entry.tree for entry in entries if isinstance(entry, Folder))


@pytest.mark.parametrize(
    "bad",
    [
        File(b"b", 0o644, -1, b"f" * 32),
        File(b"b", 0o644, 1, b"short"),
        File(b"b", 0o644, 1, b"f" * 32, b"c" * 33),
        File(b"b", 0o10000, 1, b"f" * 32),
        File(b"", 0o644, 1, b"f" * 32),
        File(b"b/c", 0o644, 1, b"f" * 32),
        Folder(b"b", 0o1777777, b"1" * 32),
        Folder(b"b", 0o755, b"1" * 31),
        Link(b"b", b"x\0"),
        Link(b"b", b""),
        File(b"..", 0o644, 1, b"f" * 32),
        File(b".git", 0o644, 1, b"f" * 32),
    ],
)
def test_a_later_version_that_could_lead_elsewhere_is_refused_as_the_first_is(bad: Entry) -> None:
    """A reader refuses a tree that breaks any rule, whatever it saw before."""
    good: list[Entry] = [File(b"a", 0o644, 1, b"f" * 32), File(b"b", 0o644, 1, b"f" * 32), Link(b"c", b"x")]
    versions = Versions()
    versions.decode_new(encode_tree(good))
    with pytest.raises(IntegrityError):
        versions.decode_new(encode_tree([good[0], bad, good[2]]))
    with pytest.raises(IntegrityError):
        decode_tree(encode_tree([good[0], bad, good[2]]))


def test_a_file_whose_blob_is_not_named_is_refused() -> None:
    with pytest.raises(IntegrityError):
        decode_tree(msgspec.msgpack.encode((1, [[5, b"a", 0o644, 1, b"f" * 32, None]])))


def test_only_an_entry_that_says_so_may_be_called_git_in_a_later_version() -> None:
    left, link = Left(b".git", "repository"), Link(b".git", b"repository")
    versions = Versions()
    versions.decode_new(encode_tree([left]))
    with pytest.raises(IntegrityError):
        versions.decode_new(encode_tree([link]))
