"""Requests for leaders that wait for the election after a leader's connections have closed.

A client whose leader dies requests metadata within milliseconds, before the controller has elected
a new leader. If the response still names the dead leader, librdkafka repeats the request only at
the next tick of a timer of one second. A broker that follows the dead leader sees its own
connection close at the same time. It delays such a request until the leader is fenced, for at most
a second. If the active controller dies too, for example with their machine, the quorum first elects
another one, so the delay is longer. The response to this first request then has the new leader.
Kafka responds with the old leader. FindCoordinator requests wait in the same way: librdkafka keeps
a coordinator that it cannot reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.metadata.image import ClusterDelta
    from barnabas.metadata.topics import TopicImage
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

# Maximum time after the loss of a connection for which requests are delayed.
DELAY_MS = 1_000.0
# The same if the connection to the active controller closes in this time too.
DELAY_WITHOUT_CONTROLLER_MS = 3_000.0
# Maximum number of partitions in a delayed request, and maximum number of delayed requests. Other
# requests get a response immediately.
_PARTITIONS_MAX = 1_000
_REQUESTS_MAX = 1_000


class LostLeaders:
    """The brokers whose connections have closed, and the requests that wait for their fencing."""

    def __init__(self, clock: Clock, wheel: TimingWheel) -> None:
        self._clock = clock
        self._wheel = wheel
        # By broker id: timer that ends the delay of its requests. An entry is added when the
        # connection closes. It is removed when the broker changes in the metadata, or by the timer.
        self._ends: dict[int, WheelEntry] = {}
        # Brokers whose delay was extended. A subset of the keys above.
        self._extended: set[int] = set()
        # Time until which the last loss of the controller extends delays; monotonic ms.
        self._extends_until_ms = 0.0
        # By broker id: callbacks of the delayed requests. The keys are a subset of the keys above.
        self._delayed: dict[int, list[Callable[[], None]]] = {}

    def on_connection_lost(self, broker_id: int) -> None:
        """Delay requests for this leader's partitions from now on.

        Repeated losses do not extend the time, because the leader may be alive but not reachable
        from this broker.
        """
        if broker_id in self._ends:
            return
        if self._clock.monotonic_ms() < self._extends_until_ms:
            self._extend(broker_id)
        else:
            self._ends[broker_id] = self._wheel.add(DELAY_MS, lambda: self._release(broker_id))

    def on_controller_lost(self) -> None:
        """Extend the delays: the brokers are fenced only after the election of a controller.

        The delay of a broker is extended once.
        """
        self._extends_until_ms = self._clock.monotonic_ms() + DELAY_MS
        for broker_id in self._ends.keys() - self._extended:
            self._ends[broker_id].cancel()
            self._extend(broker_id)

    def _extend(self, broker_id: int) -> None:
        self._extended.add(broker_id)
        self._ends[broker_id] = self._wheel.add(
            DELAY_WITHOUT_CONTROLLER_MS, lambda: self._release(broker_id)
        )

    def on_change(self, delta: ClusterDelta) -> None:
        """Release the requests for brokers that were fenced, unregistered or registered again."""
        for broker_id in self._ends.keys() & delta.broker_changes.keys():
            self._release(broker_id)

    def delay(self, topics: Iterable[TopicImage | None], serve: Callable[[], None]) -> bool:
        """Delay a request if one of its partitions has a lost leader.

        Args:
            topics: the topics of the request.
            serve: called once, in a later turn, when the delay ends.

        Returns:
            Whether the request is delayed. If not, the caller must serve it now.
        """
        if not self._ends:
            return False
        leader = self._lost_leader(topics)
        return leader is not None and self.delay_for(leader, serve)

    def delay_for(self, leader: int, serve: Callable[[], None]) -> bool:
        """Delay a request for partitions that a lost broker leads. See `delay`."""
        if leader not in self._ends or sum(map(len, self._delayed.values())) >= _REQUESTS_MAX:
            return False
        self._delayed.setdefault(leader, []).append(serve)
        return True

    def _lost_leader(self, topics: Iterable[TopicImage | None]) -> int | None:
        seen = 0
        for topic in topics:
            seen += 1 if topic is None else len(topic.partitions)
            if seen > _PARTITIONS_MAX:
                return None
            for partition in () if topic is None else topic.partitions.values():
                if partition.leader in self._ends:
                    return partition.leader
        return None

    def _release(self, broker_id: int) -> None:
        self._ends.pop(broker_id).cancel()
        self._extended.discard(broker_id)
        delayed = self._delayed.pop(broker_id, None)
        if delayed:
            later = self._wheel.add
            run_in_slices(
                _served(delayed), self._clock, lambda work: later(0, work), lambda _: None
            )


def _served(delayed: list[Callable[[], None]]) -> Generator[None, None, None]:
    for serve in delayed:
        serve()
        yield
