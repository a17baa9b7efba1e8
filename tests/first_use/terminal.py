"""A person at a terminal of 80 columns and 24 lines: a shell in a home of its own, and its screen as text."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import struct
import termios
from fcntl import ioctl
from pathlib import Path
from typing import Self

COLUMNS, LINES = 80, 24
PATIENCE = 60
"""Seconds without a byte on the terminal after which a test fails."""

PROMPT = re.compile(r"\x1b\]2;(\d+)\x07\$ \Z")
"""What the shell prints when a command has ended: its exit code, as the window's title, and `$ `."""


class Terminal:
    """A shell on a terminal. `run` types a command and waits for the prompt after it; `type`, `wait_for` and `end` are
    for commands that stay."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        bash = shutil.which("bash") or "bash"
        self._shown, self._seen = "", 0
        self._pid, self._descriptor = pty.fork()
        if not self._pid:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
            os.chdir(home)
            given = {**environment, "TERM": "xterm", "PS1": r"\e]2;$?\a$ ", "HISTFILE": ""}
            os.execve(bash, [bash, "--norc", "--noprofile", "--noediting", "-i"], given)
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def run(self, command: str, code: int = 0) -> str:
        """Run a command, whose exit code must be `code`; what it showed."""
        start = len(self._shown)
        self.type(f"{command}\n")
        assert self.end() == code, self.screen
        return as_text(self._shown[start:]).partition("\n")[2].removesuffix("$ ")

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())
        if keys.endswith("\n"):
            self.wait_for("\r\n")

    def wait_for(self, text: str) -> None:
        """Read until `text` is shown, after all that was waited for before."""
        while text not in self._shown[self._seen :]:
            self._read()
        self._seen = self._shown.index(text, self._seen) + len(text)

    def end(self) -> int:
        """Read until the next prompt; the exit code of the command before it."""
        while (prompt := PROMPT.search(self._shown, self._seen)) is None:
            self._read()
        self._seen = len(self._shown)
        return int(prompt[1])

    def _read(self) -> None:
        assert select.select([self._descriptor], [], [], PATIENCE)[0], f"nothing more was shown:\n{self._shown}"
        self._shown += os.read(self._descriptor, 1 << 16).decode(errors="replace")

    @property
    def screen(self) -> str:
        """All that was shown, as it would be read if the window were high enough."""
        return as_text(self._shown).removesuffix("$ ")


def as_text(shown: str) -> str:
    """Return the lines that are left on a terminal: without colours, and without what was written over."""
    shown = re.sub(r"\x1b\]2;\d+\x07|\x1b\[[\d;]*m", "", shown).replace("\r\n", "\n")
    return "\n".join(_line(line) for line in shown.split("\n"))


def _line(line: str) -> str:
    left = ""
    for part in line.split("\r"):
        left = part + left[len(part) :]
    return left if left == "$ " else left.rstrip()
