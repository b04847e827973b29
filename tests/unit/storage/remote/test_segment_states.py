"""Segments of one partition: stories, values of the events, and the memory of many segments."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from barnabas.protocol.record_frame import decode_remote_log_record, encode_metadata_record
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from barnabas.storage.remote.remote_storage import SegmentState
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from unit.storage.remote.remote_log_stories import SIZE, WHERE, Story, start, stories, update

# As long as that of our stores.
CUSTOM = b"0123456789abcdefg"
STORIES = stories(Path(__file__).with_name("remote_log.txt"))


@pytest.mark.parametrize("title", STORIES)
def test_story(title: str) -> None:
    story = Story()
    for line in STORIES[title]:
        story.run(line)


def test_a_segment_has_the_values_of_its_events() -> None:
    log = RemoteLog(WHERE)
    record = start("A", (100, 199), [(3, 100), (5, 150)], has_transactions=True)
    record.custom_metadata = b"first"
    log.apply(record)
    segment = log.segment(b"A".ljust(16, b"."))
    assert segment is not None
    assert (segment.topic, segment.topic_id, segment.partition) == (
        WHERE.topic,
        WHERE.topic_id,
        WHERE.partition,
    )
    assert (segment.start_offset, segment.end_offset, segment.size) == (100, 199, SIZE)
    assert segment.max_timestamp == record.max_timestamp_ms
    assert segment.leader_epochs == ((3, 100), (5, 150))
    assert segment.has_transactions
    assert (segment.broker_id, segment.event_ms) == (1, record.event_timestamp_ms)
    assert segment.state is SegmentState.COPY_SEGMENT_STARTED
    assert segment.custom == b"first"


def test_an_update_without_custom_metadata_keeps_what_the_copy_returned() -> None:
    log = RemoteLog(WHERE)
    log.apply(start("A", (0, 9), [(0, 0)]))
    log.apply(update("A", 1, custom=b"returned", broker_id=2))
    deleting = log.apply(update("A", 2, broker_id=3)).segment
    assert deleting is not None
    assert (deleting.custom, deleting.broker_id) == (b"returned", 3)
    assert log.segment(deleting.id) == deleting


def test_empty_custom_metadata_differs_from_none() -> None:
    log = RemoteLog(WHERE)
    log.apply(start("A", (0, 9), [(0, 0)]))
    finished = log.apply(update("A", 1, custom=b"")).segment
    assert finished is not None
    assert finished.custom == b""


def test_the_last_event_returns_the_segment_that_it_removes() -> None:
    log = RemoteLog(WHERE)
    log.apply(start("A", (0, 9), [(0, 0)]))
    log.apply(update("A", 2))
    applied = log.apply(update("A", 3))
    assert applied.was_allowed
    assert applied.segment is not None
    assert applied.segment.state is SegmentState.DELETE_SEGMENT_FINISHED
    assert log.segment(applied.segment.id) is None


@pytest.mark.parametrize("state", [0, 4, -1, 127])
def test_an_update_to_another_state_is_dropped(state: int) -> None:
    log = RemoteLog(WHERE)
    log.apply(start("A", (0, 9), [(0, 0)]))
    assert not log.apply(update("A", state)).was_allowed
    assert log.apply(update("A", 1)).was_allowed


def test_a_first_event_in_another_state_is_dropped() -> None:
    record = start("A", (0, 9), [(0, 0)])
    record.remote_log_segment_state = 1
    log = RemoteLog(WHERE)
    assert log.apply(record) == (None, False)


def test_an_end_that_no_log_can_have_is_dropped() -> None:
    """The end of the log would be 2**63, which no response can carry."""
    for end, is_allowed in ((2**63 - 2, True), (2**63 - 1, False)):
        record = start("A", (0, 9), [(0, 0)])
        record.end_offset = end
        assert RemoteLog(WHERE).apply(record).was_allowed is is_allowed


def test_a_negative_size_is_dropped() -> None:
    record = start("A", (0, 9), [(0, 0)])
    record.segment_size_in_bytes = -1
    assert not RemoteLog(WHERE).apply(record).was_allowed


def test_segments_that_are_deleted_during_an_iteration_are_left_out() -> None:
    log = RemoteLog(WHERE)
    for name, first in (("A", 0), ("B", 10), ("C", 20)):
        log.apply(start(name, (first, first + 9), [(0, first)]))
        log.apply(update(name, 1))
    remaining = log.iterate()
    assert next(remaining).start_offset == 0
    log.apply(update("B", 2))
    log.apply(update("B", 3))
    log.apply(start("D", (30, 39), [(0, 30)]))
    assert [each.start_offset for each in remaining] == [20]


def test_events_made_from_a_segment_give_the_same_segment() -> None:
    first = RemoteLog(WHERE)
    record = start("A", (100, 199), [(3, 100), (5, 150)], has_transactions=True)
    first.apply(record)
    finished = first.apply(update("A", 1, custom=b"x" * 17)).segment
    started = RemoteLog(WHERE)
    assert finished is not None
    made = started.apply(record).segment
    assert made is not None
    second = RemoteLog(WHERE)
    for event in (started_record(made), update_record(finished)):
        decoded = decode_remote_log_record(encode_metadata_record(event, 0))
        assert isinstance(
            decoded, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
        )
        assert second.apply(decoded).was_allowed
    assert second.segments() == [finished]


def test_a_segment_needs_less_than_450_bytes_of_memory() -> None:
    count = 5_000
    log = RemoteLog(WHERE)
    events = []
    for number in range(count):
        first = (1 << 33) + number * 1000
        events += [start("", (first, first + 999), [(7, first)]), update("", 1, custom=CUSTOM)]
        for each in events[-2:]:
            each.remote_log_segment_id.id = number.to_bytes(16)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in events:
            log.apply(each)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert log.count == count
    assert used / count < 450
