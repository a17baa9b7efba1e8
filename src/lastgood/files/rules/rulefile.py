"""The text of one ignore file: its rules, and what is to be said of those that never hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lastgood.files.rules.patterns import Rule, parse_rule

MAX_TEXT = 1 << 20
MAX_RULES = 10_000
"""How much of one file is read, and how many of its rules are kept."""
_NAMED_LINES = 5

UNREADABLE = "it cannot be read, so none of its rules hold"


class RuleFile(NamedTuple):
    """`remarks` say in words which lines do nothing."""

    rules: tuple[Rule, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        return sum(rule.weight for rule in self.rules)

    def fitted(self, room: int) -> RuleFile:
        """As many of its rules as have room, by their weight."""
        if self.weight <= room:
            return self
        kept = []
        for rule in self.rules:
            if rule.weight <= room:
                room -= rule.weight
                kept.append(rule)
        lost = len(self.rules) - len(kept)
        said = f"{lost:,} of its rules left out: those with wildcards are too many, here and in the folders above"
        return RuleFile(tuple(kept), (*self.remarks, said))


def parse_rules(text: bytes) -> RuleFile:
    rules, remarks = [], []
    idle = []
    kept, rest = text[:MAX_TEXT], text[MAX_TEXT:]
    if rest:
        kept = kept.rpartition(b"\n")[0]
    for number, line in _lines(kept):
        rule = parse_rule(line)
        if rule is not None:
            rules.append(rule)
        elif line:
            idle.append(number)
    if idle:
        remarks.append(f"{_name_lines(idle)} can never match")
    if len(rules) > MAX_RULES:
        remarks.append(f"{len(rules) - MAX_RULES:,} of its rules left out: a file may have {MAX_RULES:,}")
    if rest:
        remarks.append(f"what is beyond {MAX_TEXT:,} bytes left out")
    return RuleFile(tuple(rules[:MAX_RULES]), tuple(remarks))


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not comments, with their numbers."""
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line and not line.startswith(b"#"):
            yield number, _trim(line.removesuffix(b"\r").partition(b"\0")[0])


def _trim(line: bytes) -> bytes:
    """Without the spaces at its end, as far as they are not escaped."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and len(kept) < len(line) else kept


def _name_lines(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    named = [str(number) for number in numbers[:_NAMED_LINES]]
    rest = len(numbers) - len(named)
    *first, last = [*named, f"{rest:,} more"] if rest else named
    return f"lines {', '.join(first)} and {last}"
