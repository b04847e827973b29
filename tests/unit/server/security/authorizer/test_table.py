"""The table of APIs has a right for each served API, and the functions that it names exist."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, Right, served_apis
from barnabas.server.security.authorizer.checks import refusals
from barnabas.server.security.authorizer.guard import Guard, UncheckedApiError, load_check

BROKER_APIS = served_apis(has_telemetry=True, has_unstable=True)
ROWS = [*BROKER_APIS.items(), *CONTROLLER_APIS.items()]
RIGHTS = [
    (key, right)
    for key, api in ROWS
    for right in (api.right, api.controller_right)
    if right is not None
]


def is_left_to_controller(right: Right) -> bool:
    return right == BROKER_APIS[ApiKey.CREATE_TOPICS].right


def test_an_api_that_brokers_serve_themselves_is_checked_by_brokers() -> None:
    own = [api for api in BROKER_APIS.values() if not api.is_forwarded]
    assert own
    assert not any(is_left_to_controller(api.right) for api in own)


def test_what_the_controller_of_the_process_does_not_serve_is_checked_by_the_listener() -> None:
    own = [api for api in CONTROLLER_APIS.values() if not api.is_forwarded]
    assert own
    assert not any(is_left_to_controller(api.right) for api in own)


@pytest.mark.parametrize(
    ("key", "right"), [(key, right) for key, right in RIGHTS if right.module], ids=str
)
def test_each_check_function_is_there(key: int, right: Right) -> None:
    assert callable(load_check(key, right))


@pytest.mark.parametrize("name", sorted({right.refusal for _, right in RIGHTS if right.refusal}))
def test_each_refusal_is_there(name: str) -> None:
    assert callable(getattr(refusals, name))


def test_an_api_without_a_right_is_not_served() -> None:
    guard = Guard(None, {ApiKey.CREATE_TOPICS: Right("none")})  # type: ignore[arg-type]

    def handle(*_: object) -> None:
        return None

    assert guard.wrap(ApiKey.CREATE_TOPICS, handle) is handle
    with pytest.raises(UncheckedApiError):
        guard.wrap(ApiKey.FETCH, handle)
