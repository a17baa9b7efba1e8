"""URLs that evidence may ask: http and https, spelt plainly. What was read of one is what is asked for."""

from __future__ import annotations

import re
from typing import NamedTuple

from lastgood.errors import InvalidError
from lastgood.evidence.fields import require_integer, require_text
from lastgood.evidence.hosts import require_host
from lastgood.local.paths import show
from lastgood.secrets.redaction import MASK, Redaction

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?", re.IGNORECASE
)
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")
_PLAIN = re.compile("[!-~]+")  # ASCII without blanks and control characters: nothing that could end a line
_PORTS = {"http": 80, "https": 443}


class Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def target(self) -> str:
        """What stands in the request."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def shown(self) -> str:
        """For messages: what stands behind each name of the query is masked, whatever it is."""
        query = "" if self.query is None else f"?{'&'.join(map(_mask, self.query.split('&')))}"
        return show(Redaction().text(f"{self.scheme}://{self.authority}{self.path}{query}"))


def require_url(value: object) -> Url:
    """InvalidError, which never tells what was in it, for one that is not asked."""
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
