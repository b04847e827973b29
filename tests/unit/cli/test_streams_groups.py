"""Streams groups in `groups describe` and `why`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from barnabas.cli.admin.group_lag import echo_streams_members, echo_topology, streams_json
from barnabas.cli.why.facts import BrokerFacts, GroupFacts
from barnabas.cli.why.group_reasons import group_reasons
from barnabas.client.admin.group_descriptions import (
    GroupDescription,
    StreamsGroupDescription,
    as_group,
    describe_groups,
)
from barnabas.client.errors import broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from unit.cli.streams_group import member, streams_group, tasks

BOTH = tasks(("0", 0), ("1", 0), standby=(("0", 1),))


def kinds(group: StreamsGroupDescription, missing: Sequence[str] = ()) -> list[str]:
    brokers = BrokerFacts(frozenset({1}), controller=1)
    facts = GroupFacts(
        "app", as_group(group), 1, brokers, 0.0, missing_topics=frozenset(missing), streams=group
    )
    found = group_reasons(facts)
    assert all(each.what and (each.remedy or each.verdict != "wrong") for each in found)
    return [each.kind for each in found]


def test_a_task_reads_its_partition_of_all_topics_of_its_subtopology() -> None:
    (only,) = as_group(streams_group(member("a", BOTH))).members
    assert only.assignment == (TopicPartition("app-rep", 0), TopicPartition("in", 0))
    assert only.topics == ("app-rep", "in")


def test_the_topology_and_the_tasks_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    group = streams_group(
        member("a", BOTH), member("b", tasks(), tasks(("0", 1), ("0", 2)), epoch=3)
    )
    echo_topology(group)
    echo_streams_members(group)
    words = capsys.readouterr().out.split()
    assert {"app-rep", "app-log", "process-a", "0:0", "1:0", "0:1", "0:1,2"} <= set(words)
    found = streams_json(group)
    assert found["topology_epoch"] == 2
    assert found["subtopologies"][0]["changelog_topics"] == ["app-log"]
    assert found["members"][1]["target"]["active"][1] == {"subtopology": "0", "partition": 2}
    assert found["members"][0]["tasks"]["standby"] == [{"subtopology": "0", "partition": 1}]


def test_a_group_without_a_topology_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    group = streams_group(topology_epoch=-1, subtopologies=())
    echo_topology(group)
    assert capsys.readouterr().out.startswith("topology")
    assert kinds(streams_group(member("a", tasks()), topology_epoch=-1, subtopologies=())) == [
        "no-topology",
        "nothing-to-read",
    ]


def test_missing_topics_are_the_reason_for_no_tasks() -> None:
    group = streams_group(member("a", tasks()), state="NotReady")
    assert kinds(group, ["in", "app-rep", "app-log"]) == ["source-topic-missing"]
    assert kinds(group, ["app-rep", "app-log"]) == ["internal-topic-missing"]
    assert kinds(group) == ["topics-do-not-fit"]


def test_a_member_with_an_old_topology_is_reported() -> None:
    group = streams_group(member("a", BOTH), member("b", BOTH, topology_epoch=1))
    assert "topology-stale" in kinds(group)


def test_a_task_that_its_owner_has_not_released_is_reported() -> None:
    group = streams_group(
        member("a", tasks(("0", 0), ("0", 1)), tasks(("0", 0))),
        member("b", tasks(), tasks(("0", 1))),
        state="Reconciling",
    )
    assert kinds(group)[0] == "task-not-released"


def test_members_behind_and_without_tasks_are_reported() -> None:
    behind = streams_group(member("a", BOTH, epoch=3), state="Reconciling")
    assert kinds(behind)[0] == "member-behind"
    idle = streams_group(member("a", BOTH), member("b", tasks()))
    assert kinds(idle)[0] == "members-idle"


class FakeSender:
    """Answers to one call after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    def send_to_coordinators(
        self, names: Sequence[str], _call: Callable[..., Any], *, once: bool
    ) -> Generator[None, None, dict[str, Any]]:
        assert not once
        self.asked.append(list(names))
        answer = self.answers.pop(0)
        yield
        return dict.fromkeys(names, answer)


def described(*answers: Any) -> Any:
    sender: Any = FakeSender(*answers)
    plan = describe_groups(sender, ["app"])
    while True:
        try:
            next(plan)
        except StopIteration as end:
            return end.value["app"]


def test_a_missing_classic_group_may_be_a_streams_or_share_group() -> None:
    missing = broker_error(ErrorCode.GROUP_ID_NOT_FOUND, "app")
    dead = GroupDescription("app", "classic", "Dead", "", "")
    found = described(missing, dead, streams_group(member("a", BOTH)), missing)
    assert (found.type, found.state, len(found.members)) == ("streams", "Stable", 1)
    share = GroupDescription("app", "share", "Stable", "share", "simple")
    assert described(missing, dead, missing, share) is share
    assert described(missing, dead, missing, missing) is dead
