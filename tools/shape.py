"""`./dev shape`: the figures that say whether the source is still simple, and their limits.

./dev shape            every figure, its limit and its target; fails when a limit is exceeded
./dev shape NAME       what a figure is made of (a part of its name is enough)
./dev shape --lower    lower the limits in tools/shape.toml to the present figures
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools.paths import OPERATIONS, ROOT, Walked, walk
from tools.source import BACKENDS, PACKAGE, Source

LIMITS = ROOT / "tools" / "shape.toml"


class Limit(NamedTuple):
    """What a figure must not exceed, and what it must not exceed in the end."""

    limit: int
    target: int


class Figure(NamedTuple):
    """A number about the source, and what was counted."""

    value: int
    parts: list[str]


def measure(source: Source, paths: Mapping[str, Walked]) -> dict[str, Figure]:
    """Count everything that has a limit."""
    cycles = source.cycles()
    contract = source.public_methods(source.home_of("Catalog", BACKENDS), "Catalog", abstract=True)
    sizes = source.sizes()
    repeated = [f"{name}: {', '.join(modules)}" for name, modules in source.repeated_classes().items()]
    figures = {
        "modules in the largest import cycle": Figure(
            max(map(len, cycles), default=0), [f"{len(cycle)}: {', '.join(cycle)}" for cycle in cycles]
        ),
        "public class names defined more than once": _count(repeated),
        "methods of the catalog's contract": _count(contract),
        "uses of a catalog's internals outside it": _count(source.uses_of_backend()),
        "public methods of Store": _count(source.public_methods(f"{PACKAGE}.store", "Store")),
        "public methods of Task": _count(source.public_methods(f"{PACKAGE}.task", "Task")),
        "modules": Figure(
            sum(size.modules for size in sizes.values()), [f"{size.modules:6} {name}" for name, size in sizes.items()]
        ),
        "lines": Figure(
            sum(size.lines for size in sizes.values()), [f"{size.lines:6} {name}" for name, size in sizes.items()]
        ),
    }
    for name, walked in paths.items():
        figures[f"modules of {name}"] = _count(sorted(walked.modules))
        figures[f"re-entries of {name}"] = _count(walked.reentries)
    return figures


def exceeded(figures: Mapping[str, Figure], limits: Mapping[str, Limit]) -> list[str]:
    """Return a sentence for each figure that is above its limit."""
    return [
        f"{name}: {figures[name].value}, and the limit is {limit.limit}"
        for name, limit in limits.items()
        if figures[name].value > limit.limit
    ]


def read_limits(file: Path = LIMITS) -> dict[str, Limit]:
    """Read the limits. A limit below its target is a mistake in the file."""
    limits = {name: Limit(**values) for name, values in tomllib.loads(file.read_text())["figures"].items()}
    if wrong := [name for name, limit in limits.items() if limit.limit < limit.target]:
        raise ValueError(f"{file.name}: the limit is below the target: {', '.join(wrong)}")
    return limits


def lower(figures: Mapping[str, Figure], file: Path = LIMITS) -> None:
    """Lower each limit to the present figure, or to its target if the figure is below it."""
    text = file.read_text()
    for name, limit in read_limits(file).items():
        lowered = min(limit.limit, max(limit.target, figures[name].value))
        text = re.sub(rf'(?m)^("{re.escape(name)}" = {{ limit = )\d+', rf"\g<1>{lowered}", text)
    file.write_text(text)


def walk_all() -> dict[str, Walked]:
    """Trace every operation, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(OPERATIONS, pool.map(walk, OPERATIONS), strict=True))


def table(figures: Mapping[str, Figure], limits: Mapping[str, Limit]) -> Iterable[str]:
    """Return the lines of the report."""
    yield f"{'':45}{'now':>8}{'limit':>8}{'target':>8}"
    for name, limit in limits.items():
        mark = "" if figures[name].value > limit.limit else "ok" if figures[name].value <= limit.target else "."
        yield f"{name:45}{figures[name].value:8}{limit.limit:8}{limit.target:8}  {mark or 'TOO MANY'}"


def folders(source: Source) -> Iterable[str]:
    """Return modules and lines of each folder, as lines of the report."""
    yield f"{'folder':12}{'modules':>8}{'lines':>8}"
    for name, size in source.sizes().items():
        yield f"{name:12}{size.modules:8}{size.lines:8}"


def main(arguments: list[str]) -> int:
    source = Source(ROOT / "src")
    figures = measure(source, walk_all())
    if arguments == ["--lower"]:
        lower(figures)
    elif arguments:
        named = [name for name in figures if all(argument in name for argument in arguments)]
        for name in named:
            print(f"{name}: {figures[name].value}", *figures[name].parts, sep="\n    ")
        return 0 if named else 2
    limits = read_limits()
    print(*table(figures, limits), "", *folders(source), sep="\n")
    if problems := exceeded(figures, limits):
        print("\nThe source has become less simple. `./dev shape NAME` says what was counted.", file=sys.stderr)
        print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


def _count(parts: list[str]) -> Figure:
    return Figure(len(parts), parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
