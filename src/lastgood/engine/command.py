"""Running a command: as `subprocess.run`, with its exit code, its duration and the end of its output recorded."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any

from lastgood.errors import InvalidError
from lastgood.local.process import write_all

TAIL_BYTES, TAIL_CHARACTERS = 16_384, 4096
CHUNK = 65_536
GRACE_SECONDS = 0.25
DRAIN_SECONDS = 1.0  # for the output of a command that has ended, when something it started still holds it open


class Command:
    """One command. Each of its streams that nobody asked for is passed on to where it would have gone.

    Takes the options of `subprocess.run` but `shell`. `mask` takes the secrets out of a text.
    """

    def __init__(
        self, command: Sequence[str | os.PathLike[str]], options: dict[str, Any], mask: Callable[[str], str]
    ) -> None:
        self._words = _words(command)
        self._mask = mask
        if options.get("shell"):
            raise InvalidError("step.run uses no shell", hint="give the words of the command as a list")
        self._options = {name: value for name, value in options.items() if name not in _OURS}
        self._timeout = options.get("timeout")
        self._encoding = options.get("encoding")
        self._errors = options.get("errors")
        self._input = self._encoded(options.get("input"))
        if self._input is not None and options.get("stdin") is not None:
            raise InvalidError("a command takes its input from `stdin` or from `input`, not from both")
        self._as_text = bool(options.get("text") or options.get("universal_newlines") or self._encoding or self._errors)
        captured = bool(options.get("capture_output"))
        self._streams = [
            _Stream(subprocess.PIPE if captured else options.get("stdout"), 1),
            _Stream(subprocess.PIPE if captured else options.get("stderr"), 2),
        ]
        self._ended: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def text(self) -> str:
        return shlex.join(self._words)

    def stop(self) -> None:
        """Kill it, from another thread; one that has not started yet is killed as soon as it has."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def record(self) -> dict[str, Any]:
        """Return what is to be remembered of it: how it ended, how long it took, what it said last."""
        tail = "".join(stream.tail() for stream in self._streams)
        masked = self._mask(tail)[-TAIL_CHARACTERS:]  # a secret that is cut first may not be known as one
        return {"command": self.text, **self._ended, **({"output_tail": masked} if masked else {})}

    def run(self) -> subprocess.CompletedProcess[Any]:
        """Raises what `subprocess.run` does: TimeoutExpired, after the command was killed; OSError if there is none."""
        began = time.monotonic()
        try:
            code = self._run()
            self._ended["actual_exit_code"] = code
        except subprocess.TimeoutExpired as error:
            self._ended["timed_out"] = True
            error.output, error.stderr = (stream.whole() for stream in self._streams)
            raise
        except OSError as error:
            self._ended["not_started"] = error.strerror or type(error).__name__
            raise
        finally:
            self._ended["duration"] = round(time.monotonic() - began, 6)
        stdout, stderr = (self._decoded(stream.whole()) for stream in self._streams)
        return subprocess.CompletedProcess(self._words, code, stdout, stderr)

    def _run(self) -> int:
        out, err = self._streams
        threads: list[threading.Thread] = []
        try:
            if self._input is not None:
                self._options["stdin"] = subprocess.PIPE
            self._process = process = subprocess.Popen(  # noqa: S603 - what the caller asked to be run, without a shell
                self._words, bufsize=0, stdout=out.target, stderr=err.target, **self._options
            )
            if self._stopped:
                process.kill()
            works = [(out.pump, process.stdout), (err.pump, process.stderr), (self._feed, process.stdin)]
            for work, pipe in works:
                if pipe is not None:
                    threads.append(threading.Thread(target=work, args=(pipe,), daemon=True))
                    threads[-1].start()
            return process.wait(self._timeout)
        except BaseException as error:
            if self._process is not None:
                if isinstance(error, KeyboardInterrupt):  # which a terminal sends to the command as well: let it end
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(GRACE_SECONDS)
                self._process.kill()
                self._process.wait()
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join(DRAIN_SECONDS)

    def _encoded(self, given: Any) -> bytes | None:
        if isinstance(given, str):
            return given.encode(self._encoding or "utf-8", self._errors or "strict")
        return None if given is None else bytes(given)

    def _feed(self, pipe: IO[bytes]) -> None:
        with suppress(OSError), pipe:
            view = memoryview(self._input or b"")
            while view:
                view = view[pipe.write(view) :]

    def _decoded(self, output: bytes | None) -> bytes | str | None:
        if output is None or not self._as_text:
            return output
        text = output.decode(self._encoding or "utf-8", self._errors or "strict")
        return text.replace("\r\n", "\n").replace("\r", "\n")


_OURS = frozenset(
    (
        "bufsize",
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
        self._tail, self._cut = b"", False

    def pump(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := pipe.read(CHUNK):
                tail = self._tail + chunk
                self._cut = self._cut or len(tail) > TAIL_BYTES
                self._tail = tail[-TAIL_BYTES:]
                if self._chunks is not None:
                    self._chunks.append(chunk)
                if self._pass_to is not None:
                    with suppress(OSError):
                        write_all(self._pass_to, chunk)

    def whole(self) -> bytes | None:
        return None if self._chunks is None else b"".join(self._chunks)

    def tail(self) -> str:
        """Whole lines from the end, as far as they are short."""
        text = self._tail.decode("utf-8", "replace").replace("\0", "\ufffd")
        return text.partition("\n")[2] or text[-TAIL_CHARACTERS:] if self._cut else text


def _words(command: object) -> list[str]:
    if isinstance(command, list | tuple) and command:
        with suppress(TypeError):
            return [os.fsdecode(word) for word in command]
    raise InvalidError("a command is a list of its words", hint="as in step.run(['pytest', '-q'])")
