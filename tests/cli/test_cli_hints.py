"""Sentences: hints of the library name calls, those of the command line commands; words of the source stay there."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.cli.app import COMMANDS
from lastgood.cli.failure import in_commands
from lastgood.cli.invocation import Invocation

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


def printed_commands(text: str) -> list[str]:
    return [" ".join(found.split()) for found in re.findall(r"`lastgood ([^`]+)`", text)]


@pytest.fixture
def far(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A store that has to be named, in a path with a space, and the options that name it, and its task."""
    (folder / "my app").mkdir()
    (folder / "my app/a.txt").write_text("one")
    run("init", "my app", "--task", "a b")
    return ["--store", "my app/.lastgood", "--task", "a b", "--user", "ann"]


def test_commands_that_are_printed_act_on_the_store_that_was_given(run: Run, far: list[str]) -> None:
    given = "--store 'my app/.lastgood' --task 'a b' --user ann"
    run(*far, "save", "--workspace", "my app")
    missing = run(*far, "show", "nothing", code=3).stderr
    assert printed_commands(missing) == [f"{given} log"]
    assert (
        f"`lastgood {given} log`" in json.loads(run(*far, "show", "nothing", "--json", code=3).stderr)["error"]["hint"]
    )
    forked = run(*far, "fork", "HEAD", "--name", "b").stdout
    assert printed_commands(forked) == [f"{given} branch --switch b"]
    Path("my app/a.txt").write_text("two")
    restored = run(*far, "restore", "@1", "--workspace", "my app")
    assert printed_commands(restored.stderr) == [f"{given} undo --workspace 'my app'"]
    run(*shlex.split(printed_commands(restored.stderr)[0]))
    assert Path("my app/a.txt").read_text() == "two"


def test_a_command_that_names_its_task_gets_no_second_one(run: Run, data: Run, three: Path) -> None:
    branch = data("fork", "HEAD", "--name", "p", "--paused")["branchId"]
    advice = data("--store", ".lastgood", "--task", "p", "status")["advice"]
    assert printed_commands(" ".join(advice)) == [f"--store .lastgood resume {branch}"]
    assert "`lastgood show --help`" in run("--store", "x", "show", "--what", code=2).stderr


@pytest.mark.parametrize(
    "words",
    [["log", "--all", "-n", "1", "--before", "3"], ["history", "--kind", "created", "-n", "1"], ["tasks", "-n", "1"]],
    ids=lambda words: words[0],
)
def test_the_next_page_is_one_of_the_same_list(run: Run, three: Path, words: list[str]) -> None:
    run("save", "--task", "other", "--set", "n=1")
    first = run("--store", ".lastgood", *words)
    [again] = printed_commands(first.stderr)
    kept = shlex.split(again)[:-2]
    assert kept == [word for word in ["--store", ".lastgood", *words] if word not in ("--before", "3")]
    assert run(*shlex.split(again)).stdout != first.stdout


PLAIN = {
    "place_text(saved)",  # a number
    "chosen.sequence",
    "place_text(chosen)",
    "short_id(request.id)",
    "branch",  # quoted already
    "name",
    "noun",  # a word of the source
    "close[0]",
    "FOR_PATHS[self.name]",
    "found[1]",  # printed commands, with options that `join` has quoted
    "self._with_options(found[1])",
}
"""What stands in printed commands as it is: nobody else can choose it."""


def unquoted(source: str) -> list[str]:
    """What f-strings put between "`lastgood" and the next backtick without quoting it."""
    found = []
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        inside = False
        for part in text.values:
            if isinstance(part, ast.Constant):
                *before, last = str(part.value).split("`")
                inside = last.startswith("lastgood") if before else inside
            elif inside and isinstance(part, ast.FormattedValue):
                value = part.value
                is_quoted = isinstance(value, ast.Call) and ast.unparse(value.func) in ("quote", "join")
                found += [] if is_quoted else [ast.unparse(value)]
    return found


def test_every_value_in_a_printed_command_is_quoted() -> None:
    """A hint had been `lastgood trust /home/ann/my docs;touch PWNED/lastgood.toml`, to be pasted into a shell."""
    assert unquoted('f"x {y} `lastgood rm {a} {quote(b)}` {c}"') == ["a"]
    found = {file.name: set(unquoted(file.read_text())) - PLAIN for file in sorted(SOURCE.rglob("*.py"))}
    assert {name: values for name, values in found.items() if values} == {}


def test_a_path_with_a_command_in_it_is_quoted_where_it_is_printed(run: Run, folder: Path) -> None:
    place = folder / "my docs;touch PWNED"
    place.mkdir()
    (place / "lastgood.toml").write_text('store = ".lastgood"\n')
    os.chdir(place)
    assert printed_commands(run("log", code=3).stderr) == [f"init {shlex.quote(str(place))}"]
    (place / "lastgood.toml").write_text('store = "/elsewhere"\n')
    assert printed_commands(run("log", code=7).stderr) == [f"trust {shlex.quote(str(place / 'lastgood.toml'))}"]


def test_a_name_in_a_hint_of_the_library_is_quoted_in_a_command() -> None:
    assert in_commands("store.abandon_step('a;touch PWNED')") == "`lastgood steps --abandon 'a;touch PWNED'`"


def completed(command: str, *options: str) -> str:
    """A command as it is printed when the present one was given these options."""
    call = Invocation()
    for name, value in zip(options[::2], options[1::2], strict=True):
        setattr(call, name.removeprefix("--"), (value,) if name == "--workspace" else value)
    return call.complete(f"`lastgood {command}`")


def test_options_of_printed_commands_stand_before_the_paths() -> None:
    """They had been paths themselves: `lastgood diff -- app.py --workspace ws`."""
    told = completed("diff -- app.py 'my app'", "--workspace", "ws", "--task", "t")
    assert told == "`lastgood --task t diff --workspace ws -- app.py 'my app'`"
    quoted = completed("restore HEAD 'a -- b' 'it'\"'\"'s `x`'", "--workspace", "ws")
    assert quoted == "`lastgood restore HEAD 'a -- b' 'it'\"'\"'s `x`' --workspace ws`"


def test_a_task_that_is_called_like_a_command_or_a_file_is_named_all_the_same() -> None:
    assert completed("undo", "--task", "undo") == "`lastgood --task undo undo`"
    assert completed("restore HEAD app", "--task", "app") == "`lastgood --task app restore HEAD app`"
    assert completed("branch --switch app", "--task", "app") == "`lastgood --task app branch --switch app`"
    assert completed("resume app", "--task", "app") == "`lastgood resume app`"
    assert completed("answer undo", "--task", "undo", "--workspace", "ws") == "`lastgood answer undo`"
    assert completed("--store s undo", "--task", "s", "--workspace", "ws") == (
        "`lastgood --task s --store s undo --workspace ws`"
    )


def test_a_secret_in_a_folder_with_a_colon_is_kept_by_its_own_path(run: Run, folder: Path) -> None:
    (folder / "x:y").mkdir()
    (folder / "x:y" / ".env").write_text("KEY=1")
    assert "echo '!/x:y/.env' >> .lastgoodignore" in run("init").stderr
    (folder / "other").mkdir()
    (folder / "other" / ".env").write_text("KEY=1")
    both = run("save", "--workspace", "a=x:y", "--workspace", "b=other", "--task", "two").stderr
    assert "echo '!/.env' >> .lastgoodignore" in both


def test_hints_name_the_checkpoint_that_they_are_about(run: Run, data: Run, three: Path) -> None:
    second = data("show", "@2")["id"]
    run("rm", "@2")
    [undo] = printed_commands(run("restore", second, code=4).stderr)
    assert undo == f"rm --undo {second}"
    run(*shlex.split(undo))
    assert run("show", second).stdout
    assert "begin" not in in_commands("or begin the session with restart=True")
    assert in_commands("open the task with that workspace, which undoes it") == (
        "run `lastgood restore HEAD --dry-run` there, which undoes it"
    )
