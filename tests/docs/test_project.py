"""What rots: exports, the exception tree, documented commands, what the code must never contain."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lastgood
from lastgood import errors

ROOT = Path(__file__).parents[2]
KINDS: list[type[errors.CheckpointError]] = [
    kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.CheckpointError)
]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_every_public_name_can_be_had_and_is_listed_once() -> None:
    for home in (lastgood, lastgood.types):
        assert home.__all__ == sorted(set(home.__all__))
        for name in home.__all__:
            assert getattr(home, name) is not None
    assert not set(lastgood.__all__) & set(lastgood.types.__all__)
    assert len(lastgood.__all__) <= 45  # what programs call
    with pytest.raises(AttributeError, match="no_such_name"):
        lastgood.no_such_name  # noqa: B018


def test_importing_lastgood_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import lastgood; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['lastgood']"


def test_the_exception_tree_is_drawn_as_it_is() -> None:
    drawn = dict(re.findall(r"(\w+Error)(?: \(\w+\))? +(\w+)", errors.__doc__ or ""))
    kinds = {kind.__name__: kind for kind in KINDS}
    assert {name: kind.code for name, kind in kinds.items()} == drawn
    assert len({kind.code for kind in kinds.values()}) == len(kinds)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_carry_a_sentence_a_hint_and_details(kind: type[errors.CheckpointError]) -> None:
    error = kind("a sentence", hint="do this", task_id="t")
    assert (str(error), error.hint, error.details) == ("a sentence", "do this", {"task_id": "t"})


def test_errors_have_builtin_bases() -> None:
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(errors.InvalidError, ValueError)
    assert issubclass(errors.UnavailableError, ConnectionError)
    assert issubclass(errors.ForbiddenError, PermissionError)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_data_never_executes(source: Path) -> None:
    """No pickle, marshal, eval, exec, shell or import by a name that could come from data."""
    tree = ast.parse(source.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
            assert not {"pickle", "marshal", "shelve", "dill", "cloudpickle"} & set(names), ast.unparse(node)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "compile", "__import__", "os.system"}, ast.unparse(node)
            assert not any(word.arg == "shell" for word in node.keywords), ast.unparse(node)


def test_migrations_are_numbered_without_a_gap_and_say_their_format() -> None:
    from lastgood.catalog.sqlite.migration import MAJOR, migrations

    found = migrations()
    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    assert all(int(migration.format.partition(".")[0]) <= MAJOR for migration in found)


def test_the_format_document_names_every_field_of_the_record_in_order() -> None:
    from lastgood.model.checkpoint import Record

    text = (ROOT / "docs" / "reference" / "format.md").read_text()
    table = text[text.index("| # | field") : text.index("- *value*")]
    fields = re.findall(r"^\| (\d+) \| (\w+) \|", table, re.MULTILINE)
    assert fields == [(str(index), name) for index, name in enumerate(Record.__struct_fields__)]


def test_the_commands_of_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    usage = subprocess.run([sys.executable, ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"\./dev (\w+)", readme))
    assert {"demo", "test"} <= named
    assert named <= set(re.findall(r"\./dev (\w+)", usage))


@pytest.mark.parametrize("folder", ["src/lastgood", "tests"])
def test_every_folder_is_on_the_map(folder: str) -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    the_map = contributing[contributing.index("## The map") : contributing.index("## Habits")]
    folders = {path.name for path in (ROOT / folder).iterdir() if any(path.rglob("*.py"))}
    assert folders <= set(re.findall(r"(\w+)/", the_map))
