"""Requests that create topics."""

from __future__ import annotations

from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

ENOUGH_MS = 10_000


def creation(name: str, replicas: int = 1, timeout_ms: int = ENOUGH_MS) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=3, replication_factor=replicas, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
