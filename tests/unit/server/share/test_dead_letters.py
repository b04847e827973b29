"""Dead-letter topics of share groups (KIP-1191), on a broker in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.configs_image import TOPIC as TOPIC_CONFIGS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.write_share_group_state import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from barnabas.record.columns import iter_records
from barnabas.record.compression import GZIP
from barnabas.server.share.dead_letter_writer import DeadLetterCounts
from barnabas.server.share.records.record_states import RecordState
from unit.server.share.consumption import (
    GROUP,
    TOPIC,
    Member,
    configure_group,
    set_share_version,
    share_broker,
)

if TYPE_CHECKING:
    from unit.server.simulated_broker import SimulatedBroker

DEAD = "dlq.work"
ACCEPT, RELEASE, REJECT = [1], [2], [3]
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


def make_dead_letter_topic(broker: SimulatedBroker, partitions: int = 1, **configs: str) -> None:
    """Create the dead-letter topic of the group."""
    broker.make_topic(DEAD, partitions, errors_deadletterqueue_group_enable="true", **configs)
    configure_group(broker, errors_deadletterqueue_topic_name=DEAD)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    """A broker whose group has no dead-letter topic."""
    return share_broker(monkeypatch)


def dead_letters(broker: SimulatedBroker, count: int) -> list[Any]:
    """Wait for so many records of the dead-letter topic, and return them."""
    assert broker.world.run_until(lambda: counts(broker).records >= count)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 24,
        topics=[FetchTopic(topic=DEAD, partitions=[partition])],
        forgotten_topics_data=[],
    )
    (topic,) = broker.ask(request, 11).responses
    found = list(iter_records(bytes(topic.partitions[0].records)))
    assert len(found) == count
    return found


def headers(record: Any) -> dict[str, str]:
    return {name: (content or b"").decode() for name, content in record.headers}


def counts(broker: SimulatedBroker) -> DeadLetterCounts:
    return broker.node.broker.shares.dead_letters.counts.get(GROUP, DeadLetterCounts())


def wait_until_archived(broker: SimulatedBroker) -> None:
    """Wait until no record is in flight."""
    shares = broker.node.broker.shares
    assert broker.world.run_until(lambda: len(shares) == 1 and not shares.in_flight_count)


def set_configs(broker: SimulatedBroker, kind: int, name: str, **configs: str) -> None:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
            for key, value in configs.items()
        ],
    )
    answer = broker.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    )
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_a_rejected_record_gets_a_dead_letter_without_contents(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    broker.produce(TOPIC, b"one", b"two", b"three")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 2, 1)]
    assert member.acknowledge((0, 2, [1, 3, 1])) == "NONE"
    (record,) = dead_letters(broker, 1)
    assert (record.key, record.value) == (None, None)
    assert headers(record) == {
        "__dlq.errors.topic": TOPIC,
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "1",
        "__dlq.errors.group": GROUP,
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": REJECTED,
    }
    wait_until_archived(broker)
    assert member.fetch() == []


def test_released_records_get_dead_letters_at_the_delivery_limit(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    configure_group(broker, share_delivery_count_limit="2")
    broker.produce(TOPIC, b"one", b"two")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    assert member.acknowledge((0, 1, RELEASE)) == "NONE"
    assert member.fetch() == [(0, 1, 2)]
    assert not counts(broker).records
    assert member.acknowledge((0, 1, RELEASE)) == "NONE"
    found = [headers(each) for each in dead_letters(broker, 2)]
    assert [each["__dlq.errors.offset"] for each in found] == ["0", "1"]
    assert {each["__dlq.errors.delivery.count"] for each in found} == {"2"}
    assert {each["__dlq.errors.message"] for each in found} == {DELIVERED_TOO_OFTEN}
    assert counts(broker) == DeadLetterCounts(records=2, produces=1)


def test_timed_out_records_get_dead_letters_at_the_delivery_limit(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    configure_group(broker, share_delivery_count_limit="2", share_record_lock_duration_ms="15000")
    broker.produce(TOPIC, b"one")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 0, 1)]
    assert member.fetch(max_wait_ms=20_000) == [(0, 0, 2)]
    (record,) = dead_letters(broker, 1)
    assert headers(record)["__dlq.errors.message"] == DELIVERED_TOO_OFTEN
    wait_until_archived(broker)


def test_records_of_a_closed_session_get_dead_letters(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    configure_group(broker, share_delivery_count_limit="2")
    broker.produce(TOPIC, b"one")
    for deliveries in (1, 2):
        member = Member(broker, "a")
        assert member.fetch() == [(0, 0, deliveries)]
        member.client.channel.close()
    assert headers(*dead_letters(broker, 1))["__dlq.errors.delivery.count"] == "2"
    # The state is archived although the group has no connection any more.
    assert Member(broker, "b").fetch() == []
    assert counts(broker).records == 1


@pytest.mark.parametrize("compression", [0, GZIP])
def test_the_records_are_copied_on_demand(broker: SimulatedBroker, compression: int) -> None:
    make_dead_letter_topic(broker)
    configure_group(broker, errors_deadletterqueue_copy_record_enable="true")
    broker.produce(TOPIC, b"one", b"two", compression=compression)
    broker.produce(TOPIC, b"three", compression=compression)
    member = Member(broker, "a")
    assert member.fetch() == [(0, 2, 1)]
    assert member.acknowledge((0, 2, [1, 3, 3])) == "NONE"
    assert [each.value for each in dead_letters(broker, 2)] == [b"two", b"three"]


def test_large_dead_letters_are_written_in_several_batches(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker, max_message_bytes="2000")
    configure_group(broker, errors_deadletterqueue_copy_record_enable="true")
    broker.produce(TOPIC, *(bytes([65 + number]) * 900 for number in range(5)))
    member = Member(broker, "a")
    assert member.fetch() == [(0, 4, 1)]
    assert member.acknowledge((0, 4, REJECT)) == "NONE"
    found = dead_letters(broker, 5)
    assert [each.value[:1] for each in found] == [b"A", b"B", b"C", b"D", b"E"]
    assert counts(broker).produces > 1


def test_a_refused_dead_letter_archives_its_record(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker, max_message_bytes="1000")
    configure_group(broker, errors_deadletterqueue_copy_record_enable="true")
    broker.produce(TOPIC, b"x" * 2_000, b"short")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    assert member.acknowledge((0, 0, REJECT)) == "NONE"
    assert member.acknowledge((1, 1, REJECT)) == "NONE"
    assert [each.value for each in dead_letters(broker, 1)] == [b"short"]
    wait_until_archived(broker)
    assert counts(broker).failed_produces == 1


def test_records_of_several_letters_share_a_batch(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    broker.produce(TOPIC, *[b"x"] * 6)
    member = Member(broker, "a")
    assert member.fetch() == [(0, 5, 1)]
    assert member.acknowledge((0, 5, [3, 1, 3, 1, 3, 1])) == "NONE"
    found = dead_letters(broker, 3)
    assert [headers(each)["__dlq.errors.offset"] for each in found] == ["0", "2", "4"]
    wait_until_archived(broker)


@pytest.mark.parametrize(
    ("topic", "created"),
    [("", DEAD), ("dlq.missing", DEAD), ("elsewhere", "elsewhere"), ("dlq.plain", "dlq.plain")],
)
def test_an_unusable_topic_archives_the_records(
    broker: SimulatedBroker, topic: str, created: str
) -> None:
    enabled = "false" if created == "dlq.plain" else "true"
    broker.make_topic(created, errors_deadletterqueue_group_enable=enabled)
    configure_group(broker, errors_deadletterqueue_topic_name=topic)
    broker.produce(TOPIC, b"one")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, REJECT)) == "NONE"
    wait_until_archived(broker)
    assert counts(broker) == DeadLetterCounts()


def test_a_missing_topic_is_created_if_that_is_enabled(broker: SimulatedBroker) -> None:
    set_configs(broker, 4, "", errors_deadletterqueue_auto_create_topics_enable="true")
    configure_group(broker, errors_deadletterqueue_topic_name=DEAD)
    broker.produce(TOPIC, b"one", b"two")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    assert member.acknowledge((0, 0, REJECT)) == "NONE"
    assert member.acknowledge((1, 1, REJECT)) == "NONE"
    dead_letters(broker, 2)
    image = broker.node.shared.cluster.image
    assert image.configs.get(TOPIC_CONFIGS, DEAD) == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


def test_the_prefix_of_names_may_change_at_run_time(broker: SimulatedBroker) -> None:
    make_dead_letter_topic(broker)
    set_configs(broker, 4, "", errors_deadletterqueue_topic_name_prefix="dead.")
    broker.produce(TOPIC, b"one", b"two")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    assert member.acknowledge((0, 0, REJECT)) == "NONE"
    set_configs(broker, 4, "", errors_deadletterqueue_topic_name_prefix="")
    assert member.acknowledge((1, 1, REJECT)) == "NONE"
    assert headers(*dead_letters(broker, 1))["__dlq.errors.offset"] == "1"


def test_archived_records_of_a_lower_feature_level_get_no_dead_letter(
    broker: SimulatedBroker,
) -> None:
    make_dead_letter_topic(broker)
    broker.produce(TOPIC, b"one", b"two")
    member = Member(broker, "a")
    assert member.fetch() == [(0, 1, 1)]
    for level, offset in ((1, 0), (2, 1)):
        set_share_version(broker, level)
        assert member.acknowledge((offset, offset, REJECT)) == "NONE"
    assert headers(*dead_letters(broker, 1))["__dlq.errors.offset"] == "1"
    wait_until_archived(broker)


@pytest.mark.parametrize(("deliveries", "message"), [(1, REJECTED), (5, DELIVERED_TOO_OFTEN)])
def test_a_leader_writes_the_dead_letters_that_its_predecessor_began(
    broker: SimulatedBroker, deliveries: int, message: str
) -> None:
    make_dead_letter_topic(broker)
    broker.produce(TOPIC, b"one", b"two")
    state = StateBatch(
        first_offset=0,
        last_offset=0,
        delivery_state=int(RecordState.ARCHIVING),
        delivery_count=deliveries,
    )
    data = PartitionData(
        partition=0, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=[state]
    )
    topic_id = broker.metadata(TOPIC).topics[0].topic_id
    written: list[Any] = []
    broker.node.broker.persister.write(
        WriteShareGroupStateRequest(
            group_id=GROUP, topics=[WriteStateData(topic_id=topic_id, partitions=[data])]
        ),
        written.append,
    )
    assert broker.world.run_until(lambda: bool(written))
    assert written[0].results[0].partitions[0].error_code == ErrorCode.NONE
    member = Member(broker, "a")
    assert member.fetch() == [(1, 1, 1)]
    assert headers(*dead_letters(broker, 1))["__dlq.errors.message"] == message
    assert member.acknowledge((1, 1, ACCEPT)) == "NONE"
    wait_until_archived(broker)
