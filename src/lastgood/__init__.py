"""lastgood: checkpoints for AI agents and long-running work.

The public names, and nothing else. They load when first used: `import lastgood` costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own costs as much to import as all of Python
if TYPE_CHECKING:
    from typing import Any

    from lastgood.codec.append_list import AppendList as AppendList
    from lastgood.codec.classes import PlainDataWarning as PlainDataWarning, register as register
    from lastgood.codec.decode import Redacted as Redacted
    from lastgood.engine.branch import Restored as Restored
    from lastgood.engine.browse import FileInfo as FileInfo
    from lastgood.engine.checkpoint import Checkpoint as Checkpoint
    from lastgood.engine.difference import Difference as Difference, FileChange as FileChange, FilesDiff as FilesDiff
    from lastgood.engine.history import Entry as Entry
    from lastgood.engine.options import Options as Options
    from lastgood.engine.recovery import Recovery as Recovery
    from lastgood.engine.restore_files import FilesPlan as FilesPlan
    from lastgood.engine.step import Step as Step
    from lastgood.engine.verify import Verification as Verification
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
    from lastgood.model.checkpoint import Skipped as Skipped
    from lastgood.model.evidence import Evidence as Evidence, EvidencePack as EvidencePack, EvidenceType as EvidenceType
    from lastgood.model.task import (
        BranchInfo as BranchInfo,
        Lease as Lease,
        OpenStep as OpenStep,
        Request as Request,
        TaskInfo as TaskInfo,
    )
    from lastgood.observe.alerts import Alert as Alert
    from lastgood.observe.log import correlation as correlation, reporting as reporting
    from lastgood.observe.metrics import Metrics as Metrics
    from lastgood.opening import open_store
    from lastgood.secrets.redaction import Redaction as Redaction
    from lastgood.spool.replay import Diverged as Diverged, Replayed as Replayed, SetAside as SetAside
    from lastgood.spool.spool import SpoolFigures as SpoolFigures
    from lastgood.store import CheckpointPage as CheckpointPage, Store as Store
    from lastgood.task import Task as Task
    from lastgood.upkeep.backup import BackedUp as BackedUp
    from lastgood.upkeep.collect import Collected as Collected
    from lastgood.upkeep.report import CheckReport as CheckReport, Finding as Finding, RepairReport as RepairReport
    from lastgood.upkeep.usage import (
        CheckpointUsage as CheckpointUsage,
        Evicted as Evicted,
        Limited as Limited,
        TaskUsage as TaskUsage,
        Usage as Usage,
    )
    from lastgood.work.autosave import Autosave as Autosave
    from lastgood.work.clock import StageTimeout as StageTimeout
    from lastgood.work.context import StageContext as StageContext
    from lastgood.work.control import Control as Control, RequestResult as RequestResult
    from lastgood.work.inbox import Stopped as Stopped
    from lastgood.work.pipeline import Pipeline as Pipeline
    from lastgood.work.progress import Progress as Progress, ProgressEvent as ProgressEvent
    from lastgood.work.run import Outcome as Outcome
    from lastgood.work.session import (
        Session as Session,
        before_risky as before_risky,
        current_session as current_session,
    )
    from lastgood.work.stage import Stage as Stage, stage as stage

    open = open_store

_NAMES = {
    "codec.append_list": "AppendList",
    "codec.classes": "PlainDataWarning register",
    "codec.decode": "Redacted",
    "engine.branch": "Restored",
    "engine.browse": "FileInfo",
    "engine.checkpoint": "Checkpoint",
    "engine.difference": "Difference FileChange FilesDiff",
    "engine.history": "Entry",
    "engine.options": "Options",
    "engine.recovery": "Recovery",
    "engine.restore_files": "FilesPlan",
    "engine.step": "Step",
    "engine.verify": "Verification",
    "errors": (
        "BusyError CheckpointError ConflictError ControlError DiskFullError EvidenceError ForbiddenError "
        "FormatError IntegrityError InvalidError LeaseError LostCommitsError NotFoundError StageError "
        "UnavailableError UnstorableError"
    ),
    "evidence.check": "register_evidence",
    "evidence.verifier": "EvidenceVerifier",
    "manager": "CheckpointManager",
    "model.checkpoint": "Skipped",
    "model.evidence": "Evidence EvidencePack EvidenceType",
    "model.task": "BranchInfo Lease OpenStep Request TaskInfo",
    "observe.alerts": "Alert",
    "observe.log": "correlation reporting",
    "observe.metrics": "Metrics",
    "opening": "open",
    "secrets.redaction": "Redaction",
    "spool.replay": "Diverged Replayed SetAside",
    "spool.spool": "SpoolFigures",
    "store": "CheckpointPage Store",
    "task": "Task",
    "upkeep.backup": "BackedUp",
    "upkeep.collect": "Collected",
    "upkeep.report": "CheckReport Finding RepairReport",
    "upkeep.usage": "CheckpointUsage Evicted Limited TaskUsage Usage",
    "work.autosave": "Autosave",
    "work.clock": "StageTimeout",
    "work.context": "StageContext",
    "work.control": "Control RequestResult",
    "work.inbox": "Stopped",
    "work.pipeline": "Pipeline",
    "work.progress": "Progress ProgressEvent",
    "work.run": "Outcome",
    "work.session": "before_risky current_session Session",
    "work.stage": "Stage stage",
}
_HOMES: dict[str, str] = {}
for module, names in _NAMES.items():
    _HOMES.update(dict.fromkeys(names.split(), f"lastgood.{module}"))

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> "Any":
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
