"""What happens in a golden store, in chapters."""

from __future__ import annotations

import os
import signal
import socket
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import apsw
import msgspec
from tests.golden.ledger import ExpectedStep, Ledger, fingerprint, listing
from tests.golden.values import (
    CHANGED,
    EVERYTHING,
    LEFT_OUT,
    RETURNED,
    TREE,
    WIDE,
    claims,
    conversation,
    is_as_it_was,
    large,
    large_text,
    make_evidence,
    many,
)
from tests.support.file_trees import Spec, replace

import lastgood
from lastgood.catalog.sqlite.connection import open_connection
from lastgood.catalog.sqlite.migration import migrations
from lastgood.engine.engine import acting
from lastgood.local.process import this_process

OWNER = "golden"
VERIFIED, FAILED = "verified", "failed"


def tell(folder: Path, expectation: Callable[[bytes], object]) -> NoReturn:
    """Write `folder / "store"`, hand over what to expect of it, and be killed in the middle of a save."""
    written = migrations()[-1].format
    socket.gethostname = lambda: "golden"  # nothing of this machine stays in it
    warnings.simplefilter("ignore", lastgood.PlainDataWarning)
    story = Story(folder, written)
    for chapter in CHAPTERS:
        chapter(story)
    expected = story.ledger.finish(story.store, story.heads)
    expectation(msgspec.json.format(msgspec.json.encode(expected), indent=1))
    story.die()


class Story:
    """A store, its ledger, and the folder that its workspaces are in."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder = folder
        self.format = format
        self.ledger = Ledger(format)
        self.store = self._open()
        self.heads: dict[tuple[str, str], str] = {}

    def _open(self) -> Any:
        """As much as the code of the day has to offer: hence of no type."""
        redaction = lastgood.types.Redaction(state=("credentials.token",))
        return lastgood.CheckpointManager(
            self.folder / "store", self.folder, user=OWNER, redaction=redaction, collect="never"
        )

    def note(self, saved: lastgood.Checkpoint, state: Any, *, owner: str = OWNER, **about: Any) -> str:
        """A checkpoint that goes on from the task's last one, unless `parent` says otherwise; its id."""
        about.setdefault("parent", self.heads.get((owner, saved.task_id)))
        self.heads[owner, saved.task_id] = self.ledger.note(saved, state, owner=owner, **about)
        return saved.id

    def workspace(self, name: str, spec: Spec) -> Path:
        place = self.folder / name
        place.mkdir(exist_ok=True)
        replace(place, spec)
        return place

    def die(self) -> NoReturn:
        """In the middle of a save: what it has to commit is there, and is not committed."""
        task = self.store.task("packed", workspace=self.workspace("packed", many(80, 500)))
        with mock.patch.object(self.store._engine.catalog, "commit", _kill):
            task.save({"never": "acknowledged"})
        raise AssertionError("nothing was committed")


def tell_of_states(story: Story) -> None:
    """Values of every kind, long ones, what stands beside the state, tags, keys, and what is deleted and purged."""
    store, ledger = story.store, story.ledger
    task = store.task("values")
    beside: dict[str, Any] = {
        "artifacts": [
            {"id": "a1", "name": "prompt", "version": 2, "type": "prompt", "format": "text", "content": "Do"}
        ],
        "decisions": [{"question": "Go on?", "answer": True}],
        "guidance": ["be brief"],
        "participants": [{"id": "ada", "role": "author"}],
    }
    about: dict[str, Any] = {
        "message": "every kind of value",
        "type": "iteration_end",
        "step_id": "draft",
        "iteration": 3,
        "iteration_state": "done",
        "control_state": "running",
        "work_item_id": "W-7",
        "metadata": {"tokens_in": 12, "cost_usd": 0.25, "model": "golden", "nested": {"list": [1, None, "x"]}},
        "key": "once",
    }
    first = story.note(task.save(EVERYTHING, **about, **beside), RETURNED, **about, **beside)
    story.note(task.save({"prompt": "x" * 300}, id="an id of my own"), {"prompt": "x" * 300}, prompt_preview="x" * 200)
    task.tag(first, "start")
    task.tag(first, "Grüße/v1.0")
    task.tag(first, "moves on")
    ledger[first].tags += ["Grüße/v1.0", "start"]
    for length in (3, 40, 90, 91):
        state = {"messages": conversation(length), "text": large_text(600), "map": dict.fromkeys(map(str, range(400)))}
        story.note(task.save(state, iteration=length), state, iteration=length)
    nested = [{"log": large_text(700), "at": [n] * 5} for n in range(3)]
    longest = story.note(task.save({"steps": nested}), {"steps": nested})
    task.tag(longest, "moves on", move=True)
    ledger[longest].tags += ["moves on"]
    task.tag(longest, "taken off")
    store.untag(longest, "taken off")
    _settle(story)
    deleted, purged, back, last = [story.note(task.save({"n": n}), {"n": n}) for n in range(4)]
    store.delete_checkpoint(deleted)
    _purge(story, purged)
    store.delete_checkpoint(back)
    store.undelete_checkpoint(back)
    ledger[deleted].deleted = True
    assert story.heads[OWNER, "values"] == last
    other = store.task("values", owner="somebody else").save(["theirs"], id="an id of theirs")
    story.note(other, ["theirs"], owner="somebody else")
    store.task("gone").save({"deleted": "with its task"})
    store.delete_task("gone")


def tell_of_branches(story: Story) -> None:
    """Steps with evidence, forks, restores, undo with a redo left, deleted branches; steps that stay open."""
    store, ledger = story.store, story.ledger
    make_evidence(story.folder)
    task = store.task("work")
    first = story.note(task.save({"n": 1}), {"n": 1})
    with task.step("test", message="tested") as step:
        step.state["n"] = 2
        step.run(["true"])
        step.expect_file("report.txt")
        step.expect(*claims()[:2])
    good = story.note(step.checkpoint, {"n": 2}, evidence=[VERIFIED] * 4, type="step", step_id="test", message="tested")
    with task.step("fails") as step:
        step.run(["false"])
    story.note(step.checkpoint, {"n": 2}, evidence=[FAILED], type="step", step_id="fails")
    some = lastgood.EvidencePack(claims(), require_all=False, allow_partial=True, min_verified=2)
    story.note(task.save({"n": 3}, evidence=some), {"n": 3}, evidence=[VERIFIED, VERIFIED, FAILED], verified=True)
    with suppress(ZeroDivisionError), task.step("ends badly"):
        _ = 1 // 0

    main = story.heads[OWNER, "work"]
    for name in ("aside", "deleted"):
        side = task.fork(good, name=name, description=f"{name} it goes", metadata={"why": name}, paused=True)
        forked = story.note(side.head, {"n": 2}, parent=good, lineage="forked", control_state="paused")
        ledger.names[side.branch_id] = name
        tip = story.note(side.save({"n": name}), {"n": name}, parent=forked)
        story.heads[OWNER, "work"] = main
    task.delete_branch("deleted")
    ledger[forked].deleted = ledger[tip].deleted = True
    del ledger.names[side.branch_id]

    restored = task.restore(good, present={"n": "unsaved"}, message="back to what was good")
    story.note(restored.before, {"n": "unsaved"}, type="before_restore")
    story.note(
        restored.checkpoint, {"n": 2}, parent=good, type="restored", lineage="restored", message="back to what was good"
    )
    gone_on = story.note(task.save({"n": 4}), {"n": 4})
    task.undo()
    task.redo()
    task.switch("aside")
    task.undo()
    again = task.restore(first).checkpoint
    story.note(again, {"n": 1}, parent=first, type="restored")
    task.undo()
    story.heads[OWNER, "work"] = gone_on
    ledger.redo["work"] = again.id

    talk = store.task("talk")
    state: dict[str, Any] = {"messages": lastgood.AppendList(), "credentials": {"user": "ada", "token": "never stored"}}
    returned = {**state, "credentials": {"user": "ada", "token": lastgood.types.Redacted()}}
    for length in (2, 60, 61):
        state["messages"].extend(conversation(length)[len(state["messages"]) :])
        saved = talk.save(state, metadata={"password": "never stored"})
        story.note(saved, returned, redacted=["credentials.token"], metadata={"password": "[redacted]"})

    steps = ledger.expected.steps
    begun = store.task("work").step("was going on", work_item_id="W-8").begin().id
    steps[begun] = ExpectedStep(
        task="work", type="step", name="was going on", work_item="W-8", metadata=fingerprint({})
    )
    begun = store.begin_step("manager", "tool_executed", EVERYTHING, work_item_id="W-9", metadata={"tool": "sh"})
    steps[begun] = ExpectedStep(
        task="manager",
        type="tool_executed",
        name=begun,
        work_item="W-9",
        metadata=fingerprint({"tool": "sh"}),
        snapshot=fingerprint(RETURNED),
    )


def tell_of_files(story: Story) -> None:
    """Folders as they were, restored, partly restored, undone; some files alone; two folders at once."""
    store = story.store
    before, after = listing(TREE, without=LEFT_OUT), listing(CHANGED, without=LEFT_OUT)
    place = story.workspace("work", TREE)
    task = store.task("files", workspace=place)
    first = story.note(task.save({"n": 1}), {"n": 1}, files=before)
    replace(place, CHANGED)
    pack = lastgood.EvidencePack([is_as_it_was(story.folder, "work/readme.txt"), *claims()[:1]])
    second = story.note(task.save({"n": 2}, evidence=pack), {"n": 2}, files=after, evidence=[VERIFIED] * 2)
    listed = {path: what for path, what in after.items() if path in ("readme.txt", "noise.log")}
    listed["noise.log"] = listing(CHANGED)["noise.log"]
    story.note(task.save({"n": 3}, files=["readme.txt", "noise.log"]), {"n": 3}, files=listed)

    restored = task.restore(first)
    story.note(restored.before, {"n": 3}, files=after, type="before_restore")  # the one before has but two of the files
    story.note(restored.checkpoint, {"n": 1}, parent=first, files=before, type="restored")
    mixed = {**before, "readme.txt": after["readme.txt"]}
    part = task.restore(second, "files", paths=["readme.txt"]).checkpoint
    story.note(part, {"n": 1}, files=mixed, type="restored")
    story.note(task.save({"n": 4}), {"n": 4}, files=mixed)

    roots = {name: story.workspace(name, {b"in": (0o644, name.encode())}) for name in ("app", "infra")}
    files = {
        f"{name}/{path}": what for name in roots for path, what in listing({b"in": (0o644, name.encode())}).items()
    }
    story.note(store.task("roots", workspace=roots).save(None), None, files=files)


def tell_of_packs(story: Story) -> None:
    """Content that lies in packs and in chunks, a pack that was rewritten, and some of it condemned."""
    store = story.store
    versions: list[Spec] = [
        {b"large": (0o644, large(600)), **many(80)},
        {b"large": (0o644, large(650)), **many(80, 200)},
        {b"large": (0o600, large(650)), **many(10)},
    ]
    task = store.task("packed", workspace=story.workspace("packed", {}))
    ids = []
    for number, spec in enumerate(versions):
        story.workspace("packed", spec)
        ids.append(story.note(task.save(number), number, files=listing(spec)))
    _purge(story, ids[0])
    collected = store.collect(grace=0)
    assert min(collected.packs_rewritten, collected.removed) > 0, collected
    _purge(story, ids[1])
    collected = store.collect()
    assert collected.condemned > 0 == collected.removed, collected


def tell_of_wide_folders(story: Story) -> None:
    """A folder whose tree lies in parts."""
    task = story.store.task("wide", workspace=story.workspace("wide", WIDE))
    story.note(task.save("wide"), "wide", files=listing(WIDE))


def tell_of_steering(story: Story) -> None:
    """Work that was guided, edited and paused, a request that is open, and someone who works on it."""
    store = story.store
    task, control = store.task("steered"), store.task("steered")
    prompt = {"id": "a1", "name": "prompt", "version": 1, "content": "Do"}
    story.note(task.save({"n": 1}, control_state="running", artifacts=[prompt]), {"n": 1}, control_state="running")
    steering = control.control
    asked = [steering.guide("be brief", id="guided"), steering.edit("prompt", "Do it", id="edited")]
    asked += [steering.pause(id="paused"), steering.resume(id="resumed")]
    for kind, state in (("guided", "running"), ("edited", "running"), ("paused", "paused")):
        made = next(one for one in store.list_checkpoints("steered") if one.type == kind)
        story.note(made, {"n": 1}, type=kind, control_state=state)
    edited = {**prompt, "version": 2, "content": "Do it", "edited_by": OWNER}
    assert task.refresh().artifacts == [edited]
    for one in asked:
        story.ledger.expected.requests[one.request.id] = one.request.status
    assert set(story.ledger.expected.requests.values()) == {"fulfilled", "open"}
    store._engine.catalog.acquire_lease(OWNER, task.branch_id, this_process(), "golden:1", 30.0, acting(store.user))


CHAPTERS: list[Callable[[Story], None]] = [
    tell_of_packs,
    tell_of_states,
    tell_of_branches,
    tell_of_files,
    tell_of_wide_folders,
    tell_of_steering,
]
"""Packs come first: collecting purges what is deleted, and empties the log."""


def _kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _purge(story: Story, id_: str) -> None:
    story.store.delete_checkpoint(id_)
    story.store.purge_checkpoint(id_)
    story.ledger[id_].deleted = story.ledger[id_].purged = True


def _settle(story: Story) -> None:
    """So that some of the store lies in the database, and some in the log alone."""
    with closing(open_connection(story.folder / "store" / "catalog.sqlite")) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
