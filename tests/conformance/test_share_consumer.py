"""Share consumers and `consume --share`, with Barnabas and Apache Kafka as brokers (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

import barnabas
from barnabas import AcknowledgeType, ShareRecord, TopicPartition, aio
from barnabas.client.admin.share_groups import ShareOffset
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.share_groups import ShareGroup, read, share_broker
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["share_broker"]

Broker = BrokerProcess | KafkaProcess
# For assertions that no record arrives.
QUIET_S = 0.3


def values(records: list[ShareRecord]) -> list[bytes]:
    return [record.value for record in records]


def delivered(records: list[ShareRecord]) -> list[tuple[bytes, int]]:
    return [(record.value, record.delivery_count) for record in records]


def test_records_of_a_poll_are_accepted_by_the_next_poll(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b")
    with group.consumer() as consumer:
        assert delivered(read(consumer, 2)) == [(b"a", 1), (b"b", 1)]
        assert not consumer.poll(QUIET_S)
    group.produce(b"c")
    with group.consumer() as consumer:
        assert delivered(read(consumer, 1)) == [(b"c", 1)]


def test_a_closed_consumer_releases_the_records_of_its_last_poll(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer:
        read(consumer, 1)
    with group.consumer() as consumer:
        assert delivered(read(consumer, 1)) == [(b"a", 2)]


def test_a_commit_accepts_the_records_of_the_last_poll(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer:
        read(consumer, 1)
        assert consumer.commit_sync() == {TopicPartition(group.topic, 0): None}
        assert consumer.commit_sync() == {}
    with group.consumer() as consumer:
        group.produce(b"b")
        assert values(read(consumer, 1)) == [b"b"]


def test_released_records_come_again_and_rejected_records_do_not(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"accept", b"release", b"reject")
    with group.consumer(is_explicit=True) as consumer:
        read(
            consumer,
            3,
            lambda r: consumer.acknowledge(r, AcknowledgeType[r.value.decode().upper()]),
        )
        assert delivered(read(consumer, 1, consumer.acknowledge)) == [(b"release", 2)]
        assert not consumer.poll(QUIET_S)


def test_renewed_records_are_returned_by_the_next_poll(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", batch=True)
    with group.consumer(is_explicit=True) as consumer:
        first, second = read(consumer, 2)
        consumer.acknowledge(first, AcknowledgeType.RENEW)
        consumer.acknowledge(second)
        assert delivered(list(consumer.poll(10.0))) == [(b"a", 1)]
        consumer.acknowledge(first, AcknowledgeType.RENEW)
        assert consumer.commit_sync() == {TopicPartition(group.topic, 0): None}
        assert list(consumer.poll(10.0)) == [first]
        consumer.acknowledge(first)
        assert not consumer.poll(QUIET_S)
    with group.consumer() as consumer:
        group.produce(b"c")
        assert values(read(consumer, 1)) == [b"c"]


def test_an_explicit_consumer_must_acknowledge_all_records_before_a_poll(
    share_broker: Broker,
) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", batch=True)
    with group.consumer(is_explicit=True) as consumer:
        first, second = read(consumer, 2)
        consumer.acknowledge(first)
        with pytest.raises(barnabas.IllegalAcknowledgementError, match="1 records"):
            consumer.poll()
        # The last type before a poll or commit counts.
        consumer.acknowledge(second, AcknowledgeType.REJECT)
        consumer.acknowledge(second, AcknowledgeType.RELEASE)
        assert delivered(read(consumer, 1, consumer.acknowledge)) == [(b"b", 2)]
        assert consumer.commit_sync() == {TopicPartition(group.topic, 0): None}
        with pytest.raises(barnabas.IllegalAcknowledgementError, match="offset 1 is not waiting"):
            consumer.acknowledge(second)


def test_commits_of_an_explicit_consumer_send_only_acknowledged_records(
    share_broker: Broker,
) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", batch=True)
    with group.consumer(is_explicit=True) as consumer:
        first, _ = read(consumer, 2)
        consumer.acknowledge(first)
        assert consumer.commit_sync() == {TopicPartition(group.topic, 0): None}
    with group.consumer() as consumer:
        assert delivered(read(consumer, 1)) == [(b"b", 2)]


def test_the_callback_receives_the_results_of_acknowledgements(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", batch=True)
    results: list[tuple[dict[TopicPartition, frozenset[int]], ClientError | None]] = []

    def on_result(
        offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None
    ) -> None:
        results.append((dict(offsets), error))
        with pytest.raises(barnabas.ConcurrentUseError):
            consumer.poll()

    with group.consumer() as consumer:
        consumer.set_acknowledgement_commit_callback(on_result)
        read(consumer, 2)
        consumer.commit_async()
        eventually(lambda: consumer.poll(0.05) or results)
        assert results == [({TopicPartition(group.topic, 0): frozenset({0, 1})}, None)]


def test_an_expired_lock_lets_another_member_have_the_record(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap, share_record_lock_duration_ms="1000")
    group.produce(b"a")
    results: list[ClientError | None] = []
    with group.consumer(is_explicit=True) as consumer, group.consumer() as other:
        consumer.set_acknowledgement_commit_callback(lambda _offsets, error: results.append(error))
        [record] = read(consumer, 1)
        assert consumer.acquisition_lock_timeout_ms() == 1000
        assert delivered(read(other, 1)) == [(b"a", 2)]
        consumer.acknowledge(record)
        [error] = consumer.commit_sync().values()
        assert error is not None
        assert error.error_code is ErrorCode.INVALID_RECORD_STATE
        assert [str(each) for each in results] == [str(error)]


def test_members_share_the_records_of_one_partition(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    with (
        group.consumer(max_poll_records=1) as one,
        group.consumer(max_poll_records=1) as two,
    ):
        one.poll()
        two.poll()
        group.produce(*(b"%d" % number for number in range(40)))
        found: dict[str, list[bytes]] = {"one": [], "two": []}

        def poll_both() -> bool:
            found["one"] += values(list(one.poll(0.05)))
            found["two"] += values(list(two.poll(0.05)))
            return sum(map(len, found.values())) == 40

        eventually(poll_both, found)
        assert sorted(found["one"] + found["two"], key=int) == [b"%d" % n for n in range(40)]
        assert found["one"]
        assert found["two"]


@pytest.mark.parametrize(("mode", "size"), [("batch_optimized", 20), ("record_limit", 5)])
def test_the_acquire_mode_decides_whether_batches_exceed_the_limit(
    share_broker: Broker, mode: str, size: int
) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(*(b"%d" % number for number in range(20)), batch=True)
    with group.consumer(max_poll_records=5, share_acquire_mode=mode) as consumer:
        assert len(eventually(lambda: consumer.poll(0.5))) == size


def test_a_record_that_cannot_be_deserialized_is_released(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"1", b"x", b"3", batch=True)
    with group.consumer(is_explicit=True, value_deserializer=int) as consumer:
        assert [r.value for r in read(consumer, 1, consumer.acknowledge)] == [1]
        with pytest.raises(barnabas.RecordDeserializationError) as caught:
            consumer.poll(10.0)
        assert (caught.value.offset, caught.value.what) == (1, "value")
        assert [r.value for r in read(consumer, 1, consumer.acknowledge)] == [3]
        with pytest.raises(barnabas.RecordDeserializationError):
            eventually(lambda: consumer.poll(0.5))
        # Without this call it would be delivered again.
        consumer.acknowledge_offset(group.topic, 0, 1, AcknowledgeType.REJECT)
        assert not consumer.poll(QUIET_S)


def test_markers_of_transactions_are_acknowledged_as_gaps(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    with barnabas.Producer(share_broker.bootstrap, transactional_id=group.name) as producer:
        producer.init_transactions()
        for value in (b"a", b"b"):
            with producer.transaction():
                producer.send(group.topic, value)
    with group.consumer() as consumer:
        assert [r.offset for r in read(consumer, 2)] == [0, 2]
        consumer.commit_sync()

        def lag() -> int:
            with barnabas.Admin(share_broker.bootstrap) as admin:
                [offsets] = admin.describe_share_group_offsets([group.name]).values()
            assert isinstance(offsets, dict)
            found = offsets[TopicPartition(group.topic, 0)]
            assert isinstance(found, ShareOffset)
            return found.lag

        # The acknowledgement of the last marker may travel with a later poll.
        eventually(lambda: lag() == 0 or consumer.poll(0.05))


def test_a_commit_within_an_iteration_accepts_the_iterated_records(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", b"c", batch=True)
    with group.consumer() as consumer:
        for record in consumer:
            if record.value == b"b":
                consumer.commit_sync()
                break
        assert values(list(consumer.poll())) == [b"c"]
    with group.consumer(consumer_timeout_ms=5000) as consumer:
        assert delivered([next(iter(consumer))]) == [(b"c", 2)]


def test_an_iteration_ends_when_no_record_arrives(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer(consumer_timeout_ms=5000) as consumer:
        read(consumer, 1)
    with group.consumer(consumer_timeout_ms=1000) as consumer:
        eventually(lambda: values(list(consumer)) == [b"a"])


def test_unsubscribe_leaves_the_group_and_releases_the_records(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer, group.consumer() as other:
        read(consumer, 1)
        consumer.unsubscribe()
        assert consumer.subscription() == set()
        with pytest.raises(barnabas.SubscriptionError, match="nothing to poll"):
            consumer.poll()
        assert delivered(read(other, 1)) == [(b"a", 2)]
        other.commit_sync()
        other.subscribe([])
        consumer.subscribe(group.topic)
        group.produce(b"b")
        assert values(read(consumer, 1)) == [b"b"]


def test_a_changed_subscription_changes_the_topics(share_broker: Broker) -> None:
    group, second = ShareGroup(share_broker.bootstrap), ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer:
        read(consumer, 1)
        consumer.subscribe([second.topic])
        assert not consumer.poll(QUIET_S)
        group.produce(b"b")
        second.produce(b"c")
        assert values(read(consumer, 1)) == [b"c"]


def test_wakeup_ends_a_waiting_poll(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    with group.consumer() as consumer:
        consumer.wakeup()
        with pytest.raises(barnabas.WakeupError):
            consumer.poll(60.0)
        group.produce(b"a")
        assert values(read(consumer, 1)) == [b"a"]


def test_partitions_that_are_added_are_read(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer, barnabas.Client(share_broker.bootstrap) as client:
        read(consumer, 1)
        client.create_partitions({group.topic: 2})
        eventually(lambda: client.describe_topics([group.topic])[group.topic].available == [0, 1])
        group.produce(b"b", partition=1)
        assert values(read(consumer, 1)) == [b"b"]


def test_clients_without_telemetry_have_no_instance_id(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    with group.consumer() as consumer, pytest.raises(barnabas.UnsupportedVersionError):
        consumer.client_instance_id(10.0)


def test_the_asyncio_consumer_reads_and_acknowledges(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"accept", b"release", batch=True)

    async def scenario() -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        async with aio.ShareConsumer(
            group.topic,
            bootstrap_servers=group.bootstrap,
            group_id=group.name,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            async for record in consumer:
                found.append((record.value, record.delivery_count))
                is_released = record.value == b"release" and record.delivery_count == 1
                kind = AcknowledgeType.RELEASE if is_released else AcknowledgeType.ACCEPT
                consumer.acknowledge(record, kind)
                if len(found) == 3:
                    break
            assert await consumer.commit_sync() == {TopicPartition(group.topic, 0): None}
            consumer.wakeup()
            with pytest.raises(barnabas.WakeupError):
                await consumer.poll(60.0)
            await consumer.unsubscribe()
        return found

    assert asyncio.run(scenario()) == [(b"accept", 1), (b"release", 1), (b"release", 2)]


def test_printed_records_are_accepted_and_the_others_released(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", b"c", batch=True)
    shell = Shell(share_broker.bootstrap)
    consumed = shell.run("consume", group.topic, "--share", group.name, "-n", "2", "-O")
    assert (consumed.returncode, consumed.stdout) == (0, "0\ta\n1\tb\n")
    with group.consumer() as consumer:
        assert [(r.value, r.delivery_count) for r in read(consumer, 1)] == [(b"c", 2)]


def test_skipped_records_are_rejected(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"1", b"x", b"3", batch=True)
    shell = Shell(share_broker.bootstrap)
    words = ("consume", group.topic, "--share", group.name, "-s", "value=json", "-n", "2")
    failed = shell.run(*words)
    assert failed.returncode == 1
    assert "the value of the record at offset 1 cannot be deserialized" in failed.stderr
    skipped = shell.run(*words, "--on-error", "skip")
    assert (skipped.returncode, skipped.stdout) == (0, "1\n3\n")
    assert "skipped 1 record in total" in skipped.stderr
    with group.consumer() as consumer:
        group.produce(b"5")
        assert [r.value for r in read(consumer, 1)] == [b"5"]


def test_a_share_group_is_described_and_reset_by_commands(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a", b"b", b"c")
    shell = Shell(share_broker.bootstrap)
    with group.consumer() as consumer:
        read(consumer, 3)
        consumer.commit_sync()
        shown = shell.json("groups", "describe", group.name)
        assert (shown["type"], shown["state"], len(shown["members"])) == ("share", "Stable", 1)
        refused = shell.run_in_process(
            "groups", "reset", group.name, "--all-topics", "--to-earliest"
        )
        assert refused.returncode == 1
        assert "stop them first" in refused.stderr
    shown = shell.json("groups", "describe", group.name)
    # The processed records do not count as lag, although the stored start offset follows later.
    (partition,) = shown["partitions"]
    assert (partition["end"], partition["lag"]) == (3, 0)
    planned = shell.json("groups", "reset", group.name, "--all-topics", "--to-offset", "1")
    assert [each["after"] for each in planned["partitions"]] == [1]
    assert not planned["executed"]
    shell.ok("groups", "reset", group.name, "--topic", group.topic, "--to-offset", "1", "--execute")
    shown = shell.json("groups", "describe", group.name)
    assert [each["offset"] for each in shown["partitions"]] == [1]
    with group.consumer() as consumer:
        assert values(read(consumer, 2)) == [b"b", b"c"]


def test_released_records_of_a_batch_come_again_after_a_restart_inside_the_batch(
    share_broker: Broker,
) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"0", b"1", b"2", b"3", batch=True)
    with group.consumer(is_explicit=True) as consumer:
        for record in read(consumer, 4)[:2]:
            consumer.acknowledge(record)
        consumer.commit_sync()
    # The leader loads a start offset inside the record batch.
    share_broker.restart()
    with group.consumer(is_explicit=True) as consumer:
        records = read(consumer, 2)
        assert delivered(records) == [(b"2", 2), (b"3", 2)]
        consumer.acknowledge(records[0])
        consumer.acknowledge(records[1], AcknowledgeType.RELEASE)
        consumer.commit_sync()
        assert delivered(read(consumer, 1, consumer.acknowledge)) == [(b"3", 3)]


def test_a_consumer_continues_after_a_restart_of_the_broker(share_broker: Broker) -> None:
    group = ShareGroup(share_broker.bootstrap)
    group.produce(b"a")
    with group.consumer() as consumer:
        read(consumer, 1)
        consumer.commit_sync()
        share_broker.restart()
        group.produce(b"b")
        assert values(read(consumer, 1)) == [b"b"]
