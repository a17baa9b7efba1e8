"""Whether a save costs more when the conversation is long: `AppendList`, the 10th turn against the 1,000th."""

from __future__ import annotations

from pathlib import Path

from benchmarks.bulk import USER
from benchmarks.conversation import Message, conversation
from benchmarks.measure import Row, Series, at_most, say, seconds
from lastgood.codec.append_list import AppendList
from lastgood.opening import open_store
from lastgood.store import Store

LISTS, TURNS = 12, 10
SHORT, LONG = 5, 990  # turns before those that are measured


class _Talk:
    """A conversation that is saved after each turn."""

    def __init__(self, store: Store, name: str, messages: list[Message], turns: int) -> None:
        self._task = store.task(name)
        self._messages = iter(messages)
        self._said = AppendList()
        for _ in range(turns):
            self.turn()

    def turn(self) -> float:
        self._said.append(next(self._messages))
        state = {"messages": self._said, "step": len(self._said)}
        return seconds(lambda: self._task.save(state))


def measure_appending(folder: Path) -> list[Row]:
    messages = conversation(LONG + TURNS)
    short, long = Series(), Series()
    with open_store(folder / "store", user=USER, warn_state_bytes=1 << 30) as store:
        for number in range(LISTS):
            say(f"  conversation {number + 1} of {LISTS}")
            old = _Talk(store, f"long {number}", messages, LONG)
            new = _Talk(store, f"short {number}", messages, SHORT)
            for turn in range(TURNS):
                if turn % 2:
                    short.append(new.turn())
                    long.append(old.turn())
                else:
                    long.append(old.turn())
                    short.append(new.turn())
    measure = f"AppendList: turns {LONG + 1} to {LONG + TURNS} against {SHORT + 1} to {SHORT + TURNS}"
    return [at_most(measure, long.median, short.median, 1.2, str(long), str(short))]
