"""A request is fulfilled exactly once, or refused with its reason; it never ends the work by itself (A11, A15)."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.programs import Meanwhile, Program, another_host

import lastgood
from lastgood import ConflictError, LeaseError, Store, UnavailableError, UnstorableError
from lastgood.catalog.sqlite.catalog import SQLiteCatalog
from lastgood.types import Alert


@pytest.fixture
def alerts() -> list[Alert]:
    return []


@pytest.fixture
def store(tmp_path: Path, alerts: list[Alert]) -> Any:
    with lastgood.open(tmp_path / "store", user="tester", on_alert=alerts.append) as opened:
        yield opened


def status(person: lastgood.Control, asked: lastgood.types.RequestResult) -> tuple[str, dict[str, Any]]:
    assert asked.request is not None
    found = person.follow(asked.request.id)
    assert found is not None
    return found.status, found.outcome


PLACES = {
    "advance": "lastgood.work.autosave.advance",
    "end_request": "lastgood.work.requests.end_request",
    "requests": "lastgood.work.inbox.open_requests",
}


def before(monkeypatch: pytest.MonkeyPatch, name: str, deed: Callable[[], object]) -> None:
    """Just before that is called for the first time."""
    whole: Callable[..., Any] = pkgutil.resolve_name(PLACES[name])

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        deed()
        return whole(*args, **kwargs)

    monkeypatch.setattr(PLACES[name], interrupted)


def test_restoring_the_same_checkpoint_again_reaches_the_program_again(
    program: Program, person: lastgood.Control
) -> None:
    with program.session() as session:
        program.memory["n"] = 1
        good = session.save()
        for n in (5, 6):
            program.memory["n"] = n
            asked = person.restore(good)
            session.boundary()
            assert program.memory == {"n": 1}
            assert status(person, asked) == ("fulfilled", {"branch": program.task.branch_id})
    kept = [one.state for one in program.store.list_checkpoints("work") if one.type == "before_restore"]
    assert kept == [{"n": 6}, {"n": 5}]


def test_a_restore_of_files_is_met_with_the_checkpoint_that_it_makes(store: Store, tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    task = store.task("work", workspace=folder)
    with task.session() as session:
        (folder / "a").write_text("good")
        good = session.save()
        (folder / "a").write_text("bad")
        session.save()
        asked = store.task("work").control.restore(good, "files")
        session.boundary()
        assert (folder / "a").read_text() == "good"
        assert status(task.control, asked) == ("fulfilled", {"branch": task.branch_id})


def test_a_checkpoint_that_cannot_be_restored_is_refused_and_the_work_goes_on(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    with program.session() as session:
        gone = session.save()
        session.save()
        asked = person.restore(gone)
        store.delete_checkpoint(gone.id)
        session.boundary()
        assert session.control_state == "running"
    said, outcome = status(person, asked)
    assert (said, "deleted" in outcome["reason"]) == ("refused", True)


@pytest.mark.parametrize("moment", ["advance", "end_request"])
def test_a_request_withdrawn_at_the_last_moment_is_not_met(
    program: Program, person: lastgood.Control, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    with program.session() as session:
        session.save(artifacts=[{"name": "prompt", "content": "old"}])
        asked = person.pause() if moment == "advance" else person.edit("prompt", "new")
        assert asked.request is not None
        session.save(artifacts=[])
        number = asked.request.id
        before(monkeypatch, moment, lambda: person.withdraw(number))
        session.boundary()
        assert session.control_state == "running"
    assert status(person, asked) == ("refused", {"reason": "withdrawn by tester"})


def test_a_state_that_cannot_be_stored_is_the_programs_error_and_no_reason_to_refuse(
    program: Program, person: lastgood.Control
) -> None:
    """A8."""
    with program.session() as session:
        asked = person.pause()
        program.memory["socket"] = object()
        with pytest.raises(UnstorableError):
            session.boundary()
        assert status(person, asked)[0] == "open"
        del program.memory["socket"]


@pytest.mark.parametrize("moment", ["requests", "advance"])
def test_the_work_goes_on_when_what_is_wanted_cannot_be_read_or_kept(
    program: Program,
    person: lastgood.Control,
    monkeypatch: pytest.MonkeyPatch,
    alerts: list[Alert],
    moment: str,
) -> None:
    """A8, C10."""

    def away(*_: Any, **__: Any) -> Any:
        raise UnavailableError("the disk is away")

    with program.session() as session:
        asked = person.pause()
        with monkeypatch.context() as patch:
            patch.setattr(PLACES[moment], away)
            for _ in range(3):
                session.boundary()
        assert session.control_state == "running"
        assert len(alerts) == (1 if moment == "requests" else 3)
        person.stop()
        session.boundary()
    assert status(person, asked)[0] == "fulfilled"
    assert session.stopped == "stopped"


def test_two_who_want_the_same_both_get_it(program: Program, person: lastgood.Control) -> None:
    """A15: the same request twice is harmless."""
    with program.session(_clock=Meanwhile(lambda: person.resume())) as session:
        one, two = person.pause(), person.pause()
        session.boundary()
    assert status(person, one) == ("fulfilled", {})
    assert status(person, two) == ("fulfilled", {"note": "it was paused already"})


def test_work_that_goes_on_after_it_was_stopped_is_stopped_again(program: Program, person: lastgood.Control) -> None:
    with program.session() as session:
        person.stop()
        with pytest.raises(lastgood.Stopped):
            session.boundary()
        session.boundary()
        pytest.fail("it went on")
    assert session.stopped == "stopped"


def test_an_artifact_whose_version_is_a_word_can_be_edited(program: Program, person: lastgood.Control) -> None:
    with program.session() as session:
        session.save(artifacts=[{"name": "prompt", "version": "b", "content": "old"}])
        person.edit("prompt", "new")
        session.boundary()
        assert session.artifacts == [{"name": "prompt", "version": "b", "content": "new", "edited_by": "tester"}]


def test_whoever_lost_the_branch_refuses_nothing_in_the_name_of_the_other(
    program: Program, person: lastgood.Control, tmp_path: Path
) -> None:
    """C6: it believes that the work runs; by now it is paused, and somebody wants it to go on."""

    def wake_the_zombie() -> None:
        asked.append(person.resume())
        with pytest.raises(LeaseError):
            zombie.boundary()
        assert status(person, asked[0])[0] == "open"

    asked: list[lastgood.types.RequestResult] = []
    with another_host(tmp_path / "store") as far, suppress(LeaseError), program.session() as zombie:
        with Program(far.task("work")).session(_clock=Meanwhile(wake_the_zombie)) as session:
            person.pause()
            session.boundary()
            assert status(person, asked[0])[0] == "fulfilled"
        raise LeaseError("so that it does not complete what is not its own")


def test_stopping_ends_what_was_wanted_before_it(store: Store, program: Program, person: lastgood.Control) -> None:
    person.pause()
    resumed = person.resume()
    assert not resumed.fulfilled
    person.stop()
    assert status(person, resumed) == ("refused", {"reason": "it was stopped instead"})
    with pytest.raises(lastgood.ControlError), program.session():
        pass


def test_another_conflict_is_the_works_own(program: Program, person: lastgood.Control, tmp_path: Path) -> None:
    """Its lease had run out, and somebody saved: ConflictError is always raised."""
    with another_host(tmp_path / "store") as far, suppress(ConflictError), program.session() as session:
        asked = person.pause()
        far.task("work").save({"by": "another"})
        with pytest.raises(ConflictError):
            session.boundary()
    assert status(person, asked)[0] == "open"


def test_work_that_has_ended_leaves_nothing_open_that_it_was_to_do(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    """A15: what came after its last boundary is done without it, or refused; the next run begins with nothing of it."""
    with program.session() as session:
        program.memory["n"] = 1
        session.boundary()
        late = [person.guide("be brief"), person.stop(), person.pause(), person.restore(session.save())]
        more = person.add_rounds(1)
    assert program.task.head is not None
    assert (program.task.head.control_state, program.task.state) == ("completed", {"n": 1})
    assert [said["text"] for said in program.task.head.guidance] == ["be brief"]
    assert [status(person, asked)[0] for asked in (*late, more)] == [
        "fulfilled",
        "refused",
        "refused",
        "refused",
        "open",
    ]
    with program.session() as session:
        session.boundary()
        assert session.rounds == 1
    assert session.stopped is None


def test_what_is_asked_when_the_work_has_just_ended_is_done_at_once(
    store: Store, program: Program, person: lastgood.Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has seen a session, and asks when it is gone, is not told to wait for it."""
    post = SQLiteCatalog.post_request
    with ExitStack() as work:
        work.enter_context(program.session())

        def end_and_post(self: SQLiteCatalog, *about: Any) -> Any:
            work.close()
            return post(self, *about)

        monkeypatch.setattr(SQLiteCatalog, "post_request", end_and_post)
        asked = person.guide("be brief")
    assert (asked.fulfilled, asked.alive) == (True, False)


def test_a_stop_while_a_stage_fails_does_not_stop_who_retries_it(store: Store) -> None:
    """What is wanted last is what is done."""
    control, tried = store.task("work").control, []

    def work(ctx: lastgood.StageContext) -> None:
        tried.append(ctx.attempt)
        if len(tried) == 1:
            control.stop()
            raise RuntimeError("no such luck")

    pipeline = lastgood.Pipeline([lastgood.stage(name="a")(work)])
    store.task("work").save({})
    with pytest.raises(lastgood.StageError):
        pipeline.run(store.task("work"))
    control.retry()
    assert pipeline.run(store.task("work")).stopped is None
    assert len(tried) == 2


def test_a_program_that_cannot_take_another_state_is_not_led_back(store: Store, person: lastgood.Control) -> None:
    """What would be undone by its next save is refused, not fulfilled."""
    memory = {"n": 1}
    with store.task("work").session(state=lambda: memory) as session:
        good = session.save()
        memory["n"] = 2
        asked = person.restore(good)
        session.boundary()
        found, outcome = status(person, asked)
        assert found == "refused"
        assert "cannot take another state" in outcome["reason"]
        assert session.save().state == {"n": 2}


def test_asking_for_a_restore_again_by_its_id_is_harmless_wherever_the_work_is_by_then(
    store: Store, program: Program, person: lastgood.Control
) -> None:
    with program.session() as session:
        for program.memory["n"] in (1, 2):
            session.save()
    first = store.task("work").control.restore("HEAD~2", id="back")
    assert first.fulfilled
    assert store.task("work").control.restore("HEAD~2", id="back").request == first.request


def test_completed_work_does_not_become_running_by_a_save(store: Store, program: Program) -> None:
    """A15: only with more rounds, or a restart."""
    with program.session():
        pass
    with pytest.raises(lastgood.ControlError, match="completed"):
        program.task.save({}, control_state="running")
    with program.session(restart=True) as session:
        assert session.control_state == "running"
