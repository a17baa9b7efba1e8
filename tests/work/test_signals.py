"""Programs that are told to end: the work is saved at its next boundary, and the program ends as the signal says."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lastgood

BEGIN = """
import os, signal, subprocess, sys, threading, time
import lastgood
from lastgood.work.clock import Clock

def say(word):
    os.write(1, word.encode() + b"\\n")

def hear():
    assert sys.stdin.readline()

class Early(Clock):
    "A deadline has passed as soon as it began."
    def now(self):
        return super().now() * 1000

store = lastgood.open(sys.argv[1], user="tester")
task = store.task("work")
memory = {"n": 0}
how = {"state": lambda: memory, "load": memory.update}
"""
ENDS = [signal.SIGTERM, signal.SIGINT]


class Running:
    """A program, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def until(self, word: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == word, self._process.communicate()[1]

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def ends(self) -> tuple[int, str]:
        """How, and what it said on the way."""
        out, _ = self._process.communicate(timeout=60)
        return self._process.returncode, out


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@contextmanager
def running(place: Path, script: str) -> Iterator[Running]:
    command = [sys.executable, "-c", BEGIN + script, str(place)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def left(place: Path) -> tuple[str, str, object]:
    with lastgood.open(place, user="tester") as store:
        task = store.task("work")
        assert task.head is not None
        assert task.control.lease is None
        return task.head.type, task.head.control_state, task.state


@pytest.mark.parametrize("number", ENDS)
def test_between_boundaries_the_work_goes_on_to_the_next_one(place: Path, number: int) -> None:
    script = """
with task.session(**how) as session:
    memory["n"] = 1
    say("ready")
    hear()
    memory["n"] = 2
    session.boundary()
    say("not reached")
say("not reached either")
"""
    with running(place, script) as program:
        program.until("ready")
        program.send(number)
        program.tell()
        assert program.ends() == (-number, "")
    assert left(place) == ("interrupted", "running", {"n": 2})


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize("waits", ["paused", "waiting_for_input"])
def test_while_it_waits_for_people(place: Path, number: int, waits: str) -> None:
    script = """
with task.session(**how) as session:
    if sys.stdin.readline() == "paused\\n":
        store.task("work").control.pause()
        memory["n"] = 3
        threading.Thread(target=lambda: (hear(), say("ready"))).start()
        session.boundary()
    memory["n"] = 3
    threading.Thread(target=lambda: (hear(), say("ready"))).start()
    session.ask("Deploy?")
    say("not reached")
"""
    with running(place, script) as program:
        process = program._process
        assert process.stdin is not None
        process.stdin.write(f"{waits}\n")
        program.tell()
        program.until("ready")
        with lastgood.open(place, user="tester") as store:
            control = store.task("work").control
            while control.state != waits:
                assert process.poll() is None
        program.send(number)
        assert program.ends() == (-number, "")
    assert left(place)[1:] == (waits, {"n": 3})


@pytest.mark.parametrize("number", ENDS)
def test_work_without_boundaries_ends_when_its_time_is_over(place: Path, number: int) -> None:
    script = """
with task.session(**how, _clock=Early(), deadline=1.0, lease=1e6) as session:
    memory["n"] = 1
    session.save()
    memory["n"] = 2
    say("ready")
    while True:
        signal.pause()
"""
    with running(place, script) as program:
        program.until("ready")
        program.send(number)
        assert program.ends() == (-number, "")
    assert left(place) == ("step", "running", {"n": 1})


@pytest.mark.parametrize("number", ENDS)
def test_with_anytime_it_is_saved_even_then(place: Path, number: int) -> None:
    script = """
never = lastgood.types.Autosave(distance=1e9, hourly=1e9)
with task.session(**how, anytime=True, _clock=Early(), deadline=1.0, lease=1e6, autosave=never) as session:
    memory["n"] = 2
    say("ready")
    while True:
        signal.pause()
"""
    with running(place, script) as program:
        program.until("ready")
        program.send(number)
        assert program.ends() == (-number, "")
    assert left(place) == ("interrupted", "running", {"n": 2})


@pytest.mark.parametrize("number", ENDS)
def test_the_second_signal_ends_it_at_once(place: Path, number: int) -> None:
    script = """
with task.session(**how) as session:
    memory["n"] = 1
    say("ready")
    hear()
    say("noted")
    hear()
    say("not reached")
"""
    with running(place, script) as program:
        program.until("ready")
        program.send(number)
        program.tell()
        program.until("noted")
        program.send(number)
        assert program.ends() == (-number, "")
    assert left(place)[1:] == ("running", {"n": 0})


def test_a_handler_that_was_there_before_is_called_once_and_after_the_save(place: Path) -> None:
    script = """
signal.signal(signal.SIGTERM, lambda *_: say(f"handled after {task.head.type}"))
with task.session(**how) as session:
    memory["n"] = 1
    os.kill(os.getpid(), signal.SIGTERM)
    session.boundary()
    say("not reached")
say(f"goes on, {session.stopped}")
os.kill(os.getpid(), signal.SIGTERM)
"""
    with running(place, script) as program:
        status, said = program.ends()
    assert status == 0
    assert said.splitlines() == ["handled after interrupted", "goes on, interrupted", "handled after interrupted"]
    assert left(place) == ("interrupted", "running", {"n": 1})


def test_the_handler_of_before_hears_of_a_deadline_once(place: Path) -> None:
    script = """
heard = threading.Event()
def handle(*_):
    say("handled")
    heard.set()
signal.signal(signal.SIGTERM, handle)
with task.session(**how, _clock=Early(), deadline=1.0, lease=1e6) as session:
    memory["n"] = 1
    os.kill(os.getpid(), signal.SIGTERM)
    while not heard.is_set():
        signal.sigtimedwait([], 0.01)
    session._save_by_itself()
    session.boundary()
say(f"goes on, {session.stopped}")
"""
    with running(place, script) as program:
        assert program.ends() == (0, "handled\ngoes on, interrupted\n")
    assert left(place) == ("interrupted", "running", {"n": 1})


def test_a_session_in_another_thread_leaves_signals_alone(place: Path) -> None:
    script = """
def work():
    with task.session(**how) as session:
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        say("ready")
        threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
while True:
    signal.pause()
"""
    with running(place, script) as program:
        program.until("ready")
        program.send(signal.SIGTERM)
        assert program.ends() == (-signal.SIGTERM, "")
    assert left(place)[1:] == ("running", {"n": 0})


def test_two_sessions_one_in_the_other_are_both_saved(place: Path) -> None:
    script = """
inner_memory = {"m": 0}
with task.session(**how) as outer:
    with store.task("inner").session(state=lambda: inner_memory) as inner:
        memory["n"] = inner_memory["m"] = 1
        os.kill(os.getpid(), signal.SIGTERM)
        inner.boundary()
        say("not reached")
    say(f"{inner.stopped}")
    outer.boundary()
    say("not reached either")
"""
    with running(place, script) as program:
        assert program.ends() == (-signal.SIGTERM, "interrupted\n")
    assert left(place) == ("interrupted", "running", {"n": 1})
    with lastgood.open(place, user="tester") as store:
        assert store.task("inner").state == {"m": 1}


def test_a_child_ends_at_once_and_leaves_its_parents_session_alone(place: Path) -> None:
    """In a fork: no signal is noted for a boundary that never comes, and the lease stays the parent's."""
    script = """
with task.session(**how) as session:
    token = session._lease.token
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            task.save({"by": "the child"})
        except lastgood.LeaseError:
            try:
                session.boundary()
            except lastgood.InvalidError:
                os.write(writing, b"refused")
        while True:
            signal.pause()
    assert os.read(reading, 10) == b"refused"
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    polite = os.fork()
    if not polite:
        session.__exit__(None, None, None)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(polite, 0)[1]) == 0
    assert store._engine.catalog.lease("tester", task.branch_id).token == token
    session.boundary()
"""
    with running(place, script) as program:
        assert program.ends() == (0, ""), program
    assert left(place)[1] == "completed"


def test_a_command_that_the_work_runs_ends_as_ever(place: Path) -> None:
    """After exec."""
    script = """
with task.session(**how) as session:
    command = [sys.executable, "-c", "import os, signal; print('up', flush=True); signal.pause()"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"up\\n"
    child.terminate()
    assert child.wait() == -signal.SIGTERM
    child.stdout.close()
"""
    with running(place, script) as program:
        assert program.ends() == (0, "")


def test_a_session_left_in_another_thread_takes_no_signal_with_it(place: Path) -> None:
    script = """
session = task.session(**how)
session.__enter__()
thread = threading.Thread(target=session.__exit__, args=(None, None, None))
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
say("not reached")
"""
    with running(place, script) as program:
        assert program.ends() == (-signal.SIGTERM, "")
    assert left(place)[1] == "completed"


def test_signals_are_as_before_when_a_session_is_over(store: lastgood.Store) -> None:
    before = [signal.getsignal(number) for number in ENDS]
    with store.task("work").session():
        assert [signal.getsignal(number) for number in ENDS] != before
    assert [signal.getsignal(number) for number in ENDS] == before
