"""Fetch with thousands of partitions, which takes several turns of the event loop.

`FetchHandler` decides which requests are served in this way. The responses are the same.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchResponse, FetchTopic
from barnabas.server.conversion.old_fetch import MAGIC_2_SINCE
from barnabas.server.dispatch.request import EXEMPT
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.fetch import FetchRequest
    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_context import FetchContext
    from barnabas.replication.requests.fetch_session_cache import SessionRequest
    from barnabas.server.conversion.old_fetch import OldFetch
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.storage.topic_partition import TopicIdPartition

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]
    Steps = Generator[None, None, None]

# Partitions in one step.
_AT_ONCE = 200


class FetchParts(Protocol):
    """The parts of a response to a fetch."""

    # Converts the response for old versions. None for versions with magic 2.
    old: OldFetch | None
    # Whether no quota applies, because a follower fetches.
    is_exempt: bool
    # All requested partitions, in the order of the response.
    requested: list[RequestedPartition]

    def with_refused(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return the results with those of refused partitions."""
        ...

    def maybe_respond_throttled(self, sized: FetchResponse) -> bool:
        """Send an empty response if the quota is exceeded. Return whether it is sent."""
        ...

    def add_topics(self, response: FetchResponse, changed: list[PartitionResult]) -> None:
        """Add the results to the response."""
        ...

    def count(self, changed: list[PartitionResult]) -> bool:
        """Count the bytes of each topic, and return whether no partition has an error."""
        ...


def session_request_in_steps(
    request: FetchRequest, read: Callable[[FetchRequest], SessionRequest]
) -> Generator[None, None, SessionRequest]:
    """Read the session fields and the partitions of a request in steps.

    Args:
        request: the request, with many partitions.
        read: reads a request with some of the partitions.
    """
    short = copy(request)
    short.topics = []
    without_partitions = read(short)
    short.forgotten_topics_data = []
    requested: list[RequestedPartition] = []
    for topic in request.topics:
        for part in in_parts(topic.partitions, _AT_ONCE):
            short.topics = [FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=part)]
            requested += read(short).requested
            yield
    # Merge the repetitions of a partition, as `read` does for a whole request.
    return replace(without_partitions, requested=list(dict(requested).items()))


class WideFetchHandling:
    """Reads the partitions of one request, and responds."""

    __slots__ = ("_context", "_pending", "_session")

    def __init__(self, context: RequestContext, session: FetchContext, pending: FetchParts) -> None:
        self._context = context
        self._session = session
        self._pending = pending

    def fetch(
        self, replicas: ReplicaManager, params: FetchParams, readable: list[RequestedPartition]
    ) -> None:
        """Read the partitions and respond, immediately or in later turns."""
        idle = self._session.idle
        if not (readable or idle):
            self._respond([])
            return
        fetch = replicas.wide_fetch(params, self._run, self._respond, idle)
        self._context.on_client_gone(fetch.cancel)
        self._run(fetch.read(readable))

    def _run(self, steps: Steps) -> None:
        try:
            self._context.respond_in_slices(steps)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def _respond(self, results: list[PartitionResult]) -> None:
        self._run(self._filter_and_respond(results))

    def _filter_and_respond(self, results: list[PartitionResult]) -> Steps:
        context, pending = self._context, self._pending
        results = pending.with_refused(results)
        if context.quotas.is_active and not pending.is_exempt:
            sized = FetchResponse(responses=[])
            for part in in_parts(results, _AT_ONCE):
                pending.add_topics(sized, [each for each in part if len(each[1].records) > 0])
                yield
            if pending.maybe_respond_throttled(sized):
                return
        changed = yield from self._session.answer_in_steps(results)
        if pending.old is None:
            yield from self._send(changed)
            return
        replaced: list[PartitionResult] = []
        for part in in_parts(changed, _AT_ONCE):
            replaced += pending.old.replace_errors(context.version, part)
            yield
        if context.version < MAGIC_2_SINCE:
            pending.old.convert(context, replaced, pending.requested, self._send_converted)
        else:
            yield from self._send(replaced)

    def _send_converted(self, converted: list[PartitionResult]) -> None:
        self._run(self._send(converted))

    def _send(self, changed: list[PartitionResult]) -> Steps:
        session = self._session
        response = FetchResponse(
            error_code=session.error, session_id=session.session_id, responses=[]
        )
        is_clean = session.error is ErrorCode.NONE
        for part in in_parts(changed, _AT_ONCE):
            self._pending.add_topics(response, part)
            is_clean = self._pending.count(part) and is_clean
            yield
        if len(changed) > _AT_ONCE:
            # Encode in a turn of its own, because it takes as long as two slices.
            self._context.complete_in_slices(self._encode(response, is_clean=is_clean))
        else:
            self._respond_with(response, is_clean=is_clean)

    def _encode(self, response: FetchResponse, *, is_clean: bool) -> Steps:
        self._respond_with(response, is_clean=is_clean)
        yield

    def _respond_with(self, response: FetchResponse, *, is_clean: bool) -> None:
        throttle_ms = EXEMPT if self._pending.is_exempt else 0
        self._context.respond(response, throttle_ms, is_clean=is_clean)
