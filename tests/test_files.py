"""The files of a task, as its user sees them: saved, listed, read, compared, put back (B1 to B5, B9, B10, promises 3-5).

What must hold whatever someone does against it stands in test_files_hostile.py.
"""

# ruff: noqa: PTH  (names are raw bytes here, which pathlib does not take)

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.trees import (
    FILES,
    NAMES,
    SPECS,
    Bench,
    Found,
    Spec,
    bench,
    build,
    flatten,
    look,
    paths_of,
    replace,
    specs,
)

import lastgood
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.model.tree import Entry, File, Folder, Link, encode_tree

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed: what needs it is NOT tested")


@pytest.fixture
def place() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Bench]:
    """One store and one folder for all examples, each with a task of its own: what one of them leaves behind (in the
    stat index, in the catalog) must not matter to the next."""
    with bench() as made:
        yield made


# --- properties --------------------------------------------------------------------------------------------------


def listed(store: lastgood.Store, checkpoint_id: str, path: str = "") -> list[lastgood.FileInfo]:
    """Every entry of a checkpoint, as its user walks through it."""
    found = []
    for info in store.list_files(checkpoint_id, path):
        found.append(info)
        if info.kind == "folder":
            found += listed(store, checkpoint_id, info.path)
    return found


@settings(max_examples=150)
@given(SPECS)
def test_p1_creation_is_complete(shared: Bench, spec: Spec) -> None:
    """P1 (B1, B2, B10): a checkpoint lists every file that was there, with its size and hash; every link with its
    target, every folder, modes; and nothing else."""
    store, root = shared
    replace(root, spec)
    saved = shared.new_task().save({})
    expected = flatten(spec)
    assert saved.skipped == ()
    told: Found = {}
    for info in listed(store, saved.id):
        path = os.fsencode(info.path)
        if info.kind == "file":
            content = expected[path][2]
            assert (info.size, info.sha256) == (len(content), f"sha256:{sha256(content).hexdigest()}")
            told[path] = "file", info.mode, content
        else:
            told[path] = ("link", os.fsencode(info.target or "")) if info.kind == "link" else ("folder", info.mode)
    assert told == expected
    (recorded,) = saved.record.files or ()
    contents = [what[2] for what in expected.values() if what[0] == "file"]
    assert recorded.file_count == len(contents) + len(paths_of(expected, "link"))
    assert recorded.total_size == sum(map(len, contents))


@settings(max_examples=100)
@given(SPECS, SPECS)
def test_p2_stored_content_returns_identical_under_a_deterministic_hash_and_is_stored_once(
    one: Spec, other: Spec
) -> None:
    """P2 (B1, B5, B10): stored content returns identical, its hash is deterministic, and no blob is stored twice:
    not in one checkpoint, nor in the next, nor by another task."""
    with bench() as (store, root), bench() as elsewhere:
        first, second = store.task("first", workspace=root), store.task("second", workspace=root)
        build(root, one)
        saved = [first.save({}), second.save({})]
        replace(root, other)
        saved += [first.save({}), second.save({})]
        for checkpoint, spec in zip(saved, (one, one, other, other), strict=True):
            for path, what in flatten(spec).items():
                if what[0] != "folder":
                    assert store.read_file(checkpoint.id, os.fsdecode(path)) == what[-1]
        build(elsewhere.root, one)
        (here,), (there,) = saved[0].record.files or (), elsewhere.task().save({}).record.files or ()
        assert here.tree == there.tree
        store.close()
        assert sorted(_stored_blobs(root.parent)) == sorted({*_blobs_of(one), *_blobs_of(other)})


def _stored_blobs(folder: Path) -> list[bytes]:
    """From the catalog itself; what belongs to no task. The store is closed: nobody's locks are at stake."""
    with closing(sqlite3.connect(folder / "store" / "catalog.sqlite")) as catalog:
        return [digest for (digest,) in catalog.execute("SELECT digest FROM blobs WHERE partition = 0")]


def _blobs_of(spec: Spec) -> Iterator[bytes]:
    """The blobs that a folder needs, the last one being its tree."""
    entries: list[Entry] = []
    for name, thing in spec.items():
        if isinstance(thing, bytes):
            entries.append(Link(name, thing))
        elif isinstance(thing[1], dict):
            *below, tree = _blobs_of(thing[1])
            yield from [*below, tree]
            entries.append(Folder(name, thing[0], tree))
        else:
            yield (content := sha256(thing[1]).digest())
            entries.append(File(name, thing[0], len(thing[1]), content))
    yield sha256(encode_tree(entries)).digest()


@settings(max_examples=150)
@given(st.lists(SPECS, min_size=2, max_size=4), SPECS, st.data())
def test_p3_restore_round_trips(shared: Bench, trees: list[Spec], unsaved: Spec, data: st.DataObject) -> None:
    """P3 (B3, B10): restoring any checkpoint gives back exactly its files, undoing that exactly what was there before,
    saved or not, and redoing it the checkpoint's again: content, modes, links, empty folders."""
    store, root = shared
    task = shared.new_task()
    saved = []
    for number, spec in enumerate(trees):
        replace(root, spec)
        saved.append(task.save({"n": number}))
    replace(root, unsaved)
    chosen = data.draw(st.lists(st.integers(0, len(saved) - 1), min_size=1, max_size=3))
    what = data.draw(st.sampled_from(["both", "files"]))
    seen = [look(root)]
    for number in chosen:
        result = task.restore(saved[number], what)
        assert not result.failed
        assert look(root) == flatten(trees[number])
        assert task.state == {"n": number if what == "both" else len(saved) - 1}
        seen.append(look(root))
    for expected in reversed(seen[:-1]):
        task.undo()
        assert look(root) == expected
    for expected in seen[1:]:
        task.redo()
        assert look(root) == expected
    with pytest.raises((ConflictError, InvalidError, NotFoundError)):
        task.redo()


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["save", "save elsewhere", "restore", "files", "undo", "fork"]), max_size=8),
    st.lists(FILES, min_size=9, max_size=9),
)
def test_p4_lists_are_in_order(shared: Bench, actions: list[str], contents: list[tuple[int, bytes]]) -> None:
    """P4 (A10, B10): checkpoints are listed newest first, ties by sequence number, with an exact total; files in the
    order of their names."""
    store, root = shared
    task, other = shared.new_task(), shared.new_task()
    made = [task.save({})]
    for action, content in zip(actions, contents, strict=False):
        replace(root, {b"f": content, **dict.fromkeys(NAMES[:len(made)], content)})
        match action:
            case "save":
                made.append(task.save({}))
            case "save elsewhere":
                other.save({})
            case "restore" | "files":
                made.append(task.restore(made[0], "files" if action == "files" else "both").checkpoint)
            case "undo" if any(entry.type == "restored" for entry in made):
                try:
                    task.undo()
                except (ConflictError, InvalidError, NotFoundError):
                    pass  # everything is undone already
            case "fork":
                task.fork(made[-1])
    page = store.page_checkpoints(task.id, 1000)
    order = [checkpoint.sequence for checkpoint in page.checkpoints]
    assert order == list(range(page.total, 0, -1))
    times = [checkpoint.created_at for checkpoint in page.checkpoints]
    assert times == sorted(times, reverse=True)
    assert {entry.id for entry in made} <= {entry.id for entry in page.checkpoints}
    for checkpoint in page.checkpoints:
        names = [os.fsencode(info.path) for info in store.list_files(checkpoint.id)]
        assert names == sorted(names)


LINES = st.lists(st.sampled_from([b"one\n", b"two\n", b"three\r\n", b"\n", b"-- a\n", b"\xff\n", b"@@ -1 +1 @@\n"]))
TEXTS = st.tuples(st.sampled_from([0o644, 0o755]), st.tuples(LINES.map(b"".join), st.sampled_from([b"", b"end"])))
PATCHABLE = specs(
    st.one_of(
        TEXTS.map(lambda text: (text[0], b"".join(text[1]))), st.sampled_from([b"nowhere", b"no\nwhere", b"../x"])
    ),
    (0o755,),
)


@needs_git
@settings(max_examples=100)
@given(PATCHABLE, PATCHABLE)
def test_p5_diff_is_right_and_well_formed(shared: Bench, before: Spec, after: Spec) -> None:
    """P5 (B5, B10): the diff of two checkpoints is right and well formed: `git apply` of it gives the other side. So is
    that of a checkpoint and the disk, and the way back. Empty folders, which no patch carries, are left out here."""
    before, after = _without_empty_folders(before), _without_empty_folders(after)
    store, root = shared
    task = shared.new_task()
    replace(root, before)
    old = task.save({})
    replace(root, after)
    unsaved = task.diff(old).files.patch()
    new = task.save({})
    there, back = task.diff(old, new).files, task.diff(new, old).files
    assert there.patch() == unsaved == store.compare_files(old.id, new.id).patch()
    assert bool(there) is (flatten(before) != flatten(after))
    _git_apply(root, there.patch(), before, after)
    _git_apply(root, back.patch(), after, before)


def _git_apply(folder: Path, patch: bytes, before: Spec, after: Spec) -> None:
    replace(folder, before)
    if b"diff --git " in patch:
        surroundings = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "LC_ALL": "C"}
        surroundings["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
        command = ["git", "apply", "--whitespace=nowarn", "-p1"]
        done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=False, env=surroundings)
        assert done.returncode == 0, (done.stderr, patch)
    assert _without_folders(look(folder)) == _without_folders(flatten(after))


def _without_empty_folders(spec: Spec) -> Spec:
    kept = {
        name: (thing[0], _without_empty_folders(thing[1])) if isinstance(thing[1], dict) else thing
        for name, thing in spec.items()
    }
    return {name: thing for name, thing in kept.items() if thing[1] != {}}


def _without_folders(found: Found) -> Found:
    """A patch carries no folders, and of modes just whether a file can be run."""
    return {path: what for path, what in found.items() if what[0] != "folder"}


@settings(max_examples=150)
@given(SPECS, SPECS)
def test_p7_details_are_complete(shared: Bench, before: Spec, after: Spec) -> None:
    """P7 (B2, B4, B10): a checkpoint shows time, message and each path that differs from its parent, with the kind of
    its change, its size and its hash; the first one shows everything as added."""
    store, root = shared
    task = shared.new_task()
    replace(root, before)
    first = task.save({}, message="first")
    replace(root, after)
    second = task.save({}, message="second")
    shown = store.get_checkpoint(second.id)
    assert (shown.message, shown.parent_id) == ("second", first.id)
    assert shown.created_at >= first.created_at
    for checkpoint, old, new in ((first, {}, flatten(before)), (second, flatten(before), flatten(after))):
        changes = store.compare_files(None, checkpoint.id).changes
        told = dict(_unfold_renames(changes, old))
        assert told == _differences(old, new)
        for change in changes:
            what = (old if change.change == "deleted" else new)[os.fsencode(change.path)]
            if what[0] == "file":
                hash_ = f"sha256:{sha256(what[2]).hexdigest()}"
                assert (change.size, change.sha256) == (len(what[2]), hash_)


def _unfold_renames(changes: list[lastgood.FileChange], old: Found) -> Iterator[tuple[bytes, str]]:
    """A rename as what it is made of; only a path that was there and is gone can be one."""
    for change in changes:
        if change.change == "renamed":
            assert change.old_path is not None
            assert os.fsencode(change.old_path) in old
            yield os.fsencode(change.old_path), "deleted"
        yield os.fsencode(change.path), "added" if change.change == "renamed" else change.change


def _differences(old: Found, new: Found) -> dict[bytes, str]:
    told = {}
    for path in {*old, *new}:
        was, now = old.get(path), new.get(path)
        if was is None or now is None:
            side = new if was is None else old
            if side[path][0] != "folder" or not any(other.startswith(path + b"/") for other in side):
                told[path] = "added" if was is None else "deleted"
        elif was[0] != now[0]:
            told[path] = "type"
        elif was != now:
            told[path] = "mode" if was[0] == "folder" or (was[0] == "file" and was[2] == now[2]) else "modified"
    return told
