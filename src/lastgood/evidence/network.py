"""Evidence about hosts (D1): that a port takes connections."""

from __future__ import annotations

from lastgood.evidence.fields import require_integer, take_fields, take_timeout
from lastgood.evidence.hosts import find_addresses, require_host
from lastgood.evidence.outside import Deadline
from lastgood.evidence.surroundings import Surroundings
from lastgood.local.paths import show
from lastgood.model.evidence import Evidence


def check_reachable(evidence: Evidence, surroundings: Surroundings) -> str | None:
    """network_reachable: {"host", "port", "timeout": seconds}; it holds when a TCP connection is made."""
    fields = take_fields(evidence, ("host", "port", "timeout"))
    host, port = require_host(fields.get("host")), require_integer(fields.get("port"), "port", 1, 65535)
    timeout = take_timeout(fields.get("timeout"))
    outside = surroundings.outside

    def look(deadline: Deadline) -> str | None:
        from lastgood.evidence.connection import connect, worded

        with worded(f"{show(host)} port {port}"):
            connect(find_addresses(host, port, outside, deadline), deadline).close()
        return None

    return outside.insist(look, outside.deadline(surroundings.deadline, timeout))
