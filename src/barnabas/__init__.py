"""Barnabas: an event log that speaks the Apache Kafka protocol."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas import aio
    from barnabas.client.admin.admin import Admin
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.consumer.rebalance_listener import RebalanceListener
    from barnabas.client.consumer.subscription import SubscriptionPattern
    from barnabas.client.facade import Client
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.producer.producer import Producer
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "Admin",
    "Client",
    "CommittedOffset",
    "Consumer",
    "ConsumerRecord",
    "ConsumerRecords",
    "Producer",
    "RebalanceListener",
    "SubscriptionPattern",
    "TopicPartition",
    "__version__",
    "aio",
]


# Where each public name lives.
_HOMES = {
    "Admin": "barnabas.client.admin.admin",
    "Client": "barnabas.client.facade",
    "CommittedOffset": "barnabas.client.group_offsets",
    "Consumer": "barnabas.client.consumer.consumer",
    "ConsumerRecord": "barnabas.client.record_decoding",
    "ConsumerRecords": "barnabas.client.consumer.consumer_records",
    "Producer": "barnabas.client.producer.producer",
    "RebalanceListener": "barnabas.client.consumer.rebalance_listener",
    "SubscriptionPattern": "barnabas.client.consumer.subscription",
    "TopicPartition": "barnabas.client.topic_partition",
}


def __getattr__(name: str) -> Any:
    """Import the client when it is asked for: the broker starts without it (PEP 562)."""
    if name == "aio":
        return import_module("barnabas.aio")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
