"""Validation of producer batches: refusals, corrections, and number of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.record.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    MAX_TIMESTAMP_POSITION,
    TIMESTAMP_TYPE_FLAG,
    check_crc,
    read_header,
    set_crc,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import RECORDS_PER_SLICE
from barnabas.record.compression import CODES, ZSTD
from barnabas.record.producer_records import AT_ONCE_RECORDS
from barnabas.record.reader import records
from barnabas.storage.config import LONG_MAX, LogConfig
from barnabas.storage.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    StorageError,
)
from barnabas.storage.log.batch_inspection import (
    RECORD_ERRORS_MAX,
    InspectedRecords,
    InspectionNeededError,
)
from barnabas.storage.log.validator import validate
from barnabas.storage.results import AppendOrigin
from barnabas.waiting.steps import OffLoop, run_steps
from producer_batches import ACCEPTED, GARBAGE, STRICTLY_REFUSED, Payload, packed
from unit.storage.storage_fixtures import NOW_MS

if TYPE_CHECKING:
    from barnabas.waiting.steps import Steps


FAR = 2**63 - 1
COMPACTED = LogConfig(cleanup_policy=("compact",))


def batch(
    count: int = 3, compression: int = 0, key: bytes | None = b"k", **options: Any
) -> bytearray:
    builder = BatchBuilder(compression=compression, **options)
    for index in range(count):
        builder.append(NOW_MS - count + index, key, b"v")
    return builder.build()


def changed(made: bytearray, count: int | None = None, largest: int | None = None) -> bytearray:
    if count is not None:
        made[23:27] = (count - 1).to_bytes(4, "big")
        made[57:61] = count.to_bytes(4, "big")
    if largest is not None:
        start = MAX_TIMESTAMP_POSITION
        made[start : start + 8] = largest.to_bytes(8, "big", signed=True)
    set_crc(made, 0, len(made))
    return made


class Noting:
    """Runs steps, and records their requests."""

    def __init__(self) -> None:
        self.asked: list[OffLoop | None] = []

    def run(self, steps: Steps) -> Any:
        def noted() -> Steps:
            answer: Any = None
            while True:
                try:
                    wanted = steps.send(answer)
                except StopIteration as end:
                    return end.value
                self.asked.append(wanted)
                while True:
                    try:
                        answer = yield wanted
                        break
                    except Exception as error:  # noqa: BLE001
                        try:
                            wanted = steps.throw(error)
                        except StopIteration as end:
                            return end.value
                        self.asked.append(wanted)

        return run_steps(noted())


def look_into(made: bytearray, config: LogConfig) -> tuple[bytes, list[OffLoop | None]]:
    """Return the bytes to write, and the requests of the steps."""
    asked: list[OffLoop | None] = []
    try:
        content, _ = validate(memoryview(made), config, AppendOrigin.CLIENT, NOW_MS)
    except InspectionNeededError as needed:
        noting = Noting()
        result = noting.run(needed.inspection.outcome())
        asked = noting.asked
        if isinstance(result, StorageError):
            raise result from None
        content = result.content
    return bytes(content), asked


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_more_records_than_bytes_are_refused_by_the_header_alone(origin: AppendOrigin) -> None:
    for flag in (0, TIMESTAMP_TYPE_FLAG):
        made = batch()
        made[ATTRIBUTES_POSITION + 1] = flag
        changed(made, count=20_000_000)
        for config in (LogConfig(), COMPACTED, LogConfig(message_timestamp_type="LogAppendTime")):
            with pytest.raises(InvalidRecordError, match="20000000 records do not fit"):
                validate(memoryview(made), config, origin, NOW_MS)


@pytest.mark.parametrize("compression", range(5))
@pytest.mark.parametrize("claim", [-1, 0, NOW_MS - 4, NOW_MS - 3, NOW_MS, FAR])
@pytest.mark.parametrize("count", [3, 2000])
@pytest.mark.parametrize(
    "config", [LogConfig(), LogConfig(message_timestamp_after_max_ms=LONG_MAX), COMPACTED]
)
def test_the_header_gets_the_largest_timestamp_of_the_records(
    compression: int, claim: int, count: int, config: LogConfig
) -> None:
    content, _ = look_into(changed(batch(count, compression), largest=claim), config)
    header = read_header(content)
    assert header.max_timestamp == NOW_MS - 1
    assert check_crc(content, 0, header)


@pytest.mark.parametrize("at", [-1, -5])
def test_the_header_has_no_timestamp_if_no_record_has_one(at: int) -> None:
    builder = BatchBuilder()
    for _ in range(2):
        builder.append(at, None, b"v")
    content, _ = look_into(changed(builder.build(), largest=NOW_MS), LogConfig())
    assert read_header(content).max_timestamp == -1


def test_an_invalid_timestamp_of_a_record_is_refused_and_named() -> None:
    builder = BatchBuilder()
    for at in (NOW_MS, FAR, NOW_MS):
        builder.append(at, None, b"v")
    with pytest.raises(InvalidTimestampError) as refused:
        look_into(builder.build(), LogConfig())
    assert [index for index, _ in refused.value.record_errors] == [1]


def test_many_records_take_many_steps() -> None:
    count = 10 * RECORDS_PER_SLICE
    content, asked = look_into(batch(count), COMPACTED)
    assert asked == [None] * 9
    assert read_header(content).record_count == count


@pytest.mark.parametrize("config", [COMPACTED, LogConfig(compression_type="gzip")])
def test_few_records_are_inspected_at_once(config: LogConfig) -> None:
    for compression in range(5):
        _, asked = look_into(batch(100, compression), config)
        assert asked == []


def test_long_calls_do_not_run_on_the_event_loop() -> None:
    # 3 MB of one record in 200 bytes.
    builder = BatchBuilder(compression=ZSTD)
    builder.append(NOW_MS, b"k", bytes(3 << 20))
    content, asked = look_into(builder.build(), LogConfig(compression_type="gzip"))
    assert [each is not None for each in asked] == [True, True]
    assert asked[0] is not None
    assert asked[0].memory_bytes_max is not None
    # The decompressed batch, and as much for the batch that is compressed again.
    assert asked[0].memory_bytes_max <= 2 * (4 << 20)
    assert len(records(content)[0].value or b"") == 3 << 20


@pytest.mark.parametrize("code", [1, 4])
def test_a_decompression_bomb_is_rejected_by_its_decompressed_size(code: int) -> None:
    bomb = packed(Payload(bytes(40 << 20), 3), code)
    with pytest.raises(InvalidRecordError):
        look_into(bomb, COMPACTED)
    with pytest.raises(InvalidRecordError, match="decompress to more than 5000000 bytes"):
        look_into(packed(Payload(bytes(40 << 20), 3), ZSTD), LogConfig(
            cleanup_policy=("compact",), max_message_bytes=5_000_000,
        ))  # fmt: skip


def test_a_batch_may_decompress_to_the_limit_of_the_topic() -> None:
    builder = BatchBuilder(compression=ZSTD)
    builder.append(NOW_MS, b"k", bytes(9 << 20))
    config = LogConfig(cleanup_policy=("compact",), max_message_bytes=10 << 20)
    content, _ = look_into(builder.build(), config)
    assert read_header(content).record_count == 1


def test_the_number_of_named_invalid_records_is_bounded() -> None:
    with pytest.raises(InvalidRecordError) as refused:
        look_into(batch(5 * RECORD_ERRORS_MAX, key=None), COMPACTED)
    assert len(refused.value.record_errors) == RECORD_ERRORS_MAX
    claim = batch(5 * RECORD_ERRORS_MAX)
    claim[ATTRIBUTES_POSITION + 1] = TIMESTAMP_TYPE_FLAG
    changed(claim, count=5 * RECORD_ERRORS_MAX)
    with pytest.raises(InvalidTimestampError) as claimed:
        look_into(claim, LogConfig(message_timestamp_type="LogAppendTime"))
    assert len(claimed.value.record_errors) == RECORD_ERRORS_MAX


READ_BY = [
    LogConfig(),
    COMPACTED,
    LogConfig(compression_type="gzip"),
    LogConfig(compression_type="uncompressed"),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(message_timestamp_before_max_ms=1000),
]


@pytest.mark.parametrize("kind", [*GARBAGE, *STRICTLY_REFUSED])
@pytest.mark.parametrize("config", READ_BY)
def test_malformed_records_are_refused_by_every_topic(kind: str, config: LogConfig) -> None:
    payload = GARBAGE.get(kind) or STRICTLY_REFUSED[kind]
    for code in range(5):
        with pytest.raises(InvalidRecordError):
            look_into(packed(payload, code, first=NOW_MS), config)


@pytest.mark.parametrize("kind", ACCEPTED)
@pytest.mark.parametrize("config", READ_BY[:1] + READ_BY[2:])
def test_unusual_records_are_stored(kind: str, config: LogConfig) -> None:
    for code in range(5):
        content, _ = look_into(packed(ACCEPTED[kind], code, first=NOW_MS), config)
        assert read_header(content).record_count == ACCEPTED[kind].count


@pytest.mark.parametrize("config", READ_BY)
def test_malformed_compressed_bytes_are_refused(config: LogConfig) -> None:
    for code in range(1, 5):
        made = packed(Payload(bytes(range(100, 200)), 1), first=NOW_MS)
        made[ATTRIBUTES_POSITION + 1] = code
        with pytest.raises(InvalidRecordError):
            look_into(changed(made), config)


def test_batches_of_coordinators_and_of_the_quorum_are_not_read() -> None:
    garbage = packed(GARBAGE["zeros"], first=NOW_MS)
    for origin in (AppendOrigin.COORDINATOR, AppendOrigin.RAFT):
        content, _ = validate(memoryview(garbage), LogConfig(), origin, NOW_MS)
        assert bytes(content) == garbage


def test_a_large_batch_with_headers_takes_several_steps() -> None:
    builder = BatchBuilder()
    for index in range(1000):
        builder.append(NOW_MS, None, bytes(100 + index % 2), [("a", None)])
    content, asked = look_into(builder.build(), LogConfig())
    assert read_header(content).record_count == 1000
    assert asked


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_recompression_does_not_change_the_records(name: str) -> None:
    source = batch(
        2000, 4 if name != "zstd" else 1, producer_id=7, producer_epoch=3, base_sequence=9
    )
    wanted = [(r.offset, r.timestamp, r.key, r.value) for r in records(source)]
    content, _ = look_into(source, LogConfig(compression_type=name))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records(content)] == wanted
    header = read_header(content)
    assert header.compression == CODES["none" if name == "uncompressed" else name]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 9)
    assert check_crc(content, 0, header)


def test_records_that_decompress_to_too_much_are_not_copied() -> None:
    builder = BatchBuilder(compression=ZSTD)
    builder.append(NOW_MS, b"k", bytes(3 << 20))
    with pytest.raises(RecordTooLargeError):
        look_into(builder.build(), LogConfig(compression_type="uncompressed"))


def test_an_impossible_producer_epoch_is_refused() -> None:
    made = batch(producer_id=7, producer_epoch=-2, base_sequence=0)
    with pytest.raises(InvalidProducerEpochError):
        validate(memoryview(made), LogConfig(), AppendOrigin.CLIENT, NOW_MS)


def test_inspection_in_several_turns_does_not_change_the_receive_buffer() -> None:
    made = changed(batch(2 * AT_ONCE_RECORDS), largest=FAR)
    before = bytes(made)
    view = memoryview(made)
    with pytest.raises(InspectionNeededError) as needed:
        validate(view, LogConfig(), AppendOrigin.CLIENT, NOW_MS)
    # Released as when a handler returns: it raises if a part of it is still referenced.
    view.release()
    made.clear()
    done = run_steps(needed.value.inspection.outcome())
    assert isinstance(done, InspectedRecords)
    assert bytes(done.content)[HEADER_SIZE:] == before[HEADER_SIZE:]
    assert done.batches[0][1].max_timestamp == NOW_MS - 1


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_a_batch_of_a_coordinator_is_stored_as_its_compacted_topic_requires(
    timestamp_type: str, compression: str
) -> None:
    config = LogConfig(
        cleanup_policy=("compact",),
        message_timestamp_type=timestamp_type,
        compression_type=compression,
    )
    builder = BatchBuilder()
    builder.append(5, b"key", b"value")
    given = memoryview(builder.build())
    stored, ((_, header),) = validate(given, config, AppendOrigin.COORDINATOR, 7_000)
    assert header == read_header(stored, 0)
    assert header.has_log_append_time == (timestamp_type == "LogAppendTime")
    assert header.max_timestamp == (7_000 if header.has_log_append_time else 5)
    assert (header.compression == 0) == (compression == "producer")
    assert (stored is given) == (compression == "producer")
