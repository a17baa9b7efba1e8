"""Sentences: hints of the library name calls, those of the command line commands; words of the source stay there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.cli.app import COMMANDS
from lastgood.cli.failure import in_commands

Run = Callable[..., Any]
SOURCE = Path(lastgood.__file__).parent

CALL = re.compile(
    r"\b(store|task|error|session|control|step|lastgood)\.\w+|\b[a-z_]+=[\w\"'(]|\w\(\)|`(if|with) |, …\)"
)
"""What only a program can follow."""

OF_PROGRAMS = (
    "aio/", "codec/classes.py", "codec/decode.py", "engine/command.py", "engine/options.py", "engine/proof.py",
    "engine/step.py", "evidence/check.py", "evidence/verifier.py", "model/evidence.py", "testing/", "work/pipeline.py",
    "work/session.py", "work/stage.py",
)  # fmt: skip
"""Modules whose errors no command can bring about: classes, options, steps and sessions are a program's."""

REPLACED = (
    "go on with the handle",
    "open it: ",
    "open it with its files",
    "restore one that is",
    "restore what is whole",
)
"""Hints for which `lastgood.cli.failure` has others, by the kind of error."""

ON_BOTH = "on the command line "


def texts(node: ast.AST) -> Iterator[str]:
    """The literal text in an expression; what is put into it as X."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "'X'" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def hints() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = str(file.relative_to(SOURCE))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint" and not name.startswith("cli/"):
                yield from ((name, text) for text in texts(node.value))


def test_no_hint_that_a_command_prints_is_one_for_programs() -> None:
    found = list(hints())
    assert len(found) > 200
    wrong = [
        (name, said)
        for name, text in found
        if not name.startswith(OF_PROGRAMS) and not text.startswith(REPLACED) and "last_good() returns None" not in text
        if CALL.search(said := in_commands(text).partition(ON_BOTH)[0].replace('network="', ""))
    ]
    assert wrong == []


def test_no_hint_of_the_library_names_a_command() -> None:
    """But where only a command can do it: trust is given by people."""
    wrong = [(name, text) for name, text in hints() if "`lastgood " in text and "lastgood trust" not in text]
    assert wrong == []


INTERNAL = re.compile(
    r"<\w+>|INTEGER|\bRANGE\b|\d<=x|x>=|\bis away\b|\bmend|\bgoes back\b|\bgo back\b|\btombstone|\bone stands in"
)
"""Words of the source, and those that another word stands for: restore, repair; each cause by its name."""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_in_plain_words(run: Run, command: str) -> None:
    shown = run(command, "--help").stdout
    assert INTERNAL.findall(shown) == []
    assert max(map(len, shown.splitlines())) <= 80


def test_a_branch_shows_its_state_in_words(run: Run, three: Path) -> None:
    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        for state in ("running", "waiting_for_input"):
            task.save({"n": 4}, control_state=state)
    assert run("branch").stdout.startswith("main (active, waiting for input)\n")


def test_what_is_spooled_has_no_number_yet(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` had called it @2147483649."""
    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        (three / ".lastgood" / "catalog.sqlite-lock").rename(three / "lock")
        task.save({"n": 4})
    (three / "lock").rename(three / ".lastgood" / "catalog.sqlite-lock")
    from lastgood.catalog.sqlite.catalog import SQLiteCatalog

    def refuse(*_: object) -> None:
        raise lastgood.UnavailableError("the disk reported an error")

    monkeypatch.setattr(SQLiteCatalog, "require_ready", refuse)
    assert run("verify").stdout.startswith("work spooled 0")
