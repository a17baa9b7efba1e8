"""The verifier: checks pieces of evidence and records onto each what came of it (D5)."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Self, get_args

from lastgood.errors import CheckpointError, ForbiddenError, InvalidError, UnavailableError
from lastgood.evidence.check import Check, Network, NotYet, Surroundings, find_check, is_quick
from lastgood.evidence.files import Allowance, CheckpointFiles, Files, FindCaptured, Later
from lastgood.evidence.helper import Helper
from lastgood.local.location import current_folder
from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType, VerificationStatus

_MAX_THREADS = 8
_FIRST_WAIT_SECONDS = 0.2
_MAX_ERROR_CHARACTERS = 1000
# Hashed in about 1 ms: for less than that no thread is started.
_INLINE_BYTES = 1 << 20


class EvidenceVerifier:
    """Checks evidence about the files below `base_path`, recorded exit codes, databases and the world outside.

    Bad evidence never raises: whatever is wrong with a piece fails that piece, with an error that begins with
    "mismatch" when the claim was checked and does not hold, and with "check_error" when it could not be checked.
    What this verifier may not look at stays pending and says why: another verifier may find that it holds.
    What is not an Evidence at all is an InvalidError. Safe for threads and after fork(); close it when done.

    `database` is what db_row reads when the claim names none. `timeout` is in seconds for each piece. A check that
    finds something busy, or something outside away, is made up to `attempts` times. `network` says what evidence may
    connect to: "public" addresses alone, "any", which takes in this machine and private networks, or "off", nothing.
    `confined`: only at what lies below `base_path` is looked, because others may have written the claims.
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str] | None = None,
        *,
        database: Path | None = None,
        absolute_paths: bool = True,
        max_file_bytes: int = 4 << 30,
        timeout: float = 30.0,
        attempts: int = 3,
        network: Network = "public",
        confined: bool = False,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if network not in get_args(Network):
            allowed = ", ".join(get_args(Network))
            raise InvalidError(f"network cannot be {network!r}", hint=f"one of {allowed}", field="network")
        self._database = None if database is None else os.path.abspath(database)  # noqa: PTH100
        self._timeout = timeout
        self._attempts = attempts
        self._sleep = sleep
        self._network = network
        self._confined = confined
        # Two, so that a row does not wait behind a large file.
        self._hashes, self._rows = Helper(), Helper()
        base = os.path.realpath(current_folder() if base_path is None else base_path)
        elsewhere, absolute = self._hashes.hash_file, absolute_paths and not confined
        self._files = Files(base, absolute=absolute, max_bytes=max_file_bytes, hash_elsewhere=elsewhere)

    def verify_evidence(self, evidence: Evidence, snapshot: object = None) -> bool:
        """Check it, and record onto it whether it holds. `snapshot` is the state, or a callable that gives it."""
        self._verify([evidence], snapshot)
        return evidence.verified

    def verify_evidence_pack(
        self, pack: EvidencePack, snapshot: object = None, *, captured: FindCaptured | None = None
    ) -> bool:
        """Check all of it, what is slow in parallel; whether the pack's rule holds.

        `captured` says what a checkpoint has at a path, so that this is looked at and not the disk (D11).
        """
        self._verify(pack.evidence_list, snapshot, captured)
        return pack.is_verified

    def verify_multiple(self, evidence_list: list[Evidence], snapshot: object = None) -> dict[str, Any]:
        self._verify(evidence_list, snapshot)
        total, verified = len(evidence_list), sum(evidence.verified for evidence in evidence_list)
        return {
            "total": total,
            "verified": verified,
            "failed": sum(evidence.verification_status == "failed" for evidence in evidence_list),
            "success_rate": verified / total if total else 0.0,
            "all_passed": 0 < verified == total,
        }

    def hash_file(self, path: str) -> str:
        """Return the hex SHA-256 of a file now; NotFoundError, InvalidError, ForbiddenError."""
        self._files.refresh()
        return self._files.hash(path, time.monotonic() + self._timeout)

    def close(self) -> None:
        self._files.close()
        self._hashes.close()
        self._rows.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _verify(self, pieces: Iterable[Evidence], snapshot: object, captured: FindCaptured | None = None) -> None:
        with self.checking(pieces, snapshot, captured) as finish:
            finish()

    @contextmanager
    def checking(
        self, pieces: Iterable[Evidence], snapshot: object = None, captured: FindCaptured | None = None
    ) -> Iterator[Callable[[], None]]:
        """Check what is quick, and ask a helper for what it must look up; the rest is done by calling `finish`.

        Between the two is time for something else.
        """
        pieces = list(pieces)
        for piece in pieces:
            if not isinstance(piece, Evidence):
                raise InvalidError("that is not evidence", hint="make lastgood.Evidence objects")
        self._files.refresh()
        files = self._files if captured is None else CheckpointFiles(self._files, captured)
        given = cache(snapshot) if callable(snapshot) else lambda: snapshot
        allowance = Allowance(_INLINE_BYTES)
        later: list[tuple[Evidence, Surroundings]] = []
        try:
            for piece in sorted(pieces, key=_is_asked_for, reverse=True):
                deadline, about = time.monotonic() + self._timeout, (files, self._rows, self._database, given)
                surroundings = Surroundings(*about, deadline, allowance, self._network, self._confined)
                try:
                    self._check(piece, surroundings)
                except Later:
                    later.append((piece, surroundings))
            yield lambda: _in_parallel(self._check_later, later)
        finally:
            for _, surroundings in later:
                if surroundings.question is not None:
                    surroundings.question.drop()
            if captured is not None:
                files.close()

    def _check_later(self, piece: Evidence, surroundings: Surroundings) -> None:
        surroundings.allowance = None
        if surroundings.question is None:
            surroundings.deadline = time.monotonic() + self._timeout
        self._check(piece, surroundings)

    def _check(self, evidence: Evidence, surroundings: Surroundings) -> None:
        """Record what came of it; Later when there is an allowance and it does not suffice."""
        try:
            check = find_check(evidence.evidence_type)
            if surroundings.allowance is not None and not is_quick(evidence.evidence_type):
                raise Later
            said = self._retry(check, evidence, surroundings)
            error = None if said is None else _as_mismatch(said)
        except Later:
            raise
        except NotYet as reason:
            error = _as_mismatch(str(reason))
        except ForbiddenError as reason:
            _leave_pending(evidence, reason)
            return
        except CheckpointError as reason:
            error = f"check_error: {getattr(reason, 'message', type(reason).__name__)}"
        except (Exception, SystemExit) as reason:
            error = f"check_error: the check failed with {type(reason).__name__}"
        _record(evidence, error)

    def _retry(self, check: Check, evidence: Evidence, surroundings: Surroundings) -> str | None:
        """Retry, after longer and longer waits, what was only busy or not there yet (D9)."""
        for attempt in range(1, self._attempts):
            try:
                return check(evidence, surroundings)
            except (NotYet, UnavailableError) as reason:
                wait = _FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
                if (isinstance(reason, UnavailableError) and not reason.retryable) or wait > surroundings.remaining():
                    raise
                self._sleep(wait)
        return check(evidence, surroundings)


def _is_asked_for(piece: Evidence) -> bool:
    return piece.evidence_type == EvidenceType.DB_ROW


def _in_parallel(check: Callable[[Evidence, Surroundings], None], pieces: list[tuple[Evidence, Surroundings]]) -> None:
    """Check them all, in this thread and a few more; whatever a check let through is raised here."""
    waiting = deque(pieces)
    raised: list[BaseException] = []

    def work() -> None:
        try:
            while waiting and not raised:
                check(*waiting.popleft())
        except IndexError:  # another thread took the last one
            pass
        except BaseException as error:
            raised.append(error)

    started = []
    with suppress(RuntimeError):  # no more threads to be had: then fewer do it
        for _ in range(min(_MAX_THREADS, len(pieces)) - 1):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            started.append(thread)
    work()
    if not raised:
        for thread in started:
            thread.join()
    if raised:
        raise raised[0]


def _as_mismatch(said: object) -> str:
    if not isinstance(said, str):
        return f"check_error: the check returned {type(said).__name__}, not None or a sentence"
    return f"mismatch: {said or 'the claim does not hold'}"


def _leave_pending(evidence: Evidence, reason: ForbiddenError) -> None:
    """Record that it was not checked, with why not and how to allow it."""
    evidence.verified, evidence.verification_status, evidence.verified_at = False, VerificationStatus.PENDING, None
    said, hint = getattr(reason, "message", type(reason).__name__), getattr(reason, "hint", None)
    evidence.verification_error = _fit(f"{said}; {hint}" if hint else str(said))


def _record(evidence: Evidence, error: str | None) -> None:
    evidence.verified = error is None
    evidence.verification_status = VerificationStatus.VERIFIED if error is None else VerificationStatus.FAILED
    evidence.verification_error = None if error is None else _fit(error)
    evidence.verified_at = datetime.now(UTC)


def _fit(error: str) -> str:
    return error[:_MAX_ERROR_CHARACTERS].encode(errors="replace").decode()
