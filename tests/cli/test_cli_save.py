"""save: what it takes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lastgood

Run = Callable[..., Any]


def state_of(run: Run, name: str = "HEAD") -> Any:
    return json.loads(run("show", name, "--state", "--json").stdout)


def test_save_reads_the_state_from_stdin(run: Run) -> None:
    run("save", "--state", "-", input='{"a": [1, 2.5, null, "ü"]}')
    assert state_of(run) == {"a": [1, 2.5, None, "ü"]}


def test_save_reads_the_state_from_a_file_and_keeps_every_field(run: Run, data: Run, folder: Path) -> None:
    (folder / "state.json").write_text('\ufeff{"a": 1}')
    options = ["-m", "why", "--type", "tool_executed", "--step", "s1", "--key", "k", "--metadata", '{"model": "m"}']
    saved = data("save", "--state", "state.json", *options)["checkpoint"]
    wanted = {"description": "why", "type": "tool_executed", "stepId": "s1", "key": "k", "metadata": {"model": "m"}}
    assert {name: saved[name] for name in wanted} == wanted


def test_set_changes_keys_of_the_heads_state_and_keeps_the_rest(run: Run) -> None:
    run("save", "--set", "a=1", "--set", 'b="x=y"')
    run("save", "--set", "a=[true]")
    assert state_of(run) == {"a": [True], "b": "x=y"}


def test_set_stands_on_top_of_a_given_state(run: Run) -> None:
    run("save", "--state", "-", "--set", "b=2", input='{"a": 1, "b": 1}')
    assert state_of(run) == {"a": 1, "b": 2}


def test_set_needs_a_state_with_keys(run: Run) -> None:
    run("save", "--state", "-", input="[1]")
    assert "the state is list" in run("save", "--set", "a=1", code=2).stderr


def test_the_same_key_and_content_are_stored_once_and_other_content_conflicts(run: Run, data: Run) -> None:
    first = data("save", "--set", "a=1", "--key", "k")["checkpoint"]["id"]
    assert data("save", "--set", "a=1", "--key", "k")["checkpoint"]["id"] == first
    run("save", "--set", "a=2", "--key", "k", code=4)
    assert data("log")["total"] == 1


def test_append_lists_and_redacted_values_are_read_back_as_what_they_were(run: Run, folder: Path) -> None:
    text = '{"m": {"$appendList": [1, {"$appendList": []}]}, "t": {"$redacted": true}, "b": {"$bytes": "AA=="}}'
    run("save", "--state", "-", input=text)
    run("save", "--set", 'u={"$redacted": true}')
    with lastgood.open() as store:
        state = store.task("work").state
    assert (type(state["m"]), type(state["m"][1])) == (lastgood.AppendList, lastgood.AppendList)
    assert state["t"] is state["u"] is lastgood.types.Redacted()
    assert state["b"] == {"$bytes": "AA=="}
    run("save", "--state", "-", input=run("show", "--state").stdout.replace("$map", "m"))


@pytest.mark.parametrize("text", ['{"$appendList": 1}', '{"$appendList": [], "a": 1}', '{"$redacted": false}'])
def test_what_only_looks_like_a_tagged_form_is_kept_as_the_object_it_is(run: Run, folder: Path, text: str) -> None:
    run("save", "--state", "-", input=text)
    with lastgood.open() as store:
        assert store.task("work").state == json.loads(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "state is empty"),
        (b" \n", "state is empty"),
        (b"{", "state is not JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b"1e999", "too large"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' stands there twice"),
        (b'"\xff"', "state is not UTF-8: byte 1"),
        ('"a"'.encode("utf-16"), "state is not UTF-8"),
        (b"[" * 100_000, "state is nested too deeply"),
        (b"9" * 5000, "too many digits"),
        (b"[" * 300 + b"]" * 300, "deeper than 255"),
    ],
)
def test_bad_input_is_named_and_nothing_is_stored(run: Run, text: bytes, problem: str) -> None:
    assert problem in run("save", "--state", "-", input=text, code=2).stderr
    run("log", code=3)


def test_input_beyond_the_bound_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lastgood.types, "Options", lambda: type("Small", (), {"max_state_bytes": 10}))
    assert "longer than 10 bytes" in run("save", "--state", "-", input='"12345678901"', code=2).stderr
    run("save", "--state", "-", input='"12345678"')


def test_lone_surrogates_and_big_numbers_are_kept_exactly(run: Run) -> None:
    run("save", "--state", "-", input='{"s": "\\ud800", "n": 123456789012345678901234567890}')
    assert state_of(run) == {"s": {"$surrogates": "7aCA"}, "n": {"$int": hex(123456789012345678901234567890)}}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "nothing to save"),
        (["--set", "a"], "--set takes KEY=VALUE"),
        (["--set", "=1"], "--set takes KEY=VALUE"),
        (["--set", "a={b"], "--set a is not JSON"),
        (["--set", "a="], "--set a is empty"),
        (["--state", "missing.json"], "missing.json cannot be read"),
        (["--state", "."], ". cannot be read"),
        (["--set", "a=1", "--metadata", "[1]"], "metadata is list"),
        (["--set", "a=1", "--metadata", "{"], "metadata is not JSON"),
        (["--set", "a=1", "--type", "Not Snake"], "type is not snake_case"),
        (["--set", "a=1", "--step", ""], "step_id is empty"),
        (["--set", "a=1", "--key", "a\nb"], "key has a line break"),
        (["--set", "a=1", "--task", ""], "task id is empty"),
        (["--set", "a=1", "--user", ""], "user is empty"),
        (["--set", "a=1", "--owner", ""], "owner is empty"),
        (["--set", "a=1", "--message", "x" * (1 << 20) + "y"], "message is longer"),
        (["--set", "a=1", "--store", "redis://x"], "no backend for redis"),
        (["--set", "a=1", "--store", ""], "path is empty"),
    ],
)
def test_bad_options_are_named(run: Run, arguments: list[str], problem: str) -> None:
    result = run("save", *arguments, code=2)
    assert problem in result.stderr
    assert "hint:" in result.stderr or "not list" in result.stderr or "metadata is list" in result.stderr
    assert result.stdout == ""


def test_sets_of_many_processes_are_all_kept(run: Run, folder: Path) -> None:
    run("init")
    command = [sys.executable, "-m", "lastgood.cli.main", "save", "--set"]
    writers = [subprocess.Popen([*command, f"k{n}={n}"], stdout=subprocess.DEVNULL) for n in range(6)]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 6
    assert state_of(run) == {f"k{n}": n for n in range(6)}


def test_a_large_state_is_saved_with_a_note(run: Run) -> None:
    result = run("save", "--state", "-", input=json.dumps("x" * (1 << 20)))
    assert "keep large content in files" in result.stderr


def test_a_save_where_nothing_has_changed_says_so_and_makes_nothing(run: Run, data: Run, folder: Path) -> None:
    """First use: the command line."""
    (folder / "a.txt").write_text("a")
    run("init")
    said = run("save", "-m", "again")
    assert said.stdout == "nothing has changed since @1: nothing was saved (--always saves anyway)\n"
    assert data("save")["saved"] is False
    assert data("save", "--always")["checkpoint"]["sequence"] == 2
    run("save", "--set", "n=1")
    run("save", "--set", "n=1")
    run("save", "--state", "-", input='{"n": 1}')
    assert data("log")["total"] == 3
    assert data("save", "--set", "n=true")["saved"] is True
    (folder / "a.txt").write_text("b")
    assert data("save", "--set", "n=true")["saved"] is True
    assert data("save", "--key", "k")["saved"] is True
    assert data("log")["total"] == 6


def test_save_where_nothing_is_set_up_suggests_init(run: Run, folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    refused = run("save", code=2)
    assert "hint: `lastgood init` sets this folder up" in refused.stderr
    run("tasks", code=3)


def test_quiet_leaves_remarks_out_and_keeps_results_and_errors(run: Run, folder: Path) -> None:
    (folder / ".env").write_text("TOKEN=1")
    (folder / "a.txt").write_text("a")
    run("-q", "init")
    (folder / "a.txt").write_text("b")
    saved = run("save", "--quiet")
    assert (saved.stdout[:6], saved.stderr) == ("saved ", "")
    assert run("-q", "restore", "@1").stderr == ""
    assert "error: there is no checkpoint '@9'" in run("restore", "@9", "-q", code=3).stderr


def test_set_takes_text_where_it_is_not_json(run: Run, data: Run, folder: Path) -> None:
    settings = ["status=done", "n=3", "when=2026-11-18", 'quoted="3"', "flag=true", "v=1.2.3"]
    run("save", *(part for setting in settings for part in ("--set", setting)))
    shown = json.loads(run("show", "--state").stdout)
    assert shown == {
        "status": "done", "n": 3, "when": "2026-11-18", "quoted": "3", "flag": True, "v": "1.2.3",
    }  # fmt: skip
    for mistake in ('a={"b"', "a=[1", 'a="b', "a=NaN", "a=1e999", "a="):
        run("save", "--set", mistake, code=2)


def test_a_save_after_a_restore_from_elsewhere_makes_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First use: evidence is named from another folder there, and the files are the same."""
    (folder / "a.txt").write_text("a")
    run("init", "--here", "--task", "t")
    (folder / "a.txt").write_text("b")
    run("save")
    monkeypatch.chdir(folder.parent)
    run("--store", str(folder / ".lastgood"), "--task", "t", "restore", "@1")
    assert (folder / "a.txt").read_text() == "a"
    monkeypatch.chdir(folder)
    assert "nothing was saved" in run("save").stdout
