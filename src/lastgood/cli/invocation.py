"""One call of the command line: what was asked for in general, and the store it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.errors import NotFoundError

if TYPE_CHECKING:
    from lastgood.engine.location import Location
    from lastgood.engine.store import Store


class Invocation:
    """The options that every command takes; None where they were not given."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.task: str | None = None
        self.user: str | None = None
        self.owner: str | None = None
        self.json = False

    def locate(self) -> Location:
        from lastgood.engine.location import locate

        return locate(self.store)

    def open(self, *, create: bool = False) -> Store:
        """The store. Only where something is to be stored is one made that is not there yet."""
        from lastgood.engine.store import open_store

        if create:
            _keep_log_off_stderr()
        location = self.locate()
        if not create and location.catalog is not None and not location.catalog.exists():
            raise NotFoundError(
                f"there is no store at {location.catalog.parent}",
                hint="`lastgood init` sets one up, the first `lastgood save` makes it; or give --store",
            )
        return open_store(self.store, user=self.user)

    def task_id(self) -> str:
        """The task that was named, else that of the folder one stands in."""
        if self.task is not None:
            return self.task
        from lastgood.engine.location import default_task, find_config

        return default_task(find_config())


def _keep_log_off_stderr() -> None:
    """What people need to know of a save is printed by the command."""
    import logging

    from lastgood.engine.context import LOGGER

    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
