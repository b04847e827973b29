"""Requests of group members that are refused for their size."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from barnabas.protocol.messages.share_consumers import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from barnabas.protocol.schema import Message
from barnabas.server.dispatch import dispatcher
from unit.server.simulated_broker import SimulatedBroker

LONG = "x" * 200
JOIN = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequestProtocol(name="range", metadata=LONG.encode())],
)
SYNC = SyncGroupRequest(
    group_id="g",
    generation_id=1,
    member_id="m",
    assignments=[SyncGroupRequestAssignment(member_id="m", assignment=LONG.encode())],
)
CONSUMER = ConsumerGroupHeartbeatRequest(group_id="g", member_id=LONG, member_epoch=0)
SHARE = ShareGroupHeartbeatRequest(group_id="g", member_id=LONG, member_epoch=0)
STREAMS = StreamsGroupHeartbeatRequest(
    group_id="g", member_id=LONG, member_epoch=0, endpoint_information_epoch=0
)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """Return a broker with small limits."""
    monkeypatch.setattr(dispatcher, "LARGE_BYTES", 100)
    monkeypatch.setattr(dispatcher, "MEMBER_REQUEST_BYTES_MAX", 150)
    return SimulatedBroker()


@pytest.mark.parametrize(
    ("request_", "version", "error"),
    [
        (JOIN, 2, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (JOIN, 9, ErrorCode.GROUP_MAX_SIZE_REACHED),
        (SYNC, 5, ErrorCode.UNKNOWN_SERVER_ERROR),
        (CONSUMER, 1, ErrorCode.INVALID_REQUEST),
        (SHARE, 1, ErrorCode.INVALID_REQUEST),
        (STREAMS, 0, ErrorCode.INVALID_REQUEST),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_large_request_of_a_member_is_refused(
    broker: SimulatedBroker, request_: Message, version: int, error: ErrorCode
) -> None:
    assert broker.ask(request_, version).error_code == error


def test_requests_without_a_limit_are_served(broker: SimulatedBroker) -> None:
    request = HeartbeatRequest(group_id=LONG, generation_id=1, member_id="m")
    assert broker.ask(request, 4).error_code != ErrorCode.INVALID_REQUEST
