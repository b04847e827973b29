"""Metadata requests that wait for the election after a leader's connections have closed.

A client whose leader dies asks for the new leader within milliseconds, before the controller has
elected one. If the response still names the dead leader, librdkafka asks again only at the next
tick of a timer of one second. A broker that follows the dead leader sees its own connection close
at the same time. It holds such a request until the leader is fenced, for at most a second. The
client then has the new leader with its first request. Kafka responds with the old leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.metadata.delta import ClusterDelta
    from barnabas.metadata.topics_image import TopicImage
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

__all__ = ["HOLD_MS", "LostLeaders"]

# How long after the loss of a connection the requests are held, at most.
HOLD_MS = 1_000.0
# Limits of what one request and all held requests may cost. Others get a response immediately.
_PARTITIONS_MAX = 1_000
_REQUESTS_MAX = 1_000


class LostLeaders:
    """The brokers whose connections have closed, and the requests that wait for their fencing."""

    __slots__ = ("_clock", "_ends", "_held", "_wheel")

    def __init__(self, clock: Clock, wheel: TimingWheel) -> None:
        self._clock = clock
        self._wheel = wheel
        # By broker id: ends the time in which its requests are held. An entry is added when the
        # connection closes, and removed when the broker changes in the metadata or the time has
        # passed.
        self._ends: dict[int, WheelEntry] = {}
        # By broker id: callbacks of the requests that wait. Its keys are a subset of those above.
        self._held: dict[int, list[Callable[[], None]]] = {}

    def on_connection_lost(self, broker_id: int) -> None:
        """Hold requests for this leader's partitions from now on.

        Repeated losses do not extend the time: the leader may be alive but not reachable from here.
        """
        if broker_id not in self._ends:
            self._ends[broker_id] = self._wheel.add(HOLD_MS, lambda: self._release(broker_id))

    def on_change(self, delta: ClusterDelta) -> None:
        """Release the requests for brokers that were fenced, unregistered or registered again."""
        for broker_id in self._ends.keys() & delta.broker_changes.keys():
            self._release(broker_id)

    def hold(self, topics: Iterable[TopicImage | None], serve: Callable[[], None]) -> bool:
        """Hold a request if one of its partitions has a lost leader.

        Args:
            topics: the topics of the request.
            serve: called once, in a later turn, when the request is to be served.

        Returns:
            Whether the request is held. Otherwise serve it now.
        """
        if not self._ends:
            return False
        leader = self._lost_leader(topics)
        if leader is None or sum(map(len, self._held.values())) >= _REQUESTS_MAX:
            return False
        self._held.setdefault(leader, []).append(serve)
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
        held = self._held.pop(broker_id, None)
        if held:
            later = self._wheel.add
            run_in_slices(_served(held), self._clock, lambda work: later(0, work), lambda _: None)


def _served(held: list[Callable[[], None]]) -> Generator[None, None, None]:
    for serve in held:
        serve()
        yield
