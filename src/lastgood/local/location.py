"""Where a store is: from an argument, the environment, a `lastgood.toml` above, or the user's data directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from lastgood.errors import InvalidError
from lastgood.model.identity import check_name

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
        """The folder of what repairs took out of it."""
        return None if self.catalog is None else quarantine_beside(self.catalog)


def objects_beside(catalog: Path) -> Path:
    """Return the folder of a store's objects."""
    return catalog.with_name("objects") if catalog.name == CATALOG else catalog.with_suffix(".objects")


def quarantine_beside(catalog: Path) -> Path:
    """Return the folder of what repairs took out of a store, and of copies of what they changed."""
    return (
        objects_beside(catalog).with_suffix(".quarantine")
        if catalog.name != CATALOG
        else catalog.with_name("quarantine")
    )


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
        try:
            return str(self.folder / Path(path).expanduser())
        except RuntimeError as error:
            raise InvalidError(f"there is no home for {path.split('/')[0]!r}", hint="give another path") from error


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
    return _place(str(_data_folder()), Path.cwd(), "default")


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
    if unknown or not all(isinstance(value, str) for value in _values(data)):
        raise InvalidError(
            f"{CONFIG} has something unknown: {', '.join(sorted(unknown)) or 'a value that is not text'}",
            hint='it takes store = "…", task = "…" and workspace = "…", or a table [workspace] of names and paths, '
            'how to keep the store small: collect = "never", max_bytes = 2_000_000_000, '
            'and where checkpoints wait while the store is away: spool = "…", spool_bytes = 500_000_000',
        )
    return Config(file.parent, **data, **numbers)


def _values(data: dict[str, Any]) -> list[Any]:
    workspace = data.get("workspace")
    named = list(workspace.values()) if isinstance(workspace, dict) else []
    return [value for name, value in data.items() if name != "workspace" or not isinstance(value, dict)] + named


def _place(target: str, base: Path, found_by: str) -> Location:
    if target == MEMORY:
        return Location(None, found_by)
    scheme, separator, _ = target.partition("://")
    if separator:
        raise InvalidError(f"there is no backend for {scheme}://", hint="give a path, or :memory:")
    if not target or "\0" in target:
        raise InvalidError("the store's path is empty or has a NUL in it", hint="give a folder or a .sqlite file")
    try:
        path = base / Path(target).expanduser()
    except RuntimeError as error:
        raise InvalidError(f"there is no home for {target.split('/')[0]!r}", hint="give another path") from error
    if path.suffix in _FILE_ENDINGS and not path.is_dir():
        return Location(path, found_by)
    if path.exists() and not path.is_dir():
        raise InvalidError(
            f"{path.name} is a file, not a store", hint="a store is a folder, or a file ending in .sqlite"
        )
    return Location(path / CATALOG, found_by)


def _data_folder() -> Path:
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lastgood"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "lastgood"


def state_folder() -> Path:
    """Return the folder in which this user's programs keep state that is not data."""
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "lastgood"
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "lastgood"


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
