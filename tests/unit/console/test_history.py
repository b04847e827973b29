"""Rates and lags over time: lines grow with samples, and their memory is bounded."""

from __future__ import annotations

from barnabas.cli.load.rates import GroupSample, Sample, TopicSample
from barnabas.console.cluster_access import ClusterAccess
from barnabas.console.cluster_history import POINTS_MAX, History
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.clock import SystemClock

SETTINGS = ConsoleSettings("127.0.0.1:1", {})


def history() -> History:
    return History(ClusterAccess(SETTINGS, SystemClock()), SETTINGS)


def sample(at: float, ends: dict[str, int], lags: dict[str, int]) -> Sample:
    return Sample(
        at,
        "cluster",
        1,
        {name: TopicSample(1, 0, end, 10 * end) for name, end in ends.items()},
        {name: GroupSample("Stable", 1, lag) for name, lag in lags.items()},
        len(lags),
        {},
    )


def test_two_samples_give_rates_and_every_sample_gives_a_lag() -> None:
    made = history()
    made.add(sample(0.0, {"a": 0, "__internal": 0}, {"g": 7}))
    assert made.rates is None
    assert list(made.group("g")) == [(0.0, 7.0)]
    made.add(sample(2.0, {"a": 100, "__internal": 500}, {"g": 3}))
    assert made.rates is not None
    assert list(made.topic("a")) == [(2.0, 50.0)]
    assert list(made.group("g")) == [(0.0, 7.0), (2.0, 3.0)]
    # The sum is that of users' records.
    assert list(made.records_in) == [(2.0, 50.0)]


def test_the_number_of_points_and_of_names_is_bounded() -> None:
    made = history()
    topics = {f"t{number}": 0 for number in range(600)}
    for at in range(POINTS_MAX + 5):
        made.add(sample(float(at), topics if at > POINTS_MAX else {"t0": at}, {}))
    assert len(made.topic("t0")) == POINTS_MAX
    assert sum(bool(made.topic(name)) for name in topics) == 500


def test_the_lines_of_deleted_topics_and_groups_go() -> None:
    made = history()
    made.add(sample(0.0, {"a": 0}, {"g": 1}))
    made.add(sample(1.0, {"a": 1}, {"g": 1}))
    made.add(sample(2.0, {"b": 1}, {}))
    assert not made.topic("a")
    assert not made.group("g")
