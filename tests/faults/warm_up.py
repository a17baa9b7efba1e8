"""What a process does once, so that those that are forked from it do not have to, each again.

What is done at the first use of a store is done: modules are imported, classes described, SQLite's extensions loaded,
and Python has specialised the code. And memory is laid out for forking: a child copies each page that it writes to,
which was a third of what a trial cost.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
from pathlib import Path

from tests.faults.memory import Memory
from tests.faults.sandbox import make_sandbox

import lastgood

_SCENARIO = "restore whole"


def warm_up(scratch: Path) -> None:
    """Use a store, as a worker and the verifier do, and forget it."""
    from tests.faults import verifier, worker
    from tests.faults.scenarios import SCENARIOS

    for name in lastgood.__all__:
        getattr(lastgood, name)  # imported when it is asked for
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        sandbox = make_sandbox(Path(folder))
        worker.prepare(folder, str(sandbox.disk), _SCENARIO)
        program = worker.Worker(sandbox)
        SCENARIOS[_SCENARIO].run(program)
        program.close()
        verifier.verify(folder, str(sandbox.disk))
    Memory().forget()


def settle() -> None:
    """Lay out the memory for forking."""
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).faults_fill_heap()
