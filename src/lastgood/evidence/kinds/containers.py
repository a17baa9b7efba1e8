"""Evidence about containers (D1): the engine is asked over its own socket, in the one request that only reads."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from lastgood.errors import BusyError, InvalidError, UnavailableError
from lastgood.evidence.check import Deadline, NotYet, Surroundings, take_fields
from lastgood.evidence.connection import connect_to_socket, exchange, translated
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence

_NAME = re.compile("[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")
_ID = re.compile("[0-9a-f]{12,64}")
_MAX_SOCKET_PATH = 107
_BEGINNING = frozenset(("created", "initialized", "restarting", "stopping"))
"""States that do not last."""


def check_container(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """container_running: {"name" or "id", "socket": path of the engine's}; without a socket, the usual ones of Docker
    and Podman are asked, and it holds when one of them runs it."""
    fields = take_fields(evidence, ("name", "id", "socket"))
    key, wanted = _require_which(fields)
    named = None if fields.get("socket") is None else _require_socket(fields["socket"], surroundings)
    outside = surroundings.outside
    outside.require_connections()
    sockets = _find_sockets() if named is None else [named]

    def attempt(deadline: Deadline) -> str | None:
        states, failure = [], None
        for path in sockets:
            try:
                container = _inspect(path, wanted, deadline)
            except BusyError as error:  # another engine may be the one that runs it
                failure = error
                continue
            if container is not None and _is_claimed(container, key, wanted):
                states.append(_state_of(container))
        if "running" in states:
            return None
        if failure is not None:
            raise failure
        if not states:
            return f"there is no container {wanted}"
        said = f"the container {wanted} is not running: it is {show(states[0], 40)}"
        if _BEGINNING.intersection(states):
            raise NotYet(said)
        return said

    return outside.retry(attempt, outside.deadline(surroundings.deadline, None))


def _require_which(fields: dict[str, Any]) -> tuple[str, str]:
    given = [(key, fields[key]) for key in ("name", "id") if fields.get(key) is not None]
    if len(given) != 1:
        raise InvalidError('the claim names a container by its "name" or by its "id"')
    (key, value), pattern = given[0], _NAME if given[0][0] == "name" else _ID
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidError(f"the claim's {key} is not that of a container")
    return key, str(value)


def _require_socket(path: object, surroundings: Surroundings) -> str:
    text = surroundings.allow_path(path)
    if not text.startswith("/"):
        raise InvalidError("the socket of a container engine is named by an absolute path")
    if len(os.fsencode(text)) > _MAX_SOCKET_PATH:
        raise InvalidError("the path is too long for that of a socket")
    return text


def _find_sockets() -> list[str]:
    if found := [place for place in _usual_places() if _is_socket(place)]:
        return found
    raise UnavailableError("there is no container engine here", hint='give the claim its "socket"')


def _usual_places() -> list[str]:
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    home = os.path.expanduser("~")  # noqa: PTH111
    places = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{home}/.docker/run/docker.sock"]
    return [*places, "/run/podman/podman.sock", f"{runtime}/podman/podman.sock"]


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


def _inspect(path: str, wanted: str, deadline: Deadline) -> dict[str, Any] | None:
    """Ask the engine about the container; None when it has none. BusyError when it cannot say."""
    try:
        with translated("the container engine"), connect_to_socket(path, deadline) as connection:
            answer = exchange(connection, "GET", f"/containers/{wanted}/json", "localhost", read_body=True)
    except NotYet as reason:  # only the engine knows
        raise BusyError(str(reason)) from reason
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise BusyError(f"the container engine answered with {answer.status}")
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError("the container engine gave an answer that makes no sense") from error


def _is_claimed(container: dict[str, Any], key: str, wanted: str) -> bool:
    """Compare what was found with the claim: engines take a name for an id, and the other way round."""
    if key == "id":
        return str(container.get("Id")).startswith(wanted)
    return str(container.get("Name")).removeprefix("/") == wanted


def _state_of(container: dict[str, Any]) -> str:
    state = container.get("State")
    status = state.get("Status") if isinstance(state, dict) else None
    if not isinstance(status, str):
        raise InvalidError("the container engine does not say how the container is")
    return status
