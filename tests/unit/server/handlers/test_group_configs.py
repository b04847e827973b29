"""The configs of a single group apply to the next heartbeat of its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from unit.server.handlers.offset_requests import broker_with_groups

if TYPE_CHECKING:
    from unit.server.simulated_broker import SimulatedBroker

GROUP_RESOURCE = 32
SET, DELETE = 0, 1
INTERVAL = "consumer.heartbeat.interval.ms"


def alter(broker: SimulatedBroker, operation: int, value: str | None) -> None:
    config = AlterableConfig(name=INTERVAL, config_operation=operation, value=value)
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name="g", configs=[config]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert broker.ask(request, 1).responses[0].error_code == 0


class Member:
    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        self.epoch = 0

    def interval_ms(self) -> int:
        """Send a heartbeat, and return the interval in the response."""
        is_new = not self.epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=self.epoch,
            rebalance_timeout_ms=30_000 if is_new else -1,
            subscribed_topic_names=["t"] if is_new else None,
            topic_partitions=[] if is_new else None,
        )
        response = self.broker.ask(request, 1)
        assert response.error_code == 0
        self.epoch = response.member_epoch
        return response.heartbeat_interval_ms


def test_a_changed_config_of_a_group_is_in_the_next_heartbeat() -> None:
    broker = broker_with_groups()
    member = Member(broker)
    found = [member.interval_ms()]
    alter(broker, SET, "6000")
    found.append(member.interval_ms())
    alter(broker, DELETE, None)
    assert [*found, member.interval_ms()] == [5_000, 6_000, 5_000]


def test_the_config_of_a_group_applies_after_a_restart() -> None:
    broker = broker_with_groups()
    alter(broker, SET, "6000")
    broker.stop()
    broker.restart()
    broker.world.run_for(1_000)
    assert Member(broker).interval_ms() == 6_000
