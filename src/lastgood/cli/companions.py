"""What stands beside the state of a checkpoint: artifacts, what people said and decided."""

from __future__ import annotations

from typing import Any

from lastgood.cli.files import few
from lastgood.cli.output import json_text, printable, shortened
from lastgood.engine.checkpoint import Checkpoint

PREVIEW = 200
NAMES = ("artifacts", "decisions", "guidance")


def companions(checkpoint: Checkpoint) -> dict[str, Any]:
    """For programs."""
    return {name: getattr(checkpoint, name) for name in NAMES}


def companion_lines(checkpoint: Checkpoint) -> list[str]:
    """For people, in the columns of `lastgood show`."""
    lines = []
    for name, singular, build in (
        ("artifacts", "artifact", _artifact),
        ("decisions", "decision", _decision),
        ("guidance", "guidance", _said),
    ):
        told = few([shortened(printable(build(one)), PREVIEW) for one in getattr(checkpoint, name)])
        lines += [f"{singular:<12} {text}" for text in told]
    return lines


def _artifact(one: Any) -> str:
    if not isinstance(one, dict) or not (one.get("name") or one.get("id")):
        return json_text(one)
    version = f" (version {one['version']})" if "version" in one else ""
    return f"{one.get('name') or one.get('id')}{version}"


def _decision(one: Any) -> str:
    if not isinstance(one, dict) or "question" not in one:
        return json_text(one)
    return f"{one['question']} {one.get('answer')}{_by(one)}"


def _said(one: Any) -> str:
    if isinstance(one, dict) and "text" in one:
        return f"{one['text']}{_by(one)}"
    if isinstance(one, dict) and "rounds" in one:
        return f"{one['rounds']} more rounds{_by(one)}"
    return json_text(one)


def _by(one: dict[str, Any]) -> str:
    return f" (by {one['by']})" if "by" in one else ""
