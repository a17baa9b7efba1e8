"""What counts as a secret: the rules, and how they are applied to text and to plain data.

State is redacted by path alone (codec/redact.py); the paths are checked here, when the rules are made:

    credentials.token                      names of keys, separated by dots
    messages[3].text                       a position in a list or tuple, or a key that is a whole number
    messages[*].headers.Authorization      every element, or every entry
    users.*.password                       the same
    headers["x.api key"]                   a key with dots or other odd characters, quoted as in JSON

A rule that is written a little differently from the data must not let a secret through: `*` and `[*]` both stand
for all entries and all elements, `3` and `[3]` both for the key and for the position. Case matters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.errors import InvalidError

if TYPE_CHECKING:
    from lastgood.secrets.fields import NamedSecrets

MASK = "[redacted]"
_SHORT = 48
_PLAIN = frozenset((int, float, bool, type(None)))
_CONTAINERS = (dict, list, tuple, set, frozenset)
MAX_DEPTH = 128  # of plain data; what is nested deeper is masked whole
_NAME_HINTS = ("pass", "pwd", "secret", "token", "authorization", "cookie", "sess", "key", "sig")
_TEXT_HINTS = ("://", "bearer", "basic", "private key")
_LONG_WORD = re.compile(r"[\w.-]{14}", re.ASCII)  # no token with a prefix is shorter

ANY = None
"""The step to every entry and every element."""

Step = str | None
_NAME = r"[^\s.\[\]*\"'\\\ud800-\udfff]+"
_STEP = (
    rf"(?:^|(?!^)\.)(?:(?P<any>\*)|(?P<name>{_NAME}))"
    r"""|\[(?:(?P<all>\*)|(?P<index>[0-9]{1,18})|(?P<quoted>"(?:[^"\\]|\\.)*+"))\]"""
)


class Redaction(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Rules for what counts as a secret. The defaults know the usual ones.

    `patterns` are further regular expressions; a group named `secret` limits what is masked. They run over every
    text, so they should take linear time. `keys` are further names of fields whose values are secrets; case does
    not matter, and `-` is the same as `_`. `state` are paths in the state that are never stored, such as
    `credentials.token` or `messages[*].headers.Authorization` (the grammar is in secrets/redaction.py). With
    `defaults=False` only these rules hold. Raises InvalidError for a rule that cannot be applied.
    """

    patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    defaults: bool = True

    def __post_init__(self) -> None:
        for field in ("patterns", "keys", "state"):
            _check_texts(field, getattr(self, field))
        if type(self.defaults) is not bool:
            raise InvalidError(f"defaults is {type(self.defaults).__name__}, not bool", field="defaults")
        for key in self.keys:
            if not key.strip("-_ "):
                raise InvalidError("a name of a secret field is empty", hint="give names such as pin", field="keys")
        if self.patterns:
            _ = self._patterns
        if self.state:
            _ = self.paths

    @cached_property
    def paths(self) -> Paths:
        """Return the rules for the state, ready for `redact_state`."""
        return parse_paths(self.state)

    def text(self, text: str) -> str:
        """Return `text` with `[redacted]` in place of each secret; the same object when there is none."""
        if len(text) > _SHORT:
            return self._mask(text)
        masked = self._mask_short(text)
        return text if masked == text else masked

    @cached_property
    def _mask_short(self) -> Callable[[str], str]:
        """Mask short texts, remembering them: names of fields and the like come again, 0.2 us instead of 2."""
        return lru_cache(1024)(self._mask)

    def _mask(self, text: str) -> str:
        lowered, masked = text.lower(), text
        if (":" in text or "=" in text or "--" in text) and self._may_be_named(lowered):
            masked = self._named.mask(masked)  # first: a value behind a name may hold more than a known shape
        if self.defaults and (_LONG_WORD.search(lowered) or any(map(lowered.__contains__, _TEXT_HINTS))):
            from lastgood.secrets.text import mask_secrets

            masked = mask_secrets(masked, lowered)
        if self.patterns:
            from lastgood.secrets.text import mask_pattern

            for pattern in self._patterns:
                masked = mask_pattern(pattern, masked)
        return text if masked == text else masked

    def plain(self, value: Any) -> Any:
        """Return plain data (what JSON has) with its secrets masked, found by the names of fields and in texts.

        Nothing of the caller's is changed: containers on the way to a secret are copied, and the same object comes
        back when there is no secret. None, True and False are never secrets, nor is a number behind the name of a
        token or key. A list that holds `--password` and then a text is a command line.
        """
        return self._plain(value, 0)

    def _plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, _CONTAINERS) or not value:
            return value
        if depth >= MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return self._map(value, depth)
        if isinstance(value, set | frozenset):
            masked: Any = type(value)(self._plain(item, depth + 1) for item in value)
            return value if masked == value else masked
        if type(value) is list and self._is_plain_list(value):
            return value
        items = self._items(value, depth)
        return value if all(map(_is, items, value)) else tuple(items) if isinstance(value, tuple) else items

    def _map(self, value: dict[Any, Any], depth: int) -> Any:
        changed: dict[Any, tuple[Any, Any]] = {}
        for key, item in value.items():
            kind, name, new = type(item), key, item
            if kind not in _PLAIN:
                new = self.text(item) if kind is str else self._plain(item, depth + 1)
            if type(key) is not str or key == "value" or len(key) > _SHORT or not self._is_plain_key(key):
                if (secret := self._secret_name(key, value)) is not None:
                    new = _hide(new, not self._named.may_count(secret), depth)
                name = self.text(key) if isinstance(key, str) else key
            if new is not item or name is not key:
                changed[key] = name, new
        if not changed:
            return value
        masked: dict[Any, Any] = {}
        for key, item in value.items():
            name, new = changed.get(key, (key, item))
            masked[name if name is key else _unused(name, masked, value)] = new
        return masked

    def _secret_name(self, key: object, entries: dict[Any, Any]) -> str | None:
        """Return the name that makes the entry `key` a secret: its own, or the `name` that stands beside a `value`."""
        name = entries.get("name", entries.get("key")) if key == "value" else key
        return name if isinstance(name, str) and self._is_secret(name) else None

    def _is_plain_list(self, value: list[Any]) -> bool:
        """Say of numbers, or of short texts, whether there is no secret among them; of others False."""
        kinds = set(map(type, value))
        if kinds <= _PLAIN:
            return True
        if kinds != {str} or max(map(len, value)) > _SHORT or "\0--" in "\0".join(("", *value)):
            return False
        return list(map(self._mask_short, value)) == value

    def _items(self, value: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        items = [
            item if type(item) in _PLAIN else self.text(item) if type(item) is str else self._plain(item, depth + 1)
            for item in value
        ]
        for index, item in enumerate(items[:-1]):
            if isinstance(item, str) and item.startswith("--") and self._is_secret(item[2:]):
                items[index + 1] = _hide(items[index + 1], True, depth)
        return items

    def _is_secret(self, name: str) -> bool:
        return self._is_short_secret(name) if len(name) <= _SHORT else self._names_secret(name)

    @cached_property
    def _is_plain_key(self) -> Callable[[str], bool]:
        """Say whether a short key neither is a secret nor names one."""
        return lru_cache(1024)(lambda key: not self._names_secret(key) and self._mask(key) == key)

    @cached_property
    def _is_short_secret(self) -> Callable[[str], bool]:
        return lru_cache(1024)(self._names_secret)

    def _names_secret(self, name: str) -> bool:
        return self._may_be_named(name.lower()) and self._named.is_secret(name)

    def _may_be_named(self, lowered: str) -> bool:
        return any(map(lowered.__contains__, self._hints))

    @cached_property
    def _hints(self) -> tuple[str, ...]:
        """Return words of which every text that names a secret has one, in lower case."""
        own = (max(re.split("[-_]", key.lower()), key=len) for key in self.keys)
        return (*(_NAME_HINTS if self.defaults else ()), *own)

    @cached_property
    def _named(self) -> NamedSecrets:
        from lastgood.secrets.fields import NamedSecrets

        return NamedSecrets(self.keys, self.defaults)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_compile, self.patterns))


def _hide(value: Any, numbers: bool, depth: int) -> Any:
    """Hide the `value` of a secret field: each text in it is masked, and each number if `numbers`."""
    if value is None or isinstance(value, bool) or value in ("", MASK):
        return value
    if isinstance(value, int | float):
        return MASK if numbers else value
    if depth >= MAX_DEPTH:
        return MASK
    if isinstance(value, dict):
        hidden: Any = {key: _hide(item, numbers, depth + 1) for key, item in value.items()}
        return value if all(map(_is, hidden.values(), value.values())) else hidden
    if isinstance(value, list | tuple):
        items = [_hide(item, numbers, depth + 1) for item in value]
        return value if all(map(_is, items, value)) else tuple(items) if isinstance(value, tuple) else items
    return MASK


def _is(one: object, other: object) -> bool:
    return one is other


def _unused(name: str, masked: dict[Any, Any], value: dict[Any, Any]) -> str:
    """Return `name`, numbered if another key has become, or is, the same: no entry is lost."""
    candidate, number = name, 1
    while candidate in masked or candidate in value:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _check_texts(field: str, value: object) -> None:
    if type(value) is not tuple or not all(type(item) is str for item in value):
        raise InvalidError(f"{field} is not a tuple of texts", hint=f'as in {field}=("…",)', field=field)


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidError(
            f"the pattern {pattern[:80]!r} is not a regular expression: {error}",
            hint="see the re module of Python for how they are written",
            field="patterns",
        ) from error


# --- paths in the state ---


class Paths:
    """A tree of the steps of rules. `rule` is set where a rule ends."""

    __slots__ = ("next", "rule")

    def __init__(self) -> None:
        self.rule: str | None = None
        self.next: dict[Step, Paths] = {}

    def __bool__(self) -> bool:
        return bool(self.next)


def parse_paths(rules: tuple[str, ...]) -> Paths:
    """Parse rules. Raises InvalidError for one that is not a path."""
    root = Paths()
    for rule in rules:
        paths = root
        for step in _parse(rule):
            paths = paths.next.setdefault(step, Paths())
        paths.rule = paths.rule or rule
    return root


def _parse(rule: str) -> list[Step]:
    step = re.compile(_STEP)  # here, and not above: few programs have such rules
    steps: list[Step] = []
    at = 0
    while at < len(rule) or not steps:
        if (match := step.match(rule, at)) is None:
            raise _bad(rule)
        steps.append(_step(rule, match))
        at = match.end()
    return steps


def _step(rule: str, match: re.Match[str]) -> Step:
    if match["any"] or match["all"]:
        return ANY
    if match["index"]:
        return str(int(match["index"]))
    if match["name"]:
        return match["name"]
    import json

    try:
        return str(json.loads(match["quoted"]))
    except ValueError:
        raise _bad(rule) from None


def _bad(rule: str) -> InvalidError:
    return InvalidError(
        f"{rule[:80]!r} is not a path in the state",
        hint='as in credentials.token, messages[*].text, users.*.password or headers["x.key"]',
        field="state",
    )


def write_step(step: object) -> str:
    """Write a key or position as it stands in a path; `[*]` for a key that no path can name."""
    if type(step) is int:
        return f"[{step}]" if step >= 0 else "[*]"
    if isinstance(step, str):
        if re.fullmatch(_NAME, step):
            return f".{step}"
        import json

        return f"[{json.dumps(str(step))}]"
    return "[*]"
