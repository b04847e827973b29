"""Apache Kafka and Barnabas with tiered storage, and topics whose beginning is only in the tier.

Segments have about two batches: `internal.segment.bytes` has no lower limit, in contrast to
`segment.bytes`. Tests wait for offsets that ListOffsets returns, never for a time.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import decode_remote_log_record
from barnabas.protocol.records.remote_log import RemoteLogSegmentMetadataRecord
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from differential.broker_pair import SETTINGS, warmed_up_pair
from differential.internal_records import stored
from differential.rules import HOUR_MS
from differential.scene import NOW_MS, exchange
from differential.transaction import ADD, END, INIT, PRODUCE, Transaction, settle
from jvm.tiered_kafka import TIERED_SETTINGS, TieredKafka
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from differential.scene import Pair, Scene
    from differential.side import Side

EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5
METADATA_TOPIC = "__remote_log_metadata"
# The directories of both stores, among the shared objects of a pair.
_STORES = "stores"
# A function that restarts both brokers, also there.
_RESTART = "restart"
TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "1000"}
# Closed segments are deleted as soon as they are in the tier.
SMALL_LOCAL = {**TIERED, "local.retention.bytes": "1"}
# Batches of `filled`, with three records of 100 bytes each: two batches are one segment.
BATCHES, RECORDS = 10, 3
END_OFFSET = BATCHES * RECORDS
LOCAL_START = END_OFFSET - 2 * RECORDS


@contextlib.contextmanager
def started_tiered_pair(directory: Path) -> Iterator[Pair]:
    """Run both brokers with remote stores in directories, and stop them at the end.

    Args:
        directory: contains the directories of both brokers and stores.
    """
    kafka = TieredKafka(directory / "kafka", SETTINGS)
    store = {"barnabas.remote.storage": f"file://{directory}/store"}
    barnabas = BrokerProcess(directory / "barnabas", {**SETTINGS, **TIERED_SETTINGS, **store})
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        with warmed_up_pair(kafka.bootstrap, barnabas.bootstrap) as made:
            made.shared_objects[_STORES] = kafka.store, directory / "store"
            made.shared_objects[_RESTART] = partial(_restart, kafka, barnabas)
            yield made
    finally:
        kafka.close()
        barnabas.close()


def _restart(*processes: TieredKafka | BrokerProcess) -> None:
    for process in processes:
        process.restart()


def restart(scene: Scene, topic: str) -> None:
    """Restart both brokers, and wait until they serve a topic again."""
    scene.pair.shared_objects[_RESTART]()
    for side in scene.pair.sides():
        side.close_all()
    scene.await_leaders(topic, 1)


class Prepared(NamedTuple):
    """A topic that several cases read, and the ids of it and of its producers on each broker."""

    topic: str
    ids: dict[str, tuple[Any, Any]]


def prepared(scene: Scene, kind: str, make: Callable[[Scene], str]) -> str:
    """Return a topic that `make` creates for the first case that needs it."""
    known = scene.pair.shared_objects
    if kind not in known:
        topic = make(scene)
        kafka, barnabas = (side.named_values() for side in scene.pair.sides())
        known[kind] = Prepared(topic, {name: (kafka[name], barnabas[name]) for name in kafka})
    found: Prepared = known[kind]
    for name, ids in found.ids.items():
        scene.remember(name, *ids)
    return found.topic


def filled_topic(scene: Scene) -> str:
    """Return a topic whose offsets below `LOCAL_START` are only in the tier."""

    def make(scene: Scene) -> str:
        topic = created(scene, SMALL_LOCAL)
        fill(scene, topic)
        await_offset(scene, topic, EARLIEST_LOCAL, LOCAL_START)
        return topic

    return prepared(scene, "filled", make)


def topic_with_aborted_transactions(scene: Scene) -> str:
    """Return a topic in the tier with overlapping transactions, some of them aborted."""
    return prepared(scene, "aborted", _topic_with_aborted_transactions)


def _topic_with_aborted_transactions(scene: Scene) -> str:
    topic = created(scene, SMALL_LOCAL)
    first, second, third = (begun(scene, topic, name) for name in ("first", "second", "third"))
    write(scene, first)
    write(scene, second)
    end(scene, first, commit=False)
    fill(scene, topic, 3)
    write(scene, third)
    write(scene, second)
    end(scene, second, commit=False)
    fill(scene, topic, 3)
    end(scene, third, commit=True)
    write(scene, first)
    end(scene, first, commit=False)
    fill(scene, topic, 6)
    starts = {offset_of(side, topic, -1) for side in scene.pair.sides()}
    (log_end,) = starts
    await_same(scene, topic, EARLIEST_LOCAL, above=log_end - 12)
    return topic


def created(scene: Scene, configs: dict[str, str], partitions: int = 1) -> str:
    """Create a topic with these configs on both brokers."""
    return scene.topic(partitions, **{key.replace(".", "_"): text for key, text in configs.items()})


def stamped_batch(timestamp_ms: int, *values: bytes) -> bytes:
    """Return a record batch with one timestamp."""
    builder = BatchBuilder()
    for value in values:
        builder.append(timestamp_ms, None, value)
    return bytes(builder.build())


def fill(scene: Scene, topic: str, count: int = BATCHES) -> None:
    """Append batches, each a second later than the one before."""
    for number in range(count):
        values = [bytes([65 + number]) * 100] * RECORDS
        scene.produce(topic, stamped_batch(NOW_MS + number * 1000, *values))


def offset_of(side: Side, topic: str, timestamp: int) -> int:
    """Return the offset of a special time; -1 without one."""
    partitions = [{"partition_index": 0, "timestamp": timestamp}]
    values = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    version = 9 if timestamp == LATEST_TIERED else 8
    found = exchange(side, ApiKey.LIST_OFFSETS, version, values).topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE, (side.name, ErrorCode(found.error_code))
    offset: int = found.offset
    return offset


def is_searched(side: Side, topic: str) -> bool:
    """Return whether a broker finds offsets by time, also in the tier."""
    partitions = [{"partition_index": 0, "timestamp": 0}]
    values = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    found = exchange(side, ApiKey.LIST_OFFSETS, 8, values).topics[0].partitions[0]
    return bool(found.error_code == ErrorCode.NONE)


def await_offset(scene: Scene, topic: str, timestamp: int, offset: int) -> None:
    """Wait until both brokers return this offset for a special time."""
    for side in scene.pair.sides():
        _await(side, topic, timestamp, offset.__eq__, f"time {timestamp}: offset {offset}")


def await_same(scene: Scene, topic: str, timestamp: int, above: int) -> None:
    """Wait until both brokers return the same offset, above a given one, for a special time."""
    for side in scene.pair.sides():
        _await(side, topic, timestamp, above.__lt__, f"time {timestamp}: offset above {above}")
    await_offset(scene, topic, timestamp, offset_of(scene.pair.kafka, topic, timestamp))


def _await(
    side: Side, topic: str, timestamp: int, is_met: Callable[[int], bool], wanted: str
) -> None:
    words = partial(_missing, side, topic, wanted)
    eventually(lambda: is_met(offset_of(side, topic, timestamp)), words)


def _missing(side: Side, topic: str, wanted: str) -> str:
    found = {timestamp: offset_of(side, topic, timestamp) for timestamp in (-1, -2, -4, -5)}
    return f"{side.name}: {topic}: no {wanted}; found {found}"


def begun(scene: Scene, topic: str, name: str) -> Transaction:
    """Return a new transactional producer, whose id has this name."""
    made = Transaction(f"{topic}-{name}", topic, "", ())
    found = scene.do(INIT, 4, made.init())
    assert all(each.error_code == ErrorCode.NONE for each in found), found
    scene.remember(name, *(each.producer_id for each in found))
    return made


def _producer_of(transaction: Transaction) -> str:
    return transaction.id.rpartition("-")[2]


def write(scene: Scene, transaction: Transaction) -> None:
    """Append one record in a transaction, which begins if it is not open."""
    producer = _producer_of(transaction)
    added = scene.do(ADD, 3, transaction.add(0, producer=producer))
    for response in added:
        (topic,) = response.results_by_topic_v3_and_below
        assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE, response
    for response in scene.do(PRODUCE, 9, transaction.produce(producer=producer)):
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.NONE, ErrorCode(code)
    transaction.sequence += 1


def end(scene: Scene, transaction: Transaction, *, commit: bool) -> None:
    """End a transaction, and wait for its marker."""
    producer = _producer_of(transaction)
    for response in scene.do(END, 3, transaction.end(producer=producer, commit=commit)):
        assert response.error_code == ErrorCode.NONE, response
    settle(scene, transaction)


def delete_records(scene: Scene, topic: str, offset: int) -> tuple[Any, Any]:
    """Compare the responses to DeleteRecords."""
    cut = [{"partition_index": 0, "offset": offset}]
    requested = {"topics": [{"name": topic, "partitions": cut}], "timeout_ms": 5000}
    return scene.compare(requested, ApiKey.DELETE_RECORDS, 2)


def segments_in_metadata(side: Side, topic: str) -> list[str]:
    """Return the segments of a topic in the metadata topic, with the states of their events."""
    partitions = int(TIERED_SETTINGS["rlmm.config.remote.log.metadata.topic.num.partitions"])
    described: dict[bytes, str] = {}
    states: dict[bytes, list[int]] = {}
    for each in stored(side, METADATA_TOPIC, partitions):
        assert each.value is not None
        record: Any = decode_remote_log_record(each.value)
        segment = record.remote_log_segment_id
        if segment.topic_id_partition.name != topic:
            continue
        assert segment.topic_id_partition.id == side.topic_id(topic)
        states.setdefault(segment.id, []).append(record.remote_log_segment_state)
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            described[segment.id] = _described(segment.topic_id_partition.partition, record)
    assert described.keys() == states.keys()
    return [f"{text} states={states[segment]}" for segment, text in described.items()]


def _described(partition: int, record: RemoteLogSegmentMetadataRecord) -> str:
    epochs = [(each.leader_epoch, each.offset) for each in record.segment_leader_epochs]
    # Markers of transactions have the time of the broker.
    latest = record.max_timestamp_ms - NOW_MS
    time = "now" if latest > HOUR_MS else str(latest)
    return (
        f"partition={partition} offsets={record.start_offset}-{record.end_offset}"
        f" broker={record.broker_id} max_timestamp={time}"
        f" epochs={epochs} size={record.segment_size_in_bytes} without={record.txn_index_empty}"
    )


def stored_logs(scene: Scene, topic: str) -> list[list[Path]]:
    """Return the logs of the segments of a topic in both stores, by offset; Kafka's first."""
    stores: tuple[Path, Path] = scene.pair.shared_objects[_STORES]
    # The file names begin with the offset. Only Kafka's directories name the partition.
    return [
        sorted(store.glob(f"**/{topic}-*/**/*.log"), key=lambda path: path.name) for store in stores
    ]
