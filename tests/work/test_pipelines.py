"""Pipelines: stages in order on a session, which go on where they stopped (C1 to C6, C9, A1, A15)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import Meanwhile

import lastgood
from lastgood import (
    ConflictError,
    ControlError,
    Evidence,
    EvidenceType,
    InvalidError,
    LeaseError,
    Pipeline,
    StageContext,
    StageError,
    Store,
    UnstorableError,
    stage,
)
from lastgood.model.identity import now
from lastgood.types import ProgressEvent
from lastgood.work.attempt import Tracker
from lastgood.work.clock import Clock

Ctx = StageContext


class Clockwork(Clock):
    """Time passes when somebody waits for it."""

    def __init__(self) -> None:
        self.at = 0.0
        self.waits: list[float] = []

    def now(self) -> float:
        return self.at

    def wait(self, until: threading.Event, seconds: float) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return until.wait()
        self.at += seconds
        self.waits.append(seconds)
        return until.is_set()


def adding(*names: str) -> list[lastgood.types.Stage]:
    """Stages that only add their names to a list."""

    def work(ctx: Ctx) -> None:
        ctx.state.setdefault("done", []).append(ctx.stage)

    return [stage(name=name)(work) for name in names]


def types(store: Store) -> list[str]:
    return [checkpoint.type for checkpoint in reversed(store.list_checkpoints("work"))]


def control(store: Store) -> lastgood.Control:
    return store.task("work").control


def failing_once(store: Store) -> tuple[Pipeline, list[str]]:
    """Three stages; the second one fails the first time."""
    ran: list[str] = []

    def work(ctx: Ctx) -> None:
        ran.append(ctx.stage)
        ctx.state[ctx.stage] = True
        if ran == ["a", "b"]:
            raise OSError("no such luck; password=hunter22")

    pipeline = Pipeline([stage(name=name)(work) for name in "abc"])
    with pytest.raises(StageError):
        pipeline.run(store.task("work"))
    return pipeline, ran


def counting(monkeypatch: pytest.MonkeyPatch, store: Store, name: str) -> list[object]:
    """What a method of the catalog is called with."""
    real, calls = getattr(store._engine.catalog, name), list[object]()

    def counted(*about: Any, **more: Any) -> Any:
        calls.append(about)
        return real(*about, **more)

    monkeypatch.setattr(store._engine.catalog, name, counted)
    return calls


# --- running -----------------------------------------------------------------------------------------------


def test_stages_run_in_order_and_each_is_one_checkpoint(store: Store) -> None:
    """C2, A1, A3: its name, its round, the control state; one commit each."""
    outcome = Pipeline(adding("fetch", "clean", "train")).run(store.task("work"), state={"url": "x"})
    assert outcome.state == {"url": "x", "done": ["fetch", "clean", "train"]}
    assert (outcome.stopped, outcome.checkpoint.control_state) == (None, "completed")
    assert types(store) == ["started", "stage_succeeded", "stage_succeeded", "stage_succeeded", "completed"]
    found = list(reversed(store.list_checkpoints("work", 10, "stage_succeeded")))
    assert [(one.step_id, one.iteration, one.control_state) for one in found] == [
        ("fetch", 1, "running"),
        ("clean", 1, "running"),
        ("train", 1, "running"),
    ]
    assert [one.iteration_state for one in found] == ["iteration_start", "iteration", "iteration_end"]
    assert [one.state["done"] for one in found] == [["fetch"], ["fetch", "clean"], ["fetch", "clean", "train"]]
    assert store.open_steps("work") == []


def test_the_record_says_all_of_c1_and_is_cleared_on_completion(store: Store) -> None:
    """C1, C9."""
    seen: list[lastgood.types.Progress | None] = []

    def look(ctx: Ctx) -> None:
        seen.append(store.task("work").progress())

    pipeline = Pipeline([*adding("first"), look, *adding("last")], name="nightly")
    pipeline.run(store.task("work"), executor="worker 7")
    progress = seen[0]
    assert progress is not None
    assert (progress.pipeline, progress.executor) == ("nightly", "worker 7")
    assert (progress.last, progress.completed, progress.next) == (0, ("first",), "look")
    assert progress.plan == ("first", "look", "last")
    assert len(progress.durations) == 1
    assert progress.at_us > 0
    assert progress.version == 2
    assert store.task("work").progress() is None
    assert pipeline.progress(store.task("work")) is None


def test_completed_work_is_left_alone_and_restart_runs_it_again(store: Store) -> None:
    """A15."""
    pipeline = Pipeline(adding("a", "b"))
    done = pipeline.run(store.task("work"))
    before = types(store)
    again = pipeline.run(store.task("work"))
    assert (again.checkpoint.id, again.stopped, types(store)) == (done.checkpoint.id, None, before)
    other = pipeline.run(store.task("work"), restart=True, state={"new": True})
    assert other.state == {"new": True, "done": ["a", "b"]}
    assert pipeline.run(store.task("work"), restart=True).state["done"] == ["a", "b", "a", "b"]


def test_work_that_another_completed_is_not_taken_for_done(store: Store) -> None:
    Pipeline(adding("a"), name="one").run(store.task("work"))
    with pytest.raises(ControlError, match="not by this pipeline"):
        Pipeline(adding("a"), name="two").run(store.task("work"))


def test_stages_are_functions_objects_or_coroutines(store: Store) -> None:
    class Load:
        def run(self, ctx: Ctx) -> None:
            ctx.state["load"] = ctx.index

    async def transform(ctx: Ctx) -> None:
        ctx.state["transform"] = lastgood.current_session() is ctx.session

    class Named:
        name = "publish"

        async def run(self, ctx: Ctx) -> None:
            ctx.state = {**ctx.state, "published": True}

    pipeline = Pipeline([Load(), transform, Named(), lambda ctx: None])
    assert [one.name for one in pipeline.stages] == ["Load", "transform", "publish", "<lambda>"]
    assert pipeline.run(store.task("work")).state == {"load": 0, "transform": True, "published": True}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Pipeline([]),
        lambda: Pipeline(adding("a", "a")),
        lambda: Pipeline([3]),
        lambda: Pipeline(adding("a"), rounds=0),
        lambda: Pipeline(adding("a"), ttl=0),
        lambda: Pipeline(adding("a"), on_invalid="hope"),  # type: ignore[arg-type]
        lambda: stage(timeout=-1)(print),
        lambda: stage(retries=-1)(print),
        lambda: stage(on_error="hope")(print),  # type: ignore[call-overload]
        lambda: stage(undo=3)(print),  # type: ignore[call-overload]
    ],
)
def test_a_pipeline_that_cannot_be_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidError):
        wrong()


def test_what_cannot_be_run_here_is_refused_before_anything_is_stored(store: Store) -> None:
    task = store.task("work")
    with pytest.raises(InvalidError, match="secret"):
        Pipeline(adding("password=hunter22")).run(task)
    with pytest.raises(InvalidError, match="files"):
        Pipeline([stage(name="a", on_error="restore")(print)]).run(task)
    with pytest.raises(InvalidError, match="itself"):
        Pipeline(adding("a")).run(task, load=print)
    with pytest.raises(InvalidError, match="no task"):
        Pipeline(adding("a")).run("work")  # type: ignore[arg-type]
    assert task.refresh() is None


# --- failing, and going on ---------------------------------------------------------------------------------


def test_a_failure_keeps_the_state_from_before_the_stage_and_running_again_goes_on_there(store: Store) -> None:
    """C2, C3: the error without secrets."""
    pipeline, ran = failing_once(store)
    head = store.task("work").head
    assert head is not None
    assert (head.type, head.control_state, head.step_id, head.state) == ("stage_failed", "failed", "b", {"a": True})
    assert "no such luck" in head.metadata["error"]
    assert "hunter22" not in str(head.metadata) + head.message
    progress = store.task("work").progress()
    assert progress is not None
    assert [(one.stage, one.attempt) for one in progress.failures] == [("b", 1)]
    assert pipeline.run(store.task("work")).state == {"a": True, "b": True, "c": True}
    assert ran == ["a", "b", "b", "c"]
    assert types(store).count("failed") == 0  # the failure is one checkpoint, not two


def test_the_error_names_the_stage_and_its_cause(store: Store) -> None:
    def deploy(ctx: Ctx) -> None:
        raise ConnectionError("the host is away")

    with pytest.raises(StageError, match="the stage 'deploy' failed: ConnectionError: the host is away") as caught:
        Pipeline([deploy]).run(store.task("work"))
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert caught.value.details["stage"] == "deploy"
    assert caught.value.hint


def test_a_stage_is_retried_with_growing_waits_and_each_attempt_knows_its_number(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C2: every failure is saved before the retry."""
    monkeypatch.setattr("random.random", lambda: 1.0)
    attempts: list[tuple[int, str, dict[str, Any]]] = []
    clock = Clockwork()

    @stage(retries=3, backoff=0.1)
    def flaky(ctx: Ctx) -> None:
        attempts.append((ctx.attempt, ctx.key, dict(ctx.state)))
        ctx.state["half"] = True
        if ctx.attempt < 4:
            raise TimeoutError("later")

    Pipeline([flaky]).run(store.task("work"), clock=clock)
    assert [number for number, _, _ in attempts] == [1, 2, 3, 4]
    assert len({key for _, key, _ in attempts}) == 1
    assert [state for _, _, state in attempts] == [{}] * 4
    assert clock.waits == pytest.approx([0.05, 0.1, 0.2])
    assert types(store) == ["started", *["stage_failed"] * 3, "stage_succeeded", "completed"]
    failed = store.list_checkpoints("work", 10, "stage_failed")
    assert {one.control_state for one in failed} == {"running"}


def test_retries_are_counted_anew_when_the_work_is_run_again(store: Store) -> None:
    attempts: list[int] = []

    @stage(retries=1, backoff=0)
    def bad(ctx: Ctx) -> None:
        attempts.append(ctx.attempt)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(StageError):
            Pipeline([bad]).run(store.task("work"))
    assert attempts == [1, 2, 3, 4]


def test_stopping_ends_the_waiting_for_a_retry(store: Store) -> None:
    @stage(retries=5, backoff=1e6)
    def bad(ctx: Ctx) -> None:
        control(store).stop()
        raise ValueError("no")

    outcome = Pipeline([bad]).run(store.task("work"))
    assert (outcome.stopped, control(store).state) == ("stopped", "stopped")
    assert types(store) == ["started", "stage_failed", "stopped"]


def test_what_cannot_be_stored_fails_the_work_and_is_not_tried_again(store: Store) -> None:
    """A8."""
    ran: list[int] = []

    @stage(retries=5, backoff=0)
    def bad(ctx: Ctx) -> None:
        ran.append(ctx.attempt)
        ctx.state["socket"] = threading.Lock()

    with pytest.raises(UnstorableError):
        Pipeline([bad]).run(store.task("work"))
    assert ran == [1]
    assert types(store) == ["started", "stage_failed"]
    assert control(store).state == "failed"
    assert store.open_steps("work") == []


def test_files_of_a_failed_attempt_are_put_back_where_that_is_wanted(store: Store, tmp_path: Path) -> None:
    notes = tmp_path / "files" / "notes"
    notes.parent.mkdir()
    notes.write_text("before")
    seen: list[str] = []

    @stage(retries=1, backoff=0, on_error="restore")
    def edit(ctx: Ctx) -> None:
        seen.append(notes.read_text())
        notes.write_text(f"by attempt {ctx.attempt}")
        if ctx.attempt == 1:
            raise ValueError("no")

    Pipeline([edit]).run(store.task("work", workspace=notes.parent))
    assert seen == ["before", "before"]
    assert notes.read_text() == "by attempt 2"


def test_evidence_of_a_stage_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", base_path=tmp_path, user="tester") as store:

        def write(ctx: Ctx) -> None:
            (tmp_path / "report").write_text("figures")
            ctx.expect_file("report")
            ctx.run(["true"])
            ctx.expect(Evidence(EvidenceType.ARTIFACT_EXISTS, "there", {"path": "report"}))

        Pipeline([write]).run(store.task("work"))
        checkpoint = store.list_checkpoints("work", 1, "stage_succeeded")[0]
        assert checkpoint.verified
        assert len(checkpoint.evidence_pack.evidence_list) == 3


# --- progress that does not fit ----------------------------------------------------------------------------


def test_progress_that_does_not_fit_is_discarded_with_one_warning(store: Store, caplog: Any) -> None:
    """C4."""
    failing_once(store)
    with caplog.at_level(logging.WARNING, "lastgood"):
        outcome = Pipeline(adding("x", "b")).run(store.task("work"))
    assert outcome.state["done"] == ["x", "b"]
    said = [entry.message for entry in caplog.records if "discarded" in entry.message]
    assert len(said) == 1
    assert "the completed stage 'a' is not in the plan" in said[0]


def test_progress_that_does_not_fit_can_be_refused_and_nothing_changes(store: Store) -> None:
    """C4."""
    failing_once(store)
    before = types(store)
    with pytest.raises(ConflictError, match="not in the plan") as caught:
        Pipeline(adding("x", "b"), on_invalid="refuse").run(store.task("work"))
    assert caught.value.hint
    assert types(store) == before


def test_progress_that_was_purged_is_not_forgotten_without_a_word(store: Store, caplog: Any) -> None:
    """C4: whoever saved on top of it, and removed what was before, did not mean to have all stages run again."""
    pipeline, ran = failing_once(store)
    store.task("work").save({"by": "hand"})
    for old in store.list_checkpoints("work")[1:]:
        store.purge_checkpoint(old.id)
    with pytest.raises(ConflictError, match="were purged") as caught:
        Pipeline(pipeline.stages, on_invalid="refuse").run(store.task("work"))
    assert caught.value.hint
    assert ran == ["a", "b"]
    assert store.task("work").progress() is None
    with caplog.at_level(logging.WARNING, "lastgood"):
        assert pipeline.run(store.task("work")).state == {"by": "hand", "a": True, "b": True, "c": True}
    assert len([entry for entry in caplog.records if "begins anew" in entry.message]) == 1


def test_stages_ahead_may_change_between_runs(store: Store) -> None:
    failing_once(store)
    assert Pipeline(adding("a", "new", "c"), on_invalid="refuse").run(store.task("work")).state["done"] == ["new", "c"]


def test_progress_beyond_its_time_is_discarded(store: Store, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """C4."""
    failing_once(store)
    later = now() + 11_000_000
    monkeypatch.setattr("lastgood.work.run.now", lambda: later)
    pipeline = Pipeline(adding("a", "b", "c"), ttl=10)
    assert pipeline.run(store.task("work")).state["done"] == ["a", "b", "c"]
    assert "older than 10 seconds" in caplog.text


def test_metadata_of_others_with_the_same_name_is_looked_past(store: Store) -> None:
    pipeline, ran = failing_once(store)
    task = store.task("work")
    task.save(task.state, metadata={"progress": "half"})
    pipeline.run(store.task("work"))
    assert ran == ["a", "b", "b", "c"]


# --- rounds ------------------------------------------------------------------------------------------------


def test_rounds_go_over_all_stages_and_people_add_more(store: Store) -> None:
    """A15: record.iteration is the round."""
    rounds: list[tuple[int, str]] = []

    def work(ctx: Ctx) -> None:
        rounds.append((ctx.round, ctx.stage))
        if len(rounds) == 3:
            control(store).add_rounds(1)

    pipeline = Pipeline([stage(name=name)(work) for name in "ab"], rounds=2)
    head = pipeline.run(store.task("work")).checkpoint
    assert rounds == [(1, "a"), (1, "b"), (2, "a"), (2, "b"), (3, "a"), (3, "b")]
    assert head.iteration == 3
    asked = control(store).add_rounds(1)
    assert not asked.fulfilled
    pipeline.run(store.task("work"))
    assert rounds[6:] == [(4, "a"), (4, "b")]
    assert control(store).state == "completed"
    Pipeline(pipeline.stages, rounds=3).run(store.task("work"))
    assert rounds[8:] == [(5, "a"), (5, "b")]
    assert pipeline.run(store.task("work")).stopped is None
    assert len(rounds) == 10


def test_a_round_that_was_interrupted_goes_on(store: Store) -> None:
    ran: list[tuple[int, str]] = []

    def work(ctx: Ctx) -> None:
        ran.append((ctx.round, ctx.stage))
        if ran[-1] == (2, "b") and ran.count((2, "b")) == 1:
            raise ValueError("no")

    pipeline = Pipeline([stage(name=name)(work) for name in "abc"], rounds=2)
    with pytest.raises(StageError):
        pipeline.run(store.task("work"))
    pipeline.run(store.task("work"))
    assert ran == [(1, "a"), (1, "b"), (1, "c"), (2, "a"), (2, "b"), (2, "b"), (2, "c")]


# --- one stage after the other -----------------------------------------------------------------------------


def open_stages(store: Store) -> list[tuple[str, int]]:
    return [(step.name, step.metadata["attempt"]) for step in store.open_steps("work")]


def test_the_commit_of_a_stage_begins_the_next_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction for each stage. Whoever is killed in between finds it open."""
    begun = counting(monkeypatch, store, "begin_step")
    looked = counting(monkeypatch, store, "requests")
    seen: list[list[tuple[str, int]]] = []

    def listen(event: ProgressEvent) -> None:
        if event.kind == "succeeded":
            seen.append(open_stages(store))

    grounds = []

    def work(ctx: Ctx) -> None:
        (step,) = store.open_steps("work")
        assert ctx.task.head is not None
        grounds.append(step.metadata["ground"] == ctx.task.head.id)

    Pipeline([stage(name=name)(work) for name in "abcd"], rounds=2).run(store.task("work"), on_progress=listen)
    assert seen == [[("b", 1)], [("c", 1)], [("d", 1)], []] * 2
    assert len(begun) == 2, "the first stage of a round begins by itself"
    assert len(looked) < 2 * 4, "somebody asks what the commit knows"
    assert grounds == [True] * 8


def test_where_people_want_something_the_next_stage_waits_to_begin(store: Store) -> None:
    seen: list[list[tuple[str, int]]] = []

    def first(ctx: Ctx) -> None:
        control(store).guide("shorter")

    def second(ctx: Ctx) -> None:
        assert [one["text"] for one in ctx.guidance] == ["shorter"]
        assert ctx.attempt == 1

    def listen(event: ProgressEvent) -> None:
        if event.kind == "succeeded":
            seen.append(open_stages(store))

    Pipeline([first, second]).run(store.task("work"), on_progress=listen)
    assert seen == [[], []]
    assert types(store)[1:4] == ["stage_succeeded", "guided", "stage_succeeded"]
    assert [event.kind for event in store.events("work") if event.kind.startswith("step")] == []


@pytest.mark.parametrize("at", ["started", "succeeded"])
def test_an_interrupted_run_leaves_no_stage_begun(store: Store, at: str) -> None:
    """In the midst of a stage, or just when the next one was begun with its commit."""
    ran: list[tuple[str, int]] = []

    def work(ctx: Ctx) -> None:
        ran.append((ctx.stage, ctx.attempt))
        sessions.append(ctx.session)
        if at == "started" and len(ran) == 1:
            ctx.session.interrupt()

    def listen(event: ProgressEvent) -> None:
        if at == event.kind == "succeeded" and len(ran) == 1:
            sessions[0].interrupt()

    sessions: list[lastgood.Session] = []
    pipeline = Pipeline([stage(name=name)(work) for name in "ab"])
    assert pipeline.run(store.task("work"), on_progress=listen).stopped == "interrupted"
    assert open_stages(store) == []
    withdrawn = [event.data["reason"] for event in store.events("work") if event.kind == "step_abandoned"]
    assert withdrawn == ([] if at == "started" else ["the work ended before it began"])
    assert pipeline.run(store.task("work")).stopped is None
    assert ran == [("a", 1), ("b", 1)]


def test_a_save_in_between_is_what_the_next_stage_begins_on(store: Store) -> None:
    task = store.task("work")

    def first(ctx: Ctx) -> None:
        ctx.state["first"] = True

    def second(ctx: Ctx) -> None:
        (step,) = store.open_steps("work")
        assert (step.metadata["ground"], ctx.attempt) == (task.head and task.head.id, 1)
        assert ctx.state == {"first": True, "by the listener": True}

    def listen(event: ProgressEvent) -> None:
        if (event.kind, event.stage) == ("succeeded", "first"):
            task.save({**task.state, "by the listener": True}, metadata=task.head.metadata if task.head else {})

    Pipeline([first, second]).run(task, on_progress=listen)
    (withdrawn,) = [event.data["reason"] for event in store.events("work") if event.kind == "step_abandoned"]
    assert withdrawn == "something came before it"
    assert open_stages(store) == []


# --- people ------------------------------------------------------------------------------------------------


def test_stopped_between_stages_it_is_retried_from_there(store: Store) -> None:
    """C2, A15."""
    ran: list[str] = []

    def work(ctx: Ctx) -> None:
        ran.append(ctx.stage)
        if ran == ["a"]:
            control(store).stop()

    pipeline = Pipeline([stage(name=name)(work) for name in "ab"])
    outcome = pipeline.run(store.task("work"))
    assert (outcome.stopped, ran) == ("stopped", ["a"])
    with pytest.raises(ControlError):
        pipeline.run(store.task("work"))
    control(store).retry()
    assert pipeline.run(store.task("work")).stopped is None
    assert ran == ["a", "b"]


def test_paused_between_stages_it_waits_and_what_people_say_comes_with_the_progress(store: Store) -> None:
    """A11, C2: also what is said while nobody runs it."""
    told: list[Any] = []

    def first(ctx: Ctx) -> None:
        control(store).pause()
        control(store).guide("shorter")
        beside.append(people.submit(person))

    def second(ctx: Ctx) -> None:
        told.extend(one["text"] for one in ctx.guidance)
        control(store).stop()

    def third(ctx: Ctx) -> None:
        told.extend(one["text"] for one in ctx.guidance)

    def person() -> None:
        work = control(store)
        while work.state != "paused":
            threading.Event().wait(0.01)
        progress = store.task("work").progress()
        assert progress is not None
        assert progress.completed == ("first",)
        work.resume()

    pipeline = Pipeline([first, second, third])
    beside: list[Future[None]] = []
    with ThreadPoolExecutor(1) as people:
        pipeline.run(store.task("work"))
        beside[0].result()
    assert types(store)[2:] == ["paused", "guided", "resumed", "stage_succeeded", "stopped"]
    control(store).guide("and louder")
    progress = store.task("work").progress()
    assert progress is not None
    assert progress.completed == ("first", "second")
    control(store).retry()
    pipeline.run(store.task("work"))
    assert told == ["shorter", "shorter", "and louder"]


def test_stopped_within_a_stage_the_next_attempt_knows_it(store: Store) -> None:
    seen: list[tuple[int, dict[str, Any]]] = []

    def work(ctx: Ctx) -> None:
        seen.append((ctx.attempt, dict(ctx.state)))
        ctx.state["half"] = True
        if ctx.attempt == 1:
            control(store).stop()
            ctx.boundary()

    assert Pipeline([work]).run(store.task("work")).stopped == "stopped"
    control(store).retry()
    Pipeline([work]).run(store.task("work"))
    assert seen == [(1, {}), (2, {})]
    assert store.open_steps("work") == []


def test_a_restore_leads_the_pipeline_to_where_the_checkpoint_was(store: Store) -> None:
    """C3: also in the midst of a stage, which is given up."""
    ran: list[str] = []
    keys: dict[str, set[str]] = {}

    def work(ctx: Ctx) -> None:
        ran.append(ctx.stage)
        keys.setdefault(ctx.stage, set()).add(ctx.key)
        ctx.state[ctx.stage] = len(ran)
        if len(ran) == 3:
            control(store).restore(store.list_checkpoints("work", 10, "stage_succeeded")[-1])
            control(store).guide("after the restore")
            ctx.boundary()
            raise AssertionError("not reached")

    events: list[str] = []
    outcome = Pipeline([stage(name=name)(work) for name in "abcd"]).run(
        store.task("work"), on_progress=lambda event: events.append(event.kind)
    )
    assert ran == ["a", "b", "c", "b", "c", "d"]
    assert outcome.state == {"a": 1, "b": 4, "c": 5, "d": 6}
    assert "restored" in events
    assert len(keys["b"]) == 2
    assert store.open_steps("work") == []


def test_a_fork_goes_on_by_itself(store: Store) -> None:
    ran: list[str] = []

    def work(ctx: Ctx) -> None:
        ran.append(ctx.stage)

    pipeline = Pipeline([stage(name=name)(work) for name in "abc"])
    pipeline.run(store.task("work"))
    first = store.list_checkpoints("work", 10, "stage_succeeded")[-1]
    fork = store.task("work").fork(first, name="other")
    pipeline.run(fork)
    assert ran == ["a", "b", "c", "b", "c"]


def test_asking_and_artifacts_in_a_stage(store: Store) -> None:
    def write(ctx: Ctx) -> None:
        ctx.set_artifact("prompt", "old")
        beside.append(people.submit(person))
        assert ctx.artifact("prompt") == "old"

    def review(ctx: Ctx) -> None:
        control(store).edit("prompt", "new")
        ctx.boundary()
        ctx.state["answer"] = ctx.ask("Good?", choices=["yes", "no"])
        ctx.state["prompt"] = ctx.artifact("prompt")
        ctx.set_artifact("prompt", ctx.state["prompt"] + "er", format="markdown")
        ctx.set_artifact("notes", "n")

    def person() -> None:
        work = control(store)
        while work.state != "waiting_for_input":
            threading.Event().wait(0.01)
        work.answer("yes")

    beside: list[Future[None]] = []
    with ThreadPoolExecutor(1) as people:
        outcome = Pipeline([write, review]).run(store.task("work"))
        beside[0].result()
    assert outcome.state == {"answer": "yes", "prompt": "new"}
    found = {one["name"]: one for one in outcome.checkpoint.artifacts}
    assert (found["prompt"]["content"], found["prompt"]["version"], found["prompt"]["format"]) == (
        "newer",
        3,
        "markdown",
    )
    assert found["notes"]["version"] == 1


def test_before_risky_in_a_stage_is_a_checkpoint_from_before_it(store: Store) -> None:
    """E4."""

    def deploy(ctx: Ctx) -> None:
        ctx.state["half"] = True
        with ctx.before_risky("deploy") as before:
            assert before.state == {}
            assert before.metadata["progress"]["attempts"] == 1  # whoever goes on from there knows it

    Pipeline([deploy]).run(store.task("work"))


@pytest.mark.parametrize("within", [True, False])
def test_whoever_lost_the_branch_is_told_and_records_nothing(store: Store, within: bool) -> None:
    """C6: it is no failure of the stage."""

    @stage(retries=3, backoff=0)
    def work(ctx: Ctx) -> None:
        lease = control(store).lease
        assert lease is not None
        store._engine.catalog.release_lease(lease.token)
        if within:
            ctx.session.save()

    with pytest.raises(LeaseError):
        Pipeline([work]).run(store.task("work"))
    assert types(store) == ["started"]


# --- telling -----------------------------------------------------------------------------------------------


def test_events_tell_what_happens_and_where(store: Store) -> None:
    """C3."""
    pipeline, _ = failing_once(store)
    events: list[ProgressEvent] = []
    pipeline.run(store.task("work"), on_progress=events.append)
    assert [(one.kind, one.stage, one.attempt) for one in events] == [
        ("resumed", None, 0),
        ("started", "b", 2),
        ("succeeded", "b", 2),
        ("started", "c", 1),
        ("succeeded", "c", 1),
        ("completed", None, 0),
    ]
    assert [one.progress.last for one in events] == [0, 0, 1, 1, 2, 2]


def test_the_first_thing_told_is_where_it_stands_and_heartbeats_come_after_it(store: Store) -> None:
    """C3: published before the first heartbeat."""
    events: list[str] = []
    beaten = threading.Event()

    class Hurried(Clock):
        def wait(self, until: threading.Event, seconds: float) -> bool:
            return until.wait(0.001)

        def now(self) -> float:
            return super().now() * 1000

    def listen(event: ProgressEvent) -> None:
        events.append(event.kind)
        if event.kind == "heartbeat" and event.stage == "slow":
            beaten.set()

    def slow(ctx: Ctx) -> None:
        assert beaten.wait(60)

    tried = threading.Event()
    beat, arrive = Tracker.beat, Tracker.arrive

    def note_beat(tracker: Tracker) -> None:
        beat(tracker)
        tried.set()

    def arrive_late(tracker: Tracker, kind: Any) -> None:
        assert tried.wait(60)
        arrive(tracker, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracker, "beat", note_beat)
        patch.setattr(Tracker, "arrive", arrive_late)
        Pipeline([slow]).run(store.task("work"), on_progress=listen, clock=Hurried(), lease=1e6)
    assert events[0] == "begun"
    assert "heartbeat" in events


def test_a_listener_that_fails_is_an_alert_and_the_work_goes_on(tmp_path: Path) -> None:
    alerts: list[str] = []
    with lastgood.open(tmp_path / "s", user="tester", on_alert=lambda alert: alerts.append(alert.message)) as store:

        def listen(event: ProgressEvent) -> None:
            raise ValueError("deaf")

        assert Pipeline(adding("a", "b")).run(store.task("work"), on_progress=listen).stopped is None
    assert len(alerts) == 1
    assert "deaf" in alerts[0]


# --- taking back -------------------------------------------------------------------------------------------


def undoing(said: list[str], *names: str) -> Pipeline:
    def work(ctx: Ctx) -> None:
        said.append(ctx.stage)
        ctx.state[ctx.stage] = ctx.key

    def undo(ctx: Ctx) -> None:
        said.append(f"un{ctx.stage}")
        ctx.state["keys"] = [*ctx.state.get("keys", []), ctx.key]
        del ctx.state[ctx.stage]

    return Pipeline([stage(name=name, undo=None if name == "x" else undo)(work) for name in names])


def test_rolling_back_undoes_in_reverse_and_running_goes_on_from_there(store: Store) -> None:
    """C2: saved before, and each undo is recorded. What runs again has another key: its effects are wanted again."""
    said: list[str] = []
    pipeline = undoing(said, "a", "b", "x", "c")
    first = pipeline.run(store.task("work")).state
    outcome = pipeline.roll_back(store.task("work"), to="b")
    assert said[4:] == ["unc", "unb"]
    assert set(outcome.state) == {"a", "x", "keys"}
    assert types(store)[-4:] == ["before_rollback", "stage_undone", "stage_undone", "rolled_back"]
    progress = store.task("work").progress()
    assert progress is not None
    assert (progress.completed, control(store).state) == (("a",), "stopped")
    second = pipeline.run(store.task("work")).state
    assert said[6:] == ["b", "x", "c"]
    assert second["a"] == first["a"]
    assert len({first["b"], second["b"], *second["keys"]}) == 4


def test_rolling_back_to_the_first_stage_clears_the_progress(store: Store) -> None:
    """C9. Doing it twice is harmless."""
    said: list[str] = []
    pipeline = undoing(said, "a", "b")
    pipeline.run(store.task("work"))
    pipeline.roll_back(store.task("work"), to="a")
    pipeline.roll_back(store.task("work"), to="a")
    assert said == ["a", "b", "unb", "una"]
    assert store.task("work").progress() is None
    pipeline.run(store.task("work"))
    assert said[4:] == ["a", "b"]


def test_an_undo_that_fails_is_retried_and_gone_on_with_later(store: Store) -> None:
    said: list[str] = []

    def undo(ctx: Ctx) -> None:
        said.append(f"un{ctx.stage} {ctx.attempt}")
        if ctx.stage == "b" and ctx.attempt < 4:
            raise OSError("away")

    def work(ctx: Ctx) -> None:
        said.append(ctx.stage)

    pipeline = Pipeline([stage(name=name, undo=undo, retries=1, backoff=0)(work) for name in "abc"])
    pipeline.run(store.task("work"))
    with pytest.raises(StageError, match="'b' failed"):
        pipeline.roll_back(store.task("work"), to="a")
    assert control(store).state == "failed"
    pipeline.roll_back(store.task("work"), to="a")
    assert said[3:] == ["unc 1", "unb 1", "unb 2", "unb 3", "unb 4", "una 1"]


def test_what_is_not_completed_is_not_rolled_back(store: Store) -> None:
    pipeline = undoing([], "a", "b", "c")
    with pytest.raises(InvalidError, match="nothing was run"):
        pipeline.roll_back(store.task("work"), to="a")
    assert store.task("work").head is None
    with pytest.raises(InvalidError, match="no stage"):
        pipeline.roll_back(store.task("work"), to="z")
    failing, _ = failing_once(store)
    before = types(store)
    with pytest.raises(InvalidError, match="'c' is not completed"):
        failing.roll_back(store.task("work"), to="c")
    assert types(store) == before


def test_rolling_back_waits_while_the_work_is_paused(store: Store) -> None:
    undone: list[str] = []

    def fail(ctx: Ctx) -> None:
        raise RuntimeError

    stages = [
        stage(name="a", undo=lambda ctx: undone.append(control(store).state))(lambda ctx: None),
        stage(name="b")(fail),
    ]
    with pytest.raises(StageError):
        Pipeline(stages).run(store.task("work"))
    store.task("work").save({}, control_state="running")
    control(store).pause()
    clock = Meanwhile(lambda: control(store).resume())
    Pipeline(stages).roll_back(store.task("work"), to="a", clock=clock)
    assert (undone, clock.is_over()) == (["running"], True)


def test_a_stage_that_was_begun_ahead_is_not_done_where_the_work_was_led_away_from(store: Store) -> None:
    done: list[str] = []
    task = store.task("work")

    def listen(event: ProgressEvent) -> None:
        if (event.kind, event.stage) == ("succeeded", "b") and done == ["a", "b"]:
            task.restore("HEAD~2", "state")

    def work(ctx: Ctx) -> None:
        done.append(ctx.stage)

    Pipeline([stage(name=name)(work) for name in "abc"]).run(task, on_progress=listen)
    assert done == ["a", "b", "a", "b", "c"]
    assert store.open_steps("work") == []


def test_an_artifact_whose_version_is_no_number_can_be_set_again(store: Store) -> None:
    store.task("work").save({}, artifacts=[{"id": "1", "name": "plan", "version": "draft", "content": "old"}])

    def work(ctx: Ctx) -> None:
        ctx.set_artifact("plan", "new")

    Pipeline([stage(name="a")(work)]).run(store.task("work"))
    (artifact,) = store.task("work").head.artifacts  # type: ignore[union-attr]
    assert (artifact["content"], artifact["version"]) == ("new", "draft")


def test_a_stage_is_not_begun_by_who_was_taken_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: the token is checked when a step begins, too: its effects would be somebody else's to have."""
    ran: list[int] = []

    boundary = lastgood.Session.boundary

    def lose_it_after(self: lastgood.Session) -> None:
        boundary(self)
        lease = control(store).lease
        assert lease is not None
        store._engine.catalog.release_lease(lease.token)

    monkeypatch.setattr(lastgood.Session, "boundary", lose_it_after)
    with pytest.raises(LeaseError):
        Pipeline([stage(name="a")(lambda ctx: ran.append(1))]).run(store.task("work"))
    assert ran == []
    assert store.open_steps("work") == []
