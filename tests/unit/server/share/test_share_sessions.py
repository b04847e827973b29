"""Share sessions: epochs, limits, news of partitions, and connections that close."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.server.handlers.records.share_fetch import rotated
from barnabas.server.share.share_sessions import (
    UNKNOWN_MAX,
    ShareSession,
    ShareSessionCache,
    ShareSessionKey,
    next_epoch,
)
from barnabas.storage.topic_partition import TopicIdPartition

A, B = ShareSessionKey("group", "a"), ShareSessionKey("group", "b")
PARTITIONS = [TopicIdPartition(bytes(16), "topic", number) for number in range(3)]


class Bench:
    def __init__(self, sessions_max: int = 2) -> None:
        self.gone: list[str] = []
        self.empty: list[str] = []
        self.cache = ShareSessionCache(
            sessions_max, lambda: 5, lambda session: self.gone.append(session.key.member_id),
            self.empty.append,
        )  # fmt: skip

    def begin(self, key: ShareSessionKey, connection: object = 1) -> ShareSession:
        session = self.cache.begin(key, PARTITIONS, connection)
        assert isinstance(session, ShareSession)
        return session


def test_each_accepted_request_advances_the_epoch() -> None:
    bench = Bench()
    assert bench.cache.advance(A, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = bench.begin(A)
    assert bench.cache.advance(A, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert bench.cache.advance(A, 0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert bench.cache.advance(A, 1) is session
    assert bench.cache.advance(A, 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert bench.cache.advance(A, -1) is session
    assert bench.cache.advance(A, 2) is session


def test_the_epoch_after_the_largest_is_one() -> None:
    assert next_epoch(0x7FFF_FFFE) == 0x7FFF_FFFF
    assert next_epoch(0x7FFF_FFFF) == 1


def test_a_full_cache_refuses_new_sessions_only() -> None:
    bench = Bench(sessions_max=1)
    bench.begin(A)
    assert bench.cache.begin(B, PARTITIONS, 2) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    bench.begin(A)
    assert len(bench.cache) == 1
    assert bench.cache.partition_count == 3


def test_repeated_partitions_and_too_many_are_refused() -> None:
    bench = Bench()
    repeated = [PARTITIONS[0], PARTITIONS[0]]
    assert bench.cache.begin(A, repeated, 1) is ErrorCode.UNKNOWN_SERVER_ERROR
    many = [TopicIdPartition(bytes(16), "", number) for number in range(UNKNOWN_MAX + 6)]
    assert bench.cache.begin(A, many, 1) is ErrorCode.INVALID_REQUEST
    session = bench.begin(A)
    assert bench.cache.update(session, many, []) is ErrorCode.INVALID_REQUEST
    assert bench.cache.update(session, many[:-6], []) is ErrorCode.NONE


def test_sessions_end_with_the_connection_that_began_them() -> None:
    bench = Bench()
    bench.begin(A, connection=1)
    bench.begin(B, connection=2)
    # The member has reconnected: its old connection has no session any more.
    bench.begin(A, connection=3)
    bench.cache.on_disconnected(1)
    assert (bench.gone, bench.empty) == ([], [])
    bench.cache.on_disconnected(3)
    assert (bench.gone, bench.empty) == (["a"], [])
    bench.cache.on_disconnected(2)
    assert (bench.gone, bench.empty) == (["a", "b"], ["group"])
    assert bench.cache.evictions == 2
    bench.cache.on_disconnected(2)
    assert bench.empty == ["group"]


def test_a_group_without_sessions_is_reported_when_its_last_connection_closes() -> None:
    bench = Bench()
    bench.begin(A)
    bench.cache.remove(A)
    assert bench.empty == []
    bench.cache.on_disconnected(1)
    assert (bench.gone, bench.empty) == ([], ["group"])


def test_only_partitions_with_news_are_included() -> None:
    session = ShareSession(A, PARTITIONS[:1], 1)
    first, second = PARTITIONS[:2]
    assert not session.note_sent(first, False, False)
    assert session.note_sent(first, False, True)
    session.update([second], [])
    assert session.note_sent(second, False, False)
    assert not session.note_sent(second, False, False)
    assert session.note_sent(second, True, False)
    # The end of an error is news.
    assert session.note_sent(second, False, False)
    assert not session.note_sent(second, False, False)


def test_partitions_with_records_move_to_the_end() -> None:
    session = ShareSession(A, PARTITIONS, 1)
    session.note_sent(PARTITIONS[0], False, True)
    session.update([], [(bytes(16), 1)])
    assert [each.where.partition for each in session.partitions.values()] == [2, 0]


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, [0, 1, 2]), (-1, [0, 1, 2]), (1, [1, 2, 0]), (3, [0, 1, 2])]
)
def test_each_partition_is_first_at_times(epoch: int, expected: list[int]) -> None:
    assert [each.partition for each in rotated(PARTITIONS, epoch)] == expected
