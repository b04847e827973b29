"""Apache Kafka's tools for groups, 4.3.1: list, describe, reset, delete.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from conformance.java_tools import CONSUMER_GROUPS, Tools
from waiting import eventually

TEN = [f"value-{number}" for number in range(10)]
HOUR_MS = 3_600_000


@pytest.fixture
def topic(tools: Tools) -> str:
    """Ten records of two hours ago in partition 0, ten new ones in 1, none in partition 2."""
    name = tools.new_topic(3)
    now = int(time.time() * 1000)
    tools.fill(name, TEN, 0, first_timestamp=now - 2 * HOUR_MS)
    tools.fill(name, TEN, 1, first_timestamp=now - 60_000)
    return name


@pytest.fixture
def live_group(tools: Tools, topic: str) -> Iterator[str]:
    """Two members, one of them static, with three partitions, of which partition 0 is committed."""
    group = f"live-{topic}"
    settings = {
        "bootstrap.servers": tools.bootstrap,
        "group.id": group,
        "partition.assignment.strategy": "range",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 100,
    }
    static = {"client.id": "second", "group.instance.id": "instance"}
    members = [Consumer({**settings, **more}) for more in ({"client.id": "first"}, static)]
    for member in members:
        member.subscribe([topic])

    def settled() -> bool:
        for member in members:
            member.poll(0.02)
        return sorted(len(member.assignment()) for member in members) == [1, 2]

    eventually(settled, lambda: [member.assignment() for member in members])
    (owner,) = (m for m in members if TopicPartition(topic, 0) in m.assignment())
    owner.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    yield group
    for member in members:
        member.close()
    tools.run(CONSUMER_GROUPS, "--delete", "--group", group)


def reset(tools: Tools, group: str, *words: str) -> dict[int, int]:
    """Reset offsets, and return the printed new offset of each partition."""
    rows = tools.rows(CONSUMER_GROUPS, "--reset-offsets", "--group", group, *words)
    return {int(row[2]): int(row[3]) for row in rows if row[0] == group}


def committed(tools: Tools, group: str) -> dict[int, tuple[str, str, str]]:
    """Return current offset, log end offset and lag of each partition, from `--describe`."""
    rows = tools.table(CONSUMER_GROUPS, "--describe", "--group", group)
    return {int(row[2]): (row[3], row[4], row[5]) for row in rows}


def test_offsets_are_reset_in_every_form(tools: Tools, topic: str, tmp_path: Path) -> None:
    group = f"reset-{topic}"
    to_topic = ("--topic", topic)
    assert reset(tools, group, *to_topic, "--to-latest", "--dry-run") == {0: 10, 1: 10, 2: 0}
    assert reset(tools, group, *to_topic, "--to-earliest", "--execute") == {0: 0, 1: 0, 2: 0}
    some = ("--topic", f"{topic}:0,1")
    assert reset(tools, group, *some, "--shift-by", "3", "--execute") == {0: 3, 1: 3}
    assert reset(tools, group, *some, "--shift-by", "-1", "--execute") == {0: 2, 1: 2}
    assert reset(tools, group, *some, "--to-offset", "99", "--dry-run") == {0: 10, 1: 10}
    every = ("--all-topics",)
    assert reset(tools, group, *every, "--by-duration", "PT1H", "--dry-run") == {0: 10, 1: 0, 2: 0}
    hours_ago = datetime.fromtimestamp(time.time() - 2 * HOUR_MS / 1000 + 3600, UTC)
    at = hours_ago.strftime("%Y-%m-%dT%H:%M:%S.000")
    assert reset(tools, group, *every, "--to-datetime", at, "--execute") == {0: 10, 1: 0, 2: 0}
    exported = tools.run(
        CONSUMER_GROUPS, "--reset-offsets", "--group", group, *every, "--to-current", "--export",
        "--dry-run",
    )  # fmt: skip
    assert sorted(exported.split()) == [f"{topic},0,10", f"{topic},1,0", f"{topic},2,0"]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,5\n{topic},1,6\n")
    assert reset(tools, group, "--from-file", str(plan), "--execute") == {0: 5, 1: 6}
    assert committed(tools, group) == {
        0: ("5", "10", "5"),
        1: ("6", "10", "4"),
        2: ("0", "0", "0"),
    }
    words = ("--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert tools.rows(CONSUMER_GROUPS, *words)[-1] == [topic, "0", "Successful"]
    assert set(committed(tools, group)) == {1, 2}
    tools.run(CONSUMER_GROUPS, "--delete", "--group", group)


def test_a_group_is_listed_and_described_in_every_form(
    tools: Tools, topic: str, live_group: str
) -> None:
    describe = ("--describe", "--group", live_group)
    offsets = {int(row[2]): row for row in tools.table(CONSUMER_GROUPS, *describe)}
    assert [offsets[each][3:6] for each in range(3)] == [
        ["4", "10", "6"],
        ["-", "10", "-"],
        ["-", "0", "-"],
    ]
    assert {row[7] for row in offsets.values()} == {"/127.0.0.1"}
    verbose = tools.table(CONSUMER_GROUPS, *describe, "--offsets", "--verbose")
    assert {(row[2], row[4]) for row in verbose} == {("0", "4"), ("1", "-"), ("2", "-")}
    members = tools.table(CONSUMER_GROUPS, *describe, "--members")
    assert sorted(len(row) for row in members) == [5, 6]  # One has an instance id.
    counts = {row[-2]: int(row[-1]) for row in members}
    assert sorted(counts) == ["first", "second"]
    assert sorted(counts.values()) == [1, 2]
    (instance,) = (row[2] for row in members if len(row) == 6)
    assert instance == "instance"
    verbose = tools.table(CONSUMER_GROUPS, *describe, "--members", "--verbose")
    assert {row[-3] for row in verbose} == {f"{topic}:0,1", f"{topic}:2"}
    (state,) = tools.table(CONSUMER_GROUPS, *describe, "--state")
    assert state == [live_group, tools.bootstrap, "(1)", "range", "Stable", "2"]
    (state,) = tools.table(CONSUMER_GROUPS, *describe, "--state", "--verbose")
    assert state == [live_group, tools.bootstrap, "(1)", "range", "Stable", "-", "-", "2"]
    assert [live_group] in tools.rows(CONSUMER_GROUPS, "--list")
    assert [live_group, "Stable"] in tools.rows(CONSUMER_GROUPS, "--list", "--state", "stable")
    assert [live_group, "Classic"] in tools.rows(CONSUMER_GROUPS, "--list", "--type", "classic")
    empty = tools.rows(CONSUMER_GROUPS, "--list", "--state", "empty")
    assert [live_group, "Empty"] not in empty
    everything = tools.rows(CONSUMER_GROUPS, "--describe", "--all-groups", "--state")
    assert [live_group, tools.bootstrap, "(1)", "range", "Stable", "2"] in everything


def test_a_group_with_members_is_not_changed(tools: Tools, topic: str, live_group: str) -> None:
    words = ("--reset-offsets", "--group", live_group, "--topic", topic, "--to-earliest")
    printed = tools.run(CONSUMER_GROUPS, *words, "--execute")
    assert "is inactive, but the current state is Stable" in printed
    words = ("--delete-offsets", "--group", live_group, "--topic", topic)
    assert tools.run(CONSUMER_GROUPS, *words).count("GroupSubscribedToTopicException") == 3
    printed = tools.run(CONSUMER_GROUPS, "--delete", "--group", live_group, "--group", "nobody")
    assert "'nobody' could not be deleted due to: org.apache.kafka.common.errors.GroupId" in printed
    assert f"'{live_group}' could not be deleted due to: org.apache.kafka.common.errors." in printed
    assert "GroupNotEmptyException" in printed
    assert committed(tools, live_group)[0] == ("4", "10", "6")


def test_kafka_groups_lists_groups_by_type_and_protocol(tools: Tools, topic: str) -> None:
    group = f"listed-{topic}"
    reset(tools, group, "--topic", topic, "--to-earliest", "--execute")
    # No member has joined: the group has offsets, but no protocol.
    assert any(row[:2] == [group, "Classic"] for row in tools.rows("GroupsCommand", "--list"))
    classic = ("--list", "--group-type", "classic")
    assert any(row[0] == group for row in tools.rows("GroupsCommand", *classic))
    assert not any(row[0] == group for row in tools.rows("GroupsCommand", "--list", "--share"))
    tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
    assert not any(row[0] == group for row in tools.rows("GroupsCommand", "--list"))


def test_a_java_member_of_a_consumer_group_reads_commits_and_leaves(
    tools: Tools, topic: str
) -> None:
    group = f"consumer-protocol-{topic}"
    printed = tools.run(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--max-messages", "20",
        "--command-property", "group.protocol=consumer",
        "--command-property", "auto.offset.reset=earliest",
    )  # fmt: skip
    assert sorted(printed.split()) == sorted(TEN * 2)
    assert [group, "Consumer", "consumer"] in tools.rows("GroupsCommand", "--list", "--consumer")
    assert {each[0] for each in committed(tools, group).values()} == {"0", "10"}
    (state,) = tools.table(CONSUMER_GROUPS, "--describe", "--group", group, "--state", "--verbose")
    assert state[-5:] == ["uniform", "Empty", "3", "3", "0"]
    tools.run(CONSUMER_GROUPS, "--delete", "--group", group)


def test_a_missing_group_is_not_described(tools: Tools) -> None:
    for words in ((), ("--members",), ("--state",), ("--offsets", "--verbose")):
        printed = tools.run(CONSUMER_GROUPS, "--describe", "--group", "nobody", *words)
        assert "GroupIdNotFoundException: Group nobody not found." in printed
