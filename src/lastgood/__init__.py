"""lastgood: checkpoints for AI agents and long-running work.

What programs call, and nothing else; what is returned to them, or given as options, is in `lastgood.types`. Names load
when first used: `import lastgood` costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own costs as much to import as all of Python
if TYPE_CHECKING:
    from typing import Any

    from lastgood import types as types
    from lastgood.codec.append_list import AppendList as AppendList
    from lastgood.codec.classes import PlainDataWarning as PlainDataWarning, register as register
    from lastgood.engine.checkpoint import Checkpoint as Checkpoint
    from lastgood.engine.step import Step as Step
    from lastgood.errors import (
        BusyError as BusyError,
        CheckpointError as CheckpointError,
        ConflictError as ConflictError,
        ControlError as ControlError,
        DiskFullError as DiskFullError,
        EvidenceError as EvidenceError,
        ForbiddenError as ForbiddenError,
        FormatError as FormatError,
        IntegrityError as IntegrityError,
        InvalidError as InvalidError,
        LeaseError as LeaseError,
        LostCommitsError as LostCommitsError,
        NotFoundError as NotFoundError,
        StageError as StageError,
        UnavailableError as UnavailableError,
        UnstorableError as UnstorableError,
    )
    from lastgood.evidence.check import register_evidence as register_evidence
    from lastgood.evidence.verifier import EvidenceVerifier as EvidenceVerifier
    from lastgood.manager import CheckpointManager as CheckpointManager
    from lastgood.model.evidence import (
        Evidence as Evidence,
        EvidencePack as EvidencePack,
        EvidenceType as EvidenceType,
        VerificationStatus as VerificationStatus,
    )
    from lastgood.observe.log import correlation as correlation, reporting as reporting
    from lastgood.store import Store as Store
    from lastgood.task import Task as Task
    from lastgood.work.clock import StageTimeout as StageTimeout
    from lastgood.work.context import StageContext as StageContext
    from lastgood.work.control import Control as Control
    from lastgood.work.inbox import Stopped as Stopped
    from lastgood.work.pipeline import Pipeline as Pipeline
    from lastgood.work.session import (
        Session as Session,
        before_risky as before_risky,
        current_session as current_session,
    )
    from lastgood.work.stage import stage as stage
    from lastgood.opening import open_store

    open = open_store

_NAMES = {
    "codec.append_list": "AppendList",
    "codec.classes": "PlainDataWarning register",
    "engine.checkpoint": "Checkpoint",
    "engine.step": "Step",
    "errors": (
        "BusyError CheckpointError ConflictError ControlError DiskFullError EvidenceError ForbiddenError "
        "FormatError IntegrityError InvalidError LeaseError LostCommitsError NotFoundError StageError "
        "UnavailableError UnstorableError"
    ),
    "evidence.check": "register_evidence",
    "evidence.verifier": "EvidenceVerifier",
    "manager": "CheckpointManager",
    "model.evidence": "Evidence EvidencePack EvidenceType VerificationStatus",
    "observe.log": "correlation reporting",
    "opening": "open",
    "store": "Store",
    "task": "Task",
    "work.clock": "StageTimeout",
    "work.context": "StageContext",
    "work.control": "Control",
    "work.inbox": "Stopped",
    "work.pipeline": "Pipeline",
    "work.session": "before_risky current_session Session",
    "work.stage": "stage",
}
_HOMES: dict[str, str] = {}
for module, names in _NAMES.items():
    _HOMES.update(dict.fromkeys(names.split(), f"lastgood.{module}"))

__all__ = sorted(_HOMES.keys() - {"open"})  # `from lastgood import *` leaves Python's own open alone


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name == "types":
        return import_module("lastgood.types")
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__", "types"])
