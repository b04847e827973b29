"""Creates a topic for a test and waits until it is usable."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.topics import NewTopic, TopicState

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["create_topic"]

# Only a limit for operations that hang.
_TIMEOUT_S = 90.0
_PAUSE_S = 0.005


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until each of its partitions has a leader.

    Args:
        bootstrap: HOST:PORT of brokers, separated by commas.
        name: the topic's name.
        partitions: the number of partitions.
        replication_factor: -1 means the broker's `default.replication.factor`.
        configs: keys of the topic, such as `retention.ms`.

    Raises:
        AdminResultsError: the topic exists already, or the broker refused it.
        ClientTimeoutError: no broker responded.
        TimeoutError: a partition has no leader after 90 seconds.
    """
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            state = admin.describe_topic_partitions([name]).get(name)
            found = state.partitions if isinstance(state, TopicState) else {}
            if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"topic {name} has partitions without a leader: {state}")
            time.sleep(_PAUSE_S)
