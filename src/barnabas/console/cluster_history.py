"""Rates and lags of a cluster over time, sampled while the console runs.

The samples are those of `barnabas top`. The console keeps the newest two. Of the older ones it
keeps only numbers: series of one day (`series.py`) for a bounded number of topics and groups. With
a file they survive a restart (`history_file.py`); with a Prometheus server the lines come from it
(`prometheus.py`), as far as it has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.cli.load.lag_age import LagAges
from barnabas.cli.load.metrics import MetricsError
from barnabas.cli.load.rates import Rates, Sample, Sampler, rates_between
from barnabas.client.errors import ClientError
from barnabas.console.history.prometheus import PrometheusError
from barnabas.console.history.series import Series
from barnabas.console.plans.assignments import Assignments
from barnabas.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from barnabas.client.facade import Client
    from barnabas.console.cluster_access import ClusterAccess
    from barnabas.console.history.charts import Points
    from barnabas.console.history.series import Kept
    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

# Groups with a lag. With 5,000 of them, a sample takes a second of CPU time.
_GROUPS_MAX = 5_000
# No page waits for a sample, which takes seconds with 10,000 topics.
_SAMPLE_MS = 60_000
# Topics, and groups, with series of their own.
_NAMES_MAX = 500
TOPIC, GROUP = "topic/", "group/"
_LATENCIES = ("Produce", "Fetch")


def pause_s(interval: float, took_s: float) -> float:
    """Return the time between two samples (s).

    A sample of a large cluster holds the interpreter's lock for seconds, and slows the pages. So
    samples run at most half of the time.

    Args:
        interval: The time that the operator chose (s).
        took_s: How long the last sample took (s).
    """
    return max(interval, took_s)


class Totals(NamedTuple):
    """Rates of the topics of users together, per second; None if they are not known."""

    records_in: float | None = None
    bytes_in: float | None = None
    bytes_out: float | None = None


def users_totals(rates: Rates) -> Totals:
    """Return the sums over all topics but the internal ones."""
    own = [each for name, each in rates.topics.items() if not name.startswith("__")]
    return Totals(
        sum(each.records_in for each in own),
        known_sum(each.bytes_in for each in own),
        known_sum(each.bytes_out for each in own),
    )


N = TypeVar("N", int, float)


def known_sum(values: Iterable[N | None]) -> N | None:
    """Return the sum; None if a value is unknown."""
    known = list(values)
    return None if None in known else sum((each for each in known if each is not None), start=0)


class History:
    """The figures of the samples so far.

    Series have these names: `records_in`, `bytes_in` and `bytes_out` (per second, in the topics of
    users), `produce_p50`, `produce_p99`, `fetch_p50` and `fetch_p99` (ms), `topic/NAME` (records
    written per second) and `group/NAME` (lag).
    """

    def __init__(
        self, access: ClusterAccess, settings: ConsoleSettings, clock: Clock | None = None
    ) -> None:
        self._access = access
        self._metrics = settings.metrics
        self._queries = settings.queries
        self._clock = SystemClock() if clock is None else clock
        self._file = settings.history
        self._prometheus = settings.prometheus
        self.interval = settings.interval
        self._latest: Sample | None = None
        self._before: Sample | None = None
        # Rates between the newest two samples; None until there are two.
        self.rates: Rates | None = None
        # Error of the last sample; "" after a success.
        self.error = ""
        # Error of the last use of the file; "" after a success.
        self.file_error = ""
        # Whether the series of the file are loaded. Until then, nothing is written to it.
        self.is_loaded = False
        self._series: dict[str, Series] = {}
        # Number of series by kind: those of topics, those of groups.
        self._counts: Counter[str] = Counter()
        # The minutes that ended with the last sample: values of series by begin. A series without
        # a sample for some time ends an older minute than the others.
        self._ended: dict[float, dict[str, float]] = {}
        self.assignments = Assignments()
        # Number of groups that have committed an offset of a topic, or read it, by topic, in the
        # newest sample; None until a page asks for it.
        self._groups_by_topic: Counter[str] | None = None
        # Remembers timestamps of offsets between samples; None before the first one.
        self._ages: LagAges | None = None
        # One sample at a time.
        self._sampling = asyncio.Lock()

    @property
    def latest(self) -> Sample | None:
        """The newest sample; None until there is one."""
        return self._latest

    @property
    def has_metrics(self) -> bool:
        """Whether latencies of requests may be known."""
        return bool(self._metrics or self._prometheus)

    @property
    def now(self) -> float:
        """The wall clock (s since 1970), by which points have their times."""
        return self._clock.wall_ms() / 1000

    @property
    def records_in(self) -> Series:
        """Records written per second to the topics of users."""
        return self.series("records_in")

    def topic(self, name: str) -> Series:
        """Return the records written per second to a topic."""
        return self.series(TOPIC + name)

    def group(self, name: str) -> Series:
        """Return the lag of a group."""
        return self.series(GROUP + name)

    def series(self, name: str) -> Series:
        """Return a series; an empty one if there is none of this name."""
        return self._series.get(name) or Series()

    async def lines(self, names: Sequence[str], begin: float) -> dict[str, Points]:
        """Return the points since a time (s since 1970), from Prometheus if it has them."""
        found = await asyncio.gather(*(self.points(name, begin) for name in names))
        return dict(zip(names, found, strict=True))

    async def points(self, name: str, begin: float) -> Points:
        """Return the points of a series since a time (s since 1970).

        They come from Prometheus if it has them.
        """
        server = self._prometheus
        if server is not None and server.knows(name):
            try:
                points = await asyncio.to_thread(server.points, name, begin, self.now)
            except PrometheusError as error:
                _log.warning("Prometheus did not answer: %s", error)
            else:
                if points:
                    return points
        return [point for point in self.series(name) if point[0] >= begin]

    def groups_by_topic(self) -> Mapping[str, int]:
        """Return the number of groups that have committed an offset of a topic, or read it."""
        if self._groups_by_topic is None:
            self._groups_by_topic = Counter()
            for group in self._latest.groups.values() if self._latest else ():
                self._groups_by_topic.update({each.partition.topic for each in group.partitions})
        return self._groups_by_topic

    def partition_rates(self, name: str) -> dict[int, float]:
        """Return the records written per second by partition of a topic; empty if unknown."""
        before, latest = self._before, self._latest
        if before is None or latest is None or latest.at <= before.at:
            return {}
        old, new = before.topics.get(name), latest.topics.get(name)
        if old is None or new is None:
            return {}
        seconds = latest.at - before.at
        return {
            number: max(0, end - old.ends[number]) / seconds
            for number, end in new.ends.items()
            if number in old.ends
        }

    async def run(self) -> None:
        """Take samples until the task is canceled."""
        await self._use_file(self._load)
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                await self.sample()
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                # A fault here must not end the sampling; the pages say that it failed.
                self.error = f"sampling failed: {error}"
                _log.exception("Sampling failed")
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(pause_s(self.interval, took_s))

    async def close(self) -> None:
        """Write the file for the last time, after the sampling has ended."""
        file = self._file
        if file is not None:
            if self.is_loaded:
                await self._use_file(lambda: file.compact(self._series))
            file.close()

    async def sample(self) -> None:
        """Take one sample; remember the error if that fails."""
        try:
            async with self._sampling:
                sample = await self._access.call(self._take, _SAMPLE_MS)
        except (ClientError, MetricsError) as error:
            self.error = str(error)
        except TimeoutError:
            self.error = "the brokers did not answer in time"
        else:
            self.error = ""
            self.add(sample)
            if self.is_loaded:
                await self._use_file(self._write)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        self._before = before = self._latest
        self._latest = sample
        self._groups_by_topic = None
        for name, group in sample.groups.items():
            self.assignments.add(name, sample.at, group.partitions)
        self.assignments.keep_only(sample.groups)
        if before is not None:
            self.rates = rates_between(before, sample)
        at = self.now - self._clock.monotonic_ms() / 1000 + sample.at
        self._ended = {}
        for name, value, kept in self._values(sample):
            series = self._series_to_add(name, kept)
            point = None if series is None else series.add(at, value)
            if point is not None:
                begin, mean = point
                self._ended.setdefault(begin, {})[name] = mean
        self._remove_gone(sample)

    def _values(self, sample: Sample) -> Iterator[tuple[str, float, Kept]]:
        """Yield name and value of each series, and what its longer steps keep."""
        for name, group in sample.groups.items():
            yield GROUP + name, float(group.lag), "highest"
        rates = self.rates
        if rates is None:
            return
        for name, total in users_totals(rates)._asdict().items():
            if total is not None:
                yield name, total, "mean"
        for name in _LATENCIES:
            api = rates.apis.get(name)
            if api is not None and api.p50_ms is not None and api.p99_ms is not None:
                yield f"{name.lower()}_p50", api.p50_ms, "highest"
                yield f"{name.lower()}_p99", api.p99_ms, "highest"
        for name, topic in rates.topics.items():
            # Topics without traffic leave the series to those that have some.
            if topic.records_in or TOPIC + name in self._series:
                yield TOPIC + name, topic.records_in, "mean"

    def _series_to_add(self, name: str, kept: Kept) -> Series | None:
        """Return the series of a name, new if needed; None if there are too many of its kind."""
        found = self._series.get(name)
        if found is not None:
            return found
        kind = _kind(name)
        if kind and self._counts[kind] >= _NAMES_MAX:
            return None
        self._counts[kind] += 1
        found = self._series[name] = Series(kept, self.interval)
        return found

    def _remove_gone(self, sample: Sample) -> None:
        for name in list(self._series):
            kind = _kind(name)
            known = sample.topics if kind == TOPIC else sample.groups
            if kind and name.removeprefix(kind) not in known:
                del self._series[name]
                self._counts[kind] -= 1

    async def _use_file(self, use: Callable[[], None]) -> None:
        """Use the file in a thread; an error is shown, and does not end the sampling."""
        if self._file is None:
            return
        try:
            await asyncio.to_thread(use)
        except OSError as error:
            self.file_error = f"the file of the history failed: {error}"
        else:
            self.file_error = ""

    def _load(self) -> None:
        assert self._file is not None
        self._file.load(lambda name: self._series_to_add(name, _kept(name)))
        self.is_loaded = True

    def _write(self) -> None:
        assert self._file is not None
        for begin, values in sorted(self._ended.items()):
            self._file.add(begin, values, self._series)

    def _take(self, client: Client) -> Sample:
        ages = self._ages = self._ages or LagAges(client)
        ages.use(client)
        return Sampler(
            client, self._metrics, self._queries, internal=True, groups=_GROUPS_MAX, ages=ages
        ).take()


def _kind(name: str) -> str:
    """Return the prefix of a series of a topic or a group; "" for those of the cluster."""
    return next((kind for kind in (TOPIC, GROUP) if name.startswith(kind)), "")


def _kept(name: str) -> Kept:
    is_peak = name.startswith(GROUP) or name.endswith(("_p50", "_p99"))
    return "highest" if is_peak else "mean"
