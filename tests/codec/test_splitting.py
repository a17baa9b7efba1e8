"""Large values: split and joined exactly, paid for by what changed, and harmless when they are hostile (A3, A4, B2)."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ormsgpack import Ext, packb
from tests.support.equality import exactly

from lastgood.codec import decode as decoding
from lastgood.codec import encode as values
from lastgood.codec.join import join
from lastgood.codec.split import REFERENCE, Split, Splitter
from lastgood.errors import CheckpointError, IntegrityError, UnstorableError
from lastgood.model.identity import SHA256, digest

ANY_SIZE = 1 << 40
Blobs = dict[bytes, bytes]


def fetch_from(blobs: Blobs) -> Callable[[Sequence[bytes]], Blobs]:
    def fetch(digests: Sequence[bytes]) -> Blobs:
        if not all(key in blobs for key in digests):
            raise IntegrityError("a blob is missing")
        return {key: blobs[key] for key in digests}

    return fetch


def joined(split: Split, blobs: Blobs) -> Any:
    assert digest(split.root) == split.ref.digest
    assert all(digest(data) == key for key, data in blobs.items())
    return join(split.root, split.ref.size, fetch_from(blobs))


# --- large values from a seed -----------------------------------------------------------------------------


def some_words(dice: random.Random, length: int) -> str:
    words = ["alpha", "beta", "gamma", "delta", "ünïcode", "你好", "\n"]
    text = ""
    while len(text) < length:
        text += dice.choice(words) + str(dice.randrange(1000))
    return text[:length]


def some_leaf(dice: random.Random) -> Any:
    size = dice.choice([0, 3, 40, 300, 2000])
    makers: list[Callable[[], Any]] = [
        lambda: dice.randrange(1 << 40),
        lambda: some_words(dice, size),
        lambda: dice.randbytes(size),
        lambda: bytearray(dice.randbytes(size)),
        lambda: (dice.random(), None, True),
        lambda: {dice.randrange(99): "int key"},
        lambda: [dice.randrange(9)] * dice.randrange(50),
        lambda: {"role": "user", "content": some_words(dice, size)},
        lambda: "\ud800" + some_words(dice, size),
    ]
    return dice.choice(makers)()


def some_large_value(dice: random.Random, depth: int = 0) -> Any:
    """Lists, maps above and below 32 keys, long text with and without line breaks, bytes, and each in the other."""
    kinds = ["list", "map", "small map", "text", "one line", "bytes", "huge list"]
    if depth < 2:
        kinds += ["nested list", "nested map"]
    kind = dice.choice(kinds)
    if kind == "list":
        return [some_leaf(dice) for _ in range(dice.randrange(200))]
    if kind == "huge list":
        return [dice.randrange(1 << 30) for _ in range(dice.randrange(6000))]
    if kind == "map":
        return {f"key {n}": some_leaf(dice) for n in range(dice.randrange(33, 120))}
    if kind == "small map":
        return {f"key {n}": some_leaf(dice) for n in range(dice.randrange(33))}
    if kind == "text":
        return some_words(dice, dice.randrange(60_000))
    if kind == "one line":
        return "x" * dice.randrange(40_000)
    if kind == "bytes":
        return dice.choice([bytes, bytearray])(dice.randbytes(dice.randrange(60_000)))
    inner = [some_large_value(dice, depth + 1) for _ in range(dice.randrange(1, 5))]
    mixed = inner + [some_leaf(dice) for _ in range(dice.randrange(60))]
    dice.shuffle(mixed)
    return mixed if kind == "nested list" else {f"part {n}": item for n, item in enumerate(mixed)}


@settings(max_examples=100)
@given(st.integers(0, 1 << 32))
def test_a_large_value_is_joined_to_what_was_split(seed: int) -> None:
    """A3."""
    value = some_large_value(random.Random(seed))
    split = Splitter(ANY_SIZE, SHA256).split(value)
    assert exactly(joined(split, split.blobs)) == exactly(value)
    assert split.ref.size == len(values.encode(value))
    assert split.ref.count == (len(value) if type(value) in (list, dict) else 0)


MAKERS: dict[str, Callable[[int], Any]] = {
    "line": lambda size: "x" * size,
    "lines": lambda size: "\n" * size,
    "bytes": bytes,
    "list": lambda size: ["y"] * size,
    "tuple": lambda size: ("z",) * size,
}


@pytest.mark.parametrize("around", [0, 1024, 4096, 16_384, 49_152])
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_values_around_every_limit_come_back(kind: str, around: int) -> None:
    make = MAKERS[kind]
    for size in (max(0, around - 5), max(0, around - 3), around, around + 1):
        for value in (make(size), [make(size)], {"k": make(size)}, {str(n): make(size // 40) for n in range(40)}):
            split = Splitter(ANY_SIZE, SHA256).split(value)
            assert exactly(joined(split, split.blobs)) == exactly(value)


# --- a splitter that remembers ----------------------------------------------------------------------------


def edit(state: dict[str, Any], dice: random.Random) -> None:
    """One random change of the kinds that agents make, and some that nobody should."""
    name = dice.choice(sorted(state))
    part = state[name]
    what = dice.choice(["append", "insert", "delete", "modify", "replace", "empty", "add key", "remove key", "buffer"])
    if what == "add key":
        state[f"new {dice.randrange(5)}"] = some_large_value(dice, 1)
    elif what == "remove key" and len(state) > 1:
        del state[name]
    elif what == "replace":
        state[name] = some_large_value(dice, 1)
    elif what == "empty":
        state[name] = type(part)() if part is not None else None
    elif what == "buffer":
        state[name] = swap_buffers(part)
    elif isinstance(part, list):
        edit_list(part, what, dice)
    elif isinstance(part, dict) and part:
        key = dice.choice(list(part))
        if what == "delete":
            del part[key]
        elif what == "insert":
            state[name] = {f"first {dice.randrange(99)}": some_leaf(dice), **part}
        else:
            part[key if what == "modify" else f"later {dice.randrange(99)}"] = some_leaf(dice)
    elif isinstance(part, str):
        at = dice.randrange(len(part) + 1)
        state[name] = part[:at] + some_words(dice, 30) + part[at + (what == "delete") * 100 :]


def edit_list(part: list[Any], what: str, dice: random.Random) -> None:
    at = dice.randrange(len(part) + 1)
    if what == "append" or not part:
        part.extend(some_leaf(dice) for _ in range(dice.randrange(1, 30)))
    elif what == "insert":
        part.insert(at, some_leaf(dice))
    elif what == "delete":
        del part[at : at + dice.randrange(1, 30)]
    elif at < len(part) and isinstance(part[at], list | dict) and part[at]:
        inner = part[at]
        inner[0 if isinstance(inner, list) else next(iter(inner))] = some_leaf(dice)
    elif at < len(part):
        part[at] = some_leaf(dice)


def swap_buffers(value: Any) -> Any:
    """The same with bytes in place of bytearrays, and the other way round: equal, but not the same."""
    if type(value) is bytes:
        return bytearray(value)
    if type(value) is bytearray:
        return bytes(value)
    if type(value) is list:
        return [swap_buffers(item) for item in value]
    return {key: swap_buffers(item) for key, item in value.items()} if type(value) is dict else value


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.sampled_from(["map", "list"]))
def test_what_a_splitter_remembers_never_changes_its_result(seed: int, kind: str) -> None:
    """A4: with memory and without it the same root, and every blob is new or was kept before."""
    dice = random.Random(seed)
    parts = {f"part {n}": some_large_value(dice, 1) for n in range(dice.randrange(1, 5))}
    remembering = Splitter(ANY_SIZE, SHA256)
    stored: Blobs = {}
    for _ in range(8):
        value = parts if kind == "map" else list(parts.values())
        fresh = Splitter(ANY_SIZE, SHA256).split(value)
        split = remembering.split(value)
        assert split.ref == fresh.ref
        assert split.blobs.keys() <= fresh.blobs.keys()
        assert fresh.blobs.keys() <= split.blobs.keys() | stored.keys()
        assert fresh.root == split.root
        reachable = {**stored, **split.blobs}
        assert exactly(joined(split, reachable)) == exactly(value)
        if dice.random() < 0.8:
            stored = reachable
            remembering.keep()
        elif dice.random() < 0.2:
            remembering.forget()
        for _ in range(dice.randrange(4)):
            edit(parts, dice)


@pytest.mark.parametrize("swap", [bytes, bytearray])
def test_a_bytearray_in_place_of_equal_bytes_is_seen(swap: type) -> None:
    """A3: in a run that is remembered, equal content of another type is another value."""
    other = bytearray if swap is bytes else bytes
    splitter = Splitter(ANY_SIZE, SHA256)
    splitter.split({"log": [{"n": n, "raw": swap(b"%d" % n * 9)} for n in range(3000)]})
    splitter.keep()
    changed = {"log": [{"n": n, "raw": (other if n == 7 else swap)(b"%d" % n * 9)} for n in range(3000)]}
    assert splitter.split(changed).ref == Splitter(ANY_SIZE, SHA256).split(changed).ref


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [248, 249, 250, 251, 254])
def test_whether_a_value_is_refused_does_not_depend_on_what_is_remembered(depth: int) -> None:
    """A4: the depth allowed is that of the value, whether its beginning is remembered or not."""
    log: list[Any] = [f"entry {n}" * 20 for n in range(2000)]
    splitter = Splitter(ANY_SIZE, SHA256)
    splitter.split(log)
    splitter.keep()
    log.append(nested(depth))
    outcomes: list[Any] = []
    for one in (Splitter(ANY_SIZE, SHA256), splitter):
        try:
            outcomes.append(one.split(log).ref)
        except UnstorableError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("element", [60, 900, 5000])
def test_a_long_history_of_appends_costs_what_is_appended(element: int) -> None:
    """B1, P2: bytes per append do not grow with the length of the list."""
    dice = random.Random(element)
    splitter = Splitter(ANY_SIZE, SHA256)
    log = [some_words(dice, element) for _ in range(200)]
    costs: list[int] = []
    for _ in range(1200):
        log.append(some_words(dice, element))
        costs.append(sum(map(len, splitter.split({"log": log, "step": len(log)}).blobs.values())))
        splitter.keep()
    first, last = costs[100:400], costs[-300:]
    bytes_of_one = len(log[-1].encode())
    assert max(costs[1:]) <= 64 * 1024
    assert sum(last) / len(last) <= 2 * bytes_of_one + 6 * 1024
    assert sum(last) / len(last) <= 1.5 * sum(first) / len(first) + 1024


def test_a_change_in_the_middle_of_a_long_list_costs_little() -> None:
    """B1: a content-defined boundary is found again behind the change."""
    dice = random.Random(5)
    log = [some_words(dice, 200) for _ in range(5000)]
    splitter = Splitter(ANY_SIZE, SHA256)
    whole = sum(map(len, splitter.split(log).blobs.values()))
    splitter.keep()
    log.insert(2500, "new")
    assert sum(map(len, splitter.split(log).blobs.values())) < whole / 8


# --- hostile stores ---------------------------------------------------------------------------------------


def damaged(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        what = dice.randrange(4)
        at = dice.randrange(len(changed) + 1)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            del changed[at:]
        elif what == 2:
            changed[at:at] = dice.randbytes(dice.randrange(1, 6))
        else:
            del changed[at : at + dice.randrange(1, 40)]
    return bytes(changed)


TAGGED = [(1, {2}, frozenset({3}), 1 << 80), {1: "x"}, bytearray(b"b"), "\ud800", {"k": [1.5, None, b"raw"]}, 2 + 3j]


@settings(max_examples=200)
@given(st.integers(0, 1 << 32))
def test_damaged_payloads_are_refused_as_damage_and_nothing_else(seed: int) -> None:
    """I3, G11: whatever the bytes, the answer is a value or an IntegrityError."""
    dice = random.Random(seed)
    split = Splitter(ANY_SIZE, SHA256).split({"t": TAGGED, "v": some_large_value(dice), "w": ["x" * 900] * 400})
    blobs = {split.ref.digest: split.root, **split.blobs}
    for key in dice.sample(sorted(blobs), min(len(blobs), dice.randrange(1, 4))):
        blobs[key] = damaged(blobs[key], dice)
    with contextlib.suppress(IntegrityError):
        join(blobs[split.ref.digest], split.ref.size, fetch_from(blobs))


@given(st.binary(max_size=200))
@example(b"")
@example(b"\xc1")
@example(packb(Ext(63, b"")))
@example(packb(Ext(64, b"\x90")))
@example(packb(Ext(16, b"\xc0")))
@example(packb(Ext(14, packb([["unhashable"], 1]))))
@example(packb(Ext(14, packb(5))))
@example(packb(Ext(6, packb([5, 0, None]))))
@example(packb(Ext(6, packb(["2024-01-01T00:00:00", 7, None]))))
@example(packb(Ext(6, packb(["2024-01-01T00:00:00", 0, 1 << 60]))))
@example(packb(Ext(9, packb([1 << 60, 0, 0]))))
@example(packb(Ext(2, packb([[1]]))))
@example(packb(Ext(13, packb([1, 2, 3]))))
@example(packb(Ext(13, packb([[1], 2]))))
@example(packb(Ext(6, packb([]))))
@example(packb(Ext(6, packb({}))))
@example(packb(Ext(8, packb(["12:00", 0, []]))))
@example(packb(Ext(13, packb({"a": 1}))))
@example(packb(Ext(13, packb(5))))
@example(packb(Ext(14, packb([]))))
@example(packb(Ext(5, b"\xff\xfe")))
@example(packb(Ext(5, b"not a number")))
@example(packb(Ext(10, b"short")))
@example(packb(Ext(15, b"\xff")))
def test_arbitrary_bytes_are_refused_as_damage_and_nothing_else(data: bytes) -> None:
    """I3, G11."""
    for root in (data, packb([data]), packb(Ext(1, data)), packb(Ext(32, data))):
        with contextlib.suppress(IntegrityError):
            join(root, len(root), fetch_from({}))


@pytest.mark.parametrize("plain", [{}, [1], 5, None, "x", [[], [], []], [[1], "x"]])
@pytest.mark.parametrize("name", ["collections.deque", "collections.OrderedDict", "pathlib.PosixPath"])
def test_a_class_that_cannot_be_made_from_what_is_stored_is_refused(name: str, plain: Any) -> None:
    """I3: by an error of this package, whatever the class's own code raises."""
    with contextlib.suppress(CheckpointError):
        decoding.decode(packb(Ext(14, packb([name, plain]))))


@pytest.mark.parametrize("code", [32, 33, 34])
@pytest.mark.parametrize(
    "payload",
    [
        [1, b"x" * 32, b""],
        [1, b"x" * 34, b""],
        [1, b"\x00" + bytes(32), b""],
        [1, b"\x01" + bytes(32), b""],
        [1, b"\x3f" + bytes(32), b""],
        [-1, b"", b""],
        [1 << 32, b"", b""],
        [(1 << 64) - 1, b"", b""],
        [5, b"", b"\x01"],
        [1, "", ""],
        [True, b"", b"\x01"],
        [1, b"", b"\x01", 4],
        {"count": 1},
        5,
    ],
    ids=str,
)
def test_a_malformed_split_value_is_refused_as_damage(code: int, payload: Any) -> None:
    """I3: truncated references, levels without nodes, counts that are not the number of elements."""
    with pytest.raises(IntegrityError):
        join(packb(Ext(code, packb(payload))), ANY_SIZE, fetch_from({}))


def test_a_node_with_references_of_a_wrong_level_is_refused() -> None:
    """I3."""
    leaf = b"\x01"
    for level in (0, 2, 5, 63):
        node = bytes((level,)) + digest(leaf)
        blobs = {digest(leaf): leaf, digest(node): node}
        root = packb(Ext(32, packb([1, b"\x02" + digest(node), b""])))
        if level != 1:
            with pytest.raises(IntegrityError):
                join(root, ANY_SIZE, fetch_from(blobs))


def test_a_time_zone_that_this_machine_does_not_know_is_refused() -> None:
    """I3: also when its name tries to be a path."""
    for zone in (
        "No/Such_Zone",
        "../../../etc/passwd",
        "/etc/passwd",
        "",
        "Europe",
        "a\0b",
        "x" * 5000,
        "tzdata..os",
        "\ud800",
    ):
        payload = values.encode(["2024-01-01T00:00:00", 0, zone])
        with pytest.raises(CheckpointError):
            decoding.decode(packb(Ext(6, payload)))


@pytest.mark.parametrize("depth", [10, 20, 150, 240])
def test_a_long_text_in_nested_lists_comes_back(depth: int) -> None:
    """I1: however many levels there are, what was split is joined within its bounds."""
    value: Any = "word " * 4000
    for _ in range(depth):
        value = [value]
    split = Splitter(ANY_SIZE, SHA256).split(value)
    assert joined(split, split.blobs) == value


def test_what_is_stored_does_not_depend_on_a_large_element_that_is_gone() -> None:
    """A4: the same value, the same root, whatever was there before."""
    splitter = Splitter(ANY_SIZE, SHA256)
    filler = {f"key {n}": "x" * 200 for n in range(25)}
    splitter.split({**filler, "list": ["y" * 20_000]})
    splitter.keep()
    value = {**filler, "list": ["z" * 50 for _ in range(30)]}
    assert splitter.split(value).ref == Splitter(ANY_SIZE, SHA256).split(value).ref


HOSTILE = r"""
import json, resource, sys
from ormsgpack import Ext, packb
from lastgood.codec.join import join
from lastgood.model.identity import SHA256, digest
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

def node_bomb():  # a tree of nodes in which each is both children of the one above
    blobs = {digest(b"\x01"): b"\x01"}
    below = digest(b"\x01")
    for level in range(1, 41):
        node = (bytes((level - 1,)) + below) * 2
        below = digest(node)
        blobs[below] = node
    return packb(Ext(32, packb([1, b"\x28" + below, b""]))), blobs

def value_bomb():  # a split list of two split lists of two split lists ...
    blobs, inner = {}, packb("x" * 10)
    for _ in range(40):
        blobs[digest(inner)] = inner
        inner = packb(Ext(32, packb([2, (b"\x80" + digest(inner)) * 2, b""])))
    return inner, blobs

def wide_bomb():  # many references to one large leaf
    leaf = packb("x" * 1000) * 1000
    return packb(Ext(32, packb([1 << 24, (b"\x00" + digest(leaf)) * 16384, b""]))), {digest(leaf): leaf}

def cycle():  # no digest function can make this; a store that lies can
    key = bytes(32)
    split = packb(Ext(32, packb([1, b"\x80" + key, b""])))
    return split, {key: split}

def wide_cycle():
    key = bytes(32)
    split = packb(Ext(32, packb([2, (b"\x80" + key) * 2, b""])))
    return split, {key: split * 2}

def node_cycle():
    key = bytes(32)
    return packb(Ext(32, packb([1, b"\x3f" + key, b""]))), {key: b"\x3e" + key}

def deep(code):
    data = packb(None)
    for _ in range(3000):
        data = packb(Ext(code, b"\x91" + data))
    return data, {}

CASES = {
    "node bomb": node_bomb, "value bomb": value_bomb, "wide bomb": wide_bomb, "cycle": cycle, "wide cycle": wide_cycle,
    "node cycle": node_cycle,
    "array": lambda: (b"\xdd\xff\xff\xff\xff", {}), "map": lambda: (b"\xdf\xff\xff\xff\xff", {}),
    "text": lambda: (b"\xdb\xff\xff\xff\xff", {}), "ext": lambda: (b"\xc9\xff\xff\xff\xff\x01", {}),
    "many arrays": lambda: (b"\xdd\x00\xff\xff\xff" * 900, {}), "deep arrays": lambda: (b"\x91" * 100000, {}),
    "deep tuples": lambda: deep(1), "deep maps": lambda: deep(13),
    "count": lambda: (packb(Ext(32, packb([(1 << 32) - 1, b"", b"\x01"]))), {}),
}
root, blobs = CASES[sys.argv[1]]()
fetched = [0]
def fetch(digests):
    fetched[0] += len(digests)
    return {key: blobs[key] for key in digests}
try:
    join(root, 100_000, fetch)
    outcome = "value"
except BaseException as error:
    outcome = type(error).__name__
def peak():  # ru_maxrss would begin with what the process that started this one had used
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([outcome, peak()]))
"""
CASES = ["node bomb", "value bomb", "wide bomb", "cycle", "wide cycle", "node cycle", "array", "map", "text", "ext"]
CASES += ["many arrays", "deep arrays", "deep tuples", "deep maps", "count"]


@pytest.mark.parametrize("case", CASES)
def test_a_bomb_is_refused_as_damage_within_bounded_memory(case: str) -> None:
    """I3, threats (bombs): no hang, no other exception, no more memory than a load of honest data."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", HOSTILE, case], capture_output=True, text=True, timeout=10, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail("it was still at work when it was ended")
    assert done.returncode == 0, done.stderr[-500:]
    outcome, kilobytes = json.loads(done.stdout)
    assert outcome == "IntegrityError"
    assert kilobytes < 256 * 1024


AUDITED = r"""
import json, os, random, sys
from ormsgpack import Ext, packb
import lastgood
from lastgood.codec import encode as values
from lastgood.codec.join import join
from lastgood.codec.split import Splitter
from lastgood.model.identity import SHA256
import lastgood.engine.blobs, lastgood.codec.join, decimal, datetime, uuid
names = ["os.system", "builtins.eval", "builtins.exec", "subprocess.Popen", "posix.system", "importlib.import_module",
         "pathlib.PosixPath", "collections.deque", "collections.OrderedDict", "lastgood.open", "antigravity", "this"]
arguments = ["touch /tmp/hostile", ["touch", "/tmp/hostile"], {"args": "id"}, None, 5, [["x"], 3], "__import__('os')"]
payloads = [packb(Ext(14, packb([name, argument]))) for name in names for argument in arguments]
payloads += [packb(Ext(code, packb(argument))) for code in range(128) for argument in arguments]
payloads += [packb(Ext(code, bytes(range(n)))) for code in range(128) for n in (0, 1, 16, 40)]
dice = random.Random(int(sys.argv[1]))
value = {"a": [(1, {2}, 3.5, b"x", datetime.date(1, 1, 1))] * 3000, "b": "text\n" * 9000}
split = Splitter(1 << 30, SHA256).split(value)
def lenient(blobs):
    return lambda digests: {key: blobs[key] for key in digests}
def attempt(root, blobs):
    try:
        join(root, 1 << 20, lenient(blobs))
    except lastgood.CheckpointError:
        pass
whole = {split.ref.digest: split.root, **split.blobs}
attempt(split.root, whole)
attempt(b"\xc1", {})
mutants = []
for _ in range(300):
    blobs = dict(whole)
    key = dice.choice(sorted(blobs))
    data = bytearray(blobs[key])
    data[dice.randrange(len(data))] = dice.randrange(256)
    blobs[key] = bytes(data)
    mutants.append(blobs)
zones = ["No/Such", "../../etc/passwd", "/etc/passwd", "os", "x.y/z", "Europe/Berlin"] if sys.argv[2] == "zones" else []
payloads += [packb(Ext(6, packb(["2024-01-01T00:00:00", 0, zone]))) for zone in zones]
seen = []
on = False
WATCHED = ("import", "exec", "compile", "open", "os.", "subprocess.", "socket.", "ctypes.", "marshal.", "pickle.")
def watch(event, args):
    if on and event.startswith(WATCHED):
        seen.append([event, str(args[0]) if args else ""])
sys.addaudithook(watch)
on = True
for payload in payloads:
    attempt(payload, {})
for blobs in mutants:
    attempt(blobs[split.ref.digest], blobs)
on = False
print(json.dumps(seen))
"""


def _audited(zones: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", AUDITED, "1", zones], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
    events: list[list[str]] = json.loads(done.stdout)
    return events


def test_hostile_payloads_import_nothing_run_nothing_and_open_nothing() -> None:
    """Threats (code execution by deserialising): seen from an audit hook."""
    assert _audited("no") == []


def test_hostile_time_zones_open_nothing_but_time_zones() -> None:
    """Threats (traversal): a zone's name reaches no file outside the time zone database, and imports nothing else."""
    loading = ("import", "open", "exec", "compile", "os.listdir", "os.scandir", "marshal.loads", "marshal.load")
    for event, subject in _audited("zones"):
        assert event in loading, (event, subject)
        if event == "open":
            assert "zoneinfo" in subject or subject.endswith((".pyc", ".py", ".so")), subject
        if event == "import":
            top = subject.split(".")[0]
            assert top in {*sys.stdlib_module_names, "tzdata"} or top.startswith("_sysconfigdata"), subject


def test_a_reference_is_thirty_three_bytes() -> None:
    """The hostile payloads above are built on that."""
    assert REFERENCE == 33
