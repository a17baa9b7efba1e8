"""Capturing files: exactly what lies there, nothing from elsewhere, and only what changed is read."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.engine import reader
from lastgood.errors import DiskFullError, InvalidError, UnavailableError
from lastgood.files.capture import Captured, capture
from lastgood.files.index import StatIndex, find_newest
from lastgood.files.read import SMALL, Content, LeftOut, ReadJob, read_apart, read_content, read_jobs
from lastgood.files.roots import Root
from lastgood.files.rules import RuleLevel, Rules
from lastgood.local import database
from lastgood.local.paths import GONE, MAX_DEPTH, FolderWalk, is_settled, join, open_file, open_folder, signature
from lastgood.model.identity import SHA256
from lastgood.model.tree import File, Folder, Left, Link, decode_chunks, decode_tree

CANARY = b"nobody may read this"
Found = tuple[object, ...]


class Memory:
    """Somewhere to put blobs."""

    blob_id = SHA256

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self.puts: list[bytes] = []
        self.asked: list[bytes] = []

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        self.asked += ids
        return {key for key in ids if key in self.blobs}

    def put(self, data: bytes) -> bytes:
        key = sha256(data).digest()
        self.puts.append(key)
        self.blobs[key] = data
        return key

    @property
    def size(self) -> int:
        return sum(map(len, self.blobs.values()))

    def content(self, file: File) -> bytes:
        if file.chunks is None:
            return self.blobs[file.digest]
        whole = b"".join(self.blobs[chunk.digest] for chunk in decode_chunks(self.blobs[file.chunks], file))
        assert sha256(whole).digest() == file.digest
        return whole

    def rebuild(self, tree: bytes, path: bytes = b"") -> dict[bytes, Found]:
        """What a tree says lies there, by path."""
        found: dict[bytes, Found] = {}
        for entry in decode_tree(self.blobs[tree]):
            here = join(path, entry.name)
            match entry:
                case File():
                    found[here] = "file", entry.mode, self.content(entry)
                case Link():
                    found[here] = "link", entry.target
                case Left():
                    found[here] = "left", entry.why
                case Folder():
                    found[here] = "folder", entry.mode
                    found |= self.rebuild(entry.tree, here)
        return found


class Putting:
    """A sink that does something else at each blob."""

    blob_id = SHA256

    def __init__(self, put: Callable[[bytes], bytes]) -> None:
        self.put = put


def look(root: Path) -> dict[bytes, Found]:
    """What lies on disk, by path, as os.walk sees it."""
    found: dict[bytes, Found] = {}
    for folder, folders, files in os.walk(root):
        for path in [Path(folder, name) for name in [*folders, *files]]:
            here, status = os.fsencode(path.relative_to(root)), path.lstat()
            if stat.S_ISLNK(status.st_mode):
                found[here] = "link", os.fsencode(path.readlink())
            elif stat.S_ISDIR(status.st_mode):
                found[here] = "folder", stat.S_IMODE(status.st_mode)
            else:
                found[here] = "file", stat.S_IMODE(status.st_mode), path.read_bytes()
    return found


def listed(folder: Path) -> list[str]:
    """The names in a folder, in the order in which a scan comes to them."""
    return [path.name for path in folder.iterdir()]


class Bench:
    """A root, its index and a memory of blobs."""

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self.path = path
        self.root = Root("", str(path))
        self.index = StatIndex()
        self.sink = Memory()
        self.last: Captured | None = None

    def rules(self) -> Rules:
        return Rules(self._read)

    def _read(self, path: bytes) -> bytes | None:
        file = self.path / os.fsdecode(path)
        return file.read_bytes() if file.is_file() else None

    def capture(self, **options: object) -> Captured:
        """As the engine does: the tree before is trusted."""
        options.setdefault("trusted", self.last.tree if self.last else None)
        rules = options.pop("rules", None) or self.rules()
        self.last = capture(self.root, rules, self.index, self.sink, **options)  # type: ignore[arg-type]
        return self.last

    def captured(self, **options: object) -> dict[bytes, Found]:
        return self.sink.rebuild(self.capture(**options).tree)

    def write(self, name: str, data: bytes = b"content") -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "root")


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures happen long after all writes, so that time stamps can be trusted."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60_000_000_000)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures happen in the moment of the last write, so that time stamps cannot be trusted."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() - 60_000_000_000)


class MeddlingRules(Rules):
    """Does something each time that a folder has been listed, before the next one is."""

    def __init__(self, meddle: Callable[[bytes], None]) -> None:
        super().__init__(lambda path: None)
        self._meddle = meddle

    def enter(self, path: bytes, names: Collection[bytes]) -> RuleLevel:
        self._meddle(path)
        return super().enter(path, names)


# --- fidelity


def test_a_capture_is_exactly_what_lies_there(bench: Bench) -> None:
    """B1, B3: content, modes, links, empty folders, raw names."""
    bench.write("a.txt", b"a")
    bench.write("private", b"p").chmod(0o600)
    bench.write("tool", b"#!").chmod(0o4755)
    bench.write("sub/deep/x", b"")
    (bench.path / "empty").mkdir(mode=0o711)
    os.link(bench.path / "a.txt", bench.path / "sub/hard")
    for name, target in [("dangling", "nowhere"), ("loop", "loop"), ("out", "/etc"), ("up", "../..")]:
        (bench.path / name).symlink_to(target)
    for raw in (b"\xff\xfe", b"new\nline", b" space ", "ü".encode(), b"-dash", b"back\\slash"):
        bench.write(os.fsdecode(raw), raw)
    found = bench.captured()
    assert found == look(bench.path)
    assert found[b"tool"] == ("file", 0o4755, b"#!")
    assert found[b"sub/hard"] == ("file", 0o644 & ~_umask(), b"a")
    assert found[b"out"] == ("link", b"/etc")
    assert bench.last is not None
    assert (bench.last.file_count, bench.last.partial, bench.last.skipped) == (len(found) - 3, False, ())
    assert bench.last.total_size == sum(path.lstat().st_size for path in bench.path.rglob("*") if _is_file(path))


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_an_empty_root_is_an_empty_tree(bench: Bench) -> None:
    assert bench.captured() == {}


def test_git_is_not_captured_and_nested_repositories_are_ordinary(bench: Bench) -> None:
    """Whatever `.git` is and however it is spelled; that it was there is all that is noted."""
    bench.write(".git/config", CANARY)
    bench.write("nested/.git/HEAD", CANARY)
    bench.write("nested/code.py")
    bench.write("worktree/.git", CANARY)
    bench.write("shout/.GIT/x", CANARY)
    bench.write(".gitmodules")
    repositories = {b".git", b"nested/.git", b"worktree/.git", b"shout/.GIT"}
    found = bench.captured()
    assert set(found) - repositories == {b"nested", b"nested/code.py", b"worktree", b"shout", b".gitmodules"}
    assert {found[path] for path in repositories} == {("left", "repository")}
    assert CANARY not in bench.sink.blobs.values()


def test_what_changes_its_kind_is_seen_as_what_it_is(bench: Bench, later: None) -> None:
    path = bench.path / "thing"
    bench.write("thing/inner")
    assert bench.captured() == look(bench.path)
    (path / "inner").unlink()
    path.rmdir()
    path.symlink_to("elsewhere")
    assert bench.captured() == look(bench.path)
    path.unlink()
    path.write_bytes(b"file now")
    assert bench.captured() == look(bench.path)
    path.unlink()
    path.mkdir()
    assert bench.captured() == look(bench.path)


def test_sockets_and_pipes_are_left_and_reported_each_time(
    bench: Bench, later: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(bench.path / "pipe")
    monkeypatch.chdir(bench.path)  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for _ in range(3):
            assert bench.captured() == {b"pipe": ("left", "special"), b"socket": ("left", "special")}
            assert bench.last is not None
            assert {(skipped.path, skipped.why) for skipped in bench.last.skipped} == {
                (b"pipe", "special"),
                (b"socket", "special"),
            }


def test_what_rules_leave_out_is_remembered_and_secrets_are_reported(bench: Bench, later: None) -> None:
    bench.write(".gitignore", b"*.log\nbuild/\n")
    bench.write("a.log", CANARY)
    bench.write("build/out", CANARY)
    bench.write(".env", CANARY)
    for _ in range(2):
        found = bench.captured()
        assert bench.last is not None
        assert found.pop(b".gitignore")[0] == "file"
        assert found == {b"a.log": ("left", "ignored"), b"build": ("left", "ignored"), b".env": ("left", "secret")}
        assert bench.last.skipped == (LeftOut(b".env", "secret"),)
    assert CANARY not in bench.sink.blobs.values()


def test_other_rules_decide_anew_about_files_that_did_not_change(bench: Bench, later: None) -> None:
    bench.write("sub/a.log")
    bench.write(".gitignore", b"# nothing\n")
    assert bench.captured()[b"sub/a.log"][0] == "file"
    bench.write(".gitignore", b"*.log\n")
    assert bench.captured()[b"sub/a.log"] == ("left", "ignored")
    bench.write(".gitignore", b"# no more\n")
    assert bench.captured()[b"sub/a.log"][0] == "file"


def test_the_store_itself_is_left_out(bench: Bench) -> None:
    bench.write("a")
    bench.write("var/store/catalog.db", CANARY)
    leave = [str(bench.path / "var/store"), "/elsewhere"]
    for _ in range(2):
        assert bench.captured(leave=leave)[b"var/store"] == ("left", "store")
    assert CANARY not in bench.sink.blobs.values()


def test_what_belongs_to_the_store_is_decided_anew_though_nothing_changed(bench: Bench, later: None) -> None:
    bench.write("var/store/catalog.db")
    for leave, kind in [([], "folder"), ([str(bench.path / "var/store")], "left"), ([], "folder")]:
        assert bench.captured(leave=leave)[b"var/store"][0] == kind


def test_folders_nested_too_deeply_are_reported(bench: Bench) -> None:
    with FolderWalk(str(bench.path)) as walk:
        here = os.dup(walk.root)
        for _ in range(MAX_DEPTH + 2):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
    captured = bench.capture()
    assert [(skipped.why, skipped.path.count(b"/")) for skipped in captured.skipped] == [("unreadable", MAX_DEPTH)]


@pytest.fixture
def nobody() -> Iterator[Bench]:
    """A root that this process reaches as a user whom permissions bind."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        bench = Bench(Path(folder) / "root")
        bench.path.chmod(0o755)
        yield bench
        os.seteuid(os.getuid())


def test_what_cannot_be_read_is_left_and_reported_and_the_rest_goes_on(nobody: Bench, later: None) -> None:
    """B7"""
    nobody.write("good").chmod(0o644)
    nobody.write("bad", CANARY).chmod(0)
    nobody.write("locked/x", CANARY)
    (nobody.path / "locked").chmod(0)
    nobody.write("listable/x", CANARY)
    (nobody.path / "listable").chmod(0o444)
    if os.getuid() == 0:
        os.seteuid(65534)
    for _ in range(2):
        found = nobody.captured()
        assert nobody.last is not None
        assert {path: entry[:2] for path, entry in found.items()} == {
            b"good": ("file", 0o644),
            b"bad": ("left", "unreadable"),
            b"locked": ("left", "unreadable"),
            b"listable": ("folder", 0o444),
            b"listable/x": ("left", "unreadable"),
        }
        assert {skipped.path for skipped in nobody.last.skipped} == {b"bad", b"locked", b"listable/x"}
        assert {skipped.detail for skipped in nobody.last.skipped} == {os.strerror(errno.EACCES)}
    os.seteuid(os.getuid())
    for name in ("listable", "locked"):
        (nobody.path / name).chmod(0o755)
    if os.getuid() != 0:  # root reads it as it is
        (nobody.path / "bad").chmod(0o600)
    assert nobody.captured() == look(nobody.path)


def test_a_folder_that_can_no_longer_be_read_is_left_though_its_parent_did_not_change(
    nobody: Bench, later: None
) -> None:
    nobody.write("top/a")
    nobody.write("top/locked/x")
    (nobody.path / "top").chmod(0o755)
    nobody.capture()
    assert nobody.capture().new_bytes == 0
    (nobody.path / "top/locked").chmod(0)
    if os.getuid() == 0:
        os.seteuid(65534)
    for _ in range(2):
        found = nobody.captured()
        assert nobody.last is not None
        assert (set(found), found[b"top/locked"]) == ({b"top", b"top/a", b"top/locked"}, ("left", "unreadable"))
        assert [skipped.path for skipped in nobody.last.skipped] == [b"top/locked"]
    os.seteuid(os.getuid())
    (nobody.path / "top/locked").chmod(0o755)
    assert nobody.captured() == look(nobody.path)


def test_a_root_that_is_gone_is_an_error_for_people(bench: Bench) -> None:
    bench.path.rmdir()
    with pytest.raises(UnavailableError, match="workspace cannot be read"):
        bench.capture()


# --- the index


def test_nothing_is_read_or_put_when_nothing_changed(bench: Bench, later: None) -> None:
    bench.write("a/b/c")
    bench.write("a/d", bytes(SMALL))
    (bench.path / "a/link").symlink_to("d")
    first = bench.capture()
    bench.sink.puts.clear()
    second = bench.capture()
    assert second == first._replace(new_bytes=0, records=second.records)
    assert find_newest(second.records) == find_newest(first.records)
    assert (bench.sink.puts, bench.sink.asked) == ([], [])


def test_only_what_changed_is_read(bench: Bench, later: None) -> None:
    """B1"""
    bench.write("a/one", b"1")
    bench.write("a/two", b"22")
    bench.write("b/three", b"333")
    bench.capture()
    bench.sink.puts.clear()
    bench.write("a/two", b"4444")
    assert bench.captured() == look(bench.path)
    assert bench.last is not None
    assert bench.last.new_bytes == 4
    assert len(bench.sink.puts) == 3  # the file, its folder, the root


def test_a_file_written_in_the_moment_of_the_capture_is_not_trusted(bench: Bench, at_once: None) -> None:
    """The second write may leave the same time stamps, so the first capture must not be believed."""
    file = bench.write("a", b"1111")
    bench.capture()
    assert bench.index.folders[b""].known() == {}
    stamp = file.stat().st_mtime_ns
    for turn in range(50):
        data = b"%04d" % turn
        file.write_bytes(data)
        os.utime(file, ns=(stamp, stamp))
        assert bench.captured()[b"a"][2] == data


def test_a_changed_file_with_its_old_size_and_time_is_seen(bench: Bench, later: None) -> None:
    file = bench.write("a", b"1111")
    before = file.stat()
    bench.capture()
    assert set(bench.index.folders[b""].known()) == {b"a"}
    file.write_bytes(b"2222")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert bench.captured()[b"a"][2] == b"2222"


def test_a_file_that_says_to_be_from_the_future_is_read_once(bench: Bench, later: None) -> None:
    """H4: anyone can set an mtime, but no write leaves the ctime as it was."""
    file = bench.write("a", b"1111")
    future = time.time_ns() + 3_600_000_000_000
    os.utime(file, ns=(future, future))
    assert [bench.capture().new_bytes for _ in range(2)] == [4, 0]
    file.write_bytes(b"2222")
    os.utime(file, ns=(future, future))
    assert bench.captured()[b"a"][2] == b"2222"


def test_settled_means_older_than_the_clock_is_coarse() -> None:
    began = 1_000_000_000_123_456_789
    for age, settled in [(0, False), (10_000_000, False), (20_000_000, False), (20_000_001, True)]:
        stamp = began - age
        assert is_settled((0, 0, stamp, stamp, 0, 0), began) is settled
        assert is_settled((0, 0, 0, stamp, 0, 0), began) is settled
        assert is_settled((0, 0, began * 2, stamp, 0, 0), began) is settled
    whole = 1_000_000_000_000_000_000
    assert not is_settled((0, 0, whole, whole, 0, 0), whole + 2_000_000_000)
    assert is_settled((0, 0, whole, whole, 0, 0), whole + 2_020_000_001)


def test_modes_of_files_and_folders_are_seen_though_nothing_else_changed(bench: Bench, later: None) -> None:
    bench.write("a/b/file").chmod(0o644)
    (bench.path / "a/b").chmod(0o755)
    bench.capture()
    (bench.path / "a/b").chmod(0o700)
    assert bench.captured() == look(bench.path)
    (bench.path / "a/b/file").chmod(0o600)
    assert bench.captured() == look(bench.path)


def test_names_are_seen_though_no_file_changed(bench: Bench, later: None) -> None:
    bench.write(".gitignore", b"*.log\n")
    (bench.path / "one").mkdir()
    assert set(bench.captured()) == {b".gitignore", b"one"}
    (bench.path / "one").rename(bench.path / "two")
    assert set(bench.captured()) == {b".gitignore", b"two"}
    bench.write("new.log")
    assert set(bench.captured()) == {b".gitignore", b"two", b"new.log"}


def test_a_saved_index_is_the_same_when_loaded(bench: Bench, later: None, tmp_path: Path) -> None:
    file = tmp_path / "cache/index"
    bench.index = StatIndex(file, bench.root.path, "store").refresh()
    bench.write("a/b", b"12345")
    (bench.path / os.fsdecode(b"\xff")).write_bytes(bytes(SMALL))
    bench.capture()
    bench.index.save()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    bench.index = StatIndex(file, bench.root.path, "store").refresh()
    assert bench.capture().new_bytes == 0


@pytest.mark.parametrize("how", ["flipped", "short", "empty", "other format", "other root", "other store", "missing"])
def test_an_index_that_is_damaged_or_foreign_is_empty(bench: Bench, later: None, tmp_path: Path, how: str) -> None:
    file = tmp_path / "index"
    bench.index = StatIndex(file, bench.root.path, "store").refresh()
    bench.write("a", b"12345")
    bench.capture()
    bench.index.save()
    data = file.read_bytes()
    damaged = {
        "flipped": [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 7)],
        "short": [data[:-1], data[: len(data) // 2]],
        "empty": [b""],
        "other format": [b"lastgood index 0\n" + data[17:]],
    }.get(how, [data])
    for version in damaged:
        file.write_bytes(version)
        if how == "missing":
            file.unlink()
        root = "/other" if how == "other root" else bench.root.path
        index = StatIndex(file, root, "another" if how == "other store" else "store").refresh()
        assert index.folders == {}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")])
def test_an_index_that_is_no_file_is_empty_and_replaced(
    bench: Bench, later: None, tmp_path: Path, make: Callable[[Path], object]
) -> None:
    """G6: nobody waits for who would write into a fifo. A folder stays, and the index is not kept."""
    file = tmp_path / "index"
    make(file)
    bench.index = StatIndex(file, bench.root.path).refresh()
    assert bench.index.folders == {}
    bench.write("a", b"12345")
    bench.capture()
    bench.index.save()
    assert file.is_file() is (make is not os.mkdir)
    assert bool(StatIndex(file, bench.root.path).refresh().folders) is file.is_file()
    bench.write("a", b"1")
    bench.capture()
    bench.index.save()
    assert StatIndex(file, bench.root.path).refresh().folders == (bench.index.folders if file.is_file() else {})


def test_an_index_that_is_a_fifo_somebody_holds_is_empty(bench: Bench, tmp_path: Path) -> None:
    os.mkfifo(file := tmp_path / "index")
    writer = os.open(file, os.O_RDWR)
    assert StatIndex(file, bench.root.path).refresh().folders == {}
    os.close(writer)


def test_an_index_grows_by_what_changed_until_it_is_written_anew(bench: Bench, later: None, tmp_path: Path) -> None:
    file = tmp_path / "index"
    bench.index = StatIndex(file, bench.root.path).refresh()
    for number in range(50):
        bench.write(f"{number}/file", b"1")
    bench.capture()
    bench.index.save()
    sizes = [file.stat().st_size]
    for number in range(40):
        before = file.read_bytes()
        bench.write(f"{number}/file", b"22")
        bench.write(f"{number}/{number}/new", b"new")
        (bench.path / f"{number + 5}/file").unlink()
        (bench.path / f"{number + 5}").rmdir()
        bench.capture()
        bench.index.save()
        bench.write(f"{number + 5}/file", b"back")
        sizes.append(file.stat().st_size)
        if sizes[-1] > sizes[-2]:
            assert file.read_bytes().startswith(before)
        loaded = StatIndex(file, bench.root.path).refresh()
        assert loaded.folders == bench.index.folders
    assert max(sizes) < 2.5 * min(sizes)
    assert sizes != sorted(sizes), "it was written anew"


@pytest.mark.parametrize("how", ["flipped", "short", "longer"])
def test_changes_of_an_index_that_are_damaged_count_for_nothing(
    bench: Bench, later: None, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "index"
    bench.index = StatIndex(file, bench.root.path).refresh()
    for number in range(20):
        bench.write(f"{number}/file", b"1")
    bench.capture()
    bench.index.save()
    whole, first = file.stat().st_size, dict(bench.index.folders)
    bench.write("7/file", b"22")
    bench.capture()
    bench.index.save()
    data, second = file.read_bytes(), dict(bench.index.folders)
    assert len(data) > whole
    damaged = {
        "flipped": [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(whole, len(data), 5)],
        "short": [data[:at] for at in range(whole, len(data), 5)],
        "longer": [data + b"x", data + bytes(100)],
    }[how]
    for version in damaged:
        file.write_bytes(version)
        index = StatIndex(file, bench.root.path).refresh()
        assert index.folders == (second if how == "longer" else first)
        bench.index = index
        bench.write("8/file", os.urandom(8))
        bench.capture()
        bench.index.save()
        assert StatIndex(file, bench.root.path).refresh().folders == bench.index.folders


def test_an_index_that_cannot_be_saved_stops_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.index = StatIndex(tmp_path / "file/index", bench.root.path).refresh()
    (tmp_path / "file").write_bytes(b"in the way")
    bench.write("a")
    bench.capture()
    bench.index.save()
    assert not StatIndex(tmp_path / "file/index", bench.root.path).refresh().folders


@pytest.mark.parametrize("large", [False, True])
def test_the_index_is_no_proof_that_a_blob_is_stored(bench: Bench, later: None, large: bool) -> None:
    """What the trusted tree does not vouch for is checked, at once, and read again if it is gone."""
    bench.write("sub/a", os.urandom(3 << 20) if large else b"a")
    bench.write("sub/b", b"b")
    first = bench.capture()
    assert bench.capture(trusted=None).new_bytes == 0
    assert bench.sink.asked
    for key in list(bench.sink.blobs):
        gone = bench.sink.blobs.pop(key)
        assert bench.capture(trusted=b"another tree").tree == first.tree
        assert bench.sink.blobs[key] == gone


# --- what changes meanwhile


@pytest.fixture(params=["just written", "long settled"])
def age(request: pytest.FixtureRequest) -> None:
    """Folders whose time stamps are too new to tell of a change, and folders whose stamps do tell."""
    request.getfixturevalue("later" if request.param == "long settled" else "at_once")


def test_a_file_that_moves_into_a_folder_already_listed_is_not_lost(bench: Bench, age: None) -> None:
    (bench.path / "a").mkdir()
    (bench.path / "b").mkdir()
    first, other = listed(bench.path)
    bench.write(f"{other}/x", b"moving")

    def move(path: bytes) -> None:
        if path == os.fsencode(first) and (bench.path / other / "x").exists():
            (bench.path / other / "x").rename(bench.path / first / "x")

    found = bench.captured(rules=MeddlingRules(move))
    assert found[os.fsencode(first) + b"/x"][2] == b"moving"
    assert bench.last is not None
    assert bench.last.skipped == ()


def test_a_file_that_moves_over_another_one_already_seen_is_not_lost(bench: Bench, age: None) -> None:
    bench.write("a/x", b"from a")
    bench.write("b/x", b"from b")
    first, other = listed(bench.path)

    def move(path: bytes) -> None:
        if path == os.fsencode(other) and (bench.path / other / "x").exists():
            (bench.path / other / "x").rename(bench.path / first / "x")

    found = bench.captured(rules=MeddlingRules(move))
    assert found[os.fsencode(first) + b"/x"][2] == b"from " + other.encode()


@pytest.mark.parametrize(("moment", "times"), [("at_once", 2), ("later", 1)])
def test_only_folders_whose_time_stamps_cannot_tell_are_looked_at_twice(
    bench: Bench, request: pytest.FixtureRequest, moment: str, times: int
) -> None:
    request.getfixturevalue(moment)
    bench.write("a/x")
    entered: list[bytes] = []
    bench.capture(rules=MeddlingRules(entered.append))
    assert sorted(entered) == [b""] * times + [b"a"] * times


def test_a_folder_that_is_away_whenever_its_place_is_looked_at_is_not_lost(bench: Bench) -> None:
    """L3: a folder that is as it was before, but was changed meanwhile, has not been quiet."""
    (bench.path / "a").mkdir()
    (bench.path / "b").mkdir()
    first, other = listed(bench.path)
    bench.write(f"{other}/x/file", b"moving")
    os.utime(bench.path / first, (0, 0))  # so that the moves give it another stamp, however coarse the clock is
    seen: list[str] = []

    def move(path: bytes) -> None:
        seen.append(os.fsdecode(path))
        if seen[-1] == first and seen.count(first) == 1:
            (bench.path / other / "x").rename(bench.path / first / "x")
        if seen[-1] == other and seen.count(other) == 2:
            (bench.path / first / "x").rename(bench.path / other / "x")

    found = bench.captured(rules=MeddlingRules(move))
    assert found == look(bench.path)
    assert b"moving" in [entry[-1] for entry in found.values()]
    assert bench.last is not None
    assert bench.last.skipped == ()


def test_a_folder_that_is_changed_each_time_that_it_is_looked_at_is_reported(bench: Bench) -> None:
    """L3: though each time it is found as it was before."""
    bench.write("a/x")

    def touch(path: bytes) -> None:
        if path == b"a":
            os.utime(bench.path / "a", ns=(0, time.monotonic_ns()))

    captured = bench.capture(rules=MeddlingRules(touch))
    assert [(skipped.path, skipped.why) for skipped in captured.skipped] == [(b"a", "unstable")]


def test_a_file_that_moves_before_it_is_read_is_found_where_it_went(bench: Bench) -> None:
    bench.write("a/x", b"moving")
    (bench.path / "b/new").mkdir(parents=True)

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        if (bench.path / "a/x").exists():
            (bench.path / "a/x").rename(bench.path / "b/new/x")
        return read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_files=read) == look(bench.path)
    assert b"b/new/x" in bench.captured()


def test_a_folder_that_never_comes_to_rest_is_reported(bench: Bench) -> None:
    bench.write("a/0")

    def move(path: bytes) -> None:
        if path == b"a":
            name = listed(bench.path / "a")[0]
            (bench.path / "a" / name).rename(bench.path / "a" / str(int(name) + 1))

    captured = bench.capture(rules=MeddlingRules(move))
    assert [(skipped.path, skipped.why) for skipped in captured.skipped] == [(b"a", "unstable")]


def test_a_file_that_vanishes_before_it_is_read_is_skipped(bench: Bench) -> None:
    """B7"""
    bench.write("a")
    bench.write("b/c")

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        (bench.path / "a").unlink(missing_ok=True)
        if (bench.path / "b").exists():
            (bench.path / "b/c").unlink()
            (bench.path / "b").rmdir()
        return read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_files=read) == {}


def test_a_file_that_was_away_when_it_should_be_read_is_found_again(bench: Bench) -> None:
    """It may come back with the very inode that it had."""
    bench.write("a", b"before")
    answers: list[Content | LeftOut | ReadJob] = []

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        if not answers:
            (bench.path / "a").unlink()
            answers.extend(read_jobs(bench.root.path, jobs, bench.sink))
            bench.write("a", b"after")
            return iter(answers)
        return read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_files=read)[b"a"][2] == b"after"
    assert answers == [LeftOut(b"a", "missing", "it is not there")]


def test_a_file_that_changes_once_while_it_is_read_is_read_again(bench: Bench) -> None:
    file = bench.write("a", bytes(SMALL))
    more = [b"more"]

    def put(data: bytes) -> bytes:
        if more:
            with file.open("ab") as stream:
                stream.write(more.pop())
        return bench.sink.put(data)

    assert (
        bench.captured(read_files=partial(read_jobs, bench.root.path, sink=Putting(put)))[b"a"][2]
        == bytes(SMALL) + b"more"
    )


def test_a_small_file_that_changes_while_it_is_read_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench.write("a", b"half old, half old")
    read, later = os.read, [b"half new, half new"]

    def read_slowly(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if later:
            file.write_bytes(later.pop())
        return data

    monkeypatch.setattr("lastgood.files.read.os.read", read_slowly)
    assert bench.capture().skipped == ()
    assert b"half old, half old" not in bench.sink.blobs.values()
    assert b"half new, half new" in bench.sink.blobs.values()


@pytest.mark.parametrize("how", ["grows", "shrinks", "is rewritten"])
def test_a_file_that_keeps_changing_is_left_and_reported_never_torn(bench: Bench, how: str) -> None:
    file = bench.write("a", bytes(SMALL * 4))
    bench.write("b", b"calm")
    turns = iter(range(1_000_000))

    def put(data: bytes) -> bytes:
        if len(data) > 100_000:
            turn = next(turns)
            match how:
                case "grows":
                    os.truncate(file, (turn + 1) * (8 << 20))  # faster than it can be read
                case "shrinks":
                    os.truncate(file, SMALL * 4 - turn - 1)
                case _:
                    with file.open("r+b") as stream:
                        stream.write(b"%d" % turn)
                    os.utime(file, ns=(turn, turn))
        return bench.sink.put(data)

    found = bench.captured(read_files=partial(read_jobs, bench.root.path, sink=Putting(put)))
    assert found == {b"a": ("left", "unstable"), b"b": ("file", 0o644 & ~_umask(), b"calm")}
    assert bench.last is not None
    assert [(skipped.path, skipped.why) for skipped in bench.last.skipped] == [(b"a", "unstable")]


def test_a_file_that_is_replaced_before_it_is_read_is_captured_as_the_new_one(bench: Bench) -> None:
    bench.write("a", b"old")

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        if (bench.path / "a").read_bytes() == b"old":
            bench.write("a.new", b"new").rename(bench.path / "a")
        return read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_files=read)[b"a"][2] == b"new"
    assert bench.last is not None
    assert bench.last.skipped == ()


def test_only_the_file_that_was_seen_is_read(bench: Bench) -> None:
    bench.write("seen")
    bench.write("other", CANARY)
    seen = signature((bench.path / "seen").stat())
    with FolderWalk(str(bench.path)) as walk:
        assert read_content(walk.root, b"other", seen, bench.sink) == "replaced"
        assert isinstance(read_content(walk.root, b"seen", seen, bench.sink), Content)
        os.mkfifo(bench.path / "pipe")
        pipe = signature((bench.path / "pipe").stat())
        assert read_content(walk.root, b"pipe", pipe, bench.sink) == "replaced"
    assert CANARY not in bench.sink.blobs.values()


def test_a_small_database_that_changes_while_it_is_read_is_handed_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("db", b"SQLite format 3\0" + b"page")
    read = os.read

    def read_and_touch(descriptor: int, count: int) -> bytes:
        data = read(descriptor, count)
        os.utime(bench.path / "db", ns=(0, time.monotonic_ns()))
        return data

    monkeypatch.setattr(os, "read", read_and_touch)
    seen = signature((bench.path / "db").stat())
    with FolderWalk(str(bench.path)) as walk:
        assert read_content(walk.root, b"db", seen, bench.sink, databases=False) == "database"
        assert read_content(walk.root, b"db", seen, bench.sink) == "unstable"


def test_nothing_outside_is_read_while_folders_and_files_are_swapped_for_links(bench: Bench, tmp_path: Path) -> None:
    """A thread swaps a folder, and a file, for links to what lies outside, all the time."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "inner").mkdir()
    for name in ("x", "y", "inner/z"):
        (outside / name).write_bytes(CANARY)
    for name in ("x", "y", "inner/z"):
        bench.write(f"sub/{name}", b"inside")
    bench.write("file", b"inside")
    (bench.path / "decoy").symlink_to(outside)
    (bench.path / "other").symlink_to(outside / "x")
    done = threading.Event()

    def swap() -> None:
        top = bench.path
        while not done.is_set():
            for name, decoy in (("sub", "decoy"), ("file", "other")):
                (top / name).rename(top / "kept")
                (top / decoy).rename(top / name)
                (top / name).rename(top / decoy)
                (top / "kept").rename(top / name)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(400):
            bench.index = StatIndex()
            bench.capture()
    finally:
        done.set()
        thread.join()
    assert CANARY not in bench.sink.blobs.values()
    assert b"inside" in bench.sink.blobs.values()


def test_a_folder_swapped_for_a_link_after_it_was_listed_is_not_entered(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_bytes(CANARY)
    bench.write("sub/x", b"inside")

    def swap(path: bytes) -> None:
        if not path and not (bench.path / "sub").is_symlink():
            (bench.path / "sub").rename(tmp_path / "away")
            (bench.path / "sub").symlink_to(tmp_path / "outside")

    found = bench.captured(rules=MeddlingRules(swap))
    assert found == {b"sub": ("link", os.fsencode(tmp_path / "outside"))}
    assert CANARY not in bench.sink.blobs.values()


def test_links_are_not_opened_as_what_they_lead_to(bench: Bench) -> None:
    bench.write("file")
    (bench.path / "to file").symlink_to("file")
    (bench.path / "to folder").symlink_to(".")
    with FolderWalk(str(bench.path)) as walk:
        for open_it, name in [(open_file, b"to file"), (open_folder, b"to folder"), (open_folder, b"file")]:
            with pytest.raises(OSError) as caught:  # noqa: PT011
                open_it(walk.root, name)
            assert caught.value.errno in GONE
        with pytest.raises(OSError, match="directory"):
            walk.folder(b"to folder/to folder")
        assert walk.folder(b"") == walk.root


def test_a_folder_swapped_for_a_link_between_scan_and_read_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_bytes(CANARY)
    bench.write("sub/x", b"inside")

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        if not (bench.path / "sub").is_symlink():
            (bench.path / "sub").rename(tmp_path / "away")
            (bench.path / "sub").symlink_to(tmp_path / "outside")
        return read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_files=read) == {b"sub": ("link", os.fsencode(tmp_path / "outside"))}
    assert CANARY not in bench.sink.blobs.values()


def test_a_file_swapped_for_a_link_or_a_pipe_before_it_is_read_is_not_opened_as_one(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "canary").write_bytes(CANARY)
    for name in ("a", "b"):
        bench.write(name, b"inside")

    def read(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        if not (bench.path / "a").is_symlink():
            (bench.path / "a").unlink()
            (bench.path / "a").symlink_to(tmp_path / "canary")
            (bench.path / "b").unlink()
            os.mkfifo(bench.path / "b")
        return read_jobs(bench.root.path, jobs, bench.sink)

    found = bench.captured(read_files=read)
    assert found == {b"a": ("link", os.fsencode(tmp_path / "canary")), b"b": ("left", "special")}
    assert CANARY not in bench.sink.blobs.values()


@pytest.mark.parametrize("size", [7, SMALL])
def test_a_full_disk_is_not_taken_for_an_unreadable_file(bench: Bench, size: int) -> None:
    """B7: some errors of this package are OSErrors, too."""
    bench.write("a", bytes(size))

    def put(data: bytes) -> bytes:
        if data == bytes(size):
            raise DiskFullError("no space left")
        return bench.sink.put(data)

    with pytest.raises(DiskFullError):
        bench.capture(read_files=partial(read_jobs, bench.root.path, sink=Putting(put)))


def test_a_full_disk_is_not_taken_for_an_unreadable_database(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7: what cannot be written is the copy, of which nobody may think that the database was at fault."""
    with closing(sqlite3.connect(bench.path / "a", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("CREATE TABLE t (x)")
        jobs = [ReadJob(b"a", signature((bench.path / "a").stat()), "database")]
        read = partial(read_apart, bench.root.path, jobs, bench.sink, deadline=0)
        assert [type(got) for got in read(tmp_path / "copy")] == [Content]
        with pytest.raises(UnavailableError, match="disk"):
            list(read(tmp_path / "none" / "copy"))
        create = database._create

        def create_small(path: Path) -> sqlite3.Connection:
            made = create(path)
            made.execute("PRAGMA max_page_count = 1")
            return made

        monkeypatch.setattr(database, "_create", create_small)
        with pytest.raises(DiskFullError):
            list(read(tmp_path / "copy"))


def test_a_full_disk_is_not_taken_for_an_unreadable_file_by_a_process_that_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B7"""
    packs = reader._Packs(b"pack")
    (tmp_path / "file").write_bytes(os.urandom(SMALL))
    sieve = reader._Sieve(SHA256, None, packs.add)
    monkeypatch.setattr(reader, "open_private", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
    monkeypatch.setattr(reader, "GROUP_BLOBS", 1)
    with pytest.raises(DiskFullError):
        list(read_jobs(str(tmp_path), [ReadJob(b"file", signature((tmp_path / "file").stat()))], sieve))
    assert packs._file is not None
    with suppress(OSError):  # what is left in its buffer finds no room either
        packs._file.close()


# --- large files


def test_a_byte_in_the_middle_of_a_large_file_costs_a_few_chunks(bench: Bench, later: None) -> None:
    """B11, P2"""
    data = os.urandom(24 << 20)
    bench.write("large", data)
    assert bench.captured()[b"large"][2] == data
    before = bench.sink.size
    bench.write("large", data[: 12 << 20] + b"!" + data[12 << 20 :])
    assert bench.captured() == look(bench.path)
    assert bench.sink.size - before < 8 << 20


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1])
def test_files_of_every_size_come_back(bench: Bench, size: int) -> None:
    bench.write("a", os.urandom(size))
    assert bench.captured() == look(bench.path)
    assert (len(bench.sink.blobs) > 2) is (size >= SMALL)


# --- an explicit list


def test_a_list_is_captured_whatever_the_rules_say_and_nothing_else(bench: Bench, later: None) -> None:
    """B1"""
    bench.write(".gitignore", b"*\n")
    bench.write(".env", b"secret")
    bench.write("sub/a", b"a")
    bench.write("sub/b", b"b")
    bench.write("whole/x.log", b"x")
    bench.write("whole/.git/x", CANARY)
    listed = [b".env", b"sub/a", b"whole", b"whole/x.log"]
    for _ in range(2):
        found = bench.captured(files=listed)
        assert set(found) == {b".env", b"sub", b"sub/a", b"whole", b"whole/.git", b"whole/x.log"}
        assert bench.last is not None
        assert (bench.last.partial, bench.last.skipped) == (True, ())
    assert bench.capture(files=listed).new_bytes == 0
    bench.write("sub/a", b"new")
    assert bench.captured(files=listed)[b"sub/a"][2] == b"new"


def test_what_is_listed_and_not_there_is_reported(bench: Bench, later: None) -> None:
    """B7"""
    bench.write("a")
    bench.write("real/x", CANARY)
    (bench.path / "link").symlink_to("real")
    for _ in range(2):
        found = bench.captured(files=[b"a", b"gone", b"no/such", b"link/x", b"a/below"])
        assert set(found) <= {b"a"}
        assert bench.last is not None
        assert [skipped.path for skipped in bench.last.skipped] == [b"gone", b"no/such", b"link/x", b"a/below"]
        assert {skipped.why for skipped in bench.last.skipped} == {"missing"}
    assert CANARY not in bench.sink.blobs.values()


def test_a_list_and_a_full_capture_do_not_forget_each_other(bench: Bench, later: None) -> None:
    bench.write("a", b"1")
    bench.write("b", b"2")
    full = bench.capture()
    listed = bench.capture(files=[b"a"], trusted=None)
    assert bench.capture(trusted=full.tree).new_bytes == 0
    assert bench.capture(files=[b"a"], trusted=listed.tree).new_bytes == 0


@pytest.mark.parametrize("path", [b"", b"/etc/passwd", b"../x", b"a/../b", b"./a", b".git/config", b"a/.Git", b"a\0b"])
def test_a_listed_path_that_leads_elsewhere_is_refused(bench: Bench, path: bytes) -> None:
    with pytest.raises(InvalidError, match="not a path below the workspace"):
        bench.capture(files=[path])


# --- open files and databases


def test_a_file_that_this_process_has_open_is_read_apart_and_keeps_its_locks(bench: Bench) -> None:
    file = bench.write("locked", b"content")
    asked: list[bytes] = []

    def apart(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        asked.extend(job.path for job in jobs)
        for job in jobs:
            blob = bench.sink.put(b"apart")
            yield Content(5, blob, blob, job.seen)

    with file.open("r+b") as stream:
        fcntl.lockf(stream, fcntl.LOCK_EX)
        open_here = os.fstat(stream.fileno())

        def is_open(status: os.stat_result) -> bool:
            return (status.st_ino, status.st_dev) == signature(open_here)[4:]

        read_files = partial(read_jobs, bench.root.path, sink=bench.sink, is_open=is_open, databases=False)
        found = bench.captured(read_apart=apart, read_files=read_files)
        code = f"import fcntl; fcntl.lockf(open({str(file)!r}, 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        refused = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert refused.returncode != 0
    assert found[b"locked"][2] == b"apart"
    assert asked == [b"locked"]


def test_an_open_file_that_nobody_can_read_apart_is_left_and_reported(bench: Bench) -> None:
    bench.write("a")
    read_files = partial(read_jobs, bench.root.path, sink=bench.sink, is_open=lambda status: True)
    assert bench.captured(read_files=read_files) == {b"a": ("left", "unreadable")}
    assert bench.last is not None
    assert bench.last.skipped == (LeftOut(b"a", "unreadable", "this process has the file open"),)


def test_a_descriptor_is_given_back_through_the_hook(bench: Bench) -> None:
    bench.write("a")
    closed = []

    def close(descriptor: int, file: os.stat_result) -> None:
        closed.append(file.st_ino)
        os.close(descriptor)

    bench.capture(read_files=partial(read_jobs, bench.root.path, sink=bench.sink, close=close))
    assert closed == [(bench.path / "a").stat().st_ino]


def test_databases_are_told_by_their_header_or_what_lies_beside_them(bench: Bench, later: None) -> None:
    bench.write("plain.db", b"SQLite format 3\0 and so on")
    bench.write("busy", b"main")
    bench.write("busy-wal", b"log")
    bench.write("lonely-wal", b"no database")
    seen: list[tuple[bytes, str]] = []

    def apart(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        seen.extend((job.path, job.kind) for job in jobs)
        yield from read_jobs(bench.root.path, jobs, bench.sink)

    assert bench.captured(read_apart=apart) == look(bench.path)
    assert sorted(seen) == [(b"busy", "database"), (b"busy-wal", "sidecar"), (b"plain.db", "database")]
    seen.clear()
    bench.capture(read_apart=apart)
    assert seen == []
    bench.write("busy-wal", b"longer log")  # the database is another one now, though its file was not touched
    bench.capture(read_apart=apart)
    assert sorted(seen) == [(b"busy", "database"), (b"busy-wal", "sidecar")]
    seen.clear()
    bench.write("busy-shm", b"shared")
    bench.capture(read_apart=apart)
    assert seen == [(b"busy-shm", "sidecar")]
    seen.clear()
    (bench.path / "busy-shm").unlink()
    (bench.path / "busy-wal").unlink()
    bench.capture(read_apart=apart)
    assert seen == [(b"busy", "database")]


def test_a_database_whose_content_is_lost_is_read_apart_again(bench: Bench, later: None) -> None:
    bench.write("busy", b"main")
    bench.write("busy-wal", b"log")
    seen: list[tuple[bytes, str]] = []

    def apart(jobs: list[ReadJob]) -> Iterator[Content | LeftOut | ReadJob]:
        seen.extend((job.path, job.kind) for job in jobs)
        yield from read_jobs(bench.root.path, jobs, bench.sink)

    bench.capture()
    bench.sink.blobs.clear()
    assert bench.captured(read_apart=apart, trusted=None) == look(bench.path)
    assert sorted(seen) == [(b"busy", "database"), (b"busy-wal", "sidecar")]


def test_without_a_hook_databases_are_files_like_others(bench: Bench) -> None:
    bench.write("plain.db", b"SQLite format 3\0 and so on")
    bench.write("plain.db-wal", b"log")
    assert bench.captured() == look(bench.path)


# --- properties

NAMES = st.sampled_from([b"a", b"b", b"B", b"c.txt", b"\xff", b"x\ny", b"sub", b"deep", " ü".encode()])
LEAVES = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=40), st.sampled_from([0o644, 0o600, 0o755, 0o4711, 0o444])),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"../..", b"/", b"\xfe", b"sub/deep"])),
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=5),
    lambda below: st.dictionaries(NAMES, st.one_of(LEAVES, below), max_size=5),
    max_leaves=12,
)


def plant(folder: Path, tree: dict[bytes, object]) -> None:
    for name, what in tree.items():
        path = folder / os.fsdecode(name)
        match what:
            case ("file", bytes(data), int(mode)):
                path.write_bytes(data)
                path.chmod(mode)
            case ("link", bytes(target)):
                path.symlink_to(os.fsdecode(target))
            case dict():
                path.mkdir()
                plant(path, what)


def clear(folder: Path) -> None:
    for here, folders, files in os.walk(folder, topdown=False):
        for path in [Path(here, name) for name in [*files, *folders]]:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


@given(trees=st.lists(TREES, min_size=1, max_size=3), is_late=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_captures_one_after_the_other_are_what_lies_there(
    monkeypatch: pytest.MonkeyPatch, trees: list[dict[bytes, object]], is_late: bool
) -> None:
    """P1, P2: creation is complete, stored content returns identical; what the index knows changes nothing (B1)."""
    now = time.time_ns
    with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patch:
        if is_late:
            patch.setattr(time, "time_ns", lambda: now() + 60_000_000_000)
        bench = Bench(Path(folder) / "root")
        for tree in trees:
            clear(bench.path)
            plant(bench.path, tree)
            assert bench.captured() == look(bench.path)
            assert bench.last is not None
            assert bench.last.skipped == ()
            fresh = capture(bench.root, bench.rules(), StatIndex(), Memory())
            assert fresh.tree == bench.last.tree
            assert fresh[1:3] == bench.last[1:3]


def test_what_a_restore_is_writing_is_not_captured(bench: Bench) -> None:
    """B3: temporary files of a restore that was killed are nobody's work."""
    bench.write(".lastgood-0123456789abcdef-1f.tmp")
    bench.write(".lastgood-notes.tmp")
    assert set(bench.captured()) == {b".lastgood-notes.tmp"}
