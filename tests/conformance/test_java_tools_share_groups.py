"""Share groups: Apache Kafka's tools (4.3.1) and our Admin client, on both brokers.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas
from barnabas import ConfigResource, NewTopic, ResourceType, TopicPartition
from barnabas.client.admin.group_descriptions import GroupDescription
from barnabas.client.admin.share_groups import ShareOffset
from barnabas.client.errors import BrokerError
from barnabas.protocol.messages.share_consumers import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from conformance.java_tools import Tools
from conformance.raw_client import RawClient
from waiting import eventually, eventually_equal

CONSOLE = "consumer.ConsoleShareConsumer"
SHARE_GROUPS, GROUPS = "consumer.group.ShareGroupCommand", "GroupsCommand"
TEN = [f"value-{number}" for number in range(10)]
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


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
    """A member of a share group that sends heartbeats only."""

    def __init__(self, tools: Tools, admin: barnabas.Admin, group: str, topic: str) -> None:
        self._admin = admin
        self._raw = RawClient(tools.bootstrap)
        self._group = group
        self._topic = topic

    def beat(self, epoch: int) -> bool:
        response = self._raw.ask(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=MEMBER,
                member_epoch=epoch,
                subscribed_topic_names=[self._topic] if epoch == 0 else None,
            ),
            1,
        )
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response.error_code == 0

    def join(self) -> None:
        # A search for the coordinator creates the offsets topic.
        eventually(lambda: bool(self._admin.coordinators([self._group])) and self.beat(0))

    def leave(self) -> None:
        assert self.beat(-1)
        self._raw.close()


def test_the_tools_list_describe_reset_and_delete_a_share_group(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group = f"shared-{topic}"
    of_group = ("--group", group)
    member = Member(tools, admin, group, topic)
    member.join()
    assert [group, "Stable"] in tools.table(SHARE_GROUPS, "--list", "--state")
    listed = tools.table(GROUPS, "--list", "--share")
    assert [group, "Share", "share"] in listed
    (state,) = tools.table(SHARE_GROUPS, "--describe", *of_group, "--state", "--verbose")
    assert (state[0], state[-1]) == (group, "1")
    assert "Stable" in state
    (found,) = tools.table(SHARE_GROUPS, "--describe", *of_group, "--members")
    assert found[:2] == [group, MEMBER]
    member.leave()

    reset = ("--reset-offsets", *of_group, "--topic", topic)
    rows = tools.table(SHARE_GROUPS, *reset, "--to-earliest", "--execute")
    assert sorted(row[:4] for row in rows) == [[group, topic, "0", "0"], [group, topic, "1", "0"]]
    # Kafka stores the offsets after its response.
    described = ("--describe", *of_group, "--offsets")
    eventually_equal(
        lambda: sorted(tools.table(SHARE_GROUPS, *described)),
        [[group, topic, "0", "0", "10"], [group, topic, "1", "0", "0"]],
    )
    rows = tools.table(SHARE_GROUPS, *reset, "--to-latest", "--execute")
    assert sorted(row[:4] for row in rows) == [[group, topic, "0", "10"], [group, topic, "1", "0"]]
    deleted = tools.run(SHARE_GROUPS, "--delete-offsets", *of_group, "--topic", topic)
    assert topic in deleted
    assert "Successful" in deleted
    tools.run(SHARE_GROUPS, "--delete", *of_group)
    assert group not in tools.run(SHARE_GROUPS, "--list")


def test_our_admin_describes_alters_and_deletes_offsets(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group, tp = f"share-{topic}", TopicPartition(topic, 0)
    member = Member(tools, admin, group, topic)
    member.join()
    described = admin.describe_share_groups([group])[group]
    assert isinstance(described, GroupDescription)
    (found,) = described.members
    assert (described.type, found.member_id, found.topics) == ("share", MEMBER, (topic,))
    assert [each.type for each in admin.list_groups() if each.group_id == group] == ["share"]
    refused = admin.delete_groups([group], raise_errors=False)[group]
    assert isinstance(refused, BrokerError)
    member.leave()
    assert admin.alter_share_group_offsets(group, {tp: 4}) == {tp: None}

    def offset() -> object:
        offsets = admin.describe_share_group_offsets([group])[group]
        assert isinstance(offsets, dict)
        return offsets.get(tp)

    def start_and_lag() -> tuple[int, int | None] | None:
        found = offset()
        return (found.start_offset, found.lag) if isinstance(found, ShareOffset) else None

    eventually_equal(start_and_lag, (4, 6))
    assert admin.delete_share_group_offsets(group, [topic]) == {topic: None}
    eventually(lambda: not isinstance(offset(), ShareOffset))
    assert admin.delete_groups([group]) == {group: True}


def test_records_that_the_console_consumer_rejects_get_dead_letters(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group, dead = f"rejecting-{topic}", f"dlq.{topic}"
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    admin.create_topics([NewTopic(dead, 1, 1, enabled)])
    configs = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": dead}
    admin.alter_configs(ConfigResource(ResourceType.GROUP, group), configs)
    words = ("--topic", topic, "--group", group, "--reject", "--max-messages", "10")
    assert sorted(tools.run(CONSOLE, *words).splitlines()) == sorted(TEN)
    eventually_equal(lambda: tools.offsets(dead), {0: 10})
