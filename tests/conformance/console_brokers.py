"""Fixtures for tests of the console: a broker of each kind, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client

# No page and no request takes so long, not even on a busy machine.
SECONDS = 60


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def address(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of a broker of each kind."""
    name = "reference_broker" if request.param == "kafka" else "clients_bootstrap"
    found = request.getfixturevalue(name)
    return found if isinstance(found, str) else str(found.bootstrap)


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Client]:
    """A client for that broker."""
    with Client(address, default_api_timeout_ms=SECONDS * 1000) as made:
        yield made
