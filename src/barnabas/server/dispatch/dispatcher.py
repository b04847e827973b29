"""Dispatch of requests: decode the header, check the version, decode the body, call the handler.

Large requests are decoded in slices. Some requests are refused for their size:

- The number of topics and partitions of Produce and Fetch is limited, because their results stay in
  memory until the response.
- Requests of group members are refused before they are copied and decoded. A decoder copies a field
  of bytes in one step: a JoinGroup of 90 MB would hold the event loop for 90 ms. Kafka accepts such
  requests, but cannot store their content: the record of a group must fit into a batch of
  `__consumer_offsets`, which has at most 1 MB by default.
"""

from __future__ import annotations

from math import frexp
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import (
    decode_from,
    decode_in_steps,
    decode_request_header,
    encode_response,
)
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.server.dispatch.request import RequestContext
from barnabas.server.dispatch.request_statistics import FIRST_BUCKET, SHORTEST_MS
from barnabas.waiting.steps import Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

    from barnabas.network.connection import Connection
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestDependencies
    from barnabas.server.dispatch.request_statistics import ApiStatistics


_API_VERSIONS = int(ApiKey.API_VERSIONS)
# Larger requests are decoded in slices.
LARGE_BYTES = 16 * 1024
# Produce and Fetch are frequent, and Produce is large because of its records, which are views. So
# they are decoded in slices only if they have too many partitions for one slice.
_FREQUENT = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
# Shorter requests have at most a few thousand partitions.
WIDE_BYTES = 64 * 1024


# Limit of requests that are refused for their size. Copying and decoding one field of this size
# takes 7 ms each.
MEMBER_REQUEST_BYTES_MAX = 16 << 20


class Entry(NamedTuple):
    """An API of a listener, after its first request."""

    # Both inclusive.
    first_version: int
    last_version: int
    request_class: type[Message]
    handle: Handle
    statistics: ApiStatistics
    # Returns the response to a request of a version that is too large; None without such a limit.
    refuse_size: Callable[[int], Message] | None


class Dispatcher:
    """Decodes the frames of one listener's connections and calls the handlers."""

    __slots__ = ("_dependencies", "_entries", "_find", "_monotonic_ms", "_slices", "_watch")

    def __init__(
        self, find: Callable[[int], Entry | None], dependencies: RequestDependencies
    ) -> None:
        """Create the dispatcher of one listener.

        Args:
            find: returns the entry of an API key; None if the API is not served.
            dependencies: dependencies of all requests of the listener.
        """
        self._find = find
        # Entries of the APIs that have had a request, by API key. An entry never changes.
        self._entries: dict[int, Entry] = {}
        self._dependencies = dependencies
        self._monotonic_ms = dependencies.clock.monotonic_ms
        self._slices = dependencies.slices
        self._watch = dependencies.watch

    def on_request(self, connection: Connection, frame: memoryview) -> None:
        """Serve one request. `frame` is valid only during the call.

        Raises:
            ProtocolError: the API or version is not served, or the bytes are not such a request.
                The caller closes the connection, as Kafka does.
        """
        header = decode_request_header(frame)
        api_key, version, correlation_id, _, offset = header
        entry = self._entries.get(api_key) or self._entry(connection, api_key)
        first_version, last_version, request_cls, handle, statistics, _ = entry
        if not first_version <= version <= last_version:
            if api_key == _API_VERSIONS:
                unsupported = unsupported_api_versions(first_version, last_version)
                connection.reserve().complete(encode_response(correlation_id, unsupported, 0))
                return
            self._dependencies.missing.note_version(connection, api_key)
            raise ProtocolError(
                f"API {api_key} is served in versions {first_version} to "
                f"{last_version}, not {version}"
            )
        size = len(frame)
        if size <= LARGE_BYTES or (size <= WIDE_BYTES and api_key in _FREQUENT):
            request, _ = decode_from(request_cls, version, frame, offset)
        elif api_key in _FREQUENT and not isinstance(
            decoded := self._slices.try_now(decode_in_steps(request_cls, version, frame, offset)),
            Unfinished,
        ):
            request = decoded
        else:
            self._serve_large(connection, frame, header, entry)
            return
        slot = connection.reserve()
        context = RequestContext(connection, slot, header, size, self._dependencies, statistics)
        response = handle(context, request)
        if response is not None:
            context.respond(response)
        # Inlined because it runs for every request: four calls would cost about a microsecond.
        now_ms = self._monotonic_ms()
        local_ms = now_ms - connection.last_activity_ms
        statistics.versions[version] += 1
        statistics.request_bytes += size
        if not slot.has_response:
            # A joint append counts the times of its requests.
            if not context.is_joint:
                context.mark_pending(now_ms, local_ms)
        elif connection.queued_ms > 0:
            context.count_queued(local_ms)
        else:
            context.local_ms = local_ms
            times = statistics.immediate
            mantissa, exponent = frexp(local_ms + SHORTEST_MS)
            times.counts[FIRST_BUCKET + exponent * 4 + int(mantissa * 8.0)] += 1
            times.total_ms += local_ms
        if now_ms > self._watch.due_ms:
            client = f"{header[3]}@{connection.peer}"
            self._watch.check(now_ms, connection.last_activity_ms, statistics.name, client)

    def _entry(self, connection: Connection, api_key: int) -> Entry:
        """Return the entry of an API at its first request. Raise ProtocolError if there is none."""
        entry = self._find(api_key)
        if entry is None:
            self._dependencies.missing.note_api(connection, api_key)
            raise ProtocolError(f"API {api_key} is not served")
        self._entries[api_key] = entry
        return entry

    def _serve_large(
        self,
        connection: Connection,
        frame: memoryview,
        header: tuple[int, int, int, str | None, int],
        entry: Entry,
    ) -> None:
        """Serve a request whose decoding takes too long for one turn."""
        statistics, version, size = entry.statistics, header[1], len(frame)
        slot = connection.reserve()
        context = RequestContext(connection, slot, header, size, self._dependencies, statistics)
        statistics.versions[version] += 1
        statistics.request_bytes += size
        if entry.refuse_size is not None and size > MEMBER_REQUEST_BYTES_MAX:
            context.respond(entry.refuse_size(version))
            return
        # Copy the frame: another connection uses the receive buffer in the next turn.
        copy = memoryview(bytearray(frame))
        context.serve_large(entry.request_class, copy, header[4], entry.handle)
        now_ms = self._monotonic_ms()
        context.mark_pending(now_ms, now_ms - connection.last_activity_ms)


def unsupported_api_versions(first_version: int, last_version: int) -> Message:
    """Return the v0 response to an ApiVersions request that is too new, with the known versions.

    See KIP-511.
    """
    from barnabas.protocol.messages.connection import ApiVersion, ApiVersionsResponse

    known = ApiVersion(api_key=_API_VERSIONS, min_version=first_version, max_version=last_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])


def check_width(topics: Sized, partitions: Iterable[Sized], most: int) -> None:
    """Check the number of topics and of partitions in a request.

    Args:
        topics: the topics.
        partitions: the partitions of each topic. It is not read if there are too many topics.
        most: the limit.

    Raises:
        ProtocolError: there are more. The connection is closed.
    """
    count, word = len(topics), "topics"
    if count <= most:
        count, word = sum(map(len, partitions)), "partitions"
    if count > most:
        raise ProtocolError(f"{count} {word}: the limit is {most}")
