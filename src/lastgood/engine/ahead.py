"""Reading the files of one capture: here if they are few; else in workers, which begin before all are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from lastgood.files.read import Content, LeftOut, ReadJob
from lastgood.observe.log import report

if TYPE_CHECKING:
    from lastgood.engine.blobs import Batch
    from lastgood.engine.workers import Readers

MANY_FILES, MANY_BYTES = 2000, 32 << 20
REPORT_EVERY = 400

Result = Content | LeftOut | ReadJob


class Ahead:
    """Reads the files of one capture: in workers, which begin while others are still being looked for, if there are
    many; else through `read`. `close` it in any case."""

    def __init__(self, root: str, batch: Batch, read: Callable[[list[ReadJob]], Iterator[Result]]) -> None:
        self._root = root
        self._batch = batch
        self._read = read
        self._expected: list[ReadJob] = []
        self._readers: Readers | None = None

    def expect(self, jobs: Iterable[ReadJob]) -> None:
        """These will be wanted."""
        if self._readers is not None:
            self._readers.expect(jobs)
            return
        self._expected += jobs
        if self._batch.takes_packs and len(self._expected) >= MANY_FILES and processors() > 1:
            self._readers = self._start()
            self._readers.expect(self._expected)

    def read(self, jobs: list[ReadJob]) -> Iterator[Result]:
        """As `read_jobs`."""
        for number, result in enumerate(self._choose(jobs)):
            if number % REPORT_EVERY == 0:
                report("read", number, len(jobs))
            yield result

    def _choose(self, jobs: list[ReadJob]) -> Iterator[Result]:
        if self._readers is None and not (self._batch.takes_packs and is_worth_it(jobs)):
            yield from self._read(jobs)
            return
        readers = self._readers or self._start()
        self._readers, self._expected = readers, []
        try:
            yield from readers.read(jobs)
        finally:
            self.close()

    def _start(self) -> Readers:
        from lastgood.engine.workers import Readers

        return Readers(self._root, self._batch)

    def close(self) -> None:
        if self._readers is not None:
            self._readers.close()
            self._readers = None


def is_worth_it(jobs: Sequence[ReadJob]) -> bool:
    """Whether starting other interpreters costs less than it saves."""
    return processors() > 1 and (len(jobs) >= MANY_FILES or sum(job.seen[1] for job in jobs) >= MANY_BYTES)


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
