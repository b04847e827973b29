"""Requests of share groups for many partitions do not hold the event loop."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_consumers import (
    AcknowledgementBatch as FetchBatch,
    FetchPartition,
    FetchTopic,
)
from barnabas.server.dispatch import slices
from barnabas.server.handlers.records import share_acknowledge, share_fetch
from barnabas.server.share import delayed_share_fetch, share_partitions
from barnabas.server.share.records.record_states import ACCEPT
from barnabas.server.share.share_partition import SharePartition
from barnabas.waiting import steps
from unit.server.quotas.client_quotas import set_quota
from unit.server.share.consumption import GROUP, Member, acquired, share_broker
from unit.server.simulated_broker import SimulatedClient, produce_request

if TYPE_CHECKING:
    from types import ModuleType

    from unit.server.simulated_broker import SimulatedBroker


WIDE = "wide"
PARTITIONS = 5
ALL = range(PARTITIONS)


def fresh_broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """Return a broker with a topic of several partitions, whose states are initialized."""
    made = share_broker(monkeypatch)
    made.make_topic(WIDE, PARTITIONS)
    partitions = [PartitionData(partition=each, state_epoch=1, start_offset=-1) for each in ALL]
    topics = [InitializeStateData(topic_id=topic_id(made), partitions=partitions)]
    done: list[Any] = []
    made.node.broker.persister.initialize(
        InitializeShareGroupStateRequest(group_id=GROUP, topics=topics), done.append
    )
    assert made.world.run_until(lambda: bool(done))
    return made


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    return fresh_broker(monkeypatch)


def topic_id(broker: SimulatedBroker) -> bytes:
    return broker.metadata(WIDE).topics[0].topic_id


def whole_topic(broker: SimulatedBroker) -> list[FetchTopic]:
    partitions = [FetchPartition(partition_index=each, acknowledgement_batches=[]) for each in ALL]
    return [FetchTopic(topic_id=topic_id(broker), partitions=partitions)]


def produce(broker: SimulatedBroker, partition: int, batch: bytes) -> None:
    request = produce_request(WIDE, batch)
    request.topic_data[0].partition_data[0].index = partition
    assert broker.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def test_an_append_reads_only_its_partition_until_there_are_enough_bytes(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, batch = Member(broker, "a"), broker.batch(b"x")
    asked = member.fetch_request(
        topics=whole_topic(broker), max_wait_ms=20_000, min_bytes=2 * len(batch)
    )
    waiting = member.client.send(asked, 2)
    broker.world.run_for(1_000)
    replicas = broker.node.broker.replicas
    read, sizes = replicas.read, []

    def note_size(params: Any, partitions: list[Any], limit: Any = None) -> Any:
        sizes.append(len(partitions))
        return read(params, partitions, limit)

    monkeypatch.setattr(replicas, "read", note_size)
    produce(broker, 2, batch)
    broker.world.run_for(1_000)
    assert not waiting
    assert set(sizes) == {1}
    produce(broker, 3, batch)
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 0, 1), (0, 0, 1)]
    assert sizes[-1] == PARTITIONS


def acquire_one_each(broker: SimulatedBroker) -> Member:
    """Produce a record to each partition, and return a member that has acquired all."""
    for partition in ALL:
        produce(broker, partition, broker.batch(b"x"))
    member = Member(broker, "a")
    fetched: list[Any] = []
    topics = whole_topic(broker)
    while len(fetched) < PARTITIONS:
        fetched += member.fetch(topics=topics)
        topics = []
    return member


def acknowledgement(broker: SimulatedBroker, member: Member) -> ShareAcknowledgeRequest:
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    partitions = [
        AcknowledgePartition(partition_index=each, acknowledgement_batches=[batch]) for each in ALL
    ]
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=member.name,
        share_session_epoch=member.epoch,
        topics=[AcknowledgeTopic(topic_id=topic_id(broker), partitions=partitions)],
    )


@pytest.mark.parametrize("name", ["load", "acknowledge"])
def test_share_partitions_are_loaded_and_acknowledged_in_several_turns(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(steps, "SLICE_MS", -1.0)
    call, turns = getattr(SharePartition, name), Counter[int]()

    def note_turn(partition: SharePartition, *args: Any) -> None:
        turns[broker.world.scheduler.events_run] += 1
        call(partition, *args)

    monkeypatch.setattr(SharePartition, name, note_turn)
    member = acquire_one_each(broker)
    answer = member.client.ask(acknowledgement(broker, member), 2)
    assert [each.error_code for each in answer.responses[0].partitions] == [0] * PARTITIONS
    assert len(turns) == PARTITIONS


def turns_of(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> Counter[int]:
    """Count the calls of a function by the turn in which they happen, one step a turn."""
    call, turns = getattr(module, name), Counter[int]()

    def note_turn(*args: Any, **fields: Any) -> Any:
        turns[broker.world.scheduler.events_run] += 1
        return call(*args, **fields)

    monkeypatch.setattr(module, name, note_turn)
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)
    return turns


def test_acknowledgements_are_checked_and_answered_one_by_one(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = acquire_one_each(broker)
    checks = turns_of(broker, monkeypatch, share_acknowledge, "are_valid")
    results = turns_of(broker, monkeypatch, share_acknowledge, "PartitionData")
    answer = member.client.ask(acknowledgement(broker, member), 2)
    assert [each.error_code for each in answer.responses[0].partitions] == [0] * PARTITIONS
    assert list(checks.values()) == list(results.values()) == [1] * PARTITIONS


def test_a_fetch_checks_acknowledgements_and_responds_one_by_one(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = acquire_one_each(broker)
    batch = FetchBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    topics = whole_topic(broker)
    for each in topics[0].partitions:
        each.acknowledgement_batches = [batch]
    checks = turns_of(broker, monkeypatch, share_acknowledge, "are_valid")
    results = turns_of(broker, monkeypatch, share_fetch, "_partition_data")
    answer = member.client.ask(member.fetch_request(topics=topics), 2)
    partitions = answer.responses[0].partitions
    assert [each.acknowledge_error_code for each in partitions] == [0] * PARTITIONS
    assert list(checks.values()) == list(results.values()) == [1] * PARTITIONS


def test_a_throttled_fetch_has_no_records(broker: SimulatedBroker) -> None:
    member = Member(broker, "a")
    set_quota(broker, {"client-id": None}, "consumer_byte_rate", 100)
    for partition in ALL:
        produce(broker, partition, broker.batch(b"x" * 2_000))
    topics = whole_topic(broker)
    answers = []
    for _ in range(PARTITIONS):
        answers.append(member.client.ask(member.fetch_request(topics=topics), 2))
        topics = []
    throttled = [each for each in answers if each.throttle_time_ms]
    assert throttled
    assert not any(topic.partitions for each in throttled for topic in each.responses)


AT_ONCE = 2


def serve_all_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve every fetch like a wide one, with one step in each turn."""
    for module in (share_fetch, share_partitions):
        monkeypatch.setattr(module, "NARROW_PARTITIONS_MAX", 0)
    for module in (share_partitions, delayed_share_fetch):
        monkeypatch.setattr(module, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(steps, "SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)


def content(response: Any) -> Any:
    """Return error, size of the records and acquired ranges of each partition."""
    return response.error_code, {
        each.partition_index: (
            each.error_code,
            len(each.records or b""),
            [
                (one.first_offset, one.last_offset, one.delivery_count)
                for one in each.acquired_records
            ],
        )
        for topic in response.responses
        for each in topic.partitions
    }


def answers_of(broker: SimulatedBroker) -> list[Any]:
    """Return the responses to one sequence of requests."""
    member, other = Member(broker, "a"), Member(broker, "b")
    topics = whole_topic(broker)
    topics[0].partitions.append(FetchPartition(partition_index=77, acknowledgement_batches=[]))
    found = []

    def fetch(asked: Member, **fields: Any) -> None:
        found.append(content(asked.client.ask(asked.fetch_request(**fields), 2)))
        broker.world.run_for(50)

    fetch(member, topics=topics, max_wait_ms=200)
    for partition in (4, 0, 2, 2):
        produce(broker, partition, broker.batch(b"x"))
    fetch(member, topics=[], max_records=1)
    fetch(other, topics=topics, max_bytes=1)
    fetch(member, topics=[])
    fetch(other, topics=[], max_wait_ms=100)
    fetch(member, topics=[], max_records=0)
    fetch(member, topics=[], share_session_epoch=-1)
    fetch(other, topics=[])
    return found


def test_a_fetch_in_steps_has_the_same_results(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = answers_of(broker)
    assert sum(size > 0 for _, each in expected for _, size, _ in each.values()) >= 4
    with monkeypatch.context() as patch:
        serve_all_in_steps(patch)
        again = fresh_broker(patch)
        assert answers_of(again) == expected


@pytest.mark.parametrize("name", ["read", "acquire"])
def test_a_wide_fetch_reads_and_acquires_in_several_turns(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    serve_all_in_steps(monkeypatch)
    turns = Counter[int]()
    replicas = broker.node.broker.replicas
    read, acquire = replicas.read, SharePartition.acquire

    def note_read(params: Any, partitions: list[Any], limit: Any = None) -> Any:
        if name == "read":
            turns[broker.world.scheduler.events_run] += len(partitions)
        return read(params, partitions, limit)

    def note_acquired(partition: SharePartition, *args: Any) -> Any:
        if name == "acquire":
            turns[broker.world.scheduler.events_run] += 1
        return acquire(partition, *args)

    monkeypatch.setattr(replicas, "read", note_read)
    monkeypatch.setattr(SharePartition, "acquire", note_acquired)
    acquire_one_each(broker)
    assert sum(turns.values()) >= PARTITIONS
    # The last step of the check and the first one of the completion may share a turn.
    assert max(turns.values()) <= 2 * AT_ONCE


def test_a_wide_fetch_waits_for_records_of_any_partition(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_all_in_steps(monkeypatch)
    member = Member(broker, "a")
    waiting = member.client.send(
        member.fetch_request(topics=whole_topic(broker), max_wait_ms=20_000), 2
    )
    broker.world.run_for(1_000)
    assert not waiting
    produce(broker, PARTITIONS - 1, broker.batch(b"x"))
    assert broker.world.run_until(lambda: bool(waiting))
    assert acquired(waiting[0][0]) == [(0, 0, 1)]
    assert not broker.node.broker.replicas.share_fetches.watched()


def test_a_wide_fetch_acquires_nothing_after_its_client_has_disconnected(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_all_in_steps(monkeypatch)
    member = Member(broker, "a")
    member.fetch(topics=whole_topic(broker), max_wait_ms=100)
    for partition in ALL:
        produce(broker, partition, broker.batch(b"x"))
    acquire, counts = SharePartition.acquire, []

    def note_acquired(partition: SharePartition, *args: Any) -> Any:
        found = acquire(partition, *args)
        counts.append(len(found))
        if len(counts) == 1:
            # The broker notices it between two steps of the fetch.
            connections = [each for one in broker.node.broker.listeners for each in one.connections]
            for each in connections:
                each.abort()
        return found

    monkeypatch.setattr(SharePartition, "acquire", note_acquired)
    member.client.send(member.fetch_request(topics=[]), 2)
    broker.world.run_for(1_000)
    assert len(counts) <= AT_ONCE
    broker.client = SimulatedClient(broker.world, "another")
    other = Member(broker, "b")
    monkeypatch.setattr(SharePartition, "acquire", acquire)
    fetched: list[Any] = []
    topics = whole_topic(broker)
    while len(fetched) < PARTITIONS:
        fetched += other.fetch(topics=topics)
        topics = []
    assert len(fetched) == PARTITIONS
