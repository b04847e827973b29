"""Validation and placement of the replicas of new partitions, and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.controller.topics.placement import PlacementSpec, UsableBroker
from barnabas.metadata.partition_registration import (
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.controller.result import VersionedRecord
    from barnabas.controller.topics.placement import ReplicaPlacer
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage


def is_live(broker: BrokerRegistration | None) -> bool:
    """Return whether a broker may lead and be in an ISR."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class NewPartitions:
    """Creates partitions on the brokers of one image."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def place(self, placer: ReplicaPlacer, count: int, factor: int) -> list[list[int]]:
        """Return the replicas of `count` partitions, chosen by `placer`.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR.
        """
        brokers = [
            UsableBroker(broker.id, broker.rack, broker.fenced)
            for broker in self._image.brokers.values()
            if not broker.in_controlled_shutdown and not broker.is_cordoned
        ]
        return placer.place(PlacementSpec(count, factor), brokers)

    def check_assignments(
        self, assignments: Sequence[Sequence[int]], replication_factor: int | None
    ) -> None:
        """Raise Refusal for manually assigned replicas that are not possible.

        Args:
            assignments: replicas of each partition.
            replication_factor: required number of replicas; None to use that of the first
                partition.

        Raises:
            Refusal: INVALID_REPLICA_ASSIGNMENT.
        """
        for replicas in assignments:
            problem = self._problem_of(replicas, replication_factor)
            if problem is not None:
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            replication_factor = len(replicas)

    def check_replicas(self, replicas: Sequence[int]) -> None:
        """Raise Refusal for replicas that a partition cannot have. They need not be live.

        Raises:
            Refusal: INVALID_REPLICA_ASSIGNMENT.
        """
        problem = self._wrong_brokers(replicas)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def _wrong_brokers(self, replicas: Sequence[int]) -> str | None:
        if not replicas:
            return "a partition needs at least one replica"
        if len(set(replicas)) != len(replicas):
            return f"a broker occurs twice in replicas {list(replicas)}"
        for broker_id in replicas:
            broker = self._image.brokers.get(broker_id)
            if broker is None:
                return f"broker {broker_id} is not registered"
            if broker.is_cordoned:
                return f"all directories of broker {broker_id} are cordoned"
        return None

    def _problem_of(self, replicas: Sequence[int], replication_factor: int | None) -> str | None:
        wrong = self._wrong_brokers(replicas)
        if wrong is not None:
            return wrong
        if replication_factor is not None and len(replicas) != replication_factor:
            return (
                f"the number of replicas {list(replicas)} is not {replication_factor}, as for "
                "the other partitions"
            )
        if not any(is_live(self._image.brokers.get(broker_id)) for broker_id in replicas):
            return f"none of the brokers {list(replicas)} is live"
        return None

    def record(self, topic_id: bytes, partition: int, replicas: Sequence[int]) -> VersionedRecord:
        """Return the record of a partition. Live replicas form the ISR, and its first one leads."""
        brokers = self._image.brokers
        isr = tuple(replica for replica in replicas if is_live(brokers.get(replica)))
        registration = PartitionRegistration(
            replicas=tuple(replicas),
            directories=tuple(directory_on(brokers[replica]) for replica in replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        return registration.to_record(topic_id, partition, self._image.features.metadata_version)


def directory_on(broker: BrokerRegistration) -> bytes:
    """Return the directory of a new replica, as far as it is known (KIP-858)."""
    if len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED if broker.directories else DIRECTORY_MIGRATING
