"""What transactions are written against: a connection with a few verbs, named statements, and rows that are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from lastgood.errors import IntegrityError

Row = tuple[Any, ...]
Values = Mapping[str, Any]

SHIFT = 32
MAX_SEQUENCE = (1 << SHIFT) - 1


class Connection(Protocol):
    """A transaction that has begun. Parameters of a statement are `:name`, and given by name."""

    def all(self, sql: str, /, **values: Any) -> list[Row]: ...

    def one(self, sql: str, /, **values: Any) -> Row | None:
        """Return the first row."""

    def value(self, sql: str, /, **values: Any) -> Any:
        """Return the first column of the first row; None when there is no row."""

    def run(self, sql: str, /, **values: Any) -> None:
        """Run it. It needs no answer: several may go to the database in one exchange."""

    def count(self, sql: str, /, **values: Any) -> int:
        """Run it; return how many rows it changed."""

    def run_many(self, sql: str, many: Iterable[Values], /) -> int:
        """Run it once for each; return how many rows were changed in all."""

    def all_many(self, sql: str, many: Iterable[Values], /) -> list[Row]:
        """Run it once for each; return the rows of all."""

    def all_of(self, reads: Mapping[str, tuple[str, Values]], /) -> dict[str, list[Row]]:
        """Run several statements with their values in one exchange with the database; return the rows of each."""

    def now(self) -> int:
        """Return the catalog's time in microseconds since 1970, the same for all that share it."""

    def lock_task(self, owner: str, id: str) -> None:
        """Keep other transactions from changing a task until this one ends. `id`: its own, or that of one of its
        branches or checkpoints. Nothing where writers are one at a time anyway."""

    def guard_blobs(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return which of these blobs of files exist; they are not condemned from now on."""


P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[Connection, P], T]


class Queries:
    """The statements of a file in the folder `sql`, as attributes.

    A line `-- name: task_by_id` begins one, `{task}` stands for an earlier one of the file.
    """

    def __init__(self, file: str) -> None:
        text = Path(__file__).with_name("sql").joinpath(f"{file}.sql").read_text()
        _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            sql = re.sub(r"^ *--.*\n", "", body, flags=re.MULTILINE).strip()
            setattr(self, name, re.sub(r"\{(\w+)\}", lambda found: getattr(self, found[1]), sql))

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"there is no statement {name!r}")


def key(task: int, sequence: int) -> int:
    """Return the key of a task's checkpoint or event."""
    return (task << SHIFT) + sequence


def sequence_of(number: int) -> int:
    return number & MAX_SEQUENCE


# --- rows as the tables let them in -------------------------------------------------------------------------------
# A page that the disk has put in another's place fits its checksum, and has other rows.


def _rows(*columns: Any) -> Any:
    # A named tuple's type is looked at once; that of a plain tuple with each call, which took 20 us.
    return list[NamedTuple("Row", [(f"column{number}", kind) for number, kind in enumerate(columns)])]  # type: ignore[misc]


_TEXT, _NUMBER, _BYTES = str | None, int | None, bytes | None
TASK = _rows(int, str, str, int, str, int, int, int)
BRANCH = _rows(
    int, str, str, str, str, str, _TEXT, int, int, _TEXT, _BYTES, int, str, int, int, str, bytes, int
)  # fmt: skip
CHECKPOINT = _rows(int, str, str, str, _BYTES, bytes, str, int, int, bytes, int, _NUMBER, int, _TEXT)
CREATION = _rows(int, int, _NUMBER, str, str, bytes, bytes)
EVENT = _rows(int, str, int, str, str, str, _TEXT, _BYTES)
TAG = _rows(str, str, bytes, int, str)
ATTESTATION = _rows(int, str, int, str, bytes, bytes)
ORIGIN = _rows(_NUMBER, int)
BLOB = _rows(bytes, int, int, _BYTES, _TEXT, _NUMBER, _NUMBER)
SLICE = _rows(bytes, int, int, _BYTES, bytes, int, int)
ROOT = _rows(_NUMBER, _NUMBER, _BYTES)
NUMBERED_ROOT = _rows(int, int, int, bytes)
STEP = _rows(bytes, str)
JOURNAL = _rows(bytes, str, _TEXT, _NUMBER)
LEASE = _rows(int, _TEXT, _TEXT, bytes, str, int, int)
REQUEST = _rows(str, str, str, bytes, int, str, _TEXT, str, _NUMBER, _BYTES)


def shaped(found: Sequence[Row], shape: Any) -> list[Any]:
    """Return the same rows. IntegrityError when one of them cannot be a row of its table."""
    try:
        return msgspec.convert(found, shape)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        raise misplaced() from error


def counted(value: Any) -> int:
    """Return a number that must be there."""
    if type(value) is not int:
        raise misplaced()
    return value


def decoded(decode: Callable[[bytes], T], data: bytes, what: str) -> T:
    """Return what is encoded in a column. IntegrityError, which names it, when nothing is."""
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise IntegrityError(f"what is known of {what} is damaged") from error


def misplaced() -> IntegrityError:
    return IntegrityError(
        "the store's database is damaged here; what it says cannot be trusted",
        hint="other checkpoints may be whole: store.check(read_data=True) says which",
    )
