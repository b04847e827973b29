"""Writes records that share groups give up to dead-letter topics (KIP-1191).

Kafka's ShareGroupDLQStateManager. Each broker that leads partitions of dead-letter topics has a
queue and at most one request in flight. The next request contains all letters that were queued in
the meantime, as far as they fit. A failed write is logged, and its records are lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.network.network_error import NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.server.share.dead_letters.dead_letter_batches import DeadLetterBatches
from barnabas.server.share.dead_letters.letter_requests import (
    create_request,
    produce_request,
    results_of,
)
from barnabas.server.share.dead_letters.pending_letter import PendingLetter
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.create_topics import CreateTopicsResponse
    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.share.dead_letters.dead_letter import DeadLetter
    from barnabas.server.share.dead_letters.dead_letter_settings import DeadLetterSettings

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 30_000
# Delay before the first retry, in ms; it doubles with each retry. All retries take 13 s. Kafka
# begins with 1 s.
_RETRY_MS = 100.0
_ATTEMPTS_MAX = 7
_ACKS_ALL = -1
_PRODUCE_VERSION = 13
_NONE = ErrorCode.NONE
# Errors after which the leader is looked up again.
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
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


class DeadLetterDependencies(msgspec.Struct, frozen=True):
    """What the writer uses."""

    node_id: int
    cluster: ClusterView
    settings: DeadLetterSettings
    replicas: ReplicaManager
    # Creates missing topics.
    controller: ControllerAccess
    # Builds batches in steps.
    conversions: ConversionQueue
    times: tuple[Clock, Timer]
    # Opens connections to other brokers; None in a cluster of one node.
    channels: LeaderChannels | None


class _Peer:
    """The queue of one leader."""

    __slots__ = ("channel", "is_busy", "queue")

    def __init__(self, channel: LeaderChannel | None) -> None:
        # None for this broker.
        self.channel = channel
        # Whether a request is built or in flight.
        self.is_busy = False
        self.queue: list[PendingLetter] = []


class DeadLetterWriter:
    """Writes dead letters, and creates the topics if the configuration allows it."""

    __slots__ = ("_clock", "_creating", "_dependencies", "_peers", "_problems", "_timer", "counts")

    def __init__(self, dependencies: DeadLetterDependencies) -> None:
        self._dependencies = dependencies
        self._clock, self._timer = dependencies.times
        # Queues by broker id. Created for the first letter, and kept.
        self._peers: dict[int, _Peer] = {}
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

    def _dispatch(self, pending: PendingLetter) -> None:
        """Queue a letter for the leader of its partition, or create its topic."""
        settings, letter = self._dependencies.settings, pending.letter
        problem = settings.problem(letter.group_id)
        if problem is not None:
            self._give_up(pending, problem)
            return
        self._problems.pop(letter.group_id, None)
        topic = settings.topic(letter.group_id)
        count = self._dependencies.cluster.partition_count(topic)
        if not count:
            self._create(topic, pending)
            return
        pending.target = TopicPartition(topic, letter.where.partition % count)
        found = self._dependencies.cluster.partition(*pending.target)
        if found is None or found.leader < 0:
            self._retry(pending, "the partition has no leader")
            return
        self._enqueue(found.leader, pending)

    def _counts(self, pending: PendingLetter) -> DeadLetterCounts:
        return self.counts.setdefault(pending.letter.group_id, DeadLetterCounts())

    # Failures.

    def _retry(self, pending: PendingLetter, problem: str) -> None:
        if pending.attempts >= _ATTEMPTS_MAX:
            self._give_up(pending, problem)
            return
        delay_ms = _RETRY_MS * (1 << pending.attempts)
        pending.attempts += 1
        self._timer.call_later(delay_ms, partial(self._dispatch, pending))

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
        self._dependencies.controller.send(
            create_request(topic, _TIMEOUT_MS), partial(self._on_created, topic)
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

    # Records.

    def _enqueue(self, leader: int, pending: PendingLetter) -> None:
        peer = self._peers.get(leader)
        if peer is None:
            channel, dependencies = None, self._dependencies
            if leader != dependencies.node_id:
                if dependencies.channels is None:
                    self._retry(pending, f"broker {leader} cannot be reached")
                    return
                client_id = f"broker-{dependencies.node_id}-dead-letters"
                channel = dependencies.channels.open(leader, client_id)
            peer = self._peers[leader] = _Peer(channel)
        peer.queue.append(pending)
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        """Build and send the next request, unless one is in flight."""
        if peer.is_busy or not peer.queue:
            return
        peer.is_busy = True
        letters, peer.queue = peer.queue, []
        dependencies = self._dependencies
        batches = DeadLetterBatches(
            dependencies.settings, dependencies.replicas, self._clock.wall_ms
        )
        dependencies.conversions.submit(peer, batches.build(letters), partial(self._send, peer))

    def _send(self, peer: _Peer, batches: DeadLetterBatches) -> None:
        peer.queue = batches.deferred + peer.queue
        for pending, _ in batches.included:
            self._counts(pending).produces += 1
        content = batches.content()
        if peer.channel is None:
            self._dependencies.replicas.append_records(
                _TIMEOUT_MS,
                _ACKS_ALL,
                {key: memoryview(batch) for key, batch in content.items()},
                AppendOrigin.CLIENT,
                partial(self._on_appended, peer, batches),
            )
            return
        request = produce_request(self._dependencies.cluster, content, _TIMEOUT_MS)
        on_response = partial(self._on_response, peer, batches)
        peer.channel.send(request, _PRODUCE_VERSION, on_response, float(_TIMEOUT_MS))

    def _on_appended(
        self, peer: _Peer, batches: DeadLetterBatches, results: dict[TopicPartition, ProduceResult]
    ) -> None:
        errors = {key: result.error for key, result in results.items()}
        self._on_results(peer, batches, errors, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _on_response(
        self,
        peer: _Peer,
        batches: DeadLetterBatches,
        response: ProduceResponse | None,
        error: NetworkError | None,
    ) -> None:
        if response is not None:
            errors = results_of(self._dependencies.cluster, response)
            self._on_results(peer, batches, errors, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        is_timeout = error is not None and error.kind is NetworkErrorKind.TIMED_OUT
        failure = ErrorCode.REQUEST_TIMED_OUT if is_timeout else ErrorCode.NETWORK_EXCEPTION
        self._on_results(peer, batches, {}, failure)

    def _on_results(
        self,
        peer: _Peer,
        batches: DeadLetterBatches,
        errors: dict[TopicPartition, ErrorCode],
        missing: ErrorCode,
    ) -> None:
        peer.is_busy = False
        for pending, last in batches.included:
            error = errors.get(pending.target, missing)
            if error is _NONE:
                self._on_written(pending, last)
            elif error in _RETRIED and pending.attempts < _ATTEMPTS_MAX:
                self._retry(pending, error.name)
            else:
                self._counts(pending).failed_produces += 1
                self._give_up(pending, f"{pending.target} refuses them: {error.name}")
        self._flush(peer)

    def _on_written(self, pending: PendingLetter, last: int) -> None:
        self._counts(pending).records += last - pending.next_offset + 1
        pending.next_offset = last + 1
        pending.attempts = 0
        if last < pending.letter.last:
            self._dispatch(pending)
        else:
            pending.on_done()
