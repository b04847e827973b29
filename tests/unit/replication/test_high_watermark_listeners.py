"""Listeners to the high watermark of one partition."""

from __future__ import annotations

import logging

import pytest

from unit.replication.replica_set import PARTITION, ReplicaSet


class Listener:
    """Notes the high watermark at each call."""

    def __init__(self, replicas: ReplicaSet) -> None:
        self.replicas = replicas
        self.seen: list[int] = []
        replicas.manager.high_watermark_listeners.add(PARTITION, self.on_moved)

    def on_moved(self) -> None:
        self.seen.append(self.replicas.log.high_watermark)


@pytest.fixture
def pair() -> ReplicaSet:
    return ReplicaSet((1, 2), min_insync_replicas=2)


def test_a_listener_is_called_once_per_move(pair: ReplicaSet) -> None:
    listener = Listener(pair)
    pair.produce(b"a", b"b")
    assert listener.seen == []
    pair.follow(2, 1)
    pair.follow(2, 1)
    pair.follow(2, 2)
    assert listener.seen == [1, 2]


def test_a_listener_hears_of_the_append_of_a_single_replica() -> None:
    alone = ReplicaSet((1,))
    listener = Listener(alone)
    alone.produce(b"a")
    assert listener.seen == [1]


def test_a_waiting_append_decides_before_the_listener_is_called(pair: ReplicaSet) -> None:
    answered: list[int] = []
    pair.produce(b"a", acks=-1)
    pair.manager.high_watermark_listeners.add(
        PARTITION, lambda: answered.append(len(pair.answers.produced))
    )
    pair.follow(2, 1)
    assert answered == [1]


def test_a_removed_listener_is_not_called(pair: ReplicaSet) -> None:
    listener = Listener(pair)
    pair.produce(b"a")
    pair.manager.high_watermark_listeners.remove(PARTITION)
    pair.manager.high_watermark_listeners.remove(PARTITION)
    pair.follow(2, 1)
    assert listener.seen == []
    assert len(pair.manager.high_watermark_listeners) == 0


def test_an_append_inside_a_listener_is_heard_after_it_returns() -> None:
    alone = ReplicaSet((1,))
    events: list[str] = []

    def on_moved() -> None:
        events.append(f"begin {alone.log.high_watermark}")
        if alone.log.log_end_offset < 3:
            alone.produce(b"more")
        events.append("end")

    alone.manager.high_watermark_listeners.add(PARTITION, on_moved)
    alone.produce(b"a")
    assert events == ["begin 1", "end", "begin 2", "end", "begin 3", "end"]


def test_the_error_of_a_listener_does_not_fail_the_append(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alone = ReplicaSet((1,))

    def on_moved() -> None:
        raise ValueError("broken")

    alone.manager.high_watermark_listeners.add(PARTITION, on_moved)
    with caplog.at_level(logging.ERROR):
        alone.produce(b"a", acks=-1)
    assert alone.last_produce().last_offset == 0
    assert "Unexpected error in a listener" in caplog.text


def test_an_offline_partition_does_not_call_its_listener(pair: ReplicaSet) -> None:
    listener = Listener(pair)
    pair.produce(b"a")
    pair.manager.on_directory_failed("/data")
    pair.manager.wake(PARTITION)
    pair.world.run_for(10)
    assert listener.seen == []


def test_a_partition_has_one_listener(pair: ReplicaSet) -> None:
    Listener(pair)
    with pytest.raises(AssertionError, match="has a listener"):
        Listener(pair)
