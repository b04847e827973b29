"""Rates and lags of a cluster over time, sampled while the console runs.

The samples are those of `barnabas top`. The console keeps the newest two. Of the older ones it
keeps only numbers: a bounded number of points for a bounded number of topics and groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.cli.load.metrics import MetricsError
from barnabas.cli.load.rates import GroupSample, Rates, Sample, Sampler, rates_between
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.facade import Client
    from barnabas.console.cluster_access import ClusterAccess
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
        # Rates between the newest two samples; None until there are two.
        self.rates: Rates | None = None
        # Error of the last sample; "" after a success.
        self.error = ""
        # Records written per second, in all topics and by topic.
        self.records_in = _series()
        self._topics: dict[str, Series] = {}
        # Lags by group.
        self._groups: dict[str, Series] = {}

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
        before, self._latest = self._latest, sample
        for name, group in sample.groups.items():
            _append(self._groups, name, (sample.at, float(group.lag)))
        _keep_only(self._groups, sample.groups)
        if before is None:
            return
        self.rates = rates = rates_between(before, sample)
        own = sum(t.records_in for name, t in rates.topics.items() if not name.startswith("__"))
        self.records_in.append((sample.at, own))
        for name, topic in rates.topics.items():
            _append(self._topics, name, (sample.at, topic.records_in))
        _keep_only(self._topics, sample.topics)

    def _take(self, client: Client) -> Sample:
        sampler = Sampler(client, self._metrics, self._queries, internal=True, groups=_GROUPS_MAX)
        sample = sampler.take()
        return replace(sample, groups={**sample.groups, **_share_groups(client)})


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


def _series() -> Series:
    return deque(maxlen=POINTS_MAX)


def _append(by_name: dict[str, Series], name: str, point: tuple[float, float]) -> None:
    if name in by_name or len(by_name) < _NAMES_MAX:
        by_name.setdefault(name, _series()).append(point)


def _keep_only(by_name: dict[str, Series], names: Iterable[str]) -> None:
    for gone in by_name.keys() - set(names):
        del by_name[gone]
