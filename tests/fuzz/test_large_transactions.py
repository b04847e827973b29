"""Large requests about transactions, and wide transactions, do not block the event loop."""

from __future__ import annotations

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from fuzz.large_requests import blocking
from fuzz.large_transactions import ID, initialization, large_transaction_requests
from loop_turns import loop_turns
from waiting import eventually_equal

SETTINGS = {
    "metrics.listener": "127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# The markers of so many partitions take longer than a long turn.
PARTITIONS = 2_000


def has_coordinator(client: Client) -> None:
    """Create the state topic, and wait for its coordinator."""
    with client.producer(transactional_id="first") as producer:
        producer.init_transactions()


@pytest.mark.conformance
@pytest.mark.slow
def test_no_large_request_about_transactions_blocks_the_event_loop() -> None:
    with BrokerProcess(settings=SETTINGS) as broker, Client(broker.bootstrap) as client:
        has_coordinator(client)
        client.create_topics([NewTopic("t", 1)])
        held = blocking(broker, large_transaction_requests())
        assert held == [], broker.log()
        assert "Traceback" not in broker.log()


@pytest.mark.conformance
@pytest.mark.slow
def test_the_end_of_a_transaction_of_many_partitions_does_not_block_the_event_loop() -> None:
    with BrokerProcess(settings=SETTINGS) as broker, Client(broker.bootstrap) as client:
        has_coordinator(client)
        client.create_topics([NewTopic("wide", PARTITIONS)])
        raw = RawClient(broker.bootstrap)
        producer = raw.ask(initialization(), 4)
        topic = AddPartitionsToTxnTopic(name="wide", partitions=list(range(PARTITIONS)))
        added = raw.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[topic],
            ),
            3,
        )
        (results,) = added.results_by_topic_v3_and_below
        assert {each.partition_error_code for each in results.results_by_partition} == {0}
        before = loop_turns(broker.metrics_address)
        end = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        assert raw.ask(end, 4).error_code == 0
        raw.close()
        eventually_equal(
            lambda: {
                each.transactional_id: each.state for each in client.admin.list_transactions()
            },
            {"first": "Empty", ID: "CompleteCommit"},
        )
        after = loop_turns(broker.metrics_address)
        assert after.long_cpu_turns == before.long_cpu_turns, broker.log()
