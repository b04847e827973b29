"""Topic configs that change at runtime, and their effect on an existing topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import batches
from barnabas.record.builder import BatchBuilder
from barnabas.storage.config import TOPIC_CONFIGS
from barnabas.storage.topic_partition import TopicPartition
from unit.server.dispatch.sent_requests import alter, describe, fetch_request
from unit.server.simulated_broker import SimulatedBroker, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION = TopicPartition("t", 0)
HOUR_MS = 3_600_000
WORDS = b" ".join(b"word%d" % (number * number % 977) for number in range(3000))


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker(
        log_flush_scheduler_interval_ms="100",
        log_flush_interval_ms="9000000",
        log_retention_check_interval_ms="1000",
        log_initial_task_delay_ms="1",
    )
    made.make_topic("t")
    return made


def log_of(broker: SimulatedBroker) -> Any:
    return broker.node.broker.logs.logs[PARTITION]


def put(
    broker: SimulatedBroker, at: int | None = None, value: bytes = b"v", key: Any = b"k"
) -> Any:
    """Append one record to the topic, now if no time is said; the answer."""
    builder = BatchBuilder()
    builder.append(broker.host.clock.wall_ms() if at is None else at, key, value)
    request = produce_request("t", bytes(builder.build()))
    return broker.ask(request, 9).responses[0].partition_responses[0]


def error_of(broker: SimulatedBroker, **options: Any) -> ErrorCode:
    return ErrorCode(put(broker, **options).error_code)


def stored(broker: SimulatedBroker) -> bytes:
    answer = broker.ask(fetch_request(0, max_wait_ms=0, min_bytes=1), 11)
    return bytes(answer.responses[0].partitions[0].records)


def size_kept(broker: SimulatedBroker, codec: str) -> int:
    """How large compressible words are in the log."""
    assert alter(broker, TOPIC, "t", "compression.type", codec) == ErrorCode.NONE
    assert error_of(broker, value=WORDS) == ErrorCode.NONE
    size: int = log_of(broker).size
    return size


def segments(broker: SimulatedBroker) -> int:
    return len(list(log_of(broker).segments))


def compacts(broker: SimulatedBroker) -> bool:
    return error_of(broker, key=None) == ErrorCode.INVALID_RECORD


def is_gzipped(broker: SimulatedBroker) -> bool:
    assert error_of(broker) == ErrorCode.NONE
    *_, (_, header) = batches(stored(broker))
    return header.compression == 1


def takes_large(broker: SimulatedBroker) -> bool:
    return error_of(broker, value=bytes(3000)) == ErrorCode.NONE


def takes_packed(broker: SimulatedBroker) -> bool:
    builder = BatchBuilder(compression=1)
    builder.append(broker.host.clock.wall_ms(), b"k", bytes(3000))
    request = produce_request("t", bytes(builder.build()))
    answer = broker.ask(request, 9).responses[0].partition_responses[0]
    return bool(answer.error_code == ErrorCode.NONE)


def takes_time(offset_ms: int) -> Callable[[SimulatedBroker], bool]:
    def look(broker: SimulatedBroker) -> bool:
        at = broker.host.clock.wall_ms() + offset_ms
        return error_of(broker, at=at) == ErrorCode.NONE

    return look


def has_brokers_time(broker: SimulatedBroker) -> bool:
    return put(broker, at=5).log_append_time_ms > 5


def is_synced(broker: SimulatedBroker) -> bool:
    assert error_of(broker) == ErrorCode.NONE
    return bool(log_of(broker).recovery_point == log_of(broker).log_end_offset)


def is_synced_later(broker: SimulatedBroker) -> bool:
    assert error_of(broker) == ErrorCode.NONE
    broker.world.run_for(1000)
    return bool(log_of(broker).recovery_point == log_of(broker).log_end_offset)


def rolls_by_size(broker: SimulatedBroker) -> bool:
    for _ in range(3):
        assert error_of(broker, value=bytes(700_000)) == ErrorCode.NONE
    return segments(broker) > 1


def rolls_by_time(broker: SimulatedBroker) -> bool:
    now = broker.host.clock.wall_ms()
    assert error_of(broker, at=now - HOUR_MS) == ErrorCode.NONE
    assert error_of(broker, at=now) == ErrorCode.NONE
    return segments(broker) > 1


def keeps_old(broker: SimulatedBroker) -> bool:
    """Whether a record of an hour ago outlives the next look."""
    assert error_of(broker, at=broker.host.clock.wall_ms() - HOUR_MS) == ErrorCode.NONE
    broker.world.run_for(2500)
    return bool(log_of(broker).log_start_offset == 0)


def keeps_much(broker: SimulatedBroker) -> bool:
    for _ in range(3):
        assert error_of(broker, value=bytes(10_000)) == ErrorCode.NONE
        log_of(broker).roll()
    broker.world.run_for(2500)
    return bool(log_of(broker).log_start_offset == 0)


def of_log(attribute: str) -> Callable[[SimulatedBroker], Any]:
    """The configuration that the log uses; `tests/unit/storage` tests the effect."""
    return lambda broker: getattr(log_of(broker).config, attribute)


def elects_uncleanly(broker: SimulatedBroker) -> bool:
    controller = broker.node.controller.controller
    assert controller.image is not None
    return controller._controls.configs._topic_configs.has_unclean_election(controller.image, "t")


def throttles(side: str) -> Callable[[SimulatedBroker], bool]:
    """Whether that throttle counts the bytes of the partition's replica on broker 1."""

    def look(broker: SimulatedBroker) -> bool:
        throttle = getattr(broker.node.broker.replicas.throttles, side)
        counts: bool = throttle.is_throttled(PARTITION)
        return counts

    return look


# Key -> (value, observed function, its result before, and after).
EFFECTS: dict[str, tuple[str, Callable[[SimulatedBroker], Any], Any, Any]] = {
    "cleanup.policy": ("compact", compacts, False, True),
    "compression.type": ("gzip", is_gzipped, False, True),
    "delete.retention.ms": ("5", of_log("delete_retention_ms"), 24 * HOUR_MS, 5),
    "file.delete.delay.ms": ("5", of_log("file_delete_delay_ms"), 60_000, 5),
    "flush.messages": ("1", is_synced, False, True),
    "flush.ms": ("200", is_synced_later, False, True),
    "follower.replication.throttled.replicas": ("1:2,0:1", throttles("follower"), False, True),
    "leader.replication.throttled.replicas": ("*", throttles("leader"), False, True),
    "index.interval.bytes": ("5", of_log("index_interval_bytes"), 4096, 5),
    "local.retention.bytes": ("5", of_log("local_retention_bytes"), -2, 5),
    "local.retention.ms": ("5", of_log("local_retention_ms"), -2, 5),
    "max.compaction.lag.ms": ("5", of_log("max_compaction_lag_ms"), (1 << 63) - 1, 5),
    "max.decompressed.message.bytes": ("2000", takes_packed, True, False),
    "max.message.bytes": ("2000", takes_large, True, False),
    "message.downconversion.enable": (
        "false",
        of_log("message_downconversion_enable"),
        True,
        False,
    ),
    "message.timestamp.after.max.ms": ("1000", takes_time(60_000), True, False),
    "message.timestamp.before.max.ms": ("1000", takes_time(-60_000), True, False),
    "message.timestamp.type": ("LogAppendTime", has_brokers_time, False, True),
    "min.cleanable.dirty.ratio": ("0.25", of_log("min_cleanable_dirty_ratio"), 0.5, 0.25),
    "min.compaction.lag.ms": ("5", of_log("min_compaction_lag_ms"), 0, 5),
    "min.insync.replicas": ("2", of_log("min_insync_replicas"), 1, 2),
    "remote.copy.lag.bytes": ("5", of_log("remote_copy_lag_bytes"), -1, 5),
    "remote.copy.lag.ms": ("5", of_log("remote_copy_lag_ms"), 0, 5),
    "remote.log.copy.disable": ("true", of_log("remote_copy_disable"), False, True),
    "remote.log.delete.on.disable": ("true", of_log("remote_delete_on_disable"), False, True),
    "retention.bytes": ("5000", keeps_much, True, False),
    "retention.ms": ("5000", keeps_old, True, False),
    "segment.bytes": ("1048576", rolls_by_size, False, True),
    "segment.index.bytes": ("800", of_log("segment_index_bytes"), 10 << 20, 800),
    "segment.jitter.ms": ("5", of_log("segment_jitter_ms"), 0, 5),
    "segment.ms": ("1000", rolls_by_time, False, True),
    "unclean.leader.election.enable": ("true", elects_uncleanly, False, True),
}
# Looked at together with the codec that they belong to.
LEVELS = {
    "compression.gzip.level": ("gzip", "1", "9"),
    "compression.lz4.level": ("lz4", "1", "12"),
    "compression.zstd.level": ("zstd", "1", "19"),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_a_key_takes_effect_on_a_topic_that_exists(broker: SimulatedBroker, name: str) -> None:
    value, look, before, after = EFFECTS[name]
    assert look(broker) == before
    assert alter(broker, TOPIC, "t", name, value) == ErrorCode.NONE
    assert look(broker) == after
    assert describe(broker, TOPIC, "t", name)[:2] == (value, 1)


@pytest.mark.parametrize("name", LEVELS)
def test_a_compression_level_changes_the_stored_size(name: str) -> None:
    codec, low, high = LEVELS[name]
    sizes = []
    for level in (low, high):
        broker = SimulatedBroker()
        broker.make_topic("t")
        assert alter(broker, TOPIC, "t", name, level) == ErrorCode.NONE
        sizes.append(size_kept(broker, codec))
    assert sizes[1] < sizes[0]


def test_every_key_of_a_topic_has_a_test() -> None:
    # Dead-letter topics have their own tests: tests/unit/server/share/test_dead_letters.py.
    elsewhere = {"errors.deadletterqueue.group.enable"}
    # These have theirs in test_tiered_topics.py.
    elsewhere |= {"internal.segment.bytes", "remote.storage.enable"}
    # And this one in tests/unit/replication/remote/test_restored_logs.py.
    elsewhere |= {"barnabas.remote.restore"}
    assert {key.name for key in TOPIC_CONFIGS} == {*EFFECTS, *LEVELS, *elsewhere}
