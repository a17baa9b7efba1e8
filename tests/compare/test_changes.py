"""How the files of two checkpoints differ: which paths, which lines, and in which words."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastgood.compare import lines as alignment
from lastgood.compare import text as text_module
from lastgood.compare import trees as changes_module
from lastgood.compare.lines import LineCounts
from lastgood.compare.text import (
    Stat,
    count_changes,
    count_lines,
    path_text,
    quoted,
    section,
    stat_line,
    summarize,
    unified,
)
from lastgood.compare.trees import TreeChange, compare_trees, read_content
from lastgood.errors import IntegrityError
from lastgood.model.identity import digest
from lastgood.model.tree import Chunk, Entry, File, Folder, Left, Link, encode_chunks, encode_tree

needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed: its half of P5 is NOT tested")
needs_patch = pytest.mark.skipif(
    not shutil.which("patch"), reason="patch is not installed: its half of P5 is NOT tested"
)


class Leaf(NamedTuple):
    """A file of the test; a str as data is where a link points."""

    data: bytes | str
    mode: int = 0o644


Node = Mapping[bytes, Any]
"""A directory of the test: leaves, directories, `Left`, or bytes for a plain file."""


class Blobs(dict[bytes, bytes]):
    """A store in memory, which counts what is read."""

    reads = 0

    def put(self, data: bytes) -> bytes:
        self[digest(data)] = data
        return digest(data)

    def read(self, blob: bytes) -> bytes:
        self.reads += 1
        if blob not in self:
            raise IntegrityError("a blob is missing", hint="go back to another checkpoint")
        return self[blob]

    def tree(self, node: Node) -> bytes:
        return self.put(encode_tree([self._entry(name, value) for name, value in node.items()]))

    def _entry(self, name: bytes, value: Any) -> Entry:
        match value:
            case Left() | Folder() | File():
                return value
            case bytes():
                return File(name, 0o644, len(value), self.put(value))
            case Leaf(data=str() as target):
                return Link(name, os.fsencode(target))
            case Leaf(data=bytes() as data, mode=mode):
                return File(name, mode, len(data), self.put(data))
        return Folder(name, 0o755, self.tree(value))


def compare(old: Node, new: Node, **options: bool) -> list[TreeChange]:
    blobs = Blobs()
    return compare_trees(blobs.tree(old), blobs.tree(new), blobs.read, **options)


def kinds(old: Node, new: Node) -> list[tuple[bytes, str]]:
    return [(change.path, change.kind) for change in compare(old, new)]


def text(old: Node, new: Node, **options: int) -> bytes:
    blobs = Blobs()
    found = compare_trees(blobs.tree(old), blobs.tree(new), blobs.read)
    return unified(found, blobs.read, **options)


def write(root: Path, node: Node) -> None:
    for name, value in node.items():
        path = root / os.fsdecode(name)
        match value:
            case Leaf(data=str() as target):
                path.symlink_to(target)
            case Leaf(data=bytes() as data, mode=mode):
                path.write_bytes(data)
                path.chmod(mode)
            case bytes():
                path.write_bytes(value)
                path.chmod(0o644)
            case _:
                path.mkdir()
                write(path, value)


def read_back(root: Path) -> dict[str, tuple[Any, ...]]:
    """Every file and link below, and whether it can be run: all that a patch can carry."""
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path.relative_to(root))] = ("link", os.fspath(path.readlink()))
            elif path.is_file():
                found[str(path.relative_to(root))] = ("file", path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


GIT = ["git", "apply", "--whitespace=nowarn", "-p1"]
PATCH = ["patch", "-p1", "--fuzz=0", "--force", "--silent"]


def apply(command: list[str], node: Node, patch: bytes) -> dict[str, tuple[Any, ...]]:
    """The files of `node` after a real program applied the patch to them."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), node)
        if b"diff --git " in patch or b"@@ " in patch:
            plain = {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C"}
            surroundings = plain | {"GIT_CEILING_DIRECTORIES": str(Path(folder).parent), "GIT_CONFIG_NOSYSTEM": "1"}
            done = subprocess.run(command, cwd=folder, input=patch, capture_output=True, check=False, env=surroundings)
            assert done.returncode == 0, (done.stdout + done.stderr, patch)
        return read_back(Path(folder))


def without_empty_folders(node: Node) -> Node:
    kept = {name: without_empty_folders(value) if isinstance(value, dict) else value for name, value in node.items()}
    return {name: value for name, value in kept.items() if value != {}}


def of_the_same_kinds(old: Node, new: Node) -> Node:
    """`new` without what takes the place of a folder of `old`, or is a folder in the place of something else."""
    kept = {}
    for name, value in new.items():
        if name not in old:
            kept[name] = value
        elif isinstance(value, dict) and isinstance(old[name], dict):
            kept[name] = of_the_same_kinds(old[name], value)
        elif not isinstance(value, dict) and not isinstance(old[name], dict):
            kept[name] = value
    return kept


def written(node: Node) -> dict[str, tuple[Any, ...]]:
    return apply(["true"], node, b"")


LONG = [b"line %d of a text that is long enough to be known again\n" % number for number in range(30)]
names = st.sampled_from(
    [b"a", b"b", b"c.py", b"with space", b" lead", b"trail ", b"tab\there", b"new\nline", b'"quoted"', b"back\\slash",
     b"\xff\xfe", "größe".encode(), "\u2028".encode(), b"-dash", b"cr\r", b"a\x01\x7f", b"=>", b"/dev/null"[1:4]]
)  # fmt: skip
lines = st.sampled_from(
    [b"one\n", b"two\n", b"three\r\n", b"\n", b"\r\n", b"-- a\n", b"++ b\n", b"@@ -1 +1 @@\n", b"\xff\xfe\n", b" \t\n",
     b"\r", b"\\ No newline at end of file\n", b"diff --git a/x b/x\n", b"end"]
)  # fmt: skip


@st.composite
def long_texts(draw: st.DrawFn) -> bytes:
    """Variants of one text, so that renames with changes are found."""
    changed = list(LONG)
    for place in draw(st.lists(st.integers(0, len(LONG) - 1), max_size=4)):
        changed[place] = draw(lines)
    return b"".join(changed)


contents = st.lists(lines, max_size=8).map(b"".join) | long_texts()
leaves = st.builds(Leaf, contents, st.sampled_from([0o644, 0o755, 0o600])) | st.builds(
    Leaf, st.sampled_from(["nowhere", "no\nwhere", "no where", "../x", "nöwhere"])
)
nodes: st.SearchStrategy[Node] = st.dictionaries(
    names, leaves | st.dictionaries(names, leaves | st.dictionaries(names, leaves, max_size=2), max_size=3), max_size=6
)


@st.composite
def changed_nodes(draw: st.DrawFn) -> tuple[Node, Node]:
    """Two directories that have something in common: the second is the first with some of it taken, moved, replaced."""
    old, other = draw(nodes), draw(nodes)
    new = {name: value for name, value in old.items() if draw(st.booleans())}
    for name, value in list(new.items()):
        if draw(st.integers(0, 3)) == 0:
            new[draw(names)] = new.pop(name, value)
    return old, new | {name: value for name, value in other.items() if draw(st.booleans())}


@needs_git
@settings(max_examples=200)
@given(changed_nodes())
def test_git_apply_of_the_diff_gives_the_other_side(pair: tuple[Node, Node]) -> None:
    """P5 (B5, B10): the diff is right and well formed; applying it gives the other side.

    A patch cannot say that an empty folder goes, so that a file can come: the old side has none. And no link points at
    itself: git looks through it when a folder takes its place, and gives up.
    """
    old, new = without_empty_folders(pair[0]), pair[1]
    assert apply(GIT, old, text(old, new)) == written(new)


@needs_patch
@settings(max_examples=200)
@given(changed_nodes())
def test_patch_of_the_diff_gives_the_other_side(pair: tuple[Node, Node]) -> None:
    """P5 (B5, B10): the diff is right and well formed; applying it gives the other side.

    Unlike git, `patch` refuses to put a file in the place of a folder, or the other way round: left out here.
    """
    old = without_empty_folders(pair[0])
    new = of_the_same_kinds(old, pair[1])
    assert apply(PATCH, old, text(old, new)) == written(new)


def test_every_kind_of_change_is_told_apart() -> None:
    """B2: each file's change."""
    old: Node = {
        b"same": b"s\n", b"edited": b"1\n", b"gone": b"g\n", b"run": Leaf(b"r\n"), b"kind": b"k\n", b"link": Leaf("a"),
        b"folder": {b"x": b"1\n", b"y": b"2\n"},
    }  # fmt: skip
    new: Node = {
        b"same": b"s\n", b"edited": b"2\n", b"come": b"c\n", b"run": Leaf(b"r\n", 0o755), b"kind": Leaf("k"),
        b"link": Leaf("b"), b"folder": {b"x": b"1\n", b"y": b"3\n"},
    }  # fmt: skip
    assert kinds(old, new) == [
        (b"come", "added"), (b"edited", "modified"), (b"folder/y", "modified"), (b"gone", "deleted"), (b"kind", "type"),
        (b"link", "modified"), (b"run", "mode"),
    ]  # fmt: skip
    change = compare(old, new)[1]
    assert (change.old, change.new) == (
        File(b"edited", 0o644, 2, digest(b"1\n")),
        File(b"edited", 0o644, 2, digest(b"2\n")),
    )


def test_no_tree_is_an_empty_one() -> None:
    blobs = Blobs()
    tree = blobs.tree({b"a": b"1\n", b"b": {b"c": b"2\n"}})
    assert [(c.path, c.kind) for c in compare_trees(None, tree, blobs.read)] == [(b"a", "added"), (b"b/c", "added")]
    assert [(c.path, c.kind) for c in compare_trees(tree, None, blobs.read)] == [(b"a", "deleted"), (b"b/c", "deleted")]
    blobs.reads = 0
    assert compare_trees(None, None, blobs.read) == compare_trees(tree, tree, blobs.read) == []
    assert blobs.reads == 0


def test_a_folder_is_mentioned_only_when_nothing_in_it_is() -> None:
    """B3 names empty directories: they must not vanish from a diff."""
    assert kinds({}, {b"empty": {}, b"full": {b"x": b"1\n", b"inner": {}}}) == [
        (b"empty", "added"), (b"full/inner", "added"), (b"full/x", "added"),
    ]  # fmt: skip
    assert kinds({b"f": {b"left": Left(b"left", "ignored")}}, {}) == [(b"f", "deleted")]
    assert kinds({b"f": {b"x": b"1\n"}}, {b"f": {}}) == [(b"f/x", "deleted")]


def test_what_lay_in_a_replaced_folder_is_deleted_before_the_replacement_comes() -> None:
    folder, file = {b"p": {b"x": b"long enough\n"}}, {b"p": b"long enough\n"}
    assert kinds(folder, file) == [(b"p/x", "deleted"), (b"p", "type")]
    assert kinds(file, folder) == [(b"p", "type"), (b"p/x", "added")]


def test_a_folder_can_change_its_mode_and_its_content() -> None:
    blobs = Blobs()
    old = blobs.tree({b"f": Folder(b"f", 0o755, blobs.tree({b"x": b"1\n"}))})
    new = blobs.tree({b"f": Folder(b"f", 0o700, blobs.tree({b"x": b"2\n"}))})
    found = compare_trees(old, new, blobs.read)
    assert [(change.path, change.kind) for change in found] == [(b"f", "mode"), (b"f/x", "modified")]
    assert section(found[0], blobs.read) == b"Folder f: mode 0755 became 0700\n"


def test_what_one_side_did_not_capture_is_no_change_of_content() -> None:
    left = {name: Left(name, "ignored") for name in (b"file", b"folder", b"both", b"only")}
    had = {b"file": b"1\n", b"folder": {b"x": b"1\n", b"y": b"2\n"}, b"both": Left(b"both", "secret")}
    assert kinds(had, left) == [(b"file", "uncaptured"), (b"folder", "uncaptured")]
    assert kinds(left, had) == [(b"file", "captured"), (b"folder", "captured")]
    assert text(had, left).startswith(b"Not compared: file is no longer captured\n")


def test_a_file_cut_in_another_way_is_the_same_file() -> None:
    blobs = Blobs()
    whole = blobs.put(b"12")
    chunks = blobs.put(encode_chunks([Chunk(blobs.put(b"1"), 1), Chunk(blobs.put(b"2"), 1)]))
    cut = File(b"f", 0o644, 2, whole, chunks)
    assert compare({b"f": b"12"}, {b"f": cut}) == []
    assert read_content(cut, blobs.read) == b"12"
    wrong = File(b"f", 0o644, 2, digest(b"other"), chunks)
    with pytest.raises(IntegrityError, match="do not make up its content"):
        read_content(wrong, blobs.read)


def test_only_directories_that_differ_are_read() -> None:
    """Promise 7: the cost is what changed. 50,000 files, 10 of them changed."""
    blobs = Blobs()
    node = {b"d%d" % i: {b"f%d" % j: b"%d %d\n" % (i, j) for j in range(100)} for i in range(500)}
    old = blobs.tree(node)
    for i in range(10):
        node[b"d%d" % (i * 7)][b"f3"] = b"changed %d\n" % i
    new = blobs.tree(node)
    blobs.reads = 0
    assert len(compare_trees(old, new, blobs.read)) == 10
    assert blobs.reads == 2 + 2 * 10


def test_a_very_deep_tree_is_walked() -> None:
    blobs = Blobs()
    trees = [blobs.tree({b"x": b"1\n"}), blobs.tree({b"x": b"2\n"})]
    for _ in range(3000):
        trees = [blobs.put(encode_tree([Folder(b"d", 0o755, tree)])) for tree in trees]
    assert [change.path for change in compare_trees(trees[0], trees[1], blobs.read)] == [b"d/" * 3000 + b"x"]


def test_a_damaged_directory_is_refused() -> None:
    """Promise 2: damage is never returned as data."""
    blobs = Blobs()
    old, new = blobs.tree({b"a": b"1\n"}), blobs.tree({b"a": b"2\n"})
    blobs[new] = b"damaged"
    with pytest.raises(IntegrityError):
        compare_trees(old, new, blobs.read)


# Renames


def test_a_moved_file_is_one_rename() -> None:
    found = compare({b"a": Leaf(b"x\n"), b"l": Leaf("t")}, {b"b": {b"c": Leaf(b"x\n", 0o755)}, b"m": Leaf("t")})
    assert [(c.kind, c.old_path, c.path, c.similarity) for c in found] == [
        ("renamed", b"a", b"b/c", 100), ("renamed", b"l", b"m", 100),
    ]  # fmt: skip


def test_without_renames_no_content_is_read() -> None:
    blobs = Blobs()
    old, new = blobs.tree({b"a": b"".join(LONG)}), blobs.tree({b"b": b"".join(LONG[1:])})
    blobs.reads = 0
    assert [c.kind for c in compare_trees(old, new, blobs.read, renames=False)] == ["deleted", "added"]
    assert blobs.reads == 2


def test_files_with_the_same_content_keep_their_names_when_a_folder_moves() -> None:
    old = {b"src": {b"a": b"same\n", b"b": b"same\n", b"c": b"same\n"}}
    new = {b"lib": {b"c": b"same\n", b"b": b"same\n", b"d": b"same\n", b"e": b"same\n"}}
    assert [(c.old_path, c.path) for c in compare(old, new)] == [
        (b"src/b", b"lib/b"), (b"src/c", b"lib/c"), (b"src/a", b"lib/d"), (None, b"lib/e"),
    ]  # fmt: skip


def test_a_moved_and_edited_file_is_a_rename_when_half_of_it_stayed() -> None:
    old = {b"a": b"".join(LONG), b"other": b"nothing of it\n" * 20}
    new = {b"b": b"".join([*LONG[:20], b"new\n"]), b"c": b"".join(LONG[20:])}
    found = compare(old, new)
    assert [(c.kind, c.old_path, c.path) for c in found] == [
        ("renamed", b"a", b"b"), ("added", None, b"c"), ("deleted", None, b"other"),
    ]  # fmt: skip
    assert 50 <= found[0].similarity < 100


def test_of_many_files_that_are_alike_those_with_the_same_name_belong_together() -> None:
    old = {b"src": {b"f%d" % i: b"".join(LONG) + b"%d" % i for i in range(12)}}
    new = {b"lib": {b"f%d" % i: b"".join(LONG) + b"new %d" % i for i in range(12)}}
    assert {(c.old_path, c.path) for c in compare(old, new)} == {(b"src/f%d" % i, b"lib/f%d" % i) for i in range(12)}


def test_a_line_repeated_on_one_side_only_counts_once() -> None:
    old, new = {b"a": b"x\n" * 50 + LONG[0]}, {b"b": b"x\n" + LONG[0] + b"y\n" * 100}
    assert [change.kind for change in compare(old, new)] == ["deleted", "added"]


def test_empty_and_binary_files_are_not_similar() -> None:
    old = {b"__init__.py": b"", b"bin": b"\0" + b"".join(LONG)}
    new = {b"main.py": b"", b"nib": b"\0" + b"".join(LONG[1:])}
    assert {change.kind for change in compare(old, new)} == {"added", "deleted"}


def test_lines_are_shuffled_but_not_the_same() -> None:
    (change,) = compare({b"a": b"".join(LONG)}, {b"b": b"".join(LONG[::-1])})
    assert (change.kind, change.similarity) == ("renamed", 99)


@pytest.mark.parametrize(("limit", "value"), [("MOST_CANDIDATES", 1), ("MOST_BYTES", 100)])
def test_looking_for_similar_files_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    old = {b"a%d" % i: b"%d\n" % i + b"".join(LONG) for i in range(3)}
    new = {b"b%d" % i: b"%d\n" % i + b"".join(LONG[1:]) for i in range(3)}
    assert {change.kind for change in compare(old, new)} == {"renamed"}
    monkeypatch.setattr(changes_module, limit, value)
    assert {change.kind for change in compare(old, new)} == {"added", "deleted"}


def test_a_damaged_file_does_not_hide_which_paths_changed() -> None:
    """Promise 2: only what is damaged is refused."""
    blobs = Blobs()
    old, new = blobs.tree({b"a": b"".join(LONG)}), blobs.tree({b"b": b"".join(LONG[1:])})
    del blobs[digest(b"".join(LONG))]
    found = compare_trees(old, new, blobs.read)
    assert [c.kind for c in found] == ["deleted", "added"]
    with pytest.raises(IntegrityError, match="a cannot be compared: a blob is missing"):
        section(found[0], blobs.read)


# Text


def test_a_diff_looks_as_people_know_it() -> None:
    old = {b"a.py": b"".join(b"%d\n" % i for i in range(20)), b"b": b"gone", b"m": Leaf(b"x\n")}
    new = {b"a.py": b"".join(b"%d\n" % i for i in range(20) if i != 9), b"m": Leaf(b"x\n", 0o755), b"n": {}}
    ids = b"".join(b"%d\n" % i for i in range(20)), b"".join(b"%d\n" % i for i in range(20) if i != 9), b"gone"
    before, after, gone = (_git_id(data) for data in ids)
    assert text(old, new).decode() == (
        f"diff --git a/a.py b/a.py\nindex {before}..{after} 100644\n--- a/a.py\n+++ b/a.py\n"
        "@@ -7,7 +7,6 @@\n 6\n 7\n 8\n-9\n 10\n 11\n 12\n"
        f"diff --git a/b b/b\ndeleted file mode 100644\nindex {gone}..{'0' * 40}\n--- a/b\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-gone\n\\ No newline at end of file\n"
        "diff --git a/m b/m\nold mode 100644\nnew mode 100755\n"
        "Empty folder n was added\n"
    )


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(data), data)).hexdigest()


@needs_git
@needs_patch
@pytest.mark.parametrize("command", [GIT, PATCH], ids=["git", "patch"])
def test_far_nul_bytes_survive(command: list[str]) -> None:
    """B5, P5: what is text by git's rule may still hold a NUL."""
    old = {b"c": b"1\n" * 5000 + b"\0a\n"}
    new = {b"c": b"1\n" * 5000 + b"\0b\n\0\n"}
    assert apply(command, old, text(old, new)) == written(new)


@needs_git
def test_a_file_can_move_out_of_a_folder_that_is_replaced_and_into_one_that_replaces() -> None:
    """P5: renames across paths that change from folder to file and back."""
    old = {b"p": {b"x": b"".join(LONG)}, b"q": b"f\n", b"r": b"".join(LONG[:20])}
    new = {b"p": Leaf("f"), b"q": {b"y": b"".join(LONG[1:]), b"z": b"".join(LONG[:20])}}
    assert text(old, new).count(b"rename to ") == 2
    assert apply(GIT, old, text(old, new)) == written(new)


def test_modes_that_git_cannot_tell_apart_are_written_out() -> None:
    assert text({b"f": Leaf(b"x\n", 0o600)}, {b"f": Leaf(b"x\n", 0o640)}) == (
        b"diff --git a/f b/f\nold mode 100600\nnew mode 100640\n"
    )


@needs_git
def test_git_refuses_a_diff_with_binary_files_as_it_does_its_own() -> None:
    """B5: binary files are identified as such, and nobody gets half a change unawares."""
    old, new = {b"b": b"\0x", b"c": b"1\n"}, {b"b": b"\0y", b"c": b"2\n"}
    patch = text(old, new)
    assert b"Binary files a/b and b/b differ\n" in patch
    with pytest.raises(AssertionError, match="does not apply"):
        apply(GIT, old, patch)


def test_one_sided_binary_files_say_on_which_side() -> None:
    """B5: one-sided files identified as such."""
    assert b"Binary files /dev/null and b/x differ\n" in text({}, {b"x": b"\0"})
    assert b"Binary files a/x and /dev/null differ\n" in text({b"x": b"\0"}, {})


def test_a_file_too_large_to_compare_is_not_read() -> None:
    blobs = Blobs()
    old = blobs.tree({b"f": File(b"f", 0o644, 1 << 40, bytes(32))})
    new = blobs.tree({b"f": File(b"f", 0o644, 2 << 40, bytes([1]) * 32)})
    found = compare_trees(old, new, blobs.read)
    assert section(found[0], blobs.read) == b"diff --git a/f b/f\nFiles a/f and b/f differ\n"
    assert count_lines(found[0], blobs.read) is None


@needs_git
def test_git_refuses_a_diff_with_a_file_too_large_to_compare() -> None:
    blobs = Blobs()
    (change,) = compare_trees(None, blobs.tree({b"f": File(b"f", 0o644, 1 << 40, bytes(32))}), blobs.read)
    with pytest.raises(AssertionError, match="binary patch"):
        apply(GIT, {}, section(change, blobs.read))


def test_patch_is_told_that_a_moved_link_is_one() -> None:
    assert text({b"a": Leaf("t")}, {b"b": Leaf("t")}).endswith(b" 120000\n")


def test_a_name_is_quoted_as_git_quotes_it_only_if_it_must_be() -> None:
    assert quoted("größe.txt".encode()) == "größe.txt".encode()
    assert quoted(b"a b") == b'"a b"'
    assert quoted(b'a b\t"\\\n\xff\x01') == b'"a b\\t\\"\\\\\\n\\377\\001"'
    assert quoted("\u202e".encode()) == b'"\\342\\200\\256"'


def test_a_long_diff_is_cut_at_a_line_and_says_so() -> None:
    old, new = {b"a": b"1\n"}, {b"a": b"2\n" * 1000, b"b": b"3\n"}
    whole, cut = text(old, new), text(old, new, max_bytes=500)
    body, marker, rest = cut.partition(b"@@ -1 +1 @@ *** cut at 500 bytes: 2 of 2 changes are not wholly shown\n")
    assert marker
    assert not rest
    assert 490 < len(body) <= 500
    assert whole.startswith(body)
    assert body.endswith(b"\n")
    assert text(old, new, max_bytes=len(whole)) == whole
    assert b": 1 of 2 changes" in text(old, new, max_bytes=len(whole) - 1)


@needs_git
def test_git_refuses_a_diff_that_was_cut_wherever_that_was() -> None:
    """B5: nobody gets half a change unawares."""
    old, new = {b"a": b"1\n", b"c": {}}, {b"a": b"2\n", b"b": b"3\n" * 3, b"d": Leaf("x")}
    whole = text(old, new)
    ends = [match.end() for match in re.finditer(b"\n", whole)]
    assert len(ends) > 15
    for end in [0, *ends[:-1]]:
        with pytest.raises(AssertionError, match="error: "):
            apply(GIT, old, text(old, new, max_bytes=end))


# Aligning lines, without programs


def patched(old: bytes, diff: bytes) -> bytes:
    """What a diff of one file makes of `old`, read as its format says; every line it names must be there."""
    lines, body = _lines(old), _lines(diff)
    result: list[bytes] = []
    place = index = 0
    while index < len(body):
        head = re.fullmatch(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", body[index])
        index += 1
        if not head:
            assert not result
            continue
        removed, added = int(head[2] or 1), int(head[4] or 1)
        start = int(head[1]) - (removed > 0)
        result += lines[place:start]
        place = start
        assert len(result) == int(head[3]) - (added > 0)
        while removed or added:
            sign, line = body[index][:1], body[index][1:]
            index += 1
            if index < len(body) and body[index].startswith(b"\\"):
                line, index = line[:-1], index + 1
            if sign != b"+":
                assert lines[place] == line
                place, removed = place + 1, removed - 1
            if sign != b"-":
                result.append(line)
                added -= 1
    return b"".join(result + lines[place:])


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+\Z", data)


def diff_of(old: bytes, new: bytes) -> tuple[bytes, LineCounts | None]:
    blobs = Blobs()
    (change,) = compare_trees(blobs.tree({b"f": old}), blobs.tree({b"f": new}), blobs.read)
    return section(change, blobs.read), count_lines(change, blobs.read)


few_lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"\n"]), max_size=60).map(b"".join)


@settings(max_examples=300)
@given(
    few_lines, few_lines, st.sampled_from([b"", b"end"]), st.sampled_from([0, 3, 50, 10**6]), st.sampled_from([2, 256])
)
def test_the_diff_is_right_however_little_effort_it_may_take(
    old: bytes, new: bytes, end: bytes, effort: int, farthest: int
) -> None:
    """P5 (B10): coarser when the budget is spent, and still the other side exactly; the counts fit the text."""
    new += end
    if old == new:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "EFFORT", effort)
        patch.setattr(alignment, "_FARTHEST", farthest)
        diff, counted = diff_of(old, new)
    assert patched(old, diff) == new
    signs = [line[:1] for line in _lines(diff.partition(b"\n+++ b/f\n")[2])]
    assert counted == (signs.count(b"+"), signs.count(b"-"))


@settings(max_examples=200)
@given(few_lines, few_lines)
def test_where_no_line_stands_once_the_shortest_diff_is_found(old: bytes, new: bytes) -> None:
    old, new = b"<\n" + old + old + b"<<\n", b">\n" + new + new + b">>\n"  # nothing to cut off at the ends
    counted = diff_of(old, new)[1]
    assert counted is not None
    assert len(_lines(old)) - counted.removed == _longest_common(_lines(old), _lines(new))


def _longest_common(old: list[bytes], new: list[bytes]) -> int:
    row = [0] * (len(new) + 1)
    for one in old:
        above, row = row, [0]
        for j, other in enumerate(new):
            row.append(above[j] + 1 if one == other else max(above[j + 1], row[j]))
    return row[-1]


@pytest.mark.parametrize("gap", range(12))
def test_changes_share_a_hunk_when_their_context_would_touch(gap: int) -> None:
    old = [b"%d\n" % i for i in range(40)]
    new = list(old)
    new[10], new[11 + gap] = b"x\n", b"y\n"
    diff, counted = diff_of(b"".join(old), b"".join(new))
    assert patched(b"".join(old), diff) == b"".join(new)
    assert diff.count(b"\n@@ ") == (1 if gap <= 6 else 2)
    assert counted == (2, 2)


def test_what_both_begin_and_end_with_is_not_counted_twice() -> None:
    diff, counted = diff_of(b"a\n" * 20, b"a\n" * 30)
    assert patched(b"a\n" * 20, diff) == b"a\n" * 30
    assert counted == (10, 0)


@pytest.mark.parametrize(("module", "limit", "value"), [(alignment, "EFFORT", 0), (alignment, "MOST_LINES", 10)])
def test_beyond_its_bounds_a_diff_replaces_the_whole(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, value: int
) -> None:
    old, new = b"<\n" + b"a\nb\n" * 20 + b"<\n", b">\n" + b"b\na\n" * 20 + b">\n"
    assert diff_of(old, new)[1] == (3, 3)
    monkeypatch.setattr(module, limit, value)
    diff, counted = diff_of(old, new)
    assert counted == (42, 42)
    assert patched(old, diff) == new
    anchored = b"".join([b"<\n", *LONG, b"<\n"]), b"".join([b">\n", *LONG, b">\n"])
    assert diff_of(*anchored)[1] == (32, 32)


def test_the_search_between_anchors_stops_when_its_effort_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    old = b"<\n" + b"".join(shuffled([b"a\n", b"b\n", b"c\n"] * 200)) + b"<\n"
    new = b">\n" + b"".join(shuffled([b"c\n", b"a\n", b"b\n"] * 200)[::-1]) + b">\n"
    best = diff_of(old, new)[1]
    monkeypatch.setattr(alignment, "EFFORT", 1300)
    coarse = diff_of(old, new)[1]
    assert best is not None
    assert coarse is not None
    assert best.added < coarse.added - 100


MANY = [b"line %d\n" % i for i in range(100_000)]
A, B = [b"a\n"] * 10_000, [b"b\n"] * 10_000


def shuffled(lines: list[bytes]) -> list[bytes]:
    return random.Random(7).sample(lines, len(lines))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: (MANY, [*MANY[:500], b"x\n", *MANY[501:]]), LineCounts(1, 1), id="one line of many"),
        pytest.param(lambda: (MANY, shuffled(MANY)), None, id="shuffled"),
        pytest.param(lambda: (MANY[:50_000] * 2, shuffled(MANY[:50_000]) * 2), None, id="shuffled, each twice"),
        pytest.param(lambda: (MANY, [MANY[i ^ 1] for i in range(len(MANY))]), LineCounts(50_000, 50_000), id="swapped"),
        pytest.param(lambda: (A * 10, [*A * 9, *A[7:]]), LineCounts(0, 7), id="equal lines"),
        pytest.param(lambda: ((A + B) * 5, shuffled((A + B) * 5)), None, id="two kinds"),
        pytest.param(lambda: (A * 10 + B * 10, B * 10 + A * 10), None, id="blocks"),
        pytest.param(lambda: ([b"x" * 10**8], [b"x" * 10**7, b"y", b"x" * 10**8]), LineCounts(1, 1), id="one line"),
        pytest.param(lambda: (A * 60, B * 60), LineCounts(600_000, 600_000), id="too many lines"),
    ],
)  # fmt: skip
def test_hard_files_are_compared_within_bounds(
    make: Callable[[], tuple[list[bytes], list[bytes]]], expected: LineCounts | None
) -> None:
    """B5: a diff never hangs. The effort is counted, not timed; difflib takes 40 s on 20,000 swapped lines."""
    old, new = (b"".join(lines) for lines in make())
    diff, counted = diff_of(old, new)
    assert patched(old, diff) == new
    assert expected in (None, counted)


# For people


def test_the_summary_says_what_changed_where_and_how_much() -> None:
    """B2, B4."""
    blobs = Blobs()
    old = {b"src": {b"parser": {b"lex.py": b"1\n", b"parse.py": b"1\n", b"ast.py": b"1\n2\n"}}, b"old.py": b"x\ny\nz\n"}
    new = {b"src": {b"parser": {b"lex.py": b"1\n" + b"n\n" * 100, b"parse.py": b"2\n", b"ast.py": b"1\n"}},
           b"tests": {b"test_x.py": b"t\n" * 20}, b"empty": {}}  # fmt: skip
    stats = count_changes(compare_trees(blobs.tree(old), blobs.tree(new), blobs.read), blobs.read)
    assert summarize(stats) == (
        "3 files changed in src/parser, 1 added (tests/test_x.py), 1 deleted (old.py), 1 folder added (empty); "
        "121 lines added, 5 removed; the largest change is src/parser/lex.py (+100 -0)."
    )
    assert [stat_line(stat) for stat in stats] == [
        "empty/ (added)",
        "old.py +0 -3 (deleted)",
        "src/parser/ast.py +0 -1",
        "src/parser/lex.py +100 -0",
        "src/parser/parse.py +1 -1",
        "tests/test_x.py +20 -0 (added)",
    ]


def test_nothing_is_summarized_as_nothing() -> None:
    assert summarize([]) == "No file changed."


def test_the_summary_of_other_kinds_of_changes() -> None:
    blobs = Blobs()
    old = {b"a": b"".join(LONG), b"k": b"1\n", b"l": b"1\n", b"m": Leaf(b"1\n"), b"bin": b"\0a"}
    new = {
        b"b": b"".join(LONG),
        b"k": Leaf("t"),
        b"l": Left(b"l", "ignored"),
        b"m": Leaf(b"1\n", 0o755),
        b"bin": b"\0b",
    }
    stats = count_changes(compare_trees(blobs.tree(old), blobs.tree(new), blobs.read), blobs.read)
    assert summarize(stats) == (
        "1 file changed (bin), 1 renamed (a to b), 1 with another mode (m), 1 of another kind (k), "
        "1 no longer captured (l); 1 line added, 1 removed."
    )
    assert [stat_line(stat) for stat in stats] == [
        "a => b (renamed)",
        "bin  binary, changed (2 bytes)",
        "k +1 -1 (of another kind)",
        "l (no longer captured)",
        "m (with another mode)",
    ]


def test_counting_reads_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs()
    old = blobs.tree({})
    new = blobs.tree({b"a": b"1\n" * 10, b"b": b"2\n" * 1000, b"c": b"3\n", b"d": b"4\n" * 9})
    monkeypatch.setattr(text_module, "MOST_READ", 30)
    stats = count_changes(compare_trees(old, new, blobs.read), blobs.read)
    assert [stat.note for stat in stats] == ["", "not counted", "", "not counted"]
    assert summarize(stats) == "4 files added; at least 11 lines added; the largest change is a (+10 -0)."
    assert stat_line(stats[1]) == f"b  large, added ({stats[1].size:,} bytes)"


def test_what_need_not_be_read_is_always_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Blobs()
    found = compare_trees(blobs.tree({b"a": b"1\n", b"f": {}}), blobs.tree({b"b": b"1\n", b"f": b""}), blobs.read)
    monkeypatch.setattr(text_module, "MOST_READ", 0)
    stats = count_changes(found, blobs.read)
    assert [(stat.path, stat.kind, stat.note, stat.is_folder) for stat in stats] == [
        ("b", "renamed", "", False), ("f", "type", "", False),
    ]  # fmt: skip


def test_a_new_binary_file_has_no_lines() -> None:
    blobs = Blobs()
    (stat,) = count_changes(compare_trees(None, blobs.tree({b"a": b"\0\n"}), blobs.read), blobs.read)
    assert (stat.lines, stat.note) == (None, "binary")


def test_a_summary_stays_readable_whatever_the_names_are() -> None:
    assert path_text(b"new\nline") == '"new\\nline"'
    assert path_text("größe 1".encode()) == "größe 1"
    stats = [
        Stat("x" * 500, "added", LineCounts(1, 0)),
        Stat('"\\n/a"', "deleted", None),
        Stat('"\\n/b"', "deleted", None),
    ]
    assert len(summarize(stats)) < 150
    assert summarize(stats[1:]) == "2 files deleted."
