"""Control batches of transactions, damaged and whole."""

from __future__ import annotations

from barnabas.record.batch import (
    ControlType,
    encode_control_key,
    encode_end_marker,
    set_crc,
    set_offset_and_epoch,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import GZIP
from unit.storage.storage_fixtures import NOW_MS

COMMIT = encode_control_key(ControlType.COMMIT)

VALUE = encode_end_marker(0)


def control_batch(
    key: bytes | None, value: bytes | None, offset: int = 0, compression: int = 0
) -> bytearray:
    builder = BatchBuilder(
        producer_id=1,
        producer_epoch=0,
        transactional=True,
        control=True,
        compression=compression,
    )
    builder.append(NOW_MS, key, value)
    made = builder.build()
    set_offset_and_epoch(made, 0, offset, 3)
    return made


def torn_record() -> bytearray:
    """The record's length exceeds the batch; the CRC is valid."""
    made = control_batch(COMMIT, VALUE)
    made[61] = 0x7E
    set_crc(made, 0, len(made))
    return made


DAMAGED = {
    "no key": control_batch(None, VALUE),
    "short key": control_batch(COMMIT[:3], VALUE),
    "negative key version": control_batch(b"\xff\xff\x00\x01", VALUE),
    "no value": control_batch(COMMIT, None),
    "short value": control_batch(COMMIT, VALUE[:5]),
    "negative value version": control_batch(COMMIT, b"\xff\xff" + VALUE[2:]),
    "torn record": torn_record(),
    "decompresses to a mebibyte": control_batch(COMMIT, bytes(1 << 20), compression=GZIP),
}
