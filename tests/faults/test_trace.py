"""What the shim notes comes back as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults import shim
from tests.faults.trace import Call, Op, read_trace

_PROGRAM = """
import os, sys
from tests.faults import shim
root, counter, trace = sys.argv[1:]
shim.arm(shim.Arming(root, counter, trace=trace, with_data=True))
folder = os.open(root, os.O_RDONLY)
os.mkdir("made", 0o700, dir_fd=folder)
with open(root + "/made/new", "wb", buffering=0) as file:
    file.write(b"some bytes")
    os.fsync(file.fileno())
    os.chmod(f"/proc/self/fd/{file.fileno()}", 0o640)
    shim.mark("acknowledged")
    os.rename(root + "/made/new", root + "/made/old")
    os.unlink(root + "/made/old")
    file.write(b"more")
try:
    os.rmdir(root + "/nowhere")
except FileNotFoundError:
    pass
import ctypes
ctypes.CDLL(None).syncfs(folder)
shim.disarm()
"""


@pytest.fixture
def calls(tmp_path: Path) -> list[Call]:
    if obstacle := shim.no_compiler():
        pytest.skip(obstacle)
    root, counter, trace = tmp_path / "root", tmp_path / "counter", tmp_path / "trace"
    root.mkdir()
    shim.reset(counter)
    command = [sys.executable, "-c", _PROGRAM, *map(str, (root, counter, trace))]
    subprocess.run(command, check=True, env=shim.environment())
    noted = read_trace(trace)
    assert noted[-1].number == shim.count(counter)
    return [call._replace(path=os.path.relpath(call.path, root)) for call in noted]


def test_every_call_is_noted_in_its_order_with_its_number(calls: list[Call]) -> None:
    assert [(call.number, call.op.name, call.path) for call in calls] == [
        (1, "MKDIR", "made"),
        (2, "CREATE", "made/new"),
        (3, "WRITE", "made/new"),
        (4, "SYNC", "made/new"),
        (5, "CHMOD", "made/new"),
        (5, "MARK", calls[5].path),
        (6, "RENAME", "made/new"),
        (7, "UNLINK", "made/old"),
        (8, "WRITE", "made/old (deleted)"),
        (9, "RMDIR", "nowhere"),
        (10, "SYNCALL", "."),
    ]


def test_a_call_tells_what_it_wrote_where_and_whether_it_failed(calls: list[Call]) -> None:
    first, second = (call for call in calls if call.op == Op.WRITE)
    assert (first.offset, first.amount, first.data) == (0, 10, b"some bytes")
    assert (second.offset, second.data, second.inode) == (10, b"more", first.inode)
    assert [bool(call.error) for call in calls] == [False] * 9 + [True, False]
    assert calls[4].amount == 0o640
    assert calls[6].other.endswith("made/old")
    assert len({call.pid for call in calls}) == 1
