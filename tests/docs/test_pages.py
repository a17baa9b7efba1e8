"""The documentation: its code runs as it stands, its links lead somewhere, and every page can be found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs import page as runner

from tools import api, terminal

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "explanation" / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
RUN = {"python", "console"}
WITH_CODE = [page for page in PAGES if RUN & {block.language for block in runner.blocks(page.read_text())}]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs_as_it_stands(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    command = [sys.executable, "-W", "error", runner.__file__, str(page)]
    env = runner.environment(folder)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


def test_every_page_that_has_to_run_does() -> None:
    tutorials = {"README.md", "docs/tutorial.md"}
    assert tutorials <= {name(page) for page in WITH_CODE}
    assert len([page for page in WITH_CODE if "how-to" in page.parts]) >= 10


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("folder", [DOCS, DECISIONS], ids=name)
def test_an_index_leads_to_every_page(folder: Path) -> None:
    index = folder / "README.md"
    linked = {(folder / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", index.read_text())}
    pages = {page for page in folder.rglob("*.md") if folder == DECISIONS or page.parent != DECISIONS}
    assert not [name(page) for page in pages - linked - {index}]
    assert folder == DECISIONS or DECISIONS / "README.md" in linked


def test_documents_of_the_project_that_are_named_exist() -> None:
    """Docstrings and comments name pages by their path."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "pyproject.toml", ROOT / "dev"]
    named = {found for file in files for found in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text())}
    assert not [found for found in named if not (ROOT / found).exists()]


def test_the_picture_of_the_terminal_shows_what_the_commands_print() -> None:
    """If this fails, look at the difference, and make it anew: ./dev docs"""
    shown = terminal.text_of(terminal.PICTURE.read_text())
    printed = terminal.text_of(terminal.draw(terminal.play()))
    assert runner.settled(shown) == runner.settled(printed)


@pytest.mark.once
def test_the_reference_of_the_api_is_made_from_the_code() -> None:
    """If this fails, look at the difference, and make it anew: ./dev docs"""
    assert api.PAGE.read_text() == api.page()


ARCHITECTURE = DOCS / "explanation" / "architecture.md"


def test_the_paths_of_the_architecture_lead_through_functions_that_exist() -> None:
    lines = [
        line
        for block in re.findall(r"```text\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)
        for line in block.splitlines()
    ]
    steps = [re.match(r" *(?:\w+\.)?(\w+) +([\w/]+\.py)", line) for line in lines]
    assert len(steps) > 50
    for line, step in zip(lines, steps, strict=True):
        assert step is not None, line
        source = (ROOT / "src" / "lastgood" / step[2]).read_text()
        assert re.search(rf"\bdef {step[1]}\(", source), line


def test_the_modules_that_explanations_name_exist() -> None:
    named = {found for page in DOCS.rglob("*.md") for found in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text())}
    places = (ROOT / "src" / "lastgood", ROOT)
    assert not [found for found in named if not any((place / found).exists() for place in places)]
