"""What somebody who writes a program with the library meets first: errors, names, values, handles."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import ConflictError, LeaseError, NotFoundError, Store, Task, aio, errors
from lastgood.cli.failure import in_commands

SOURCES = Path(lastgood.__file__).parent


@pytest.fixture
def store() -> Store:
    return lastgood.open(":memory:")


# --- errors ------------------------------------------------------------------------------------------------


def test_a_traceback_ends_with_the_hint(store: Store) -> None:
    """First use, the library: hints reach people"""
    with pytest.raises(NotFoundError) as refused:
        store.task("new").state  # noqa: B018
    assert refused.value.__notes__ == [f"hint: {refused.value.hint}"]
    assert traceback.format_exception(refused.value)[-1] == f"hint: {refused.value.hint}\n"
    for same in (copy.copy(refused.value), pickle.loads(pickle.dumps(refused.value))):
        assert (same.hint, same.__notes__) == (refused.value.hint, refused.value.__notes__)
    assert not hasattr(errors.InvalidError("no"), "__notes__")


def test_a_conflict_shows_the_call_that_met_it_and_no_internals(store: Store) -> None:
    mine, theirs = store.task("t"), store.task("t")
    mine.save({"n": 1})
    theirs.refresh()
    theirs.save({"n": 2})
    before = mine.head
    assert before is not None
    step = mine.step("edit")

    def commit() -> None:
        step.begin()
        step.state = {"n": 4}
        store.task("t").save({"n": 5})
        step.commit()

    for conflicts in (lambda: mine.save({"n": 3}), lambda: mine.restore(before), lambda: mine.undo(), commit):
        with pytest.raises(ConflictError) as refused:
            conflicts()
        shown = traceback.extract_tb(refused.value.__traceback__)
        assert sum(str(SOURCES) in frame.filename for frame in shown) <= 2, shown
        assert refused.value.__context__ is None or refused.value.__suppress_context__
    with store.task("t").session(signals=False), pytest.raises(LeaseError) as held, store.task("t").session():
        pass
    assert len(traceback.extract_tb(held.value.__traceback__)) == 2


def test_hints_of_the_library_name_calls_and_the_command_line_names_commands(store: Store) -> None:
    """A hint names a command only where no call does that: a file is trusted by hand, by who has read it."""
    commands = {
        line.strip()
        for source in SOURCES.rglob("*.py")
        if source.relative_to(SOURCES).parts[0] not in ("cli", "views")
        for line in source.read_text().splitlines()
        if re.search(r"`lastgood \w| --[a-z]", line) and "hint" in line and "lastgood trust" not in line
    }
    assert commands == set()
    store.task("book").save({})
    with pytest.raises(NotFoundError) as refused:
        store.history("bok")
    assert refused.value.hint == "there is one task: store.task('book')"
    assert in_commands(refused.value.hint) == "there is one task: --task book"


# --- parameters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        *(lastgood.open, Store.history, Store.task),
        *(Task.session, Task.step, Task.history, Task.save, Task.append, Task.fork, Task.restore),
        *(aio.open, aio.Store.history, aio.Task.session, aio.Task.step, aio.Task.history, aio.Task.append),
    ],
    ids=lambda call: f"{call.__module__}.{call.__qualname__}",
)
def test_parameters_are_spelled_out_with_their_types(call: object) -> None:
    """First use, the library"""
    parameters = inspect.signature(call).parameters  # type: ignore[arg-type]
    assert not [one for one in parameters.values() if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    assert [name for name, one in parameters.items() if one.annotation is one.empty] in ([], ["self"])


def test_open_takes_every_option() -> None:
    given = set(inspect.signature(lastgood.open).parameters) - {"target", "user"}
    assert given == set(lastgood.types.Options.__struct_fields__)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        lastgood.open(":memory:", colour="blue")  # type: ignore[call-arg]


def test_a_history_is_narrowed_down_by_lists(store: Store) -> None:
    store.task("t").save({})
    assert [entry.kind for entry in store.task("t").history(kinds={"created"})] == ["created"]
    for wrong in ("created", iter(["created"])):
        with pytest.raises(lastgood.InvalidError, match="kinds is not a list"):
            store.history("t", kinds=wrong)  # type: ignore[arg-type]


# --- values ------------------------------------------------------------------------------------------------


def test_times_are_datetimes(store: Store) -> None:
    """First use, the library"""
    task = store.task("t")
    saved = task.save({})
    store.tag(saved.id, "first")
    step = task.step("edit").begin()
    opened = step.as_open()
    step.fail("enough")
    with task.session(signals=False):
        lease, request = task.control.lease, task.control.guide("shorter").request
    assert lease is not None
    assert request is not None
    made: list[Any] = [*store.tasks(), *task.branches(), saved, store.info()]
    happened: list[Any] = [*store.events("t"), *task.history(), *saved.attestations, request]
    found = [
        *(one.created_at for one in made),
        *(one.at for one in happened),
        *(opened.began_at, lease.acquired_at, lease.expires_at),
    ]
    assert {type(at) for at in found} == {datetime}
    assert {at.tzinfo for at in found} == {UTC}


def test_a_list_is_a_table_with_a_row_for_each_of_it(store: Store) -> None:
    task = store.task("t")
    for message in ("one", "<i>two"):
        task.save({}, message=message)
    shown: Any = store.list_checkpoints("t")
    assert shown._repr_html_().count("<tr>") == 2
    assert "&lt;i&gt;two" in shown._repr_html_()
    assert shown == list(shown)


def test_reprs_say_what_a_thing_is_and_are_safe_with_any_text(store: Store) -> None:
    """First use, the library"""
    task = store.task("<b>t")
    assert repr(task) == "<Task '<b>t' at nothing yet>"
    saved = task.save({}, message="<script>\x1b[31m" + "x" * 1000)
    (branch,) = task.branches()
    claim = lastgood.Evidence("artifact_exists", "\x1b there" * 100, {"path": "x"})
    with task.session(signals=False) as session:
        things = [store, task, saved, branch, claim, session, task.step("edit")]
        shown = [repr(thing) for thing in [*things, task.restore(saved)]]
    assert shown[0] == f"<Store ':memory:' as {store.user!r}>"
    assert shown[2].startswith("<Checkpoint @1 manual of '<b>t' '<script>\\x1b[31mxxx")
    assert all(text.isprintable() and len(text) < 250 for text in shown), shown
    lists: list[Any] = [store.list_checkpoints("<b>t"), task.history(), store.history("<b>t")]
    lists += [task.branches(), store.branches("<b>t"), task.diff(saved, "HEAD")]
    for thing in (task, saved, *lists):
        assert thing._repr_html_().startswith("<table>")
        assert "<script>" not in thing._repr_html_()
        assert "<b>" not in thing._repr_html_()


# --- going on ----------------------------------------------------------------------------------------------


def test_a_program_finds_its_default_where_files_alone_were_saved(store: Store) -> None:
    """First use: `lastgood init` has saved the folder before the program runs."""
    task = store.task("work")
    task.save({}, message="files alone")
    assert task.load(default={"done": []}) == {"done": []}
    assert task.load() == {}
    task.save({"done": [1]})
    assert task.load(default={"done": []}) == {"done": [1]}


def test_a_program_that_is_run_twice_goes_on(store: Store) -> None:
    """First use, the library; A1"""
    for run in range(2):
        task = store.task("work")
        memory = task.load(default={"n": 0})
        with task.session(state=lambda memory=memory: memory, signals=False) as session:  # type: ignore[misc]
            said = session.message(f"message {run}")
            assert [one.text for one in session.new_guidance()] == (["while away"] if run else [])
            store.task("work").control.guide("shorter")
            session.boundary()
            (new,) = session.new_guidance()
            assert (new.text, new.by, type(new.at)) == ("shorter", store.user, datetime)
            assert session.new_guidance() == []
            memory["n"] += 1
            session.save()
        assert (said.type, said.message) == ("user_message", f"message {run}")
        store.task("work").control.guide("while away")
    assert store.task("work").load() == {"n": 2}


def test_the_code_of_the_readme_runs_twice_in_the_same_folder(tmp_path: Path) -> None:
    text = (SOURCES.parents[1] / "README.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_a_function_can_be_a_step(store: Store) -> None:
    """First use, the library"""
    task = store.task("t")

    @task.step("double", message="twice")
    def double(n: int) -> int:
        if n < 0:
            raise ValueError("too small")
        return 2 * n

    assert (double(2), double(3)) == (4, 6)
    with pytest.raises(ValueError, match="too small"):
        double(-1)
    assert [(one.step_id, one.message) for one in store.list_checkpoints("t")] == [("double", "twice")] * 2
    assert task.history(kinds=["step_failed"])

    async def later() -> None: ...

    with pytest.raises(lastgood.InvalidError, match="coroutine"):
        task.step("later")(later)


def test_the_asyncio_forms_of_steps_streams_and_rolling_back(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 100_000)

    async def work() -> None:
        async with aio.open(tmp_path / "store") as store:
            task = await store.task("t", workspace=tmp_path)

            @task.step("double")
            async def double(n: int) -> int:
                return 2 * n

            assert await double(2) == 4
            assert task.head is not None
            assert task.head.step_id == "double"
            pieces = [piece async for piece in store.stream_file(task.head.id, "big")]
            assert b"".join(pieces) == b"x" * 100_000
            with pytest.raises(lastgood.EvidenceError):
                await task.roll_back(task.head)

    asyncio.run(work())


def test_the_asyncio_form_of_a_save_on_an_older_checkpoint(tmp_path: Path) -> None:
    async def work() -> tuple[str | None, str]:
        async with aio.open(tmp_path / "store") as store:
            task = await store.task("t")
            first = await task.save({"n": 1})
            await task.save({"n": 2})
            made = await task.save({"n": 3}, parent=first)  # type: ignore[arg-type]
            return made.parent_id, first.id

    parent, first = asyncio.run(work())
    assert parent == first


def test_a_warning_about_plain_data_points_at_the_caller(store: Store) -> None:
    @dataclass
    class Unregistered:
        x: int

    with pytest.warns(lastgood.PlainDataWarning) as caught:
        store.task("t").save({"at": Unregistered(1)})
    assert caught[0].filename == __file__


def test_what_cannot_be_kept_is_a_failure_of_persistence(store: Store) -> None:
    """A19"""
    with pytest.raises(lastgood.UnstorableError) as refused:
        store.task("t").save({"it": object()})
    assert (refused.value.category, errors.NotFoundError.category) == ("persistence", "request")


# --- files and the store's own log -------------------------------------------------------------------------


def test_the_content_of_a_file_that_is_not_there_is_none(tmp_path: Path) -> None:
    """B5. Where nobody knows, it is an error: a file that was left out, a checkpoint that is not there."""
    (tmp_path / "work" / "folder").mkdir(parents=True)
    (tmp_path / "work" / "a.txt").write_bytes(b"one")
    (tmp_path / "work" / ".env").write_bytes(b"SECRET=1")
    with lastgood.open(tmp_path / "store") as store:
        saved = store.task("work", workspace=tmp_path / "work").save({})
        assert store.read_file(saved.id, "a.txt") == b"one"
        for path in ("b.txt", "folder", "folder/b.txt", "a.txt/b"):
            assert store.read_file(saved.id, path) is None
            with pytest.raises(NotFoundError, match="there is no"):
                store.stream_file(saved.id, path)
        with pytest.raises(NotFoundError, match="left out"):
            store.read_file(saved.id, ".env")
        with pytest.raises(NotFoundError):
            store.read_file("nothing", "a.txt")


def test_the_stores_own_log_tells_of_deleted_tasks(store: Store) -> None:
    """E9"""
    store.task("gone").save({})
    assert store.events() == []
    store.delete_task("gone")
    (event,) = store.events()
    assert (event.kind, event.actor, event.data["task_id"]) == ("task_deleted", store.user, "gone")
    assert store.events(after=event.sequence) == []
