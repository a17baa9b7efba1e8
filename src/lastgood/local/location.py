"""Where a store is: from an argument, the environment, a `lastgood.toml` above, or the user's data directory; and what
this host keeps beside it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lastgood.errors import InvalidError, UnavailableError
from lastgood.local.process import renew_after_fork
from lastgood.model.identity import check_name

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

VARIABLE = "LASTGOOD_STORE"
CONFIG = "lastgood.toml"
FOLDER = ".lastgood"
CATALOG = "catalog.sqlite"
MEMORY = ":memory:"

_FILE_ENDINGS = (".sqlite", ".db")


class Location(NamedTuple):
    """A place of a store. `catalog` None: in memory."""

    catalog: Path | None
    found_by: str = "argument"

    @property
    def config(self) -> Path | None:
        """The `lastgood.toml` that names it, if one does."""
        return Path(self.found_by) if self.found_by.endswith(CONFIG) else None

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
    max_bytes: int | None = None
    spool: str | None = None
    spool_bytes: int | None = None

    def options(self) -> dict[str, Any]:
        """Return what it says of how to open the store that it names."""
        spool = None if self.spool is None else self._path(self.spool)
        numbers = {"max_bytes": self.max_bytes, "spool_bytes": self.spool_bytes}
        said = {"collect": self.collect, "spool": spool, **numbers}
        return {name: value for name, value in said.items() if value is not None}

    def folders(self) -> str | dict[str, str] | None:
        """Return the workspace, with paths that begin at the file's folder; None where it names none."""
        if self.workspace is None or isinstance(self.workspace, str):
            return None if self.workspace is None else self._path(self.workspace)
        return {name: self._path(path) for name, path in self.workspace.items()}

    def _path(self, path: str) -> str:
        return str(_expand(self.folder, path))


def locate(target: str | os.PathLike[str] | None = None) -> Location:
    if target is not None:
        try:
            return _place(os.fspath(target), Path.cwd(), "argument")
        except TypeError as error:
            raise InvalidError(f"a store cannot be {type(target).__name__}", hint="give a path, or :memory:") from error
    if value := os.environ.get(VARIABLE):
        return _place(value, Path.cwd(), VARIABLE)
    if (config := find_config()) is not None:
        return _place(config.store, config.folder, str(config.folder / CONFIG))
    return _place(str(_user_folder("XDG_DATA_HOME", ".local/share")), Path.cwd(), "default")


def options_for(target: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return the options for the store that `target` stands for, where a `lastgood.toml` names both."""
    if target is not None or os.environ.get(VARIABLE):
        return {}
    config = find_config()
    return {} if config is None else config.options()


def find_config(start: Path | None = None) -> Config | None:
    """Find the nearest `lastgood.toml`, from `start` upwards."""
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if (file := candidate / CONFIG).is_file():
            return _read_config(file)
    return None


def default_task(config: Config | None) -> str:
    """Return the task of the current folder: what its config says, else the folder's name."""
    folder = config.folder if config else Path.cwd()
    return check_name("the folder's task", (config and config.task) or folder.name or "root")


def _read_config(file: Path) -> Config:
    import tomllib

    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidError(f"{CONFIG} cannot be read: {error}", hint=f"mend {file}") from error
    numbers = {name: data.pop(name, None) for name in ("max_bytes", "spool_bytes")}
    unknown = set(data) - {"store", "task", "workspace", "collect", "spool"}
    values = list(data.values())
    if isinstance(named := data.get("workspace"), dict):
        values.remove(named)
        values += named.values()
    if unknown or not all(isinstance(value, str) for value in values):
        raise InvalidError(
            f"{CONFIG} has something unknown: {', '.join(sorted(unknown)) or 'a value that is not text'}",
            hint='it takes store = "…", task = "…" and workspace = "…", or a table [workspace] of names and paths, '
            'how to keep the store small: collect = "never", max_bytes = 2_000_000_000, '
            'and where checkpoints wait while the store is away: spool = "…", spool_bytes = 500_000_000',
        )
    return Config(file.parent, **data, **numbers)


def _place(target: str, base: Path, found_by: str) -> Location:
    if target == MEMORY:
        return Location(None, found_by)
    scheme, separator, _ = target.partition("://")
    if separator:
        raise InvalidError(f"there is no backend for {scheme}://", hint="give a path, or :memory:")
    if not target or "\0" in target:
        raise InvalidError("the store's path is empty or has a NUL in it", hint="give a folder or a .sqlite file")
    path = _expand(base, target)
    if path.suffix in _FILE_ENDINGS and not path.is_dir():
        return Location(path, found_by)
    if path.exists() and not path.is_dir():
        raise InvalidError(
            f"{path.name} is a file, not a store", hint="a store is a folder, or a file ending in .sqlite"
        )
    return Location(path / CATALOG, found_by)


def _expand(base: Path, path: str) -> Path:
    try:
        return base / Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidError(f"there is no home for {path.split('/')[0]!r}", hint="give another path") from error


def state_folder() -> Path:
    """Return the folder in which this user's programs keep state that is not data."""
    return _user_folder("XDG_STATE_HOME", ".local/state")


def _user_folder(variable: str, usual: str) -> Path:
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lastgood"
    return Path(os.environ.get(variable) or home / usual) / "lastgood"


def make_folder(folder: Path) -> None:
    """Make a folder, private if it is new. What exists is left as it is."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing; `mkdir(parents=True)` would let others into these."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


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
                raise UnavailableError("the store's folder is gone", hint="bring it back to where it was")
            return location.cache
        with self._lock:
            if self._temporary is None:
                from tempfile import TemporaryDirectory

                self._temporary = TemporaryDirectory(prefix="lastgood-")
            return Path(self._temporary.name)

    def own_paths(self) -> list[Path]:
        """Return the paths that must not be captured with a workspace that the store lies in."""
        file, objects = self._location.catalog, self._location.objects
        if file is None or objects is None:
            return []
        beside = [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-lock")]
        more = (objects, self._location.cache, self._location.quarantine)
        own = [path.resolve() for path in (*beside, *more) if path is not None]
        folder = file.parent.resolve()
        try:
            others = {path.resolve() for path in folder.iterdir()} - set(own)
        except OSError as error:
            raise UnavailableError("the store's folder cannot be read", hint="look at it and the disk") from error
        return [folder] if file.name == CATALOG and others <= {folder / NOTE} else own

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()
