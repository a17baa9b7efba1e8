"""lastgood: checkpoints for AI agents and long-running work.

The public names, and nothing else. They load when first used: `import lastgood` costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own costs as much to import as all of Python
if TYPE_CHECKING:
    from typing import Any

    from lastgood.codec.append_list import AppendList
    from lastgood.codec.classes import PlainDataWarning, register
    from lastgood.codec.decode import Redacted
    from lastgood.engine.branch import Restored
    from lastgood.engine.browse import FileInfo
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.difference import Difference, FileChange, FilesDiff
    from lastgood.engine.history import Entry
    from lastgood.engine.options import Options
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.restore_files import FilesPlan
    from lastgood.engine.step import Step
    from lastgood.engine.verify import Verification
    from lastgood.errors import (
        BusyError,
        CheckpointError,
        ConflictError,
        ControlError,
        DiskFullError,
        EvidenceError,
        ForbiddenError,
        FormatError,
        IntegrityError,
        InvalidError,
        LeaseError,
        LostCommitsError,
        NotFoundError,
        StageError,
        UnavailableError,
        UnstorableError,
    )
    from lastgood.evidence.check import register_evidence
    from lastgood.evidence.verifier import EvidenceVerifier
    from lastgood.manager import CheckpointManager
    from lastgood.model.checkpoint import Skipped
    from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType
    from lastgood.model.task import BranchInfo, Lease, OpenStep, Request, TaskInfo
    from lastgood.observe.alerts import Alert, Thresholds
    from lastgood.observe.log import correlation, reporting
    from lastgood.observe.metrics import Metrics
    from lastgood.opening import open_store as open  # noqa: A004
    from lastgood.secrets.redaction import Redaction
    from lastgood.spool.replay import Diverged, Replayed, SetAside
    from lastgood.spool.spool import SpoolFigures
    from lastgood.store import CheckpointPage, Store
    from lastgood.task import Task
    from lastgood.upkeep.collect import Collected
    from lastgood.upkeep.report import CheckReport, Finding, RepairReport
    from lastgood.upkeep.usage import CheckpointUsage, Evicted, Limited, TaskUsage, Usage
    from lastgood.work.autosave import Autosave
    from lastgood.work.clock import StageTimeout
    from lastgood.work.context import StageContext
    from lastgood.work.control import Control, RequestResult
    from lastgood.work.inbox import Stopped
    from lastgood.work.pipeline import Pipeline
    from lastgood.work.progress import Progress, ProgressEvent
    from lastgood.work.run import Outcome
    from lastgood.work.session import Session, before_risky, current_session
    from lastgood.work.stage import Backoff, Stage, stage

__all__ = [
    "Alert",
    "AppendList",
    "Autosave",
    "Backoff",
    "BranchInfo",
    "BusyError",
    "CheckReport",
    "Checkpoint",
    "CheckpointError",
    "CheckpointManager",
    "CheckpointPage",
    "CheckpointUsage",
    "Collected",
    "ConflictError",
    "Control",
    "ControlError",
    "Difference",
    "DiskFullError",
    "Diverged",
    "Entry",
    "Evicted",
    "Evidence",
    "EvidenceError",
    "EvidencePack",
    "EvidenceType",
    "EvidenceVerifier",
    "FileChange",
    "FileInfo",
    "FilesDiff",
    "FilesPlan",
    "Finding",
    "ForbiddenError",
    "FormatError",
    "IntegrityError",
    "InvalidError",
    "Lease",
    "LeaseError",
    "Limited",
    "LostCommitsError",
    "Metrics",
    "NotFoundError",
    "OpenStep",
    "Options",
    "Outcome",
    "Pipeline",
    "PlainDataWarning",
    "Progress",
    "ProgressEvent",
    "Recovery",
    "Redacted",
    "Redaction",
    "RepairReport",
    "Replayed",
    "Request",
    "RequestResult",
    "Restored",
    "Session",
    "SetAside",
    "Skipped",
    "SpoolFigures",
    "Stage",
    "StageContext",
    "StageError",
    "StageTimeout",
    "Step",
    "Stopped",
    "Store",
    "Task",
    "TaskInfo",
    "TaskUsage",
    "Thresholds",
    "UnavailableError",
    "UnstorableError",
    "Usage",
    "Verification",
    "before_risky",
    "correlation",
    "current_session",
    "open",
    "register",
    "register_evidence",
    "reporting",
    "stage",
]

_HOMES = {
    "Autosave": "lastgood.work.autosave",
    "Backoff": "lastgood.work.stage",
    "Control": "lastgood.work.control",
    "ControlError": "lastgood.errors",
    "Lease": "lastgood.model.task",
    "LeaseError": "lastgood.errors",
    "Outcome": "lastgood.work.run",
    "Pipeline": "lastgood.work.pipeline",
    "Progress": "lastgood.work.progress",
    "ProgressEvent": "lastgood.work.progress",
    "Request": "lastgood.model.task",
    "RequestResult": "lastgood.work.control",
    "Session": "lastgood.work.session",
    "Stage": "lastgood.work.stage",
    "StageContext": "lastgood.work.context",
    "StageTimeout": "lastgood.work.clock",
    "Stopped": "lastgood.work.inbox",
    "before_risky": "lastgood.work.session",
    "current_session": "lastgood.work.session",
    "Alert": "lastgood.observe.alerts",
    "stage": "lastgood.work.stage",
    "AppendList": "lastgood.codec.append_list",
    "BranchInfo": "lastgood.model.task",
    "BusyError": "lastgood.errors",
    "CheckReport": "lastgood.upkeep.report",
    "Checkpoint": "lastgood.engine.checkpoint",
    "CheckpointError": "lastgood.errors",
    "CheckpointManager": "lastgood.manager",
    "CheckpointPage": "lastgood.store",
    "CheckpointUsage": "lastgood.upkeep.usage",
    "Collected": "lastgood.upkeep.collect",
    "Evicted": "lastgood.upkeep.usage",
    "Limited": "lastgood.upkeep.usage",
    "ConflictError": "lastgood.errors",
    "Difference": "lastgood.engine.difference",
    "DiskFullError": "lastgood.errors",
    "Diverged": "lastgood.spool.replay",
    "Entry": "lastgood.engine.history",
    "Evidence": "lastgood.model.evidence",
    "EvidenceError": "lastgood.errors",
    "EvidencePack": "lastgood.model.evidence",
    "EvidenceType": "lastgood.model.evidence",
    "EvidenceVerifier": "lastgood.evidence.verifier",
    "FileChange": "lastgood.engine.difference",
    "FileInfo": "lastgood.engine.browse",
    "FilesDiff": "lastgood.engine.difference",
    "FilesPlan": "lastgood.engine.restore_files",
    "Finding": "lastgood.upkeep.report",
    "ForbiddenError": "lastgood.errors",
    "FormatError": "lastgood.errors",
    "IntegrityError": "lastgood.errors",
    "InvalidError": "lastgood.errors",
    "LostCommitsError": "lastgood.errors",
    "Metrics": "lastgood.observe.metrics",
    "NotFoundError": "lastgood.errors",
    "OpenStep": "lastgood.model.task",
    "Options": "lastgood.engine.options",
    "PlainDataWarning": "lastgood.codec.classes",
    "Recovery": "lastgood.engine.recovery",
    "Redacted": "lastgood.codec.decode",
    "Redaction": "lastgood.secrets.redaction",
    "RepairReport": "lastgood.upkeep.report",
    "Replayed": "lastgood.spool.replay",
    "Restored": "lastgood.engine.branch",
    "SetAside": "lastgood.spool.replay",
    "Skipped": "lastgood.model.checkpoint",
    "SpoolFigures": "lastgood.spool.spool",
    "StageError": "lastgood.errors",
    "Step": "lastgood.engine.step",
    "Store": "lastgood.store",
    "Task": "lastgood.task",
    "TaskInfo": "lastgood.model.task",
    "TaskUsage": "lastgood.upkeep.usage",
    "Thresholds": "lastgood.observe.alerts",
    "UnavailableError": "lastgood.errors",
    "UnstorableError": "lastgood.errors",
    "Usage": "lastgood.upkeep.usage",
    "Verification": "lastgood.engine.verify",
    "correlation": "lastgood.observe.log",
    "reporting": "lastgood.observe.log",
    "open": "lastgood.opening",
    "register": "lastgood.codec.classes",
    "register_evidence": "lastgood.evidence.check",
}


def __getattr__(name: str) -> "Any":
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
