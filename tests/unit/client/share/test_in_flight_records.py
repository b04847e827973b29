"""The records that a user has: acknowledgements, renewals and failures."""

from __future__ import annotations

import pytest

from barnabas.client.errors import CorruptRecordsError, DisconnectedError
from barnabas.client.share.acknowledgements import (
    AckBatch,
    Acknowledgements,
    AcknowledgeType,
    IllegalAcknowledgementError,
)
from barnabas.client.share.acquired_records import (
    AcquiredPart,
    InFlightRecords,
    ShareRecord,
    ShareSource,
)
from barnabas.client.topic_partition import TopicPartition

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
TP = TopicPartition("t", 0)
SOURCE = ShareSource(1, b"t" * 16, TP)


def record(offset: int) -> ShareRecord:
    return ShareRecord("t", 0, offset, 0, 0, None, b"v", (), 1)


def in_flight(*offsets: int) -> InFlightRecords:
    made = InFlightRecords()
    made.add(SOURCE, AcquiredPart([record(offset) for offset in offsets], Acknowledgements()))
    return made


def taken(records: InFlightRecords) -> dict[ShareSource, list[AckBatch]]:
    return {source: acks.batches() for source, acks in records.take().items()}


def test_acknowledged_records_leave() -> None:
    records = in_flight(0, 1)
    records.acknowledge(TP, 0, REJECT)
    assert records.unacknowledged == 1
    assert taken(records) == {SOURCE: [AckBatch(0, 0, (REJECT,))]}
    with pytest.raises(IllegalAcknowledgementError, match="offset 0"):
        records.acknowledge(TP, 0, ACCEPT)
    assert records.nodes() == {1}
    records.accept_all()
    assert taken(records) == {SOURCE: [AckBatch(1, 1, (ACCEPT,))]}
    assert records.nodes() == set()


def test_records_of_other_partitions_are_not_found() -> None:
    with pytest.raises(IllegalAcknowledgementError):
        in_flight(0).acknowledge(TopicPartition("t", 1), 0, ACCEPT)


def test_accepting_all_keeps_earlier_types_and_unseen_records() -> None:
    records = in_flight(0, 1, 2)
    records.acknowledge(TP, 0, RELEASE)
    records.accept_all([record(2)])
    assert taken(records) == {SOURCE: [AckBatch(0, 1, (RELEASE, ACCEPT))]}
    assert records.unacknowledged == 1


def test_renewed_records_return_after_the_response() -> None:
    records = in_flight(0, 1)
    records.acknowledge(TP, 0, RENEW)
    records.acknowledge(TP, 1, ACCEPT)
    [(source, acks)] = records.take().items()
    assert records.is_renewing
    assert not records.take_renewed()
    records.on_acknowledged(source, acks, None)
    assert not records.is_renewing
    assert list(records.take_renewed()) == [record(0)]
    assert records.unacknowledged == 1


def test_records_whose_renewal_failed_are_gone() -> None:
    records = in_flight(0)
    records.acknowledge(TP, 0, RENEW)
    [(source, acks)] = records.take().items()
    records.on_acknowledged(source, acks, DisconnectedError("h:1", "gone"))
    assert not records.is_renewing
    assert not records.take_renewed()
    assert records.nodes() == set()


def test_the_acknowledgement_of_a_failure_may_be_replaced_until_it_is_sent() -> None:
    records = InFlightRecords()
    rejected = Acknowledgements()
    rejected.add_range(3, 5, REJECT)
    records.add(SOURCE, AcquiredPart([], rejected, CorruptRecordsError(TP, 3, "corrupt", 6)))
    records.acknowledge_offset(TP, 4, RELEASE)
    with pytest.raises(IllegalAcknowledgementError, match="cannot be renewed"):
        records.acknowledge_offset(TP, 4, RENEW)
    assert taken(records) == {SOURCE: [AckBatch(3, 5, (REJECT, RELEASE, REJECT))]}
    with pytest.raises(IllegalAcknowledgementError):
        records.acknowledge_offset(TP, 4, RELEASE)


def test_records_are_also_found_by_their_offset() -> None:
    records = in_flight(7)
    records.acknowledge_offset(TP, 7, RENEW)
    assert taken(records) == {SOURCE: [AckBatch(7, 7, (RENEW,))]}
