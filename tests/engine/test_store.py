"""Saving, listing, loading, naming, deleting: what a store promises its users."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lastgood
from lastgood import ConflictError, InvalidError, NotFoundError, Store, UnavailableError
from lastgood.catalog.values import Actor, Commit, NewBranch
from lastgood.engine.commit import write_checkpoint
from lastgood.engine.engine import acting
from lastgood.model.checkpoint import Record, encode_record
from lastgood.model.identity import digest, parse_digest
from lastgood.types import Alert


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with lastgood.open(tmp_path / "store", user="ada") as store:
        yield store


def test_nothing_is_written_before_the_first_save(store: Store) -> None:
    task = store.task("t")
    assert task.head is None
    assert store.tasks() == []
    with pytest.raises(NotFoundError, match="no checkpoint yet"):
        _ = task.state


def test_resuming_is_reading_the_heads_state(store: Store) -> None:
    store.task("t").save({"messages": ["hello"]}, message="first")
    task = store.task("t")
    assert task.head is not None
    assert (task.head.message, task.state) == ("first", {"messages": ["hello"]})


def test_a_save_replaces_the_whole_state_and_keeps_what_came_before(store: Store) -> None:
    task = store.task("t")
    first = task.save({"a": 1})
    task.save({"b": 2})
    assert task.state == {"b": 2}
    assert store.find_checkpoint(first.id).state == {"a": 1}


def test_the_saved_object_is_never_the_loaded_one(store: Store) -> None:
    state = {"messages": [{"text": "hello"}]}
    saved = store.task("t").save(state)
    state["messages"].append({"text": "changed afterwards"})
    assert saved.state == {"messages": [{"text": "hello"}]}
    assert saved.state is saved.state


def test_a_record_holds_every_field(store: Store) -> None:
    """A3, D6"""
    with lastgood.correlation("request-7"):
        saved = store.task("t").save(
            {"current_prompt": "p" * 500},
            message="m",
            type="tool_executed",
            step_id="s-1",
            iteration=3,
            iteration_state="layer 2",
            control_state="running",
            work_item_id="w-9",
            metadata={"tokens_in": 10, "cost_usd": 0.5},
            artifacts=[{"id": "a", "name": "prd", "version": 2, "type": "text", "format": "md", "content": "…"}],
            decisions=["go"],
            guidance=["be brief"],
            participants=["ada", "ben"],
        )
    for checkpoint in (saved, store.find_checkpoint(saved.id)):
        assert (checkpoint.type, checkpoint.step_id, checkpoint.iteration) == ("tool_executed", "s-1", 3)
        assert (checkpoint.iteration_state, checkpoint.control_state) == ("layer 2", "running")
        assert (checkpoint.work_item_id, checkpoint.correlation_id) == ("w-9", "request-7")
        assert checkpoint.metadata == {"tokens_in": 10, "cost_usd": 0.5}
        assert checkpoint.prompt_preview == "p" * 200
        assert checkpoint.artifacts[0]["name"] == "prd"
        assert (checkpoint.decisions, checkpoint.guidance) == (["go"], ["be brief"])
        assert checkpoint.participants == ["ada", "ben"]
        assert (checkpoint.has_artifacts, checkpoint.has_guidance) == (True, True)
        assert (checkpoint.sequence, checkpoint.version, checkpoint.lineage) == (1, 1, "automatic")
        assert (checkpoint.checkpoint_id, checkpoint.checkpoint_type) == (checkpoint.id, "tool_executed")
        assert checkpoint.snapshot_data == checkpoint.state
        assert checkpoint.evidence_pack.verification_summary()["total"] == 0
        assert (checkpoint.verified, checkpoint.last_verified_at, checkpoint.status) == (False, None, "stored")


def test_what_stands_beside_the_state_stays_unless_given(store: Store) -> None:
    task = store.task("t")
    task.save({}, artifacts=["a"], guidance=["g"])
    task.save({"n": 1}, guidance=[])
    assert task.head is not None
    assert (task.head.artifacts, task.head.guidance, task.head.has_guidance) == (["a"], [], False)


def test_checkpoints_round_trip_through_dictionaries(store: Store) -> None:
    """D6"""
    saved = store.task("t").save({"n": 1}, message="m", work_item_id="w")
    copy = lastgood.Checkpoint.from_dict(saved.to_dict())
    assert copy.to_dict() == saved.to_dict()
    with pytest.raises(InvalidError, match="not a checkpoint dictionary"):
        lastgood.Checkpoint.from_dict({"checkpoint_id": "x"})


def test_lineage_is_hash_linked(store: Store) -> None:
    """A4"""
    task = store.task("t")
    first, second = task.save({}), task.save({})
    assert second.parent_id == first.id
    assert second.record.parent_checksum == parse_digest(first.checksum)


def test_every_field_of_the_record_is_under_the_checksum(store: Store) -> None:
    """A4: a change of any one field changes the checksum."""
    import msgspec

    record = store.task("t").save({"n": 1}).record
    changed: dict[str, Any] = {"layout": 2, "iteration": 9, "created_at": 1, "metadata": {"x": 1}, "redacted": ("a",)}
    for name in record.__struct_fields__:
        value = changed.get(name, b"x" * 32 if name == "parent_checksum" else "x")
        if name in ("state", "artifacts", "decisions", "guidance", "participants"):
            value = lastgood.model.checkpoint.ValueRef(b"y" * 32, 1)
        if name == "files":
            value = ()
        if name == "evidence":
            value = lastgood.model.checkpoint.Claims(())
        other = msgspec.structs.replace(record, **{name: value})
        assert digest(encode_record(other)) != digest(encode_record(record)), name


def test_reading_metadata_never_touches_the_state(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.task("t").save({"n": 1})

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the state was read")

    monkeypatch.setattr("lastgood.engine.blobs.load_value", refuse)
    for checkpoint in store.list_checkpoints("t"):
        assert checkpoint.message == ""
        assert checkpoint.state_size > 0


# --- who conflicts ---------------------------------------------------------------------------------------------


def test_a_stale_handle_is_refused_and_can_go_on_after_a_refresh(store: Store) -> None:
    one, two = store.task("t"), store.task("t")
    first = one.save({"by": "one"})
    with pytest.raises(ConflictError) as caught:
        two.save({"by": "two"})
    assert caught.value.head.id == first.id
    assert two.refresh() is not None
    two.save({"by": "two", "after": two.state})
    with pytest.raises(ConflictError):
        one.save({"by": "one again"})


def test_appending_never_conflicts(store: Store) -> None:
    one, two = store.task("t"), store.task("t")
    one.append({"n": 1})
    two.append({"n": 2})
    one.append({"n": 3})
    assert [checkpoint.state["n"] for checkpoint in store.list_checkpoints("t")] == [3, 2, 1]


def test_a_key_makes_a_save_idempotent(store: Store) -> None:
    task = store.task("t")
    first = task.save({"n": 1}, key="k")
    task.save({"n": 2})
    again = store.task("t").save({"n": 1}, key="k")
    assert (again.id, store.page_checkpoints("t").total) == (first.id, 2)
    with pytest.raises(ConflictError, match="other content"):
        task.save({"n": 3}, key="k")
    task.save({"n": 4})
    assert task.state == {"n": 4}


def test_a_handle_that_repeats_its_save_goes_on_from_it(store: Store) -> None:
    writer, late = store.task("t"), store.task("t")
    first = writer.save({"n": 1}, key="k")
    assert late.save({"n": 1}, key="k").id == first.id
    late.save({"n": 2})
    assert store.page_checkpoints("t").total == 2


def test_a_branch_id_is_accepted_where_a_task_id_is(store: Store) -> None:
    saved = store.task("t").save({"n": 1})
    assert saved.branch_id is not None
    by_branch = store.task(saved.branch_id)
    by_branch.save({"n": 2})
    assert [c.state["n"] for c in store.list_checkpoints(saved.branch_id)] == [2, 1]
    assert by_branch.head is not None
    assert by_branch.head.task_id == "t"


def test_a_handle_forgets_what_it_saved_when_its_task_was_made_anew(store: Store) -> None:
    """The new task has none of the old one's blobs, even where ids are the same."""
    big = {"messages": [f"message {n} " * 100 for n in range(60)]}
    old = store.task("t")
    old.save(big, id="c1")
    store.delete_task("t")
    store.task("t").save({}, id="c1")
    old.append(big)
    assert store.task("t").state == big


def test_a_repeated_key_does_not_move_a_handle_to_another_branch(store: Store) -> None:
    main = store.task("t")
    first = main.save({"n": 1})
    store._engine.catalog.commit(_branch_from(first), Actor("ada"))
    side = store.task("side")
    main.save({"n": 2}, key="k")
    assert side.save({"n": 2}, key="k").branch_id == first.branch_id
    assert side.save({"n": 3}).branch_id == "side"


def test_what_is_inherited_does_not_count_when_a_key_is_used_again(store: Store) -> None:
    task = store.task("t")
    task.save({}, artifacts=[1])
    saved = task.save({"n": 1}, key="k")
    task.save({}, artifacts=[2], control_state="running")
    assert task.save({"n": 1}, key="k").id == saved.id


@pytest.mark.parametrize(
    "other", [{"metadata": {"x": True}}, {"control_state": "completed"}, {"artifacts": [2]}, {"message": "m"}]
)
def test_what_is_given_counts_when_a_key_is_used_again(store: Store, other: dict[str, Any]) -> None:
    task = store.task("t")
    given = {"metadata": {"x": 1}, "control_state": "running", "artifacts": [1]}
    task.save({"n": 1}, key="k", **given)  # type: ignore[arg-type]
    with pytest.raises(ConflictError):
        task.save({"n": 1}, key="k", **{**given, **other})


def _branch_from(parent: lastgood.Checkpoint) -> Commit:
    record = Record(
        id="on-side", task_id=parent.task_id, parent_id=parent.id, parent_checksum=parse_digest(parent.checksum)
    )
    data = encode_record(record)
    new = NewBranch("side", "side", active=False)
    return Commit(owner="ada", record=record, data=data, checksum=digest(data), branch=new)


# --- naming ------------------------------------------------------------------------------------------------------


def test_checkpoints_are_found_by_any_name(store: Store) -> None:
    task = store.task("t")
    first, second, third = (task.save({"n": n}, id=f"step-{n}-of-three") for n in (1, 2, 3))
    task.tag(second, "green")
    names = {
        "HEAD": third,
        "HEAD~1": second,
        "HEAD~~": first,
        "HEAD~2": first,
        "green": second,
        "green~1": first,
        "@1": first,
        "step-2-of-three": second,
        "step-3": third,
        "step-3~1": second,
    }
    assert {name: task.find(name).id for name in names} == {name: found.id for name, found in names.items()}
    for missing in ("HEAD~3", "@4", "@0", "blue", "zzzz"):
        with pytest.raises(NotFoundError):
            task.find(missing)
    with pytest.raises(InvalidError, match="several"):
        task.find("step-")


def test_a_tag_moves_only_on_purpose(store: Store) -> None:
    task = store.task("t")
    first, second = task.save({}), task.save({})
    task.tag(first, "green")
    with pytest.raises(ConflictError, match="green"):
        task.tag(second, "green")
    task.tag(second, "green", move=True)
    assert store.find_checkpoint(second.id).tags == ("green",)
    assert store.find_checkpoint(first.id).tags == ()


def test_ancestors_are_counted_without_the_copies_that_restore_and_fork_make(store: Store) -> None:
    task = store.task("t")
    first, second, third = (task.save({"n": number}) for number in (1, 2, 3))
    task.restore(second)
    assert task.find("HEAD~1").id == first.id, "the copy stands for what it is a copy of"
    task.restore("HEAD")
    task.save({"n": 4})
    assert [task.find(name).id for name in ("HEAD~1", "HEAD~2")] == [second.id, first.id]
    with pytest.raises(lastgood.NotFoundError, match="further"):
        task.find("HEAD~3")
    forked = task.fork(third)
    assert [forked.find(name).id for name in ("HEAD~1", "@3~1")] == [second.id, second.id]


def test_what_restored_the_files_alone_is_no_copy(store: Store, tmp_path: Path) -> None:
    (folder := tmp_path / "folder").mkdir()
    task = store.task("t", workspace=folder)
    first = task.save({"n": 1})
    (folder / "a").write_text("a")
    second = task.save({"n": 2})
    task.restore(first, "files")
    assert task.find("HEAD~1").id == second.id


@pytest.mark.parametrize("tag", ["HEAD", "@1", "a~1", "a:b", "-x", "", "a\nb", "x" * 300])
def test_a_tag_cannot_be_mistaken_for_another_name(store: Store, tag: str) -> None:
    task = store.task("t")
    saved = task.save({})
    with pytest.raises(InvalidError, match="tag"):
        task.tag(saved, tag)


# --- listing and deleting ----------------------------------------------------------------------------------------


def test_listing_is_newest_first_with_an_exact_total(store: Store) -> None:
    """A10"""
    task = store.task("t")
    made = [task.save({"n": n}, type="hourly" if n % 2 else "manual").id for n in range(7)]
    page = store.page_checkpoints("t", 3)
    assert ([c.id for c in page.checkpoints], page.total) == (made[:3:-1], 7)
    assert all(c.integrity_ok and c.checksum.startswith("sha256:") for c in page.checkpoints)
    rest = store.list_checkpoints("t", 10, before=page.checkpoints[-1].sequence)
    assert [c.id for c in rest] == made[3::-1]
    assert store.page_checkpoints("t", 10, "hourly").total == 3


def test_a_deleted_checkpoint_is_not_listed_and_can_be_taken_back(store: Store) -> None:
    task = store.task("t")
    first = task.save({"n": 1})
    task.save({"n": 2})
    assert store.delete_checkpoint(first.id)
    assert not store.delete_checkpoint(first.id)
    assert store.page_checkpoints("t").total == 1
    assert store.find_checkpoint(first.id).deleted
    store.undelete_checkpoint(first.id)
    assert store.page_checkpoints("t").total == 2
    assert [event.kind for event in store.events("t")] == ["created", "created", "deleted", "undeleted"]


def test_the_active_head_cannot_be_deleted(store: Store) -> None:
    saved = store.task("t").save({})
    with pytest.raises(ConflictError, match="cannot be deleted"):
        store.delete_checkpoint(saved.id)


def test_descendants_of_a_purged_checkpoint_verify_and_load(store: Store) -> None:
    task = store.task("t")
    first, second = task.save({"n": 1}), task.save({"n": 2})
    third = task.save({"n": 3})
    store.purge_checkpoint(second.id)
    assert not store.check_checkpoint(third.id, evidence=False).problems
    assert not store.check_checkpoint(first.id, evidence=False).problems
    assert task.state == {"n": 3}
    with pytest.raises(NotFoundError, match="purged"):
        store.find_checkpoint(second.id)


def test_old_checkpoints_go_and_protected_ones_stay(store: Store) -> None:
    """A14"""
    task = store.task("t")
    made = [task.save({"n": n}) for n in range(10)]
    task.tag(made[0], "keep")
    store._engine.catalog.attest("ada", [made[3].id], "verification", {"verified": True}, acting(store.user))
    assert store.delete_old_checkpoints("t", 2) == 6
    assert [c.state["n"] for c in store.list_checkpoints("t")] == [9, 8, 3, 0]
    assert store.delete_old_checkpoints("t", 0) == 1
    assert [c.state["n"] for c in store.list_checkpoints("t")] == [9, 3, 0]
    with pytest.raises(InvalidError):
        store.delete_old_checkpoints("t", -1)


def test_retention_of_a_branch_spares_its_last_verified(store: Store) -> None:
    """A14"""
    task = store.task("t")
    first = task.save({"n": 1})
    store._engine.catalog.commit(_branch_from(first), Actor("ada"))
    side = store.task("side")
    good = side.save({"n": 2})
    side.save({"n": 3})
    side.save({"n": 4})
    store._engine.catalog.attest("ada", [good.id], "verification", {"verified": True}, acting(store.user))
    store.delete_old_checkpoints("side", 1)
    assert [c.id for c in store.list_checkpoints("side")][1:] == [good.id, first.id]  # first: the active head


def test_one_damaged_record_stops_neither_the_log_nor_its_own_purge(store: Store) -> None:
    task = store.task("t")
    made = [task.save({"n": n}) for n in range(3)]
    damage = "UPDATE checkpoints SET record = x'90' WHERE id = :id"
    store._engine.catalog._write(lambda c: c.run(damage, id=made[1].id))  # type: ignore[attr-defined]
    assert [event.kind for event in store.events("t")] == ["created"] * 3
    assert [c.integrity_ok for c in store.list_checkpoints("t")] == [True, False, True]
    store.purge_checkpoint(made[1].id)
    assert [event.kind for event in store.events("t")] == ["created"] * 3 + ["purged"]


def test_a_deleted_task_is_gone(store: Store) -> None:
    saved = store.task("t").save({})
    assert store.delete_task("t") == 1
    assert store.task("t").head is None
    assert store.get_checkpoint(saved.id) is None
    assert store.list_checkpoints("t") == []


def test_the_last_verified_checkpoint_is_read_from_attestations(store: Store) -> None:
    task = store.task("t")
    first, _ = task.save({}), task.save({})
    assert store.get_last_verified_checkpoint("t") is None
    store._engine.catalog.attest("ada", [first.id], "verification", {"verified": True}, acting(store.user))
    found = store.get_last_verified_checkpoint("t")
    assert found is not None
    assert (found.id, found.verified, found.last_verified_at is not None) == (first.id, True, True)


# --- who acts ----------------------------------------------------------------------------------------------------


def test_another_owners_things_need_the_owners_name(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "s", user="ada") as ada, lastgood.open(tmp_path / "s", user="ben") as ben:
        saved = ada.task("t").save({"by": "ada"})
        assert ben.task("t").head is None
        assert ben.get_checkpoint(saved.id) is None
        assert ben.find_checkpoint(saved.id, owner="ada").state == {"by": "ada"}
        ben.task("t").save({"by": "ben"})
        assert ada.task("t").state == {"by": "ada"}


def test_events_and_log_lines_carry_who_and_why(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A7"""
    task = store.task("t")
    with caplog.at_level(logging.INFO, "lastgood"), lastgood.correlation("c-1"):
        task.save({}, control_state="running")
        task.save({}, control_state="paused", iteration_state="layer 1")
    lines = [record.lastgood for record in caplog.records]  # type: ignore[attr-defined]
    assert [(line["prev_state"], line["new_state"]) for line in lines] == [("idle", "running"), ("running", "paused")]
    assert (
        lines[1].items()
        >= {
            "correlation_id": "c-1",
            "user_id": "ada",
            "task_id": "t",
            "action": "save",
            "iteration_state": "layer 1",
        }.items()
    )
    assert lines[1]["timestamp"] > 0
    assert {(event.actor, event.correlation_id) for event in store.events("t")} == {("ada", "c-1")}


def test_without_a_correlation_a_save_is_its_own(store: Store) -> None:
    saved = store.task("t").save({})
    assert saved.correlation_id == saved.id
    assert store.events("t")[0].correlation_id == saved.id


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_failed_save_is_logged_alerted_and_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A8"""
    alerts: list[Alert] = []
    with lastgood.open(tmp_path / "s", on_alert=alerts.append, on_failure="raise") as store:
        task = store.task("t")
        first = task.save({"n": 1})
        _fail_commits(store)
        with pytest.raises(UnavailableError):
            task.save({"n": 2})
        assert (alerts[0].task_id, type(alerts[0].error)) == ("t", UnavailableError)
        assert "was not saved" in caplog.text
        lost = task.save({"n": 3}, on_failure="continue")
        assert lost.status == "lost"
        with pytest.raises(NotFoundError, match="lost"):
            _ = lost.state
        _mend_commits(store)
        task.save({"n": 4})
        assert [c.state["n"] for c in store.list_checkpoints("t")] == [4, 1]
        assert task.head is not None
        assert task.head.parent_id == first.id


def test_a_conflict_is_raised_in_every_mode(store: Store) -> None:
    stale = store.task("t")
    store.task("t").save({})
    with pytest.raises(ConflictError):
        stale.save({}, on_failure="continue")


def test_a_failed_save_is_not_remembered_as_saved(store: Store) -> None:
    """What a failed save would have written is written by the next one."""
    task = store.task("t")
    messages = [f"message {n} " * 200 for n in range(40)]
    task.save({"messages": messages[:20]})
    _fail_commits(store)
    with pytest.raises(UnavailableError):
        task.save({"messages": messages}, on_failure="raise")
    _mend_commits(store)
    saved = task.save({"messages": messages})
    assert store.check_checkpoint(saved.id, evidence=False).problems == []
    assert store.find_checkpoint(saved.id).state == {"messages": messages}


def _fail_commits(store: Store) -> None:
    def fail(*_: Any) -> Any:
        raise UnavailableError("the disk reported an error; nothing was saved")

    vars(store._engine.catalog)["commit"] = fail


def _mend_commits(store: Store) -> None:
    del vars(store._engine.catalog)["commit"]


# --- memory ------------------------------------------------------------------------------------------------------


def test_only_the_most_recent_checkpoints_stay_in_memory(tmp_path: Path) -> None:
    """A5"""
    alerts: list[Alert] = []
    with lastgood.open(tmp_path / "s") as store:
        made = [store.task("t").save({"n": n, "text": f"{n}" * 600}).id for n in range(5)]
    with lastgood.open(tmp_path / "s", cache_checkpoints=3, cache_alert_bytes=2000, on_alert=alerts.append) as store:
        for name in [*made, made[4]]:
            _ = store.find_checkpoint(name).state
        figures = store._engine.cache.figures()
        assert (figures.entries, figures.hits, figures.misses, figures.evictions) == (3, 1, 5, 2)
        assert 1800 < figures.bytes < 2100
        assert alerts == []
        store.task("t").save({"text": "x" * 900})
        assert "held in memory" in alerts[0].message


def test_a_large_state_is_warned_about_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D6"""
    with lastgood.open(tmp_path / "s", warn_state_bytes=1000) as store:
        task = store.task("t")
        for n in range(3):
            task.save({"text": "x" * 2000, "n": n})
    assert caplog.text.count("keep large content in files") == 1


def test_a_state_beyond_the_bound_is_refused(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "s", max_state_bytes=5000) as store:
        with pytest.raises(lastgood.UnstorableError, match="more than the 5,000 allowed"):
            store.task("t").save({"text": "x" * 6000})
        assert store.tasks() == []


def test_history_costs_what_changed(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = []
    with lastgood.open(tmp_path / "s") as store:
        task = store.task("t")
        for n in range(120):
            messages.append({"role": "user", "content": f"turn {n}: " + " ".join(map(str, range(n, n + 300)))})
            task.save({"messages": messages})
        for checkpoint in store.list_checkpoints("t", 200):
            assert checkpoint.state == {"messages": messages[: checkpoint.sequence]}
            assert store.check_checkpoint(checkpoint.id, evidence=False).problems == []
    # Whole states would be 8 MB; the conversation itself is 0.14 MB.
    assert (tmp_path / "s" / "catalog.sqlite").stat().st_size < 500_000


def test_a_checkpoint_that_somebody_holds_says_that_it_was_purged(store: Store) -> None:
    """G9: gone is not damaged."""
    task = store.task("t")
    task.save({"n": 1})
    task.save({"n": 2})
    held = store.list_checkpoints("t")[1]
    store.purge_checkpoint(held.id)
    with pytest.raises(NotFoundError, match="was purged"):
        _ = held.state


def test_what_was_just_saved_is_read_from_memory(tmp_path: Path) -> None:
    """A5: it is the most recent; what brings no value takes nobody's place."""
    with lastgood.open(tmp_path / "s", cache_checkpoints=2) as store:
        task = store.task("t")
        first = task.save({"n": 1})
        second = task.save({"n": 2})
        for _ in range(5):
            with task.step("look"):
                pass
        assert store._engine.cache.figures().entries == 2
        assert [first.state["n"], second.state["n"]] == [1, 2]
        assert (store._engine.cache.figures().hits, store._engine.cache.figures().misses) == (2, 0)
        task.save({"n": 3})
        assert store.find_checkpoint(first.id).state == {"n": 1}
        assert store._engine.cache.figures().misses == 1


def test_appending_takes_whatever_the_head_is_while_others_keep_moving_it(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 5: nothing is merged, nothing is lost, and nobody is held back."""
    (tmp_path / "work").mkdir()
    task, other = store.task("t"), store.task("t", workspace=tmp_path / "work")
    task.save({"n": 0}, guidance=["be brief"])
    moves = iter(range(3))

    def write(*about: Any, **how: Any) -> Any:
        if about[2].message == "mine" and (number := next(moves, None)) is not None:
            other.refresh()
            other.save({"by": "another", "n": number}, guidance=["be brief", f"and {number}"])
        return write_checkpoint(*about, **how)

    monkeypatch.setattr("lastgood.engine.save.write_checkpoint", write)
    mine = task.append({"by": "me"}, message="mine")
    assert [one.message for one in store.list_checkpoints("t")] == ["mine", "", "", "", ""]
    assert (mine.parent_id, mine.sequence) == (store.list_checkpoints("t")[1].id, 5)
    assert (mine.state, mine.guidance) == ({"by": "me"}, ["be brief", "and 2"])
    head = other.head
    assert head is not None
    assert mine.record.files == head.record.files  # as in any save without a workspace
    assert store.check_checkpoint(mine.id).intact
    assert task.save({"by": "me", "again": True}).parent_id == mine.id
