"""Share consumers of a broker: waiting, timeouts, sessions, restarts and lost leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.share_acknowledge import AcknowledgePartition, AcknowledgeTopic
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from barnabas.server.share.persister import Persister
from barnabas.server.share.records.acquisition import BATCHES_MAX
from barnabas.server.share.share_sessions import UNKNOWN_MAX
from unit.server.share.consumption import (
    TOPIC,
    Member,
    acquired,
    configure_group,
    set_share_version,
    share_broker,
)
from unit.server.simulated_broker import produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from unit.server.simulated_broker import SimulatedBroker


ACCEPT, RELEASE = [1], [2]


def advance(broker: SimulatedBroker, duration_ms: float) -> None:
    """Let virtual time pass."""
    end_ms = broker.world.scheduler.now_ms + duration_ms
    done: list[bool] = []
    broker.host.runtime.timer.call_later(duration_ms, lambda: done.append(True))
    assert broker.world.run_until(lambda: bool(done))
    assert broker.world.scheduler.now_ms >= end_ms


def test_a_fetch_waits_for_records(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    member = Member(broker, "a")
    waiting = member.client.send(member.fetch_request(max_wait_ms=60_000), 2)
    advance(broker, 1_000)
    assert not waiting
    broker.produce(TOPIC, b"one", b"two")
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 1, 1)]
    assert member.acknowledge((0, 1, ACCEPT)) == "NONE"
    assert member.fetch() == []


def test_released_records_go_to_a_waiting_member(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one", b"two")
    first, second = Member(broker, "a"), Member(broker, "b")
    assert first.fetch() == [(0, 1, 1)]
    waiting = second.client.send(second.fetch_request(max_wait_ms=60_000), 2)
    assert first.acknowledge((0, 1, RELEASE)) == "NONE"
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 1, 2)]


def test_locks_time_out_while_members_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    configure_group(broker, share_record_lock_duration_ms="15000")
    broker.produce(TOPIC, b"one")
    first, second = Member(broker, "a"), Member(broker, "b")
    assert first.fetch() == [(0, 0, 1)]
    started_ms = broker.world.scheduler.now_ms
    # Below the timeout of the test's client.
    assert second.fetch(max_wait_ms=20_000) == [(0, 0, 2)]
    assert broker.world.scheduler.now_ms - started_ms > 14_000
    assert first.acknowledge((0, 0, ACCEPT)) == "INVALID_RECORD_STATE"


def test_a_closed_connection_releases_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one")
    first, second = Member(broker, "a"), Member(broker, "b")
    assert first.fetch() == [(0, 0, 1)]
    assert second.fetch() == []
    waiting = second.client.send(second.fetch_request(max_wait_ms=20_000), 2)
    advance(broker, 10)
    first.client.channel.close()
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 0, 2)]


def test_records_are_not_acquired_again_before_their_release_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the delayed write would replace the states that follow it."""
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one", b"two")
    first = Member(broker, "a")
    assert first.fetch() == [(0, 1, 1)]
    delayed: list[Callable[[], None]] = []
    real = Persister.write
    monkeypatch.setattr(Persister, "write", lambda *args: delayed.append(lambda: real(*args)))
    first.client.channel.close()
    assert broker.world.run_until(lambda: bool(delayed))
    second = Member(broker, "b")
    waiting = second.client.send(second.fetch_request(max_wait_ms=20_000), 2)
    advance(broker, 100)
    assert not waiting
    monkeypatch.setattr(Persister, "write", real)
    delayed.pop()()
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 1, 2)]
    assert second.acknowledge((0, 1, ACCEPT)) == "NONE"
    second.client.channel.close()
    advance(broker, 100)
    assert Member(broker, "c").fetch() == []


def test_a_fetch_of_a_closed_connection_acquires_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    first, second = Member(broker, "a"), Member(broker, "b")
    first.client.send(first.fetch_request(max_wait_ms=60_000), 2)
    advance(broker, 100)
    first.client.channel.close()
    advance(broker, 100)
    broker.produce(TOPIC, b"one")
    assert second.fetch() == [(0, 0, 1)]


def test_the_last_request_of_a_session_releases_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one", b"two")
    first, second = Member(broker, "a"), Member(broker, "b")
    assert first.fetch() == [(0, 1, 1)]
    assert first.acknowledge((0, 0, ACCEPT), share_session_epoch=-1) == "NONE"
    assert second.fetch() == [(1, 1, 2)]
    assert first.acknowledge((0, 0, ACCEPT)) == "SHARE_SESSION_NOT_FOUND"


def test_sessions_are_limited_and_refused_late(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch, group_share_max_share_sessions="1", group_share_max_size="1")
    broker.produce(TOPIC, b"one")
    first, second = Member(broker, "a"), Member(broker, "b")
    assert first.fetch() == [(0, 0, 1)]
    started_ms = broker.world.scheduler.now_ms
    answer = second.client.ask(second.fetch_request(max_wait_ms=5_000), 2)
    assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert broker.world.scheduler.now_ms - started_ms >= 5_000
    first.client.channel.close()
    advance(broker, 100)
    assert Member(broker, "c").fetch() == [(0, 0, 2)]


def test_a_restarted_broker_continues_where_the_group_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one", b"two", b"three", b"four")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 3, 1)]
    assert member.acknowledge((0, 0, ACCEPT), (2, 2, ACCEPT), (3, 3, RELEASE)) == "NONE"
    broker.stop()
    broker.restart()
    again = Member(broker, "a")
    # The record between the acknowledged ones is fetched again: only locks knew it.
    assert again.fetch(max_wait_ms=10_000) == [(1, 1, 1), (3, 3, 2)]


def test_a_deleted_topic_ends_its_share_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 0, 1)]
    request = member.fetch_request((0, 0, ACCEPT))
    deleted = broker.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5_000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    advance(broker, 1_000)
    partition = member.client.ask(request, 2).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    member = Member(broker, "a")
    waiting = member.client.send(member.fetch_request(max_wait_ms=20_000), 2)
    advance(broker, 100)
    broker.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5_000), 5)
    advance(broker, 1_000)
    partition = waiting[0][0].responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def produce_in_transaction(broker: SimulatedBroker, *, is_committed: bool) -> None:
    """Append two records of a transaction that ends."""
    find = FindCoordinatorRequest(coordinator_keys=["tx"], key_type=1)
    broker.ask(find, 4)
    advance(broker, 500)
    init = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=10_000)
    producer = broker.ask(init, 4)
    assert producer.error_code == ErrorCode.NONE
    batch = broker.batch(
        b"in",
        b"transaction",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(TOPIC, batch)
    request.transactional_id = "tx"
    answer = broker.ask(request, 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    end = EndTxnRequest(
        transactional_id="tx",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=is_committed,
    )
    assert broker.ask(end, 5).error_code == ErrorCode.NONE
    advance(broker, 500)


def test_records_of_aborted_transactions_are_not_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = share_broker(
        monkeypatch,
        transaction_state_log_num_partitions="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    )
    configure_group(broker, share_isolation_level="read_committed")
    broker.produce(TOPIC, b"one")
    produce_in_transaction(broker, is_committed=False)
    produce_in_transaction(broker, is_committed=True)
    broker.produce(TOPIC, b"two")
    member = Member(broker, "a")
    # Offsets 3 and 6 are the markers, which the client skips and acknowledges as gaps.
    assert member.fetch() == [(0, 0, 1), (3, 7, 1)]
    assert member.acknowledge((0, 0, ACCEPT), (3, 7, [0, 1, 1, 0, 1])) == "NONE"
    assert broker.node.broker is not None
    assert broker.node.broker.shares.in_flight_count == 0


def test_a_state_that_cannot_be_loaded_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    member = Member(broker, "a")
    # Nothing has initialized the state of this group.
    answer = member.client.ask(member.fetch_request(group_id="another group"), 2)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_requests_are_refused_without_the_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = share_broker(monkeypatch)
    member = Member(broker, "a")
    request = member.fetch_request()
    features = type(broker.node.shared.cluster.image.features)
    monkeypatch.setattr(features, "has_share_groups", property(lambda _: False))
    answer = member.client.ask(request, 2)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert member.acknowledge((0, 0, ACCEPT)) == "UNSUPPORTED_VERSION"


def test_share_groups_may_be_disabled_and_enabled_at_run_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one", b"two")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    assert member.acknowledge((0, 0, ACCEPT)) == "NONE"
    set_share_version(broker, 0)
    assert member.acknowledge((1, 1, ACCEPT)) == "UNSUPPORTED_VERSION"
    for level in (1, 2):
        set_share_version(broker, level)
        assert Member(broker, f"of level {level}").fetch()[0][:2] == (1, 1)
        set_share_version(broker, 0)


def test_requests_with_too_many_batches_or_partitions_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = share_broker(monkeypatch)
    broker.produce(TOPIC, b"one")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 0, 1)]
    many = [(0, 0, ACCEPT)] * (BATCHES_MAX + 1)
    assert member.acknowledge(*many) == "INVALID_REQUEST"
    refused = member.client.ask(member.fetch_request(*many, share_session_epoch=1), 2)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    known = broker.node.shared.cluster.image.topics.partition_count
    partitions = [
        AcknowledgePartition(partition_index=index, acknowledgement_batches=[])
        for index in range(UNKNOWN_MAX + known + 1)
    ]
    topics = [AcknowledgeTopic(topic_id=bytes(16), partitions=partitions)]
    member.epoch = 1
    assert member.acknowledge(topics=topics) == "INVALID_REQUEST"
    # None of them has changed the session or the records.
    member.epoch = 1
    assert member.acknowledge((0, 0, ACCEPT)) == "NONE"
