"""The steps of `barnabas remote restore`: copy segments, write their events, and adopt them.

Each step can be repeated. The ids of the copies follow from those of the originals, so a restore
that was interrupted finds in the store what it has copied. The config `barnabas.remote.restore` of
the new topic tells which step was reached.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from barnabas.cli.admin.transactions import open_transactions
from barnabas.client.admin.transactions import AbortableTransaction
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.runtime.executor import results_of
from barnabas.runtime.spool import SpoolError
from barnabas.server.remote.metadata_topic import metadata_partition
from barnabas.storage.config import RESTORE, RESTORE_ADOPTING, RESTORE_COPYING, RESTORE_FINISHING
from barnabas.storage.remote.remote_storage import SegmentState
from barnabas.storage.remote.segment_rewrite import (
    restored_files,
    restored_segment,
    rewritten_log,
)
from barnabas.storage.remote.segment_states import started_record, update_record
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.cli.remote.restore_plan import PartitionPlan
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.facade import Client
    from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorage

# Segments that are copied at a time.
_COPIES = 4
_EVENT_VERSION = 0
_POLL_S = 0.3
# How long the command waits for a step of the brokers without any progress.
_PATIENCE_S = 180.0


class RestoreError(Exception):
    """The restore cannot go on; the message says what to do. The command can be repeated."""


class RestoredTopic(NamedTuple):
    """The topic that is being made."""

    name: str
    topic_id: bytes
    # One of RESTORE_PHASES.
    phase: str


class _Copy(NamedTuple):
    """A segment and its copy in the new topic."""

    original: RemoteSegment
    copy: RemoteSegment
    # The first restored offset of the partition.
    log_start_offset: int


class Restoration:
    """Makes one topic from the segments that a plan has chosen."""

    def __init__(
        self,
        client: Client,
        stores: tuple[RemoteStorage, RemoteStorage],
        topic: RestoredTopic,
        plans: Sequence[PartitionPlan],
    ) -> None:
        """Create; nothing is changed yet.

        Args:
            client: the client of the command.
            stores: the store of the lost cluster, and that of the new one.
            topic: the new topic, which exists.
            plans: of all partitions that have segments.
        """
        self._client = client
        self._source, self._target = stores
        self._topic = topic
        self._plans = plans
        # Number of segments that were copied, and that an earlier run had copied.
        self.copied = self.found = 0

    def run(self, advance: Callable[[int], None]) -> int:
        """Do all steps that remain.

        Args:
            advance: called with the number of bytes that are restored.

        Returns:
            The number of transactions that were open at the end of a partition, and were aborted.

        Raises:
            RestoreError: a step failed, or brokers do not do their part.
            RemoteStorageError: a store failed, or a segment is damaged.
            ClientError: the cluster refused a call.
        """
        if self._topic.phase == RESTORE_COPYING:
            self._copy_all(advance)
            self._set_phase(RESTORE_ADOPTING)
        if self._topic.phase != RESTORE_FINISHING:
            self._await_adopted()
            self._set_phase(RESTORE_FINISHING)
        aborted = self._abort_transactions()
        self._set_phase(None)
        return aborted

    def _set_phase(self, phase: str | None) -> None:
        self._client.alter_topic_configs(self._topic.name, {RESTORE: phase})
        if phase is not None:
            self._topic = self._topic._replace(phase=phase)

    # Copies and events.

    def _copy_all(self, advance: Callable[[int], None]) -> None:
        infos = self._partitions()
        copies = [each for plan in self._plans for each in self._copies_of(plan, infos)]
        stored = self._stored({each.copy.id for each in copies})
        publisher = _EventPublisher(self._client, self._topic)
        # First, so that the deletion of an unfinished topic deletes the objects too.
        publisher.start([each.copy for each in copies])
        works = (partial(self._copy, each, stored, advance) for each in copies)
        for done, is_new in results_of(works, _COPIES):
            publisher.finish(done)
            self.copied += is_new
            self.found += not is_new
        publisher.close()

    def _copies_of(
        self, plan: PartitionPlan, infos: Mapping[int, PartitionInfo]
    ) -> Iterator[_Copy]:
        now_ms = int(time.time() * 1000)
        writer = (max(0, infos[plan.partition].leader), now_ms)
        for segment in plan.segments:
            copy = restored_segment(segment, self._topic.name, self._topic.topic_id, writer)
            yield _Copy(segment, copy, plan.log_start_offset)

    def _stored(self, planned: set[bytes]) -> dict[bytes, RemoteSegment]:
        """Return the segments that an earlier run has copied, by id."""
        found: dict[bytes, RemoteSegment] = {}
        for each in self._target.list_segments(self._topic.name):
            segment = each.segment
            if segment.topic_id != self._topic.topic_id:
                continue
            if segment.id not in planned:
                raise RestoreError(
                    f"the topic {self._topic.name} is being restored from other segments, such as "
                    f"{each.name}: delete it and begin anew, or repeat the command as it was"
                )
            if each.is_whole:
                found[segment.id] = segment
        return found

    def _copy(
        self,
        work: _Copy,
        stored: Mapping[bytes, RemoteSegment],
        advance: Callable[[int], None],
    ) -> tuple[RemoteSegment, bool]:
        """Copy one segment, unless it is there; runs on a thread.

        Returns:
            The finished copy, and whether it is new.
        """
        original, copy = work.original, work.copy
        known = stored.get(copy.id)
        if known is not None:
            advance(original.size)
            return _finished(copy, known.custom), False
        indexes = self._source.read_indexes(original)
        try:
            with tempfile.NamedTemporaryFile(prefix="barnabas-restore-") as file:
                for piece in rewritten_log(original, partial(self._source.read, original)):
                    file.write(piece)
                    advance(len(piece))
                file.flush()
                files = restored_files(indexes, file.name, original.size, work.log_start_offset)
                custom = self._target.copy_segment(copy, files)
        except OSError as error:
            raise SpoolError(
                f"a segment of {original.size} bytes cannot be kept in {tempfile.gettempdir()}: "
                f"{error}; free space there, or name another directory by TMPDIR"
            ) from error
        return _finished(copy, custom), True

    # Adoption.

    def _partitions(self) -> dict[int, PartitionInfo]:
        name = self._topic.name
        return self._client.describe_topics([name])[name].partitions

    def _await_adopted(self) -> None:
        """Wait until the logs of all in-sync replicas begin behind the segments."""
        waiting = {plan.partition: plan for plan in self._plans}
        last_progress = time.monotonic()
        while True:
            infos = self._partitions()
            ready = [each for each in waiting.values() if self._has_adopted(each, infos)]
            for plan in ready:
                del waiting[plan.partition]
            if not waiting:
                return
            if ready:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > _PATIENCE_S:
                raise RestoreError(
                    f"the logs of partitions {', '.join(map(str, waiting))} do not begin behind "
                    f"their segments since {_PATIENCE_S:.0f} s: the logs of their brokers tell why "
                    "(`adopted`); then repeat this command"
                )
            time.sleep(_POLL_S)

    def _has_adopted(self, plan: PartitionPlan, infos: Mapping[int, PartitionInfo]) -> bool:
        info = infos.get(plan.partition)
        if info is None or info.leader < 0:
            return False
        key = TopicPartition(self._topic.name, plan.partition)
        ends = self._replica_offsets({*info.isr, info.leader}, key, "latest")
        starts = self._replica_offsets({*info.isr, info.leader}, key, "earliest")
        return ends == {plan.log_end_offset} and starts == {plan.log_start_offset}

    def _replica_offsets(self, nodes: set[int], key: TopicPartition, spec: str) -> set[int]:
        """Return the different offsets of replicas; -1 for a replica that does not answer."""
        found = self._client.admin.list_replica_offsets({node: {key: spec} for node in nodes})
        offsets: set[int] = set()
        for listed in found.values():
            offset = listed if isinstance(listed, ClientError) else listed[key]
            offsets.add(-1 if isinstance(offset, ClientError) else offset.offset)
        return offsets

    def _abort_transactions(self) -> int:
        """Abort the transactions whose end is not in the store: their other records are lost."""
        keys = [TopicPartition(self._topic.name, plan.partition) for plan in self._plans]
        found, failed = open_transactions(self._client, keys)
        for key, error in failed.items():
            raise RestoreError(f"{key}: its open transactions are unknown: {error}; repeat this")
        for each in found:
            producer = each.producer
            self._client.admin.abort_transaction(
                AbortableTransaction(
                    each.partition,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                )
            )
        return len(found)


def _finished(segment: RemoteSegment, custom: bytes | None) -> RemoteSegment:
    return replace(
        segment,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        event_ms=int(time.time() * 1000),
        custom=custom,
    )


class _EventPublisher:
    """Writes the events of segments to `__remote_log_metadata`, as their brokers would."""

    def __init__(self, client: Client, topic: RestoredTopic) -> None:
        self._topic = topic
        self._count = _metadata_partitions(client)
        self._producer = client.producer()

    def start(self, segments: Sequence[RemoteSegment]) -> None:
        """Write that copies begin. Events that exist already have no effect."""
        for each in segments:
            self._send(each, encode_metadata_record(started_record(each), _EVENT_VERSION))
        self._producer.flush()

    def finish(self, segment: RemoteSegment) -> None:
        """Write that a copy is finished."""
        self._send(segment, encode_metadata_record(update_record(segment), _EVENT_VERSION))

    def close(self) -> None:
        """Wait until all events are written.

        Raises:
            ClientError: an event was not written.
        """
        self._producer.flush()
        self._producer.close()

    def _send(self, segment: RemoteSegment, value: bytes) -> None:
        where = TopicIdPartition(segment.topic_id, segment.topic, segment.partition)
        index = metadata_partition(where, self._count)
        self._producer.send(REMOTE_LOG_TOPIC, value, partition=index)


def _metadata_partitions(client: Client) -> int:
    """Return the number of metadata partitions, which the brokers create with the first topic."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return len(client.partitions_for([REMOTE_LOG_TOPIC])[REMOTE_LOG_TOPIC])
        except UnknownTopicError:
            if time.monotonic() > deadline:
                raise RestoreError(
                    f"the brokers do not create {REMOTE_LOG_TOPIC}: their logs tell why; "
                    "then repeat this command"
                ) from None
        time.sleep(_POLL_S)
