"""The data directories of replicas (AssignReplicasToDirs API 73; KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.partitions.elections import all_partitions
from barnabas.controller.partitions.partition_change import Candidates, Election, changed_partition
from barnabas.controller.result import (
    ControllerResult,
    Refusal,
    check_broker_epoch,
    refuse_as_a_whole,
)
from barnabas.metadata.metadata_version import has_directories, partition_change_record_version
from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResponse,
    PartitionDataResponse,
    TopicDataResponse,
)
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
)
from barnabas.protocol.records.topics import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.controller.partitions.elections import Elections, Located
    from barnabas.controller.result import ControllerView, VersionedRecord
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.metadata.topics import TopicImage

# The first version of the record with directories.
_CHANGE_WITH_DIRECTORIES = 2
# The directory of the replica is not known yet.
_UNKNOWN = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


class DirectoryControl:
    """Handles the directory reports of brokers, and returns the resulting records."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def assign(
        self, view: ControllerView, request: AssignReplicasToDirsRequest
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        """Store the directories of a broker's replicas."""
        image = view.image
        try:
            broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        except Refusal as refusal:
            return ControllerResult([], refuse_as_a_whole(request, refusal))
        records: list[VersionedRecord] = []
        responses: list[DirectoryDataResponse] = []
        # Replicas in directories that are offline (KIP-858).
        unusable: list[Located] = []
        for directory in request.directories:
            is_online = broker.has_online(directory.id)
            topics: list[TopicDataResponse] = []
            for asked in directory.topics:
                topic = image.topics.by_id(asked.topic_id)
                results: list[PartitionDataResponse] = []
                for each in asked.partitions:
                    index, error = each.partition_index, ErrorCode.NONE
                    try:
                        found, before = _replica(topic, index, broker.id)
                        records += self._assign(image, broker, directory.id, found, index)
                        if not is_online:
                            unusable.append((found, index, before))
                    except Refusal as refusal:
                        error = refusal.error_code
                    results.append(PartitionDataResponse(partition_index=index, error_code=error))
                topics.append(TopicDataResponse(topic_id=asked.topic_id, partitions=results))
            responses.append(DirectoryDataResponse(id=directory.id, topics=topics))
        if unusable:
            records += self._elections.on_directories_lost(image, broker.id, unusable)
        response = AssignReplicasToDirsResponse(error_code=ErrorCode.NONE, directories=responses)
        return ControllerResult(records, response, atomic=False)

    def _assign(
        self,
        image: ClusterImage,
        broker: BrokerRegistration,
        directory: bytes,
        topic: TopicImage,
        partition: int,
    ) -> list[VersionedRecord]:
        """Return the records that store the directory of a replica.

        A replica moves between two directories that are both online, and keeps its data. A replica
        that replaces one in an offline directory starts empty. It leaves the ISR, the ELR and the
        last known leaders, so that it is not elected before it has copied the data. The only
        replica of a partition may lead anyway, because there is no data to copy.
        """
        before = topic.partitions[partition]
        former = before.directory_of(broker.id)
        if former == directory:
            return []
        is_replaced = not broker.has_online(former) and broker.has_online(directory)
        directories = [
            directory if replica == broker.id else known
            for replica, known in zip(before.replicas, before.directories, strict=True)
        ]
        record = PartitionChangeRecord(partition_id=partition, topic_id=topic.id)
        record.directories = directories
        version = partition_change_record_version(image.features.metadata_version)
        if is_replaced and len(before.replicas) > 1:
            change = self._elections.on_directory_replaced(image, topic, partition, broker.id)
            if change is not None:
                record, version = change
                record.directories = directories
        elif before.leader == NO_LEADER:
            # The replica's directory was offline or unknown. In the new one the replica may lead.
            after = before.merge(record)
            rules = self._elections.strict_rules(
                image, topic.name, Candidates(image.brokers), Election.ONLINE
            )
            change = changed_partition(partition, topic.id, after, after.isr, rules)
            if change is not None:
                record, version = change
                record.directories = directories
        return [(record, version)]

    def newly_offline(
        self, broker: BrokerRegistration, offline: Sequence[bytes]
    ) -> frozenset[bytes]:
        """Return the directories in `offline` that are still registered as online."""
        return frozenset(offline).intersection(broker.directories)

    def take_offline(
        self,
        image: ClusterImage,
        broker: BrokerRegistration,
        failed: frozenset[bytes],
        *,
        without_elections: bool = False,
    ) -> list[VersionedRecord]:
        """Take failed directories offline: their replicas leave the ISR, and other replicas lead.

        Args:
            image: the cluster before the failure.
            broker: the broker of the directories.
            failed: the result of `newly_offline`.
            without_elections: True if the broker leaves every ISR anyway.
        """
        if not failed:
            return []
        left = [each for each in broker.directories if each not in failed]
        change = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left
        )
        records: list[VersionedRecord] = []
        if not without_elections:
            lost = (
                located
                for located in all_partitions(image)
                if broker.id in located[2].replicas and located[2].directory_of(broker.id) in failed
            )
            records = self._elections.on_directories_lost(image, broker.id, lost)
        return [*records, (change, _CHANGE_WITH_DIRECTORIES)]


def note_missing_directories(image: ClusterImage, broker_id: int) -> list[VersionedRecord]:
    """Mark replicas in unknown directories as lost, because a broker's directory is missing.

    Such a replica may have been in the missing directory. It stays marked until the broker reports
    its directory.
    """
    if not has_directories(image.features.metadata_version):
        return []
    records: list[VersionedRecord] = []
    for topic, partition, before in all_partitions(image):
        if broker_id not in before.replicas or before.directory_of(broker_id) not in _UNKNOWN:
            continue
        record = PartitionChangeRecord(partition_id=partition, topic_id=topic.id)
        record.directories = [
            DIRECTORY_LOST if replica == broker_id else known
            for replica, known in zip(before.replicas, before.directories, strict=True)
        ]
        records.append((record, partition_change_record_version(image.features.metadata_version)))
    return records


def _replica(
    topic: TopicImage | None, partition: int, broker_id: int
) -> tuple[TopicImage, PartitionRegistration]:
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    before = topic.partitions.get(partition)
    if before is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in before.replicas:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return topic, before
