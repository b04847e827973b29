"""Appends of several Produce requests that arrived in one read of a connection.

A request that joins is not executed yet, so no log shows a part of it. `finish` appends the records
of all of them, with one write per partition, and then responds. The caller calls it before any
later request of the connection that could see the difference, and before the receive buffer is
reused: the records are views into it.

A request joins only if its append promises to be an ordinary one. All others are appended alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.record.batch import NO_PRODUCER_ID
from barnabas.replication.partition.leader_role import ACKS_ALL
from barnabas.replication.requests.delayed_produce import PendingAppend
from barnabas.replication.requests.replica_appends import VALID_ACKS, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.requests.delayed_produce import DelayedProduce
    from barnabas.replication.requests.replica_appends import ReplicaAppends
    from barnabas.runtime.clock import Clock
    from barnabas.storage.results import AppendInfo
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.storage.validation.batch_inspection import JoinedBatch

    Entry = tuple["_Request", JoinedBatch]

# Requests of one joint append. A connection may have more in flight, so that collecting requests
# does not pause it.
REQUESTS_MAX = 32


class Producer(Protocol):
    """A Produce request that waits for its response."""

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Send the response."""
        ...

    def on_joint_append(self, now_ms: float, must_wait: bool) -> None:
        """Count the time until `now_ms`. `on_appended` follows, now or after the wait."""
        ...

    def wait_for(self, operation: DelayedProduce) -> None:
        """Wait for an append that is not acknowledged yet."""
        ...


class _Request(msgspec.Struct):
    """One request of a joint append."""

    timeout_ms: int
    required_acks: int
    producer: Producer
    # One result for each partition. The append sets them.
    results: dict[TopicPartition, ProduceResult]
    # Appends that are in the log and not yet acknowledged.
    pending: list[PendingAppend]


class JointAppends:
    """The requests that have joined, and their append."""

    __slots__ = ("_appends", "_clock", "_entries", "_online", "_requests")

    def __init__(self, appends: ReplicaAppends, clock: Clock) -> None:
        self._appends = appends
        self._online = appends.online
        self._clock = clock
        # In the order of their arrival; at most REQUESTS_MAX. Empty between the reads of
        # connections.
        self._requests: list[_Request] = []
        # The records of these requests by partition, in the order of the requests.
        self._entries: dict[Partition, list[Entry]] = {}

    def join(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        producer: Producer,
    ) -> bool:
        """Add a client's request to the next joint append.

        Args:
            timeout_ms: limit of the wait for acks=all.
            required_acks: 0, 1 or -1.
            entries: one writable batch each, valid until `finish` returns.
            producer: gets the results from `finish`.

        Returns:
            Whether the request has joined. If not, the caller appends it after `finish`.
        """
        if required_acks not in VALID_ACKS:
            return False
        if len(self._requests) >= REQUESTS_MAX:
            self.finish()
        now_ms = self._clock.wall_ms()
        validated: list[tuple[Partition, JoinedBatch]] = []
        for key, records in entries.items():
            partition = self._online.get(key)
            leader = None if partition is None else partition.leader
            if partition is None or leader is None:
                return False
            if required_acks == ACKS_ALL and leader.is_under_min_isr:
                return False
            header = partition.log.validate_for_joint_append(records, now_ms)
            if header is None:
                return False
            # A rejected sequence would close the connection, and no later request may be executed.
            if not required_acks and header.producer_id != NO_PRODUCER_ID:
                return False
            validated.append((partition, (records, header)))
        request = _Request(timeout_ms, required_acks, producer, {}, [])
        self._requests.append(request)
        for partition, batch in validated:
            self._entries.setdefault(partition, []).append((request, batch))
        return True

    def finish(self) -> None:
        """Append the records of all requests that have joined, and respond in their order."""
        requests, self._requests = self._requests, []
        entries, self._entries = self._entries, {}
        now_ms = self._clock.wall_ms()
        appended: list[tuple[Partition, list[AppendInfo]]] = []
        for partition, part in entries.items():
            infos = self._append(partition, part, now_ms)
            if infos:
                appended.append((partition, infos))
        # Send these responses first: the requests that are woken do not depend on them.
        appended_ms = self._clock.monotonic_ms()
        for request in requests:
            if not request.pending:
                request.producer.on_joint_append(appended_ms, False)
                request.producer.on_appended(request.results)
        self._appends.after_append(appended)
        for request in requests:
            if request.pending:
                request.producer.on_joint_append(appended_ms, True)
                operation = self._appends.park(
                    request.timeout_ms,
                    request.required_acks,
                    request.pending,
                    request.results,
                    request.producer.on_appended,
                )
                request.producer.wait_for(operation)

    def _append(self, partition: Partition, part: list[Entry], now_ms: int) -> list[AppendInfo]:
        """Append to one partition, and set the results. Return what was appended."""
        appends, key, leader = self._appends, partition.topic_partition, partition.leader
        assert leader is not None, f"{key}: a role changes by metadata only"
        outcomes: Sequence[AppendInfo | Exception]
        try:
            outcomes = leader.append_jointly([batch for _, batch in part], now_ms)
        except Exception as error:  # noqa: BLE001 - the other partitions are still handled
            outcomes = [error] * len(part)
        infos: list[AppendInfo] = []
        for (request, (records, _)), info in zip(part, outcomes, strict=True):
            if isinstance(info, Exception):
                request.results[key] = appends.failed(key, info, records.nbytes)
                continue
            infos.append(info)
            result = request.results[key] = result_of(info)
            if leader.must_wait(request.required_acks, info):
                request.pending.append(PendingAppend(key, info.last_offset + 1, result))
        return infos
