"""Ignore rules: which names of a workspace are captured, read exactly as git reads a `.gitignore`.

Rules hold by strength, weakest first: the repository's info/exclude, every `.gitignore` from the root down, every
`.lastgoodignore` from the root down, the caller's own. Of the rules that match, the last one decides. A folder that is
ignored is not entered, so nothing below it can be had back; a `.lastgoodignore` can have back the folder itself. What
is left and has the name of a secret (secrets.py) is left out, unless a `.lastgoodignore` has it back by that name.

A rule is a route of names from its file's directory down. Routes are followed while directories are entered, so that
in each directory only single names are compared: whole names and endings by lookup, the rest by expressions in which
no star is tried twice. The time a name takes is bounded by its length times that of the rules with wildcards.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple
from weakref import WeakValueDictionary

from lastgood.errors import InvalidError
from lastgood.model.digest import digest
from lastgood.workspace.roots import Root, git_exclude, read_below
from lastgood.workspace.secrets import DIGEST, is_secret

GIT_RULES = b".gitignore"
OWN_RULES = b".lastgoodignore"

MAX_TEXT = 1 << 20
MAX_RULES = 10_000
MAX_WILD = 32 << 10
"""How much of one file is read, how many of its rules are kept, and how many bytes the rules with wildcards may have
that hold in one directory. What is beyond is dropped and reported (`Rules.dropped`)."""

Verdict = Literal["ignored", "secret"]
Kind = Literal["whole", "ending", "wild", "deep"]

_READING = b"1"  # a new number when the same text comes to mean something else


class Segment(NamedTuple):
    """One name of a route: a whole name, an ending, a regular expression, or any number of folders."""

    kind: Kind
    text: bytes = b""


Route = tuple[Segment, ...]
_DEEP = Segment("deep")
_ANYTHING = Segment("ending")


class Rule(NamedTuple):
    ignores: bool
    folders_only: bool
    routes: tuple[Route, ...]
    weight: int
    """Its length if it has wildcards that no lookup answers, else 0."""
    speaks_of_secret: bool


class Rules:
    """The ignore rules of one root, for one scan in one thread.

    `read` gives the content of a file below the root, None when it cannot be read; `exclude` is the text of the
    repository's info/exclude, `extra` are rules of the caller, stronger than all files.
    """

    def __init__(
        self, read: Callable[[bytes], bytes | None], *, exclude: bytes = b"", extra: Sequence[str] = ()
    ) -> None:
        self._read = read
        self._levels: WeakValueDictionary[bytes, Level] = WeakValueDictionary()
        self._parsed: dict[bytes, tuple[tuple[Rule, ...], int]] = {}
        self._dropped: dict[bytes, int] = {}
        lines = [_to_bytes(rule) for rule in extra]
        self._exclude, self._extra = exclude, b"\n".join(lines)
        self._base = digest(b"".join(map(digest, (_READING, DIGEST, exclude, self._extra))))

    @classmethod
    def of(cls, root: Root, *, extra: Sequence[str] = ()) -> Rules:
        """The rules that lie in a root."""
        return cls(lambda path: read_below(root, path, 2 * MAX_TEXT), exclude=git_exclude(root), extra=extra)

    @property
    def dropped(self) -> dict[bytes, int]:
        """How many rules of which file were too many to be kept, as far as directories were entered."""
        return dict(self._dropped)

    def enter(self, path: bytes, names: Collection[bytes]) -> Level:
        """The rules for the names in the directory `path`. Parents are entered first and their levels kept while
        their children are entered; a parent that is not there is read again."""
        if not path:
            level = Level(b"", self._base, MAX_WILD)
            level.stack_git(self._rules_of(b".git/info/exclude", self._exclude, level))
            level.stack_extra(self._rules_of(b"", self._extra, level))
        else:
            above, _, name = path.rpartition(b"/")
            parent = self._levels.get(above)
            level = (parent or self.enter(above, (GIT_RULES, OWN_RULES))).below(name)
        texts = [self._text_of(path, name) if name in names else b"" for name in (GIT_RULES, OWN_RULES)]
        if any(texts):
            level.digest = digest(level.digest + b"".join(map(digest, (path, *texts))))
            level.stack_git(self._rules_of(_join(path, GIT_RULES), texts[0], level))
            level.stack_own(self._rules_of(_join(path, OWN_RULES), texts[1], level))
        self._levels[path] = level
        return level

    def _text_of(self, path: bytes, name: bytes) -> bytes:
        return self._read(_join(path, name)) or b""

    def _rules_of(self, file: bytes, text: bytes, level: Level) -> tuple[Rule, ...]:
        """The rules in `text`, as many as may still be added at `level`."""
        if not text:
            return ()
        if text not in self._parsed:
            self._parsed[text] = parse_rules(text)
        rules, dropped = self._parsed[text]
        if sum(rule.weight for rule in rules) > level.room:
            kept = _fit(rules, level.room)
            rules, dropped = kept, dropped + len(rules) - len(kept)
        level.room -= sum(rule.weight for rule in rules)
        if dropped:
            self._dropped[file] = dropped
        return rules


class Level:
    """The rules as they hold in one directory.

    Two levels of the same directory with the same `digest` decide the same about every name. `room` is how much may
    still be added below.
    """

    __slots__ = ("__weakref__", "_extra", "_git", "_name", "_own", "_spoken", "digest", "room")

    def __init__(self, name: bytes, digest: bytes, room: int) -> None:
        self._name = name
        self.digest = digest
        self.room = room
        self._git: tuple[Place, ...] = ()  # the strongest first, here and below
        self._own: tuple[Place, ...] = ()
        self._extra: tuple[Place, ...] = ()
        self._spoken: tuple[Place, ...] = ()  # those of own and extra that have secrets back

    def decide(self, name: bytes, is_folder: bool) -> Verdict | None:
        """Why `name` in this directory is left out; None when it is captured."""
        ignored = None
        if self._extra or self._own:
            ignored = _ask(self._extra, name, is_folder)
            if ignored is None:
                ignored = _ask(self._own, name, is_folder)
        had_back = ignored is False
        if ignored is None:
            ignored = _ask(self._git, name, is_folder)
        if ignored:
            return "ignored"
        if is_secret(self._name, name, is_folder) and not (
            had_back and _ask(self._spoken, name, is_folder) is not None
        ):
            return "secret"
        return None

    def below(self, name: bytes) -> Level:
        """The same rules for the names in the folder `name`, before its own are added."""
        level = Level(name, self.digest, self.room)
        level._git = tuple([place.step(name) for place in self._git])
        level._own = tuple([place.step(name) for place in self._own])
        level._extra = tuple([place.step(name) for place in self._extra])
        level._spoken = tuple([place.step(name) for place in self._spoken])
        return level

    def stack_git(self, rules: Sequence[Rule]) -> None:
        self._git = _stack(rules, self._git)

    def stack_own(self, rules: Sequence[Rule]) -> None:
        self._own = _stack(rules, self._own)
        self._spoken = _stack([rule for rule in rules if rule.speaks_of_secret], self._spoken)

    def stack_extra(self, rules: Sequence[Rule]) -> None:
        self._extra = _stack(rules, self._extra)
        self._spoken = _stack([rule for rule in rules if rule.speaks_of_secret], self._spoken)


def _stack(rules: Sequence[Rule], places: tuple[Place, ...]) -> tuple[Place, ...]:
    return (Automaton(rules).start, *places) if rules else places


def _ask(places: tuple[Place, ...], name: bytes, is_folder: bool) -> bool | None:
    for place in places:
        number = place.find(name, is_folder)
        if number >= 0:
            return place.rules[number].ignores
    return None


class Automaton:
    """The rules of one file, followed from directory to directory."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.routes: list[tuple[int, Route]] = []
        anywhere: list[tuple[int, Segment]] = []
        for number, rule in enumerate(rules):
            for route in rule.routes:
                if len(route) == 2 and route[0] is _DEEP:
                    anywhere.append((number, route[1]))
                else:
                    self.routes.append((number, route))
        self.anywhere = _by_kind(rules, anywhere, at_once=True)
        self.places: dict[frozenset[tuple[int, int]], Place] = {}
        self.start = self.place(_close(self.routes, [(number, 0) for number in range(len(self.routes))]))

    def place(self, live: frozenset[tuple[int, int]]) -> Place:
        if live not in self.places:
            self.places[live] = Place(self, live)
        return self.places[live]


class Place:
    """Where the routes of one file have got to in one directory: `live` are (route, how many names lie behind)."""

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
            if segment is _DEEP:
                self._stays.append((route, position))
            elif position + 1 == len(segments):
                here.append((number, segment))
            elif segment.kind == "whole":
                self._whole.setdefault(segment.text, []).append((route, position + 1))
            else:
                self._wild.append((segment, (route, position + 1)))
        self._onward: Place | None = None  # where names lead that none of the routes has
        self._here = _by_kind(self.rules, here, at_once=False) if here else None

    def find(self, name: bytes, is_folder: bool) -> int:
        """The number of the last rule that matches, or -1."""
        number = self._anywhere[is_folder].find(name)
        return number if self._here is None else max(number, self._here[is_folder].find(name))

    def step(self, name: bytes) -> Place:
        """The place in the folder `name`."""
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
    """Any number of folders may be none."""
    closed = set()
    for route, position in live:
        closed.add((route, position))
        while routes[route][1][position] is _DEEP:
            position += 1
            closed.add((route, position))
    return frozenset(closed)


class Names:
    """Rules about single names, with their numbers."""

    __slots__ = ("_always", "_endings", "_expressions", "_lengths", "_whole", "_wild")

    def __init__(self, rules: Iterable[tuple[int, Segment]], at_once: bool) -> None:
        self._always = -1
        self._whole: dict[bytes, int] = {}
        self._endings: dict[bytes, int] = {}
        self._expressions: list[tuple[list[int], re.Pattern[bytes]]] = []
        wild: list[tuple[int, bytes]] = []
        for number, segment in sorted(rules):
            if segment == _ANYTHING:
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
        self._wild = [wild] if at_once and wild else [[one] for one in wild]

    def find(self, name: bytes) -> int:
        """The number of the last rule that matches, or -1."""
        number = self._whole.get(name, -1)
        if number < self._always:
            number = self._always
        for length in self._lengths:
            other = self._endings.get(name[-length:], -1)
            if other > number:
                number = other
        for numbers, expression in self._expressions or self._compile_all():
            match = expression.match(name)
            if match is not None and match.lastindex is not None:
                other = numbers[match.lastindex - 1]
                return other if other > number else number
        return number

    def _compile_all(self) -> list[tuple[list[int], re.Pattern[bytes]]]:
        for wild in self._wild:
            numbers, texts = zip(*wild, strict=True)
            self._expressions.append((list(numbers), _compile(texts)))
        return self._expressions


def _by_kind(rules: Sequence[Rule], numbered: list[tuple[int, Segment]], *, at_once: bool) -> tuple[Names, Names]:
    """Those that hold for files, and those that hold for folders."""
    files = [(number, segment) for number, segment in numbered if not rules[number].folders_only]
    return Names(files, at_once), Names(numbered, at_once)


@lru_cache(maxsize=4096)
def _compile(texts: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + b"|".join([b"(" + text + b")" for text in texts]) + rb")\Z", re.DOTALL)


def _matches(segment: Segment, name: bytes) -> bool:
    """Whether a segment with wildcards matches."""
    if segment.kind == "ending":
        return name.endswith(segment.text)
    return _compile((segment.text,)).match(name) is not None


def parse_rules(text: bytes) -> tuple[tuple[Rule, ...], int]:
    """The rules in the text of an ignore file, and how many were dropped because there are too many."""
    text, rest = text[:MAX_TEXT], text[MAX_TEXT:]
    if rest:
        text, _, cut = text.rpartition(b"\n")
        rest = cut + rest
    rules = [rule for line in _lines(text) if (rule := parse_rule(line)) is not None]
    dropped = max(0, len(rules) - MAX_RULES) + sum(1 for _ in _lines(rest))
    return tuple(rules[:MAX_RULES]), dropped


def _fit(rules: Sequence[Rule], room: int) -> tuple[Rule, ...]:
    kept = []
    for rule in rules:
        if rule.weight <= room:
            room -= rule.weight
            kept.append(rule)
    return tuple(kept)


def _lines(text: bytes) -> Iterable[bytes]:
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line and not line.startswith(b"#"):
            yield _trim(line.removesuffix(b"\r").partition(b"\0")[0])


def _trim(line: bytes) -> bytes:
    """Without the spaces at its end, as far as they are not escaped."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and len(kept) < len(line) else kept


def parse_rule(line: bytes) -> Rule | None:
    """None when the line could never match anything."""
    negated = line.startswith(b"!")
    pattern = line[negated:]
    folders_only = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    if b"/" in pattern:
        routes = _read_routes(pattern.removeprefix(b"/"))
    else:
        routes = [(_DEEP, *route) for route in _read_route(pattern, crosses=False)]
    if not routes:
        return None
    wild = any(segment.kind == "wild" or segment is _DEEP for route in routes for segment in _needing_steps(route))
    return Rule(
        not negated, folders_only, tuple(routes), len(line) if wild else 0, negated and _speaks_of_secret(pattern)
    )


def _needing_steps(route: Route) -> Route:
    return route[1:] if len(route) == 2 and route[0] is _DEEP else route


def _read_routes(pattern: bytes) -> list[Route]:
    """The routes of a pattern with a slash.

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
    """The route of a pattern, where two stars between slashes lead through folders if it `crosses`; none when no name
    can match."""
    atoms = _read_atoms(pattern)
    route: list[Segment] = []
    name: list[bytes] = []
    for before, atom, after in zip([b"/", *atoms], atoms, [*atoms[1:], b""], strict=False):
        if crosses and atom == b"**" and before in _SLASHES and after in (*_SLASHES, b""):
            if after == _ESCAPED_SLASH:
                route.append(_ANYTHING)
            if route[-1:] != [_DEEP]:
                route.append(_DEEP)
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
    """Each star takes as little as lets what stands behind it, up to the next star, match; that is never tried again.
    Taking more could not help: the next star takes whatever is left over. The last one takes all, and looks back."""
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
    """Stars, slashes, and for all else an expression that matches one byte. None at all when no name can match."""
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
    """The bytes that a class takes whose inside begins at `at`, and where it ends; none when it is not well formed."""
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
    """Whether a pattern's own text is the name of a secret, with its wildcards or without. `!*.pem` has keys back,
    `!*` and `!conf/**` do not."""
    above, _, name = pattern.rpartition(b"/")
    above = above.rpartition(b"/")[2]
    return any(
        is_secret(above, text, is_folder) for text in (name, _WILDCARD.sub(b"", name)) for is_folder in (False, True)
    )


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name


def _to_bytes(rule: str) -> bytes:
    try:
        return os.fsencode(rule)
    except UnicodeEncodeError as error:
        raise InvalidError("an ignore rule has a lone surrogate", hint="it is not valid text") from error


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
