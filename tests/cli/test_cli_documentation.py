"""docs/reference says what the program does: the command line, errors, configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import lastgood
from lastgood import errors
from lastgood.cli import failure, invocation
from lastgood.cli.app import COMMANDS, app
from lastgood.local import location
from lastgood.work.lease import HeldLease

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
COMMON = (REFERENCE / "command-line.md").read_text()
PAGES = {page.stem: page.read_text() for page in (REFERENCE / "commands").glob("*.md")}
TEXT = "\n".join(PAGES.values())
STEERING = PAGES["steer"].partition("\n## ")[0]
OBJECTS = COMMON.partition("A *checkpoint*")[2].partition("### ")[0]


def section(name: str) -> str:
    found = re.search(rf"^## {name}(?![\w-]).*?(?=^#+ |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"{name} is not documented"
    return found[0]


def documented_keys(text: str) -> set[str]:
    """Every word that stands in code."""
    return {word for code in re.findall(r"`([^`]*)`", text) for word in re.findall(r"\w+", code)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    shared = {parameter.name for parameter in app.params} | {"workspace", "no_files"}
    for parameter in command.params:
        where = COMMON if parameter.name in shared and parameter.opts[0] in COMMON else section(name)
        for option in parameter.opts:
            if option.startswith("-"):
                assert re.search(rf"`{option}\b", where), f"{name} {option}"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_terminal_of_80_columns(name: str) -> None:
    shown = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=80).stdout
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_no_command_is_documented_that_does_not_exist() -> None:
    assert sorted(re.findall(r"^## ([\w-]+)", TEXT, re.MULTILINE)) == sorted(COMMANDS)


def test_every_command_is_in_the_table_of_groups_with_its_page() -> None:
    rows = re.findall(r"^\| \[[\w ]+\]\(commands/([\w-]+)\.md\) \| (.*) \|$", COMMON, re.MULTILINE)
    for group, commands in rows:
        assert re.findall(r"`([\w-]+)`", commands) == re.findall(r"^## ([\w-]+)", PAGES[group], re.MULTILINE)
    assert {group for group, _ in rows} == set(PAGES)


def test_the_errors_are_documented_with_their_codes_and_exit_codes() -> None:
    page = (REFERENCE / "errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]*\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    raised = [one for one in classes if issubclass(one, errors.CheckpointError)]
    assert sorted(rows) == sorted((one.__name__, one.code, str(one.exit_code)) for one in raised)
    assert {str(failure.INTERRUPTED), str(failure.BROKEN_PIPE)} <= set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))


def configuration(part: str) -> str:
    page = (REFERENCE / "configuration.md").read_text()
    return page.partition(f"\n## {part}\n")[2].partition("\n## ")[0]


def test_every_variable_of_the_environment_is_documented() -> None:
    read = re.compile(r'(?:environ(?:\.get\(|\[)|_user_folder\()"(\w+)"')
    files = [*Path(failure.__file__).parent.glob("*.py"), *Path(location.__file__).parent.glob("*.py")]
    named = {location.VARIABLE, invocation.NETWORK}
    names = {name for file in files for name in read.findall(file.read_text())} | named
    assert {"NO_COLOR", "TERM", "XDG_DATA_HOME", "XDG_STATE_HOME"} <= names
    for name in names:
        assert f"`{name}`" in configuration("Environment")


def test_every_key_of_the_configuration_file_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", configuration("lastgood.toml"), re.MULTILINE)
    assert set(documented) == set(location.Config._fields) - {"folder"}


def test_every_option_of_opening_a_store_is_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", configuration("Options of lastgood.open"), re.MULTILINE)
    assert documented == list(lastgood.types.Options.__struct_fields__)


def keys_of(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys_of(item)}
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item)}
    return set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["init"], ["save", "--set", "n=4"], ["log"], ["show"], ["diff"], ["tag"], ["tag", "b", "HEAD"],
        ["tag", "--delete", "a"], ["verify", "--all"], ["check", "--read-data"],
        ["rm", "@1"], ["rm", "--whole-task", "work", "--yes"], ["tasks"],
        ["status"], ["spool"], ["spool", "--replay"], ["repair", "--accept-loss"],
        ["completion", "zsh"], ["history"],
        ["run-step", "s", "--", "true"], ["last-good"], ["restore", "@1"], ["undo"], ["branch"],
        ["fork", "--name", "side"], ["branch", "--switch", "main"], ["branch", "--delete", "other", "--yes"], ["steps"],
        ["diff", "@4", "--files"], ["diff", "@1", "HEAD"], ["ls", "-R"], ["cat", "HEAD:file"], ["redo"],
        ["du"], ["du", "work"], ["du", "--checkpoints"], ["collect"], ["collect", "--grace", "0", "--dry-run"],
        ["limit", "1G"], ["limit", "200k", "--dry-run"],
        ["restore", "@4", "--dry-run"], ["restore", "@4", "--to", "copy"], ["restore", "@4", "--path", "file"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_key_of_every_answer_is_documented(run: Callable[..., Any], three: Path, arguments: list[str]) -> None:
    (three / "lastgood.toml").write_text('store = ".lastgood"\nworkspace = "."\n')
    (three / "file").write_text("one\n")
    (three / ".env").write_text("a secret")
    run("save", "-m", "with files")
    (three / "file").write_text("two\n")
    run("tag", "a", "HEAD")
    run("fork", "--name", "other")
    run("restore", "@4", "--what", "files")
    run("restore", "@1")
    run("restore", "@4")
    run("undo")
    (three / "file").write_text("three\n")
    with lastgood.open(three / ".lastgood") as store:
        store.task("work").step("in flight").begin()
    answer = json.loads(run("--json", *arguments).stdout)
    stored = {"n", "name", "move", "$bytes"}  # keys of the state, of what a tag attests, and a value JSON lacks
    stored |= {"exit_code", "actual_exit_code", "command", "duration"}  # keys of evidence
    assert keys_of(answer) - stored <= documented_keys(section(arguments[0]) + OBJECTS)


def test_every_key_of_the_answers_about_work_is_documented(run: Callable[..., Any], three: Path) -> None:
    with lastgood.open(three / ".lastgood") as store:
        task = store.task("work")
        task.save({}, artifacts=[{"name": "prompt", "content": "x"}], control_state="running")
        task.save({}, control_state="waiting_for_input", metadata={"question": QUESTION})
        HeldLease(store._engine, store.user, task.owner, "a program", 0.0).acquire(task.branch_id or "")
        task.control.add_rounds(2, id="open")
    for arguments in (
        ["answer"], ["answer", "work", "yes"], ["guide", "work", "shorter"],
        ["edit", "work", "prompt", "--file", "lastgood.toml"],
        ["pause"], ["resume"], ["rounds", "work", "1"], ["stop"], ["retry"], ["requests"], ["status"], ["history"],
        ["requests", "--withdraw", "open"],
    ):  # fmt: skip
        answer = json.loads(run("--json", *arguments).stdout)
        told = OBJECTS + section(arguments[0])
        told += STEERING if "--wait" in section(arguments[0]) else ""
        assert keys_of(answer) - {"n", "answered"} <= documented_keys(told), arguments


QUESTION = {"id": "q", "key": "q", "text": "Deploy?", "choices": ["yes", "no"]}
