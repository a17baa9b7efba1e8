"""What is asked of work that nobody runs (any more), and of work that somebody else takes over (A11, A15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.programs import Meanwhile, Program

from lastgood import LeaseError, Store
from lastgood.work import inbox
from lastgood.work.control import Control
from lastgood.work.lease import HeldLease
from lastgood.work.requests import content_digest, find_artifact


@pytest.fixture
def outside(store: Store) -> Callable[[], Control]:
    return lambda: store.task("work").control


def test_what_a_session_did_not_come_to_is_done_when_it_is_asked_again(
    store: Store, outside: Callable[[], Control]
) -> None:
    """A15: the same request twice is harmless, and the second time nobody has to wait for a session that is gone."""
    with store.task("work").session():
        asked = outside().guide("shorter", id="said")
        assert (asked.fulfilled, asked.alive) == (False, True)
    again = outside().guide("shorter", id="said")
    assert (again.fulfilled, again.alive) == (True, False)


def test_what_cannot_be_done_any_more_is_refused_when_it_is_asked_again(
    store: Store, outside: Callable[[], Control]
) -> None:
    with store.task("work").session():
        outside().pause(id="mine")
    assert outside().state == "completed"
    again = outside().pause(id="mine")
    assert (again.fulfilled, again.request and again.request.status) == (False, "refused")
    assert "completed cannot be paused" in again.note
    assert outside().requests() == []


def test_to_pause_work_that_waits_for_an_answer_is_kept_until_it_is_given(
    store: Store, outside: Callable[[], Control]
) -> None:
    task = store.task("work")
    task.save({}, control_state="running")
    task.save({}, control_state="waiting_for_input", metadata={"question": {"id": "q", "key": "q", "text": "Go?"}})
    asked = outside().pause()
    assert (asked.fulfilled, asked.request and asked.request.status) == (False, "open")


def test_an_edit_of_what_was_not_looked_at_is_refused(store: Store, outside: Callable[[], Control]) -> None:
    with store.task("work").session() as session:
        session.save(artifacts=[{"id": "a", "name": "prompt", "version": 1, "content": "old"}])
        seen = content_digest(find_artifact(session.artifacts, "prompt"))
        outside().edit("prompt", "mine", over=seen, id="first")
        outside().edit("prompt", "yours", over=seen, id="second")
        session.boundary()
        assert session.artifacts[0]["content"] == "mine"
    found = outside().follow("second")
    assert found is not None
    assert (found.status, found.outcome["reason"]) == ("refused", "the artifact was changed meanwhile")


def test_a_lease_is_taken_from_who_lives_only_by_its_token(store: Store) -> None:
    """C6: who had it is refused."""
    task = store.task("work")
    branch_id = task.save({}).branch_id or ""
    about = (store._engine, "tester", "tester")
    program, person = HeldLease(*about, "a program", 30), HeldLease(*about, "a person", 30)
    lease = program.acquire(branch_id)
    with pytest.raises(LeaseError):
        person.acquire(branch_id, over=lease.token + 1)
    assert person.acquire(branch_id, over=lease.token).executor == "a person"
    program.renew()
    assert program.lost is not None
    task._handle.lease = lease.token
    with pytest.raises(LeaseError):
        task.save({"n": 1})
    person.release()


def test_to_pause_work_takes_back_that_it_was_resumed(store: Store, program: Program, person: Control) -> None:
    """What is wanted last is what is done, also while nobody runs it."""
    person.pause()
    resumed = person.resume()
    assert not resumed.fulfilled
    person.pause()
    clock = Meanwhile(lambda: person.stop())
    with program.session(_clock=clock) as session:
        session.boundary()
    assert (session.stopped, clock.is_over()) == ("stopped", True)


def test_two_people_who_ask_at_once_are_served_one_after_the_other(
    store: Store, person: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A15: nobody is refused because another person's request is just being fulfilled."""
    branch_id = store.task("work").branch_id or ""
    other = HeldLease(store._engine, "ben", "tester", f"ben{inbox.STANDING_IN}", 30)
    other.acquire(branch_id)
    waited: list[float] = []

    def finish_the_other(seconds: float) -> None:
        waited.append(seconds)
        other.release()

    monkeypatch.setattr("lastgood.work.inbox.time.sleep", finish_the_other)
    assert person.guide("be brief").fulfilled
    assert waited == [inbox.PAUSE_SECONDS]
