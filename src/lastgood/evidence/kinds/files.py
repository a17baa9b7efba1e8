"""Evidence about files and folders: that one exists, or has a certain content (D1, D7)."""

from __future__ import annotations

import stat

from lastgood.errors import InvalidError
from lastgood.evidence.check import Surroundings, require_digest, require_fields
from lastgood.local.paths import kind_of, show
from lastgood.model.evidence import Evidence


def check_artifact(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """artifact_exists: {"path", "type": "file" | "directory" | "any"}; a link counts as what it leads to."""
    expected = require_fields(evidence)
    path, wanted = expected.get("path"), expected.get("type", "any")
    if wanted not in ("any", "file", "directory"):
        raise InvalidError('the type of an artifact is "file", "directory" or "any"')
    if (found := surroundings.stat(path)) is None:
        return f"{show(path)} does not exist"
    is_wanted = {"any": _is_anything, "file": stat.S_ISREG, "directory": stat.S_ISDIR}[wanted]
    return None if is_wanted(found.st_mode) else f"{show(path)} is {kind_of(found)}, not a {wanted}"


def check_digest(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """file_sha256: {"path", "sha256": hex digits, with or without "sha256:" before them}."""
    expected = require_fields(evidence)
    path, wanted = expected.get("path"), require_digest(expected.get("sha256"), "sha256")
    try:
        digest = surroundings.hash_file(path)
    except InvalidError:
        if (mismatch := _why_no_file(path, surroundings)) is None:
            raise
        return mismatch
    except LookupError:
        return f"{show(path)} does not exist"
    return None if digest == wanted else f"{show(path)} has the SHA-256 {digest}"


def _is_anything(mode: int) -> bool:
    return True


def _why_no_file(path: object, surroundings: Surroundings) -> str | None:
    found = surroundings.stat(path)
    if found is None or stat.S_ISREG(found.st_mode):
        return None
    return f"{show(path)} is {kind_of(found)}, not a file"
