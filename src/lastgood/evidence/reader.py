"""The helper process: answers requests on its standard input until that ends. It reads; it writes nothing.

It is another process so that whatever it opens and closes, the locks of the program that asked are safe.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time
from functools import lru_cache

import msgspec

from lastgood.errors import BusyError, CheckpointError, NotFoundError
from lastgood.evidence.files import Files
from lastgood.evidence.messages import HashRequest, Reply, RowRequest, frame, receive

_IDLE_SECONDS = 0.5
_REQUEST = msgspec.msgpack.Decoder(HashRequest | RowRequest)


def serve() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file grows by its hand, whatever a library does
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (message := receive(_read)) is not None:
        _send(frame(answer(_REQUEST.decode(message))))


def _read(size: int) -> bytes:
    """What comes next. When nothing comes for a while, a database that is still open is let go."""
    if "lastgood.evidence.rows" in sys.modules and not select.select([0], [], [], _IDLE_SECONDS)[0]:
        from lastgood.evidence.rows import let_go

        let_go()
    return os.read(0, size)


def answer(request: HashRequest | RowRequest) -> Reply:
    """Never raises, and never tells more than the request said."""
    deadline = time.monotonic() + request.timeout
    try:
        return _hash(request, deadline) if isinstance(request, HashRequest) else _find(request, deadline)
    except NotFoundError as error:
        return Reply("missing", str(error))
    except BusyError as error:
        return Reply("busy", str(error))
    except CheckpointError as error:
        return Reply("invalid", str(error))
    except Exception as error:
        return Reply("invalid", f"reading failed with {type(error).__name__}")


def _hash(request: HashRequest, deadline: float) -> Reply:
    files = _files(request.base, request.max_bytes)
    digest, seen = files.read(os.fsdecode(request.path), deadline)
    return Reply("holds", digest, seen)


def _find(request: RowRequest, deadline: float) -> Reply:
    from lastgood.evidence.rows import find_row

    path = os.fsdecode(request.path)
    files = _files(request.base, 0)
    mismatch = find_row(lambda: files.locate(path), request.table, request.where, request.values, deadline)
    return Reply("holds") if mismatch is None else Reply("mismatch", mismatch)


@lru_cache(1)
def _below(base: bytes, max_bytes: int) -> Files:
    return Files(os.fsdecode(base), absolute=True, max_bytes=max_bytes, helper=None)


def _files(base: bytes, max_bytes: int) -> Files:
    files = _below(base, max_bytes)
    files.refresh()
    return files


def _send(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]
