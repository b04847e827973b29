"""Rates and lags over time: lines grow with samples, and their memory is bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from barnabas.cli.admin.group_lag import PartitionProgress
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.cluster_access import ClusterAccess
from barnabas.console.cluster_history import History, pause_s
from barnabas.console.history.history_file import history_file
from barnabas.console.history.series import Series
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.clock import SystemClock
from console_in_process import NO_BROKER, ConsoleInProcess
from unit.console.samples import sample
from waiting import eventually_equal

SETTINGS = ConsoleSettings("127.0.0.1:1", {})


def values(series: Series) -> list[float | None]:
    return [value for _, value in series]


def history() -> History:
    return History(ClusterAccess(SETTINGS, SystemClock()), SETTINGS)


def test_two_samples_give_rates_and_every_sample_gives_a_lag() -> None:
    made = history()
    made.add(sample(0.0, {"a": 0, "__internal": 0}, {"g": 7}))
    assert made.rates is None
    assert values(made.group("g")) == [7.0]
    made.add(sample(2.0, {"a": 100, "__internal": 500}, {"g": 3}))
    assert made.rates is not None
    assert values(made.topic("a")) == [50.0]
    assert values(made.group("g")) == [7.0, 3.0]
    # The sum is that of users' records.
    assert values(made.records_in) == [50.0]


def test_the_number_of_topics_with_a_line_is_bounded_and_those_without_records_have_none() -> None:
    made = history()
    idle = {f"idle{number}": 7 for number in range(100)}
    for at in range(2):
        made.add(sample(float(at), {**idle, **{f"t{number}": at for number in range(600)}}, {}))
    assert sum(bool(made.topic(f"t{number}")) for number in range(600)) == 500
    assert not any(made.topic(name) for name in idle)


def test_the_lines_of_deleted_topics_and_groups_go() -> None:
    made = history()
    made.add(sample(0.0, {"a": 0}, {"g": 1}))
    made.add(sample(1.0, {"a": 1}, {"g": 1}))
    made.add(sample(2.0, {"b": 1}, {}))
    assert not made.topic("a")
    assert not made.group("g")


def test_a_peak_of_a_lag_survives_in_longer_steps_and_a_rate_has_its_mean() -> None:
    made = history()
    for index in range(200):
        made.add(sample(index * 60.0, {"a": index * 600}, {"g": 1000 if index == 57 else 1}))
    (coarse, _), (minutes, _) = made.group("g").tiers(), made.topic("a").tiers()
    assert max(value for _, value in coarse.points) == 1000
    assert {value for _, value in minutes.points} == {10.0}


def test_a_console_keeps_its_series_in_a_file_over_a_restart(tmp_path: Path) -> None:
    def settings() -> ConsoleSettings:
        file = history_file(str(tmp_path), "127.0.0.1:1")
        return ConsoleSettings("127.0.0.1:1", NO_BROKER, interval=3600.0, history=file)

    with ConsoleInProcess(settings()) as first:
        eventually_equal(lambda: first.console.history.is_loaded, True)
        start = SystemClock().monotonic_ms() / 1000 - 600
        for index in range(10):
            first.console.history.add(sample(start + 60 * index, {"a": 600 * index}, {"g": 5}))
    with ConsoleInProcess(settings()) as second:
        again = second.console.history
        eventually_equal(lambda: set(values(again.group("g"))), {5.0})
        assert values(again.topic("a"))[0] == 10.0


def test_two_samples_give_the_rate_of_each_partition_with_a_leader_in_both() -> None:
    made = history()
    for at, ends in ((0.0, {0: 10, 1: 5, 2: 7}), (2.0, {0: 30, 1: 5, 3: 1})):
        found = sample(at, {"a": 0}, {})
        found.topics["a"] = replace(found.topics["a"], ends=ends)
        made.add(found)
    assert made.partition_rates("a") == {0: 10.0, 1: 0.0}
    assert made.partition_rates("absent") == {}


def test_samples_that_take_long_leave_half_of_the_time_to_pages() -> None:
    assert pause_s(5.0, 0.2) == 5.0
    assert pause_s(5.0, 12.0) == 12.0


def test_the_groups_of_a_topic_are_those_of_the_newest_sample() -> None:
    made = history()
    assert made.groups_by_topic() == {}
    for at, names in ((0.0, ("g", "h")), (2.0, ("g",))):
        found = sample(at, {"a": 0}, dict.fromkeys(names, 1))
        part = PartitionProgress(TopicPartition("a", 0), 0, 1, "", None)
        for name in names:
            found.groups[name] = replace(found.groups[name], partitions=(part, part))
        made.add(found)
        assert made.groups_by_topic() == {"a": len(names)}
