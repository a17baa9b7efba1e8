"""Runs the code of one page as a reader would: `python tests/docs/page.py PAGE`, in an empty folder.

Blocks run in their order, in one Python and one shell that share the folder:

- `python` is executed. One whose first line is a comment with a file name (`# agent.py`) is written into that file.
- `toml` is written into the file that its first line names.
- `console` has commands after `$ `, which run in the shell and must end with 0; the lines after a command, if there are
  any, are what it has to print. `…` stands for anything; ids, times, ages, sizes and the width of gaps may differ.
- Any other block is not code that runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

HOME = "/home/ada"
"""The folder of the reader, as pages show it."""

CHANGING = [
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "WHOLE-ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (bytes|[KMG]iB)"), "SIZE"),
    (re.compile(r"\b(now|\d+[smh])\b"), "AGE"),
    (re.compile(r"(?<=\S)\s{2,}"), " "),
]


class Block(NamedTuple):
    """A block of code of a page. `line` is that of its first line."""

    language: str
    code: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


class Shell:
    """A shell that stays for the whole page, so that `cd` and `export` last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(["bash", "--norc"], stdin=pipe, stdout=pipe, cwd=folder, text=True)

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit code of a command, and what it printed on both streams."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        mark = "<end of the command>"
        self._process.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; printf '\\n%s%s\\n' '{mark}' $?\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(mark):
                return int(line.removeprefix(mark)), "".join(said)[:-1].replace(str(self._folder), HOME)
            said.append(line)
        raise AssertionError(f"the shell has ended: {command}")

    def close(self) -> None:
        self._process.communicate()


def commands(code: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block, with what the page says that it prints."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        here = re.search(r"<<'?(\w+)'?", lines[0])
        if here is not None:
            count = lines.index(here[1]) + 1
        while lines[count - 1].endswith("\\"):
            count += 1
        yield "\n".join(lines[:count]), "\n".join(lines[count:])


def settled(text: str) -> str:
    """Replace what is different in each run."""
    for pattern, name in CHANGING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def matches(shown: str, printed: str) -> bool:
    parts = [re.escape(part) for part in settled(shown).split("…")]
    return re.fullmatch(".*".join(parts), settled(printed), re.DOTALL) is not None


def run_page(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with closing(Shell(Path.cwd())) as shell:
        for block in blocks(page.read_text()):
            first = re.match(r"# ([\w./-]+\.(?:py|toml))\n", block.code)
            if block.language == "console":
                run_console(shell, block, page)
            elif block.language in ("python", "toml") and first is not None:
                Path(first[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(first[1]).write_text(block.code)
            elif block.language == "python":
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)


def run_console(shell: Shell, block: Block, page: Path) -> None:
    for command, shown in commands(block.code):
        code, printed = shell.run(command)
        where = f"{page}, line {block.line}: {command!r}"
        assert code == 0, f"{where} ended with {code}:\n{printed}"
        assert not shown or matches(shown, printed), f"{where} printed\n{printed}\nand not\n{shown}"


def environment(folder: Path) -> dict[str, str]:
    """Return an environment for the runner: programs named as pages do, and a user without a past."""
    programs = folder / ".programs"
    programs.mkdir()
    for name, module in (("lastgood", "-m lastgood.cli.main "), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error {module}"$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LASTGOOD_", "PYTHON"))}
    return {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / ".share"),
        "XDG_STATE_HOME": str(folder / ".state"),
        "LOGNAME": "ada",
        "USER": "ada",
        "COLUMNS": "80",
        "LC_ALL": "C.UTF-8",
    }


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
