"""Ctrl-C, signal handlers and fork() in the middle of a save (I1, I2, A2); each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = r"""
import random, signal, sys, threading
import lastgood

random.seed(int(sys.argv[2]))
store = lastgood.open(sys.argv[1], user="tester")
task, stop, told = store.task("main"), threading.Event(), {"main": {"n": -1}}
task.save(told["main"])
task.step("imports").begin(), task.refresh(), task.append({"n": -1}).state  # Python's import lock bears no interrupt


def work(name):
    handle, n = store.task(name), 0
    while not stop.is_set():
        told[name] = handle.save({"n": n}).state
        n += 1


failed = []
threading.excepthook = failed.append
threads = [threading.Thread(target=work, args=(f"other {n}",)) for n in range(2)]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupts = 0
for n in range(1500):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(30e-6, 1.5e-3))
        if n % 3 == 0:
            task.step("work").begin()
        elif n % 3 == 1:
            assert task.refresh() is not None
        else:
            task.append({"n": n})
            told["main"] = {"n": n}
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
stop.set()
for thread in threads:
    thread.join(60)
    assert not thread.is_alive(), "a writer hangs"
assert not failed, failed  # nobody else is told of an interrupt, nor that he conflicts with himself
levels = []
store._engine.catalog._write(lambda connection: levels.append(connection.value("PRAGMA synchronous")))
assert levels == [2], levels
task.append({"n": "last"})
store.close()
again = lastgood.open(sys.argv[1], user="tester")
for name, state in told.items():
    found = {checkpoint.state["n"] for checkpoint in again.list_checkpoints(name, 1000)}
    assert state["n"] in found or name == "main" and len(found) >= 900, (name, state)
    assert not any(again.check_checkpoint(one.id, evidence=False).problems for one in again.list_checkpoints(name, 20))
print(interrupts)
"""

HANDLER = r"""
import signal, sys
import lastgood

store = lastgood.open(sys.argv[1], user="tester", on_alert=lambda alert: None)
main, other = store.task("main"), store.task("other")
main.save({"n": -1}), other.save({"n": -1})
refused = stored = 0
lastgood.types.Redaction().text("token: loaded")  # what is imported late is imported now


def handler(*_):
    global refused, stored
    try:
        other.append({"n": stored})
        stored += 1
    except lastgood.BusyError as error:
        assert "in the middle of a save" in str(error)
        refused += 1


signal.signal(signal.SIGALRM, handler)
for n in range(1500):
    signal.setitimer(signal.ITIMER_REAL, 0.0001 + n % 7 * 0.0001)
    main.save({"n": n})
    signal.setitimer(signal.ITIMER_REAL, 0)
assert main.head.sequence == 1501
assert store.task("other").head.sequence == stored + 1
assert refused
print(refused, stored)
"""

FORKS = r"""
import os, signal, sys, threading
import lastgood

store = lastgood.open(sys.argv[1], user="tester")
stop, warm = threading.Event(), threading.Barrier(4)


def work(name):
    handle = store.task(name)
    handle.save({})
    warm.wait()
    while not stop.is_set():
        handle.save({"r": os.urandom(8)})


threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(3)]
for thread in threads:
    thread.start()
warm.wait()
codes = []
for n in range(8):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        store.task(f"child {n}").save({"n": n})
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join(60)
assert codes == [0] * 8, codes
assert [store.task(f"child {n}").state for n in range(8)] == [{"n": n} for n in range(8)]
print("held")
"""

FORK_BESIDE_A_WAITING_WRITER = r"""
import fcntl, os, signal, sys, threading
import lastgood

store = lastgood.open(sys.argv[1], user="tester")
store.task("t").save({"n": 0})
lock = os.path.realpath(store._engine.catalog._database._queue._path)
another = os.open(lock, os.O_RDWR)
fcntl.flock(another, fcntl.LOCK_EX)
writer = threading.Thread(target=lambda: store.task("t").append({"n": 1}), daemon=True)
writer.start()
while sum(os.path.realpath(f"/proc/self/fd/{number}") == lock for number in os.listdir("/proc/self/fd")) < 3:
    writer.join(0.001)
pid = os.fork()
if pid == 0:
    signal.pause()
fcntl.flock(another, fcntl.LOCK_UN)
writer.join(30)
assert not writer.is_alive(), "the writer waits for the child"
fcntl.flock(another, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.flock(another, fcntl.LOCK_UN)
assert store.task("t").state == {"n": 1}
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
print("held")
"""


def run(program: str, *arguments: object) -> str:
    quiet = "import logging; logging.getLogger('lastgood').addHandler(logging.NullHandler())\n"
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", quiet + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_interrupts_at_any_moment_lose_nothing_and_leave_nobody_hanging(tmp_path: Path) -> None:
    """What was acknowledged is there, others save on, and the next save is as durable as any."""
    assert int(run(INTERRUPTED, tmp_path / "store", 1)) > 100


def test_a_signal_handler_that_saves_in_the_middle_of_a_save_is_refused_and_breaks_nothing(tmp_path: Path) -> None:
    run(HANDLER, tmp_path / "store")


def test_a_child_forked_beside_busy_writers_can_save(tmp_path: Path) -> None:
    assert run(FORKS, tmp_path / "store") == "held\n"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="shows who waits")
def test_a_child_forked_while_somebody_waits_for_his_turn_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It inherits the file that the other one is about to lock, and with it the lock."""
    assert run(FORK_BESIDE_A_WAITING_WRITER, tmp_path / "store") == "held\n"
