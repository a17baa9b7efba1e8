"""lastgood for asyncio: every public operation, awaited, over the same engine.

    async with aio.open("store") as store:            # or: store = await aio.open("store")
        task = await store.task("refactor-42")
        saved = await task.save({"round": 1})
        async with task.step("edit") as step:
            (await step.state)["round"] = 2
            await step.run(["pytest", "-q"])
        state = await task.state

Names, arguments, results and errors are those of the synchronous interface. What is in memory (ids, types,
messages, `task.head`) is read as there; what may touch the disk is awaited. A property stays one:
`await task.state`, and compared or tested without `await` it raises. A store has a few threads, in which the engine
works; the loop never waits for them.

Cancelling: what no thread has taken up yet is not done at all, what one has is done to its end, and the caller
hears of the cancellation afterwards. So a save is whole or not there, and it is known which when the await ends.
`options.on_alert` is called in a thread.
"""

from lastgood.aio.checkpoint import Checkpoint, CheckpointPage, Difference, FilesDiff, Recovery, Restored
from lastgood.aio.session import Control, Session
from lastgood.aio.store import CheckpointManager, EvidenceVerifier, Store, open_manager, open_store, open_verifier
from lastgood.aio.task import Step, Task

open = open_store  # noqa: A001 - not in __all__: `import *` leaves Python's own alone

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointPage",
    "Control",
    "Difference",
    "EvidenceVerifier",
    "FilesDiff",
    "Recovery",
    "Restored",
    "Session",
    "Step",
    "Store",
    "Task",
    "open_manager",
    "open_verifier",
]
