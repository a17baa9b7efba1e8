"""Helper processes: fresh interpreters that work for this one, never forks of the user's program."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Generic

import msgspec

from lastgood.errors import UnavailableError
from lastgood.local.channel import Channel, Received

_START = "import sys; sys.path += sys.argv[2:]; from {0} import serve; serve()"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class HelperProcess(Generic[Received]):
    """A process that runs `serve()` of a module, and the channel to it. It ends when the channel does.

    `packages` are those that it imports, beside lastgood and msgspec: it starts without `site`, in half the time, and
    with nothing else on its path. An `isolated` one sees nothing of the environment and no signals of the terminal.
    OSError when it cannot be started, UnavailableError when there is no interpreter to start.
    """

    def __init__(
        self,
        module: str,
        decoder: msgspec.msgpack.Decoder[Received],
        *,
        max_bytes: int,
        packages: Iterable[ModuleType] = (),
        isolated: bool = False,
    ) -> None:
        import subprocess

        if not sys.executable or getattr(sys, "frozen", False):
            raise UnavailableError("there is no Python interpreter to start the helper process with")
        self.owner = os.getpid()
        command = [sys.executable, "-I", "-S", "-B", "-c", _START.format(module), module, *_homes(packages)]
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        here, there = socket.socketpair()
        try:
            with there:
                self._process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=there.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=kept if isolated else None,
                    start_new_session=isolated,
                )
        except BaseException:
            here.close()
            raise
        self.channel = Channel(here, decoder, max_bytes=max_bytes)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the process at once; a thread that waits for its message gets none."""
        if self.owner == os.getpid() and self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self.channel.close()

    def abandon(self) -> None:
        """Forget, in a forked child, the parent's process without touching it."""
        self.channel.close()
        self._process.returncode = 0


def channel_to_parent(decoder: msgspec.msgpack.Decoder[Received], *, max_bytes: int) -> Channel[Received]:
    """Open, in a helper process, the channel to the process that started it."""
    return Channel(socket.socket(fileno=0), decoder, max_bytes=max_bytes)


def _homes(packages: Iterable[ModuleType]) -> list[str]:
    """Return the folders in which packages are installed, for the helper's path."""
    files = [str(Path(__file__).parent), *(str(package.__file__) for package in (msgspec, *packages))]
    return sorted({str(Path(file).parent.parent) for file in files})
