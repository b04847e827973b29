"""Committed batches change the image; a metadata transaction is applied completely or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.image import Provenance
from barnabas.metadata.publishing import MetadataPublisher
from barnabas.metadata.topics import MetadataReplayError
from barnabas.protocol.records.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from barnabas.raft.listener import CommittedBatch, LoadedSnapshot, SnapshotId
from unit.metadata.clusters import feature, image_of, partition, three_brokers, topic

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.protocol.schema import Record


def batch(base_offset: int, *records: Record) -> CommittedBatch:
    last = base_offset + len(records) - 1
    return CommittedBatch(base_offset, last, 3, 77, 100, [(record, 0) for record in records])


class Seen:
    def __init__(self) -> None:
        self.calls: list[tuple[ClusterDelta, ClusterImage]] = []

    def __call__(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.calls.append((delta, image))


def test_several_batches_cause_one_image_and_one_call() -> None:
    publisher, seen = MetadataPublisher(), Seen()
    publisher.add_listener(seen)
    publisher.on_commit([batch(1, feature()), batch(2, topic("a", 1), partition(1))])
    assert len(seen.calls) == 1
    assert publisher.image is seen.calls[0][1]
    assert publisher.image.provenance == Provenance(3, 3, 77)
    assert publisher.image.topics.by_name("a") is not None


def test_a_transaction_is_applied_when_it_ends() -> None:
    publisher = MetadataPublisher()
    publisher.on_commit([batch(1, BeginTransactionRecord(name="x"), topic("a", 1))])
    assert publisher.image.topics.by_name("a") is None
    assert publisher.image.provenance == Provenance()
    publisher.on_commit([batch(3, partition(1), EndTransactionRecord())])
    assert publisher.image.topics.by_name("a") is not None
    assert publisher.image.provenance.offset == 4


def test_an_aborted_transaction_changes_nothing() -> None:
    publisher = MetadataPublisher()
    publisher.on_commit(
        [batch(1, BeginTransactionRecord(), topic("a", 1), AbortTransactionRecord(reason="x"))]
    )
    assert len(publisher.image.topics) == 0


def test_an_end_record_without_a_begin_record_is_an_error() -> None:
    with pytest.raises(MetadataReplayError):
        MetadataPublisher().on_commit([batch(1, EndTransactionRecord())])


def test_a_snapshot_replaces_the_image() -> None:
    publisher, seen = MetadataPublisher(), Seen()
    publisher.on_commit([batch(1, topic("a", 1), partition(1))])
    publisher.add_listener(seen)
    new = three_brokers(topic("b", 2), partition(2))
    publisher.on_snapshot(LoadedSnapshot(SnapshotId(50, 4), 99, new.to_records()))
    assert list(publisher.image.topics.names()) == ["b"]
    assert publisher.image.provenance == Provenance(49, 4, 99)
    assert len(seen.calls[0][0].topics_delta.deleted) == 1
    assert image_of(base=publisher.image).brokers == new.brokers


def test_a_failing_listener_does_not_affect_other_listeners(caplog) -> None:
    """As in Kafka's MetadataLoader; the failure is logged and counted."""
    publisher = MetadataPublisher()
    seen: list[int] = []

    def failing(*_: object) -> None:
        raise RuntimeError("not foreseen")

    publisher.add_listener(failing)
    publisher.add_listener(lambda _, image: seen.append(len(image.topics)))
    publisher.on_commit([batch(1, topic("a", 1))])
    assert seen == [1]
    assert publisher.apply_errors == 1
    assert "RuntimeError: not foreseen" in caplog.text
