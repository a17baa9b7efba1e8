"""Which `lastgood.toml` this user trusts, though it names what is outside its folder or was written by others: kept in
the user's own configuration, by path and content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from lastgood.errors import InvalidError, NotFoundError
from lastgood.local.location import ConfigFile, config_folder, make_private
from lastgood.model.identity import new_id

NAME = "trusted.json"
MADE = "made:"


def is_trusted(file: ConfigFile) -> bool:
    """Return whether the user has said so of this path, with this content."""
    try:
        return read_trusted().get(str(file.path)) == _digest(file)
    except NotFoundError:  # without a home nothing was ever said
        return False


def is_own(file: ConfigFile) -> bool:
    """Return whether the user has said so, or `lastgood init` wrote it for them as it is."""
    try:
        return read_trusted().get(str(file.path)) in (_digest(file), MADE + _digest(file))
    except NotFoundError:
        return False


def trust(file: ConfigFile, *, made: bool = False) -> None:
    """Trust a file as it is; `made`: only note that it was written for the user, which excuses nothing else."""
    _write({**read_trusted(), str(file.path): MADE * made + _digest(file)})


def forget(path: Path) -> bool:
    """Trust that path no more; return whether it was trusted."""
    trusted = read_trusted()
    was = trusted.pop(str(path), None) is not None
    if was:
        _write(trusted)
    return was


def read_trusted() -> dict[str, str]:
    """Return what is trusted: the path of each file, and the SHA-256 of its content."""
    place = config_folder() / NAME
    try:
        return msgspec.json.decode(place.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidError(f"{place} cannot be read: {error}", hint="correct it, or remove it") from error


def _write(trusted: dict[str, str]) -> None:
    place = config_folder() / NAME
    fresh = place.with_name(f".{NAME}.{new_id()}")
    try:
        make_private(place.parent)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(trusted)) + b"\n")
        fresh.replace(place)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise InvalidError(f"{place} cannot be written: {error.strerror}", hint="look at its folder") from error


def _digest(file: ConfigFile) -> str:
    return hashlib.sha256(file.data).hexdigest()
