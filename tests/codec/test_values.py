"""Values come back exactly or are refused; their bytes depend on nothing but the value (A3, A4, A8)."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import subprocess
import sys
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pydantic.dataclasses
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.equality import exactly

import lastgood
from lastgood.codec import encode as values
from lastgood.codec.decode import decode
from lastgood.codec.encode import encode, encode_fast, encode_strictly
from lastgood.errors import InvalidError, NotFoundError, UnstorableError

# --- registered classes -----------------------------------------------------------------------------------


@lastgood.register
@dataclass
class Point:
    x: Any
    y: Any = 0


@lastgood.register
@dataclass(frozen=True, slots=True)
class FrozenPair:
    left: Any
    right: Any


@lastgood.register
@dataclass
class Counted:
    """A field that __init__ does not take, and a __post_init__ that must not run again."""

    given: Any
    seen: int = field(init=False)

    def __post_init__(self) -> None:
        self.seen = 1


@lastgood.register
class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


@lastgood.register
class Level(IntEnum):
    LOW = 1
    HIGH = 2


@lastgood.register
class Word(StrEnum):
    YES = "yes"


@lastgood.register
class Permission(Flag):
    READ = 1
    WRITE = 2


@lastgood.register
class Spot(NamedTuple):
    row: Any
    column: Any = None


@lastgood.register
class Name(str):
    __slots__ = ()


@lastgood.register
class Settings(pydantic.BaseModel):
    host: str
    port: int = 80
    labels: dict[str, int] = {}


def _temperature_from_plain(plain: Any) -> Temperature:
    return Temperature(plain)


class Temperature:
    def __init__(self, kelvin: float) -> None:
        self.kelvin = kelvin

    def __eq__(self, other: object) -> bool:
        return type(other) is Temperature and other.kelvin == self.kelvin

    def __hash__(self) -> int:
        return hash(self.kelvin)

    def __repr__(self) -> str:
        return f"Temperature({self.kelvin})"


lastgood.register(name="temperature", to_plain=lambda value: value.kelvin, from_plain=_temperature_from_plain)(
    Temperature
)


# --- strategies -------------------------------------------------------------------------------------------

offsets = st.timedeltas(dt.timedelta(hours=-23, minutes=-59), dt.timedelta(hours=23, minutes=59))
zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.builds(dt.timezone, offsets),
    st.builds(dt.timezone, offsets, st.text(max_size=5)),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"]).map(ZoneInfo),
)
moments = st.builds(
    lambda moment, fold, zone: moment.replace(fold=fold, tzinfo=zone), st.datetimes(), st.integers(0, 1), zones
)
times = st.builds(lambda time, fold, zone: time.replace(fold=fold, tzinfo=zone), st.times(), st.integers(0, 1), zones)
any_text = st.text(st.characters(exclude_categories=()), max_size=20)
signalling = st.sampled_from([Decimal("sNaN"), Decimal("-sNaN123")])
decimals = st.one_of(
    st.decimals(allow_nan=False), st.sampled_from([Decimal("NaN7"), Decimal("1E+5"), Decimal("-0E-9"), Decimal("1.10")])
)

hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from(
        [-(1 << 63) - 1, -(1 << 63), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 2000, -(1 << 2000)]
    ),
    st.floats(),
    st.complex_numbers(),
    any_text,
    st.binary(max_size=20),
    decimals,
    moments,
    st.dates(),
    times,
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([Colour.RED, Colour.PAIR, Level.HIGH, Word.YES, Permission.READ | Permission.WRITE]),
    any_text.map(Name),
    st.sampled_from([PurePosixPath("a/b"), PosixPath("/x")]),
    st.floats(allow_nan=False).map(Temperature),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(frozenset),
        st.tuples(inner, inner).map(lambda pair: FrozenPair(*pair)),
        st.tuples(inner, inner).map(lambda pair: Spot(*pair)),
    ),
    max_leaves=5,
)
any_value = st.recursive(
    st.one_of(hashables, st.binary(max_size=20).map(bytearray), signalling),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.tuples(any_text, inner), max_size=4).map(dict),
        st.lists(st.tuples(hashables, inner), max_size=4).map(dict),
        st.lists(hashables, max_size=4).map(set),
        st.lists(hashables, max_size=4).map(frozenset),
        st.lists(st.tuples(any_text, inner), max_size=3).map(dict).map(OrderedDict),
        st.lists(inner, max_size=3).map(lambda items: deque(items, 3)),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
        st.tuples(inner, inner).map(lambda pair: FrozenPair(*pair)),
        inner.map(Counted),
        st.tuples(inner, inner).map(lambda pair: Spot(*pair)),
        st.integers(0, 9).map(lambda port: Settings(host="h", port=port)),
    ),
    max_leaves=12,
)


def holds_buffer(value: Any) -> bool:
    """Whether there is a bytearray or memoryview in it, at any depth."""
    if isinstance(value, bytearray | memoryview):
        return True
    if isinstance(value, dict):
        return any(map(holds_buffer, [*value.keys(), *value.values()]))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return any(map(holds_buffer, value))
    if isinstance(value, Point | FrozenPair | Counted):
        return any(holds_buffer(getattr(value, name)) for name in value.__dataclass_fields__)
    return False


def kept_or_refused(value: Any) -> None:
    """`value` is refused when it is saved, or comes back exactly. There is no third way."""
    try:
        data = encode(value)
    except UnstorableError:
        return
    assert exactly(decode(data)) == exactly(value)


# --- the round trip ---------------------------------------------------------------------------------------


@settings(max_examples=500)
@given(any_value)
@example({1: "int", "1": "text", 1.5: "float", b"1": "bytes", None: "none", (1,): "tuple"})
@example([1, True, 1.0, 0.0, -0.0, float("nan"), float("inf"), -float("inf")])
@example([b"x", bytearray(b"x"), "x", Name("x")])
@example([{1}, frozenset({1}), (1,), [1], deque([1], 4)])
@example({"\ud800": "\udfff", "ok": "\ud83d\ude00"})
@example({"b": 1, "a": 2})
@example({True: 1, 2: 3})
@example([float("nan")] * 2)
@example({float("nan"): 1})
def test_whatever_is_accepted_comes_back_exactly(value: Any) -> None:
    """A3: equal and of the same type, recursively."""
    assert exactly(decode(encode(value))) == exactly(value)


@settings(max_examples=300)
@given(any_value)
def test_the_strict_way_gives_back_the_same_value(value: Any) -> None:
    """A3."""
    assert exactly(decode(encode_strictly(value))) == exactly(value)


@settings(max_examples=500)
@given(any_value)
@example([[[{"a": ((((1,),),),)}]]])
def test_the_fast_and_the_strict_way_give_the_same_bytes(value: Any) -> None:
    """A4: the bytes do not depend on which way was taken."""
    fast = encode_fast(value)
    if fast is not None and not holds_buffer(value):
        assert fast == encode_strictly(value)


@pytest.mark.parametrize("depth", [250, 251, 255])
@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"k": v}], ids=["list", "dict"])
def test_the_fast_and_the_strict_way_accept_the_same_depth(depth: int, wrap: Callable[[Any], Any]) -> None:
    """A4: whether a value is refused does not depend on whether bytes stand in it."""
    value: Any = None
    for _ in range(depth):
        value = wrap(value)
    if encode_fast(value) is not None:
        assert encode_strictly(value) == encode_fast(value)


def test_one_and_true_and_one_point_zero_have_different_bytes() -> None:
    """The comparison that these tests rest on can tell them apart, and so can the encoding."""
    assert len({encode(value) for value in (1, True, 1.0, "1", b"1", bytearray(b"1"), Decimal(1))}) == 7
    assert exactly([0.0]) != exactly([-0.0])
    assert exactly({"a": 1, "b": 2}) != exactly({"b": 2, "a": 1})
    assert exactly(float("nan")) == exactly(float("nan"))
    assert exactly(b"") != exactly(bytearray())
    berlin = dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert exactly(berlin) != exactly(berlin.replace(fold=1))
    assert exactly(berlin) != exactly(berlin.astimezone(dt.timezone(dt.timedelta(hours=2))))


def test_a_memoryview_is_refused_and_named() -> None:
    with pytest.raises(UnstorableError) as caught:
        encode({"a": [memoryview(b"x")]})
    assert "a" in caught.value.details["path"]


def test_post_init_does_not_run_when_a_dataclass_comes_back() -> None:
    value = Counted("x")
    value.seen = 7
    assert decode(encode(value)).seen == 7


def test_a_registered_dataclass_keeps_attributes_beside_its_fields_or_is_refused() -> None:
    """A3: lossless or loud."""
    value = Point(1, 2)
    value.extra = "me"  # type: ignore[attr-defined]
    try:
        back = decode(encode(value))
    except UnstorableError:
        return
    assert back.__dict__ == value.__dict__


def test_a_dataclass_with_a_field_that_was_never_set_is_refused_with_its_path() -> None:
    """A8: a serialisation failure is an UnstorableError, not an AttributeError."""

    @lastgood.register
    @dataclass
    class Unset:
        x: int = field(init=False)

    with pytest.raises(UnstorableError) as caught:
        encode({"here": Unset()})
    assert "here" in str(caught.value)


@dataclass
class FailedError(Exception):
    reason: str


@dataclass
class NamedList(list[int]):
    name: str = "n"


@dataclass
class NamedDict(dict[str, int]):
    name: str = "n"


@pytest.mark.parametrize("cls", [FailedError, NamedList, NamedDict])
def test_a_dataclass_on_top_of_a_built_in_needs_functions_of_its_own(cls: type) -> None:
    """I1: its fields are not all of it."""
    with pytest.raises(lastgood.InvalidError, match="by itself"):
        lastgood.register(cls)
    with pytest.raises(UnstorableError):
        encode(cls("n"))


@lastgood.register
class Ranked(OrderedDict[str, int]):
    pass


def test_a_subclass_of_ordered_dict_keeps_its_order() -> None:
    """A3: move_to_end is not seen by dict.items()."""
    value = Ranked(a=1, b=2, c=3)
    value.move_to_end("a")
    try:
        data = encode(value)
    except UnstorableError:
        return
    assert list(decode(data).items()) == list(value.items())


def test_a_registered_built_in_container_can_be_loaded_again_or_is_refused() -> None:
    """I1: registering a defaultdict is refused, or its values come back."""
    try:
        lastgood.register(defaultdict)
        data = encode(defaultdict(list, a=[1]))
    except InvalidError:
        return
    assert decode(data) == {"a": [1]}


def test_a_counter_comes_back() -> None:
    assert exactly(decode(encode(Counter("abca")))) == exactly(Counter("abca"))


# --- pydantic ---------------------------------------------------------------------------------------------


@lastgood.register
class Aliased(pydantic.BaseModel):
    inner: int = pydantic.Field(default=0, alias="outerName")


@lastgood.register
class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


@lastgood.register
class Eager(pydantic.BaseModel):
    count: int = 0

    def model_post_init(self, context: Any, /) -> None:
        self.count += 1


@lastgood.register
@pydantic.dataclasses.dataclass
class Checked:
    x: int


@lastgood.register
class Nested(pydantic.BaseModel):
    settings: Settings
    more: list[Settings] = []


@pytest.mark.parametrize(
    "value",
    [
        Settings(host="h", labels={"a": 1}),
        Nested(settings=Settings(host="h"), more=[Settings(host="i")]),
        Aliased(outerName=5),
        Open.model_validate({"a": 2, "b": [1]}),
        Eager(count=3),
        Checked(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_registered_pydantic_value_comes_back_as_it_was(value: Any) -> None:
    """A3: fields and extras; nothing runs again."""
    kept_or_refused(value)


def test_a_pydantic_model_with_private_attributes_is_refused() -> None:
    @lastgood.register
    class Secretive(pydantic.BaseModel):
        _hidden: int = pydantic.PrivateAttr(default=1)

    with pytest.raises(UnstorableError):
        encode(Secretive())


# --- classes that are not registered ----------------------------------------------------------------------


def test_unregistered_values_come_back_plain_with_one_warning_per_class() -> None:
    @dataclass
    class Loose:
        x: int

    class Tint(Enum):
        A = "a"

    class Number(IntEnum):
        ONE = 1

    class Pair(NamedTuple):
        a: int

    class Text(str):
        __slots__ = ()

    class Model(pydantic.BaseModel):
        x: int

    value = [Loose(1), Tint.A, Number.ONE, Pair(1), Text("t"), Model(x=1)]
    with pytest.warns(lastgood.PlainDataWarning) as caught:
        data, again, strictly = encode(value), encode(value), encode_strictly(value)
    assert data == again == strictly
    assert exactly(decode(data)) == exactly([{"x": 1}, "a", 1, (1,), "t", {"x": 1}])
    mentioned = [str(warning.message) for warning in caught]
    assert len(mentioned) == 6
    assert all(sum(f".{type(item).__name__} are" in text for text in mentioned) == 1 for item in value)


def test_a_plain_data_warning_made_an_error_is_raised() -> None:
    """A user who turns warnings into errors is told, and nothing is kept behind their back."""

    @dataclass
    class Strict:
        x: int

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((lastgood.PlainDataWarning, UnstorableError)):
            encode(Strict(1))


@dataclass(frozen=True)
class Unknown:
    x: int


class Shade(Enum):
    ONE = 1


@pytest.mark.filterwarnings("ignore::lastgood.PlainDataWarning")
@pytest.mark.parametrize(
    "value", [{Unknown(1), Unknown(2)}, frozenset({Unknown(1)}), {Unknown(1): "x", Unknown(2): "y"}, {(Unknown(1),): 0}]
)
def test_hashed_values_of_unregistered_classes_are_refused_or_can_be_loaded(value: Any) -> None:
    """I1: an acknowledged checkpoint restores. Plain data in place of a set's element cannot be hashed."""
    try:
        data = encode(value)
    except UnstorableError:
        return
    assert len(decode(data)) == len(value)


@pytest.mark.filterwarnings("ignore::lastgood.PlainDataWarning")
@pytest.mark.parametrize("value", [{Shade.ONE: "enum", 1: "int"}, {Shade.ONE, 1}])
def test_entries_do_not_vanish_when_keys_become_plain(value: Any) -> None:
    """I3: an enum member and its value are two keys; silently one of them is wrong data."""
    try:
        data = encode(value)
    except UnstorableError:
        return
    assert len(decode(data)) == 2


def test_hashed_values_of_registered_classes_verify_and_load_as_plain_data(store: lastgood.Store) -> None:
    """D4: an undamaged checkpoint verifies, whatever classes stand in it."""
    task = store.task("t")
    state = {"seen": {FrozenPair(1, 2)}, "by": {FrozenPair(3, 4): "x"}}
    saved = task.save(state)
    assert exactly(store.find_checkpoint(saved.id).state) == exactly(state)
    assert store.check_checkpoint(saved.id, evidence=False).problems == []


def test_a_class_that_cannot_be_taken_apart_is_refused_with_its_path() -> None:
    with pytest.raises(UnstorableError) as caught:
        encode({"a": [object()]})
    assert caught.value.details["path"] == ".a[0]"
    assert caught.value.details["type"] == "object"


def test_a_failing_to_plain_is_reported_as_unstorable() -> None:
    """A8, A9: whatever a user's function raises, the caller of save gets an error of this package."""

    class Grumpy:
        pass

    def refuse(value: Grumpy) -> Any:
        raise ZeroDivisionError("no")

    lastgood.register(to_plain=refuse, from_plain=lambda plain: Grumpy())(Grumpy)
    with pytest.raises(UnstorableError):
        encode({"here": Grumpy()})


def test_an_interrupt_while_loading_is_not_reported_as_damage() -> None:
    """A9: Ctrl-C in the middle of decoding stays what it is."""

    class Slow:
        pass

    def interrupted(plain: Any) -> Slow:
        raise KeyboardInterrupt

    lastgood.register(to_plain=lambda value: 1, from_plain=interrupted)(Slow)
    data = encode([Slow()])
    with pytest.raises(KeyboardInterrupt):
        decode(data)


def test_a_failing_from_plain_is_not_reported_as_damage() -> None:
    """A9: the bytes are whole; the user's own function failed, and the error or its cause says so."""

    class Moved:
        pass

    def changed(plain: Any) -> Moved:
        raise RuntimeError("this class changed")

    lastgood.register(to_plain=lambda value: 1, from_plain=changed)(Moved)
    data = encode([Moved()])
    with pytest.raises(Exception, match=r"Moved|this class changed"):
        decode(data)


# --- task.load --------------------------------------------------------------------------------------------


@dataclass
class Inner:
    n: int


@dataclass
class Outer:
    title: str
    inner: Inner
    many: list[Inner]
    at: dt.datetime
    price: Decimal
    pair: tuple[int, str] = (0, "")


class AsDict(TypedDict):
    title: str
    n: int


class Model(pydantic.BaseModel):
    title: str
    inner: Settings


MOMENT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def test_load_gives_a_nested_dataclass(store: lastgood.Store) -> None:
    task = store.task("t")
    whole = Outer("x", Inner(1), [Inner(2)], MOMENT, Decimal("1.10"), (1, "a"))
    plain = {
        "title": "x",
        "inner": {"n": 1},
        "many": [{"n": 2}],
        "at": MOMENT,
        "price": Decimal("1.10"),
        "pair": (1, "a"),
    }
    task.save(plain)
    assert exactly(task.load(Outer)) == exactly(whole)


@pytest.mark.filterwarnings("ignore::lastgood.PlainDataWarning")
def test_load_gives_back_an_unregistered_dataclass(store: lastgood.Store) -> None:
    task = store.task("t")
    whole = Outer("x", Inner(1), [Inner(2), Inner(3)], MOMENT, Decimal("1.10"))
    task.save(whole)
    assert exactly(task.load(Outer)) == exactly(whole)


def test_load_gives_back_a_registered_dataclass_and_model(store: lastgood.Store) -> None:
    task = store.task("t")
    task.save(Point(1, 2))
    assert task.load(Point) == Point(1, 2)
    task.save(Settings(host="h"))
    assert task.load(Settings) == Settings(host="h")


def test_load_gives_a_pydantic_model_and_a_typed_dict(store: lastgood.Store) -> None:
    task = store.task("t")
    task.save({"title": "x", "inner": {"host": "h"}})
    assert task.load(Model) == Model(title="x", inner=Settings(host="h"))
    task.save({"title": "x", "n": 1})
    assert task.load(AsDict) == {"title": "x", "n": 1}


def test_load_of_something_else_is_refused_and_names_the_class(store: lastgood.Store) -> None:
    task = store.task("t")
    with pytest.raises(NotFoundError):
        task.load(Inner)
    task.save({"title": 5})
    for kind in (Inner, Model, AsDict):
        with pytest.raises(InvalidError, match=kind.__name__):
            task.load(kind)


@pytest.mark.parametrize("state", [{"ids": {UUID(int=1)}, "pair": FrozenPair(1, {Level.LOW})}])
def test_state_saved_and_read_through_a_store_comes_back_exactly(store: lastgood.Store, state: Any) -> None:
    task = store.task("t")
    saved = task.save(state)
    assert exactly(saved.state) == exactly(state)
    assert exactly(store.find_checkpoint(saved.id).state) == exactly(state)


# --- the same bytes everywhere ----------------------------------------------------------------------------

CANONICAL = r"""
import datetime as dt, json
from collections import OrderedDict, deque
from decimal import Decimal
from pathlib import PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo
import msgspec
from lastgood.codec import encode as values
from lastgood.codec.split import Splitter
from lastgood.model.identity import SHA256
from lastgood.model.checkpoint import Claim, Claims, FileRoot, Record, ValueRef, encode_record
from lastgood.model.identity import SHA256, digest

words = {f"word {n}" for n in range(200)}
state = {
    "words": words, "frozen": frozenset([*words, 1, 2.5, b"x", (1, "a"), None, 1 << 80]),
    "nested": {frozenset({("a", frozenset("bcdef"))}), frozenset("xyz")},
    "numbers": [1, True, 1.0, -0.0, float("nan"), float("-inf"), 1 << 64, -(1 << 63) - 1, 3 + 4j],
    "bytes": [b"x", bytearray(b"x")], "keys": {1: 2, "a": b"", None: (), (1, 2): [3]},
    "moments": [dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), dt.date(1, 1, 1),
                dt.time(1, 2, tzinfo=dt.timezone(dt.timedelta(hours=1), "X")), dt.timedelta(-1, 5, 7)],
    "decimals": [Decimal("1.10"), Decimal("sNaN7"), Decimal("1E+500")], "id": UUID(int=5),
    "others": [OrderedDict(a=1), deque([1], 3), PurePosixPath("a")], "surrogates": "\ud800",
    "long": ["line %d\n" % n * 20 for n in range(600)], "map": {str(n): [n] * n for n in range(100)},
    "text": "".join("%d\n" % n for n in range(20000)),
}
split = Splitter(1 << 30, SHA256).split(state)
record = Record(
    id="i", task_id="t", parent_id="p", parent_checksum=bytes(32), message="m", metadata={"b": 1, "a": [1.5, None]},
    created_at=1700000000000000, state=split.ref, artifacts=ValueRef(bytes(range(32)), 1, 2),
    files=(FileRoot("r", bytes(32), False, 1, 2, None),),
    evidence=Claims((Claim("file_sha256", "d", {"path": "x"}, {}),)), redacted=("a.b",), prompt_preview="p",
)
print(json.dumps([
    digest(values.encode(state)).hex(), split.ref.digest.hex(), split.ref.size,
    digest(b"".join(sorted([*split.blobs, split.root]))).hex(), digest(encode_record(record)).hex(),
]))
"""


def _canonical_on(python: Path | str, seed: str) -> list[Any]:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [python, "-W", "error", "-c", CANONICAL], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: list[Any] = json.loads(done.stdout)
    return answer


def test_the_same_value_gives_the_same_bytes_in_every_process_and_on_every_python(interpreters: list[Path]) -> None:
    """A4: no hash order, no repr, no process state in value bytes, split blobs and the record's checksum."""
    wanted = _canonical_on(sys.executable, "0")
    assert interpreters
    for python in [Path(sys.executable), *interpreters]:
        for seed in ("1", "4242"):
            assert _canonical_on(python, seed) == wanted, python


def test_decimals_have_the_same_bytes_in_every_decimal_context() -> None:
    """A4: str(Decimal) looks at the thread's context."""
    value = Decimal("1E+5")
    usual = encode(value)
    with decimal.localcontext() as context:
        context.capitals = 0
        assert encode(value) == usual


def test_decimals_come_back_exactly_in_every_decimal_context() -> None:
    value = [Decimal("1." + "1" * 100), Decimal("1E-400"), Decimal("sNaN")]
    with decimal.localcontext() as context:
        context.prec = 3
        context.Emax, context.Emin = 9, -9
        context.traps[decimal.InvalidOperation] = True
        assert exactly(decode(encode(value))) == exactly(value)


def test_equal_sets_built_in_another_order_have_the_same_bytes() -> None:
    """A4."""
    numbers = [1 << 60 | n << 3 for n in range(50)]
    backwards = numbers[::-1]
    assert encode(set(numbers)) == encode(set(backwards))
    assert values.encode_strictly(frozenset(numbers)) == encode(frozenset(backwards))


@pytest.mark.parametrize("levels", [200, 254])
@pytest.mark.parametrize("inside", [{"a": 1}, (1, {2}), b"bytes"])
def test_what_is_nested_deeply_is_kept_from_deep_calls_too(levels: int, inside: object) -> None:
    """Walking a value takes two of Python's frames for each level, and the program has used some already."""
    value = inside
    for level in range(levels):
        value = {"in": value} if level % 2 else [value]

    def call(frames: int) -> bytes:
        return encode(value) if not frames else call(frames - 1)

    assert exactly(decode(call(300))) == exactly(value)
