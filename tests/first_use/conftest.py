"""A new user's home with a terminal in it, and the screens that were kept."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.docs import page
from tests.first_use.terminal import COLUMNS, Terminal

SCREENS = Path(__file__).parent / "screens"
WRITE = "LASTGOOD_WRITE_SCREENS"
"""Set it to write the screens anew: `LASTGOOD_WRITE_SCREENS=1 ./dev test tests/first_use`. Then read them."""

HOME = "/home/lovelace"
"""What screens show for the home of a test, which has as many characters: lines are as long as a user's."""

CHANGING: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}(-[0-9a-f]{4}-[0-9a-f]{12})?", lambda found: re.sub(r"\w", "0", found[0])),
    (r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d", r"2026-01-01\g<1>00:00:00"),
    (r"(?<=[v?x!)]) +(now|\d+[sm])(?=  )", " now"),
    (r" {2,}(?=\d+(\.\d+)? (bytes|[KM]iB)\b)", "  "),
    (r"\b\d+(\.\d+)? (bytes|[KM]iB)\b", "N bytes"),
    (r"^\[1\] \d+", "[1] 100"),
    (r"\bprocess \d+", "process 100"),
    (r"\(\d+ on [^)]+\)", "(100 on host)"),
    (r"\b\d+ blobs", "9 blobs"),
    (r"\bsha256:[0-9a-f]{12}…", "sha256:000000000000…"),
    (r"(?<=sha256       )[0-9a-f]{64}", "0" * 64),
]

INTERNAL = re.compile(
    r"Traceback|, line \d|\wError:|<[\w.]+ object|\b(None|True|False|catalog|digest|tombstones?"
    r"|errno|fsync|codec|msgpack|attestations?|condemned|strays?|inode|pid|uuid)\b",
    re.IGNORECASE,
)
"""Words of the source that say nothing to a new user. (`blob` and `pack` are explained where `check` is.)"""


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="l", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # a command that a failed test has left may still write


@pytest.fixture
def terminals(home: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], Terminal]]:
    """A function that opens one more terminal. In the end what they show is compared with what was kept."""
    environment = page.environment(home) | {"XDG_CONFIG_HOME": str(home / ".config")}
    del environment["COLUMNS"]
    opened: list[Terminal] = []
    with ExitStack() as stack:

        def open_terminal() -> Terminal:
            opened.append(stack.enter_context(Terminal(home, environment)))
            return opened[-1]

        failed = request.session.testsfailed
        yield open_terminal
        if request.session.testsfailed == failed:
            compare(
                request.node.name.removeprefix("test_"),
                [terminal.screen.replace(str(home), HOME) for terminal in opened],
            )


@pytest.fixture
def terminal(terminals: Callable[[], Terminal]) -> Terminal:
    return terminals()


def compare(name: str, screens: list[str]) -> None:
    """Compare screens with what was kept, without ids, times and sizes; and look for what no screen may have."""
    shown = "\n=== another terminal ===\n\n".join(settled(screen) for screen in screens)
    file = SCREENS / f"{name.replace('_', '-')}.txt"
    if os.environ.get(WRITE):
        file.write_text(shown)
    wide = [line for screen in screens for line in screen.splitlines() if len(line) > COLUMNS]
    assert wide == []
    printed = [line for screen in screens for line in screen.splitlines() if not line.startswith("$ ")]
    assert [line for line in printed if INTERNAL.search(re.sub(r"\S*/\S*", "", line))] == []
    kept = file.read_text() if file.exists() else ""
    differences = difflib.unified_diff(kept.splitlines(), shown.splitlines(), "kept", "shown", lineterm="")
    assert kept == shown, "\n".join([*differences, f"If it was meant: {WRITE}=1 ./dev test tests/first_use"])


def settled(screen: str) -> str:
    """Replace what is different in each run, by something as wide where it can be."""
    for pattern, replacement in CHANGING:
        screen = re.sub(pattern, replacement, screen, flags=re.MULTILINE)
    return screen
