"""Reading many files at once, in processes of their own: each reads its share and writes a pack.

A worker is a fresh interpreter, never a fork of the user's program. What it says is a list of answers and the index of
its pack; the pack becomes an object only when this process adopts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from lastgood.catalog.contract import FILES, NewPack, Packed
from lastgood.content.packs import PackWriter, pack_name
from lastgood.engine.apart import read_apart
from lastgood.engine.blobs import GROUP_BLOBS, GROUP_BYTES, PACK_BYTES, disk_error
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.model.digest import digest
from lastgood.workspace.reading import Content, Job, Skipped, read_jobs

if TYPE_CHECKING:
    from lastgood.engine.blobs import Batch

MANY_FILES, MANY_BYTES = 2000, 32 << 20
MOST_WORKERS = 8
_START = "import sys; sys.path += sys.argv[1:]; from lastgood.engine.workers import work; work()"


class _Order(msgspec.Struct, frozen=True):
    """What a worker is to do. `catalog`: what it has is not written again."""

    root: bytes
    draft: bytes
    catalog: bytes | None
    apart: bool
    jobs: Sequence[tuple[bytes, tuple[int, ...], str]]


class _Written(msgspec.Struct, frozen=True, array_like=True):
    """A pack, where it lies, and what it holds."""

    path: bytes
    digest: bytes
    size: int
    entries: Sequence[tuple[bytes, int, int, int, int]]


class _Answer(msgspec.Struct, frozen=True):
    """One for each job: what was read or why not, as plain arrays; a word: its kind, and that it is to be read apart.
    `error`: nothing of it counts."""

    answers: Sequence[list[Any] | str] = ()
    packs: Sequence[_Written] = ()
    relied: Sequence[bytes] = ()
    error: tuple[str, str] | None = None


def is_worth_it(jobs: Sequence[Job]) -> bool:
    """Whether starting other interpreters costs less than it saves."""
    return _processors() > 1 and (len(jobs) >= MANY_FILES or sum(job.seen[1] for job in jobs) >= MANY_BYTES)


def read_in_workers(
    root: str, jobs: list[Job], batch: Batch, *, apart: bool = False
) -> Iterator[Content | Skipped | Job]:
    """As `read_jobs`, with what is read going into packs of the batch; or as `read_apart`, in one process."""
    shares = [jobs] if apart else _divide(jobs, min(_processors(), MOST_WORKERS))
    workers = []
    try:
        for _ in shares:
            draft = batch.draft()
            workers.append((_start(), draft))
        for share, (process, draft) in zip(shares, workers, strict=True):  # they have all begun to start by now
            about = [(job.path, tuple(job.seen), job.kind) for job in share]
            _tell(process, _Order(os.fsencode(root), os.fsencode(draft), batch.catalog_file(), apart, about))
        for share, (process, _) in zip(shares, workers, strict=True):
            answer = _hear(process)
            for pack in answer.packs:
                packed = [Packed(*entry) for entry in pack.entries]
                batch.adopt(NewPack(pack_name(pack.digest), pack.size, packed), Path(os.fsdecode(pack.path)))
            batch.rely_on(answer.relied)
            yield from map(_to_result, share, answer.answers)
    finally:
        for process, draft in workers:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            for path in draft.parent.glob(f"{draft.name}*"):
                path.unlink(missing_ok=True)


def work() -> None:
    """In the worker: one order from standard input, one answer to standard output."""
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Order)
    try:
        answer = _carry_out(order)
    except CheckpointError as error:
        answer = _Answer(error=(type(error).__name__, str(error)))
    except OSError as error:
        answer = _Answer(error=(type(disk_error(error)).__name__, str(disk_error(error))))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))
    sys.stdout.buffer.flush()


def _carry_out(order: _Order) -> _Answer:
    jobs = [Job(path, seen, kind) for path, seen, kind in order.jobs]  # type: ignore[arg-type]
    packs = _Packs(order.draft)
    sieve = _Sieve(order.catalog, packs.add)
    root = os.fsdecode(order.root)
    if order.apart:
        database = Path(os.fsdecode(order.draft) + ".db")
        results: Iterable[Content | Skipped | Job] = read_apart(root, jobs, sieve.put, database)
    else:
        results = read_jobs(root, jobs, sieve.put, databases=False)
    answers = [result.kind if isinstance(result, Job) else list(result) for result in results]
    sieve.empty()
    return _Answer(answers, packs.finish(), sorted(sieve.relied))


class _Packs:
    """Writes one pack after the other; `draft` is what their names begin with."""

    def __init__(self, draft: bytes) -> None:
        self._draft = draft
        self._done: list[_Written] = []
        self._file: BinaryIO | None = None

    def add(self, key: bytes, data: bytes) -> None:
        if self._file is None:
            self._path = b"%s.%d" % (self._draft, len(self._done))
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")
            self._writer = PackWriter(self._file.write)
        self._writer.add(key, data)
        if self._writer.size >= PACK_BYTES:
            self.finish()

    def finish(self) -> list[_Written]:
        """All that were written."""
        if self._file is not None:
            index = self._writer.finish()
            self._file.close()
            self._file = None
            assert index.digest is not None
            self._done.append(_Written(self._path, index.digest, index.size, index.entries))
        return self._done


class _Sieve:
    """Lets through what is not stored yet; asks for many at once."""

    def __init__(self, catalog: bytes | None, add: Callable[[bytes, bytes], None]) -> None:
        self.relied: set[bytes] = set()
        self._add = add
        self._waiting: dict[bytes, bytes] = {}
        self._size = 0
        self._has: Callable[[Iterable[bytes]], set[bytes]] = lambda ids: set()
        if catalog is not None:
            from lastgood.catalog.sqlite.catalog import SQLiteCatalog

            opened = SQLiteCatalog(Path(os.fsdecode(catalog)))
            self._has = lambda ids: opened.has_blobs(FILES, ids)

    def put(self, data: bytes) -> bytes:
        key = digest(data)
        if key not in self.relied and key not in self._waiting:
            self._waiting[key] = data
            self._size += len(data)
            if len(self._waiting) >= GROUP_BLOBS or self._size >= GROUP_BYTES:
                self.empty()
        return key

    def empty(self) -> None:
        stored = self._has(self._waiting)
        self.relied |= stored
        for key, data in self._waiting.items():
            if key not in stored:
                self._add(key, data)
        self._waiting.clear()
        self._size = 0


def _to_result(job: Job, answer: Any) -> Content | Skipped | Job:
    if isinstance(answer, str):
        return job._replace(kind=answer)  # type: ignore[arg-type]
    if len(answer) == len(Skipped._fields):
        return Skipped(*answer)
    size, whole, chunks, seen, listing = answer
    return Content(size, whole, chunks, tuple(seen), listing)


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-B", "-c", _START, *_homes()]
    return subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )


def _tell(process: subprocess.Popen[bytes], order: _Order) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:  # it died: that is found out when its answer is wanted
        process.stdin.write(msgspec.msgpack.encode(order))


def _hear(process: subprocess.Popen[bytes]) -> _Answer:
    assert process.stdout is not None
    try:
        answer = msgspec.msgpack.decode(process.stdout.read(), type=_Answer)
    except msgspec.DecodeError as error:
        raise UnavailableError("a process that reads files ended unexpectedly", hint="save again") from error
    if answer.error is not None:
        import lastgood.errors as errors

        kind, message = answer.error
        raise getattr(errors, kind, UnavailableError)(message)
    return answer


def _homes() -> list[str]:
    """Where what a worker imports is installed."""
    import apsw
    import pyfastcdc
    import zstandard

    modules = (msgspec, zstandard, pyfastcdc, apsw)
    files = (str(Path(__file__).parent), *(module.__file__ for module in modules))
    return sorted({str(Path(str(file)).parent.parent) for file in files})


def _divide(jobs: list[Job], count: int) -> list[list[Job]]:
    """Shares of about the same work, each of files that lie beside each other."""
    costs = [job.seen[1] + 50_000 for job in jobs]  # opening a file takes as long as reading so many bytes
    wanted, spent = sum(costs) / count, 0.0
    shares: list[list[Job]] = [[]]
    for job, cost in zip(jobs, costs, strict=True):
        if spent >= wanted * len(shares) and len(shares) < count:
            shares.append([])
        shares[-1].append(job)
        spent += cost
    return shares


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
