"""How the files on disk stand to the checkpoints: whose they are, and what changed since. Nothing is put back here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lastgood.cli.files import change_line, described, few, holds_whole_folders, interrupted_restores, rules_text
from lastgood.cli.progress import counting
from lastgood.cli.summary import place_text
from lastgood.errors import CheckpointError

if TYPE_CHECKING:
    from lastgood.cli.invocation import Invocation
    from lastgood.engine.checkpoint import Checkpoint
    from lastgood.engine.difference import FileChange
    from lastgood.engine.workspace import Workspace
    from lastgood.model.checkpoint import Skipped
    from lastgood.model.journal import Journal
    from lastgood.model.task import BranchInfo
    from lastgood.store import Store


class Drift(NamedTuple):
    """`since` is the checkpoint that the disk was compared with; None: it was not. `problem` says why the workspace
    cannot be looked at."""

    folders: Sequence[tuple[str, str, BranchInfo | None]] = ()
    since: Checkpoint | None = None
    changes: Sequence[FileChange] = ()
    interrupted: Sequence[Journal] = ()
    problem: str = ""
    skipped: Sequence[Skipped] = ()
    """What a save would leave out now; known when the disk was compared."""
    is_elsewhere: bool = False
    """The files are those of a branch that is not the active one."""

    def described(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folders": [
                {"name": name, "path": path, "branch_id": branch and branch.id, "branch": branch and branch.name}
                for name, path, branch in self.folders
            ],
            "since": self.since.id if self.since else None,
            "changes": [described(change) for change in self.changes],
            "interrupted": [
                {"checkpoint_id": journal.chosen, "before": journal.before, "pid": journal.process.pid}
                for journal in self.interrupted
            ],
            "skipped": [{"path": one.path, "reason": one.reason} for one in self.skipped],
            "problem": self.problem or None,
        }

    def fields(self) -> list[tuple[str, str]]:
        """For people: names and values."""
        shown = [
            ("files", f"{name + ': ' if name else ''}{path}{f' (of {branch.name})' if branch else ''}")
            for name, path, branch in self.folders
        ]
        if self.problem:
            shown.append(("files", self.problem))
        if self.since is not None and not self.changes:
            shown.append(("changed", f"nothing since {place_text(self.since)}"))
        lines = few([change_line(change) for change in self.changes])
        rules = few([said for one in self.skipped if (said := rules_text(one))])
        shown += [("changed" if not index else "", line) for index, line in enumerate(lines)]
        return shown + [("ignore rules" if not index else "", line) for index, line in enumerate(rules)]

    def advice(self) -> list[str]:
        if not self.is_elsewhere:
            return []
        return ["the files are those of another branch: `lastgood branch --switch` changes them, too"]


def look_at_files(call: Invocation, store: Store, head: Checkpoint | None) -> Drift | None:
    """None without a workspace."""
    from lastgood.engine.workspace import Workspace

    try:
        if (folders := call.folders()) is None:
            return None
        workspace = Workspace(store.filing, folders)
        return _look(call, store, workspace, head, interrupted_restores(call, store))
    except CheckpointError as error:
        return Drift(problem=str(error))


def _look(
    call: Invocation, store: Store, workspace: Workspace, head: Checkpoint | None, interrupted: list[Journal]
) -> Drift:
    owner = call.owner or store.user
    bound = workspace.bound(owner, head.task_id) if head else [None] * len(workspace.roots)
    branches = [store.catalog.branch(owner, one) if one else None for one in bound]
    places = [(root.name, root.path, branch) for root, branch in zip(workspace.roots, branches, strict=True)]
    if head is None or not head.integrity_ok:
        return Drift(places, interrupted=interrupted)
    other = next((one for one in branches if one and one.head and one.id != head.branch_id), None)
    since = store.get_checkpoint(other.head.id, owner=owner) if other and other.head else head
    if interrupted or since.record.files is None or not holds_whole_folders(since):
        return Drift(places, interrupted=interrupted, is_elsewhere=other is not None)
    from lastgood.engine.difference import FilesDiff

    with counting(call, "looking at files"):
        present = workspace.capture(since)
        read = store.filing.blobs.read_with(present.gathered)
        changes = FilesDiff(since.record.files, present.roots, read).changes
        store.filing.blobs.drop(present.gathered)
    return Drift(places, since, changes, skipped=present.skipped, is_elsewhere=other is not None)
