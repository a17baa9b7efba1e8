"""Who is told that something is wrong, when, and how often (A5, A8)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.observe.test_metrics import table

import lastgood
from lastgood import Alert, InvalidError, Store, Thresholds, UnavailableError
from lastgood.observe.alerts import Watermark
from lastgood.upkeep.housekeeping import Housekeeping


@pytest.fixture
def alerts() -> list[Alert]:
    return []


@pytest.fixture
def opened(tmp_path: Path, alerts: list[Alert]) -> Callable[..., Store]:
    usual = {"on_alert": alerts.append, "on_failure": "raise"}
    return lambda **options: lastgood.open(tmp_path / "store", **{**usual, **options})


def fail_commits(store: Store) -> Callable[[], None]:
    """Until what is given is called, nothing can be stored."""

    def fail(*_: Any) -> Any:
        raise UnavailableError("the disk reported an error; nothing was saved")

    vars(store._engine.catalog)["commit"] = fail
    return lambda: vars(store._engine.catalog).pop("commit")


def codes(alerts: list[Alert]) -> list[str]:
    return [alert.code for alert in alerts]


# --- what an alert says ----------------------------------------------------------------------------------------


def test_an_alert_says_what_where_when_and_in_which_correlation(
    opened: Callable[..., Store], alerts: list[Alert], caplog: pytest.LogCaptureFixture
) -> None:
    """A7, A8"""
    began = datetime.now(UTC)
    with opened() as store, lastgood.correlation("c-1"):
        fail_commits(store)
        with pytest.raises(UnavailableError):
            store.task("t").save({})
        assert store.metrics().value("alerts", code="save_failed") == 1
    (alert,) = alerts
    assert (alert.code, alert.severity, alert.task_id, alert.correlation_id) == ("save_failed", "error", "t", "c-1")
    assert isinstance(alert.error, UnavailableError)
    assert began <= alert.at <= datetime.now(UTC)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert line.getMessage() == alert.message
    told = {"task_id": "t", "correlation_id": "c-1", "code": "save_failed", "severity": "error"}
    assert vars(line)["lastgood"] == told


def test_an_alert_is_made_as_before() -> None:
    """Programs that make their own, in their tests."""
    error = ValueError()
    alert = Alert("a sentence", "t", error)
    assert (alert.message, alert.task_id, alert.error, alert.code) == ("a sentence", "t", error, "alert")


def test_secrets_are_not_in_alerts(opened: Callable[..., Store], alerts: list[Alert]) -> None:
    with opened() as store:
        store._engine.alert("the password=hunter2hunter2 was refused")
    assert "hunter2" not in alerts[0].message


def test_every_alert_of_the_engine_has_a_code_that_is_documented() -> None:
    import ast

    at = {"alert": 2, "send": 3}  # where a code stands that is given by position
    used: set[str] = set()
    package = Path(lastgood.__file__).parent
    for source in package.rglob("*.py"):
        for call in ast.walk(ast.parse(source.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in at:
                given = [word.value for word in call.keywords if word.arg == "code"] or call.args[at[call.func.attr] :][
                    :1
                ]
                assert given or call.func.attr == "send" or "step" in source.name, f"{source}: {ast.unparse(call)}"
                used.update(one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))
    assert used == {row[0].strip("`") for row in table("metrics.md", "| `code` | what")} - {"alert"}


# --- hooks -----------------------------------------------------------------------------------------------------


def test_a_hook_that_raises_is_logged_and_harms_no_save(
    opened: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    """A8: the failed save is what its caller hears of, or nothing."""

    def raises(alert: Alert) -> None:
        raise LookupError("a secret of the hook's own")

    with opened(on_alert=raises) as store:
        mend = fail_commits(store)
        with pytest.raises(UnavailableError):
            store.task("t").save({})
        assert store.task("t").save({}, on_failure="continue").status == "lost"
        mend()
        assert store.task("t").save({}).status == "stored"
    assert caplog.text.count("on_alert raised LookupError") == 2
    assert "secret" not in caplog.text


def test_an_interrupt_in_a_hook_is_an_interrupt(opened: Callable[..., Store]) -> None:
    def interrupted(alert: Alert) -> None:
        raise KeyboardInterrupt

    with opened(on_alert=interrupted) as store:
        with pytest.raises(KeyboardInterrupt):
            store._engine.alert("something")
        with pytest.raises(KeyboardInterrupt):  # and the next one is told again
            store._engine.alert("something")


def test_a_hook_that_saves_while_nothing_can_be_saved_is_not_called_for_that(
    opened: Callable[..., Store], alerts: list[Alert], caplog: pytest.LogCaptureFixture
) -> None:
    def save_it(alert: Alert) -> None:
        alerts.append(alert)
        store.task("alerts").append({"message": alert.message}, on_failure="continue")

    with opened(on_alert=save_it, thresholds=Thresholds(save_failures=None)) as store:
        fail_commits(store)
        for _ in range(2):
            store.task("t").save({}, on_failure="continue")
        assert store.metrics().value("alerts") == 4
    assert [alert.task_id for alert in alerts] == ["t", "t"]
    assert caplog.text.count("was not saved") == 4


# --- thresholds ------------------------------------------------------------------------------------------------


def test_a_threshold_is_crossed_once_until_it_was_left() -> None:
    mark = Watermark(100)
    values = [50, 100, 101, 150, 100, 95, 102, 90.5, 103, 90, 104, 105]
    assert [value for value in values if mark.crosses(value)] == [101, 104]
    assert not Watermark(None).crosses(1e9)
    assert [Watermark(0).crosses(value) for value in (0, 1)] == [False, True]


def test_saves_that_fail_one_after_the_other_are_one_more_alert(
    opened: Callable[..., Store], alerts: list[Alert]
) -> None:
    """A8: each is told, as ever; that it goes on is told once, until one was stored."""
    with opened(thresholds=Thresholds(save_failures=3)) as store:
        for _ in range(2):
            mend = fail_commits(store)
            for n in range(5):
                store.task(f"t{n}").save({}, on_failure="continue")
            mend()
            store.task("t").append({})
        assert store.meter.failing == 0
    each = ["save_failed"] * 3 + ["saves_failing"] + ["save_failed"] * 2
    assert codes(alerts) == each * 2
    (told, _) = [alert for alert in alerts if alert.code == "saves_failing"]
    assert (told.message, told.severity) == ("3 checkpoints in a row were not stored", "critical")


def test_one_failed_save_may_be_too_many(opened: Callable[..., Store], alerts: list[Alert]) -> None:
    with opened(thresholds=Thresholds(save_failures=1)) as store:
        for _ in range(2):
            mend = fail_commits(store)
            for _ in range(2):
                store.task("t").append({}, on_failure="continue")
            mend()
            store.task("t").append({})
    assert codes(alerts) == ["save_failed", "saves_failing", "save_failed"] * 2


def test_what_waits_in_the_spool_is_told_by_number_and_by_bytes(
    opened: Callable[..., Store], alerts: list[Alert]
) -> None:
    """A8: by whoever keeps the spool, and whenever metrics are read."""
    figures = {"spool_checkpoints": 0, "spool_bytes": 0}
    with opened(thresholds=Thresholds(spool_checkpoints=10, spool_bytes=1000)) as store:
        store._engine.alerts.check_spool(11, 500)
        store._engine.alerts.check_spool(12, 1001)
        store._engine.alerts.check_spool(13, 2000)
        assert codes(alerts) == ["spool_depth", "spool_bytes"]
        for name in figures:
            store.meter.register_gauge(name, "", lambda name=name: figures[name])  # type: ignore[misc]
        store.metrics()
        figures |= {"spool_checkpoints": 20}
        store.metrics()
        assert codes(alerts) == ["spool_depth", "spool_bytes", "spool_depth"]
    assert alerts[0].message == "11 checkpoints wait in the spool for the backend"


def test_memory_that_goes_up_and_down_around_its_threshold_is_one_alert(
    opened: Callable[..., Store], alerts: list[Alert]
) -> None:
    """A5"""
    with opened(cache_checkpoints=1, cache_alert_bytes=1000) as store:
        made = [store.task("t").append({"text": "x" * size}).id for size in (970, 1100, 970, 1100, 500, 1100)]
        for name in made:
            _ = store.get_checkpoint(name).state
    assert codes(alerts) == ["cache_memory", "cache_memory"]
    assert {alert.severity for alert in alerts} == {"warning"}


@pytest.mark.parametrize(("threshold", "told"), [(None, 1), (5000, 0), (800, 1)])
def test_the_threshold_of_memory_is_that_of_the_thresholds_or_the_older_option(
    opened: Callable[..., Store], alerts: list[Alert], threshold: int | None, told: int
) -> None:
    with opened(thresholds=Thresholds(cache_bytes=threshold), cache_alert_bytes=1000) as store:
        task = store.task("t")
        task.save({"text": "x" * 1100})
        _ = store.get_checkpoint(store.list_checkpoints("t")[0].id).state
    assert len(alerts) == told


def test_a_share_of_the_quota_is_told_when_somebody_looks(opened: Callable[..., Store], alerts: list[Alert]) -> None:
    with opened(max_bytes=1 << 30, thresholds=Thresholds(quota_share=0.5)) as store:
        store.task("t").save({})
        store.metrics()
        assert alerts == []
        store._engine.alerts.check_size(600 << 20)
        store._engine.alerts.check_size(700 << 20)
    assert codes(alerts) == ["quota"]
    assert alerts[0].message == "the store takes 629,145,600 bytes of the 1,073,741,824 allowed"


def test_metrics_and_housekeeping_look_at_the_quota(opened: Callable[..., Store], alerts: list[Alert]) -> None:
    for looks_by_itself in (False, True):
        with opened(max_bytes=1 << 30, thresholds=Thresholds(quota_share=0.000_001)) as store:
            store.task("t").append({})
            assert isinstance(store._engine.housekeeper, Housekeeping)
            look: Callable[[], object] = store._engine.housekeeper.work if looks_by_itself else store.metrics
            look()
    assert codes(alerts) == ["quota", "quota"]


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: bad} for name in Thresholds.__struct_fields__[:4] for bad in (-1, 0.5, "5", True)),
        {"save_failures": 0},
        *({"quota_share": bad} for bad in (0, -1, 1.1, "half", True, float("nan"))),
    ],
    ids=str,
)
def test_a_threshold_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=next(iter(wrong))):
        Thresholds(**wrong)


def test_thresholds_are_thresholds(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="thresholds"):
        lastgood.open(tmp_path / "store", thresholds={"save_failures": 1})
