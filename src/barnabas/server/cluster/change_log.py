"""Log of cluster changes: summarizes metadata changes as log lines (level info).

The active controller logs all changes. Other nodes log changes of brokers and of their own
replicas.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.metadata.partition_registration import PartitionRegistration

    # Name of a partition, its old state (None for a new partition), and its new state.
    Change = tuple[str, PartitionRegistration | None, PartitionRegistration]

_log = logging.getLogger(__name__)

# Maximum number of names in a line. Further names are only counted.
_NAMED_MAX = 5


class ChangeLog:
    """Logs metadata changes. Listens to the metadata publisher."""

    def __init__(self, node_id: int, is_active: Callable[[], bool]) -> None:
        """Create a log of changes.

        Args:
            node_id: id of this node.
            is_active: returns whether this node is the active controller.
        """
        self._node_id = node_id
        self._is_active = is_active
        # Whether the node is ready. Set once. Earlier changes are old and not logged.
        self.is_caught_up = False

    def on_image(self, delta: ClusterDelta, _image: ClusterImage) -> None:
        """Log the changes of a new image."""
        if not (self.is_caught_up and _log.isEnabledFor(logging.INFO)):
            return
        for line in self._lines(delta):
            _log.info("%s", line)

    def _lines(self, delta: ClusterDelta) -> Iterator[str]:
        for broker_id, broker in sorted(delta.broker_changes.items()):
            yield from _broker_lines(broker_id, delta.image.brokers.get(broker_id), broker)
        reports_all = self._is_active()
        if reports_all:
            yield from _topic_lines(delta)
        changes = [
            (f"{topic.name}-{number}", before, after)
            for topic, number, before, after in delta.topics_delta.changed_partitions()
            if reports_all or self._node_id in after.replicas
        ]
        yield from _leader_lines(changes)
        yield from _isr_lines(changes)


def _broker_lines(
    broker_id: int, before: BrokerRegistration | None, after: BrokerRegistration | None
) -> Iterator[str]:
    if after is None:
        yield f"Broker {broker_id} is unregistered"
        return
    if before is None or before.epoch != after.epoch:
        yield f"Broker {broker_id} has registered, epoch {after.epoch}"
    elif before.fenced != after.fenced:
        yield f"Broker {broker_id} is {'fenced' if after.fenced else 'unfenced'}"
    elif after.is_leaving and not before.is_leaving:
        yield f"Broker {broker_id} shuts down"


def _topic_lines(delta: ClusterDelta) -> Iterator[str]:
    topics = delta.topics_delta
    created = [each.name for each in topics.changed.values() if not each.image.partitions]
    if created:
        yield f"Topics created: {_named(created)}"
    if topics.deleted:
        yield f"Topics deleted: {_named(each.name for each in topics.deleted.values())}"


def _leader_lines(changes: Iterable[Change]) -> Iterator[str]:
    moves: dict[tuple[int, int], list[str]] = {}
    for name, before, after in changes:
        if before is not None and before.leader != after.leader:
            moves.setdefault((before.leader, after.leader), []).append(name)
    for (old, new), names in sorted(moves.items()):
        yield f"Leader {_leader(old)} -> {_leader(new)}: {_named(names)}"


def _isr_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yield which brokers left or joined the ISR of which partitions."""
    names: dict[tuple[str, int], list[str]] = {}
    for name, before, after in changes:
        if before is None:
            continue
        for broker_id in set(before.isr) - set(after.isr):
            names.setdefault(("left", broker_id), []).append(name)
        for broker_id in set(after.isr) - set(before.isr):
            names.setdefault(("joined", broker_id), []).append(name)
    for (verb, broker_id), partitions in sorted(names.items()):
        yield f"Broker {broker_id} {verb} the ISR of {_named(partitions)}"


def _leader(broker_id: int) -> str:
    return "none" if broker_id == NO_LEADER else str(broker_id)


def _named(names: Iterable[str]) -> str:
    listed = sorted(names)
    text = ", ".join(listed[:_NAMED_MAX])
    more = len(listed) - _NAMED_MAX
    return text if more <= 0 else f"{text} and {more} more"
