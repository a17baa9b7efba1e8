"""Running a command: as `subprocess.run`, with its exit code, its duration and the end of its output recorded."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any

from lastgood.errors import InvalidError

TAIL_BYTES = 4096
CHUNK = 65_536
DRAIN_SECONDS = 1.0  # for the output of a command that has ended, when something it started still holds it open


def run_recorded(
    command: Sequence[str | os.PathLike[str]], options: dict[str, Any]
) -> tuple[subprocess.CompletedProcess[Any] | None, dict[str, Any]]:
    """The result (None: it took longer than its timeout and was killed), and what is to be remembered of it.

    Takes the options of `subprocess.run` but `shell`. Raises OSError when it cannot be started.
    """
    if isinstance(command, str) or not isinstance(command, list | tuple) or not command:
        raise InvalidError("a command is a list of its words", hint="as in step.run(['pytest', '-q'])")
    if options.get("shell"):
        raise InvalidError("step.run uses no shell", hint="give the words of the command as a list")
    words = [os.fsdecode(word) for word in command]
    run = _Run(words, options)
    began = time.monotonic()
    try:
        result = run.result()
    except subprocess.TimeoutExpired:
        result = None
    record: dict[str, Any] = {"command": shlex.join(words), "duration": round(time.monotonic() - began, 6)}
    if result is None:
        record["timed_out"] = True
    else:
        record["actual_exit_code"] = result.returncode
    if tail := run.tail():
        record["output_tail"] = tail
    return result, record


class _Run:
    """One command on its way. Each stream that nobody asked for is passed on to where it would have gone."""

    def __init__(self, words: list[str], options: dict[str, Any]) -> None:
        self._words = words
        self._options = {name: value for name, value in options.items() if name not in _OURS}
        self._timeout = options.get("timeout")
        self._input = options.get("input")
        self._encoding = options.get("encoding")
        self._errors = options.get("errors")
        self._as_text = bool(options.get("text") or options.get("universal_newlines") or self._encoding or self._errors)
        captured = bool(options.get("capture_output"))
        self._streams = [
            _Stream(subprocess.PIPE if captured else options.get("stdout"), 1),
            _Stream(subprocess.PIPE if captured else options.get("stderr"), 2),
        ]

    def result(self) -> subprocess.CompletedProcess[Any]:
        if self._input is not None:
            self._options["stdin"] = subprocess.PIPE
        out, err = self._streams
        process = subprocess.Popen(  # noqa: S603 - what the caller asked to be run, without a shell
            self._words, bufsize=0, stdout=out.target, stderr=err.target, **self._options
        )
        threads = [threading.Thread(target=out.pump, args=(process.stdout,), daemon=True)] if process.stdout else []
        threads += [threading.Thread(target=err.pump, args=(process.stderr,), daemon=True)] if process.stderr else []
        if self._input is not None and process.stdin is not None:
            threads.append(threading.Thread(target=_feed, args=(process.stdin, self._encoded_input()), daemon=True))
        for thread in threads:
            thread.start()
        try:
            process.wait(self._timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            for thread in threads:
                thread.join(DRAIN_SECONDS)
        stdout, stderr = (self._decoded(stream.whole()) for stream in self._streams)
        return subprocess.CompletedProcess(self._words, process.returncode, stdout, stderr)

    def tail(self) -> str:
        return "".join(stream.tail() for stream in self._streams)

    def _encoded_input(self) -> bytes:
        given = self._input
        if isinstance(given, str):
            return given.encode(self._encoding or "utf-8", self._errors or "strict")
        return bytes(given or b"")

    def _decoded(self, output: bytes | None) -> bytes | str | None:
        if output is None or not self._as_text:
            return output
        text = output.decode(self._encoding or "utf-8", self._errors or "strict")
        return text.replace("\r\n", "\n").replace("\r", "\n")


_OURS = frozenset(
    (
        "capture_output", "check", "encoding", "errors", "input", "shell", "stderr", "stdout", "text", "timeout",
        "universal_newlines",
    )
)  # fmt: skip


class _Stream:
    """Standard output or standard error of a command; `asked` as for `subprocess.run`."""

    def __init__(self, asked: Any, descriptor: int) -> None:
        self.target = subprocess.PIPE if asked is None else asked
        self._pass_to = descriptor if asked is None else None
        self._chunks: list[bytes] | None = [] if asked == subprocess.PIPE else None
        self._tail = b""

    def pump(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := pipe.read(CHUNK):
                self._tail = (self._tail + chunk)[-TAIL_BYTES:]
                if self._chunks is not None:
                    self._chunks.append(chunk)
                if self._pass_to is not None:
                    with suppress(OSError):
                        _write_all(self._pass_to, chunk)

    def whole(self) -> bytes | None:
        return None if self._chunks is None else b"".join(self._chunks)

    def tail(self) -> str:
        return self._tail.decode("utf-8", "replace").replace("\0", "\ufffd")


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with suppress(OSError), pipe:
        view = memoryview(data)
        while view:
            view = view[pipe.write(view) :]


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
