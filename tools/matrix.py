"""`./dev matrix`: which tests cite which requirement, in their docstrings and comments.

    ./dev matrix           every requirement, how many tests cite it, and whether it is built
    ./dev matrix C10 G3    the tests that cite these

Fails when a requirement that is built is cited by no test, and when a test cites one that does not exist.
tools/requirements.toml has the list. A module's docstring counts as that of one test.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tools" / "requirements.toml"
TESTS = (ROOT / "tests", ROOT / "src" / "lastgood" / "testing")

_ID = r"[A-GIP]\d{1,2}"
_CITED = re.compile(rf"\b({_ID})(?: to ({_ID}))?\b")

Citations = Mapping[str, list[str]]


class Requirements(NamedTuple):
    """Titles by id."""

    built: dict[str, str]
    planned: dict[str, str]


def read_requirements(file: Path = REQUIREMENTS) -> Requirements:
    return Requirements(**tomllib.loads(file.read_text()))


def find_citations(*folders: Path) -> Citations:
    """Return the tests that cite each id, as `path::name`."""
    found = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            for test, text in _texts(path.read_text()):
                for id_ in cited(text):
                    found[id_].append(f"{name}::{test}" if test else str(name))
    return found


def cited(text: str) -> list[str]:
    """Return the ids that a text cites, each once. `B1 to B5` are five."""
    found: list[str] = []
    for first, last in _CITED.findall(text):
        span = range(int(first[1:]), int(last[1:]) + 1) if last[:1] == first[:1] else [int(first[1:])]
        found += [f"{first[0]}{number}" for number in span] + ([last] if last and last[0] != first[0] else [])
    return list(dict.fromkeys(found))


def problems(requirements: Requirements, citations: Citations) -> list[str]:
    """Return a sentence for each requirement without a test, and for each id that is cited and does not exist."""
    untested = [
        f"{id_} is built and no test cites it: {title}"
        for id_, title in requirements.built.items()
        if not citations.get(id_)
    ]
    known = requirements.built.keys() | requirements.planned.keys()
    return untested + [
        f"{id_} does not exist, and is cited by {tests[0]}"
        for id_, tests in sorted(citations.items())
        if id_ not in known
    ]


def main(arguments: list[str]) -> int:
    requirements, citations = read_requirements(), find_citations(*TESTS)
    for id_ in arguments:
        print(id_, *citations.get(id_, ["no test"]), sep="\n    ")
    if not arguments:
        for state, titles in (("", requirements.built), ("  (planned)", requirements.planned)):
            for id_, title in titles.items():
                print(f"{id_:4} {len(citations.get(id_, [])):4} tests  {title}{state}")
    found = problems(requirements, citations)
    print(*found, sep="\n", file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


def _texts(source: str) -> Iterator[tuple[str, str]]:
    """Return each test with its docstring and comments, and the module's docstring under an empty name."""
    tree = ast.parse(source)
    yield "", ast.get_docstring(tree) or ""
    comments = dict(_comments(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _is_test(node):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            inside = [comments[line] for line in range(first, (node.end_lineno or first) + 1) if line in comments]
            is_class = isinstance(node, ast.ClassDef)
            yield node.name, "\n".join([ast.get_docstring(node) or "", *([] if is_class else inside)])


def _is_test(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    if isinstance(node, ast.ClassDef):
        bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        return node.name.startswith("Test") or "RuleBasedStateMachine" in bases
    return node.name.startswith("test_")


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
