"""Reading many files at once, in processes of their own, each of which writes packs (worker.py).

A worker is a fresh interpreter, never a fork of the user's program. What it reads it says at once; its packs become
objects only when this process adopts them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.catalog.values import NewPack, PackedBlob
from lastgood.codec.pack import pack_name
from lastgood.engine.ahead import processors
from lastgood.engine.draft import discard
from lastgood.engine.worker import Answer, Order, receive, send
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.files.read import Content, LeftOut, ReadJob

if TYPE_CHECKING:
    from lastgood.engine.blobs import Batch

MOST_WORKERS = 8
PORTION_FILES, PORTION_BYTES = 400, 8 << 20
AHEAD = 2
"""Portions that a worker has at once, so that it need not wait for the next."""
_START = "import sys; sys.path += sys.argv[1:]; from lastgood.engine.worker import work; work()"

Result = Content | LeftOut | ReadJob


def read_in_workers(root: str, jobs: list[ReadJob], batch: Batch, *, apart: bool = False) -> Iterator[Result]:
    """As `read_jobs`, with what is read going into packs of the batch; or as `read_apart`, in one process."""
    readers = Readers(root, batch, apart=apart)
    try:
        yield from readers.read(jobs)
    finally:
        readers.close()


class Readers:
    """Workers for one root, which may be told early what will be wanted. `close` them in any case."""

    def __init__(self, root: str, batch: Batch, *, apart: bool = False) -> None:
        self._batch = batch
        self._waiting: SimpleQueue[list[ReadJob] | None] = SimpleQueue()
        self._answered: SimpleQueue[tuple[list[ReadJob], Sequence[Any]] | BaseException] = SimpleQueue()
        self._portion: list[ReadJob] = []
        self._portion_bytes = 0
        self._wanted: dict[bytes, ReadJob] = {}
        count = 1 if apart else min(processors(), MOST_WORKERS)
        orders = [
            Order(os.fsencode(root), os.fsencode(batch.draft()), batch.catalog_file(), apart) for _ in range(count)
        ]
        self._workers = [_Worker(order, self._waiting, self._answered) for order in orders]

    def expect(self, jobs: Iterable[ReadJob]) -> None:
        """Begin with these."""
        for job in jobs:
            if self._wanted.get(job.path) != job:
                self._wanted[job.path] = job
                self._portion.append(job)
                self._portion_bytes += job.seen[1]
                if len(self._portion) >= PORTION_FILES or self._portion_bytes >= PORTION_BYTES:
                    self._hand_out()

    def read(self, jobs: list[ReadJob]) -> Iterator[Result]:
        """The answer to each, in their order; then the workers are done, and what they wrote is the batch's."""
        self.expect(jobs)
        self._hand_out()
        for _ in self._workers:
            self._waiting.put(None)
        found: dict[ReadJob, Any] = {}
        for job in jobs:
            while job not in found:
                found.update(self._next())
            yield _to_result(job, found.pop(job))
        for worker in self._workers:
            self._adopt(worker.finish())

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def _hand_out(self) -> None:
        if self._portion:
            self._waiting.put(self._portion)
            self._portion, self._portion_bytes = [], 0

    def _next(self) -> Iterator[tuple[ReadJob, Any]]:
        answered = self._answered.get()
        if isinstance(answered, BaseException):
            raise answered
        return zip(*answered, strict=True)

    def _adopt(self, answer: Answer) -> None:
        for pack in answer.packs:
            packed = [PackedBlob(*entry) for entry in pack.entries]
            self._batch.adopt(NewPack(pack_name(pack.digest), pack.size, packed), Path(os.fsdecode(pack.path)))
        self._batch.rely_on(answer.relied)


class _Worker:
    """A worker process, and the thread that hands it portions and takes its answers."""

    def __init__(
        self,
        order: Order,
        waiting: SimpleQueue[list[ReadJob] | None],
        answered: SimpleQueue[tuple[list[ReadJob], Sequence[Any]] | BaseException],
    ) -> None:
        self._order = order
        self._waiting = waiting
        self._answered = answered
        self._last: Answer | None = None
        self._process = _start()
        self._thread = threading.Thread(target=self._attend, name="lastgood reader", daemon=True)
        self._thread.start()

    def finish(self) -> Answer:
        """What it said in the end."""
        self._thread.join()
        if self._last is None:
            failure = self._answered.get()
            raise failure if isinstance(failure, BaseException) else _ended()
        return self._last

    def close(self) -> None:
        process = self._process
        process.kill()
        process.wait()
        self._waiting.put(None)
        self._thread.join()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        draft = Path(os.fsdecode(self._order.draft))
        for path in draft.parent.glob(f"{draft.name}*"):
            discard(path)

    def _attend(self) -> None:
        try:
            self._tell(self._order)
            given: deque[list[ReadJob]] = deque()
            is_all = False
            while given or not is_all:
                while not is_all and len(given) < AHEAD:
                    try:
                        portion = self._waiting.get(block=not given)
                    except Empty:
                        break
                    if portion is None:
                        is_all = True
                        break
                    self._tell([(job.path, tuple(job.seen), job.kind) for job in portion])
                    given.append(portion)
                if given:
                    self._answered.put((given[0], self._hear().answers))
                    given.popleft()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._last = self._hear()
        except BaseException as error:  # whoever waits for an answer is to know
            self._answered.put(error if isinstance(error, CheckpointError) else _ended(error))

    def _tell(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, message)  # type: ignore[arg-type]
        except BrokenPipeError:
            self._hear()  # it may have said why
            raise

    def _hear(self) -> Answer:
        assert self._process.stdout is not None
        answer = msgspec.msgpack.decode(receive(self._process.stdout) or b"", type=Answer)  # type: ignore[arg-type]
        if answer.error is not None:
            import lastgood.errors as errors

            kind, message = answer.error
            raise getattr(errors, kind, UnavailableError)(message)
        return answer


def _ended(error: BaseException | None = None) -> UnavailableError:
    ended = UnavailableError("a process that reads files ended unexpectedly", hint="save again")
    ended.__cause__ = error
    return ended


def _to_result(job: ReadJob, answer: Any) -> Content | LeftOut | ReadJob:
    if isinstance(answer, str):
        return job._replace(kind=answer)  # type: ignore[arg-type]
    if len(answer) == len(LeftOut._fields):
        return LeftOut(*answer)
    size, whole, chunks, seen, listing = answer
    return Content(size, whole, chunks, tuple(seen), listing)


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", "-B", "-c", _START, *_homes()]
    return subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )


def _homes() -> list[str]:
    """Where what a worker imports is installed."""
    import apsw
    import pyfastcdc
    import zstandard

    modules = (msgspec, zstandard, pyfastcdc, apsw)
    files = (str(Path(__file__).parent), *(module.__file__ for module in modules))
    return sorted({str(Path(str(file)).parent.parent) for file in files})
