"""Percentiles, schedules and plots of `barnabas bench`, without a broker."""

from __future__ import annotations

import random

import pytest
from click.testing import CliRunner

from barnabas.cli.load.bench import bench
from barnabas.cli.load.bench_runs import Payloads, Schedule
from barnabas.cli.load.measurement import Interval, LatencyHistogram, Load, Measurement, plot

LOAD = Load(records_max=None, seconds_max=None, rate=None, record_size=100, keys=0)


def histogram(*values: int) -> LatencyHistogram:
    made = LatencyHistogram()
    for value in values:
        made.record(value)
    return made


def test_small_latencies_are_exact() -> None:
    made = histogram(*range(1, 101))
    assert [made.percentile_us(p) for p in (0, 1, 50, 95, 99, 99.9, 100)] == [
        1, 1, 50, 95, 99, 100, 100,
    ]  # fmt: skip
    assert (made.count, made.mean_us, made.max_us) == (100, 50.5, 100)


def test_large_latencies_are_right_within_two_percent_and_never_below() -> None:
    chance = random.Random(5)
    values = sorted(int(10 ** chance.uniform(2, 9)) for _ in range(5_000))
    made = histogram(*values)
    for percent in (1, 10, 50, 90, 95, 99, 99.9):
        exact = values[max(0, -int(-len(values) * percent // 100) - 1)]
        assert exact <= made.percentile_us(percent) <= exact * 1.02
    assert made.percentile_us(100) == made.max_us == values[-1]


def test_odd_latencies_have_their_place() -> None:
    made = histogram(-5, 1 << 60)
    assert (made.count, made.max_us) == (2, 1 << 60)
    assert made.percentile_us(50) == 0
    assert LatencyHistogram().percentile_us(99) == 0
    made.clear()
    assert (made.count, made.max_us, made.percentile_us(99)) == (0, 0, 0)


def test_with_a_rate_the_time_a_record_is_due_does_not_depend_on_the_ones_before() -> None:
    schedule = Schedule(LOAD._replace(rate=100.0, seconds_max=2.0))
    start = schedule.started_s
    assert schedule.planned == 200
    assert [schedule.due_s(n, start + 1.5) - start for n in (0, 50, 199)] == pytest.approx(
        [0, 0.5, 1.99]
    )
    # After a stall of a second all records of that second may be sent at once.
    assert schedule.ready(10, start + 1.105, 1_000) == 101
    assert schedule.ready(10, start + 1.105, 30) == 30
    assert schedule.ready(111, start + 1.105, 1_000) == 0
    # Late records are sent though the time is over, but not for ever.
    assert not schedule.is_over(150, start + 2.5)
    assert schedule.is_over(200, start + 1.0)
    assert schedule.is_over(150, start + 4.0)


def test_without_a_rate_latency_counts_from_the_send_and_the_limits_end_it() -> None:
    schedule = Schedule(LOAD._replace(records_max=50, seconds_max=2.0))
    start = schedule.started_s
    assert schedule.due_s(7, start + 1.25) == start + 1.25
    assert schedule.ready(40, start, 30) == 10
    assert schedule.is_over(50, start)
    assert schedule.is_over(1, start + 2.0)
    assert not schedule.is_over(49, start + 1.9)


def test_payloads_have_the_size_and_keys_that_were_asked_for() -> None:
    made = Payloads(LOAD._replace(record_size=33, keys=3))
    assert {len(made.value(n)) for n in range(600)} == {33}
    assert len({made.value(n) for n in range(600)}) == 256
    assert {made.key(n) for n in range(9)} == {b"key-0", b"key-1", b"key-2"}
    assert Payloads(LOAD).key(5) is None


def test_a_long_run_keeps_few_intervals_that_cover_all_of_it() -> None:
    found = Measurement()
    total = 0
    for number in range(5_000):
        found.add(2, 20, number)
        total += 2
        found._end_interval(found.started_s + number + 1)
    assert len(found.intervals) <= 600
    assert sum(each.records for each in found.intervals) == total == found.records
    assert found.intervals[-1].end_s == pytest.approx(5_000)
    assert sum(each.seconds for each in found.intervals) == pytest.approx(5_000)


def test_the_rate_of_an_interval_is_records_per_second() -> None:
    assert Interval(2.0, 0.5, 100, 7).rate == 200
    assert Interval(2.0, 0.0, 100, 7).rate == 0


def test_a_plot_fits_its_width_and_shows_the_largest_value_at_full_height() -> None:
    lines = plot([0.0, 500.0, 1000.0], 40, 2)
    assert lines == ["   1.0k │  █", "      0 │ ██"]
    wide = plot([float(n) for n in range(1_000)], 80)
    assert max(map(len, wide)) <= 80
    assert len(wide) == 6
    assert plot([], 80)[-1] == "      0 │"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("latency", "--rate", "5", "--one-by-one"), "give --rate or --one-by-one"),
        (("latency", "-s", "8"), "--record-size must be at least 16"),
        (("produce", "--rate", "0"), "--rate"),
        (("produce", "-t", "a", "b"), "give only one topic"),
        (("consume",), "Missing argument"),
    ],
)
def test_wrong_usage_is_reported_before_any_connection(words: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(bench, [*words, "-b", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert said in done.output
