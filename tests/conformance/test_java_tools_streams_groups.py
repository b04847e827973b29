"""Streams groups: Apache Kafka's tools (4.3.1) and our Admin client, on both brokers.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.group_descriptions import StreamsGroupDescription
from conformance.java_tools import CONSUMER_GROUPS, Tools
from conformance.streams_member import MEMBER, StreamsMember

STREAMS_GROUPS, GROUPS = "streams.StreamsGroupCommand", "GroupsCommand"
TEN = [f"value-{number}" for number in range(10)]


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


def test_the_tool_lists_describes_and_deletes_a_streams_group(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group = f"streams-{topic}"
    of_group = ("--group", group)
    described = ("--describe", *of_group)
    member = StreamsMember(tools.bootstrap, admin, group, topic)
    member.join()
    assert [group, "Stable"] in tools.table(STREAMS_GROUPS, "--list", "--state")
    (state,) = tools.table(STREAMS_GROUPS, *described, "--state", "--verbose")
    assert (state[0], state[-1]) == (group, "1")
    assert "Stable" in state
    for verbose in ((), ("--verbose",)):
        printed = tools.run(STREAMS_GROUPS, *described, "--members", *verbose)
        assert group in printed
        assert MEMBER in printed
    refused = tools.host.run(
        STREAMS_GROUPS, "--bootstrap-server", tools.bootstrap, "--delete", *of_group
    )
    assert f"Streams group '{group}' is not EMPTY." in refused.stdout + refused.stderr
    member.leave()
    tools.run(STREAMS_GROUPS, "--delete", *of_group)
    assert group not in tools.run(STREAMS_GROUPS, "--list")


def test_the_tool_describes_resets_and_deletes_the_offsets_of_a_streams_group(
    tools: Tools, admin: barnabas.Admin, topic: str, tmp_path: Path
) -> None:
    group = f"offsets-{topic}"
    of_group = ("--group", group)
    reset = ("--reset-offsets", *of_group)
    delete = ("--delete-offsets", *of_group, "--input-topic", topic)

    def failed(*words: str) -> str:
        done = tools.host.run(STREAMS_GROUPS, "--bootstrap-server", tools.bootstrap, *words)
        return done.stdout + done.stderr

    def offsets(*words: str) -> list[list[str]]:
        """Return partition and new offset of each row."""
        rows = tools.table(STREAMS_GROUPS, *reset, *words, "--execute")
        return sorted(row[2:] for row in rows if row[0] == group)

    assert "GroupIdNotFoundException" in failed(*delete)
    member = StreamsMember(tools.bootstrap, admin, group, topic)
    member.join()
    first = ("--to-earliest", "--dry-run")
    assert "the current state is Stable" in failed(*reset, "--all-input-topics", *first)
    assert failed(*delete).count("GroupSubscribedToTopicException") == 2
    described = ("--describe", *of_group)
    assert sorted(tools.table(STREAMS_GROUPS, *described)) == [
        [group, topic, "0", "10"],
        [group, topic, "1", "0"],
    ]
    member.leave()
    refused = failed(*reset, "--input-topic", f"{topic}:0", *first)
    assert f"are not part of the group '{group}'" in refused

    admin.alter_group_offsets(group, {(topic, 0): 5, (topic, 1): 0})
    exported = tools.run(
        STREAMS_GROUPS, *reset, "--to-offset", "4", "--input-topic", topic, "--export", "--dry-run"
    )
    assert sorted(exported.split()) == [f"{topic},0,4", f"{topic},1,0"]
    # A dry run changes nothing.
    assert offsets("--all-input-topics", "--to-current") == [["0", "5"], ["1", "0"]]
    for target, expected in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "10"),
        (("--to-offset", "3"), "3"),
        (("--shift-by", "2"), "5"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--shift-by", "7"), "7"),
        (("--by-duration", "PT1H"), "0"),
        # There are ten records.
        (("--to-offset", "99"), "10"),
    ):
        assert offsets("--input-topic", f"{topic}:0", *target) == [["0", expected]], target
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,6\n")
    assert offsets("--from-file", str(plan), "--all-input-topics") == [["0", "6"]]
    assert "has no active members" in tools.run(STREAMS_GROUPS, *described, "--state")

    member = StreamsMember(tools.bootstrap, admin, group, topic)
    member.join()
    rows = tools.table(STREAMS_GROUPS, *described, "--offsets", "--verbose")
    assert sorted(rows) == [
        [group, topic, "0", "6", "-", "10", "4"],
        [group, topic, "1", "0", "-", "0", "0"],
    ]
    member.leave()
    assert tools.run(STREAMS_GROUPS, *delete).count("Successful") == 2
    assert admin.list_group_offsets([group]) == {group: {}}
    tools.run(STREAMS_GROUPS, "--delete", *of_group)


def test_the_tools_of_other_groups_see_the_type_of_a_streams_group(
    tools: Tools, admin: barnabas.Admin, topic: str
) -> None:
    group = f"typed-{topic}"
    member = StreamsMember(tools.bootstrap, admin, group, topic)
    member.join()
    for words in ((), ("--streams",), ("--group-type", "streams")):
        assert [group, "Streams", "streams"] in tools.rows(GROUPS, "--list", *words)
    for words in (("--consumer",), ("--share",), ("--group-type", "classic")):
        assert group not in tools.run(GROUPS, "--list", *words)
    assert group not in tools.run(CONSUMER_GROUPS, "--list")
    for words in ((), ("--members",), ("--state",)):
        printed = tools.host.run(
            CONSUMER_GROUPS, "--bootstrap-server", tools.bootstrap,
            "--describe", "--group", group, *words,
        )  # fmt: skip
        assert "GroupIdNotFoundException" in printed.stdout + printed.stderr
    found = admin.describe_streams_groups([group])[group]
    assert isinstance(found, StreamsGroupDescription)
    assert [each.member_id for each in found.members] == [MEMBER]
    assert found.members[0].assignment.active == (("0", 0), ("0", 1))
    assert [each.type for each in admin.list_groups() if each.group_id == group] == ["streams"]
    member.leave()
    assert admin.delete_groups([group]) == {group: True}
