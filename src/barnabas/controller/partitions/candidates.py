"""The replicas that may lead a partition now (Kafka's LeaderAcceptor; directories: KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topics.new_partitions import directory_on, is_live
from barnabas.metadata.partition_registration import DIRECTORY_MIGRATING

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.partition_registration import PartitionRegistration

NO_BROKER = -1
_NONE: frozenset[int] = frozenset()


class Candidates:
    """The live brokers at one moment. One instance serves all partitions of an event."""

    __slots__ = ("_brokers", "_live", "_suspected")

    def __init__(
        self,
        brokers: Mapping[int, BrokerRegistration],
        *,
        leaving: int = NO_BROKER,
        returning: int = NO_BROKER,
        suspected: AbstractSet[int] = _NONE,
    ) -> None:
        """Determine the live brokers.

        Args:
            brokers: the registrations of the image, by broker id.
            leaving: a broker that is being fenced, which counts as fenced already.
            returning: a broker that is being unfenced, which counts as live already.
            suspected: brokers that may be dead; none of them is elected.
        """
        self._brokers = brokers
        live = {broker.id for broker in brokers.values() if is_live(broker)}
        live.discard(leaving)
        self._suspected = live.intersection(suspected) - {returning}
        live -= self._suspected
        if returning in brokers:
            live.add(returning)
        self._live = live

    def may_lead(self, partition: PartitionRegistration, replica: int) -> bool:
        """Return whether `replica` is a live replica of the partition in an online directory."""
        if replica not in self._live or replica not in partition.replicas:
            return False
        return self._brokers[replica].has_online(partition.directory_of(replica))

    def is_suspected(self, replica: int) -> bool:
        """Return whether the broker is excluded only because it may be dead."""
        return replica in self._suspected

    def directory_on(self, replica: int) -> bytes:
        """Return the directory of a new replica on a broker, as far as it is known."""
        broker = self._brokers.get(replica)
        return DIRECTORY_MIGRATING if broker is None else directory_on(broker)
