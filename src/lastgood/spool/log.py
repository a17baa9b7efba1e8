"""The spool's log: whether all of it can be on the disk, as every process that writes to it must know.

A file beside it says that a sync has failed. That need not survive power loss: what was not synced is gone then, too,
and SQLite goes on from what is there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from lastgood.catalog.sqlite.connection import write_again


class Log:
    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._mark = f"{spool}-doubted"
        self._is_doubted = False

    def doubt(self) -> None:
        """A sync of it has failed."""
        self._is_doubted = True  # where the mark cannot be made, either, this process knows
        with suppress(OSError):
            os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def is_doubted(self) -> bool:
        """Whether a sync has failed, here or in another process, and nobody has written the log again since."""
        return self._is_doubted or os.path.exists(self._mark)  # noqa: PTH110  # asked twice with each write

    def trust(self) -> None:
        """Before anything is added to it. Only under SQLite's write lock."""
        if self.is_doubted():
            write_again(self._spool)
            self._is_doubted = False
            with suppress(OSError):
                os.unlink(self._mark)  # noqa: PTH108
