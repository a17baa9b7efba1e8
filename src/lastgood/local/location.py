"""Where a store is: from an argument, the environment, a `lastgood.toml` above, or the user's data directory; and what
this host keeps beside it."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lastgood.errors import ForbiddenError, InvalidError, NotFoundError, UnavailableError
from lastgood.local.paths import CATALOG, STORE_ENDINGS, is_catalog_header, make_private_folder, read_beginning
from lastgood.local.process import renew_after_fork
from lastgood.model.identity import check_name

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

VARIABLE = "LASTGOOD_STORE"
CONFIG = "lastgood.toml"
FOLDER = ".lastgood"
MEMORY = ":memory:"
GIT_STORE = ".git/lastgood"
"""The store in the git directory of the repository that a folder is in, wherever that is: git cleans nothing there."""

MAX_CONFIG_BYTES = 64 << 10
BESIDE = ".lastgood"
"""The ending of the folder that holds a store beside an application's registry."""
BRING_BACK = "bring it back to where it was; if it is gone for good, store.replay(discard=True) gives up what waits"

_FOR_THE_STORE = {
    "max_bytes": "the limit belongs to the store: `lastgood limit SIZE --keep` sets it",
    "spool_bytes": "the size of the spool is chosen by who opens the store: lastgood.open(…, spool_bytes=…)",
}
"""What a file beside a program's files cannot say, as it would be said of other tasks, too; and how it is said."""


class Location(NamedTuple):
    """A place of a store. `catalog` None: in memory. `registry`: the application's own file that it lies beside."""

    catalog: Path | None
    found_by: str = "argument"
    registry: Path | None = None

    @property
    def config(self) -> Path | None:
        """The `lastgood.toml` that names it, if one does."""
        return Path(self.found_by) if self.found_by.endswith(CONFIG) else None

    def is_confined(self) -> bool:
        """Return whether it came with a folder (a `lastgood.toml` or a git directory names it) that the user has not
        said to trust: what is in it may have been written by anybody, and must not lead out of that folder."""
        if self.found_by in ("argument", VARIABLE, "default"):
            return False
        from lastgood.local.trust import is_own

        file = _read_config(Path(self.found_by))
        return file is None or not is_own(file)

    @property
    def place(self) -> Path | None:
        """The path that people know it by: its folder, or the file that it is."""
        return self.catalog.parent if self.catalog is not None and self.catalog.name == CATALOG else self.catalog

    @property
    def objects(self) -> Path | None:
        """The folder of its packs."""
        return None if self.catalog is None else objects_beside(self.catalog)

    @property
    def cache(self) -> Path | None:
        """The folder of what can be made anew: stat indexes, locks."""
        return None if self.catalog is None else objects_beside(self.catalog).with_suffix(".cache")

    @property
    def quarantine(self) -> Path | None:
        """The folder of what repairs took out of it, and of copies of what they changed."""
        return None if self.catalog is None else _beside(self.catalog, "quarantine")

    def is_private(self) -> bool:
        """Return whether nobody but its owner can read what is there of it: files, or the folder around them."""
        catalog, objects = self.catalog, self.objects
        if catalog is None or objects is None or not catalog.parent.stat().st_mode & 0o077:
            return True
        return not any(path.stat().st_mode & 0o077 for path in (catalog, objects) if path.exists())

    def is_own(self) -> bool:
        """Return whether nobody but this user can have written what is there of it."""
        for path in self.parts():
            with suppress(FileNotFoundError):
                if (found := path.stat()).st_uid != os.geteuid() or found.st_mode & 0o022:
                    return False
        return True

    def may_write(self) -> bool:
        """Return whether this user is permitted to write into it. A disk that can only be read is another matter."""
        path = self.catalog
        if path is None or not os.access(path, os.F_OK) or os.access(path, os.W_OK):
            return True
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def parts(self) -> list[Path]:
        """Return the files and folders that it consists of, whether they are there or not."""
        if self.catalog is None:
            return []
        ends = ("", "-wal", "-shm", "-lock", "-journal")  # the last is none of its own, and refused
        beside = [self.catalog.with_name(self.catalog.name + end) for end in ends]
        return [*beside, *(path for path in (self.objects, self.cache, self.quarantine) if path is not None)]


def objects_beside(catalog: Path) -> Path:
    """Return the folder of a store's objects."""
    return _beside(catalog, "objects")


def _beside(catalog: Path, name: str) -> Path:
    return catalog.with_name(name) if catalog.name == CATALOG else catalog.with_suffix(f".{name}")


class Config(NamedTuple):
    """A `lastgood.toml`, with the folder it stands in."""

    folder: Path
    store: str = FOLDER
    task: str | None = None
    workspace: str | Mapping[str, str] | None = None
    collect: str | None = None
    spool: str | None = None
    secret_files: str | None = None

    def options(self) -> dict[str, Any]:
        """Return what it says of how to open the store that it names."""
        spool = None if self.spool is None else self._path(self.spool)
        said = {"collect": self.collect, "spool": spool, "secret_files": self.secret_files}
        return {name: value for name, value in said.items() if value is not None}

    def folders(self) -> str | dict[str, str] | None:
        """Return the workspace, with paths that begin at the file's folder; None where it names none."""
        if self.workspace is None or isinstance(self.workspace, str):
            return None if self.workspace is None else self._path(self.workspace)
        return {name: self._path(path) for name, path in self.workspace.items()}

    def location(self) -> Location:
        """Return where its store is."""
        file = self.folder / CONFIG
        return _place(self.store, self.folder, str(file if file.exists() else self.folder / ".git"))

    def has_store(self) -> bool:
        """Return whether the store that it names is there."""
        catalog = self.location().catalog
        return catalog is not None and catalog.exists()

    def _path(self, path: str) -> str:
        return str(_expand(self.folder, path))

    def leads_out(self) -> str | None:
        """Return a path that it names and that does not stay in its folder, the store's also not in the git directory;
        None when all do. A link inside the store that leads elsewhere counts, too."""
        folders = self.folders() or {}
        named = [folders] if isinstance(folders, str) else list(folders.values())
        named += [] if self.spool is None else [self._path(self.spool)]
        if "://" in self.store:
            return self.store
        home = git_store(self.folder) if self.store == GIT_STORE else self.folder
        places = [(self.folder, path) for path in named] + [(home, path) for path in _links_of(self.location())]
        return next((path for folder, path in places if not _stays_in(folder, path)), None)


def locate(target: str | os.PathLike[str] | None = None, *, beside: bool = False) -> Location:
    """Return where the store is that `target` names. With `beside` a file is an application's registry, which the store
    lies beside, unless it is a catalog itself; without, that is so where such a store is there already."""
    if target is not None:
        try:
            return _place(os.fspath(target), None, "argument", beside=beside)
        except TypeError as error:
            raise InvalidError(f"a store cannot be {type(target).__name__}", hint="give a path, or :memory:") from error
    if value := os.environ.get(VARIABLE):
        return _place(value, None, VARIABLE)
    if (config := find_config()) is not None:
        return config.location()
    return _place(str(data_folder()), None, "default")


def options_for(target: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the options for the store that `target` stands for, where a `lastgood.toml` names both."""
    if target is not None or os.environ.get(VARIABLE):
        return {}
    config = find_config()
    return {} if config is None else config.options()


def current_folder() -> Path:
    """Return the working directory; NotFoundError when it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise NotFoundError("the current folder was deleted", hint="go to another, or give absolute paths") from error


class ConfigFile(NamedTuple):
    """A `lastgood.toml` as it lies there, and what the system says of it."""

    path: Path
    data: bytes
    found: os.stat_result


def find_config(start: Path | None = None) -> Config | None:
    """Find the nearest `lastgood.toml`, from `start` upwards. ForbiddenError for one that is not trusted.

    Where there is none, the store in a git directory is enough: `git clean` has taken the file.
    """
    file = find_config_file(start)
    if file is None:
        return _find_in_git(start)
    doubt = _why_not_own(file)
    config = None if doubt else _parse(file)
    if config is not None and (path := config.leads_out()) is not None:
        doubt = f"it names {path}, which is outside its folder"
    if doubt is not None:
        from shlex import quote

        from lastgood.local.trust import is_trusted

        if not is_trusted(file):
            raise ForbiddenError(
                f"{file.path} is not trusted: {doubt}",
                hint=f"read it; `lastgood trust {quote(str(file.path))}` then allows it",
            )
    return config or _parse(file)


def find_config_file(start: Path | None = None) -> ConfigFile | None:
    """Find the nearest `lastgood.toml`, from `start` upwards, and read it."""
    try:
        folder = (start or Path.cwd()).resolve()
    except FileNotFoundError:  # of a deleted folder nothing is above
        return None
    for candidate in (folder, *folder.parents):
        if (file := _read_config(candidate / CONFIG)) is not None:
            return file
    return None


def _read_config(path: Path) -> ConfigFile | None:
    """Read the file, or no more of it than may be; None when there is none."""
    try:
        read = read_beginning(path, MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    return None if read is None else ConfigFile(path, *read)


def _find_in_git(start: Path | None) -> Config | None:
    try:
        folder = (start or Path.cwd()).resolve()
        git = next((above / ".git" for above in (folder, *folder.parents) if (above / ".git").exists()), None)
        if git is None or (git.is_dir() and not (git / "lastgood").exists()):
            return None
        from lastgood.local.git import find_repository

        found = find_repository(folder)
        if found is None or found.directory is None:
            return None
        catalog = found.directory / "lastgood" / CATALOG
        theirs = {path.stat().st_uid for path in (found.folder, found.directory, catalog)} - _own_users()
    except OSError:  # there is none
        return None
    config = Config(found.folder, GIT_STORE, workspace=".")
    return None if theirs or config.leads_out() else config


def _why_not_own(file: ConfigFile) -> str | None:
    """Return why others may have written the file, in words; None when only this user or the system may."""
    folder = file.path.parent.stat()
    for what, found in (("it", file.found), ("it", file.path.lstat()), ("its folder", folder)):
        if found.st_uid not in _own_users():
            return f"{what} belongs to another user"
    if file.found.st_mode & stat.S_IWOTH or (folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX):
        return "everybody may write it"
    return None


def _own_users() -> set[int]:
    """Return whose files are believed, as git has it: one's own and root's; by root under sudo the caller's, too."""
    caller = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {0, os.geteuid(), *([int(caller)] if caller.isdecimal() else [])}


def default_task(config: Config | None) -> str:
    """Return the task of the current folder: what its config says, else the folder's name."""
    folder = config.folder if config else current_folder()
    given = None if config is None else config.task
    return check_name(
        "the folder's name" if given is None else "task", folder.name or "root" if given is None else given
    )


def _parse(file: ConfigFile) -> Config:
    import tomllib

    if len(file.data) > MAX_CONFIG_BYTES:
        raise _unreadable(file.path, f"it has more than {MAX_CONFIG_BYTES:,} bytes")
    try:
        data = tomllib.loads(file.data.decode())
    except RecursionError as error:
        raise _unreadable(file.path, "it is nested too deep") from error
    except ValueError as error:
        raise _unreadable(file.path, error) from error
    for key in data:
        _check_key(file.path, key)
    named = data.get("workspace")
    values = {**data, **named, "workspace": ""} if isinstance(named, dict) else data
    for key, value in values.items():
        if not isinstance(value, str) or "\0" in value:
            raise InvalidError(f"{key} in {CONFIG} is not text", hint=f'write {key} = "…" in {file.path}', field=key)
    if data.get("store") == MEMORY:
        told = f"{CONFIG} names a store in memory, where nothing stays"
        raise InvalidError(told, hint=f"name a folder in {file.path}", field="store")
    return Config(file.path.parent, **data)


def _check_key(path: Path, key: str) -> None:
    known = Config._fields[1:]
    if key in known:
        return
    if key in _FOR_THE_STORE:
        raise InvalidError(
            f"{CONFIG} cannot set {key}", hint=f"{_FOR_THE_STORE[key]}; remove it from {path}", field=key
        )
    from difflib import get_close_matches

    near = "".join(f" (did you mean {one!r}?)" for one in get_close_matches(key, known, 1))
    shown = repr(key if len(key) <= 100 else key[:100] + "…")
    raise InvalidError(f"unknown key {shown} in {CONFIG}{near}", hint=f"{path} takes {', '.join(known)}", field="key")


def _unreadable(path: Path, why: object) -> InvalidError:
    return InvalidError(f"{CONFIG} cannot be read: {why}", hint=f"look at {path}")


def _stays_in(folder: Path, path: str) -> bool:
    """Return whether a path leads into a folder, and there not to what is git's: its hooks are programs."""
    real = Path(os.path.realpath(path))
    return real.is_relative_to(folder) and ".git" not in str(real.relative_to(folder)).lower().split("/")


def _links_of(store: Location) -> Iterator[str]:
    """Yield the place of a store and all links in it, as deep as its folders are used: what is none stays there."""
    if store.catalog is not None:
        yield str(store.catalog.parent)
    for part in map(str, store.parts()):
        if os.path.islink(part):  # noqa: PTH114
            yield part
        for inside, is_link in _folders_in(part):
            if is_link:
                yield inside
            yield from (path for path, is_link in _folders_in(inside) if is_link)


def _folders_in(folder: str) -> list[tuple[str, bool]]:
    """Return the links and the folders in a folder, and which are links; none when it is no folder."""
    with suppress(OSError), os.scandir(folder) as found:
        return [(one.path, one.is_symlink()) for one in found if one.is_symlink() or one.is_dir(follow_symlinks=False)]
    return []


def _place(target: str, base: Path | None, found_by: str, *, beside: bool = False) -> Location:
    if target == MEMORY:
        return Location(None, found_by)
    scheme, separator, _ = target.partition("://")
    if separator:
        raise InvalidError(f"there is no backend for {scheme}://", hint="give a path, or :memory:")
    if not target or "\0" in target:
        raise InvalidError("the store's path is empty or has a NUL in it", hint="give a folder or a .sqlite file")
    path = _expand(base, target)
    if (path.suffix in STORE_ENDINGS and not path.is_dir()) or path.is_file():
        folder = path.with_suffix(BESIDE)
        if (beside or folder.is_dir()) and not _is_catalog(path):
            return Location(folder / CATALOG, found_by, path)
    if path.suffix in STORE_ENDINGS and not path.is_dir():
        return Location(path, found_by)
    if path.exists() and not path.is_dir():
        raise InvalidError(
            f"{path.name} is a file, not a store", hint="a store is a folder, or a file ending in .sqlite"
        )
    return Location(path / CATALOG, found_by)


def _is_catalog(path: Path) -> bool:
    """Return whether a file is a catalog, also a damaged one: that has its lock file beside it."""
    if path.with_name(path.name + "-lock").exists():
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_catalog_header(file.read(100))


def _expand(base: Path | None, path: str) -> Path:
    """Return the path, from `base` or from the working directory."""
    try:
        expanded = Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidError(f"there is no home for {path.split('/')[0]!r}", hint="give another path") from error
    if base is not None and path == GIT_STORE:
        return git_store(base)
    return expanded if expanded.is_absolute() else (base or current_folder()) / expanded


def git_store(folder: Path) -> Path:
    """Return the place of the store in the git directory of the repository that a folder is in."""
    from lastgood.local.git import find_repository

    found = find_repository(folder)
    if found is None or found.directory is None:
        raise NotFoundError(
            f"{folder} is in no git repository, but its {CONFIG} has store = {GIT_STORE!r}",
            hint=f"bring the repository back, or name another store in {folder / CONFIG}",
        )
    return found.directory / "lastgood"


def data_folder() -> Path:
    """Return the folder of this user's own data: the store, where none is named."""
    return _user_folder("XDG_DATA_HOME", ".local/share")


def config_folder() -> Path:
    """Return the folder of this user's own configuration."""
    return _user_folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """Return the folder in which this user's programs keep state that is not data."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, usual: str) -> Path:
    if sys.platform != "darwin" and (chosen := os.environ.get(variable)):
        return Path(chosen) / "lastgood"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise NotFoundError(
            "this user has no home directory", hint=f"set HOME, or name the store in {VARIABLE}"
        ) from error
    usual = usual if sys.platform != "darwin" else "Library/Application Support"
    return home / usual / "lastgood"


def make_folder(folder: Path) -> None:
    """Make a folder, private if it is new. What exists is left as it is."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_mode & 0o777 != 0o700:
            folder.chmod(0o700)


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing; `mkdir(parents=True)` would let others into these."""
    if not folder.is_dir():
        make_private(folder.parent)
        with suppress(FileExistsError):
            make_private_folder(folder)


def config_text(values: dict[str, Any]) -> str:
    """Encode a `lastgood.toml`."""
    return "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in values.items())


NOTE = ".gitignore"
"""What `lastgood init` puts into a store's folder beside the store."""


class LocalFolder:
    """The local folder of one store; a temporary one for a store in memory. Made when it is first needed."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._temporary: TemporaryDirectory[str] | None = None
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        self._lock = threading.Lock()

    def path(self) -> Path:
        """Return the folder. Its content is a cache, except for locks while they are held.

        UnavailableError when the folder of the store is gone: nothing may be made in its place.
        """
        location = self._location
        if location.catalog is not None and location.cache is not None:
            if not location.catalog.parent.is_dir():
                raise UnavailableError("the store's folder is gone", hint=BRING_BACK)
            return location.cache
        with self._lock:
            if self._temporary is None:
                from tempfile import TemporaryDirectory

                self._temporary = TemporaryDirectory(prefix="lastgood-")
            return Path(self._temporary.name)

    def own_paths(self) -> list[Path]:
        """Return the paths that must not be captured with a workspace that the store lies in."""
        if (file := self._location.catalog) is None:
            return []
        own = [path.resolve() for path in self._location.parts()]
        folder = file.parent.resolve()
        try:
            others = {path.resolve() for path in folder.iterdir()} - set(own)
        except OSError as error:
            raise UnavailableError("the store's folder cannot be read", hint="look at it and the disk") from error
        return [folder] if file.name == CATALOG and others <= {folder / NOTE} else own

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
