"""An executor that fights for a branch: `python -m tests.support.competing_executor STORE NAME SKEW SEED SAVES`.

It works whenever it gets the branch, and tries again when it does not. What it hears of each save goes to a ledger of
its own beside the store. Its clock is wrong by SKEW seconds, and jumps.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from tests.support.programs import set_clock

import lastgood
from lastgood import ConflictError, ControlError, LeaseError
from lastgood.model.identity import now

LEASE = 0.2
HOUR = 3600


class Executor:
    def __init__(self, folder: Path, name: str, skew: float, seed: int) -> None:
        self.name = name
        self.dice = random.Random(seed)
        self.skew = skew
        self.store = lastgood.open(folder / "store", user="tester", on_failure="raise")
        set_clock(self.store, lambda: now() + int(self.skew * 1_000_000))
        self.ledger = (folder / f"{name}.ledger").open("a", buffering=1)

    def tell(self, **line: Any) -> None:
        self.ledger.write(json.dumps(line) + "\n")

    def fight(self, saves: int) -> None:
        """Until the branch has so many checkpoints."""
        while (head := self.store.task("work").head) is None or (head.sequence or 0) < saves:
            self.skew += self.dice.choice([0, 0, 0, HOUR, -HOUR])
            try:
                self.work(saves)
            except LeaseError:
                self.tell(refused="lease")
            except ControlError:
                return
            except ConflictError:
                self.tell(refused="conflict")

    def work(self, saves: int) -> None:
        """A turn: some saves on top of what is there, until someone else takes over."""
        memory: dict[str, Any] = {"n": 0}
        task = self.store.task("work")
        how: dict[str, Any] = {"lease": LEASE, "executor": self.name, "signals": False}
        with task.session(state=lambda: memory, load=memory.update, **how) as session:
            self.tell(turn=session._lease.token)
            os.write(1, b".")
            for _ in range(self.dice.randint(1, 8)):
                memory["n"] += 1
                memory["by"] = [self.name, session._lease.token]
                saved = session.save()
                self.tell(saved=saved.id, sequence=saved.sequence, n=memory["n"], token=session._lease.token)
                if (saved.sequence or 0) >= saves:
                    return
                session.boundary()
            raise Tired


class Tired(BaseException):
    """The turn is over; the work is not."""


def main() -> None:
    folder, name, skew, seed, saves = sys.argv[1:]
    executor = Executor(Path(folder), name, float(skew), int(seed))
    while True:
        try:
            executor.fight(int(saves))
            break
        except Tired:
            continue
    executor.store.close()
    executor.ledger.close()


if __name__ == "__main__":
    main()
