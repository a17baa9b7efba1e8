"""The command as a process: streams, exit codes, start-up."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

import lastgood
from lastgood.cli.app import COMMANDS, app
from lastgood.cli.examples import EXAMPLES
from lastgood.cli.invocation import Invocation
from lastgood.errors import UnavailableError

Run = Callable[..., Any]


def imported_by(*arguments: str) -> set[str]:
    code = "import sys; from lastgood.cli.main import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    return set(done.stderr.splitlines()[-1].split())


def test_the_version_is_answered_alone_on_stdout(process: Run) -> None:
    done = process("--version")
    assert (done.stdout, done.stderr, done.returncode) == (f"lastgood {lastgood.__version__}\n", "", 0)
    assert process("--json", "--version").stdout == done.stdout


def test_the_version_imports_neither_click_nor_the_engine(folder: Path) -> None:
    assert not {"click", "msgspec", "apsw", "lastgood.errors"} & imported_by("--version")


def test_log_imports_nothing_that_it_does_not_need(three: Path) -> None:
    modules = imported_by("log")
    assert "lastgood.cli.log" in modules
    unneeded = {"rich", "json", "subprocess", "logging", "dataclasses", "lastgood.cli.save"}
    assert not unneeded & modules
    assert not {"lastgood.task", "lastgood.model.evidence", "lastgood.cli.history", "lastgood.views.branch"} & modules
    assert not {"lastgood.spool.spool", "lastgood.upkeep.housekeeping", "lastgood.cli.background"} & modules


def test_status_needs_nothing_of_the_runner_for_work_that_asks_nothing(three: Path) -> None:
    modules = imported_by("status")
    assert "lastgood.views.status" in modules
    assert not {name for name in modules if name.startswith("lastgood.work")}
    assert "lastgood.cli.asking" not in modules


def test_help_imports_no_command(folder: Path) -> None:
    assert not {f"lastgood.cli.{module}" for module, _ in COMMANDS.values()} & imported_by("--help")


def test_options_may_stand_before_or_after_the_command(run: Run, data: Run, three: Path) -> None:
    before = json.loads(run("--json", "--task", "work", "log").stdout)
    assert before == data("log", "--task", "work")


def test_the_later_option_wins(run: Run, three: Path) -> None:
    run("--task", "nothing", "log", "--task", "work")
    run("--task", "work", "log", "--task", "nothing", code=3)


def test_data_goes_to_stdout_and_errors_to_stderr_without_a_traceback(process: Run, three: Path) -> None:
    good = process("log")
    assert (good.returncode, good.stderr) == (0, "")
    bad = process("show", "nothing")
    assert (bad.returncode, bad.stdout) == (3, "")
    assert bad.stderr == "error: there is no checkpoint 'nothing'\nhint: `lastgood log` lists them\n"


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["show", "nothing"], "not_found", 3),
        (["bogus"], "usage", 2),
        (["log", "--bogus"], "usage", 2),
        (["log", "-n", "0"], "usage", 2),
        (["save"], "invalid", 2),
        (["rm", "HEAD"], "conflict", 4),
    ],
)
def test_with_json_an_error_is_one_object_on_stderr(
    run: Run, three: Path, arguments: list[str], code: str, exit_code: int
) -> None:
    result = run(*arguments, "--json", code=exit_code)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["code"] == code
    assert error["detail"]
    assert error["hint"]


def test_a_hostile_name_is_quoted_harmlessly_in_errors(run: Run, three: Path) -> None:
    for name in ("x\x1b[2J", "x\udcff", "x\x9b"):
        for options in ([], ["--json"]):
            assert not set(run("log", "--bogus" + name, *options, code=2).stderr) & set("\x1b\x9b\udcff")


def test_a_failed_save_is_said_once(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lastgood.catalog.sqlite.catalog import SQLiteCatalog

    def refuse(*_: object) -> None:
        raise UnavailableError("the disk reported an error", hint="look at it")

    monkeypatch.setattr(SQLiteCatalog, "commit", refuse)
    assert "the disk reported an error" in run("save", "--set", "n=1").stdout
    assert run("spool", "--replay", code=6).stderr.count("the disk reported an error") == 1
    assert "1 checkpoint waits for the store" in run("status").stdout
    monkeypatch.undo()


def test_the_engines_own_log_stays_out_of_stderr(process: Run, folder: Path) -> None:
    big = folder / "big.json"
    big.write_text(json.dumps("x" * (1 << 20)))
    done = process("save", "--state", str(big), "--json")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_path_that_cannot_be_used_is_an_error_in_words(run: Run, folder: Path) -> None:
    (folder / "file").write_text("not a store")
    assert "Traceback" not in run("save", "--set", "a=1", "--store", "file/below", code=6).stderr
    run("save", "--set", "a=1", "--store", "file", code=2)
    run("init", "file", code=6)


def test_a_closed_pipe_is_quiet(three: Path) -> None:
    command = [sys.executable, "-m", "lastgood.cli.main", "show", "--state"]
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_ctrl_c_ends_with_130(run: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lastgood.cli.invocation import Invocation

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Invocation, "open", interrupt)
    assert "Traceback" not in run("log", code=130).stderr


def test_output_is_colored_on_a_terminal_only_and_never_with_no_color(
    process: Run, on_a_terminal: Run, three: Path
) -> None:
    assert "\x1b[" in on_a_terminal("diff", NO_COLOR="")
    assert "\x1b[" not in on_a_terminal("diff", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal("diff", TERM="dumb")
    assert "\x1b[" not in process("diff").stdout


def test_output_survives_an_encoding_that_lacks_the_characters(process: Run, three: Path, run: Run) -> None:
    run("save", "--set", "n=9", "-m", "done ✓")
    done = process("log", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert "done \\u2713" in done.stdout


def test_without_arguments_the_help_is_shown_as_a_usage_error(run: Run) -> None:
    result = run(code=2)
    assert result.stdout == ""
    assert "Go back:" in result.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    assert "_LASTGOOD_COMPLETE" in run("completion", shell).stdout


def test_the_shell_is_told_the_commands(process: Run) -> None:
    done = process(_LASTGOOD_COMPLETE="zsh_complete", COMP_WORDS="lastgood ver", COMP_CWORD="1")
    assert "verify" in done.stdout


def test_every_command_has_the_shared_options_and_a_help(run: Run) -> None:
    context = click.Context(app)
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
        given = {option for parameter in command.params for option in parameter.opts}
        assert {"--store", "--task", "--user", "--owner", "--json"} <= given


def test_every_help_has_two_examples_that_the_command_takes() -> None:
    """first-use.md: commands in groups, two examples in each help."""
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        assert len(EXAMPLES[name]) == 2
        for line in EXAMPLES[name]:
            typed, *words = shlex.split(re.split(r" (?:<|>+) ", line)[0])
            assert typed == name
            command.make_context(name, words, resilient_parsing=False, obj=Invocation())


@pytest.mark.parametrize("words", [("-h",), ("help",), ("--help",)])
def test_help_is_found_in_each_usual_way(process: Run, words: tuple[str, ...]) -> None:
    assert process(*words).stdout == process("--help").stdout
    assert process("help", "restore").stdout == process("restore", "-h").stdout
    assert process("version").stdout == process("--version").stdout


@pytest.mark.parametrize(
    ("typed", "meant"), [("rewind", "restore"), ("gc", "collect"), ("statsu", "status"), ("switch", "branch --switch")]
)
def test_a_wrong_command_is_answered_with_the_right_one(run: Run, typed: str, meant: str) -> None:
    assert f"did you mean `lastgood {meant}`?" in run(typed, code=2).stderr


def test_python_m_lastgood_is_the_command_line(process: Run) -> None:
    done = subprocess.run([sys.executable, "-m", "lastgood", "version"], capture_output=True, text=True, check=True)
    assert done.stdout == process("version").stdout


@pytest.mark.parametrize("command", ["restore", "log", "limit"])
def test_the_help_of_a_command_ends_with_its_examples(run: Run, command: str) -> None:
    shown = run(command, "--help").stdout.partition("\nExamples:\n")[2].splitlines()
    assert shown == [f"  lastgood {line}" for line in EXAMPLES[command]]
