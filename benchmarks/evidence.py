"""What evidence costs: a step with four pieces of it against a plain save, and hashes out of the cache."""

from __future__ import annotations

import functools
import hashlib
import os
import sqlite3
import time
from pathlib import Path

from benchmarks.bulk import USER, small_state
from benchmarks.measure import Row, Series, at_least, at_most, interleave, seconds, size
from lastgood.evidence.verifier import EvidenceVerifier
from lastgood.manager import CheckpointManager
from lastgood.model.evidence import Evidence, EvidencePack, EvidenceType

FILES, FILE_BYTES = 1000, 100_000
REPORT_BYTES = 10_000
HOUR = 3600


def measure_evidence(folder: Path) -> list[Row]:
    return [*_steps(folder), *_hashes(folder)]


def _steps(folder: Path) -> list[Row]:
    pack = _four(folder)
    with CheckpointManager(folder / "store", base_path=folder, user=USER) as manager:
        plain, stepped = manager.task("plain"), manager.task("stepped")
        steps = {"plain": 0, "step": 0, "manager": 0}

        def next_state(who: str) -> dict[str, object]:
            steps[who] += 1
            return small_state(steps[who])

        def save() -> float:
            state = next_state("plain")
            return seconds(lambda: plain.save(state))

        def step() -> float:
            state = next_state("step")

            def work() -> None:
                with stepped.step("work") as step:
                    step.state = state
                    step.expect(*pack.evidence_list)
                assert step.checkpoint is not None
                assert step.checkpoint.verified

            return seconds(work)

        def managed() -> float:
            state = next_state("manager")
            return seconds(lambda: manager.commit_step(manager.begin_step("managed", "step", state), pack))

        actions = {"plain": save, "step": step, "manager": managed}
        interleave(actions, 50)
        series = interleave(actions, 500)
    baseline = series["plain"]
    return [
        at_most(measure, series[name].median, baseline.median, 2, str(series[name]), f"{baseline}, a plain save")
        for name, measure in (
            ("step", "a step with four pieces of evidence"),
            ("manager", "begin_step + commit_step with the same"),
        )
    ]


def _four(folder: Path) -> EvidencePack:
    report = os.urandom(REPORT_BYTES)
    _write(folder / "report.bin", report)
    connection = sqlite3.connect(folder / "app.sqlite")
    connection.execute("CREATE TABLE tasks (task_id TEXT PRIMARY KEY, status TEXT)")
    connection.executemany("INSERT INTO tasks VALUES (?, 'completed')", [(f"task-{n}",) for n in range(1000)])
    connection.commit()
    connection.close()
    row = {"table": "tasks", "where": {"task_id": "task-123"}, "values": {"status": "completed"}}
    digest = hashlib.sha256(report).hexdigest()
    return EvidencePack(
        [
            Evidence(EvidenceType.ARTIFACT_EXISTS, "the report is a file", {"path": "report.bin", "type": "file"}),
            Evidence(EvidenceType.FILE_SHA256, "the report is unchanged", {"path": "report.bin", "sha256": digest}),
            Evidence(EvidenceType.COMMAND_EXIT, "tests passed", {"exit_code": 0}, metadata={"actual_exit_code": 0}),
            Evidence(EvidenceType.DB_ROW, "the row is there", row, metadata={"db_path": "app.sqlite"}),
        ]
    )


def _hashes(folder: Path) -> list[Row]:
    claims = []
    for number in range(FILES):
        content = os.urandom(FILE_BYTES)
        path = f"files/{number % 10}/{number}.bin"
        _write(folder / path, content)
        claims.append((path, hashlib.sha256(content).hexdigest()))
    cold, warm = Series(), Series()
    for _ in range(7):
        with EvidenceVerifier(folder) as verifier:
            for series in (cold, warm):
                evidence = [Evidence(EvidenceType.FILE_SHA256, path, {"path": path, "sha256": d}) for path, d in claims]
                series.append(seconds(functools.partial(verifier.verify_multiple, evidence)))
                assert all(piece.verified for piece in evidence)
    measure = f"verifying {FILES:,} unchanged files of {size(FILE_BYTES)} again"
    return [at_least(measure, warm.median, cold.median, 20, str(warm), f"{cold}, the first time")]


def _write(file: Path, content: bytes) -> None:
    """A file that was not changed just now, as most are when they are looked at."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    then = time.time() - HOUR
    os.utime(file, (then, then))
