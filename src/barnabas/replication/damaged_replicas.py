"""Handles damaged logs of this broker, if other replicas have the records.

The replica goes offline, and the broker reports its directory as lost to the controller (KIP-858).
The controller removes it from the ISR and elects another leader. Then the broker deletes the
damaged segment and fetches it again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.partition_registry import ImageBrokers, PartitionRegistry
    from barnabas.storage.errors import DamagedLogError
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel

_log = logging.getLogger(__name__)


class DamageDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of `DamagedReplicas`."""

    node_id: int
    registry: PartitionRegistry
    brokers: ImageBrokers
    wheel: TimingWheel
    # Takes a partition offline, and checks its pending operations.
    take_offline: Callable[[TopicPartition], None]
    wake: Callable[[TopicPartition], None]
    # Reports a lost replica to the controller. None if no other broker can take over.
    give_up: Callable[[TopicIdPartition], None] | None


class DamagedReplicas:
    """Takes replicas with damaged logs offline."""

    __slots__ = ("_dependencies",)

    def __init__(self, dependencies: DamageDependencies) -> None:
        self._dependencies = dependencies

    def on_damage(self, key: TopicPartition, error: DamagedLogError) -> None:
        """Handle a damaged log. Without another live ISR member, the partition stays online."""
        dependencies = self._dependencies
        partition = dependencies.registry.online.get(key)
        if dependencies.give_up is None or partition is None or not self._has_other_in_sync(key):
            return
        _log.warning(
            "Damaged replica goes offline: partition=%s path=%s; it is fetched again "
            "after the controller has removed it from the ISR",
            key,
            error.path,
        )
        dependencies.registry.note_damage(key, error.path)
        where = TopicIdPartition(partition.topic_id, *key)
        # In the next turn, since this method may be called during a fetch.
        dependencies.wheel.add(0, partial(self._give_up, where, dependencies.give_up))

    def _give_up(
        self, where: TopicIdPartition, give_up: Callable[[TopicIdPartition], None]
    ) -> None:
        self._dependencies.take_offline(where.topic_partition)
        self._dependencies.wake(where.topic_partition)
        give_up(where)

    def _has_other_in_sync(self, key: TopicPartition) -> bool:
        brokers = self._dependencies.brokers
        registration = None if brokers.image is None else brokers.image.topics.partition(*key)
        return registration is not None and any(
            each != self._dependencies.node_id and brokers.is_alive(each)
            for each in registration.isr
        )
