"""The files of a task: which folders they lie in, and how they come into a checkpoint."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from lastgood.catalog.values import Binding
from lastgood.engine.blobs import FileBlobs, Gathered
from lastgood.engine.checkpoint import Checkpoint
from lastgood.engine.engine import Engine
from lastgood.engine.gather import Batch, CapturedFiles
from lastgood.engine.readers import CaptureReader
from lastgood.errors import BusyError, CheckpointError, DiskFullError, InvalidError, UnavailableError
from lastgood.files.capture import Captured, capture
from lastgood.files.index import StatIndex
from lastgood.files.read import LeftOut, is_same
from lastgood.files.roots import Root, git_head, identify, locked, open_roots
from lastgood.files.rules import Rules
from lastgood.local.location import make_private
from lastgood.local.paths import Signature, join, signature, split
from lastgood.model.checkpoint import FileRoot, Skipped
from lastgood.model.identity import check_paths
from lastgood.model.task import FolderId, Journal
from lastgood.model.tree import Entry, File, Folder, Left, decode_chunks, is_sidecar
from lastgood.secrets.filenames import is_secret_path

if TYPE_CHECKING:
    from lastgood.engine.staleness import Names
    from lastgood.files.plan import RestorePlan
    from lastgood.files.scan import Changed
    from lastgood.files.watch import Watcher

Folders = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
"""One folder, or several with a name each."""

_UNWATCHED = (
    "the workspace cannot be watched, so each save looks at all of its files; "
    "it takes Linux and enough of fs.inotify.max_user_watches and max_user_instances"
)


CLOSE_SECONDS = 5.0


class Workspace:
    """The folders of one task on this host. Safe for threads: captures take turns.

    With `watch` it knows what changes, until it is closed, and a capture scans that alone.
    """

    def __init__(self, engine: Engine, folders: Folders, *, watch: bool = False) -> None:
        self._engine = engine
        self._folder = engine.local.path()
        spool = engine.spool.folder if engine.spool is not None else None
        self._own = [str(path) for path in (*engine.local.own_paths(), *([spool.resolve()] if spool else []))]
        self._store_id = engine.catalog.info().id
        self.roots = open_roots(folders, store=self._own)
        self.unfinished: list[str] = []
        """Journals of restores that could not be taken back: the next save of these folders ends them."""
        files = {root: _index_file(self._folder, root.path) for root in self.roots}
        self._indexes = {root: StatIndex(file, root.path, self._store_id) for root, file in files.items()}
        self._is_closed = False
        self._syncing: list[threading.Thread] = []
        """What makes restored files durable."""
        self._watchers: dict[Root, Watcher] = {}
        if watch:
            from lastgood.files.watch import Watcher

            self._watchers = {root: Watcher(root.path, self._indexes[root]) for root in self.roots}

    @contextmanager
    def locked(self, seconds: float = 30) -> Iterator[None]:
        """Keep others from capturing or restoring these folders; BusyError after so many seconds."""
        with self._locked(seconds):
            yield

    def settle(self, journal: str | None) -> None:
        """Note that a journal has ended."""
        with suppress(ValueError):
            self.unfinished.remove(journal or "")

    def make_durable(self, journal: Journal, plans: Sequence[tuple[Root, RestorePlan]]) -> None:
        """Begin to make durable what these plans did, and return at once; the journal ends then."""
        if self._engine.sync_apart is not None:
            self._engine.sync_apart(journal, plans)
            return
        work = partial(sync_restored, self._engine, journal, plans, lambda: not self._is_closed)
        thread = threading.Thread(target=work, name="lastgood sync")  # which Python waits for in the end
        self._syncing = [each for each in self._syncing if each.is_alive()] + [thread]
        thread.start()

    def close(self) -> None:
        """Stop watching: captures scan everything. What is not durable in some seconds is left to the system, and to
        whoever opens the folders next."""
        end = time.monotonic() + CLOSE_SECONDS
        for thread in self._syncing:
            with suppress(RuntimeError):  # an interrupt kept it from starting
                thread.join(max(0.0, end - time.monotonic()))
        self._is_closed = True
        watchers, self._watchers = self._watchers, {}
        if watchers:
            # Not to be had: a capture is at work, and its watchers end with it. The index is a cache.
            with suppress(BusyError, UnavailableError), self._locked(seconds=1):
                for root, watcher in watchers.items():
                    self._indexes[root].save()
                    watcher.close()

    def _locked(self, seconds: float = 30) -> AbstractContextManager[None]:
        self._engine.local.path()  # which is there, or the store is away
        return locked(self.roots, self._folder / "locks", seconds=seconds)

    @contextmanager
    def _locked_away(self) -> Iterator[None]:
        """Lock while the store is away, perhaps with lock files beside the spool; indexes are used as in memory."""
        spool = self._engine.spool
        with ExitStack() as stack:
            try:
                stack.enter_context(self._locked())
            except UnavailableError as error:
                if isinstance(error, BusyError) or spool is None or spool.folder is None:
                    raise
                stack.enter_context(locked(self.roots, spool.folder / "locks"))
            for index in self._indexes.values():
                stack.enter_context(index.kept())
            yield

    def _gather_away(self, since: Sequence[FileRoot]) -> Batch:
        return SelfContainedBatch(self._engine.blobs, since, self._engine.options.spool_bytes)

    def bound(self, owner: str, task_id: str) -> list[str | None]:
        """Return the branch whose files lie in each of the folders, as far as it is known."""
        return [self._engine.catalog.bound(owner, task_id, folder) for folder in self.folders()]

    def capture(
        self,
        since: Checkpoint | None,
        *,
        trusted: Sequence[FileRoot] | None = None,
        files: Sequence[str | os.PathLike[str]] | None = None,
        takes_over: bool = False,
        touched: Mapping[str, Changed] | None = None,
        away: bool = False,
        relies: bool = True,
    ) -> CapturedFiles:
        """Capture the folders; what is new is durable, or will be with the commit.

        `since`: a checkpoint whose files are stored; `trusted`: files that are stored, and shared with it. `files`:
        just these paths, by their exact names. `away`: for the spool, without the store. Without `relies` all
        content is brought along, also what is stored.

        `touched`: all that was done to them since, by root; what else has changed meanwhile is left to the next one.
        """
        stored = trusted if trusted is not None else since.record.files if since else None
        trees = {root.name: root.tree for root in stored or () if not root.partial}
        changed = touched or {}
        listed: dict[str, list[bytes]] = {}
        if files is not None:
            from lastgood.files.selection import paths_in

            inside = [_inside(self.roots, file) for file in check_paths("files", files)]
            listed = {root.name: list(map(os.fsencode, paths_in(root.name, inside))) for root in self.roots}
        blobs, objects = self._engine.blobs, self._engine.objects
        batch = self._gather_away(stored or ()) if away else Batch(blobs, objects, relies=relies)
        try:
            with self._locked_away() if away else self._locked():
                found = [
                    (one, self._capture(one, trees.get(one.name), batch, listed.get(one.name), changed.get(one.name)))
                    for one in self.roots
                ]
            gathered = batch.finish()
        except BaseException:
            batch.discard()
            raise
        return CapturedFiles(
            tuple(self._describe(root, captured) for root, captured in found),
            tuple(_show(root, skipped) for root, captured in found for skipped in captured.skipped),
            gathered,
            self.binding(takes_over=takes_over),
            {root.name: captured.records for root, captured in found},
            since.id if since else None,
        )

    def capture_named(self, paths: Mapping[str, Sequence[bytes]]) -> CapturedFiles:
        """Capture just these files, by root, whatever the ignore rules say."""
        batch = Batch(self._engine.blobs, self._engine.objects)
        try:
            with self._locked():
                found = [
                    (root, self._capture(root, None, batch, paths[root.name]))
                    for root in self.roots
                    if root.name in paths
                ]
            gathered = batch.finish()
        except BaseException:
            batch.discard()
            raise
        roots = tuple(self._describe(root, captured) for root, captured in found)
        return CapturedFiles(roots, (), gathered, self.binding(), {})

    def list_skipped(self, captured: CapturedFiles, *, is_first: bool) -> tuple[Skipped, ...]:
        """Return what was left out; of a task's first checkpoint also secrets that ignore rules name: of each one that
        would be noise, as every .gitignore has some."""
        return (*captured.skipped, *(ignored_secrets(captured) if is_first else ()))

    def binding(self, *, takes_over: bool = False) -> Binding:
        return Binding(self.folders(), takes_over)

    def folders(self) -> list[FolderId]:
        """Return what the folders are known by."""
        return [identify(root.path) for root in self.roots]

    def has_all(self, folders: Iterable[FolderId]) -> bool:
        """Return whether these are all folders of this workspace."""
        here = self.folders()
        return all(any(folder.is_same(one) for one in here) for folder in folders)

    def names(self, since: Mapping[str, int]) -> dict[str, Names]:
        """Return by root what is in its folders now, where that has changed since these stamps."""
        from lastgood.engine.staleness import list_names

        folders = {root: list(self._indexes[root].folders) for root in self.roots}
        return {root.name: list_names(root.path, folders[root], since.get(root.name, 0)) for root in self.roots}

    def stamps(self, *, wait: bool = True) -> dict[str, int]:
        """Return the present by root, as its files are stamped; without `wait`, changes from now on may have the same
        stamp."""
        with suppress(OSError, UnavailableError):
            make_private(self._engine.local.path())
        from lastgood.engine.staleness import take_stamps

        return take_stamps(self.roots, str(self._folder), wait=wait)

    def recall(self, root: Root) -> Callable[[bytes, os.stat_result], bytes | None]:
        """Return a lookup of the digest that a file with this stat was captured with, without reading it; empty for
        what lies beside a database."""
        index = self._indexes[root].refresh()

        @cache
        def known(folder: bytes) -> Mapping[bytes, tuple[Signature, Entry]]:
            record = index.folders.get(folder)
            return {} if record is None else record.known()

        def recall(path: bytes, found: os.stat_result) -> bytes | None:
            folder, name = split(path)
            seen, entry = known(folder).get(name, (None, None))
            if seen is None or entry is None or not is_same(entry, seen, signature(found)):
                return None
            return entry.digest if isinstance(entry, File) else b"" if is_sidecar(entry) else None

        return recall

    def forget(self) -> None:
        """Have the next capture read every file anew."""
        for index in self._indexes.values():
            index.forget()

    def _capture(
        self,
        root: Root,
        trusted: bytes | None,
        batch: Batch,
        files: Sequence[bytes] | None,
        touched: Changed | None = None,
    ) -> Captured:
        index = self._indexes[root].refresh()
        watcher = self._watchers.get(root) if files is None else None
        had_failed = watcher is not None and watcher.has_failed
        changed = watcher.take() if watcher is not None else touched
        reader = CaptureReader(root.path, batch)
        try:
            captured = capture(
                root,
                Rules.of(root, secrets=self._engine.options.secret_files == "capture"),  # noqa: S105
                index,
                batch,
                files=files,
                leave=self._own,
                trusted=trusted,
                read_files=reader.read,
                read_apart=reader.read_apart,
                expect=reader.expect,
                changed=changed,
                watch=watcher,
            )
        finally:
            reader.close()
        if watcher is not None:
            watcher.settle(is_full=changed is None)
            if watcher.has_failed and not had_failed:
                self._engine.alert(_UNWATCHED, code="watch_lost", severity="warning")
        elif root not in self._watchers:
            index.save()
        return captured

    def _describe(self, root: Root, captured: Captured) -> FileRoot:
        base = _relate(os.path.realpath(self._engine.base_path), root.path)
        counts = captured.file_count, captured.total_size
        return FileRoot(root.name, captured.tree, captured.partial, *counts, git_head(root), base)


def forget_files(engine: Engine, owner: str, task_id: str) -> None:
    """Remove what is remembered of a task's folders, names of files above all. Others that miss it read them anew."""
    position = engine.catalog.position(owner, task_id)
    for branch in engine.catalog.branches(position.task, deleted=True) if position else ():
        for folder in engine.catalog.folders_of(owner, branch.id):
            with suppress(OSError):
                _index_file(engine.local.path(), folder.path).unlink()


def _index_file(place: Path, root: str) -> Path:
    return place / "index" / sha256(os.fsencode(root)).hexdigest()[:32]


def sync_restored(
    engine: Engine,
    journal: Journal,
    plans: Sequence[tuple[Root, RestorePlan]],
    go_on: Callable[[], bool] = lambda: True,
) -> None:
    """Make durable what these plans did, and end the journal. A failure of the disk is an alert."""
    from lastgood.files.folders import sync

    try:
        if all(sync(root.path, plan, go_on) for root, plan in plans):
            with suppress(CheckpointError):  # whoever opens the workspace next ends it
                engine.catalog.end_journal(journal.id)
    except UnavailableError as error:
        with suppress(CheckpointError):  # then the disk that fails is the store's, too
            engine.catalog.begin_journal(msgspec.structs.replace(journal, doubted=True, made=None, applied_at_us=None))
        engine.alert(str(error), journal.task_id, error, code="restore_incomplete")


def find_known(engine: Engine, owner: str, head: Checkpoint) -> Folders | None:
    """Return the folder that has the files of the branch of `head`, if it still is that very folder; None: none has
    them. InvalidError when it is not here, or it cannot be said which one it is.

    A store that a `lastgood.toml` names may have come with it: then only a folder beside that file is believed.
    """
    known = engine.catalog.folders_of(owner, head.branch_id or "")
    names = {root.name for root in head.record.files or ()}
    if not known or not names:
        return None
    config = engine.location.config
    here = [
        folder.path
        for folder in known
        if _is_still(folder) and (config is None or Path(folder.path).is_relative_to(os.path.realpath(config.parent)))
    ]
    if len(here) == len(names) == 1:
        return here[0] if names == {""} else {names.pop(): here[0]}
    paths = [folder.path for folder in known]
    raise InvalidError(
        f"the files of this branch lie in {paths[0]}" + (f" and {len(paths) - 1} more" if paths[1:] else ""),
        hint='open it with its files: store.task(…, workspace=folder); what="state" restores the state alone, and '
        "workspace=False leaves files alone",
        folders=paths,
    )


def _is_still(folder: FolderId) -> bool:
    try:
        return Path(folder.path).is_absolute() and identify(folder.path).is_same(folder)
    except (UnavailableError, ValueError):
        return False


def _inside(roots: Sequence[Root], file: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return an absolute path as one in the workspace, if it leads there; any other as it is."""
    if not (path := os.fsdecode(file)).startswith("/"):
        return file
    folder, name = os.path.split(os.path.normpath(path))
    real = os.path.join(os.path.realpath(folder), name)  # noqa: PTH118
    for root in roots:
        if real.startswith(root.path + "/"):
            inside = real[len(root.path) + 1 :]
            return f"{root.name}:{inside}" if root.name else inside
    return file


def _show(root: Root, skipped: LeftOut) -> Skipped:
    path = os.fsdecode(skipped.path) or "."
    reason = f"{skipped.why}: {skipped.detail}" if skipped.detail else skipped.why
    return Skipped(f"{root.name}:{path}" if root.name else path, reason)


def ignored_secrets(captured: CapturedFiles) -> Iterator[Skipped]:
    """Yield what looks like a secret and was left out of a capture because an ignore rule names it."""
    for root, records in captured.records.items():
        for folder, record in sorted(records.items()):
            for name in filter(None, record.left.split(b"\0")):
                if is_secret_path(join(folder, name)) and record.entries().get(name) == Left(name, "ignored"):
                    shown = os.fsdecode(join(folder, name))
                    yield Skipped(f"{root}:{shown}" if root else shown, "ignored; it looks like a secret")


class SelfContainedBatch(Batch):
    """New content for the spool: everything that the checkpoint `since`, which the new one continues, does not have.
    Only that is sure to be in the store when this comes there. At most `limit` bytes."""

    def __init__(self, blobs: FileBlobs, since: Sequence[FileRoot], limit: int) -> None:
        self._limit = limit
        super().__init__(cast(FileBlobs, _ContentOf(blobs, since)), None)

    def put(self, data: bytes) -> bytes:
        key = super().put(data)
        if self._inline_bytes + self._waiting_bytes > self._limit:
            raise DiskFullError(
                f"the files that changed take more than the spool may have: {self._limit:,} bytes",
                hint="bring the store back, or raise spool_bytes",
            )
        return key

    def finish(self) -> Gathered:
        return super().finish()._replace(relies_on=())


class _ContentOf:
    """The content of one checkpoint, as far as it can be read, in the place of all that the store has."""

    def __init__(self, blobs: FileBlobs, since: Sequence[FileRoot]) -> None:
        self.blob_id = blobs.blob_id
        self._blobs = blobs
        self._since = since

    def has(self, keys: Iterable[bytes]) -> set[bytes]:
        wanted = set(keys)
        return wanted & self._reached if wanted else wanted

    def catalog_address(self) -> None:
        """Return None: no worker is to look anything up in the store."""

    def drop(self, gathered: Gathered) -> None:
        """Do nothing: there are no packs."""

    @cached_property
    def _reached(self) -> set[bytes]:
        found: set[bytes] = set()
        try:
            for root in self._since:
                self._walk(root, found)
        except CheckpointError:
            pass  # the rest is taken along
        return found

    def _walk(self, root: FileRoot, found: set[bytes]) -> None:
        from lastgood.engine.browse import walk_files

        found.update((root.tree, *self._blobs.list_parts(root.tree)))
        for _, entry in walk_files(self._blobs, root):
            if isinstance(entry, Folder):
                found.update((entry.tree, *self._blobs.list_parts(entry.tree)))
            elif isinstance(entry, File):
                found.add(entry.blob)
                if entry.chunks is not None:
                    chunks = decode_chunks(self._blobs.read(entry.chunks), entry)
                    found.update((entry.chunks, *(chunk.digest for chunk in chunks)))


def _relate(base: str, root: str) -> tuple[str, str] | None:
    """Return how a path relative to `base` becomes one relative to `root`: what to take off, what to put before it.

    None when neither folder lies in the other.
    """
    if base == root:
        return "", ""
    if root.startswith(base.rstrip("/") + "/"):
        return root[len(base.rstrip("/")) + 1 :] + "/", ""
    if base.startswith(root.rstrip("/") + "/"):
        return "", base[len(root.rstrip("/")) + 1 :] + "/"
    return None
