"""The configuration keys of share consumers."""

from __future__ import annotations

import pytest

import barnabas

SERVERS = "127.0.0.1:1"
# The keys that Java's ShareConsumerConfig refuses, with valid values.
REFUSED = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "true",
    "group.instance.id": "i",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",
    "interceptor.classes": "a.B",
    "session.timeout.ms": "1000",
    "heartbeat.interval.ms": "100",
    "group.protocol": "consumer",
    "group.remote.assignor": "uniform",
}


@pytest.mark.parametrize("key", REFUSED)
def test_keys_of_other_consumers_are_refused(key: str) -> None:
    for name in (key, key.replace(".", "_")):
        with pytest.raises(barnabas.ClientConfigError, match=f"do not support {key}"):
            barnabas.ShareConsumer(bootstrap_servers=SERVERS, group_id="g", **{name: REFUSED[key]})


@pytest.mark.parametrize("key", ["share.acknowledgement.mode", "share_acquire_mode"])
def test_other_consumers_refuse_the_keys_of_share_consumers(key: str) -> None:
    with pytest.raises(barnabas.ClientConfigError, match="share consumers only"):
        barnabas.Consumer(bootstrap_servers=SERVERS, **{key: "implicit"})


@pytest.mark.parametrize("key", ["share.acknowledgement.mode", "share_acquire_mode"])
def test_modes_have_two_values(key: str) -> None:
    with pytest.raises(barnabas.ClientConfigError, match="is not one of"):
        barnabas.ShareConsumer(bootstrap_servers=SERVERS, group_id="g", **{key: "other"})


@pytest.mark.parametrize("group_id", [None, " "])
def test_a_group_is_required(group_id: str | None) -> None:
    with pytest.raises(barnabas.InvalidGroupIdError):
        barnabas.ShareConsumer(bootstrap_servers=SERVERS, group_id=group_id)


@pytest.mark.parametrize("topics", [None, [" "], barnabas.SubscriptionPattern("t.*")])
def test_only_names_of_topics_can_be_subscribed_to(topics: object) -> None:
    with (
        barnabas.ShareConsumer(bootstrap_servers=SERVERS, group_id="g") as consumer,
        pytest.raises(barnabas.SubscriptionError),
    ):
        consumer.subscribe(topics)  # type: ignore[arg-type]  # wrong types are the test


def test_calls_of_the_wrong_mode_are_refused() -> None:
    record = barnabas.ShareRecord("t", 0, 0, 0, 0, None, None, (), 1)
    with barnabas.ShareConsumer(bootstrap_servers=SERVERS, group_id="g") as consumer:
        with pytest.raises(barnabas.IllegalAcknowledgementError, match="mode=explicit"):
            consumer.acknowledge(record)
        with pytest.raises(barnabas.SubscriptionError, match="nothing to poll"):
            consumer.poll()
        assert consumer.commit_sync() == {}
        assert consumer.acquisition_lock_timeout_ms() is None
    with pytest.raises(barnabas.ClientClosedError):
        consumer.poll()
    consumer.close()
