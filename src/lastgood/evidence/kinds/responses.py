"""Evidence about services (D1): that a URL answers as it should. Nothing is asked that could change something there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lastgood.errors import InvalidError
from lastgood.evidence.check import (
    Deadline,
    NotYet,
    Outside,
    Surroundings,
    require_digest,
    require_integer,
    require_text,
    take_fields,
    take_timeout,
)
from lastgood.evidence.connection import Response, connect, connect_with_tls, exchange, translated
from lastgood.evidence.kinds.network import find_addresses, require_host
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence
from lastgood.secrets.redaction import MASK, Redaction

_MAX_CONDITIONS = 100
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?", re.IGNORECASE
)
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile("[!-~]+")  # ASCII without blanks and control characters: nothing that could end a line
_PORTS = {"http": 80, "https": 443}
_HEADER = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
"""What servers say when it may be otherwise in a moment."""

Condition = Callable[[Response], str | None]
"""How an answer differs from what is claimed; None when it does not."""


def check_response(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """api_response: {"url", "method": "GET" | "HEAD", "status": a number or a list of them, "headers": {name: value},
    "json": {"dotted.path": value}, "contains": text, "body_sha256": hex digits, "timeout": seconds}.

    It holds when the answer is all of that. Redirections are answers like others. The value None of a header is any.
    """
    claim = _read_claim(evidence)
    outside = surroundings.outside

    def attempt(deadline: Deadline) -> str | None:
        answer = _ask(claim, outside, deadline)
        if answer.status not in claim.statuses:
            said = f"{claim.url.shown()} answered with {answer.status}, not {_listed(claim.statuses)}"
            if answer.status in _PASSING:
                raise NotYet(said)
            return said
        differences = (condition(answer) for condition in claim.conditions)
        return next((said for said in differences if said is not None), None)

    return outside.retry(attempt, outside.deadline(surroundings.deadline, claim.timeout))


class Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def target(self) -> str:
        """The path and query, as they stand in the request."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def shown(self) -> str:
        """Return it for messages: the value of each name in the query is masked, whatever it is."""
        query = "" if self.query is None else f"?{'&'.join(map(_mask, self.query.split('&')))}"
        return show(Redaction().text(f"{self.scheme}://{self.authority}{self.path}{query}"))


class _Claim(NamedTuple):
    url: Url
    method: str
    statuses: list[int]
    conditions: list[Condition]
    reads_body: bool
    timeout: float | None


def _ask(claim: _Claim, outside: Outside, deadline: Deadline) -> Response:
    url = claim.url
    with translated(url.shown()):
        addresses = find_addresses(url.host, url.port, outside, deadline)
        is_safe = url.scheme == "https"
        with connect_with_tls(addresses, url.host, deadline) if is_safe else connect(addresses, deadline) as connection:
            return exchange(connection, claim.method, url.target, url.authority, read_body=claim.reads_body)


def _read_claim(evidence: Evidence) -> _Claim:
    known = ("url", "method", "status", "headers", "json", "contains", "body_sha256", "timeout")
    fields = take_fields(evidence, known)
    url, timeout = require_url(fields.get("url")), take_timeout(fields.get("timeout"))
    method = fields.get("method", "GET")
    if method not in ("GET", "HEAD"):
        raise InvalidError('the method of evidence is "GET" or "HEAD": others could change something')
    body = [name for name in ("json", "contains", "body_sha256") if fields.get(name) is not None]
    if body and method == "HEAD":
        raise InvalidError(f'the claim is about the content ("{body[0]}"), which HEAD does not bring')
    conditions = [_has_header(name, value) for name, value in _entries(fields.get("headers"), "headers").items()]
    conditions += [_has_value(path, value) for path, value in _entries(fields.get("json"), "json").items()]
    if "contains" in body:
        conditions.append(_contains(require_text(fields["contains"], "contains").encode()))
    if "body_sha256" in body:
        conditions.append(_has_digest(fields["body_sha256"]))
    return _Claim(url, method, _statuses(fields.get("status")), conditions, bool(body), timeout)


def _statuses(value: object) -> list[int]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values or len(values) > _MAX_CONDITIONS:
        raise InvalidError("the claim's status is a number or a list of numbers")
    return [require_integer(one, "status", 100, 599) for one in values]


def _entries(value: object, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise InvalidError(f'"{what}" of the claim is not a dictionary with names in it')
    if not value or len(value) > _MAX_CONDITIONS:
        raise InvalidError(f'"{what}" of the claim has no entry, or more than {_MAX_CONDITIONS}')
    return dict(value)


def _has_header(name: str, value: object) -> Condition:
    if not _HEADER.fullmatch(name):
        raise InvalidError(f"{show(name)} is not the name of a header")
    if value is not None and not isinstance(value, str):
        raise InvalidError(f"the claim's value for the header {show(name)} is not text")

    def compare(answer: Response) -> str | None:
        values = answer.values(name.lower())
        if not values:
            return f"the answer has no header {show(name)}"
        return None if value is None or value.strip(" \t") in values else f"the answer has another {show(name)}"

    return compare


def _has_value(path: str, value: object) -> Condition:
    def compare(answer: Response) -> str | None:
        import msgspec

        try:
            found = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, RecursionError):
            return "the answer is not JSON"
        for part in path.split("."):
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and _INDEX.fullmatch(part) and int(part) < len(found):
                found = found[int(part)]
            else:
                return f"the answer has nothing at {show(path)}"
        return None if _is_same(found, value) else f"the answer has another value at {show(path)}"

    return compare


def _contains(text: bytes) -> Condition:
    return lambda answer: None if text in answer.body else "the answer does not contain the claim's text"


def _has_digest(value: object) -> Condition:
    from hashlib import sha256

    wanted = require_digest(value, "body_sha256")

    def compare(answer: Response) -> str | None:
        found = sha256(answer.body).hexdigest()
        return None if found == wanted else f"the answer has the SHA-256 {found}"

    return compare


def _is_same(found: object, value: object) -> bool:
    """Compare as JSON does: 1 is 1.0 and is not true."""
    if isinstance(found, dict):
        return (
            isinstance(value, dict)
            and found.keys() == value.keys()
            and all(_is_same(found[k], value[k]) for k in found)
        )
    if isinstance(found, list):
        return isinstance(value, list | tuple) and len(found) == len(value) and all(map(_is_same, found, value))
    return isinstance(found, bool) is isinstance(value, bool) and found == value


def _listed(statuses: list[int]) -> str:
    return " or ".join(map(str, statuses))


def require_url(value: object) -> Url:
    """Parse a URL; InvalidError, which never repeats what was in it, for one that is not requested."""
    text = require_text(value, "url")
    found = _URL.fullmatch(text) if _PLAIN.fullmatch(text) else None
    if found is None:
        raise InvalidError("the claim's url is not one of http or https", hint="write what is not ASCII as %…")
    if "@" in found["authority"]:
        raise InvalidError("the claim's url holds credentials, which evidence never sends", hint="leave out user@")
    place = _AUTHORITY.fullmatch(found["authority"])
    if place is None:
        raise InvalidError("the claim's url names no host")
    scheme = found["scheme"].lower()
    port = _PORTS[scheme] if place["port"] is None else require_integer(int(place["port"]), "port", 1, 65535)
    return Url(scheme, require_host(place["v6"] or place["name"]), port, found["path"] or "/", found["query"])


def _mask(part: str) -> str:
    name, separator, value = part.partition("=")
    return f"{name}={MASK}" if separator and value else part if separator or not part else MASK
