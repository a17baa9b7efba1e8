"""Going back: a new branch whose first checkpoint continues the chosen one. Restore and fork are this one thing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from lastgood.catalog.values import FulfilledRequest, NewBranch, NewEvent
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import KEPT, Draft
from lastgood.engine.verify import examine
from lastgood.errors import ConflictError, EvidenceError, IntegrityError, InvalidError, NotFoundError
from lastgood.model.checkpoint import check_metadata
from lastgood.model.identity import MAX_NAME_BYTES, check_flag, check_name, check_text, new_id
from lastgood.model.task import MAIN

if TYPE_CHECKING:
    from lastgood.store import Store

What = Literal["both", "state", "files"]
Way = Literal["restore", "fork", "rollback"]

_RESTORED = re.compile(r" \(Restored from [^)]*\)( \d+)?$")


class Restored(msgspec.Struct, frozen=True):
    """What a restore came to. `before` holds the present as it was; `checkpoint` begins the new branch."""

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


def require_restorable(store: Store, checkpoint: Checkpoint, owner: str, *, evidence: bool, demanded: bool) -> None:
    """Everything needed is there and whole, and what it claims holds.

    Without `evidence` claims are not looked at; with `demanded` there must be some.
    """
    stored = store.stored(checkpoint.id, owner)
    if stored.data is None:
        raise NotFoundError(f"checkpoint {stored.id!r} was purged", hint="go back to another one")
    if stored.deleted:
        raise ConflictError(f"checkpoint {stored.id} was deleted", hint="undelete it first", checkpoint_id=stored.id)
    if not evidence:
        problems, pack = examine(store.catalog, stored), None
    else:
        from lastgood.engine.verification import verify_stored

        result = verify_stored(store, stored)
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
    store: Store,
    chosen: Checkpoint,
    owner: str,
    *,
    name: str | None = None,
    description: str = "",
    metadata: dict[str, Any] | None = None,
    active: bool,
    expects: str | None = None,
) -> NewBranch:
    """The branch that begins from `chosen` (E3)."""
    if metadata is not None:
        check_metadata(metadata)
    if name is not None:
        check_name("branch", name)
    origin = store.catalog.branch(owner, chosen.branch_id or "")
    at = chosen.created_at.isoformat(timespec="seconds").replace("+00:00", "Z")
    facts = {
        "restoredFrom": chosen.id,
        "originalTask": chosen.task_id,
        "restorePoint": chosen.created_at.isoformat(),
        "isBranch": True,
    }
    redaction = store.options.redaction
    return NewBranch(
        new_id(),
        name or _name_after(origin.name if origin else MAIN, at),
        redaction.text(check_text("description", description)),
        {**redaction.plain(metadata or {}), **facts},
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
    """The first checkpoint of a branch: the chosen one's snapshot, exactly; and the note in the log of `left`.

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


def meets(request: str | None, branch_id: str) -> tuple[FulfilledRequest, ...]:
    """What a restore meets that somebody asked for: it says where the work is now."""
    return () if request is None else (FulfilledRequest(request, {"branch": branch_id}),)


def _name_after(name: str, at: str) -> str:
    suffix = f" (Restored from {at})"
    base = _RESTORED.sub("", name).encode()[: MAX_NAME_BYTES - len(suffix) - 12].decode("utf-8", "ignore")
    return base + suffix
