"""The search for what is damaged or gone, in all places that may still have it, and the quarantine: the folder beside a
store that keeps what a repair changes or takes out. All that is found is checked."""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lastgood.catalog.upkeep import Audit, SliceRow
from lastgood.catalog.values import FILES, Blob, NewPack, PackedBlob
from lastgood.codec.compress import compress
from lastgood.codec.pack import PackEntry, read_index, rebuild_index, unpack
from lastgood.engine.blobs import BlobReader
from lastgood.engine.engine import Engine
from lastgood.engine.gather import PackDraft, discard, disk_error
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.local.location import Location, make_private
from lastgood.local.paths import open_private
from lastgood.model.identity import BlobId, new_id
from lastgood.objects.contract import ObjectStore
from lastgood.upkeep.check import Examination
from lastgood.upkeep.damage import Inventory, Key

CHUNK = 8 << 20
Take = Callable[[Key, bytes], None]
"""Called with a blob that was found, and its bytes."""
BROKEN = frozenset(("pack_index", "pack_size", "pack_damaged"))
"""Packs that are put aside when what is whole in them lies elsewhere."""
_UNREPAIRABLE = frozenset(("tree",))
"""What is exactly as it was stored, and was malformed then."""


class BlobSearch:
    """A search for damaged blobs."""

    def __init__(self, engine: Engine, found: Examination) -> None:
        self._engine = engine
        self._blob_id = engine.blob_id
        self._inventory = found.inventory
        self._snapshot = found.snapshot
        self._draft: PackDraft | None = None
        self._inline: list[tuple[int, Blob]] = []
        self._packs: list[NewPack] = []
        self.found: set[Key] = set()
        self.wanted = {key for key, damage in found.inventory.damage.items() if damage.code not in _UNREPAIRABLE}
        hurt = {damage.pack or "" for damage in found.inventory.damage.values() if damage.code == "blob_damaged"}
        present = {pack.name for pack in found.inventory.packs.values()}
        self.broken = sorted(({one.name for one in found.packs if one.code in BROKEN} | hurt) & present)
        self._gone = [one.name for one in found.packs if one.code == "pack_missing"]
        away = {one.name for one in found.packs if one.code == "pack_unreadable"}
        self._withheld = {key for key, damage in found.inventory.damage.items() if damage.pack in away}

    def run(self) -> None:
        """Search everywhere. What was found of files is in a new pack then, durably, and nothing refers to it yet."""
        try:
            self._search()
        except BaseException:
            if self._draft is not None:
                self._draft.discard()
            raise

    def _search(self) -> None:
        objects = self._engine.objects
        if objects is not None:
            files = {digest for partition, digest in self.wanted if partition == FILES}
            for name, size, entries in find_in_packs(objects, files, set(self.broken), self._blob_id):
                self._packs.append(NewPack(name, size, [PackedBlob(*entry) for entry in entries]))
                self.found |= {(FILES, entry.blob_id) for entry in entries}
            for name in self.broken:
                self._salvage(objects, name)
            for kept in kept_packs(self._engine.location.quarantine) if self.lost() else ():
                for listed in kept.list("packs/"):
                    self._salvage(kept, listed.name)
        with self._engine.catalog.audit() as audit:
            find_in_catalog(audit, self._inventory, self.lost(), self._take)
        left = {digest for partition, digest in self.lost() if partition == FILES}
        for path in dict.fromkeys(row.path for row in self._snapshot.workspaces) if left else ():
            find_in_folder(path, [str(own) for own in self._engine.local.own_paths()], left, self._take, self._blob_id)
            left -= {digest for partition, digest in self.found if partition == FILES}
        if self._draft is not None and objects is not None:
            pack = self._draft.finish()
            self._engine.blobs.adopt(pack.name, self._draft.path)
            self._packs.append(pack)

    def plan(self, audit: Audit) -> dict[str, Any]:
        """Return fields of Corrections. What was saved anew since the search is not lost any more."""
        return {
            "blobs": self._inline,
            "packs": self._packs,
            "lost": [key for key in self.lost() if not self._is_back(audit, key)],
            "retired": [*self.broken, *self._gone],
        }

    def lost(self) -> list[Key]:
        """List what was not found. What lies in a pack that cannot be read just now may be whole: it is not given
        up."""
        return sorted(self.wanted - self.found - self._withheld)

    def _is_back(self, audit: Audit, key: Key) -> bool:
        partition, id_ = key
        blob = audit.read(partition, [id_]).get(id_)
        if blob is None or blob.place is None:
            return read_part(audit, self._blob_id, partition, id_) is not None
        row = self._inventory.placed.get(id_)
        pack = None if row is None or row.pack is None else self._inventory.packs[row.pack].name
        return row is None or blob.place != (pack, row.position, row.length)

    def _salvage(self, objects: ObjectStore, name: str) -> None:
        """Take what is whole in a broken pack into a new one, so that the broken one can be put aside."""
        numbers = {row.name: row.number for row in self._inventory.packs.values()}
        for entry in read_entries(objects, name, self._blob_id, salvage=True):
            key = FILES, entry.blob_id
            row = self._inventory.placed.get(entry.blob_id)
            is_here = name in self.broken and row is not None and row.pack == numbers.get(name)
            if key not in self.found and (key in self.wanted or is_here):
                data = read_blob(objects, name, entry, self._blob_id)
                if data is not None:
                    self._take(key, data)

    def _take(self, key: Key, data: bytes) -> None:
        if key in self.found:
            return
        self.found.add(key)
        objects = self._engine.objects
        if objects is not None and key[0] == FILES:
            self._draft = self._draft or PackDraft(objects.draft())
            self._draft.add(key[1], data)
            return
        encoding, stored = compress(data)
        self._inline.append((key[0], Blob(key[1], len(data), encoding, stored)))


# --- where to look -------------------------------------------------------------------------------------------------


def find_in_packs(
    objects: ObjectStore, wanted: set[bytes], avoided: set[str], blob_id: BlobId
) -> Iterator[tuple[str, int, list[PackEntry]]]:
    """Yield packs that hold some of what is wanted, whole, with the pack's size; those in `avoided` are not read."""
    left = set(wanted)
    for listed in objects.list("packs/"):
        if not left:
            return
        if listed.name in avoided:
            continue
        found = [entry for entry in read_entries(objects, listed.name, blob_id) if entry.blob_id in left]
        whole = [entry for entry in found if read_blob(objects, listed.name, entry, blob_id) is not None]
        if whole:
            left -= {entry.blob_id for entry in whole}
            yield listed.name, listed.size, whole


def read_entries(objects: ObjectStore, name: str, blob_id: BlobId, *, salvage: bool = False) -> Sequence[PackEntry]:
    """List what a pack holds; with `salvage` what is left of it, each blob read and checked, whatever its index
    says."""
    try:
        read, size = partial(objects.get, name), objects.size(name)
        return (rebuild_index(read, size, blob_id) if salvage else read_index(read, size)).entries
    except CheckpointError:
        return [] if salvage else read_entries(objects, name, blob_id, salvage=True)


def read_blob(objects: ObjectStore, name: str, entry: PackEntry, blob_id: BlobId) -> bytes | None:
    try:
        return unpack(entry, objects.get(name, entry.position, entry.length), blob_id)
    except CheckpointError:
        return None


def find_in_catalog(audit: Audit, inventory: Inventory, wanted: Iterable[Key], take: Take) -> None:
    """Take blobs that another task, or a larger blob of the same one, has, too."""
    wanted = set(wanted)
    inside: defaultdict[Key, list[SliceRow]] = defaultdict(list)
    for row in audit.slices() if wanted else ():
        if (row.partition, row.digest) in wanted:
            inside[row.partition, row.digest].append(row)
    names = {row.number: row.digest for row in audit.blobs()} if inside else {}
    for key in sorted(wanted):
        for data in _elsewhere(audit, inventory, key, inside.get(key, ()), names):
            if inventory.blob_id.of(data) == key[1]:
                take(key, data)
                break


def _elsewhere(
    audit: Audit, inventory: Inventory, key: Key, inside: Iterable[SliceRow], names: Mapping[int, bytes]
) -> Iterator[bytes]:
    partition, id_ = key
    for other, stored in inventory.stored.items():
        if other not in (partition, FILES) and id_ in stored:
            yield read_part(audit, inventory.blob_id, other, id_) or b""
    for row in inside:
        whole = read_part(audit, inventory.blob_id, partition, names[row.whole]) if row.whole in names else None
        yield (whole or b"")[row.position : row.position + row.size]


def find_in_folder(path: str, own: Sequence[str], wanted: set[bytes], take: Take, blob_id: BlobId) -> None:
    """Take content and directories of a workspace, as a capture would read them now."""
    from lastgood.files.capture import capture
    from lastgood.files.index import StatIndex
    from lastgood.files.read import read_jobs
    from lastgood.files.roots import open_roots
    from lastgood.files.rules import Rules
    from lastgood.local.process import descriptors

    sink = _Sink(wanted, take, blob_id)
    try:
        (root,) = open_roots(path, store=list(own))
        # A file that this process has open is not looked at: closing it would drop the locks on it.
        is_open, close = descriptors.find_elsewhere(), descriptors.close
        read_files = partial(read_jobs, root.path, sink=sink, is_open=is_open, close=close)
        capture(root, Rules.of(root, secrets=True), StatIndex(), sink, leave=own, read_files=read_files)
    except (CheckpointError, OSError):
        if sink.failure is not None:
            raise sink.failure from None
        # Else the folder is gone, or cannot be read: then it has nothing to give.
    finally:
        descriptors.close_parked()


class _Sink:
    """A sink of a capture that takes what is wanted; everything else is as if it were stored."""

    def __init__(self, wanted: set[bytes], take: Take, blob_id: BlobId) -> None:
        self.blob_id = blob_id
        self._wanted = wanted
        self._take = take
        self.failure: CheckpointError | None = None
        """What was found could not be taken."""

    def has(self, ids: Sequence[bytes]) -> set[bytes]:
        return set(ids) - self._wanted

    def put(self, data: bytes) -> bytes:
        id_ = self.blob_id.of(data)
        if id_ in self._wanted:
            try:
                self._take((FILES, id_), data)
            except CheckpointError as error:
                self.failure = error
                raise
        return id_


def read_part(audit: Audit, blob_id: BlobId, partition: int, id_: bytes) -> bytes | None:
    """Return the bytes of a blob that lies in the catalog; None unless they give its id."""
    return dict(BlobReader(blob_id, audit.read, None, lambda blob: None).read(partition, [id_])).get(id_)


# --- what is taken out --------------------------------------------------------------------------------------------


class Quarantine:
    """The folder of one repair, made when something comes into it."""

    def __init__(self, location: Location) -> None:
        self._catalog = location.catalog
        self._folder = None if location.quarantine is None else location.quarantine / new_id()
        self._has_catalog = False

    @property
    def path(self) -> str | None:
        """Its path, if there is anything in it."""
        return str(self._folder) if self._folder is not None and self._folder.exists() else None

    def copy_catalog(self) -> None:
        """Copy the database before the first change, with its log and its witness. The caller keeps writers away.

        Another process copies it: closing a file here would drop the locks that SQLite holds on it in this process.
        """
        if self._catalog is None or self._folder is None or self._has_catalog:
            return
        files = [self._catalog.with_name(self._catalog.name + end) for end in ("", "-wal", "-lock")]
        with _worded_errors():
            folder = self._make(self._folder)
        done = subprocess.run(  # noqa: S603  # no shell; the paths are the store's own
            ["/bin/cp", "-p", "--", *(str(file.absolute()) for file in files if file.exists()), str(folder.absolute())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise UnavailableError("the catalog could not be copied, so nothing was changed", hint="is the disk full?")
        with _worded_errors():
            for file in files:
                if file.exists():
                    _sync(folder / file.name)
            _sync(folder)
        self._has_catalog = True

    def take(self, objects: ObjectStore | None, name: str) -> None:
        """Move an object here, durably; it is deleted there only when it is here. What cannot be read stays there."""
        assert objects is not None
        assert self._folder is not None, "objects lie beside a catalog that is a file"
        place = self._folder / name
        with _worded_errors():
            self._make(place.parent)
        try:
            with open(place, "xb", opener=open_private) as file:
                for chunk in _chunks(objects, name):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            _sync(place.parent)
        except (OSError, CheckpointError):
            discard(place)
        else:
            objects.delete(name)

    def _make(self, folder: Path) -> Path:
        assert self._folder is not None
        for step in (self._folder.parent, self._folder, *reversed(folder.parents), folder):
            if step.is_relative_to(self._folder.parent):
                make_private(step)
                _sync(step.parent)
        return folder


def kept_packs(folder: Path | None) -> Iterator[ObjectStore]:
    """Yield what earlier repairs have kept: whole blobs in it are as good as any."""
    from lastgood.objects.local import LocalObjects

    if folder is not None and folder.is_dir():
        yield from (LocalObjects(each) for each in sorted(folder.iterdir()) if each.is_dir())


def _chunks(objects: ObjectStore, name: str) -> Iterator[bytes]:
    size = objects.size(name)
    for start in range(0, size, CHUNK):
        yield objects.get(name, start, min(CHUNK, size - start))


@contextmanager
def _worded_errors() -> Iterator[None]:
    """Translate errors of the operating system."""
    try:
        yield
    except OSError as error:
        raise disk_error(error) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
