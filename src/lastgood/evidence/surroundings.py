"""What a check of evidence is given to look at."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lastgood.errors import InvalidError
from lastgood.evidence.files import Later
from lastgood.model.evidence import Evidence

if TYPE_CHECKING:
    from lastgood.evidence.files import Allowance, Files
    from lastgood.evidence.helper import Helper, Question
    from lastgood.evidence.outside import Outside


class Surroundings:
    """What a check may look at. `deadline` is on `time.monotonic`'s clock; a check is expected to keep it.

    With an `allowance` it does only what is quick and raises Later otherwise; `question` is what was asked meanwhile.
    """

    __slots__ = ("_database", "_files", "_rows", "_snapshot", "allowance", "deadline", "outside", "question")

    def __init__(
        self,
        files: Files,
        rows: Helper,
        database: str | None,
        snapshot: Callable[[], object],
        deadline: float,
        allowance: Allowance | None,
        outside: Outside,
    ) -> None:
        self._files = files
        self._rows = rows
        self._database = database
        self._snapshot = snapshot
        self.allowance = allowance
        self.deadline = deadline
        self.outside = outside
        self.question: Question | None = None

    @property
    def base_path(self) -> str:
        """The folder that relative paths are relative to."""
        return self._files.base

    @property
    def snapshot(self) -> object:
        """The state that the evidence belongs to; None when there is none."""
        return self._snapshot()

    def remaining(self) -> float:
        """Seconds until the deadline: what to give a request as its timeout."""
        return max(0.0, self.deadline - time.monotonic())

    def look(self, path: object) -> os.stat_result | None:
        """The stat of what a path leads to, by the rules for paths in evidence; None when nothing is there."""
        return self._files.look(path)

    def allow_path(self, path: object) -> str:
        """The path as text, by the same rules; InvalidError, ForbiddenError for one that cannot be used."""
        return self._files.require(path)

    def hash_file(self, path: object) -> str:
        """The hex SHA-256 of a file, cached; NotFoundError, InvalidError, ForbiddenError."""
        return self._files.hash(path, self.deadline, self.allowance)

    def find_row(self, path: object, table: str, where: dict[str, Any], values: dict[str, Any]) -> str | None:
        """How the SQLite database differs from having such a row; None when it has one. BusyError when locked.

        `path` None is the database of the store that the verifier belongs to.
        """
        if path is None and self._database is None:
            raise InvalidError("the claim names no database", hint='give "db_path" in expected or metadata')
        text = self._database if path is None else self._files.place(path)
        about = self._files.base, str(text), table, where, values, self.deadline
        if self.allowance is not None:
            if self._rows.is_free():
                self.question = self._rows.ask_row(*about)
            raise Later
        question, self.question = self.question or self._rows.ask_row(*about), None
        return question.answer().text or None


Check = Callable[[Evidence, Surroundings], str | None]
"""Returns None when the claim holds, a sentence when it does not, raises when that cannot be told: ForbiddenError when
this process is not to look."""
