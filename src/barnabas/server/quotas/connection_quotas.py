"""Admission of connections by limits and rates (Kafka: ConnectionQuotas; KIP-402, KIP-612).

A connection waits if connections arrive too fast, or if all listeners or its own have too many. It
is closed if its address has too many connections. If its address opens connections too fast, it is
closed after a delay, so that the client does not reconnect immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ClientQuotasImage
from barnabas.server.quotas.config import INT_MAX
from barnabas.server.quotas.limits import address_limits
from barnabas.server.quotas.rate import QuotaRate, UsedRecently

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.config import ConnectionBounds
    from barnabas.server.quotas.rate import QuotaWindows


_RATE = "connection_creation_rate"


class ConnectionQuotas:
    """Counts the open connections of all listeners, and compares them with the limits."""

    def __init__(self, clock: Clock, bounds: ConnectionBounds, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self.bounds = bounds
        # Open connections: all, by listener name, and by address. `opened` and `closed` change them
        # together. Addresses without a connection are not in the map.
        self.total = 0
        self._by_listener: dict[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._broker_rate = self._new_rate()
        self._listener_rates: dict[str, QuotaRate] = {}
        self._default_rate, self._address_limits = address_limits(ClientQuotasImage(), _RATE)
        # Rates of the addresses that have a limit.
        self._address_rates: UsedRecently[str, QuotaRate] = UsedRecently(QuotaRate.is_idle)
        # Called when a connection has closed or a limit has changed, so that queues are checked.
        self._on_room: list[Callable[[], None]] = []
        # By listener name: returns the connection that was inactive for the longest time.
        self._holders: dict[str, Callable[[], Connection | None]] = {}

    def add_waiter(self, on_room: Callable[[], None]) -> None:
        """Call `on_room` whenever another connection may be admitted."""
        self._on_room.append(on_room)

    def add_holder(self, listener: str, longest_silent: Callable[[], Connection | None]) -> None:
        """Register a listener's function that returns its longest inactive connection."""
        self._holders[listener] = longest_silent

    def set_bounds(self, bounds: ConnectionBounds) -> None:
        """Apply other limits to new connections. Open connections stay open."""
        self.bounds = bounds
        self._notify_room()

    def on_image(self, image: ClientQuotasImage) -> None:
        """Apply the limits of addresses from a new image."""
        self._default_rate, self._address_limits = address_limits(image, _RATE)
        if self._default_rate is None and not self._address_limits:
            self._address_rates.clear()

    def of_listener(self, listener: str) -> int:
        """Return the number of open connections of a listener."""
        return self._by_listener.get(listener, 0)

    def of_address(self, address: str) -> int:
        """Return the number of open connections of an address."""
        return self._by_address.get(address, 0)

    def count_arrival(self, listener: str) -> float:
        """Count a new connection, and return how long (ms) it must wait for the rate limits."""
        now_ms = self._clock.monotonic_ms()
        own = self.bounds.of_listener(listener).rate
        wait_ms = 0.0
        if own < INT_MAX:
            rate = self._listener_rates.get(listener)
            if rate is None:
                rate = self._listener_rates[listener] = self._new_rate()
            wait_ms = self._recorded(rate, own, now_ms)
        if self.bounds.rate < INT_MAX and listener != self.bounds.protected_listener:
            wait_ms = max(wait_ms, self._recorded(self._broker_rate, self.bounds.rate, now_ms))
        return wait_ms

    def has_room(self, listener: str) -> bool:
        """Return whether the listener may have one more connection."""
        if self.of_listener(listener) >= self.bounds.of_listener(listener).connections:
            return False
        if listener == self.bounds.protected_listener:
            return True
        return self.total < self.bounds.connections

    def address_delay_ms(self, address: str) -> float:
        """Count a connection of the address. Return the delay (ms) until its close; 0: admit it."""
        limit = self._address_limits.get(address, self._default_rate)
        if limit is None:
            return 0.0
        now_ms = self._clock.monotonic_ms()
        rate = self._address_rates.get(address)
        if rate is None:
            rate = self._new_rate()
            self._address_rates.add(address, rate, now_ms)
        delay_ms = self._recorded(rate, limit, now_ms)
        if delay_ms > 0:
            # Do not count a rejected connection, or the address could stay above its rate forever.
            rate.record(-1.0, now_ms)
        return delay_ms

    def has_address_room(self, address: str) -> bool:
        """Return whether the address may have one more connection."""
        return self.of_address(address) < self.bounds.of_address(address)

    def opened(self, listener: str, address: str) -> None:
        """Count a connection that was admitted."""
        self.total += 1
        self._by_listener[listener] = self.of_listener(listener) + 1
        self._by_address[address] = self.of_address(address) + 1
        if self.total > self.bounds.connections:
            self._close_longest_silent()

    def closed(self, listener: str, address: str) -> None:
        """Count the end of a connection that was admitted."""
        self.total -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._notify_room()

    def _close_longest_silent(self) -> None:
        """Close a client's connection, because brokers' connections exceed the total limit."""
        candidates = [
            connection
            for listener, longest_silent in self._holders.items()
            if listener != self.bounds.protected_listener
            and (connection := longest_silent()) is not None
        ]
        if candidates:
            min(candidates, key=lambda each: each.last_activity_ms).abort()

    def _notify_room(self) -> None:
        for on_room in self._on_room:
            on_room()

    def _new_rate(self) -> QuotaRate:
        return QuotaRate(self._windows.count, self._windows.size_ms)

    def _recorded(self, rate: QuotaRate, limit: float, now_ms: float) -> float:
        rate.record(1.0, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)
