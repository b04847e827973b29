"""A coordinator that is not the group coordinator: its own topic, record types, state and timers.

It shows the classes that a new coordinator has to provide. Clients begin transactions by id, and a
timer ends a transaction that takes too long.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord, CoordinatorResult
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
from barnabas.coordinator.runtime.shard import Shard, ShardContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
from barnabas.protocol.records.coordinator_logs import TransactionLogKey, TransactionLogValue
from barnabas.protocol.records.topics import PartitionRecord, TopicRecord
from unit.replication.replica_set import LEADER, ReplicaSet

TOPIC = "__transactions"
TIMEOUT_MS = 1_000
FLEXIBLE_VERSION = 1


class TransactionShard(Shard):
    """Open transactions by id, with the coordinator epoch that began them."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.open: dict[str, int] = {}
        self.pending: deque[tuple[int, str, int | None]] = deque()
        # End offset of the replayed records.
        self.replayed_end = 0

    # Requests and timers: they return records.

    def begin(self, transactional_id: str) -> CoordinatorResult[str]:
        self.context.timers.schedule(
            transactional_id, TIMEOUT_MS, partial(self.end, transactional_id)
        )
        value = TransactionLogValue(
            producer_id=1,
            producer_epoch=self.context.leader_epoch,
            transaction_timeout_ms=TIMEOUT_MS,
            transaction_status=1,
            transaction_partitions=[],
            transaction_last_update_timestamp_ms=0,
            transaction_start_timestamp_ms=0,
        )
        key = TransactionLogKey(transactional_id=transactional_id)
        record = CoordinatorRecord.of(key, value, FLEXIBLE_VERSION)
        return CoordinatorResult(f"began {transactional_id}", [record])

    def end(self, transactional_id: str) -> CoordinatorResult[None]:
        key = TransactionLogKey(transactional_id=transactional_id)
        return CoordinatorResult(None, [CoordinatorRecord.of(key, None)])

    # The interface of the runtime.

    def replay(self, offset: int, key: bytes, value: bytes | None, _producer_id: int = -1) -> None:
        self.replayed_end = offset + 1
        where = decode_coordinator_key(TransactionLogKey, key)
        epoch = None
        if value is not None:
            epoch = decode_coordinator_value(TransactionLogValue, value).producer_epoch
        self.pending.append((offset, where.transactional_id, epoch))

    def replay_end_marker(self, *_: object) -> None:
        raise AssertionError("no client writes transactions into this topic")

    def commit(self, end_offset: int) -> None:
        # The log of this broker alone is committed before the append returns.
        assert end_offset <= self.replayed_end
        while self.pending and self.pending[0][0] < end_offset:
            _, transactional_id, epoch = self.pending.popleft()
            if epoch is None:
                del self.open[transactional_id]
            else:
                self.open[transactional_id] = epoch

    def on_loaded(self) -> None:
        for transactional_id in self.open:
            self.context.timers.schedule(
                transactional_id, TIMEOUT_MS, partial(self.end, transactional_id)
            )

    def on_unloaded(self) -> None:
        self.open.clear()


class TransactionWorld:
    """One broker that leads the only partition of the coordinator's topic."""

    def __init__(self) -> None:
        self.replicas = ReplicaSet()
        self.replicas.replay(
            TopicRecord(name=TOPIC, topic_id=b"transactions-id."),
            PartitionRecord(
                partition_id=0,
                topic_id=b"transactions-id.",
                replicas=[LEADER],
                isr=[LEADER],
                removing_replicas=[],
                adding_replicas=[],
                leader=LEADER,
                leader_epoch=0,
                partition_epoch=0,
                directories=[],
            ),
        )
        self.responses: list[tuple[str | None, ErrorCode]] = []
        self.start(leader_epoch=0)

    def start(self, leader_epoch: int) -> None:
        world = self.replicas.runtime
        dependencies = RuntimeDependencies(
            log=self.replicas.manager,
            clock=world.clock,
            timer=world.timer,
            wheel=self.replicas.wheel,
            executor=world.executor,
        )
        self.runtime = CoordinatorRuntime(TOPIC, dependencies, TransactionShard)
        self.runtime.partition_count = 1
        self.runtime.on_elected(0, leader_epoch)
        self.run_for(50)

    def run_for(self, ms: float) -> None:
        self.replicas.world.run_for(ms)

    def begin(self, transactional_id: str) -> None:
        self.runtime.write(
            transactional_id,
            lambda shard: shard.begin(transactional_id),
            lambda response, error: self.responses.append((response, error)),
        )

    def open(self) -> dict[str, int] | ErrorCode:
        return self.runtime.read("any", lambda shard: dict(shard.open))


def test_a_response_follows_the_commit_of_its_record() -> None:
    world = TransactionWorld()
    world.begin("t")
    assert world.responses == [("began t", ErrorCode.NONE)]
    assert world.open() == {"t": 0}


def test_a_timer_writes_records_too() -> None:
    world = TransactionWorld()
    world.begin("t")
    world.run_for(TIMEOUT_MS + 10)
    assert world.open() == {}
    assert world.replicas.logs.logs[(TOPIC, 0)].log_end_offset == 2


def test_the_next_leader_epoch_replays_the_records_and_starts_the_timers() -> None:
    world = TransactionWorld()
    world.begin("t")
    world.runtime.on_resigned(0)
    assert world.open() is ErrorCode.NOT_COORDINATOR
    world.start(leader_epoch=3)
    world.begin("u")
    assert world.open() == {"t": 0, "u": 3}
    world.run_for(TIMEOUT_MS + 10)
    assert world.open() == {}


def test_a_coordinator_whose_topic_does_not_exist_refuses_requests() -> None:
    world = TransactionWorld()
    world.runtime.partition_count = 0
    world.begin("t")
    assert world.responses == [(None, ErrorCode.NOT_COORDINATOR)]
