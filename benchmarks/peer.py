"""The peer: LangGraph's checkpointer over SQLite, called as LangGraph calls it, as durable as ours."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver

FULL = 2
THREAD = "conversation"


class Peer:
    """One open saver. `put` is to be timed; `checkpoint` and `keep` are what LangGraph does around it."""

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file, check_same_thread=False)
        self.saver: Any = SqliteSaver(self.connection)
        self._config: dict[str, Any] = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
        self._version: Any = None

    def require_durability(self) -> None:
        """The same promise as ours: the WAL is synced at each commit."""
        self.saver.setup()
        mode = self.connection.execute("PRAGMA journal_mode").fetchone()[0]
        level = self.connection.execute("PRAGMA synchronous").fetchone()[0]
        if (mode, level) != ("wal", FULL):
            raise RuntimeError(f"the peer's connection has journal_mode={mode}, synchronous={level}")

    def checkpoint(self, step: int, values: dict[str, Any]) -> dict[str, Any]:
        """What LangGraph hands to the saver after a step that changed `values`. Nothing is copied."""
        seen = self._version
        self._version = self.saver.get_next_version(self._version, None)
        return {
            "v": 4,
            "id": str(uuid6(clock_seq=step)),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": dict.fromkeys(values, self._version),
            "versions_seen": {"__input__": {}, "agent": dict.fromkeys(values, seen)},
            "updated_channels": list(values),
        }

    def put(self, checkpoint: dict[str, Any], step: int) -> Any:
        metadata = {"source": "loop", "step": step, "parents": {}}
        return self.saver.put(self._config, checkpoint, metadata, checkpoint["channel_versions"])

    def keep(self, config: Any) -> None:
        """The next checkpoint continues the one that was put."""
        self._config = config

    def latest(self) -> Any:
        """The values of the newest checkpoint; nothing is verified."""
        return self.saver.get_tuple(_thread()).checkpoint["channel_values"]

    def list(self) -> int:
        """Go through all checkpoints, which decodes each; they are not kept, to its advantage. How many."""
        return sum(1 for _ in self.saver.list(_thread()))

    def close(self) -> None:
        self.connection.close()


def _thread() -> dict[str, Any]:
    return {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
