"""Keeping watch for other processes: a capture that looks at what changed finds what one of everything finds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.files.test_watch import fresh, later, visits

import lastgood
from lastgood.engine.workspace import Workspace
from lastgood.errors import BusyError, UnavailableError
from lastgood.files import scan, watch, watch_client, watch_server
from lastgood.files.index import StatIndex, identify
from lastgood.files.roots import Root
from lastgood.files.watch import FULL_SECONDS, Knowledge, Watcher
from lastgood.files.watch_client import (
    BorrowedWatcher,
    FailedWatcher,
    HandedWatcher,
    Noted,
    ReturnedWatcher,
    TakeWatcher,
    WatchAddress,
    WatchMessage,
    borrow_watcher,
    open_channel,
    receive_queue,
)
from lastgood.files.watch_server import WatchServer

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/sys/fs/inotify"), reason="needs inotify")  # noqa: PTH110

__all__ = ["later"]


class Bench:
    """A folder, a store, and the folders that captures in this process look at."""

    def __init__(self, store: lastgood.Store, path: Path, looked_at: list[bytes]) -> None:
        for name in ("a/x", "a/sub/deep/y", "b/z"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(name.encode())
        self.store = store
        self.path = path
        self.looked_at = looked_at
        self.failed: list[Root] = []
        self.workspace = Workspace(store._engine, path)
        self.place = self.workspace.watch_address(self.workspace.roots[0])

    def watch(self) -> WatchServer:
        places = [(root, self.workspace.watch_address(root)) for root in self.workspace.roots]
        return WatchServer(places, on_failure=self.failed.append)

    def save(self, task: str = "t") -> set[bytes]:
        """As any handle without a watcher does. The tree must be the right one; the folders that were looked at."""
        self.looked_at.clear()
        saved = self.store.task(task, workspace=self.path).save({})
        looked_at = set(self.looked_at)
        assert saved.record.files is not None
        assert saved.record.files[0].tree == fresh(str(self.path))
        return looked_at

    def settle(self, task: str = "t") -> None:
        """Saved so often that nothing is left to be looked at for its own sake."""
        self.save(task)
        assert self.save(task) == {b""}

    def write(self, name: str, data: bytes = b"other content") -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(data)


EVERYTHING = {b"", b"a", b"a/sub", b"a/sub/deep", b"b"}


@pytest.fixture
def bench(store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: None) -> Bench:
    monkeypatch.setattr(watch_client, "SECONDS", 60)  # however busy the machine is
    return Bench(store, tmp_path / "work", visits(monkeypatch))


@pytest.fixture
def watched(bench: Bench) -> Iterator[Bench]:
    with bench.watch():
        bench.settle()
        yield bench


def hold(bench: Bench) -> BorrowedWatcher:
    """What a capture has in hand while it looks around."""
    root = bench.workspace.roots[0]
    held = borrow_watcher(bench.place, root, bench.workspace._indexes[root])
    assert held is not None
    assert held.take() is not None
    return held


# --- only what changed


def test_a_save_beside_it_looks_at_what_changed(bench: Bench) -> None:
    assert bench.save() == EVERYTHING
    assert bench.save() == EVERYTHING
    with bench.watch():
        assert bench.save() == EVERYTHING
        bench.write("a/sub/deep/y")
        assert bench.save() == {b"", b"a/sub/deep"}
        bench.write("b/new/folder/file")
        assert bench.save() == {b"", b"b", b"b/new", b"b/new/folder"}
        bench.write("b/new/folder/file", b"told of, too")
        assert bench.save() == {b"", b"b/new/folder"}
    assert bench.save() == EVERYTHING | {b"b/new", b"b/new/folder"}


def test_every_handle_and_every_look_at_the_files_has_its_use(watched: Bench) -> None:
    task = watched.store.task("t", workspace=watched.path)
    watched.write("b/z")
    watched.looked_at.clear()
    assert [change.path for change in task.diff("HEAD").files.changes] == ["b/z"]
    assert set(watched.looked_at) == {b"", b"b"}
    assert task.save({}).file_count == 3


def test_a_change_of_each_kind_is_seen(watched: Bench) -> None:
    top = watched.path
    changes: list[Callable[[], object]] = [
        lambda: watched.write("a/x", b"longer than it was"),
        lambda: (top / "a/x").chmod(0o600),
        lambda: (top / "a/sub").chmod(0o700),
        lambda: top.chmod(0o750),
        lambda: (top / "a/link").symlink_to("x"),
        lambda: (top / "a/x").rename(top / "b/x"),
        lambda: (top / "a/sub").rename(top / "b/moved"),
        lambda: watched.write("b/moved/deep/y", b"in its new place"),
        lambda: watched.write("a/sub/deep/y", b"where the moved one was"),
        lambda: shutil.rmtree(top / "b/moved"),
        lambda: (top / "b/moved").write_bytes(b"a file now"),
        lambda: os.truncate(top / "b/z", 1),
        lambda: watched.write(".env", b"secret"),
        lambda: watched.write(".gitignore", b"sub/\n"),
        lambda: watched.write("a/sub/deep/y", b"while it is ignored"),
        lambda: watched.write("a/.gitignore", b"!sub/\n"),
        lambda: watched.write("a/sub/deep/y", b"watched again"),
        lambda: watched.write(".git/info/exclude", b"/b\n"),
        lambda: watched.write("b/z", b"while it is excluded"),
        lambda: watched.write(".git/info/exclude", b""),
        lambda: watched.write("b/z", b"and had back"),
        lambda: watched.write(".lastgoodignore", b"x\n"),
    ]
    for change in changes:
        change()
        watched.save()


def test_folders_of_a_workspace_are_watched_each_for_itself(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: None
) -> None:
    folders = {"one": tmp_path / "one", "two": tmp_path / "two"}
    for path in folders.values():
        (path / "below").mkdir(parents=True)
        (path / "below/file").write_bytes(b"1")
    workspace = Workspace(store._engine, folders)
    places = [(root, workspace.watch_address(root)) for root in workspace.roots]
    with WatchServer(places, on_failure=lambda root: None) as keeper:
        for _ in range(2):
            store.task("t", workspace=folders).save({})
        assert list(keeper.counts().values()) == [2, 2]
        (folders["two"] / "below/file").write_bytes(b"22")
        looked_at = visits(monkeypatch)
        saved = store.task("t", workspace=folders).save({})
        assert sorted(looked_at) == [b"", b"", b"below"]
    assert saved.record.files is not None
    assert [root.tree for root in saved.record.files] == [fresh(str(path)) for path in folders.values()]


def test_several_tasks_in_one_folder_are_right(watched: Bench) -> None:
    for number in range(4):
        watched.write("b/z", b"." * number)
        watched.save("t")
        watched.write("a/x", b"." * number)
        watched.save("another")


def test_it_works_wherever_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: None) -> None:
    """The path of a socket has 107 bytes at most."""
    deep = tmp_path / "/".join(["a folder with a long name"] * 8)
    with lastgood.open(deep / "store") as store:
        bench = Bench(store, tmp_path / "work", visits(monkeypatch))
        with bench.watch():
            bench.settle()


# --- doubt


@pytest.mark.parametrize("why", ["time", "forgotten", "listed files", "overflow", "another process's index"])
def test_everything_is_looked_at_when_there_is_a_reason(
    watched: Bench, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    watched.write("b/z")
    with monkeypatch.context() as patch:
        match why:
            case "time":
                now = time.monotonic()
                patch.setattr(time, "monotonic", lambda: now + FULL_SECONDS)
            case "forgotten":
                watched.workspace.forget()
            case "listed files":
                watched.store.task("other", workspace=watched.path).save({}, files=["a/x"])
            case "overflow":
                patch.setattr(watch, "MAX_EVENTS", 0)
            case "another process's index":
                root = watched.workspace.roots[0]
                index = watched.workspace._index_file(root)
                shutil.copy2(index, index.with_suffix(".copy"))
                index.with_suffix(".copy").replace(index)
        assert watched.save() == EVERYTHING
    watched.save()
    watched.write("a/x")
    assert watched.save() == {b"", b"a"}


def test_everything_is_looked_at_now_and_then_however_often_one_saves(
    watched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + FULL_SECONDS - 20)
    assert watched.save() == {b""}
    monkeypatch.setattr(time, "monotonic", lambda: now + FULL_SECONDS + 20)
    assert watched.save() == EVERYTHING


def test_a_queue_that_overflowed_during_a_capture_is_not_relied_on(watched: Bench) -> None:
    held = hold(watched)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(limit // 2 + 10):  # two in turn: the same one twice in a row is told once
        os.utime(watched.path / "a/x")
        os.utime(watched.path / "b/z")
    watched.write("a/sub/deep/y", b"after the queue was full")
    held.settle(is_full=False)
    held.close()
    assert watched.save() == EVERYTHING


def test_a_restore_by_another_process_and_what_follows_it_are_right(watched: Bench) -> None:
    """B3"""
    first = watched.store.task("t", workspace=watched.path).head
    assert first is not None
    watched.write("a/x")
    watched.write("new/file")
    watched.save()
    script = """if True:
        import sys, lastgood
        with lastgood.open(sys.argv[1], user="tester") as store:
            store.task("t", workspace=sys.argv[2]).restore(sys.argv[3], what="files")"""
    store = str(watched.place.parents[2])
    subprocess.run([sys.executable, "-c", script, store, str(watched.path), first.id], check=True, timeout=60)
    assert not (watched.path / "new").exists()
    watched.write("b/z")
    assert {b"", b"b"} <= watched.save() < EVERYTHING
    watched.write("b/z", b"and again")
    assert watched.save() == {b"", b"b"}


def test_an_index_that_could_not_be_saved_is_not_taken_for_a_new_one(
    watched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.write("a/x")
    with monkeypatch.context() as patch:
        patch.setattr(StatIndex, "save", lambda index: None)
        assert watched.store.task("t", workspace=watched.path).diff("HEAD").files.changes
    assert watched.save() == EVERYTHING
    assert watched.save() == {b""}


def test_a_capture_that_fails_leaves_it_knowing_nothing(watched: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.write("a/x")
    with monkeypatch.context() as patch:
        patch.setattr(BorrowedWatcher, "settle", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            watched.workspace.capture(None)
    assert watched.save() == EVERYTHING
    assert watched.save() == {b""}


@pytest.mark.parametrize("when", ["before it is given back", "with the index saved", "while it is given back"])
def test_a_process_that_is_killed_in_its_capture_loses_nothing(watched: Bench, when: str) -> None:
    script = """if True:
        import os, signal, sys, lastgood
        from lastgood.files import watch_client
        from lastgood.files.watch_client import BorrowedWatcher, ReturnedWatcher
        from lastgood.local.channel import Channel
        watch_client.SECONDS = 60
        def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
        def die_sending(line, message, **more):
            if not isinstance(message, ReturnedWatcher): return send(line, message, **more)
            line._end.sendall(b"\\0\\0\\0\\0\\0\\0\\1\\0half of it")
            die()
        send = Channel.send
        match sys.argv[3]:
            case "before it is given back": BorrowedWatcher.settle = die
            case "with the index saved": BorrowedWatcher.settle = lambda held, **_: (held._index.save(), die())
            case "while it is given back": Channel.send = die_sending
        with lastgood.open(sys.argv[1], user="tester") as store:
            store.task("t", workspace=sys.argv[2]).save({})"""
    watched.write("a/x", b"changed before the one that is killed")
    command = [sys.executable, "-c", script, str(watched.place.parents[2]), str(watched.path), when]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
    watched.write("b/z")
    assert watched.save() == EVERYTHING
    watched.write("b/z", b"and again")
    assert watched.save() == {b"", b"b"}


def test_a_handle_that_watches_for_itself_and_others_are_right_in_turn(watched: Bench) -> None:
    own = Workspace(watched.store._engine, watched.path, watch=True)
    head = watched.store.task("t", workspace=watched.path)
    for number in range(6):
        watched.write("b/z", b"." * number)
        if number % 2:
            watched.save()
        else:
            captured = own.capture(head.refresh())
            assert captured.roots[0].tree == fresh(str(watched.path))
    own.close()
    watched.save()


# --- who keeps watch


def test_a_folder_is_watched_once(bench: Bench) -> None:
    with bench.watch():
        with pytest.raises(BusyError, match="watched already"):
            bench.watch()
        bench.settle()
    assert not bench.place.exists()
    with bench.watch():
        bench.settle()


def test_only_its_user_can_reach_it(bench: Bench) -> None:
    previous = os.umask(0)
    try:
        with bench.watch():
            modes = [path.stat().st_mode & 0o777 for path in (bench.place.parent, bench.place)]
            lock = bench.place.with_suffix(".lock").stat().st_mode & 0o777
    finally:
        os.umask(previous)
    assert (modes, lock) == ([0o700, 0o600], 0o600)


def test_where_no_socket_is_to_be_had_it_says_so(bench: Bench) -> None:
    (bench.place / "in the way").mkdir(parents=True)
    with pytest.raises(UnavailableError, match="no socket"):
        bench.watch()
    assert bench.save() == EVERYTHING


def test_without_inotify_it_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(UnavailableError, match="cannot be watched") as raised:
        bench.watch()
    assert "max_user_instances" in str(raised.value.hint)


@pytest.mark.parametrize("call", ["inotify_add_watch", "inotify_init1"])
def test_at_a_limit_of_the_system_it_gives_up_and_saves_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    class Exhausted:
        def __getattr__(self, name: str) -> Callable[..., int]:
            return (lambda *_: -1) if name == call else getattr(system, name)

    system = watch._system()
    with bench.watch() as keeper:
        bench.settle()
        assert list(keeper.counts().values()) == [5]
        hold(bench).close()  # and is not given back: another queue is needed
        bench.write("new/file")
        with monkeypatch.context() as patch:
            patch.setattr(watch, "_system", Exhausted)
            bench.save()
        keeper.join()
        assert bench.failed == list(bench.workspace.roots)
        assert keeper.counts() == {}
        assert not bench.place.exists()
        bench.write("new/file", b"looked for")
        assert bench.save() == EVERYTHING | {b"new"}


def test_it_does_not_remember_changes_without_end(watched: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    forgot = threading.Event()
    close = Watcher.close

    def note(watcher: Watcher) -> None:
        close(watcher)
        forgot.set()

    monkeypatch.setattr(Watcher, "close", note)
    monkeypatch.setattr(watch_server, "MAX_CHANGES", 10)
    for number in range(20):
        watched.write(f"b/{number}/file")
    assert forgot.wait(timeout=60)
    watched.write("a/x")
    assert watched.save() > EVERYTHING
    assert watched.save() == {b""}


def test_between_captures_it_reads_the_queue_before_that_overflows(
    watched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    look = Watcher.look

    def note(watcher: Watcher) -> scan.Changed | None:
        looked.set()
        return look(watcher)

    watched.write("a/other/deep/y", b"as it was there")
    watched.settle()
    monkeypatch.setattr(Watcher, "look", note)
    watched.write("b/z")
    (watched.path / "a/sub").rename(watched.path / "kept")
    (watched.path / "a/other").rename(watched.path / "a/sub")
    (watched.path / "kept").rename(watched.path / "a/other")
    assert looked.wait(timeout=60)
    assert watched.save() == EVERYTHING | {b"a/other", b"a/other/deep"}


def test_while_it_has_lent_one_queue_it_keeps_its_hands_off_that_one(bench: Bench) -> None:
    other = Bench(bench.store, bench.path.with_name("other"), bench.looked_at)
    places = [(each.workspace.roots[0], each.place) for each in (bench, other)]
    with WatchServer(places, on_failure=bench.failed.append):
        bench.settle()
        other.settle("of another folder")
        held = hold(bench)
        (bench.path / "a/x").chmod(0o600)  # one event, and not several of which some could be left
        other.write("b/z")
        assert other.save("of another folder") == {b"", b"b"}
        held.settle(is_full=False)
        held.close()
        assert bench.save() == {b"", b"a"}


# --- others at the other end


def no_answer(end: socket.socket) -> None:
    end.recv(1)


def random_bytes(end: socket.socket) -> None:
    end.recv(1 << 16)
    end.sendall(random.Random(1).randbytes(5000))


def too_much(end: socket.socket) -> None:
    end.recv(1 << 16)
    with Path(os.devnull).open() as file:
        socket.send_fds(end, [b"\xff\xff\xff\xff\xff\xff\xff\xff"], [file.fileno()])


def hand_over(end: socket.socket, *descriptors: int, known: Knowledge | None = None) -> None:
    end.recv(1 << 16)
    nothing = Knowledge(True, False, None, {}, set(), set())
    data = msgspec.msgpack.encode(HandedWatcher(known or nothing))
    socket.send_fds(end, [struct.pack(">Q", len(data)) + data], list(descriptors))


def no_descriptor(end: socket.socket) -> None:
    hand_over(end)


def no_queue(end: socket.socket) -> None:
    reader, writer = os.pipe()
    hand_over(end, reader)
    os.close(reader)
    os.close(writer)


def another_answer(end: socket.socket) -> None:
    end.recv(1 << 16)
    queue = watch._system().inotify_init1(os.O_NONBLOCK)
    data = msgspec.msgpack.encode(Noted())
    socket.send_fds(end, [struct.pack(">Q", len(data)) + data], [queue])
    os.close(queue)


def a_queue_of_nothing(end: socket.socket) -> None:
    """A proper answer that claims to know everything, of a queue that watches nothing; then it hangs up."""
    queue = watch._system().inotify_init1(0)
    hand_over(end, queue)
    os.close(queue)


@pytest.mark.parametrize(
    "other_end",
    [
        no_answer,
        random_bytes,
        too_much,
        no_descriptor,
        no_queue,
        another_answer,
        a_queue_of_nothing,
        socket.socket.close,
    ],
)
def test_whoever_listens_there_saves_are_right(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    count_descriptors: Callable[[], int],
    other_end: Callable[[socket.socket], None],
) -> None:
    monkeypatch.setattr(watch_client, "SECONDS", 0.2)
    bench.save()
    bench.place.parent.mkdir(mode=0o700, parents=True)
    place = WatchAddress(bench.place)
    listener = place.listen()
    listener.settimeout(60)
    ends: list[socket.socket] = []

    def listen() -> None:
        for _ in range(2):
            end = listener.accept()[0]
            ends.append(end)
            other_end(end)

    thread = threading.Thread(target=listen)
    thread.start()
    before = count_descriptors()
    bench.write("a/x")
    assert bench.save() == EVERYTHING
    assert bench.save() == EVERYTHING
    thread.join()
    for end in ends:
        end.close()
    assert count_descriptors() == before
    listener.close()
    place.close()
    assert bench.save() == EVERYTHING


@pytest.mark.parametrize("what", ["file", "folder", "dead socket", "link", "pipe"])
def test_whatever_lies_there_saves_are_right(bench: Bench, what: str) -> None:
    bench.place.parent.mkdir(mode=0o700, parents=True)
    match what:
        case "file":
            bench.place.write_bytes(b"not a socket")
        case "folder":
            bench.place.mkdir()
        case "dead socket":
            place = WatchAddress(bench.place)
            place.listen().close()
            place.close()
        case "link":
            bench.place.symlink_to(bench.place)
        case "pipe":
            os.mkfifo(bench.place)
    assert bench.save() == EVERYTHING
    assert bench.save() == EVERYTHING
    if what != "folder":
        with bench.watch():
            bench.settle()


def test_someone_elses_process_is_not_listened_to(watched: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        own = os.geteuid()
        patch.setattr(os, "geteuid", lambda: own + 1)
        watched.write("b/z")
        assert watched.save() == EVERYTHING
    assert watched.save() == EVERYTHING
    assert watched.save() == {b""}


SOME = Knowledge(True, False, None, {1: b""}, set(), set())


@pytest.mark.parametrize(
    "said",
    [
        [b""],
        [b"\0"],
        [b"\xff\xff\xff\xff\xff\xff\xff\xff"],
        [b"\0\0\0\0\0\0\0\5hello"],
        [random.Random(2).randbytes(100_000)],
        [Noted()],
        [FailedWatcher()],
        [ReturnedWatcher((1, 2, 3), True, SOME)],
        [TakeWatcher(None), TakeWatcher(None)],
        [TakeWatcher(None), HandedWatcher(SOME)],
        [TakeWatcher((1, 2, 3)), b"\0\0\0\0\0\0\1\0half"],
    ],
    ids=str,
)
def test_whatever_someone_says_to_it_it_keeps_watch(watched: Bench, said: list[bytes | WatchMessage]) -> None:
    place = WatchAddress(watched.place)
    line = place.connect()
    for each in said:
        try:
            line._end.sendall(each) if isinstance(each, bytes) else line.send(each)
            if isinstance(each, TakeWatcher) and each is said[0]:
                os.close(receive_queue(line)[1])
        except ConnectionError:
            break
    watched.write("b/z")
    line.close()
    place.close()
    watched.save()
    watched.write("a/x")
    assert watched.save() == {b"", b"a"}


def test_what_it_did_not_lend_nobody_gives_back(watched: Bench) -> None:
    index = identify(watched.workspace._index_file(watched.workspace.roots[0]))
    assert index is not None
    place = WatchAddress(watched.place)
    line = place.connect()
    line.send(ReturnedWatcher(index, True, SOME))
    with pytest.raises(ConnectionError):
        line.receive()
    line.close()
    place.close()
    watched.write("b/z")
    assert watched.save() == {b"", b"b"}


def test_a_message_that_is_too_long_is_not_waited_for() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"\xff\xff\xff\xff\xff\xff\xff\xff")
        with pytest.raises(ConnectionError):
            open_channel(other).receive()


def test_one_who_says_half_of_something_keeps_it_for_a_moment_only(
    watched: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = WatchAddress(watched.place)
    with monkeypatch.context() as patch:
        patch.setattr(watch_client, "SECONDS", 0.2)
        line = place.connect()
        line._end.sendall(b"\0\0\0\0\0\0\1\0half")
        line._end.settimeout(60)
        assert line._end.recv(1) == b""
    line.close()
    place.close()
    watched.write("b/z")
    assert watched.save() == {b"", b"b"}


def test_one_who_is_silent_keeps_nobody_waiting(watched: Bench) -> None:
    place = WatchAddress(watched.place)
    lines = [place.connect() for _ in range(3)]
    watched.write("b/z")
    assert watched.save() == {b"", b"b"}
    for line in lines:
        line.close()
    place.close()


def test_one_who_comes_later_takes_the_place_of_one_who_keeps_it(watched: Bench) -> None:
    """As when the first one let go of the workspace's lock without giving it back."""
    first = hold(watched)
    watched.write("b/z")
    assert watched.save() == EVERYTHING
    watched.write("a/x")
    first.watcher.look()
    first.settle(is_full=True)  # too late: it counts for nothing
    first.close()
    assert watched.save() == {b"", b"a"}


@given(st.binary(max_size=200))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bytes_are_a_message_or_an_error_of_the_connection(data: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        line = open_channel(other)
        one.sendall(struct.pack(">Q", len(data)) + data)
        try:
            message = line.receive()
        except ConnectionError:
            return
        assert isinstance(message, TakeWatcher | HandedWatcher | ReturnedWatcher | FailedWatcher | Noted)


# --- at random


NAMES = ["a", "b", "c", "a/sub", "b/sub", "a/sub/deep", "c/x", ".gitignore", "a/.gitignore", "b/z", "a/x"]
RULES = ["", "sub\n", "/b\n", "x\n!x\n", "deep/\n"]


def meddle(top: Path, chance: random.Random) -> None:
    """Do something to the files, if it can be done."""
    path, other = (top / chance.choice(NAMES) for _ in range(2))
    with suppress(OSError):
        match chance.randrange(8):
            case 0 | 1 | 2 if path.name == ".gitignore":
                path.write_text(chance.choice(RULES))
            case 0 | 1 | 2:
                path.write_bytes(chance.randbytes(chance.randrange(2000)))
            case 3:
                path.mkdir(parents=True)
            case 4:
                path.rename(other)
            case 5:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            case 6:
                path.chmod(chance.choice([0o700, 0o755]))
            case 7:
                (path / f"new{chance.randrange(3)}/below").mkdir(parents=True)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_saved_beside_it_is_always_what_lies_there(watched: Bench, seed: int) -> None:
    chance = random.Random(seed)
    partly = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            meddle(watched.path, chance)
        match chance.randrange(12):
            case 0:
                watched.save("another")
            case 1:
                with watched.workspace.locked():
                    meddle(watched.path, chance)
            case 2:
                watched.store.task("t", workspace=watched.path).diff("HEAD")
            case _:
                folders = {os.fsencode(path) for path, _, _ in os.walk(watched.path)}
                partly += len(watched.save()) < len(folders)
    assert partly > 10


def test_processes_that_save_at_once_while_files_change_end_up_right(watched: Bench) -> None:
    script = """if True:
        import sys, lastgood
        with lastgood.open(sys.argv[1], user="tester") as store:
            for number in range(15):
                store.task(sys.argv[3], workspace=sys.argv[2]).save({"n": number})"""
    command = [sys.executable, "-c", script, str(watched.place.parents[2]), str(watched.path)]
    savers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    chance = random.Random(3)
    while any(saver.poll() is None for saver in savers):
        folder = watched.path / f"a/{chance.randrange(5)}/{chance.randrange(5)}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_bytes(chance.randbytes(chance.randrange(500)))
        if chance.randrange(10) == 0:
            shutil.rmtree(folder.parent)
    assert [saver.wait(timeout=60) for saver in savers] == [0, 0]
    for task in ("one", "two", "t", "t"):
        watched.save(task)
    watched.write("b/z")
    assert watched.save() == {b"", b"b"}
