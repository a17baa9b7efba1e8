"""What the engine has to say, for people: alerts, each on a line of stderr, whichever command comes across them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lastgood.observe.log import listening

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation


class Teller:
    """Of one command. `says`: the codes of alerts about what the command itself says, or fails with."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._note: Callable[[str], None] | None = None
        self.says = {"store_away", "save_failed"}

    def listening(self) -> AbstractContextManager[None]:
        """Inside, what the engine logs is heard here."""
        return listening(self._hear)

    @contextmanager
    def onto(self, note: Callable[[str], None]) -> Iterator[None]:
        """Inside, warnings and all alerts go to `note`: they are for whoever runs the work here."""
        self._note = note
        try:
            yield
        finally:
            self._note = None

    def _hear(self, record: Any) -> None:
        """A record of the log, from any thread."""
        fields: dict[str, Any] = getattr(record, "lastgood", {})
        said, code = record.getMessage(), fields.get("code")
        if self._note is not None:
            self._note(f"{record.levelname.lower() if code is None else 'alert'}: {said}")
        elif code is not None and code not in self.says:
            self._tell(code, fields.get("severity"), said)

    def _tell(self, code: str, severity: str | None, said: str) -> None:
        import click

        from lastgood.cli.output import json_text, printable

        alert = {"code": code, "severity": severity, "detail": said}
        click.echo(json_text({"alert": alert}) if self._call.json else f"alert: {printable(said)}", err=True)
