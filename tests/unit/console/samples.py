"""Samples of a cluster for tests of rates and lags over time."""

from __future__ import annotations

from barnabas.cli.load.rates import GroupSample, Sample, TopicSample


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
