"""What a lastgood.toml that somebody else wrote can do: nothing outside its own folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import lastgood
from lastgood import ForbiddenError, InvalidError, NotFoundError
from lastgood.local.location import find_config, find_config_file, locate
from lastgood.local.trust import forget, read_trusted, trust

NOBODY = 65534


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was cloned, in which one stands."""
    for name in ("LASTGOOD_STORE", "SUDO_UID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("DATA", "CONFIG"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    place = tmp_path / "cloned"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def write(folder: Path, text: str) -> None:
    (folder / "lastgood.toml").write_text(text)


def test_a_cloned_file_cannot_purge_other_tasks(folder: Path, tmp_path: Path) -> None:
    """S1: `store` was the user's default store, and `max_bytes = 1`."""
    with lastgood.open() as store:
        for number in range(6):
            store.task("unrelated").save({"n": number})
    write(folder, 'store = "~/.local/share/lastgood"\nmax_bytes = 1\n')
    with pytest.raises(InvalidError, match="cannot set max_bytes") as refused:
        lastgood.open()
    assert "lastgood limit SIZE --keep" in (refused.value.hint or "")
    write(folder, 'store = "~/.local/share/lastgood"\n')
    with pytest.raises(ForbiddenError, match="outside its folder") as refused_too:
        lastgood.open()
    assert f"`lastgood trust {folder / 'lastgood.toml'}`" in (refused_too.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        'store = "../store"\n',
        'store = "/tmp/store"\n',
        'store = "~/store"\n',
        'store = "s3://bucket/store"\n',
        'store = "link"\n',
        'store = "link/store.sqlite"\n',
        'workspace = ".."\n',
        'workspace = "~/.ssh"\n',
        'workspace = "link"\n',
        'workspace = ".git"\n',
        'workspace = "sub/.GIT/hooks"\n',
        'store = ".git/hooks"\n',
        '[workspace]\na = "."\nb = "/etc"\n',
        'spool = "/tmp"\n',
    ],
)
def test_what_leads_out_of_its_folder_needs_trust(folder: Path, tmp_path: Path, text: str) -> None:
    """S1, S2"""
    (folder / "link").symlink_to(tmp_path)
    write(folder, text)
    with pytest.raises(ForbiddenError, match="is not trusted: it names"):
        find_config()


@pytest.mark.parametrize(
    "inside", ["catalog.sqlite", "catalog.sqlite-wal", "objects", "objects/.drafts", "objects/packs/ab", "quarantine"]
)
def test_a_link_inside_the_store_leads_out_too(folder: Path, tmp_path: Path, inside: str) -> None:
    """S1: a sweep of `.drafts` would delete what lies behind it."""
    link = folder / ".lastgood" / inside
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    write(folder, "")
    with pytest.raises(ForbiddenError, match="is not trusted"):
        find_config()


@pytest.mark.parametrize("text", ["", 'store = "."\n', 'workspace = "a/../b"\n', 'store = "in/x.db"\nspool = "s"\n'])
def test_what_stays_in_its_folder_needs_none(folder: Path, text: str) -> None:
    (folder / "in").symlink_to("real")
    write(folder, text)
    assert find_config() is not None


def test_trust_is_for_one_path_and_one_content(folder: Path, tmp_path: Path) -> None:
    write(folder, 'store = "../store"\n')
    file = find_config_file()
    assert file is not None
    trust(file)
    assert locate().place == folder / "../store"
    assert list(read_trusted()) == [str(folder / "lastgood.toml")]
    assert (tmp_path / "home" / ".config" / "lastgood" / "trusted.json").stat().st_mode & 0o77 == 0
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(ForbiddenError):
        find_config(tmp_path / "copy")
    write(folder, 'store = "../store"\n# changed\n')
    with pytest.raises(ForbiddenError):
        find_config()
    assert forget(folder / "lastgood.toml")
    assert not forget(folder / "lastgood.toml")
    assert read_trusted() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED, files of another user: that needs root")
@pytest.mark.parametrize("whose", ["file", "folder", "link"])
def test_a_file_of_another_user_is_refused(folder: Path, whose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S2: another user's file in a folder above was obeyed. Under sudo the caller's is one's own, as with git."""
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    if whose == "link":
        (folder / "lastgood.toml").symlink_to(folder / "a" / "mine")
        (folder / "a" / "mine").write_text("")
        os.chown(folder / "lastgood.toml", NOBODY, NOBODY, follow_symlinks=False)
    else:
        write(folder, "")
        os.chown(folder / "lastgood.toml" if whose == "file" else folder, NOBODY, NOBODY)
    monkeypatch.chdir(deep)
    with pytest.raises(ForbiddenError, match="belongs to another user"):
        lastgood.open()
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    assert find_config() is not None


@pytest.mark.parametrize(("name", "mode"), [(".", 0o777), ("lastgood.toml", 0o666)])
def test_what_everybody_may_write_is_refused(folder: Path, name: str, mode: int) -> None:
    """S2. In a folder with the sticky bit, as /tmp, others cannot replace a file."""
    write(folder, "")
    (folder / name).chmod(mode)
    with pytest.raises(ForbiddenError, match="everybody may write it"):
        find_config()
    folder.chmod(0o1777)
    (folder / "lastgood.toml").chmod(0o644)
    assert find_config() is not None


@pytest.mark.parametrize("text", ["a = " + "[" * 30_000, "x = '" + "y" * 100_000 + "'", "\0", "a.b.c = 1", "\ud800"])
def test_a_malicious_file_is_an_error_of_ours(folder: Path, text: str) -> None:
    """C3: TOML nested deep was a RecursionError."""
    (folder / "lastgood.toml").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InvalidError, match=r"lastgood\.toml"):
        lastgood.open()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_not_a_file_is_no_configuration(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "lastgood.toml")
    assert find_config() is None


def test_a_key_that_is_nearly_right_is_suggested(folder: Path) -> None:
    write(folder, 'stroe = "x"\n')
    with pytest.raises(InvalidError) as refused:
        find_config()
    assert str(refused.value) == "unknown key 'stroe' in lastgood.toml (did you mean 'store'?)"


# --- git -----------------------------------------------------------------------------------------------------------


def git(*words: str, at: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, *words], cwd=at, check=True, capture_output=True)


@pytest.fixture
def repository(folder: Path) -> Path:
    git("init", at=folder)
    write(folder, 'store = ".git/lastgood"\n')
    git("add", ".", at=folder)
    git("commit", "-m", "first", at=folder)
    return folder


def test_a_store_may_be_in_the_git_directory(repository: Path) -> None:
    """First use 8"""
    (repository / "sub").mkdir()
    write(repository / "sub", 'store = ".git/lastgood"\n')
    for folder in (repository, repository / "sub"):
        config = find_config(folder)
        assert config is not None
        assert config.leads_out() is None
    assert locate().place == repository / ".git" / "lastgood"


def test_worktrees_share_the_store_of_their_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("worktree", "add", "../other", at=repository)
    monkeypatch.chdir(tmp_path / "other")
    assert locate().place == repository / ".git" / "lastgood"


def test_a_submodule_has_the_store_in_its_own_git_directory(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    above = tmp_path / "above"
    above.mkdir()
    git("init", at=above)
    git("submodule", "add", str(repository), "part", at=above)
    monkeypatch.chdir(above / "part")
    assert locate().place == above / ".git" / "modules" / "part" / "lastgood"


@pytest.mark.parametrize("how", ["file", "link"])
def test_a_git_directory_that_does_not_know_the_folder_is_not_its_own(
    repository: Path, tmp_path: Path, how: str
) -> None:
    """S1: an archive may contain a `.git` that points to another repository."""
    other = tmp_path / "archive"
    other.mkdir()
    write(other, 'store = ".git/lastgood"\n')
    if how == "link":
        (other / ".git").symlink_to(repository / ".git")
    else:
        (other / ".git").write_text(f"gitdir: {repository / '.git'}\n")
    with pytest.raises(NotFoundError, match="in no git repository"):
        find_config(other)


def test_a_link_from_the_git_directory_leads_out(repository: Path) -> None:
    (repository / ".git" / "lastgood").symlink_to("objects")
    with pytest.raises(ForbiddenError):
        find_config()


def test_the_store_is_found_after_git_clean(repository: Path) -> None:
    """First use 8: `git clean -fdx` took the store; it may take the file that names it."""
    with lastgood.open() as store:
        store.task("work").save({"n": 1})
    git("rm", "--cached", "lastgood.toml", at=repository)
    git("clean", "-fdx", at=repository)
    assert not (repository / "lastgood.toml").exists()
    assert locate().place == repository / ".git" / "lastgood"
    assert locate().found_by == str(repository / ".git")
    with lastgood.open() as store:
        assert store.task("work").state == {"n": 1}
