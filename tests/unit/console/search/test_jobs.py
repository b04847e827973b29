"""Searches as jobs: they find what a plain search finds, pause, go on, and are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.console.search.columns import parse_columns
from barnabas.console.search.expressions import ExpressionFilter
from barnabas.console.search.jobs import Search, SearchJob, SearchJobs, State
from barnabas.console.search.ranges import Place
from barnabas.console.settings import SearchLimits
from barnabas.runtime.rng import SystemRng
from barnabas.sim.clock import SimClock, SimScheduler
from unit.console.search.records import TOPIC, LogConsumer, conditions, raw, view

SECONDS = 60.0
OWNER = object()
MINUTE_MS = 60_000
BEGINNING = Place("beginning")
DEFAULTS = SearchLimits()


class Jobs:
    """The jobs of a console over logs in memory."""

    def __init__(self, consumer: LogConsumer, limits: SearchLimits) -> None:
        self.scheduler = SimScheduler()
        self.clock = SimClock(self.scheduler)
        self.expressions = ExpressionFilter(SECONDS)
        self.jobs = SearchJobs(
            self.clock, SystemRng(), limits, lambda **_: cast("Any", consumer), self.expressions
        )

    def start(self, place: Place = BEGINNING, limit: int = 10**6, **fields: str) -> Any:
        search = Search(
            topic=TOPIC, partition=None, place=place, conditions=conditions(**fields),
            columns=tuple(parse_columns("key,value")), limit=limit, isolation="read_committed",
            view=view(), owner=OWNER, address=fields,
        )  # fmt: skip
        return self.jobs.start(search)


def run(
    consumer: LogConsumer,
    test: Callable[[Jobs], Awaitable[None]],
    limits: SearchLimits = DEFAULTS,
) -> None:
    async def main() -> None:
        jobs = Jobs(consumer, limits)
        try:
            await test(jobs)
        finally:
            await jobs.jobs.close()
            jobs.expressions.close()

    asyncio.run(main())


def places(job: SearchJob) -> list[tuple[int, int]]:
    return [(row.message.partition, row.message.offset) for row in job.results.rows]


def numbered(count: int) -> LogConsumer:
    """A log with the values 0, 1, 2..."""
    records = [raw(b'{"n":%d}' % n, offset=n, timestamp=n) for n in range(count)]
    return LogConsumer({0: records}, {0: count})


LOGS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30), st.booleans()), max_size=25),
    min_size=1,
    max_size=3,
)


def log_of(steps: list[list[tuple[int, int, bool]]]) -> tuple[LogConsumer, list[ConsumerRecord]]:
    """Return a consumer over logs with gaps, and the records that match."""
    logs: dict[int, list[ConsumerRecord]] = {}
    ends = {}
    for partition, each in enumerate(steps):
        offset, logs[partition] = 0, []
        for gap, timestamp, matches in each:
            offset += gap
            value = b"yes" if matches else b"no"
            fields = {"offset": offset, "partition": partition, "timestamp": timestamp}
            logs[partition].append(raw(value, **fields))
        # The last offset may be that of a marker.
        ends[partition] = offset + 2
    wanted = [each for part in logs.values() for each in part if each.value == b"yes"]
    return LogConsumer(logs, ends), wanted


@given(LOGS, st.integers(1, 9), st.booleans())
def test_pages_of_a_search_have_each_match_once(
    steps: list[list[tuple[int, int, bool]]], limit: int, is_newest: bool
) -> None:
    consumer, wanted = log_of(steps)

    async def test(jobs: Jobs) -> None:
        found: list[tuple[int, int]] = []
        place = Place() if is_newest else Place("beginning")
        for _ in range(len(wanted) + 2):
            job = jobs.start(place, limit, value="yes")
            await job.wait(SECONDS)
            assert job.state is State.DONE, job.reason
            assert len(places(job)) <= limit
            found += places(job)
            if not job.next_offsets:
                break
            place = Place("before" if is_newest else "at", offsets=job.next_offsets)
        expected = {(each.partition, each.offset) for each in wanted}
        assert len(found) == len(expected)
        assert set(found) == expected

    run(consumer, test, SearchLimits(window=4))


@given(LOGS, st.integers(1, 9))
def test_the_newest_matches_of_a_small_log_come_first(
    steps: list[list[tuple[int, int, bool]]], limit: int
) -> None:
    rising = [
        [(gap, time, matches) for (gap, _, matches), time in zip(part, times, strict=True)]
        for part in steps
        for times in [sorted(each[1] for each in part)]
    ]
    consumer, wanted = log_of(rising)

    async def test(jobs: Jobs) -> None:
        job = jobs.start(Place(), limit, value="yes")
        await job.wait(SECONDS)
        newest = sorted(((r.timestamp, r.partition, r.offset) for r in wanted), reverse=True)
        assert places(job) == [each[1:] for each in newest[:limit]]

    run(consumer, test)


def test_a_search_pauses_at_each_of_its_limits_and_goes_on_to_the_end() -> None:
    async def test(jobs: Jobs) -> None:
        job = jobs.start(value="99")
        pauses = 0
        while await job.wait(SECONDS) or job.state is State.PAUSED:
            assert job.reason == "it stopped at its limit of 30 records"
            jobs.jobs.go_on(job)
            pauses += 1
        assert job.state is State.DONE
        assert places(job) == [(0, 99), (0, 199)]
        assert job.totals.records == job.examined == job.total == 200
        assert 200 / 35 - 1 <= pauses <= 200 / 30

    run(numbered(200), test, SearchLimits(records=30))


@given(LOGS, st.integers(1, 20), st.integers(1, 9), st.booleans())
def test_a_search_with_pauses_finds_what_a_search_without_finds(
    steps: list[list[tuple[int, int, bool]]], records: int, limit: int, is_newest: bool
) -> None:
    found: list[object] = []
    place = Place() if is_newest else BEGINNING
    # Forwards, a pause decides which partition is read next, so only all matches can be compared.
    most = limit if is_newest else 10**6

    async def test(jobs: Jobs) -> None:
        job = jobs.start(place, most, value="yes")
        await job.wait(SECONDS)
        while job.state is State.PAUSED:
            jobs.jobs.go_on(job)
            await job.wait(SECONDS)
        assert job.state is State.DONE
        if is_newest:
            found.append((places(job), job.next_offsets))
        else:
            found.append(sorted(places(job)))

    for each in (records, 10**6):
        run(log_of(steps)[0], test, SearchLimits(records=each, window=4))
    assert found[0] == found[1]


def test_a_stopped_search_keeps_what_it_found_and_goes_on() -> None:
    async def test(jobs: Jobs) -> None:
        consumer.stuck = asyncio.Event()
        job = jobs.start(value="5")
        assert not await job.wait(0)
        jobs.jobs.stop(job)
        assert (job.state, job.reason) == (State.PAUSED, "it was stopped")
        consumer.stuck.set()
        await job.wait(SECONDS)
        assert places(job) == [(0, 5)]
        jobs.jobs.go_on(job)
        await job.wait(SECONDS)
        assert places(job) == [(0, n) for n in (5, 15, 25)]

    consumer = numbered(30)
    run(consumer, test)


def test_a_search_pauses_when_no_page_looks_at_it_and_is_forgotten_later() -> None:
    async def test(jobs: Jobs) -> None:
        consumer.stuck = asyncio.Event()
        job = jobs.start(value="5")
        jobs.scheduler.run_for(MINUTE_MS)
        consumer.stuck.set()
        await job.wait(SECONDS)
        assert (job.state, job.reason) == (State.PAUSED, "it paused because no page looked at it")
        assert jobs.jobs.look_at(job.id, OWNER) is job
        jobs.scheduler.run_for(14 * MINUTE_MS)
        assert jobs.jobs.look_at(job.id, OWNER) is job
        jobs.scheduler.run_for(16 * MINUTE_MS)
        assert jobs.jobs.look_at(job.id, OWNER) is None

    consumer = numbered(30)
    run(consumer, test)


def test_only_the_session_that_began_a_search_finds_it() -> None:
    async def test(jobs: Jobs) -> None:
        job = jobs.start()
        assert jobs.jobs.look_at(job.id, object()) is None
        assert jobs.jobs.look_at("unknown", OWNER) is None
        assert jobs.jobs.look_at(job.id, OWNER) is job

    run(numbered(3), test)


def test_the_number_of_searches_is_bounded_and_those_that_ended_make_room() -> None:
    async def test(jobs: Jobs) -> None:
        consumer.stuck = asyncio.Event()
        running = [jobs.start() for _ in range(16)]
        assert jobs.start() is None
        jobs.jobs.stop(running[3])
        assert jobs.start() is not None
        assert jobs.jobs.look_at(running[3].id, OWNER) is None
        assert jobs.jobs.look_at(running[0].id, OWNER) is running[0]

    consumer = numbered(3)
    run(consumer, test)


def test_a_malformed_filter_fails_before_anything_is_read() -> None:
    async def test(jobs: Jobs) -> None:
        job = jobs.start(filter="value.n >")
        await job.wait(SECONDS)
        assert job.state is State.FAILED
        assert "line 1, column 10" in job.reason
        assert job.totals.records == 0

    run(numbered(3), test)


def test_records_for_which_a_filter_fails_are_counted() -> None:
    async def test(jobs: Jobs) -> None:
        job = jobs.start(filter="value.n == 7 || value.m == 1")
        await job.wait(SECONDS)
        assert places(job) == [(0, 7)]
        assert (job.totals.failed, job.totals.failure) == (19, 'there is no member "m"')

    run(numbered(20), test)


def test_an_unexpected_error_ends_only_its_search(caplog: pytest.LogCaptureFixture) -> None:
    async def test(jobs: Jobs) -> None:
        job = jobs.start()
        await job.wait(SECONDS)
        assert (job.state, job.reason) == (State.FAILED, "the search failed: KeyError")

    run(LogConsumer({0: [], 1: []}, {0: 0}), test)
    assert "A search of messages failed" in caplog.text
