"""lastgood: checkpoints for AI agents and long-running work.

The public names, and nothing else. They load when first used: `import lastgood` costs next to nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # typing's own costs as much to import as all of Python
if TYPE_CHECKING:
    from typing import Any

    from lastgood.content.appending import AppendList
    from lastgood.content.classes import PlainDataWarning, register
    from lastgood.content.redacted import Redacted
    from lastgood.engine.alert import Alert, Thresholds
    from lastgood.engine.browse import FileChange, FileInfo, FilesDiff
    from lastgood.engine.checking.report import CheckReport, Finding
    from lastgood.engine.checkpoint import Checkpoint, Skipped
    from lastgood.engine.collect import Collected
    from lastgood.engine.context import correlation, reporting
    from lastgood.engine.difference import Difference
    from lastgood.engine.history import Entry
    from lastgood.engine.limit import Evicted, Limited
    from lastgood.engine.manager import CheckpointManager
    from lastgood.engine.metrics.snapshot import Metrics
    from lastgood.engine.options import Options
    from lastgood.engine.recovery import Recovery
    from lastgood.engine.repairing.report import RepairReport
    from lastgood.engine.restore import Restored
    from lastgood.engine.rewind import FilesPlan
    from lastgood.engine.spooling.replay import Diverged, Replayed, SetAside
    from lastgood.engine.spooling.spool import SpoolFigures
    from lastgood.engine.step import Step
    from lastgood.engine.store import CheckpointPage, Store
    from lastgood.engine.store import open_store as open  # noqa: A004
    from lastgood.engine.task import Task
    from lastgood.engine.usage import BranchUsage, CheckpointUsage, Growth, Share, TaskUsage, Usage
    from lastgood.engine.verification import Verification
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
    from lastgood.evidence.registry import register_evidence
    from lastgood.evidence.verifier import EvidenceVerifier
    from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType
    from lastgood.model.lease import Lease
    from lastgood.model.redaction import Redaction
    from lastgood.model.request import Request
    from lastgood.model.step import OpenStep
    from lastgood.model.task import BranchInfo, TaskInfo
    from lastgood.runner.autosave import Autosave
    from lastgood.runner.context import StageContext
    from lastgood.runner.control import Asked, Control
    from lastgood.runner.pipeline import Pipeline
    from lastgood.runner.plan import Outcome
    from lastgood.runner.progress import Progress, ProgressEvent
    from lastgood.runner.retry import Backoff
    from lastgood.runner.risky import before_risky
    from lastgood.runner.session import Session, Stopped, current_session
    from lastgood.runner.stage import Stage, stage
    from lastgood.runner.timeout import StageTimeout

__all__ = [
    "Alert",
    "AppendList",
    "Asked",
    "Autosave",
    "Backoff",
    "BranchInfo",
    "BranchUsage",
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
    "Growth",
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
    "Restored",
    "Session",
    "SetAside",
    "Share",
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
    "Asked": "lastgood.runner.control",
    "Autosave": "lastgood.runner.autosave",
    "Backoff": "lastgood.runner.retry",
    "Control": "lastgood.runner.control",
    "ControlError": "lastgood.errors",
    "Lease": "lastgood.model.lease",
    "LeaseError": "lastgood.errors",
    "Outcome": "lastgood.runner.plan",
    "Pipeline": "lastgood.runner.pipeline",
    "Progress": "lastgood.runner.progress",
    "ProgressEvent": "lastgood.runner.progress",
    "Request": "lastgood.model.request",
    "Session": "lastgood.runner.session",
    "Stage": "lastgood.runner.stage",
    "StageContext": "lastgood.runner.context",
    "StageTimeout": "lastgood.runner.timeout",
    "Stopped": "lastgood.runner.session",
    "before_risky": "lastgood.runner.risky",
    "current_session": "lastgood.runner.session",
    "Alert": "lastgood.engine.alert",
    "stage": "lastgood.runner.stage",
    "AppendList": "lastgood.content.appending",
    "BranchInfo": "lastgood.model.task",
    "BranchUsage": "lastgood.engine.usage",
    "BusyError": "lastgood.errors",
    "CheckReport": "lastgood.engine.checking.report",
    "Checkpoint": "lastgood.engine.checkpoint",
    "CheckpointError": "lastgood.errors",
    "CheckpointManager": "lastgood.engine.manager",
    "CheckpointPage": "lastgood.engine.store",
    "CheckpointUsage": "lastgood.engine.usage",
    "Collected": "lastgood.engine.collect",
    "Evicted": "lastgood.engine.limit",
    "Limited": "lastgood.engine.limit",
    "ConflictError": "lastgood.errors",
    "Difference": "lastgood.engine.difference",
    "DiskFullError": "lastgood.errors",
    "Diverged": "lastgood.engine.spooling.replay",
    "Entry": "lastgood.engine.history",
    "Evidence": "lastgood.model.evidence",
    "EvidenceError": "lastgood.errors",
    "EvidencePack": "lastgood.model.evidence",
    "EvidenceType": "lastgood.model.evidence",
    "EvidenceVerifier": "lastgood.evidence.verifier",
    "FileChange": "lastgood.engine.browse",
    "FileInfo": "lastgood.engine.browse",
    "FilesDiff": "lastgood.engine.browse",
    "FilesPlan": "lastgood.engine.rewind",
    "Finding": "lastgood.engine.checking.report",
    "ForbiddenError": "lastgood.errors",
    "FormatError": "lastgood.errors",
    "Growth": "lastgood.engine.usage",
    "IntegrityError": "lastgood.errors",
    "InvalidError": "lastgood.errors",
    "LostCommitsError": "lastgood.errors",
    "Metrics": "lastgood.engine.metrics.snapshot",
    "NotFoundError": "lastgood.errors",
    "OpenStep": "lastgood.model.step",
    "Options": "lastgood.engine.options",
    "PlainDataWarning": "lastgood.content.classes",
    "Recovery": "lastgood.engine.recovery",
    "Redacted": "lastgood.content.redacted",
    "Redaction": "lastgood.model.redaction",
    "RepairReport": "lastgood.engine.repairing.report",
    "Replayed": "lastgood.engine.spooling.replay",
    "Restored": "lastgood.engine.restore",
    "SetAside": "lastgood.engine.spooling.replay",
    "Share": "lastgood.engine.usage",
    "Skipped": "lastgood.engine.checkpoint",
    "SpoolFigures": "lastgood.engine.spooling.spool",
    "StageError": "lastgood.errors",
    "Step": "lastgood.engine.step",
    "Store": "lastgood.engine.store",
    "Task": "lastgood.engine.task",
    "TaskInfo": "lastgood.model.task",
    "TaskUsage": "lastgood.engine.usage",
    "Thresholds": "lastgood.engine.alert",
    "UnavailableError": "lastgood.errors",
    "UnstorableError": "lastgood.errors",
    "Usage": "lastgood.engine.usage",
    "Verification": "lastgood.engine.verification",
    "correlation": "lastgood.engine.context",
    "reporting": "lastgood.engine.context",
    "open": "lastgood.engine.store",
    "register": "lastgood.content.classes",
    "register_evidence": "lastgood.evidence.registry",
}


def __getattr__(name: str) -> "Any":
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
