"""A cluster that answers the requests of an admin client at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.protocol.api_keys import ApiKey
from unit.client.scripted_cluster import ScriptedCluster


class AnsweringCluster(ScriptedCluster):
    """Responds to each call at once, by API, as the test sets it; records the nodes called."""

    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.answers: dict[ApiKey, Callable[[int, Any], Any]] = {}
        self.asked: list[tuple[int, ApiKey]] = []
        self.metadata.nodes = {number: NodeInfo(number, "h", number) for number in (1, 2)}

    def call(self, node_id: int, call: Any) -> None:
        self.asked.append((node_id, call.api_key))
        version = 4 if call.api_key is ApiKey.FIND_COORDINATOR else 2
        answer = self.answers[call.api_key](node_id, call.build(version))
        if isinstance(answer, Exception):
            call.on_done(None, answer)
        else:
            call.on_done(answer, None)
