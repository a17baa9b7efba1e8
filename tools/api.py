"""The reference of the Python API, made from the code: `python -m tools.api` writes docs/reference/api.md.

A name is public if `lastgood` or `lastgood.types` exports it. Signatures and first sentences come from the code
itself; a test compares the page with it.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lastgood
from lastgood import types

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"

HEAD = """# The Python API

Made from the code by `./dev docs`; do not edit it here. What programs call is
imported from `lastgood`, what is returned or given as options (Metrics, Values) from `lastgood.types`.
`lastgood.aio` has the same with coroutines ([how-to](../how-to/use-asyncio.md)). Errors are in [errors](errors.md),
options of `lastgood.open` in [configuration](configuration.md).
"""

HANDLES = {
    "Handles": ["Store", "Task", "Step", "CheckpointManager"],
    "Live work": ["Session", "Control", "Pipeline", "StageContext"],
    "A checkpoint": ["Checkpoint"],
    "Evidence": ["Evidence", "EvidencePack", "EvidenceType", "EvidenceVerifier"],
    "Metrics": ["Metrics"],
}
"""Classes whose methods are listed. Any other class is a value: its fields are."""

MADE = {"CheckpointManager", "Pipeline", "Evidence", "EvidencePack", "EvidenceVerifier"}
"""Classes that programs call; other handles come from a method."""

INTERNAL = {
    "Step": {"put", "as_open", "note_begun", "is_open", "commit_and_begin", "stop", "again"},
    "Session": {"pass_boundary", "interrupt", "interrupt_wait"},
    "StageContext": {"hand_over"},
    "Control": {"again"},
    "Task": {"roll_back"},
    "Checkpoint": {"record", "as_head", "fresh_state", "plain_state", "last_event"},
    "Store": {"meter", "info"},
    "Evidence": {"to_claim"},
    "EvidencePack": {"to_claims", "from_claims"},
    "EvidenceVerifier": {"checking"},
}
"""Methods that other parts of lastgood call, and programs do not."""


def page() -> str:
    things = {name: getattr(lastgood, name) for name in sorted([*lastgood.__all__, "open"])}
    functions = [name for name, thing in things.items() if not inspect.isclass(thing)]
    things |= {name: getattr(types, name) for name in types.__all__}
    handles = {name for group in HANDLES.values() for name in group}
    values = [
        name
        for name, thing in things.items()
        if inspect.isclass(thing) and name not in handles and not issubclass(thing, BaseException)
    ]
    lines = [HEAD, "## Functions\n", *_table([(call(name, things[name]), things[name]) for name in functions])]
    for title, group in HANDLES.items():
        lines.append(f"\n## {title}\n")
        for name in group:
            made = f"`{call(name, things[name])}`\n\n" if name in MADE else ""
            lines += [f"### {name}\n", f"{made}{paragraph(things[name])}\n", *_members(name, things[name]), ""]
    lines += ["## Values\n", "They are returned, or given as options.\n", "| value | fields | |", "|---|---|---|"]
    lines += [f"| `{name}` | {fields(things[name])} | {sentence(things[name])} |" for name in values]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _members(name: str, thing: type) -> Iterator[str]:
    if issubclass(thing, enum.Enum):
        yield from ["| value |", "|---|", *(f"| `{name}.{one.name}` = `{one.value!r}` |" for one in thing)]
        return
    inherited = vars(thing.__mro__[1])
    found = []
    for member, value in vars(thing).items():
        if member.startswith("_") or member in INTERNAL.get(name, ()) or member in inherited:
            continue
        if isinstance(value, property):
            found.append((member, value))
        elif hasattr(value, "__set_name__"):  # a field of the record: its name says what it is
            found.append((member, property()))
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            found.append((call(member, getattr(thing, member)), value))
    told = [row for row in found if sentence(row[1])]
    yield from _table(told) if told else ()
    bare = [f"`{shown}`" for shown, value in found if not sentence(value)]
    if bare:
        yield f"\nAlso {', '.join(bare)}."


def _table(rows: list[tuple[str, Any]]) -> Iterator[str]:
    yield from ["| | |", "|---|---|"]
    for shown, thing in rows:
        yield f"| `{shown}` | {sentence(thing)} |"


def call(name: str, thing: Any) -> str:
    """Return a call as people write it: names and defaults, without annotations."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return name
    shown: list[str] = []
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            shown.append(f"*{parameter.name}")
        elif parameter.kind is parameter.VAR_KEYWORD:
            shown.append(f"**{parameter.name}")
        else:
            if parameter.kind is parameter.KEYWORD_ONLY and not any(one.startswith("*") for one in shown):
                shown.append("*")
            shown.append(parameter.name + _default(parameter.default))
    return f"{name}({', '.join(shown)})"


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    plain = value is None or isinstance(value, str | int | float | bool | tuple)
    return f"={value!r}" if plain else "=…"


def fields(thing: Any) -> str:
    named: tuple[str, ...] = getattr(thing, "__struct_fields__", getattr(thing, "_fields", ()))
    return ", ".join(f"`{name.removesuffix('_us')}`" for name in named)


def paragraph(thing: Any) -> str:
    """Return the first paragraph of its docstring, on one line."""
    named = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    own = (vars(named).get("__doc__") if inspect.isclass(named) else inspect.getdoc(named)) or ""
    without_ids = re.sub(r" \([A-E]\d+(, [A-E]\d+)*\)", "", own.partition("\n\n")[0])
    return " ".join(without_ids.split()).replace("|", "\\|")


def sentence(thing: Any) -> str:
    return re.sub(":$", ".", re.split(r"(?<=[.!?:]) (?=[A-Z`])", paragraph(thing))[0])


if __name__ == "__main__":
    PAGE.write_text(page())
