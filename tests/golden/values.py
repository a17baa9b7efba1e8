"""What is saved in golden stores: state of every kind, files, and evidence."""

from __future__ import annotations

import datetime as dt
import random
import sqlite3
from collections import Counter, OrderedDict, deque
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from tests.support.file_trees import Spec, build

import lastgood


@lastgood.register(name="golden.Plan")
@dataclass
class Plan:
    """Registered wherever golden stores are read: comes back as it was."""

    goal: str
    steps: tuple[str, ...]


class Colour(Enum):
    """Registered nowhere: comes back as plain data."""

    RED = "red"


MOMENT = dt.datetime(2024, 10, 27, 2, 30, 15, 123456)  # noqa: DTZ001

EVERYTHING: dict[str, Any] = {
    "nothing": None,
    "truth": [True, False],
    "integers": [0, -1, 127, 128, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 200)],
    "floats": [0.0, -0.0, 1.5, 5e-324, float("inf"), float("-inf"), float("nan")],
    "texts": ["", "plain", "Grüße, 世界 🎈", "nul \0 and \r\n", "lone \udc80"],
    "bytes": [b"", b"\x00\xff", bytearray(b"mutable")],
    "tuple": (1, ("nested", ()), []),
    "sets": [set(), {3, 1, 2, "a"}, frozenset({(1, 2), b"x"})],
    "decimal": [Decimal("1.10"), Decimal("-0E+3"), Decimal("NaN")],
    "moments": [
        MOMENT,
        MOMENT.replace(tzinfo=dt.UTC),
        MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=-3, minutes=-30))),
        MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=1), "home")),
        MOMENT.replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
    "dates": [dt.date(1, 1, 1), dt.time(23, 59, 59, 1), dt.timedelta(days=-1, seconds=5, microseconds=7)],
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "complex": complex(-0.0, 2.5),
    "order": {"z": 1, "a": 2, "m": {"": {}}},
    "keys": {1: "one", (2, 3): "pair", None: "none", "text": b"bytes"},
    "classes": [Plan("ship", ("build", "test")), OrderedDict(b=1, a=2), Counter("hello"), deque([1, 2], 5)],
    "path": PurePosixPath("a/b"),
    "colour": Colour.RED,
}

RETURNED = {**EVERYTHING, "colour": "red"}
"""`EVERYTHING`, as it comes back."""


def conversation(length: int) -> list[dict[str, Any]]:
    """Messages, always the same ones: enough for the list to be split, of few words, so that they are small there."""
    dice = random.Random(12)
    words = [f"{dice.choice('bdfgklmnprst')}{dice.choice('aeiou')}{dice.choice('lmnrst')}" for _ in range(6)]
    return [
        {"role": ("user", "agent")[turn % 2], "turn": turn, "text": " ".join(dice.choices(words, k=80 + turn % 90))}
        for turn in range(length)
    ]


def large_text(lines: int) -> str:
    """More than one part of it is stored apart."""
    return "\n".join(f"{number:05} of a text that is long" for number in range(lines))


TREE: Spec = {
    b"readme.txt": (0o644, b"first line\nsecond line\n"),
    b"run.sh": (0o755, b"#!/bin/sh\nexit 0\n"),
    b"private": (0o600, b"for me\n"),
    b"fixed": (0o444, b"not to be written to\n"),
    b"nothing": (0o644, b""),
    b"link": b"readme.txt",
    b"leads nowhere": b"../not/there",
    b"empty": (0o755, {}),
    b".gitignore": (0o644, b"build/\n*.log\n"),
    b"build": (0o755, {b"made": (0o644, b"left out")}),
    b"noise.log": (0o644, b"left out\n"),
    b".env": (0o600, b"SECRET=left-out\n"),
    b"src": (0o755, {b"main.py": (0o644, b"print('one')\n"), b"deep": (0o700, {b"er": (0o750, {})})}),
    "Grüße".encode(): (0o755, {"世界 🎈.txt".encode(): (0o644, "Ünïcödé\n".encode())}),
    b' quote" and\nnew line': (0o644, b"a strange name\n"),
}
LEFT_OUT = ("build", "noise.log", ".env")

CHANGED: Spec = {
    **{name: thing for name, thing in TREE.items() if name not in (b"private", b"empty", b"link")},
    b"readme.txt": (0o644, b"first line\nanother line\nthird line\n"),
    b"run.sh": (0o644, b"#!/bin/sh\nexit 0\n"),
    b"link": (0o644, b"a file now\n"),
    b"empty": (0o755, {b"no more": (0o644, b"filled\n")}),
    b"src": b"elsewhere",
}


def many(count: int, start: int = 0) -> Spec:
    """More small files than lie in the catalog: they become a pack."""
    return {b"%03d.txt" % number: (0o644, b"small file %d\n" % number) for number in range(start, start + count)}


WIDE: Spec = {b"%03d " % number + b"x" * 240: (0o644, b"alike\n") for number in range(120)}
"""A folder whose tree lies in parts."""


_CUT = bytes.fromhex("ed53878db0038aeb0ae7515eea358a1cf811fd7e9538710d80b44ca9c5f87a8fdcce7caf0974d9e69615dc14116ddf")
"""Behind these bytes a large file is cut, if the chunk is long enough by then: found by trying."""


def large(tail: int) -> bytes:
    """A megabyte, cut in three where it is stored, and small there: few blocks, in an order that does not repeat.

    Those with different tails differ in the third part alone.
    """
    blocks = [random.Random(number).randbytes(512) for number in range(4)]
    dice = random.Random(7)
    parts = [b"".join(dice.choices(blocks, k=length)) for length in (700, 800, tail)]
    return _CUT.join(parts)


def make_evidence(folder: Path) -> None:
    """What `claims` are about."""
    build(folder, {b"report.txt": (0o644, b"all is well\n")})
    with closing(sqlite3.connect(folder / "app.sqlite")) as database:
        database.execute("CREATE TABLE jobs (id TEXT, status TEXT)")
        database.execute("INSERT INTO jobs VALUES ('j1', 'completed')")
        database.commit()


def claims() -> list[lastgood.Evidence]:
    """The first two hold."""
    row = {"table": "jobs", "where": {"id": "j1"}, "values": {"status": "completed"}}
    return [
        lastgood.Evidence("artifact_exists", "there is a report", {"path": "report.txt", "type": "file"}),
        lastgood.Evidence("db_row", "the job is done", row, {"db_path": "app.sqlite"}),
        lastgood.Evidence("artifact_exists", "there is another", {"path": "not/there"}),
    ]


def is_as_it_was(folder: Path, path: str) -> lastgood.Evidence:
    digest = sha256((folder / path).read_bytes()).hexdigest()
    return lastgood.Evidence("file_sha256", f"{path} is as it was", {"path": path, "sha256": digest})
