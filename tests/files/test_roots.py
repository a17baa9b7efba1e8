"""Which folders can be a workspace, what git says about them, and that one at a time works in them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import BusyError, InvalidError, UnavailableError
from lastgood.files.roots import Root, git_exclude, git_head, locked, open_roots
from lastgood.files.rules import Rules

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
PERSON = {f"GIT_{role}_{field}": "tester" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT | PERSON, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made.resolve()


@pytest.fixture
def root(folder: Path) -> Root:
    return Root("", str(folder))


def test_one_folder_is_a_root_without_a_name(folder: Path, tmp_path: Path) -> None:
    """B1: by its real path, however it was written."""
    (tmp_path / "link").symlink_to(folder)
    expected = (Root("", str(folder)),)
    assert open_roots(folder) == open_roots(str(folder)) == open_roots(tmp_path / "link") == expected
    assert open_roots(f"{folder}/../project/.") == expected


def test_several_folders_have_names(tmp_path: Path) -> None:
    """B1: in the order of their names."""
    for name in ("app", "app2", "infra"):
        (tmp_path / name).mkdir()
    roots = open_roots({"infra": tmp_path / "infra", "app": str(tmp_path / "app"), "b": tmp_path / "app2"})
    assert [root.name for root in roots] == ["app", "b", "infra"]


def test_a_name_that_is_no_text_is_kept(tmp_path: Path) -> None:
    """B1: a folder may be called by any bytes."""
    os.mkdir(os.fsencode(tmp_path) + b"/\xff")  # noqa: PTH102
    assert os.fsencode(open_roots(f"{tmp_path}/\udcff")[0].path).endswith(b"/\xff")


def refused(workspace: object, word: str, store: tuple[str, ...] = ()) -> None:
    with pytest.raises(InvalidError, match=word) as caught:
        open_roots(workspace, store=store)  # type: ignore[arg-type]
    assert caught.value.hint


def test_what_is_no_folder_is_refused(folder: Path) -> None:
    """B1."""
    (folder / "file").write_text("x")
    (folder / "loop").symlink_to("loop")
    refused(folder / "file", "not a folder")
    refused(folder / "missing", "not there")
    refused(folder / "loop", "cannot be reached")
    refused(folder / "file" / "below", "cannot be reached")
    refused("", "empty")
    refused("a\0b", "NUL")
    refused(7, "int")
    refused("\ud800", "workspace")


def test_the_root_and_the_home_directory_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1: a checkpoint of everything is a mistake."""
    refused("/", "root of the file system")
    refused("~", "home")
    monkeypatch.setenv("HOME", str(folder))
    refused(folder, "home")
    (folder / "below").mkdir()
    assert open_roots(folder / "below")


def test_the_home_directory_is_refused_when_the_environment_hides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """B1."""
    import pwd

    monkeypatch.setenv("HOME", "/nowhere")
    refused(pwd.getpwuid(os.getuid()).pw_dir, "home")


def test_folders_that_lie_in_each_other_are_refused(folder: Path, tmp_path: Path) -> None:
    """B1: a file would be captured twice."""
    (folder / "below").mkdir()
    (tmp_path / "link").symlink_to(folder)
    refused({"a": folder, "b": folder}, "each other")
    refused({"a": folder, "b": folder / "below"}, "each other")
    refused({"b": folder, "a": folder / "below"}, "each other")
    refused({"a": folder, "b": tmp_path / "link" / "below"}, "each other")
    refused({}, "no folder")
    refused({"": folder}, "empty")
    refused({"a\n": folder}, "control character")


def test_the_store_cannot_be_a_workspace_but_may_lie_in_one(folder: Path, tmp_path: Path) -> None:
    """B1."""
    store = folder / ".lastgood"
    (store / "objects").mkdir(parents=True)
    (tmp_path / "link").symlink_to(store)
    refused(store, "inside the store", (str(store),))
    refused(store / "objects", "inside the store", (str(store),))
    refused(tmp_path / "link", "inside the store", (str(store),))
    refused(store, "inside the store", (str(tmp_path / "link"),))
    assert open_roots(folder, store=(str(store), str(folder / "not" / "there")))


def test_windows_is_refused_plainly(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B1."""
    text = str(folder)
    monkeypatch.setattr(os, "name", "nt")
    try:
        with pytest.raises(InvalidError, match="Windows"):
            open_roots(text)
    finally:
        monkeypatch.undo()


def test_head_is_the_commit_wherever_git_keeps_it(folder: Path, root: Root, tmp_path: Path) -> None:
    """B1: a branch, packed branches, a detached head, a worktree, a submodule's file."""
    assert git_head(root) is None
    git(folder, "init", "-q")
    assert git_head(root) == "main"
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    commit = git(folder, "rev-parse", "HEAD")
    assert git_head(root) == commit
    git(folder, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "topic/x")
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "two")
    assert git_head(Root("", str(tmp_path / "tree"))) == git(tmp_path / "tree", "rev-parse", "HEAD") != commit
    git(folder, "pack-refs", "--all")
    assert not (folder / ".git/refs/heads/main").exists()
    assert git_head(root) == commit
    assert git_head(Root("", str(tmp_path / "tree"))) == git(tmp_path / "tree", "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "--detach")
    assert git_head(root) == commit


@pytest.mark.parametrize(
    "head",
    [
        *("", "\n", "x" * 10_000, COMMIT[:-1], COMMIT.upper(), "ref:", "ref: ", "ref: HEAD", "ref: refs", "ref: refs/"),
        *("ref: refs/../../secret", "ref: /etc/passwd", "ref: refs/heads/../x", "ref: refs/heads/.invalid"),
        *("ref: refs/heads/a b", "ref: refs/heads/a\x1b[31m", "ref: refs/heads/\u202e", "ref: refs/heads/a.lock"),
        *("ref: refs//a", "ref: refs/heads/a\n\nb", "ref: refs/" + "a/" * 500 + "b", "ref: refs/heads/" + "a" * 4000),
    ],
)
def test_a_hostile_head_is_no_head(folder: Path, root: Root, head: str) -> None:
    """B1: what comes from it stands in the record, so it must be a commit or a branch."""
    (folder / ".git").mkdir()
    (folder / "secret").write_text(COMMIT)
    (folder / ".git/HEAD").write_text(head)
    assert git_head(root) is None


def test_a_head_that_leads_on_or_nowhere_is_no_commit(folder: Path, root: Root) -> None:
    """B1."""
    heads = folder / ".git/refs/heads"
    heads.mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/a\n")
    (heads / "a").write_text("ref: refs/heads/b\n")
    assert git_head(root) is None
    (heads / "a").write_text("what is this")
    assert git_head(root) is None
    (heads / "a").unlink()
    os.mkfifo(heads / "a")
    assert git_head(root) == "a"
    (folder / ".git/HEAD").unlink()
    os.mkfifo(folder / ".git/HEAD")
    assert git_head(root) is None


@pytest.mark.parametrize(
    "text", [b"gitdir: .git", b"gitdir:", b"gitdir: a\0b", b"gitdir: \xff/x", b"gitdir: /dev", b"x", b""]
)
def test_a_git_file_that_names_nothing_is_no_repository(folder: Path, root: Root, text: bytes) -> None:
    """B1."""
    (folder / ".git").write_bytes(text)
    assert git_head(root) is None
    assert git_exclude(root) == b""


@given(head=st.binary(max_size=100), packed=st.binary(max_size=100))
def test_no_bytes_make_reading_a_head_raise(
    tmp_path_factory: pytest.TempPathFactory, head: bytes, packed: bytes
) -> None:
    """B1."""
    place = tmp_path_factory.mktemp("any")
    (place / ".git").mkdir()
    for prefix in (b"", b"ref: refs/heads/"):
        (place / ".git/HEAD").write_bytes(prefix + head)
        (place / ".git/packed-refs").write_bytes(packed)
        found = git_head(Root("", str(place)))
        assert found is None or found.isprintable()


def test_the_rules_of_a_root_are_read_from_its_files_only(folder: Path, root: Root, tmp_path: Path) -> None:
    """B1: info/exclude counts; a `.gitignore` that is a link, or lies behind one, does not."""
    git(folder, "init", "-q")
    (folder / ".git/info/exclude").write_text("excluded\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.gitignore").write_text("*\n")
    (folder / ".gitignore").symlink_to(tmp_path / "elsewhere/.gitignore")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "sub").mkdir()
    (folder / "sub/.gitignore").write_text("here\n")
    rules = Rules.of(root)
    names = [b".gitignore", b".lastgoodignore"]
    top, link, sub = (rules.enter(path, names) for path in (b"", b"link", b"sub"))
    assert top.decide(b"excluded", False) == "ignored"
    assert top.decide(b"a", False) is None
    assert link.decide(b"a", False) is None
    assert sub.decide(b"here", False) == "ignored"


def elsewhere(work: Callable[[], object]) -> list[object]:
    """What `work` gives, or raises, in another thread."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def enter(roots: list[Root], folder: Path) -> str:
    with locked(roots, folder, seconds=0):
        return "inside"


def test_one_thread_at_a_time_is_inside(root: Root, tmp_path: Path) -> None:
    """B1: the thread that is inside may enter again; another is told that it is busy."""
    locks = tmp_path / "locks"
    with locked([root], locks), locked([root], locks, seconds=0):
        [error] = elsewhere(lambda: enter([root], locks))
        assert isinstance(error, BusyError)
        assert error.hint
        assert error.retryable
        assert str(tmp_path) not in str(error)
    assert elsewhere(lambda: enter([root], locks)) == ["inside"]


def test_leaving_the_inner_block_keeps_the_outer_lock(root: Root, tmp_path: Path) -> None:
    """B1."""
    with locked([root], tmp_path):
        with locked([root], tmp_path):
            pass
        assert isinstance(elsewhere(lambda: enter([root], tmp_path))[0], BusyError)


def test_roots_do_not_wait_for_other_roots(root: Root, tmp_path: Path) -> None:
    """B1: and the same one twice is one."""
    other = Root("other", str(tmp_path / "other"))
    with locked([root, root], tmp_path):
        assert elsewhere(lambda: enter([other], tmp_path)) == ["inside"]
        assert isinstance(elsewhere(lambda: enter([other, root], tmp_path))[0], BusyError)
        assert elsewhere(lambda: enter([other], tmp_path)) == ["inside"]  # what was taken meanwhile was given back


def test_an_error_inside_gives_the_lock_back(root: Root, tmp_path: Path) -> None:
    """B1."""
    with pytest.raises(ZeroDivisionError), locked([root], tmp_path):
        _ = 1 // 0
    assert elsewhere(lambda: enter([root], tmp_path)) == ["inside"]


def test_another_process_is_shut_out_until_the_holder_dies(root: Root, tmp_path: Path) -> None:
    """B1: even if it was killed."""
    code = (
        "import sys, pathlib\n"
        "from lastgood.files.roots import locked\n"
        "from lastgood.files.roots import Root\n"
        "with locked([Root('', sys.argv[1])], pathlib.Path(sys.argv[2])):\n"
        "    print('inside', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, root.path, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        with pytest.raises(BusyError):
            enter([root], tmp_path)
        process.kill()
        process.wait()
    assert enter([root], tmp_path) == "inside"


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` holds in a forked child, which ends without cleaning up."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_a_forked_child_neither_holds_nor_breaks_its_parents_lock(root: Root, tmp_path: Path) -> None:
    """B1: what the child leaves, the parent keeps."""

    def is_shut_out() -> bool:
        try:
            enter([root], tmp_path)
        except BusyError:
            return True
        return False

    stack = locked([root], tmp_path)
    with stack:
        assert in_child(is_shut_out)
        assert in_child(lambda: stack.__exit__(None, None, None) is not True)
        assert isinstance(elsewhere(lambda: enter([root], tmp_path))[0], BusyError)
    assert in_child(lambda: enter([root], tmp_path) == "inside")
    assert in_child(lambda: elsewhere(lambda: enter([root], tmp_path)) == ["inside"])


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(root: Root, tmp_path: Path) -> None:
    """B1: its copy of the descriptor is closed."""
    code = (
        "import os, sys, pathlib\n"
        "from lastgood.files.roots import locked\n"
        "from lastgood.files.roots import Root\n"
        "with locked([Root('', sys.argv[1])], pathlib.Path(sys.argv[2])):\n"
        "    if not os.fork():\n"
        "        print('alive', flush=True); sys.stdin.read()\n"
        "    os._exit(0)\n"
    )
    command = [sys.executable, "-c", code, root.path, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alive\n"
        process.wait()
        assert enter([root], tmp_path) == "inside"


def test_lock_files_are_private_and_stay(root: Root, tmp_path: Path) -> None:
    """B1: a lock file that is removed could be held twice."""
    locks = tmp_path / "made" / "locks"
    before = os.umask(0)
    try:
        enter([root], locks)
    finally:
        os.umask(before)
    files = list(locks.iterdir())
    assert len(files) == len(Path(root.path).parts)  # one for each folder above it, too
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert locks.stat().st_mode & 0o777 == 0o700
    assert not any(root.path in file.name for file in files)


def test_a_lock_folder_that_cannot_be_used_is_said(root: Root, tmp_path: Path) -> None:
    """B1, A9."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError) as caught:
        enter([root], tmp_path / "file")
    assert not isinstance(caught.value, BusyError)
    assert str(tmp_path) not in str(caught.value)
