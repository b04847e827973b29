"""The table of checks has a row for each served API."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.server.handlers.broker_apis import served_apis
from barnabas.server.handlers.controller_apis import CONTROLLER_APIS
from barnabas.server.security.authorizer.checks.table import (
    BROKER_CHECKS,
    CONTROLLER_CHECKS,
    CONTROLLER_LISTENER_CHECKS,
    Row,
)
from barnabas.server.security.authorizer.guard import Guard, UncheckedApiError

ROWS = [
    row
    for rows in (BROKER_CHECKS, CONTROLLER_CHECKS, CONTROLLER_LISTENER_CHECKS)
    for row in rows.values()
]


def test_each_api_of_brokers_has_a_row() -> None:
    served = served_apis(has_telemetry=True, has_unstable=True)
    assert set(served) <= set(BROKER_CHECKS) | set(CONTROLLER_CHECKS)


def test_apis_that_brokers_serve_themselves_are_checked_by_brokers() -> None:
    own = {key for key, api in served_apis(has_telemetry=True).items() if not api.is_forwarded}
    assert own <= set(BROKER_CHECKS)


def test_each_api_of_controllers_has_a_row() -> None:
    assert set(CONTROLLER_APIS) <= set(CONTROLLER_LISTENER_CHECKS) | set(CONTROLLER_CHECKS)


def test_what_the_controller_of_the_process_does_not_serve_is_checked_by_the_listener() -> None:
    direct = {
        key
        for key, api in CONTROLLER_APIS.items()
        if not api.is_forwarded and "controller_request" not in api.module
    }
    assert direct <= set(CONTROLLER_LISTENER_CHECKS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.function], ids=lambda row: row.function)
def test_each_check_function_is_there(row: Row) -> None:
    assert callable(row.load())


def test_an_api_without_a_row_is_not_served() -> None:
    guard = Guard(None, {}, {ApiKey.CREATE_TOPICS})  # type: ignore[arg-type]

    def handle(*_: object) -> None:
        return None

    assert guard.wrap(ApiKey.CREATE_TOPICS, handle) is handle
    with pytest.raises(UncheckedApiError):
        guard.wrap(ApiKey.FETCH, handle)
