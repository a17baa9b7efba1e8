"""Whether a damaged store keeps its promise: what it says is right or refused, and only what is damaged is refused."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.faults.ledger import tree_digest
from tests.faults.sample_store import DERIVED, Questions, Range, Truth, is_refusal, open_copy, read_truth

import lastgood
from lastgood.opening import check_at

MEMORY = 1 << 30
"""More than anything here may need: who asks for more gets a MemoryError, which is no refusal."""


def give_verdict(folder: str, state: str, ranges: list[Range], repair: bool, save: bool) -> list[str]:
    """Return what is wrong with the store `folder/store`, which was changed within `ranges`, a sentence each."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    here = Path(folder)
    truth = read_truth(here, state)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        found = list(_find_violations(here / "store", truth, ranges, Path(scratch)))
        if save:
            found += _save(here / "store", here / "work", Path(scratch))
        if repair:
            found += [f"after a repair: {one}" for one in _repair(here / "store", truth, Path(scratch))]
    return found


def _find_violations(path: Path, truth: Truth, ranges: list[Range], scratch: Path) -> Iterator[str]:
    """Ask everything, then check the store: every refusal must have its reason in the damage."""
    refused: dict[str, Exception] = {}
    wrong: dict[str, str] = {}
    try:
        with open_copy(path) as store:
            _ask(Questions(store, scratch), truth, truth.answers, refused, wrong)
    except Exception as error:
        refused["open"] = error
    try:
        report = check_at(path, read_data=True)
    except Exception as error:
        if not is_refusal(error):
            yield f"a check raises {error!r}"
        findings = [repr(error)]
    else:
        findings = [finding.code for finding in report.findings]
    yield from (how for question, how in wrong.items() if not (findings and question.split("\t")[0] in DERIVED))
    for question, why in refused.items():
        if not is_refusal(why):
            yield f"{question!r} raises {why!r} (caused by {why.__cause__!r})"
        elif isinstance(why, lastgood.NotFoundError) and not findings:
            yield f"{question!r} says that it is not there, and a check finds nothing: {why}"
        elif not _is_affected(truth.touched[question] + truth.touched["open"], ranges):
            yield f"{question!r} is refused, and reads nothing that is damaged: {why!r}"


def _ask(
    asking: Questions, truth: Truth, questions: Iterable[str], refused: dict[str, Exception], wrong: dict[str, str]
) -> None:
    for question in questions:
        try:
            said = asking.ask(question)
        except Exception as error:
            refused[question] = error
        else:
            if said != truth.answers[question]:
                wrong[question] = f"{question!r} is answered wrongly: {said!r} instead of {truth.answers[question]!r}"


def _is_affected(touched: list[Range], ranges: list[Range]) -> bool:
    return any(
        file == damaged and start < to and from_ < end for file, start, end in touched for damaged, from_, to in ranges
    )


def _save(path: Path, work: Path, scratch: Path) -> Iterator[str]:
    """Save what is on disk, and read it back."""
    try:
        with open_copy(path) as store:
            task = store.task("packs", workspace=work)
            task.copy_files(task.save({"again": 1}), scratch / "saved")
    except Exception as error:
        yield f"a save raises {error!r}"
        return
    if tree_digest(scratch / "saved") != tree_digest(work):
        yield "what was saved is not what lies on disk"


def _repair(path: Path, truth: Truth, scratch: Path) -> Iterator[str]:
    """Repair the store: what it keeps is right, and it says what it has lost."""
    try:
        with open_copy(path) as store:
            report = store.repair(accept_loss=True)
    except Exception as error:
        if not is_refusal(error):
            yield f"it raises {error!r} (caused by {error.__cause__!r})"
        return
    refused: dict[str, Exception] = {}
    wrong: dict[str, str] = {}
    kept = [question for question in truth.answers if question.startswith(("checkpoint", "files", "copied"))]
    with open_copy(path) as store:
        _ask(Questions(store, scratch), truth, kept, refused, wrong)
        again = store.check(read_data=True)
        told = {(finding.code, finding.name) for finding in report.lost}
        yield from (f"{one.sentence}, which was not said" for one in again.findings if (one.code, one.name) not in told)
    yield from wrong.values()
    for question, why in refused.items():
        if not is_refusal(why) or not (report.lost or report.mended or report.accepted):
            yield f"{question!r} raises {why!r}"
    shutil.rmtree(scratch / "saved", ignore_errors=True)
