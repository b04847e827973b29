"""The network between simulated hosts: delays, fragmentation, partitions and resets, by the seed.

As in TCP, the bytes of a connection arrive in order or not at all. A partition delays them, and
connection attempts time out. When the partition heals, the delayed bytes arrive.
"""

from __future__ import annotations

import errno
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.runtime.sockets import USUAL_OPTIONS
from barnabas.sim.stream import SimStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.sockets import Listening, ListenOptions, StreamHandler
    from barnabas.sim.clock import SimScheduler

_LOCAL_NAMES = ("", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::")  # noqa: S104 - only names of addresses
_FIRST_FREE_PORT = 20_000


class NetworkConditions(msgspec.Struct, frozen=True):
    """Delays and faults of the network; delays are milliseconds of virtual time."""

    delay_min_ms: float = 0.05
    delay_max_ms: float = 0.5
    # Longest pause between two reads of one connection (ms).
    read_pause_max_ms: float = 0.05
    # Probability that a write resets its connection (0 to 1).
    reset_chance: float = 0.0
    # Probability that a read returns all bytes that have arrived (0 to 1).
    whole_read_share: float = 0.5


class SimNetwork:
    """The connections and listeners of all hosts."""

    def __init__(self, scheduler: SimScheduler, rng: Rng) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self.conditions = NetworkConditions()
        # Listening (host, port) -> factory of connection handlers.
        self.listeners: dict[tuple[str, int], Callable[[], StreamHandler]] = {}
        self._next_port = _FIRST_FREE_PORT
        # Timers of the running processes, by host.
        self._timers: dict[str, Timer] = {}
        # Hosts with power. Such a host refuses connections even when its process is dead.
        self._powered: set[str] = set()
        # Pairs of hosts that cannot reach each other, smaller name first.
        self._partitions: set[tuple[str, str]] = set()
        # Deliveries that wait for a partition to heal, in order of arrival: (pair, callback).
        self._held: list[tuple[tuple[str, str], Callable[[], None]]] = []
        self._streams: dict[SimStream, None] = {}

    def attach(self, host: str, timer: Timer) -> None:
        """Register the running process of a host."""
        self._timers[host] = timer
        self._powered.add(host)

    def detach(self, host: str, *, silent: bool) -> None:
        """Remove the dead process of a host.

        The kernel resets the connections of the process, unless the machine is `silent` (without
        power).
        """
        self._timers.pop(host, None)
        if silent:
            self._powered.discard(host)
        for address in [address for address in self.listeners if address[0] == host]:
            del self.listeners[address]
        for stream in [stream for stream in self._streams if stream.host == host]:
            del self._streams[stream]
            other = stream.other
            if not silent and other is not None:
                self.carry(host, other.host, 0.0, other.reset)

    def partition(self, one: str, other: str) -> None:
        """Disconnect two hosts from each other."""
        self._partitions.add(_pair(one, other))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """End the partition of two hosts; without names, end all partitions."""
        if one is None or other is None:
            self._partitions.clear()
        else:
            self._partitions.discard(_pair(one, other))
        held, self._held = self._held, []
        for pair, arrive in held:
            if pair in self._partitions:
                self._held.append((pair, arrive))
            else:
                self._scheduler.schedule(self.conditions.delay_max_ms, arrive)

    def is_partitioned(self, one: str, other: str) -> bool:
        """Return whether two hosts cannot reach each other."""
        return _pair(one, other) in self._partitions

    def reset_connections(self, one: str, other: str) -> int:
        """Reset all connections between two hosts. Return the number of connections."""
        pair = _pair(one, other)
        ends = [s for s in self._streams if s.other and _pair(s.host, s.other.host) == pair]
        for stream in ends:
            stream.reset()
        return len(ends) // 2

    def carry(
        self, source: str, target: str, not_before_ms: float, arrive: Callable[[], None]
    ) -> float:
        """Schedule a delivery to `target`. Return its time of arrival (ms)."""
        now_ms = self._scheduler.now_ms
        conditions = self.conditions
        spread = conditions.delay_max_ms - conditions.delay_min_ms
        delay_ms = conditions.delay_min_ms + spread * self._rng.random()
        arrival_ms = max(not_before_ms, now_ms + delay_ms)
        pair = _pair(source, target)

        def land() -> None:
            if pair in self._partitions:
                self._held.append((pair, arrive))
            elif target in self._powered:
                arrive()

        self._scheduler.schedule(arrival_ms - now_ms, land)
        return arrival_ms

    def forget(self, stream: SimStream) -> None:
        """Forget a stream that has ended."""
        self._streams.pop(stream, None)

    def free_port(self) -> int:
        """Return a free port, for a caller that requests port 0."""
        self._next_port += 1
        return self._next_port

    def connect(self, source: SimStream, host: str, port: int) -> bool:
        """Connect `source` to a listener, when the attempt arrives at its host.

        Returns:
            Whether a process listens at the address.
        """
        factory = self.listeners.get((host, port))
        if factory is None:
            return False
        accepted = SimStream(self, self._timers[host], factory(), host)
        accepted.other, source.other = source, accepted
        accepted.local = source.peer = f"{host}:{port}"
        accepted.peer = source.local = f"{source.host}:{self.free_port()}"
        self._streams[source] = self._streams[accepted] = None
        accepted.connected()
        return True

    def draw_read_size(self, available: int) -> int:
        """Return a random number of bytes for one read: often all available bytes, else fewer."""
        if self._rng.random() < self.conditions.whole_read_share:
            return available
        return self._rng.randint(1, available)

    def draw_pause_ms(self) -> float:
        """Return a random pause between two reads (ms)."""
        return self._rng.random() * self.conditions.read_pause_max_ms

    def draw_reset(self) -> bool:
        """Return whether this write resets its connection."""
        return (
            self.conditions.reset_chance > 0 and self._rng.random() < self.conditions.reset_chance
        )


class SimSockets:
    """The socket interface of one host."""

    def __init__(self, network: SimNetwork, timer: Timer, host: str) -> None:
        self._network = network
        self._timer = timer
        self._host = host

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        """Listen on a port of this host. `host` may be any of its addresses and is ignored."""
        del host, options
        port = port or self._network.free_port()
        address = (self._host, port)
        if address in self._network.listeners:
            raise OSError(errno.EADDRINUSE, f"address in use: {self._host}:{port}")
        self._network.listeners[address] = factory
        return _SimListening(self._network, self._host, port)

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        """Connect to another host by its name, or to this host by a local name."""
        target = self._host if host in _LOCAL_NAMES else host
        stream = SimStream(self._network, self._timer, handler, self._host)
        attempt = _SimAttempt(self._network, self._timer, stream, on_failed)
        attempt.start(target, port, timeout_ms)
        return attempt


class _SimListening:
    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self._network = network
        self.host = host
        self.port = port

    def close(self) -> None:
        self._network.listeners.pop((self.host, self.port), None)


class _SimAttempt:
    """A connection attempt, until it succeeds, fails or is canceled."""

    __slots__ = ("_network", "_on_failed", "_settled", "_stream", "_timer")

    def __init__(
        self,
        network: SimNetwork,
        timer: Timer,
        stream: SimStream,
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._network = network
        self._timer = timer
        self._stream = stream
        self._on_failed = on_failed
        self._settled = False

    def start(self, host: str, port: int, timeout_ms: float) -> None:
        source = self._stream.host
        timed_out = TimeoutError(errno.ETIMEDOUT, "connection attempt timed out")
        self._timer.call_later(timeout_ms, partial(self._fail, timed_out))
        self._network.carry(source, host, 0.0, partial(self._reach, host, port))

    def cancel(self) -> None:
        self._settled = True

    def _reach(self, host: str, port: int) -> None:
        """Handle the arrival of the attempt at the target, and send the result back."""
        source = self._stream.host
        if self._settled:
            return
        if self._network.connect(self._stream, host, port):
            self._network.carry(host, source, 0.0, self._succeed)
        else:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
            fail = partial(self._timer.call_soon, partial(self._fail, refused))
            self._network.carry(host, source, 0.0, fail)

    def _succeed(self) -> None:
        if self._settled:
            self._stream.abort()
            return
        self._settled = True
        self._stream.connected()

    def _fail(self, error: OSError) -> None:
        if not self._settled:
            self._settled = True
            self._on_failed(error)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
