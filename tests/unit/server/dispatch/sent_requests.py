"""Requests that alter and describe configs, and fetch."""

from __future__ import annotations

from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from unit.server.simulated_broker import (
    SimulatedBroker,
)

SET, DELETE = 0, 1


def fetch_request(offset: int, **options: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=[partition])], **options)


def alter(broker: SimulatedBroker, kind: int, name: str, key: str, value: str | None) -> int:
    request = IncrementalAlterConfigsRequest(
        validate_only=False,
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                ],
            )
        ],
    )
    return broker.ask(request, 1).responses[0].error_code


def describe(broker: SimulatedBroker, kind: int, name: str, key: str) -> tuple[str, int, list]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=[key]
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (found,) = broker.ask(request, 4).results[0].configs
    assert found.documentation
    synonyms = [(each.name, each.value, each.source) for each in found.synonyms]
    return found.value, found.config_source, synonyms
