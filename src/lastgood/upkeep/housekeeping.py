"""Garbage collection in the background: when a store has grown, a thread collects or keeps it below its limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lastgood.engine.engine import HOUSEKEEPING_INTERVAL, Engine
from lastgood.errors import CheckpointError
from lastgood.local.paths import open_private

MANY_BYTES = 64 << 20
GROWTH = 1.5
LEAST_BYTES = 64 << 20
CLOSE_SECONDS = 10.0


class Housekeeping:
    """The background work of one store in one process. Collects when the store is half as large again as it was
    after the last time, and brings it below its limit when it has one. What goes wrong is an alert, and nobody waits
    for it."""

    def __init__(self, engine: Engine, user: str) -> None:
        self._engine = engine
        self._user = user
        self._new_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.start: Callable[[Engine, str], None] = lambda engine, user: self._start()
        """Starts the work; replaced where it should not run in a thread."""

    def note(self, sequence: int, new_bytes: int) -> None:
        """Note that a checkpoint was stored, and how many bytes it brought."""
        self._new_bytes += new_bytes
        if sequence % HOUSEKEEPING_INTERVAL == 0 or self._new_bytes >= MANY_BYTES:
            self._new_bytes = 0
            self.start(self._engine, self._user)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self.work, name="lastgood housekeeping", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop: work under way ends at its next step, and the next run goes on."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.is_alive():
            thread.join(CLOSE_SECONDS)  # one that an interrupt kept from starting cannot be waited for

    def work(self) -> None:
        """Collect, or keep to the limit, if the store has grown so much."""
        from lastgood.upkeep.collect import collect
        from lastgood.upkeep.usage import limit

        engine = self._engine
        try:
            size, most = engine.size(), engine.options.max_bytes
            if most is None:
                most = engine.catalog.info().max_bytes
            if most is not None and size > most:
                limit(engine, self._user, most, wait=False, progress=self._stop_if_closed)
            elif size > max(LEAST_BYTES, GROWTH * self._last_size()):
                collect(engine, self._user, wait=False, progress=self._stop_if_closed)
            else:
                return
            self._remember(engine.size())
        except _Stopped:
            return
        except CheckpointError as error:
            if not self._stop.is_set():
                engine.alert(f"the store could not be collected: {error}", error=error, code="collect_failed")

    def _stop_if_closed(self, phase: str, done: int, of: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _last_size(self) -> int:
        """Return the size after the last collection, in whatever process; 0 when it is not known."""
        try:
            with open(self._note(), opener=open_private) as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return 0

    def _remember(self, size: int) -> None:
        with suppress(OSError), open(self._note(), "w", opener=open_private) as file:
            file.write(str(size))

    def _note(self) -> Path:
        return self._engine.local.path() / "collected"


class _Stopped(Exception):  # noqa: N818
    """The store is being closed."""
