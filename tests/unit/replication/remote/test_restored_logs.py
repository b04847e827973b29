"""Leaders of restored topics start their empty logs behind the segments in the tier."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.config import RESTORE_ADOPTING, RESTORE_COPYING, RESTORE_NONE
from barnabas.storage.producers.producer_entry import encode_snapshot
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentFiles
from barnabas.storage.remote.segment_states import started_record, update_record
from barnabas.storage.results import AppendOrigin
from unit.replication.remote.tiered_broker import PARTITION, TieredBroker, batch


def put(broker: TieredBroker, start: int, end: int) -> RemoteSegment:
    """Store a segment as `barnabas remote restore` does, with its events."""
    segment = broker.foreign_segment(start, end)
    path = f"/restored-{start}"
    broker.runtime.disk.write_atomically(path, bytes(segment.size))
    epochs, producers = b"0\n1\n0 10\n", encode_snapshot([])
    files = SegmentFiles(path, segment.size, b"", b"", None, producers, epochs)
    broker.store.on(broker.runtime.disk).copy_segment(segment, files)
    broker.remote.apply(started_record(segment))
    broker.remote.apply(update_record(segment))
    return segment


def log_range(broker: TieredBroker) -> tuple[int, int, int]:
    log = broker.logs.logs[PARTITION]
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def test_a_leader_adopts_the_segments_of_its_empty_log() -> None:
    broker = TieredBroker()
    broker.configure(barnabas_remote_restore=RESTORE_COPYING)
    put(broker, 10, 19)
    put(broker, 20, 29)
    broker.sweep()
    assert log_range(broker) == (0, 0, 0)
    broker.configure(barnabas_remote_restore=RESTORE_ADOPTING)
    broker.wait()
    assert log_range(broker) == (10, 30, 30)
    broker.configure(barnabas_remote_restore=RESTORE_NONE)
    broker.sweep()
    assert log_range(broker) == (10, 30, 30)
    assert broker.segments() == [(10, 19), (20, 29)]
    broker.fill(1)
    assert log_range(broker) == (10, 30, 31)


def test_a_topic_that_is_not_restored_never_adopts_segments() -> None:
    broker = TieredBroker()
    put(broker, 10, 19)
    for _ in range(3):
        broker.sweep()
    assert log_range(broker)[2] == 0


def test_a_log_with_records_never_adopts_segments() -> None:
    broker = TieredBroker()
    broker.fill(1)
    broker.configure(barnabas_remote_restore=RESTORE_ADOPTING)
    put(broker, 10, 19)
    broker.sweep()
    assert log_range(broker) == (0, 0, 1)


def test_segments_with_a_gap_are_not_adopted() -> None:
    broker = TieredBroker()
    broker.configure(barnabas_remote_restore=RESTORE_ADOPTING)
    put(broker, 10, 19)
    put(broker, 25, 29)
    broker.sweep()
    assert log_range(broker) == (0, 0, 0)
    put(broker, 20, 24)
    broker.sweep()
    assert log_range(broker) == (10, 30, 30)


def test_a_new_leader_adopts_the_segments_too() -> None:
    broker = TieredBroker(replicas=(1, 2))
    broker.configure(barnabas_remote_restore=RESTORE_ADOPTING)
    broker.resign()
    put(broker, 10, 19)
    broker.sweep()
    assert log_range(broker) == (0, 0, 0)
    broker.lead()
    broker.sweep()
    assert log_range(broker) == (10, 20, 20)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_records_are_refused_while_a_topic_is_restored(origin: AppendOrigin) -> None:
    broker = TieredBroker()
    broker.configure(barnabas_remote_restore=RESTORE_COPYING)
    records = batch(b"v", timestamp=broker.runtime.clock.wall_ms())
    broker.manager.append_records(
        1_000, 1, {PARTITION: records}, origin, broker.answers.produced.append
    )
    broker.wait()
    (result,) = broker.answers.produced[-1].values()
    # The marker of a transaction counts as written: there is nothing to end.
    expected = ErrorCode.POLICY_VIOLATION if origin is AppendOrigin.CLIENT else ErrorCode.NONE
    assert result.error == expected
    assert log_range(broker) == (0, 0, 0)
