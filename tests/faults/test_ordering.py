"""Every rule over the order of calls: kept where it is kept, and seen failing."""

from __future__ import annotations

import pytest
from tests.faults.rules import (
    RULES,
    Place,
    Rule,
    files_are_synced_before_they_get_their_name,
    names_are_synced_before_an_acknowledgement,
    packs_are_durable_before_a_transaction_names_them,
    packs_go_after_the_transaction_that_forgot_them,
    restored_files_are_durable_before_the_journal_ends,
    the_log_is_synced_before_an_acknowledgement,
    the_witness_is_written_after_the_log_is_synced,
)
from tests.faults.shim import JOURNAL_ENDS
from tests.faults.trace import Call, Op

PLACE = Place("/disk/store", "/disk/files")
LOG, OBJECTS = "/disk/store/catalog.sqlite-wal", "/disk/store/objects"
DRAFT, PACK, OLD = f"{OBJECTS}/.drafts/1", f"{OBJECTS}/packs/ab/abcd", f"{OBJECTS}/packs/cd/cdef"
WORK, WITNESS = "/disk/files/deep", "/disk/store/catalog.sqlite-lock"
INODES = {LOG: 1, DRAFT: 2, f"{WORK}/.tmp": 3, f"{WORK}/file": 3, WITNESS: 4}

Noted = tuple[Op, str] | tuple[Op, str, str]

SAVE: list[Noted] = [
    (Op.MKDIR, "/disk/store"),
    (Op.SYNC, "/disk"),
    (Op.CREATE, LOG),
    (Op.MARK, "intended"),
    (Op.MKDIR, OBJECTS),
    (Op.CREATE, DRAFT),
    (Op.WRITE, DRAFT),
    (Op.WRITE, LOG),  # the announcement
    (Op.SYNC, DRAFT),
    (Op.SYNC, "/disk/store"),
    (Op.MKDIR, f"{OBJECTS}/packs"),
    (Op.SYNC, OBJECTS),
    (Op.MKDIR, f"{OBJECTS}/packs/ab"),
    (Op.SYNC, f"{OBJECTS}/packs"),
    (Op.LINK, DRAFT, PACK),
    (Op.SYNC, f"{OBJECTS}/packs/ab"),
    (Op.WRITE, LOG),
    (Op.DATASYNC, LOG),
    (Op.WRITE, WITNESS),
    (Op.MARK, "acknowledged"),
]
RESTORE: list[Noted] = [
    (Op.CREATE, f"{WORK}/.tmp"),
    (Op.WRITE, f"{WORK}/.tmp"),
    (Op.RENAME, f"{WORK}/.tmp", f"{WORK}/file"),
    (Op.UNLINK, f"{WORK}/gone"),
    (Op.WRITE, LOG),
    (Op.DATASYNC, LOG),
    (Op.SYNC, f"{WORK}/file"),
    (Op.SYNC, WORK),
    (Op.MARK, JOURNAL_ENDS),
    (Op.WRITE, LOG),
    (Op.DATASYNC, LOG),
]
COLLECT: list[Noted] = [(Op.WRITE, LOG), (Op.DATASYNC, LOG), (Op.TRUNCATE, LOG), (Op.UNLINK, OLD)]


def break_rules(rule: Rule, noted: list[Noted], pid: int = 1) -> list[str]:
    return list(rule(number(noted, pid), PLACE))


def number(noted: list[Noted], pid: int = 1) -> list[Call]:
    return [
        Call(at, one[0], one[1], one[2] if len(one) == 3 else "", INODES.get(one[1], 0), pid=pid)
        for at, one in enumerate(noted, 1)
    ]


def without(noted: list[Noted], *left_out: Noted) -> list[Noted]:
    """The last of each is not done."""
    rest = list(noted)
    for one in left_out:
        del rest[len(rest) - 1 - rest[::-1].index(one)]
    return rest


@pytest.mark.parametrize("rule", RULES)
def test_what_is_done_in_order_breaks_no_rule(rule: Rule) -> None:
    assert break_rules(rule, SAVE + RESTORE + COLLECT) == []


def test_a_file_that_was_not_synced_before_it_got_its_name() -> None:
    (sentence,) = break_rules(files_are_synced_before_they_get_their_name, without(SAVE, (Op.SYNC, DRAFT)))
    assert "names a file that was not synced since call" in sentence


def test_a_file_that_was_written_to_after_it_was_synced() -> None:
    at = SAVE.index((Op.SYNC, DRAFT)) + 1
    late: list[Noted] = [*SAVE[:at], (Op.WRITE, DRAFT), *SAVE[at:]]
    assert break_rules(files_are_synced_before_they_get_their_name, late)


@pytest.mark.parametrize("folder", ["/disk", "/disk/store", OBJECTS, f"{OBJECTS}/packs", f"{OBJECTS}/packs/ab"])
def test_a_folder_that_was_not_synced_before_an_acknowledgement(folder: str) -> None:
    found = break_rules(names_are_synced_before_an_acknowledgement, without(SAVE, (Op.SYNC, folder)))
    assert found
    assert all(
        "acknowledged after call 19" in sentence and "was not synced after call" in sentence for sentence in found
    )


def test_drafts_caches_and_locks_need_no_name() -> None:
    passing = [f"{PLACE.store}/{name}" for name in ("catalog.sqlite-shm", "catalog.sqlite-lock", "objects.cache/index")]
    assert break_rules(
        names_are_synced_before_an_acknowledgement,
        [*((Op.CREATE, path) for path in passing), (Op.CREATE, DRAFT), (Op.MARK, "acknowledged")],
    ) == []  # fmt: skip


@pytest.mark.parametrize("folder", ["/disk/store", OBJECTS, f"{OBJECTS}/packs", f"{OBJECTS}/packs/ab"])
def test_a_pack_that_could_be_lost_when_its_transaction_begins(folder: str) -> None:
    (sentence,) = break_rules(packs_are_durable_before_a_transaction_names_them, without(SAVE, (Op.SYNC, folder)))
    assert "a transaction begins with call 16" in sentence


def test_another_process_may_begin_a_transaction_meanwhile() -> None:
    at = SAVE.index((Op.LINK, DRAFT, PACK)) + 1
    meanwhile = [call._replace(pid=2) for call in number([(Op.WRITE, LOG)])]
    assert not list(
        packs_are_durable_before_a_transaction_names_them(number(SAVE[:at]) + meanwhile + number(SAVE[at:]), PLACE)
    )


def test_a_log_that_was_not_synced_before_an_acknowledgement() -> None:
    (sentence,) = break_rules(the_log_is_synced_before_an_acknowledgement, without(SAVE, (Op.DATASYNC, LOG)))
    assert "not synced between call 17" in sentence


def test_an_acknowledgement_before_anything_was_committed() -> None:
    found = break_rules(the_log_is_synced_before_an_acknowledgement, [(Op.MARK, "intended"), (Op.MARK, "acknowledged")])
    assert found == ["nothing was committed before the acknowledgement after call 2"]


def test_a_log_that_is_only_cut_off_holds_no_news() -> None:
    at = SAVE.index((Op.MARK, "acknowledged"))
    assert not break_rules(
        the_log_is_synced_before_an_acknowledgement, [*SAVE[:at], (Op.TRUNCATE, LOG), (Op.MARK, "acknowledged")]
    )


def test_a_witness_of_a_commit_that_could_be_lost() -> None:
    (sentence,) = break_rules(the_witness_is_written_after_the_log_is_synced, without(SAVE, (Op.DATASYNC, LOG)))
    assert "(write catalog.sqlite-lock) tells of a commit, and the log was not synced since call 17" in sentence


def test_a_witness_of_a_commit_that_is_still_to_come() -> None:
    early: list[Noted] = [(Op.MARK, "intended"), (Op.WRITE, WITNESS), (Op.WRITE, LOG), (Op.DATASYNC, LOG)]
    (sentence,) = break_rules(the_witness_is_written_after_the_log_is_synced, SAVE + early)
    assert sentence.endswith("nothing was committed yet")


def test_a_witness_that_tells_nothing_new() -> None:
    assert not break_rules(the_witness_is_written_after_the_log_is_synced, [*SAVE, (Op.WRITE, WITNESS)])


def test_a_pack_that_goes_before_the_transaction_that_forgot_it() -> None:
    (sentence,) = break_rules(packs_go_after_the_transaction_that_forgot_them, without(COLLECT, (Op.DATASYNC, LOG)))
    assert sentence.startswith("call 3 (unlink cdef) removes a pack")


def test_restored_files_that_could_be_lost_when_the_journal_ends() -> None:
    found = break_rules(restored_files_are_durable_before_the_journal_ends, without(RESTORE, (Op.SYNC, WORK)))
    assert {sentence.rpartition("after ")[2] for sentence in found} == {"call 3 (rename .tmp)", "call 4 (unlink gone)"}
    found = break_rules(restored_files_are_durable_before_the_journal_ends, without(RESTORE, (Op.SYNC, f"{WORK}/file")))
    assert [sentence.rpartition("after ")[2] for sentence in found] == ["call 2 (write .tmp)"]


def test_syncing_the_whole_file_system_does_for_all() -> None:
    synced: list[Noted] = [(Op.SYNCALL, PLACE.work) if one[0] == Op.SYNC else one for one in RESTORE]
    for rule in RULES:
        assert not break_rules(rule, synced)


def test_a_call_that_failed_syncs_nothing() -> None:
    failed = [call._replace(error=5 if call.path == DRAFT and call.op == Op.SYNC else 0) for call in number(SAVE)]
    assert list(files_are_synced_before_they_get_their_name(failed, PLACE))
