"""Context of one request: header, client, response, and the time that the request takes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.headers import encode_response, encode_response_in_steps, frame_bytes
from barnabas.server.dispatch.error_messages import truncate_error_messages
from barnabas.server.dispatch.slices import release
from barnabas.server.listeners.connection_admission import address_of
from barnabas.server.quotas.client_quotas import CountedRequest
from barnabas.waiting.steps import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.network.principal import Principal
    from barnabas.network.response_slot import ResponseSlot
    from barnabas.protocol.encoding import Chunk
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.missing_features import MissingFeatures
    from barnabas.server.dispatch.request_statistics import ApiStatistics
    from barnabas.server.dispatch.slices import SliceQueue
    from barnabas.server.quotas.client_quotas import ClientQuotas

    # Returns the response, or None if the request is parked and `respond` is called later.
    Handle = Callable[["RequestContext", Any], Message | None]
    # First and last version, request class, handler and statistics of an API.
    Entry = tuple[int, int, type[Message], Handle, ApiStatistics]

M = TypeVar("M", bound="Message")
V = TypeVar("V")
# Passed instead of a throttle time: client quotas do not apply to this request.
EXEMPT = -1

_log = logging.getLogger(__name__)


class AccessControl(Protocol):
    """The authorizer of a node."""

    def of(self, context: RequestContext) -> Access:
        """Return the rights of the client that sent a request."""
        ...


class RequestDependencies:
    """Dependencies that all requests of a listener share."""

    __slots__ = (
        "access_control",
        "clock",
        "listener_name",
        "missing",
        "quotas",
        "slices",
        "watch",
    )

    def __init__(
        self,
        listener_name: str,
        clock: Clock,
        quotas: ClientQuotas,
        watch: LoopWatch,
        slices: SliceQueue,
        missing: MissingFeatures,
    ) -> None:
        # Logs requests for features that this broker does not have.
        self.missing = missing
        self.listener_name = listener_name
        # Runs work that takes several turns of the loop.
        self.slices = slices
        # Measures the turns of the loop.
        self.watch = watch
        self.clock = clock
        self.quotas = quotas
        # The authorizer; None if every client may do everything.
        self.access_control: AccessControl | None = None


def give_up(connection: Connection, error: Exception, api: str, version: int) -> None:
    """Close a connection after a response could not be encoded, and log the error.

    Responses must keep the order of the requests, so no later response could be sent.
    """
    if isinstance(error, ProtocolError):
        # The response contains a value that this version of the API cannot represent.
        _log.warning(
            "Response cannot be encoded, connection closed: api=%s version=%d client=%s error=%s",
            api,
            version,
            connection.peer,
            error,
        )
    else:
        _log.error(
            "Response failed, connection closed: api=%s version=%d client=%s",
            api,
            version,
            connection.peer,
            exc_info=error,
        )
    connection.abort()


class RequestContext:
    """One request: its header, and its place in the order of responses of the connection."""

    __slots__ = (
        "_dependencies",
        "_parked_ms",
        "_queued_ms",
        "_slot",
        "_statistics",
        "_total_ms",
        "client_id",
        "connection",
        "correlation_id",
        "is_joint",
        "local_ms",
        "request_bytes",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        slot: ResponseSlot,
        header: tuple[int, int, int, str | None, int],
        request_bytes: int,
        dependencies: RequestDependencies,
        statistics: ApiStatistics,
    ) -> None:
        self.connection = connection
        # Place of the response in the connection's order. Completed or skipped exactly once.
        self._slot = slot
        _, self.version, self.correlation_id, self.client_id, _ = header
        self.request_bytes = request_bytes
        self._dependencies = dependencies
        self._statistics = statistics
        # When the handler returned without a response, in ms of the monotonic clock; 0 before that.
        self._parked_ms = 0.0
        # Whether the request is handled together with others of its read. `end_joint` counts it.
        self.is_joint = False
        # Set later, all in ms. `local_ms` is the time in the handler, set when the handler returns.
        # `_queued_ms` is the time before the handler was called. `_total_ms` is the total time that
        # the statistics contain. Both stay unset if the handler responds immediately.

    @property
    def listener_name(self) -> str:
        """Name of the listener that received the request. Responses contain its addresses only."""
        return self._dependencies.listener_name

    @property
    def quotas(self) -> ClientQuotas:
        """Client quotas. Check `is_active` before any other use."""
        return self._dependencies.quotas

    @property
    def principal(self) -> Principal:
        """Identity of the client that sent the request."""
        return self.connection.principal or ANONYMOUS

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proven its identity, by SASL or by a certificate."""
        return self.connection.login is not None or self.principal != ANONYMOUS

    @property
    def access(self) -> Access | None:
        """The rights of the client; None if every client may do everything."""
        control = self._dependencies.access_control
        return None if control is None else control.of(self)

    @property
    def user(self) -> str:
        """Name of the principal that sent the request, without its type."""
        return self.principal.name

    @property
    def address(self) -> str:
        """HOST:PORT of the client."""
        return self.connection.peer

    @property
    def host(self) -> str:
        """IP address of the client."""
        return address_of(self.connection.peer)

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Send the response after the responses to all earlier requests of the connection.

        Args:
            response: the response of the request's API.
            throttle_ms: throttle time that the handler has computed. The time from the request
                quotas is applied too, and the larger one counts. EXEMPT for requests of brokers.
            is_clean: whether the handler knows that the response has no error. The search for error
                codes is skipped then.
        """
        if throttle_ms or self._dependencies.quotas.is_active:
            self._throttle(response, throttle_ms)
        statistics = self._statistics
        if statistics.arrays and statistics.is_large(response):
            self._work(self._respond_in_steps(response))
            return
        try:
            chunks = encode_response(self.correlation_id, response, self.version)
        except Exception as error:  # noqa: BLE001 - only this request fails
            shorter = self._encoded_shorter(response, error)
            if shorter is None:
                return
            chunks = shorter
        self._slot.complete(chunks, self)
        # Update the statistics after the response is handed to the connection.
        if not is_clean:
            statistics.error_searches += 1
            statistics.count_errors(response, statistics.errors)
        statistics.response_bytes += frame_bytes(chunks)
        if self._parked_ms:
            self._count_parked()

    # Work that takes several turns

    def in_slices(self, steps: Generator[None, None, M | None]) -> M | None:
        """Serve the request with a generator that yields after each small step.

        Args:
            steps: returns the response, or None if the handler calls `respond` later.

        Returns:
            The response if the generator ends within the first slice. Otherwise None: the rest
            runs in later turns, and the next requests of the connection wait for it.
        """
        slices = self._dependencies.slices
        made = slices.try_now(steps)
        if made is UNFINISHED:
            self._work(self._finish(steps))
            return None
        return cast("M | None", made)

    def after(
        self, steps: Generator[None, None, V], handle: Callable[[V], Message | None]
    ) -> Message | None:
        """Run steps, and then serve the request with their result.

        Args:
            steps: work before the handler, for example checks of many items.
            handle: called with the result of the steps. Returns the response, or None if `respond`
                is called later.

        Returns:
            The response if the steps end within the first slice, and it is immediate.
        """
        slices = self._dependencies.slices
        made = slices.try_now(steps)
        if made is UNFINISHED:
            self._work(self._handle_after(steps, handle))
            return None
        return handle(cast("V", made))

    def _handle_after(
        self, steps: Generator[None, None, V], handle: Callable[[V], Message | None]
    ) -> Generator[None, None, None]:
        made = yield from steps
        response = handle(made)
        if response is not None:
            self.respond(response)

    def respond_in_slices(self, steps: Generator[None, None, Message | None]) -> None:
        """Respond to a request that its handler has parked, with a generator as in `in_slices`."""
        response = self.in_slices(steps)
        if response is not None:
            self.respond(response)

    def complete_in_slices(self, steps: Generator[None, None, None]) -> None:
        """Run steps in later turns, to their end, even if the client disconnects.

        The next requests of the connection wait for the steps, which cause the response.
        """
        self.connection.begin_work()
        self._dependencies.slices.add(steps, self, is_kept=True)

    def _work(self, steps: Generator[None, None, None]) -> None:
        self.connection.begin_work()
        self._dependencies.slices.add(steps, self)

    def _finish(self, steps: Generator[None, None, Message | None]) -> Generator[None, None, None]:
        response = yield from steps
        if response is not None:
            if self._dependencies.quotas.is_active:
                self._throttle(response, 0)
            yield from self._respond_in_steps(response)

    def _respond_in_steps(self, response: Message) -> Generator[None, None, None]:
        """Encode, send and count a large response in steps, like the end of `respond`."""
        try:
            chunks = yield from encode_response_in_steps(
                self.correlation_id, response, self.version
            )
        except ProtocolError as error:
            shorter = self._encoded_shorter(response, error)
            if shorter is None:
                return
            chunks = shorter
        self._slot.complete(chunks, self)
        self._statistics.error_searches += 1
        self._statistics.response_bytes += frame_bytes(chunks)
        if self._parked_ms:
            self._count_parked()
        del chunks
        yield from self._statistics.count_errors_in_steps(response)
        yield from release(response)

    @property
    def is_needed(self) -> bool:
        """Whether the connection is open, so that the response can be sent."""
        return self.connection.stream is not None

    @property
    def source(self) -> tuple[str, str]:
        """API name and client, for log lines."""
        return self._statistics.name, f"{self.client_id}@{self.connection.peer}"

    def on_work_done(self, spent_ms: float) -> None:
        """Add the time of the slices to the local time. The slice queue calls this method."""
        if self._parked_ms:
            self.local_ms += spent_ms
        self.connection.end_work()

    def on_work_failed(self, error: Exception) -> None:
        """Close the connection, as after an error in a handler. Called by the slice queue."""
        self.connection.end_work()
        if isinstance(error, ProtocolError):
            self.connection.abort()
            self.connection.on_malformed(error)
        else:
            self.give_up(error)

    def _encoded_shorter(self, response: Message, error: Exception) -> list[Chunk] | None:
        """Encode a response that caused an error, with shorter error messages.

        Returns:
            The frame. None if the connection is closed, because that does not help.
        """
        try:
            if isinstance(error, ProtocolError) and truncate_error_messages(response):
                return encode_response(self.correlation_id, response, self.version)
        except Exception as repeated:  # noqa: BLE001 - only this request fails
            error = repeated
        self.give_up(error)
        return None

    def respond_forwarded(self, response: Any, throttle_ms: int = 0) -> None:
        """Send the response of the controller, with at least the throttle time that it contains."""
        self.respond(response, max(throttle_ms, getattr(response, "throttle_time_ms", 0)))

    def respond_exempt(self, response: Message) -> None:
        """Respond to another node of the cluster. Client quotas do not apply to it."""
        self.respond(response, EXEMPT)

    def respond_nothing(self) -> None:
        """Complete a request that has no response (Produce with acks=0)."""
        if self._dependencies.quotas.is_active:
            self._throttle(None, 0)
        if self._parked_ms:
            self._count_parked()
        self._slot.skip()

    def on_client_gone(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the connection closes before the response is sent."""
        self._slot.on_client_gone(callback)

    def close_connection(self) -> None:
        """Close the connection to report an error to a producer that uses acks=0."""
        self._slot.skip()
        self.connection.close()

    def give_up(self, error: Exception) -> None:
        """Close the connection because no response can be encoded, and log the error.

        Use this method in callbacks that build the response. An exception would reach the code that
        completed the request, for example the commit of a batch, which has other requests to
        complete.
        """
        give_up(self.connection, error, self._statistics.name, self.version)

    def park(self, now_ms: float, local_ms: float) -> None:
        """Record that the handler returned without a response. Called by the dispatcher."""
        self._parked_ms = now_ms
        self.local_ms = local_ms
        self._queued_ms = self.connection.queued_ms
        if self._queued_ms > 0:
            self._statistics.request_queue.add(self._queued_ms)

    def end_joint(self, now_ms: float, must_wait: bool) -> None:
        """Count the local time of a request that was handled with others of its read.

        They are handled as one, so the local time of each begins with the read.

        Args:
            now_ms: monotonic time.
            must_wait: whether the response must wait. Otherwise it follows now.
        """
        self.local_ms = now_ms - self.connection.read_ms
        if must_wait:
            self._parked_ms = now_ms
            self._queued_ms = 0.0
        else:
            self._statistics.immediate.add(self.local_ms)

    def _count_parked(self) -> None:
        remote_ms = self._dependencies.clock.monotonic_ms() - self._parked_ms
        statistics = self._statistics
        statistics.parked_local.add(self.local_ms)
        statistics.remote.add(remote_ms)
        self._total_ms = self._queued_ms + self.local_ms + remote_ms
        statistics.parked_total.add(self._total_ms)

    def count_queued(self, local_ms: float) -> None:
        """Count a request that waited in the queue and whose handler responded immediately."""
        self.local_ms = local_ms
        queued_ms = self.connection.queued_ms
        self._total_ms = queued_ms + local_ms
        self._parked_ms = self._dependencies.clock.monotonic_ms()
        self._statistics.count_queued(queued_ms, local_ms)

    def on_released(self, held_ms: float) -> None:
        """Count the time that the response waited for responses to earlier requests."""
        self._statistics.response_queue.add(held_ms)
        self._extend_total(held_ms)

    def on_sent(self, send_ms: float) -> None:
        """Count the time that the response needed to leave the send buffer."""
        self._statistics.response_send.add(send_ms)
        self._extend_total(send_ms)

    def _extend_total(self, duration_ms: float) -> None:
        """Add a duration to the total time of a request that is already in the statistics."""
        statistics = self._statistics
        if self._parked_ms:
            statistics.parked_total.remove(self._total_ms)
        else:
            # Move the request out of the requests whose total time equals the local time.
            self._parked_ms = self._dependencies.clock.monotonic_ms()
            self._total_ms = self.local_ms
            statistics.immediate.remove(self.local_ms)
            statistics.parked_local.add(self.local_ms)
            statistics.remote.add(0.0)
        self._total_ms += duration_ms
        statistics.parked_total.add(self._total_ms)

    def _throttle(self, response: Message | None, throttle_ms: int) -> None:
        """Count the request for its quotas. Throttle the connection if a quota is exceeded."""
        quotas, statistics = self._dependencies.quotas, self._statistics
        if throttle_ms == EXEMPT and not quotas.is_active:
            return
        if self._parked_ms:
            spent_ms = self.local_ms
        else:
            spent_ms = self._dependencies.clock.monotonic_ms() - self.connection.last_activity_ms
        if throttle_ms == EXEMPT:
            quotas.record_exempt(spent_ms)
            return
        request = CountedRequest(
            statistics.api_key, self.user, self.client_id or "", self.request_bytes, spent_ms
        )
        wait_ms = quotas.record_request(request, throttle_ms)
        if wait_ms <= 0:
            return
        statistics.throttle.add(wait_ms)
        if response is not None and statistics.has_throttle_time:
            response.throttle_time_ms = wait_ms  # type: ignore[attr-defined]  # the class has it
        self.connection.throttle(wait_ms)
