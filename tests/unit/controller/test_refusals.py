"""Error responses with many items are built in steps."""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING

import pytest

from barnabas.controller.apis import refuse_request
from barnabas.controller.result import Refusal
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import alter_configs
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterConfigsResource,
    EntityDataRequest,
    EntryDataRequest,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from steps import counted

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

COUNT = 1_000
NAMES = [f"name-{number}" for number in range(COUNT)]

LARGE: list[Message] = [
    CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            for name in NAMES
        ],
        timeout_ms=1,
    ),
    DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1),
    CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES],
        timeout_ms=1,
        validate_only=False,
    ),
    alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=2, resource_name=name, configs=[])
            for name in NAMES
        ],
        validate_only=False,
    ),
    IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES
        ],
        validate_only=False,
    ),
    AlterClientQuotasRequest(
        entries=[
            EntryDataRequest(
                entity=[EntityDataRequest(entity_type="user", entity_name=name)],
                ops=[],
            )
            for name in NAMES
        ],
        validate_only=False,
    ),
    AlterPartitionReassignmentsRequest(
        timeout_ms=1,
        topics=[
            ReassignableTopic(
                name="t",
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=[1])
                    for index in range(COUNT)
                ],
            )
        ],
    ),
    ElectLeadersRequest(
        election_type=0,
        topic_partitions=[TopicPartitions(topic="t", partitions=list(range(COUNT)))],
        timeout_ms=1,
    ),
]


@pytest.mark.parametrize("request_", LARGE, ids=lambda each: type(each).__name__)
def test_an_error_response_with_many_items_is_built_in_steps(request_: Message) -> None:
    refused = refuse_request(request_, Refusal(ErrorCode.REQUEST_TIMED_OUT, "no controller"))
    assert isinstance(refused, GeneratorType)
    response, steps = counted(refused)
    assert steps >= COUNT
    whole = encode_bytes(response, 1)
    assert whole.count(ErrorCode.REQUEST_TIMED_OUT.to_bytes(2, "big")) >= COUNT
