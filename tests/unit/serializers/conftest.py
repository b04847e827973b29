"""A registry in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.serializers import SchemaRegistry
from unit.serializers.registry_server import RegistryServer


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture(scope="module")
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)
