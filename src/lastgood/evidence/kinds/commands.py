"""Evidence about commands: that one ended with a certain exit code, as it was recorded. Nothing is ever run (D1)."""

from __future__ import annotations

from lastgood.errors import InvalidError
from lastgood.evidence.check import Surroundings, get_entry, require_fields
from lastgood.model.evidence import Evidence


def check_exit(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """command_exit: {"exit_code"}, compared with what was recorded when the command ran. Nothing is ever run."""
    wanted = require_fields(evidence).get("exit_code")
    if not _is_integer(wanted):
        raise InvalidError("the claim names no exit code", hint='give expected={"exit_code": 0}')
    recorded = _recorded_exit(evidence.metadata, surroundings)
    if recorded is None:
        raise InvalidError("no exit code was recorded for this command")
    if not _is_integer(recorded):
        raise InvalidError("the exit code that was recorded for this command is not an integer")
    return None if recorded == wanted else f"the command ended with {recorded}, not {wanted}"


def _recorded_exit(metadata: object, surroundings: Surroundings) -> object:
    recorded = get_entry(metadata, "actual_exit_code")
    if recorded is not None:
        return recorded
    snapshot = surroundings.snapshot
    command = get_entry(metadata, "command")
    if isinstance(command, str):
        recorded = get_entry(get_entry(get_entry(snapshot, "commands"), command), "exit_code")
    return recorded if recorded is not None else get_entry(snapshot, "exit_code")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
