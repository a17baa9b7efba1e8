"""What files have besides content and mode comes back with them: extended attributes, access lists, owners (W3);
setuid and setgid only together with the owner that they were given by (S3)."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

import lastgood
from lastgood.errors import IntegrityError
from lastgood.files.apply import Applied, FailedPath, apply
from lastgood.files.plan import make_plan
from lastgood.model.tree import AttributedFile, Attributes, File, decode_tree, encode_tree

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(not hasattr(os, "setxattr"), reason="Python has extended attributes on Linux alone"),
]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")

ACL = "system.posix_acl_access"
NOBODY = 65534


def acl(*entries: tuple[int, int, int]) -> bytes:
    """Return an access control list as the kernel has it: tag, permissions and number of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NONE = 0xFFFFFFFF
READABLE = acl((1, 6, NONE), (2, 4, NOBODY), (4, 4, NONE), (16, 4, NONE), (32, 0, NONE))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def task(tmp_path: Path, work: Path) -> Iterator[lastgood.Task]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store.task("t", workspace=work)


def describe(file: Path) -> tuple[str, int, dict[str, bytes], tuple[int, int]]:
    found = file.stat()
    names = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    return file.read_text(), stat.S_IMODE(found.st_mode), names, (found.st_uid, found.st_gid)


def test_attributes_and_access_lists_come_back_with_a_restore_and_its_undo(task: lastgood.Task, work: Path) -> None:
    """W3: whether the content changed, the attributes alone, or the file was deleted."""
    names = ("edited", "bare", "deleted")
    for name in names:
        (work / name).write_text("old")
        os.setxattr(work / name, "user.origin", b"there\0")
        os.setxattr(work / name, ACL, READABLE)
    old = {name: describe(work / name) for name in names}
    assert all(ACL in about[2] for about in old.values())
    first = task.save({})
    (work / "edited").write_text("new")
    os.setxattr(work / "edited", "user.origin", b"elsewhere")
    os.removexattr(work / "bare", "user.origin")
    (work / "deleted").unlink()
    new = {name: describe(work / name) for name in ("edited", "bare")}
    restored = task.restore(first)
    assert restored.failed == ()
    assert {name: describe(work / name) for name in names} == old
    task.undo()
    assert {file.name: describe(file) for file in work.iterdir()} == new
    task.redo()
    assert {name: describe(work / name) for name in names} == old


def test_what_the_folder_gives_new_files_is_not_taken_for_theirs(task: lastgood.Task, work: Path) -> None:
    """W3: a default access list of the folder, which came after the file."""
    (work / "a").write_text("a")
    first = task.save({})
    os.setxattr(work, "system.posix_acl_default", READABLE)
    (work / "a").unlink()
    (work / "b").touch()
    assert ACL in os.listxattr(work / "b")
    task.restore(first)
    assert os.listxattr(work / "a") == []


def test_one_that_cannot_be_given_is_told_and_the_file_comes_back(
    task: lastgood.Task, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W3: what the file system does not take is listed."""
    (work / "a").write_text("old")
    os.setxattr(work / "a", "user.x", b"1")
    first = task.save({})
    (work / "a").unlink()

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "setxattr", refuse)
    done = task.restore(first)
    assert done.failed == (("a", "it is there, but without user.x"),)
    assert (work / "a").read_text() == "old"


def test_many_files_and_large_ones_keep_theirs(task: lastgood.Task, work: Path) -> None:
    """W3: those that other processes read, and those that are cut into chunks."""
    for number in range(300):
        (work / str(number)).write_bytes(os.urandom(5000))
        os.setxattr(work / str(number), "user.number", str(number).encode())
    (work / "large").write_bytes(os.urandom(3 << 20))
    os.setxattr(work / "large", "user.number", b"large")
    first = task.save({})
    for file in work.iterdir():
        file.unlink()
    task.restore(first)
    assert {file.name: os.getxattr(file, "user.number") for file in work.iterdir()} == {
        name: name.encode() for name in [*map(str, range(300)), "large"]
    }


def test_a_diff_tells_of_changed_ones(task: lastgood.Task, work: Path) -> None:
    (work / "a").write_text("a")
    first = task.save({})
    os.setxattr(work / "a", "user.x", b"1")
    changed = task.diff(first, task.save({})).files
    assert changed is not None
    assert [(change.path, change.change) for change in changed.changes] == [("a", "mode")]


@needs_root
def test_owners_come_back_where_root_restores(task: lastgood.Task, work: Path) -> None:
    """W3: the owner is noted where it is not that of the folder; new files have that of the folder."""
    os.chown(work, 1000, 1000)
    for name, owner in {"theirs": (NOBODY, 1000), "ours": (1000, 1000)}.items():
        (work / name).write_text("old")
        os.chown(work / name, *owner)
    first = task.save({})
    (work / "folder").mkdir()
    os.chown(work / "folder", 1000, 1000)
    first = task.save({})
    for name in ("theirs", "ours"):
        (work / name).unlink()
    (work / "folder").rmdir()
    task.restore(first)
    assert ((work / "folder").stat().st_uid, (work / "folder").stat().st_gid) == (1000, 1000)
    assert describe(work / "theirs")[3] == (NOBODY, 1000)
    assert describe(work / "ours")[3] == (1000, 1000)


def test_a_file_is_setuid_again_only_for_the_owner_that_it_had(task: lastgood.Task, work: Path) -> None:
    """S3: root that restores from a store of others makes nothing setuid root."""
    tool = work / "tool"
    tool.write_text("#!")
    tool.chmod(0o6755)
    first = task.save({})
    tool.unlink()
    assert task.restore(first).failed == ()
    assert describe(tool)[1] == 0o6755


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_whose_owner_is_not_known_is_not_setuid_and_that_is_told(work: Path, is_there: bool) -> None:
    """S3: neither when it is written, nor when it is there and only its mode changes."""
    old = File(b"tool", 0o755, 2, sha256(b"#!").digest())
    trees = {name: encode_tree([msgspec.structs.replace(old, mode=mode)]) for name, mode in MODES.items()}
    if is_there:
        (work / "tool").write_text("#!")
        (work / "tool").chmod(0o755)
    plan = make_plan(b"new", b"old" if is_there else None, trees.__getitem__)
    applied = apply(str(work), plan, lambda file: iter([b"#!"]))
    assert describe(work / "tool")[1] == 0o755
    told = "it is there, but without setuid and setgid, because its owner or that of the store is another one"
    assert applied == Applied((b"tool",), (), (), (FailedPath(b"tool", told),))


MODES = {b"old": 0o755, b"new": 0o6755}


def give_away(store: Path) -> None:
    for path in (store, *store.rglob("*")):
        os.chown(path, NOBODY, NOBODY)


def let_all_write(store: Path) -> None:
    (store / "catalog.sqlite").chmod(0o666)


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("open_to_others", [pytest.param(give_away, marks=needs_root), let_all_write])
def test_a_store_that_others_can_write_makes_nothing_setuid(
    tmp_path: Path, work: Path, is_there: bool, open_to_others: Callable[[Path], None]
) -> None:
    """S3: whoever can write a tree can write into it that a file was root's, and setuid."""
    tool = work / "tool"
    tool.write_text("#!")
    tool.chmod(0o6755)
    with lastgood.open(tmp_path / "store", user="ada") as store:
        first = store.task("t", workspace=work).save({})
    open_to_others(tmp_path / "store")
    if is_there:
        tool.chmod(0o755)
    else:
        tool.unlink()
    with lastgood.open(tmp_path / "store", user="ada") as store:
        task = store.task("t", workspace=work)
        told = "it is there, but without setuid and setgid, because its owner or that of the store is another one"
        assert task.restore(first.id).failed == (("tool", told),)
        task.copy_files(first.id, tmp_path / "copy")
    assert [describe(folder / "tool")[1] for folder in (work, tmp_path / "copy")] == [0o755, 0o755]


@needs_root
def test_a_store_of_another_user_gives_no_file_away(tmp_path: Path, work: Path) -> None:
    """S3: a file that it says was another's, or root's, has the owner of its folder, and that is told."""
    (work / "theirs").write_text("old")
    os.chown(work / "theirs", 1000, 1000)
    with lastgood.open(tmp_path / "store", user="ada") as store:
        first = store.task("t", workspace=work).save({})
    (work / "theirs").unlink()
    give_away(tmp_path / "store")
    with lastgood.open(tmp_path / "store", user="ada") as store:
        done = store.task("t", workspace=work).restore(first.id)
    assert done.failed == (("theirs", "it is there, but without its owner"),)
    assert describe(work / "theirs")[3] == (0, 0)


def test_a_file_without_attributes_costs_no_byte_more(task: lastgood.Task, work: Path) -> None:
    (work / "plain").write_text("plain")
    (head,) = task.save({}).record.files or ()
    (entry,) = decode_tree(task._handle.blobs.read(head.tree))
    assert type(entry) is File


DIGEST = bytes(32)


@pytest.mark.parametrize(
    "attributes",
    [
        None,
        Attributes(None),
        Attributes((-1, 0)),
        Attributes((0, 1 << 32)),
        Attributes(None, ((b"security.capability", b""),)),
        Attributes(None, ((b"user.b", b""), (b"user.a", b""))),
        Attributes(None, ((b"user.a", b""), (b"user.a", b""))),
        Attributes(None, ((b"user.\0", b""),)),
        Attributes(None, ((b"user.a", bytes(1 << 16)),)),
    ],
)
def test_a_tree_with_attributes_that_give_rights_or_cannot_be_is_refused(attributes: Attributes | None) -> None:
    """W3, S3: a store from outside must not give a file capabilities."""
    whole = AttributedFile(b"a", 0o644, 0, DIGEST, None, DIGEST, Attributes((1, 2), ((b"user.a", b"x"),)))
    assert decode_tree(encode_tree([whole])) == (whole,)
    with pytest.raises(IntegrityError):
        decode_tree(encode_tree([msgspec.structs.replace(whole, attributes=attributes)]))
