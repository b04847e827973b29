"""Reports of users of aiokafka and kafka-python, tested with our client.

Each test names the project, the number of the issue or change in its tracker, and the fault. Groups
are tested with each protocol of `group_place`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time

import pytest

import barnabas
import barnabas.aio
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from conformance.tracker_places import (
    PROMPT_S,
    Place,
    RecordingListener,
    brokers,
    group,
    group_place,
    numbers,
    offset_of,
    place,
    poll_until,
    poll_until_raised,
    read,
    read_and_commit,
    read_until,
    remove_silently,
)
from waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.conformance
__all__ = ["brokers", "group", "group_place", "place"]

MAX_POLL_INTERVAL_MS = 2_000


def test_a_member_survives_a_broker_restart_and_another_closes_during_it(
    group_place: Place, group: str
) -> None:
    """Three reports of a broker that dies.

    aiokafka 1154: the consumer never rejoined. kafka-python 1671: the consumer deadlocked. aiokafka
    659: closing a group's member never ended while all brokers were down.
    """
    topic = group_place.make_topic()
    group_place.write(topic, "before")
    with group_place.consumer(group, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        assert read_and_commit(consumer) == ["before"]
        closing = group_place.consumer(f"{group}-closing")
        closing.subscribe([topic])
        assert read(1, closing) == ["before"]
        group_place.broker.kill()
        began = time.monotonic()
        closing.close(2)
        assert time.monotonic() - began < PROMPT_S
        consumer.poll(0.3)
        group_place.broker.start()
        group_place.write(topic, "after")
        # A member that the group has removed meanwhile reads its uncommitted records again.
        assert set(read_and_commit(consumer)) == {"after"}


def test_a_cancelled_read_does_not_end_the_reading(group_place: Place, group: str) -> None:
    """aiokafka 983: a cancellation ended the fetching task, and no further record arrived."""
    topic = group_place.make_topic()

    async def scenario() -> list[str]:
        async with barnabas.aio.Consumer(**group_place.keys(group)) as consumer:
            consumer.subscribe([topic])
            for _ in range(5):
                reading = asyncio.create_task(consumer.poll(10))
                await asyncio.sleep(0.2)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            await asyncio.to_thread(group_place.write, topic, "one", "two")
            values: list[str] = []
            while len(values) < 2:
                records = await asyncio.wait_for(consumer.poll(10), PATIENCE_S)
                values += [record.value.decode() for record in records]
            return values

    assert asyncio.run(scenario()) == ["one", "two"]


def test_a_wait_for_records_ends_when_the_consumer_is_closed(place: Place, group: str) -> None:
    """aiokafka 80: a poll continued to wait for records after the consumer was stopped."""
    topic = place.make_topic()

    async def scenario() -> None:
        consumer = barnabas.aio.Consumer(**place.keys(group))
        consumer.subscribe([topic])
        waiting = asyncio.create_task(consumer.poll(10 * PATIENCE_S))
        await asyncio.sleep(0.5)
        await consumer.close()
        with pytest.raises(ClientError):
            await asyncio.wait_for(waiting, PATIENCE_S)

    asyncio.run(scenario())


def test_many_consumers_close_in_a_short_time(group_place: Place, group: str) -> None:
    """aiokafka 773: stopping many consumers at once froze in the tasks that send heartbeats."""
    topic = group_place.make_topic()

    async def scenario() -> None:
        consumers = [
            barnabas.aio.Consumer(**group_place.keys(f"{group}-{number}")) for number in range(30)
        ]
        for consumer in consumers:
            consumer.subscribe([topic])
        await asyncio.gather(*(consumer.poll(0.5) for consumer in consumers))
        closing = asyncio.gather(*(consumer.close() for consumer in consumers))
        await asyncio.wait_for(closing, PATIENCE_S)

    asyncio.run(scenario())


def test_a_member_idle_beyond_max_poll_interval_rejoins_with_its_next_polls(
    group_place: Place, group: str
) -> None:
    """aiokafka 764: after max.poll.interval.ms without a call, the consumer hung forever."""
    topic = group_place.make_topic()
    group_place.write(topic, "one")
    listener = RecordingListener()
    keys = {"max_poll_interval_ms": MAX_POLL_INTERVAL_MS, "enable_auto_commit": False}
    with group_place.consumer(group, **keys) as consumer:
        consumer.subscribe([topic], listener)
        # On a slow machine, polls may be late, so the record may be read again.
        assert set(read_and_commit(consumer)) == {"one"}
        eventually(lambda: consumer.group_metadata().generation_id < 0, "it is still a member")
        group_place.write(topic, "two")
        assert set(read_and_commit(consumer)) == {"two"}
    names = [name for name, _ in listener.seen]
    assert "lost" in names
    assert names[0] == "assigned"
    assert names[names.index("lost") + 1] == "assigned"


def test_a_subscription_changed_during_a_join_takes_effect(group_place: Place, group: str) -> None:
    """aiokafka 88: topics that were subscribed to during a JoinGroup were never assigned."""
    first, second = group_place.make_topic(), group_place.make_topic()
    group_place.write(second, "of the second")
    with group_place.consumer(group) as consumer:
        consumer.subscribe([first])
        consumer.poll(0)
        consumer.subscribe([first, second])
        assert read(1, consumer) == ["of the second"]
        poll_until(lambda: {tp.topic for tp in consumer.assignment()} == {first, second}, consumer)


def test_a_later_topic_that_matches_the_pattern_is_read(group_place: Place, group: str) -> None:
    """aiokafka 46: new topics were not added to a subscription by pattern."""
    prefix = f"pattern-{os.getpid()}-{next(numbers)}"
    group_place.make_topic(name=f"{prefix}-a")
    group_place.write(f"{prefix}-a", "a")
    with group_place.consumer(group, metadata_max_age_ms=500) as consumer:
        consumer.subscribe(re.compile(f"{prefix}-.*"))
        assert read(1, consumer) == ["a"]
        group_place.make_topic(name=f"{prefix}-b")
        group_place.write(f"{prefix}-b", "b")
        read_until("b", consumer)


def test_gaps_of_a_compacted_topic_neither_stop_nor_repeat_the_reading(place: Place) -> None:
    """aiokafka 71, kafka-python 1724: records after a gap were skipped, or reading stopped."""
    topic = place.make_topic(
        **{
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": "1048576",
            "segment.ms": "100",
            "delete.retention.ms": "0",
        }
    )
    with barnabas.Client(place.broker.bootstrap) as client, client.producer() as producer:
        for number in range(300):
            # Most keys are written again, so their older records are removed.
            key = b"often" if number % 10 else b"once-%d" % number
            producer.send(topic, b"%d" % number, key, 0)
            producer.flush()
    with place.consumer() as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        offsets: list[int] = []

        def reads_the_last() -> bool:
            offsets.extend(record.offset for record in consumer.poll(1))
            return 299 in offsets

        eventually(reads_the_last, lambda: offsets)
        assert offsets == sorted(set(offsets))
        assert set(range(0, 300, 10)) <= set(offsets)
        assert consumer.position(tp) == 300


def test_a_poll_without_records_lasts_as_long_as_its_timeout(
    group_place: Place, group: str
) -> None:
    """aiokafka 117: a response without records ended the call before its timeout."""
    topic = group_place.make_topic()
    with group_place.consumer(group) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer.assignment, consumer)
        began = time.monotonic()
        assert len(consumer.poll(1.0)) == 0
        assert 0.95 < time.monotonic() - began < PROMPT_S


def test_a_member_removed_from_the_group_rejoins_without_an_error(
    group_place: Place, group: str
) -> None:
    """aiokafka 611: an automatic commit of a removed member raised UNKNOWN_MEMBER_ID."""
    topic = group_place.make_topic()
    group_place.write(topic, "one")
    with (
        group_place.consumer(group, auto_commit_interval_ms=100) as consumer,
        barnabas.Client(group_place.broker.bootstrap) as client,
    ):
        consumer.subscribe([topic])
        assert read(1, consumer) == ["one"]
        remove_silently(group_place, consumer.group_metadata())
        group_place.write(topic, "two")
        # Records that were not committed before the removal are read again.
        assert read_until("two", consumer)[-1] == "two"
        tp = TopicPartition(topic, 0)
        poll_until(lambda: offset_of(client, group, tp) == 2, consumer)


def test_commits_after_a_rejoin_are_of_the_new_generation(group_place: Place, group: str) -> None:
    """aiokafka 727: after a rejoin, commits had the previous member id and generation."""
    topic = group_place.make_topic(2)
    group_place.write(topic, "one")
    keys = {"enable_auto_commit": False}
    with group_place.consumer(group, **keys) as consumer:
        consumer.subscribe([topic])
        assert read(1, consumer) == ["one"]
        before = consumer.group_metadata().generation_id
        with group_place.consumer(group, **keys) as other:
            other.subscribe([topic])
            poll_until(lambda: len(other.assignment()) == 1, consumer, other)
            poll_until(lambda: len(consumer.assignment()) == 1, consumer, other)
        poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        group_place.write(topic, "two")
        # Nothing is committed yet: earlier records may be read again.
        assert read_until("two", consumer)[-1] == "two"
        assert consumer.group_metadata().generation_id > before
        consumer.commit()
        tp = TopicPartition(topic, 0)
        assert consumer.committed([tp])[tp].offset == 2


def test_without_a_group_a_metadata_update_changes_no_position(place: Place) -> None:
    """aiokafka 441: without a group, each update of the metadata reset the positions."""
    topic = place.make_topic()
    place.write(topic, "one", "two", "three")
    with place.consumer(metadata_max_age_ms=100) as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        assert read(3, consumer) == ["one", "two", "three"]
        consumer.seek(tp, 2)
        assert read(1, consumer) == ["three"]
        for _ in range(10):
            assert len(consumer.poll(0.1)) == 0
        assert consumer.position(tp) == 3


def test_a_commit_does_not_wait_behind_a_fetch_that_waits_for_records(
    group_place: Place, group: str
) -> None:
    """aiokafka 128 and 137: commits waited behind long fetches on the same connection."""
    topic = group_place.make_topic()
    group_place.write(topic, "one")
    keys = {"fetch_max_wait_ms": 60_000, "enable_auto_commit": False}
    with group_place.consumer(group, **keys) as consumer:
        consumer.subscribe([topic])
        read(1, consumer)
        consumer.poll(0.3)
        began = time.monotonic()
        consumer.commit()
        assert time.monotonic() - began < PROMPT_S


def test_a_fatal_error_is_raised_and_not_only_logged(place: Place, group: str) -> None:
    """aiokafka 294: the coordinator's error was only logged, and the consumer stopped."""
    topic = place.make_topic()
    with (
        place.consumer(group, partition_assignment_strategy="range") as one,
        place.consumer(group, partition_assignment_strategy="roundrobin") as other,
    ):
        one.subscribe([topic])
        poll_until(one.assignment, one)
        other.subscribe([topic])
        with pytest.raises(ClientError, match="INCONSISTENT_GROUP_PROTOCOL"):
            poll_until(lambda: False, one, other)


def test_the_last_of_several_quick_seeks_applies(place: Place) -> None:
    """aiokafka 258: concurrent seeks and calls of `position` interfered with each other."""
    topic = place.make_topic()
    place.write(topic, *(str(number) for number in range(10)))
    with place.consumer() as consumer:
        tp = TopicPartition(topic, 0)
        consumer.assign([tp])
        for _ in range(20):
            consumer.seek_to_end([tp])
            consumer.seek_to_beginning([tp])
            assert consumer.position(tp) == 0
            consumer.seek_to_end([tp])
            assert consumer.position(tp) == 10
            consumer.seek_to_beginning([tp])
            consumer.poll(0)
            consumer.seek(tp, 7)
            assert consumer.position(tp) == 7
            assert read(3, consumer) == ["7", "8", "9"]


def test_commits_made_while_partitions_are_revoked_count_for_their_next_owner(
    group_place: Place, group: str
) -> None:
    """aiokafka 1084: the next owner got the partition before the commit on revocation."""
    topic = group_place.make_written_topic(2, 5)
    keys = {"enable_auto_commit": False}
    with group_place.consumer(group, **keys) as first, group_place.consumer(group, **keys) as next_:
        listener = RecordingListener(revoked=lambda _partitions: first.commit())
        first.subscribe([topic], listener)
        assert len(read(10, first)) == 10
        next_.subscribe([topic])
        poll_until(lambda: len(next_.assignment()) == 1, first, next_)
        positions = [next_.position(tp) for tp in next_.assignment()]
        assert positions == [5]


def test_commits_of_the_last_revocation_count_when_a_consumer_is_closed(
    group_place: Place, group: str
) -> None:
    """kafka-python 3020: closing did not call the listener, so its commits were missing."""
    topic = group_place.make_topic()
    group_place.write(topic, "one", "two")
    with group_place.consumer(group, enable_auto_commit=False) as consumer:
        consumer.subscribe(
            [topic], RecordingListener(revoked=lambda _partitions: consumer.commit())
        )
        assert read(2, consumer) == ["one", "two"]
    with barnabas.Client(group_place.broker.bootstrap) as client:
        assert offset_of(client, group, TopicPartition(topic, 0)) == 2


def test_a_consumer_can_be_closed_from_another_thread_while_it_joins(
    group_place: Place, group: str
) -> None:
    """kafka-python 1562: closing during a join in another thread caused a deadlock."""
    topic = group_place.make_topic()
    for _ in range(5):
        consumer = group_place.consumer(group)
        consumer.subscribe([topic])
        raised: list[BaseException] = []

        thread = threading.Thread(target=poll_until_raised, args=(consumer, raised))
        thread.start()
        time.sleep(0.02)
        consumer.close(PATIENCE_S)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert raised


def test_polls_with_timeout_zero_join_and_read(group_place: Place, group: str) -> None:
    """kafka-python 2609: with a timeout of zero, the consumer made no progress."""
    topic = group_place.make_topic()
    group_place.write(topic, "one")
    with group_place.consumer(group) as consumer:
        consumer.subscribe([topic])
        values = eventually(lambda: [record.value for record in consumer.poll(0)])
        assert values == [b"one"]


def test_a_resumed_partition_continues_at_its_position(place: Place) -> None:
    """kafka-python 2011: after a pause, reading continued far ahead of the last record."""
    topic = place.make_written_topic(2, 500)
    with place.consumer(max_poll_records=10) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        reached = dict.fromkeys(partitions, 0)
        pausing = itertools.cycle(partitions)
        deadline = time.monotonic() + PATIENCE_S
        while min(reached.values()) < 500:
            assert time.monotonic() < deadline, reached
            paused = next(pausing)
            consumer.pause([paused])
            for _ in range(3):
                for record in consumer.poll(0.2):
                    tp = TopicPartition(record.topic, record.partition)
                    assert tp != paused
                    assert record.offset == reached[tp]
                    reached[tp] += 1
            consumer.resume([paused])


def test_a_poll_keeps_its_timeout_while_the_group_waits_for_another_member(
    group_place: Place, group: str
) -> None:
    """kafka-python 1223: a poll blocked until the session of a silent member expired."""
    topic = group_place.make_topic()
    silent = group_place.consumer(group)
    silent.subscribe([topic])
    poll_until(silent.assignment, silent)
    with group_place.consumer(group) as consumer:
        consumer.subscribe([topic])
        for _ in range(3):
            began = time.monotonic()
            consumer.poll(0.2)
            assert time.monotonic() - began < PROMPT_S
    silent.close()


def test_fetched_records_of_a_revoked_partition_are_not_returned(
    group_place: Place, group: str
) -> None:
    """kafka-python 497: after a rebalance, records from old buffers were returned twice."""
    topic = group_place.make_written_topic(2, 300)
    keys = {"max_poll_records": 20, "auto_commit_interval_ms": 100_000}
    values: list[str] = []
    with group_place.consumer(group, **keys) as first, group_place.consumer(group, **keys) as other:
        first.subscribe([topic])
        values += read(40, first)
        other.subscribe([topic])
        poll_until(
            lambda: len(first.assignment()) == len(other.assignment()) == 1,
            first,
            other,
            values=values,
        )
        values += read(600 - len(values), first, other)
        values += [record.value.decode() for record in first.poll(0.3)]
        values += [record.value.decode() for record in other.poll(0.3)]
    assert sorted(values) == sorted(f"{p}-{n}" for p in range(2) for n in range(300))


def test_of_two_members_and_one_partition_only_one_reads(group_place: Place, group: str) -> None:
    """kafka-python 1880: both members continued to read the only partition."""
    topic = group_place.make_topic()
    with group_place.consumer(group) as one, group_place.consumer(group) as two:
        one.subscribe([topic])
        poll_until(one.assignment, one)
        two.subscribe([topic])

        def both_are_members() -> bool:
            owned = sorted(len(each.assignment()) for each in (one, two))
            generations = {each.group_metadata().generation_id for each in (one, two)}
            return owned == [0, 1] and len(generations) == 1

        poll_until(both_are_members, one, two)
        one.poll(0.3)
        two.poll(0.3)
        assert sorted(len(each.assignment()) for each in (one, two)) == [0, 1]
        group_place.write(topic, *(str(n) for n in range(100)))
        assert read(100, one, two) == [str(n) for n in range(100)]
