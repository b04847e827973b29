"""The cluster of a console, and its rates and lags over time, sampled while the console runs.

The functions that explain a cluster (`cli/why`, `cli/admin`, `cli/partitions`) take a blocking
client, which one thread uses at a time. A page runs them in a thread, so that the event loop stays
free.

The samples are those of `barnabas top`. The console keeps the newest two. Of the older ones it
keeps only numbers: a bounded number of points for a bounded number of topics and groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas import aio
from barnabas.cli.load.lag_age import LagAges
from barnabas.cli.load.metrics import MetricsError
from barnabas.cli.load.rates import Rates, Sample, Sampler, rates_between
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.console.assignments import Assignments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.console.settings import ConsoleSettings

_log = logging.getLogger(__name__)

# One point per sample: 30 minutes with five seconds between samples.
POINTS_MAX = 360
_GROUPS_MAX = 100
# No page waits for a sample, which takes seconds with 10,000 topics.
_SAMPLE_MS = 60_000
# Topics and groups with points of their own.
_NAMES_MAX = 500

# Pairs of a time (s, monotonic clock) and a value, in order.
Series = deque[tuple[float, float]]


class History:
    """The figures of the samples so far."""

    def __init__(self, access: ClusterAccess, settings: ConsoleSettings) -> None:
        self._access = access
        self._metrics = settings.metrics
        self._queries = settings.queries
        self.interval = settings.interval
        self._latest: Sample | None = None
        self._before: Sample | None = None
        # Rates between the newest two samples; None until there are two.
        self.rates: Rates | None = None
        # Error of the last sample; "" after a success.
        self.error = ""
        # Records written per second, in all topics and by topic.
        self.records_in = _series()
        self._topics: dict[str, Series] = {}
        # Lags by group.
        self._groups: dict[str, Series] = {}
        self.assignments = Assignments()
        # Remembers timestamps of offsets between samples; None before the first one.
        self._ages: LagAges | None = None
        # One sample at a time.
        self._sampling = asyncio.Lock()

    @property
    def latest(self) -> Sample | None:
        """The newest sample; None until there is one."""
        return self._latest

    def topic(self, name: str) -> Series:
        """Return the records written per second to a topic, over time."""
        return self._topics.get(name, _series())

    def group(self, name: str) -> Series:
        """Return the lag of a group over time."""
        return self._groups.get(name, _series())

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
        while True:
            try:
                await self.sample()
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                # A fault here must not end the sampling; the pages say that it failed.
                self.error = f"sampling failed: {error}"
                _log.exception("Sampling failed")
            await asyncio.sleep(self.interval)

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

    def add(self, sample: Sample) -> None:
        """Add a sample."""
        self._before = before = self._latest
        self._latest = sample
        for name, group in sample.groups.items():
            _append(self._groups, name, (sample.at, float(group.lag)))
            self.assignments.add(name, sample.at, group.partitions)
        _keep_only(self._groups, sample.groups)
        self.assignments.keep_only(sample.groups)
        if before is None:
            return
        self.rates = rates = rates_between(before, sample)
        own = sum(t.records_in for name, t in rates.topics.items() if not name.startswith("__"))
        self.records_in.append((sample.at, own))
        for name, topic in rates.topics.items():
            _append(self._topics, name, (sample.at, topic.records_in))
        _keep_only(self._topics, sample.topics)

    def _take(self, client: Client) -> Sample:
        ages = self._ages = self._ages or LagAges(client)
        ages.use(client)
        return Sampler(
            client, self._metrics, self._queries, internal=True, groups=_GROUPS_MAX, ages=ages
        ).take()


def _series() -> Series:
    return deque(maxlen=POINTS_MAX)


def _append(by_name: dict[str, Series], name: str, point: tuple[float, float]) -> None:
    if name in by_name or len(by_name) < _NAMES_MAX:
        by_name.setdefault(name, _series()).append(point)


def _keep_only(by_name: dict[str, Series], names: Iterable[str]) -> None:
    for gone in by_name.keys() - set(names):
        del by_name[gone]


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
