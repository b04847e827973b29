"""Each served API has a handler, whose parameters name dependencies of its listeners."""

from __future__ import annotations

import importlib
from inspect import signature

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, ServedApi, served_apis
from barnabas.server.handlers.dependencies import (
    BrokerDependencies,
    ControllerListenerDependencies,
    NodeDependencies,
    find_creator,
)

ROWS = [
    *((key, api, BrokerDependencies) for key, api in served_apis(has_telemetry=True).items()),
    *((key, api, ControllerListenerDependencies) for key, api in CONTROLLER_APIS.items()),
]


@pytest.mark.parametrize(("key", "api", "listener"), ROWS, ids=lambda each: str(each)[:40])
def test_the_parameters_of_a_handler_are_dependencies_of_its_listener(
    key: int, api: ServedApi, listener: type[NodeDependencies]
) -> None:
    module = importlib.import_module(f"barnabas.server.handlers.{api.module}")
    create = find_creator(module, ApiKey(key), api.function)
    known = {**NodeDependencies.__annotations__, **listener.__annotations__}
    for name, parameter in signature(create).parameters.items():
        assert known.get(name) == parameter.annotation, name
