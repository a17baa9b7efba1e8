"""Restoring files: exactly what was captured comes back, nothing else is touched (B3, B9, B10, promises 3 and 4)."""

# Names are raw bytes here, which pathlib does not take.
# ruff: noqa: PTH101, PTH102, PTH112, PTH114, PTH115, PTH118, PTH123, PTH208, PTH211

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.disks import small_disk

from lastgood.errors import DiskFullError, IntegrityError, InvalidError, UnavailableError
from lastgood.files import apply as apply_module
from lastgood.files.apply import Applied, apply
from lastgood.files.folders import CHANGED, remove_temporary
from lastgood.files.plan import Enter, RestorePlan, is_announced, make_plan
from lastgood.files.selection import Selection
from lastgood.model.tree import (
    SPECIAL_BITS,
    AttributedFile,
    Attributes,
    Entry,
    File,
    Folder,
    Left,
    Link,
    encode_tree,
    is_git,
    is_temporary,
)

QUICK = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where syncing costs nothing; the tests below sync thousands of times."""

Spec = dict[bytes, Any]
"""name -> (mode, content) | target of a link as bytes | (mode, Spec)"""


class Blobs:
    """Content by its digest, and an honest way to capture a folder into it."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    def put(self, data: bytes) -> bytes:
        self.kept[id_ := sha256(data).digest()] = data
        return id_

    def read(self, id_: bytes) -> bytes:
        return self.kept[id_]

    def open(self, file: File) -> Iterator[bytes]:
        data = self.kept[file.digest]
        if file.chunks is None and sha256(data).digest() != file.digest:
            raise IntegrityError("a blob is damaged")
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    def capture(self, folder: bytes, leave: Collection[bytes] = (), path: bytes = b"") -> bytes:
        entries: list[Entry] = []
        with os.scandir(folder) as found:
            for item in found:
                inside = path + b"/" + item.name if path else item.name
                if is_git(item.name):
                    continue
                mode = stat.S_IMODE(item.stat(follow_symlinks=False).st_mode)
                if inside in leave:
                    entries.append(Left(item.name, "ignored"))
                elif item.is_symlink():
                    entries.append(Link(item.name, os.readlink(item.path)))
                elif item.is_dir():
                    entries.append(Folder(item.name, mode, self.capture(item.path, leave, inside)))
                else:
                    with open(item.path, "rb") as file:
                        data = file.read()
                    about = item.name, mode, len(data), self.put(data)
                    if mode & SPECIAL_BITS:  # given again with the owner alone
                        owner = Attributes((os.geteuid(), os.getegid()))
                        entries.append(AttributedFile(*about, None, about[3], owner))
                    else:
                        entries.append(File(*about))
        return self.put(encode_tree(entries))

    def plant(self, spec: Spec, leave: Collection[bytes] = ()) -> bytes:
        """The tree that a folder so built has."""
        with tempfile.TemporaryDirectory(dir=QUICK) as folder:
            build(folder, spec)
            return self.capture(os.fsencode(folder), leave)

    def restore(self, folder: os.PathLike[str] | str, plan: RestorePlan, **options: Any) -> Applied:
        return apply(os.fspath(folder), plan, self.open, trusted=True, **options)


def build(folder: os.PathLike[str] | str | bytes, spec: Spec) -> None:
    place = os.fsencode(folder)
    for name, thing in spec.items():
        path = os.path.join(place, name)
        if isinstance(thing, bytes):
            os.symlink(thing, path)
            continue
        mode, inside = thing
        if isinstance(inside, dict):
            os.mkdir(path)
            build(path, inside)
        else:
            with open(path, "wb") as file:
                file.write(inside)
        os.chmod(path, mode)


def files(**named: str) -> Spec:
    return {name.replace("_", ".").encode(): (0o644, text.encode()) for name, text in named.items()}


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def start(blobs: Blobs, root: Path, spec: Spec, leave: Collection[bytes] = ()) -> bytes:
    """A folder, and the tree that is captured of it."""
    build(root, spec)
    return blobs.capture(os.fsencode(root), leave)


def holds(blobs: Blobs, root: Path, tree: bytes, leave: Collection[bytes] = ()) -> bool:
    return blobs.capture(os.fsencode(root), leave) == tree


def reasons(applied: Applied) -> dict[bytes, str]:
    return dict(applied.failed)


NAMES = [b"a", b"A", b"b", b"new\nline", b"\xff\xfe", "é".encode(), "e\u0301".encode(), b"-rf", b"[x]", b" "]
CONTENT = st.one_of(st.sampled_from([b"", b"one", b"two", b"x" * 2500]), st.binary(max_size=20))
FILES = st.tuples(st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o4755]), CONTENT)
LINKS = st.sampled_from([b"a", b"../..", b"/nowhere\xff", b"b/a"])
SPECS: st.SearchStrategy[Spec] = st.dictionaries(
    st.sampled_from(NAMES),
    st.recursive(
        st.one_of(FILES, LINKS),
        lambda below: st.tuples(
            st.sampled_from([0o755, 0o700, 0o555, 0o2750]), st.dictionaries(st.sampled_from(NAMES), below, max_size=4)
        ),
        max_leaves=8,
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(SPECS, SPECS)
def test_p3_restoring_brings_back_exactly_what_was_captured(before: Spec, after: Spec) -> None:
    """P3 restore round-trips (B3, B10): content, modes, links, empty folders; every kind replaced by every other."""
    blobs = Blobs()
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        root = Path(folder)
        present = start(blobs, root, before)
        target = blobs.plant(after)
        applied = blobs.restore(root, make_plan(target, present, blobs.read))
        assert not applied.failed
        assert holds(blobs, root, target)
        assert not blobs.restore(root, make_plan(present, target, blobs.read)).failed
        assert holds(blobs, root, present)


@settings(max_examples=100)
@given(SPECS, SPECS, SPECS)
def test_nothing_uncaptured_is_ever_deleted_or_changed(before: Spec, after: Spec, strangers: Spec) -> None:
    """Promise 4: whatever appears between the capture and the restore is there afterwards, as it was."""
    blobs = Blobs()
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        root = Path(folder)
        present = start(blobs, root, before)
        planted = sorted(_add_strangers(os.fsencode(root), strangers, b""))
        blobs.restore(root, make_plan(blobs.plant(after), present, blobs.read))
        for path, thing in planted:
            place = os.path.join(os.fsencode(root), path)
            assert (os.readlink(place) if os.path.islink(place) else Path(os.fsdecode(place)).read_bytes()) == thing


def _add_strangers(folder: bytes, spec: Spec, path: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Put files and links wherever nothing is yet; what was put where."""
    for name, thing in spec.items():
        place, inside = os.path.join(folder, name), os.path.join(path, name)
        if not isinstance(thing, bytes) and isinstance(thing[1], dict):
            if not os.path.lexists(place):
                os.mkdir(place)
            if os.path.isdir(place) and not os.path.islink(place):
                yield from _add_strangers(place, thing[1], inside)
        elif not os.path.lexists(place):
            content = thing if isinstance(thing, bytes) else b"a stranger's " + thing[1]
            build(folder, {name: content if isinstance(thing, bytes) else (0o600, content)})
            yield inside, content


@settings(max_examples=100)
@given(SPECS, SPECS)
def test_a_plan_says_beforehand_what_applying_it_does(before: Spec, after: Spec) -> None:
    """A dry run is the plan alone: it touches nothing, and names every path that differs afterwards (B3)."""
    blobs = Blobs()
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        present = start(blobs, Path(folder), before)
        plan = make_plan(blobs.plant(after), present, blobs.read)
        assert holds(blobs, Path(folder), present)
        was = dict(_list(os.fsencode(folder), b""))
        applied = blobs.restore(folder, plan)
        now = dict(_list(os.fsencode(folder), b""))
        assert (applied.restored, applied.deleted) == (plan.restored, plan.deleted)
        assert set(plan.deleted) == was.keys() - now.keys()
        assert set(plan.restored) == {path for path, what in now.items() if was.get(path) != what}


def _list(folder: bytes, path: bytes) -> Iterator[tuple[bytes, object]]:
    with os.scandir(folder) as found:
        for item in found:
            inside, mode = os.path.join(path, item.name), item.stat(follow_symlinks=False).st_mode
            if item.is_symlink():
                yield inside, os.readlink(item.path)
            elif item.is_dir():
                yield inside, mode
                yield from _list(item.path, inside)
            else:
                yield inside, (mode, Path(os.fsdecode(item.path)).read_bytes())


def test_equal_folders_are_not_even_read(blobs: Blobs) -> None:
    """Planning costs what differs."""
    same = {b"same": (0o755, {b"deep": (0o755, files(a="1"))})}
    target, present = blobs.plant({**same, **files(x="1")}), blobs.plant({**same, **files(x="2")})
    del blobs.kept[blobs.plant(same[b"same"][1])]
    plan = make_plan(target, present, blobs.read)
    assert (plan.restored, plan.size) == ((b"x",), 1)


def test_nothing_to_do_is_nothing_done(blobs: Blobs, root: Path) -> None:
    present = start(blobs, root, files(a="1"))
    was = root.stat()
    plan = make_plan(present, present, blobs.read)
    assert (plan.steps, blobs.restore(root, plan)) == ((), Applied((), (), ()))
    assert root.stat().st_mtime_ns == was.st_mtime_ns


class TestWhatWasNotCaptured:
    def test_an_ignored_file_stays_where_the_target_has_one(self, blobs: Blobs, root: Path) -> None:
        """B9: that path fails with a reason, the rest goes on."""
        present = start(blobs, root, files(a="mine", b="old"), leave=[b"a"])
        plan = make_plan(blobs.plant(files(a="theirs", b="new")), present, blobs.read)
        assert plan.uncaptured == (b"a",)
        applied = blobs.restore(root, plan)
        assert reasons(applied) == {b"a": "a file that was not captured is in the way"}
        assert ((root / "a").read_text(), (root / "b").read_text()) == ("mine", "new")

    def test_it_is_overwritten_once_it_was_saved_by_name(self, blobs: Blobs, root: Path) -> None:
        spec = {**files(a="mine"), b"build": (0o755, files(o="mine", other="mine"))}
        present = start(blobs, root, spec, leave=[b"a", b"build"])
        target = blobs.plant({**files(a="theirs"), b"build": (0o755, files(o="theirs"))})
        plan = make_plan(target, present, blobs.read)
        assert plan.uncaptured == (b"a", b"build/o")
        saved = blobs.plant(spec)
        plan = make_plan(target, present, blobs.read, saved=saved)
        assert not plan.uncaptured
        assert not blobs.restore(root, plan).failed
        assert (root / "a").read_text() == (root / "build/o").read_text() == "theirs"
        assert (root / "build/other").read_text() == "mine", "saved is not captured: it is never deleted"

    def test_not_if_it_changed_after_it_was_saved(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, files(a="mine"), leave=[b"a"])
        plan = make_plan(blobs.plant(files(a="new")), present, blobs.read, saved=blobs.plant(files(a="mine")))
        (root / "a").write_text("edited")
        assert reasons(blobs.restore(root, plan)) == {b"a": CHANGED}
        assert (root / "a").read_text() == "edited"

    def test_a_folder_that_holds_some_stays_and_is_no_failure(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {b"d": (0o750, files(a="1", secret="s"))}, leave=[b"d/secret"])
        applied = blobs.restore(root, make_plan(blobs.plant({}), present, blobs.read))
        assert applied == Applied((), (b"d/a",), ())
        assert os.listdir(root / "d") == ["secret"]
        assert stat.S_IMODE((root / "d").stat().st_mode) == 0o750

    def test_such_a_folder_is_not_replaced_by_a_file(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {b"d": (0o755, files(a="1", secret="s"))}, leave=[b"d/secret"])
        applied = blobs.restore(root, make_plan(blobs.plant(files(d="file")), present, blobs.read))
        assert list(reasons(applied)) == [b"d"]
        assert (root / "d/secret").read_text() == "s"

    def test_what_the_target_left_out_is_left_alone(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {**files(log="now"), b"cache": (0o755, files(x="now"))})
        target = blobs.plant({**files(log="then"), b"cache": (0o755, {})}, leave=[b"log", b"cache"])
        plan = make_plan(target, present, blobs.read)
        assert plan.steps == ()

    @pytest.mark.parametrize("name", [b".git", b".GIT"])
    def test_git_is_never_touched(self, blobs: Blobs, root: Path, name: bytes) -> None:
        """Promise 4, at any depth; a tree that names it is damaged."""
        present = start(blobs, root, {b"sub": (0o755, {name: (0o755, files(HEAD="ref")), **files(a="1")})})
        applied = blobs.restore(root, make_plan(blobs.plant(files(sub="file")), present, blobs.read))
        assert list(reasons(applied)) == [b"sub"]
        assert (root / "sub" / os.fsdecode(name) / "HEAD").read_text() == "ref"
        hostile = blobs.put(encode_tree([Link(name, b"x")]))
        with pytest.raises(IntegrityError):
            make_plan(hostile, present, blobs.read)


def test_what_appears_in_the_last_moment_is_not_overwritten(blobs: Blobs, root: Path) -> None:
    """Promise 4: the new file is written already, and waits to be renamed, when another one takes its place."""
    plan = make_plan(blobs.plant(files(a="new")), None, blobs.read)

    def open_content(file: File) -> Iterator[bytes]:
        (root / "a").write_text("mine")
        return blobs.open(file)

    applied = apply(str(root), plan, open_content)
    assert reasons(applied) == {b"a": "a file that was not captured is in the way"}
    assert [(item.name, item.read_text()) for item in root.iterdir()] == [("a", "mine")]


@pytest.mark.parametrize(("old", "new"), [(b"Src", b"src"), ("é".encode(), "e\u0301".encode())])
def test_names_that_some_file_systems_take_for_one_go_before_they_come(blobs: Blobs, old: bytes, new: bytes) -> None:
    """Nothing is written into the new folder before the old one is gone: they may be the same."""
    target, present = blobs.plant({new: (0o755, files(a="1"))}), blobs.plant({old: (0o755, files(a="1"))})
    steps = make_plan(target, present, blobs.read).steps
    assert [type(step).__name__ for step in steps[1:-1]] == ["Enter", "Remove", "Leave", "Enter", "PutFile", "Leave"]
    assert steps[4] == Enter(new, new, "make", late=True)


class TestWhatChangedMeanwhile:
    """Edited between the capture and the restore: nobody has that content but the disk."""

    @pytest.mark.parametrize("target", [{}, files(a="new"), {b"a": b"link"}, {b"a": (0o755, files(x="1"))}])
    @pytest.mark.parametrize("content", ["edited", "tied"])
    def test_an_edited_file_stays(self, blobs: Blobs, root: Path, target: Spec, content: str) -> None:
        present = start(blobs, root, files(a="tidy"))
        plan = make_plan(blobs.plant(target), present, blobs.read)
        (root / "a").write_text(content)
        assert blobs.restore(root, plan).failed[0] == (b"a", CHANGED)
        assert (root / "a").read_text() == content

    def test_a_changed_link_stays(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {b"a": b"old", b"b": b"old"})
        plan = make_plan(blobs.plant({b"a": b"new"}), present, blobs.read)
        for name in "ab":
            (root / name).unlink()
            (root / name).symlink_to("mine")
        assert reasons(blobs.restore(root, plan)) == {b"a": CHANGED, b"b": CHANGED}

    def test_what_became_another_kind_stays(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {**files(a="1", b="1"), b"d": (0o755, files(x="1"))})
        plan = make_plan(blobs.plant(files(a="2")), present, blobs.read)
        shutil.rmtree(root / "d")
        for name in "ab":
            (root / name).unlink()
        build(root, {b"a": (0o755, files(mine="m")), b"b": (0o755, {}), **files(d="mine")})
        assert reasons(blobs.restore(root, plan)).keys() == {b"a", b"b", b"d", b"d/x"}
        assert (root / "a/mine").read_text() == "m"
        assert (root / "d").read_text() == "mine"

    def test_a_file_that_the_index_vouches_for_is_not_read(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, files(a="1", b="1"))
        known = {b"a": sha256(b"1").digest(), b"b": sha256(b"2").digest()}
        plan = make_plan(blobs.plant(files(a="3", b="3")), present, blobs.read)
        applied = blobs.restore(root, plan, recall=lambda path, found: known[path])
        assert reasons(applied) == {b"b": CHANGED}

    def test_what_went_away_comes_back(self, blobs: Blobs, root: Path) -> None:
        present = start(blobs, root, {b"d": (0o755, files(a="1", b="1"))})
        target = blobs.plant({b"d": (0o755, files(a="2"))})
        shutil.rmtree(root / "d")
        assert not blobs.restore(root, make_plan(target, present, blobs.read)).failed
        assert holds(blobs, root, target)


NOW: Spec = {
    **files(a_py="now", b_py="now"),
    b"src": (0o755, {**files(x_py="now"), b"in": (0o755, files(y_py="now"))}),
}
THEN: Spec = {
    **files(a_py="then", c_py="then"),
    b"src": (0o700, {**files(x_py="then"), b"[id]": (0o755, files(p="then"))}),
}


class TestSelection:
    @pytest.mark.parametrize(
        ("only", "restored", "deleted"),
        [
            (["a.py"], ["a.py"], []),
            (["./a.py", "nothing"], ["a.py"], []),
            (["b.py"], [], ["b.py"]),
            (["*.py"], ["a.py", "c.py"], ["b.py"]),
            (["**/*.py"], ["a.py", "c.py", "src/x.py"], ["b.py", "src/in/y.py"]),
            (["src/"], ["src", "src/[id]", "src/[id]/p", "src/x.py"], ["src/in", "src/in/y.py"]),
            (["src/**"], ["src/[id]", "src/[id]/p", "src/x.py"], ["src/in", "src/in/y.py"]),
            (["src/[id]/p"], ["src/[id]/p"], []),
            (["src/[!i].py", "?.py"], ["a.py", "c.py", "src/x.py"], ["b.py"]),
            ([], [], []),
        ],
    )
    def test_only_what_is_selected_is_touched(
        self, blobs: Blobs, root: Path, only: list[str], restored: list[str], deleted: list[str]
    ) -> None:
        present = start(blobs, root, NOW)
        was = dict(_list(os.fsencode(root), b""))
        plan = make_plan(blobs.plant(THEN), present, blobs.read, only=Selection(only))
        applied = blobs.restore(root, plan)
        now = dict(_list(os.fsencode(root), b""))
        assert sorted(applied.restored) == [path.encode() for path in restored]
        assert sorted(applied.deleted) == [path.encode() for path in deleted]
        assert not applied.failed
        changed = {path for path in was.keys() | now.keys() if was.get(path) != now.get(path)}
        assert changed - {b"src/[id]"} == {*applied.restored, *applied.deleted} - {b"src/[id]"}

    @pytest.mark.parametrize("text", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./", "a\0"])
    def test_what_cannot_be_a_path_below_is_refused(self, blobs: Blobs, text: str) -> None:
        with pytest.raises(InvalidError):
            make_plan(None, None, blobs.read, only=Selection([text]))

    def test_a_list_of_files_brings_back_these_and_touches_nothing_else(self, blobs: Blobs, root: Path) -> None:
        """B1: the target of an explicit list is partial."""
        present = start(blobs, root, NOW)
        target = blobs.plant({**files(b_py="then"), b"src": (0o700, {b"in": (0o755, files(z_py="then"))})})
        applied = blobs.restore(root, make_plan(target, present, blobs.read, partial=True))
        assert applied == Applied((b"b.py", b"src/in/z.py"), (), ())
        assert (root / "src/in/y.py").read_text() == (root / "a.py").read_text() == "now"
        assert stat.S_IMODE((root / "src").stat().st_mode) == 0o755


def test_what_runs_without_being_asked_for_is_announced(blobs: Blobs) -> None:
    spec = {b".github": (0o755, {b"workflows": (0o755, files(ci_yml="on: push"))}), **files(_envrc="x", Makefile="y")}
    plan = make_plan(blobs.plant(spec), None, blobs.read)
    assert plan.announced == (b".envrc", b".github/workflows/ci.yml")
    assert not make_plan(None, blobs.plant(spec), blobs.read).announced, "removing it runs nothing"
    assert all(
        map(is_announced, [b".claude", b"a/.CURSOR/rules/x", b".vscode/tasks.json", b"lib/x.pth", b".husky/_/h"])
    )
    assert not any(map(is_announced, [b"claude", b".vscode/extensions.json", b"conftest.py", b".github/CODEOWNERS"]))


def test_a_hard_link_is_broken_and_its_other_name_keeps_content_and_mode(blobs: Blobs, root: Path) -> None:
    present = start(blobs, root, {b"a": (0o644, b"same"), b"b": (0o644, b"old")})
    for name in "ab":
        os.link(root / name, root.parent / name)
    target = blobs.plant({b"a": (0o600, b"same"), b"b": (0o644, b"new")})
    assert not blobs.restore(root, make_plan(target, present, blobs.read)).failed
    assert holds(blobs, root, target)
    assert stat.S_IMODE((root.parent / "a").stat().st_mode) == 0o644
    assert (root.parent / "b").read_text() == "old"


def test_damaged_content_is_noticed_before_anything_is_touched(blobs: Blobs, root: Path) -> None:
    """B9."""
    present = start(blobs, root, files(a="1", b="1", c="1"))
    target = blobs.plant({b"d": (0o755, files(x="2")), **files(a="2", z="last")})
    blobs.kept[sha256(b"last").digest()] = b"lost"
    with pytest.raises(IntegrityError):
        blobs.restore(root, make_plan(target, present, blobs.read))
    assert holds(blobs, root, present)


def test_whole_pieces_that_do_not_make_up_the_file_are_noticed(blobs: Blobs, root: Path) -> None:
    """B9: each chunk was checked by whoever gave it; that they are the file's is not known before they are written."""
    present = start(blobs, root, files(a="1"))
    wanted = sha256(b"right").digest()
    target = blobs.put(encode_tree([File(b"a", 0o644, 5, wanted, sha256(b"a list of chunks").digest())]))
    blobs.kept[wanted] = b"wrong"
    with pytest.raises(IntegrityError):
        blobs.restore(root, make_plan(target, present, blobs.read))
    assert holds(blobs, root, present)


def test_a_copy_is_written_in_place_and_taken_back_when_it_cannot_be_completed(blobs: Blobs, root: Path) -> None:
    """B8"""
    target = blobs.plant({b"d": (0o755, files(x="2")), **files(a="2", z="last")})
    plan = make_plan(target, None, blobs.read)
    start(blobs, root, files(a="mine"))
    done = apply(str(root), plan, blobs.open, copying=True)
    assert [failure.path for failure in done.failed] == [b"a"]
    assert (root / "a").read_text() == "mine"
    assert (root / "d/x").read_text() == "2"
    other = root.parent / "other"
    other.mkdir()
    blobs.kept[sha256(b"last").digest()] = b"lost"
    with pytest.raises(IntegrityError):
        apply(str(other), plan, blobs.open, copying=True)
    assert not list(other.iterdir())


def test_an_unavailable_store_is_no_failure_of_a_path(blobs: Blobs, root: Path) -> None:
    """UnavailableError is an OSError, too; it must not be taken for one of the workspace's."""
    present = start(blobs, root, files(a="1"))

    def away(file: File) -> Iterator[bytes]:
        raise UnavailableError("the store is away")

    with pytest.raises(UnavailableError, match="away"):
        apply(str(root), make_plan(blobs.plant(files(a="2")), present, blobs.read), away)
    assert holds(blobs, root, present)


def test_a_workspace_that_is_a_link_or_missing_is_refused(blobs: Blobs, root: Path) -> None:
    (root / "link").symlink_to(root)
    plan = make_plan(blobs.plant(files(a="1")), None, blobs.read)
    for name in ("link", "missing"):
        with pytest.raises(UnavailableError):
            blobs.restore(root / name, plan)


def test_a_tree_deeper_than_pythons_stack_is_planned(blobs: Blobs) -> None:
    tree = blobs.put(encode_tree([]))
    for _ in range(3000):
        tree = blobs.put(encode_tree([Folder(b"d", 0o755, tree)]))
    assert len(make_plan(tree, None, blobs.read).restored) == 3000


@pytest.mark.parametrize("lasting", [1, 2, 3, 1000])
def test_links_swapped_in_lead_nowhere(blobs: Blobs, root: Path, monkeypatch: pytest.MonkeyPatch, lasting: int) -> None:
    """A folder is swapped for a link to outside before every single system call of a restore, and back again some
    calls later: nothing outside changes, nothing is written there for a moment (threats: symlink races)."""
    outside = root.parent / "outside"
    inside: Spec = {**files(a="1", b="1"), b"e": (0o755, files(c="1")), b"mode": (0o644, b"m")}
    build(root.parent, {b"outside": (0o755, inside)})
    present = start(blobs, root, {b"d": (0o755, inside)})
    after = {**files(a="2", n="2"), b"m": (0o755, files(c="2")), b"mode": (0o600, b"m"), b"b": b"link"}
    plan = make_plan(blobs.plant({b"d": (0o700, after)}), present, blobs.read)
    was, times = dict(_list(os.fsencode(outside), b"")), _times(outside)
    met = 0
    for point in range(1, 10_000):
        shutil.rmtree(root)
        root.mkdir()
        build(root, {b"d": (0o755, inside)})
        with monkeypatch.context() as patch:
            calls = _Swaps(root / "d", outside, point, lasting)
            _count_calls(calls, patch.setattr)
            met += bool(blobs.restore(root, plan).failed)
        assert dict(_list(os.fsencode(outside), b"")) == was, point
        assert _times(outside) == times, point
        if calls.seen < point:
            break
    assert met, "the swaps were never met"


def _times(folder: Path) -> list[tuple[int, int]]:
    return [(found.st_mtime_ns, found.st_ctime_ns) for found in (folder.stat(), (folder / "e").stat())]


class _Swaps:
    """Counts calls; at the nth one a folder is a link to elsewhere, for some calls."""

    def __init__(self, folder: Path, outside: Path, point: int, lasting: int) -> None:
        self._folder, self._aside, self._outside = str(folder), f"{folder}-aside", str(outside)
        self._point, self._back = point, point + lasting
        self._rename, self._symlink, self._unlink = os.rename, os.symlink, os.unlink
        self.seen = 0

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.seen += 1
        if self.seen == self._point and os.path.isdir(self._folder):
            self._rename(self._folder, self._aside)
            self._symlink(self._outside, self._folder)
        elif self.seen == self._back and os.path.islink(self._folder):
            self._unlink(self._folder)
            self._rename(self._aside, self._folder)


CALLS = ["open", "write", "rename", "unlink", "rmdir", "mkdir", "symlink", "readlink", "stat", "fchmod", "chmod"]
CALLS += ["fsync", "close"]


def _count_calls(before: Callable[[str, tuple[Any, ...]], None], replace: Callable[[object, str, Any], None]) -> None:
    """Have `before` called ahead of every system call of `apply`."""

    def wrap(module: object, name: str) -> None:
        call = getattr(module, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            before(name, arguments)
            return call(*arguments, **options)

        replace(module, name, counted)

    for name in CALLS:
        wrap(os, name)
    for name in ("rename_exclusively", "exchange"):
        wrap(apply_module, name)


@pytest.mark.parametrize("how", ["append", "same size", "replace", "folder"])
@pytest.mark.parametrize("wanted", [files(a="new"), {}], ids=["replaced", "removed"])
def test_what_is_written_in_the_moment_of_a_restore_stays(
    blobs: Blobs, root: Path, monkeypatch: pytest.MonkeyPatch, how: str, wanted: Spec
) -> None:
    """L4: after the last look at a file, before it is replaced or removed."""
    target, present = blobs.plant(wanted), start(blobs, root, files(a="old"))
    plan = make_plan(target, present, blobs.read)
    writes = {
        "append": lambda: _write_to(root / "a", "older", "r+"),
        "same size": lambda: _write_to(root / "a", "odd", "r+"),
        "replace": lambda: _write_to(root / "b", "odd").replace(root / "a"),
        "folder": lambda: (root / "a").rename(root / "c").with_name("a").mkdir(),
    }
    calls = _Once(writes[how], os.fsencode("a"))
    _count_calls(calls, monkeypatch.setattr)
    applied = blobs.restore(root, plan)
    monkeypatch.undo()
    assert calls.is_done
    assert reasons(applied) == {b"a": CHANGED}
    assert not any(is_temporary(os.fsencode(file.name)) for file in root.iterdir())
    expected = {"append": "older", "same size": "odd", "replace": "odd"}
    assert (root / "a").is_dir() if how == "folder" else (root / "a").read_text() == expected[how]


def _write_to(file: Path, text: str, mode: str = "w") -> Path:
    with open(file, mode) as opened:
        opened.write(text)
    return file


class _Once:
    """Does something ahead of the first call that takes this name away."""

    def __init__(self, act: Callable[[], object], name: bytes) -> None:
        self._act, self._name = act, name
        self.is_done = False

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        takes_away = name in ("exchange", "rename", "unlink", "rename_exclusively") and self._name in arguments[:3]
        if takes_away and not self.is_done:
            self.is_done = True
            self._act()


def _in_a_process(script: Callable[[Path], None], folder: Path) -> None:
    """Run a function of this module alone in a process: it may fork, and give up its rights."""
    code = (
        "import sys, pathlib; import tests.files.test_restore_files as t; "
        f"t.{script.__name__}(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr


BEFORE: Spec = {
    **files(same="s", edited="old", gone="g", tofolder="f"),
    b"tolink": (0o644, b"f"),
    b"mode": (0o644, b"m"),
    b"link": b"old",
    b"Case": (0o755, files(x="1")),
    b"closed": (0o555, {**files(a="1", b="1"), b"in": (0o555, files(c="1"))}),
    b"tofile": (0o755, {b"deep": (0o755, files(a="1", b="2"))}),
}
AFTER: Spec = {
    **files(same="s", edited="new", tofile="f"),
    b"tolink": b"somewhere",
    b"mode": (0o755, b"m"),
    b"link": b"new",
    b"case": (0o755, files(x="1", y="2")),
    b"closed": (0o555, {**files(a="2"), b"in": (0o500, files(c="2", d="2"))}),
    b"tofolder": (0o700, {b"deep": (0o555, files(a="1"))}),
    b"fresh": (0o755, {**files(a="1", b="2"), b"empty": (0o755, {})}),
}


def test_killed_anywhere_it_is_finished_or_undone() -> None:
    """A16, G1: the process dies before every single system call that changes something, and within every write."""
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        _in_a_process(_kill_everywhere, Path(folder))


def _kill_everywhere(folder: Path) -> None:
    blobs = Blobs()
    target, present = blobs.plant(AFTER), blobs.plant(BEFORE)
    there, back = make_plan(target, present, blobs.read), make_plan(present, target, blobs.read)
    few = make_plan(target, present, blobs.read, only=Selection(["edited", "fresh", "closed"]))
    points = 0
    for plan in (there, few):
        finished = plan is few and _restored(blobs, folder / "few", plan)
        for point in range(1, 10_000):
            survived = False
            for number, (next_plan, expected) in enumerate(((plan, finished or target), (back, present))):
                if plan is few and next_plan is back:
                    next_plan = make_plan(present, finished or None, blobs.read)
                root = folder / f"{plan is few}-{point}-{number}"
                root.mkdir()
                build(root, BEFORE)
                survived = _dies_at(point, blobs, root, plan)
                if point % 7 == 0:
                    remove_temporary(str(root))
                    _dies_at(point // 2, blobs, root, next_plan)
                remove_temporary(str(root))
                assert not [name for *_, names in os.walk(root) for name in names if is_temporary(name.encode())]
                applied = blobs.restore(root, next_plan)
                assert not applied.failed, (point, applied)
                assert holds(blobs, root, expected), (point, number)
            if survived:
                break
            points += 1
    assert points > 150, points


def _restored(blobs: Blobs, root: Path, plan: RestorePlan) -> bytes:
    root.mkdir()
    build(root, BEFORE)
    blobs.restore(root, plan)
    return blobs.capture(os.fsencode(root))


def _dies_at(point: int, blobs: Blobs, root: Path, plan: RestorePlan) -> bool:
    """Apply in a child that dies at its nth call; whether it lived to the end."""
    child = os.fork()
    if not child:
        _count_calls(_Death(point), setattr)
        blobs.restore(root, plan)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


class _Death:
    """Counts calls that change something; at the nth one the process is gone, after half a write."""

    def __init__(self, point: int) -> None:
        self._left = point
        self._write = os.write

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self._left -= name not in ("stat", "readlink", "close")
        if not self._left:
            if name == "write":
                self._write(arguments[0], bytes(arguments[1])[:1])
            os._exit(9)


def test_without_rights_closed_folders_are_opened_for_the_moment_and_others_things_fail_alone() -> None:
    """B9; modes that keep their owner out do not keep a restore out, and are there again afterwards."""
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        _in_a_process(_restore_without_rights, Path(folder))


def _restore_without_rights(folder: Path) -> None:
    import ctypes  # noqa: F401  (the interpreter's own files may be out of reach later)

    blobs = Blobs()
    target = blobs.plant(AFTER)
    root = folder / "root"
    root.mkdir()
    foreign = os.geteuid() == 0
    if foreign:
        folder.chmod(0o755)
        build(root, {b"theirs": (0o755, files(a="1", b="1"))})
        os.chown(root, 65534, 65534)
        os.setgid(65534)
        os.setuid(65534)
    build(root, BEFORE)
    present = blobs.capture(os.fsencode(root))
    applied = blobs.restore(root, make_plan(target, present, blobs.read))
    theirs = {b"theirs/a": "permission denied", b"theirs/b": "permission denied"}
    assert reasons(applied) == (theirs if foreign else {}), applied
    left = dict(_list(os.fsencode(root), b""))
    for path in [path for path in left if path.startswith(b"theirs")]:
        del left[path]
    with tempfile.TemporaryDirectory(dir=root) as other:
        build(other, AFTER)
        assert left == dict(_list(os.fsencode(other), b""))
    (root / "closed" / "in").chmod(0o000)
    back = make_plan(present, target, blobs.read, only=Selection(["closed"]))
    assert not blobs.restore(root, back).failed
    assert stat.S_IMODE((root / "closed" / "in").stat().st_mode) == 0o555


def test_a_full_disk_changes_nothing(blobs: Blobs, root: Path) -> None:
    """Found out before anything is removed or overwritten; temporary files are gone."""
    with small_disk(root):
        present = start(blobs, root, files(a="1", gone="1"))
        target = blobs.plant(
            {**files(a="2", b="2"), b"d": (0o755, {b"big": (0o644, b"x" * 3_000_000), **files(z="2")})}
        )
        with pytest.raises(DiskFullError):
            blobs.restore(root, make_plan(target, present, blobs.read))
        assert holds(blobs, root, present)


def test_sweeping_removes_temporary_files_and_nothing_else(root: Path) -> None:
    temporary = b".lastgood-0123456789abcdef-1f.tmp"
    odd = {b".lastgood-mine.tmp": (0o644, b""), b".git": (0o755, {temporary: (0o644, b"")}), b"out": b".."}
    build(root, {temporary: (0o600, b"x"), **odd, b"d": (0o755, {temporary: b"link", **files(a="1")})})
    build(root.parent, {temporary: (0o600, b"outside")})
    assert sorted(remove_temporary(str(root))) == [temporary, b"d/" + temporary]
    assert sorted(os.listdir(os.fsencode(root))) == [b".git", b".lastgood-mine.tmp", b"d", b"out"]
    assert os.listdir(root / ".git") == [os.fsdecode(temporary)]
