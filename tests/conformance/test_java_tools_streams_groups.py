"""Streams groups: Apache Kafka's tools (4.3.1) and our Admin client, on both brokers.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from conformance.java_tools import CONSUMER_GROUPS, Tools
from conformance.raw_client import RawClient
from waiting import eventually

STREAMS_GROUPS, GROUPS = "streams.StreamsGroupCommand", "GroupsCommand"
TEN = [f"value-{number}" for number in range(10)]
MEMBER = "a-member"


@pytest.fixture
def topic(tools: Tools) -> str:
    """Ten records in partition 0, none in partition 1."""
    name = tools.new_topic(2)
    tools.fill(name, TEN, 0)
    return name


@pytest.fixture
def admin(tools: Tools) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(tools.bootstrap) as made:
        yield made


class Member:
    """A member of a streams group that sends heartbeats only."""

    def __init__(self, tools: Tools, admin: barnabas.Admin, group: str, topic: str) -> None:
        self._admin = admin
        self._raw = RawClient(tools.bootstrap)
        self._group = group
        self._topic = topic
        self._epoch = 0

    def _beat(self, epoch: int) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=self._group, member_id=MEMBER, member_epoch=epoch
        )
        if epoch == 0:
            subtopology = Subtopology(subtopology_id="0", source_topics=[self._topic])
            request.topology = Topology(epoch=0, subtopologies=[subtopology])
            request.active_tasks, request.standby_tasks, request.warmup_tasks = [], [], []
            request.process_id = "a-process"
            request.client_tags = []
            request.rebalance_timeout_ms = 60_000
        answer = self._raw.ask(request, 1)
        assert isinstance(answer, StreamsGroupHeartbeatResponse)
        return answer

    def join(self) -> None:
        """Join, and wait for both tasks."""
        # A search for the coordinator creates the offsets topic.
        eventually(lambda: bool(self._admin.coordinators([self._group])) and self._joined())
        eventually(self._has_tasks)

    def _joined(self) -> bool:
        answer = self._beat(0)
        self._epoch = answer.member_epoch
        return answer.error_code == 0 and not answer.status

    def _has_tasks(self) -> bool:
        answer = self._beat(self._epoch)
        assert answer.error_code == 0, answer
        self._epoch = answer.member_epoch
        return bool(answer.active_tasks)

    def leave(self) -> None:
        """Leave the group, and close the connection."""
        assert self._beat(-1).error_code == 0
        self._raw.close()


def test_the_tools_list_describe_reset_and_delete_a_streams_group(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group = f"streams-{topic}"
    of_group = ("--group", group)
    member = Member(tools, admin, group, topic)
    member.join()
    assert [group, "Stable"] in tools.table(STREAMS_GROUPS, "--list", "--state")
    described = ("--describe", *of_group)
    print(tools.run(STREAMS_GROUPS, *described, "--state"))
    print(tools.run(STREAMS_GROUPS, *described, "--state", "--verbose"))
    print(tools.run(STREAMS_GROUPS, *described, "--members"))
    print(tools.run(STREAMS_GROUPS, *described, "--members", "--verbose"))
    print(tools.run(STREAMS_GROUPS, *described))
    print(tools.run(STREAMS_GROUPS, *described, "--verbose"))
    print(tools.run(GROUPS, "--list"))
    print(tools.run(GROUPS, "--list", "--streams"))
    print(tools.host.run(CONSUMER_GROUPS, "--bootstrap-server", tools.bootstrap, *described))
    print(
        tools.host.run(STREAMS_GROUPS, "--bootstrap-server", tools.bootstrap, "--delete", *of_group)
    )
    member.leave()
    reset = ("--reset-offsets", *of_group, "--input-topic", topic)
    print(tools.run(STREAMS_GROUPS, *reset, "--to-earliest", "--execute"))
    print(tools.run(STREAMS_GROUPS, *described))
    print(tools.run(STREAMS_GROUPS, "--delete-offsets", *of_group, "--input-topic", topic))
    print(tools.run(STREAMS_GROUPS, "--delete", *of_group))
    print(tools.run(STREAMS_GROUPS, "--list"))
    assert 0
