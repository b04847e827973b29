"""Requests of every API without a login, and of clients with few rights: nothing is given away.

A client without a login gets no answer, and changes nothing. A client without rights gets the same
answer for a resource that is there and for one that is not, and no byte of other clients' data.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.server.handlers.broker_apis import SERVED_APIS
from conformance.raw_client import RawClient
from differential.matrix.inputs import changed, inputs
from differential.matrix.left_out import is_sent
from differential.matrix.standing import resolved
from differential.matrix.valid import VALID
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
from differential.scene import Scene, ask
from differential.secured import HOSTS, SecuredScene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from differential.matrix.valid import Make
    from differential.restricted import RestrictedPair
    from differential.side import Side

pytestmark = pytest.mark.conformance

WAYS = [
    (api, name, make)
    for api, ways in VALID.items()
    if api not in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    for name, make in ways.items()
]
IDS = [f"{api.name.lower()}: {name}" for api, name, _ in WAYS]
# Inputs that ask for everything there is.
EVERYTHING = {"null allowed", "empty list"}
# Names that a host with some rights may not see, beside hosts that may see no planted name.
MAY_NOT_SEE = {
    "nothing": [PLANTED],
    "by prefix": [PLANTED],
    "all of topic": [GROUP, ID, f"{PLANTED}-user", f"{PLANTED}-client", f"{PLANTED}-instance"],
    "all of group": [TOPIC, ID, f"{PLANTED}-user", f"{PLANTED}-client", f"{PLANTED}-record"],
    "all of transactional_id": [TOPIC, GROUP, f"{PLANTED}-user", f"{PLANTED}-client"],
}
# Answers that bear an id which the broker drew for this request.
NEW_IDS = {ApiKey.INIT_PRODUCER_ID, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestrictedPair]:
    with started_restricted_pair(tmp_path_factory.mktemp("restricted")) as made:
        yield made


# -- Without a login -----------------------------------------------------------------------------


def _fresh(_client: RawClient) -> None:
    """The request is the first one."""


def _with_versions(client: RawClient) -> None:
    client.ask(ApiVersionsRequest(), 2)


def _chosen(client: RawClient) -> None:
    client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)


def _midway(client: RawClient) -> None:
    _chosen(client)
    message = SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc")
    assert client.ask(message, 2).error_code == 0  # type: ignore[attr-defined]


def _failed(client: RawClient) -> None:
    """The refusal and the request cross."""
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)


STATES: list[Callable[[RawClient], None]] = [_fresh, _with_versions, _chosen, _midway, _failed]


@pytest.mark.parametrize(("api", "name", "make"), WAYS, ids=IDS)
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
        # Each version in one state, the first and the last one in all of them.
        is_edge = number in (0, len(frames) - 1)
        for begin in STATES if is_edge else [STATES[number % len(STATES)]]:
            client = RawClient(broker.sasl_bootstrap)
            begin(client)
            client.send_bytes(frame)
            clients.append((client, begin))
    for client, begin in clients:
        if begin is _failed:
            # The answers of the login.
            client.receive_frame()
            client.receive_frame()
        assert client.is_closed_by_broker(), (api, begin)
        client.close()
    assert state_of(side) == before


def test_every_api_is_sent_without_a_login() -> None:
    # The three of a login have tests of their own, as those of brokers have (`test_sasl_frames`).
    sent = {int(api) for api, _, _ in WAYS}
    logins = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {int(key) for key in SERVED_APIS} - sent <= {int(key) for key in logins}


# -- With few rights -----------------------------------------------------------------------------


def _answer(side: Side, frame: bytes, on: str) -> bytes:
    side.send_bytes(frame, on)
    outcome = side.receive(on)
    # A closed connection is no answer, whatever the request names.
    return outcome if isinstance(outcome, bytes) else repr(outcome).encode()


def _topic_ids(side: Side) -> set[bytes]:
    drawn = side.drawn()
    return {each for name, each in drawn.items() if name.startswith("id of ")}  # type: ignore[misc]


@pytest.mark.parametrize(("api", "name", "make"), WAYS, ids=IDS)
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
                # Ids are random: a client that knows one has seen the topic. Kafka's answers to
                # known and unknown ids differ, and ours are compared with them by `test_secured`.
                continue
            first = _answer(side, frame_of(api, version, there, side), f"{host}/")
            second = _answer(side, frame_of(api, version, not_there, side), f"{host}/")
            if first.replace(HIDDEN.encode(), ABSENT.encode()) != second:
                found[version, host] = (first, second)
    assert not found


def _names_by_id(value: Any, topic_ids: set[bytes]) -> bool:
    """Whether a request has an id and no name for it."""
    if isinstance(value, list):
        return any(_names_by_id(each, topic_ids) for each in value)
    if isinstance(value, dict):
        return any(_names_by_id(each, topic_ids) for each in value.values())
    return isinstance(value, bytes) and value in topic_ids and value != ABSENT_ID


@pytest.mark.parametrize(("api", "name", "make"), WAYS, ids=IDS)
def test_answers_have_nothing_of_other_people(
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
                answer = _answer(side, frame, f"{host}/")
                seen = [marker for marker in markers if marker.encode() in answer]
                if seen:
                    found[version, host, each.label] = seen
    assert not found


def test_what_is_planted_is_seen_by_clients_with_rights(pair: RestrictedPair) -> None:
    """The tests above would find it."""
    side = pair.kafka
    asked: list[tuple[ApiKey, int, dict[str, Any], str]] = [
        (ApiKey.METADATA, 9, {"topics": None}, TOPIC),
        (ApiKey.LIST_GROUPS, 4, {}, GROUP),
        (ApiKey.LIST_TRANSACTIONS, 0, {}, ID),
        (ApiKey.DESCRIBE_GROUPS, 5, {"groups": [GROUP]}, f"{PLANTED}-instance"),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, f"{PLANTED}-user"),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": []}, f"{PLANTED}-client"),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [ID]}, TOPIC),
        (ApiKey.OFFSET_FETCH, 7, {"group_id": GROUP, "topics": None}, TOPIC),
    ]
    for api, version, values, marker in asked:
        assert marker.encode() in _answer(side, frame_of(api, version, values, side), ""), api


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_of_topics_without_rights_are_not_told(version: int, pair: RestrictedPair) -> None:
    """A client may use the group, and no topic."""
    assert version in pair.versions(ApiKey.OFFSET_FETCH)
    values: dict[str, Any] = {"group_id": GROUP, "topics": None if version >= 2 else []}
    if version >= 8:
        values = {"groups": [{"group_id": GROUP, "topics": None}]}
    side = pair.kafka
    frame = frame_of(ApiKey.OFFSET_FETCH, version, values, side)
    assert TOPIC.encode() not in _answer(side, frame, "all of group/")


@pytest.mark.parametrize("api", [ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS])
def test_partitions_of_a_transaction_without_rights_are_not_told(
    api: ApiKey, pair: RestrictedPair
) -> None:
    """A client may use the transactional id, and no topic."""
    side = pair.kafka
    values = {"transactional_ids": [ID]} if api == ApiKey.DESCRIBE_TRANSACTIONS else {}
    for version in pair.versions(api):
        answer = _answer(side, frame_of(api, version, values, side), "all of transactional_id/")
        assert ID.encode() in answer
        assert TOPIC.encode() not in answer


def test_the_sides_still_answer(pair: RestrictedPair) -> None:
    for side, broker in zip(pair.sides(), pair.brokers, strict=True):
        assert ask(side, ApiKey.API_VERSIONS, 2, {}).error_code == 0
        assert "Traceback" not in broker.log()
