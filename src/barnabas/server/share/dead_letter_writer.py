"""Writes records that share groups give up to dead-letter topics (KIP-1191).

Kafka's ShareGroupDLQStateManager. A request to a leader of dead-letter topics contains all waiting
letters, as far as they fit. A failed write is logged, and its records are lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.server.peers.own_broker_channel import AnyBrokerChannels
from barnabas.server.peers.peer_queues import TIMEOUT_MS, Backoff, PeerQueues, PeerSettings
from barnabas.server.peers.produce_requests import PRODUCE_VERSION, errors_of, produce_request
from barnabas.server.share.dead_letter_records import (
    DeadLetterBatches,
    PendingLetter,
    create_request,
)
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator

    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.protocol.messages.topics import CreateTopicsResponse
    from barnabas.protocol.schema import Message
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies
    from barnabas.server.share.dead_letter_records import DeadLetter
    from barnabas.server.share.group_settings import DeadLetterSettings
    from barnabas.waiting.steps import OffLoop


_log = logging.getLogger(__name__)


# All retries take 13 s. Kafka's first delay is 1 s.
_BACKOFF = Backoff(first_ms=100.0, retries_max=7, factor=2.0)
# Waiting letters for each leader.
_QUEUE_MAX = 100_000
_NONE = ErrorCode.NONE
# Errors after which the leader is looked up again.
_RETRIED = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT}
)
# Problems of letters that could not be queued.
_NOT_QUEUED = {
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "too many records wait for the leader of the partition",
}
_RETRIED_CREATIONS = frozenset(
    {
        _NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
    }
)


class DeadLetterCounts(msgspec.Struct):
    """Counters of one group since the start."""

    # Dead-letter records that were written.
    records: int = 0
    # Produced ranges of records, and those whose write failed for good.
    produces: int = 0
    failed_produces: int = 0


class DeadLetterWriter:
    """Writes dead letters, and creates the topics if the configuration allows it."""

    def __init__(
        self,
        settings: DeadLetterSettings,
        replicas: ReplicaManager,
        controller: ControllerAccess,
        conversions: ConversionQueue,
        peers: PeerDependencies,
    ) -> None:
        """Create the writer.

        Args:
            settings: the configuration of dead-letter topics.
            replicas: the partitions of this broker.
            controller: creates missing topics.
            conversions: builds batches in steps.
            peers: access to other brokers.
        """
        self._settings = settings
        self._replicas = replicas
        self._controller = controller
        self._conversions = conversions
        self._clock, self._cluster, self._node_id = peers.clock, peers.cluster, peers.node_id
        peer_settings = PeerSettings(
            "dead-letters",
            PRODUCE_VERSION,
            _QUEUE_MAX,
            no_leader=ErrorCode.LEADER_NOT_AVAILABLE,
            no_room=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
        channels = AnyBrokerChannels(lambda: replicas, peers)
        self._queues = PeerQueues(self, peer_settings, replace(peers, channels=channels))
        # Letters that wait for the creation of their topic, by topic.
        self._creating: dict[str, list[PendingLetter]] = {}
        # The last logged problem of each group with a dead-letter topic that cannot be used.
        self._problems: dict[str, str] = {}
        self.counts: dict[str, DeadLetterCounts] = {}

    def write(self, letter: DeadLetter, on_done: Callable[[], None]) -> None:
        """Write the dead-letter records of a letter.

        Args:
            letter: the records.
            on_done: called when all are written or the write is given up, perhaps before this
                returns.
        """
        self._dispatch(PendingLetter(letter, on_done))

    def dispatch(self, parts: list[PendingLetter]) -> None:
        """Queue letters after their backoff."""
        for pending in parts:
            self._dispatch(pending)

    def _dispatch(self, pending: PendingLetter) -> None:
        """Queue a letter for the leader of its partition, or create its topic."""
        settings, letter = self._settings, pending.letter
        problem = settings.problem(letter.group_id)
        if problem is not None:
            self._give_up(pending, problem)
            return
        self._problems.pop(letter.group_id, None)
        topic = settings.topic(letter.group_id)
        count = self._cluster.partition_count(topic)
        if not count:
            self._create(topic, pending)
            return
        pending.target = TopicPartition(topic, letter.where.partition % count)
        own = self._queues.dispatch([pending])
        if own:
            # A request to this broker also has all waiting letters.
            self._queues.add(self._node_id, own)

    def _counts(self, pending: PendingLetter) -> DeadLetterCounts:
        return self.counts.setdefault(pending.letter.group_id, DeadLetterCounts())

    # Failures.

    def _retry(self, pending: PendingLetter, problem: str) -> None:
        if not self._queues.retry(pending, _BACKOFF):
            self._give_up(pending, problem)

    def _give_up(self, pending: PendingLetter, problem: str) -> None:
        letter = pending.letter
        if self._problems.get(letter.group_id) != problem:
            self._problems[letter.group_id] = problem
            _log.error(
                "Dead-letter records cannot be written: group=%s partition=%s offset=%d problem=%s",
                letter.group_id,
                letter.where.topic_partition,
                pending.next_offset,
                problem,
            )
        pending.on_done()

    # Topics.

    def _create(self, topic: str, pending: PendingLetter) -> None:
        waiting = self._creating.get(topic)
        if waiting is not None:
            waiting.append(pending)
            return
        self._creating[topic] = [pending]
        self._controller.send(
            create_request(topic, int(TIMEOUT_MS)), partial(self._on_created, topic)
        )

    def _on_created(self, topic: str, response: CreateTopicsResponse) -> None:
        error, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        for each in response.topics:
            error, message = ErrorCode.of(each.error_code), each.error_message or ""
        problem = f"the topic cannot be created: {error.name} {message}".rstrip()
        for pending in self._creating.pop(topic):
            if error in _RETRIED_CREATIONS:
                # The metadata of a created topic may arrive after the response.
                self._retry(pending, problem)
            else:
                self._give_up(pending, problem)

    # Requests to leaders: Produce.

    def partition_of(self, part: PendingLetter) -> TopicPartition:
        """Return the partition of the dead-letter topic."""
        return part.target

    def take(self, waiting: deque[PendingLetter]) -> list[PendingLetter]:
        """Return all waiting letters, see `Sender`."""
        letters = list(waiting)
        waiting.clear()
        return letters

    def make_request(self, request: PartsRequest[PendingLetter]) -> None:
        """Build the request in steps. Letters that do not fit wait for the next one."""
        batches = DeadLetterBatches(self._settings, self._replicas, self._clock.wall_ms)

        def steps() -> Generator[OffLoop | None, Any, Message | Exception]:
            try:
                yield from batches.build(request.parts)
                return produce_request(self._cluster, batches.content(), int(TIMEOUT_MS))
            except Exception as error:  # noqa: BLE001 - the request divides or refuses the letters
                return error

        def on_built(made: Message | Exception) -> None:
            if isinstance(made, Exception):
                request.refuse(made)
                return
            request.defer(batches.deferred)
            for pending in request.parts:
                self._counts(pending).produces += 1
            request.send(made)

        self._conversions.submit(request, steps(), on_built)

    def results_of(self, response: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
        """Return the errors of a response."""
        return errors_of(self._cluster, response)

    def on_result(self, part: PendingLetter, results: dict[TopicPartition, ErrorCode]) -> None:
        """Handle the result for a letter. A response without it is an unexpected error."""
        error = results.get(part.target, ErrorCode.UNKNOWN_SERVER_ERROR)
        if error is _NONE:
            self._on_written(part)
        else:
            self.on_failed(part, error)

    def on_failed(self, part: PendingLetter, error: ErrorCode) -> None:
        """Retry or give up a letter."""
        if error in _NOT_QUEUED:
            self._retry(part, _NOT_QUEUED[error])
        elif error not in _RETRIED or not self._queues.retry(part, _BACKOFF):
            self._counts(part).failed_produces += 1
            self._give_up(part, f"{part.target} refuses them: {error.name}")

    def _on_written(self, pending: PendingLetter) -> None:
        last = pending.sent_last
        self._counts(pending).records += last - pending.next_offset + 1
        pending.next_offset = last + 1
        pending.retries = 0
        if last < pending.letter.last:
            self._dispatch(pending)
        else:
            pending.on_done()
