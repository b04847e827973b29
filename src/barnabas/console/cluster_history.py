"""The cluster of a console, and its rates and lags over time, sampled while the console runs.

The functions that explain a cluster (`cli/why`, `cli/admin`, `cli/partitions`) take a blocking
client, which one thread uses at a time. A page runs them in a thread, so that the event loop stays
free.

The samples are those of `barnabas top`. The console keeps the newest two. Of the older ones it
keeps only numbers: series of one day (`series.py`) for a bounded number of topics and groups. With
a file they survive a restart (`history_file.py`); with a Prometheus server the lines come from it
(`prometheus.py`), as far as it has them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas import aio
from barnabas.cli.load.metrics import MetricsError
from barnabas.cli.load.rates import GroupSample, Rates, Sample, Sampler, rates_between
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.console.prometheus import PrometheusError
from barnabas.console.series import Series
from barnabas.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.console.charts import Points
    from barnabas.console.series import Kept
    from barnabas.console.settings import ConsoleSettings
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

_GROUPS_MAX = 100
# No page waits for a sample, which takes seconds with 10,000 topics.
_SAMPLE_MS = 60_000
# Topics, and groups, with series of their own.
_NAMES_MAX = 500
TOPIC, GROUP = "topic/", "group/"
_LATENCIES = ("Produce", "Fetch")


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
        # Rates between the newest two samples; None until there are two.
        self.rates: Rates | None = None
        # Error of the last sample; "" after a success.
        self.error = ""
        # Error of the last use of the file; "" after a success.
        self.file_error = ""
        self._series: dict[str, Series] = {}
        # Number of series by kind: those of topics, those of groups.
        self._counts: Counter[str] = Counter()
        # The minutes that ended with the last sample: values of series by begin. A series without
        # a sample for some time ends an older minute than the others.
        self._ended: dict[float, dict[str, float]] = {}

    @property
    def latest(self) -> Sample | None:
        """The newest sample; None until there is one."""
        return self._latest

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
        found = await asyncio.gather(*(self._points(name, begin) for name in names))
        return dict(zip(names, found, strict=True))

    async def _points(self, name: str, begin: float) -> Points:
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

    async def run(self) -> None:
        """Take samples until the task is canceled."""
        await self._use_file(self._load)
        while True:
            try:
                await self.sample()
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                # A fault here must not end the sampling; the pages say that it failed.
                self.error = f"sampling failed: {error}"
                _log.exception("Sampling failed")
            await asyncio.sleep(self.interval)

    async def close(self) -> None:
        """Write the file for the last time, after the sampling has ended."""
        file = self._file
        if file is not None:
            await self._use_file(lambda: file.compact(self._series))
            file.close()

    async def sample(self) -> None:
        """Take one sample; remember the error if that fails."""
        try:
            sample = await self._access.call(self._take, _SAMPLE_MS)
        except (ClientError, MetricsError) as error:
            self.error = str(error)
        except TimeoutError:
            self.error = "the brokers did not answer in time"
        else:
            self.error = ""
            self.add(sample)
            await self._use_file(self._write)

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        before, self._latest = self._latest, sample
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
        own = [each for name, each in rates.topics.items() if not name.startswith("__")]
        yield "records_in", sum(each.records_in for each in own), "mean"
        if all(each.bytes_in is not None for each in own):
            yield "bytes_in", sum(each.bytes_in or 0.0 for each in own), "mean"
        if all(each.bytes_out is not None for each in own):
            yield "bytes_out", sum(each.bytes_out or 0.0 for each in own), "mean"
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

    def _write(self) -> None:
        assert self._file is not None
        for begin, values in sorted(self._ended.items()):
            self._file.add(begin, values, self._series)

    def _take(self, client: Client) -> Sample:
        sampler = Sampler(client, self._metrics, self._queries, internal=True, groups=_GROUPS_MAX)
        sample = sampler.take()
        return replace(sample, groups={**sample.groups, **_share_groups(client)})


def _kind(name: str) -> str:
    """Return the prefix of a series of a topic or a group; "" for those of the cluster."""
    return next((kind for kind in (TOPIC, GROUP) if name.startswith(kind)), "")


def _kept(name: str) -> Kept:
    is_peak = name.startswith(GROUP) or name.endswith(("_p50", "_p99"))
    return "highest" if is_peak else "mean"


def _share_groups(client: Client) -> dict[str, GroupSample]:
    """Return the samples of share groups, which commit no offsets; empty if there are none."""
    try:
        names = [each.group_id for each in client.admin.list_groups() if each.type == "share"]
        names = names[:_GROUPS_MAX]
        found = client.admin.describe_share_groups(names) if names else {}
        offsets = client.admin.describe_share_group_offsets(names) if names else {}
    except ClientError:
        return {}
    samples = {}
    for name, group in found.items():
        known = offsets.get(name)
        if not isinstance(group, ClientError):
            lags = [] if known is None or isinstance(known, ClientError) else known.values()
            lag = sum(max(0, each.lag) for each in lags if not isinstance(each, ClientError))
            samples[name] = GroupSample(group.state, len(group.members), lag)
    return samples


T = TypeVar("T")
# Requests to the cluster at once; others wait.
_CLIENTS_MAX = 4
# Keys of a group member in a properties file do not apply to the console's readers.
_GROUP_KEYS = ("group.id", "group.instance.id", "group.protocol", "group.remote.assignor")
_FETCH_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024


class ClusterAccess:
    """Clients of one cluster for the requests of a console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._bootstrap = settings.bootstrap
        self._config = dict(settings.client)
        self._limit_ms = settings.timeout * 1000
        self._slots = asyncio.Semaphore(_CLIENTS_MAX)
        # Open clients that no thread uses; at most `_CLIENTS_MAX`.
        self._idle: list[Client] = []
        self._is_closed = False

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers."""
        return self._bootstrap

    @property
    def config(self) -> dict[str, str]:
        """The configuration of the clients, without the bootstrap servers."""
        return dict(self._config)

    async def call(self, load: Callable[[Client], T], limit_ms: float | None = None) -> T:
        """Run `load` with a client in a thread, and return its result.

        Args:
            load: The function.
            limit_ms: Limit for all its calls together; None for that of a page.

        Raises:
            ClientError: `load` raised it.
            TimeoutError: The calls of `load` took longer than the limit together.
        """
        async with self._slots:
            return await asyncio.to_thread(self._run, load, limit_ms or self._limit_ms)

    async def call_once(
        self, load: Callable[[Client], T], config: Mapping[str, str], limit_ms: float
    ) -> T:
        """Run `load` with a new client that has other settings and another limit."""

        def run() -> T:
            with Client(self._bootstrap, **{**self._config, **config}) as client:
                client.limit_total(limit_ms)
                return load(client)

        async with self._slots:
            return await asyncio.to_thread(run)

    def _run(self, load: Callable[[Client], T], limit_ms: float) -> T:
        client = self._idle.pop() if self._idle else Client(self._bootstrap, **self._config)
        client.limit_total(limit_ms)
        is_usable = False
        try:
            result = load(client)
            is_usable = True
            return result
        finally:
            # After an error the next request starts with new connections.
            if is_usable and not self._is_closed:
                self._idle.append(client)
            else:
                client.close()

    def consumer(self, **config: Any) -> aio.Consumer:
        """Return a consumer without a group, which reads small fetches and commits nothing."""
        own = {key: value for key, value in self._config.items() if key not in _GROUP_KEYS}
        limits = {
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": str(_FETCH_BYTES),
            "max.partition.fetch.bytes": str(_PARTITION_BYTES),
        }
        return aio.Consumer(bootstrap_servers=self._bootstrap, **{**own, **limits, **config})

    async def close(self) -> None:
        """Close the idle clients; those in use are closed after their call."""
        self._is_closed = True
        # A blocking client runs its own event loop, which this thread cannot while it runs one.
        await asyncio.to_thread(self._close_idle)

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()
