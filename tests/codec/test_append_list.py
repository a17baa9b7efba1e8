"""AppendList: a list that is paid for by what was appended, exact and canonical (A3, A4, B1, promise 7)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ormsgpack import Ext, packb
from tests.codec.test_splitting import ANY_SIZE, HOSTILE, Blobs, damaged, fetch_from, joined, some_leaf, some_words
from tests.support.equality import exactly

import lastgood
from lastgood.codec import encode as values
from lastgood.codec import split as splitting
from lastgood.codec.append_list import AppendList
from lastgood.codec.classes import as_type
from lastgood.codec.join import check, join
from lastgood.codec.split import Splitter
from lastgood.compare.state import StateChange, compare, same
from lastgood.errors import ConflictError, IntegrityError, UnstorableError
from lastgood.model import identity
from lastgood.model.identity import SHA256, digest


def turn(number: int, size: int = 900) -> dict[str, Any]:
    return {"role": "user", "n": number, "content": some_words(random.Random(number), size)}


def some_element(dice: random.Random) -> Any:
    """Mostly small, now and then larger than what is split off, in each way an element can be large."""
    if dice.random() < 0.9:
        return some_leaf(dice)
    large = some_words(dice, 400) * 50
    return dice.choice(
        [
            large,
            dice.randbytes(20_000),
            {"content": large, "raw": bytearray(dice.randbytes(2000)), "id": UUID(int=dice.getrandbits(128))},
            {f"key {n}": [n, (n,), b"raw"] for n in range(1500)},
            [some_leaf(dice) for _ in range(80)] + [large],
            (large, {dice.random()}),
            {"inner": AppendList([large, 1]), "list": [AppendList([2])]},
        ]
    )


def plainly(value: Any) -> Any:
    """With lists in place of AppendLists, marked, so that `exactly` can look into them."""
    if type(value) is AppendList:
        return ["AppendList", *map(plainly, value)]
    if type(value) in (list, tuple):
        return type(value)(map(plainly, value))
    return {key: plainly(item) for key, item in value.items()} if type(value) is dict else value


# --- as a list --------------------------------------------------------------------------------------------


def test_it_is_read_as_a_list_is() -> None:
    log = AppendList("abcd")
    log.append({"e": 1})
    log.extend(n for n in range(2))
    log += [None]
    model = ["a", "b", "c", "d", {"e": 1}, 0, 1, None]
    assert isinstance(log, Sequence)
    assert len(log) == 8
    assert (log[0], log[-1], log[4], log[True]) == ("a", None, {"e": 1}, "b")
    assert log[2:6] == model[2:6]
    assert type(log[::-3]) is list
    assert log[::-3] == model[::-3]
    assert list(log) == model == [*reversed(list(reversed(log)))]
    assert {"e": 1} in log
    assert "x" not in log
    assert (log.index("c"), log.count(1)) == (2, 1)
    assert repr(log) == "<AppendList of 8>"
    assert not AppendList()
    with pytest.raises(IndexError):
        log[8]


def test_it_is_equal_to_lists_with_equal_elements() -> None:
    log = AppendList([1, {"a": 1, "b": 2}])
    assert log == [1.0, {"b": 2, "a": 1}]
    assert log == AppendList([True, {"b": 2, "a": 1}])
    assert log != [1]
    assert log != AppendList([1])
    assert log != (1, {"a": 1, "b": 2})


@pytest.mark.parametrize(
    "change", ["log[0] = 1", "del log[0]", "log.insert(0, 1)", "log.pop()", "log.clear()", "{log}"]
)
def test_nothing_in_it_can_be_changed_and_it_has_no_hash(change: str) -> None:
    log = AppendList([1, 2])
    with pytest.raises((TypeError, AttributeError)):
        exec(change, {"log": log})
    assert log == [1, 2]


def test_an_element_is_kept_as_it_was_when_it_was_appended() -> None:
    message = {"parts": ["one"]}
    log = AppendList()
    log.append(message)
    message["parts"].append("two")
    log[0]["parts"].append("three")
    next(iter(log))["parts"].append("four")
    assert log == [{"parts": ["one"]}]


def test_a_list_inside_an_element_is_frozen_with_it() -> None:
    inner = AppendList([1])
    outer = AppendList([{"log": inner}])
    inner.append(2)
    assert outer[0]["log"] == [1]
    assert type(outer[0]["log"]) is AppendList


def test_what_cannot_be_stored_is_refused_when_it_is_appended() -> None:
    """A3: with the path of what cannot be kept; of several elements none is taken."""
    log = AppendList([1, 2])
    with pytest.raises(UnstorableError, match=r"AppendList\[2\]\.when: object"):
        log.append({"when": object()})
    with pytest.raises(UnstorableError, match=r"AppendList\[3\]"):
        log.extend([3, object(), 5])
    assert log == [1, 2]


def test_it_can_be_extended_by_itself() -> None:
    log = AppendList([1, 2])
    log.extend(log)
    log += log
    assert log == [1, 2] * 4


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_copy_and_its_original_go_their_own_ways(duplicate: Any) -> None:
    log = AppendList([1])
    other = duplicate(log)
    log.append("mine")
    other.append("yours")
    assert log == [1, "mine"]
    assert other == [1, "yours"]


# --- stored and loaded ------------------------------------------------------------------------------------


def test_it_comes_back_from_a_store_and_goes_on(store: lastgood.Store, tmp_path: Path) -> None:
    """A3: over several saves, and in a process that has only the store."""
    task = store.task("talk")
    log = AppendList()
    for number in range(60):
        log.append(turn(number))
        task.save({"messages": log, "round": number})
    assert task.state["messages"] == [turn(number) for number in range(60)]
    with lastgood.open(tmp_path / "store", user="tester") as other:
        continued = other.task("talk")
        state = continued.state
        assert type(state["messages"]) is AppendList
        state["messages"].append(turn(60))
        saved = continued.save({"messages": state["messages"], "round": 60})
    at_once = AppendList(map(turn, range(61)))
    assert saved.record.state == Splitter(ANY_SIZE, SHA256).split({"messages": at_once, "round": 60}).ref
    for checkpoint in store.list_checkpoints("talk"):
        assert checkpoint.state["messages"] == [turn(number) for number in range(checkpoint.state["round"] + 1)]


def test_a_handle_that_conflicts_loses_nothing(store: lastgood.Store) -> None:
    """A4: what a refused save had prepared is prepared again, and what is stored is the same."""
    mine, log = store.task("talk"), AppendList(map(turn, range(40)))
    mine.save({"messages": log})
    yours, other = store.task("talk"), AppendList(store.task("talk").state["messages"])
    yours.save({"messages": other, "by": "you"})
    log.extend(map(turn, range(40, 80)))
    with pytest.raises(ConflictError):
        mine.save({"messages": log})
    log.append(turn(80))
    mine.refresh()
    saved = mine.save({"messages": log})
    assert saved.state["messages"] == [turn(number) for number in range(81)]
    assert saved.record.state == Splitter(ANY_SIZE, SHA256).split({"messages": AppendList(map(turn, range(81)))}).ref


@pytest.mark.parametrize("count", [0, 1, 5, 700])
def test_it_can_stand_anywhere_in_the_state(count: int) -> None:
    """A3: and its size is that of its encoding in one piece."""
    log = AppendList({"n": n, "raw": b"r"} for n in range(count))
    deep: Any = log
    for _ in range(40):
        deep = {"k": [deep]}
    places: list[Any] = [log, [log], (log, 1), {1: log}, {"a": {"b": {"c": log}}}, deep]
    places.append({f"key {n}": (log if n == 30 else n) for n in range(60)})
    places.append([AppendList([n]) if n % 2 else log for n in range(20)])
    for place in places:
        split = Splitter(ANY_SIZE, SHA256).split(place)
        back = joined(split, split.blobs)
        assert exactly(plainly(back)) == exactly(plainly(place))
        assert split.ref.size == len(values.encode(place)) == len(values.encode_strictly(place))
        check(split.root, split.ref.size, fetch_from(split.blobs))
        assert Splitter(ANY_SIZE, SHA256).split(back).ref == split.ref
    assert Splitter(ANY_SIZE, SHA256).split(log).ref.count == count


@pytest.mark.parametrize("payload", [*range(40), 250, 251, 252, 253, 254, 255, 256, 1018, 1024, 65_530, 65_536, 70_000])
def test_its_size_is_known_without_encoding_it(payload: int) -> None:
    log = AppendList([None] * payload)
    split = Splitter(ANY_SIZE, SHA256).split(log)
    assert split.ref.size == len(values.encode(log))
    assert joined(split, split.blobs) == log


def test_a_list_and_an_append_list_are_different_values() -> None:
    """A4: they come back as what they were, so their digests differ."""
    for count in (1, 500):
        appended, plain = (Splitter(ANY_SIZE, SHA256).split(kind(range(count))).ref for kind in (AppendList, list))
        assert appended != plain


def test_a_state_that_grows_too_large_is_refused() -> None:
    """The bound counts all elements, not only new ones."""
    splitter, log = Splitter(200_000, SHA256), AppendList()
    while len(values.encode({"messages": log})) <= 200_000:
        splitter.split({"messages": log})
        splitter.keep()
        log.append(turn(len(log)))
    with pytest.raises(UnstorableError, match="more than the 200,000 allowed"):
        splitter.split({"messages": log})


@dataclasses.dataclass
class Unregistered:
    text: str


def test_a_class_that_is_not_registered_keeps_its_name_when_a_loaded_list_goes_on() -> None:
    """A4: elements stay as they are stored, also those that are split."""
    log = AppendList()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log.extend(
            [Unregistered("short"), Unregistered("long " * 5000), {"in": Unregistered("long " * 5000), "b": b"b"}]
        )
    split = Splitter(ANY_SIZE, SHA256).split(log)
    back = joined(split, split.blobs)
    assert back[0] == {"text": "short"}
    assert Splitter(ANY_SIZE, SHA256).split(back).ref == split.ref


# --- as another type, and compared ------------------------------------------------------------------------


class Talk(msgspec.Struct):
    messages: list[dict[str, Any]]
    numbers: Sequence[int]
    log: AppendList


def test_it_is_loaded_as_whatever_list_a_type_has(store: lastgood.Store) -> None:
    task = store.task("talk")
    for count in (1, 300):
        state = {name: AppendList(range(count)) for name in ("numbers", "log")}
        task.save({**state, "messages": AppendList(map(turn, range(count)))})
        loaded = task.load(Talk)
        assert loaded.messages == [turn(number) for number in range(count)]
        assert list(map(type, (loaded.messages, loaded.numbers, loaded.log))) == [list, list, AppendList]
        assert loaded.log == loaded.numbers == [*range(count)]
    assert as_type({"messages": [], "numbers": [1], "log": [2]}, Talk).log == [2]


def test_two_of_them_are_compared_as_lists() -> None:
    before = {"log": AppendList([{"a": 1}, "x", [1]])}
    after = {"log": AppendList([{"a": 2}, "x", [1], "new"])}
    assert compare(before, after) == [
        StateChange(("log", 0, "a"), "changed", 1, 2),
        StateChange(("log", 3), "added", after="new"),
    ]
    assert compare(before, copy.deepcopy(before)) == []
    assert same({"s": AppendList([1])}, {"s": AppendList([1])})
    assert not same(AppendList([1]), AppendList([True]))
    assert [change.kind for change in compare([1], AppendList([1]))] == ["changed"]
    assert same({1: AppendList([0.5]), float("nan"): 1}, {float("nan"): 1, 1: AppendList([0.5])})


# --- what is remembered -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_however_it_came_about_the_same_content_is_stored_the_same(seed: int) -> None:
    """A4: appended one by one or at once, saved, failed, loaded, copied, forgotten: same root, all blobs there."""
    dice = random.Random(seed)
    splitter, log, model = Splitter(ANY_SIZE, SHA256), AppendList(), AppendList()
    stored: Blobs = {}
    for step in range(8):
        batch = [some_element(dice) for _ in range(dice.choice([0, 1, 1, 2, 25]))]
        log.extend(batch)
        model.extend(batch)
        state = {"log": log, "twice": [log], "n": len(log)} if seed % 2 else log
        split = splitter.split(state)
        fresh = Splitter(ANY_SIZE, SHA256).split({"log": model, "twice": [model], "n": len(log)} if seed % 2 else model)
        assert (split.ref, split.root) == (fresh.ref, fresh.root)
        assert split.blobs.keys() <= fresh.blobs.keys()
        assert fresh.blobs.keys() <= split.blobs.keys() | stored.keys()
        back = joined(split, {**stored, **split.blobs})
        if step % 3 == 1:
            assert exactly(plainly(back)) == exactly(plainly(state))
        for slice_ in split.slices:
            piece = split.blobs[slice_.run][slice_.position :]
            assert digest(piece[: len(stored[slice_.digest])]) == slice_.digest
        event = dice.choice(["keep", "keep", "keep", "keep", "fail", "forget", "load", "copy", "shorten"])
        if event != "fail":
            stored.update(split.blobs)
            splitter.keep()
        if event == "forget":
            splitter.forget()
        if event == "load":
            log = back["log"] if seed % 2 else back
        if event == "copy":
            log = copy.copy(log)
        if event == "shorten":
            log, model = AppendList(log[:-3]), AppendList(model[:-3])


@pytest.mark.parametrize("padding", [0, 8])
def test_what_is_split_off_stays_announced_when_a_list_goes_on(padding: int) -> None:
    """A4: by the references of the list, and by those of a map around it that is split itself."""
    splitter, log = Splitter(ANY_SIZE, SHA256), AppendList([{"content": "long " * 4000}])
    stored: Blobs = {}
    for number in range(60):
        state = {**{f"pad {n}": "x" * 900 for n in range(padding)}, "log": log}
        split = splitter.split(state)
        splitter.keep()
        stored.update(split.blobs)
        assert split.root == Splitter(ANY_SIZE, SHA256).split(state).root
        assert Splitter(ANY_SIZE, SHA256).split({**state, "log": AppendList(log)}).root == split.root
        assert joined(split, stored)["log"] == log
        log.append(number)


def test_a_small_one_stays_where_it_is() -> None:
    log = AppendList(["x" * 100] * 9)
    split = Splitter(ANY_SIZE, SHA256).split({"log": log, "n": ["y" * 1000]})
    assert values.encode(log) in split.root


def test_a_save_that_fails_changes_nothing_that_is_remembered() -> None:
    """A4: the blobs of a split that was not kept are given again."""
    splitter, log = Splitter(ANY_SIZE, SHA256), AppendList(map(turn, range(30)))
    stored = dict(splitter.split(log).blobs)
    splitter.keep()
    log.extend(map(turn, range(30, 60)))
    first = splitter.split(log)
    again = splitter.split(log)
    assert (first.ref, first.blobs, first.slices) == (again.ref, again.blobs, again.slices)
    assert joined(again, {**stored, **again.blobs}) == log


def test_two_handles_follow_one_list() -> None:
    """A4: each remembers how far it was."""
    one, two, log = Splitter(ANY_SIZE, SHA256), Splitter(ANY_SIZE, SHA256), AppendList()
    stored: dict[Splitter, Blobs] = {one: {}, two: {}}
    for number in range(200):
        log.append(turn(number))
        splitter = one if number % 7 else two
        split = splitter.split({"log": log})
        splitter.keep()
        stored[splitter].update(split.blobs)
        assert len(joined(split, stored[splitter])["log"]) == number + 1
    assert one.split({"log": log}).ref == two.split({"log": log}).ref


class Counted:
    """A function as it is, and over how many calls and bytes it was used."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self.calls = self.bytes = 0

    def __call__(self, *arguments: Any) -> Any:
        result = self._function(*arguments)
        self.calls += 1
        self.bytes += len(result if self._function is packb else arguments[0])
        return result


@pytest.mark.parametrize("via", ["the same list", "a copy"])
@pytest.mark.parametrize("size", [30, 900, 20_000])
def test_a_save_looks_at_what_was_appended_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, size: int, via: str
) -> None:
    """Promise 7: each element is gathered once, hashed once in a piece and once in its run, and not encoded again."""
    count, of_one = 400, len(packb(turn(1, size)))
    splitter, log = Splitter(ANY_SIZE, SHA256), AppendList()
    log.extend(turn(number, size) for number in range(40))
    splitter.split({"messages": log, "round": 0})
    splitter.keep()
    marks, digests, encoded = Counted(crc32), Counted(sha256), Counted(packb)
    monkeypatch.setattr(splitting, "crc32", marks)
    monkeypatch.setattr(identity, "sha256", digests)
    monkeypatch.setattr(values, "packb", encoded)
    splits = []
    for number in range(count):
        log._elements.append(packb(turn(number, size)))  # what `append` does, but not counted
        splits.append(splitter.split({"messages": log if via == "the same list" else copy.copy(log), "round": number}))
        splitter.keep()
    large = of_one > splitting.LARGE
    assert marks.bytes <= count * (of_one + 100) * (1.1 if large else 1)
    assert large or marks.calls == count
    roots = sum(len(split.root) for split in splits)
    assert digests.bytes - roots <= 2.1 * count * of_one + count * 200
    assert encoded.bytes <= count * ((4 * of_one if large else 0) + 100)
    assert max(sum(map(len, split.blobs.values())) for split in splits) <= 70_000 + 3 * of_one
    assert max(len(split.root) for split in splits) < 10_000
    at_once = {"messages": AppendList(log), "round": count - 1}
    assert splits[-1].ref == Splitter(ANY_SIZE, SHA256).split(at_once).ref


# --- threads ----------------------------------------------------------------------------------------------


def test_a_save_among_appends_of_other_threads_stores_what_was_there_at_one_moment() -> None:
    """Each thread's elements are there without a gap, in order; and in the end all of them."""
    threads, each = 4, 400
    log, splitter = AppendList(), Splitter(ANY_SIZE, SHA256)
    stored: Blobs = {}

    def append_all(thread: int) -> None:
        for number in range(each):
            log.append({"by": thread, "n": number, "text": "x" * 150})

    workers = [threading.Thread(target=append_all, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    while True:
        last = not any(worker.is_alive() for worker in workers)
        split = splitter.split({"log": log, "pair": (log, 1)})
        stored.update(split.blobs)
        splitter.keep()
        back = joined(split, stored)
        for part in (back["log"], back["pair"][0]):
            for thread in range(threads):
                mine = [element["n"] for element in part if element["by"] == thread]
                assert mine == [*range(len(mine))]
        if last:
            break
    for worker in workers:
        worker.join()
    assert len(log) == threads * each
    assert split.ref == Splitter(ANY_SIZE, SHA256).split({"log": AppendList(log), "pair": (log, 1)}).ref


# --- damage and hostile stores ----------------------------------------------------------------------------


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_damage_is_refused_as_damage_and_nothing_else(seed: int) -> None:
    """I3, G11: whatever the bytes, loading and reading give values or an IntegrityError."""
    dice = random.Random(seed)
    log = AppendList(some_element(dice) for _ in range(dice.choice([3, 60, 200])))
    split = Splitter(ANY_SIZE, SHA256).split({"small": AppendList([{1}, b"x"]), "log": log})
    blobs = {split.ref.digest: split.root, **split.blobs}
    for key in dice.sample(sorted(blobs), min(len(blobs), dice.randrange(1, 4))):
        blobs[key] = damaged(blobs[key], dice)
    for classes in (True, False):
        with contextlib.suppress(IntegrityError):
            back = join(blobs[split.ref.digest], split.ref.size, fetch_from(blobs), classes=classes)
            plainly(back)
    with contextlib.suppress(IntegrityError):
        check(blobs[split.ref.digest], split.ref.size, fetch_from(blobs))


@pytest.mark.parametrize("code", [17, 35])
@given(data=st.binary(max_size=60))
def test_arbitrary_bytes_in_place_of_one_are_refused_as_damage(code: int, data: bytes) -> None:
    """I3, G11."""
    for root in (
        packb(Ext(code, data)),
        packb([Ext(1, packb(Ext(code, data)))]),
        packb(Ext(35, packb([1, b"", data]))),
    ):
        with contextlib.suppress(IntegrityError):
            plainly(join(root, len(root), fetch_from({})))


@pytest.mark.parametrize(
    "payload",
    [
        [1, b"x" * 32, b""],
        [1, b"\x00" + bytes(32), b""],
        [1, b"\x3f" + bytes(32), b""],
        [-1, b"", b""],
        [1 << 32, b"", b""],
        [2, b"", b"\x01"],
        [1, b"", b"\x01\x01"],
        [1, "", ""],
        [1, b"", packb(Ext(35, packb([1, b"", b"\x01"])))],
        {"count": 1},
        5,
    ],
    ids=str,
)
def test_a_malformed_split_list_is_refused_when_it_is_loaded(payload: Any) -> None:
    """I3: among them an AppendList split inside of one, which is never written."""
    with pytest.raises(IntegrityError):
        join(packb(Ext(35, packb(payload))), ANY_SIZE, fetch_from({}))


def test_elements_across_the_end_of_a_blob_are_refused() -> None:
    """I3: a blob holds whole elements."""
    one, two = b"\xa3ab", b"c\x01"
    blobs = {digest(one): one, digest(two): two}
    root = packb(Ext(35, packb([2, b"".join(b"\x00" + key for key in blobs), b""])))
    with pytest.raises(IntegrityError):
        join(root, ANY_SIZE, fetch_from(blobs))


def test_a_split_value_where_none_is_announced_is_refused_when_it_is_read() -> None:
    """I3: what is not well formed inside of an element is found when that element is asked for."""
    leaf = packb(Ext(32, packb([1, b"", b"\x01"]))) + b"\x02"
    back = join(packb(Ext(35, packb([2, b"\x00" + digest(leaf), b""]))), ANY_SIZE, fetch_from({digest(leaf): leaf}))
    assert back[1] == 2
    with pytest.raises(IntegrityError):
        back[0]


@pytest.mark.parametrize("how", ["itself", "in an element"])
@pytest.mark.parametrize("case", ["node bomb", "value bomb", "wide bomb", "cycle", "wide cycle", "node cycle", "count"])
def test_a_bomb_is_refused_as_damage_within_bounded_memory(case: str, how: str) -> None:
    """I3, threats (bombs): as for lists, when a split list is an AppendList, or stands in one."""
    if how == "itself":
        hostile = HOSTILE.replace("Ext(32,", "Ext(35,")
    else:
        call = "root, blobs = CASES[sys.argv[1]]()\n"
        assert call in HOSTILE
        hostile = HOSTILE.replace(call, call + 'root = packb(Ext(35, packb([1, b"", root])))\n')
    done = subprocess.run(
        [sys.executable, "-c", hostile, case], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    outcome, kilobytes = json.loads(done.stdout)
    assert outcome == "IntegrityError"
    assert kilobytes < 256 * 1024


def test_a_missing_part_is_found_when_the_list_is_loaded() -> None:
    """I3: not first when an element is read: all blobs are checked by loading."""
    log = AppendList(map(turn, range(60)))
    split = Splitter(ANY_SIZE, SHA256).split(log)
    for key in split.blobs:
        remaining = {other: data for other, data in split.blobs.items() if other != key}
        with pytest.raises(IntegrityError):
            join(split.root, split.ref.size, fetch_from(remaining))
