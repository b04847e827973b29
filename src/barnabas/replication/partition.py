"""One partition's replica on this broker, leading or following (Kafka's cluster.Partition)."""

from __future__ import annotations


class Partition:
    """A replica of a partition, and as leader what is known of the others."""
