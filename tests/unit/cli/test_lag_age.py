"""Lag in seconds: the age of the oldest uncommitted record, found by asking for times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.cli.admin.group_lag import GroupProgress, PartitionProgress
from barnabas.cli.load.lag_age import LagAges, oldest
from barnabas.client.admin.group_descriptions import GroupDescription
from barnabas.client.errors import ClientError
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.facade import Client

NOW_S = 1_700_000_000.0
TP = TopicPartition("t", 0)


class Log:
    """Answers as a cluster whose records have these ages (s), the oldest first."""

    def __init__(self, *ages_s: float, start: int = 0) -> None:
        self.start = start
        self.times_ms = [round((NOW_S - age_s) * 1000) for age_s in ages_s]
        self.calls = 0
        self.fails = False

    def list_offsets(self, specs: Mapping[TopicPartition, int]) -> dict[Any, ListedOffset]:
        self.calls += 1
        if self.fails:
            raise ClientError("no leader")
        return {tp: self._first_at(time_ms) for tp, time_ms in specs.items()}

    def _first_at(self, time_ms: int) -> ListedOffset:
        for offset, each in enumerate(self.times_ms, self.start):
            if each >= time_ms:
                return ListedOffset(offset, each, 0)
        return ListedOffset(-1, -1, -1)


def progress(*offsets: int | None, end: int) -> GroupProgress:
    partitions = [
        PartitionProgress(TopicPartition("t", number), offset, end, "", None)
        for number, offset in enumerate(offsets)
    ]
    return GroupProgress(cast("GroupDescription", None), 1, tuple(partitions))


def of_groups(ages: LagAges, groups: dict[str, GroupProgress]) -> dict[str, float | None]:
    return {name: oldest(topics) for name, topics in ages.by_topic(groups).items()}


def ages_of(log: Log) -> LagAges:
    return LagAges(cast("Client", log), lambda: NOW_S)


@pytest.mark.parametrize("age_s", [0.3, 1, 7, 59, 600, 5_000, 86_400, 1_000_000])
def test_the_age_is_that_of_the_record_at_the_committed_offset(age_s: float) -> None:
    # Neighbors of nearly the same age, so that no answer hits the record itself.
    log = Log(age_s * 1.02, age_s * 1.01, age_s, age_s * 0.99, 0.05)
    found = of_groups(ages_of(log), {"g": progress(2, end=5)})
    assert found["g"] == pytest.approx(age_s, rel=0.12)
    assert log.calls <= 8


def test_a_group_without_lag_is_zero_seconds_behind_and_asks_nothing() -> None:
    log = Log(5.0)
    assert of_groups(ages_of(log), {"g": progress(1, end=1), "new": progress(None, end=1)}) == {
        "g": 0.0,
        "new": 0.0,
    }
    assert log.calls == 0


def test_the_partition_that_is_furthest_behind_counts() -> None:
    log = Log(1000.0, 100.0, 10.0)
    found = of_groups(ages_of(log), {"g": progress(2, 0, 1, end=3)})
    assert found["g"] == pytest.approx(1000, rel=0.12)


def test_a_position_that_a_group_has_not_left_is_not_looked_up_again() -> None:
    log = Log(1000.0, 100.0, 10.0)
    ages = ages_of(log)
    first = of_groups(ages, {"g": progress(1, end=3)})
    calls = log.calls
    assert of_groups(ages, {"g": progress(1, end=3)}) == first
    assert log.calls == calls
    of_groups(ages, {"g": progress(2, end=3)})
    assert log.calls > calls


def test_groups_at_different_offsets_of_one_partition_have_their_own_ages() -> None:
    log = Log(1000.0, 100.0, 10.0)
    found = of_groups(ages_of(log), {name: progress(n, end=3) for n, name in enumerate("abc")})
    assert [round(found[name], -1) for name in "abc"] == [
        pytest.approx(age_s, rel=0.12) for age_s in (1000, 100, 10)
    ]


def test_a_group_whose_partition_does_not_answer_has_no_age() -> None:
    log = Log(5.0)
    log.fails = True
    assert of_groups(ages_of(log), {"g": progress(0, end=1), "done": progress(1, end=1)}) == {
        "g": None,
        "done": 0.0,
    }


def test_the_age_is_that_of_the_oldest_record_that_retention_has_left() -> None:
    log = Log(1000.0, 100.0, 10.0, start=50)
    found = of_groups(ages_of(log), {"g": progress(7, end=53)})
    assert found["g"] == pytest.approx(1000, rel=0.12)


def test_ages_are_known_by_partition_where_a_partition_has_lag() -> None:
    found = ages_of(Log(100, 50)).of_partitions("g", progress(0, 1, 2, None, end=2))
    assert found.keys() == {("t", 0), ("t", 1)}
    assert found[TopicPartition("t", 0)] == pytest.approx(100, rel=0.1)
    assert found[TopicPartition("t", 1)] == pytest.approx(50, rel=0.1)


def test_the_client_may_change_between_two_calls() -> None:
    ages = ages_of(Log(100))
    assert of_groups(ages, {"g": progress(0, end=1)})["g"] == pytest.approx(100, rel=0.1)
    other = Log()
    ages.use(cast("Client", other))
    assert of_groups(ages, {"g": progress(0, end=1)})["g"] == pytest.approx(100, rel=0.1)
    assert other.calls == 0


def test_the_age_of_a_topic_is_not_that_of_another_topic_of_the_group() -> None:
    parts = [
        PartitionProgress(TopicPartition(topic, 0), offset, 2, "", None)
        for topic, offset in (("behind", 0), ("done", 2), ("unread", None))
    ]
    group = GroupProgress(cast("GroupDescription", None), 1, tuple(parts))
    found = ages_of(Log(100, 50)).by_topic({"g": group})["g"]
    assert found == {"behind": pytest.approx(100, rel=0.1), "done": 0.0}
