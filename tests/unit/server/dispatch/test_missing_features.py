"""A missing feature is logged once per client software, with bounded memory."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.quorum import VoteRequest
from barnabas.server.dispatch.client_software import PAIRS_MAX
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

FEATURE = "API Vote"


@pytest.fixture
def broker() -> SimulatedBroker:
    return SimulatedBroker()


def client_of(
    broker: SimulatedBroker, name: str, version: str = "1.0", host: str = ""
) -> SimulatedClient:
    """A new connection whose client has named its software."""
    client = SimulatedClient(broker.world, host or f"{name}-{broker.world.scheduler.now_ms}")
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    client.ask(request, 3)
    return client


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.endswith("client_software")]


def request_missing_api(broker: SimulatedBroker, client: SimulatedClient) -> None:
    """Send a request of an API that is not served: the broker closes the connection."""
    request = VoteRequest(topics=[])
    client.send(request, 0)
    assert broker.world.run_until(lambda: bool(client.closed))


def test_a_feature_is_logged_once_per_software_and_version(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for name, version in (("ducks", "1.0"), ("ducks", "1.0"), ("ducks", "2.0"), ("geese", "1.0")):
        client = client_of(broker, name, version)
        request_missing_api(broker, client)
    lines = told(caplog)
    assert len(lines) == 3
    assert all(f"feature={FEATURE}" in line for line in lines)
    for line, (name, version) in zip(
        lines, (("ducks", "1.0"), ("ducks", "2.0"), ("geese", "1.0")), strict=True
    ):
        assert f"software={name} version={version} " in line


def test_several_features_of_one_software_are_logged(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(broker, "ducks")
    assert broker.node.broker is not None
    connection = broker.node.broker.listeners[0].connections[-1]
    broker.node.shared.missing_features.note_version(connection, 3)
    request_missing_api(broker, client)
    features = [line.partition("feature=")[2].partition(" software=")[0] for line in told(caplog)]
    assert features == ["unsupported version of API Metadata", FEATURE]


def test_a_client_without_a_software_name_is_logged_as_unknown(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    request_missing_api(broker, broker.client)
    (line,) = told(caplog)
    assert "software=unknown version=unknown address=" in line


def test_all_unknown_api_keys_are_one_feature(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    missing = broker.node.shared.missing_features
    assert broker.node.broker is not None
    (connection,) = broker.node.broker.listeners[0].connections
    for api_key in (5_000, 5_001, -3):
        missing.note_api(connection, api_key)
    missing.note_version(connection, 3)
    assert len(told(caplog)) == 2
    assert "feature=unsupported version of API Metadata " in told(caplog)[1]


def test_invented_software_names_take_bounded_memory(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(PAIRS_MAX + 5):
        client = client_of(broker, f"made-up-{number}", host=f"host-{number}")
        request_missing_api(broker, client)
    lines = told(caplog)
    assert len(lines) == PAIRS_MAX + 1
    assert lines[-1].startswith("Further missing features are not logged")
