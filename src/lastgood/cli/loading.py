"""The one thing that is ever imported by its name: what a person named on their own command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import click

from lastgood.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from lastgood.secrets.redaction import Redaction


class OwnCodeError(InvalidError):
    """The user's own code failed before there was a pipeline; `__cause__` is how."""


class Progress(Protocol):
    """How far a pipeline has come: the names of its stages, and which round it is in."""

    @property
    def plan(self) -> tuple[str, ...]: ...
    @property
    def round(self) -> int: ...
    @property
    def rounds(self) -> int: ...


class Event(Protocol):
    """Something that a pipeline tells while it runs."""

    @property
    def kind(self) -> str: ...
    @property
    def progress(self) -> Progress: ...
    @property
    def stage(self) -> str | None: ...
    @property
    def index(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def error(self) -> str | None: ...


class Outcome(Protocol):
    """How a run ended. `stopped` says why it ended early."""

    @property
    def checkpoint(self) -> Any: ...
    @property
    def stopped(self) -> str | None: ...


class Runnable(Protocol):
    """What `lastgood run` needs of a pipeline."""

    @property
    def name(self) -> str: ...

    def run(self, task: Any, *, restart: bool, on_progress: Callable[[Event], object]) -> Outcome: ...


def load_pipeline(target: str, redaction: Redaction) -> Runnable:
    """The pipeline MODULE:NAME, or what the factory of that name makes; modules here come first.

    How the user's own code failed is told without what `redaction` takes for secrets.
    """
    module_name, _, name = target.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise click.UsageError(f"{target[:200]!r} is not MODULE:NAME, as in jobs.nightly:pipeline")
    found: Any = _import(module_name, redaction)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise NotFoundError(
                f"there is no {part!r} in {target!r}", hint="name a lastgood.Pipeline, or a function that makes one"
            ) from error
    if callable(found) and (isinstance(found, type) or not hasattr(found, "run")):
        found = _own(f"{target} cannot make its pipeline", found, redaction)
    if not callable(getattr(found, "run", None)):
        raise InvalidError(
            f"{target} is {type(found).__name__}, not a pipeline", hint="name a lastgood.Pipeline, or what makes one"
        )
    pipeline: Runnable = found
    return pipeline


def _import(name: str, redaction: Redaction) -> Any:
    from importlib import import_module

    here = os.getcwd()  # noqa: PTH109
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return _own(f"the module {name} cannot be imported", lambda: import_module(name), redaction)
    except OwnCodeError as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise NotFoundError(
                f"there is no module {missing!r}", hint="it is looked for in the folder you stand in, and on PYTHONPATH"
            ) from None
        raise


def _own(failed: str, work: Callable[[], Any], redaction: Redaction) -> Any:
    """What the user's own code gives."""
    try:
        return work()
    except (Exception, SystemExit) as error:
        told = redaction.text(f"{failed}: {type(error).__name__}: {error}")
        raise OwnCodeError(told, hint="it is your code; see above") from error
