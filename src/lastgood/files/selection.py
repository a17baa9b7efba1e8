"""The language in which paths of a workspace are named, for the API and the command line alike. Pure.

A path is relative to the workspace and means itself and, if it is a folder, all that is below. As a pattern, `*`, `?`
and `[...]` match within one name and never across `/`; `**` matches across folders, and `**/` also none of them. With
several folders `app:src` means `src` in the folder `app`, `app:` all of it, and a path without a name is meant in each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from lastgood.errors import InvalidError
from lastgood.model.identity import check_paths

_SPECIAL = re.compile(r"((?:(?<=/)|^)\*\*/|\*\*|\*|\?|\[!?\]?[^\]/]*\])")
_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_DEEP = {"**/": "(?:.*?/)??", "**": ".*?"}


class Selection:
    """Paths and patterns, in one folder of a workspace."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raise InvalidError for a text that cannot name anything below the workspace."""
        either = "|".join(map(_to_expression, texts)) or "(?!)"
        self._expression = re.compile(rf"(?:{either})(?:/|\Z)", re.DOTALL)

    def covers(self, path: bytes) -> bool:
        """Return whether the path, or a folder above it, is selected."""
        return self._expression.match(os.fsdecode(path)) is not None


def select(texts: Sequence[str] | None, root: str = "") -> Selection | None:
    """Return what the texts select in the root of that name; None: everything, as None does."""
    if texts is None or (root and f"{root}:" in check_paths("paths", texts)):
        return None
    return Selection(paths_in(root, texts))


def paths_in(root: str, texts: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the paths that are in the root of that name, without the name before them."""
    paths = check_paths("paths", texts)
    if not root:
        return paths
    named = [path.partition(":") for path in paths]
    return [inside if colon else before for before, colon, inside in named if not colon or before == root]


def locate(path: str, roots: Iterable[str]) -> tuple[str, str]:
    """Return the name of the root that one exact path is in, and the path there; `app/src` is `app:src`, too."""
    if not any(roots):
        return "", path
    name, _, inside = path.partition(":" if ":" in path else "/")
    return name, inside


def split_exact(path: str) -> list[bytes]:
    """Return the names along one exact path; InvalidError when it leads elsewhere."""
    parts = [part for part in os.fsencode(path).split(b"/") if part not in (b"", b".")]
    if b".." in parts or "\0" in path:
        raise InvalidError(
            "a path in a checkpoint has no .. in it", hint="give it as store.list_files(checkpoint_id) shows it"
        )
    return parts


def _to_expression(text: str) -> str:
    """Return what matches the text literally or as a pattern."""
    path = text.removeprefix("./").rstrip("/")
    if not path or path.startswith("/") or "\0" in path or not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise InvalidError(
            f"{text[:80]!r} does not name anything below the workspace",
            hint="give paths relative to the workspace, such as src/app.py or 'docs/**'",
        )
    deep, pieces = "", [""]  # what is between two stars
    pattern = ""
    for at, piece in enumerate(_SPECIAL.split(path)):  # in turn what is meant literally, and what has a meaning
        if at % 2 == 0:
            pieces[-1] += re.escape(piece)
        elif piece in _DEEP:
            pattern += f"(?>{deep}{_join(pieces)})"
            deep, pieces = _DEEP[piece], [""]
        elif piece == "*":
            pieces.append("")
        else:
            pieces[-1] += "[^/]" if piece == "?" else _to_class(piece)
    last = f"[^/]*{pieces.pop()}" if len(pieces) > 1 else ""
    return f"{re.escape(path)}|{pattern}{deep}{_join(pieces)}{last}"


def _join(pieces: list[str]) -> str:
    """Return an expression with a star between the pieces, none of which is tried twice: each takes as little as lets
    the next piece match. Taking more could not help, as the next star, or `**`, takes whatever is left over."""
    return pieces[0] + "".join(f"(?>[^/]*?{piece})" for piece in pieces[1:])


def _to_class(piece: str) -> str:
    """Return an expression for `[...]` or `[!...]`; without members it is literal. A range like z-a holds nothing."""
    is_inverted = piece.startswith("[!")
    inside = piece[2:-1] if is_inverted else piece[1:-1]
    if not inside:
        return re.escape(piece)
    members = ""
    for low, high, single in _MEMBER.findall(inside):
        if single:
            members += re.escape(single)
        elif low <= high:
            members += f"{re.escape(low)}-{re.escape(high)}"
    if not members:
        return "[^/]" if is_inverted else "(?!)"
    return f"(?!/)[{'^' if is_inverted else ''}{members}]"
