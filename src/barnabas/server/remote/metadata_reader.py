"""Reads partitions of `__remote_log_metadata` from their leaders, like a consumer without a group.

One request is in flight to each leader. A request is one of three: ListOffsets for the end of the
partitions that begin, ListOffsets for the start of those whose next offset the leader does not
have, or Fetch for all. The events of a response are replayed in steps, then the next request
follows. An error delays the partitions that it concerns, and no others.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.network.reconnect_backoff import exponential_ms
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.record.record import CorruptBatchError
from barnabas.replication.partition.fetch_params import CONSUMER_REPLICA_ID
from barnabas.replication.partition.offset_lookup import EARLIEST, LATEST
from barnabas.server.peers.peer_queues import TIMEOUT_MS, raise_later
from barnabas.server.remote.metadata_events import EventSink, SkippedRecords, replay
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.fetch import FetchResponse, PartitionData
    from barnabas.protocol.messages.log_offsets import ListOffsetsResponse
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import LeaderChannel
    from barnabas.runtime.clock import Cancellable
    from barnabas.server.peers.peer_queues import PeerDependencies
    from barnabas.waiting.steps import OffLoop, Steps

_log = logging.getLogger(__name__)


# The first version of Fetch with topic ids, and a version of ListOffsets of all supported leaders.
_FETCH_VERSION = 13
_LIST_OFFSETS_VERSION = 7
# Bytes of a response. More would only wait in memory for their replay.
_BYTES_MAX = 1 << 20
_NO_LEADER = (-1, -1)
_RETRY_FIRST_MS = 50.0
_RETRY_MAX_MS = 5_000.0
# Pause after a response that moved no partition, so that no leader can keep this broker busy.
_PAUSE_MS = 20.0
# Consecutive failures of a partition until one is logged: leaders change, and topics are created.
_QUIET_FAILURES = 8


class StepQueue(Protocol):
    """Runs generators in turns of the loop. `ConversionQueue` implements it."""

    def submit(self, lane: object, steps: Steps, on_done: Callable[[Any], None]) -> object:
        """Run the steps, and pass their result on."""
        ...


class Reading(EventSink, Protocol):
    """The place of a reader in one metadata partition, and what happens as it moves."""

    # The metadata partition.
    index: int
    # Exclusive end of the events that were written before the reading began. None: not known yet.
    end_offset: int | None
    # Number of starts. Records that were fetched before the latest start are not replayed.
    life: int

    def start_at(self, offset: int) -> None:
        """Begin at an offset, or begin again after the loss of what was read."""
        ...

    def on_progress(self) -> None:
        """Handle a new next offset or end offset."""
        ...


class ReaderSettings(msgspec.Struct, frozen=True):
    """Properties of all requests of a reader."""

    # The last part of the client id.
    name: str
    # How long a leader waits for new records.
    max_wait_ms: int


class _Entry:
    """A reading and its failures."""

    __slots__ = ("failures", "is_lost", "leader", "reading", "retry_ms")

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        # Consecutive failures, and the time (ms, monotonic) of the next request after them.
        self.failures = 0
        self.retry_ms = 0.0
        # Whether the leader does not have the next offset.
        self.is_lost = False
        # Leader and leader epoch in the latest image; -1 for an unknown leader.
        self.leader = _NO_LEADER


class MetadataReader:
    """Readings of some metadata partitions, at most one for each."""

    def __init__(self, settings: ReaderSettings, peers: PeerDependencies, steps: StepQueue) -> None:
        """Create without readings.

        Args:
            settings: properties of all requests.
            peers: the leaders, and channels to all brokers including this one.
            steps: runs the replay of events.
        """
        assert peers.channels is not None, "a reader needs channels to all brokers"
        self._channels = peers.channels
        self.settings = settings
        self.clock, self.timer, self.cluster = peers.clock, peers.timer, peers.cluster
        self.steps = steps
        self._client_id = f"broker-{peers.node_id}-{settings.name}"
        # By metadata partition.
        self._entries: dict[int, _Entry] = {}
        # By broker id. Created for the first reading, and never removed.
        self._leaders: dict[int, _Leader] = {}
        # Whether requests are sent. Set by `start`, reset for good by `close`.
        self.is_running = False
        self.skipped = SkippedRecords()

    def __contains__(self, index: int) -> bool:
        return index in self._entries

    def start(self) -> None:
        """Send requests from now on."""
        self.is_running = True
        self.on_leaders()
        for broker_id in {entry.leader[0] for entry in self._entries.values()}:
            self._wake(broker_id)

    def close(self) -> None:
        """Send no more requests, and replay nothing more."""
        self.is_running = False
        self._entries.clear()
        for leader in self._leaders.values():
            leader.close()

    def add(self, reading: Reading) -> None:
        """Read a metadata partition that has no reading here."""
        assert reading.index not in self._entries, reading.index
        self._entries[reading.index] = entry = _Entry(reading)
        entry.leader = self._leader_of(reading.index)
        self._wake(entry.leader[0])

    def remove(self, index: int) -> None:
        """End the reading of a metadata partition."""
        self._entries.pop(index, None)

    def has(self, reading: Reading) -> bool:
        """Return whether a reading was not ended."""
        entry = self._entries.get(reading.index)
        return entry is not None and entry.reading is reading

    def on_leaders(self) -> None:
        """Continue at new leaders at once."""
        changed: set[int] = set()
        for index, entry in self._entries.items():
            leader = self._leader_of(index)
            if leader != entry.leader:
                entry.leader = leader
                entry.failures, entry.retry_ms, entry.is_lost = 0, 0.0, False
                changed.add(leader[0])
        for broker_id in changed:
            self._wake(broker_id)

    def entries_of(self, broker_id: int) -> list[_Entry]:
        """Return the readings of the partitions that a broker leads."""
        return [entry for entry in self._entries.values() if entry.leader[0] == broker_id]

    def fail(self, entry: _Entry, broker_id: int, problem: object) -> None:
        """Delay the next request for a partition to its leader.

        Args:
            entry: the partition. If it has another leader by now, it is not delayed.
            broker_id: the broker that did not serve the request.
            problem: text for the log.
        """
        if entry.leader[0] != broker_id:
            return
        entry.failures += 1
        delay_ms = exponential_ms(_RETRY_FIRST_MS, _RETRY_MAX_MS, entry.failures)
        entry.retry_ms = self.clock.monotonic_ms() + delay_ms
        if entry.failures == _QUIET_FAILURES:
            _log.warning(
                "Cannot read the metadata of remote segments: topic=%s partition=%d leader=%d "
                "problem=%s",
                REMOTE_LOG_TOPIC,
                entry.reading.index,
                broker_id,
                problem,
            )

    def _leader_of(self, index: int) -> tuple[int, int]:
        found = self.cluster.partition(REMOTE_LOG_TOPIC, index)
        return _NO_LEADER if found is None else (found.leader, found.leader_epoch)

    def _wake(self, broker_id: int) -> None:
        """Continue at a leader."""
        if broker_id < 0 or not self.is_running:
            return
        leader = self._leaders.get(broker_id)
        if leader is None:
            channel = self._channels.open(broker_id, self._client_id)
            leader = self._leaders[broker_id] = _Leader(self, broker_id, channel)
        leader.wake()


class _Leader:
    """The requests to one leader."""

    __slots__ = ("_broker_id", "_channel", "_is_busy", "_pause", "_reader", "_requests")

    def __init__(self, reader: MetadataReader, broker_id: int, channel: LeaderChannel) -> None:
        self._reader = reader
        self._broker_id = broker_id
        self._channel = channel
        # Whether a request is in flight, or its response is being replayed.
        self._is_busy = False
        # The timer of the next request after failures or a pause.
        self._pause: Cancellable | None = None
        # Number of requests, for the order of partitions.
        self._requests = 0

    def close(self) -> None:
        self._end_pause()
        self._channel.close()

    def wake(self) -> None:
        """Send the next request, unless one is unfinished."""
        if self._is_busy or not self._reader.is_running:
            return
        self._end_pause()
        entries = self._reader.entries_of(self._broker_id)
        now_ms = self._reader.clock.monotonic_ms()
        due = [entry for entry in entries if entry.retry_ms <= now_ms]
        if not due:
            if entries:
                self._wake_later(min(entry.retry_ms for entry in entries) - now_ms)
            return
        # Another partition comes first each time, because a response may be full.
        self._requests += 1
        first = self._requests % len(due)
        self._send(due[first:] + due[:first])

    def _send(self, due: list[_Entry]) -> None:
        handle: Callable[[Any], None]
        concerned = due
        if without_end := [entry for entry in due if entry.reading.end_offset is None]:
            concerned = without_end
            request, version = self._list_offsets(without_end, LATEST)
            handle = partial(self._on_ends, without_end)
        elif lost := [entry for entry in due if entry.is_lost]:
            concerned = lost
            request, version = self._list_offsets(lost, EARLIEST)
            handle = partial(self._on_starts, lost)
        else:
            request, version = self._fetch(due)
            handle = partial(self._on_records, {entry: entry.reading.life for entry in due})
        self._is_busy = True

        def on_response(response: Any, error: NetworkError | None) -> None:
            self._is_busy = False
            if not self._reader.is_running:
                return
            if response is None:
                self._fail(concerned, error)
                self.wake()
            else:
                self._handle(handle, response, concerned)

        try:
            self._channel.send(request, version, on_response, TIMEOUT_MS)
        except Exception as error:  # noqa: BLE001 - only this request fails
            _log.exception("Cannot send a request: broker=%d", self._broker_id)
            self._is_busy = False
            self._fail(concerned, error)
            self.wake()

    def _handle(
        self, handle: Callable[[Any], None], response: Any, concerned: list[_Entry]
    ) -> None:
        """Handle a response. What cannot be read fails like the request."""
        problem: Exception
        try:
            handle(response)
        except AssertionError as violation:
            raise_later(self._reader.timer, violation)
            problem = violation
        except Exception as error:  # noqa: BLE001 - any response of any broker may cause it
            _log.exception("Unexpected error in a response: broker=%d", self._broker_id)
            problem = error
        else:
            return
        self._is_busy = False
        self._fail(concerned, problem)
        self.wake()

    # Requests.

    def _list_offsets(self, entries: list[_Entry], timestamp: int) -> tuple[Message, int]:
        asked = [
            ListOffsetsPartition(
                partition_index=entry.reading.index,
                current_leader_epoch=entry.leader[1],
                timestamp=timestamp,
            )
            for entry in entries
        ]
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[ListOffsetsTopic(name=REMOTE_LOG_TOPIC, partitions=asked)],
        )
        return request, _LIST_OFFSETS_VERSION

    def _fetch(self, entries: list[_Entry]) -> tuple[Message, int]:
        asked = [
            FetchPartition(
                partition=entry.reading.index,
                current_leader_epoch=entry.leader[1],
                fetch_offset=entry.reading.next_offset,
                partition_max_bytes=_BYTES_MAX,
            )
            for entry in entries
        ]
        topic_id = self._reader.cluster.topic_id(REMOTE_LOG_TOPIC) or bytes(16)
        request = FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=self._reader.settings.max_wait_ms,
            min_bytes=1,
            max_bytes=_BYTES_MAX,
            topics=[FetchTopic(topic=REMOTE_LOG_TOPIC, topic_id=topic_id, partitions=asked)],
        )
        return request, _FETCH_VERSION

    # Responses.

    def _on_ends(self, entries: list[_Entry], response: ListOffsetsResponse) -> None:
        for entry, offset in self._offsets(entries, response):
            entry.reading.end_offset = offset
            entry.reading.on_progress()
        self.wake()

    def _on_starts(self, entries: list[_Entry], response: ListOffsetsResponse) -> None:
        for entry, start in self._offsets(entries, response):
            entry.is_lost = False
            reading = entry.reading
            _log.warning(
                "The leader lacks metadata of remote segments: partition=%d offset=%d log_start=%d",
                reading.index,
                reading.next_offset,
                start,
            )
            if start > reading.next_offset:
                # The retention of the topic, or a client, has deleted the oldest events.
                reading.next_offset = start
                reading.on_progress()
            else:
                # The log was truncated or replaced. Events that were read may not exist any more.
                reading.start_at(start)
        self.wake()

    def _offsets(
        self, entries: list[_Entry], response: ListOffsetsResponse
    ) -> Iterator[tuple[_Entry, int]]:
        """Yield the offsets in a response, and delay the other partitions."""
        found = {
            each.partition_index: each for topic in response.topics for each in topic.partitions
        }
        for entry in entries:
            each = found.get(entry.reading.index)
            if each is None or each.error_code != ErrorCode.NONE or each.offset < 0:
                self._fail([entry], "no offset" if each is None else _name(each.error_code))
            elif self._reader.has(entry.reading):
                entry.failures = 0
                yield entry, each.offset

    def _on_records(self, lives: dict[_Entry, int], response: FetchResponse) -> None:
        if response.error_code != ErrorCode.NONE:
            self._fail(list(lives), _name(response.error_code))
            self.wake()
            return
        found = {
            each.partition_index: each for topic in response.responses for each in topic.partitions
        }
        contents: list[tuple[_Entry, int, bytes]] = []
        for entry, life in lives.items():
            each = found.get(entry.reading.index)
            if each is None:
                self._fail([entry], "the response lacks the partition")
                continue
            if each.error_code != ErrorCode.NONE:
                self._on_error(entry, each)
                continue
            entry.failures = 0
            records = each.records
            if isinstance(records, bytes | bytearray | memoryview) and records:
                # Copied, because the response is invalid after this call.
                contents.append((entry, life, bytes(records)))
        if contents:
            self._is_busy = True
            self._reader.steps.submit(self, self._replay(contents), self._on_replayed)
        else:
            self._wake_later(_PAUSE_MS)

    def _on_error(self, entry: _Entry, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            entry.is_lost = entry.leader[0] == self._broker_id
        self._fail([entry], _name(data.error_code))

    def _replay(
        self, contents: list[tuple[_Entry, int, bytes]]
    ) -> Generator[OffLoop | None, Any, bool]:
        """Replay the events of a response. Return whether any partition has moved."""
        reader, has_moved = self._reader, False
        for entry, life, content in contents:
            reading = entry.reading
            before = reading.next_offset
            try:
                yield from self._replay_one(reading, life, content)
            except CorruptBatchError as error:
                self._fail([entry], error)
            except AssertionError as violation:
                raise_later(reader.timer, violation)
                self._fail([entry], violation)
            except Exception as error:  # noqa: BLE001 - the other partitions are still read
                _log.exception("Unexpected error in a replay: partition=%d", reading.index)
                self._fail([entry], error)
            has_moved = has_moved or reading.life != life or reading.next_offset > before
        return has_moved

    def _replay_one(
        self, reading: Reading, life: int, content: bytes
    ) -> Generator[OffLoop | None, Any, None]:
        """Replay the events of one partition, until its reading ends or begins again."""
        steps = replay(reading.index, content, reading, self._reader.skipped)
        sent: Any = None
        failure: Exception | None = None
        while self._reader.has(reading) and reading.life == life:
            try:
                requested = steps.send(sent) if failure is None else steps.throw(failure)
            except StopIteration:
                reading.on_progress()
                return
            if requested is None:
                reading.on_progress()
            sent = failure = None
            try:
                sent = yield requested
            except Exception as error:  # noqa: BLE001 - the error of a call belongs to its batch
                failure = error
        steps.close()

    def _on_replayed(self, has_moved: bool) -> None:
        self._is_busy = False
        if has_moved:
            self.wake()
        else:
            self._wake_later(_PAUSE_MS)

    # Delays.

    def _fail(self, entries: list[_Entry], problem: object) -> None:
        for entry in entries:
            self._reader.fail(entry, self._broker_id, problem)

    def _wake_later(self, delay_ms: float) -> None:
        self._end_pause()
        self._pause = self._reader.timer.call_later(max(1.0, delay_ms), self.wake)

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None


def _name(code: int) -> str:
    return ErrorCode.of(code).name
