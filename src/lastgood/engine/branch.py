"""A new branch whose first checkpoint continues the chosen one: what restore and fork have in common, and fork."""

from __future__ import annotations

import re
from typing import Any, Literal, get_args

import msgspec

from lastgood.catalog.values import FulfilledRequest, NewBranch, NewEvent
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft
from lastgood.engine.engine import Engine, acting, retry_without_dead_lease
from lastgood.engine.handle import Handle
from lastgood.engine.load import find_line, find_stored
from lastgood.engine.save import begin_branch
from lastgood.engine.verify import examine, verify_stored
from lastgood.errors import ConflictError, EvidenceError, IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import check_metadata
from lastgood.model.identity import MAX_NAME_BYTES, check_flag, check_name, check_text, new_id
from lastgood.model.task import MAIN, BranchInfo
from lastgood.observe.log import log_action

What = Literal["both", "state", "files"]
Way = Literal["restore", "fork", "rollback"]

_RESTORED = re.compile(r" \(Restored from [^)]*\)( \d+)?$")


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore. `before` holds the present as it was; `checkpoint` begins the new branch."""

    checkpoint_id: str
    checkpoint: Checkpoint
    before: Checkpoint | None
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def new_checkpoint_id(self) -> str:
        return self.checkpoint.id

    @property
    def branch_id(self) -> str:
        return self.checkpoint.branch_id or ""

    @property
    def state(self) -> Any:
        return self.checkpoint.state


def check_what(what: object, *, has_workspace: bool) -> None:
    if what not in get_args(What):
        raise InvalidError(f"what cannot be {str(what)[:80]!r}", hint=f"one of {', '.join(get_args(What))}")
    if what == "files" and not has_workspace:
        raise InvalidError("there is no workspace to put files into", hint="open it: store.task(…, workspace=folder)")


def require_restorable(
    engine: Engine, user: str, checkpoint: Checkpoint, owner: str, *, evidence: bool, demanded: bool
) -> None:
    """Require that all that a checkpoint needs is there and whole, and that what it claims holds.

    Without `evidence` claims are not looked at; with `demanded` there must be some.
    """
    stored = find_stored(engine.catalog, owner, checkpoint.id)
    if stored.data is None:
        raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="go back to another one")
    if stored.deleted:
        raise ConflictError(f"checkpoint {stored.id} was deleted", hint="undelete it first", checkpoint_id=stored.id)
    if not evidence or (checkpoint.record.evidence is None and not demanded):
        problems, pack = examine(engine, stored), None
    else:
        result = verify_stored(engine, user, stored)
        problems, pack = result.problems, result.pack
    if problems:
        raise IntegrityError(
            f"checkpoint {checkpoint.id} cannot be restored: {problems[0]}",
            hint="go back to another one: task.last_good() finds it",
            checkpoint_id=checkpoint.id,
            problems=problems,
        )
    if pack is None or pack.is_verified or not (pack.evidence_list or demanded):
        return
    failed = [item.to_dict() for item in pack.evidence_list if not item.verified]
    told = "; ".join(f"{item['description']} ({item['verification_error']})" for item in failed[:3])
    raise EvidenceError(
        f"checkpoint {checkpoint.id} is not verified: {told or 'it has no evidence'}",
        hint="go back to one that is: task.last_good(verified=True); or override by name: verify=False",
        checkpoint_id=checkpoint.id,
        failed=failed,
    )


def plan_branch(
    engine: Engine,
    chosen: Checkpoint,
    owner: str,
    *,
    name: str | None = None,
    description: str = "",
    metadata: dict[str, Any] | None = None,
    active: bool,
    expects: str | None = None,
) -> NewBranch:
    """Return the branch that begins from `chosen` (E3)."""
    if metadata is not None:
        check_metadata(metadata)
    if name is not None:
        check_name("branch", name)
    origin = engine.catalog.branch(owner, chosen.branch_id or "")
    at = chosen.created_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    facts = {
        "restoredFrom": chosen.id,
        "originalTask": chosen.task_id,
        "restorePoint": chosen.created_at.isoformat(),
        "isBranch": True,
    }
    redaction = engine.options.redaction
    return NewBranch(
        new_id(),
        name or _name_after(origin.name if origin else MAIN, at),
        redaction.text(description) if check_text("description", description) else "",
        {**(redaction.plain(metadata) if metadata else {}), **facts},
        active=check_flag("active", active),
        may_rename=name is None,
        expects=expects,
    )


def draft_restored(
    chosen: Checkpoint,
    new: NewBranch,
    left: str,
    way: Way,
    *,
    what: What = "state",
    files: Any = KEPT,
    **fields: Any,
) -> Draft:
    """Return the first checkpoint of a branch: the chosen one's snapshot, exactly; and the note in the log of `left`.

    Its files are the chosen one's, too, unless others are given.
    """
    about = {"branch": new.id, "by": way, "what": what}
    return Draft(
        state=KEPT,
        files=files,
        type="forked" if way == "fork" else "restored",
        lineage="forked" if way == "fork" else "restored",
        step_id=chosen.step_id,
        iteration=chosen.iteration,
        iteration_state=chosen.iteration_state,
        work_item_id=chosen.work_item_id,
        notes=(NewEvent("restored", left, chosen.id, about),),
        **fields,
    )


def fulfilments(request: str | None, branch_id: str) -> tuple[FulfilledRequest, ...]:
    """Return the request that a restore fulfils, if any; its outcome says which branch the work is on now."""
    return () if request is None else (FulfilledRequest(request, {"branch": branch_id}),)


def fork(
    handle: Handle,
    checkpoint: Checkpoint | str,
    *,
    name: str | None,
    description: str,
    metadata: dict[str, Any] | None,
    paused: bool,
    verify: bool,
) -> Checkpoint:
    """Begin a branch at `checkpoint`, and leave everything else as it is; return its first checkpoint."""
    engine = handle.engine
    with handle.lock:
        chosen = handle.choose(checkpoint)
        evidence = check_flag("verify", verify)
        require_restorable(engine, handle.user, chosen, handle.owner, evidence=evidence, demanded=False)
        about: dict[str, Any] = {"name": name, "description": description, "metadata": metadata}
        new = plan_branch(engine, chosen, handle.owner, active=False, **about)
        state = "paused" if check_flag("paused", paused) else None
        draft = draft_restored(chosen, new, chosen.branch_id or "", "fork", control_state=state)
        return begin_branch(handle, chosen, new, draft, follow=False)


def find_branch(handle: Handle, branch: str) -> BranchInfo:
    """Return a branch of the task by its name or its id."""
    for info in list_branches(handle):
        if branch in (info.id, info.name) and not info.deleted:
            return info
    raise NotFoundError(f"{handle.task_id!r} has no branch {branch!r}", hint="`lastgood branch` lists them")


def list_branches(handle: Handle) -> list[BranchInfo]:
    """Return the branches of the task, oldest first."""
    if handle.head is None:
        return []
    return handle.engine.catalog.branches(find_line(handle.engine.catalog, handle.owner, handle.task_id).task)


def delete_branch(engine: Engine, user: str, owner: str, branch_id: str) -> int:
    """Delete a branch and what only it has; return how many checkpoints."""
    about = (owner, check_name("branch id", branch_id), acting(user))
    count = retry_without_dead_lease(engine.catalog, lambda: engine.catalog.delete_branch(*about))
    log_action(user, "delete_branch", branch_id, checkpoints=count)
    return count


def _name_after(name: str, at: str) -> str:
    suffix = f" (Restored from {at})"
    base = _RESTORED.sub("", name).encode()[: MAX_NAME_BYTES - len(suffix) - 12].decode("utf-8", "ignore")
    return base + suffix
