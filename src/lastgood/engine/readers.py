"""Reading the files of a capture: here if they are few; else in processes of their own, each of which writes packs.

These processes (reader.py) begin before all files are known. What they read they say at once; their packs become
objects only when this process adopts them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from lastgood.catalog.values import NewPack, PackedBlob
from lastgood.engine.gather import discard
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.files.read import Content, LeftOut, ReadJob, read_jobs
from lastgood.local.process import descriptors
from lastgood.observe.log import report

if TYPE_CHECKING:
    from lastgood.engine.gather import Batch
    from lastgood.local.channel import HelperProcess

MANY_FILES, MANY_BYTES = 2000, 32 << 20
"""From which on starting other interpreters costs less than it saves."""

MOST_READERS = 8
PORTION_FILES, PORTION_BYTES = 400, 8 << 20
PORTIONS_AT_ONCE = 2
"""That a reader has, so that it need not wait for the next."""

REPORT_EVERY = 400

MAX_BYTES = 4 << 30
"""Of one message. The longest is the last: it names each blob that was written or is relied on."""

Result = Content | LeftOut | ReadJob


class ReadOrder(msgspec.Struct, frozen=True, tag="order"):
    """An order for one reader. `catalog`: what it has is not written again. `draft`: how its files' names begin. `key`:
    of blob ids, if the store has one."""

    root: bytes
    draft: bytes
    catalog: bytes | None
    apart: bool
    key: bytes | None


class Portion(msgspec.Struct, frozen=True, tag="portion"):
    """A number of files to read."""

    jobs: Sequence[ReadJob]


class WrittenPack(msgspec.Struct, frozen=True, array_like=True):
    """A pack, where it lies, and what it holds."""

    path: bytes
    digest: bytes
    size: int
    entries: Sequence[PackedBlob]


class Refusal(msgspec.Struct, frozen=True):
    """Why a file was not read: `LeftOut`, in another shape than `Content`."""

    path: bytes
    why: str
    detail: str


class ReadAnswer(msgspec.Struct, frozen=True):
    """An answer with one result for each job: what was read or why not; a word: its kind, and that it is to be read
    apart. The last answer has the packs. `error`: nothing of it counts."""

    results: Sequence[Content | Refusal | str] = ()
    packs: Sequence[WrittenPack] = ()
    relied: Sequence[bytes] = ()
    error: tuple[str, str] | None = None


class CaptureReader:
    """A reader of the files of one capture: in processes, which begin while others are still being looked for, if there
    are many; else here. `close` it in any case."""

    def __init__(self, root: str, batch: Batch) -> None:
        self._root = root
        self._batch = batch
        self._expected: list[ReadJob] = []
        self._pool: ReaderPool | None = None

    def expect(self, jobs: Iterable[ReadJob]) -> None:
        """Begin with these: they will be wanted."""
        if self._pool is not None:
            self._pool.expect(jobs)
            return
        self._expected += jobs
        if self._batch.takes_packs and len(self._expected) >= MANY_FILES and processors() > 1:
            self._pool = ReaderPool(self._root, self._batch)
            self._pool.expect(self._expected)

    def read(self, jobs: list[ReadJob]) -> Iterator[Result]:
        """Yield the result of each job, as `read_jobs` does."""
        for number, result in enumerate(self._choose(jobs)):
            if number % REPORT_EVERY == 0:
                report("read", number, len(jobs))
            yield result

    def read_apart(self, jobs: list[ReadJob]) -> Iterator[Result]:
        """Read as `read_apart` does, in a process of its own; what is read goes into packs of the batch."""
        pool = ReaderPool(self._root, self._batch, apart=True)
        try:
            yield from pool.read(jobs)
        finally:
            pool.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _choose(self, jobs: list[ReadJob]) -> Iterator[Result]:
        if self._pool is None and not (self._batch.takes_packs and _are_many(jobs)):
            yield from self._read_here(jobs)
            return
        self._pool = self._pool or ReaderPool(self._root, self._batch)
        self._expected = []
        try:
            yield from self._pool.read(jobs)
        finally:
            self.close()

    def _read_here(self, jobs: list[ReadJob]) -> Iterator[Result]:
        is_open, close = descriptors.find_elsewhere(), descriptors.close
        try:
            yield from read_jobs(self._root, jobs, self._batch, is_open=is_open, close=close, databases=False)
        finally:
            descriptors.close_parked()


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _are_many(jobs: Sequence[ReadJob]) -> bool:
    return processors() > 1 and (len(jobs) >= MANY_FILES or sum(job.seen[1] for job in jobs) >= MANY_BYTES)


class ReaderPool:
    """A pool of reading processes for one root, which may get early what will be wanted. `close` it in any case."""

    def __init__(self, root: str, batch: Batch, *, apart: bool = False) -> None:
        self._batch = batch
        self._waiting: SimpleQueue[list[ReadJob] | None] = SimpleQueue()
        self._answered: SimpleQueue[tuple[list[ReadJob], Sequence[Any]] | BaseException] = SimpleQueue()
        self._portion: list[ReadJob] = []
        self._portion_bytes = 0
        self._wanted: dict[bytes, ReadJob] = {}
        count = 1 if apart else min(processors(), MOST_READERS)
        orders = [
            ReadOrder(os.fsencode(root), os.fsencode(batch.draft()), batch.catalog_address(), apart, batch.blob_id.key)
            for _ in range(count)
        ]
        self._readers = [_Reader(order, self._waiting, self._answered) for order in orders]

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
        """Yield the result of each, in their order; then the readers are done, and what they wrote is the batch's."""
        self.expect(jobs)
        self._hand_out()
        for _ in self._readers:
            self._waiting.put(None)
        found: dict[ReadJob, Any] = {}
        for job in jobs:
            while job not in found:
                found.update(self._next())
            yield _to_result(job, found.pop(job))
        for reader in self._readers:
            self._adopt(reader.finish())

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def _hand_out(self) -> None:
        if self._portion:
            self._waiting.put(self._portion)
            self._portion, self._portion_bytes = [], 0

    def _next(self) -> Iterator[tuple[ReadJob, Any]]:
        answered = self._answered.get()
        if isinstance(answered, BaseException):
            raise answered
        return zip(*answered, strict=True)

    def _adopt(self, answer: ReadAnswer) -> None:
        from lastgood.codec.pack import pack_name

        for pack in answer.packs:
            new = NewPack(pack_name(pack.digest), pack.size, pack.entries)
            self._batch.adopt(new, Path(os.fsdecode(pack.path)))
        self._batch.rely_on(answer.relied)


class _Reader:
    """A reading process, and the thread that hands it portions and takes its answers."""

    def __init__(
        self,
        order: ReadOrder,
        waiting: SimpleQueue[list[ReadJob] | None],
        answered: SimpleQueue[tuple[list[ReadJob], Sequence[Any]] | BaseException],
    ) -> None:
        self._order = order
        self._waiting = waiting
        self._answered = answered
        self._last: ReadAnswer | None = None
        self._process = _start()
        self._thread = threading.Thread(target=self._attend, name="lastgood reader", daemon=True)
        self._thread.start()

    def finish(self) -> ReadAnswer:
        """Wait for its last answer."""
        self._thread.join()
        if self._last is None:
            failure = self._answered.get()
            raise failure if isinstance(failure, BaseException) else _ended()
        return self._last

    def close(self) -> None:
        self._process.kill()
        self._waiting.put(None)
        self._thread.join()
        self._process.close()
        draft = Path(os.fsdecode(self._order.draft))
        for path in draft.parent.glob(f"{draft.name}*"):
            discard(path)

    def _attend(self) -> None:
        try:
            self._send(self._order)
            given: deque[list[ReadJob]] = deque()
            is_all = False
            while given or not is_all:
                while not is_all and len(given) < PORTIONS_AT_ONCE:
                    try:
                        portion = self._waiting.get(block=not given)
                    except Empty:
                        break
                    if portion is None:
                        is_all = True
                        break
                    self._send(Portion(portion))
                    given.append(portion)
                if given:
                    self._answered.put((given[0], self._receive().results))
                    given.popleft()
            self._process.channel.finish()
            self._last = self._receive()
        except BaseException as error:  # the thread that waits for an answer is to know
            self._answered.put(error if isinstance(error, CheckpointError) else _ended(error))

    def _send(self, message: ReadOrder | Portion) -> None:
        try:
            self._process.channel.send(message)
        except ConnectionError:
            self._receive()  # it may have said why
            raise

    def _receive(self) -> ReadAnswer:
        answer = self._process.channel.receive()
        if answer.error is not None:
            import lastgood.errors as errors

            kind, message = answer.error
            raise getattr(errors, kind, UnavailableError)(message)
        return answer


def _start() -> HelperProcess[ReadAnswer]:
    import apsw
    import pyfastcdc
    import zstandard

    from lastgood.local.channel import HelperProcess

    packages = (zstandard, pyfastcdc, apsw)
    decoder = msgspec.msgpack.Decoder(ReadAnswer)
    return HelperProcess("lastgood.engine.reader", decoder, max_bytes=MAX_BYTES, packages=packages)


def _ended(error: BaseException | None = None) -> UnavailableError:
    ended = UnavailableError("a process that reads files ended unexpectedly", hint="save again")
    ended.__cause__ = error
    return ended


def _to_result(job: ReadJob, answer: Content | Refusal | str) -> Result:
    if isinstance(answer, Content):
        return answer
    if isinstance(answer, Refusal):
        return LeftOut(answer.path, answer.why, answer.detail)  # type: ignore[arg-type]
    return job._replace(kind=answer)  # type: ignore[arg-type]
