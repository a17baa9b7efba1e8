"""The figures of `./dev shape`: each kind of trouble, planted in a copy of the source, is counted."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.paths import Tracer, Walked
from tools.shape import Figure, Limit, exceeded, lower, measure, read_limits
from tools.source import Source, strongly_connected

HERE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the source."""
    copy = tmp_path / "src"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def small_tree(tree: Path) -> Path:
    """A copy of what has the classes that are counted: the rest takes seconds to parse."""
    for folder in (tree / "lastgood").iterdir():
        if folder.is_dir() and folder.name not in ("catalog", "model", "work"):
            shutil.rmtree(folder)
    return tree


def _figure(tree: Path, name: str) -> int:
    return measure(Source(tree), {})[name].value


def _add_cycle(tree: Path) -> None:
    """Close a ring through 60 modules, half of it inside functions and for type checking alone."""
    folder = tree / "lastgood" / "planted"
    folder.mkdir()
    styles = [
        "from lastgood.planted import m{0}",
        "def call() -> None:\n    from lastgood.planted.m{0} import call",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lastgood.planted.m{0}",
    ]
    for number in range(60):
        (folder / f"m{number}.py").write_text(styles[number % 3].format((number + 1) % 60))


def _repeat_class(tree: Path) -> None:
    (tree / "lastgood" / "model" / "planted.py").write_text("class Store:\n    pass\n")


def _use_file(tree: Path) -> None:
    (tree / "lastgood" / "work" / "planted.py").write_text("def place(store):\n    return store._engine.catalog.file\n")


def _make_catalog(tree: Path) -> None:
    (tree / "lastgood" / "work" / "planted.py").write_text("def make(path):\n    return SQLiteCatalog(path)\n")


def _extend_contract(tree: Path) -> None:
    home = Source(tree).home_of("Catalog", "lastgood.catalog").split(".")
    _append_method(tree.joinpath(*home).with_suffix(".py"), "Catalog", "def planted(self) -> int: ...")


def _extend_store(tree: Path) -> None:
    _append_method(tree / "lastgood" / "store.py", "Store", "def planted(self) -> int: return 1")


def _append_method(file: Path, name: str, method: str) -> None:
    text = file.read_text()
    begin = text.index(f"\nclass {name}")
    end = text.index('"""', text.index('"""', begin) + 3) + 3
    file.write_text(f"{text[:end]}\n\n    {method}\n{text[end:]}")


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("public class names defined more than once", _repeat_class),
        ("uses of a catalog's internals outside it", _use_file),
        ("uses of a catalog's internals outside it", _make_catalog),
        ("methods of the catalog's contract", _extend_contract),
        ("public methods of Store", _extend_store),
        ("modules", _repeat_class),
        ("lines", _repeat_class),
    ],
)
def test_a_figure_counts_what_is_planted(small_tree: Path, name: str, plant: Callable[[Path], None]) -> None:
    before = _figure(small_tree, name)
    plant(small_tree)
    assert _figure(small_tree, name) == before + (2 if name == "lines" else 1)


def test_a_planted_cycle_exceeds_its_limit(tree: Path) -> None:
    _add_cycle(tree)
    name = "modules in the largest import cycle"
    figures = measure(Source(tree), {})
    assert figures[name].value == 60
    (problem,) = exceeded(figures, {name: read_limits()[name]})
    assert problem.startswith(name)


def test_components_of_a_graph() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, strongly_connected(graph))) == [["a", "b", "c"], ["d", "e"], ["f"]]


def test_a_module_that_is_called_back_is_a_reentry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_above.py").write_text(
        "import planted_below\ndef enter():\n    return planted_below.call(answer)\ndef answer():\n    return 1\n"
    )
    (tmp_path / "planted_below.py").write_text("def call(back):\n    return back()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import planted_above  # type: ignore[import-not-found]  # written just now

    try:
        with Tracer(f"{tmp_path}/") as tracer:
            planted_above.enter()
    finally:
        del sys.modules["planted_above"], sys.modules["planted_below"]
    assert tracer.walked.modules == {"planted_above", "planted_below"}
    assert tracer.walked.reentries == ["planted_below -> planted_above: answer, line 4"]


def test_the_paths_are_counted(small_tree: Path) -> None:
    figures = measure(Source(small_tree), {"task.save": Walked({"a", "b"}, ["b -> a: f, line 1"])})
    assert figures["modules of task.save"] == Figure(2, ["a", "b"])
    assert figures["re-entries of task.save"].value == 1


def test_lowering_never_raises_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "shape.toml"
    line = '"{}" = {{ limit = {}, target = {} }}\n'
    file.write_text(
        "[figures]\n" + line.format("better", 9, 5) + line.format("done", 9, 5) + line.format("worse", 9, 5)
    )
    lower({"better": Figure(7, []), "done": Figure(2, []), "worse": Figure(12, [])}, file)
    assert read_limits(file) == {"better": Limit(7, 5), "done": Limit(5, 5), "worse": Limit(9, 5)}


def test_a_limit_below_its_target_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shape.toml"
    file.write_text('[figures]\n"lines" = { limit = 1, target = 2 }\n')
    with pytest.raises(ValueError, match="lines"):
        read_limits(file)
