"""The rules of one ignore file at work: followed from directory to directory, single names compared in each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from lastgood.files.rules.patterns import ANYTHING, DEEP, Route, Rule, Segment


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


class NameRules:
    """A set of rules about single names, with their numbers."""

    __slots__ = ("_always", "_endings", "_expressions", "_lengths", "_whole", "_wild")

    def __init__(self, rules: Iterable[tuple[int, Segment]], at_once: bool) -> None:
        self._always = -1
        self._whole: dict[bytes, int] = {}
        self._endings: dict[bytes, int] = {}
        self._expressions: list[tuple[list[int], re.Pattern[bytes]]] = []
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
        self._wild = [wild] if at_once and wild else [[one] for one in wild]

    def find(self, name: bytes) -> int:
        """Return the number of the last rule that matches, or -1."""
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


def _by_kind(
    rules: Sequence[Rule], numbered: list[tuple[int, Segment]], *, at_once: bool
) -> tuple[NameRules, NameRules]:
    """Return those that hold for files, and those that hold for folders."""
    files = [(number, segment) for number, segment in numbered if not rules[number].folders_only]
    return NameRules(files, at_once), NameRules(numbered, at_once)


@lru_cache(maxsize=4096)
def _compile(texts: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + b"|".join([b"(" + text + b")" for text in texts]) + rb")\Z", re.DOTALL)


def _matches(segment: Segment, name: bytes) -> bool:
    """Return whether a segment with wildcards matches."""
    if segment.kind == "ending":
        return name.endswith(segment.text)
    return _compile((segment.text,)).match(name) is not None
