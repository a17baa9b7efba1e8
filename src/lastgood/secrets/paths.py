"""Paths in the state, as redaction rules name them.

    credentials.token                      names of keys, separated by dots
    messages[3].text                       a position in a list or tuple, or a key that is a whole number
    messages[*].headers.Authorization      every element, or every entry
    users.*.password                       the same
    headers["x.api key"]                   a key with dots or other odd characters, quoted as in JSON

A rule that is written a little differently from the data must not let a secret through: `*` and `[*]` both stand
for all entries and all elements, `3` and `[3]` both for the key and for the position. Case matters.
"""

from __future__ import annotations

import re

from lastgood.errors import InvalidError

ANY = None
"""The step to every entry and every element."""

Step = str | None
_NAME = r"[^\s.\[\]*\"'\\\ud800-\udfff]+"
_STEP = rf"""(?P<any>\*|\[\*\])|(?P<name>{_NAME})|\[(?P<index>[0-9]{{1,18}})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*+")\]"""


class Paths:
    """Rules as a tree of steps. `rule` is set where a rule ends."""

    __slots__ = ("next", "rule")

    def __init__(self) -> None:
        self.rule: str | None = None
        self.next: dict[Step, Paths] = {}

    def __bool__(self) -> bool:
        return bool(self.next)


def parse_paths(rules: tuple[str, ...]) -> Paths:
    """Raises InvalidError for a rule that is not a path."""
    root = Paths()
    for rule in rules:
        paths = root
        for step in _parse(rule):
            paths = paths.next.setdefault(step, Paths())
        paths.rule = paths.rule or rule
    return root


def _parse(rule: str) -> list[Step]:
    step = re.compile(_STEP)  # here, and not above: few programs have such rules
    steps: list[Step] = []
    at = 0
    while at < len(rule) or not steps:
        if steps and not rule.startswith("[", at):
            if not rule.startswith(".", at) or rule.startswith("[", at + 1):
                raise _bad(rule)
            at += 1
        if (match := step.match(rule, at)) is None:
            raise _bad(rule)
        steps.append(_step(rule, match))
        at = match.end()
    return steps


def _step(rule: str, match: re.Match[str]) -> Step:
    if match["any"]:
        return ANY
    if match["index"]:
        return str(int(match["index"]))
    if match["name"]:
        return match["name"]
    import json

    try:
        return str(json.loads(match["quoted"]))
    except ValueError:
        raise _bad(rule) from None


def _bad(rule: str) -> InvalidError:
    return InvalidError(
        f"{rule[:80]!r} is not a path in the state",
        hint='as in credentials.token, messages[*].text, users.*.password or headers["x.key"]',
        field="state",
    )


def written(step: object) -> str:
    """A key or position as it stands in a path; `[*]` for a key that no path can name."""
    if type(step) is int:
        return f"[{step}]" if step >= 0 else "[*]"
    if isinstance(step, str):
        if re.fullmatch(_NAME, step):
            return f".{step}"
        import json

        return f"[{json.dumps(str(step))}]"
    return "[*]"
