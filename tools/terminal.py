"""The picture of a terminal in the README: real commands in a folder of their own, and what they print.

`python -m tools.terminal` makes docs/terminal.svg anew; a test compares it with what the commands print today.
"""

from __future__ import annotations

import os
import pty
import re
import struct
import sys
import tempfile
import termios
from collections.abc import Iterator
from fcntl import ioctl
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "terminal.svg"
COLUMNS = 80

FILES = {
    "shop.py": "def price(net):\n    return round(net * 1.19, 2)\n",
    "check": "#!/bin/sh\ngrep -q 1.19 shop.py\n",
    "agent": '#!/bin/sh\necho "def price(net): return net" > shop.py\necho done > notes.txt\n',
}

STORY = [
    'lastgood save -m "before the agent"',
    "lastgood run-step agent -- ./agent",
    "lastgood run-step tests -- ./check",
    "lastgood diff --stat @1 HEAD",
    "lastgood restore @1",
    "lastgood branch",
]

STYLE = """
  .page { fill: #0d1117; stroke: #30363d }
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3 }
  .command { font-weight: bold }
  .prompt, .green { fill: #3fb950 }
  .red { fill: #ff7b72 }
  .yellow { fill: #d29922 }
  .dim { fill: #9198a1 }
  @media (prefers-color-scheme: light) {
    .page { fill: #ffffff; stroke: #d0d7de }
    text { fill: #1f2328 }
    .prompt, .green { fill: #1a7f37 }
    .red { fill: #cf222e }
    .yellow { fill: #9a6700 }
    .dim { fill: #59636e }
  }
"""

CODES = {"31": "red", "32": "green", "33": "yellow", "2": "dim", "1": "command"}


class Run(NamedTuple):
    """A command and the lines that it printed on a terminal."""

    command: str
    lines: list[str]


def play() -> list[Run]:
    """Run the story in a folder called `shop`, which has a store and was never saved."""
    with tempfile.TemporaryDirectory(prefix="lastgood-picture-", ignore_cleanup_errors=True) as home:
        folder = Path(home, "shop")
        folder.mkdir()
        _run("lastgood init", folder)
        for name, content in FILES.items():
            (folder / name).write_text(content)
            (folder / name).chmod(0o644 if name.endswith(".py") else 0o755)
        return [Run(command, _run(command, folder)) for command in STORY]


def _run(command: str, folder: Path) -> list[str]:
    """Run it in a shell on a terminal of 80 columns."""
    child, terminal = pty.fork()
    if child == 0:
        script = f'lastgood() {{ "{sys.executable}" -m lastgood.cli.main "$@"; }}; {command}'
        os.chdir(folder)
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "TERM": "xterm-256color"}
        environment |= {"LC_ALL": "C.UTF-8", "LOGNAME": "ada", "PYTHONPATH": str(ROOT / "src")}
        os.execve("/bin/sh", ["sh", "-c", script], environment)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    printed = b"".join(_read(terminal))
    os.close(terminal)
    os.waitpid(child, 0)
    return printed.decode().replace("\r\n", "\n").splitlines()


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        yield data


def draw(runs: list[Run]) -> str:
    """Draw it as an SVG that follows the reader's light or dark theme."""
    rows: list[str] = []
    for run in runs:
        rows.append(
            f'<tspan class="prompt">$</tspan> <tspan class="command">{escape(run.command, quote=False)}</tspan>'
        )
        rows.extend(row for line in run.lines for row in _wrapped(line))
    width, line_height, top = COLUMNS * 8.43 + 32, 20, 34
    height = top + len(rows) * line_height
    texts = [
        f'<text x="16" y="{top + i * line_height}" xml:space="preserve">{row}</text>' for i, row in enumerate(rows)
    ]
    title = "A terminal: an agent's work is saved, fails its tests, and is taken back"
    frame = f'<rect class="page" x="0.5" y="0.5" width="{width:.0f}" height="{height}" rx="8"/>'
    size = f'width="{width + 1:.0f}" height="{height + 1}" viewBox="0 0 {width + 1:.0f} {height + 1}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}">'
    return "\n".join([head, f"<title>{title}</title>", f"<style>{STYLE}</style>", frame, *texts, "</svg>", ""])


def _wrapped(line: str) -> Iterator[str]:
    """Yield the rows that a line takes on the terminal, as text with its colors."""
    row, column, style = "", 0, ""
    for part in re.findall(r"\x1b\[[\d;]*m|.", line):
        if part.startswith("\x1b"):
            codes = part[2:-1].split(";")
            row, style = row + ("</tspan>" if style else ""), next((CODES[code] for code in codes if code in CODES), "")
            row += f'<tspan class="{style}">' if style else ""
            continue
        if column == COLUMNS:
            yield row + ("</tspan>" if style else "")
            row, column = f'<tspan class="{style}">' if style else "", 0
        row, column = row + escape(part, quote=False), column + 1
    yield row + ("</tspan>" if style else "")


def text_of(picture: str) -> str:
    """Return what can be read in a picture, line by line."""
    rows = re.findall(r"<text [^>]*>(.*)</text>", picture)
    return "\n".join(re.sub(r"<[^>]*>", "", row) for row in rows)


if __name__ == "__main__":
    PICTURE.write_text(draw(play()))
