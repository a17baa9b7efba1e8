"""Helper processes that a store starts, forked from the pool instead of started as fresh interpreters: each of those
took 50 ms, most of what a trial with any cost. What they do, and how their calls are counted, is the same.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import msgspec
from tests.faults import shim

from lastgood.local import channel
from lastgood.local.channel import Channel, HelperProcess, Received

LONGEST = 1 << 16
_turn = threading.Lock()
_pool: dict[int, socket.socket] = {}
"""The other end, by the number of the worker: one that is forked from it starts helpers as everybody does."""


class ForkedHelper(HelperProcess[Received]):
    """As the class of lastgood, in a worker of a pool."""

    def __init__(
        self,
        module: str,
        decoder: msgspec.msgpack.Decoder[Received],
        *,
        max_bytes: int,
        packages: Iterable[ModuleType] = (),
        isolated: bool = False,
    ) -> None:
        pool = _pool.get(os.getpid())
        if pool is None:
            super().__init__(module, decoder, max_bytes=max_bytes, packages=packages, isolated=isolated)
            return
        self.owner = os.getpid()
        here, there = socket.socketpair()
        told = "" if isolated else os.environ.get(shim.TOLD, "")
        with there, _turn:
            request = json.dumps([module, told, resource.getrlimit(resource.RLIMIT_DATA)])
            socket.send_fds(pool, [request.encode()], [there.fileno()])
            self._process = _Forked(int(pool.recv(LONGEST)))  # type: ignore[assignment]
        self.channel = Channel(here, decoder, max_bytes=max_bytes)


class _Forked:
    """What lastgood needs of `subprocess.Popen`. The pool is the parent, and waits for it in the end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        ended = os.pidfd_open(self.pid)
        select.select([ended], [], [])
        os.close(ended)
        self.returncode = -signal.SIGKILL


def ask_for_helpers(pool: socket.socket) -> None:
    """In a worker: let stores have helpers from the pool at the other end."""
    _pool[os.getpid()] = pool
    channel.HelperProcess = ForkedHelper  # type: ignore[misc]


def fork_helper(requests: socket.socket) -> int | None:
    """In a pool: fork a helper that a worker has asked for. Return its number; None if the worker is gone."""
    request, ends, _, _ = socket.recv_fds(requests, LONGEST, 1)
    if not request:
        return None
    module, told, memory = json.loads(request)
    helper = os.fork()
    if helper == 0:
        try:
            _help(module, told, memory, ends[0])
        finally:
            os._exit(0)
    os.close(ends[0])
    with suppress(OSError):  # the worker is gone
        requests.send(str(helper).encode())
    return helper


def _help(module: str, told: str, memory: list[int], end: int) -> None:
    os.dup2(end, 0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):
        os.dup2(nowhere, standard)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208
    os.chdir("/")
    resource.setrlimit(resource.RLIMIT_DATA, (memory[0], memory[1]))
    if told:
        shim.inherit(told)
    sys.argv[:] = [module]
    import_module(module).serve()
