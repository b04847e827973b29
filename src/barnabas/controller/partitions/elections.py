"""Partition changes when brokers leave, fail or return (Kafka's ReplicationControlManager)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.controller.partitions.partition_change import (
    NO_BROKER,
    Candidates,
    Election,
    ElectionRules,
    changed_partition,
)
from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set as AbstractSet

    from barnabas.controller.configs.topic_configs import TopicConfigs
    from barnabas.controller.result import VersionedRecord
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage
    from barnabas.protocol.records.topics import PartitionChangeRecord

    Located = tuple[TopicImage, int, PartitionRegistration]

_NONE: frozenset[int] = frozenset()


class Elections:
    """Makes the partition change records.

    It scans all partitions, because broker events are rare.
    """

    def __init__(self, topic_configs: TopicConfigs, suspected: AbstractSet[int] = _NONE) -> None:
        """Create the elections with the given topic configs.

        Args:
            topic_configs: the effective configs of topics.
            suspected: brokers that may be dead; the controller updates this set.
        """
        self._topic_configs = topic_configs
        self._suspected = suspected

    def on_leaving(
        self, image: ClusterImage, broker_id: int, limit: int | None = None
    ) -> list[VersionedRecord]:
        """Remove a broker that shuts down or asks to be fenced from every ISR, and elect leaders.

        Args:
            image: the cluster, in which the broker may still be live.
            broker_id: the broker that leaves.
            limit: maximum number of records; None for no limit.
        """
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id),
            Candidates(image.brokers, leaving=broker_id),
            limit=limit,
        )

    def on_death(
        self, image: ClusterImage, broker_id: int, limit: int | None = None
    ) -> list[VersionedRecord]:
        """Remove a broker whose process has ended from every ISR, and elect leaders.

        Brokers that may have died at the same time are not elected. Otherwise, if several brokers
        died together, each of them could become leader in turn. The last one would be the only
        replica in the ISR, although the others have the same records.

        Args:
            image: the cluster, in which the broker may still be live.
            broker_id: the broker whose process has ended.
            limit: maximum number of records; None for no limit.
        """
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id),
            Candidates(image.brokers, leaving=broker_id, suspected=self._suspected),
            limit=limit,
        )

    def on_unclean_shutdown(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Remove a broker that may have lost data from every ISR and ELR (KIP-966)."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id, suspected=self._suspected),
            unclean_shutdown=frozenset({broker_id}),
        )

    def on_unregistered(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Remove an unregistered broker from every ISR."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id),
        )

    def on_returning(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """Elect leaders for leaderless partitions of a broker that is unfenced or found alive.

        Args:
            image: the cluster, in which the broker may still be fenced.
            broker_id: the broker that returns.
        """
        leaderless = (
            located
            for located in all_partitions(image)
            if located[2].leader == NO_LEADER and broker_id in located[2].replicas
        )
        candidates = Candidates(image.brokers, returning=broker_id, suspected=self._suspected)
        return self._without(image, NO_BROKER, leaderless, candidates)

    def on_directories_lost(
        self, image: ClusterImage, broker_id: int, partitions: Iterable[Located]
    ) -> list[VersionedRecord]:
        """Remove a broker from the ISR of partitions whose replicas there cannot be used."""
        candidates = Candidates(image.brokers, leaving=broker_id)
        return self._without(image, broker_id, partitions, candidates)

    def on_directory_replaced(
        self,
        image: ClusterImage,
        topic: TopicImage,
        partition: int,
        broker_id: int,
    ) -> tuple[PartitionChangeRecord, int] | None:
        """Remove a replica that starts empty in a new directory from all replica lists.

        Returns:
            The record that removes it from ISR, ELR and last known leaders; None if it is in none.
        """
        before = topic.partitions[partition]
        candidates = Candidates(image.brokers, leaving=broker_id, suspected=self._suspected)
        rules = replace(
            self._rules(image, topic.name, candidates, _NONE), emptied=frozenset({broker_id})
        )
        target = tuple(replica for replica in before.isr if replica != broker_id)
        return changed_partition(partition, topic.id, before, target, rules)

    def rules(self, image: ClusterImage, topic: str, candidates: Candidates) -> ElectionRules:
        """Return the rules for elections in a topic, according to the topic's configs."""
        return self._rules(image, topic, candidates, _NONE)

    def strict_rules(
        self, image: ClusterImage, topic: str, candidates: Candidates, election: Election
    ) -> ElectionRules:
        """Return the rules with a given kind of election, whatever the configs say."""
        return ElectionRules(
            image.features.metadata_version,
            image.features.is_elr_enabled,
            self._min_isr(image, topic),
            candidates,
            election,
        )

    def _without(
        self,
        image: ClusterImage,
        broker_id: int,
        partitions: Iterable[Located],
        candidates: Candidates,
        unclean_shutdown: frozenset[int] = _NONE,
        limit: int | None = None,
    ) -> list[VersionedRecord]:
        """Remove the broker from the ISR of each partition, and elect a leader where necessary."""
        records: list[VersionedRecord] = []
        known: TopicImage | None = None
        rules: ElectionRules | None = None
        for topic, partition, before in partitions:
            if topic is not known or rules is None:
                known, rules = topic, self._rules(image, topic.name, candidates, unclean_shutdown)
            target = tuple(replica for replica in before.isr if replica != broker_id)
            change = changed_partition(partition, topic.id, before, target, rules)
            if change is not None:
                records.append(change)
                if len(records) == limit:
                    break
        return records

    def _rules(
        self,
        image: ClusterImage,
        topic: str,
        candidates: Candidates,
        unclean_shutdown: frozenset[int],
    ) -> ElectionRules:
        configs = self._topic_configs
        return ElectionRules(
            image.features.metadata_version,
            image.features.is_elr_enabled,
            self._min_isr(image, topic),
            candidates,
            Election.UNCLEAN if configs.has_unclean_election(image, topic) else Election.ONLINE,
            unclean_shutdown,
        )

    def _min_isr(self, image: ClusterImage, topic: str) -> int:
        """As in Kafka, the first partition determines the number of replicas of a topic."""
        wanted = self._topic_configs.min_insync_replicas(image, topic)
        first = image.topics.partition(topic, 0)
        return wanted if first is None else min(wanted, len(first.replicas))


def all_partitions(image: ClusterImage) -> Iterator[Located]:
    """Yield every partition of the cluster, topic by topic."""
    for topic in image.topics:
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration


def leads_any_partition(image: ClusterImage, broker_id: int) -> bool:
    """Return whether the broker leads a partition."""
    return any(each.leader == broker_id for _, _, each in all_partitions(image))


def uses_more_than(image: ClusterImage, broker_id: int, count: int) -> bool:
    """Return whether the broker leads, or is in the ISR of, more than `count` partitions."""
    return sum(1 for _ in islice(_in_use(image, broker_id), count + 1)) > count


def _in_use(image: ClusterImage, broker_id: int, *, or_eligible: bool = False) -> Iterator[Located]:
    """Yield the partitions that the broker leads or is in the ISR of (or in the ELR)."""
    for located in all_partitions(image):
        partition = located[2]
        if (
            broker_id in partition.isr
            or partition.leader == broker_id
            or (or_eligible and broker_id in partition.elr)
        ):
            yield located
