"""Latest metadata image that this broker has received, and changes that it has not applied yet.

A change with 10,000 new partitions creates 40,000 files. Changes are applied in order and in
slices. The first slice of a change runs in the turn that commits it, and is enough for most
changes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.metadata.image import ClusterImage
from barnabas.waiting.steps import UNFINISHED, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.runtime.clock import Clock, Timer


# Limit of a slice. Each turn runs one, and its last step may exceed the limit.
SLICE_MS = 10.0


class Backlog:
    """Runs generators to their end, one after the other."""

    def __init__(
        self, clock: Clock, timer: Timer, on_failed: Callable[[BaseException], None]
    ) -> None:
        """Store the dependencies. `on_failed` gets the error of a step in a later turn."""
        self._clock = clock
        self._timer = timer
        self._on_failed = on_failed
        # Pending generators. The first one is in progress.
        self._work: deque[Generator[None, None, None]] = deque()
        # Callbacks for the moment when no work is left. Each is called once.
        self._on_empty: list[Callable[[], None]] = []
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._work)

    def add(self, steps: Generator[None, None, None]) -> None:
        """Run the steps after all earlier work. Without such work, the first slice runs now."""
        self._work.append(steps)
        if len(self._work) == 1:
            self._run_slice()
            self._continue()

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Call `callback` when no work is left, immediately if there is none now."""
        if self._work:
            self._on_empty.append(callback)
        else:
            callback()

    def close(self) -> None:
        """Run no further steps."""
        self._is_closed = True

    def _turn(self) -> None:
        if self._is_closed:
            return
        try:
            self._run_slice()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - do not continue after a half-applied change
            self._is_closed = True
            self._on_failed(error)
            return
        self._continue()

    def _run_slice(self) -> None:
        """Run steps until the slice ends or no work is left."""
        monotonic_ms = self._clock.monotonic_ms
        ends_ms = monotonic_ms() + SLICE_MS
        while self._work:
            left_ms = ends_ms - monotonic_ms()
            if run_slice(self._work[0], self._clock, left_ms) is UNFINISHED:
                return
            self._work.popleft()

    def _continue(self) -> None:
        if self._work:
            self._timer.call_soon(self._turn)
            return
        waiting, self._on_empty = self._on_empty, []
        for callback in waiting:
            callback()


# How long Metadata responses continue to list a fenced broker.
DEPARTED_LISTED_MS = 2_000.0


class ClusterView:
    """Holds the latest image, which is replaced completely after each committed metadata batch."""

    __slots__ = ("_clock", "_departed", "backlog", "image")

    def __init__(self, clock: Clock, backlog: Backlog) -> None:
        self._clock = clock
        # Metadata changes that this broker still has to apply.
        self.backlog = backlog
        # Time (ms, monotonic) until which a fenced broker is listed, by broker id.
        self._departed: dict[int, float] = {}
        self.image = ClusterImage()

    def update(self, image: ClusterImage) -> None:
        """Replace the image, and record the brokers that the new image fences."""
        now_ms = self._clock.monotonic_ms()
        for broker_id, before in self.image.brokers.items():
            after = image.brokers.get(broker_id)
            if after is not None and after.fenced and not before.fenced:
                self._departed[broker_id] = now_ms + DEPARTED_LISTED_MS
        self.image = image

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None if it does not exist."""
        topic = self.image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic with this name, or None if it does not exist."""
        topic = self.image.topics.by_name(name)
        return None if topic is None else topic.id

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        """Return replicas and leader of a partition, or None if it does not exist."""
        return self.image.topics.partition(topic, partition)

    def has_partition(self, name: str, partition: int) -> bool:
        """Return whether the partition exists."""
        return self.image.topics.partition(name, partition) is not None

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of the topic, 0 if it does not exist."""
        topic = self.image.topics.by_name(name)
        return 0 if topic is None else len(topic.partitions)

    def partition_racks(self, name: str) -> Iterator[list[str]]:
        """Yield the racks of the replicas of each partition; brokers may have none."""
        topic = self.image.topics.by_name(name)
        for _, partition in sorted(topic.partitions.items()) if topic is not None else ():
            brokers = [self.image.brokers.get(each) for each in partition.replicas]
            yield [each.rack for each in brokers if each is not None and each.rack is not None]

    def topic_names(self) -> Iterator[str]:
        """Yield the names of all topics."""
        return self.image.topics.names()

    def version(self) -> int:
        """Return the offset of the last metadata record of the image."""
        return self.image.provenance.offset

    def is_alive(self, broker_id: int) -> bool:
        """Return whether the broker is registered and not fenced."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def controller_for_clients(self, own_id: int) -> int:
        """Return the broker that clients see as the controller, or -1 if no broker is alive.

        Clients cannot connect to controllers. Every broker forwards their requests (KIP-590).
        """
        if self.is_alive(own_id):
            return own_id
        live = (broker.id for broker in self.image.brokers.values() if not broker.fenced)
        return next(live, -1)

    def offline_replicas(self, partition: PartitionRegistration) -> list[int]:
        """Return the replicas with a fenced broker or an offline data directory (KIP-112)."""
        return [
            replica
            for replica in partition.replicas
            if not self.is_alive(replica)
            or not self.image.brokers[replica].has_online(partition.directory_of(replica))
        ]

    def listed_brokers(self, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
        """Yield the brokers of a Metadata response that have this listener, with their addresses.

        A fenced broker is listed for two more seconds. librdkafka destroys its handle of a broker
        that is missing. If the same response names a new leader for that broker's partitions,
        librdkafka loses the new leader too, and requests metadata again only a second later.
        """
        if self._departed:
            now_ms = self._clock.monotonic_ms()
            self._departed = {
                broker_id: until_ms
                for broker_id, until_ms in self._departed.items()
                if until_ms > now_ms
            }
        for broker in self.image.brokers.values():
            endpoint = broker.listeners.get(listener_name)
            if endpoint is not None and (not broker.fenced or broker.id in self._departed):
                yield broker, endpoint

    def endpoint(self, broker_id: int, listener_name: str) -> Endpoint | None:
        """Return the address of a live broker, or None if it is fenced or lacks the listener."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            return None
        return broker.listeners.get(listener_name)
