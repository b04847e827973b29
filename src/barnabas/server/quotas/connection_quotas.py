"""Who may connect now, who has to wait, who is turned away (Kafka: ConnectionQuotas; KIP-402, 612).

A connection that comes too fast, or while there are too many of all or of its listener, waits. One
whose address has too many is closed; one whose address makes them too fast is closed after a while,
so that it does not come back at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.client_quotas_image import ClientQuotasImage
from barnabas.server.quotas.config import INT_MAX
from barnabas.server.quotas.limits import address_limits
from barnabas.server.quotas.rate import QuotaRate
from barnabas.server.quotas.used_recently import UsedRecently

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.connection import Connection
    from barnabas.runtime.clock import Clock
    from barnabas.server.quotas.connection_bounds import ConnectionBounds
    from barnabas.server.quotas.rate_quota import QuotaWindows

_RATE = "connection_creation_rate"


class ConnectionQuotas:
    """Counts the open connections of all listeners."""

    def __init__(self, clock: Clock, bounds: ConnectionBounds, windows: QuotaWindows) -> None:
        self._clock = clock
        self._windows = windows
        self.bounds = bounds
        self.total = 0
        self._by_listener: dict[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._broker_rate = self._new_rate()
        self._listener_rates: dict[str, QuotaRate] = {}
        self._default_rate, self._address_limits = address_limits(ClientQuotasImage(), _RATE)
        # By address, for those with a limit.
        self._address_rates: UsedRecently[str, QuotaRate] = UsedRecently(QuotaRate.is_idle)
        # Told when a connection has ended or a limit has changed: who waits may look again.
        self._on_room: list[Callable[[], None]] = []
        # By listener: gives its connection on which nothing came for the longest time.
        self._holders: dict[str, Callable[[], Connection | None]] = {}

    def add_waiter(self, on_room: Callable[[], None]) -> None:
        """Call back whenever there may be room."""
        self._on_room.append(on_room)

    def add_holder(self, listener: str, longest_silent: Callable[[], Connection | None]) -> None:
        """Say which of its connections a listener can spare."""
        self._holders[listener] = longest_silent

    def set_bounds(self, bounds: ConnectionBounds) -> None:
        """Hold new connections to other limits; those that are open stay."""
        self.bounds = bounds
        self._tell_room()

    def on_image(self, image: ClientQuotasImage) -> None:
        """Take the limits of addresses from a new image."""
        self._default_rate, self._address_limits = address_limits(image, _RATE)
        if self._default_rate is None and not self._address_limits:
            self._address_rates.clear()

    def of_listener(self, listener: str) -> int:
        """Open connections of one listener."""
        return self._by_listener.get(listener, 0)

    def of_address(self, address: str) -> int:
        """Open connections of one address."""
        return self._by_address.get(address, 0)

    def count_arrival(self, listener: str) -> float:
        """A connection has come: how many ms it has to wait for the rates of all connections."""
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
        """Whether one more connection of the listener may be open."""
        if self.of_listener(listener) >= self.bounds.of_listener(listener).connections:
            return False
        if listener == self.bounds.protected_listener:
            return True
        return self.total < self.bounds.connections

    def address_delay_ms(self, address: str) -> float:
        """Count a connection of the address: for how long to put it off before it is closed."""
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
            # A connection that is not let in does not count, or its address would never be again.
            rate.record(-1.0, now_ms)
        return delay_ms

    def has_address_room(self, address: str) -> bool:
        """Whether the address may have one more connection."""
        return self.of_address(address) < self.bounds.of_address(address)

    def opened(self, listener: str, address: str) -> None:
        """A connection was let in."""
        self.total += 1
        self._by_listener[listener] = self.of_listener(listener) + 1
        self._by_address[address] = self.of_address(address) + 1
        if self.total > self.bounds.connections:
            self._close_longest_silent()

    def closed(self, listener: str, address: str) -> None:
        """A connection that was let in is over."""
        self.total -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._tell_room()

    def _close_longest_silent(self) -> None:
        """The brokers' own connections have made it too many: another one has to go."""
        found = [
            connection
            for listener, longest_silent in self._holders.items()
            if listener != self.bounds.protected_listener
            and (connection := longest_silent()) is not None
        ]
        if found:
            min(found, key=lambda each: each.last_activity_ms).abort()

    def _tell_room(self) -> None:
        for on_room in self._on_room:
            on_room()

    def _new_rate(self) -> QuotaRate:
        return QuotaRate(self._windows.count, self._windows.size_ms)

    def _recorded(self, rate: QuotaRate, limit: float, now_ms: float) -> float:
        rate.record(1.0, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.size_ms)
