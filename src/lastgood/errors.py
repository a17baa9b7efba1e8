"""Everything that lastgood raises, and nothing else.

    CheckpointError                        error            exit 1   HTTP 500
    ├── InvalidError (ValueError)          invalid          exit 2   HTTP 422
    │   ├── UnstorableError (TypeError)    unstorable                          state that cannot be kept exactly
    │   └── FormatError                    format                              not a store
    │       └── FormatVersionError         format_version                      a store of another version of lastgood
    ├── NotFoundError (LookupError)        not_found        exit 3   HTTP 404
    ├── ConflictError                      conflict         exit 4   HTTP 409  someone else moved the head
    │   ├── LeaseError                     leased                              someone else works on the branch
    │   ├── ControlError                   control                             work in this state cannot do that
    │   └── FolderTakenError               folder_taken                        a folder has another branch's files
    ├── IntegrityError                     integrity        exit 5   HTTP 500  damage, refused as data
    │   ├── LostCommitsError               lost_commits                        acknowledged commits are gone
    │   └── ContentGoneError               content_gone                        a save relied on removed content
    ├── UnavailableError (ConnectionError) unavailable      exit 6   HTTP 503
    │   ├── StoreAwayError                 store_away                          it was away before: not tried again
    │   ├── BusyError                      busy                      retryable
    │   │   ├── NestedWriteError           nested_write                        a signal handler saves during a save
    │   │   ├── FolderBusyError            folder_busy                         a folder is being saved or restored
    │   │   └── ReplayBusyError            replay_busy                         another process empties the spool
    │   └── DiskFullError                  disk_full                 HTTP 507
    ├── ForbiddenError (PermissionError)   forbidden        exit 7   HTTP 403
    ├── StageError                         stage            exit 8   HTTP 500
    └── EvidenceError                      evidence         exit 9   HTTP 409  what a checkpoint claims does not hold

`str(error)` is a sentence for people, `error.hint` says what to do next and ends the traceback, `error.code` is
stable and for programs. Ids and the like that a handler may want stand in `error.details`. Internals (SQL,
stacks) stay in `__cause__` and the log.
"""

from __future__ import annotations

from typing import Any, ClassVar


class CheckpointError(Exception):
    """The root of all errors of this package."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    category: ClassVar[str] = "request"
    """`persistence` where something could not be kept, or was not kept; else it is about what was asked for."""

    def __init__(self, message: str, *, hint: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details
        if hint:
            self.add_note(f"hint: {hint}")

    def __str__(self) -> str:
        return self.message


class InvalidError(CheckpointError, ValueError):
    """The request itself is wrong; nothing was stored."""

    code = "invalid"
    exit_code = 2
    http_status = 422


class UnstorableError(InvalidError, TypeError):
    """A value that cannot be kept exactly; `details["path"]` says where it stands."""

    code = "unstorable"
    category = "persistence"


class FormatError(InvalidError):
    """Not a store, or a store in a format that this version does not read."""

    code = "format"


class FormatVersionError(FormatError):
    """A store or a spool of a version (`details["format"]`) that this version of lastgood does not read."""

    code = "format_version"


class NotFoundError(CheckpointError, LookupError):
    """No such thing, or none that this user may see."""

    code = "not_found"
    exit_code = 3
    http_status = 404


class ConflictError(CheckpointError):
    """The branch is not where the writer thought; `head` (a `Head`, or None) is where it is now."""

    code = "conflict"
    exit_code = 4
    http_status = 409

    def __init__(self, message: str, *, head: Any = None, hint: str | None = None, **details: Any) -> None:
        super().__init__(message, hint=hint, **details)
        self.head = head


class LeaseError(ConflictError):
    """The branch is someone else's to advance; `details["lease"]` says whose (None: nobody's any more)."""

    code = "leased"


class ControlError(ConflictError):
    """Work in its present state (`details["state"]`) cannot do what was asked of it."""

    code = "control"


class FolderTakenError(ConflictError):
    """The files in a folder are those of another branch (`details["branch_id"]`) of the task."""

    code = "folder_taken"


class IntegrityError(CheckpointError):
    """Stored bytes are not what was stored. They are never returned as data."""

    code = "integrity"
    category = "persistence"
    exit_code = 5


class LostCommitsError(IntegrityError):
    """The database ends before a commit that was acknowledged."""

    code = "lost_commits"


class ContentGoneError(IntegrityError):
    """Content of files that a commit relies on (`details["blobs"]`) is not stored, or not any more."""

    code = "content_gone"


class UnavailableError(CheckpointError, ConnectionError):
    """The backend did not take it: an I/O error, or it is away."""

    code = "unavailable"
    category = "persistence"
    exit_code = 6
    http_status = 503


class StoreAwayError(UnavailableError):
    """The store did not answer before, and was not tried again. `__cause__` is what it failed with."""

    code = "store_away"


class BusyError(UnavailableError):
    """Others held the store for too long. Trying again is safe."""

    code = "busy"
    retryable = True


class NestedWriteError(BusyError):
    """A signal handler writes to the store while its thread does."""

    code = "nested_write"


class FolderBusyError(BusyError):
    """The files of a workspace (`details["workspace"]`) are being saved or restored by another process or thread."""

    code = "folder_busy"


class ReplayBusyError(BusyError):
    """Another process brings the spooled checkpoints into the store."""

    code = "replay_busy"


class DiskFullError(UnavailableError):
    """No space left. The save was rolled back whole."""

    code = "disk_full"
    http_status = 507


class ForbiddenError(CheckpointError, PermissionError):
    """Known, and not allowed."""

    code = "forbidden"
    exit_code = 7
    http_status = 403


class StageError(CheckpointError):
    """A stage of a pipeline failed."""

    code = "stage"
    exit_code = 8


class EvidenceError(CheckpointError):
    """A checkpoint that should be gone back to claims something that does not hold, or claims nothing."""

    code = "evidence"
    exit_code = 9
    http_status = 409
