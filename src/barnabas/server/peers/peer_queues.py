"""Requests of this broker to the leaders of partitions (Kafka: InterBrokerSendThread).

A request consists of parts, for example markers of transactions or states of share partitions. Each
part goes to the broker that leads its partition. Each broker has a queue of parts and at most one
request in flight. The next request has the parts that were queued in the meantime. What differs:

| sender         | part             | one request                     | repeated after            |
|----------------|------------------|---------------------------------|---------------------------|
| verification   | transaction      | 500 distinct transactional ids  | CONCURRENT_TRANSACTIONS   |
| marker sender  | partition        | 500 transactions, 2,000 parts   | any error, until fenced   |
| persister      | share partition  | 500 distinct parts of one group | coordinator, network      |
| latest offsets | partition        | 2,000 parts                     | network                   |
| dead letters   | range of offsets | what fits, to this broker too   | leader, network           |
| segment events | event            | 256 KiB, to this broker too     | leader, replicas, network |

A part that cannot be sent fails alone. If a request with several parts cannot be made, encoded or
sent, it is repeated as two requests with half of the parts each, until the failing part is alone in
its request. An error never stops the queue. A violated invariant is raised in a turn of its own.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from barnabas.network.network_error import NetworkErrorKind
from barnabas.network.reconnect_backoff import exponential_ms
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.server.cluster.cluster_view import ClusterView

_log = logging.getLogger(__name__)


class Part(Protocol):
    """A part of a request: it has one leader, and succeeds or fails as a whole."""

    # Number of retries so far, see `PeerQueues.retry`.
    retries: int


P = TypeVar("P", bound=Part)
R = TypeVar("R")

TIMEOUT_MS = 30_000.0
_NO_LEADER = -1


class PeerDependencies(msgspec.Struct, frozen=True):
    """Dependencies of each sender of requests to other brokers."""

    # This broker.
    node_id: int
    # The leaders of partitions.
    cluster: ClusterView
    clock: Clock
    timer: Timer
    # Opens connections to other brokers; None in a cluster of one node.
    channels: LeaderChannels | None


class PeerSettings(msgspec.Struct, frozen=True):
    """Properties of all requests of a sender."""

    # The last part of the client id.
    name: str
    # Version of the API in which requests are encoded.
    version: int
    # Maximum number of waiting parts for each broker.
    queue_max: int
    # Errors of parts without a leader, and of parts for whose leader too many parts wait.
    no_leader: ErrorCode
    no_room: ErrorCode


class Backoff(msgspec.Struct, frozen=True):
    """Delays and number of the retries of a part."""

    # Delay before the first retry (ms), and the ratio of each later delay to the previous one.
    first_ms: float
    retries_max: float = math.inf
    factor: float = 1.0
    # Retries that are due within this time (ms) are dispatched together.
    together_ms: float = 1.0


class Sender(Protocol[P, R]):
    """The differences between the senders.

    An exception fails only the parts for which the method was called. `take` raises none.
    """

    def partition_of(self, part: P) -> tuple[str, int] | None:
        """Return the partition whose leader serves a part; None if there is none now."""
        ...

    def dispatch(self, parts: list[P]) -> None:
        """Send parts after their backoff: by `PeerQueues.dispatch`, or to this broker."""
        ...

    def take(self, waiting: deque[P]) -> list[P]:
        """Remove and return the parts of the next request; an empty list if no part is left."""
        ...

    def make_request(self, request: PartsRequest[P]) -> None:
        """Make the message with the parts, and call `request.send` or `request.refuse` once.

        The call may be later. Before it, `request.defer` may return parts to the queue.
        """
        ...

    def results_of(self, response: Any) -> R:
        """Return the results of a response. If this raises, all parts fail."""
        ...

    def on_result(self, part: P, results: R) -> None:
        """Handle the response for a part. The response may lack the part."""
        ...

    def on_failed(self, part: P, error: ErrorCode) -> None:
        """Handle a part without a response.

        Args:
            part: the part.
            error: `no_leader` or `no_room` of the settings; REQUEST_TIMED_OUT or NETWORK_EXCEPTION;
                UNKNOWN_SERVER_ERROR if the part cannot be sent, or its response cannot be read.
        """
        ...


class PartsRequest(Generic[P]):
    """A request that is being made or in flight."""

    __slots__ = ("_peer", "_queues", "parts")

    def __init__(self, queues: PeerQueues[P, Any], peer: _Peer[P], parts: list[P]) -> None:
        self._queues = queues
        self._peer = peer
        self.parts = parts

    def defer(self, parts: list[P]) -> None:
        """Leave out parts. The next request takes them first."""
        deferred = set(map(id, parts))
        self.parts = [part for part in self.parts if id(part) not in deferred]
        self._peer.waiting.extendleft(reversed(parts))

    def send(self, message: Message) -> None:
        """Send the request."""
        self._queues.send_request(self._peer, self, message)

    def refuse(self, error: Exception) -> None:
        """Divide or fail the request, since it cannot be made."""
        self._queues.refuse(self._peer, self, error)


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


class PeerQueues(Generic[P, R]):
    """Sends the parts of one sender to their leaders."""

    def __init__(
        self, sender: Sender[P, R], settings: PeerSettings, dependencies: PeerDependencies
    ) -> None:
        """Create without connections.

        Args:
            sender: makes requests and reads responses.
            settings: properties of all requests.
            dependencies: leaders, connections, and the timer of retries and of divided requests.
        """
        self._sender = sender
        self._settings = settings
        self._node_id = dependencies.node_id
        self._client_id = f"broker-{dependencies.node_id}-{settings.name}"
        self._cluster = dependencies.cluster
        self._clock = dependencies.clock
        self._timer = dependencies.timer
        self._channels = dependencies.channels
        # Queues by broker id. Created for the first part, and never removed.
        self._peers: dict[int, _Peer[P]] = {}
        # Parts that wait for a retry, by its time (ms, monotonic). Each time has a timer.
        self._retried: dict[float, list[P]] = {}
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

    def dispatch(self, parts: Iterable[P]) -> list[P]:
        """Queue parts for their leaders, and return those that this broker leads.

        Each other part gets one result or one failure. A failure for want of a leader or of room
        comes before this returns, all others in a later turn of the loop.
        """
        by_leader: dict[int, list[P]] = {}
        for part in parts:
            key = self._sender.partition_of(part)
            found = None if key is None else self._cluster.partition(*key)
            leader = _NO_LEADER if found is None else found.leader
            by_leader.setdefault(leader, []).append(part)
        own = by_leader.pop(self._node_id, [])
        for leader, some in by_leader.items():
            self.add(leader, some)
        return own

    def add(self, broker_id: int, parts: Collection[P]) -> None:
        """Queue parts for a broker. They fail if it has no room for all of them, or no channel."""
        peer = self._peer(broker_id) if broker_id >= 0 else None
        if peer is not None and len(peer.waiting) + len(parts) <= self._settings.queue_max:
            peer.waiting.extend(parts)
            self._send_next(peer)
            return
        error = self._settings.no_leader if broker_id < 0 else self._settings.no_room
        for part in parts:
            self._sender.on_failed(part, error)

    def retry(self, part: P, backoff: Backoff) -> bool:
        """Dispatch a part again after a delay; return False if it had all its retries."""
        if part.retries >= backoff.retries_max:
            return False
        part.retries += 1
        now_ms = self._clock.monotonic_ms()
        delay_ms = exponential_ms(backoff.first_ms, math.inf, part.retries, backoff.factor)
        together_ms = backoff.together_ms
        due_ms = math.ceil((now_ms + delay_ms) / together_ms) * together_ms
        together = self._retried.get(due_ms)
        if together is None:
            self._retried[due_ms] = [part]
            self._timer.call_later(due_ms - now_ms, partial(self._dispatch_again, due_ms))
        else:
            together.append(part)
        return True

    def _dispatch_again(self, due_ms: float) -> None:
        self._sender.dispatch(self._retried.pop(due_ms))

    def _peer(self, broker_id: int) -> _Peer[P] | None:
        """Return the queue of a broker; None if there are no connections to other brokers."""
        peer = self._peers.get(broker_id)
        if peer is None and self._channels is not None:
            channel = self._channels.open(broker_id, self._client_id)
            peer = self._peers[broker_id] = _Peer(broker_id, channel)
        return peer

    def _send_next(self, peer: _Peer[P]) -> None:
        """Make the next request, unless one is unfinished."""
        if peer.request is not None:
            return
        parts = peer.divided.popleft() if peer.divided else self._sender.take(peer.waiting)
        if not parts:
            return
        request = peer.request = PartsRequest(self, peer, parts)
        try:
            self._sender.make_request(request)
        except Exception as error:  # noqa: BLE001 - only this request fails
            self.refuse(peer, request, error)

    def send_request(self, peer: _Peer[P], request: PartsRequest[P], message: Message) -> None:
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
            self._call(self._sender.on_failed, part, code)

    def _log_failure(self, peer: _Peer[P], error: Exception) -> None:
        _log.error(
            "Request to a broker failed: broker=%d client=%s error=%r",
            peer.broker_id,
            self._client_id,
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
            results = self._sender.results_of(response)
        except Exception as unreadable:  # noqa: BLE001 - only this request fails
            self._raise_violation(unreadable)
            self._log_failure(peer, unreadable)
            self._fail(parts, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        for part in parts:
            self._call(self._sender.on_result, part, results)

    def _call(self, handle: Callable[[P, Any], None], part: P, result: Any) -> None:
        try:
            handle(part, result)
        except Exception as error:  # noqa: BLE001 - the other parts get their results
            self._raise_violation(error)
            _log.exception("Unexpected error: client=%s", self._client_id)

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
