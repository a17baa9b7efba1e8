"""The files of a task, as its user sees them: saved, listed, read, compared, put back (B1 to B5, B9, B10).

What must hold whatever someone does against it stands in test_files_hostile.py.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.file_trees import (
    FILES,
    NAMES,
    SPECS,
    Bench,
    Found,
    Spec,
    bench,
    build,
    files,
    flatten,
    look,
    paths_of,
    replace,
    specs,
    without,
)

import lastgood
from lastgood.engine import restore_files
from lastgood.errors import ConflictError, InvalidError, NotFoundError
from lastgood.files.apply import apply
from lastgood.model.tree import SPECIAL_BITS, AttributedFile, Attributes, Entry, File, Folder, Link, encode_tree

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


def listed(store: lastgood.Store, checkpoint_id: str, path: str = "") -> list[lastgood.types.FileInfo]:
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
            about = name, thing[0], len(thing[1]), content
            owner = Attributes((os.geteuid(), os.getegid()))
            is_special = thing[0] & SPECIAL_BITS
            entries.append(AttributedFile(*about, None, content, owner) if is_special else File(*about))
    yield sha256(encode_tree(entries)).digest()


@settings(max_examples=100)
@given(st.lists(SPECS, min_size=2, max_size=3), SPECS, st.data())
def test_p3_restore_round_trips(shared: Bench, trees: list[Spec], unsaved: Spec, data: st.DataObject) -> None:
    """P3 (B3, B10): restoring any checkpoint gives back exactly its files, undoing that exactly what was there before,
    saved or not, and redoing it the checkpoint's again: content, modes, links, empty folders."""
    root, task = shared.root, shared.new_task()
    saved = []
    for number, spec in enumerate(trees):
        replace(root, spec)
        saved.append(task.save({"n": number}))
    replace(root, unsaved)
    chosen = data.draw(st.lists(st.integers(0, len(saved) - 1), min_size=1, max_size=3))
    what: Any = data.draw(st.sampled_from(["both", "files"]))
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
        replace(root, {b"f": content, **dict.fromkeys(NAMES[: len(made)], content)})
        match action:
            case "save":
                made.append(task.save({}))
            case "save elsewhere":
                other.save({})
            case "restore" | "files":
                made.append(task.restore(made[0], "files" if action == "files" else "both").checkpoint)
            case "undo" if any(entry.type == "restored" for entry in made):
                with suppress(ConflictError, InvalidError, NotFoundError):  # everything may be undone already
                    task.undo()
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
    shown = store.find_checkpoint(second.id)
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


def _unfold_renames(changes: list[lastgood.types.FileChange], old: Found) -> Iterator[tuple[bytes, str]]:
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


# --- fidelity ----------------------------------------------------------------------------------------------------

TABLE = {
    "empty directory": (b"empty", False),
    "mode 0600": (b"private", False),
    "mode 0444": (b"readonly", False),
    "mode of a folder": (b"closed", False),
    "file that can be run": (b"tool", True),
    "file in a nested repository": (b"nested/inside.txt", False),
    "symbolic link": (b"link", True),
    "dangling link to outside": (b"dangling", True),
    "hard link, first name": (b"hard-1", True),
    "hard link, second name": (b"hard-2", True),
    "ignored file, included again for us": (b"wanted.log", False),
    "name that is no UTF-8": (b"\xff\xfe name", True),
    "name with a newline": (b"new\nline", True),
}
"""What is in the folder, where, and whether a shadow git repository (`add -A`, `commit`) brings it back as it was."""


def _fill(root: Path) -> None:
    build(
        root,
        {
            b".gitignore": (0o644, b"*.log\n"),
            b".lastgoodignore": (0o644, b"!wanted.log\n"),
            b"wanted.log": (0o644, b"wanted"),
            b"unwanted.log": (0o644, b"unwanted"),
            b"empty": (0o755, {}),
            b"private": (0o600, b"private"),
            b"readonly": (0o444, b"readonly"),
            b"closed": (0o700, {b"in": (0o644, b"in")}),
            b"tool": (0o755, b"#!/bin/sh\n"),
            b"nested": (0o755, files(inside_txt="inside")),
            b"link": b"closed/in",
            b"dangling": b"../nowhere/at/all",
            b"hard-1": (0o644, b"two names"),
            b"\xff\xfe name": (0o644, b"bytes"),
            b"new\nline": (0o644, b"line"),
        },
    )
    os.link(root / "hard-1", root / "hard-2")
    _git(root / "nested", "init", "--quiet")
    _git(root / "nested", "add", "inside.txt")
    _git(root / "nested", "commit", "--quiet", "--message=nested")


def _git(folder: Path, *arguments: str) -> None:
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    surroundings |= {f"GIT_{who}_{what}": "t@t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "advice.addEmbeddedRepo=false", *arguments]
    subprocess.run(command, cwd=folder, env=surroundings, check=True, capture_output=True, umask=0o022)


@pytest.fixture(scope="module")
def fidelity() -> Iterator[tuple[Found, Found, Found]]:
    """What was there, what comes back from a checkpoint, and what from a shadow repository."""
    with bench() as (store, root):
        _fill(root)
        was = look(root)
        saved = store.task("t", workspace=root).save({})
        store.task("t").copy_files(saved, root.parent / "ours")
        (root.parent / "git").mkdir()
        shadow = [f"--git-dir={root.parent}/shadow", f"--work-tree={root}"]
        _git(root, *shadow, "init", "--quiet")
        _git(root, *shadow, "add", "--all")
        _git(root, *shadow, "commit", "--quiet", "--message=all")
        _git(root.parent / "git", shadow[0], f"--work-tree={root.parent}/git", "checkout", "--force", "HEAD", "--", ".")
        yield was, look(root.parent / "ours"), look(root.parent / "git")


@needs_git
@pytest.mark.parametrize("what", TABLE)
def test_everything_comes_back_from_a_checkpoint_and_less_from_a_shadow_git(
    fidelity: tuple[Found, Found, Found], what: str
) -> None:
    """B3 against what peers use; the second column is asserted, too, so that the table stays true."""
    was, ours, git = fidelity
    path, git_keeps = TABLE[what]
    assert ours[path] == was[path]
    assert (git.get(path) == was[path]) is git_keeps


@needs_git
def test_a_checkpoint_holds_everything_but_repositories_and_what_is_ignored(
    fidelity: tuple[Found, Found, Found],
) -> None:
    was, ours, _ = fidelity
    assert ours == without(was, lambda path: b".git" in path.split(b"/") or path == b"unwanted.log")


@needs_git
def test_the_users_repository_is_never_written_and_its_head_is_recorded(place: Bench) -> None:
    """Promise 4; a restore over many commits of the user leaves the repository as it is."""
    store, root = place
    build(root, files(a="1"))
    _git(root, "init", "--quiet")
    task = store.task("t", workspace=root)
    first = task.save({})
    build(root, files(b="1"))
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message=second")
    second = task.save({})
    was = {path: what for path, what in look(root).items() if path.startswith(b".git/")}
    for move in (lambda: task.restore(first), task.undo, task.redo, lambda: task.restore(second, "files")):
        move()
        assert {path: what for path, what in look(root).items() if path.startswith(b".git/")} == was
    (one,), (two,) = first.record.files or (), second.record.files or ()
    assert one.git_head != two.git_head
    assert len(two.git_head or "") == 40


# --- what was not captured -----------------------------------------------------------------------------------------

IGNORING = {b".gitignore": (0o644, b"*.log\n")}
PRECIOUS = (0o640, b"nobody has a copy of this")
KEPT: dict[str, tuple[Spec, Spec, list[bytes]]] = {
    "ignored": (
        {**IGNORING, **files(a="1")},
        {**IGNORING, **files(a="2"), b"x.log": PRECIOUS},
        [b"x.log"],
    ),
    "ignored in a folder that is ignored": (
        {b".gitignore": (0o644, b"out/\n")},
        {b".gitignore": (0o644, b"out/\n"), b"out": (0o755, {b"deep": (0o700, {b"x": PRECIOUS})})},
        [b"out/deep/x"],
    ),
    "ignored until the rule was removed": (
        {**IGNORING, b"x.log": PRECIOUS},
        {b"x.log": PRECIOUS, **files(a="2")},
        [b"x.log"],
    ),
    "a secret": (files(a="1"), {**files(a="2"), b".env": PRECIOUS, b"id_rsa": PRECIOUS}, [b".env", b"id_rsa"]),
    "ignored, in a folder that the target does not have": (
        {**IGNORING, **files(a="1")},
        {**IGNORING, b"d": (0o755, {b"e": (0o755, {b"x.log": PRECIOUS, **files(f="1")})})},
        [b"d/e/x.log"],
    ),
    "ignored, in a folder that becomes a file": (
        {**IGNORING, **files(p="file")},
        {**IGNORING, b"p": (0o755, {b"x.log": PRECIOUS, **files(f="1")})},
        [b"p/x.log"],
    ),
    "ignored, in a folder that becomes a link": (
        {**IGNORING, b"p": b"elsewhere", b"elsewhere": (0o755, {b"x.log": PRECIOUS})},
        {**IGNORING, b"p": (0o755, {b"x.log": PRECIOUS}), b"elsewhere": (0o755, {b"x.log": PRECIOUS})},
        [b"p/x.log", b"elsewhere/x.log"],
    ),
    "ignored, in a folder that is renamed in case only": (
        {**IGNORING, b"Dir": (0o755, files(f="1"))},
        {**IGNORING, b"dir": (0o755, {b"x.log": PRECIOUS, **files(f="1")})},
        [b"dir/x.log"],
    ),
    "ignored by a rule further down": (
        {b"d": (0o755, {b".gitignore": (0o644, b"x\n")})},
        {b"d": (0o755, {b".gitignore": (0o644, b"x\n"), b"x": PRECIOUS}), b"x": (0o644, b"other")},
        [b"d/x"],
    ),
    "a repository in a folder that the target does not have": (
        files(a="1"),
        {b"d": (0o755, {b".git": (0o755, {b"HEAD": PRECIOUS}), b"f": (0o644, b"1")})},
        [b"d/.git/HEAD"],
    ),
}
"""What the target holds, what lies there now, and which paths of that nobody may lose."""


@pytest.mark.parametrize("how", KEPT)
def test_what_was_not_captured_survives_every_way_back(place: Bench, how: str) -> None:
    """Promise 4, B3: tried by full, files-only and selective restores, undo, redo and a switch of branches."""
    store, root = place
    task = store.task("t", workspace=root)
    target, present, precious = KEPT[how]
    build(root, target)
    old = task.save({})
    replace(root, present)
    new = task.save({})
    was = look(root)
    moves: list[Callable[[], object]] = [
        lambda: task.restore(old),
        task.undo,
        task.redo,
        lambda: task.restore(new, "files"),
        lambda: task.restore(old, "files", paths=["**"]),
        lambda: task.restore(old, "files", paths=[os.fsdecode(precious[0]), os.fsdecode(precious[0]).split("/")[0]]),
        task.undo,
        task.undo,
        task.redo,
        lambda: task.switch("main"),
        lambda: task.restore(new),
    ]
    for number, move in enumerate(moves):
        move()
        found = look(root)
        assert {path: found.get(path) for path in precious} == {path: was[path] for path in precious}, number


@settings(max_examples=100)
@given(SPECS, SPECS, st.booleans())
def test_nothing_that_is_ignored_is_ever_changed(shared: Bench, target: Spec, present: Spec, whole: bool) -> None:
    """Promise 4: whatever the trees, everything called `b` is ignored here, and stays as it is through restore, undo
    and redo; and undoing brings back all the rest."""
    root, task = shared.root, shared.new_task()
    rule: Spec = {b".gitignore": (0o644, b"b\n")}
    replace(root, target | rule)
    old = task.save({})
    replace(root, present | rule)
    was = look(root)
    ignored = {path: what for path, what in was.items() if b"b" in path.split(b"/")}
    after: list[Found] = []
    for move in (lambda: task.restore(old, "both" if whole else "files"), task.undo, task.redo, task.undo):
        move()
        after.append(look(root))
        assert {path: after[-1].get(path) for path in ignored} == ignored
    assert after[1] == after[3] == was
    assert after[2] == after[0]


def test_a_file_that_became_ignored_is_saved_by_name_before_it_is_overwritten(place: Bench) -> None:
    """Promise 3: the target holds it, the present does not capture it any more; undoing brings it back."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, {b"x.log": (0o644, b"old")})
    old = task.save({})
    replace(root, {**IGNORING, b"x.log": PRECIOUS})
    task.save({})
    was = look(root)
    for what in ("both", "files"):
        result = task.restore(old, what)
        assert look(root) == {b"x.log": ("file", 0o644, b"old")}
        assert result.before is not None
        assert store.read_file(result.before.id, ".gitignore") == b"*.log\n"
        task.undo()
        assert look(root) == was
        task.redo()
        assert look(root) == {b"x.log": ("file", 0o644, b"old")}
        task.undo()


def test_special_files_are_reported_and_stay(place: Bench) -> None:
    """B7: sockets and pipes are nobody's content; the folder they lie in stays with them."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, files(a="1"))
    old = task.save({})
    build(root, {b"d": (0o755, files(f="1"))})
    os.mkfifo(root / "d" / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{root}/d/door")
    saved = task.save({})
    assert sorted(item.path for item in saved.skipped) == ["d/door", "d/pipe"]
    for move in (lambda: task.restore(old), task.undo, task.redo, lambda: task.restore(old, "files")):
        move()
        assert paths_of(look(root), "special") == [b"d/door", b"d/pipe"]


def test_a_list_of_files_is_all_that_its_restore_touches(place: Bench) -> None:
    """B1, B3: an explicit list wins over the ignore rules, and restoring it leaves every other path alone."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, {**IGNORING, **files(a="1", b="1"), b"x.log": (0o644, b"1"), b"d": (0o755, files(c="1"))})
    listed_ = task.save({}, files=["x.log", "d/c", "gone"])
    assert [(item.path, item.reason.split(":")[0]) for item in listed_.skipped] == [("gone", "missing")]
    assert [info.path for info in listed(store, listed_.id)] == ["d", "d/c", "x.log"]
    replace(root, {**IGNORING, **files(a="2", n="2"), b"x.log": (0o644, b"2")})
    was = look(root)
    task.restore(listed_)
    expected = {**was, b"x.log": ("file", 0o644, b"1"), b"d": ("folder", 0o755), b"d/c": ("file", 0o644, b"1")}
    assert look(root) == expected
    task.undo()
    assert look(root) == was


# --- handles, tasks, processes, levels -------------------------------------------------------------------------------


def test_a_handle_from_before_a_restore_cannot_save(place: Bench) -> None:
    """Promise 5: whichever way it was opened, it would save the restored files as its own."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, files(a="1"))
    first = task.save({"n": 1})
    replace(root, files(a="2"))
    task.save({"n": 2})
    stale = [place.task(), store.task(task.branch_id or "", workspace=root)]
    task.restore(first)
    count = store.page_checkpoints("t").total
    for handle in stale:
        with pytest.raises(ConflictError):
            handle.save({"n": 3})
        with pytest.raises(ConflictError):
            handle.restore(first)
    assert store.page_checkpoints("t").total == count
    assert look(root) == flatten(files(a="1"))
    assert task.save({"n": 4}).sequence == count + 1
    assert place.task().save({"n": 5}).sequence == count + 2


def test_two_tasks_share_a_folder(place: Bench) -> None:
    """Each has its own history of the same files; a restore of one is drift to the other."""
    store, root = place
    one, two = place.task("one"), place.task("two")
    build(root, files(a="1"))
    first = one.save({})
    replace(root, files(a="2"))
    second = two.save({})
    one.restore(first)
    assert look(root) == flatten(files(a="1"))
    assert two.save({}).parent_id == second.id
    assert store.read_file(two.head.id if two.head else "", "a") == b"1"
    two.restore(second)
    assert look(root) == flatten(files(a="2"))
    one.undo()
    assert look(root) == flatten(files(a="2"))
    two.undo()
    assert look(root) == flatten(files(a="1"))


SAVER = """
import sys, pathlib, lastgood
name, root = sys.argv[2], pathlib.Path(sys.argv[3])
with lastgood.open(sys.argv[1], user="tester") as store:
    task = store.task(name, workspace=root)
    for number in range(25):
        (root / name).write_text(f"{name} {number}")
        saved = task.save({"n": number})
        assert store.read_file(saved.id, name) == f"{name} {number}".encode()
"""


def test_two_processes_save_one_workspace_at_once(place: Bench) -> None:
    """B11: everything acknowledged is there and whole, and each has what it had written itself."""
    store, root = place
    children = [
        subprocess.Popen([sys.executable, "-c", SAVER, str(root.parent / "store"), name, str(root)], stderr=-1)
        for name in ("one", "two")
    ]
    for child in children:
        _, told = child.communicate()
        assert child.returncode == 0, told.decode()
    for name in ("one", "two"):
        page = store.page_checkpoints(name, 100)
        assert page.total == 25
        for checkpoint in page.checkpoints:
            assert store.check_checkpoint(checkpoint.id, evidence=False).problems == []
            assert store.read_file(checkpoint.id, name) == f"{name} {checkpoint.state['n']}".encode()


def test_drift_is_shown_saved_first_and_can_be_brought_back(place: Bench) -> None:
    """Promise 3: what someone edited since the last save is in no checkpoint; a restore makes one of it."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, files(a="1", b="1"))
    first = task.save({})
    replace(root, {**files(a="edited"), b"new": (0o755, {b"link": b"a"})})
    drifted = look(root)
    assert [(change.path, change.change) for change in task.diff().files.changes] == [
        ("a", "modified"),
        ("b", "deleted"),
        ("new/link", "added"),
    ]
    plan = task.plan(first)
    assert look(root) == drifted
    result = task.restore(first)
    assert (result.restored, result.deleted) == (plan.restored, plan.deleted) == (("a", "b"), ("new/link", "new"))
    assert result.before is not None
    assert (result.before.type, result.before.parent_id) == ("before_restore", first.id)
    assert task.restore(result.before).failed == ()
    assert look(root) == drifted


def test_a_restore_without_drift_saves_no_present(place: Bench) -> None:
    store, root = place
    task = store.task("t", workspace=root)
    build(root, files(a="1"))
    first = task.save({})
    replace(root, files(a="2"))
    second = task.save({})
    assert task.restore(first).before == second
    assert [entry.type for entry in store.list_checkpoints("t")] == ["restored", "manual", "manual"]


ACTIONS = st.sampled_from(["edit", "save", "restore", "files", "some files", "undo", "undo", "redo", "reopen"])


@settings(max_examples=100)
@given(st.lists(st.tuples(ACTIONS, st.integers(0, 5), SPECS), min_size=4, max_size=12))
def test_restores_of_all_kinds_are_undone_and_redone_over_several_levels(
    shared: Bench, actions: list[tuple[str, int, Spec]]
) -> None:
    """Promise 3: files-only, selective and full restores, mixed with saves and edits that nobody saved: each undo gives
    the folder as it was before the restore it takes back. Each redo gives what was left: of a branch how the undo found
    it, of a files-only restore what that had made. A save ends redoing."""
    store, root = shared
    task = shared.new_task()
    replace(root, {b"a": (0o644, b"the beginning")})
    saved = [task.save({})]
    undone: list[tuple[Found, Found | None]] = []
    redone: list[tuple[Found, Found | None]] = []
    for action, number, spec in actions:
        was = look(root)
        match action:
            case "edit":
                replace(root, spec)
            case "save":
                saved.append(task.save({"n": len(saved)}))
                redone.clear()
            case "restore" | "files" | "some files":
                paths = ["a", "b/**"] if action == "some files" else None
                what: Any = "both" if action == "restore" else "files"
                assert not task.restore(saved[number % len(saved)], what, paths=paths).failed
                undone.append((was, None if what == "both" else look(root)))
                redone.clear()
            case "undo" if undone:
                task.undo()
                before, made = undone.pop()
                redone.append((made or was, made))
                assert look(root) == before
            case "redo" if redone:
                task.redo()
                after, made = redone.pop()
                undone.append((was, made))
                assert look(root) == after
            case "reopen":
                task = store.task(task.id, workspace=root)


def test_undo_after_redo_gives_the_files_from_before_the_redo(place: Bench) -> None:
    """Promise 3: also where they were edited between the two."""
    store, root = place
    task = store.task("t", workspace=root)
    build(root, {b"a": (0o644, b"the beginning")})
    first = task.save({})
    task.restore(first, "files")
    task.undo()
    replace(root, {b"b": (0o644, b"edited")})
    was = look(root)
    task.redo()
    assert look(root) == flatten(files(a="the beginning"))
    task.undo()
    assert look(root) == was


def test_several_folders_are_one_checkpoint(place: Bench) -> None:
    """B1, B3: each under its name, in lists, diffs, plans and results; all of them go back and forth together."""
    store, root = place
    build(root, {b"app": (0o755, files(f="1")), b"infra": (0o755, files(f="one", g="g"))})
    folders = {"app": root / "app", "infra": root / "infra"}
    task = store.task("t", workspace=folders)
    first = task.save({})
    replace(root / "app", files(f="2"))
    replace(root / "infra", files(f="two"))
    second = task.save({})
    assert [info.path for info in store.list_files(first.id)] == ["app", "infra"]
    assert store.read_file(first.id, "infra:f") == b"one"
    assert [(change.path, change.change) for change in store.compare_files(None, second.id).changes] == [
        ("app:f", "modified"),
        ("infra:f", "modified"),
        ("infra:g", "deleted"),
    ]
    was = look(root)
    assert task.plan(first).restored == task.restore(first).restored == ("app:f", "infra:f", "infra:g")
    assert look(root / "infra") == flatten(files(f="one", g="g"))
    task.undo()
    assert look(root) == was
    task.copy_files(first, root.parent / "copy")
    assert look(root.parent / "copy") == {
        b"app": ("folder", 0o755),
        b"infra": ("folder", 0o755),
        **flatten(files(f="1"), b"app"),
        **flatten(files(f="one", g="g"), b"infra"),
    }
    with pytest.raises(InvalidError):
        store.task("t", workspace={"app": root / "app"}).restore(first)
    assert look(root) == was


def test_a_large_file_costs_what_changed_and_comes_back_whole(place: Bench) -> None:
    """B1, B11, promise 7: cut into chunks; one byte in the middle stores a few of them anew."""
    store, root = place
    task = store.task("t", workspace=root)
    content = b"".join(sha256(b"%d" % number).digest() for number in range(12 << 15))
    (root / "large").write_bytes(content)
    first = task.save({})
    before = _size_of(root.parent / "store")
    (root / "large").write_bytes(content[: 6 << 20] + b"!" + content[6 << 20 :])
    second = task.save({})
    assert _size_of(root.parent / "store") - before < 4 << 20
    assert b"".join(store.stream_file(first.id, "large")) == content
    assert store.read_file(second.id, "large") == (root / "large").read_bytes()
    (info,) = store.list_files(first.id)
    assert (info.size, info.sha256) == (len(content), f"sha256:{sha256(content).hexdigest()}")
    assert task.restore(first).failed == ()
    assert (root / "large").read_bytes() == content


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- databases -------------------------------------------------------------------------------------------------------


def _rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [row[0] for row in database.execute("SELECT x FROM t ORDER BY x")]


def _can_write(path: Path) -> bool:
    """Whether another process gets to write into the database."""
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert done.returncode == 0 or b"locked" in done.stderr, done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_is_open_here_is_captured_whole_and_keeps_its_locks(place: Bench, mode: str) -> None:
    """I1, B1: with a transaction under way in this very process, and in WAL mode with a log that is not merged: what
    was committed comes back, what was not does not, and nobody gets in between meanwhile."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "data.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("CREATE TABLE t (x)")
        database.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(300)])
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO t VALUES (1000)")
        saved = task.save({})
        again = task.save({})
        assert not _can_write(path)
        database.execute("COMMIT")
        assert _can_write(path)
        later = task.save({})
    assert saved.skipped == again.skipped == later.skipped == ()
    assert task.restore(saved).failed == ()
    assert _rows(path) == list(range(300))
    assert task.restore(later).failed == ()
    assert _rows(path) == [*range(300), 1000]
    store.task("t").copy_files(again, root.parent / "copy")
    assert _rows(root.parent / "copy" / "data.db") == list(range(300))


def _commit_and_die(path: Path, *numbers: int) -> None:
    """Add rows in a process that ends without closing the database: the log and its index stay behind."""
    code = (
        "import os, sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA journal_mode = wal')\n"
        "database.execute('CREATE TABLE IF NOT EXISTS t (x)')\n"
        "for number in sys.argv[2:]: database.execute('INSERT INTO t VALUES (?)', (int(number),))\n"
        "os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(path), *map(str, numbers)], check=True)
    assert path.with_name(path.name + "-wal").stat().st_size


@pytest.mark.parametrize("at_rest", [False, True])
def test_a_database_comes_back_without_the_log_of_another_moment(place: Bench, at_rest: bool) -> None:
    """L1: a database and what lies beside it are one unit, whichever file of it a program wrote last."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "app.db"
    _commit_and_die(path, 1)
    if at_rest:
        assert _rows(path) == [1]  # which merges the log
    saved = task.save({})
    _commit_and_die(path, *range(2, 2000))
    done = task.restore(saved)
    assert (done.failed, done.restored) == ((), ("app.db",))
    assert _rows(path) == [1]
    assert task.undo().skipped == ()
    assert _rows(path) == list(range(1, 2000))


def test_a_database_that_comes_or_goes_takes_its_log_along(place: Bench) -> None:
    """L1: also when nothing takes its place, and when it comes back from a checkpoint to where a log was left."""
    store, root = place
    task = store.task("t", workspace=root)
    empty = task.save({})
    path = root / "app.db"
    _commit_and_die(path, 1)
    saved = task.save({})
    _commit_and_die(path, 2)
    done = task.restore(empty)
    assert (done.failed, done.deleted) == ((), ("app.db",))
    assert list(root.iterdir()) == []
    _commit_and_die(path, 3)
    path.unlink()
    assert task.restore(saved).failed == ()
    assert _rows(path) == [1]


def test_a_log_that_nobody_may_remove_keeps_its_database_from_being_put_beside_it(place: Bench) -> None:
    """L1, B5: neither another moment's log beside it, nor anything removed that was not captured or not chosen."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "app.db"
    _commit_and_die(path, 1)
    assert _rows(path) == [1]
    saved = task.save({})
    _commit_and_die(path, 2)
    path.unlink()  # what is left is a file of its own
    log = (root / "app.db-wal").read_bytes()
    done = task.restore(saved, "files", paths=["app.db"])
    assert [failure[0] for failure in done.failed] == ["app.db"]
    assert (root / "app.db-wal").read_bytes() == log
    assert not path.exists()
    (root / "copy").mkdir()
    (root / "copy" / "app.db-wal").write_bytes(log)
    with pytest.raises(lastgood.UnavailableError, match=r"app\.db"):
        task.copy_files(saved, root / "copy")
    assert not (root / "copy" / "app.db").exists()


@pytest.mark.parametrize("goes", [False, True], ids=["replaced", "removed"])
def test_what_is_committed_in_the_moment_of_a_restore_stays(
    place: Bench, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """L1, L4: a commit of which only the log tells, by a process that came and went after the files were captured."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "app.db"
    empty = task.save({})
    _commit_and_die(path, 1)
    saved = task.save({})
    _commit_and_die(path, 2)

    def commit_and_apply(*arguments: Any, **options: Any) -> Any:
        _commit_and_die(path, 3)
        return apply(*arguments, **options)

    monkeypatch.setattr(restore_files, "apply", commit_and_apply)
    done = task.restore(empty if goes else saved)
    assert done.failed == (("app.db", "it changed after it was captured"),)
    assert _rows(path) == [1, 2, 3]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_that_a_process_has_open_is_left_alone_and_named(place: Bench, mode: str) -> None:
    """L1: what the process writes from then on would be lost, or end up in the log of the restored one."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "app.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE t (x)")
        saved = task.save({})
        database.execute("INSERT INTO t VALUES (1)")
        (root / "other").write_text("goes")
        done = task.restore(saved)
        reason = f"process {os.getpid()} has the database open; close it, then restore again"
        assert done.failed == (("app.db", reason),)
        assert done.deleted == ("other",)
        database.execute("INSERT INTO t VALUES (2)")
        assert _rows(path) == [1, 2]
    assert task.restore(saved).failed == ()
    assert _rows(path) == []


def test_files_that_are_only_called_like_a_log_are_files(place: Bench) -> None:
    """L2: X-journal, X-wal and X-shm are SQLite's only where X is a database."""
    store, root = place
    task = store.task("t", workspace=root)
    names = ["diary", "diary-journal", "diary-wal", "diary-shm"]
    for name in names:
        (root / name).write_text(f"first {name}")
    saved = task.save({})
    for name in names:
        (root / name).write_text(f"second {name}")
    task.save({})
    assert task.restore(saved).failed == ()
    assert [(root / name).read_text() for name in names] == [f"first {name}" for name in names]
    (root / "diary").write_text("third")
    assert task.restore(saved).failed == ()
    assert (root / "diary").read_text() == "first diary"


def test_a_log_that_is_ignored_is_still_a_part_of_its_database(place: Bench) -> None:
    """L1: what was committed into it is captured, and never replayed into a restored database."""
    store, root = place
    task = store.task("t", workspace=root)
    (root / ".gitignore").write_text("*-wal\n*-shm\n")
    path = root / "app.db"
    _commit_and_die(path, 1)
    saved = task.save({})
    _commit_and_die(path, 2)
    later = task.save({})
    task.copy_files(later, root.parent / "copy")
    assert _rows(root.parent / "copy" / "app.db") == [1, 2]
    done = task.restore(saved)
    assert done.failed == ()
    assert _rows(path) == [1]


def test_the_open_descriptors_are_not_looked_at_for_each_file(place: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: 1,900 files and 10,000 open descriptors took 72 s."""
    store, root = place
    task = store.task("t", workspace=root)
    for number in range(200):
        (root / str(number)).write_text(str(number))
    looks: list[str] = []
    listdir = os.listdir

    def note(path: str) -> list[str]:
        looks.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", note)
    task.save({})
    assert 0 < looks.count("/dev/fd") < 10


def test_a_file_that_is_opened_while_it_is_read_keeps_its_locks(place: Bench) -> None:
    """I1, H2: also when other files were captured between the look at what is open and its end."""
    store, root = place
    task = store.task("t", workspace=root)
    large, lines = root / "a", b"".join(b"%d\n" % number for number in range(1 << 20))
    large.write_bytes(lines)
    for number in range(100):
        (root / f"b{number}").write_text("small")
    opened: list[Any] = []

    def open_and_lock(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not opened and threading.current_thread() is saving and arguments[0] == b"a":
            opened.append(None)  # which keeps it from coming here again
            opened[0] = large.open("r+b")
            fcntl.lockf(opened[0], fcntl.LOCK_EX)

    saving = threading.current_thread()
    sys.addaudithook(open_and_lock)
    task.save({})
    assert opened
    code = f"import fcntl; fcntl.lockf(open({str(large)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with opened[0]:
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode
    subprocess.run([sys.executable, "-c", code], check=True)


_WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
database.execute("PRAGMA synchronous = OFF")
number = 0
while True:
    number += 1
    database.execute("UPDATE t SET x = ? WHERE rowid = 1", (number,))
    if number == 10: print("writing", flush=True)
"""


@pytest.mark.parametrize("mode", ["wal", "delete", "persist"])
def test_a_database_that_is_written_without_a_pause_is_captured(place: Bench, mode: str) -> None:
    """H1, I1: a copy that begins anew at each commit of others would never end."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "data" / "app.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA page_size = 512")
        database.execute(f"PRAGMA journal_mode = {mode}")
        database.execute("CREATE TABLE t (x)")
        database.executemany("INSERT INTO t VALUES (?)", [(0,), ("x" * (8 << 20),)])
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            saved = task.save({})
        finally:
            writer.kill()
    assert [skipped for skipped in saved.skipped if skipped.path != "data"] == []
    task.copy_files(saved, root.parent / "copy")
    with closing(sqlite3.connect(root.parent / "copy" / "data" / "app.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        first, second = [row[0] for row in database.execute("SELECT x FROM t ORDER BY rowid")]
    assert first >= 10
    assert len(second) == 8 << 20


def test_a_database_that_stays_locked_is_reported_and_the_rest_is_captured(place: Bench) -> None:
    """H1, B9"""
    store, root = place
    task = store.task("t", workspace=root)
    for name in ("free.db", "locked.db"):
        _commit_and_die(root / name, 1)
    with closing(sqlite3.connect(root / "locked.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = delete")
        database.execute("BEGIN EXCLUSIVE")
        database.execute("INSERT INTO t VALUES (2)")
        saved = task.save({})
    assert [skipped.path for skipped in saved.skipped] == ["locked.db"]
    task.copy_files(saved, root.parent / "copy")
    assert _rows(root.parent / "copy" / "free.db") == [1]


@pytest.mark.parametrize("at", [0, 20 << 20, (64 << 20) - 10])
def test_a_sparse_file_is_read_and_comes_back_without_its_holes(
    place: Bench, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H3: 4 KB on disk became 4.3 GB."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "image"
    with path.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(at)
        file.write(b"some data!")
    content = path.read_bytes()
    read: list[int] = []
    readv = os.readv

    def note(descriptor: int, buffers: Any) -> int:
        read.append(readv(descriptor, buffers))
        return read[-1]

    monkeypatch.setattr(os, "readv", note)
    monkeypatch.setattr("lastgood.engine.readers.MANY_BYTES", 1 << 40)
    saved = task.save({})
    assert sum(read) <= 8 << 20
    path.unlink()
    assert task.restore(saved).failed == ()
    assert path.read_bytes() == content
    assert path.stat().st_blocks * 512 <= 1 << 20
    assert b"".join(store.stream_file(saved.id, "image")) == content


def test_a_database_that_is_only_read_by_others_can_be_restored(place: Bench) -> None:
    """L1: who only reads has nothing to lose; the process that looks for evidence in databases is one of those."""
    store, root = place
    task = store.task("t", workspace=root)
    path = root / "app.db"
    saved = []
    for number in (1, 2):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("CREATE TABLE IF NOT EXISTS t (x)")
            database.execute("INSERT INTO t VALUES (?)", (number,))
        saved.append(task.save({}))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        assert database.execute("SELECT count(*) FROM t").fetchone() == (2,)
        assert task.restore(saved[0]).failed == ()
    assert _rows(path) == [1]


@pytest.mark.parametrize("name", ["", "app"])
def test_what_a_restore_kept_by_name_is_listed_read_and_copied_with_the_rest(place: Bench, name: str) -> None:
    """B5, B10: it had been called left out, though it could be restored."""
    store, root = place
    task = store.task("t", workspace={name: root} if name else root)
    for path in ("a", "deep/kept", "deep/b"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("captured")
    first = task.save({})
    (root / ".gitignore").write_text("kept\nlog\n")
    (root / "deep/kept").write_text("ignored since")
    (root / "log").write_text("never captured")
    before = task.restore(first).before
    assert before is not None
    start = f"{name}:" if name else ""
    assert store.read_file(before.id, f"{start}deep/kept") == b"ignored since"
    assert store.read_file(before.id, f"{start}deep/b") == b"captured"
    with pytest.raises(NotFoundError, match="left out of this checkpoint"):
        store.read_file(before.id, f"{start}log")
    listed = {info.path: info.kind for info in store.list_files(before.id, f"{start}deep")}
    assert listed == {f"{start}deep/b": "file", f"{start}deep/kept": "file"}
    top = store.list_files(before.id, start.removesuffix(":"))
    assert ("log", "left out") in [(info.path.removeprefix(start), info.kind) for info in top]
    assert [info.path for info in store.list_files(before.id)] == (["app"] if name else [info.path for info in top])
    copied = task.copy_files(before, root.parent / "copy")
    assert sorted(copied) == [start + path for path in (".gitignore", "a", "deep", "deep/b", "deep/kept")]
    assert (root.parent / "copy" / name / "deep/kept").read_text() == "ignored since"


def test_a_deleted_task_leaves_no_names_of_its_files_and_others_go_on_in_its_folder(place: Bench) -> None:
    """L2: the index of a folder had them for good. Its lock stays: who is about to take it must find it."""
    store, root = place
    (root / "a-telling-name").write_text("content")
    task, other = store.task("t", workspace=root), store.task("other", workspace=root)
    task.save({})
    before = other.save({})
    store.delete_task("t")
    cache = [path for path in store._engine.local.path().rglob("*") if path.is_file()]
    assert not any(b"a-telling-name" in path.read_bytes() for path in cache)
    (root / "b").write_text("new")
    assert other.save({}).skipped == ()
    assert other.restore(before).deleted == ("b",)
