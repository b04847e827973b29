"""Partition changes that follow from a broker's coming and going (ReplicationControlManager)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.controller.candidates import NOBODY, Candidates
from barnabas.controller.partition_change import Election, ElectionRules, changed_partition
from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from barnabas.controller.result import VersionedRecord
    from barnabas.controller.topic_configs import TopicConfigs
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics_image import TopicImage
    from barnabas.protocol.records.partition_change_record import PartitionChangeRecord

    Located = tuple[TopicImage, int, PartitionRegistration]

_NONE: frozenset[int] = frozenset()


class Elections:
    """Makes the records; walks over all partitions, which broker events are rare enough for."""

    def __init__(self, topic_configs: TopicConfigs, doubtful: AbstractSet[int] = _NONE) -> None:
        """Args:
        doubtful: brokers that may be dead; the controller changes this set as it hears of them.
        """
        self._topic_configs = topic_configs
        self._doubtful = doubtful

    def on_leaving(
        self, image: ClusterImage, broker_id: int, limit: int | None = None
    ) -> list[VersionedRecord]:
        """The broker shuts down, or asks to be fenced: it leaves every ISR, others lead.

        Args:
            image: where the broker may still count as live.
            broker_id: who leaves.
            limit: how many records at most; None for all.
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
        """A life of the broker has ended: it leaves every ISR, others lead.

        Brokers that may have died with it are not elected. If each of several brokers that died
        together became leader in turn, the last of them would be left as the only replica that
        counts as in sync, although the others have the same records.

        Args:
            image: where the broker may still count as live.
            broker_id: the broker whose life has ended.
            limit: how many records at most; None for all.
        """
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id),
            Candidates(image.brokers, leaving=broker_id, doubtful=self._doubtful),
            limit=limit,
        )

    def on_unclean_shutdown(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """The broker may have lost data (KIP-966): neither in sync nor eligible any more."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id, doubtful=self._doubtful),
            unclean_shutdown=frozenset({broker_id}),
        )

    def on_unregistered(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """The broker is forgotten: it leaves every ISR."""
        return self._without(
            image,
            broker_id,
            _in_use(image, broker_id, or_eligible=True),
            Candidates(image.brokers, leaving=broker_id),
        )

    def on_returning(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """The broker is unfenced, or lives after all: it leads what has no leader if it may.

        Args:
            image: where the broker may count as fenced still.
            broker_id: who returns.
        """
        leaderless = (
            located
            for located in all_partitions(image)
            if located[2].leader == NO_LEADER and broker_id in located[2].replicas
        )
        candidates = Candidates(image.brokers, returning=broker_id, doubtful=self._doubtful)
        return self._without(image, NOBODY, leaderless, candidates)

    def on_directories_lost(
        self, image: ClusterImage, broker_id: int, partitions: Iterable[Located]
    ) -> list[VersionedRecord]:
        """The broker's replicas of these partitions cannot be used: they leave the ISR."""
        candidates = Candidates(image.brokers, leaving=broker_id)
        return self._without(image, broker_id, partitions, candidates)

    def on_directory_replaced(
        self,
        image: ClusterImage,
        topic: TopicImage,
        partition: int,
        broker_id: int,
    ) -> tuple[PartitionChangeRecord, int] | None:
        """The directory of a replica is gone and the replica begins anew in another, empty.

        Returns:
            The record that takes it out of all that says where the partition's data is; None if it
            is in nothing of that.
        """
        before = topic.partitions[partition]
        candidates = Candidates(image.brokers, leaving=broker_id, doubtful=self._doubtful)
        rules = replace(
            self._rules(image, topic.name, candidates, _NONE), emptied=frozenset({broker_id})
        )
        target = tuple(replica for replica in before.isr if replica != broker_id)
        return changed_partition(partition, topic.id, before, target, rules)

    def rules(self, image: ClusterImage, topic: str, candidates: Candidates) -> ElectionRules:
        """What an election of that topic's partitions goes by: as far as its configs allow."""
        return self._rules(image, topic, candidates, _NONE)

    def strict_rules(
        self, image: ClusterImage, topic: str, candidates: Candidates, election: Election
    ) -> ElectionRules:
        """The same, with an election that the configs have no say in."""
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
        """Take the broker out of the ISR of each partition, and elect where that is needed."""
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
        """As with Kafka, the first partition says how many replicas a topic has."""
        wanted = self._topic_configs.min_insync_replicas(image, topic)
        first = image.topics.partition(topic, 0)
        return wanted if first is None else min(wanted, len(first.replicas))


def all_partitions(image: ClusterImage) -> Iterator[Located]:
    """Every partition of the cluster, topic by topic."""
    for topic in image.topics:
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    """Whether the broker leads a partition."""
    return any(each.leader == broker_id for _, _, each in all_partitions(image))


def uses_more_than(image: ClusterImage, broker_id: int, count: int) -> bool:
    """Whether the broker leads, or is in sync with, more partitions than so many."""
    return sum(1 for _ in islice(_in_use(image, broker_id), count + 1)) > count


def _in_use(image: ClusterImage, broker_id: int, *, or_eligible: bool = False) -> Iterator[Located]:
    """Partitions that the broker leads or is in sync with; or eligible to lead."""
    for located in all_partitions(image):
        partition = located[2]
        if (
            broker_id in partition.isr
            or partition.leader == broker_id
            or (or_eligible and broker_id in partition.elr)
        ):
            yield located
