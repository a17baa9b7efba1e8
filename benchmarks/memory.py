"""The peak memory of one side's conversation: a child process for each side, and one that only imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.conversation import conversation
from benchmarks.measure import peak_memory

ROOT = Path(__file__).resolve().parents[1]


def conversation_memory(side: str, turns: int, folder: Path) -> int:
    """Bytes that the conversation of `side` (ours, theirs) takes on top of what importing takes."""
    return _child(side, turns, folder / f"memory-{side}") - _child(side, 0, folder)


def _child(side: str, turns: int, folder: Path) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", side, str(turns), str(folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def _save_ours(turns: int, folder: Path) -> None:
    from lastgood.opening import open_store

    if not turns:
        open_store(":memory:", user="bench").close()  # imports what is imported at first use
        return
    with open_store(folder, user="bench") as store:
        task = store.task("conversation")
        messages = []
        for step, message in enumerate(conversation(turns)):
            messages.append(message)
            task.save({"messages": messages, "step": step})


def _save_theirs(turns: int, folder: Path) -> None:
    from benchmarks.peer import Peer

    if not turns:
        return
    folder.mkdir()
    peer = Peer(folder / "peer.sqlite")
    peer.require_durability()
    messages = []
    for step, message in enumerate(conversation(turns)):
        messages.append(message)
        peer.keep(peer.put(peer.checkpoint(step, {"messages": messages, "step": step}), step))
    peer.close()


def main(side: str, turns: str, folder: str) -> None:
    {"ours": _save_ours, "theirs": _save_theirs}[side](int(turns), Path(folder))
    print(peak_memory())


if __name__ == "__main__":
    if len(sys.argv) > 1:  # `./dev bench` starts every module here; this one is a part of benchmarks.state
        main(*sys.argv[1:])
