"""Each reader gets all records of every batch that a leader accepts from a producer."""

from __future__ import annotations

import random

from hypothesis import given, settings, strategies as st

from barnabas.record.batch import batches, read_header
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import append_columns, iter_records, uncompressed
from barnabas.record.decoded_columns import decode_record_set
from barnabas.record.reader import records
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.log.batch_inspection import InspectionNeededError
from barnabas.storage.log.validator import validate
from barnabas.storage.results import AppendOrigin
from producer_batches import ACCEPTED, GARBAGE, NULL_FOR_JAVA, STRICTLY_REFUSED, Payload, packed
from unit.storage.storage_fixtures import NOW_MS

KINDS = [NULL_FOR_JAVA, *ACCEPTED.values(), *GARBAGE.values(), *STRICTLY_REFUSED.values()]


def accepted(batch: bytearray) -> bytes | None:
    """Return the batch as a leader stores it, None if the leader refuses it."""
    try:
        content, _ = validate(memoryview(batch), LogConfig(), AppendOrigin.CLIENT, NOW_MS)
    except InspectionNeededError as needed:
        try:
            content = needed.inspection.run().content
        except StorageError:
            return None
    except StorageError:
        return None
    return bytes(content)


@st.composite
def payloads(draw: st.DrawFn) -> Payload:
    """Records of which some bytes may have changed."""
    rng = random.Random(draw(st.integers(0, 1 << 32)))
    if draw(st.booleans()):
        content, count = rng.choice(KINDS)
        made = bytearray(content)
    else:
        count = draw(st.sampled_from([1, 3, 20, 80, 600]))
        builder, size = BatchBuilder(), draw(st.sampled_from([0, 5, 70, 300]))
        sizes, keys = ([size, size, size + 1], [None, b"key"])
        if draw(st.booleans()):
            sizes, keys = [size], [draw(st.sampled_from([None, b"", b"key", bytes(70)]))]
        for index in range(count):
            value = rng.randbytes(rng.choice(sizes))
            builder.append(NOW_MS + index // 9, rng.choice(keys), value)
        made = builder.build()[61:]
        # The check remembers the shapes of batches that producers repeat.
        for _ in range(3):
            accepted(packed(Payload(bytes(made), count), first=NOW_MS))
    for _ in range(draw(st.integers(0, 2))):
        if made:
            made[rng.randrange(len(made))] = rng.randrange(256)
    return Payload(bytes(made), count + draw(st.sampled_from([0, 0, 0, 1, -1])))


@given(payload=payloads(), code=st.integers(0, 4), claim=st.sampled_from([-1, 0, NOW_MS, 1 << 62]))
@settings(max_examples=300, deadline=None)
def test_every_reader_reads_what_a_leader_accepts(payload: Payload, code: int, claim: int) -> None:
    stored = accepted(packed(payload, code, claim, NOW_MS))
    if stored is None:
        return
    header = read_header(stored)
    count = header.record_count
    expected = records(stored)
    assert [each.offset for each in expected] == list(range(count))
    assert header.max_timestamp == max(-1, *(each.timestamp for each in expected))
    contents = [(each.key, each.value) for each in expected]
    assert [(each.key, each.value) for each in iter_records(stored)] == contents
    ((position, _),) = batches(stored)
    offsets, keys, values = [], [], []
    append_columns(uncompressed(stored, position, header), header, offsets, keys, values)
    assert list(zip(keys, values, strict=True)) == contents
    decoded = list(decode_record_set(stored))
    assert [int(offset) for part in decoded for offset in part.offsets] == list(range(count))
