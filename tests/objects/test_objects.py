"""The local object store keeps the contract, bare and verified; nothing half done is ever seen (I1-I4, B7)."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood.errors import DiskFullError, IntegrityError, InvalidError, NotFoundError, UnavailableError
from lastgood.objects.contract import ObjectStore
from lastgood.objects.local import LocalObjects
from lastgood.objects.verified import VerifiedObjects
from lastgood.testing import ObjectStoreConformance

NAME = "packs/ab/object"


class TestLocal(ObjectStoreConformance):
    def make_store(self) -> ObjectStore:
        return LocalObjects(Path(tempfile.mkdtemp()) / "objects")


class TestVerifiedLocal(ObjectStoreConformance):
    def make_store(self) -> ObjectStore:
        return VerifiedObjects(LocalObjects(Path(tempfile.mkdtemp()) / "objects"))


class TestWithoutHardLinks(TestLocal):
    """W6: on a file system without hard links every pack was spooled, for ever."""

    @pytest.fixture(autouse=True)
    def without_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def link(*_: object, **__: object) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # as FAT says it; mounting one needs a device

        monkeypatch.setattr(os, "link", link)


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "objects")


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


# --- the directory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_files_and_folders_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """reliability.md: 0700 and 0600."""
    before = os.umask(umask)
    try:
        objects = LocalObjects(tmp_path / "objects")
        objects.put(NAME, [b"x"])
        written = objects.draft()
        written.write_bytes(b"y")
        written.chmod(0o666)
        objects.adopt("packs/cd/adopted", written)
    finally:
        os.umask(before)
    for path in [tmp_path / "objects", *(tmp_path / "objects").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_nothing_is_written_before_the_first_object(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path / "objects")
    assert list(objects.list()) == []
    assert objects.sweep(0) == 0
    assert not (tmp_path / "objects").exists()


def test_a_link_in_the_place_of_an_object_is_not_followed(tmp_path: Path, objects: LocalObjects) -> None:
    """I3: what was not stored is not returned."""
    (tmp_path / "secret").write_bytes(b"secret")
    objects.put("folder/other", [b"x"])
    (tmp_path / "objects/folder/link").symlink_to(tmp_path / "secret")
    with pytest.raises(IntegrityError):
        objects.get("folder/link")
    with pytest.raises(IntegrityError):
        objects.size("folder/link")
    assert [listed.name for listed in objects.list()] == ["folder/other"]
    draft = objects.draft()
    draft.symlink_to(tmp_path / "secret")
    with pytest.raises(IntegrityError):
        objects.adopt("folder/adopted", draft)
    objects.delete("folder/link")
    assert (tmp_path / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("part", ["", "folder", ".drafts"])
def test_nothing_is_deleted_behind_a_link_in_the_place_of_a_folder(
    tmp_path: Path, objects: LocalObjects, part: str
) -> None:
    """S2: `collect` deleted old files behind a link `.drafts`, and others behind a link `packs`."""
    objects.put("folder/one", [b"x"])
    place, private = tmp_path / "objects" / part, tmp_path / "private"
    place.rename(private)
    (private / "thesis").write_bytes(b"thesis")
    os.utime(private / "thesis", (0, 0))
    place.symlink_to(private)
    if part != "folder":
        with pytest.raises(UnavailableError, match="a link is in the place of"):
            objects.sweep()
    if part != ".drafts":
        with pytest.raises(UnavailableError, match="a link is in the place of"):
            objects.delete("folder/thesis")
        with pytest.raises(UnavailableError, match="a link is in the place of"):
            list(objects.list("folder/"))
    with pytest.raises(UnavailableError, match="a link is in the place of"):
        LocalObjects(tmp_path / "objects").put("folder/two", [b"y"])
    assert (private / "thesis").exists()


def test_the_folder_around_the_objects_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    objects = LocalObjects(tmp_path / "link/objects")
    objects.put("folder/one", [b"x"])
    assert objects.get("folder/one") == b"x"
    objects.delete("folder/one")
    assert [*objects.list(), objects.sweep(0)] == [0]


def test_a_fifo_in_the_place_of_an_object_does_not_block(tmp_path: Path, objects: LocalObjects) -> None:
    objects.put("folder/other", [b"x"])
    os.mkfifo(tmp_path / "objects/folder/pipe")
    with pytest.raises(IntegrityError):
        objects.get("folder/pipe")


def test_an_object_is_no_folder_and_a_folder_no_object(objects: LocalObjects) -> None:
    objects.put("a", [b"x"])
    for name in ("a/b", "a/b/c"):
        with pytest.raises(InvalidError):
            objects.put(name, [b"y"])
    objects.put("b/c", [b"x"])
    with pytest.raises(InvalidError):
        objects.put("b", [b"y"])
    assert [listed.name for listed in objects.list()] == ["a", "b/c"]
    assert objects.sweep(0) == 0


def test_what_others_left_among_the_objects_is_not_listed(tmp_path: Path, objects: LocalObjects) -> None:
    objects.put(NAME, [b"x"])
    for name in ("README", ".DS_Store", "a b", "ümlaut"):
        (tmp_path / "objects" / name).write_bytes(b"foreign")
    assert [listed.name for listed in objects.list()] == [NAME]


def test_a_draft_that_was_swept_too_early_is_an_error_and_nothing_is_stored(objects: LocalObjects) -> None:
    def source() -> Iterator[bytes]:
        yield b"slow"
        assert objects.sweep(-1) == 4

    with pytest.raises(UnavailableError):
        objects.put(NAME, source())
    with pytest.raises(UnavailableError):
        objects.adopt(NAME, objects.draft())
    assert list(objects.list()) == []


def test_a_store_whose_folder_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "missing/objects", tmp_path / "file", tmp_path / "file/objects"):
        with pytest.raises(UnavailableError):
            LocalObjects(folder).put(NAME, [b"x"])


def test_it_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    code = """if True:
        import os, sys
        from pathlib import Path
        from lastgood.objects.local import LocalObjects
        objects = LocalObjects(Path(sys.argv[1]))
        objects.put("before", [b"1"])
        child = os.fork()
        objects.put("in/child" if child == 0 else "in/parent", [b"2"])
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "objects")], check=True, timeout=60)
    assert [found.name for found in LocalObjects(tmp_path / "objects").list()] == ["before", "in/child", "in/parent"]


# --- order and crashes ---------------------------------------------------------------------------------------------


def test_bytes_are_durable_before_the_name_and_the_name_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G5: file synced, folders made and their parents synced, linked, folder synced."""
    done: list[tuple[str, str]] = []
    sync, link, mkdir = os.fsync, os.link, os.mkdir

    def told(path: Any) -> str:
        relative = os.path.relpath(path, tmp_path)
        return "draft" if ".drafts/" in relative else relative

    def watched_sync(descriptor: int) -> None:
        done.append(("sync", told(Path(f"/proc/self/fd/{descriptor}").readlink())))
        sync(descriptor)

    def watched_link(source: Any, target: Any, **options: Any) -> None:
        done.append(("link", told(target)))
        link(source, target, **options)

    def watched_mkdir(name: Any, mode: int, *, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        done.append(("make", told(Path(f"/proc/self/fd/{dir_fd}").readlink() / name)))

    monkeypatch.setattr(os, "fsync", watched_sync)
    monkeypatch.setattr(os, "link", watched_link)
    monkeypatch.setattr(os, "mkdir", watched_mkdir)
    objects = LocalObjects(tmp_path / "objects")
    objects.put(NAME, [b"x"])
    way = [("sync", "."), ("make", "objects/packs"), ("sync", "objects"), ("make", "objects/packs/ab")]
    way += [("sync", "objects/packs")]
    last = [("link", f"objects/{NAME}"), ("sync", "objects/packs/ab")]
    assert done == [("make", "objects"), ("make", "objects/.drafts"), ("sync", "draft"), *way, *last]

    done.clear()
    draft = objects.draft()
    draft.write_bytes(b"y")
    objects.adopt("packs/ab/second", draft)
    assert done == [("sync", "draft"), ("link", "objects/packs/ab/second"), ("sync", "objects/packs/ab")]

    done.clear()
    assert not LocalObjects(tmp_path / "objects").put(NAME, [b"x"])
    synced = [".", "objects", "objects/packs", "objects/packs/ab"]
    assert done == [("sync", folder) for folder in synced], "who put it there may not have come so far"


# --- disks that fail -----------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_and_leaves_nothing_and_reads_go_on(disk: Path) -> None:
    """B7, G9: rolled back whole, and usable again once there is space."""
    objects = LocalObjects(disk / "objects")
    objects.put("packs/ab/first", [b"1" * 400_000])
    for _ in range(3):
        with pytest.raises(DiskFullError):
            objects.put("packs/ab/second", [b"2" * 10_000] * 100)
    draft = objects.draft()
    with pytest.raises(OSError, match="No space"), draft.open("wb") as file:
        file.write(b"3" * 1_000_000)
    assert objects.sweep(-1) > 0
    assert files_below(disk) == [disk / "objects/packs/ab/first"]
    assert objects.get("packs/ab/first") == b"1" * 400_000
    objects.delete("packs/ab/first")
    assert objects.put("packs/ab/second", [b"2" * 10_000] * 80)


@pytest.mark.parametrize("when", range(8))
def test_a_disk_that_fails_at_a_sync_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """G3: the error is told, and after one of a folder this handle acknowledges nothing any more."""
    sync, calls = os.fsync, iter(range(1000))

    def failing_sync(descriptor: int) -> None:
        if next(calls) == when:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", failing_sync)
    objects = LocalObjects(tmp_path / "objects")
    if when >= 5:  # of the file, of three folders above it, of its own
        assert objects.put(NAME, [b"x"])
        return
    with pytest.raises(UnavailableError, match=r"[a-z]") as told:
        objects.put(NAME, [b"x"])
    assert str(tmp_path) not in str(told.value)
    assert objects.sweep(-1) == 0
    assert [listed.name for listed in objects.list()] == ([NAME] if when == 4 else [])
    if when > 0:
        with pytest.raises(UnavailableError):
            objects.put(NAME, [b"x"])
    again = LocalObjects(tmp_path / "objects")
    assert again.put(NAME, [b"x"]) == (when != 4)
    assert again.get(NAME) == b"x"


@contextmanager
def _folders_cannot_be_synced() -> Iterator[None]:
    sync = os.fsync

    def failing_sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", failing_sync)
        yield


def test_after_a_folder_could_not_be_synced_no_other_object_is_taken_either(
    tmp_path: Path, objects: LocalObjects
) -> None:
    """G3: the next sync of that folder would succeed, and have brought nothing to the disk."""
    objects.put(NAME, [b"x"])
    with _folders_cannot_be_synced(), pytest.raises(UnavailableError):
        objects.put("packs/ab/second", [b"y"])
    with pytest.raises(UnavailableError, match="could not be made durable"):
        objects.put("packs/cd/third", [b"z"])
    draft = objects.draft()
    draft.write_bytes(b"z")
    with pytest.raises(UnavailableError, match="could not be made durable"):
        objects.adopt("packs/cd/third", draft)
    assert objects.get(NAME) == b"x"
    assert LocalObjects(tmp_path / "objects").put("packs/cd/third", [b"z"])


def test_after_a_folder_could_not_be_synced_a_store_takes_no_pack_until_it_is_opened_again(tmp_path: Path) -> None:
    """G3."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "large").write_bytes(os.urandom(2_000_000))
    with lastgood.open(tmp_path / "store", on_failure="raise") as store:
        task = store.task("work", workspace=work)
        with _folders_cannot_be_synced(), pytest.raises(UnavailableError):
            task.save({})
        (work / "large").write_bytes(os.urandom(2_000_000))
        with pytest.raises(UnavailableError, match="could not be made durable"):
            task.save({})
        assert store.task("without files").save({"small": 1}).state == {"small": 1}
    with lastgood.open(tmp_path / "store") as store:
        made = store.task("work", workspace=work).save({})
        assert store.read_file(made.id, "large") == (work / "large").read_bytes()


def test_a_disk_that_fails_at_reading_is_unavailable_and_not_damage(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.put(NAME, [b"x"])

    def failing_read(*_: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", failing_read)
    with pytest.raises(UnavailableError):
        objects.get(NAME)


def test_an_object_that_was_cut_short_is_damage(tmp_path: Path, objects: LocalObjects) -> None:
    """I3."""
    objects.put(NAME, [b"0123456789"])
    os.truncate(tmp_path / "objects" / NAME, 4)
    with pytest.raises(IntegrityError):
        objects.get(NAME, 0, 10)
    assert objects.get(NAME, 0, 4) == b"0123"


# --- verified --------------------------------------------------------------------------------------------------


@pytest.fixture
def verified(objects: LocalObjects) -> VerifiedObjects:
    return VerifiedObjects(objects)


def named(data: bytes) -> str:
    name = sha256(data).hexdigest()
    return f"packs/{name[:2]}/{name}"


def test_bytes_that_differ_from_their_name_are_not_let_in(tmp_path: Path, verified: VerifiedObjects) -> None:
    """Promise 2, on the way in."""
    with pytest.raises(IntegrityError):
        verified.put(named(b"right"), [b"wro", b"ng"])
    draft = verified.draft()
    draft.write_bytes(b"wrong")
    with pytest.raises(IntegrityError):
        verified.adopt(named(b"right"), draft)
    assert files_below(tmp_path) == []
    draft.write_bytes(b"adopted")
    assert verified.adopt(named(b"adopted"), draft)
    assert verified.put(named(b"right"), [b"ri", b"ght"])
    assert verified.get(named(b"right")) == b"right"
    with pytest.raises(UnavailableError):
        verified.adopt(named(b"other"), draft)


def test_every_flipped_bit_of_a_whole_object_is_noticed(tmp_path: Path, verified: VerifiedObjects) -> None:
    """I3, G6; a range is left to who knows what it should be."""
    data = b"some bytes"
    name = named(data)
    verified.put(name, [data])
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "objects" / name).write_bytes(damaged)
        with pytest.raises(IntegrityError):
            verified.get(name)
        assert verified.get(name, 0, 10) == damaged
    (tmp_path / "objects" / name).write_bytes(data + b"more")
    with pytest.raises(IntegrityError):
        verified.get(name)


def test_names_without_a_digest_are_passed_through(verified: VerifiedObjects) -> None:
    for name in ("plain", named(b"x") + "0", "packs/" + "g" * 64, named(b"x") + ".tar"):
        assert verified.put(name, [b"anything"])
        assert verified.get(name) == b"anything"
    with pytest.raises(NotFoundError):
        verified.get(named(b"missing"))
    assert (verified.durable, verified.shared) == (True, False)
