"""Bad input is kept exactly or refused by name; a refusal stores nothing and breaks nothing (A8, A9, B7, G11)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.equality import exactly

import lastgood
from lastgood.errors import CheckpointError, InvalidError, NotFoundError, UnstorableError

INTERNALS = re.compile(r"SELECT|INSERT INTO|UPDATE .* SET|sqlite|Traceback|\.py\b|(?<![\w.])/\w+/")


@contextmanager
def nothing_changes(store: lastgood.Store) -> Iterator[list[CheckpointError]]:
    """What is inside is refused by an error of this package (given) and leaves the store as it was, and working."""
    before = _figures(store)
    errors: list[CheckpointError] = []
    with pytest.raises(CheckpointError) as caught:
        yield errors
    errors.append(caught.value)
    assert _figures(store) == before
    said = str(caught.value)
    assert not INTERNALS.search(said), said[:300]
    assert len(said) < 2000
    task = store.task("afterwards")
    saved = task.save({"still": "works"})
    assert store.find_checkpoint(saved.id).state == {"still": "works"}
    store.delete_task("afterwards")


def _figures(store: lastgood.Store) -> Any:
    tasks = [(info.id, info.checkpoints, info.last_sequence, info.last_event) for info in store.tasks()]
    heads = [head.id if (head := store.task(info[0]).head) else None for info in tasks]
    return tasks, heads


@pytest.fixture
def task(store: lastgood.Store) -> lastgood.Task:
    opened = store.task("t")
    opened.save({"n": 0}, artifacts=[1], metadata={"a": 1})
    return opened


# --- state ------------------------------------------------------------------------------------------------


def wrapped(depth: int, wrap: Callable[[Any], Any], value: Any = 0) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def cyclic_dict() -> Any:
    value: dict[str, Any] = {}
    value["me"] = {"again": value}
    return value


def cyclic_list() -> Any:
    value: list[Any] = [1]
    value.append([value])
    return value


def cyclic_tuple() -> Any:
    inner: list[Any] = []
    value = (1, inner)
    inner.append(value)
    return value


@lastgood.register
@dataclass
class Node:
    next: Any = None


def cyclic_dataclass() -> Any:
    value = Node()
    value.next = {"n": [value]}
    return value


def cyclic_key_map() -> Any:
    value: dict[Any, Any] = {}
    value[1] = value
    return value


DEEP: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v],
    "dict": lambda v: {"k": v},
    "tuple": lambda v: (v,),
    "dict with int key": lambda v: {1: v},
    "frozenset": lambda v: frozenset([v]),
    "dataclass": Node,
    "list of dict": lambda v: [{"k": v}],
    "list of tuple": lambda v: [(v,)],
}


@pytest.mark.parametrize("kind", sorted(DEEP))
@pytest.mark.parametrize("depth", [10, 63, 64, 65, 100, 125, 200, 249, 251, 300, 1000, 10_000])
def test_deep_nesting_is_kept_or_refused(store: lastgood.Store, task: lastgood.Task, kind: str, depth: int) -> None:
    """A8: at any depth, of any container; never a RecursionError."""
    value = wrapped(depth, DEEP[kind])
    kept_or_refused(store, task, value, deep=True)


@pytest.mark.parametrize("outer", ["list", "dict", "tuple", "dict with int key"])
@pytest.mark.parametrize("inner", ["list", "dict", "tuple", "dict with int key"])
def test_deep_nesting_of_two_kinds_is_kept_or_refused(
    store: lastgood.Store, task: lastgood.Task, outer: str, inner: str
) -> None:
    """A8: the levels of a tuple count, and so do those within it; also with bytes at the bottom."""
    for bottom in (0, b"bytes"):
        value = wrapped(240, DEEP[outer], wrapped(60, DEEP["tuple"], wrapped(240, DEEP[inner], bottom)))
        kept_or_refused(store, task, value, deep=True)
        value = bottom
        for _ in range(20):
            value = DEEP["tuple"](wrapped(200, DEEP[inner], value))
        kept_or_refused(store, task, value, deep=True)


def kept_or_refused(store: lastgood.Store, task: lastgood.Task, value: Any, *, deep: bool = False) -> None:
    before = _figures(store)
    refusal: UnstorableError | None = None
    try:
        saved = task.save({"here": value})
    except UnstorableError as error:
        refusal = error
    if refusal is not None:
        assert _figures(store) == before
        assert not INTERNALS.search(str(refusal))
        assert len(str(refusal)) < 4000
        return
    loaded = store.find_checkpoint(saved.id).state["here"]
    if not deep:
        assert exactly(loaded) == exactly(value)
    while deep and type(value) is not int and type(value) is not bytes:
        assert type(loaded) is type(value)
        value, loaded = _inside(value), _inside(loaded)


def _inside(value: Any) -> Any:
    if isinstance(value, Node):
        return value.next
    return next(iter(value.values() if isinstance(value, dict) else value))


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (cyclic_dict(), "keep an id or a key in the place of what holds it"),
        (cyclic_dataclass(), "keep an id or a key in the place of what holds it"),
        (wrapped(300, DEEP["list"]), "keep it flatter: as lists of parts that refer to each other, or in a file"),
        (wrapped(100, DEEP["tuple"]), "keep it flatter: as lists of parts that refer to each other, or in a file"),
        (object(), "keep plain data, or lastgood.register() the class with to_plain and from_plain"),
    ],
    ids=["cycle", "cycle of objects", "deep", "deep tuples", "class"],
)
def test_the_hint_helps_with_what_is_wrong(task: lastgood.Task, value: Any, hint: str) -> None:
    """A list that contains itself had been told to register its class."""
    with pytest.raises(UnstorableError) as refused:
        task.save({"here": value})
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    "make", [cyclic_dict, cyclic_list, cyclic_tuple, cyclic_dataclass, cyclic_key_map], ids=lambda make: make.__name__
)
@pytest.mark.parametrize("where", ["state", "artifacts", "metadata", "in a long list"])
def test_a_value_that_contains_itself_is_refused(
    store: lastgood.Store, task: lastgood.Task, make: Callable[[], Any], where: str
) -> None:
    """A8: also where a list's beginning is remembered from the last save."""
    long = [f"entry {n} " * 20 for n in range(1500)]
    task.save({"log": long})
    with nothing_changes(store):
        if where == "state":
            task.save({"a": {"b": make()}})
        elif where == "in a long list":
            task.save({"log": [*long, make()]})
        else:
            task.save({}, **{where: [make()] if where == "artifacts" else {"k": make()}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        b"",
        [],
        {},
        (),
        0,
        float("nan"),
        float("-inf"),
        -0.0,
        1 << 64,
        -(1 << 63) - 1,
        1 << 20_000,
        "\ud800",
        "\0",
        {"\ud800": 1},
        {"": ""},
        {"\0": "\0"},
        b"\xff\xfe not text",
        {1: 1, None: 2, 2.5: 3, b"k": 4, (1, 2): 5},
        {float("nan"): 1},
        {10**5000: "a key of 5000 digits"},
        {(10**5000,): 1},
        {"a" * 100_000: 1},
        "x" * 10_000_000,
        b"x" * 10_000_000,
        ["x"] * 60_000,
        {str(n): n for n in range(10_000)},
        "'; DROP TABLE checkpoints; --",
        True,
    ],
    ids=range(30),
)
def test_odd_state_comes_back_exactly(store: lastgood.Store, task: lastgood.Task, value: Any) -> None:
    """A3: empty, huge, not UTF-8, NaN, surrogates, integers beyond 64 bits, keys that are not text."""
    saved = task.save(value)
    assert exactly(store.find_checkpoint(saved.id).state) == exactly(value)
    saved = task.save({"nested": [value]}, artifacts=[value], decisions=[value], guidance=[value], participants=[value])
    again = store.find_checkpoint(saved.id)
    for got in (again.state["nested"], again.artifacts, again.decisions, again.guidance, again.participants):
        assert exactly(got) == exactly([value])


@pytest.mark.parametrize(
    "value",
    [object(), lambda: 1, print, type, iter([]), memoryview(b"x"), open, re.compile("x"), Exception("x"), os],
    ids=range(10),
)
@pytest.mark.parametrize("where", ["state", "artifacts", "decisions", "guidance", "participants"])
def test_a_value_that_cannot_be_kept_is_refused_with_its_path(
    store: lastgood.Store, task: lastgood.Task, value: Any, where: str
) -> None:
    """A8: nothing is stored, and the path names the field."""
    fields: dict[str, Any] = {where: [{"deep": value}]}
    state = fields.pop("state", {})
    with nothing_changes(store) as caught:
        task.save(state, **fields)
    assert caught[0].details["path"] == (f"{where}[0].deep" if where != "state" else "state[0].deep")
    assert isinstance(caught[0], UnstorableError)


def test_a_key_that_cannot_be_put_into_words_does_not_break_the_error(
    store: lastgood.Store, task: lastgood.Task
) -> None:
    """A9: the path is made from keys, and keys can be anything."""

    class Mute(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise RuntimeError("I have no words")

    lastgood.register(Mute)
    for key in (Mute("k"), 10**5000, ("x" * 10_000_000,), "x" * 5_000_000):
        with nothing_changes(store):
            task.save({key: object()})


def test_a_state_larger_than_allowed_is_refused(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", user="tester", max_state_bytes=1000) as store:
        task = store.task("t")
        task.save({"n": 0})
        for state in ({"x": "y" * 1000}, ["z"] * 1000, b"q" * 1001):
            with nothing_changes(store):
                task.save(state)


# --- arguments of save ------------------------------------------------------------------------------------

WRONG: list[Any] = [5, 2.5, True, b"bytes", ["list"], {"a": 1}, object(), ("t",), float("nan"), {1, 2}]
BAD_NAMES: list[Any] = ["", " ", " x", "x ", "a\nb", "a\0b", "\ud800", "x" * 256, "é" * 128, "\x7f", "\u2028"]
BAD_NAMES.append("x" * 10_000_000)
BAD_TEXTS: list[Any] = ["\ud800", "x" * 10_000_000]
SAVE_FIELDS: dict[str, list[Any]] = {
    "message": [*WRONG, *BAD_TEXTS],
    "type": [*WRONG, *BAD_NAMES, "Not Snake", "9nine", "a-b"],
    "step_id": [*WRONG, *BAD_NAMES],
    "iteration": [2.5, True, "5", -1, 1 << 63, 1 << 80, [1], float("nan"), object(), None],
    "iteration_state": [*WRONG, *BAD_NAMES],
    "control_state": [*WRONG, *BAD_NAMES, "sleeping", "RUNNING"],
    "work_item_id": [*WRONG, *BAD_NAMES],
    "key": [*WRONG, *BAD_NAMES],
    "id": [*WRONG, *BAD_NAMES],
    "metadata": [5, "text", [1], ("a",), object(), {1: 1}, {b"k": 1}, {"\ud800": 1}, {"k": "\ud800"}],
    "artifacts": [5, "text", {"a": 1}, (1,), object()],
    "decisions": [5, "text", {"a": 1}, (1,), object()],
    "guidance": [5, "text", {"a": 1}, (1,), object()],
    "participants": [5, "text", {"a": 1}, (1,), object()],
    "on_failure": [5, True, "panic", ["raise"], object()],
}
SAVE_FIELDS["metadata"] += [
    {"k": value}
    for value in (b"x", {1}, (1,), float("nan"), float("inf"), 1 << 64, object(), {"d": [object()]}, {1: 1})
]
SAVE_FIELDS["metadata"] += [{"k": "x" * 2_000_000}, {"k": ["x" * 1000] * 2000}, {"x" * 10_000_000: 1}]
SAVE_FIELDS["metadata"] += [wrapped(40, lambda v: {"k": v}), {"x" * 1_000_000: object()}]
CASES = [(name, value) for name, bad in SAVE_FIELDS.items() for value in bad]


@pytest.mark.parametrize(
    ("field", "value"), CASES, ids=[f"{name}-{n}-{type(value).__name__}" for n, (name, value) in enumerate(CASES)]
)
def test_a_bad_argument_of_save_is_refused_by_name(
    store: lastgood.Store, task: lastgood.Task, field: str, value: Any
) -> None:
    """A9, G11: a plain sentence with the field in it; head, counts and store stay as they were."""
    with nothing_changes(store) as caught:
        task.save({"n": 1}, **{field: value})
    error = caught[0]
    named = f"{error} {error.details.get('field')} {error.details.get('path')}".replace(" ", "_")
    assert field in named


ODD_NAMES = ["quote ' and \" and `", "a; DROP TABLE tasks; --", "' OR 1=1 --", "%s {} $1 ?", "../../etc", "名前 🎉"]
ODD_NAMES.append("a" * 255)


@pytest.mark.parametrize("text", ODD_NAMES)
def test_odd_names_are_kept_exactly(store: lastgood.Store, text: str) -> None:
    """Threats (SQL injection): names are bound, never pasted."""
    task = store.task(text)
    saved = task.save({"n": 1}, message=text, step_id=text, work_item_id=text, key=text, id=text, iteration_state=text)
    store.tag(saved.id, text)
    again = store.get_checkpoint(text)
    assert again is not None
    names = ("task_id", "message", "step_id", "work_item_id", "key", "iteration_state")
    got = (*(getattr(again, name) for name in names), *again.tags)
    assert set(got) == {text}
    assert [info.id for info in store.tasks()] == [text]
    assert store.find_checkpoint(text, text).id == text


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=()), max_size=40), st.text(max_size=300))
def test_any_name_and_message_is_kept_exactly_or_refused(store: lastgood.Store, name: str, message: str) -> None:
    """A9."""
    try:
        saved = store.task(name).append({"n": 1}, message=message, step_id=name, work_item_id=name)
    except InvalidError:
        return
    again = store.get_checkpoint(saved.id)
    assert again is not None
    assert (again.task_id, again.step_id, again.work_item_id, again.message) == (name, name, name, message)


numbers = st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.floats(allow_nan=False, allow_infinity=False))
json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=10,
)


@settings(max_examples=100)
@given(st.dictionaries(st.text(), json_like, max_size=5))
@example({"": {"AUTHORIZATION": 0}})
def test_plain_metadata_comes_back_exactly_but_for_secrets(metadata: dict[str, Any]) -> None:
    """A3, D10."""
    rules = lastgood.types.Redaction(defaults=False)
    with lastgood.open(":memory:", redaction=rules) as store:
        saved = store.task("t").append({"n": 1}, metadata=metadata)
        assert exactly(store.find_checkpoint(saved.id).metadata) == exactly(metadata)


def test_what_is_done_to_arguments_after_a_save_changes_nothing(store: lastgood.Store) -> None:
    """A5: never anyone's live objects."""
    state, metadata, artifacts = {"a": [1]}, {"m": [1]}, [{"x": 1}]
    saved = store.task("t").save(state, metadata=metadata, artifacts=artifacts)
    state["a"].append(2)
    metadata["m"].append(2)
    artifacts.append({"y": 2})
    assert (saved.state, saved.metadata, saved.artifacts) == ({"a": [1]}, {"m": [1]}, [{"x": 1}])


# --- the store's methods ----------------------------------------------------------------------------------

Call = Callable[[lastgood.Store, Any], object]
BY_TASK: dict[str, Call] = {
    "task": lambda store, bad: store.task(bad),
    "delete_task": lambda store, bad: store.delete_task(bad),
    "list_checkpoints": lambda store, bad: store.list_checkpoints(bad),
    "page_checkpoints": lambda store, bad: store.page_checkpoints(bad),
    "get_last_verified_checkpoint": lambda store, bad: store.get_last_verified_checkpoint(bad),
    "delete_old_checkpoints": lambda store, bad: store.delete_old_checkpoints(bad, 1),
    "events": lambda store, bad: store.events("" if bad is None else bad),  # None: the store's own
    "find_checkpoint in": lambda store, bad: store.find_checkpoint("HEAD", "t" if bad is None else bad),
}
BY_CHECKPOINT: dict[str, Call] = {
    "get_checkpoint": lambda store, bad: store.get_checkpoint(bad),
    "find_checkpoint": lambda store, bad: store.find_checkpoint(bad, "t"),
    "find_checkpoint anywhere": lambda store, bad: store.find_checkpoint(bad),
    "verify_checkpoint": lambda store, bad: store.verify_checkpoint(bad),
    "check_checkpoint without evidence": lambda store, bad: store.check_checkpoint(bad, evidence=False).problems,
    "tag": lambda store, bad: store.tag(bad, "name"),
    "untag": lambda store, bad: store.untag(bad, "name"),
    "delete_checkpoint": lambda store, bad: store.delete_checkpoint(bad),
    "undelete_checkpoint": lambda store, bad: store.undelete_checkpoint(bad),
    "purge_checkpoint": lambda store, bad: store.purge_checkpoint(bad),
}
BY_OTHER: dict[str, Call] = {
    "owner of task": lambda store, bad: store.task("t", owner=bad),
    "owner of tasks": lambda store, bad: store.tasks(owner=bad),
    "owner of list": lambda store, bad: store.list_checkpoints("t", owner=bad),
    "owner of get": lambda store, bad: store.get_checkpoint("x", owner=bad),
    "type of list": lambda store, bad: store.list_checkpoints("t", 10, bad),
    "type of last verified": lambda store, bad: store.get_last_verified_checkpoint("t", bad),
}
BY_NUMBER: dict[str, Call] = {
    "limit of list": lambda store, bad: store.list_checkpoints("t", bad),
    "before of list": lambda store, bad: store.list_checkpoints("t", before=bad),
    "limit of tasks": lambda store, bad: store.tasks(limit=bad),
    "after of tasks": lambda store, bad: store.tasks(after=bad),
    "limit of events": lambda store, bad: store.events("t", limit=bad),
    "after of events": lambda store, bad: store.events("t", after=bad),
    "keep_count": lambda store, bad: store.delete_old_checkpoints("t", bad),
}
NOT_A_NAME = [5, 2.5, True, b"x", ["x"], {"x": 1}, object(), "\ud800", "", "a\0b", "a\nb", "x" * 10_000_000]
NOT_A_NUMBER = ["5", 2.5, b"5", [5], object(), float("nan"), 1 << 70, -(1 << 70)]


def _calls(groups: list[tuple[dict[str, Call], list[Any]]]) -> list[Any]:
    return [
        pytest.param(call, bad, id=f"{name}-{n}-{type(bad).__name__}")
        for calls, bads in groups
        for name, call in calls.items()
        for n, bad in enumerate(bads)
    ]


@pytest.mark.parametrize(
    ("call", "bad"),
    _calls([({**BY_TASK, **BY_CHECKPOINT}, [*NOT_A_NAME, None]), (BY_OTHER, NOT_A_NAME)]),
)
def test_a_bad_name_given_to_the_store_is_refused(
    store: lastgood.Store, task: lastgood.Task, call: Call, bad: Any
) -> None:
    """A9, G11: an error of this package, whatever stands where an id should."""
    if bad is None and call is BY_TASK["find_checkpoint in"]:
        return
    with nothing_changes(store):
        call(store, bad)


@pytest.mark.parametrize(("call", "bad"), _calls([(BY_NUMBER, NOT_A_NUMBER)]))
def test_a_bad_number_given_to_the_store_is_refused_or_bounded(
    store: lastgood.Store, task: lastgood.Task, call: Call, bad: Any
) -> None:
    """A9, G11: no OverflowError, no TypeError, no word of a bug; an integer may be bounded instead."""
    before = _figures(store)
    bounded = False
    with contextlib.suppress(InvalidError):
        call(store, bad)
        bounded = True
    assert not bounded or type(bad) is int
    assert _figures(store) == before


BAD_TAGS: list[Any] = ["HEAD", "@1", " @", "-x", "a~1", "a:b", "", "x\n", 5, None, b"x", "\ud800", "x" * 300]


@pytest.mark.parametrize("name", BAD_TAGS, ids=range(len(BAD_TAGS)))
def test_a_bad_tag_is_refused(store: lastgood.Store, task: lastgood.Task, name: Any) -> None:
    assert task.head is not None
    with nothing_changes(store):
        store.tag(task.head.id, name)


@pytest.mark.parametrize("move", ["yes", object(), b"x", 5], ids=range(4))
def test_a_bad_move_of_a_tag_is_refused_or_taken_as_true(store: lastgood.Store, task: lastgood.Task, move: Any) -> None:
    """A9: and what was stored can be verified."""
    assert task.head is not None
    with contextlib.suppress(CheckpointError):
        store.tag(task.head.id, "name", move=move)
    assert not store.check_checkpoint(task.head.id, evidence=False).problems


@pytest.mark.parametrize("call", [*BY_TASK.values(), *BY_CHECKPOINT.values()], ids=[*BY_TASK, *BY_CHECKPOINT])
def test_an_unknown_id_is_not_found(store: lastgood.Store, task: lastgood.Task, call: Call) -> None:
    """A12, D4: not a word more than that there is none."""
    if call is BY_TASK["task"]:
        assert store.task("unknown").head is None
        return
    before = _figures(store)
    answer = None
    with contextlib.suppress(NotFoundError):
        answer = call(store, "unknown")
    assert not answer
    assert _figures(store) == before


NOWHERE = ["~1", "~~1", "HEAD~9", "HEAD~999999999", "@0", "@99", "@" + "9" * 200, "@-1", "@x", "@٣", "zzzz~", "~"]


@pytest.mark.parametrize("name", NOWHERE)
def test_names_that_lead_nowhere_are_refused(store: lastgood.Store, task: lastgood.Task, name: str) -> None:
    with nothing_changes(store):
        store.find_checkpoint(name, "t")


def test_events_of_a_task_never_include_those_of_another(store: lastgood.Store) -> None:
    """A12, E6: a negative cursor does not reach into the task before, which may be another owner's."""
    store.task("theirs", owner="someone else").save({"secret": 1})
    store.task("mine").save({"n": 1})
    for after in (-1, -5, -(1 << 31), -(1 << 32), -(1 << 33)):
        try:
            events = store.events("mine", after=after)
        except CheckpointError:
            continue
        assert len(events) == 1


# --- opening ----------------------------------------------------------------------------------------------


TARGETS: list[Any] = [5, b"bytes", ["x"], object(), "", "a\0b", "postgres://x", "~no_such_user/store", "x" * 5000]
TARGETS.append("/proc/nowhere/store")


@pytest.mark.parametrize("target", TARGETS, ids=range(len(TARGETS)))
def test_a_bad_target_is_refused_by_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    """A9: an error of this package, with no path of this machine but the one that was given; no file is left behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError) as caught:
        lastgood.open(target)
    given = str(Path(target).absolute()) if isinstance(target, str) else "nothing"
    assert not INTERNALS.search(str(caught.value).replace(given, "it"))
    assert list(tmp_path.iterdir()) == []


def test_a_store_below_a_file_is_refused_by_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for target in (tmp_path / "file", tmp_path / "file" / "store", tmp_path / "file" / "deep" / "store.sqlite"):
        with pytest.raises(CheckpointError) as caught:
            lastgood.open(target)
        assert not INTERNALS.search(str(caught.value).replace(str(target), "it"))
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_whose_name_is_not_text_can_hold_a_store_or_is_refused(tmp_path: Path) -> None:
    """A file name is bytes on this system."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    try:
        with lastgood.open(folder, user="tester") as store:
            store.task("t").save({"n": 1})
    except CheckpointError:
        return
    with lastgood.open(folder, user="tester") as store:
        assert store.task("t").state == {"n": 1}


OPTIONS = [
    *[("user", bad) for bad in (5, b"x", "", "a\nb", "\ud800", "x" * 300, ["x"])],
    *[("on_failure", bad) for bad in (5, None, "panic", ["raise"])],
    *[
        (name, bad)
        for name in ("cache_checkpoints", "cache_alert_bytes", "warn_state_bytes", "max_state_bytes")
        for bad in (-1, 2.5, "5", None, True, [1])
    ],
    *[("on_alert", bad) for bad in (5, "print", ["x"])],
]


@pytest.mark.parametrize(("name", "bad"), OPTIONS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(OPTIONS)])
def test_a_bad_option_of_open_is_refused_by_name(tmp_path: Path, name: str, bad: Any) -> None:
    """A9."""
    with pytest.raises(InvalidError) as caught:
        lastgood.open(tmp_path / "store", **{name: bad})
    assert name in str(caught.value)


@pytest.mark.parametrize("target", ["folder", ":memory:"])
def test_a_closed_store_says_so(tmp_path: Path, count_descriptors: Callable[[], int], target: str) -> None:
    """A9: whichever method is called; closing again is harmless, and no descriptor is left open."""
    store = lastgood.open(tmp_path / "store" if target == "folder" else target, user="tester")
    task = store.task("t")
    saved = task.save({"n": 1})
    store.close()
    store.close()
    before = count_descriptors()
    uses = (store.info, store.tasks, lambda: task.save({}), lambda: store.get_checkpoint(saved.id), task.refresh)
    for use in uses * 5:
        with pytest.raises(lastgood.UnavailableError):
            use()
    assert count_descriptors() == before


def test_evidence_that_holds_what_is_no_number_fails_and_commits_again_as_the_same(tmp_path: Path) -> None:
    """D2, D6: NaN is not even itself, so it is not stored."""
    with lastgood.CheckpointManager(tmp_path / "store") as manager:
        claims = {"exit_code": 0, "score": float("nan")}
        evidence = lastgood.Evidence("command_exit", "it ran", claims, metadata={"actual_exit_code": 0})
        step = manager.begin_step("t", "step", {})
        made = manager.commit_step(step, lastgood.EvidencePack([evidence]), "c-1")
        again = manager.commit_step(step, lastgood.EvidencePack([evidence]), "c-1")
    assert (made.verified, again.id) == (False, made.id)


@dataclass
class Ran:
    exit_code: int


def test_the_exit_code_of_a_command_is_found_in_a_state_that_is_a_dataclass(tmp_path: Path) -> None:
    """D7: at the commit as later, when the stored state is looked at."""
    pack = lastgood.EvidencePack([lastgood.Evidence("command_exit", "it ran", {"exit_code": 0})])
    with lastgood.open(tmp_path / "store") as store:
        task = store.task("t")
        with pytest.warns(lastgood.PlainDataWarning):
            made = task.save(Ran(0), evidence=pack)
    assert made.verified


@pytest.mark.parametrize("wrong", [None, 12, {}, b"id"])
def test_going_to_what_is_no_checkpoint_is_refused_with_a_hint(store: lastgood.Store, wrong: Any) -> None:
    """As `task.restore(task.last_good())` does where nothing is good."""
    task = store.task("t")
    task.save({"n": 1})
    for go in (task.restore, task.fork):
        with pytest.raises(InvalidError) as refused:
            go(wrong)
        assert "last_good()" in (refused.value.hint or "")
