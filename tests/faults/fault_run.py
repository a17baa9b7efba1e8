"""An operation with a fault in it: in a child that is killed by it, or in this process, where a call fails."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import shim

from lastgood.errors import CheckpointError

SECONDS = 60


class Ending(NamedTuple):
    """How it ended: killed | done | refused (an error of lastgood) | raised (any other, with its traceback) | hung"""

    how: str
    kind: str = ""
    said: str = ""


def run_in_child(fault: shim.Fault, disk: Path, counter: Path, action: Callable[[], Any]) -> Ending:
    """Run an action in a child that is killed at the given call. It may end before that."""
    shim.reset(counter)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _perform(shim.Arming(str(disk), str(counter), fault), action, writing)
    os.close(writing)
    try:
        if not _has_ended(child):
            return Ending("hung")
        _, status = os.waitpid(child, 0)
        if code := os.waitstatus_to_exitcode(status):
            return Ending("killed") if code == -signal.SIGKILL else Ending("raised", said=f"it ended with {code}")
        return Ending(*json.loads(os.read(reading, 1 << 16)))
    finally:
        os.close(reading)


def _has_ended(child: int) -> bool:
    """Wait for a child; kill what it has started. Return whether it ended in time."""
    watched = os.pidfd_open(child)
    try:
        has_ended = bool(select.select([watched], [], [], SECONDS)[0])
    finally:
        os.close(watched)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not has_ended:
        os.waitpid(child, 0)
    return has_ended


def _perform(arming: shim.Arming, action: Callable[[], Any], answer: int) -> None:
    try:
        os.setsid()
        shim.arm(arming)
        ending = _done(action)
        shim.disarm()
        os.write(answer, json.dumps(ending).encode()[: 1 << 15])
    finally:
        os._exit(0)


def run_here(fault: shim.Fault, disk: Path, counter: Path, action: Callable[[], Any]) -> Ending:
    """Run an action here, and have the given call fail."""
    shim.reset(counter)
    shim.arm(shim.Arming(str(disk), str(counter), fault))
    try:
        return _done(action)
    finally:
        shim.disarm()


def _done(action: Callable[[], Any]) -> Ending:
    try:
        action()
    except CheckpointError as error:
        return Ending("refused", type(error).__name__, str(error))
    except Exception as error:
        return Ending("raised", type(error).__name__, traceback.format_exc()[-6000:])
    return Ending("done")
