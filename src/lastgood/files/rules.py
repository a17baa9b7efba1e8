"""Ignore rules: which names of a workspace are captured, read exactly as git reads a `.gitignore`.

Rules hold by strength, weakest first: the repository's info/exclude, every `.gitignore` from the root down, every
`.lastgoodignore` from the root down. Of the rules that match, the last one decides. A folder that is ignored is not
entered, so nothing below it can be had back; a `.lastgoodignore` can have back the folder itself. What is left and has
the name of a secret (secrets/filenames.py) is left out, unless a `.lastgoodignore` has it back by that name.

A rule is a route of names from its file's directory down. Routes are followed while directories are entered, so that
in each directory only single names are compared: whole names and endings by lookup, the rest by expressions in which
no star is tried twice. The time a name takes is bounded by its length times that of the rules with wildcards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakValueDictionary

from lastgood.files.roots import Root, git_exclude, read_below
from lastgood.local.paths import join
from lastgood.model.identity import digest
from lastgood.secrets.filenames import DIGEST, is_secret

if TYPE_CHECKING:
    from lastgood.files.patterns import Rule, RulePosition

GIT_RULES = b".gitignore"
OWN_RULES = b".lastgoodignore"
EXCLUDE = b".git/info/exclude"

MAX_TEXT = 1 << 20
MAX_RULES = 10_000
"""How much of one file is read, and how many of its rules are kept."""
UNREADABLE = "it cannot be read, so none of its rules hold"
MAX_WILD = 32 << 10
"""How many bytes the rules with wildcards may have that hold in one directory. Others are left out and reported."""

Verdict = Literal["ignored", "secret"]

_READING = b"3"  # a new number when the same text comes to mean something else


class Rules:
    """A reader of the ignore rules of one root, for one scan in one thread.

    `read` gives the content of a file below the root, None when it cannot be read; `exclude` is the text of the
    repository's info/exclude. With `secrets`, what has the name of a secret is captured like any other.
    """

    def __init__(self, read: Callable[[bytes], bytes | None], *, exclude: bytes = b"", secrets: bool = False) -> None:
        self._read = read
        self._levels: WeakValueDictionary[bytes, RuleLevel] = WeakValueDictionary()
        self._parsed: dict[bytes, RuleFile] = {}
        self._exclude = exclude
        self._secrets = secrets
        self._base = digest(b"".join(map(digest, (_READING, b"" if secrets else DIGEST, exclude))))

    @classmethod
    def of(cls, root: Root, *, secrets: bool = False) -> Rules:
        """Return the rules that lie in a root."""
        read = lambda path: read_below(root, path, 2 * MAX_TEXT)  # noqa: E731
        return cls(read, exclude=git_exclude(root), secrets=secrets)

    def enter(self, path: bytes, names: Collection[bytes]) -> RuleLevel:
        """Return the rules for the names in the directory `path`. Parents are entered first and their levels kept while
        their children are entered; a parent that is not there is read again."""
        if not path:
            level = RuleLevel(b"", self._base, MAX_WILD, self._secrets)
            level.stack_git(self._rules_of(EXCLUDE, self._exclude, level))
        else:
            above, _, name = path.rpartition(b"/")
            parent = self._levels.get(above)
            level = (parent or self.enter(above, (GIT_RULES, OWN_RULES))).below(name)
        texts = [self._text_of(path, name, level) if name in names else b"" for name in (GIT_RULES, OWN_RULES)]
        if any(texts):
            level.digest = digest(level.digest + b"".join(map(digest, (path, *texts))))
            level.stack_git(self._rules_of(GIT_RULES, texts[0], level))
            level.stack_own(self._rules_of(OWN_RULES, texts[1], level))
        self._levels[path] = level
        return level

    def _text_of(self, path: bytes, name: bytes, level: RuleLevel) -> bytes:
        text = self._read(join(path, name))
        if text is None:
            level.remarks[name] = UNREADABLE
        return text or b""

    def _rules_of(self, name: bytes, text: bytes, level: RuleLevel) -> tuple[Rule, ...]:
        """Return the rules in `text`, as many as may still be added at `level`."""
        if not text:
            return ()
        if text not in self._parsed:
            self._parsed[text] = parse_rules(text)
        file = self._parsed[text].fitted(level.room)
        level.room -= file.weight
        if file.remarks:
            level.remarks[name] = "; ".join(file.remarks)
        return file.rules


class RuleLevel:
    """A level of rules: as they hold in one directory.

    Two levels of the same directory with the same `digest` decide the same about every name. `room` is how much may
    still be added below. `remarks`: what is wrong with the files of rules in this directory, by their names.
    """

    __slots__ = ("__weakref__", "_git", "_name", "_own", "_secrets", "_spoken", "digest", "remarks", "room")

    def __init__(self, name: bytes, digest: bytes, room: int, secrets: bool) -> None:
        self._name = name
        self._secrets = secrets
        self.digest = digest
        self.room = room
        self.remarks: dict[bytes, str] = {}
        self._git: tuple[RulePosition, ...] = ()  # the strongest first, here and below
        self._own: tuple[RulePosition, ...] = ()
        self._spoken: tuple[RulePosition, ...] = ()  # those of own that have secrets back

    def decide(self, name: bytes, is_folder: bool) -> Verdict | None:
        """Return why `name` in this directory is left out; None when it is captured."""
        ignored = _ask(self._own, name, is_folder)
        had_back = ignored is False
        if ignored is None:
            ignored = _ask(self._git, name, is_folder)
        if ignored:
            return "ignored"
        if self._secrets or not is_secret(self._name, name, is_folder):
            return None
        return None if had_back and _ask(self._spoken, name, is_folder) is not None else "secret"

    def below(self, name: bytes) -> RuleLevel:
        """Return the same rules for the names in the folder `name`, before its own are added."""
        level = RuleLevel(name, self.digest, self.room, self._secrets)
        level._git = tuple([place.step(name) for place in self._git])
        level._own = tuple([place.step(name) for place in self._own])
        level._spoken = tuple([place.step(name) for place in self._spoken])
        return level

    def stack_git(self, rules: Sequence[Rule]) -> None:
        self._git = _stack(rules, self._git)

    def stack_own(self, rules: Sequence[Rule]) -> None:
        self._own = _stack(rules, self._own)
        self._spoken = _stack([rule for rule in rules if rule.speaks_of_secret], self._spoken)


def _stack(rules: Sequence[Rule], places: tuple[RulePosition, ...]) -> tuple[RulePosition, ...]:
    if not rules:
        return places
    from lastgood.files.patterns import Automaton

    return (Automaton(rules).start, *places)


def _ask(places: tuple[RulePosition, ...], name: bytes, is_folder: bool) -> bool | None:
    for place in places:
        number = place.find(name, is_folder)
        if number >= 0:
            return place.rules[number].ignores
    return None


class RuleFile(NamedTuple):
    """A parsed ignore file. `remarks` say in words which lines do nothing."""

    rules: tuple[Rule, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        return sum(rule.weight for rule in self.rules)

    def fitted(self, room: int) -> RuleFile:
        """Return as many of its rules as have room, by their weight."""
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
    from lastgood.files.patterns import parse_rule

    rules, remarks, idle = [], [], []
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
        more = f" and {len(idle) - 1:,} more" if len(idle) > 1 else ""
        remarks.append(f"line {idle[0]}{more} can never match")
    if len(rules) > MAX_RULES:
        remarks.append(f"{len(rules) - MAX_RULES:,} of its rules left out: a file may have {MAX_RULES:,}")
    if rest:
        remarks.append(f"what is beyond {MAX_TEXT:,} bytes left out")
    return RuleFile(tuple(rules[:MAX_RULES]), tuple(remarks))


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not comments, with their numbers."""
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line and not line.startswith(b"#"):
            yield number, _trim(line.removesuffix(b"\r").partition(b"\0")[0])


def _trim(line: bytes) -> bytes:
    """Remove the spaces at its end, as far as they are not escaped."""
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 and len(kept) < len(line) else kept
