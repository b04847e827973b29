"""Requests of every API without a login, and of clients with few permissions, disclose nothing.

A client without a login gets no response, and changes nothing. A client without permissions gets
the same response for existing and absent resources, and no byte of other clients' data.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.server.dispatch.served_apis import SERVED_APIS
from conformance.raw_client import RawClient
from differential.matrix.excluded_inputs import is_sent
from differential.matrix.inputs import changed, inputs
from differential.matrix.objects import resolved
from differential.matrix.valid_requests import VALID
from differential.restricted import (
    ABSENT,
    ABSENT_ID,
    GROUP,
    HIDDEN,
    ID,
    PLANTED,
    TOPIC,
    frame_of,
    started_restricted_pair,
    state_of,
    twin,
)
from differential.scene import Scene, exchange
from differential.secured import HOSTS, SecuredScene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.matrix.valid_requests import Make
    from differential.restricted import RestrictedPair
    from differential.side import Side


pytestmark = pytest.mark.conformance

REQUESTS = [
    (api, name, make)
    for api, ways in VALID.items()
    if api not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    for name, make in ways.items()
]
IDS = [f"{api.name.lower()}: {name}" for api, name, _ in REQUESTS]
# Classes of inputs that request all resources.
EVERYTHING = {"null allowed", "empty list"}
# The planted names that must not appear in the responses to each host.
MAY_NOT_SEE = {
    "nothing": [PLANTED],
    "by prefix": [PLANTED],
    "all of topic": [GROUP, ID, f"{PLANTED}-user", f"{PLANTED}-client", f"{PLANTED}-instance"],
    "all of group": [TOPIC, ID, f"{PLANTED}-user", f"{PLANTED}-client", f"{PLANTED}-record"],
    "all of transactional_id": [TOPIC, GROUP, f"{PLANTED}-user", f"{PLANTED}-client"],
}
# APIs whose responses contain an id that the broker generates for the request.
NEW_IDS = {ApiKey.INIT_PRODUCER_ID, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestrictedPair]:
    with started_restricted_pair(tmp_path_factory.mktemp("restricted")) as made:
        yield made


# -- Without a login -----------------------------------------------------------------------------


def _fresh(_client: RawClient) -> None:
    """Send no request before the tested request."""


def _after_api_versions(client: RawClient) -> None:
    client.ask(ApiVersionsRequest(), 2)


def _after_handshake(client: RawClient) -> None:
    client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)


def _during_scram(client: RawClient) -> None:
    _after_handshake(client)
    message = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc")
    assert client.ask(message, 2).error_code == 0  # type: ignore[attr-defined]


def _after_failure(client: RawClient) -> None:
    """The tested request is sent before the broker's refusal arrives."""
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)


STATES: list[Callable[[RawClient], None]] = [
    _fresh,
    _after_api_versions,
    _after_handshake,
    _during_scram,
    _after_failure,
]


@pytest.mark.parametrize(("api", "name", "make"), REQUESTS, ids=IDS)
def test_no_request_is_served_without_a_login(
    api: ApiKey, name: str, make: Make, pair: RestrictedPair
) -> None:
    side, broker = pair.kafka, pair.brokers[0]
    frames = []
    for version in pair.versions(api):
        scene = Scene(pair, api, f"login-{api.name.lower()}-{name}".replace(" ", "-"), version)
        frames.append(frame_of(api, version, make(scene), side))
    before = state_of(side)
    clients = []
    for number, frame in enumerate(frames):
        # The first and the last version are sent in all states, the other versions in one state.
        is_edge = number in (0, len(frames) - 1)
        for begin in STATES if is_edge else [STATES[number % len(STATES)]]:
            client = RawClient(broker.sasl_bootstrap)
            begin(client)
            client.send_bytes(frame)
            clients.append((client, begin))
    for client, begin in clients:
        if begin is _after_failure:
            # The two responses to the login.
            client.receive_frame()
            client.receive_frame()
        assert client.is_closed_by_broker(), (api, begin)
        client.close()
    assert state_of(side) == before


def test_every_api_is_sent_without_a_login() -> None:
    # `test_sasl_frames` tests the three APIs of a login, and those for brokers.
    sent = {int(api) for api, _, _ in REQUESTS}
    logins = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {int(key) for key in SERVED_APIS} - sent <= {int(key) for key in logins}


# -- With few rights -----------------------------------------------------------------------------


def _response(side: Side, frame: bytes, on: str) -> bytes:
    side.send_bytes(frame, on)
    outcome = side.receive(on)
    # A closed connection discloses nothing.
    return outcome if isinstance(outcome, bytes) else repr(outcome).encode()


def _topic_ids(side: Side) -> set[bytes]:
    assigned = side.named_values()
    return {each for name, each in assigned.items() if name.startswith("id of ")}


@pytest.mark.parametrize(("api", "name", "make"), REQUESTS, ids=IDS)
def test_existence_does_not_leak(api: ApiKey, name: str, make: Make, pair: RestrictedPair) -> None:
    found = {}
    for version in pair.versions(api):
        for host in ("nothing", "by prefix"):
            title = f"{HIDDEN}-{api.name.lower()}-{name}-{host}".replace(" ", "-")
            scene = SecuredScene(pair, api, title, version, HOSTS[host][0])
            values = make(scene)
            side = pair.kafka
            there = resolved(values, side)
            not_there = twin(there, _topic_ids(side))
            if there == not_there or (api in NEW_IDS and host == "by prefix"):
                continue
            if _names_by_id(there, _topic_ids(side)):
                # Ids are random: a client that has an id has seen the topic. Kafka's responses for
                # existing and unknown ids differ. `test_secured` compares ours with Kafka's.
                continue
            first = _response(side, frame_of(api, version, there, side), f"{host}/")
            second = _response(side, frame_of(api, version, not_there, side), f"{host}/")
            if first.replace(HIDDEN.encode(), ABSENT.encode()) != second:
                found[version, host] = (first, second)
    assert not found


def _names_by_id(value: Any, topic_ids: set[bytes]) -> bool:
    """Return whether a request contains the id of an existing topic."""
    if isinstance(value, list):
        return any(_names_by_id(each, topic_ids) for each in value)
    if isinstance(value, dict):
        return any(_names_by_id(each, topic_ids) for each in value.values())
    return isinstance(value, bytes) and value in topic_ids and value != ABSENT_ID


@pytest.mark.parametrize(("api", "name", "make"), REQUESTS, ids=IDS)
def test_responses_contain_no_planted_names(
    api: ApiKey, name: str, make: Make, pair: RestrictedPair
) -> None:
    found = {}
    versions = pair.versions(api)
    for version in versions:
        for host, markers in MAY_NOT_SEE.items():
            if host != "nothing" and version not in (versions[0], versions[-1]):
                continue
            title = f"{HIDDEN}-all-{api.name.lower()}-{name}-{host}".replace(" ", "-")
            scene = SecuredScene(pair, api, title, version, HOSTS[host][0])
            valid = make(scene)
            side = pair.kafka
            for each in inputs(request_class(api), version, valid):
                if each.group not in {"valid", *EVERYTHING} or not is_sent(api, make, each.label):
                    continue
                values = changed(valid, each.path, partial(each.change, scene))
                try:
                    frame = frame_of(api, version, values, side)
                except (ProtocolError, TypeError, AttributeError):
                    # Requests that the class of the request cannot encode.
                    continue
                response = _response(side, frame, f"{host}/")
                seen = [marker for marker in markers if marker.encode() in response]
                if seen:
                    found[version, host, each.label] = seen
    assert not found


def test_clients_with_permissions_see_planted_names(pair: RestrictedPair) -> None:
    """Without this test, the tests above might search for names that no response can contain."""
    side = pair.kafka
    requested: list[tuple[ApiKey, int, dict[str, Any], str]] = [
        (ApiKey.METADATA, 9, {"topics": None}, TOPIC),
        (ApiKey.LIST_GROUPS, 4, {}, GROUP),
        (ApiKey.LIST_TRANSACTIONS, 0, {}, ID),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": [GROUP]}, f"{PLANTED}-instance"),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, f"{PLANTED}-user"),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": []}, f"{PLANTED}-client"),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [ID]}, TOPIC),
        (ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None}, TOPIC),
    ]
    for api, version, values, marker in requested:
        assert marker.encode() in _response(side, frame_of(api, version, values, side), ""), api


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_of_topics_without_permission_are_not_returned(
    version: int, pair: RestrictedPair
) -> None:
    """The client may use the group, and no topic."""
    assert version in pair.versions(ApiKey.OFFSET_FETCH)
    values: dict[str, Any] = {"group_id": GROUP, "topics": None if version >= 2 else []}
    if version >= 8:
        values = {"groups": [{"group_id": GROUP, "topics": None}]}
    side = pair.kafka
    frame = frame_of(ApiKey.OFFSET_FETCH, version, values, side)
    assert TOPIC.encode() not in _response(side, frame, "all of group/")


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS])
def test_partitions_of_a_transaction_without_permission_are_not_returned(
    api: ApiKey, pair: RestrictedPair
) -> None:
    """The client may use the transactional id, and no topic."""
    side = pair.kafka
    values = {"transactional_ids": [ID]} if api == ApiKey.DESCRIBE_TRANSACTIONS else {}
    for version in pair.versions(api):
        response = _response(side, frame_of(api, version, values, side), "all of transactional_id/")
        assert ID.encode() in response
        assert TOPIC.encode() not in response


def test_both_brokers_still_respond(pair: RestrictedPair) -> None:
    for side, broker in zip(pair.sides(), pair.brokers, strict=True):
        assert exchange(side, ApiKey.API_VERSIONS, 2, {}).error_code == 0
        assert "Traceback" not in broker.log()
