"""A tree of branches as text: newest at the top, one column for each line, the active one leftmost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from lastgood.cli.output import printable, styled
from lastgood.cli.summary import MARKS, Standing, tagged_message, verification
from lastgood.cli.tree import Fold, Point, Strand, Tree
from lastgood.model.task import BranchInfo
from lastgood.store import Store

WIDEST_GRAPH = 8  # to which the rows are aligned; deeper ones are shifted
NARROW = 60  # columns, below which types are left out
_COLORS: dict[Standing, dict[str, Any]] = {
    "verified": {"fg": "green"},
    "failed": {"fg": "red"},
    "damaged": {"fg": "red"},
    "unverified": {"dim": True},
}


class Glyphs(NamedTuple):
    """What lines are drawn with. A `turn` begins a line, a `join` comes into one that goes on, a `side` names it."""

    bar: str
    side: str
    fold: str
    turn: str
    join: str
    dots: str


ASCII = Glyphs("|", "+", ":", " /", "|/", "...")
UNICODE = Glyphs("│", "├", "┊", "╭─╯", "├─╯", "…")
ACTIVE, POINT = "*", "o"


class Row(NamedTuple):
    """One line: the graph, what stands in columns, and the rest. Each piece with its style."""

    graph: str
    cells: tuple[str, ...] = ()
    text: str = ""
    standing: Standing | None = None
    style: dict[str, Any] = {}  # noqa: RUF012 - never changed


def draw(tree: Tree, store: Store, *, glyphs: Glyphs, width: int | None, now: datetime | None = None) -> list[str]:
    """The lines to print; `width`: what they are cut to."""
    painter = _Painter(tree, store, glyphs, now or datetime.now(UTC))
    rows = [row for strand in tree.strands for row in painter.strand(strand, "")]
    return list(_laid_out(rows, glyphs, width))


def terminal_width() -> int | None:
    """None where stdout is no terminal."""
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except OSError:
        return None


def terminal_glyphs() -> Glyphs:
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
    return UNICODE if encoding == "utf8" else ASCII


class _Painter:
    def __init__(self, tree: Tree, store: Store, glyphs: Glyphs, now: datetime) -> None:
        self._active = tree.active
        self._store = store
        self._glyphs = glyphs
        self._now = now

    def strand(self, strand: Strand, left: str) -> Iterator[Row]:
        """A line with all that leaves it; `left` is what is drawn in the columns before."""
        glyphs, open_above = self._glyphs, False
        for item in strand.items:
            if isinstance(item, Fold):
                yield Row(left + glyphs.fold, text=self._folded(item), style={"dim": True})
                continue
            for side in item.sides:
                yield from self.strand(side, left + (glyphs.bar if open_above else " ") + " ")
                yield Row(left + (glyphs.join if open_above else glyphs.turn))
                open_above = True
            if item.head_of is not None:
                yield Row(
                    left + (glyphs.side if open_above else ""), text=self._label(item.head_of), style={"bold": True}
                )
            yield self._point(item, left)
            open_above = True
        if strand.unseen:
            told = f"{glyphs.dots} goes on from @{strand.unseen}, on a branch that is not shown {glyphs.dots}"
            yield Row(left + glyphs.fold, text=told, style={"dim": True})

    def _point(self, point: Point, left: str) -> Row:
        stored = point.stored
        graph = left + (ACTIVE if point.head_of is not None and point.head_of.id == self._active else POINT)
        place = f"@{stored.placement.sequence}"
        if stored.data is None:
            return Row(graph, (place, " ", "", ""), "(purged)")
        checkpoint = self._store.wrap(stored)
        standing = verification(checkpoint)
        if standing == "damaged":
            return Row(graph, (place, MARKS[standing], "", ""), "(damaged)", standing)
        text = tagged_message(checkpoint)
        if point.origin:
            text = f"from @{point.origin}" + (f": {text}" if text else "")
        if stored.deleted:
            text = f"(deleted) {text}"
        age = _age(self._now - checkpoint.created_at)
        return Row(graph, (place, MARKS[standing], age, checkpoint.type), text.rstrip(), standing)

    def _label(self, branch: BranchInfo) -> str:
        name = branch.name
        facts = [
            "active" if branch.id == self._active else "",
            "deleted" if branch.deleted else "",
            branch.control_state if branch.control_state != "idle" else "",
        ]
        told = ", ".join(fact for fact in facts if fact)
        return printable(name) + (f"  <{told}>" if told else "")

    def _folded(self, fold: Fold) -> str:
        many = "checkpoint" if fold.count == 1 else "checkpoints"
        return f"{self._glyphs.dots} {fold.count:,} {many} {self._glyphs.dots}"


def _laid_out(rows: list[Row], glyphs: Glyphs, width: int | None) -> Iterator[str]:
    """Rows with checkpoints in columns; other texts right behind the graph."""
    points = [row for row in rows if row.cells]
    graph = min(WIDEST_GRAPH, max((len(row.graph) for row in points), default=0))
    narrow = width is not None and width < NARROW
    places, ages, types = (max((len(row.cells[cell]) for row in points), default=0) for cell in (0, 2, 3))
    for row in rows:
        if not row.cells:
            spaced = row.graph if not row.text or row.graph.endswith(" ") or not row.graph else f"{row.graph} "
            yield _cut([(spaced, {}), (row.text, row.style)], width, glyphs)
            continue
        place, mark, age, type_ = row.cells
        pieces: list[tuple[str, dict[str, Any]]] = [
            (f"{row.graph:<{graph}} {place:<{places}} ", {}),
            (mark, _COLORS[row.standing] if row.standing else {}),
            (f" {age:>{ages}}  ", {}),
            ("" if narrow else f"{type_:<{types}}  ", {}),
            (row.text, {}),
        ]
        yield _cut(pieces, width, glyphs)


def _cut(pieces: list[tuple[str, dict[str, Any]]], width: int | None, glyphs: Glyphs) -> str:
    """The pieces in their styles, cut to `width`."""
    whole = "".join(text for text, _ in pieces).rstrip()
    room = len(whole)
    ending = ""
    if width is not None and room > width:
        ending = glyphs.dots[: max(0, width)]
        room = width - len(ending)
    line = ""
    for text, style in pieces:
        shown = text[: max(0, room)]
        room -= len(shown)
        line += styled(shown, **style) if style and shown else shown
    return line + ending


def _age(past: Any) -> str:
    seconds = past.total_seconds()
    for size, unit in ((31_557_600, "y"), (604_800, "w"), (86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return "now"
