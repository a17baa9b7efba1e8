"""The evidence-first interface of requirements D: steps by id, each with the evidence that it was done."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, lru_cache
from typing import Any

from lastgood.catalog.values import Blob
from lastgood.codec.compress import compress, decompress
from lastgood.codec.decode import decode
from lastgood.codec.encode import encode
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.commit import Draft
from lastgood.engine.load import BRIEFLY, wrap_intact
from lastgood.engine.options import Options
from lastgood.engine.proof import Proof, proving
from lastgood.engine.save import save_on_top
from lastgood.engine.step import end_failed
from lastgood.errors import ConflictError, NotFoundError, UnstorableError
from lastgood.local.process import this_process
from lastgood.model.checkpoint import check_metadata
from lastgood.model.evidence import EvidencePack
from lastgood.model.identity import check_name, check_type, new_id, now
from lastgood.model.task import OpenStep
from lastgood.observe.log import current_correlation
from lastgood.opening import open_engine, warn_of_interrupted_steps
from lastgood.store import Store
from lastgood.task import Task

OPEN_TASKS = 32
"""Tasks that a manager remembers where they stand, so that each step need not look it up."""


class CheckpointManager(Store):
    """A store with steps that are begun and committed by id, in whatever process (D4).

    `db_path` is the application's own SQLite file, which need not exist and is only read: by evidence about rows that
    names no database. The store lies in a folder beside it: `registry.lastgood` beside `registry.sqlite`. Or it is a
    store: a folder, or a file that is one already. `base_path` is where relative paths of evidence
    begin. With `auto_verify` evidence is checked when a step is committed. For the rest see `Options`.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str] = "store/registry.sqlite",
        base_path: str | os.PathLike[str] | None = None,
        auto_verify: bool = True,
        *,
        user: str | None = None,
        **options: Any,
    ) -> None:
        settings = Options(base_path=base_path, auto_verify=auto_verify, **options)
        super().__init__(*open_engine(db_path, settings, user, beside=True))
        self._open_task: Callable[[str], Task] = lru_cache(OPEN_TASKS)(self.task)
        warn_of_interrupted_steps(self._engine.catalog)

    def begin_step(
        self,
        task_id: str,
        checkpoint_type: str,
        snapshot: Any,
        work_item_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Record that a piece of work has begun, with the state it leads to; the id to commit it by."""
        metadata = {} if metadata is None else metadata
        check_metadata(metadata)
        step_id, task = new_id(), self._open_task(check_name("task id", task_id))
        step = OpenStep(
            id=step_id,
            owner=self.user,
            task_id=task.task_id,
            branch_id=task.branch_id if task.id != task.task_id else None,
            name=step_id,
            type=check_type("checkpoint_type", checkpoint_type),
            began_at_us=now(),
            began_by=self.user,
            process=this_process(),
            work_item_id=None if work_item_id is None else check_name("work_item_id", work_item_id),
            correlation_id=current_correlation(),
            metadata=self._engine.options.redaction.plain(metadata),
            has_snapshot=True,
        )
        packed = self._pack_snapshot(snapshot)
        end_failed(self._engine, self.user)
        with self._logged("begin_step", task.branch_id or task.task_id):
            self._engine.catalog.begin_step(step, packed)
        return step_id

    def commit_step(
        self, step_id: str, evidence_pack: EvidencePack | None, checkpoint_id: str | None = None
    ) -> Checkpoint:
        """Make the checkpoint of a step, on top of whatever the task's head is; `.verified` says whether it holds.

        It is stored even when its evidence does not hold. The pack is left as it is; the checkpoint has its own.
        With `checkpoint_id` committing again returns what is stored. Raises NotFoundError for an unknown step,
        ConflictError for one that was committed before under its own id.
        """
        check_name("step id", step_id)
        find = cache(lambda: self._engine.catalog.open_step(self.user, step_id))
        with self._proving(evidence_pack, lambda: _state_of(find())) as proof:
            if (found := find()) is None:
                return self._committed_before(step_id, proof, checkpoint_id)
            step, _ = found
            draft = Draft(
                state=_state_of(found),
                proof=proof,
                type=step.type,
                step_id=step_id,
                work_item_id=step.work_item_id,
                metadata=step.metadata,
                id=checkpoint_id or step_id,
                step=step_id,
            )
            handle = self._open_task(step.branch_id or step.task_id)._handle
            with BRIEFLY, self._engine.meter.span("save", task_id=handle.task_id) as describe:
                return describe(save_on_top(handle, draft))

    def _proving(self, pack: EvidencePack | None, snapshot: Callable[[], Any]) -> AbstractContextManager[Proof]:
        pack = EvidencePack() if pack is None else pack
        verifier = self._engine.verifier if self._engine.options.auto_verify else None
        return proving(pack, verifier, snapshot, self._engine.options.redaction)

    def _committed_before(self, step_id: str, again: Proof, checkpoint_id: str | None) -> Checkpoint:
        stored = self._engine.catalog.checkpoint(self.user, check_name("checkpoint_id", checkpoint_id or step_id))
        earlier = None if stored is None or stored.data is None else wrap_intact(self._engine, stored)
        if earlier is None or earlier.step_id != step_id:
            raise NotFoundError(f"there is no open step {step_id!r}", hint="begin_step gives the id of one")
        if checkpoint_id is None:
            raise ConflictError(
                f"the step {step_id!r} was committed already",
                hint="give its checkpoint_id to commit it again",
                head=earlier.as_head(),
            )
        if earlier.record.evidence == again.claims:
            return earlier
        raise ConflictError(
            f"the step {step_id!r} was committed with other evidence",
            hint="begin a new step",
            head=earlier.as_head(),
        )

    def _pack_snapshot(self, snapshot: Any) -> Blob:
        from lastgood.codec.redact import redact_state

        data = encode(redact_state(snapshot, self._engine.options.redaction.paths)[0], (None, "{}", "snapshot"))
        if len(data) > self._engine.options.max_state_bytes:
            raise UnstorableError(
                f"snapshot takes {len(data):,} bytes, more than the {self._engine.options.max_state_bytes:,} allowed",
                hint="keep large content in files, or raise max_state_bytes",
                path="snapshot",
            )
        encoding, stored = compress(data)
        return Blob(b"", len(data), encoding, stored)


def _state_of(found: tuple[OpenStep, Blob | None] | None) -> Any:
    blob = found and found[1]
    return decode(decompress(blob.encoding, blob.data, blob.size)) if blob else None
