"""What Tab offers, asked as shells ask it: through the environment, and by a real bash."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from lastgood.cli import completion
from lastgood.cli.app import COMMANDS, app

Run = Callable[..., Any]
Complete = Callable[..., list[str]]

HOSTILE = [
    "a$(touch RUN).txt",
    "a`touch RUN`.txt",
    "a'b\".txt",
    "a b;touch RUN.txt",
    "a!b.txt",
    "a*.txt",
    "a,b.txt",
    "~a",
]
BROKEN = ["a\nb.txt", "a\x1b[2J.txt", "a\tb.txt"]


@pytest.fixture
def store(run: Run, folder: Path) -> Path:
    """A store with files, two checkpoints, a tag and a branch."""
    (folder / "README").write_text("first\n")
    run("init")
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("print()\n")
    (folder / "src" / "my file.txt").write_text("mine\n")
    run("save", "-m", "a second one")
    run("tag", "green", "@2")
    run("fork", "@2", "--name", "try-b")
    return folder


@pytest.fixture
def complete(process: Run) -> Complete:
    """Return what bash is told for a line; `word` is what bash takes for the last word, which it replaces."""

    def complete(line: str, word: str | None = None) -> list[str]:
        word = line.rpartition(" ")[2] if word is None else word
        done = process(_LASTGOOD_COMPLETE="bash_complete", COMP_LINE=line, COMP_WORD=word)
        assert done.stderr == ""
        return [value for kind, _, value in (text.partition(",") for text in done.stdout.splitlines()) if kind]

    return complete


def content(folder: Path) -> dict[str, str]:
    """Hash every file below a folder; not the index of the log, which readers share."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith("-shm")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    ("line", "word", "offered"),
    [
        ("lastgood show ", "", ["HEAD", "last-good", "green", "@3", "@2", "@1"]),
        ("lastgood show g", "g", ["green"]),
        ("lastgood show @", "", ["3", "2", "1"]),
        ("lastgood restore @", "@", ["@3", "@2", "@1"]),
        ("lastgood fork @2", "2", ["2"]),
        ("lastgood diff @1 H", "H", ["HEAD"]),
        ("lastgood verify gr", "gr", ["green"]),
        ("lastgood rm @1 @2", "2", ["2"]),
        ("lastgood tag --delete ", "", ["green"]),
        ("lastgood branch --switch ", "", ["main", "try-b"]),
        ("lastgood branch --delete=t", "t", ["try-b"]),
        ("lastgood --task ", "", ["work"]),
        ("lastgood log --task w", "w", ["work"]),
        ("lastgood du w", "w", ["work"]),
        ("lastgood cat H", "H", ["HEAD:"]),
        ("lastgood ls H", "H", ["HEAD"]),
        ("lastgood ls HEAD:s", "s", ["src/"]),
        ("lastgood cat HEAD:src/m", "src/m", ["src/main.py", "src/my\\ file.txt"]),
        ("lastgood cat HEAD:src/my\\ f", "src/my\\ f", ["src/my\\ file.txt"]),
        ("lastgood cat 'HEAD:src/m", "HEAD:src/m", ["HEAD:src/main.py"]),
        ("lastgood cat @1:s", "s", []),
        ("lastgood cat @2 src/m", "src/m", ["src/main.py", "src/my\\ file.txt"]),
        ("lastgood ls @2 s", "s", ["src/"]),
        ("lastgood restore @2 src/ma", "src/ma", ["src/main.py"]),
        ("lastgood restore @2 --path src/ma", "src/ma", ["src/main.py"]),
        ("lastgood restore @2 --path=src/ma", "src/ma", ["src/main.py"]),
        ("lastgood restore @1 --path s", "s", []),
        ("lastgood resto", "resto", ["restore"]),
        ("lastgood bogus ", "", None),
        ("lastgood show --bogus ", "", None),
        ("lastgood show nothing:", "", []),
        ("lastgood cat nothing:", "", []),
        ("lastgood 'show @", "show @", []),
    ],
)
def test_values_are_completed_from_the_store(
    complete: Complete, store: Path, line: str, word: str, offered: list[str] | None
) -> None:
    found = complete(line, word)
    assert offered is None or found == offered


@pytest.mark.parametrize("line", ["cat @2:m", "cat @2 m", "ls @2 m", "restore @2 m", "restore @2 --path m"])
def test_paths_begin_at_the_current_folder(
    complete: Complete, store: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """As they do when the command runs."""
    monkeypatch.chdir(store / "src")
    assert complete(f"lastgood {line}", "m") == ["main.py", "my\\ file.txt"]
    assert complete(f"lastgood {line[:-1]}../R", "../R") == ["../README"]


def test_open_steps_are_completed(complete: Complete, store: Path) -> None:
    import lastgood

    with lastgood.open() as opened:
        step = opened.task("work").step("edit").begin()
        assert complete("lastgood steps --abandon ", "") == [step.id]


def test_a_sequence_is_found_among_many(complete: Complete, run: Run, folder: Path) -> None:
    import lastgood

    (folder / "README").write_text("first\n")
    run("init")
    with lastgood.open() as store:
        task = store.task("work")
        for number in range(130):
            task.append({"n": number})
    assert complete("lastgood show @1", "1")[:3] == ["1", "19", "18"]
    assert complete("lastgood show @12", "12") == [
        "12",
        "129",
        "128",
        "127",
        "126",
        "125",
        "124",
        "123",
        "122",
        "121",
        "120",
    ]
    assert complete("lastgood show @" + "1" * 40, "1" * 40) == []


@pytest.mark.parametrize("word", ["version", "--version", "help"])
def test_completing_after_the_version_does_not_print_it(process: Run, store: Path, word: str) -> None:
    done = process(_LASTGOOD_COMPLETE="zsh_complete", COMP_WORDS=f"lastgood {word} ", COMP_CWORD="2")
    assert "lastgood 0" not in done.stdout
    assert "lastgood 1" not in done.stdout
    assert done.stderr == ""


def test_zsh_and_fish_are_told_the_same_with_descriptions(process: Run, store: Path) -> None:
    zsh = process(_LASTGOOD_COMPLETE="zsh_complete", COMP_WORDS="lastgood show @2", COMP_CWORD="2")
    assert zsh.stdout == "plain\n@2\na second one\n"
    fish = process(_LASTGOOD_COMPLETE="fish_complete", COMP_WORDS="lastgood show @2", COMP_CWORD="@2")
    assert fish.stdout == "plain,@2\ta second one\n"
    option = process(_LASTGOOD_COMPLETE="zsh_complete", COMP_WORDS="lastgood log --task=w", COMP_CWORD="2")
    assert "--task=work" in option.stdout


ROWS = {
    "checkpoints": {"complete_checkpoints", "complete_files"},
    "files of a checkpoint": {"complete_files", "complete_inside"},
    "tags": {"complete_tags"},
    "branches": {"complete_branches"},
    "tasks": {"complete_tasks", "_complete_task"},
    "open steps": {"complete_steps"},
    "requests": {"complete_requests"},
    "artifacts": {"complete_artifacts"},
    "the choices of a question": {"complete_answers"},
}


def test_the_documentation_lists_all_that_is_completed() -> None:
    """And no more: each row of the table is compared with the arguments and options that have such values."""
    known = {id(value): name for name, value in vars(completion).items() if name.startswith("complete_")}
    used: dict[str, set[str]] = {}
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        for param in command.params if command else ():
            if (how := param._custom_shell_complete) is None:
                continue
            shown = {"work": "[TASK]", "task": "--task"}.get(param.name or "", name)
            if isinstance(param, click.Option) and shown == name and param.opts[0] != "--path":
                shown = f"{name} {param.opts[0]}"
            used.setdefault(known.get(id(how), how.__name__), set()).add(shown)
    page = (Path(__file__).parents[2] / "docs/reference/commands/start.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+?)(?::[^|]*|, from[^|]*)? \| (`.*`) \|$", page, re.MULTILINE))
    for row, completers in ROWS.items():
        assert set(re.findall(r"`([^`]+)`", rows[row])) == set().union(*(used[one] for one in completers)), row
    assert set().union(*ROWS.values()) == set(used)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_is_documented_is_the_one_that_is_printed(run: Run, shell: str) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/commands/start.md").read_text()
    assert f"lastgood completion {shell}" in page
    assert "_LASTGOOD_COMPLETE=" in run("completion", shell).stdout


def test_a_comma_does_not_cut_a_name_in_fish(run: Run) -> None:
    assert 'string split -m1 ","' in run("completion", "fish").stdout


def test_completing_writes_nothing_and_makes_no_store(complete: Complete, store: Path, tmp_path: Path) -> None:
    before = content(tmp_path)
    assert complete("lastgood cat HEAD:src/m", "src/m")
    assert complete("lastgood show ", "")
    assert complete("lastgood show --store nowhere ", "") == []
    assert content(tmp_path) == before
    assert not (store / "nowhere").exists()


def test_completing_leaves_alone_what_is_spooled(
    complete: Complete, store: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lastgood.catalog.sqlite.catalog import SQLiteCatalog
    from lastgood.errors import UnavailableError

    def refuse(*_: object) -> None:
        raise UnavailableError("the disk reported an error", hint="look at it")

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteCatalog, "commit", refuse)
        assert "spooled" in run("save", "--set", "n=1").stdout
    before = content(tmp_path)
    assert complete("lastgood show g", "g") == ["green"]
    assert content(tmp_path) == before


def test_completing_waits_for_no_writer(complete: Complete, store: Path) -> None:
    with (store / ".lastgood" / "catalog.sqlite-lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert complete("lastgood show g", "g") == ["green"]


def test_a_config_that_is_not_trusted_is_not_obeyed(complete: Complete, store: Path) -> None:
    (store / "lastgood.toml").chmod(0o666)
    assert complete("lastgood show ", "") == []


def test_a_damaged_store_and_none_offer_nothing(complete: Complete, store: Path) -> None:
    (store / ".lastgood" / "catalog.sqlite").write_bytes(b"SQLite format 3\0" + os.urandom(5000))
    assert complete("lastgood show ", "") == []
    shutil.rmtree(store / ".lastgood")
    assert complete("lastgood show ", "") == []
    assert not (store / ".lastgood").exists()


def test_a_hostile_name_is_one_word_for_bash_or_is_not_offered(complete: Complete, run: Run, folder: Path) -> None:
    run("init")
    for name in HOSTILE + BROKEN:
        (folder / name).write_text(name)
    run("save")
    offered = complete("lastgood cat HEAD:", "")
    script = 'eval "set -- $1"; printf "%s\\n" "$#" "$1"'
    read = [subprocess.run(["bash", "-c", script, "bash", value], capture_output=True, text=True) for value in offered]
    assert {done.stdout for done in read} == {f"1\n{name}\n" for name in [*HOSTILE, "lastgood.toml"]}
    assert not (folder / "RUN").exists()
    assert complete("lastgood cat 'HEAD:a", "HEAD:a") == ["HEAD:a,b.txt"]


def test_a_real_bash_completes_and_runs_nothing_of_a_name(run: Run, folder: Path, tmp_path: Path) -> None:
    run("init")
    (folder / "evil$(touch RUN) x.txt").write_text("content of the file")
    run("save")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "lastgood"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m lastgood.cli.main "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "TERM": "dumb", "PS1": "ready> "}
    shell = [shutil.which("bash") or "bash", "--norc", "--noprofile", "-i"]
    pid, terminal = pty.fork()
    if not pid:
        os.execve(shell[0], shell, environment)
    try:
        read_until(terminal, b"ready> ")
        os.write(terminal, b'eval "$(lastgood completion bash)"; echo on\n')
        read_until(terminal, b"\non")
        os.write(terminal, b"lastgood cat @1:ev\t")
        read_until(terminal, b"x.txt ")
        os.write(terminal, b"\n")
        read_until(terminal, b"content of the file")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    assert not (folder / "RUN").exists()


def read_until(terminal: int, text: bytes) -> None:
    """Read what the terminal shows until `text` is among it."""
    shown = b""
    while text not in shown.replace(b"\r", b""):
        assert select.select([terminal], [], [], 30)[0], shown
        shown += os.read(terminal, 4096)
