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
from lastgood import Store, UnavailableError
from lastgood.types import Alert


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

    with opened(on_alert=save_it) as store:
        fail_commits(store)
        for _ in range(2):
            store.task("t").save({}, on_failure="continue")
        assert store.metrics().value("alerts") == 4
    assert [alert.task_id for alert in alerts] == ["t", "t"]
    assert caplog.text.count("was not saved") == 4


def test_memory_that_goes_up_and_down_around_its_limit_is_one_alert(
    opened: Callable[..., Store], alerts: list[Alert]
) -> None:
    """A5"""
    with opened(cache_checkpoints=1, cache_alert_bytes=1000) as store:
        made = [store.task("t").append({"text": "x" * size}).id for size in (970, 1100, 970, 1100, 500, 1100)]
        for name in made:
            _ = store.find_checkpoint(name).state
    assert codes(alerts) == ["cache_memory", "cache_memory"]
    assert {alert.severity for alert in alerts} == {"warning"}


def test_the_name_of_a_file_forges_no_line_of_the_log_and_nothing_that_a_terminal_obeys(
    opened: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    """S5: whatever is logged is escaped in one place."""
    name = "x\n2026-01-01 INFO all is well \x1b[2J\u202e\udcff"
    opened()._engine.alert(f"1 file(s) could not be put back, the first is {name}", "t", code="restore_incomplete")
    (line,) = [record.getMessage() for record in caplog.records if "all is well" in record.getMessage()]
    assert line.endswith(r"x 2026-01-01 INFO all is well \x1b[2J\u202e\udcff")
