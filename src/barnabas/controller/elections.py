"""Partition changes that follow from a broker's coming and going (ReplicationControlManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.new_partitions import directory_on, is_live
from barnabas.controller.partition_change import ElectionRules, changed_partition
from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.controller.result import VersionedRecord
    from barnabas.controller.topic_configs import TopicConfigs
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics_image import TopicImage


class Elections:
    """Makes the records; walks over all partitions, which broker events are rare enough for."""

    def __init__(self, topic_configs: TopicConfigs) -> None:
        self._topic_configs = topic_configs

    def on_leaving(
        self, image: ClusterImage, broker_id: int, *, is_unclean: bool = False
    ) -> list[VersionedRecord]:
        """The broker is fenced or shuts down: it leaves every ISR, others lead.

        Args:
            image: where the broker may still count as live.
            broker_id: who leaves.
            is_unclean: it may have lost data, so that it is no longer eligible to lead.
        """
        records: list[VersionedRecord] = []
        for topic, partition, before in _partitions(image):
            involved = broker_id in before.isr or before.leader == broker_id
            if not involved and not (is_unclean and broker_id in before.elr):
                continue
            target = tuple(replica for replica in before.isr if replica != broker_id)
            rules = self._rules(
                image,
                topic,
                before,
                leaving=broker_id,
                unclean_shutdown=frozenset({broker_id}) if is_unclean else frozenset(),
            )
            change = changed_partition(partition, topic.id, before, target, rules)
            if change is not None:
                records.append(change)
        return records

    def on_returning(self, image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
        """The broker is unfenced: it leads what has no leader and it may lead.

        Args:
            image: where the broker counts as fenced still.
            broker_id: who returns.
        """
        records: list[VersionedRecord] = []
        for topic, partition, before in _partitions(image):
            if before.leader != NO_LEADER or broker_id not in before.replicas:
                continue
            rules = self._rules(image, topic, before, returning=broker_id)
            change = changed_partition(partition, topic.id, before, before.isr, rules)
            if change is not None:
                records.append(change)
        return records

    def on_directories_lost(
        self, image: ClusterImage, broker_id: int, directories: frozenset[bytes]
    ) -> list[VersionedRecord]:
        """Data directories of the broker have failed: its replicas there leave every ISR.

        Args:
            image: where the broker still has them.
        """
        records: list[VersionedRecord] = []
        for topic, partition, before in _partitions(image):
            involved = broker_id in before.isr or before.leader == broker_id
            if not involved or before.directory_of(broker_id) not in directories:
                continue
            target = tuple(replica for replica in before.isr if replica != broker_id)
            rules = self._rules(image, topic, before, leaving=broker_id)
            change = changed_partition(partition, topic.id, before, target, rules)
            if change is not None:
                records.append(change)
        return records

    def rules(
        self, image: ClusterImage, topic: TopicImage, partition: PartitionRegistration
    ) -> ElectionRules:
        """What an election of that partition goes by when no broker comes or goes."""
        return self._rules(image, topic, partition)

    def _rules(
        self,
        image: ClusterImage,
        topic: TopicImage,
        partition: PartitionRegistration,
        *,
        leaving: int | None = None,
        returning: int | None = None,
        unclean_shutdown: frozenset[int] = frozenset(),
    ) -> ElectionRules:
        def is_acceptable(replica: int) -> bool:
            if replica == leaving:
                return False
            broker = image.brokers.get(replica)
            if broker is None or not broker.has_online(partition.directory_of(replica)):
                return False
            return replica == returning or is_live(broker)

        configs = self._topic_configs
        return ElectionRules(
            metadata_version=image.features.metadata_version,
            elr_enabled=image.features.is_elr_enabled,
            min_isr=configs.min_insync_replicas(image, topic.name, len(partition.replicas)),
            is_acceptable=is_acceptable,
            unclean_election=configs.has_unclean_election(image, topic.name),
            unclean_shutdown=unclean_shutdown,
            directory_on=lambda replica: directory_on(image.brokers[replica]),
        )


def _partitions(
    image: ClusterImage,
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    for topic in image.topics:
        for partition, registration in topic.partitions.items():
            yield topic, partition, registration
