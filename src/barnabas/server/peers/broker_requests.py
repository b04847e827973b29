"""Requests of this broker to other brokers (Kafka: InterBrokerSendThread).

A request consists of parts, for example markers of transactions or states of share partitions. Each
broker has a queue of parts and at most one request in flight. The next request has the parts that
were queued in the meantime.

A part that cannot be sent fails alone. If a request with several parts cannot be made, encoded or
sent, it is repeated as two requests with half of the parts each, until the failing part is alone in
its request. An error never stops the queue. A violated invariant is raised in a turn of its own.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from barnabas.network.network_error import NetworkErrorKind
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.runtime.timer import Timer

_log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")

TIMEOUT_MS = 30_000.0


class RequestSettings(msgspec.Struct, frozen=True):
    """Properties of all requests of a sender."""

    client_id: str
    # Version of the API in which requests are encoded.
    version: int
    # Maximum number of waiting parts for each broker.
    queue_max: int


class RequestContent(Protocol[P, R]):
    """What a sender puts into requests, and what it reads from responses.

    An exception fails only the parts for which the method was called. `take` raises none.
    """

    def take(self, waiting: deque[P]) -> list[P]:
        """Remove and return the parts of the next request; an empty list if no part is left."""
        ...

    def make_request(self, request: PartsRequest[P]) -> None:
        """Make the message with the parts, and call `request.send` or `request.refuse` once.

        The call may be later. Before it, `request.defer` may return parts to the queue.
        """
        ...

    def read(self, response: Any) -> R:
        """Return the results of a response. If this raises, all parts fail."""
        ...

    def on_result(self, part: P, results: R) -> None:
        """Handle the response for a part. The response may lack the part."""
        ...

    def on_failed(self, part: P, error: ErrorCode) -> None:
        """Handle a part without a response.

        Args:
            part: the part.
            error: REQUEST_TIMED_OUT or NETWORK_EXCEPTION; UNKNOWN_SERVER_ERROR if the part cannot
                be sent, or if its response cannot be read.
        """
        ...


class PartsRequest(Generic[P]):
    """A request that is being made or in flight."""

    __slots__ = ("_peer", "_requests", "parts")

    def __init__(self, requests: BrokerRequests[P, Any], peer: _Peer[P], parts: list[P]) -> None:
        self._requests = requests
        self._peer = peer
        self.parts = parts

    def defer(self, parts: list[P]) -> None:
        """Leave out parts. The next request takes them first."""
        deferred = set(map(id, parts))
        self.parts = [part for part in self.parts if id(part) not in deferred]
        self._peer.waiting.extendleft(reversed(parts))

    def send(self, message: Message) -> None:
        """Send the request."""
        self._requests.send(self._peer, self, message)

    def refuse(self, error: Exception) -> None:
        """Divide or fail the request, since it cannot be made."""
        self._requests.refuse(self._peer, self, error)


class _Peer(Generic[P]):
    """The queue of one broker."""

    __slots__ = ("broker_id", "channel", "divided", "request", "waiting")

    def __init__(self, broker_id: int, channel: LeaderChannel) -> None:
        self.broker_id = broker_id
        self.channel = channel
        # The only unfinished request; None if there is none.
        self.request: PartsRequest[P] | None = None
        # Parts of requests that were divided after an error. They are sent first.
        self.divided: deque[list[P]] = deque()
        # Parts of later requests, in the order of `add`.
        self.waiting: deque[P] = deque()


class BrokerRequests(Generic[P, R]):
    """Sends the parts of one sender to other brokers."""

    __slots__ = ("_channels", "_content", "_peers", "_settings", "_timer", "responses", "sent")

    def __init__(
        self,
        content: RequestContent[P, R],
        settings: RequestSettings,
        timer: Timer,
        channels: LeaderChannels | None,
    ) -> None:
        """Create without connections.

        Args:
            content: makes requests and reads responses.
            settings: properties of all requests.
            timer: delays the division of requests to the next turn.
            channels: opens connections to other brokers; None in a cluster of one node.
        """
        self._content = content
        self._settings = settings
        self._timer = timer
        self._channels = channels
        # Queues by broker id. Created for the first part, and never removed.
        self._peers: dict[int, _Peer[P]] = {}
        # Number of sent requests, and of their responses. Only increase.
        self.sent = 0
        self.responses = 0

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return sum(peer.channel.is_connected for peer in self._peers.values())

    @property
    def connections_created(self) -> int:
        """Number of connections that were opened. Only increases."""
        return sum(peer.channel.connections_created for peer in self._peers.values())

    def add(self, broker_id: int, parts: Collection[P]) -> bool:
        """Queue parts for a broker; return False if it has no channel or no room for all of them.

        Each part of an accepted call gets one result or one failure, in a later turn of the loop.
        """
        peer = self._peers.get(broker_id)
        if peer is None:
            if self._channels is None:
                return False
            channel = self._channels.open(broker_id, self._settings.client_id)
            peer = self._peers[broker_id] = _Peer(broker_id, channel)
        if len(peer.waiting) + len(parts) > self._settings.queue_max:
            return False
        peer.waiting.extend(parts)
        self._send_next(peer)
        return True

    def _send_next(self, peer: _Peer[P]) -> None:
        """Make the next request, unless one is unfinished."""
        if peer.request is not None:
            return
        parts = peer.divided.popleft() if peer.divided else self._content.take(peer.waiting)
        if not parts:
            return
        request = peer.request = PartsRequest(self, peer, parts)
        try:
            self._content.make_request(request)
        except Exception as error:  # noqa: BLE001 - only this request fails
            self.refuse(peer, request, error)

    def send(self, peer: _Peer[P], request: PartsRequest[P], message: Message) -> None:
        """Send the message of a request, see `PartsRequest.send`."""
        self.sent += 1
        on_response = partial(self._on_response, peer, request)
        try:
            peer.channel.send(message, self._settings.version, on_response, TIMEOUT_MS)
        except Exception as error:  # noqa: BLE001 - only this request fails
            self.refuse(peer, request, error)

    # Errors.

    def refuse(self, peer: _Peer[P], request: PartsRequest[P], error: Exception) -> None:
        """Divide or fail a request that cannot be sent, in the next turn.

        So a queue whose parts all fail does not hold the loop.
        """
        self._raise_violation(error)
        self._timer.call_soon(partial(self._divide, peer, request, error))

    def _divide(self, peer: _Peer[P], request: PartsRequest[P], error: Exception) -> None:
        if peer.request is not request:
            return
        peer.request = None
        parts = request.parts
        if len(parts) > 1:
            middle = len(parts) // 2
            peer.divided.extendleft((parts[middle:], parts[:middle]))
        else:
            self._log_failure(peer, error)
            self._fail(parts, ErrorCode.UNKNOWN_SERVER_ERROR)
        self._send_next(peer)

    def _fail(self, parts: list[P], code: ErrorCode) -> None:
        for part in parts:
            self._call(self._content.on_failed, part, code)

    def _log_failure(self, peer: _Peer[P], error: Exception) -> None:
        _log.error(
            "Request to a broker failed: broker=%d client=%s error=%r",
            peer.broker_id,
            self._settings.client_id,
            error,
            exc_info=error,
        )

    # Responses.

    def _on_response(
        self,
        peer: _Peer[P],
        request: PartsRequest[P],
        response: Any | None,
        error: NetworkError | None,
    ) -> None:
        if peer.request is not request:
            # The request has already failed.
            return
        if error is not None and error.kind is NetworkErrorKind.NOT_SENT:
            self._divide(peer, request, error)
            return
        peer.request = None
        if response is None:
            is_timeout = error is not None and error.kind is NetworkErrorKind.TIMED_OUT
            code = ErrorCode.REQUEST_TIMED_OUT if is_timeout else ErrorCode.NETWORK_EXCEPTION
            self._fail(request.parts, code)
        else:
            self.responses += 1
            self._pass_on(peer, request.parts, response)
        self._send_next(peer)

    def _pass_on(self, peer: _Peer[P], parts: list[P], response: Any) -> None:
        try:
            results = self._content.read(response)
        except Exception as unreadable:  # noqa: BLE001 - only this request fails
            self._raise_violation(unreadable)
            self._log_failure(peer, unreadable)
            self._fail(parts, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        for part in parts:
            self._call(self._content.on_result, part, results)

    def _call(self, handle: Callable[[P, Any], None], part: P, result: Any) -> None:
        try:
            handle(part, result)
        except Exception as error:  # noqa: BLE001 - the other parts get their results
            self._raise_violation(error)
            _log.exception("Unexpected error: client=%s", self._settings.client_id)

    def _raise_violation(self, error: Exception) -> None:
        if isinstance(error, AssertionError):
            raise_later(self._timer, error)


def raise_later(timer: Timer, error: AssertionError) -> None:
    """Raise the error of a violated invariant in the next turn, where it stops no queue."""

    def violate() -> None:
        raise error

    timer.call_soon(violate)


def take_distinct(waiting: deque[P], count_max: int, key_of: Callable[[P], Hashable]) -> list[P]:
    """Remove the first parts with distinct keys from a queue, in order.

    Args:
        waiting: the queue. Parts with the key of an earlier part stay, in order.
        count_max: maximum number of parts.
        key_of: returns the key of a part; None for a part that stays.
    """
    taken: dict[Hashable, P] = {}
    kept: list[P] = []
    while waiting and len(taken) < count_max:
        part = waiting.popleft()
        key = key_of(part)
        if key is None or key in taken:
            kept.append(part)
        else:
            taken[key] = part
    waiting.extendleft(reversed(kept))
    return list(taken.values())
