"""A checkpoint before something that may go wrong (E4): one line in the user's code."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lastgood.model.identity import check_text

if TYPE_CHECKING:
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.work.session import Session


class Risky(ContextDecorator):
    """As a context manager it gives the checkpoint to go back to. Without a session of its own: the current one."""

    def __init__(self, name: str, session: Session | None = None) -> None:
        self.name = check_text("name", name)
        self._session = session
        self.checkpoint: Checkpoint | None = None

    def __enter__(self) -> Self:
        from lastgood.work.session import current_session

        session = self._session or current_session()
        self.checkpoint = session.save(type="before_risky", message=self.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def before_risky(name: str) -> Risky:
    """`with lastgood.before_risky("deploy"): …`, or as a decorator; in the session that the code runs in."""
    return Risky(name)
