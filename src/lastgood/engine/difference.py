"""How two checkpoints, or one and the disk, differ: state and files in one view."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from lastgood.compare.state import StateChange, compare

if TYPE_CHECKING:
    from lastgood.engine.browse import FilesDiff
    from lastgood.engine.checkpoint import Checkpoint


class Difference:
    """`after` None: the files on disk, which have no state. Nothing is read before it is asked for."""

    def __init__(self, before: Checkpoint, after: Checkpoint | None, files: FilesDiff) -> None:
        self.before = before
        self.after = after
        self.files = files

    @cached_property
    def state(self) -> list[StateChange]:
        """Which parts of the state were added, removed or changed."""
        return [] if self.after is None else compare(self.before.state, self.after.state)

    @property
    def summary(self) -> str:
        """What changed, in one paragraph."""
        words = self.files.summary
        if self.after is None:
            return words
        count = len(self.state)
        places = "1 place" if count == 1 else f"{count:,} places"
        return f"{words} The state differs in {places}." if count else f"{words} The state is the same."

    def __bool__(self) -> bool:
        return bool(self.files) or bool(self.state)
