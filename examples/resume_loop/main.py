"""A loop that survives being killed, and goes back when its work turns out bad. See README.md."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from lastgood import Checkpoint, CheckpointManager, Evidence, EvidencePack, EvidenceType

TASK = "site"
PAGES = 6

State = dict[str, Any]


def main() -> int:
    arguments = _arguments()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    with CheckpointManager(folder / "registry.sqlite", base_path=folder) as manager:
        state = find_out(manager)
        while len(state["done"]) < PAGES:
            page = len(state["done"]) + 1
            spoil = page == arguments.spoil and "careful" not in state
            checkpoint = build(manager, folder, state, spoil=spoil, crash=page == arguments.crash)
            if checkpoint.verified:
                print(f"page {page} is good", flush=True)
                state = checkpoint.state
            else:
                reasons = [e.verification_error for e in checkpoint.evidence_pack.evidence_list if not e.verified]
                print(f"page {page} is bad: {reasons[0]}", flush=True)
                state = {**go_back(manager), "careful": True}
    print(f"all {PAGES} pages are there")
    return 0


def find_out(manager: CheckpointManager) -> State:
    """What was in flight when this last ended, and the state to go on with."""
    report = manager.recovery(TASK)
    for line in report.advice:
        print(line)
    for step in report.interrupted:
        manager.abandon_step(step.id, "its page is built again")
    return {"done": []} if report.head is None else go_back(manager)


def go_back(manager: CheckpointManager) -> State:
    """The state of the newest checkpoint that verifies. The next commit continues from there."""
    good = manager.last_good(TASK)
    if good is None:
        return {"done": []}
    if good.id == manager.find_checkpoint("HEAD", TASK).id:
        state: State = good.state
    else:
        state = manager.rollback_to_checkpoint(good.id)
        print(f"back to page {len(state['done'])}")
    return state


def build(manager: CheckpointManager, folder: Path, state: State, *, spoil: bool, crash: bool) -> Checkpoint:
    """One page as one step. What it claims is checked when it is committed."""
    page = len(state["done"]) + 1
    step = manager.begin_step(TASK, "page_built", {**state, "done": [*state["done"], page]})
    file = folder / f"page-{page}.html"
    file.write_text("" if spoil else f"<h1>Page {page}</h1>")
    if crash:
        os.kill(os.getpid(), signal.SIGKILL)
    there = {"path": file.name, "type": "file"}
    checked = {"command": f"check {file.name}", "actual_exit_code": check(file)}
    evidence = [
        Evidence(EvidenceType.ARTIFACT_EXISTS, "the page is there", there),
        Evidence(EvidenceType.COMMAND_EXIT, "the checker is content", {"exit_code": 0}, metadata=checked),
    ]
    return manager.commit_step(step, EvidencePack(evidence))


def check(file: Path) -> int:
    """Stands where a real checker would run; its exit code."""
    return 0 if file.read_text().startswith("<h1>") else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build a site, page by page, and survive.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spoil", type=int, default=0, metavar="PAGE", help="it comes out bad the first time")
    parser.add_argument("--crash", type=int, default=0, metavar="PAGE", help="killed in the middle of this page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
