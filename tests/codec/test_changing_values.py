"""States that other threads change while they are saved: the program lives, and what is kept is whole.

Each container is taken at one moment. Programs that crash are run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHANGING = """
import datetime, random, sys, threading
import lastgood
from lastgood.codec.decode import decode
from lastgood.codec.encode import encode
from lastgood.codec.redact import redact_state
from lastgood.codec.split import Splitter
from lastgood.model.identity import SHA256
from lastgood.secrets.redaction import Redaction

sys.setswitchinterval(1e-6)
ROUNDS = 300
dice = random.Random(int(sys.argv[1]))
moment = datetime.datetime(2026, 1, 1)
def part(n):
    return {"n": n, "at": moment, "pair": (n, [n] * 5), "set": {n, n + 1}, "text": "x" * 50, "list": [[n, (n,)]] * 4}
state = {"log": [part(n) for n in range(40)], "map": {str(n): part(n) for n in range(60)}, "odd": {1: (2,), (3,): 4}}
stop = threading.Event()

def change():
    n = 0
    while not stop.is_set():
        n += 1
        one = dice.choice(("clear", "append", "pop", "rename", "set", "inner"))
        log, map = state["log"], state["map"]
        if one == "clear":
            log[:] = [part(n) for n in range(40)]
        elif one == "append":
            log.append(part(n))
        elif one == "pop" and len(log) > 5:
            del log[len(log) // 2 :]
        elif one == "rename":
            map[str(n)] = part(n)
            map.pop(next(iter(map)))
        elif one == "set":
            for element in log[:3]:
                element["set"].add(n)
                element["set"].discard(n - 3)
        elif one == "inner":
            for element in log[:3]:
                element["list"].clear()
                element["list"].extend([[n, (n,)]] * 4)
                element.pop("text", None)
                element[str(n)] = (n, part(n))
                element["odd"] = {n: (n,)}

threads = [threading.Thread(target=change, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
work()
stop.set()
for thread in threads:
    thread.join()
look()
print("alive")
"""
ENCODING = """
def work():
    splitter, rules = Splitter(1 << 30, SHA256), Redaction(state=("log.*.pair", "map.*.text")).paths
    for number in range(ROUNDS):
        decode(encode(state))
        splitter.split(redact_state(state, rules)[0])
        if number % 2:
            splitter.keep()

def look():
    pass
"""
SAVING = """
store = lastgood.open(sys.argv[2], user="ada", collect="never")

def work():
    task = store.task("t")
    for number in range(60):
        task.save(state)

def look():
    saved = store.list_checkpoints("t", 100)
    assert len(saved) == 60
    for one in saved:
        assert one.state.keys() == state.keys()
        assert all(type(part) is dict and "n" in part for part in one.state["log"])
    assert store.check(read_data=True).ok
"""


@pytest.mark.parametrize("how", [ENCODING, SAVING], ids=["encoded", "saved"])
@pytest.mark.parametrize("seed", range(2))
def test_a_state_may_change_while_it_is_saved(seed: int, how: str, tmp_path: Path) -> None:
    """C1: what is stored is a value, of which each container was so at one moment."""
    code = CHANGING.replace("stop = threading.Event()\n", f"stop = threading.Event()\n{how}")
    line = [sys.executable, "-X", "faulthandler", "-c", code, str(seed), str(tmp_path / "store")]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


def test_what_a_class_does_while_it_is_taken_apart_harms_nobody() -> None:
    """A value that empties the list it stands in, as it is encoded."""
    line = [sys.executable, "-X", "faulthandler", "-c", CLEARING]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "2000 [{'n': 7}]\n"), done.stderr[-2000:]


CLEARING = """
import lastgood
from lastgood.codec.decode import decode
from lastgood.codec.encode import encode

class Clears:
    pass

around = []
def empty(value):
    around.clear()
    return {"n": 7}
lastgood.register(to_plain=empty, from_plain=lambda plain: plain, name="clears")(Clears)
around += [*(["x" * 100] for _ in range(1000)), Clears(), *(["y" * 100] for _ in range(999))]
kept = decode(encode({"around": around}))["around"]
print(len(kept), kept[1000:1001])
"""
