"""Fetching: prefetch, positions, sessions, and recovery from errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.client.connections.metadata_cache import NodeInfo
from barnabas.client.errors import CorruptRecordsError, OffsetOutOfRangeError
from barnabas.client.fetch.fetcher import ReaderOptions
from barnabas.client.fetch.record_set import FetchFailure, RecordSet, read_records
from barnabas.network.frame_buffers import FrameBuffers
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchResponse
from unit.client.fetch.started_fetcher import TP, VERSION, answer, batch, fetching, restart, started
from unit.client.scripted_cluster import ScriptedCluster


def asked_offset(request: Any) -> int:
    ((partition,),) = (topic.partitions for topic in request.topics)
    offset: int = partition.fetch_offset
    return offset


def test_the_next_fetch_is_sent_before_the_first_response_is_taken() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer(batch(0, 5)))
    request, _ = cluster.take(VERSION)
    assert asked_offset(request) == 5
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert (item.first_offset, item.end_offset, item.high_watermark) == (0, 5, 100)


@pytest.mark.parametrize("keeps_views", [True, False])
def test_only_a_reader_that_allows_it_gets_a_view_of_the_receive_buffer(keeps_views: bool) -> None:
    cluster = ScriptedCluster()
    fetcher = started(cluster, options=ReaderOptions(keeps_views=keeps_views))
    content = b"".join(batch(number * 1000, 1000) for number in range(50))
    frame = FrameBuffers().take(len(content), 0)
    frame[: len(content)] = content
    cluster.take(VERSION)[1](answer(frame[: len(content)]))
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert type(item.data) is (memoryview if keeps_views else bytes)
    assert (item.data, item.end_offset) == (content, 50_000)
    assert len(read_records(item)) == 50_000


def test_a_range_ends_at_its_end_offset_inside_a_batch() -> None:
    cluster, fetcher = fetching(2, end=4)
    cluster.take(VERSION)[1](answer(batch(0, 10)))
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert (item.first_offset, item.end_offset) == (2, 4)
    assert fetcher.is_finished
    assert not cluster.calls


def test_a_range_ends_after_a_gap() -> None:
    cluster, fetcher = fetching(0, end=8)
    cluster.take(VERSION)[1](answer(batch(20, 1)))
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert item.end_offset == 8
    assert fetcher.is_finished


def test_a_response_for_a_position_that_has_changed_is_dropped() -> None:
    cluster, fetcher = fetching()
    _, reply = cluster.take(VERSION)
    restart(fetcher, 50)
    reply(answer(batch(0, 5)))
    assert not fetcher.buffer
    assert asked_offset(cluster.take(VERSION)[0]) == 50


def test_after_a_leader_change_metadata_is_refreshed_and_the_fetch_retried() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer(code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert cluster.updates_requested == 1
    assert not cluster.calls
    cluster.time.advance(200)
    request, _ = cluster.take(VERSION)
    # The session still holds the partition at the same offset: nothing to name.
    assert (request.session_epoch, request.topics, request.forgotten_topics_data) == (1, [], [])
    assert not fetcher.buffer


def test_a_new_leader_is_read_while_the_old_one_does_not_answer() -> None:
    cluster, fetcher = fetching()
    cluster.metadata.nodes[2] = NodeInfo(2, "h", 2)
    assert cluster.metadata.move_leader(TP, 2, leader_epoch=5)
    fetcher.send_fetches()
    assert cluster.called == [1, 2]


def test_an_offset_out_of_range_stops_and_fails_the_partition() -> None:
    cluster, fetcher = fetching(1)
    cluster.take(VERSION)[1](answer(code=ErrorCode.OFFSET_OUT_OF_RANGE))
    item = fetcher.take()
    assert isinstance(item, FetchFailure)
    assert isinstance(item.error, OffsetOutOfRangeError)
    assert (item.error.position, item.error.log_start_offset) == (1, 3)
    assert not cluster.calls


def test_a_full_fetch_is_sent_immediately_after_a_lost_session() -> None:
    cluster, _fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    _, reply = cluster.take(VERSION)
    reply(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[]))
    request, _ = cluster.take(VERSION)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked_offset(request) == 0


def test_a_full_fetch_is_sent_after_a_lost_connection_and_a_backoff() -> None:
    cluster, _fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    cluster.disconnect()
    assert not cluster.calls
    cluster.time.advance(200)
    request, _ = cluster.take(VERSION)
    assert (request.session_id, request.session_epoch) == (7, 0)


def test_nothing_is_fetched_while_the_buffer_is_full() -> None:
    cluster = ScriptedCluster(queued_max_bytes=10)
    fetcher = started(cluster)
    cluster.take(VERSION)[1](answer(batch(0, 5)))
    assert not cluster.calls
    fetcher.take()
    assert asked_offset(cluster.take(VERSION)[0]) == 5


def test_a_wrong_crc_is_an_error_that_names_the_offset() -> None:
    cluster, fetcher = fetching()
    data = bytearray(batch(0, 5))
    data[-1] ^= 1
    cluster.take(VERSION)[1](answer(bytes(data)))
    item = fetcher.take()
    assert isinstance(item, FetchFailure)
    assert isinstance(item.error, CorruptRecordsError)


def test_topics_without_an_id_are_fetched_by_name() -> None:
    cluster, fetcher = fetching()
    cluster.calls.clear()
    fetcher.close()
    cluster.metadata.topics["t"] = cluster.metadata.topics["t"].__class__(
        "t", bytes(16), False, cluster.metadata.topics["t"].partitions
    )
    started(cluster)
    assert cluster.calls[0].max_version == 12


def test_a_session_is_closed_while_a_fetch_is_pending() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    ended: list[bool] = []
    waiting, _ = cluster.take(VERSION)
    fetcher.end_sessions(lambda: ended.append(True))
    request, respond = cluster.take(VERSION)
    assert (waiting.session_id, waiting.session_epoch) == (7, 1)
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (7, -1, 0)
    assert (request.topics, request.forgotten_topics_data, ended) == ([], [], [])
    *_, limit = cluster.time.pending()
    respond(FetchResponse(responses=[]))
    assert ended == [True]
    assert limit not in cluster.time.pending(), "the response ends the timer"
    cluster.time.advance(60_000)
    assert (ended, cluster.calls) == ([True], [])


def test_closing_a_session_has_a_short_timeout() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    ended: list[bool] = []
    fetcher.end_sessions(lambda: ended.append(True))
    cluster.time.advance(1_000)
    assert ended == [True]


def test_without_a_session_no_closing_request_is_sent() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer(session_id=0))
    cluster.take(VERSION)
    ended: list[bool] = []
    fetcher.end_sessions(lambda: ended.append(True))
    assert (ended, cluster.calls) == ([True], [])


def test_records_before_a_corrupt_batch_are_returned_first() -> None:
    cluster, fetcher = fetching()
    broken = bytearray(batch(5, 5))
    broken[-1] ^= 1
    cluster.take(VERSION)[1](answer(batch(0, 5) + bytes(broken)))
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert (item.first_offset, item.end_offset) == (0, 5)
    failure = fetcher.take()
    assert isinstance(failure, FetchFailure)
    assert isinstance(failure.error, CorruptRecordsError)
    assert (failure.error.offset, failure.error.next_offset) == (5, 10)
    assert not cluster.calls


def test_a_response_with_a_session_error_is_dropped() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    _, reply = cluster.take(VERSION)
    dropped = answer(batch(0, 5))
    dropped.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    reply(dropped)
    assert not fetcher.buffer
    request, _ = cluster.take(VERSION)
    assert (request.session_epoch, asked_offset(request)) == (0, 0)


@pytest.mark.parametrize(
    ("code", "updates"),
    [
        (ErrorCode.UNKNOWN_TOPIC_ID, 1),
        (ErrorCode.INCONSISTENT_TOPIC_ID, 1),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 1),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
    ],
)
def test_errors_of_topic_ids_request_a_metadata_update(code: ErrorCode, updates: int) -> None:
    cluster, _fetcher = fetching()
    cluster.take(VERSION)[1](FetchResponse(error_code=code, responses=[]))
    assert cluster.updates_requested == updates


def test_after_an_unrequested_partition_a_full_fetch_is_sent_after_a_backoff() -> None:
    cluster, fetcher = fetching()
    cluster.take(VERSION)[1](answer())
    _, reply = cluster.take(VERSION)
    unrequested = answer(batch(0, 5))
    unrequested.responses[0].partitions[0].partition_index = 1
    reply(unrequested)
    assert not fetcher.buffer
    assert "t-1, which was not requested" in str(fetcher.trouble)
    assert not cluster.calls
    assert cluster.updates_requested == 1
    cluster.time.advance(200)
    request, _ = cluster.take(VERSION)
    assert (request.session_id, request.session_epoch) == (7, 0)


def test_a_range_of_a_topic_that_is_created_again_fails() -> None:
    cluster, fetcher = fetching()
    cluster.metadata.topics["t"] = replace(cluster.metadata.topics["t"], topic_id=b"n" * 16)
    cluster.take(VERSION)[1](answer(batch(0, 5)))
    assert isinstance(fetcher.take(), RecordSet)
    failure = fetcher.take()
    assert isinstance(failure, FetchFailure)
    assert "deleted and created again" in str(failure.error)
    assert not cluster.calls


def test_a_range_is_read_although_the_metadata_is_older_than_the_topic() -> None:
    cluster, fetcher = fetching()
    _, reply = cluster.take(VERSION)
    cluster.metadata.topics["t"] = replace(cluster.metadata.topics["t"], topic_id=b"n" * 16)
    cluster.metadata.names[b"n" * 16] = "t"
    reply(answer(code=ErrorCode.UNKNOWN_TOPIC_ID, session_id=0))
    cluster.time.advance(1_000)
    request, reply = cluster.take(VERSION)
    assert [topic.topic_id for topic in request.topics] == [b"n" * 16]
    found = answer(batch(0, 5), session_id=0)
    found.responses[0].topic_id = b"n" * 16
    reply(found)
    item = fetcher.take()
    assert isinstance(item, RecordSet)
    assert item.end_offset == 5
