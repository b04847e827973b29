"""One channel per broker: opened on demand, reopened with backoff, closed when idle.

The pool hands out ready channels only. A ready channel is connected and prepared by the owner
(ApiVersions, SASL). Concurrent callers share one connection attempt. After a failure, callers wait
for the next attempt at the end of the backoff.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.network.channel import Channel, ChannelDependencies, call_each
from barnabas.network.frame_buffers import FrameBuffers
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.network.reconnect_backoff import ReconnectBackoff
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.waiting.timing_wheel import WheelEntry

    # Called with (channel, None) or (None, error).
    OnReady: TypeAlias = Callable[[Channel | None, NetworkError | None], None]
    # Prepares a connected channel, then calls back with None or an error.
    Prepare: TypeAlias = Callable[[Channel, Callable[[NetworkError | None], None]], None]


class Node(msgspec.Struct, frozen=True):
    """A broker in the cluster metadata. Bootstrap addresses have negative ids."""

    id: int
    host: str
    port: int


class PoolSettings(msgspec.Struct, frozen=True):
    """Settings of a pool, from Kafka's client configuration."""

    client_id: str | None = None
    # `socket.connection.setup.timeout.ms`
    connect_timeout_ms: float = 10_000.0
    # `connections.max.idle.ms`
    idle_max_ms: float = 540_000.0
    backoff: ReconnectBackoff = msgspec.field(default_factory=ReconnectBackoff)
    # Limit on the large receive buffers that are kept for reuse.
    kept_frame_bytes_max: int = 16 << 20
    # Credentials with which connections log in; None: no login.
    login: ClientLogin | None = None


class _Slot:
    """The state of the connection to one broker."""

    __slots__ = ("channel", "failures", "idle_check", "node", "ready", "retry", "waiting")

    def __init__(self, node: Node) -> None:
        self.node = node
        # The opening or ready channel, or None.
        self.channel: Channel | None = None
        self.ready = False
        # Number of consecutive failures. Reset when a channel becomes ready.
        self.failures = 0
        # Timer of the next attempt during a backoff, or None.
        self.retry: WheelEntry | None = None
        self.idle_check: WheelEntry | None = None
        self.waiting: list[OnReady] = []


class ConnectionPool:
    """The channels of a client, or of a broker to its peers."""

    __slots__ = ("_closed", "_dependencies", "_prepare", "_rng", "_settings", "_slots", "_wheel")

    def __init__(
        self, runtime: Runtime, settings: PoolSettings, prepare: Prepare | None = None
    ) -> None:
        self._settings = settings
        self._prepare = prepare
        self._rng = runtime.rng
        self._wheel = TimingWheel(runtime.clock, runtime.timer)
        self._dependencies = ChannelDependencies(
            clock=runtime.clock,
            timer=runtime.timer,
            sockets=runtime.sockets,
            wheel=self._wheel,
            receive_buffer=new_receive_buffer(),
            large_buffers=FrameBuffers(settings.kept_frame_bytes_max),
            login=settings.login,
        )
        self._slots: dict[int, _Slot] = {}
        self._closed = False

    @property
    def wheel(self) -> TimingWheel:
        """The timing wheel, for the owner's own timers."""
        return self._wheel

    def acquire(self, node: Node, on_ready: OnReady) -> None:
        """Get the node's channel, and open it if necessary.

        If the channel is ready, `on_ready` is called before this method returns. A node with a
        changed address gets a new channel.
        """
        if self._closed:
            on_ready(None, NetworkError(NetworkErrorKind.CLOSED, "the client is closed"))
            return
        slot = self._slots.get(node.id)
        if slot is not None and slot.node != node:
            self.drop(node.id)
            slot = None
        if slot is None:
            slot = self._slots[node.id] = _Slot(node)
        if slot.ready and slot.channel is not None and slot.channel.is_open:
            on_ready(slot.channel, None)
            return
        slot.waiting.append(on_ready)
        if slot.channel is None and slot.retry is None:
            self._open(slot)

    def ready_channel(self, node_id: int) -> Channel | None:
        """Return the node's channel if it is ready, else None."""
        slot = self._slots.get(node_id)
        if slot is None or not slot.ready or slot.channel is None or not slot.channel.is_open:
            return None
        return slot.channel

    @property
    def ready_count(self) -> int:
        """Number of nodes with a ready channel."""
        return sum(self.ready_channel(node_id) is not None for node_id in self._slots)

    def is_backing_off(self, node_id: int) -> bool:
        """Whether the node's next connection attempt waits for the backoff."""
        slot = self._slots.get(node_id)
        return slot is not None and slot.retry is not None

    def drop(self, node_id: int) -> None:
        """Remove a node and close its channel. Callers that wait for the channel get an error."""
        slot = self._slots.pop(node_id, None)
        if slot is None:
            return
        for entry in (slot.retry, slot.idle_check):
            if entry is not None:
                entry.cancel()
        slot.retry = slot.idle_check = None
        if slot.channel is not None:
            slot.channel.close()
        error = NetworkError(NetworkErrorKind.CLOSED, f"{slot.node.host}:{slot.node.port}")
        self._report(slot, None, error)

    def close(self) -> None:
        """Close all channels. Pending requests fail."""
        self._closed = True
        for node_id in list(self._slots):
            self.drop(node_id)
        self._wheel.close()

    def _open(self, slot: _Slot) -> None:
        slot.ready = False
        slot.retry = None
        on_closed = partial(self._on_closed, slot)
        channel = Channel(self._dependencies, self._settings.client_id, on_closed)
        slot.channel = channel
        timeout_ms = self._settings.connect_timeout_ms
        on_connected = partial(self._on_connected, slot, channel)
        channel.connect(slot.node.host, slot.node.port, timeout_ms, on_connected)

    def _on_connected(self, slot: _Slot, channel: Channel, error: NetworkError | None) -> None:
        if slot.channel is not channel:
            return
        if error is not None:
            self._on_failure(slot, error)
        elif self._prepare is None:
            self._on_prepared(slot, channel, None)
        else:
            self._prepare(channel, partial(self._on_prepared, slot, channel))

    def _on_prepared(self, slot: _Slot, channel: Channel, error: NetworkError | None) -> None:
        if slot.channel is not channel or slot.ready:
            return
        if error is not None:
            # Clear the channel first, so that `_on_closed` ignores it.
            slot.channel = None
            channel.close()
            self._on_failure(slot, error)
            return
        slot.ready = True
        slot.failures = 0
        self._watch_idle(slot, channel, self._settings.idle_max_ms)
        self._report(slot, channel, None)

    def _on_closed(self, slot: _Slot, channel: Channel, error: NetworkError) -> None:
        if slot.channel is not channel:
            return
        if slot.idle_check is not None:
            slot.idle_check.cancel()
            slot.idle_check = None
        if slot.ready and error.kind is NetworkErrorKind.CLOSED:
            slot.channel = None
            slot.ready = False
            if slot.waiting:
                # They came while the idle channel was being closed.
                self._open(slot)
            return
        self._on_failure(slot, error)

    def _on_failure(self, slot: _Slot, error: NetworkError) -> None:
        slot.channel = None
        slot.ready = False
        slot.failures += 1
        if not self._closed and self._slots.get(slot.node.id) is slot:
            delay_ms = self._settings.backoff.delay_ms(slot.failures, self._rng)
            slot.retry = self._wheel.add(delay_ms, partial(self._on_backoff_over, slot))
        self._report(slot, None, error)

    def _on_backoff_over(self, slot: _Slot) -> None:
        slot.retry = None
        if slot.waiting:
            self._open(slot)

    def _watch_idle(self, slot: _Slot, channel: Channel, delay_ms: float) -> None:
        slot.idle_check = self._wheel.add(delay_ms, partial(self._check_idle, slot, channel))

    def _check_idle(self, slot: _Slot, channel: Channel) -> None:
        slot.idle_check = None
        if slot.channel is not channel:
            return
        rest_ms = self._settings.idle_max_ms - channel.idle_ms()
        if rest_ms <= 0.0:
            channel.close()
        else:
            self._watch_idle(slot, channel, rest_ms)

    def _report(self, slot: _Slot, channel: Channel | None, error: NetworkError | None) -> None:
        waiting, slot.waiting = slot.waiting, []
        calls = deque(partial(on_ready, channel, error) for on_ready in waiting)
        call_each(self._dependencies.timer, calls)
