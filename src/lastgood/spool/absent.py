"""In the place of a catalog that could not be opened: everything that is asked of it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lastgood.errors import UnavailableError


class AbsentCatalog:
    """Of a store of which the spool knows something. `error` is why it is not there."""

    durable = True
    shared = False

    def __init__(self, file: Path, error: UnavailableError) -> None:
        self.address = str(file)
        self.error = error

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: Any, **__: Any) -> Any:
            raise UnavailableError(
                f"the store is away: {self.error}",
                hint="what is spooled can be read and gone on from; the rest when the store is back",
            ) from self.error

        return refuse
