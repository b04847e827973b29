"""Subscribing: exclusive kinds, group protocols, and topics that do not exist."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.consumer.assignment.subscription import Subscription, SubscriptionPattern
from barnabas.client.consumer.errors import CommitFailedError, SubscriptionError
from barnabas.client.errors import BrokerError
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from unit.client.consumer.silent_core import Silent, core_over
from unit.client.scripted_cluster import ScriptedCluster

# Never answered: nothing listens there.
NOWHERE = "127.0.0.1:1"
KINDS: dict[str, Any] = {
    "topics": ["t"],
    "pattern": re.compile("t.*"),
    "regex": SubscriptionPattern("t.*"),
}


class UpdatingCluster(Silent):
    """Calls its listeners when the test says that metadata came."""

    def __init__(self, **keys: object) -> None:
        super().__init__(**keys)
        self.listeners: list[Any] = []

    def on_update(self, listener: Any) -> None:
        self.listeners.append(listener)

    def update(self, errors: dict[str, ErrorCode]) -> None:
        self.metadata.errors = dict(errors)
        for listener in list(self.listeners):
            listener()


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_topics_and_patterns_are_mutually_exclusive(first: str, second: str) -> None:
    subscription = Subscription()
    subscription.subscribe(KINDS[first], None)
    before = (subscription.kind, subscription.topics, subscription.pattern, subscription.regex)
    if first == second:
        subscription.subscribe(KINDS[second], None)
        return
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        subscription.subscribe(KINDS[second], None)
    now = (subscription.kind, subscription.topics, subscription.pattern, subscription.regex)
    assert now == before
    subscription.unsubscribe()
    subscription.subscribe(KINDS[second], None)


@pytest.mark.parametrize("kind", KINDS)
def test_partitions_and_topics_are_mutually_exclusive(kind: str) -> None:
    subscription = Subscription()
    subscription.subscribe(KINDS[kind], None)
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        subscription.assign_by_hand([("t", 0)])
    subscription.unsubscribe()
    subscription.assign_by_hand([("t", 0)])
    with pytest.raises(SubscriptionError, match="mutually exclusive"):
        subscription.subscribe(KINDS[kind], None)


@pytest.mark.parametrize("wrong", [None, [""], [" "], [None], re.compile("")])
def test_null_and_blank_topics_are_rejected(wrong: Any) -> None:
    subscription = Subscription()
    with pytest.raises(SubscriptionError):
        subscription.subscribe(wrong, None)
    with pytest.raises(SubscriptionError):
        subscription.subscribe(SubscriptionPattern(" "), None)
    assert not subscription.is_by_group


def test_the_classic_protocol_rejects_patterns_that_the_broker_matches() -> None:
    with barnabas.Consumer(
        bootstrap_servers=NOWHERE, group_id="g", group_protocol="classic"
    ) as consumer:
        with pytest.raises(SubscriptionError, match=r"group\.protocol=consumer"):
            consumer.subscribe(SubscriptionPattern("t.*"))
        with pytest.raises(SubscriptionError, match="nothing to poll"):
            consumer.poll()
        consumer.subscribe(["t"])


def test_the_consumer_protocol_accepts_patterns_that_the_broker_matches() -> None:
    core = core_over(ScriptedCluster(**{"group.id": "g", "group.protocol": "consumer"}))
    core.subscribe(SubscriptionPattern("t.*"), None)
    assert core.subscription.regex == "t.*"


def test_an_empty_subscription_unsubscribes_in_both_consumers() -> None:
    with barnabas.Consumer(bootstrap_servers=NOWHERE, group_id="g") as consumer:
        consumer.subscribe(["t"])
        consumer.subscribe([])
        assert consumer.subscription() == set()
        consumer.subscribe(re.compile("t.*"))

    async def main() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers=NOWHERE, group_id="g") as consumer:
            consumer.subscribe(["t"])
            consumer.subscribe([])
            assert consumer.subscription() == set()
            with pytest.raises(SubscriptionError, match="nothing to poll"):
                await consumer.poll()
            consumer.subscribe([])
            consumer.assign([("t", 0)])
            consumer.assign([])
            assert consumer.assignment() == set()
            consumer.subscribe(re.compile("t.*"))
            await consumer.unsubscribe()
            consumer.subscribe(["t"])

    asyncio.run(main())


class PendingListener(barnabas.RebalanceListener):
    """Its revocation takes until the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.revoked: list[TopicPartition] = []

    async def on_partitions_revoked(self, partitions: Any) -> None:  # type: ignore[override]
        await self.may_end.wait()
        self.revoked += partitions

    on_partitions_lost = on_partitions_revoked  # type: ignore[assignment]


def test_an_empty_subscription_does_not_wait_for_an_asynchronous_listener() -> None:
    async def main() -> None:
        async with barnabas.aio.Consumer(bootstrap_servers=NOWHERE, group_id="g") as consumer:
            listener = PendingListener()
            consumer.subscribe(["t"], listener)
            tp = TopicPartition("t", 0)
            consumer._core.subscription.assign_by_group([tp])
            consumer.subscribe([])
            with pytest.raises(SubscriptionError, match="revoking its partitions"):
                consumer.subscribe(["u"])
            with pytest.raises(SubscriptionError, match="revoking its partitions"):
                consumer.assign([("u", 0)])
            consumer.subscribe([])
            listener.may_end.set()
            await consumer.unsubscribe()
            assert listener.revoked == [tp]
            assert consumer.assignment() == set()
            consumer.subscribe(["u"])

    asyncio.run(main())


def test_assigned_partitions_are_counted_before_the_first_fetch() -> None:
    with barnabas.Consumer(bootstrap_servers=NOWHERE) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        counted = consumer.metrics()
        assert counted["consumer-coordinator-metrics"]["assigned-partitions"] == 2
        consumer.assign([("t", 0)])
        counted = consumer.metrics()
        assert counted["consumer-coordinator-metrics"]["assigned-partitions"] == 1


def test_one_warning_is_logged_for_a_topic_that_does_not_exist(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = UpdatingCluster()
    core = core_over(cluster)
    core.subscribe(["tt"], None)
    missing = {"tt": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with caplog.at_level(logging.WARNING, "barnabas"):
        for _ in range(3):
            cluster.update(missing)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Subscribed topic is unknown; retrying: topic=tt error=tt: UNKNOWN_")
    assert "did you mean t?" in message
    caplog.clear()
    with caplog.at_level(logging.WARNING, "barnabas"):
        cluster.update({})
        cluster.update({"tt": ErrorCode.LEADER_NOT_AVAILABLE, "u": missing["tt"]})
        assert not caplog.records
        cluster.update(missing)
        assert len(caplog.records) == 1


def test_a_commit_before_joining_fails_with_the_advice_to_poll() -> None:
    core = core_over(ScriptedCluster(**{"group.id": "g"}))
    core.subscribe(["t"], None)
    refusal = core._commit_refusal()
    assert isinstance(refusal, CommitFailedError)
    assert "poll until its partitions are assigned" in str(refusal)
    assert "max.poll.interval.ms" not in str(refusal)
    assert isinstance(refusal, BrokerError)
    core.subscription.assign_by_group([TopicPartition("t", 0)])
    refusal = core._commit_refusal()
    assert "the group removed this member" in str(refusal)
    assert "session.timeout.ms" in str(refusal)
    assert "max.poll.interval.ms" in str(refusal)
