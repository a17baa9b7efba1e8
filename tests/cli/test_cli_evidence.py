"""verify, last-good, show, log, status and history, where there is evidence."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers import OK, serving

import lastgood

Run = Callable[..., Any]


@pytest.fixture
def report(run: Run, three: Path) -> Path:
    """On top of three checkpoints without evidence one that says that report.txt is as it is."""
    file = three / "report.txt"
    file.write_text("all good")
    run("run-step", "report", "--expect-file", "report.txt", "--", "true")
    return file


def test_verify_says_of_each_which_it_is(run: Run, data: Run, report: Path) -> None:
    """Verified is: at least one piece of evidence, and it holds. No evidence is neither good nor bad."""
    run("run-step", "tests", "--", "false", code=1)
    said = data("verify", "--all", code=9)
    assert {name: said[name] for name in ("examined", "verified", "unverified", "intact", "damaged")} == {
        "examined": 5,
        "verified": 1,
        "unverified": 3,
        "intact": 0,
        "damaged": [],
    }
    assert [(one["sequence"], one["evidence"][0]["status"]) for one in said["failed"]] == [(5, "failed")]
    lines = [line for line in run("verify", "--all", code=9).stdout.splitlines() if "@" in line]
    assert [line.partition(": ")[2] for line in lines] == [
        *["unverified (no evidence)"] * 3,
        "verified",
        "NOT verified",
    ]
    assert run("verify", "--all", code=9).stdout.endswith("5 checkpoints: 1 verified, 3 unverified, 1 NOT verified\n")


def test_verify_checks_evidence_as_the_world_is_now_and_records_it(run: Run, data: Run, report: Path) -> None:
    assert run("verify").stdout.splitlines()[1:] == [
        "  ok: `true` exited 0",
        "  ok: report.txt is as it was",
    ]
    report.write_text("changed")
    shown = run("verify", code=9).stdout
    assert ": NOT verified\n" in shown
    assert "  FAILED: report.txt is as it was: mismatch: " in shown
    assert data("log")["checkpoints"][0]["verification"] == "failed"
    assert data("history", "--kind", "verified")["entries"][0]["data"] == {"verified": False}


def test_verify_looks_at_deleted_checkpoints_and_tombstones_too(run: Run, data: Run, report: Path) -> None:
    run("save", "--set", "n=5")
    run("rm", "@4", "@1")
    run("rm", "--purge", "--yes", "@2")
    said = data("verify", "--all")
    assert {name: said[name] for name in ("examined", "verified", "unverified", "intact")} == {
        "examined": 5,
        "verified": 1,
        "unverified": 3,
        "intact": 1,
    }


def test_verify_can_leave_evidence_alone(run: Run, data: Run, report: Path) -> None:
    report.unlink()
    said = data("verify", "--bytes-only")
    assert (said["intact"], said["verified"], said["failed"]) == (1, 0, [])
    assert run("verify", "--bytes-only").stdout.endswith(": intact\n")
    assert data("log")["checkpoints"][0]["verification"] == "verified"


def test_the_last_good_checkpoint_is_found_and_one_without_evidence_if_asked(run: Run, data: Run, report: Path) -> None:
    """D9: the latest earlier checkpoint that verifies when the newest does not."""
    run("save", "--set", "n=9")
    assert data("last-good", "--any")["checkpoint"]["sequence"] == 5
    assert data("last-good")["checkpoint"]["sequence"] == 4
    assert data("last-good", "--type", "manual")["checkpoint"]["sequence"] == 5
    assert "it is unverified" in run("last-good", "--any").stderr
    run("run-step", "tests", "--", "false", code=1)
    assert run("last-good").stdout == "@4\n"
    assert data("show", "last-good")["sequence"] == 4
    assert data("diff", "last-good", "HEAD")["before"] == data("show", "@4")["id"]
    assert "last-good stands alone" in run("show", "last-good~1", code=2).stderr
    assert "not HEAD or last-good" in run("tag", "last-good", "@1", code=2).stderr
    assert "restored @4 as @7" in run("restore", "last-good").stdout


def test_restore_alone_offers_the_last_good_checkpoint(
    run: Run, data: Run, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("save", "--set", "n=9")
    run("run-step", "tests", "--", "false", code=1)
    refused = run("restore", code=2)
    assert "hint: `lastgood restore last-good`" in refused.stderr
    assert data("log")["checkpoints"][0]["sequence"] == 6
    monkeypatch.setattr("lastgood.cli.restore.can_ask", lambda: True)
    assert "restore @4? [y/N]" in run("restore", input="n\n", code=1).stderr
    assert data("log")["checkpoints"][0]["sequence"] == 6
    offered = run("restore", input="y\n")
    assert offered.stderr.startswith("@4 ")
    assert "the state would change in 1 place" in offered.stderr
    assert "restored @4 as @7" in offered.stdout


def test_restore_does_not_offer_what_would_change_nothing(
    run: Run, data: Run, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastgood.cli.restore.can_ask", lambda: True)
    said = run("restore").stderr
    assert "nothing would change: everything is already as in @4\n" in said
    assert "?" not in said.splitlines()[-1]
    assert "nothing would change" in run("restore", "HEAD", "--dry-run").stderr
    assert data("log")["checkpoints"][0]["sequence"] == 4


def test_no_last_good_checkpoint_is_exit_code_3(run: Run, report: Path) -> None:
    report.unlink()
    run("show", "last-good", code=3)
    result = run("last-good", code=3)
    assert "no checkpoint of 'work' is whole, with evidence that holds" in result.stderr
    assert "--any" in result.stderr
    run("last-good", "--task", "nothing", code=3)


def test_show_says_what_each_piece_of_evidence_gave(run: Run, report: Path) -> None:
    shown = run("show").stdout
    assert "evidence     ok: `true` exited 0\n" in shown
    assert "\nverified     yes, " in shown
    report.unlink()
    run("verify", code=9)
    shown = run("show").stdout
    assert "             FAILED: report.txt is as it was: " in shown
    assert "\nverified     NO, " in shown
    assert "unverified: it has no evidence" in run("show", "@1").stdout


def test_show_says_when_evidence_was_never_checked(run: Run, folder: Path) -> None:
    claim = lastgood.Evidence("artifact_exists", "a is there", {"path": "a"})
    pack = lastgood.EvidencePack([claim, claim], require_all=False, min_verified=1)
    with lastgood.open(auto_verify=False) as store:
        store.task("work").save(1, evidence=pack)
    shown = run("show").stdout
    assert "verified     not checked yet\n" in shown
    assert "evidence     not checked: a is there\n" in shown
    assert "             1 of 2 must hold\n" in shown


def test_the_log_marks_what_is_verified_what_failed_and_what_has_no_evidence(run: Run, report: Path) -> None:
    run("run-step", "tests", "--", "false", code=1)
    marks = [line[2:].split()[1] for line in run("log").stdout.splitlines()]
    assert marks == ["x", "v", "?", "?", "?"]


def test_evidence_that_can_no_longer_be_checked_is_unverified(run: Run, data: Run, folder: Path) -> None:
    claim = lastgood.Evidence(
        "command_exit", "ran", {"exit_code": 0, "token": "ghp_" + "a" * 36}, {"actual_exit_code": 0}
    )
    with lastgood.open() as store:
        store.task("work").save(1, evidence=lastgood.EvidencePack([claim]))
    assert "unverified (its evidence cannot be checked)\n  stale: " in run("verify").stdout
    assert data("verify")["unverified"] == 1
    assert data("log")["checkpoints"][0]["verification"] == "unverified"
    assert "it cannot be said any more" in run("show").stdout


@pytest.fixture
def listening(folder: Path) -> Iterator[int]:
    """A port of this machine that takes connections, which the newest checkpoint of the task `work` says."""
    with serving(OK) as server:
        claim = lastgood.Evidence("network_reachable", "it answers", {"host": "127.0.0.1", "port": server.port})
        with lastgood.open(network="any") as store:
            store.task("work").save({"n": 1})
            store.task("work").save({"n": 2}, evidence=lastgood.EvidencePack([claim]))
        yield server.port


def test_what_the_command_line_may_not_look_at_is_not_marked_as_failed(run: Run, data: Run, listening: int) -> None:
    """Evidence about this machine, saved by a program that was allowed to look."""
    unsaid = "cannot be said here: it answers (127.0.0.1 leads to an address that is not public; "
    found = run("last-good", "--any")
    assert found.stdout == "@1\n"
    assert unsaid in found.stderr
    assert unsaid in run("last-good", code=3).stderr
    assert unsaid in run("status").stdout
    assert "it answers (127.0.0.1 leads to an address that is not public" in run("fork", "HEAD", code=9).stderr
    assert "unverified (its evidence cannot be checked)\n  not checked: it answers: 127.0.0.1" in run("verify").stdout
    said = data("verify", "--all")
    assert (said["unverified"], said["failed"]) == (2, [])
    assert [(one["sequence"], one["evidence"][0]["status"]) for one in said["undecided"]] == [(2, "pending")]
    assert data("log")["checkpoints"][0]["verification"] == "verified"
    assert data("history", "--kind", "verified")["entries"] == []
    with lastgood.open(network="any") as store:
        assert store.get_last_verified_checkpoint("work") is not None


def test_a_person_lets_the_command_line_look_at_this_machine(
    run: Run, data: Run, listening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reason for which it was not looked at says."""
    assert "on the command line LASTGOOD_NETWORK=any)" in run("last-good", code=3).stderr
    monkeypatch.setenv("LASTGOOD_NETWORK", "any")
    assert run("last-good").stdout == "@2\n"
    assert ": verified\n" in run("verify").stdout
    run("restore", "HEAD")
    monkeypatch.setenv("LASTGOOD_NETWORK", "off")
    assert "evidence makes no connections here" in run("verify", "@2").stdout


def test_a_folder_cannot_let_the_command_line_look_there(run: Run, folder: Path) -> None:
    (folder / "lastgood.toml").write_text('network = "any"\n')
    assert "unknown key 'network' in lastgood.toml" in run("last-good", code=2).stderr


def test_the_library_does_not_ask_the_environment(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_NETWORK", "any")
    with lastgood.open() as store:
        assert store.last_good("work") is None


def test_a_variable_with_another_value_is_refused_in_words(
    run: Run, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_NETWORK", "private")
    for command in ("last-good", "tasks"):
        said = "LASTGOOD_NETWORK: network cannot be 'private'\nhint: one of public, any,"
        assert said in run(command, code=2).stderr
    monkeypatch.setenv("LASTGOOD_NETWORK", "")
    run("last-good")


def test_show_says_that_evidence_was_refused_when_it_was_saved(run: Run, data: Run, folder: Path) -> None:
    claim = lastgood.Evidence("network_reachable", "it answers", {"host": "127.0.0.1", "port": 1})
    with lastgood.open() as store:
        store.task("work").save({}, evidence=lastgood.EvidencePack([claim]))
    shown = run("show").stdout
    assert "\nverified     not checked yet\n" in shown
    assert "\nevidence     not checked: it answers: 127.0.0.1 leads to an address that is not public" in shown
    assert " it could not be said\n" in shown
    assert data("log")["checkpoints"][0]["verification"] == "unverified"


def test_status_tells_the_branch_the_last_good_one_and_what_to_do(run: Run, data: Run, report: Path) -> None:
    run("run-step", "tests", "--", "false", code=1)
    said = data("status")
    assert (said["branch"]["name"], said["branches"], said["head"]["sequence"]) == ("main", 1, 5)
    assert said["lastGood"] == data("show", "@4")["id"]
    assert "`lastgood restore @4`" in said["advice"][0]
    shown = run("status").stdout
    assert "\nbranch       main\n" in shown
    assert "\nlast good    @4 " in shown
    run("restore", "@4")
    assert "(one of 2)\n" in run("status").stdout


def test_status_works_where_the_head_is_damaged(run: Run, data: Run, three: Path) -> None:
    """A16: what was found is said, whatever it is."""
    sql = "UPDATE checkpoints SET record = CAST(record || x'00' AS BLOB) WHERE number & 4294967295 = 3"
    with lastgood.open(three / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(lambda connection: connection.execute(sql))
    said = data("status")
    assert said["head"]["integrityOk"] is False
    assert said["lastGood"] == data("show", "@2")["id"]
    assert "(damaged)" in run("status").stdout


def test_history_tells_all_that_happened_in_one_order(run: Run, data: Run, report: Path) -> None:
    """A17: one ordered, filterable view. E6: who, when, what."""
    run("run-step", "s", "--", "no-such-command", code=127)
    run("tag", "green", "@4")
    run("verify", "@4")
    run("restore", "@2", "-m", "better")
    run("undo")
    run("redo")
    run("fork", "@1", "--name", "b")
    run("branch", "--switch", "b")
    run("branch", "--switch", "main")
    run("branch", "--delete", "b", "--yes")
    run("rm", "@1")
    entries = data("history", "-n", "100")["entries"]
    assert [one["sequence"] for one in entries] == list(range(len(entries), 0, -1))
    lines = run("history", "-n", "100").stdout.splitlines()[1:]
    told = [tuple(re.split("  +", line, maxsplit=4)[2:]) for line in lines]
    name = next(one["name"] for one in data("branch")["branches"] if one["originSequence"] == 2)
    by_kind = {kind: about for kind, _, about in told}
    assert by_kind["step_failed"].startswith("s: the command 'no-such-command' cannot be started")
    assert by_kind["tagged"] == "@4 green"
    assert by_kind["undone"] == "back on main"
    assert by_kind["redone"] == f"again on {name}"
    assert by_kind["branch_deleted"] == "b"
    assert by_kind["created"] == "@1 ? manual number 1"
    by = entries[0]["actor"]
    assert ("verified", by, "@4 verified") in told
    assert ("restored", by, f"back to @2, on {name}") in told
    assert ("restored", by, "forked @1, on b") in told
    assert ("switched", by, "to main") in told


def test_history_is_narrowed_by_kind_type_time_and_number(run: Run, data: Run, report: Path) -> None:
    run("tag", "green", "@4")
    run("tag", "blue", "@3")

    def found(*options: str) -> list[tuple[str, int]]:
        return [(one["kind"], one["sequence"]) for one in data("history", *options)["entries"]]

    assert found("--kind", "tagged", "-n", "1") == [("tagged", 6)]
    assert found("--kind", "tagged", "--before", "6") == [("tagged", 5)]
    assert found("--type", "step") == [("created", 4)]
    assert len(found("--kind", "tagged", "--kind", "created")) == 6
    assert len(found("--since", "1h")) == 6
    later = dt.datetime.now() + dt.timedelta(days=1)  # noqa: DTZ005 - local time, as people type it
    assert found("--since", later.isoformat(timespec="minutes")) == []
    assert "`lastgood history -n 1 --before 6`" in run("history", "-n", "1").stderr
    for since in ("yesterday", "999999w", "0001-01-01"):
        assert "is not a moment" in run("history", "--since", since, code=2).stderr
    run("history", "--kind", "nothing", code=2)


def test_a_damaged_checkpoint_stays_in_the_history(run: Run, data: Run, three: Path) -> None:
    sql = "UPDATE checkpoints SET record = CAST(record || x'00' AS BLOB) WHERE number & 4294967295 = 2"
    with lastgood.open(three / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(lambda connection: connection.execute(sql))
    assert run("history").stdout.splitlines()[2].endswith("@2 (damaged)")
    assert data("history")["entries"][1]["data"] == {"damaged": True}


def test_hostile_messages_and_reasons_cannot_steer_the_terminal(run: Run, three: Path) -> None:
    run("save", "--set", "n=4", "-m", "x\x1b[2J\u202e")
    run("run-step", "s", "--", "x\x1b[2J\u202e", code=127)
    for command in (["history"], ["history", "--json"]):
        assert not set(run(*command).stdout) & set("\x1b\u202e")
    error = json.loads(run("--json", "run-step", "s", "--", "x\x1b", code=127).stderr)["error"]
    assert error["hint"]


def test_a_copy_of_a_failed_checkpoint_is_shown_as_failed(run: Run, data: Run, report: Path) -> None:
    """First use 5: what was saved again after failed tests, and what is restored in spite of them."""
    run("run-step", "tests", "--", "false", code=1)
    run("save", "--always", "--set", "n=3", "-m", "wip")
    run("restore", "@5", "--override-evidence")
    listed = data("log", "--all")["checkpoints"]
    assert {one["sequence"]: one["verification"] for one in listed}[6] == "failed"
    failed = next(one for one in listed if one["sequence"] == 5)
    assert [one["inheritedFrom"] for one in listed if one["sequence"] in (6, 7)] == [failed["id"]] * 2
    marks = [line[2:].split()[1] for line in run("log", "--all").stdout.splitlines()]
    assert marks == ["(x)", "(x)", "x", "v", "?", "?", "?"]
    assert f"NO, by @5 {failed['id']}, which has the same state and files" in run("show", "@6").stdout
    assert "which has the same state and files" in run("verify", "@6", code=9).stdout
    assert run("last-good").stdout == "@4\n"
    assert run("last-good", "--any").stdout == "@4\n"
    drawn = run("branch").stdout
    assert "@7 (x) " in drawn
    assert "@5 x   " in drawn


def test_history_marks_what_is_inherited(run: Run, report: Path) -> None:
    """First use 5"""
    run("save", "--always", "--set", "n=3", "-m", "the same")
    assert "@5 (v) manual the same" in run("history").stdout
