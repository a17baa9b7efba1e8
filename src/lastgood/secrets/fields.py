"""Secrets in text that stand behind the name of a field: `password=…`, `"api_key": "…"`, `--token …`.

Names are searched in the text in lower case (a search that ignores case takes five times as long), values in the
text itself. Each search reads a bounded number of characters, and each value is passed over once: linear time.
"""

from __future__ import annotations

import re

from lastgood.secrets.text import MASK

_NAMES = (
    r"passw(?:or)?d|passphrase|passcode|(?<=[_;-])pwd|secret|token|authorization|cookie|phpsessid|jsessionid"
    r"|(?:api|access|secret|private|encryption|signing|auth|master|account|session|consumer|subscription|application"
    r"|hmac)[ _-]?key|amz-signature|(?<=[?&])sig"
)
_NUMBERED = r"(?:[_-]?[0-9]{1,3})?"
_HARMLESS_TOKEN = re.compile(
    r"(?<![a-z])(?:(?:next_?)?page|next|continuation|cursor|fencing|unexpected|per|first|last|start|stop|end|special"
    r"|pad|eos|bos|unk|sep|cls|mask|image)[ _-]?\Z",
    re.IGNORECASE | re.ASCII,
)
_WHOLE_LINE = ("authorization", "cookie")

_SEPARATOR = r"(?P<close>\\{0,7}[\"'`]?\]?)(?P<separator>[ \t]{0,4}(?::=|=>|={1,2}|:(?!:))[ \t]{0,4}|,?[ \t]{1,4})"
_OPTION = re.compile(r"(?:\A|[\s\"'\[(=,])--[a-z0-9_-]*\Z", re.IGNORECASE | re.ASCII)
_OPENING = re.compile(r"[bfru]{0,2}(?P<quote>\\{0,7}[\"'`])", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic|digest|negotiate|token|apikey)[ \t]+", re.IGNORECASE)
_BARE = re.compile(r"(?:[^\s\"'`,;&<>\\]|\\(?![nrt\"'\\]))++")
_LINE = re.compile(r"(?:[^\r\n\"'\\]|\\(?![nrt\"'\\]))++")
_INSIDE = {quote: re.compile(rf"(?:[^{quote}\\\n]|\\.)*+") for quote in "\"'`"}
_INSIDE_ESCAPED = {quote: re.compile(rf"(?:[^{quote}\\\n]|\\++(?!{quote}))*+") for quote in "\"'`"}
# What stands behind such a name in code and schemas: a type, nothing, a call, a reference, the name again.
_NO_SECRET = re.compile(
    r"(?:none|null|nil|true|false|undefined|str|string|int|integer|number|bool|boolean|bytes|any|object|optional"
    r"|required)(?![\w.@$!#%^*+/=-])"
    r"|[a-z_][\w.]{2,80}[(\[]|[{(\[](?=[\s\"'`{(\[]|\Z)|(?-i:\$\{?[A-Z_][A-Z0-9_]{0,80}+\}?+)(?![\w$-])",
    re.IGNORECASE | re.ASCII,
)
_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_NUMBER = re.compile(r"[0-9]{1,20}+(?![\w.@$!#%^*+/=-])", re.ASCII)


class NamedSecrets:
    """A matcher of fields whose values are secrets: the usual ones, and those in `more`."""

    def __init__(self, more: tuple[str, ...], defaults: bool) -> None:
        exact = "|".join(re.escape(_normal(key)).replace("_", "[-_]") for key in more)
        both = [rf"(?<![A-Za-z0-9_])(?<![A-Za-z0-9]-)(?:{exact})"] if more else []
        both += [_NAMES] if defaults else []
        names = "|".join(both)
        self._more = frozenset(map(_normal, more))
        self._field = re.compile(rf"(?:{_NAMES})(?:(?<!token)s)?{_NUMBERED}\Z", re.IGNORECASE | re.ASCII)
        self._defaults = defaults
        self._before_value = re.compile(rf"(?P<name>{names}){_NUMBERED}{_SEPARATOR}", re.ASCII)

    def is_secret(self, field: str) -> bool:
        """Say whether the values of a field of this name are secrets."""
        if self._more and _normal(field) in self._more:
            return True
        if not self._defaults or (match := self._field.search(field)) is None:
            return False
        return not (match[0].lower().startswith("token") and _is_harmless_token(field, match.start()))

    def may_count(self, name: str) -> bool:
        """Say whether a number behind this name counts or fences something; behind any other it is a secret."""
        return _normal(name) not in self._more and name.lower().rstrip("s0123456789_-").endswith(("token", "key"))

    def mask(self, text: str) -> str:
        """Mask the values that stand behind such names."""
        lowered = _lower(text)
        parts, at, done = [], 0, 0
        while (match := self._before_value.search(lowered, at)) is not None:
            start, end = _find_value(text, match, self.may_count(match["name"]))
            at = max(end, match.end())
            if end > start:
                parts += [text[done:start], MASK]
                done = at = end
        return "".join([*parts, text[done:]]) if parts else text


def _find_value(text: str, match: re.Match[str], may_count: bool) -> tuple[int, int]:
    """Find where the secret behind a name stands; an empty span when there is none."""
    name, at = match["name"], match.end()
    nothing = at, at
    if name == "token" and _is_harmless_token(text, match.start()):
        return nothing
    if not match["separator"].strip(" \t,") and not _is_option(text, match):
        return nothing
    quote = ""
    if (opening := _OPENING.match(text, at)) is not None:
        quote, at = opening["quote"], opening.end()
    if name in _WHOLE_LINE and (scheme := _SCHEME.match(text, at)) is not None:
        at = scheme.end()
    if text.startswith(MASK, at):
        return nothing
    if quote:
        inside = (_INSIDE if len(quote) == 1 else _INSIDE_ESCAPED)[quote[-1]].match(text, at)
        return at, inside.end() if inside else at
    if _is_no_secret(text, at, name) or (may_count and _NUMBER.match(text, at)):
        return nothing
    bare = (_LINE if name in _WHOLE_LINE else _BARE).match(text, at)
    return at, at + len(bare[0].rstrip(")]} \t")) if bare else at


def _is_no_secret(text: str, at: int, name: str) -> bool:
    if _NO_SECRET.match(text, at):
        return True
    again = re.compile(rf"(?:[a-z_]\w{{0,40}}\.){{0,4}}{re.escape(name)}(?![\w.@$!#%^*+/=-])", re.IGNORECASE | re.ASCII)
    return again.match(text, at) is not None


def _is_option(text: str, match: re.Match[str]) -> bool:
    """Say whether the name is that of an option of a command, and its value follows."""
    before = text[max(0, match.start() - 48) : match.start()]
    return _OPTION.search(before) is not None and not text.startswith("-", match.end())


def _is_harmless_token(text: str, at: int) -> bool:
    return _HARMLESS_TOKEN.search(text[max(0, at - 16) : at]) is not None


def _normal(key: str) -> str:
    return key.lower().replace("-", "_")


def _lower(text: str) -> str:
    """Return the text in lower case, each character where it was."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_LOWER)
