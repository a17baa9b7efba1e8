"""log, show, diff, tag, rm, verify."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

import lastgood
from lastgood.cli import failure, log

Run = Callable[..., Any]

HOSTILE = "a\x1b[31mb\x9b2Jc\u202ed\x07\x7f\r\nsecond"


def sequences(said: Any) -> list[int]:
    return [one["sequence"] for one in said["checkpoints"]]


def test_log_lists_newest_first_with_the_head_marked_and_the_exact_total(data: Run, three: Path) -> None:
    said = data("log", "-n", "2")
    assert sequences(said) == [3, 2]
    assert [one["head"] for one in said["checkpoints"]] == [True, False]
    assert said["total"] == 3


def test_log_goes_on_before_a_sequence_and_filters_by_type(run: Run, data: Run, three: Path) -> None:
    run("save", "--set", "n=4", "--type", "idle")
    assert sequences(data("log", "--before", "3")) == [2, 1]
    said = data("log", "--type", "manual")
    assert (sequences(said), said["total"]) == ([3, 2, 1], 3)
    assert data("log", "--type", "paused") == {"checkpoints": [], "total": 0, "older": None}


def test_log_for_people_has_a_marker_tags_and_one_line_each(run: Run, data: Run, three: Path) -> None:
    run("tag", "green", "@2")
    lines = run("log").stdout.splitlines()
    assert lines[0].startswith("* @3 ")
    assert lines[1].endswith("[green] number 2")
    assert len(lines) == 3
    assert not [line for line in lines if len(line.partition("number")[0]) > 40], "the message has half of the width"
    assert data("show", "@3")["id"][:18] in run("log", "-v").stdout


@pytest.mark.parametrize("command", [["log"], ["show"], ["status"], ["log", "--json"], ["show", "--json"]])
def test_a_hostile_message_cannot_steer_the_terminal(run: Run, folder: Path, command: list[str]) -> None:
    run("save", "--set", "n=1", "-m", HOSTILE)
    shown = run(*command).stdout
    assert "\\x1b" in shown or "\\u001b" in shown
    assert not set(shown) & set("\x1b\x9b\x07\x7f\u202e\r")


def test_a_hostile_state_cannot_steer_the_terminal(run: Run, folder: Path) -> None:
    run("save", "--state", "-", input=json.dumps({"k\x9b": HOSTILE, "$k": 1}))
    run("save", "--state", "-", input=json.dumps({"k\x9b": "\x1b]0;x\x07"}))
    for command in (["show", "--state"], ["show"], ["diff"], ["diff", "--json"]):
        assert not set(run(*command).stdout) & set("\x1b\x9b\x07\x7f\u202e\r")
    assert json.loads(run("show", "--state").stdout) == {"k\x9b": "\x1b]0;x\x07"}


def test_show_knows_every_name_of_a_checkpoint(run: Run, data: Run, three: Path) -> None:
    run("tag", "green", "HEAD~1")
    two = data("show", "@2")["id"]
    for name in ("green", "HEAD~1", "HEAD~", two, two[:30]):
        assert data("show", name)["id"] == two
    assert data("show", "green~1")["sequence"] == 1
    run("show", "HEAD~3", code=3)
    run("show", "01", code=3)
    run("show", two[:4], code=2)
    run("show", "", code=2)


def test_show_tells_what_was_said_later(run: Run, data: Run, three: Path) -> None:
    run("tag", "green", "HEAD")
    said = data("show")
    assert said["tags"] == ["green"]
    assert [one["kind"] for one in said["attestations"]] == ["tag"]
    assert said["evidence"]["evidenceList"] == []
    assert "number 3" in run("show").stdout


def test_values_that_json_does_not_have_are_shown_tagged(run: Run, folder: Path) -> None:
    values = {
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"a"),
        "tuple": (1, (2,)),
        "set": {2, 1},
        "frozenset": frozenset(["a"]),
        "floats": [float("nan"), float("inf"), float("-inf"), -0.0],
        "ints": [2**64 - 1, -(2**63), 2**64],
        "decimal": Decimal("1.50"),
        "uuid": uuid.UUID(int=1),
        "datetime": dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "date": dt.date(2024, 1, 2),
        "time": dt.time(1, 2),
        "timedelta": dt.timedelta(days=-1, microseconds=5),
        "complex": 1 + 2j,
        "surrogates": "\udc80",
        "append": lastgood.AppendList([1, lastgood.AppendList(["x"])]),
        "redacted": lastgood.types.Redacted(),
        "map": {1: "a", (2,): "b"},
        "dollar": {"$bytes": "not bytes"},
    }
    with lastgood.open(folder / "s") as store:
        store.task("work").save(values)
    shown = json.loads(run("show", "--state", "--store", "s").stdout)
    assert shown == {
        "bytes": {"$bytes": "AP8="},
        "bytearray": {"$bytearray": "YQ=="},
        "tuple": {"$tuple": [1, {"$tuple": [2]}]},
        "set": {"$set": [1, 2]},
        "frozenset": {"$frozenset": ["a"]},
        "floats": [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}, -0.0],
        "ints": [2**64 - 1, -(2**63), {"$int": "0x10000000000000000"}],
        "decimal": {"$decimal": "1.50"},
        "uuid": {"$uuid": "00000000-0000-0000-0000-000000000001"},
        "datetime": {"$datetime": "2024-01-02T03:04:05+00:00"},
        "date": {"$date": "2024-01-02"},
        "time": {"$time": "01:02:00"},
        "timedelta": {"$timedelta": [-1, 0, 5]},
        "complex": {"$complex": [1.0, 2.0]},
        "surrogates": {"$surrogates": "7bKA"},
        "append": {"$appendList": [1, {"$appendList": ["x"]}]},
        "redacted": {"$redacted": True},
        "map": {"$map": [[1, "a"], [{"$tuple": [2]}, "b"]]},
        "dollar": {"$map": [["$bytes", "not bytes"]]},
    }


def test_diff_compares_the_last_two_states_unless_told_otherwise(run: Run, data: Run, three: Path) -> None:
    assert data("diff")["changes"] == [{"kind": "changed", "path": ["n"], "text": "n", "before": 2, "after": 3}]
    assert data("diff", "@1", "@2")["changes"][0]["before"] == 1
    assert data("diff", "@1")["changes"][0]["after"] == 3
    assert run("diff").stdout == "- n: 2\n+ n: 3\n"
    assert "are the same" in run("diff", "HEAD", "HEAD").stderr


def test_diff_words_paths_for_people(run: Run, folder: Path) -> None:
    run("save", "--state", "-", input='{"m": [{"role": "a"}], "x y": 1}')
    run("save", "--state", "-", input='{"m": [{"role": "b"}, 5]}')
    assert run("diff").stdout.splitlines() == ['- m[0].role: "a"', '+ m[0].role: "b"', "+ m[1]: 5", '- ["x y"]: 1']


def test_tags_are_given_listed_moved_and_deleted(run: Run, data: Run, three: Path) -> None:
    run("tag", "green", "@1")
    assert "--move" in run("tag", "green", "@2", code=4).stderr
    run("tag", "green", "@2", "--move")
    assert [(one["tag"], one["sequence"]) for one in data("tag")["tags"]] == [("green", 2)]
    assert data("tag", "--delete", "green")["action"] == "deleted"
    assert data("tag") == {"tags": []}
    run("tag", "--delete", "green", code=3)


@pytest.mark.parametrize("arguments", [["HEAD"], ["--delete", "a", "HEAD", "b"], ["--delete", "a", "--move"]])
def test_tag_refuses_half_a_request(run: Run, three: Path, arguments: list[str]) -> None:
    run("tag", *arguments, code=2)


@pytest.mark.parametrize("tag", ["HEAD", "@1", "a~1", "", "a\nb"])
def test_a_tag_that_could_be_mistaken_is_refused(run: Run, three: Path, tag: str) -> None:
    run("tag", tag, "HEAD", code=2)


def test_rm_hides_and_undo_brings_back(run: Run, data: Run, three: Path) -> None:
    assert [one["changed"] for one in data("rm", "@1", "@2")["checkpoints"]] == [True, True]
    assert sequences(data("log")) == [3]
    assert "was deleted already" in run("rm", "@1").stderr
    run("rm", "--undo", "@1")
    assert sequences(data("log")) == [3, 1]
    assert "is not deleted" in run("rm", "--undo", "@1").stderr


def test_rm_refuses_the_head_and_unknown_names_before_anything_is_removed(run: Run, data: Run, three: Path) -> None:
    run("rm", "@1", "HEAD", code=4)
    run("rm", "@1", "nothing", code=3)
    assert data("log")["total"] == 3


def test_purge_needs_a_yes_where_nobody_can_be_asked(run: Run, data: Run, three: Path) -> None:
    assert "--yes" in run("rm", "--purge", "@1", code=2).stderr
    assert data("log")["total"] == 3
    assert data("rm", "--purge", "--yes", "@1")["checkpoints"][0]["action"] == "purged"
    run("show", "@1", code=3)
    said = data("verify", "--all")
    assert (said["examined"], said["damaged"], said["intact"]) == (3, [], 1)


def test_on_a_terminal_purge_asks(run: Run, data: Run, three: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(click, "confirm", lambda *_, **__: next(answers))
    monkeypatch.setattr(failure, "can_ask", lambda: True)
    assert "nothing was changed" in run("rm", "--purge", "@1", code=1).stderr
    assert data("log")["total"] == 3
    run("rm", "--purge", "@1")
    assert data("log")["total"] == 2


def test_a_whole_task_is_removed_when_asked_twice(run: Run, data: Run, three: Path) -> None:
    run("rm", "--whole-task", "work", code=2)
    assert data("rm", "--whole-task", "work", "--yes") == {"taskId": "work", "checkpoints": 3}
    run("log", code=3)
    run("rm", "--whole-task", "work", "--yes", code=3)


@pytest.mark.parametrize("arguments", [[], ["--yes"], ["@1", "--whole-task", "work"], ["@1", "--purge", "--undo"]])
def test_rm_refuses_a_muddled_request(run: Run, three: Path, arguments: list[str]) -> None:
    run("rm", *arguments, code=2)


def damage(three: Path, *sequences: int) -> None:
    """Spoil records as a failing disk would, behind the checksums of the pages."""
    sql = "UPDATE checkpoints SET record = CAST(record || x'00' AS BLOB) WHERE number & 4294967295 = ?"
    with lastgood.open(three / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(lambda connection: connection.executemany(sql, [(sequence,) for sequence in sequences]))


def test_verify_says_what_is_damaged_and_goes_on(run: Run, data: Run, three: Path) -> None:
    assert data("verify")["damaged"] == []
    damage(three, 2)
    said = data("verify", "--all", code=5)
    assert (said["examined"], [one["sequence"] for one in said["damaged"]]) == (3, [2])
    assert said["damaged"][0]["problems"] == ["its record does not match its checksum"]
    assert "@2" in run("verify", "@2", code=5).stdout
    run("verify", "@3")
    assert [one["sequence"] for one in data("verify", "--all", "--bytes-only", code=5)["damaged"]] == [2]
    run("verify", "@3", "--all", code=2)


def test_a_damaged_record_is_listed_as_such_and_refused_as_data(run: Run, data: Run, three: Path) -> None:
    damage(three, 1)
    assert "(damaged)" in run("log").stdout
    assert [one["integrityOk"] for one in data("log")["checkpoints"]] == [True, True, False]
    for command in (["show", "@1"], ["show", "@1", "--state"], ["diff", "@1", "@2"]):
        result = run(*command, code=5)
        assert result.stdout == ""
        assert "is damaged" in result.stderr


def test_show_gives_the_record_when_only_the_state_is_damaged(run: Run, three: Path) -> None:
    with lastgood.open(three / ".lastgood") as store:
        catalog: Any = store._engine.catalog
        catalog._write(lambda connection: connection.execute("UPDATE checkpoints SET root = zeroblob(length(root))"))
    result = run("show", code=5)
    assert "number 3" in result.stdout
    assert "cannot be loaded" in result.stderr


def test_verify_all_looks_at_every_task_or_the_one_that_is_named(run: Run, data: Run, three: Path) -> None:
    run("save", "--set", "a=1", "--task", "other", "--user", "ann")
    assert data("verify", "--all")["examined"] == 4
    assert data("verify", "--all", "--task", "work")["examined"] == 3
    assert data("verify", "--all", "--owner", "ann")["examined"] == 1


def test_history_of_the_whole_store_tells_of_deleted_tasks(run: Run, data: Run, three: Path) -> None:
    """E9: no task is left that could tell of it."""
    with lastgood.open(three / ".lastgood") as store:
        store.task("\u202egone").save({})
        store.delete_task("\u202egone")
    (entry,) = data("history", "--whole-store")["entries"]
    assert (entry["kind"], entry["data"]["task_id"]) == ("task_deleted", "\u202egone")
    told = run("history", "--whole-store").stdout
    assert "task_deleted" in told
    assert "\u202e" not in told
    assert data("history", "--whole-store", "--before", str(entry["sequence"])) == {"entries": []}


def test_log_lists_those_in_which_a_path_changed(run: Run, folder: Path) -> None:
    def listed(*words: str) -> list[int]:
        return sequences(json.loads(run("log", "--json", *words).stdout))

    (folder / "src").mkdir()
    (folder / "src/a.py").write_text("1")
    (folder / "b.txt").write_text("1")
    run("init")
    (folder / "src/a.py").write_text("2")
    run("save")
    (folder / "b.txt").write_text("2")
    run("save")
    (folder / "src/a.py").rename(folder / "src/c.py")
    run("save")
    run("save", "--set", "n=1")
    assert listed("--", "src/a.py") == [4, 2, 1]
    assert listed("--", "src/c.py") == [4]
    assert listed("--", "src") == [4, 2, 1]
    assert listed("--", "*.txt", "src/c.py") == [4, 3, 1]
    assert listed("--", "nothing") == []
    assert listed("-n", "1", "--", "b.txt") == [3]
    older = run("log", "-n", "1", "--", "b.txt").stderr
    assert "`lastgood log -n 1 --before 3 -- b.txt`" in older
    assert listed("-n", "1", "--before", "3", "--", "b.txt") == [1]


def test_log_of_paths_compares_so_many_at_most(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PAGE", 2)
    monkeypatch.setattr(log, "MOST_PAGES", 2)
    (folder / "a.txt").write_text("1")
    run("init")
    for number in range(5):
        run("save", "--set", f"n={number}")
    found = json.loads(run("log", "--json", "--", "a.txt").stdout)
    assert (found["checkpoints"], found["older"]) == ([], 3)
    assert "`lastgood log --before 3 -- a.txt`" in run("log", "--", "a.txt").stderr
    assert sequences(json.loads(run("log", "--json", "--before", "3", "--", "a.txt").stdout)) == [1]


def test_log_of_paths_lists_what_cannot_be_compared(run: Run, folder: Path) -> None:
    (folder / "a.txt").write_text("1")
    run("init")
    (folder / "b.txt").write_text("1")
    run("save")
    damage(folder, 1)
    assert [one[:6].split() for one in run("log", "--", "a.txt").stdout.splitlines()] == [["*", "@2"], ["@1"]]


def test_older_entries_are_offered_only_where_there_are_some(run: Run, data: Run, three: Path) -> None:
    count = len(data("history")["entries"])
    assert "Older" not in run("history", "-n", str(count)).stderr
    assert "Older" in run("history", "-n", str(count - 1)).stderr


def test_the_log_of_a_path_that_never_was_says_so(run: Run, folder: Path) -> None:
    (folder / "app.py").write_text("1")
    run("init")
    assert run("log", "--", "app.py").stdout
    failed = run("log", "--", "ap.py", code=3).stderr
    assert "there is no 'ap.py' in @1" in failed
    assert "did you mean app.py?" in failed
    (folder / "app.py").unlink()
    run("save")
    assert len(run("log", "--", "app.py").stdout.splitlines()) == 2


def test_a_restored_checkpoint_that_has_a_tag_still_says_from_which(run: Run, three: Path) -> None:
    run("restore", "@1")
    run("tag", "green", "HEAD")
    assert run("log", "-n", "2").stdout.splitlines()[0].endswith("restored  [green] from @1")
