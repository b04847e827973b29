"""Facts about topics that change rarely: the start of their logs, and their cleanup policies.

A page of the list of topics reads those of its own rows, because they would take longer than a
sample for 10,000 topics. A list that is sorted by a fact reads as many as it can in a limited time,
and the next pages read the others. Facts are used for a minute, and their number is limited.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import ActingUser, acting_user

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from barnabas.cli.load.rates import TopicSample
    from barnabas.client.facade import Client
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

_POLICY = "cleanup.policy"
# How long facts are used (ms).
_AGE_MS = 60_000
# How long one page reads facts (ms).
_READ_MS = 2_000
# Topics of one request.
_TOPICS_AT_ONCE = 1000
# Facts of all users together.
_FACTS_MAX = 50_000


_Call: TypeAlias = "Callable[[Callable[[Client], None], float], Awaitable[None]]"
_Key: TypeAlias = "tuple[ActingUser | None, str]"


class TopicFact(NamedTuple):
    """A topic, as the brokers described it at most a minute ago."""

    # Sum of the start offsets of the partitions with a leader; None if one is unknown.
    start_offsets: int | None
    # Value of cleanup.policy; "" if it is unknown.
    cleanup_policy: str


class TopicFacts:
    """The facts that pages have read. Each user has those that the own rights allow.

    Args:
        clock: Measures the age of facts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # With the time (ms, monotonic clock) when they were read; the latest are the last.
        self._facts: OrderedDict[_Key, tuple[float, TopicFact]] = OrderedDict()

    def of(self, names: Iterable[str]) -> dict[str, TopicFact]:
        """Return the facts that the user of this request knows, by topic."""
        user, oldest = acting_user.get(), self._clock.monotonic_ms() - _AGE_MS
        kept = ((name, self._facts.get((user, name))) for name in names)
        return {name: each[1] for name, each in kept if each is not None and each[0] >= oldest}

    def keep(self, found: Mapping[str, TopicFact]) -> None:
        """Keep facts that the user of this request has read now, and forget the oldest ones."""
        user, now = acting_user.get(), self._clock.monotonic_ms()
        for name, fact in found.items():
            self._facts[user, name] = (now, fact)
            self._facts.move_to_end((user, name))
        while len(self._facts) > _FACTS_MAX:
            self._facts.popitem(last=False)

    async def read(
        self, call: _Call, samples: Mapping[str, TopicSample], names: Iterable[str]
    ) -> dict[str, TopicFact]:
        """Return the facts of topics, and read those that are not known, for at most two seconds.

        A failure leaves facts unknown, because the rest of the page does not need them.

        Args:
            call: Runs a function with a client in a thread, with a limit of time (ms).
            samples: The samples of topics; the start of a topic without one is unknown.
            names: The topics.
        """
        every = list(names)
        known = self.of(every)
        wanted = {name: samples.get(name) for name in every if name not in known}
        if not wanted:
            return known
        found: dict[str, TopicFact] = {}
        try:
            await call(lambda client: _load(client, wanted, found), _READ_MS)
        except (ClientError, TimeoutError) as error:
            _log.warning("Facts of topics are unknown: error=%s", error)
        # The thread may still add to `found` if the brokers stopped responding.
        self.keep(found.copy())
        return known | found


def _load(
    client: Client, topics: Mapping[str, TopicSample | None], found: dict[str, TopicFact]
) -> None:
    """Add the facts of topics to `found`, of some topics at a time."""
    names = list(topics)
    for first in range(0, len(names), _TOPICS_AT_ONCE):
        part = names[first : first + _TOPICS_AT_ONCE]
        starts = _start_offsets(client, {name: topics[name] for name in part})
        policies = _policies(client, part)
        found.update({name: TopicFact(starts[name], policies.get(name, "")) for name in part})


def _start_offsets(
    client: Client, topics: Mapping[str, TopicSample | None]
) -> dict[str, int | None]:
    sums = {name: None if sample is None else 0 for name, sample in topics.items()}
    wanted = {
        TopicPartition(name, number): "earliest"
        for name, sample in topics.items()
        if sample is not None
        for number in sample.ends
    }
    found = client.admin.list_offsets(wanted) if wanted else {}
    for tp in wanted:
        listed, before = found.get(tp), sums[tp.topic]
        if listed is None or isinstance(listed, ClientError) or before is None:
            sums[tp.topic] = None
        else:
            sums[tp.topic] = before + listed.offset
    return sums


def _policies(client: Client, names: Sequence[str]) -> dict[str, str]:
    """Return the cleanup policies of the topics whose configs the user may see."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    policies: dict[str, str] = {}
    for resource, entries in client.admin.describe_configs(resources, keys=[_POLICY]).items():
        for entry in () if isinstance(entries, ClientError) else entries:
            policies[resource.name] = entry.value or ""
    return policies
