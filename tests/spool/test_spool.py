"""When the store is away: checkpoints are spooled, seen, and brought into the store when it is back (C10, A8, B8)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.disks import small_disk
from tests.support.outages import ask_nobody, full, gone, locked, numbers, open_store, spool_of

import lastgood
from lastgood import ConflictError, DiskFullError, IntegrityError, InvalidError, UnavailableError
from lastgood.catalog.sqlite import connection
from lastgood.cli.invocation import Invocation
from lastgood.spool.entries import Entries
from lastgood.spool.replay import Replayed, replay_moved
from lastgood.types import Alert

LARGE = [f"message {number} " * 30 for number in range(300)]


@pytest.fixture
def alerts() -> list[Alert]:
    return []


@pytest.fixture
def store(tmp_path: Path, alerts: list[Alert]) -> Iterator[lastgood.Store]:
    with open_store(tmp_path / "store", on_alert=alerts.append) as opened:
        yield opened


# --- saving --------------------------------------------------------------------------------------------------------


def test_a_store_whose_folder_is_gone_spools_and_is_told_of_it_in_order(
    store: lastgood.Store, tmp_path: Path, alerts: list[Alert]
) -> None:
    """C10, A8: the work goes on, one alert is raised, nothing is lost, ids and checksums stay."""
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        saved = [task.save({"n": number, "large": LARGE[:number]}) for number in range(1, 20)]
        assert repr(task) == "<Task 't' at spooled>"
        assert task.find("HEAD").id == saved[-1].id
    assert {checkpoint.status for checkpoint in saved} == {"spooled"}
    assert {checkpoint.sequence for checkpoint in saved} == {None}
    assert [alert.message for alert in alerts] == [
        "the store is not there; until the store takes them checkpoints are kept in the spool"
    ]
    assert store.replay().stored == 19
    assert numbers(store) == list(range(20))
    for before in saved:
        now = store.find_checkpoint(before.id)
        assert (now.checksum, now.state, now.status) == (before.checksum, before.state, "stored")
    assert store.check(read_data=True).ok
    assert store.spool_figures().depth == store.spool_figures().bytes == 0


def test_a_database_that_another_program_holds_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B8: tried once more, then spooled; the next ones do not try."""
    monkeypatch.setattr(connection, "BUSY_MS", 50)
    with open_store(tmp_path / "store") as store:
        task = store.task("t")
        task.save({"n": 0})
        tried: list[int] = []
        commit = store._engine.catalog.commit

        def commit_and_count(*about: Any) -> Any:
            tried.append(1)
            return commit(*about)

        with locked(tmp_path / "store" / "catalog.sqlite"), monkeypatch.context() as patch:
            patch.setattr(store._engine.catalog, "commit", commit_and_count)
            assert [task.save({"n": number}).status for number in (1, 2, 3)] == ["spooled"] * 3
            assert tried == [1, 1]
            assert task.refresh() is not None
            assert task.state == {"n": 3}
            with pytest.raises(lastgood.BusyError):
                store.replay()
        assert task.save({"n": 4}).status == "spooled"
        assert store.replay().stored == 4
        assert task.save({"n": 5}).status == "stored"
        assert numbers(store) == [0, 1, 2, 3, 4, 5]


def test_on_a_full_disk_the_spool_has_room_that_was_reserved(tmp_path: Path) -> None:
    """C10, B7: store and spool lie on one disk, on which not a byte is free."""
    with small_disk(tmp_path / "disk", "24m") as disk, open_store(disk / "store", spool=disk / "spool") as store:
        task = store.task("t")
        task.save({"n": 0})
        with full(disk):
            saved = [task.save({"n": number, "large": LARGE[: 3 * number]}) for number in range(1, 60)]
            assert {checkpoint.status for checkpoint in saved} <= {"stored", "spooled"}
            assert saved[-1].status == "spooled"
            assert store.find_checkpoint(saved[-1].id).state == {"n": 59, "large": LARGE[:177]}
        assert store.replay().left == 0
        assert numbers(store) == list(range(60))
        assert store.check(read_data=True).ok


def test_on_a_full_disk_room_can_be_made_though_much_waits_in_the_spool(tmp_path: Path) -> None:
    """C10, G9: a replay took what room there was, and then nothing could be deleted."""
    spool, disk_of = tmp_path / "spool", tmp_path / "disk"
    with small_disk(disk_of, "2m") as disk:
        with open_store(disk / "store", spool=spool) as store, _ballast(disk, 400 << 10):
            task = store.task("t")
            saved = [task.save({"n": number, "large": os.urandom(9000)}) for number in range(60)]
            assert saved[-1].status == "spooled"
        stored = [checkpoint for checkpoint in saved if checkpoint.status == "stored"]
        with open_store(disk / "store", spool=spool) as store:
            assert store.delete_checkpoint(stored[0].id)
            with pytest.raises(lastgood.UnavailableError, match="full"):
                store.delete_checkpoint(saved[-2].id)
            assert store.collect(grace=0).purged == 1
        with open_store(disk / "store", spool=spool) as store:
            assert store.find_checkpoint(saved[-1].id).state["n"] == 59


@contextmanager
def _ballast(disk: Path, size: int) -> Iterator[None]:
    """Something else takes so many bytes of the disk."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(size))
    try:
        yield
    finally:
        ballast.unlink()


def test_a_full_disk_without_a_reserve_is_said_so(tmp_path: Path) -> None:
    """Honest when there is no room: the save raises, and nothing is half there."""
    with small_disk(tmp_path / "disk", "2m") as disk, open_store(disk / "store", spool=disk / "spool") as store:
        spool_of(store)._has_room = True  # as if the disk had filled up before anybody looked
        task = store.task("t")
        task.save({"n": 0})
        with full(disk):
            with pytest.raises(DiskFullError):
                task.save({"n": 1, "large": LARGE})
            assert task.save({"n": 1, "large": LARGE}, on_failure="continue").status == "lost"
            assert task.state == {"n": 0}
        store.replay()
        assert task.save({"n": 2}).status == "stored"
        assert numbers(store) == [0, 2]


def test_what_fails_for_another_reason_is_not_spooled(store: lastgood.Store, tmp_path: Path) -> None:
    """Conflicts and what cannot be stored raise, also while the store is away."""
    task, stale = store.task("t"), store.task("t")
    task.save({"n": 0})
    with pytest.raises(ConflictError):
        stale.save({"n": 1})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
        with pytest.raises(lastgood.UnstorableError):
            task.save({"n": object()})
        with pytest.raises(InvalidError):
            task.save({"n": 2}, type="no type")
        with pytest.raises(UnavailableError):
            task.save({"n": 2}, on_failure="raise")
    assert store.replay().stored == 1


def test_a_strict_store_has_no_spool(tmp_path: Path) -> None:
    """A8: strict mode raises."""
    with lastgood.open(tmp_path / "store", on_failure="raise") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"), pytest.raises(UnavailableError):
            task.save({"n": 1})
        assert (store._spool(), store.spool_figures().depth, store.replay().stored) == (None, 0, 0)


def test_a_closed_store_spools_nothing(store: lastgood.Store) -> None:
    task = store.task("t")
    task.save({"n": 0})
    store.close()
    with pytest.raises(UnavailableError, match="closed"):
        task.save({"n": 1})


def test_a_spool_that_is_full_says_so_before_and_then(tmp_path: Path, alerts: list[Alert]) -> None:
    """Bounded by size, with a loud alert before the bound."""
    noise = [os.urandom(20_000) for _ in range(60)]
    with open_store(tmp_path / "store", on_alert=alerts.append, spool_bytes=600_000) as store:
        task = store.task("t")
        task.save({"n": 0})
        kept = 0
        with gone(tmp_path / "store"):
            while task.save({"n": kept + 1, "noise": noise[kept]}, on_failure="continue").status == "spooled":
                kept += 1
            with pytest.raises(DiskFullError, match="the spool is full"):
                task.save({"n": kept + 1, "noise": noise[kept]})
            assert task.save({"n": 99, "noise": noise[-1]}, on_failure="continue").status == "lost"
        told = [alert.message for alert in alerts]
        nearly = [index for index, message in enumerate(told) if "nearly full" in message]
        assert len(nearly) == 1
        assert nearly[0] < next(index for index, message in enumerate(told) if "was not saved" in message)
        assert 10 <= kept < 30
        assert store.replay().stored == kept
        assert numbers(store) == list(range(kept + 1))


def test_without_a_folder_the_spool_is_in_memory_and_says_so(tmp_path: Path, alerts: list[Alert]) -> None:
    """C10: with no spool directory, in memory, said plainly."""
    with open_store(tmp_path / "store", on_alert=alerts.append, spool=None) as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            task.save({"n": 1})
            assert "in memory alone" in alerts[0].message
            assert not store.spool_figures().durable
        assert store.replay().stored == 1
        with gone(tmp_path / "store"):
            task.save({"n": 2})
            store.close()
    assert alerts[-1].message == "1 checkpoint(s) were in memory alone and are gone: the store is not there"


def test_where_no_folder_can_be_made_the_spool_is_in_memory_too(tmp_path: Path, alerts: list[Alert]) -> None:
    (tmp_path / "file").touch()
    with open_store(tmp_path / "store", on_alert=alerts.append, spool=tmp_path / "file" / "spool") as store:
        task = store.task("t")
        task.save({"n": 0})
        with gone(tmp_path / "store"):
            assert task.save({"n": 1}).status == "spooled"
            assert task.state == {"n": 1}
        assert "in memory alone" in alerts[0].message
        assert store.replay().stored == 1
        assert numbers(store) == [0, 1]


def test_the_spool_is_private_and_never_inside_the_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="inside the store"):
        lastgood.open(tmp_path / "store", spool=tmp_path / "store" / "spool")
    with open_store(tmp_path / "store", spool=tmp_path / "spool") as store:
        task = store.task("t")
        task.save({})
        assert not (tmp_path / "spool").exists()  # nothing is made that nobody needs
        with gone(tmp_path / "store"):
            task.save({})
        folder = spool_of(store).folder
        assert folder is not None
        assert folder.parent == tmp_path / "spool"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


# --- reading -------------------------------------------------------------------------------------------------------


def test_reads_see_what_is_spooled(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        saved = task.save({"n": 1, "large": LARGE}, message="away", metadata={"a": 1})
        assert task.head is not None
        assert (task.head.id, task.state["n"]) == (saved.id, 1)
        assert task.refresh().id == saved.id  # type: ignore[union-attr]
        assert store.find_checkpoint(saved.id).state == {"n": 1, "large": LARGE}
        assert store.find_checkpoint(saved.id).status == "spooled"
        assert store.find_checkpoint(saved.id[:20]).message == "away"
        assert store.find_checkpoint("HEAD", "t").id == saved.id
        good = task.last_good()
        assert good is not None
        assert good.id == saved.id


def test_a_store_that_is_there_but_not_up_to_date_lists_what_is_spooled_first(
    store: lastgood.Store, tmp_path: Path
) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        for number in (1, 2, 3):
            task.save({"n": number}, type="tool_executed" if number == 2 else "manual")
    assert [each.state["n"] for each in store.list_checkpoints("t")] == [3, 2, 1, 0]
    page = store.page_checkpoints("t", limit=2)
    assert ([each.state["n"] for each in page.checkpoints], page.total) == ([3, 2], 4)
    assert [each.state["n"] for each in store.list_checkpoints("t", checkpoint_type="tool_executed")] == [2]
    assert store.replay().stored == 3
    assert numbers(store) == [0, 1, 2, 3]


def test_another_process_goes_on_from_the_spooled_head(store: lastgood.Store, tmp_path: Path) -> None:
    """It opens the store while that is away, and does not fork silently; what is spooled holds its whole state."""
    task = store.task("t")
    task.save({"n": 0, "large": LARGE})
    with gone(tmp_path / "store"):
        task.save({"n": 1, "large": LARGE})
        with open_store(tmp_path / "store") as other:
            assert not (tmp_path / "store").exists()
            second = other.task("t")
            assert second.state == {"n": 1, "large": LARGE}
            assert second.save({"n": 2}).status == "spooled"
            with pytest.raises(UnavailableError, match="the store is not there"):
                other.task("never seen")
            with pytest.raises(UnavailableError, match="the store is not there"):
                other.list_checkpoints("t")
            with pytest.raises(ConflictError) as conflict:
                task.save({"n": 99})
            assert conflict.value.head.id == second.head.id  # type: ignore[union-attr]
            task.refresh()
            assert task.save({"n": 3}).parent_id == second.head.id  # type: ignore[union-attr]
    with open_store(tmp_path / "store") as later:  # whoever opens it brings everything there
        assert numbers(later) == [0, 1, 2, 3]
        assert len(later.branches("t")) == 1


def test_what_is_given_up_waits_for_nobody_any_more(store: lastgood.Store, tmp_path: Path) -> None:
    """Also not for another process that has the spool open: it had gone on to read what was moved."""
    task = store.task("work")
    task.save({"n": 1})
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    task.save({"n": 2})
    assert store.spool_figures().depth == 1
    with lastgood.open(tmp_path / "store") as other:
        given_up = other.replay(discard=True)
        assert given_up.discarded == 1
        assert given_up.kept == f"{spool_of(store).folder}.discarded.1"
        assert other.replay(discard=True).discarded == 0
    assert store.spool_figures().depth == 0
    with lastgood.open(tmp_path / "store") as new:
        assert new.task("work").head is None


def test_what_is_in_memory_alone_can_be_given_up(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", spool=None) as store:
        task = store.task("work")
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        task.save({"n": 1})
        assert store.replay(discard=True) == Replayed(discarded=1)
        assert store.spool_figures().depth == 0


def test_recovery_names_what_is_spooled(store: lastgood.Store, tmp_path: Path) -> None:
    """A16"""
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        saved = task.save({"n": 1})
        with open_store(tmp_path / "store") as other:
            found = other.recovery("t")
            assert (found.spooled, found.away, found.clean) == (1, "the store is not there", False)
            assert found.head is not None
            assert found.head.id == saved.id
    found = store.recovery("t")
    assert (found.spooled, found.away, found.clean) == (1, None, False)
    assert "1 checkpoint(s) are spooled" in found.advice[0]
    store.replay()
    assert store.recovery("t").clean


def test_a_store_never_seen_is_not_opened_while_it_is_away(tmp_path: Path) -> None:
    """Nothing is known of it, so nothing is pretended."""
    (tmp_path / "file").touch()
    with pytest.raises((UnavailableError, InvalidError)):
        lastgood.open(tmp_path / "file" / "store")


def test_a_store_that_was_opened_while_away_goes_on_when_it_is_back(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
        other = open_store(tmp_path / "store")
        handle = other.task("t")
    assert other.replay().stored == 1
    assert handle.save({"n": 2}).status == "stored"
    assert numbers(other) == [0, 1, 2]
    other.close()


def test_a_handle_of_a_new_task_spools_its_first_checkpoint(store: lastgood.Store, tmp_path: Path) -> None:
    store.task("other").save({})
    task = store.task("t")
    with gone(tmp_path / "store"):
        task.save({"n": 0})
        task.save({"n": 1})
        assert store.task("t").state == {"n": 1}
    assert [each.state["n"] for each in store.list_checkpoints("t")] == [1, 0]
    store.replay()
    assert numbers(store) == [0, 1]
    assert [branch.name for branch in store.branches("t")] == ["main"]


# --- replay --------------------------------------------------------------------------------------------------------


def test_a_save_brings_what_is_spooled_first(store: lastgood.Store, tmp_path: Path) -> None:
    """In order, before any new save, by whoever saves."""
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
    with open_store(tmp_path / "store", spool=tmp_path / "elsewhere") as blind:
        assert numbers(blind) == [0]
    spool_of(store).breaker.shut()
    assert task.save({"n": 2}).status == "stored"
    assert numbers(store) == [0, 1, 2]


def test_who_went_on_meanwhile_keeps_the_branch_and_the_spooled_line_gets_its_own(
    store: lastgood.Store, tmp_path: Path, alerts: list[Alert]
) -> None:
    """A conflict is never dropped and never merged: reported by event, log and alert; the rest of the line follows."""
    task = store.task("t")
    origin = task.save({"n": 0})
    with gone(tmp_path / "store"):
        spooled = [task.save({"n": number}) for number in (1, 2)]
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t").save({"n": 100})
    done = store.replay()
    assert (done.stored, [each.checkpoint_id for each in done.diverged]) == (2, [spooled[0].id])
    main, side = store.branches("t")
    assert side.name.startswith("main (spooled 20")
    assert side.origin_id == origin.id
    assert store.find_checkpoint(spooled[1].id).branch_id == side.id
    assert store.task("t").state == {"n": 100}
    assert "on a branch of its own" in alerts[-1].message
    (event,) = store.history("t", kinds=["diverged"])
    assert event.data["branch"] == side.id
    assert task.save({"n": 3}).branch_id == side.id  # this handle goes on with its own work
    assert task.refresh().branch_id == main.id  # type: ignore[union-attr]
    assert store.check(read_data=True).ok


def test_a_stale_handle_that_spools_keeps_nobody_from_going_on(store: lastgood.Store, tmp_path: Path) -> None:
    """While the store is away nobody knows who is stale; what goes on from the newest is no conflict."""
    fresh = store.task("t")
    fresh.save({"n": 0})
    stale = store.task("t")
    fresh.save({"n": 1})
    with gone(tmp_path / "store"):
        late = stale.save({"n": 100})
        assert fresh.save({"n": 2}).status == "spooled"
        with pytest.raises(ConflictError):
            store.task("t").save({"n": 0}, id=late.id)
    assert store.task("t").state == {"n": 2}
    assert [each.checkpoint_id for each in store.replay().diverged] == [late.id]
    assert store.task("t").state == {"n": 2}
    assert fresh.save({"n": 3}).branch_id == store.branches("t")[0].id


def test_a_conflict_about_files_lands_apart_without_laying_claim_to_the_folder(
    store: lastgood.Store, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    task = store.task("t", workspace=work)
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        (work / "a").write_bytes(b"spooled")
        spooled = task.save({"n": 1})
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t", workspace=work).save({"n": 100})
    done = store.replay()
    assert (done.aside, len(done.diverged)) == ((), 1)
    assert store.read_file(spooled.id, "a") == b"spooled"
    assert store.task("t", workspace=work).save({"n": 101}).status == "stored"  # the folder is still main's


def test_two_who_began_the_same_task_both_keep_what_they_saved(store: lastgood.Store, tmp_path: Path) -> None:
    """There is no checkpoint to branch from: the branch begins beside the others."""
    store.task("other").save({})
    task = store.task("t")
    with gone(tmp_path / "store"):
        task.save({"n": 1})
        task.save({"n": 2})
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t").save({"n": 100})
    assert store.replay().stored == 2
    main, side = store.branches("t")
    assert (main.name, side.origin_id, side.checkpoints) == ("main", None, 2)
    assert [each.state["n"] for each in store.list_checkpoints(side.id)] == [2, 1]
    assert store.task("t").state == {"n": 100}
    assert store.check(read_data=True).ok


def test_a_branch_that_is_not_the_active_one_any_more_is_a_conflict_too(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    first = task.save({"n": 0})
    task.save({"n": 1})
    with gone(tmp_path / "store"):
        task.save({"n": 2})
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t").restore(first)
    assert len(store.replay().diverged) == 1
    assert store.task("t").state == {"n": 0}
    assert len(store.branches("t")) == 3


def test_what_cannot_come_into_the_store_is_kept_aside_and_said(
    store: lastgood.Store, tmp_path: Path, alerts: list[Alert]
) -> None:
    """A task that was deleted meanwhile: nothing is lost silently, and nothing comes back from the dead."""
    task, other_task = store.task("t"), store.task("u")
    task.save({"n": 0})
    other_task.save({"n": 0})
    with gone(tmp_path / "store"):
        spooled = [task.save({"n": number}) for number in (1, 2)]
        other_task.save({"n": 1})
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.delete_task("t")
    done = store.replay()
    assert (done.stored, [each.checkpoint_id for each in done.aside]) == (1, [each.id for each in spooled])
    assert [each.state["n"] for each in store.list_checkpoints("u")] == [1, 0]
    assert sum("is kept aside" in alert.message for alert in alerts) == 2
    assert (store.spool_figures().depth, store.spool_figures().aside) == (0, 2)
    assert store.find_checkpoint(spooled[1].id).state == {"n": 2}
    with pytest.raises(ConflictError, match="could not come into the store"):
        task.save({"n": 3})
    assert task.refresh() is None
    task.save({"n": 4})


def test_a_parent_that_was_purged_meanwhile_sets_its_child_aside(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    parent = task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t").save({"n": 100})
        other.delete_checkpoint(parent.id)
        other.purge_checkpoint(parent.id)
    (aside,) = store.replay().aside
    assert aside.reason == "the checkpoint that it continues was purged"


def test_what_came_into_the_store_and_was_purged_there_before_the_spool_knew_is_not_brought_again(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between landing and forgetting: what is known by its id and checksum has been there."""
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        spooled = [task.save({"n": number}) for number in (1, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(spool_of(store).entries, "remove", lambda numbers: None)
        store.replay()
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.task("t").save({"n": 3})
        other.delete_checkpoint(spooled[0].id)
        other.purge_checkpoint(spooled[0].id)
    assert store.task("t").state == {"n": 3}
    assert store.spool_figures().depth == 2
    done = store.replay()
    assert (done.aside, done.diverged, store.spool_figures().depth) == ((), (), 0)
    assert numbers(store) == [0, 2, 3]
    assert store.check().ok


def test_a_damaged_entry_is_set_aside_and_the_others_come_through(
    store: lastgood.Store, tmp_path: Path, alerts: list[Alert]
) -> None:
    task, other = store.task("t"), store.task("u")
    task.save({"n": 0})
    other.save({"n": 0})
    with gone(tmp_path / "store"):
        damaged, fine = task.save({"n": 1}), other.save({"n": 1})
        waiting = spool_of(store).entries.waiting("tester", damaged.id)
        assert waiting is not None
        sql = (
            "UPDATE bodies SET body = CAST(substr(body, 1, 99) || x'ff' || substr(body, 101) AS BLOB) WHERE number = ?"
        )
        spool_of(store).entries.write(lambda connection: connection.execute(sql, (waiting.number,)))
    done = store.replay()
    assert (done.stored, done.aside[0].checkpoint_id) == (1, damaged.id)
    assert store.find_checkpoint(fine.id).status == "stored"
    assert "damaged" in alerts[-1].message


def test_what_was_spooled_for_another_store_at_the_same_place_does_not_come_into_this_one(
    store: lastgood.Store, tmp_path: Path, alerts: list[Alert]
) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
    (tmp_path / "store").rename(tmp_path / "old")
    with lastgood.open(tmp_path / "store", on_failure="raise") as new:
        new.task("t").save({"n": 100})
    with open_store(tmp_path / "store", on_alert=alerts.append) as opened:
        assert "another store" in alerts[-1].message
        assert opened.spool_figures().depth == 0
        assert [task.id for task in opened.tasks()] == ["t"]
        (left,) = opened.spool_figures().left
        assert left.endswith(".other-store.1")
        assert Path(left).is_dir()


def test_what_was_put_beside_for_a_store_that_was_elsewhere_comes_into_it_when_it_is_back(
    store: lastgood.Store, tmp_path: Path
) -> None:
    """C10: nothing is lost because another store lay at the same place for a while."""
    place, old = tmp_path / "store", tmp_path / "old"
    task = store.task("t")
    task.save({"n": 0})
    with gone(place):
        task.save({"n": 1})
        task.save({"n": 2})
    place.rename(old)
    with lastgood.open(place, user="tester", on_failure="raise") as new:
        new.task("t").save({"n": 100})
    with open_store(place) as other:
        assert numbers(other) == [100]
        with gone(place):
            other.task("t").save({"n": 101})
    place.rename(tmp_path / "other")
    old.rename(place)
    with open_store(place) as back:
        assert numbers(back) == [0, 1, 2]
        (left,) = back.spool_figures().left  # what the other one had spooled
    place.rename(old)
    (tmp_path / "other").rename(place)
    with open_store(place) as other:
        assert numbers(other) == [100, 101]
        assert other.spool_figures().left == ()
        assert not Path(left).exists()


def test_a_step_that_was_begun_in_a_spool_that_was_moved_goes_on_in_the_store(tmp_path: Path) -> None:
    """A16: a step that was begun is remembered, also if another store lay there for a while."""
    place, old = tmp_path / "store", tmp_path / "old"
    with lastgood.CheckpointManager(place, spool=tmp_path / "spool") as store:
        ask_nobody(store)
        store.task("t").save({"n": 0})
        place.rename(old)
        store.task("t").save({"n": 1})
        step = store.begin_step("t", "tool_executed", {"n": 2})
    lastgood.open(place, on_failure="raise").close()
    with lastgood.open(place, spool=tmp_path / "spool") as other:
        (moved,) = other.spool_figures().left
    place.rename(tmp_path / "other")
    old.rename(place)
    with lastgood.CheckpointManager(place, spool=tmp_path / "spool") as back:
        assert [one.id for one in back.open_steps("t")] == [step]
        assert back.task("t").state == {"n": 1}
        assert back.commit_step(step, lastgood.EvidencePack([])).state == {"n": 2}
        assert back.open_steps("t") == []
    assert not Path(moved).exists()


def test_commands_that_only_read_see_what_is_in_a_spool_that_was_moved(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, old = tmp_path / "store", tmp_path / "old"
    task = store.task("t")
    task.save({"n": 0})
    with gone(place):
        task.save({"n": 1})
    place.rename(old)
    lastgood.open(place, user="tester", on_failure="raise").close()
    with open_store(place) as other:
        assert other.spool_figures().left
    place.rename(tmp_path / "other")
    old.rename(place)
    spool = store._engine.options.spool
    call = Invocation()
    call.store, call.user = str(place), "tester"
    monkeypatch.setattr(Invocation, "options", lambda self: lastgood.types.Options(spool=spool))
    assert call._has_spool()


def test_a_moved_spool_may_be_removed_by_another_process_meanwhile(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
        moved = spool_of(store).entries.move_folder("other-store")
    assert moved is not None
    shown: list[Path] = []

    def replay_and_lose(entries: Entries) -> None:
        spool_of(store)._replay(entries, 1e9)
        shutil.rmtree(moved)
        shown.append(moved)

    replay_moved(spool_of(store).folder, lambda: store.info().id, replay_and_lose)
    assert shown == [moved]


def test_a_spool_that_was_left_and_is_damaged_keeps_nobody_from_coming_into_the_store(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        task.save({"n": 1})
        left = spool_of(store).entries.move_folder("other-store")
        store.task("u").save({"n": 2})
    fact = Entries.get_meta

    def read_unless_left(self: Entries, name: str) -> Any:
        if self.folder == left:
            raise IntegrityError("damaged")
        return fact(self, name)

    monkeypatch.setattr(Entries, "get_meta", read_unless_left)
    assert store.replay().stored == 1
    assert store.spool_figures().left == (str(left),)


def test_a_store_that_was_made_anew_at_the_same_place_gets_what_is_spooled_for_it(tmp_path: Path) -> None:
    """C10: that an earlier store lay there, and was away once, is forgotten with what it had spooled."""
    for _ in range(2):
        with open_store(tmp_path / "store") as store:
            task = store.task("t")
            task.save({"n": 0})
            with gone(tmp_path / "store"):
                assert task.save({"n": 1}).status == "spooled"
            store.replay()
            assert numbers(store) == [0, 1]
            assert store.spool_figures().left == ()
        shutil.rmtree(tmp_path / "store")


def test_a_save_that_failed_and_is_found_in_the_store_after_all_is_the_one_that_was_spooled(
    store: lastgood.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I2, C10: after a failed sync and a crash SQLite may find the commit in its log. The same record was spooled."""
    task = store.task("t")
    task.save({"n": 0})
    commit = store._engine.catalog.commit

    def commit_and_fail(*about: Any) -> Any:
        commit(*about)
        raise UnavailableError("the disk reported an error")

    with monkeypatch.context() as patch:
        patch.setattr(store._engine.catalog, "commit", commit_and_fail)
        assert task.save({"n": 1}).status == "spooled"
        with task.step("work") as step:
            step.state["n"] = 2
    assert task.save({"n": 3}).status == "spooled"
    done = store.replay()
    assert (done.stored, done.diverged, done.aside) == (3, (), ())
    assert numbers(store) == [0, 1, 2, 3]


def test_a_key_or_an_id_that_is_spooled_is_found_again(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        once = task.save({"n": 1}, key="k")
        assert store.task("t").save({"n": 1}, key="k").id == once.id
        with pytest.raises(ConflictError, match="other content"):
            task.save({"n": 2}, key="k")
        assert task.save({"n": 3}, id="mine").id == "mine"
        assert task.save({"n": 3}, id="mine").id == "mine"
    assert store.replay().stored == 2
    assert task.save({"n": 1}, key="k").id == once.id


# --- steps, evidence, files ----------------------------------------------------------------------------------------


def test_steps_and_evidence_are_spooled(store: lastgood.Store, tmp_path: Path) -> None:
    """A1: a step that is begun, ended or both while the store is away."""
    task = store.task("t")
    task.save({"n": 0})
    before = task.step("before").begin()
    with gone(tmp_path / "store"):
        before.run(["true"])
        assert before.commit().status == "spooled"
        with task.step("meanwhile") as step:
            step.state["n"] = 2
            step.run(["true"])
        assert (step.checkpoint.status, step.checkpoint.verified) == ("spooled", True)  # type: ignore[union-attr]
        assert task.state == {"n": 2}
        with pytest.raises(RuntimeError), task.step("failing"):
            raise RuntimeError
    assert store.replay().stored == 2
    assert [(each.step_id, each.verified) for each in store.list_checkpoints("t", limit=2)] == [
        ("meanwhile", True),
        ("before", True),
    ]
    assert store.open_steps("t") == []
    assert numbers(store) == [0, 0, 2]


def test_steps_by_id_are_spooled(tmp_path: Path) -> None:
    with lastgood.CheckpointManager(tmp_path / "store" / "registry.sqlite", spool=tmp_path / "spool") as manager:
        ask_nobody(manager)
        manager.commit_step(manager.begin_step("t", "step", {"n": 0}), None)
        with gone(tmp_path / "store"):
            step = manager.begin_step("t", "step", {"n": 1})
            assert [each.id for each in manager.open_steps("t")][-1:] == [step]
            assert manager.commit_step(step, None).status == "spooled"
        assert manager.replay().stored == 1
        assert numbers(manager) == [0, 1]


def test_files_are_spooled_with_all_that_the_store_may_not_have(store: lastgood.Store, tmp_path: Path) -> None:
    """B8, B1: files come back from what was spooled, whatever was collected meanwhile."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "a").write_bytes(b"first")
    (work / "large").write_bytes(os.urandom(2 << 20))
    task = store.task("t", workspace=work)
    first = task.save({"n": 0})
    for number in range(1, 4):
        (work / "a").write_bytes(b"second %d" % number)
        (work / f"new{number}").write_bytes(os.urandom(300_000))
        task.save({"n": number})
    (work / "a").write_bytes(b"first")  # which the store has, though not with the newest
    large = (work / "large").read_bytes()
    with gone(tmp_path / "store"):
        assert task.save({"n": 4}).status == "spooled"
        (work / "b").write_bytes(b"third")
        saved = task.save({"n": 5})
        assert saved.status == "spooled"
        assert store.read_file(saved.id, "b") == b"third"
        assert store.spool_figures().bytes < 1 << 20
    with lastgood.open(tmp_path / "store", user="tester", on_failure="raise") as other:
        other.delete_checkpoint(first.id)
        other.purge_checkpoint(first.id)
        other.collect(grace=0)
    assert store.replay().stored == 2
    assert store.read_file(saved.id, "a") == b"first"
    assert store.read_file(saved.id, "large") == large
    assert store.check(read_data=True).ok
    (work / "a").write_bytes(b"other")
    assert task.restore(saved).failed == ()
    assert (work / "a").read_bytes() == b"first"


def test_nothing_is_made_in_the_place_of_a_store_that_is_away(store: lastgood.Store, tmp_path: Path) -> None:
    """Who brings it back finds its place empty."""
    work = tmp_path / "work"
    work.mkdir()
    task = store.task("t", workspace=work)
    task.save({"n": 0})
    with gone(tmp_path / "store"):
        with task.step("s") as step:
            (work / "a").write_bytes(b"1")
            step.run(["true"])
            (work / "a").write_bytes(b"22")
        assert step.checkpoint is not None
        assert step.checkpoint.status == "spooled"
        assert step.evidence.evidence_list[0].verification_status != "failed"
        task.save({"n": 1})
        with pytest.raises(UnavailableError):
            store.task("u", workspace=work)
        with pytest.raises(UnavailableError):
            store.collect()
        assert not (tmp_path / "store").exists()
    assert store.replay().stored == 2


def test_objects_that_cannot_be_written_are_a_store_that_is_away(store: lastgood.Store, tmp_path: Path) -> None:
    """Packs could not be written: the files go into the spool, and from there into a pack."""
    work = tmp_path / "work"
    work.mkdir()
    task = store.task("t", workspace=work)
    task.save({"n": 0})
    objects = tmp_path / "store" / "objects"
    if objects.exists():
        objects.rename(tmp_path / "objects")
    objects.touch()
    contents = {f"file{number}": os.urandom(100_000) for number in range(20)}
    for name, content in contents.items():
        (work / name).write_bytes(content)
    saved = task.save({"n": 1})
    assert saved.status == "spooled"
    objects.unlink()
    assert store.replay().stored == 1
    assert {name: store.read_file(saved.id, name) for name in contents} == contents
    assert store.check(read_data=True).ok


def test_restores_forks_and_deletions_are_not_spooled(store: lastgood.Store, tmp_path: Path) -> None:
    task = store.task("t")
    first = task.save({"n": 0})
    with gone(tmp_path / "store"):
        spooled = task.save({"n": 1})
        for refused in (
            lambda: task.restore(first),
            lambda: task.fork(first),
            lambda: store.delete_task("t"),
            lambda: store.tag(spooled.id, "green"),
            lambda: store.delete_checkpoint(first.id),
        ):
            with pytest.raises(UnavailableError):
                refused()
    spool_of(store).breaker.shut()
    assert task.restore(spooled).state == {"n": 1}  # what was spooled comes into the store first
    store.tag(spooled.id, "green")
    assert store.get_checkpoint("no such one") is None


FORKED = """
import os, sys
import lastgood
store = lastgood.open(sys.argv[1], spool=sys.argv[2])
task = store.task("t")
task.save({"n": 0})
os.rename(sys.argv[1], sys.argv[1] + ".elsewhere")
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert task.save({"n": 1}).status == "spooled"
os.rename(sys.argv[1] + ".elsewhere", sys.argv[1])
store.replay()
assert [one.state["n"] for one in store.list_checkpoints("t")] == [1, 0]
os._exit(0)
"""


def test_a_child_that_is_forked_while_the_store_is_away_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(tmp_path / "store"), str(tmp_path / "spool")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Exception ignored" in done.stderr) == (0, False), done.stderr
