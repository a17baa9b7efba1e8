"""What is returned by the calls of `lastgood`, or given to them as options. Names load when first used."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lastgood.codec.decode import Redacted as Redacted
    from lastgood.engine.branch import Restored as Restored
    from lastgood.engine.browse import FileInfo as FileInfo
    from lastgood.engine.difference import Difference as Difference
    from lastgood.engine.difference import FileChange as FileChange
    from lastgood.engine.difference import FilesDiff as FilesDiff
    from lastgood.engine.history import Entry as Entry
    from lastgood.engine.options import Options as Options
    from lastgood.engine.recovery import Recovery as Recovery
    from lastgood.engine.restore_files import FilesPlan as FilesPlan
    from lastgood.engine.verify import Verification as Verification
    from lastgood.model.checkpoint import Skipped as Skipped
    from lastgood.model.task import BranchInfo as BranchInfo
    from lastgood.model.task import Lease as Lease
    from lastgood.model.task import OpenStep as OpenStep
    from lastgood.model.task import Request as Request
    from lastgood.model.task import TaskInfo as TaskInfo
    from lastgood.observe.alerts import Alert as Alert
    from lastgood.observe.metrics import Metrics as Metrics
    from lastgood.secrets.redaction import Redaction as Redaction
    from lastgood.spool.replay import Diverged as Diverged
    from lastgood.spool.replay import Replayed as Replayed
    from lastgood.spool.replay import SetAside as SetAside
    from lastgood.spool.spool import SpoolFigures as SpoolFigures
    from lastgood.store import CheckpointPage as CheckpointPage
    from lastgood.upkeep.backup import BackedUp as BackedUp
    from lastgood.upkeep.collect import Collected as Collected
    from lastgood.upkeep.report import CheckReport as CheckReport
    from lastgood.upkeep.report import Finding as Finding
    from lastgood.upkeep.report import RepairReport as RepairReport
    from lastgood.upkeep.usage import CheckpointUsage as CheckpointUsage
    from lastgood.upkeep.usage import Evicted as Evicted
    from lastgood.upkeep.usage import Limited as Limited
    from lastgood.upkeep.usage import TaskUsage as TaskUsage
    from lastgood.upkeep.usage import Usage as Usage
    from lastgood.work.autosave import Autosave as Autosave
    from lastgood.work.control import RequestResult as RequestResult
    from lastgood.work.progress import Progress as Progress
    from lastgood.work.progress import ProgressEvent as ProgressEvent
    from lastgood.work.requests import Guidance as Guidance
    from lastgood.work.run import Outcome as Outcome
    from lastgood.work.stage import Stage as Stage

_NAMES = {
    "codec.decode": "Redacted",
    "engine.branch": "Restored",
    "engine.browse": "FileInfo",
    "engine.difference": "Difference FileChange FilesDiff",
    "engine.history": "Entry",
    "engine.options": "Options",
    "engine.recovery": "Recovery",
    "engine.restore_files": "FilesPlan",
    "engine.verify": "Verification",
    "model.checkpoint": "Skipped",
    "model.task": "BranchInfo Lease OpenStep Request TaskInfo",
    "observe.alerts": "Alert",
    "observe.metrics": "Metrics",
    "secrets.redaction": "Redaction",
    "spool.replay": "Diverged Replayed SetAside",
    "spool.spool": "SpoolFigures",
    "store": "CheckpointPage",
    "upkeep.backup": "BackedUp",
    "upkeep.collect": "Collected",
    "upkeep.report": "CheckReport Finding RepairReport",
    "upkeep.usage": "CheckpointUsage Evicted Limited TaskUsage Usage",
    "work.autosave": "Autosave",
    "work.control": "RequestResult",
    "work.requests": "Guidance",
    "work.progress": "Progress ProgressEvent",
    "work.run": "Outcome",
    "work.stage": "Stage",
}
_HOMES: dict[str, str] = {}
for module, names in _NAMES.items():
    _HOMES.update(dict.fromkeys(names.split(), f"lastgood.{module}"))

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
