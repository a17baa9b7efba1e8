"""Restored files on their way to the disk. A restore does not wait for them; its journal stays until they are there.

After power loss the journal says which files were in place, and when: what is older is put there again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lastgood.engine.engine import Engine
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.files.plan import RestorePlan
from lastgood.files.sync import sync
from lastgood.local.process import renew_after_fork
from lastgood.model.task import Journal

if TYPE_CHECKING:
    from lastgood.files.roots import Root

CLOSE_SECONDS = 2.0


class FileSync:
    """What makes the files of one store's restores durable, in threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self.start: Callable[[Journal, Sequence[tuple[Root, RestorePlan]]], None] = self._start
        """Begins with that; replaced where it should not run in a thread."""
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._is_closed = threading.Event()
        self._threads = []

    def _start(self, journal: Journal, plans: Sequence[tuple[Root, RestorePlan]]) -> None:
        thread = threading.Thread(target=self.work, args=(journal, plans), name="lastgood sync", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def work(self, journal: Journal, plans: Sequence[tuple[Root, RestorePlan]]) -> None:
        """Make durable what these plans did, and end the journal. A failure of the disk is an alert."""
        try:
            if all(sync(root.path, plan, lambda: not self._is_closed.is_set()) for root, plan in plans):
                with suppress(CheckpointError):  # whoever opens the workspace next ends it
                    self._engine.catalog.end_journal(journal.id)
        except UnavailableError as error:
            with suppress(CheckpointError):  # then the disk that fails is the store's, too
                self._engine.catalog.begin_journal(
                    msgspec.structs.replace(journal, doubted=True, made=None, applied_at_us=None)
                )
            self._engine.alert(str(error), journal.task_id, error, code="restore_incomplete")

    def close(self) -> None:
        """Stop; what is not durable yet is left to the system, and to whoever opens the workspace next."""
        self._is_closed.set()
        end = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            with suppress(RuntimeError):  # an interrupt kept it from starting
                thread.join(max(0.0, end - time.monotonic()))
