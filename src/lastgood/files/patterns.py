"""The lines of an ignore file, read exactly as git reads them: what names they match, as routes of single names that
are followed from directory to directory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from lastgood.secrets.filenames import is_secret

Kind = Literal["whole", "ending", "wild", "deep"]


class Segment(NamedTuple):
    """A name of a route: a whole name, an ending, a regular expression, or any number of folders."""

    kind: Kind
    text: bytes = b""


Route = tuple[Segment, ...]
DEEP = Segment("deep")
ANYTHING = Segment("ending")


class Rule(NamedTuple):
    ignores: bool
    folders_only: bool
    routes: tuple[Route, ...]
    weight: int
    """Its length if it has wildcards that no lookup answers, else 0."""
    speaks_of_secret: bool


def parse_rule(line: bytes) -> Rule | None:
    """Parse a line; None when it could never match anything."""
    negated = line.startswith(b"!")
    pattern = line[negated:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if b"/" in pattern:
        routes = _read_routes(pattern.removeprefix(b"/"))
    else:
        routes = [(DEEP, *route) for route in _read_route(pattern, crosses=False)]
    if not routes:
        return None
    wild = any(map(_is_wild, routes))
    return Rule(
        not negated, folders_only, tuple(routes), len(line) if wild else 0, negated and _speaks_of_secret(pattern)
    )


def _is_wild(route: Route) -> bool:
    """Return whether the route has wildcards that no lookup answers: an ending is looked up only as the last name."""
    if len(route) == 2 and route[0] is DEEP:
        route = route[1:]
    return route[-1].kind == "wild" or any(segment.kind != "whole" for segment in route[:-1])


def _read_routes(pattern: bytes) -> list[Route]:
    """Return the routes of a pattern with a slash.

    Git compares the plain beginning of a pattern by itself. Two stars directly behind it stand at the beginning of
    what is left, and so lead through folders even in the middle of a name: `a**/b` also matches `ab` and `ax/y/b`.
    """
    found = _PLAIN_THEN_STARS.match(pattern)
    if found is None:
        return _read_route(pattern)
    plain, slash, rest = found["plain"], found["slash"], pattern[found.end() :]
    if not slash:
        return [*_read_route(plain + b"*"), *_read_route(plain + b"*/**")]
    routes = _read_route(plain + b"*/**/" + rest)
    if slash.startswith(b"/"):
        starts_with_stars = rest.startswith(b"**")
        routes += _read_routes(plain + rest) if starts_with_stars else _read_route(plain + rest)
    return routes


def _read_route(pattern: bytes, *, crosses: bool = True) -> list[Route]:
    """Return the route of a pattern; none when no name can match.

    Two stars between slashes lead through folders if it `crosses`.
    """
    atoms = _read_atoms(pattern)
    route: list[Segment] = []
    name: list[bytes] = []
    for before, atom, after in zip([b"/", *atoms], atoms, [*atoms[1:], b""], strict=False):
        if crosses and atom == b"**" and before in _SLASHES and after in (*_SLASHES, b""):
            if after == _ESCAPED_SLASH:
                route.append(ANYTHING)
            if route[-1:] != [DEEP]:
                route.append(DEEP)
            if not after:
                name = [b"*"]
        elif atom in _SLASHES:
            if name:
                route.append(_segment(name))
                name = []
            elif before != b"**":
                return []
        elif not atom.startswith(b"*"):
            name.append(atom)
        elif name[-1:] != [b"*"]:
            name.append(b"*")
    return [(*route, _segment(name))] if name else []


def _segment(name: list[bytes]) -> Segment:
    if _is_plain(name):
        return Segment("whole", _to_plain(name))
    if name[0] == b"*" and _is_plain(name[1:]):
        return Segment("ending", _to_plain(name[1:]))
    return Segment("wild", _to_expression(name))


def _to_expression(name: list[bytes]) -> bytes:
    """Return an expression in which no star is tried twice.

    Each star takes as little as lets what stands behind it, up to the next star, match; that is never tried again.
    Taking more could not help: the next star takes whatever is left over. The last one takes all, and looks back.
    """
    first, *others = _split(name)
    if not others:
        return b"".join(first)
    *middle, last = others
    taken = b"".join([b"(?>.*?" + b"".join(piece) + b")" for piece in middle])
    return b"".join(first) + taken + (b".{%d,}+(?<=%s)" % (len(last), b"".join(last)) if last else b".*+")


def _split(name: list[bytes]) -> list[list[bytes]]:
    pieces: list[list[bytes]] = [[]]
    for atom in name:
        if atom == b"*":
            pieces.append([])
        else:
            pieces[-1].append(atom)
    return pieces


def _is_plain(name: list[bytes]) -> bool:
    return not any(atom == b"*" or atom.startswith((b".", b"[")) for atom in name)


def _to_plain(name: list[bytes]) -> bytes:
    return b"".join([atom[-1:] for atom in name])


def _read_atoms(pattern: bytes) -> list[bytes]:
    """Return stars, slashes, and for all else an expression that matches one byte; empty when no name can match."""
    atoms, at = [], 0
    while at < len(pattern):
        text = _ATOM.match(pattern, at)[0]  # type: ignore[index]
        at += len(text)
        if text.startswith(b"*"):
            atoms.append(text[:2])
        elif text == b"?":
            atoms.append(b".")
        elif text == b"[":
            chosen, at = _read_class(pattern, at)
            if not chosen:
                return []
            atoms.append(_to_class(chosen))
        elif text == b"\\":  # with nothing behind it
            return []
        else:
            atoms.append(text if text.endswith(b"/") else re.escape(text[-1:]))
    return atoms


def _read_class(pattern: bytes, at: int) -> tuple[set[int], int]:
    """Return the bytes of the class whose inside begins at `at`, none when it is malformed; and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    chosen: set[int] = set()
    last: int | None = None  # what a range could begin with
    inside = at
    while pattern[at : at + 1] != b"]" or at == inside:
        found = _MEMBER.match(pattern, at)
        if found is None:
            return set(), at
        if (named := found["named"]) is not None:
            if named not in _CLASSES:
                return set(), at
            chosen |= _CLASSES[named]
            last = None
        elif (end := found["end"]) is not None and last is not None:
            chosen.update(range(last, end[-1] + 1))
            last = None
        else:
            found = _SINGLE.match(pattern, at) or found
            last = found[0][-1]
            chosen.add(last)
        at = found.end()
    return (set(range(1, 256)) - chosen if negated else chosen) - {ord("/")}, at + 1


def _to_class(chosen: set[int]) -> bytes:
    return b"[" + b"".join([b"\\x%02x" % byte for byte in sorted(chosen)]) + b"]"


def _speaks_of_secret(pattern: bytes) -> bool:
    """Return whether a pattern's own text is the name of a secret, with its wildcards or without.

    `!*.pem` has keys back, `!*` and `!conf/**` do not.
    """
    above, _, name = pattern.rpartition(b"/")
    above = above.rpartition(b"/")[2]
    return any(
        is_secret(above, text, is_folder) for text in (name, _WILDCARD.sub(b"", name)) for is_folder in (False, True)
    )


_ESCAPED_SLASH = rb"\/"
_SLASHES = (b"/", _ESCAPED_SLASH)
_ATOM = re.compile(rb"\*+|\\.|.", re.DOTALL)
_PLAIN_THEN_STARS = re.compile(rb"(?P<plain>[^*?\[\\]*[^*?\[\\/])\*\*+(?P<slash>/(?:\*\*+/)*+|\\/|\Z)", re.DOTALL)
_WILDCARD = re.compile(rb"[*?\\]|\[[^\]]*\]?")
_MEMBER = re.compile(rb"\[:(?P<named>[^\]]*):\]|-(?P<end>\\.|[^\]\\])|\\.|[^\\]", re.DOTALL)
_SINGLE = re.compile(rb"\\.|[^\\]", re.DOTALL)

_PRINTED = set(range(0x20, 0x7F))
_LOWER, _UPPER, _DIGIT = set(b"abcdefghijklmnopqrstuvwxyz"), set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"), set(b"0123456789")
_CLASSES = {
    b"alnum": _LOWER | _UPPER | _DIGIT,
    b"alpha": _LOWER | _UPPER,
    b"blank": set(b" \t"),
    b"cntrl": {*range(1, 0x20), 0x7F},
    b"digit": _DIGIT,
    b"graph": _PRINTED - {0x20},
    b"lower": _LOWER,
    b"print": _PRINTED,
    b"punct": _PRINTED - {0x20} - _LOWER - _UPPER - _DIGIT,
    b"space": set(b" \t\n\r"),
    b"upper": _UPPER,
    b"xdigit": set(b"0123456789abcdefABCDEF"),
}


class Automaton:
    """An automaton of the rules of one file, followed from directory to directory."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.routes: list[tuple[int, Route]] = []
        anywhere: list[tuple[int, Segment]] = []
        for number, rule in enumerate(rules):
            for route in rule.routes:
                if len(route) == 2 and route[0] is DEEP:
                    anywhere.append((number, route[1]))
                else:
                    self.routes.append((number, route))
        self.anywhere = _by_kind(rules, anywhere, at_once=True)
        self.places: dict[frozenset[tuple[int, int]], RulePosition] = {}
        self.start = self.place(_close(self.routes, [(number, 0) for number in range(len(self.routes))]))

    def place(self, live: frozenset[tuple[int, int]]) -> RulePosition:
        if live not in self.places:
            self.places[live] = RulePosition(self, live)
        return self.places[live]


class RulePosition:
    """A position of the routes of one file in one directory: `live` are (route, how many names lie behind)."""

    __slots__ = ("_anywhere", "_automaton", "_here", "_onward", "_stays", "_whole", "_wild", "rules")

    def __init__(self, automaton: Automaton, live: frozenset[tuple[int, int]]) -> None:
        self._automaton = automaton
        self.rules = automaton.rules
        self._anywhere = automaton.anywhere
        self._stays: list[tuple[int, int]] = []
        self._whole: dict[bytes, list[tuple[int, int]]] = {}
        self._wild: list[tuple[Segment, tuple[int, int]]] = []
        here = []
        for route, position in live:
            number, segments = automaton.routes[route]
            segment = segments[position]
            if segment is DEEP:
                self._stays.append((route, position))
            elif position + 1 == len(segments):
                here.append((number, segment))
            elif segment.kind == "whole":
                self._whole.setdefault(segment.text, []).append((route, position + 1))
            else:
                self._wild.append((segment, (route, position + 1)))
        self._onward: RulePosition | None = None  # where names lead that none of the routes has
        self._here = _by_kind(self.rules, here, at_once=False) if here else None

    def find(self, name: bytes, is_folder: bool) -> int:
        """Return the number of the last rule that matches, or -1."""
        number = self._anywhere[is_folder].find(name)
        return number if self._here is None else max(number, self._here[is_folder].find(name))

    def step(self, name: bytes) -> RulePosition:
        """Return the position in the folder `name`."""
        live = [state for segment, state in self._wild if _matches(segment, name)]
        if name in self._whole:
            live += self._whole[name]
        if live or self._onward is None:
            place = self._automaton.place(_close(self._automaton.routes, [*self._stays, *live]))
            if live:
                return place
            self._onward = place
        return self._onward


def _close(routes: list[tuple[int, Route]], live: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Add the positions behind "any number of folders": it may be none."""
    closed = set()
    for route, position in live:
        closed.add((route, position))
        while routes[route][1][position] is DEEP:
            position += 1
            closed.add((route, position))
    return frozenset(closed)


_TOGETHER = 64
"""So many expressions are tried at once."""


class NameRules:
    """A set of rules about single names, with their numbers."""

    __slots__ = ("_always", "_endings", "_expressions", "_lengths", "_whole", "_wild")

    def __init__(self, rules: Iterable[tuple[int, Segment]], at_once: bool) -> None:
        self._always = -1
        self._whole: dict[bytes, int] = {}
        self._endings: dict[bytes, int] = {}
        self._expressions: list[tuple[list[tuple[int, bytes]], re.Pattern[bytes]]] | None = None
        wild: list[tuple[int, bytes]] = []
        for number, segment in sorted(rules):
            if segment == ANYTHING:
                self._always = number
            elif segment.kind == "whole":
                self._whole[segment.text] = number
            elif segment.kind == "ending":
                self._endings[segment.text] = number
            else:
                wild.append((number, segment.text))
        self._lengths = sorted({len(ending) for ending in self._endings})
        wild.reverse()
        # Rules that hold in a few directories only are compiled one by one, and once: compiling all that hold
        # together anew for every directory would let a few kilobytes of rules cost minutes.
        step = _TOGETHER if at_once else 1
        self._wild = [wild[at : at + step] for at in range(0, len(wild), step)]

    def find(self, name: bytes) -> int:
        """Return the number of the last rule that matches, or -1."""
        number = self._whole.get(name, -1)
        if number < self._always:
            number = self._always
        for length in self._lengths:
            if length > len(name):
                break
            other = self._endings.get(name[-length:], -1)
            if other > number:
                number = other
        for wild, expression in self._compile_all() if self._expressions is None else self._expressions:
            if expression.match(name) is not None:
                other = next(other for other, text in wild if _compile((text,)).match(name) is not None)
                return other if other > number else number
        return number

    def _compile_all(self) -> list[tuple[list[tuple[int, bytes]], re.Pattern[bytes]]]:
        self._expressions = [(wild, _compile(tuple([text for _, text in wild]))) for wild in self._wild]
        return self._expressions


def _by_kind(
    rules: Sequence[Rule], numbered: list[tuple[int, Segment]], *, at_once: bool
) -> tuple[NameRules, NameRules]:
    """Return those that hold for files, and those that hold for folders."""
    files = [(number, segment) for number, segment in numbered if not rules[number].folders_only]
    return NameRules(files, at_once), NameRules(numbered, at_once)


@lru_cache(maxsize=4096)
def _compile(texts: tuple[bytes, ...]) -> re.Pattern[bytes]:
    # Without groups, which would tell at once what matched: each alternative that is tried would save all of them.
    return re.compile(b"(?:" + b"|".join(texts) + rb")\Z", re.DOTALL)


def _matches(segment: Segment, name: bytes) -> bool:
    """Return whether a segment with wildcards matches."""
    if segment.kind == "ending":
        return name.endswith(segment.text)
    return _compile((segment.text,)).match(name) is not None
