"""Watching: a capture that looks only at what has changed finds what a capture of everything finds."""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.files.test_capture import Bench, MeddlingRules, Memory, look

import lastgood
from lastgood.engine.workspace import Workspace
from lastgood.files import scan, watch
from lastgood.files.capture import Captured, capture
from lastgood.files.index import StatIndex
from lastgood.files.read import Content, LeftOut, ReadJob, read_jobs
from lastgood.files.roots import Root
from lastgood.files.rules import RuleLevel, Rules
from lastgood.files.scan import Changed, FolderVisit, Scan
from lastgood.files.watch import Watcher
from lastgood.local.paths import join

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/sys/fs/inotify"), reason="needs inotify")  # noqa: PTH110


class RecordingWatcher(Watcher):
    """Notes the folders that are looked at."""

    looked_at: list[bytes]

    def add(self, path: bytes, folder: int) -> None:
        self.looked_at.append(path)
        super().add(path, folder)


class Watched(Bench):
    """A root that is watched between captures, as the engine does it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.watcher = RecordingWatcher(str(path), self.index)
        self.looked_at = self.watcher.looked_at = []

    def capture(self, **options: object) -> Captured:
        self.looked_at.clear()
        options.setdefault("rules", Rules(self._read))
        changed = self.watcher.take()
        captured = super().capture(changed=changed, watch=self.watcher, **options)
        self.watcher.settle(is_full=changed is None)
        return captured

    def everything(self) -> Captured:
        """What a capture that knows nothing finds."""
        return capture(self.root, Rules(self._read), StatIndex(), self.sink)

    def agrees(self) -> bool:
        mine, all_ = self.capture(), self.everything()
        assert self.sink.rebuild(mine.tree) == self.sink.rebuild(all_.tree)
        assert (mine.tree, mine.file_count, mine.total_size) == (all_.tree, all_.file_count, all_.total_size)
        assert set(mine.skipped) == set(all_.skipped)
        return True


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures happen long after all writes: no folder is looked at because its time stamps are new."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60_000_000_000)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    bench = Watched(tmp_path / "root")
    yield bench
    bench.watcher.close()


def settled(bench: Watched) -> None:
    """Captured so often that nothing is left to be looked at for its own sake."""
    bench.capture()
    bench.capture()


# --- only what changed


def test_what_did_not_change_is_not_looked_at(watched: Watched, later: None) -> None:
    for name in ("a/b/one", "a/c/two", "d/three", "d/e/f/four"):
        watched.write(name, name.encode())
    settled(watched)
    assert set(watched.looked_at) == {b""}
    watched.write("a/b/one", b"changed")
    assert watched.agrees()
    assert set(watched.looked_at) == {b"", b"a/b"}
    watched.write("d/e/new/deep/file")
    assert watched.agrees()
    assert set(watched.looked_at) == {b"", b"d/e", b"d/e/new", b"d/e/new/deep"}


def test_a_change_of_each_kind_is_seen(watched: Watched, later: None) -> None:
    top = watched.path
    watched.write("a/one", b"1")
    watched.write("a/sub/two", b"22")
    watched.write("b/three", b"333")
    settled(watched)
    stamp = (top / "a/one").stat().st_mtime_ns
    changes: list[Callable[[], object]] = [
        lambda: watched.write("a/one", b"longer"),
        lambda: os.utime(top / "a/one", ns=(stamp, stamp)),
        lambda: (top / "a/one").chmod(0o600),
        lambda: (top / "a/sub").chmod(0o700),
        lambda: (top / "a").chmod(0o711),
        lambda: top.chmod(0o750),
        lambda: (top / "a/link").symlink_to("one"),
        lambda: (top / "a/one").rename(top / "b/one"),
        lambda: (top / "a/sub").rename(top / "b/moved"),
        lambda: watched.write("b/moved/two", b"in its new place"),
        lambda: watched.write("a/sub/two", b"where the moved one was"),
        lambda: (top / "b/moved/two").unlink(),
        lambda: (top / "b/moved").rmdir(),
        lambda: (top / "b/moved").write_bytes(b"a file now"),
        lambda: os.truncate(top / "b/three", 1),
        lambda: os.mkfifo(top / "b/pipe"),
        lambda: watched.write(".env", b"secret"),
    ]
    for change in changes:
        change()
        assert watched.agrees()


def test_folders_that_change_places_are_seen(watched: Watched, later: None) -> None:
    for name in ("one", "two"):
        watched.write(f"top/{name}/deep/file", name.encode())
        watched.write(f"top/{name}/{name}", name.encode())
    settled(watched)
    top = watched.path / "top"
    for _ in range(3):
        (top / "one").rename(top / "kept")
        (top / "two").rename(top / "one")
        (top / "kept").rename(top / "two")
        assert watched.agrees()
        watched.write("top/one/deep/file", os.urandom(random.randrange(50, 5000)))
        assert watched.agrees()
        assert set(watched.looked_at) == {b"", b"top/one/deep"}


def test_a_folder_that_is_made_again_is_not_taken_for_the_old_one(watched: Watched, later: None) -> None:
    watched.write("top/sub/deep/file", b"old")
    settled(watched)
    for turn in range(5):
        for name in ("top/sub/deep/file", "top/sub/deep", "top/sub"):
            path = watched.path / name
            path.unlink() if path.is_file() else path.rmdir()
        if turn % 2:
            watched.write("top/sub/deep/file", b"new" * (turn + 2))
        else:
            (watched.path / "top/sub/deep").mkdir(parents=True)
            watched.write("top/sub/deep/file", b"n" * (turn + 50))
        assert watched.agrees()


def test_other_rules_decide_anew_about_all_that_is_below(watched: Watched, later: None) -> None:
    """Also about folders in which nothing has changed."""
    watched.write("a/b/c/x.log")
    watched.write("a/b/c/secret/key")
    watched.write("other/x.log")
    watched.write("a/.gitignore", b"# nothing\n")
    settled(watched)
    for text in (b"*.log\n", b"secret/\n*.log", b"b/\n", b"#\n"):
        watched.write("a/.gitignore", text)
        assert watched.agrees()
        assert b"other" not in watched.looked_at
    (watched.path / "a/.gitignore").unlink()
    assert watched.agrees()


def test_rules_of_the_repository_are_looked_at_though_they_are_not_watched(
    watched: Watched,
    later: None,
) -> None:
    watched.write("a/b/x.log")
    settled(watched)
    for exclude in (b"*.log", b"", b"b/"):
        mine = watched.capture(rules=Rules(watched._read, exclude=exclude))
        whole = capture(watched.root, Rules(watched._read, exclude=exclude), StatIndex(), watched.sink)
        assert mine.tree == whole.tree


def test_a_folder_that_becomes_ignored_is_not_read(watched: Watched, later: None) -> None:
    """Though something has changed in it as well."""
    watched.write("top/sub/deep/file")
    settled(watched)
    watched.write(".gitignore", b"top/\n")
    watched.write("top/sub/deep/file", b"nobody may read this")
    assert watched.agrees()
    assert b"nobody may read this" not in watched.sink.blobs.values()


def test_git_and_ignored_folders_are_not_watched(watched: Watched, later: None) -> None:
    watched.write(".gitignore", b"node_modules/\n")
    watched.write("a/x")
    watched.write("a/node_modules/y")
    watched.write("a/.git/z")
    watched.write(".git/config")
    settled(watched)
    for name in ("a/node_modules/y", "a/node_modules/new/z", "a/.git/z", "a/.git/new/z", ".git/z"):
        watched.write(name, b"noise")
    changed = watched.watcher.look()
    assert changed == Changed({}, set())
    assert watched.agrees()


def test_that_git_comes_or_goes_is_told(watched: Watched, later: None) -> None:
    watched.write("a/x")
    settled(watched)
    (watched.path / "a/.git").mkdir()
    assert watched.watcher.look() == Changed({b"a": {b".git"}}, set())
    assert watched.agrees()


def test_a_file_just_written_is_looked_at_again_though_nothing_was_told(watched: Watched) -> None:
    watched.write("a/x")
    watched.capture()
    assert watched.index.folders[b"a"].is_restless
    watched.capture()
    assert b"a" in watched.looked_at


def test_a_file_with_another_name_is_looked_at_each_time(
    watched: Watched,
    tmp_path: Path,
    later: None,
) -> None:
    """What is written under the other name is told of there, if at all."""
    file = watched.write("a/x")
    watched.write("b/y")
    os.link(file, tmp_path / "outside")
    settled(watched)
    (tmp_path / "outside").write_bytes(b"written elsewhere")
    assert watched.watcher.look() == Changed({}, set())
    assert watched.agrees()
    settled(watched)
    assert set(watched.looked_at) == {b"", b"a"}


def test_a_file_that_gets_another_name_is_looked_at_under_both(watched: Watched, later: None) -> None:
    file = watched.write("a/x")
    watched.write("b/y")
    settled(watched)
    os.link(file, watched.path / "b/new")
    assert watched.agrees()
    (watched.path / "b/new").write_bytes(b"written there")
    assert watched.captured()[b"a/x"][2] == b"written there"
    assert watched.agrees()


def test_what_is_written_through_a_mapping_is_seen_when_it_ends(watched: Watched, later: None) -> None:
    file = watched.write("a/x", bytes(4096))
    settled(watched)
    descriptor = os.open(file, os.O_RDWR)
    with mmap.mmap(descriptor, 4096) as mapped:
        os.close(descriptor)
        assert watched.agrees()
        mapped[:4] = b"new!"
    changed = watched.watcher.look()
    assert changed is not None
    assert changed.folders == {b"a": {b"x"}}


def test_what_cannot_be_read_is_looked_at_each_time(watched: Watched, later: None) -> None:
    os.mkfifo(watched.path / "pipe")
    file = watched.write("sub/x")
    refused = [LeftOut(b"sub/x", "unreadable", "no")]

    def refuse(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        return iter(refused[: len(jobs)])

    for _ in range(3):
        captured = watched.capture(read_files=refuse)
        assert {skipped.path for skipped in captured.skipped} == {b"pipe", b"sub/x"}
        assert b"sub" in watched.looked_at
    assert file.exists()
    assert watched.agrees()


def test_a_folder_that_cannot_be_entered_is_tried_each_time(
    watched: Watched, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.write("a/b/c")
    monkeypatch.setattr("lastgood.files.scan.MAX_DEPTH", 1)
    settled(watched)
    assert b"a" in watched.looked_at
    monkeypatch.undo()
    assert watched.captured() == look(watched.path)


def test_what_is_not_sure_to_be_stored_is_looked_at(watched: Watched, later: None) -> None:
    watched.write("a/x")
    watched.write("b/c/y")
    settled(watched)
    watched.sink.blobs.clear()
    assert watched.captured(trusted=None) == look(watched.path)


# --- what happens while the capture is at work


def test_a_file_that_moves_into_a_folder_nobody_looks_at_is_not_lost(watched: Watched, later: None) -> None:
    watched.write("busy/x", b"moving")
    watched.write("calm/y")
    settled(watched)
    watched.write("busy/z")

    def move(path: bytes) -> None:
        if not path and (watched.path / "busy/x").exists():
            (watched.path / "busy/x").rename(watched.path / "calm/x")

    assert watched.captured(rules=MeddlingRules(move)) == look(watched.path)
    assert watched.agrees()


def test_a_folder_that_moves_meanwhile_is_found_where_it_went(watched: Watched, later: None) -> None:
    watched.write("busy/sub/x", b"moving")
    watched.write("calm/y")
    settled(watched)
    watched.write("busy/z")

    def move(path: bytes) -> None:
        if not path and (watched.path / "busy/sub").exists():
            (watched.path / "busy/sub").rename(watched.path / "calm/sub")

    assert watched.captured(rules=MeddlingRules(move)) == look(watched.path)
    assert watched.agrees()


def test_folders_that_change_places_meanwhile_are_both_found(watched: Watched, later: None) -> None:
    for name in ("one", "two"):
        watched.write(f"top/{name}/{name}", name.encode())
    settled(watched)
    watched.write("top/one/new")
    top, swaps = watched.path / "top", [True]

    def swap(path: bytes) -> None:
        if not path and swaps and swaps.pop():
            (top / "one").rename(top / "kept")
            (top / "two").rename(top / "one")
            (top / "kept").rename(top / "two")

    assert watched.captured(rules=MeddlingRules(swap)) == look(watched.path)
    assert watched.agrees()


def test_a_write_after_the_file_was_read_is_in_the_next_capture(watched: Watched, later: None) -> None:
    watched.write("a/x", b"1")
    watched.write("b/y")
    settled(watched)
    watched.write("a/x", b"22")

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        yield from list(read_jobs(watched.root.path, jobs, watched.sink))
        watched.write("a/x", b"4444")

    watched.capture(read_files=read)
    assert watched.captured()[b"a/x"][2] == b"4444"
    assert watched.agrees()


def test_a_capture_that_failed_leaves_everything_to_the_next(watched: Watched, later: None) -> None:
    watched.write("a/x", b"1")
    settled(watched)
    watched.write("a/x", b"22")

    def fail(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        watched.capture(read_files=fail)
    assert watched.agrees()
    assert watched.captured()[b"a/x"][2] == b"22"


# --- nothing is missed


def test_a_change_made_just_before_is_never_missed(watched: Watched) -> None:
    folders = [b"a", b"b", b"c/d"]
    for folder in folders:
        watched.write(os.fsdecode(folder) + "/x")
    watched.capture()
    watched.watcher.take()
    for turn in range(2000):
        folder = folders[turn % 3]
        watched.watcher.settle(is_full=True)
        with (watched.path / os.fsdecode(folder) / "x").open("ab", buffering=0) as file:
            file.write(b"+")
            assert watched.watcher.take() == Changed({folder: {b"x"}}, set())
            watched.watcher.settle(is_full=True)
        assert watched.watcher.take() == Changed({folder: {b"x"}}, set())


class Editor:
    """Does random things to a root. No two contents are of one length, so that what is captured in the same moment in
    which it was written can be told apart by its size. With `links` files get other names, and nothing is left out: of
    what is written under a name that is not captured, nobody is told."""

    def __init__(self, top: Path, seed: int, *, links: bool) -> None:
        self._top = top
        self._random = random.Random(seed)
        self._size = 10
        self._left_out = [] if links else [".env"]
        self.edits: list[Callable[[], object]] = [
            *[self.write] * 6,
            *[self.make_tree] * 2,
            *[self.rename] * 4,
            self.remove,
            self.remove_tree,
            self.change_mode,
            self.link,
            self.link_hard if links else self.ignore,
            self.keep_time,
            self.swap,
            self.save_by_renaming,
        ]

    def edit(self) -> None:
        self._random.choice(self.edits)()

    def folders(self) -> list[Path]:
        return sorted(Path(folder) for folder, _, _ in os.walk(self._top))

    def files(self) -> list[Path]:
        return sorted(Path(folder, name) for folder, _, names in os.walk(self._top) for name in names)

    def content(self) -> bytes:
        self._size += 1
        return self._random.randbytes(self._size)

    def place(self) -> Path:
        name = self._random.choice(["a", "b", "c", "d.log", "e.tmp", "\udcff", *self._left_out])
        return self._random.choice(self.folders()) / name

    def write(self) -> None:
        place = self.place()
        if not place.is_dir() and not place.is_symlink():
            place.write_bytes(self.content())

    def make_tree(self) -> None:
        place = self.place()
        if not place.exists() and not place.is_symlink() and len(place.parts) - len(self._top.parts) < 6:
            for name in self._random.sample(["x", "y", "x/z", "y/z/w"], 2):
                (place / name).mkdir(parents=True, exist_ok=True)
                (place / name / "file").write_bytes(self.content())

    def rename(self) -> None:
        old = self._random.choice([*self.files(), *self.folders()[1:]] or [self._top])
        new = self.place()
        if old != self._top and not new.exists() and not new.is_symlink() and not new.is_relative_to(old):
            old.rename(new)

    def rename_file(self) -> None:
        files = self.files()
        new = self.place()
        if files and not new.is_dir():
            self._random.choice(files).replace(new)

    def write_log(self) -> None:
        """Write what lies beside a database, or seems to."""
        name = self._random.choice(["a-wal", "b-journal", "c-shm", "a"])
        (self._random.choice(self.folders()) / name).write_bytes(self.content())

    def swap(self) -> None:
        folders = self.folders()[1:]
        one, other = self._random.choice(folders or [self._top]), self._random.choice(folders or [self._top])
        if not one.is_relative_to(other) and not other.is_relative_to(one):
            kept = self._top / "kept"
            one.rename(kept)
            other.rename(one)
            kept.rename(other)

    def remove(self) -> None:
        for file in self._random.sample(self.files(), min(2, len(self.files()))):
            file.unlink()

    def remove_tree(self) -> None:
        folders = self.folders()[1:]
        if len(folders) > 8:
            chosen = self._random.choice(folders)
            for folder, below, names in os.walk(chosen, topdown=False):
                for path in [Path(folder, name) for name in [*names, *below]]:
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            if self._random.random() < 0.7:
                chosen.rmdir()

    def change_mode(self) -> None:
        chosen = self._random.choice([*self.files(), *self.folders()])
        if not chosen.is_symlink():
            chosen.chmod(self._random.choice([0o700, 0o755, 0o750]) if chosen.is_dir() else 0o600 + self._size % 64)

    def link(self) -> None:
        place = self.place()
        if not place.exists() and not place.is_symlink():
            self._size += 1
            place.symlink_to("t" * self._size)

    def link_hard(self) -> None:
        files = [file for file in self.files() if not file.is_symlink()]
        place = self.place()
        if files and not place.exists() and not place.is_symlink():
            os.link(self._random.choice(files), place)

    def ignore(self) -> None:
        rules = self._random.choice(["*.log\n", "*.tmp\n!*.log\n", "x/\n", "/a\n", "# nothing\n", "y/z\n"])
        place = self._random.choice(self.folders()) / self._random.choice([".gitignore", ".lastgoodignore"])
        self._size += 1
        place.write_bytes(rules.encode() + b"#" * self._size)

    def keep_time(self) -> None:
        files = [file for file in self.files() if not file.is_symlink()]
        if files:
            file = self._random.choice(files)
            before = file.stat()
            file.write_bytes(self.content())
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def save_by_renaming(self) -> None:
        files = [file for file in self.files() if not file.is_symlink()]
        if files:
            new = self._top / "new"
            new.write_bytes(self.content())
            new.replace(self._random.choice(files))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("moment", ["long settled", "just written"])
def test_after_any_edits_the_tree_is_that_of_a_full_capture(
    watched: Watched, request: pytest.FixtureRequest, seed: int, moment: str
) -> None:
    """B1, B10 P1: 150 captures in a row, with edits of all kinds between them."""
    if moment == "long settled":  # else all that was written would be looked at, whether it was told of or not
        request.getfixturevalue("later")
    editor = Editor(watched.path, seed, links=seed % 2 == 1)
    fewer = 0
    for turn in range(150):
        for _ in range(turn % 5):
            editor.edit()
        assert watched.agrees()
        fewer += len(set(watched.looked_at)) < len(watched.index.folders)
    assert fewer > 60 or moment == "just written"
    assert watched.watcher.look() == Changed({}, set())
    assert set(watched.watcher._numbers) == set(watched.index.folders)


@pytest.mark.parametrize("seed", range(6))
def test_after_edits_of_files_alone_the_tree_is_that_of_a_full_capture(
    watched: Watched, later: None, seed: int
) -> None:
    """Where no folder comes or goes, only the names that changed are examined."""
    editor = Editor(watched.path, seed, links=seed % 3 == 1)
    for number in range(40):
        watched.write(f"f{number % 3}/{number}", editor.content())
    settled(watched)
    editor.edits = [
        editor.write,
        editor.remove,
        editor.rename_file,
        editor.change_mode,
        editor.link,
        editor.keep_time,
        editor.save_by_renaming,
        editor.write_log,
        editor.link_hard if seed % 3 == 1 else editor.ignore if seed % 3 == 2 else editor.write,
    ]
    for turn in range(100):
        for _ in range(1 + turn % 4):
            editor.edit()
        assert watched.agrees()


def test_only_names_that_have_changed_are_examined(
    watched: Watched, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        watched.write(f"a/{number}", b"%d" % number)
    settled(watched)
    watched.write("a/3", b"changed")
    watched.write("a/new")
    (watched.path / "a/4").unlink()
    examined: list[bytes] = []
    examine = scan.examine

    def note(folder: int, visit: FolderVisit, name: bytes, *more: Any) -> None:
        examined.append(name)
        examine(folder, visit, name, *more)

    monkeypatch.setattr(scan, "examine", note)
    watched.capture()
    assert sorted(examined) == [b"3", b"new"]
    monkeypatch.undo()
    assert watched.agrees()


def test_a_folder_in_which_a_name_has_changed_is_not_taken_for_the_one_in_its_place(
    watched: Watched, later: None
) -> None:
    for name in ("a/one", "a/two", "b/one", "b/two"):
        watched.write(name, name.encode())
    settled(watched)
    watched.write("a/one", b"changed")
    watched.write("b/one", b"changed, too")
    for old, new in (("a", "kept"), ("b", "a"), ("kept", "b")):
        (watched.path / old).rename(watched.path / new)
    assert watched.agrees()


def test_what_could_not_be_read_is_tried_again_though_another_name_has_changed(watched: Watched, later: None) -> None:
    watched.write("a/x")
    watched.write("a/y")
    settled(watched)
    watched.write("a/x", b"changed")
    watched.capture(read_files=lambda jobs: iter([LeftOut(job.path, "unreadable", "no") for job in jobs]))
    watched.write("a/y", b"changed, too")
    assert watched.agrees()


def test_an_ignored_log_beside_a_file_that_has_changed_is_still_ignored(watched: Watched, later: None) -> None:
    watched.write(".gitignore", b"*-wal")
    for name in ("a/data", "a/data-wal", "a/other"):
        watched.write(name)
    settled(watched)
    watched.write("a/data", b"changed")
    assert watched.agrees()


def test_a_file_that_is_moved_over_one_that_nobody_examines_is_not_lost(watched: Watched, later: None) -> None:
    """In a folder of which only some names were to be examined, while the capture was on its way there."""
    for name in ("a/one", "a/other", "b/moving", "b/one"):
        watched.write(name, name.encode())
    settled(watched)
    watched.write("a/one", b"changed")
    watched.write("b/one", b"changed, too")

    def move(path: bytes) -> None:
        if not path and (watched.path / "b/moving").exists():
            (watched.path / "b/moving").rename(watched.path / "a/other")

    assert watched.captured(rules=MeddlingRules(move)) == look(watched.path)
    assert watched.agrees()


def test_rules_that_change_meanwhile_hold_for_all_folders(watched: Watched, later: None) -> None:
    for name in ("a/b/x.log", "a/c/x.log", "a/d/x"):
        watched.write(name, b"old")
    settled(watched)
    watched.write("a/b/x.log", b"new")
    watched.write("a/c/x.log", b"new")

    class Late(Rules):
        def enter(self, path: bytes, names: Collection[bytes]) -> RuleLevel:
            found = super().enter(path, names)
            if path == b"a/b":
                watched.write("a/.gitignore", b"*.log")
            return found

    mine = watched.capture(rules=Late(watched._read))
    assert mine.tree == watched.everything().tree
    assert watched.agrees()


# --- doubt


def test_nothing_is_known_at_first_and_with_another_index(watched: Watched) -> None:
    watched.write("a/x")
    assert watched.watcher.take() is None
    assert watched.watcher.take() is None
    watched.capture()
    assert watched.watcher.take() == Changed({}, set())
    assert watched.watcher.take() is None  # nobody has said that it was captured
    watched.capture()
    watched.index.forget()
    assert watched.watcher.take() is None


def test_events_that_the_kernel_dropped_make_it_doubt(watched: Watched, later: None) -> None:
    watched.write("a/x")
    watched.write("b/y")
    settled(watched)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    one, other = watched.path / "a/x", watched.path / "b/y"
    for _ in range(limit // 2 + 10):  # two in turn: the same one twice in a row is told once
        os.utime(one)
        os.utime(other)
    watched.write("b/late", b"after the queue was full")
    assert watched.watcher.look() is None
    assert watched.agrees()
    watched.write("b/late", b"told again")
    assert watched.agrees()
    assert set(watched.looked_at) == {b"", b"b"}


def test_more_events_than_are_worth_reading_make_it_doubt(
    watched: Watched,
    later: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled(watched)
    monkeypatch.setattr(watch, "MAX_EVENTS", 10)
    for number in range(20):
        watched.write(f"file{number}")
    assert watched.watcher.look() is None
    assert watched.agrees()


@pytest.mark.parametrize("call", ["inotify_init1", "inotify_add_watch"])
def test_at_the_limit_of_watches_everything_is_looked_at(
    watched: Watched,
    later: None,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
) -> None:
    class Exhausted:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return (lambda *_: -1) if name == call else getattr(system, name)

    system = watch._system()
    monkeypatch.setattr(watch, "_system", Exhausted)
    watched.write("a/x")
    settled(watched)
    assert watched.watcher.has_failed
    monkeypatch.undo()
    watched.write("a/x", b"changed")
    assert watched.watcher.take() is None
    assert watched.agrees()


def test_a_limit_reached_with_a_new_folder_is_noticed(
    watched: Watched,
    later: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched.write("a/x")
    settled(watched)
    assert not watched.watcher.has_failed

    class Exhausted:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return (lambda *_: -1) if name == "inotify_add_watch" else getattr(system, name)

    system = watch._system()
    monkeypatch.setattr(watch, "_system", Exhausted)
    watched.write("new/x")
    assert watched.agrees()
    watched.write("new/x", b"changed")
    assert watched.agrees()


def test_a_folder_in_two_places_is_never_relied_on(watched: Watched, later: None) -> None:
    """As with a mount: the kernel tells of it once, and of one of its places."""
    watched.write("a/x")
    watched.write("b/x")
    settled(watched)
    folder = os.open(watched.path / "a", os.O_RDONLY)
    for path in (b"a", b"b"):
        watched.watcher.add(path, folder)
    os.close(folder)
    assert watched.watcher.take() is None


def test_a_folder_that_is_not_watched_is_noticed(watched: Watched, later: None) -> None:
    watched.write("a/x")
    settled(watched)
    watched.index.folders[b"not added"] = watched.index.folders[b"a"]
    watched.watcher.settle(is_full=True)
    assert watched.watcher.take() is None


def test_without_inotify_everything_is_looked_at(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    watched.write("a/x")
    for _ in range(2):
        assert watched.agrees()
        assert b"a" in watched.looked_at
    assert watched.watcher.take() is None


def test_another_root_in_its_place_is_seen(watched: Watched, tmp_path: Path, later: None) -> None:
    watched.write("a/x", b"old")
    settled(watched)
    watched.path.rename(tmp_path / "away")
    watched.path.mkdir()
    watched.write("a/x", b"another")
    assert watched.agrees()
    watched.write("a/x", b"and once more")
    assert watched.agrees()
    assert set(watched.looked_at) == {b"", b"a"}


def test_a_forked_child_knows_nothing_and_takes_nothing_from_its_parent(
    watched: Watched,
    later: None,
) -> None:
    watched.write("a/x")
    settled(watched)
    watched.write("a/x", b"changed")
    child = os.fork()
    if child == 0:
        try:
            is_right = watched.watcher.take() is None and watched.agrees() and watched.agrees()
            watched.write("a/y", b"by the child")
            os._exit(0 if is_right and watched.agrees() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert watched.watcher.look() == Changed({b"a": {b"x", b"y"}}, set())
    assert watched.agrees()
    assert set(watched.looked_at) == {b"", b"a"}


def test_a_watcher_that_is_dropped_gives_its_descriptor_back(
    tmp_path: Path, count_descriptors: Callable[[], int]
) -> None:
    before = count_descriptors()
    for _ in range(3):
        bench = Watched(tmp_path)
        bench.capture()
        assert bench.watcher.look() is not None
        del bench
    assert count_descriptors() == before


# --- the engine


@pytest.fixture
def handle(store: lastgood.Store, tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "work/a").mkdir(parents=True)
    (tmp_path / "work/b").mkdir()
    (tmp_path / "work/a/x").write_bytes(b"1")
    (tmp_path / "work/b/y").write_bytes(b"1")
    opened = Workspace(store._engine, tmp_path / "work", watch=True)
    yield opened
    opened.close()


def visits(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The folders that captures look at from now on."""
    looked_at: list[bytes] = []
    visit = Scan._visit

    def note(scan: Scan, folder: int, path: bytes) -> FolderVisit:
        looked_at.append(path)
        return visit(scan, folder, path)

    monkeypatch.setattr(Scan, "_visit", note)
    return looked_at


def save(workspace: Workspace, store: lastgood.Store) -> bytes:
    """Capture and commit, as a task does."""
    task = store.task("t", workspace=workspace.roots[0].path)
    task._handle.workspace = workspace
    task.save({})
    assert task.head is not None
    assert task.head.record.files is not None
    return task.head.record.files[0].tree


def fresh(path: str) -> bytes:
    """The tree that a capture of everything finds."""
    root = Root("", path)
    return capture(root, Rules.of(root), StatIndex(), Memory()).tree


@pytest.mark.usefixtures("later")
def test_a_save_looks_at_what_changed(
    handle: Workspace, store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = visits(monkeypatch)
    save(handle, store)
    assert set(looked_at) == {b"", b"a", b"b"}
    looked_at.clear()
    (tmp_path / "work/a/x").write_bytes(b"22")
    tree = save(handle, store)
    assert set(looked_at) == {b"", b"a"}
    assert tree == fresh(handle.roots[0].path)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("why", ["time", "forgotten", "closed", "other process"])
def test_everything_is_looked_at_when_there_is_a_reason(
    handle: Workspace, store: lastgood.Store, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    save(handle, store)
    looked_at = visits(monkeypatch)
    match why:
        case "time":
            now = time.monotonic()
            monkeypatch.setattr(time, "monotonic", lambda: now + watch.FULL_SECONDS)
        case "forgotten":
            handle.forget()
        case "closed":
            handle.close()
        case "other process":
            other = Workspace(store._engine, handle.roots[0].path)
            Path(handle.roots[0].path, "b/y").write_bytes(b"changed")
            other.capture(None)
            looked_at.clear()
    tree = save(handle, store)
    assert set(looked_at) == {b"", b"a", b"b"}
    assert tree == fresh(handle.roots[0].path)


def test_people_are_told_once_when_nothing_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    alerts: list[str] = []
    (tmp_path / "work").mkdir()
    with lastgood.open(tmp_path / "store", on_alert=lambda alert: alerts.append(alert.message)) as store:
        workspace = Workspace(store._engine, tmp_path / "work", watch=True)
        for _ in range(3):
            workspace.capture(None)
        workspace.close()
    assert ["cannot be watched" in alert for alert in alerts] == [True]


@pytest.mark.usefixtures("later")
def test_closing_keeps_what_was_seen(handle: Workspace, store: lastgood.Store, tmp_path: Path) -> None:
    save(handle, store)
    (tmp_path / "work/a/x").write_bytes(b"22")
    tree = save(handle, store)
    (file,) = (store._engine.local.path() / "index").iterdir()
    path, store_id = handle.roots[0].path, store.info().id
    assert StatIndex(file, path, store_id).refresh().folders[b""].id != tree
    handle.close()
    assert StatIndex(file, path, store_id).refresh().folders[b""].id == tree
    handle.close()


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("watch", [False, True])
def test_after_a_restore_only_what_it_touched_is_looked_at(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: bool
) -> None:
    """B3: and the checkpoint has what lies there."""
    work = tmp_path / "work"
    for path in ("a/x", "b/y", "b/deep/z", "c/w"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("1")
    task = store.task("t", workspace=work, watch=watch)
    first = task.save({})
    (work / "a/x").write_text("22")
    (work / "b/deep/z").unlink()
    (work / "b/deep").rmdir()
    (work / "new").mkdir()
    (work / "new/file").write_text("new")
    task.save({})
    looked_at = visits(monkeypatch)
    assert first.record.files is not None
    task.restore(first)
    assert looked_at.count(b"c") == (0 if watch else 1)
    for move in (task.undo, lambda: task.restore(first, what="files"), task.undo, task.redo):
        looked_at.clear()
        move()
        assert looked_at.count(b"c") <= 1
        assert task.head is not None
        assert task.head.record.files is not None
        assert task.head.record.files[0].tree == fresh(str(work))
    assert fresh(str(work)) == first.record.files[0].tree


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("watch", [False, True])
def test_what_a_restore_records_is_what_a_full_capture_finds(
    store: lastgood.Store, tmp_path: Path, watch: bool, seed: int
) -> None:
    """B3, B10: after any edits, whether folders came and went or not."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    editor = Editor(work, seed, links=False)
    for number in range(30):
        (work / f"f{number % 3}").mkdir(exist_ok=True)
        (work / f"f{number % 3}/{number}").write_bytes(editor.content())
    task = store.task("t", workspace=work, watch=watch)
    saved = [task.save({})]
    of_files: list[Callable[[], object]] = [editor.write, editor.remove, editor.link, editor.save_by_renaming]
    of_all = editor.edits
    for turn in range(12):
        editor.edits = of_all if turn % 3 == 2 else of_files
        for _ in range(1 + turn % 5):
            editor.edit()
        made = task.restore(random.Random(turn).choice(saved), what="files").checkpoint
        assert made.record.files is not None
        assert made.record.files[0].tree == fresh(str(work))
        editor.write()
        saved.append(task.save({"turn": turn}))
        assert saved[-1].record.files is not None
        assert saved[-1].record.files[0].tree == fresh(str(work))


@pytest.mark.usefixtures("later")
def test_a_restore_and_what_follows_it_are_right(handle: Workspace, store: lastgood.Store, tmp_path: Path) -> None:
    """B3"""
    task = store.task("t", workspace=tmp_path / "work")
    task._handle.workspace = handle
    first = task.save({})
    (tmp_path / "work/a/x").write_bytes(b"22")
    (tmp_path / "work/new").mkdir()
    (tmp_path / "work/new/z").write_bytes(b"new")
    task.save({})
    task.restore(first, what="files")
    assert look(tmp_path / "work").keys() == {b"a", b"a/x", b"b", b"b/y"}
    (tmp_path / "work/b/y").write_bytes(b"4444")
    task.save({})
    assert task.head is not None
    assert task.head.record.files is not None
    assert task.head.record.files[0].tree == fresh(str(tmp_path / "work"))


def test_paths_of_what_is_told_are_those_of_the_tree(watched: Watched, later: None) -> None:
    raw = os.fsdecode(b"\xff\n")
    watched.write(f"{raw}/{raw}/x")
    settled(watched)
    watched.write(f"{raw}/{raw}/y")
    (watched.path / raw / "z").mkdir()
    name = os.fsencode(raw)
    assert watched.watcher.look() == Changed({name: {b"z"}, join(name, name): {b"y"}}, {join(name, b"z")})
