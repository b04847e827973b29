"""Share sessions: epochs, acknowledgements, leader changes and errors, with scripted responses."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo
from barnabas.client.consumer.user_objects import Deserializing
from barnabas.client.errors import ClientError
from barnabas.client.share.acknowledgements import Acknowledgements, AcknowledgeType
from barnabas.client.share.acquired_records import Decoding, ShareSource
from barnabas.client.share.share_fetcher import ShareFetcher, ShareFetchListener
from barnabas.client.share.share_session import AckGroup, ShareRequests
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages import share_acknowledge
from barnabas.protocol.messages.share_consumers import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from barnabas.record.builder import BatchBuilder
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster

VERSION = 2
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOCK_MS = 1000
Leader = LeaderIdAndEpoch


def partition(
    number: int, count: int = 0, error: int = 0, ack_error: int = 0, leader: int = -1
) -> PartitionData:
    """Partition data with `count` acquired records from offset 0."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"v")
    acquired = AcquiredRecords(first_offset=0, last_offset=count - 1, delivery_count=1)
    return PartitionData(
        partition_index=number,
        error_code=error,
        acknowledge_error_code=ack_error,
        current_leader=Leader(leader_id=leader, leader_epoch=9),
        records=bytes(builder.build()) if count else b"",
        acquired_records=[acquired] if count else [],
    )


def fetched(*partitions: PartitionData, error: int = 0) -> Any:
    return ShareFetchResponse(
        error_code=error,
        acquisition_lock_timeout_ms=LOCK_MS,
        node_endpoints=[],
        responses=[ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))],
    )


def acknowledged(number: int, error: int = 0, leader: int = -1) -> Any:
    data = share_acknowledge.PartitionData(
        partition_index=number,
        error_code=error,
        current_leader=share_acknowledge.LeaderIdAndEpoch(leader_id=leader, leader_epoch=9),
    )
    return share_acknowledge.ShareAcknowledgeResponse(
        error_code=0,
        node_endpoints=[],
        responses=[
            share_acknowledge.ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        ],
    )


class Fetching:
    """A fetcher of the partitions `assigned`, and the results of its acknowledgements."""

    def __init__(self, *assigned: TopicPartition, **keys: object) -> None:
        self.cluster = ScriptedCluster(**{"group.id": "g", **keys})
        self.assigned = list(assigned)
        self.busy: set[int] = set()
        self.results: list[ErrorCode | None] = []
        self.wakes = 0
        listener = ShareFetchListener(
            lambda: [(tp, TOPIC_ID) for tp in self.assigned], lambda: self.busy, self._wake
        )
        self.fetcher = ShareFetcher(
            self.cluster,  # type: ignore[arg-type]  # it has the methods that are used
            ShareRequests(self.cluster.config, "m"),
            Decoding(Deserializing(None, None), True),
            listener,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def acknowledge(self, tp: TopicPartition, offset: int, **flags: bool) -> None:
        kind = AcknowledgeType.RENEW if flags.get("is_renewal") else AcknowledgeType.ACCEPT
        acks = Acknowledgements()
        acks.add(offset, kind)
        group = AckGroup(ShareSource(1, TOPIC_ID, tp), acks, self._on_result)
        self.fetcher.acknowledge([group], is_urgent=flags.get("is_urgent", False))

    def _on_result(self, error: ClientError | None) -> None:
        self.results.append(None if error is None else error.error_code)

    def respond(self, response: Any) -> Any:
        """Answer the oldest request; return it."""
        request, on_done = self.cluster.take(VERSION)
        on_done(response)
        return request

    def opened(self) -> Fetching:
        """Open the session with broker 1 by a fetch that returns three records."""
        self.fetcher.start_acquiring()
        self.respond(fetched(partition(0, 3)))
        self.fetcher.is_wanted = False
        assert self.fetcher.first() is not None
        self.fetcher.drop_first()
        assert not self.cluster.calls
        return self

    @property
    def pending_apis(self) -> list[ApiKey]:
        return [call.api_key for call in self.cluster.calls]


def listed(request: Any) -> list[tuple[int, list[tuple[int, int, list[int]]]]]:
    return [
        (
            each.partition_index,
            [(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches],
        )
        for topic in request.topics
        for each in topic.partitions
        if (batches := each.acknowledgement_batches) is not None
    ]


def test_the_first_fetch_opens_the_session_and_later_ones_list_only_changes() -> None:
    fetching = Fetching(T0, T1)
    fetching.fetcher.start_acquiring()
    first = fetching.respond(fetched(partition(0), partition(1)))
    assert (first.share_session_epoch, listed(first)) == (0, [(0, []), (1, [])])
    assert (first.group_id, first.member_id, first.max_records) == ("g", "m", 500)
    fetching.assigned.remove(T0)
    second = fetching.respond(fetched())
    # Its request was sent at once, before the assignment changed.
    assert (second.share_session_epoch, listed(second)) == (1, [])
    third = fetching.respond(fetched())
    assert (third.share_session_epoch, listed(third)) == (2, [])
    assert [(each.topic_id, each.partitions) for each in third.forgotten_topics_data] == [
        (TOPIC_ID, [0])
    ]


def test_nothing_is_fetched_unless_a_poll_waits() -> None:
    fetching = Fetching(T0)
    fetching.fetcher.pump()
    assert not fetching.cluster.calls
    fetching.fetcher.start_acquiring()
    fetching.respond(fetched(partition(0, 3)))
    # Buffered records are returned first.
    assert not fetching.cluster.calls
    assert fetching.wakes


def test_records_whose_locks_have_expired_are_dropped() -> None:
    fetching = Fetching(T0)
    fetching.fetcher.start_acquiring()
    fetching.respond(fetched(partition(0, 3)))
    assert fetching.fetcher.first() is not None
    fetching.cluster.time.advance(LOCK_MS)
    assert fetching.fetcher.first() is None


def test_acknowledgements_travel_with_the_next_fetch() -> None:
    fetching = Fetching(T0).opened()
    fetching.fetcher.is_wanted = True
    fetching.acknowledge(T0, 0)
    request = fetching.respond(fetched(partition(0)))
    assert (request.share_session_epoch, listed(request)) == (1, [(0, [(0, 0, [1])])])
    assert fetching.results == [None]


@pytest.mark.parametrize("flag", ["is_urgent", "is_renewal"])
def test_commits_and_renewals_do_not_wait_for_a_fetch(flag: str) -> None:
    fetching = Fetching(T0).opened()
    fetching.fetcher.is_wanted = True
    fetching.acknowledge(T0, 0, **{flag: True})
    assert fetching.pending_apis == [ApiKey.SHARE_ACKNOWLEDGE]
    request = fetching.respond(acknowledged(0))
    assert request.is_renew_ack == (flag == "is_renewal")
    assert fetching.results == [None]


def test_a_busy_broker_gets_acknowledgements_after_its_response() -> None:
    fetching = Fetching(T0).opened()
    fetching.fetcher.start_acquiring()
    fetching.acknowledge(T0, 0, is_urgent=True)
    assert fetching.pending_apis == [ApiKey.SHARE_FETCH]
    fetching.fetcher.is_wanted = False
    fetching.respond(fetched())
    assert fetching.pending_apis == [ApiKey.SHARE_ACKNOWLEDGE]
    fetching.respond(acknowledged(0, ErrorCode.INVALID_RECORD_STATE))
    assert fetching.results == [ErrorCode.INVALID_RECORD_STATE]


def test_an_acknowledgement_that_the_response_omits_has_failed() -> None:
    fetching = Fetching(T0).opened()
    fetching.acknowledge(T0, 0, is_urgent=True)
    fetching.respond(acknowledged(1))
    assert fetching.results == [ErrorCode.INVALID_RECORD_STATE]


def test_a_lost_session_is_opened_again_and_its_acknowledgements_fail() -> None:
    fetching = Fetching(T0).opened()
    fetching.fetcher.is_wanted = True
    fetching.acknowledge(T0, 0)
    fetching.respond(fetched(error=ErrorCode.SHARE_SESSION_NOT_FOUND))
    assert fetching.results == [ErrorCode.SHARE_SESSION_NOT_FOUND]
    fetching.acknowledge(T0, 1)
    request = fetching.respond(fetched(error=ErrorCode.SHARE_SESSION_NOT_FOUND))
    assert (request.share_session_epoch, listed(request)) == (0, [(0, [])])
    # A second loss is retried after a delay.
    assert not fetching.cluster.calls
    fetching.cluster.time.advance(2000)
    assert fetching.pending_apis == [ApiKey.SHARE_FETCH]
    assert fetching.results == [ErrorCode.SHARE_SESSION_NOT_FOUND] * 2


def test_a_disconnect_ends_the_session_and_is_retried() -> None:
    fetching = Fetching(T0).opened()
    fetching.acknowledge(T0, 0, is_urgent=True)
    fetching.cluster.disconnect()
    assert fetching.results == [None]  # DisconnectedError has no code.
    assert str(fetching.fetcher.trouble) == "h:1: gone"
    fetching.fetcher.start_acquiring()
    assert not fetching.cluster.calls
    fetching.cluster.time.advance(2000)
    request = fetching.respond(fetched(partition(0)))
    assert request.share_session_epoch == 0
    assert fetching.fetcher.trouble is None


def test_a_moved_partition_is_fetched_from_its_new_leader() -> None:
    fetching = Fetching(T0, T1)
    fetching.cluster.metadata.nodes[2] = NodeInfo(2, "h", 2)
    fetching.fetcher.start_acquiring()
    moved = partition(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=2)
    fetching.respond(fetched(moved, partition(1)))
    assert fetching.cluster.called == [1, 2]
    request = fetching.respond(fetched(partition(0, 1)))
    assert (request.share_session_epoch, listed(request)) == (0, [(0, [])])
    assert not fetching.fetcher.errors


def test_fetches_that_are_refused_wait_before_they_are_repeated() -> None:
    fetching = Fetching(T0)
    fetching.fetcher.start_acquiring()
    fetching.respond(fetched(partition(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=1)))
    assert not fetching.cluster.calls
    fetching.cluster.time.advance(2000)
    assert fetching.pending_apis == [ApiKey.SHARE_FETCH]


def test_errors_that_are_not_retriable_are_raised_by_a_poll() -> None:
    fetching = Fetching(T0)
    fetching.fetcher.start_acquiring()
    for _ in range(2):
        fetching.respond(fetched(partition(0, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        fetching.cluster.time.advance(2000)
    fetching.respond(fetched(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert [error.error_code for error in fetching.fetcher.errors] == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]


def test_the_end_sends_acknowledgements_and_closes_the_session() -> None:
    fetching = Fetching(T0).opened()
    ended: list[bool] = []
    fetching.fetcher.start_acquiring()
    fetching.acknowledge(T0, 0)
    fetching.fetcher.end_sessions(lambda: ended.append(True))
    # The pending fetch comes first: its records are released with the session.
    fetching.respond(fetched(partition(0, 3)))
    assert fetching.pending_apis == [ApiKey.SHARE_ACKNOWLEDGE]
    assert not ended
    request = fetching.respond(acknowledged(0))
    assert (request.share_session_epoch, listed(request)) == (-1, [(0, [(0, 0, [1])])])
    assert (ended, fetching.results, fetching.fetcher.has_records) == ([True], [None], False)
    assert not fetching.cluster.calls


def test_without_a_session_the_end_is_immediate() -> None:
    ended: list[bool] = []
    Fetching(T0).fetcher.end_sessions(lambda: ended.append(True))
    assert ended


def test_an_end_does_not_wait_for_a_broker_that_is_gone() -> None:
    fetching = Fetching(T0).opened()
    ended: list[bool] = []
    fetching.fetcher.end_sessions(lambda: ended.append(True))
    fetching.cluster.disconnect()
    assert ended


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_session_without_partitions_is_closed_unless_the_user_has_records(is_busy: bool) -> None:
    fetching = Fetching(T0).opened()
    fetching.assigned.clear()
    fetching.busy = {1} if is_busy else set()
    fetching.fetcher.start_acquiring()
    assert fetching.pending_apis == ([] if is_busy else [ApiKey.SHARE_ACKNOWLEDGE])


@pytest.mark.parametrize(("mode", "brokers"), [("batch_optimized", [1, 2]), ("record_limit", [1])])
def test_with_a_record_limit_one_broker_is_fetched_from_at_a_time(
    mode: str, brokers: list[int]
) -> None:
    fetching = Fetching(T0, T1, **{"share.acquire.mode": mode})
    fetching.cluster.metadata.nodes[2] = NodeInfo(2, "h", 2)
    fetching.cluster.metadata.topics["t"].partitions[1] = PartitionInfo(1, 2, 4)
    fetching.fetcher.start_acquiring()
    assert fetching.cluster.called == brokers
    request = fetching.respond(fetched(partition(0)))
    assert request.share_acquire_mode == (mode == "record_limit")
    # The next one goes to the other broker.
    assert fetching.cluster.called[1] == 2


def test_a_record_limit_needs_version_2() -> None:
    fetching = Fetching(T0, **{"share.acquire.mode": "record_limit"})
    fetching.fetcher.start_acquiring()
    with pytest.raises(ProtocolError, match="record_limit"):
        fetching.cluster.calls[0].build(1)


def test_sessions_whose_brokers_do_not_answer_can_be_abandoned() -> None:
    fetching = Fetching(T0).opened()
    ended: list[bool] = []
    fetching.fetcher.end_sessions(lambda: ended.append(True))
    fetching.fetcher.abandon_sessions()
    # The late response does not end anything that began meanwhile.
    fetching.respond(acknowledged(0))
    assert not ended
    fetching.fetcher.start_acquiring()
    request = fetching.respond(fetched(partition(0)))
    assert request.share_session_epoch == 0
