"""Context of a request that is too large to decode in one turn, and is served in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode_in_steps
from barnabas.server.dispatch.request import M, RequestContext, V
from barnabas.server.dispatch.slices import release

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.network.connection import Connection
    from barnabas.network.response_slot import ResponseSlot
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestDependencies
    from barnabas.server.dispatch.request_statistics import ApiStatistics


class LargeRequestContext(RequestContext):
    """Combines decoding, handler and response of a large request into one job.

    Large requests are served one at a time. The slices of the handler and the response therefore
    belong to the same job, unless they start after the handler has returned.
    """

    __slots__ = ("_collected", "_collects", "_request")

    def __init__(
        self,
        connection: Connection,
        slot: ResponseSlot,
        header: tuple[int, int, int, str | None, int],
        request_bytes: int,
        dependencies: RequestDependencies,
        statistics: ApiStatistics,
    ) -> None:
        super().__init__(connection, slot, header, request_bytes, dependencies, statistics)
        # Whether the handler is running, and the slices that it has submitted.
        self._collects = False
        self._collected: Generator[None, None, None] | None = None
        # The decoded request. None before decoding, and after the response is sent.
        self._request: Message | None = None

    def serve(
        self, request_cls: type[Message], frame: memoryview, offset: int, handle: Handle
    ) -> None:
        """Decode and serve the request after all earlier large requests."""
        self.connection.begin_work()
        steps = self._serve(request_cls, frame, offset, handle)
        self._dependencies.slices.add(steps, self, is_large=True)

    def respond(self, response: Message, throttle_ms: int = 0, *, is_clean: bool = False) -> None:
        """Send the response, then free the request in slices."""
        super().respond(response, throttle_ms, is_clean=is_clean)
        if self._slot.is_answered:
            self._work(self._release())

    def in_slices(self, steps: Generator[None, None, M | None]) -> M | None:
        """Serve the request with a generator that runs as part of the same job."""
        self._work(self._finish(steps))
        return None

    def _serve(
        self, request_cls: type[Message], frame: memoryview, offset: int, handle: Handle
    ) -> Generator[None, None, None]:
        request = self._request = yield from decode_in_steps(
            request_cls, self.version, frame, offset
        )
        self._collects = True
        response = handle(self, request)
        if response is not None:
            self.respond(response)
        self._collects = False
        del request, response
        if self._collected is not None:
            yield from self._collected

    def after(
        self, steps: Generator[None, None, V], handle: Callable[[V], Message | None]
    ) -> Message | None:
        """Run steps, and then serve the request with their result, in the same job."""
        self._work(self._handle_after(steps, handle))
        return None

    def _handle_after(
        self, steps: Generator[None, None, V], handle: Callable[[V], Message | None]
    ) -> Generator[None, None, None]:
        made = yield from steps
        self._collects, self._collected = True, None
        response = handle(made)
        if response is not None:
            self.respond(response)
        self._collects = False
        if self._collected is not None:
            yield from self._collected

    def _work(self, steps: Generator[None, None, None]) -> None:
        if self._collects:
            self._collected = steps
        else:
            super()._work(steps)

    def _respond_in_steps(self, response: Message) -> Generator[None, None, None]:
        yield from super()._respond_in_steps(response)
        yield from self._release()

    def _release(self) -> Generator[None, None, None]:
        request, self._request = self._request, None
        if request is not None:
            yield from release(request)
