"""Broker keys that servers for tests start with, unless a test sets them."""

from __future__ import annotations

__all__ = ["BROKER_SETTINGS", "CLUSTER_SETTINGS"]

# Consumer groups form at once instead of waiting three seconds for more members.
BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
CLUSTER_SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "3"}
