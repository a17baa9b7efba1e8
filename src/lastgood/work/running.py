"""One run of a pipeline on a session: from where it stands to its end, or back to a stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lastgood.engine.commit import KEPT
from lastgood.errors import ConflictError, ControlError, InvalidError
from lastgood.model.identity import new_id, now
from lastgood.observe.log import log_warning
from lastgood.work.clock import Clock
from lastgood.work.performing import Performer
from lastgood.work.plan import Outcome, Plan
from lastgood.work.progress import EventKind, Missing, Progress, broken_rule, find_progress
from lastgood.work.session import Session, Stopped, count_rounds
from lastgood.work.standing import Listener, Standing

if TYPE_CHECKING:
    from lastgood.task import Task
    from lastgood.work.driving import Driver
    from lastgood.work.plan import Job

BEAT_SECONDS = 5.0
Found = Progress | Missing | None


class Running:
    """Made for one run, and used once."""

    def __init__(
        self, plan: Plan, task: Task, driver: Driver, listener: Listener | None, options: dict[str, Any]
    ) -> None:
        """`options` are those of a session."""
        self._plan = plan
        self._task = task
        self._driver = driver
        self._clock: Clock = options.get("clock") or Clock()
        self._standing = Standing(task, self._clock, listener)
        _check(plan, task, options)
        self._options = options
        self._session: Session | None = None
        self._performer: Performer | None = None
        self._is_interrupted = False

    def run(self, first: Any, *, restart: bool) -> Outcome:
        """From where it stands to the end. `first`: the state to begin with; KEPT: the one that is there."""
        head = self._task.refresh()
        more = "yes" if head is None or restart else self._look_for_more()
        if head is not None and more == "no":
            return Outcome(head.state, head)
        with self._begin_session(first, restart=restart or more == "again") as session:
            self._begin(None if restart else self._find(), first)
            self._take_back()
            while (job := self._next()) is not None:
                self._perform(job)
            done = self._standing.progress
            self._standing.finish(done.cleared(done.round))
        return self._end(session, "completed")

    def roll_back(self, to: str) -> Outcome:
        """Take back the completed stages, the last one first, down to `to` and with it."""
        self._task.refresh()
        self._require_completed(to, self._find(finished=False))
        with self._begin_session(KEPT, restart=True) as session:
            standing = self._standing
            self._go_on(self._require_completed(to, self._find(finished=False)), "resumed")
            if to in standing.progress.completed and standing.progress.undoing != to:
                standing.move(standing.progress.rolling_back(to))
                session.save(type="before_rollback", message=f"before rolling back to {to}")
            self._take_back()
            if to in standing.progress.completed:
                raise ConflictError("the work was led elsewhere while it was rolled back", hint="look where it is now")
            left = msgspec.structs.replace(standing.progress, rolled_back=True)
            standing.finish(left if left.completed else left.cleared(left.round - 1, rolled_back=True))
            session.save(type="rolled_back", message=f"rolled back to {to}", control_state="stopped")
        return self._end(session, "rolled_back")

    def interrupt(self) -> None:
        """Let it end at its next boundary. From any thread."""
        self._is_interrupted = True
        if self._session is not None:
            self._session.interrupt()

    # --- where it stands -----------------------------------------------------------------------------------

    def _look_for_more(self) -> Literal["no", "yes", "again"]:
        """Whether there is something to be done; "again": by work that had come to an end."""
        head, found = self._task.head, self._find()
        assert head is not None
        if head.control_state != "completed":
            if found is not None and self._plan.on_invalid == "refuse":
                self._is_valid(found)
            rolled_back = isinstance(found, Progress) and found.rolled_back
            return "again" if rolled_back and head.control_state == "stopped" else "yes"
        if not isinstance(found, Progress) or found.finished is None or found.pipeline != self._plan.name:
            raise ControlError(
                "this work is completed, and not by this pipeline",
                hint="run it with restart=True, or on a task of its own",
                state="completed",
            )
        if any(request.kind == "rounds" for request in self._task.requests()):
            return "yes"
        return "again" if found.finished < self._plan.rounds + count_rounds(head.guidance) else "no"

    def _find(self, *, finished: bool = True) -> Found:
        found = find_progress(self._task.store, self._task.owner, self._task.head, finished=finished)
        return None if found is None else found[1]

    def _is_valid(self, found: Progress | Missing) -> bool:
        """C4: if it cannot be gone on with, that is said once; or refused."""
        plan = self._plan
        rule = broken_rule(found, plan.names, pipeline=plan.name, ttl=plan.ttl, at=now())
        if rule is None:
            return True
        if plan.on_invalid == "refuse":
            raise ConflictError(
                f"the progress of {self._task.id!r} cannot be gone on with: {rule}",
                hint="run it with restart=True to begin anew",
                head=self._task.head and self._task.head.as_head(),
            )
        told = f"the progress of {self._task.id!r} was discarded, and it begins anew: {rule}"
        log_warning(told, task_id=self._task.task_id)
        return False

    def _require_completed(self, to: str, found: Found) -> Progress:
        """A record that can be rolled back to `to`, or was just now."""
        plan = self._plan
        if to not in plan.names:
            raise InvalidError(f"there is no stage {to!r}", hint=f"one of {', '.join(plan.names)}")
        rule = "nothing was run yet"
        if found is not None:
            rule = broken_rule(found, plan.names, pipeline=plan.name, ttl=None, at=now()) or ""
            if isinstance(found, Progress) and not rule and plan.names.index(to) <= found.last + 1:
                return found
        raise InvalidError(f"the stage {to!r} is not completed{rule and ': '}{rule}", hint="there is nothing to undo")

    def _begin(self, found: Found, first: Any) -> None:
        self._standing.first = KEPT
        if isinstance(found, Progress) and self._standing.is_at(found):  # made by the session just now
            self._standing.arrive("begun")
        else:
            self._take_up(found, first, "resumed")

    def _take_up(self, found: Found, first: Any, kind: EventKind) -> None:
        """Go on where the record says, or begin. It is said before the first heartbeat (C3)."""
        session, standing = self._require_session(), self._standing
        if found is not None and self._is_valid(found):
            assert isinstance(found, Progress)
            self._go_on(found, kind)
            return
        standing.move(self._fresh(session.executor))
        standing.arrive("begun")
        standing.first = first
        session.save(type="started")
        standing.first = KEPT

    def _go_on(self, found: Progress, kind: EventKind) -> None:
        session = self._require_session()
        rounds = self._plan.rounds + session.rounds
        self._standing.move(found.taken_up(self._plan.names, rounds, session.executor, afresh=self._was_over))
        self._standing.arrive(kind)

    def _fresh(self, executor: str) -> Progress:
        plan = self._plan
        return Progress(
            pipeline=plan.name, run=new_id(), plan=plan.names, rounds=plan.rounds, executor=executor, at=now()
        )

    # --- going on ------------------------------------------------------------------------------------------

    def _begin_session(self, first: Any, *, restart: bool) -> Session:
        head, standing = self._task.head, self._standing
        self._was_over = head is not None and head.control_state in ("failed", "stopped")
        session = Session(
            self._task,
            state=standing.provide,
            load=standing.load,
            about=standing.about,
            beat=(BEAT_SECONDS, standing.beat) if standing.is_heard else None,
            restart=restart,
            **self._options,
        )
        if head is None:
            standing.first = first
            standing.move(self._fresh(session.executor))
        self._session = session
        self._performer = Performer(session, standing, self._driver, self._clock, self._plan)
        if self._is_interrupted:
            session.interrupt()
        return session

    def _next(self) -> Job | None:
        """What is to be done, after what people asked for."""
        self._attend()
        progress, last = self._standing.progress, len(self._plan.stages) - 1
        if progress.last == last:
            rounds = self._plan.rounds + self._require_session().rounds
            if progress.round >= rounds:
                return None
            self._standing.move(progress.next_round(rounds), "round")
        return self._plan.doing(self._standing.progress.last + 1)

    def _take_back(self) -> None:
        """As far as a roll back that is under way leads."""
        while self._is_rolling_back():
            job = self._plan.undoing(self._standing.progress.last)
            if job is None:
                self._standing.move(self._standing.progress.undone())
            else:
                self._perform(job)

    def _is_rolling_back(self) -> bool:
        """After what people asked for, which may lead elsewhere."""
        if self._standing.progress.undoing is not None:
            self._attend()
        return self._standing.progress.undoing is not None

    def _attend(self) -> None:
        session, performer = self._require_session(), self._performer
        assert performer is not None
        if performer.is_ahead and not self._standing.is_elsewhere():
            try:
                session.pass_boundary()
            except Stopped:
                performer.fall_back("the work ended before it began")
                raise
            return
        performer.fall_back("the work was led elsewhere")
        session.boundary()
        while self._standing.is_elsewhere():
            self._take_up(self._find(), KEPT, "restored")

    def _perform(self, job: Job) -> None:
        assert self._performer is not None
        self._performer.perform(job)

    def _end(self, session: Session, kind: EventKind) -> Outcome:
        head = self._task.head
        assert head is not None
        self._standing.tell(kind if session.stopped is None else "stopped", error=session.stopped)
        return Outcome(head.state, head, session.stopped)

    def _require_session(self) -> Session:
        assert self._session is not None
        return self._session


def _check(plan: Plan, task: Task, options: dict[str, Any]) -> None:
    for name in ("state", "load", "about", "beat", "anytime", "restart"):
        if name in options:
            raise InvalidError(f"a pipeline sees to the {name} of its session itself", field=name)
    for stage in plan.stages:
        task.step(stage.name, on_error=stage.on_error)  # refuses what cannot be
    names = list(plan.names)
    if task.store.options.redaction.plain(names) != names:
        raise InvalidError("the name of a stage looks like a secret, and would not be stored", hint="rename it")
