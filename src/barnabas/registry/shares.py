"""Memory and turns that clients share by their addresses.

A client that sends many large or slow requests waits for itself, and others do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from contextvars import ContextVar
from typing import TYPE_CHECKING

from barnabas.registry.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# The address of the client whose request the current task handles.
client_address: ContextVar[str] = ContextVar("client_address", default="")
# Limits for the bodies at the same time. A follower forwards 16 bodies of 2 MiB.
_ADDRESS_BYTES_MAX = 32 * 1024 * 1024
_ALL_BYTES_MAX = 2 * _ADDRESS_BYTES_MAX
# A response above this size counts as this size, so that an address can get two at the same time.
RESPONSE_BYTES_COUNTED = _ADDRESS_BYTES_MAX // 2
_UNAVAILABLE = 503


class BodyMemory:
    """Counts the bytes of bodies that are being read, handled or sent."""

    def __init__(self) -> None:
        self._by_address: Counter[str] = Counter()

    @contextlib.contextmanager
    def request(self, address: str) -> Iterator[RequestMemory]:
        """Return the memory of a request; it is free again after the `with` block."""
        memory = RequestMemory(self._by_address, address)
        try:
            yield memory
        finally:
            self._by_address[address] -= memory.taken
            if not self._by_address[address]:
                del self._by_address[address]


class RequestMemory:
    """The bytes of one body."""

    def __init__(self, by_address: Counter[str], address: str) -> None:
        self._by_address = by_address
        self._address = address
        self.taken = 0

    def take(self, size: int) -> None:
        """Count a part of the body.

        Raises:
            RegistryError: All bodies together, or those of the address, are too large.
        """
        self.taken += size
        self._by_address[self._address] += size
        if (
            self._by_address[self._address] > _ADDRESS_BYTES_MAX
            or self._by_address.total() > _ALL_BYTES_MAX
        ):
            raise RegistryError(
                _UNAVAILABLE, "there are too many large requests: repeat this one later"
            )


class FairTurns:
    """A semaphore that serves the waiting addresses in turn.

    Args:
        free: How many tasks may have a turn at the same time.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        # Tasks that wait, by the address of their client; the next address first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn, and keep it during the `async with` block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(address)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, address: str) -> None:
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                # The task was cancelled after it got the turn.
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            address, futures = self._waiting.popitem(last=False)
            given = futures.popleft()
            if futures:
                self._waiting[address] = futures
            if not given.done():
                given.set_result(None)
                return
        self._free += 1
