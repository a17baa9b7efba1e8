"""Evidence about hosts and services (D1): that a port takes connections, that a URL answers as it should. Nothing is
asked that could change something there.

What was checked is what is connected to: a name is looked up once, and all of its addresses must be allowed.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple

from lastgood.errors import BusyError, ForbiddenError, InvalidError
from lastgood.evidence.check import (
    NotYet,
    Surroundings,
    require_integer,
    require_text,
    seconds_until,
    take_fields,
    take_timeout,
)
from lastgood.evidence.connection import Address, connect, get, translated
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence
from lastgood.secrets.redaction import MASK, Redaction

MAX_NAME = 253
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_NUMBER = re.compile(r"(?:[0-9]+|0[xX][0-9A-Fa-f]*)\.?")

# What some versions of `ipaddress` take for global: protocol assignments, relays that lead on to an address of the
# sender's choice (6to4), networks for documentation, old site-local ones.
_NOT_PUBLIC = ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "3fff::/20")
_UNICAST = "2000::/3"
_TRANSLATED = "64:ff9b::/96"  # NAT64: the last four bytes are an IPv4 address


def check_reachable(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """network_reachable: {"host", "port", "timeout": seconds}; it holds when a TCP connection is made."""
    fields = take_fields(evidence, ("host", "port", "timeout"))
    host, port = require_host(fields.get("host")), require_integer(fields.get("port"), "port", 1, 65535)
    deadline = surroundings.limit(take_timeout(fields.get("timeout")))
    with translated(f"{show(host)} port {port}"):
        connect(find_addresses(host, port, surroundings), deadline).close()
    return None


def require_host(value: object) -> str:
    """Return a name in ASCII, or an address in its usual spelling; InvalidError for anything else.

    What resolvers also take for an address (0x7f.1, 2130706433, 0177.0.0.1) is refused, because it is only ever
    written to look like something else.
    """
    if not isinstance(value, str) or not value or len(value) > MAX_NAME:
        raise InvalidError("the claim's host is missing or is not a name or an address")
    try:
        if "%" not in value:
            return str(ip_address(value))
    except ValueError:
        pass
    last = value.rstrip(".").rpartition(".")[2]
    if not _NAME.fullmatch(value) or _NUMBER.fullmatch(last):
        raise InvalidError(
            f"{show(value)} is not a name or an address of a host",
            hint="write addresses as 192.0.2.1 or 2001:db8::1, and names in ASCII (xn--…)",
        )
    return value.lower()


def find_addresses(host: str, port: int, surroundings: Surroundings) -> list[Address]:
    """Look up the addresses of the host. ForbiddenError if one of them may not be connected to, NotYet without any."""
    surroundings.require_connections()
    addresses = _look_up(host, port, surroundings.deadline)
    if surroundings.network == "public" and not all(is_public(address.place[0]) for address in addresses):
        raise ForbiddenError(
            f"{show(host)} leads to an address that is not public",
            hint='network="any" allows evidence about it, on the command line LASTGOOD_NETWORK=any',
        )
    return addresses


def is_public(text: str) -> bool:
    """Tell whether an address is one of the internet's: not private, loopback, link-local, multicast or reserved."""
    address = _inner(ip_address(text.partition("%")[0]))
    if any(address in ip_network(network) for network in _NOT_PUBLIC):
        return False
    if isinstance(address, IPv4Address):
        return address.is_global and not (address.is_multicast or address.is_reserved)
    return address.is_global and address in ip_network(_UNICAST)


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 one stands for, where that is so."""
    if not isinstance(address, IPv6Address):
        return address
    if address in ip_network(_TRANSLATED):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address


def _look_up(host: str, port: int, deadline: float) -> list[Address]:
    """Ask the system's resolver in a thread, since it knows no deadline; it is left behind when it takes too long."""
    answers: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            answers.put(list(dict.fromkeys(Address(family, place) for family, _, _, _, place in found)))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True, name="lastgood-lookup").start()
    try:
        answer = answers.get(timeout=seconds_until(deadline))
    except (queue.Empty, TimeoutError):
        answer = TimeoutError()
    if not isinstance(answer, OSError):
        return answer
    if answer.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
        raise NotYet(f"there is no host {show(host)}") from answer
    raise BusyError(f"the host {show(host)} cannot be looked up now") from answer


_MAX_CONDITIONS = 100
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?", re.IGNORECASE
)
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile("[!-~]+")  # ASCII without blanks and control characters: nothing that could end a line
_PORTS = {"http": 80, "https": 443}
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_PASSING = frozenset((408, 425, 429, 500, 502, 503, 504))
"""What servers say when it may be otherwise in a moment."""

Condition = Callable[[bytes], str | None]
"""How the content of an answer differs from what is claimed; None when it does not."""


def check_response(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """api_response: {"url", "status": a number or a list of them, "json": {"dotted.path": value}, "contains": text,
    "timeout": seconds}.

    It holds when the answer to GET is all of that. Redirections are answers like others.
    """
    fields = take_fields(evidence, ("url", "status", "json", "contains", "timeout"))
    url, statuses = require_url(fields.get("url")), _statuses(fields.get("status"))
    conditions = [_has_value(path, value) for path, value in _entries(fields.get("json")).items()]
    if fields.get("contains") is not None:
        conditions.append(_contains(require_text(fields["contains"], "contains").encode()))
    deadline = surroundings.limit(take_timeout(fields.get("timeout")))
    with translated(url.shown()):
        addresses = find_addresses(url.host, url.port, surroundings)
        with connect(addresses, deadline, tls_host=url.host if url.scheme == "https" else None) as connection:
            status, body = get(connection, url.target, url.authority, read_body=bool(conditions))
    if status not in statuses:
        said = f"{url.shown()} answered with {status}, not {' or '.join(map(str, statuses))}"
        if status in _PASSING:
            raise NotYet(said)
        return said
    differences = (condition(body) for condition in conditions)
    return next((said for said in differences if said is not None), None)


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


def _statuses(value: object) -> list[int]:
    values = value if isinstance(value, list | tuple) else [value]
    if not values or len(values) > _MAX_CONDITIONS:
        raise InvalidError("the claim's status is a number or a list of numbers")
    return [require_integer(one, "status", 100, 599) for one in values]


def _entries(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise InvalidError('"json" of the claim is not a dictionary with names in it')
    if not value or len(value) > _MAX_CONDITIONS:
        raise InvalidError(f'"json" of the claim has no entry, or more than {_MAX_CONDITIONS}')
    return dict(value)


def _has_value(path: str, value: object) -> Condition:
    def compare(body: bytes) -> str | None:
        import msgspec

        try:
            found = msgspec.json.decode(body)
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
    return lambda body: None if text in body else "the answer does not contain the claim's text"


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
