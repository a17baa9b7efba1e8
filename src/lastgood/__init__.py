"""lastgood: checkpoints for AI agents and long-running work.

The public names, and nothing else. They load when first used: `import lastgood` costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own costs as much to import as all of Python
if TYPE_CHECKING:
    from typing import Any

    from lastgood.content.classes import PlainDataWarning, register
    from lastgood.engine.checkpoint import Checkpoint, Skipped
    from lastgood.engine.context import correlation
    from lastgood.engine.options import Alert, Options
    from lastgood.engine.store import CheckpointPage, Store
    from lastgood.engine.store import open_store as open  # noqa: A004
    from lastgood.engine.task import Task
    from lastgood.errors import (
        BusyError,
        CheckpointError,
        ConflictError,
        DiskFullError,
        ForbiddenError,
        FormatError,
        IntegrityError,
        InvalidError,
        LostCommitsError,
        NotFoundError,
        StageError,
        UnavailableError,
        UnstorableError,
    )
    from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType

__all__ = [
    "Alert",
    "BusyError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointPage",
    "ConflictError",
    "DiskFullError",
    "Evidence",
    "EvidencePack",
    "EvidenceType",
    "ForbiddenError",
    "FormatError",
    "IntegrityError",
    "InvalidError",
    "LostCommitsError",
    "NotFoundError",
    "Options",
    "PlainDataWarning",
    "Skipped",
    "StageError",
    "Store",
    "Task",
    "UnavailableError",
    "UnstorableError",
    "correlation",
    "open",
    "register",
]

_HOMES = {
    "Alert": "lastgood.engine.options",
    "BusyError": "lastgood.errors",
    "Checkpoint": "lastgood.engine.checkpoint",
    "CheckpointError": "lastgood.errors",
    "CheckpointPage": "lastgood.engine.store",
    "ConflictError": "lastgood.errors",
    "DiskFullError": "lastgood.errors",
    "Evidence": "lastgood.model.evidence",
    "EvidencePack": "lastgood.model.evidence",
    "EvidenceType": "lastgood.model.evidence",
    "ForbiddenError": "lastgood.errors",
    "FormatError": "lastgood.errors",
    "IntegrityError": "lastgood.errors",
    "InvalidError": "lastgood.errors",
    "LostCommitsError": "lastgood.errors",
    "NotFoundError": "lastgood.errors",
    "Options": "lastgood.engine.options",
    "PlainDataWarning": "lastgood.content.classes",
    "Skipped": "lastgood.engine.checkpoint",
    "StageError": "lastgood.errors",
    "Store": "lastgood.engine.store",
    "Task": "lastgood.engine.task",
    "UnavailableError": "lastgood.errors",
    "UnstorableError": "lastgood.errors",
    "correlation": "lastgood.engine.context",
    "open": "lastgood.engine.store",
    "register": "lastgood.content.classes",
}


def __getattr__(name: str) -> "Any":
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
