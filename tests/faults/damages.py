"""What can happen to the files of a store while nobody looks: each damage with the bytes that it concerns.

Everything is chosen by dice; where and how follows from the files as they are.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PAGE, DATABASE_HEAD, FRAME_HEAD, LOG_HEAD = 4096, 100, 24, 32
END = 1 << 62
_PACK_HEAD, _ENTRY_HEAD, _ENTRY_MARK, _LENGTH = 28, 49, b"LGPE", slice(40, 44)

Range = tuple[str, int, int]


class Damage(NamedTuple):
    """`ranges`: what is not as it was; what reads nothing of it is not affected. `do` is given the store's folder.
    `repair`: whether it is repaired whenever it is done, not now and then."""

    name: str
    ranges: list[Range]
    do: Callable[[Path], None]
    repair: bool = False


class Place(NamedTuple):
    """A file of a store, as far as damages go: blocks that mean something (pages, frames, blobs) are (from, to)."""

    folder: Path
    old: Path
    file: str
    blocks: list[tuple[int, int]]

    @property
    def size(self) -> int:
        return (self.folder / self.file).stat().st_size

    @property
    def whole(self) -> list[Range]:
        return [(self.file, 0, END)]


def database(folder: Path, old: Path, file: str = "catalog.sqlite") -> Place:
    size = (folder / file).stat().st_size
    return Place(folder, old, file, [(start, start + PAGE) for start in range(0, size, PAGE)])


def log(folder: Path, old: Path) -> Place:
    file = "catalog.sqlite-wal"
    starts = range(LOG_HEAD, (folder / file).stat().st_size, FRAME_HEAD + PAGE)
    return Place(folder, old, file, [(start, start + FRAME_HEAD + PAGE) for start in starts])


def plain(folder: Path, old: Path, file: str) -> Place:
    return Place(folder, old, file, [(start, start + 512) for start in range(0, (folder / file).stat().st_size, 512)])


def packs(folder: Path, old: Path) -> list[Place]:
    found = sorted(path for path in (folder / "objects" / "packs").rglob("*") if path.is_file())
    return [Place(folder, old, str(path.relative_to(folder)), list(_entries(path.read_bytes()))) for path in found]


def _entries(pack: bytes) -> Iterator[tuple[int, int]]:
    """Where the blobs of a pack lie."""
    at = _PACK_HEAD
    while pack[at : at + len(_ENTRY_MARK)] == _ENTRY_MARK:
        length = int.from_bytes(pack[at:][_LENGTH], "little")
        yield at + _ENTRY_HEAD, at + _ENTRY_HEAD + length
        at += _ENTRY_HEAD + length


# --- within one file ------------------------------------------------------------------------------------------------


def flip(place: Place, dice: random.Random) -> Damage:
    """One bit, or eight within a byte."""
    at, mask = dice.randrange(place.size), dice.choice([1 << dice.randrange(8), dice.randrange(1, 256)])

    def do(store: Path) -> None:
        _edit(store / place.file, at, lambda old: bytes([old[0] ^ mask]), 1)

    return Damage(f"{place.file}: bits {mask:02x} of byte {at} flipped", [(place.file, at, at + 1)], do)


def flip_head(place: Place, dice: random.Random) -> Damage:
    """One bit of the header of a database or a log, which says how all the rest is read."""
    at, bit = dice.randrange(LOG_HEAD if place.file.endswith("-wal") else DATABASE_HEAD), 1 << dice.randrange(8)

    def do(store: Path) -> None:
        _edit(store / place.file, at, lambda old: bytes([old[0] ^ bit]), 1)

    return Damage(f"{place.file}: bit {bit:02x} of byte {at} of its header flipped", [(place.file, at, at + 1)], do)


def zero(place: Place, dice: random.Random) -> Damage:
    """A block, or a sector of a disk."""
    start, end = dice.choice(place.blocks)
    if dice.random() < 0.3:
        start = dice.randrange(place.size) // 512 * 512
        end = min(start + 512, place.size)

    def do(store: Path) -> None:
        _edit(store / place.file, start, lambda old: bytes(len(old)), end - start)

    return Damage(f"{place.file}: {start} to {end} zeroed", [(place.file, start, end)], do)


def scramble(place: Place, dice: random.Random) -> Damage:
    """Random bytes over a part of it."""
    start = dice.randrange(place.size)
    noise = dice.randbytes(min(dice.choice([2, 16, 512, PAGE]), place.size - start))
    end = start + len(noise)
    name = f"{place.file}: {start} to {end} overwritten with noise"
    return Damage(name, [(place.file, start, end)], lambda store: _put(store / place.file, start, noise))


def cut(place: Place, dice: random.Random) -> Damage:
    kept = dice.choice([dice.randrange(place.size), dice.choice(place.blocks)[0], place.size - 1, 0])
    name = f"{place.file}: cut off at {kept}"
    # SQLite refuses a whole database that is shorter than it says.
    lost = place.whole if place.file.endswith("sqlite") else [(place.file, kept, END)]
    return Damage(name, lost, lambda store: os.truncate(store / place.file, kept))


def append(place: Place, dice: random.Random) -> Damage:
    """Garbage behind its end, or a part of itself again."""
    more = dice.randbytes(dice.choice([1, 100, PAGE, 3 * PAGE]))
    if dice.random() < 0.5:
        start, _ = dice.choice(place.blocks)
        more = (place.folder / place.file).read_bytes()[start:]

    def do(store: Path) -> None:
        with (store / place.file).open("ab") as file:
            file.write(more)

    return Damage(f"{place.file}: {len(more)} bytes appended", [(place.file, place.size, END)], do)


def exchange(place: Place, dice: random.Random, other: Place | None = None) -> Damage:
    """Two blocks of the same size, each where the other was."""
    one, two = _two_alike(place, other or place, dice)
    there = other or place
    length = one[1] - one[0]

    def do(store: Path) -> None:
        first, second = _get(store / place.file, one[0], length), _get(store / there.file, two[0], length)
        _put(store / place.file, one[0], second)
        _put(store / there.file, two[0], first)

    name = f"{place.file}: {length} bytes at {one[0]} exchanged with those at {two[0]} of {there.file}"
    return Damage(name, [(place.file, *one), (there.file, *two)], do)


def _two_alike(place: Place, other: Place, dice: random.Random) -> tuple[tuple[int, int], tuple[int, int]]:
    for _ in range(20):
        one = dice.choice(place.blocks)
        alike = [block for block in other.blocks if block[1] - block[0] == one[1] - one[0]]
        if alike and len(alike) > (place == other):
            return one, dice.choice(alike)
    length = dice.randrange(1, min(64, place.size, other.size))
    starts = [dice.randrange(min(place.size, other.size) - length) for _ in range(2)]
    return (starts[0], starts[0] + length), (starts[1], starts[1] + length)


def age(place: Place, dice: random.Random) -> Damage:
    """A block as it was some commits ago: a write that the disk lost."""
    before = (place.old / place.file).read_bytes() if (place.old / place.file).exists() else b""
    now = (place.folder / place.file).read_bytes()
    changed = [block for block in place.blocks if block[1] <= len(before) and _differs(before, now, block)]
    if not changed:
        return flip(place, dice)
    start, end = dice.choice(changed)
    name = f"{place.file}: {start} to {end} as they were before"
    return Damage(name, [(place.file, start, end)], lambda store: _put(store / place.file, start, before[start:end]))


def _differs(one: bytes, other: bytes, block: tuple[int, int]) -> bool:
    return one[slice(*block)] != other[slice(*block)]


# --- whole files ----------------------------------------------------------------------------------------------------


def remove(place: Place, dice: random.Random) -> Damage:
    return Damage(f"{place.file}: removed", place.whole, lambda store: (store / place.file).unlink())


def replace(place: Place, dice: random.Random) -> Damage:
    """Another file, or noise, under its name; or something that is no file."""
    others = sorted(path for path in place.folder.rglob("*") if path.is_file() and path != place.folder / place.file)
    chosen = dice.randrange(len(others) + 4)

    def do(store: Path) -> None:
        target = store / place.file
        target.unlink(missing_ok=True)
        if chosen < len(others):
            shutil.copyfile(others[chosen], target)
        elif chosen == len(others):
            target.write_bytes(random.Random(place.file).randbytes(place.size))
        elif chosen == len(others) + 1:
            target.mkdir()
        elif chosen == len(others) + 2:
            os.mkfifo(target)
        else:
            target.symlink_to("nowhere")

    what = [*(str(path.relative_to(place.folder)) for path in others), "noise", "a folder", "a fifo", "a dead link"]
    concerned = list(place.whole)
    if place.file.endswith("-shm") and chosen > len(others):
        concerned.append(("catalog.sqlite", 0, END))  # not read but mapped: nobody is seen touching it
    return Damage(f"{place.file}: replaced by {what[chosen]}", concerned, do)


def restore_old(place: Place, dice: random.Random) -> Damage:
    """The whole file as it was some commits ago, or gone if it was not there."""

    def do(store: Path) -> None:
        (store / place.file).unlink(missing_ok=True)
        if (place.old / place.file).exists():
            shutil.copyfile(place.old / place.file, store / place.file)

    return Damage(f"{place.file}: as it was before", place.whole, do)


def restore_all_old(place: Place, dice: random.Random) -> Damage:
    """Database and log as they were some commits ago, consistent with each other: only the witness knows better."""
    files = ("catalog.sqlite", "catalog.sqlite-wal")

    def do(store: Path) -> None:
        for file in files:
            restore_old(place._replace(file=file), dice).do(store)

    return Damage("database and log as they were before", [(file, 0, END) for file in files], do)


# --- folders --------------------------------------------------------------------------------------------------------


def lose_folder(place: Place, dice: random.Random) -> Damage:
    """One of the folders above a pack is gone, empty, no folder any more, or as it was some commits ago."""
    depth, how = dice.randrange(1, 4), dice.choice(["gone", "empty", "a file", "a dead link", "as before"])
    folder = "/".join(place.file.split("/")[:depth])
    below = [path for path in (place.folder / folder).rglob("*") if path.is_file()]

    def do(store: Path) -> None:
        target = store / folder
        shutil.rmtree(target)
        if how == "empty":
            target.mkdir()
        elif how == "a file":
            target.write_bytes(b"no folder")
        elif how == "a dead link":
            target.symlink_to("nowhere")
        elif how == "as before" and (place.old / folder).exists():
            shutil.copytree(place.old / folder, target)

    ranges = [(str(path.relative_to(place.folder)), 0, END) for path in below]
    return Damage(f"the folder {folder}: {how}", ranges, do, repair=True)


# --- means ----------------------------------------------------------------------------------------------------------


def _get(file: Path, start: int, length: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(length)


def _put(file: Path, start: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(data)


def _edit(file: Path, start: int, change: Callable[[bytes], bytes], length: int) -> None:
    _put(file, start, change(_get(file, start, length)))
