"""The segments of the user partitions of this broker, from `__remote_log_metadata` (KIP-405).

Each metadata partition has the events of many user partitions. Its *tail* reads it as long as this
broker has one of them. A user partition that is added before the tail has read anything is read by
the tail. One that is added later is first read by a *catch-up*, from the start of the metadata
partition to the offset of the tail. From there on, the tail reads its events, too. Kafka reads the
whole metadata partition again instead, for all user partitions.

A user partition is ready when the tail has reached the end that the metadata partition had when the
tail began. If the metadata partition loses records, everything begins again.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.server.remote.metadata_events import PartitionKey
from barnabas.server.remote.metadata_reader import MetadataReader, ReaderSettings
from barnabas.storage.remote.segment_states import RemoteLog
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from barnabas.replication.remote.interfaces import SegmentRecord
    from barnabas.server.peers.peer_queues import PeerDependencies
    from barnabas.server.remote.metadata_reader import StepQueue
    from barnabas.storage.remote.segment_states import Applied

_log = logging.getLogger(__name__)

_TAIL = ReaderSettings("remote-log-metadata", max_wait_ms=500)
_SCANS = ReaderSettings("remote-log-metadata-scan", max_wait_ms=0)
# Catch-ups and other scans at a time. Each holds a response of 1 MiB.
_SCANS_MAX = 2


class _User:
    """A user partition of this broker."""

    __slots__ = ("log", "on_ready", "where")

    def __init__(self, where: TopicIdPartition) -> None:
        self.where = where
        self.log = RemoteLog(where)
        # Called once when the partition is ready.
        self.on_ready: list[Callable[[], None]] = []


class _Users:
    """The user partitions that one reading serves. Common to tails and catch-ups."""

    __slots__ = ("_tail", "users")

    def __init__(self, tail: MetadataTail) -> None:
        self._tail = tail
        self.users: dict[PartitionKey, _User] = {}

    def wants(self, key: PartitionKey) -> bool:
        return key in self.users

    def on_event(self, key: PartitionKey, event: SegmentRecord, value: bytes) -> None:
        self._tail.apply(self.users[key], event, value)


class _PartitionTail(_Users):
    """Reads one metadata partition without an end. It implements `Reading`."""

    __slots__ = ("end_offset", "has_read", "index", "is_ready", "life", "next_offset")

    def __init__(self, tail: MetadataTail, index: int) -> None:
        super().__init__(tail)
        self.index = index
        self.next_offset = 0
        self.end_offset: int | None = None
        self.life = 0
        # Whether `next_offset` has reached `end_offset` in this life. Then it stays ready.
        self.is_ready = False
        # Whether events may have been read in this life.
        self.has_read = False

    @property
    def is_ended(self) -> bool:
        return False

    def start_at(self, offset: int) -> None:
        self.life += 1
        self.next_offset = offset
        self.end_offset = None
        self.is_ready = self.has_read = False
        self._tail.on_restart(self)

    def on_progress(self) -> None:
        self.has_read = self.has_read or self.next_offset > 0
        if self.is_ready or self.end_offset is None or self.next_offset < self.end_offset:
            return
        self.is_ready = True
        self._tail.report_ready(self.users.values())


class _CatchUp(_Users):
    """Reads one metadata partition up to the offset of its tail. It implements `Reading`."""

    __slots__ = ("_of", "end_offset", "index", "life", "next_offset")

    def __init__(self, tail: MetadataTail, of: _PartitionTail) -> None:
        super().__init__(tail)
        self._of = of
        self.index = of.index
        self.next_offset = 0
        # The tail decides where the catch-up ends.
        self.end_offset: int | None = 0
        self.life = 0

    @property
    def is_ended(self) -> bool:
        return self.next_offset >= self._of.next_offset

    def start_at(self, offset: int) -> None:
        # The tail meets the same loss, and then begins again with these user partitions.
        self.life += 1
        self.next_offset = offset
        self._tail.reset(self.users.values())

    def on_progress(self) -> None:
        if self.is_ended:
            self._of.users.update(self.users)
            self._tail.end_scan(self)
            if self._of.is_ready:
                self._tail.report_ready(self.users.values())


class _DeletedScan:
    """Finds segments of user partitions whose topics do not exist. It implements `Reading`."""

    __slots__ = (
        "_exists",
        "_logs",
        "_on_found",
        "_tail",
        "end_offset",
        "index",
        "life",
        "next_offset",
    )

    def __init__(
        self,
        tail: MetadataTail,
        index: int,
        exists: Callable[[bytes], bool],
        on_found: Callable[[list[TopicIdPartition]], None],
    ) -> None:
        self._tail = tail
        self._exists = exists
        self._on_found = on_found
        self.index = index
        self.next_offset = 0
        self.end_offset: int | None = None
        self.life = 0
        # The user partitions with segments.
        self._logs: dict[PartitionKey, tuple[TopicIdPartition, RemoteLog]] = {}

    @property
    def is_ended(self) -> bool:
        return self.end_offset is not None and self.next_offset >= self.end_offset

    def wants(self, key: PartitionKey) -> bool:
        return not self._exists(key.topic_id)

    def on_event(self, key: PartitionKey, event: SegmentRecord, value: bytes) -> None:
        del value
        known = self._logs.get(key)
        if known is None:
            name = event.remote_log_segment_id.topic_id_partition.name
            where = TopicIdPartition(key.topic_id, name, key.partition)
            known = self._logs[key] = where, RemoteLog(where)
        known[1].apply(event)
        if not known[1].count:
            del self._logs[key]

    def start_at(self, offset: int) -> None:
        self.life += 1
        self.next_offset = offset
        self.end_offset = None
        self._logs.clear()

    def on_progress(self) -> None:
        if self.is_ended:
            self._tail.end_scan(self)
            found = [
                where for key, (where, _) in self._logs.items() if not self._exists(key.topic_id)
            ]
            self._tail.timer.call_soon(partial(self._on_found, found))


class MetadataTail:
    """Knows the segments of the user partitions that are added to it."""

    def __init__(
        self,
        peers: PeerDependencies,
        steps: StepQueue,
        on_applied: Callable[[bytes, Applied], None],
    ) -> None:
        """Create without user partitions.

        Args:
            peers: the leaders, and channels to all brokers including this one.
            steps: runs the replay of events.
            on_applied: gets each event of a user partition as bytes, and its result.
        """
        self._clock, self.timer, self._cluster = peers.clock, peers.timer, peers.cluster
        self._on_applied = on_applied
        self._tails: dict[int, _PartitionTail] = {}
        self._tail_reader = MetadataReader(_TAIL, peers, steps)
        self._scan_reader = MetadataReader(_SCANS, peers, steps)
        # Scans that run, and those that wait, in first-in-first-out order.
        self._running: list[_CatchUp | _DeletedScan] = []
        self._waiting: list[_CatchUp | _DeletedScan] = []
        # The topic id of the metadata that was read. None before the first image with the topic.
        self._topic_id: bytes | None = None
        # Number of segments of all user partitions.
        self.segment_count = 0
        # Number of events that did not follow from the state of their segment. Only increases.
        self.dropped = 0

    @property
    def skipped(self) -> int:
        """Number of records that are no events. Only increases."""
        return self._tail_reader.skipped.count

    def start(self) -> None:
        """Read from now on."""
        self._topic_id = self._cluster.topic_id(REMOTE_LOG_TOPIC)
        self._tail_reader.start()
        self._scan_reader.start()

    def close(self) -> None:
        """Read nothing more. Callbacks are dropped."""
        self._tail_reader.close()
        self._scan_reader.close()
        self._tails.clear()
        self._running.clear()
        self._waiting.clear()

    def on_image(self) -> None:
        """Continue with the leaders of the latest image."""
        topic_id = self._cluster.topic_id(REMOTE_LOG_TOPIC)
        if self._topic_id is not None and topic_id not in (None, self._topic_id):
            _log.error(
                "%s was deleted and created again: all segments are read again", REMOTE_LOG_TOPIC
            )
            for tail in list(self._tails.values()):
                tail.start_at(0)
            for scan in (*self._running, *self._waiting):
                scan.start_at(0)
        self._topic_id = topic_id or self._topic_id
        self._tail_reader.on_leaders()
        self._scan_reader.on_leaders()

    # User partitions.

    def assign(self, index: int, where: TopicIdPartition) -> None:
        """Read the events of a user partition. No effect if it is already assigned."""
        key = _key(where)
        tail = self._tails.get(index)
        if tail is None:
            tail = self._tails[index] = _PartitionTail(self, index)
        if self._find(tail, key) is not None:
            return
        if not tail.has_read:
            tail.users[key] = _User(where)
        else:
            self._waiting_catch_up(tail).users[key] = _User(where)
        if index not in self._tail_reader:
            self._tail_reader.add(tail)
        self._start_scans()

    def unassign(self, index: int, where: TopicIdPartition) -> None:
        """Forget a user partition, with its callbacks."""
        tail = self._tails.get(index)
        if tail is None:
            return
        key = _key(where)
        catch_ups = self._catch_ups(tail)
        for users in (tail.users, *(each.users for each in catch_ups)):
            user = users.pop(key, None)
            if user is not None:
                self.segment_count -= user.log.count
        for each in catch_ups:
            if not each.users:
                self.end_scan(each)
        if not tail.users and not self._catch_ups(tail):
            del self._tails[index]
            self._tail_reader.remove(index)

    def log_of(self, index: int, where: TopicIdPartition) -> RemoteLog | None:
        """Return the segments of a user partition; None if it is not ready."""
        tail = self._tails.get(index)
        if tail is None or not tail.is_ready:
            return None
        user = tail.users.get(_key(where))
        return None if user is None else user.log

    def on_ready(self, index: int, where: TopicIdPartition, call: Callable[[], None]) -> None:
        """Call back when an assigned user partition is ready; at once if it is."""
        tail = self._tails.get(index)
        user = None if tail is None else self._find(tail, _key(where))
        if user is None:
            return
        if self.log_of(index, where) is not None:
            call()
        else:
            user.on_ready.append(call)

    def find_deleted(
        self,
        index: int,
        exists: Callable[[bytes], bool],
        on_found: Callable[[list[TopicIdPartition]], None],
    ) -> None:
        """Read a metadata partition once, for segments of topics that do not exist.

        Args:
            index: the metadata partition.
            exists: whether there is a topic with this id. It is called for each event.
            on_found: gets the user partitions; it is called once, or never after `close`.
        """
        self._waiting.append(_DeletedScan(self, index, exists, on_found))
        self._start_scans()

    # For the readings.

    def apply(self, user: _User, event: SegmentRecord, value: bytes) -> None:
        """Apply an event to a user partition."""
        before = user.log.count
        applied = user.log.apply(event)
        self.segment_count += user.log.count - before
        if not applied.was_allowed:
            self.dropped += 1
            _log.debug(
                "Event of a segment dropped: partition=%s segment=%s state=%d",
                user.where.topic_partition,
                event.remote_log_segment_id.id.hex(),
                event.remote_log_segment_state,
            )
        self._on_applied(value, applied)

    def reset(self, users: Iterable[_User]) -> None:
        """Forget the segments of user partitions, whose events are read again."""
        for user in users:
            self.segment_count -= user.log.count
            user.log = RemoteLog(user.where)

    def on_restart(self, tail: _PartitionTail) -> None:
        """Let a tail that begins again also read for the user partitions that catch up."""
        for catch_up in self._catch_ups(tail):
            tail.users.update(catch_up.users)
            self.end_scan(catch_up)
        self.reset(tail.users.values())

    def report_ready(self, users: Iterable[_User]) -> None:
        """Call back for user partitions that are ready, in slices."""
        ready = [user for user in users if user.on_ready]
        if ready:
            self.timer.call_soon(partial(self._call_back, ready))

    def end_scan(self, scan: _CatchUp | _DeletedScan) -> None:
        """End a scan, and begin the next one."""
        if scan in self._running:
            self._running.remove(scan)
            self._scan_reader.remove(scan.index)
        else:
            self._waiting.remove(scan)
        self._start_scans()

    def _call_back(self, users: list[_User]) -> None:
        run_in_slices(self._calls(users), self._clock, self.timer.call_soon, lambda _: None)

    def _calls(self, users: list[_User]) -> Generator[None, None, None]:
        for user in users:
            index = self._index_of(user)
            if index is None or self.log_of(index, user.where) is None:
                # Forgotten meanwhile, or being read again.
                continue
            calls, user.on_ready = user.on_ready, []
            for call in calls:
                try:
                    call()
                except AssertionError:
                    raise
                except Exception:  # noqa: BLE001 - the other partitions are still reported
                    _log.exception("Unexpected error: partition=%s", user.where.topic_partition)
                yield

    def _index_of(self, user: _User) -> int | None:
        key = _key(user.where)
        for index, tail in self._tails.items():
            if tail.users.get(key) is user:
                return index
        return None

    def _find(self, tail: _PartitionTail, key: PartitionKey) -> _User | None:
        for users in (tail.users, *(each.users for each in self._catch_ups(tail))):
            if key in users:
                return users[key]
        return None

    # Scans.

    def _catch_ups(self, tail: _PartitionTail) -> list[_CatchUp]:
        return [each for each in self._all_catch_ups() if each.index == tail.index]

    def _all_catch_ups(self) -> Iterator[_CatchUp]:
        for each in (*self._running, *self._waiting):
            if isinstance(each, _CatchUp):
                yield each

    def _waiting_catch_up(self, tail: _PartitionTail) -> _CatchUp:
        """Return the catch-up of a metadata partition that has not begun; create a missing one."""
        for each in self._waiting:
            if isinstance(each, _CatchUp) and each.index == tail.index:
                return each
        catch_up = _CatchUp(self, tail)
        self._waiting.append(catch_up)
        return catch_up

    def _start_scans(self) -> None:
        for scan in list(self._waiting):
            if len(self._running) >= _SCANS_MAX:
                return
            # One request cannot read a partition at two offsets.
            if scan.index not in self._scan_reader and scan in self._waiting:
                self._waiting.remove(scan)
                self._running.append(scan)
                self._scan_reader.add(scan)


def _key(where: TopicIdPartition) -> PartitionKey:
    return PartitionKey(where.topic_id, where.partition)
