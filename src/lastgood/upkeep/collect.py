"""Garbage collection: condemn what is not needed, wait out the grace period, remove; then give the room back.

Saves go on meanwhile, in any process. Three things keep their content safe. A commit acquits what it names and neither
brings nor has from its parent, in its own transaction. What was committed after the marks were made is looked at once
more after the last blob was condemned. And what is removed must still be condemned in the transaction that removes it.
A pack is announced before it is stored, so one that is neither announced nor committed is garbage.

Killed at any moment, the next run finishes: rows go before bytes, and bytes that no row refers to are strays.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Literal, TypeVar

import msgspec

from lastgood.catalog.values import AnnouncedPack, IndexedBlob, SlicedBlob
from lastgood.codec.pack import ENTRY_SIZE, FRAME_SIZE
from lastgood.engine.engine import Engine, acting, retry_without_dead_lease
from lastgood.errors import BusyError, CheckpointError, IntegrityError, InvalidError, LeaseError, LostCommitsError
from lastgood.local.process import is_alive, this_process
from lastgood.model.identity import new_id, now
from lastgood.model.task import Lease
from lastgood.upkeep.reach import NeededBlobs, each_blob, each_slice
from lastgood.upkeep.repack import repack

T = TypeVar("T")

GRACE_SECONDS = 3600
AT_ONCE = 200
"""Rows that one transaction changes: others wait for no longer than that."""
LEASE, LEASE_SECONDS = "collect", 10.0
"""The store's lease that says which process collects. It is short: one that could not be released runs out while the
next one waits. What a collector does after its lease has run out is refused."""
PATIENCE_SECONDS = 30.0
SHRINK_BYTES = 256 << 10
WASTE = 0.3
"""A pack is rewritten when more of it than this share is garbage."""
DAY_MICROSECONDS = 86_400_000_000
MAX_SECONDS = 1 << 32

Phase = Literal["purge", "mark", "condemn", "remove", "repack", "sweep", "shrink"]
Progress = Callable[[Phase, int, int], None]
"""What is done, how much of it, and of how much (0: not known)."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to; of a dry run, what one with the same grace period would come to.

    `freed` are bytes of content and packs; what the database gives back comes on top. `condemned` wait for a later run:
    so many blobs, so many bytes. `was_busy`: someone else is collecting, nothing was done.
    """

    purged: int = 0
    removed: int = 0
    freed: int = 0
    condemned: int = 0
    condemned_bytes: int = 0
    packs_removed: int = 0
    packs_rewritten: int = 0
    strays: int = 0
    dry_run: bool = False
    was_busy: bool = False


def collect(
    engine: Engine,
    user: str,
    *,
    grace: float = GRACE_SECONDS,
    keep_deleted: float | None = None,
    waste: float = WASTE,
    dry_run: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
) -> Collected:
    """Collect garbage as `Store.collect` does. Without `wait` it gives up when someone else is collecting.
    `keep_deleted`: a grace period of their own for deleted checkpoints. `waste`: the share of garbage in a pack that
    is worth rewriting it."""
    if type(grace) not in (int, float) or not 0 <= grace <= MAX_SECONDS:
        raise InvalidError("grace is not a number of seconds from 0", field="grace")
    with nullcontext(0) if dry_run else lease_collector(engine, user, wait=wait) as lease:  # a dry run only reads
        if lease is None:
            return Collected(was_busy=True)
        kept = grace if keep_deleted is None else keep_deleted
        microseconds = int(grace * 1_000_000), int(kept * 1_000_000)
        run = _Run(engine, user, lease, *microseconds, waste, dry_run, progress or (lambda *_: None), Counter())
        run.run()
    if not dry_run:
        run.shrink()  # last of all: giving back the lease is written, too
    return msgspec.structs.replace(Collected(dry_run=dry_run), **run.counts)


class _Run(msgspec.Struct):
    """One collection. `grace` and `keep_deleted` in microseconds; `counts` are the figures of Collected."""

    engine: Engine
    user: str
    lease: int
    grace: int
    keep_deleted: int
    waste: float
    dry_run: bool
    progress: Progress
    counts: Counter[str]

    def run(self) -> None:
        limit = now() - self.keep_deleted
        doomed = self._doomed(limit)
        needed = NeededBlobs(self.engine.catalog, self.engine.blobs, without=set(doomed))
        self.progress("mark", 0, 0)
        self._mark(needed)
        used: defaultdict[str, int] = defaultdict(int)
        garbage = list(self._unneeded(needed, used))
        if self.dry_run:
            due = self._due(garbage)
            self.counts.update(purged=len(doomed), removed=len(due), freed=sum(blob.length for blob in due))
            return
        self._purge(doomed, limit)
        slices = list(each_slice(self.engine.catalog))
        self._condemn(garbage)
        needed.without = ()  # those that still exist were undeleted
        if self._mark(needed):  # committed before the last blob was condemned; later ones acquit by themselves
            condemned = (blob for blob in each_blob(self.engine.catalog) if blob.condemned is not None)
            self._acquit(blob for blob in condemned if needed.has(blob.partition, blob.digest))
        for partition, digests in _batches(part for part in slices if not needed.has_part(part)):
            self.engine.catalog.remove_blobs(partition, digests, None, lease=self.lease)
        self._remove([blob for blob in garbage if not needed.has(blob.partition, blob.digest)])
        if self.engine.objects is not None:
            self._repack(used)
            self._sweep()

    # --- checkpoints that were deleted

    def _doomed(self, limit: int) -> list[tuple[str, str]]:
        """List deleted checkpoints whose grace period is over, except those that a restore under way may go back to."""
        journals = self.engine.catalog.journals()
        spared = {checkpoint_id for journal in journals for checkpoint_id in journal.needs()}
        deleted = self.engine.catalog.deleted_before(limit)
        return [(owner, checkpoint_id) for owner, checkpoint_id in deleted if checkpoint_id not in spared]

    def _purge(self, doomed: Sequence[tuple[str, str]], limit: int) -> None:
        for some in _chunks(doomed):
            purged = self.engine.catalog.purge(some, acting(self.user), deleted_before=limit)
            self.counts["purged"] += len(purged)
            self.progress("purge", self.counts["purged"], len(doomed))

    def _mark(self, needed: NeededBlobs) -> int:
        try:
            return needed.mark_all()
        except LostCommitsError:
            raise
        except IntegrityError as error:
            raise IntegrityError(
                f"nothing was collected, because it is not known what is needed: {error}",
                hint="store.check() names all damage; store.repair() repairs what it can",
                **error.details,
            ) from error

    # --- blobs

    def _unneeded(self, needed: NeededBlobs, used: defaultdict[str, int]) -> Iterator[IndexedBlob]:
        """Yield garbage. Adds the bytes of each pack that are needed to `used`, and acquits blobs that are needed
        and were condemned by an interrupted run."""
        wronged: list[IndexedBlob] = []
        for blob in each_blob(self.engine.catalog):
            if not needed.has(blob.partition, blob.digest):
                yield blob
                continue
            if blob.condemned is not None:
                wronged.append(blob)
            if blob.pack is not None:
                used[blob.pack] += ENTRY_SIZE + blob.length
        if not self.dry_run:
            self._acquit(wronged)

    def _condemn(self, garbage: Sequence[IndexedBlob]) -> None:
        at, done = now(), 0
        for partition, digests in _batches(blob for blob in garbage if blob.condemned is None):
            self.engine.catalog.condemn(partition, digests, at)
            done += len(digests)
            self.progress("condemn", done, len(garbage))

    def _acquit(self, wronged: Iterable[IndexedBlob]) -> None:
        for partition, digests in _batches(wronged):
            self.engine.catalog.condemn(partition, digests, None)

    def _remove(self, garbage: Sequence[IndexedBlob]) -> None:
        due = self._due(garbage)
        inline = {(blob.partition, blob.digest): blob.length for blob in due if blob.pack is None}
        for partition, digests in _batches(due):
            removed = self.engine.catalog.remove_blobs(partition, digests, now() - self.grace, lease=self.lease)
            freed = sum(inline.get((partition, digest), 0) for digest in digests) if removed == len(digests) else 0
            self.counts.update(removed=removed, freed=freed)
            self.progress("remove", self.counts["removed"], len(due))

    # --- packs

    def _repack(self, used: Mapping[str, int]) -> None:
        """Remove packs in which nothing lies; then rewrite those with much waste, one new pack at a time.

        `used`: what was needed of each when that was looked at. What came later is in packs that came later.
        """
        packs = {pack.name: pack.size for pack in self.engine.catalog.packs()}
        self._remove_packs([name for name in packs if name not in used], packs)

        def is_wasteful(name: str, needed: int) -> bool:
            return FRAME_SIZE + needed < packs[name] * (1 - self.waste)

        lying = {
            name: self.engine.catalog.indexed(pack=name)
            for name in packs
            if name in used and is_wasteful(name, used[name])
        }
        if any(
            blob.condemned is not None for blobs in lying.values() for blob in blobs
        ):  # and its grace period goes on
            sizes = {name: sum(ENTRY_SIZE + blob.length for blob in blobs) for name, blobs in lying.items()}
            lying = {name: blobs for name, blobs in lying.items() if is_wasteful(name, sizes[name])}
        for done, (emptied, size) in enumerate(repack(self.engine, lying), 1):
            self._remove_packs(emptied, packs)
            self.counts.update(packs_rewritten=len(emptied), freed=-size)
            self.progress("repack", done, len(lying))

    def _remove_packs(self, names: Sequence[str], sizes: dict[str, int]) -> None:
        assert self.engine.objects is not None
        for some in _chunks(names):
            for name in self.engine.catalog.remove_packs(some):
                self.engine.objects.delete(name)
                self.counts.update(packs_removed=1, freed=sizes[name])
                self.progress("remove", self.counts["packs_removed"], len(names))

    def _sweep(self) -> None:
        """Remove packs that are neither committed nor announced. They are listed first: what is listed was announced
        before, so that the announcement is seen. An announcement of a process that seems to have ended is withdrawn
        before the pack is deleted: if the process is alive after all, its commit is refused."""
        assert self.engine.objects is not None
        listed = {each.name: each.size for each in self.engine.objects.list("packs/")}
        flights = self.engine.catalog.announced()
        gone = [flight.name for flight in flights if _is_abandoned(flight)]
        announced = {flight.name for flight in flights} - set(gone)
        if gone:
            self.engine.catalog.announce(gone, None)
        known = {pack.name for pack in self.engine.catalog.packs()}
        for name in listed.keys() - known - announced:
            self.engine.objects.delete(name)
            self.counts.update(strays=1, freed=listed[name])
        self.counts["freed"] += self.engine.objects.sweep()

    def shrink(self) -> None:
        """Give the free space of the catalog back to the system."""
        whole = free = self.engine.catalog.disk_use().free
        while (left := self.engine.catalog.shrink(SHRINK_BYTES)) and left < free:
            self.progress("shrink", whole - left, whole)
            free = left

    def _due(self, garbage: Sequence[IndexedBlob]) -> list[IndexedBlob]:
        """List those whose grace period is over; the others are counted."""
        limit = now() - self.grace
        due = [blob for blob in garbage if self.grace == 0 or (blob.condemned or limit + 1) <= limit]
        waiting = sum(blob.length for blob in garbage) - sum(blob.length for blob in due)
        self.counts.update(condemned=len(garbage) - len(due), condemned_bytes=waiting)
        return due


def _batches(blobs: Iterable[IndexedBlob | SlicedBlob]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Group blobs by partition, few enough for one transaction."""
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for blob in blobs:
        found[blob.partition].append(blob.digest)
    return ((partition, some) for partition, digests in found.items() for some in _chunks(digests))


def _chunks(things: Sequence[T]) -> Iterator[Sequence[T]]:
    return (things[start : start + AT_ONCE] for start in range(0, len(things), AT_ONCE))


def _is_abandoned(flight: AnnouncedPack) -> bool:
    """Return whether the process that announced a pack has ended; for one of another host, whether a day has passed."""
    alive = is_alive(flight.process)
    return not alive if alive is not None else flight.at < now() - DAY_MICROSECONDS


_collecting: set[str] = set()
"""The collections of this process, by the executor that their lease names."""


@contextmanager
def lease_collector(engine: Engine, user: str, *, wait: bool) -> Iterator[int | None]:
    """Hold the store's lease for collecting while the block runs, and give its token; None: another process has it."""
    executor = new_id()
    _collecting.add(executor)
    ended = threading.Event()
    try:
        token = _take_lease(engine, user, executor, PATIENCE_SECONDS if wait else 0)
        if token is None:
            yield None
            return
        threading.Thread(target=_keep_lease, args=(engine, token, ended), daemon=True, name="lastgood-collect").start()
        try:
            yield token
        finally:
            ended.set()
            with suppress(CheckpointError):  # then it runs out soon, and this process takes it over at once
                engine.catalog.release_lease(token)
    finally:
        _collecting.discard(executor)


def _take_lease(engine: Engine, user: str, executor: str, seconds: float) -> int | None:
    """Return the token of the lease; None, or BusyError after so many seconds, while another collection has it."""
    catalog, process, deadline = engine.catalog, this_process(), time.monotonic() + seconds
    about = (process, executor, LEASE_SECONDS, acting(user))
    while True:
        try:
            return retry_without_dead_lease(catalog, lambda: catalog.acquire_lease(None, LEASE, *about)).token
        except LeaseError as error:
            held: Lease | None = error.details["lease"]
            if held is not None and held.process == process and held.executor not in _collecting:
                catalog.release_lease(held.token)  # it could not be released when its collection ended
                continue
            if not seconds:
                return None
            if time.monotonic() > deadline:
                raise BusyError("someone else is collecting this store", hint="try again later") from error
        time.sleep(0.05)


def _keep_lease(engine: Engine, token: int, ended: threading.Event) -> None:
    while not ended.wait(LEASE_SECONDS / 4):
        with suppress(CheckpointError):  # a transaction that fails fails the collection, too
            engine.catalog.renew_lease(token, LEASE_SECONDS)
