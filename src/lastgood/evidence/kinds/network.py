"""Evidence about hosts (D1): that a port takes connections; and which addresses of a host may be connected to.

What was checked is what is connected to: a name is looked up once, and all of its addresses must be allowed.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from lastgood.errors import BusyError, ForbiddenError, InvalidError
from lastgood.evidence.check import Deadline, NotYet, Outside, Surroundings, require_integer, take_fields, take_timeout
from lastgood.evidence.connection import Address, connect, translated
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence

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
    timeout = take_timeout(fields.get("timeout"))
    outside = surroundings.outside

    def attempt(deadline: Deadline) -> str | None:
        with translated(f"{show(host)} port {port}"):
            connect(find_addresses(host, port, outside, deadline), deadline).close()
        return None

    return outside.retry(attempt, outside.deadline(surroundings.deadline, timeout))


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


def find_addresses(host: str, port: int, outside: Outside, deadline: Deadline) -> list[Address]:
    """Look up the addresses of the host. ForbiddenError if one of them may not be connected to, NotYet without any."""
    outside.require_connections()
    addresses = _look_up(host, port, deadline)
    if outside.network == "public" and not all(is_public(address.place[0]) for address in addresses):
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


def _look_up(host: str, port: int, deadline: Deadline) -> list[Address]:
    try:
        return _resolve(host, port) if _is_address(host) else _resolve_in_time(host, port, deadline)
    except OSError as error:
        if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            raise NotYet(f"there is no host {show(host)}") from error
        raise BusyError(f"the host {show(host)} cannot be looked up now") from error


def _resolve_in_time(host: str, port: int, deadline: Deadline) -> list[Address]:
    """Resolve in a thread, since the system's resolver knows no deadline; it is left behind when it takes too long."""
    answers: queue.SimpleQueue[list[Address] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_resolve(host, port))
        except OSError as error:
            answers.put(error)

    left = deadline.left()
    threading.Thread(target=ask, daemon=True, name="lastgood-lookup").start()
    try:
        answer = answers.get(timeout=left)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _resolve(host: str, port: int) -> list[Address]:
    found = socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(Address(family, place) for family, _, _, _, place in found))


def _is_address(host: str) -> bool:
    """Tell addresses from names, of which `require_host` takes none that ends with a number."""
    return ":" in host or host.rpartition(".")[2].isdecimal()
