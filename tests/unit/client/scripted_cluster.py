"""A cluster that stores its calls, so that tests can answer them in any order."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig
from barnabas.client.connections.metadata_cache import (
    MetadataCache,
    NodeInfo,
    PartitionInfo,
    TopicInfo,
)
from barnabas.client.errors import DisconnectedError
from barnabas.client.retries import Backoff, RetryTimer
from barnabas.runtime.rng import SeededRng

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.connections.connections import Call

TOPIC_ID = b"t" * 16


class PendingCallback:
    """A callback that a timer calls at `due_ms` unless it is canceled first."""

    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.is_canceled = False

    def cancel(self) -> None:
        self.is_canceled = True


class HandTime:
    """A clock and timer that tests advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: list[PendingCallback] = []

    def wall_ms(self) -> int:
        return int(self.now)

    def monotonic_ms(self) -> float:
        return self.now

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> PendingCallback:
        pending = PendingCallback(self.now + delay_ms, callback)
        self._waiting.append(pending)
        return pending

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def pending(self) -> list[PendingCallback]:
        """Return the callbacks that are due later, in the order of their calls."""
        return [pending for pending in self._waiting if not pending.is_canceled]

    def advance(self, delay_ms: float) -> None:
        self.now += delay_ms
        due = [pending for pending in self._waiting if pending.due_ms <= self.now]
        self._waiting = [pending for pending in self._waiting if pending.due_ms > self.now]
        for pending in due:
            if not pending.is_canceled:
                pending.callback()


class HandStepper:
    """Moves time on until a condition holds, instead of waiting."""

    def __init__(self, time: HandTime) -> None:
        self._time = time
        self.is_running = False

    def run_until(self, predicate: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        deadline = self._time.now + (60_000 if timeout_ms is None else timeout_ms)
        while not predicate() and self._time.now < deadline:
            self._time.advance(10)
        return predicate()


class ScriptedCluster:
    """Replaces `Cluster`: one node, and one topic "t" with two partitions."""

    def __init__(self, **keys: object) -> None:
        self.time = HandTime()
        self.config = ClientConfig.parse({"bootstrap.servers": "a:1", **keys})
        self.runtime = SimpleNamespace(clock=self.time, timer=self.time, rng=SeededRng(1))
        self.retry_backoff = Backoff(self.runtime.rng, 100, 1000)
        self.tracked: set[str] = set()
        self.metadata = MetadataCache()
        self.metadata.nodes = {1: NodeInfo(1, "h", 1)}
        self.set_partitions(2)
        self.metadata.names = {TOPIC_ID: "t"}
        self.calls: list[Call] = []
        # The node of each call, in the order of the calls.
        self.called: list[int] = []
        self.updates_requested = 0
        # The effects of the next metadata refreshes on the cluster.
        self.on_refresh: list[Callable[[], None]] = []
        self.refreshes = 0
        self.allow_auto_creation = False
        self.features: dict[str, int] = {}

    def set_partitions(self, count: int, topic_id: bytes = TOPIC_ID) -> None:
        partitions = {number: PartitionInfo(number, 1, 4) for number in range(count)}
        self.metadata.topics = {"t": TopicInfo("t", topic_id, False, partitions)}
        self.metadata.generation += 1

    def retry_timer(self, timeout_ms: float = inf) -> RetryTimer:
        return RetryTimer(self.runtime, self.retry_backoff, timeout_ms)  # type: ignore[arg-type]

    def refresh(self, _topics: object, on_done: Callable[[None, None], None]) -> None:
        self.refreshes += 1
        if self.on_refresh:
            self.on_refresh.pop(0)()
        on_done(None, None)

    def call(self, node_id: int, call: Call) -> None:
        self.called.append(node_id)
        self.calls.append(call)

    def call_coordinator(self, node_id: int, call: Call) -> None:
        self.call(node_id, call)

    def feature_level(self, name: str) -> int:
        return self.features.get(name, 0)

    def request_update(self) -> None:
        self.updates_requested += 1

    def maybe_update_by_age(self) -> None:
        pass

    def on_update(self, listener: Callable[[], None]) -> None:
        pass

    def remove_listener(self, listener: Callable[[], None]) -> None:
        pass

    def take(self, version: int) -> tuple[Any, Callable[[Any], None]]:
        """Remove the oldest call; return its request and its callback."""
        call = self.calls.pop(0)
        return call.build(version), lambda response: call.on_done(response, None)

    def disconnect(self) -> None:
        """Fail the oldest call."""
        self.calls.pop(0).on_done(None, DisconnectedError("h:1", "gone"))
