"""In which order a store must write: rules over what one undisturbed run did, whatever the disk made of it.

What breaks a rule may go well on every file system at hand. It is a sentence each, with the numbers of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import NamedTuple

from tests.faults.shim import JOURNAL_ENDS
from tests.faults.trace import Call, Op

_PASSING = ("-shm", "-lock")


class Place(NamedTuple):
    """Which paths are what."""

    store: str
    work: str

    def is_log(self, path: str) -> bool:
        return path == f"{self.store}/catalog.sqlite-wal"

    def is_witness(self, path: str) -> bool:
        return path == f"{self.store}/catalog.sqlite-lock"

    def is_pack(self, path: str) -> bool:
        return path.startswith(f"{self.store}/objects/packs/") and path.count("/") == self.store.count("/") + 4

    def is_kept(self, path: str) -> bool:
        """Something in the store that must be found again: no draft, cache or lock, nor SQLite's index of its log."""
        if path != self.store and not path.startswith(f"{self.store}/"):
            return False
        inside = PurePath(path[len(self.store) :]).parts[1:]
        return not path.endswith(_PASSING) and not any(
            part.startswith(".") or part.endswith(".cache") for part in inside
        )

    def is_file_of_work(self, path: str) -> bool:
        return path.startswith(f"{self.work}/")


class Unsynced:
    """What calls have left to be made durable: of files who wrote last, of folders who changed which name."""

    def __init__(self) -> None:
        self.files: dict[int, Call] = {}
        self.names: dict[str, dict[str, Call]] = {}

    def follow(self, call: Call) -> None:
        match call.op:
            case Op.SYNCALL:
                self.files.clear()
                self.names.clear()
            case Op.SYNC | Op.DATASYNC:
                self.files.pop(call.inode, None)
                self.names.pop(call.path, None)
            case Op.WRITE | Op.CREATE:
                self.files[call.inode] = call
            case Op.TRUNCATE:
                self.files.setdefault(call.inode, call)
        for path in _names(call):
            self.names.setdefault(_folder(path), {})[path] = call
        if call.op == Op.RMDIR:
            self.names.pop(call.path, None)

    def written(self, is_meant: Callable[[str], bool], pid: int) -> list[Call]:
        """The last writes of a process to such files. To cut one off is no write: nothing in it is news."""
        found = (call for call in self.files.values() if call.op == Op.WRITE and call.pid == pid)
        return [call for call in found if is_meant(call.path)]

    def on_the_way_to(self, path: str) -> Call | None:
        """Who has named it, or a folder above it, in a folder that was not synced since."""
        while path:
            if path in self.names.get(_folder(path), {}):
                return self.names[_folder(path)][path]
            path = _folder(path)
        return None


class Named:
    """Files that got a name, by who gave it to them, until they lose it or it is durable."""

    def __init__(self, matters: Callable[[str], bool]) -> None:
        self._matters = matters
        self._by: dict[str, int] = {}

    def follow(self, call: Call) -> None:
        for path in _names(call):
            self._by.pop(path, None)
        if call.op in (Op.CREATE, Op.LINK, Op.RENAME, Op.SYMLINK) and self._matters(_names(call)[-1]):
            self._by[_names(call)[-1]] = call.pid

    def tell(self, pid: int, unsynced: Unsynced) -> Iterator[str]:
        """Those of a process whose names are not durable yet; each is told of once."""
        for path in [path for path, by in self._by.items() if by == pid]:
            del self._by[path]
            if change := unsynced.on_the_way_to(path):
                yield f"{path} could not be found, because a folder was not synced after {change}"


def _names(call: Call) -> list[str]:
    match call.op:
        case Op.RENAME:
            return [call.path, call.other]
        case Op.LINK:
            return [call.other]
        case Op.CREATE | Op.MKDIR | Op.SYMLINK | Op.UNLINK | Op.RMDIR:
            return [call.path]
    return []


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _walk(calls: Iterable[Call]) -> Iterator[tuple[Call, Unsynced]]:
    """Each call that has done something, with what was unsynced before it."""
    unsynced = Unsynced()
    for call in calls:
        if not call.error:
            yield call, unsynced
            unsynced.follow(call)


# --- the rules ------------------------------------------------------------------------------------------------------


def files_are_synced_before_they_get_their_name(calls: Iterable[Call], place: Place) -> Iterator[str]:
    for call, unsynced in _walk(calls):
        if call.op in (Op.RENAME, Op.LINK) and place.is_kept(call.other) and call.inode in unsynced.files:
            yield f"{call} names a file that was not synced since {unsynced.files[call.inode]}"


def names_are_synced_before_an_acknowledgement(calls: Iterable[Call], place: Place) -> Iterator[str]:
    named = Named(place.is_kept)
    for call, unsynced in _walk(calls):
        named.follow(call)
        if call.is_acknowledgement:
            for found in named.tell(call.pid, unsynced):
                yield f"acknowledged after call {call.number}: {found}"


def packs_are_durable_before_a_transaction_names_them(calls: Iterable[Call], place: Place) -> Iterator[str]:
    named = Named(place.is_pack)
    for call, unsynced in _walk(calls):
        named.follow(call)
        if call.op == Op.WRITE and place.is_log(call.path):
            for found in named.tell(call.pid, unsynced):
                yield f"a transaction begins with {call}: {found}"


def the_log_is_synced_before_an_acknowledgement(calls: Iterable[Call], place: Place) -> Iterator[str]:
    committed: set[int] = set()
    for call, unsynced in _walk(calls):
        writes = unsynced.written(place.is_log, call.pid)
        if call.op in (Op.SYNC, Op.DATASYNC) and place.is_log(call.path) and writes:
            committed.add(call.pid)
        elif call.op == Op.MARK and call.path == "intended":
            committed.discard(call.pid)
        elif call.is_acknowledgement:
            if writes:
                yield f"the log was not synced between {writes[0]} and the acknowledgement after call {call.number}"
            elif call.pid not in committed:
                yield f"nothing was committed before the acknowledgement after call {call.number}"


def the_witness_is_written_after_the_log_is_synced(calls: Iterable[Call], place: Place) -> Iterator[str]:
    """Outside of a save it may tell what it told before: so a loss is accepted."""
    saving: set[int] = set()
    for call, unsynced in _walk(calls):
        writes = unsynced.written(place.is_log, call.pid)
        if call.op == Op.MARK and call.path == "intended":
            saving.add(call.pid)
        elif call.op in (Op.SYNC, Op.DATASYNC) and place.is_log(call.path) and writes:
            saving.discard(call.pid)
        elif call.op == Op.WRITE and place.is_witness(call.path):
            if writes:
                yield f"{call} tells of a commit, and the log was not synced since {writes[0]}"
            elif call.pid in saving:
                yield f"{call} tells of a commit, and nothing was committed yet"


def packs_go_after_the_transaction_that_forgot_them(calls: Iterable[Call], place: Place) -> Iterator[str]:
    for call, unsynced in _walk(calls):
        if call.op == Op.UNLINK and place.is_pack(call.path):
            for write in unsynced.written(place.is_log, call.pid):
                yield f"{call} removes a pack, and the log was not synced since {write}"


def restored_files_are_durable_before_the_journal_ends(calls: Iterable[Call], place: Place) -> Iterator[str]:
    for call, unsynced in _walk(calls):
        if call.op == Op.MARK and call.path == JOURNAL_ENDS:
            named = [change for names in unsynced.names.values() for change in names.values()]
            for change in [*named, *unsynced.files.values()]:
                if change.pid == call.pid and place.is_file_of_work(change.path):
                    yield f"a journal ends after call {call.number}, and nothing was synced after {change}"


Rule = Callable[[Iterable[Call], Place], Iterator[str]]

RULES: tuple[Rule, ...] = (
    files_are_synced_before_they_get_their_name,
    names_are_synced_before_an_acknowledgement,
    packs_are_durable_before_a_transaction_names_them,
    the_log_is_synced_before_an_acknowledgement,
    the_witness_is_written_after_the_log_is_synced,
    packs_go_after_the_transaction_that_forgot_them,
    restored_files_are_durable_before_the_journal_ends,
)
