"""One request: its header, the rights and identity of its client, its response and its times.

A request of a connection sends its response through a slot of the connection. A request that a
broker has forwarded has an `Origin`: the identity of the client, and the place of the response.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.codec import (
    decode_in_steps,
    encode_response,
    encode_response_in_steps,
    frame_bytes,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.server.dispatch.failed_responses import give_up, truncate_error_messages
from barnabas.server.dispatch.slices import release
from barnabas.server.listeners.listener import address_of
from barnabas.server.quotas.client_quotas import CountedRequest
from barnabas.waiting.steps import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.network.principal import Principal
    from barnabas.network.request_order import ResponseSlot
    from barnabas.protocol.encoding import Chunk
    from barnabas.protocol.schema import Message
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.server.dispatch.client_software import MissingFeatures
    from barnabas.server.dispatch.request_statistics import ApiStatistics
    from barnabas.server.dispatch.slices import SliceQueue
    from barnabas.server.quotas.client_quotas import ClientQuotas

    # Returns the response, or None if the request is pending and `respond` is called later.
    Handle = Callable[["RequestContext", Any], Message | None]


M = TypeVar("M", bound="Message")
V = TypeVar("V")
# Passed instead of a throttle time: client quotas do not apply to this request.
EXEMPT = -1


class Access(Protocol):
    """The rights of the client that sent a request. `server/security/authorizer` has them."""

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """Return whether the client may do an operation on a resource.

        Args:
            operation: an `AclOperation`.
            resource_type: an `AclResourceType`.
            name: name of the resource, which is not a pattern.
            is_logged: whether a refusal is logged. False if the client did not name the resource.
        """
        ...

    def operations(self, resource_type: int, name: str) -> int:
        """Return the bit field of the operations that the client may do on a resource (KIP-430)."""
        ...


class Origin(Protocol):
    """The client of a request that another node has forwarded, and the sink of its response."""

    @property
    def principal(self) -> Principal:
        """Identity of the client that sent the request to the other node."""
        ...

    @property
    def address(self) -> str:
        """IP address of the client."""
        ...

    def respond(
        self, request: RequestContext, response: Message, throttle_ms: int, *, is_clean: bool
    ) -> None:
        """Send the response to the other node. See `RequestContext.respond`."""
        ...


class AccessControl(Protocol):
    """The authorizer of a node."""

    def of(self, context: RequestContext) -> Access:
        """Return the rights of the client that sent a request."""
        ...


class RequestDependencies:
    """Dependencies that all requests of a listener share."""

    __slots__ = ("access_control", "clock", "listener_name", "missing", "quotas", "slices", "watch")

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


class _LargeJob:
    """The work of a large request: decoding, handler and response are one job of the slice queue.

    Large requests are served one at a time. The slices of the handler and the response therefore
    belong to the same job, unless they start after the handler has returned.
    """

    __slots__ = ("collected", "collects", "request")

    def __init__(self) -> None:
        # Whether the handler is running, and the slices that it has submitted.
        self.collects = False
        self.collected: Generator[None, None, None] | None = None
        # The decoded request. None before decoding, and after the response is sent.
        self.request: Message | None = None


class RequestContext:
    """One request, as its handler sees it."""

    __slots__ = (
        "_amend",
        "_dependencies",
        "_large",
        "_origin",
        "_pending_since_ms",
        "_queued_ms",
        "_slot",
        "_total_ms",
        "client_id",
        "connection",
        "correlation_id",
        "is_joint",
        "local_ms",
        "request_bytes",
        "statistics",
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
        self.statistics = statistics
        # None for requests of the connection itself.
        self._origin: Origin | None = None
        # Adds the errors of a rejected part of the request to the response; None without such a
        # part.
        self._amend: Callable[[Message], Message] | None = None
        # The job of a request that is too large for one turn; None for other requests.
        self._large: _LargeJob | None = None
        # When the handler returned without a response, in ms of the monotonic clock; 0 before that.
        self._pending_since_ms = 0.0
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
    def is_large(self) -> bool:
        """Whether the request was decoded in slices, from a copy of its bytes."""
        return self._large is not None

    @property
    def quotas(self) -> ClientQuotas:
        """Client quotas. Check `is_active` before any other use."""
        return self._dependencies.quotas

    @property
    def principal(self) -> Principal:
        """Identity of the client that sent the request."""
        if self._origin is not None:
            return self._origin.principal
        return self.connection.principal or ANONYMOUS

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has proven its identity, by SASL or by a certificate.

        For a forwarded request, the broker has checked this where it matters.
        """
        is_trusted = self._origin is not None or self.connection.login is not None
        return is_trusted or self.principal != ANONYMOUS

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
        """HOST:PORT of the client, or its IP address if the request was forwarded."""
        return self.connection.peer if self._origin is None else self._origin.address

    @property
    def host(self) -> str:
        """IP address of the client."""
        return address_of(self.connection.peer) if self._origin is None else self._origin.address

    def forwarded(
        self,
        header: tuple[int, int, int, str | None, int],
        statistics: ApiStatistics,
        origin: Origin,
    ) -> RequestContext:
        """Return the request that this request contains, with its own header and client."""
        inner = RequestContext(
            self.connection, self._slot, header, self.request_bytes, self._dependencies, statistics
        )
        inner._origin = origin
        return inner

    def amend_with(self, amend: Callable[[Message], Message]) -> None:
        """Let a function add the errors of the rejected part of the request to the response."""
        assert self._amend is None, "one check rejects parts of a request"
        self._amend = amend

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Send the response after the responses to all earlier requests of the connection.

        Args:
            response: the response of the request's API.
            throttle_ms: throttle time that the handler has computed. The time from the request
                quotas is applied too, and the larger one counts. EXEMPT for requests of brokers.
            is_clean: whether the handler knows that the response has no error. The search for error
                codes is skipped then.
        """
        if self._amend is not None:
            response, is_clean = self._amend(response), False
        if self._origin is not None:
            self._origin.respond(self, response, throttle_ms, is_clean=is_clean)
            return
        if throttle_ms or self._dependencies.quotas.is_active:
            self._throttle(response, throttle_ms)
        statistics = self.statistics
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
        if self._pending_since_ms:
            self._count_parked()
            # A large request is pending from its first turn on.
            if self._large is not None:
                self._work(self._release(self._large))

    # Work that takes several turns

    def serve_large(
        self, request_cls: type[Message], frame: memoryview, offset: int, handle: Handle
    ) -> None:
        """Decode and serve a large request after all earlier large requests."""
        self._large = large = _LargeJob()

        def serve() -> Generator[None, None, None]:
            large.request = yield from decode_in_steps(request_cls, self.version, frame, offset)
            yield from self._handle_in_job(partial(handle, self), large.request)

        self.connection.begin_work()
        self._dependencies.slices.add(serve(), self, is_large=True)

    def _handle_in_job(
        self, handle: Callable[[V], Message | None], argument: V
    ) -> Generator[None, None, None]:
        """Call a handler or its continuation. Its slices belong to the job of a large request."""
        large = self._large
        if large is not None:
            large.collects, large.collected = True, None
        response = handle(argument)
        if response is not None:
            self.respond(response)
        del response, argument
        if large is not None:
            large.collects = False
            if large.collected is not None:
                yield from large.collected

    def in_slices(self, steps: Generator[None, None, M | None]) -> M | None:
        """Serve the request with a generator that yields after each small step.

        Args:
            steps: returns the response, or None if the handler calls `respond` later.

        Returns:
            The response if the generator ends within the first slice. Otherwise None: the rest
            runs in later turns, and the next requests of the connection wait for it.
        """
        response = UNFINISHED if self._large else self._dependencies.slices.try_now(steps)
        if response is UNFINISHED:
            self._work(self._finish(steps))
            return None
        return cast("M | None", response)

    def after(self, steps: Generator[None, None, V], handle: Callable[[V], M | None]) -> M | None:
        """Run steps, and then serve the request with their result.

        Args:
            steps: work before the handler, for example checks of many items.
            handle: called with the result of the steps. Returns the response, or None if `respond`
                is called later.

        Returns:
            The response if the steps end within the first slice, and it is immediate.
        """
        result = UNFINISHED if self._large else self._dependencies.slices.try_now(steps)
        if result is UNFINISHED:
            self._work(self._handle_after(steps, handle))
            return None
        return handle(cast("V", result))

    def _handle_after(
        self, steps: Generator[None, None, V], handle: Callable[[V], Message | None]
    ) -> Generator[None, None, None]:
        result = yield from steps
        yield from self._handle_in_job(handle, result)

    def respond_in_slices(self, steps: Generator[None, None, Message | None]) -> None:
        """Respond to a pending request, with a generator as in `in_slices`."""
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
        if self._large is not None and self._large.collects:
            self._large.collected = steps
            return
        self.connection.begin_work()
        self._dependencies.slices.add(steps, self)

    def _finish(self, steps: Generator[None, None, Message | None]) -> Generator[None, None, None]:
        response = yield from steps
        if response is None:
            return
        if self._amend is not None:
            response = self._amend(response)
        if self._origin is not None:
            self._origin.respond(self, response, 0, is_clean=False)
        else:
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
        self.statistics.error_searches += 1
        self.statistics.response_bytes += frame_bytes(chunks)
        if self._pending_since_ms:
            self._count_parked()
        del chunks
        yield from self.statistics.count_errors_in_steps(response)
        yield from release(response)
        if self._large is not None:
            yield from self._release(self._large)

    def _release(self, large: _LargeJob) -> Generator[None, None, None]:
        """Free the request of a large job in slices."""
        request, large.request = large.request, None
        if request is not None:
            yield from release(request)

    @property
    def is_needed(self) -> bool:
        """Whether the connection is open, so that the response can be sent."""
        return self.connection.stream is not None

    @property
    def source(self) -> tuple[str, str]:
        """API name and client, for log lines."""
        return self.statistics.name, f"{self.client_id}@{self.connection.peer}"

    def on_work_done(self, spent_ms: float) -> None:
        """Add the time of the slices to the local time. The slice queue calls this method."""
        if self._pending_since_ms:
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
        if self._pending_since_ms:
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
        give_up(self.connection, error, self.statistics.name, self.version)

    def mark_pending(self, now_ms: float, local_ms: float) -> None:
        """Record that the handler returned without a response. Called by the dispatcher."""
        self._pending_since_ms = now_ms
        self.local_ms = local_ms
        self._queued_ms = self.connection.queued_ms
        if self._queued_ms > 0:
            self.statistics.request_queue.add(self._queued_ms)

    def end_joint(self, now_ms: float, must_wait: bool) -> None:
        """Count the local time of a request that was handled with others of its read.

        They are handled as one, so the local time of each begins with the read.

        Args:
            now_ms: monotonic time.
            must_wait: whether the response must wait. Otherwise it follows now.
        """
        self.local_ms = now_ms - self.connection.read_ms
        if must_wait:
            self._pending_since_ms = now_ms
            self._queued_ms = 0.0
        else:
            self.statistics.immediate.add(self.local_ms)

    def _count_parked(self) -> None:
        remote_ms = self._dependencies.clock.monotonic_ms() - self._pending_since_ms
        statistics = self.statistics
        statistics.parked_local.add(self.local_ms)
        statistics.remote.add(remote_ms)
        self._total_ms = self._queued_ms + self.local_ms + remote_ms
        statistics.parked_total.add(self._total_ms)

    def count_queued(self, local_ms: float) -> None:
        """Count a request that waited in the queue and whose handler responded immediately."""
        self.local_ms = local_ms
        queued_ms = self.connection.queued_ms
        self._total_ms = queued_ms + local_ms
        self._pending_since_ms = self._dependencies.clock.monotonic_ms()
        self.statistics.count_queued(queued_ms, local_ms)

    def on_released(self, held_ms: float) -> None:
        """Count the time that the response waited for responses to earlier requests."""
        self.statistics.response_queue.add(held_ms)
        self._extend_total(held_ms)

    def on_sent(self, send_ms: float) -> None:
        """Count the time that the response needed to leave the send buffer."""
        self.statistics.response_send.add(send_ms)
        self._extend_total(send_ms)

    def _extend_total(self, duration_ms: float) -> None:
        """Add a duration to the total time of a request that is already in the statistics."""
        statistics = self.statistics
        if self._pending_since_ms:
            statistics.parked_total.remove(self._total_ms)
        else:
            # Move the request out of the requests whose total time equals the local time.
            self._pending_since_ms = self._dependencies.clock.monotonic_ms()
            self._total_ms = self.local_ms
            statistics.immediate.remove(self.local_ms)
            statistics.parked_local.add(self.local_ms)
            statistics.remote.add(0.0)
        self._total_ms += duration_ms
        statistics.parked_total.add(self._total_ms)

    def _throttle(self, response: Message | None, throttle_ms: int) -> None:
        """Count the request for its quotas. Throttle the connection if a quota is exceeded."""
        quotas, statistics = self._dependencies.quotas, self.statistics
        if throttle_ms == EXEMPT and not quotas.is_active:
            return
        if self._pending_since_ms:
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
