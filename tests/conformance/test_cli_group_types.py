"""`barnabas groups` about a consumer, a share and a streams group, each with one member."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.share_consumers import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest
from barnabas.protocol.schema import Message
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.raw_client import RawClient
from unit.coordinator.streams_world import topology
from waiting import eventually

pytestmark = pytest.mark.conformance
TOPIC = "work"


def consumer() -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id="consumer-group",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )


def share() -> Message:
    return ShareGroupHeartbeatRequest(
        group_id="share-group", member_id="m", member_epoch=0, subscribed_topic_names=[TOPIC]
    )


def streams() -> Message:
    return StreamsGroupHeartbeatRequest(
        group_id="streams-group",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=topology(TOPIC),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        endpoint_information_epoch=0,
        client_tags=[],
    )


@pytest.mark.parametrize("join", [consumer, share, streams])
def test_a_group_is_listed_with_its_type_described_and_explained(
    join: Callable[[], Message],
) -> None:
    kind = join.__name__
    # Without a delay, the first member gets its tasks at once.
    settings = {"group.streams.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(settings=settings) as broker:
        broker.create_topic(TOPIC)
        with closing(RawClient(broker.bootstrap)) as client:
            eventually(lambda: not client.ask(FindCoordinatorRequest(key="g"), 0).error_code)
            eventually(lambda: not client.ask(join(), 1).error_code)
        shell = Shell(broker.bootstrap)
        (listed,) = shell.json("groups", "list", "--type", kind)
        assert (listed["group"], listed["type"].lower()) == (f"{kind}-group", kind)
        described = shell.json("groups", "describe", f"{kind}-group")
        assert described["group"] == f"{kind}-group"
        (member,) = described["members"]
        assert member["member"] == "m"
        done = shell.run_in_process("why", "--group", f"{kind}-group", "--seconds", "0.2")
        assert f"group {kind}-group" in done.stdout
