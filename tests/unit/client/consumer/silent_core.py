"""The core of a consumer whose parts send no request."""

from __future__ import annotations

from typing import Any

from barnabas.client.consumer.consumer_core import ConsumerCore
from barnabas.client.consumer.user_objects import take_user_objects
from unit.client.scripted_cluster import ScriptedCluster


class Silent(ScriptedCluster):
    """Records the refreshed topics; its coordinators find nothing."""

    def __init__(self, **keys: object) -> None:
        super().__init__(**{"group.id": "g", **keys})
        self.refreshed: list[Any] = []

    def refresh(self, topics: Any, on_done: Any) -> None:
        self.refreshed.append(None if topics is None else sorted(topics))
        super().refresh(topics, on_done)

    def known(self, _group: str) -> None:
        pass

    def find(self, _group: str, _on_found: Any) -> None:
        pass


def core_over(cluster: ScriptedCluster) -> ConsumerCore:
    stand_in: Any = cluster
    parts, _ = take_user_objects({})
    return ConsumerCore(stand_in, stand_in, parts, lambda _call, done: done(None))
