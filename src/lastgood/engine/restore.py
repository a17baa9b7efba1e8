"""Going back, and to another branch: restore, roll back, undo, redo, switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

from lastgood.catalog.values import Position, StoredCheckpoint
from lastgood.engine.branch import (
    Restored,
    Way,
    What,
    check_what,
    draft_restored,
    find_branch,
    fulfilments,
    plan_branch,
    require_restorable,
)
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, NOT_GIVEN, Draft
from lastgood.engine.engine import acting, pending_restores, retry_without_dead_lease
from lastgood.engine.handle import Handle
from lastgood.engine.load import find_stored, logged, wrap_intact
from lastgood.engine.save import begin_branch, is_unchanged, place_in_work, save_draft
from lastgood.errors import ConflictError, InvalidError
from lastgood.model.identity import check_flag, check_text
from lastgood.model.task import BranchInfo


def restore(
    handle: Handle,
    checkpoint: Checkpoint | str,
    what: What = "both",
    *,
    paths: Sequence[str] | None = None,
    present: Any = NOT_GIVEN,
    verify: bool = True,
    skip_damaged: bool = False,
    message: str = "",
    request: str | None = None,
) -> Restored:
    """Go back to `checkpoint`, on a new branch; and fulfil the request of that id in the same commit."""
    check_what(what)
    if paths is not None and what != "files":
        raise InvalidError("paths limit a restore of files", hint='give what="files" with them')
    verify = check_flag("verify", verify)
    message = handle.engine.options.redaction.text(message) if check_text("message", message) else ""
    skipping: What | None = what if check_flag("skip_damaged", skip_damaged) else None
    how: dict[str, Any] = {"verify": verify, "skip_damaged": skipping, "message": message, "request": request}
    with handle.lock:
        if what == "files":
            find_workspace(handle)
            handle.require_workspace()
        chosen = handle.choose(checkpoint)
        if what == "both" and chosen.record.files is not None:
            find_workspace(handle)
        if handle.workspace is None or what == "state" or (what == "both" and chosen.record.files is None):
            return _restore_state(handle, chosen, "restore", present, **how)
        from lastgood.engine.restore_files import FilesRestore

        files = FilesRestore(handle)
        with files.locked():
            return files.insist(lambda: files.restore(chosen, what, paths, present, **how))


def find_workspace(handle: Handle) -> None:
    """Give a handle without a workspace the folder that has its branch's files, so that these go where the state goes.

    InvalidError when they lie in a folder that is not here.
    """
    if handle.workspace is not None or handle.leaves_files or handle.head is None:
        return
    from lastgood.engine.workspace import find_known

    if (folders := find_known(handle.engine, handle.owner, handle.head)) is not None:
        handle.open_workspace(folders)
        if pending_restores(handle.engine, handle.task_id, handle.owner):
            from lastgood.engine.restore_files import FilesRestore

            FilesRestore(handle).recover()


def bring_files(handle: Handle) -> None:
    """Restore the head's files into the workspace, where it is not known to have this branch's."""
    head, workspace = handle.head, handle.workspace
    if workspace is not None and head is not None and head.record.files is not None:
        bound = workspace.bound(handle.owner, handle.task_id)
        if any(branch != handle.branch_id for branch in bound):
            restore(handle, head, "files", verify=False, message="brought along")


def roll_back(handle: Handle, chosen: Checkpoint | str) -> Restored:
    """Restore the state for a one-shot caller: evidence is demanded, and the head may be any."""
    chosen = chosen if isinstance(chosen, Checkpoint) else handle.choose(chosen)
    return _restore_state(handle, chosen, "rollback", NOT_GIVEN, verify=True, message="")


def _restore_state(
    handle: Handle,
    chosen: Checkpoint,
    way: Way,
    present: Any,
    *,
    verify: bool,
    message: str,
    skip_damaged: What | None = None,
    request: str | None = None,
) -> Restored:
    """Go back to the state of `chosen`; the files stay, and are captured as the new branch's."""
    engine, workspace = handle.engine, handle.workspace
    demands: dict[str, Any] = {"evidence": verify, "demanded": way == "rollback", "skip_damaged": skip_damaged}
    require_restorable(engine, handle.user, chosen, handle.owner, **demands)
    with workspace.locked() if workspace else nullcontext():
        if way == "rollback":
            handle.refresh()
        else:
            handle.require_unmoved()
        if present is not NOT_GIVEN and not (handle.head and is_unchanged(handle, present, handle.head)):
            told, place = f"before restoring @{chosen.sequence}", place_in_work(handle.head)
            kept = Draft(state=present, type="before_restore", message=told, **place)
            save_draft(handle, kept, policy="raise")
        before, expects = handle.head, None if way == "rollback" else handle.expected()
        new = plan_branch(engine, chosen, handle.owner, active=handle.is_active, expects=expects)
        files = workspace.capture(None, takes_over=True) if workspace else None
        about: dict[str, Any] = {"message": message, "control_state": handle.steered_state()}
        about["fulfils"] = fulfilments(request, new.id)
        draft = draft_restored(chosen, new, handle.branch_id or "", way, files=files or KEPT, **about)
        try:
            return Restored(chosen.id, begin_branch(handle, chosen, new, draft, follow=True), before)
        finally:
            if files is not None:
                engine.blobs.withdraw_packs(files.gathered)


def undo_or_redo(handle: Handle, way: Literal["undo", "redo"]) -> Checkpoint:
    """Reverse the last restore or switch, or the last undo; return the head that is gone on from now."""
    catalog = handle.engine.catalog
    if handle.by_branch:
        raise InvalidError(f"{way} moves a whole task", hint=f"open it by its id: store.task({handle.task_id!r})")

    def go(**files: Any) -> Position:
        actor, expects, about = acting(handle.user), handle.expected(), {"lease": handle.lease, **files}
        with logged(handle.engine, handle.user, handle.owner, handle.task_id, way):
            position = retry_without_dead_lease(
                catalog, lambda: catalog.move(handle.owner, handle.task_id, way, actor, expects=expects, **about)
            )
        handle.adopt(position)
        return position

    with handle.lock:
        handle.require_head()
        return _move(handle, lambda: catalog.destination(handle.owner, handle.task_id, way), go)


def switch(handle: Handle, branch: str) -> Checkpoint:
    """Make a branch, by its name or its id, the task's active one, and go on there."""
    catalog, chosen = handle.engine.catalog, find_branch(handle, branch)

    def go(**files: Any) -> Position:
        actor, expects, about = acting(handle.user), handle.expected(), {"lease": handle.lease, **files}
        with logged(handle.engine, handle.user, handle.owner, handle.task_id, "switch"):
            position = retry_without_dead_lease(
                catalog, lambda: catalog.move(handle.owner, chosen.id, "switch", actor, expects=expects, **about)
            )
        handle.id = handle.task_id
        handle.adopt(position)
        return position

    with handle.lock:
        stays = chosen.id == handle.branch_id  # its files lie there already, perhaps edited since
        return _move(handle, lambda: None if stays else _newest(handle, chosen), go)


def _newest(handle: Handle, branch: BranchInfo) -> StoredCheckpoint | None:
    head = find_stored(handle.engine.catalog, handle.owner, branch.head.id) if branch.head else None
    if head is not None and head.deleted:
        raise ConflictError(
            "the newest checkpoint of the branch to go to was deleted",
            hint="undelete it first, or fork another one",
        )
    return head


def _move(handle: Handle, find: Callable[[], StoredCheckpoint | None], go: Callable[..., Position]) -> Checkpoint:
    """Go to another branch, or to other files of this one, with the files that belong there: those of the
    checkpoint that `find` finds. What is refused is refused before a file is touched."""
    find_workspace(handle)
    if handle.workspace is None:
        go()
        return handle.require_head()
    from lastgood.engine.restore_files import FilesRestore

    files = FilesRestore(handle)
    with files.locked():
        if handle.is_active:
            handle.require_unmoved()
        destination = find()
        return files.travel(wrap_intact(handle.engine, destination) if destination else None, go)
