"""A person's editor, on text that must not be lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastgood.cli.invocation import Invocation
from lastgood.cli.output import say
from lastgood.errors import InvalidError, UnavailableError


@contextmanager
def edited(call: Invocation, text: str, name: str) -> Iterator[str]:
    """What a person made of `text`. When the block fails, it is kept in a file, and said where."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="lastgood-"))  # private, as mkdtemp makes it
    file = folder / name
    file.write_text(text, encoding="utf-8", newline="")
    try:
        _run_editor(file)
        yield _read(file)
    except BaseException:
        say(call, f"what you wrote is in {file}")
        raise
    shutil.rmtree(folder)


def _run_editor(file: Path) -> None:
    import shlex
    import signal
    import subprocess

    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = [*shlex.split(named), str(file)]
    except ValueError as error:
        raise InvalidError(f"the editor {named[:80]!r} cannot be understood: {error}", hint="set EDITOR") from error
    # Ctrl-C is the editor's. A handler, since what is ignored stays ignored in the program that is started.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        shown_on = None if sys.stdout.isatty() else sys.stderr
        code = subprocess.run(command, check=False, stdout=shown_on).returncode  # noqa: S603
    except OSError as error:
        raise UnavailableError(
            f"the editor {command[0][:80]!r} cannot be started: {error.strerror}", hint="set EDITOR, or give --file"
        ) from error
    finally:
        signal.signal(signal.SIGINT, before)
    if code != 0:
        raise UnavailableError(f"the editor ended with {code}: nothing was changed", hint="edit it again")


def _read(file: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidError("what the editor wrote is not UTF-8", hint="save it as UTF-8") from error
