"""A limit for what a store takes: who goes, who never does, and collecting by itself."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import lastgood
from lastgood.cli import background
from lastgood.engine import save
from lastgood.errors import InvalidError
from lastgood.upkeep import housekeeping


@pytest.fixture
def alerts() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, alerts: list[str]) -> Iterator[lastgood.Store]:
    with lastgood.open(tmp_path / "store", on_alert=lambda alert: alerts.append(alert.message)) as opened:
        yield opened


class Work:
    """A folder whose files change from save to save, by content that does not compress."""

    def __init__(self, store: lastgood.Store, folder: Path, task: str = "t") -> None:
        folder.mkdir(exist_ok=True)
        self.store, self._folder = store, folder
        self.task = store.task(task, workspace=folder)
        self._dice = random.Random(task)
        self.contents: dict[str, dict[str, bytes]] = {}

    def save(self, count: int = 1, size: int = 60_000) -> list[lastgood.Checkpoint]:
        made = []
        for _ in range(count):
            for name in self._dice.sample("abcdefgh", 3):
                (self._folder / name).write_bytes(self._dice.randbytes(size))
            made.append(self.task.save({"of": len(self.contents)}))
            self.contents[made[-1].id] = {path.name: path.read_bytes() for path in self._folder.iterdir()}
        return made

    def is_whole(self, checkpoint: lastgood.Checkpoint) -> bool:
        expected = self.contents[checkpoint.id]
        return {name: self.store.read_file(checkpoint.id, name) for name in expected} == expected


def remaining(work: Work) -> list[str]:
    return [each.id for each in work.store.list_checkpoints(work.task.task_id, limit=1000)][::-1]


def test_the_oldest_go_and_the_limit_is_met_closely(store: lastgood.Store, tmp_path: Path) -> None:
    work = Work(store, tmp_path / "work")
    made = work.save(60)
    half = store.size() // 2
    done = store.limit(half)
    assert done.met
    assert half * 0.95 <= done.after == store.size() <= half
    gone = [each.id for each in done.checkpoints]
    assert gone == [each.id for each in made[: len(gone)]]
    assert remaining(work) == [each.id for each in made[len(gone) :]]
    assert all(work.is_whole(each) for each in made[len(gone) :])
    assert store.check(read_data=True).ok


def test_a_dry_run_says_what_goes_and_changes_nothing(store: lastgood.Store, tmp_path: Path) -> None:
    work = Work(store, tmp_path / "work")
    made = work.save(40)
    half = store.size() // 2
    planned = store.limit(half, dry_run=True)
    assert planned.dry_run
    assert remaining(work) == [each.id for each in made]
    done = store.limit(half)
    gone = [each.id for each in done.checkpoints]
    foreseen = [each.id for each in planned.checkpoints]
    assert abs(len(foreseen) - len(gone)) <= 2
    assert foreseen[: len(gone)] == gone[: len(foreseen)]
    assert all(each.frees > 0 for each in planned.checkpoints)


def test_heads_tagged_ones_and_the_last_verified_never_go(
    store: lastgood.Store, tmp_path: Path, alerts: list[str]
) -> None:
    """A14, B6"""
    work = Work(store, tmp_path / "work")
    made = work.save(10)
    store.tag(made[2].id, "release")
    with work.task.step("checked") as step:
        (tmp_path / "work/a").write_bytes(random.Random(1).randbytes(60_000))
        step.run(["true"])
    verified = step.checkpoint
    assert verified is not None
    assert verified.verified
    made += work.save(10)
    other = Work(store, tmp_path / "other", "other").save()[0]
    done = store.limit(1)
    assert not done.met
    assert "heads of branches" in done.reason
    assert len(alerts) == 1
    assert {*remaining(work)} == {made[2].id, verified.id, made[-1].id}
    assert store.find_checkpoint(other.id).id == other.id
    assert work.is_whole(made[2])
    work.save(3)
    assert store.check(read_data=True).ok


def test_what_is_listed_is_what_goes_also_where_checkpoints_share_content(
    store: lastgood.Store, tmp_path: Path
) -> None:
    """First use 3: content that several old ones share is free when all of them are gone: all are listed."""
    work = Work(store, tmp_path / "work")
    large = tmp_path / "work/large"
    large.write_bytes(random.Random(0).randbytes(4_800_000))
    sharing = [*work.save(), *work.save(), *work.save()]
    large.unlink()
    rest = work.save(2)
    planned = store.limit(2_000_000, dry_run=True)
    assert [each.id for each in planned.checkpoints] == [each.id for each in sharing]
    assert sum(each.frees for each in planned.checkpoints) <= planned.before
    assert planned.met
    done = store.limit(2_000_000, planned=planned)
    assert [each.id for each in done.checkpoints] == [each.id for each in sharing]
    assert done.met
    assert remaining(work) == [each.id for each in rest]
    assert all(work.is_whole(each) for each in rest)


def test_nothing_goes_that_was_not_listed(store: lastgood.Store, tmp_path: Path) -> None:
    """First use 3: not if more was saved since, and not because it is still too much then."""
    work = Work(store, tmp_path / "work")
    work.save(30)
    half = store.size() // 2
    planned = store.limit(half, dry_run=True)
    more = work.save(20)
    done = store.limit(half, planned=planned)
    assert [each.id for each in done.checkpoints] == [each.id for each in planned.checkpoints]
    assert not done.met
    assert "was not listed" in done.reason
    assert {each.id for each in more} <= {*remaining(work)}


def test_a_limit_purges_deleted_ones_only_as_listed(store: lastgood.Store, tmp_path: Path) -> None:
    """First use 3: what was deleted long ago is listed like all else, and stays where the store is small enough."""
    work = Work(store, tmp_path / "work")
    made = work.save(4)
    store.delete_checkpoint(made[0].id)
    store._engine.catalog._write(  # type: ignore[attr-defined]
        lambda connection: connection.raw.execute("UPDATE attestations SET at = 1 WHERE kind = 'deleted'")
    )
    assert store.limit(store.size()).checkpoints == ()
    store.undelete_checkpoint(made[0].id)
    assert work.is_whole(made[0])


def test_every_branch_keeps_what_only_it_has(store: lastgood.Store, tmp_path: Path) -> None:
    """First use 4: a branch goes whole, when somebody deletes it, and never bit by bit."""
    work = Work(store, tmp_path / "work")
    made = work.save(8)
    work.task.restore(made[3])
    after = work.save(8)
    done = store.limit(1)
    assert not done.met
    assert "other branches" in done.reason
    left = {*remaining(work)}
    assert {each.id for each in made[4:]} <= left, "the branch that was left has all that it alone has"
    assert after[-1].id in left
    assert not left & {each.id for each in after[1:-1]}
    assert not left & {each.id for each in made[:3]}
    work.task.undo()
    assert {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()} == work.contents[made[-1].id]
    assert store.check(read_data=True).ok


def test_retention_keeps_what_only_other_branches_have(store: lastgood.Store, tmp_path: Path) -> None:
    """First use 4, A14"""
    work = Work(store, tmp_path / "work")
    made = work.save(4)
    fork = work.task.fork(made[1])
    assert fork.head is not None
    on_fork = [fork.head, *(fork.save({"n": number}) for number in range(3))]
    later = work.save(3)
    assert store.delete_old_checkpoints("t", 1) == 6
    left = {*remaining(work)}
    assert left == {later[-1].id, *(each.id for each in on_fork)}
    assert store.delete_old_checkpoints(fork.branch_id or "", 1) == 3, "a branch that is named is one to thin out"
    assert {*remaining(work)} == {later[-1].id, on_fork[-1].id}


def test_a_live_session_keeps_what_it_stands_on(store: lastgood.Store, tmp_path: Path) -> None:
    """First use 4: the head of its branch, active or not, and what it is asked to go back to."""
    work = Work(store, tmp_path / "work")
    made = work.save(6)
    fork = work.task.fork(made[2])
    sessions = [task.session(state=lambda: {"n": 0}, load=lambda state: None) for task in (store.task("t"), fork)]
    with sessions[0], sessions[1]:
        asked = store.task("t").control.restore(made[1])
        assert not asked.fulfilled
        for thin_out in (lambda: store.limit(1), lambda: store.delete_old_checkpoints("t", 0)):
            thin_out()
            assert made[1].id in {*remaining(work)}
            sessions[1].boundary()
            sessions[1].save()
    assert store.check(read_data=True).ok


def test_history_that_frees_nothing_stays(store: lastgood.Store, tmp_path: Path) -> None:
    work = Work(store, tmp_path / "work")
    work.save()
    same = [work.task.save({"of": number}) for number in range(20)]
    done = store.limit(1)
    assert not done.met
    assert {each.id for each in same} <= {*remaining(work)}


def test_deleted_checkpoints_are_the_first_to_go(store: lastgood.Store, tmp_path: Path) -> None:
    work = Work(store, tmp_path / "work")
    made = work.save(30)
    for each in made[20:25]:
        store.delete_checkpoint(each.id)
    done = store.limit(
        int(store._engine.catalog.disk_use().used + 0.95 * (store.size() - store._engine.catalog.disk_use().size))
    )
    assert done.met
    assert {each.id for each in done.checkpoints} <= {each.id for each in made[20:25]}
    assert {each.id for each in made[:20]} <= {*remaining(work)}


def test_a_limit_must_be_a_number(store: lastgood.Store) -> None:
    with pytest.raises(InvalidError):
        store.limit(-1)
    for wrong in ({"max_bytes": -1}, {"max_bytes": "1G"}, {"collect": "often"}):
        with pytest.raises(InvalidError):
            lastgood.open(":memory:", **wrong)


# --- by itself


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks after every fourth checkpoint, however small the store is."""
    monkeypatch.setattr(housekeeping, "HOUSEKEEPING_INTERVAL", 4)
    monkeypatch.setattr(save, "HOUSEKEEPING_INTERVAL", 4)
    monkeypatch.setattr(housekeeping, "LEAST_BYTES", 0)


def tidied(store: lastgood.Store) -> None:
    """Whatever it was doing is done."""
    assert isinstance(store._engine.housekeeper, housekeeping.Housekeeping)
    if store._engine.housekeeper._thread is not None:
        store._engine.housekeeper._thread.join()


@pytest.mark.usefixtures("eager")
def test_a_store_with_a_limit_keeps_to_it_while_it_grows(tmp_path: Path, alerts: list[str]) -> None:
    most = 6_000_000
    with lastgood.open(
        tmp_path / "store", max_bytes=most, on_alert=lambda alert: alerts.append(alert.message)
    ) as store:
        work = Work(store, tmp_path / "work")
        for _ in range(12):
            work.save(4)
            tidied(store)
            assert store.size() <= most
        assert not alerts
        assert len(remaining(work)) >= 5
        assert store.check(read_data=True).ok


@pytest.mark.usefixtures("eager")
def test_what_nobody_needs_is_condemned_by_itself_when_the_store_has_grown(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store") as store:
        work = Work(store, tmp_path / "work")
        for each in work.save(7)[:-1]:
            store.purge_checkpoint(each.id)
        tidied(store)
        work.save(5)
        tidied(store)
        assert any(blob.condemned for blob in store._engine.catalog.indexed())
        condemned = store.collect(dry_run=True)
        assert condemned.removed == 0, "the grace period has just begun"


@pytest.mark.usefixtures("eager")
def test_never_means_never(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", collect="never", max_bytes=1) as store:
        Work(store, tmp_path / "work").save(8)
        assert store._engine.housekeeper is None
        assert store.size() > 1


@pytest.mark.usefixtures("eager")
def test_closing_does_not_wait_for_all_that_is_to_be_done(tmp_path: Path) -> None:
    with lastgood.open(tmp_path / "store", max_bytes=1) as store:
        work = Work(store, tmp_path / "work")
        made = work.save(8)
    with lastgood.open(tmp_path / "store", collect="never") as store:
        assert store.check(read_data=True).ok
        assert store.task("t").head is not None
        assert store.task("t").head.id == made[-1].id  # type: ignore[union-attr]


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), 1e300, "1h", None])
def test_a_grace_period_must_be_one(store: lastgood.Store, grace: object) -> None:
    with pytest.raises(InvalidError, match="grace"):
        store.collect(grace=grace)  # type: ignore[arg-type]


def test_a_command_leaves_the_work_to_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = background._start
    monkeypatch.setattr(background, "_start", lambda *what: os.waitpid(start(*what) or 0, 0))
    with lastgood.open(tmp_path / "store", collect="never") as store:
        Work(store, tmp_path / "work").save(20)
        size = store.size()
    with lastgood.open(tmp_path / "store", max_bytes=size // 2) as store:
        assert store._engine.housekeeper is not None
        store._engine.housekeeper.start = background.start_apart
        store._engine.housekeeper.note(256, 0)
        assert store.size() <= size // 2
        assert store.check(read_data=True).ok


@pytest.mark.usefixtures("eager")
def test_the_store_keeps_to_the_limit_that_it_was_given_whoever_opens_it(tmp_path: Path) -> None:
    """S1: the limit belongs to the store, not to a file beside it."""
    most = 6_000_000
    with lastgood.open(tmp_path / "store", collect="never") as store:
        store.limit(most, keep=True)
    with lastgood.open(tmp_path / "store") as store:
        Work(store, tmp_path / "work").save(12)
        tidied(store)
        assert store.size() <= most
        assert store.info().max_bytes == most


def test_the_config_says_whether_its_store_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: it cannot say how much of it is kept."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "lastgood.toml"
    config.write_text('store = "here"\ncollect = "never"\n')
    with lastgood.open() as store:
        assert store._engine.options.collect == "never"
    with lastgood.open(collect="auto") as store:
        assert store._engine.options.collect == "auto"
    with lastgood.open(tmp_path / "other") as store:
        assert store._engine.options.collect == "auto"
    for wrong in ('collect = "often"', "max_size = 3", "spool = 3", "max_bytes = 5_000_000", "spool_bytes = 5_000_000"):
        config.write_text(f'store = "here"\n{wrong}\n')
        with pytest.raises(InvalidError):
            lastgood.open()
