"""Throttles of reassignments (KIP-73): the rates of brokers, and the replicas they apply to.

As in Kafka's tool, the old replicas are throttled as leaders and the new ones as followers. Other
replication keeps its speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.cli.partitions.plan import Move
    from barnabas.client.facade import Client

__all__ = ["clear_throttles", "set_throttles", "throttled_topics"]

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


def set_throttles(client: Client, planned: Sequence[Move], bytes_per_second: int) -> None:
    """Throttle the replicas that a plan copies."""
    by_topic: dict[str, list[Move]] = {}
    brokers: set[int] = set()
    for move in planned:
        if move.adding:
            by_topic.setdefault(move.partition.topic, []).append(move)
            brokers.update(move.before, move.adding)
    rates = dict.fromkeys(_RATES, str(bytes_per_second))
    for broker in sorted(brokers):
        client.admin.alter_configs(ConfigResource(ResourceType.BROKER, str(broker)), rates)
    for topic, its in by_topic.items():
        lists = {
            _LEADERS: ",".join(f"{m.partition.partition}:{r}" for m in its for r in m.before),
            _FOLLOWERS: ",".join(f"{m.partition.partition}:{r}" for m in its for r in m.adding),
        }
        client.admin.alter_configs(ConfigResource(ResourceType.TOPIC, topic), lists)


def clear_throttles(client: Client, topics: Iterable[str]) -> None:
    """Remove the throttles from the topics and from all brokers."""
    for topic in sorted(topics):
        resource = ConfigResource(ResourceType.TOPIC, topic)
        client.admin.alter_configs(resource, dict.fromkeys((_LEADERS, _FOLLOWERS)))
    for broker in client.describe_cluster().brokers:
        resource = ConfigResource(ResourceType.BROKER, str(broker.id))
        client.admin.alter_configs(resource, dict.fromkeys(_RATES))


def throttled_topics(client: Client) -> list[str]:
    """Return the topics that have throttled replicas."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in client.topics(internal=True)]
    found = []
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            raise entries
        if any(e.name in (_LEADERS, _FOLLOWERS) and e.value for e in entries):
            found.append(resource.name)
    return found
