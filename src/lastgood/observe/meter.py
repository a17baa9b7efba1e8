"""What a store counts while it works.

Counting must not hold up a save, whatever happens to whom in its middle: a note is put at the end of a deque, which
takes no lock. Whoever finds many of them there, or reads, adds them up; a lock that an interrupt left behind costs
figures, and nobody waits for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from lastgood.errors import InvalidError
from lastgood.local.fork import renew_after_fork
from lastgood.model.identity import now
from lastgood.observe.table import METRICS
from lastgood.observe.tally import Tally

if TYPE_CHECKING:
    from lastgood.engine.commit import Draft
    from lastgood.model.checkpoint import Record
    from lastgood.model.evidence import EvidencePack
    from lastgood.observe.spans import Spans

Outcome = Literal["stored", "repeated", "spooled", "lost", "failed"]
Listener = Callable[[str, float], None]

BATCH = 32
MOST_NOTES = 1 << 16
"""As many are kept when nobody can add them up: then the oldest go uncounted."""
READ_SECONDS = 1.0
FRESH_SECONDS = 60.0


class Meter:
    """Of one store in one process; a forked child begins at nothing. Safe for threads.

    `failing` is how many saves in a row were not stored; `on_failure` is called with it after each of them. `spans`, if
    set, is entered around each operation that `spanned` marks.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._gauges: dict[str, tuple[str, Callable[[], float | None]]] = {}
        self._listeners: tuple[Listener, ...] = ()
        self.on_failure: Callable[[int], None] = lambda _: None
        self.spans: Spans | None = None
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """What was counted before a fork() is the parent's to tell."""
        self._lock = threading.RLock()
        self._notes: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque(maxlen=MOST_NOTES)
        self._tally = Tally()
        self._add, self._add_stored = self._tally.add, self._tally.add_stored
        self._size: tuple[float, float] | None = None
        self.since = now()
        self.failing = 0

    # --- counting ------------------------------------------------------------------------------------------

    def count(self, name: str, labels: Mapping[str, str] | None = None, amount: float = 1) -> None:
        """Add to a counter of `table.py`. InvalidError when it has no such one, or it has other labels."""
        metric = METRICS.get(name)
        if metric is None or metric.kind != "counter":
            raise InvalidError(f"there is no counter {name!r}", hint="declare it in observe/table.py")
        given = labels or {}
        try:
            values = tuple([str(given[label]) for label in metric.labels])
        except KeyError:
            values = ()
        if not len(values) == len(given) == len(metric.labels):
            raise InvalidError(f"the counter {name!r} has the labels {metric.labels}", hint="give each of them")
        self._note(self._add, (name, values, amount))

    def save(self, outcome: Outcome, draft: Draft, record: Record | None = None, new_bytes: int = 0) -> None:
        """A checkpoint that was to be saved, and what became of it; its record if it was stored."""
        if outcome != "stored" or record is None:
            self._note(self._add, ("saves", (outcome, draft.type), 1))
            self.failing = self.failing + 1 if outcome in ("lost", "failed") else 0
            if self.failing:
                self.on_failure(self.failing)
            return
        self.failing = 0
        at = self._clock()
        seconds, state = at - draft.began, record.state
        size = state.size if state is not None else 0
        files = sum(root.file_count for root in draft.files.roots) if isinstance(draft.files, tuple) else 0
        self._note(self._add_stored, (draft.type, at, seconds, size, new_bytes, files))
        if self._listeners:
            self._tell(save_duration_seconds=seconds, save_state_bytes=size, save_new_bytes=new_bytes)
        if draft.proof is not None and draft.proof.finish() is not None:
            self.verification(draft.proof.pack)
        for note in draft.notes:
            if note.data.get("by") == "fork":
                self.count("forks")
            else:
                self.count("restores", {"what": note.data.get("what", "state")})

    def verification(self, pack: EvidencePack, *, intact: bool = True) -> None:
        """A checkpoint was checked, and this is what its evidence gave."""
        unknown = pack.is_undecided or not pack.evidence_list
        result = "verified" if pack.is_verified else "unverified" if unknown else "failed"
        self.count("verifications", {"result": result if intact else "damaged"})
        for evidence in pack.evidence_list:
            if evidence.verification_status == "failed":
                self.count("evidence_failures", {"type": evidence.evidence_type})

    # --- asking --------------------------------------------------------------------------------------------

    def register_gauge(self, name: str, help: str, ask: Callable[[], float | None]) -> None:
        """Have `ask` called whenever metrics are read. What raises, or gives no finite number, is left out. A second
        one replaces the first; the help of a gauge that table.py has is the one there."""
        if not name.isidentifier() or not name.isascii():
            raise InvalidError(f"{name!r} is no name of a gauge", hint="letters, digits and _, as in queue_depth")
        metric = METRICS.get(name)
        if metric is not None and metric.kind != "gauge":
            raise InvalidError(f"{name!r} is a {metric.kind}", hint="give it another name")
        self._gauges[name] = (help if metric is None else metric.help), ask

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have `listener` called with each value of a histogram, in the thread that saves. How to end that."""
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return stop

    # --- reading -------------------------------------------------------------------------------------------

    def read(self) -> tuple[Tally, int]:
        """All that was counted, and how much of it was stored in the last minute."""
        locked = self._lock.acquire(timeout=READ_SECONDS)
        try:
            if locked:
                self._add_up()
            tally = self._tally.copy()
        finally:
            if locked:
                self._lock.release()
        return tally, tally.saves_since(int(self._clock()) - 60)

    def read_gauges(self) -> dict[str, tuple[str, float]]:
        """The help and the value of each gauge that was registered and answers."""
        found = {}
        for name, (told, ask) in list(self._gauges.items()):
            with suppress(Exception):  # whatever others have registered
                if (value := ask()) is not None and math.isfinite(value):
                    found[name] = told, float(value)
        return found

    def remember_size(self, ask: Callable[[], float]) -> float:
        """What `ask` gives, or gave within the last minute: it lists all packs."""
        at = self._clock()
        if self._size is None or at - self._size[0] >= FRESH_SECONDS:
            self._size = at, float(ask())
        return self._size[1]

    def _note(self, add: Callable[..., None], what: tuple[Any, ...]) -> None:
        notes = self._notes
        notes.append((add, what))
        if len(notes) >= BATCH and self._lock.acquire(blocking=False):
            try:
                self._add_up()
            finally:
                self._lock.release()

    def _add_up(self) -> None:
        notes = self._notes
        with suppress(IndexError):  # a signal's handler that saves may have taken the last one
            while notes:
                add, what = notes.popleft()
                add(*what)

    def _tell(self, **values: float) -> None:
        for listener in self._listeners:
            for name, value in values.items():
                with suppress(Exception):  # a save that is stored is not made a failed one by who watches it
                    listener(name, value)
