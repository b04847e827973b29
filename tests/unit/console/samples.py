"""Samples of a cluster for tests of rates and lags over time."""

from __future__ import annotations

from barnabas.cli.admin.group_lag import PartitionProgress
from barnabas.cli.load.rates import GroupSample, Sample, TopicSample
from barnabas.client.admin.group_descriptions import GroupMember
from barnabas.client.topic_partition import TopicPartition


def sample(at: float, ends: dict[str, int], lags: dict[str, int]) -> Sample:
    """Return a sample with the end offsets of topics and the lags of groups."""
    return Sample(
        at,
        "cluster",
        1,
        {name: TopicSample(1, 0, end, 10 * end) for name, end in ends.items()},
        {name: GroupSample("Stable", 1, lag) for name, lag in lags.items()},
        len(lags),
        {},
    )


def owned(*owners: str) -> list[PartitionProgress]:
    """Return the partitions of a topic `t` with their owners; "" for none."""
    return [
        PartitionProgress(
            TopicPartition("t", number),
            0,
            0,
            "",
            GroupMember(owner, None, "c", "h") if owner else None,
        )
        for number, owner in enumerate(owners)
    ]
