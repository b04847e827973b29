"""A fetch that waits, and the begin of a stop."""

from __future__ import annotations

from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from unit.server.simulated_broker import SimulatedBroker


def long_fetch(topic: str) -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=20_000,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )


def begin_stop(broker: SimulatedBroker) -> list[float]:
    """Begin to stop; the list gets the time of its end, in ms from now."""
    started = broker.host.clock.monotonic_ms()
    stopped: list[float] = []
    broker.node.stop(lambda: stopped.append(broker.host.clock.monotonic_ms() - started))
    return stopped
