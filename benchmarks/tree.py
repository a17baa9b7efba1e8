"""A tree of source-like files, the same each time: sizes, depths and compressibility of a large code base."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FILES_PER_FOLDER = 17
"""Of many public code bases, about; 50,000 files make 3,000 folders."""
MEDIAN_SIZE, SPREAD, LARGEST = 2_850, 1.1, 400_000
"""Bytes of a text: log-normal, so that a few are large; 6 kB on average."""
BINARY_SHARE, BINARY_SIZES = 0.02, (1_000, 40_000)
BLOCKS, NEIGHBOURS = 6_000, 20
ENDINGS = (".py", ".py", ".py", ".ts", ".ts", ".c", ".h", ".md", ".json", ".txt")

SYLLABLES = (
    *("ab", "ac", "ad", "al", "an", "ar", "as", "at", "ca", "co", "de", "di", "do", "en", "er", "fo", "ga", "in", "is"),
    *(
        "ko",
        "la",
        "le",
        "li",
        "ma",
        "me",
        "mo",
        "ne",
        "no",
        "on",
        "or",
        "pa",
        "per",
        "po",
        "ra",
        "re",
        "ri",
        "ro",
        "sa",
    ),
    *("se", "si", "so", "sta", "su", "ta", "te", "ti", "to", "tra", "un", "ur", "va", "ve", "vi"),
)
LINES = (
    "    {a} = self._{b}.{c}({d}, {e}={n})",
    "    if {a} is None or {b} < {n}:",
    "        return {a}.{b}({c})",
    '        raise {A}Error(f"{{{a}}} is not a {b}")',
    "    for {a} in {b}.{c}():",
    "        {a}.append({b}[{c}])",
    "    # {a} {b} before {c}, otherwise the {d} would be {e}",
    "    {a}: dict[str, {A}] = {{}}",
    '    assert {a} == {n}, "{b} {c} {d}"',
    "    with {a}.{b}({c}={d}) as {e}:",
    "        {a}, {b} = {c}.{d}({e})",
    '    "{a}": {{"{b}": {n}, "{c}": "{d} {e}"}},',
    "    return {A}({a}, {b}={c}, {d}={n})",
    "",
)


class Made(NamedTuple):
    """What a tree came to. `files` are its texts, the ones to change."""

    files: list[Path]
    total: int
    folders: int
    size: int
    allocated: int


def make_tree(folder: Path, files: int) -> Made:
    """Write `files` files below `folder`, which is made. The same number gives the same tree, byte for byte."""
    rng = random.Random(files)
    blocks = _blocks(rng)
    folders = _folders(folder, max(1, files // FILES_PER_FOLDER), rng)
    for path in folders:
        path.mkdir(parents=True)
    made, size = [], 0
    (folder / ".gitignore").write_text("*.pyc\n/build/\nnode_modules/\n.cache\n")
    for number, place in enumerate(_spread(folders, files - 1, rng)):
        is_binary = rng.random() < BINARY_SHARE
        data = rng.randbytes(rng.randint(*BINARY_SIZES)) if is_binary else _text(number, blocks, rng)
        path = place / f"{_word(rng)}_{number}{'.png' if is_binary else rng.choice(ENDINGS)}"
        path.write_bytes(data)
        size += len(data)
        if not is_binary:
            made.append(path)
    return Made(made, files, len(folders), size, allocated(folder))


def change(paths: Sequence[Path], step: int) -> None:
    """An edit in the middle of each of these texts, another one for each `step`."""
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        lines.insert(len(lines) // 2, b"    changed = %d  # %s" % (step, path.name.encode()))
        path.write_bytes(b"\n".join(lines))


def allocated(folder: Path) -> int:
    """The bytes that the file system gives to everything in it, as `du` counts them."""
    total = folder.lstat().st_blocks * 512
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                total += allocated(Path(entry.path))
            else:
                total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def _folders(top: Path, count: int, rng: random.Random) -> list[Path]:
    """`top` and folders below it; each lies in one that was made before, rarely deeper than ten."""
    made = [top]
    while len(made) < count:
        parent = made[int(len(made) * rng.random() ** 1.5)]
        made.append(parent / f"{_word(rng)}{len(made)}")
    return made


def _spread(folders: Sequence[Path], files: int, rng: random.Random) -> Iterator[Path]:
    """A folder for each file, one after the other; some hold many, and some only folders."""
    weights = [rng.expovariate(1) ** 1.3 for _ in folders]
    return iter(sorted(rng.choices(folders, weights, k=files)))


def _text(number: int, blocks: Sequence[bytes], rng: random.Random) -> bytes:
    wanted = min(LARGEST, int(rng.lognormvariate(0, SPREAD) * MEDIAN_SIZE))
    parts = [b'"""Number %d: %s."""\n\n' % (number, _word(rng).encode())]
    length, start = len(parts[0]), rng.randrange(len(blocks))
    while length < wanted:
        near = start + len(parts) // 2 + rng.randrange(NEIGHBOURS)
        parts.append(blocks[near % len(blocks)])
        length += len(parts[-1])
    return b"".join(parts)


def _blocks(rng: random.Random) -> list[bytes]:
    """Functions to put texts together from. Those of one topic share their words, as those of a real file do."""
    return [block for _ in range(BLOCKS // 10) for block in _topic(rng)]


def _topic(rng: random.Random) -> Iterator[bytes]:
    words = [_word(rng) for _ in range(40)]
    for _ in range(10):
        head = f"def {rng.choice(words)}_{rng.choice(words)}(self, {rng.choice(words)}: int) -> None:"
        body = [_fill(rng.choice(LINES), words, rng) for _ in range(rng.randint(4, 16))]
        yield "\n".join([head, *body, "", ""]).encode()


def _fill(line: str, words: Sequence[str], rng: random.Random) -> str:
    chosen = dict(zip("abcde", rng.choices(words, k=5), strict=True))
    return line.format(**chosen, A=chosen["a"].title(), n=rng.randrange(1000))


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.randint(2, 4)))
