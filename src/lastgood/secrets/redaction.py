"""What counts as a secret: the rules, and how they are applied to text and to plain data.

State is redacted by path alone (codec/redact.py): the paths are checked here, when the rules are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.errors import InvalidError
from lastgood.secrets.paths import Paths, parse_paths

if TYPE_CHECKING:
    from lastgood.secrets.named import Named

MASK = "[redacted]"
_SHORT = 48
_PLAIN = frozenset((int, float, bool, type(None)))
_CONTAINERS = (dict, list, tuple, set, frozenset)
MAX_DEPTH = 128  # of plain data; what is nested deeper is masked whole
_NAME_HINTS = ("pass", "pwd", "secret", "token", "authorization", "cookie", "sess", "key", "sig")


class Redaction(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What counts as a secret. The defaults know the usual ones.

    `patterns` are further regular expressions; a group named `secret` limits what is masked. They run over every
    text, so they should take linear time. `keys` are further names of fields whose values are secrets; case does
    not matter, and `-` is the same as `_`. `state` are paths in the state that are never stored, such as
    `credentials.token` or `messages[*].headers.Authorization` (secrets/paths.py has the grammar). With
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
        """The rules for the state, ready for `redact_state`."""
        return parse_paths(self.state)

    def text(self, text: str) -> str:
        """`text` with `[redacted]` in place of each secret; the same object when there is none."""
        if len(text) > _SHORT:
            return self._mask(text)
        masked = self._mask_short(text)
        return text if masked == text else masked

    @cached_property
    def _mask_short(self) -> Callable[[str], str]:
        """Names of fields and the like come again and again: 0.2 us instead of 2."""
        return lru_cache(1024)(self._mask)

    def _mask(self, text: str) -> str:
        lowered, masked = text.lower(), text
        if (":" in text or "=" in text or "--" in text) and self._may_be_named(lowered):
            masked = self._named.mask(masked)  # first: a value behind a name may hold more than a known shape
        if self.defaults:
            from lastgood.secrets.text import mask_secrets

            masked = mask_secrets(masked, lowered)
        if self.patterns:
            from lastgood.secrets.text import mask_pattern

            for pattern in self._patterns:
                masked = mask_pattern(pattern, masked)
        return text if masked == text else masked

    def plain(self, value: Any) -> Any:
        """Plain data (what JSON has) with its secrets masked, found by the names of fields and in texts.

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
        items = self._items(value, depth)
        return value if all(map(_is, items, value)) else tuple(items) if isinstance(value, tuple) else items

    def _map(self, value: dict[Any, Any], depth: int) -> Any:
        masked: dict[Any, Any] = {}
        changed = False
        for key, item in value.items():
            name, new = key, item if type(item) in _PLAIN else self._plain(item, depth + 1)
            if type(key) is str and key != "value" and len(key) <= _SHORT and self._is_plain_key(key):
                changed = changed or new is not item
                masked[key] = new
                continue
            if (secret := self._secret_name(key, value)) is not None:
                new = _hide(new, not self._named.may_count(secret), depth)
            if isinstance(key, str) and (name := self.text(key)) is not key:
                name = _unused(name, masked, value)
            changed = changed or new is not item or name is not key
            masked[name] = new
        return masked if changed else value

    def _secret_name(self, key: object, entries: dict[Any, Any]) -> str | None:
        """The name that makes the entry `key` a secret: its own, or the `name` that stands beside a `value`."""
        name = entries.get("name", entries.get("key")) if key == "value" else key
        return name if isinstance(name, str) and self._is_secret(name) else None

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
        """Whether a short key neither is a secret nor names one."""
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
        """One of them stands in every text, in lower case, that names a secret."""
        own = (max(re.split("[-_]", key.lower()), key=len) for key in self.keys)
        return (*(_NAME_HINTS if self.defaults else ()), *own)

    @cached_property
    def _named(self) -> Named:
        from lastgood.secrets.named import Named

        return Named(self.keys, self.defaults)

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(_compile, self.patterns))


def _hide(value: Any, numbers: bool, depth: int) -> Any:
    """`value` of a secret field: each text in it is masked, and each number if `numbers`."""
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
    """`name`, numbered if another key has become, or is, the same: no entry is lost."""
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
