"""Facts about topics that change rarely: the start of their logs, and their cleanup policies.

They are read less often than rates and lags, because a request for the configs of 10,000 topics
takes longer than a sample. A topic that is new is looked up with the next sample.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.load.rates import TopicSample
    from barnabas.client.facade import Client

_log = logging.getLogger(__name__)

_POLICY = "cleanup.policy"
# How long facts are used (s).
_AGE_S = 60.0
# Topics of one request for configs.
_CONFIGS_AT_ONCE = 1000


class TopicFact(NamedTuple):
    """A topic, as the brokers described it at most a minute ago."""

    # Sum of the start offsets of the partitions with a leader; None if one is unknown.
    start_offsets: int | None
    # Value of cleanup.policy; "" if it is unknown.
    cleanup_policy: str


class TopicFacts:
    """The facts of all topics. A thread refreshes them, and pages read them."""

    def __init__(self) -> None:
        # Replaced as a whole, so that a page sees the facts of one refresh.
        self._facts: Mapping[str, TopicFact] = {}
        # When they were read (s, monotonic clock); None before the first time.
        self._at: float | None = None

    def of(self, name: str) -> TopicFact | None:
        """Return the facts of a topic; None if they were not read yet."""
        return self._facts.get(name)

    def refresh(self, client: Client, topics: Mapping[str, TopicSample], at: float) -> None:
        """Read the facts again if they are old; else those of new topics only.

        A failure leaves facts unknown, and does not end the sampling.

        Args:
            client: A client of the thread.
            topics: The topics of a sample.
            at: Time of the sample (s, monotonic clock).
        """
        is_old = self._at is None or at - self._at >= _AGE_S
        known = {} if is_old else {n: f for n, f in self._facts.items() if n in topics}
        wanted = {name: sample for name, sample in topics.items() if name not in known}
        if not wanted:
            self._facts = known
            return
        try:
            starts = _start_offsets(client, wanted)
            policies = _policies(client, list(wanted))
        except ClientError as error:
            _log.warning("Facts of topics are unknown: error=%s", error)
            return
        found = {name: TopicFact(starts[name], policies.get(name, "")) for name in wanted}
        self._facts = {**known, **found}
        self._at = at if is_old else self._at


def _start_offsets(client: Client, topics: Mapping[str, TopicSample]) -> dict[str, int | None]:
    wanted = {
        TopicPartition(name, number): "earliest"
        for name, sample in topics.items()
        for number in sample.ends
    }
    found = client.admin.list_offsets(wanted) if wanted else {}
    sums: dict[str, int | None] = dict.fromkeys(topics, 0)
    for tp in wanted:
        listed, before = found.get(tp), sums[tp.topic]
        if listed is None or isinstance(listed, ClientError) or before is None:
            sums[tp.topic] = None
        else:
            sums[tp.topic] = before + listed.offset
    return sums


def _policies(client: Client, names: Sequence[str]) -> dict[str, str]:
    """Return the cleanup policies of the topics whose configs the user may see."""
    policies: dict[str, str] = {}
    for first in range(0, len(names), _CONFIGS_AT_ONCE):
        part = names[first : first + _CONFIGS_AT_ONCE]
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in part]
        found = client.admin.describe_configs(resources, keys=[_POLICY])
        for resource, entries in found.items():
            for entry in () if isinstance(entries, ClientError) else entries:
                policies[resource.name] = entry.value or ""
    return policies
