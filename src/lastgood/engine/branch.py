"""A new branch whose first checkpoint continues the chosen one: what restore and fork have in common, and fork."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any, Literal, get_args

import msgspec

from lastgood.catalog.values import FulfilledRequest, NewBranch, NewEvent
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft
from lastgood.engine.engine import Engine, acting, retry_without_dead_lease
from lastgood.engine.handle import Handle
from lastgood.engine.load import find_line, find_stored, logged
from lastgood.engine.options import OnFailure
from lastgood.engine.save import Files, begin_branch, save
from lastgood.engine.verify import examine, examine_values, recorded_damage, verify_stored
from lastgood.errors import ConflictError, EvidenceError, IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import Skipped, check_metadata, refuse_restart
from lastgood.model.identity import MAX_NAME_BYTES, check_flag, check_name, check_text, new_id
from lastgood.model.task import MAIN, BranchInfo

What = Literal["both", "state", "files"]
Way = Literal["restore", "fork", "rollback"]

_NUMBERED = re.compile(r"(.+)-(\d{1,9})", re.ASCII | re.DOTALL)


class Restored(msgspec.Struct, frozen=True):
    """The result of a restore. `before` holds the present as it was; `checkpoint` begins the new branch. `added`: what
    of `restored` was not there. `missing`: what was left out of the checkpoint, and is gone from disk: it cannot be
    brought back."""

    checkpoint_id: str
    checkpoint: Checkpoint
    before: Checkpoint | None
    restored: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    added: tuple[str, ...] = ()
    missing: tuple[Skipped, ...] = ()

    def __repr__(self) -> str:
        files = f", {len(self.restored)} files back" if self.restored else ""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<Restored {self.checkpoint_id} as @{self.checkpoint.sequence}{files}{failed}>"

    @property
    def new_checkpoint_id(self) -> str:
        return self.checkpoint.id

    @property
    def branch_id(self) -> str:
        return self.checkpoint.branch_id or ""

    @property
    def state(self) -> Any:
        return self.checkpoint.state


def check_what(what: object) -> None:
    if what not in get_args(What):
        raise InvalidError(f"what cannot be {str(what)[:80]!r}", hint=f"one of {', '.join(get_args(What))}")


def require_restorable(
    engine: Engine,
    user: str,
    checkpoint: Checkpoint,
    owner: str,
    *,
    evidence: bool,
    demanded: bool,
    skip_damaged: What | None = None,
) -> None:
    """Require that a checkpoint's record and state are whole, and that what it claims holds.

    Its files are read only where damage is recorded: who restores them reads what it needs. Without `evidence` claims
    are not looked at; with `demanded` there must be some. `skip_damaged`: what of it comes back, where damage is no
    reason to refuse that; the state must be whole if it is to come back, and claims of a damaged one are not looked at.
    """
    stored = find_stored(engine.catalog, owner, checkpoint.id)
    if stored.data is None:
        raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="restore another one")
    if stored.deleted:
        raise ConflictError(
            f"checkpoint {stored.id} was deleted",
            hint=f"store.undelete_checkpoint({stored.id!r}) brings it back",
            checkpoint_id=stored.id,
        )
    judged = checkpoint.has_evidence or checkpoint.judge() is not None
    if not evidence or not (judged or demanded):
        problems, pack = examine(engine, stored, files="read" if recorded_damage(engine, stored) else "none"), None
    elif skip_damaged:
        result = verify_stored(engine, user, stored, files="read")
        problems, pack = result.problems, result.pack
    else:
        result = verify_stored(engine, user, stored)
        problems, pack = result.problems, result.pack
    if problems and skip_damaged:
        problems = [] if skip_damaged == "files" else examine_values(engine, stored, checkpoint.record)
        pack = None
    if problems:
        raise cannot_restore(checkpoint, problems)
    if pack is None or pack.is_verified or not (pack.evidence_list or demanded):
        return
    failed = [item.to_dict() for item in pack.evidence_list if not item.verified]
    told = "; ".join(f"{item['description']} ({item['verification_error']})" for item in failed[:3])
    raise EvidenceError(
        f"checkpoint {checkpoint.id} is not verified: {told or 'it has no evidence'}",
        hint="restore one that is: task.last_good(); verify=False restores this one anyway",
        checkpoint_id=checkpoint.id,
        failed=failed,
    )


def cannot_restore(checkpoint: Checkpoint, problems: list[str]) -> IntegrityError:
    """Return the error that says why a damaged checkpoint is not restored."""
    return IntegrityError(
        f"checkpoint {checkpoint.id} cannot be restored: {problems[0]}",
        hint="restore what is whole of it (skip_damaged=True), or another one: task.last_good() finds it",
        checkpoint_id=checkpoint.id,
        problems=problems,
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
    way: str = "Restored",
) -> NewBranch:
    """Return the branch that begins from `chosen`. If nobody names it, it is called as the one that it comes from, with
    the next number, and its description says what it is (E3)."""
    if metadata is not None:
        check_metadata(metadata)
    if name is not None:
        check_name("branch", name)
    origin = engine.catalog.branch(owner, chosen.branch_id or "")
    came_from = origin.name if origin else MAIN
    at = chosen.created_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    title = f"{came_from} ({way} from {at})" if name is None else ""
    facts = {
        "restoredFrom": chosen.id,
        "originalTask": chosen.task_id,
        "restorePoint": chosen.created_at.isoformat(),
        "isBranch": True,
    }
    redaction = engine.options.redaction
    return NewBranch(
        new_id(),
        name or _name_after(came_from),
        redaction.text(description) if check_text("description", description) else title,
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
    return () if request is None else (FulfilledRequest(request, {"branch": branch_id}, "restore"),)


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
        new = plan_branch(engine, chosen, handle.owner, active=False, way="Forked", **about)
        state = "paused" if check_flag("paused", paused) else None
        draft = draft_restored(chosen, new, chosen.branch_id or "", "fork", control_state=state)
        return begin_branch(handle, chosen, new, draft, follow=False)


def save_on_parent(
    handle: Handle, draft: Draft, files: Files, policy: OnFailure | None, *, parent: Checkpoint | str
) -> Checkpoint:
    """Save on `parent`: if that is the head, as ever; else on a new branch from there, which this handle goes on on."""
    engine, workspace = handle.engine, handle.workspace
    with handle.lock:
        chosen = handle.choose(parent)
        if handle.head is not None and chosen.id == handle.head.id:
            return save(handle, draft, files, policy)
        if workspace is None and files is not None:
            raise InvalidError("there is no workspace", hint="store.task(…, workspace=folder) captures files")
        if handle.lease is None:
            refuse_restart(chosen.control_state, draft.control_state)
        with workspace.locked() if workspace else nullcontext():
            handle.require_unmoved()
            about: dict[str, Any] = {"active": handle.is_active, "expects": handle.expected()}
            new = plan_branch(engine, chosen, handle.owner, way="Branched", **about)
            captured = workspace.capture(None, files=files, takes_over=True) if workspace else None
            note = NewEvent("restored", handle.branch_id or "", chosen.id, {"branch": new.id, "by": "save"})
            ready = msgspec.structs.replace(
                draft,
                files=captured or KEPT,
                message=engine.options.redaction.text(draft.message),
                control_state=draft.control_state or handle.steered_state(),
                notes=(note,),
            )
            try:
                made = begin_branch(handle, chosen, new, ready, follow=True)
            finally:
                if captured is not None:
                    engine.blobs.withdraw_packs(captured.gathered)
        made.skipped = captured.skipped if captured is not None else ()
        return made


def find_branch(handle: Handle, branch: str) -> BranchInfo:
    """Return a branch of the task by its name or its id."""
    for info in list_branches(handle):
        if branch in (info.id, info.name) and not info.deleted:
            return info
    raise NotFoundError(f"{handle.task_id!r} has no branch {branch!r}", hint="task.branches() lists them")


def list_branches(handle: Handle) -> list[BranchInfo]:
    """Return the branches of the task, oldest first."""
    if handle.head is None:
        return []
    return handle.engine.catalog.branches(find_line(handle.engine.catalog, handle.owner, handle.task_id).task)


def delete_branch(engine: Engine, user: str, owner: str, branch_id: str, *, dry_run: bool) -> int:
    """Delete a branch and what only it has; return how many checkpoints. With `dry_run` nothing changes."""
    about = (owner, check_name("branch id", branch_id), acting(user))
    if check_flag("dry_run", dry_run):
        return retry_without_dead_lease(engine.catalog, lambda: engine.catalog.delete_branch(*about, dry_run=True))
    with logged(engine, user, owner, branch_id, "delete_branch", branch_id=branch_id):
        return retry_without_dead_lease(engine.catalog, lambda: engine.catalog.delete_branch(*about))


def _name_after(name: str) -> str:
    """Return the name with the next number: main-2 after main, main-3 after main-2."""
    numbered = _NUMBERED.fullmatch(name)
    base, number = (numbered[1], int(numbered[2])) if numbered else (name, 1)
    return f"{base.encode()[: MAX_NAME_BYTES - 12].decode('utf-8', 'ignore')}-{number + 1}"
