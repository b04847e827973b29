"""Requests for transactional ids whose records no coordinator writes.

A client with the id `__admin_client` may write such records, and a disk may damage a record.
"""

from __future__ import annotations

import random

from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.records.coordinator_logs import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.record.builder import BatchBuilder
from unit.server.handlers.producer_ids import initialize
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request

STATE_TOPIC = "__transaction_state"
IDS = 150
INT16 = (-(1 << 15), -1, 0, 1, 0x7FFD, 0x7FFE, 0x7FFF)
INT32 = (-(1 << 31), -1, 0, 1, 30_000, (1 << 31) - 1)
INT64 = (-(1 << 63), -1, 0, 1, 100, (1 << 63) - 1)
PARTITIONS = (
    None,
    [PartitionsSchema(topic="topic", partition_ids=[0, 1])],
    [PartitionsSchema(topic="", partition_ids=[-1])],
)


def random_value(chance: random.Random) -> TransactionLogValue:
    """Return a value with extreme fields."""
    return TransactionLogValue(
        producer_id=chance.choice(INT64),
        previous_producer_id=chance.choice(INT64),
        next_producer_id=chance.choice(INT64),
        producer_epoch=chance.choice(INT16),
        next_producer_epoch=chance.choice(INT16),
        transaction_timeout_ms=chance.choice(INT32),
        transaction_status=chance.randrange(8),
        transaction_partitions=chance.choice(PARTITIONS),
        transaction_last_update_timestamp_ms=chance.choice(INT64),
        transaction_start_timestamp_ms=chance.choice(INT64),
        client_transaction_version=chance.choice((0, 1, 2, chance.choice(INT16))),
    )


def with_records(values: dict[str, TransactionLogValue]) -> SimulatedBroker:
    """Return a broker that has loaded these transactional ids."""
    broker = SimulatedBroker(
        transaction_state_log_num_partitions="1",
        transaction_two_phase_commit_enable="true",
        unstable_api_versions_enable="true",
    )
    broker.make_topic("topic", 2)
    initialize(broker, "an id that creates the topic")
    builder = BatchBuilder()
    for name, value in values.items():
        key = encode_coordinator_key(TransactionLogKey(transactional_id=name))
        builder.append(1, key, encode_coordinator_value(value, 1))
    admin = SimulatedClient(broker.world, "__admin_client")
    written = admin.ask(produce_request(STATE_TOPIC, bytes(builder.build())), 9)
    assert written.responses[0].partition_responses[0].error_code == 0
    broker.stop()
    broker.restart()
    broker.world.run_for(500)
    return broker


def test_requests_for_any_stored_state_get_a_response() -> None:
    chance = random.Random(28)
    values = {f"id-{number}": random_value(chance) for number in range(IDS)}
    broker = with_records(values)
    for name, value in values.items():
        own = {"producer_id": value.producer_id, "producer_epoch": value.producer_epoch}
        asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        broker.ask(EndTxnRequest(transactional_id=name, committed=True, **own), 4)
        broker.ask(EndTxnRequest(transactional_id=name, committed=False, **own), 5)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=value.producer_id,
            v3_and_below_producer_epoch=value.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="topic", partitions=[0])],
        )
        broker.ask(added, 3)
        keeping = InitProducerIdRequest(
            producer_id=-1, producer_epoch=-1, keep_prepared_txn=True, **asked
        )
        broker.ask(keeping, 6)
        broker.ask(InitProducerIdRequest(**own, **asked), 4)
        broker.ask(InitProducerIdRequest(producer_id=-1, producer_epoch=-1, **asked), 4)
    # Longer than the interval of the timers.
    broker.world.run_for(60_000)
    assert not broker.failures
