"""Responses of a controller that this version does not understand."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.network.channel import ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.replication.partition.isr import (
    AlterPartitionProposal,
    AlterPartitionResult,
)
from barnabas.server.controller_access.broker_requests import ForwardedAlterPartition
from barnabas.server.controller_access.controller_channel import ChannelSettings
from barnabas.server.controller_access.forwarding import Forwarding, ForwardingDependencies
from barnabas.sim.world import SimWorld
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.timing_wheel import TimingWheel

TOPIC_ID = b"flights".ljust(16, b".")
PROPOSAL = AlterPartitionProposal(TOPIC_ID, TopicPartition("flights", 4), 3, 7, ((1, 10), (2, 11)))


class ScriptedController:
    """The active controller of this process, with scripted responses."""

    is_active = True

    def __init__(self, response: AlterPartitionResponse) -> None:
        self.response = response

    def send(self, _request: Any, on_done: Any, _mutations: Any, _client_context: Any) -> None:
        on_done(self.response)


def answer_to(response: AlterPartitionResponse) -> AlterPartitionResult:
    """Return the result that a leader gets for its proposal, through the real request path."""
    world = SimWorld(1)
    runtime = world.host("broker").runtime
    wheel = TimingWheel(runtime.clock, runtime.timer)
    channel = ChannelDependencies(
        runtime.clock, runtime.timer, runtime.sockets, wheel, new_receive_buffer()
    )
    forwarding = Forwarding(
        ForwardingDependencies(
            channel,
            runtime.rng,
            lambda: None,
            ScriptedController(response),  # type: ignore[arg-type]
        ),
        ChannelSettings("test", 1_000),
    )
    sender = ForwardedAlterPartition(1, lambda: 10, forwarding, runtime.timer)
    answers: list[AlterPartitionResult] = []
    sender.submit(PROPOSAL, answers.append)
    assert world.run_until(lambda: bool(answers), 5_000)
    return answers[0]


def response(**fields: Any) -> AlterPartitionResponse:
    topic_id = fields.pop("topic_id", TOPIC_ID)
    values = {
        "partition_index": 4, "error_code": 0, "isr": [1, 2], "leader_id": 1, "leader_epoch": 3,
        "partition_epoch": 8, **fields,
    }  # fmt: skip
    partition = PartitionDataResponse(**values)
    return AlterPartitionResponse(
        error_code=0, topics=[TopicDataResponse(topic_id=topic_id, partitions=[partition])]
    )


def test_a_known_response_is_applied() -> None:
    answer = answer_to(response())
    assert answer == AlterPartitionResult(ErrorCode.NONE, 1, 3, (1, 2), 8)


@pytest.mark.parametrize("code", [999, -7])
def test_an_unknown_error_code_is_an_unexpected_error(code: int) -> None:
    """The proposal is sent again, instead of being in flight forever."""
    for unknown in (
        AlterPartitionResponse(error_code=code, topics=[]),
        response(error_code=code),
    ):
        assert answer_to(unknown).error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    "incomplete",
    [
        AlterPartitionResponse(error_code=0, topics=[]),
        AlterPartitionResponse(
            error_code=0, topics=[TopicDataResponse(topic_id=TOPIC_ID, partitions=[])]
        ),
        response(partition_index=5),
        response(topic_id=bytes(16)),
    ],
)
def test_a_response_without_the_partition_is_an_unexpected_error(
    incomplete: AlterPartitionResponse,
) -> None:
    assert answer_to(incomplete).error is ErrorCode.UNKNOWN_SERVER_ERROR
