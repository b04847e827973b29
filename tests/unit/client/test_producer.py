"""The producer's own part: partitions that are new to it, and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.errors import ClientClosedError, UnknownPartitionError, UnknownTopicError
from barnabas.client.producer import Producer
from unit.client.scripted_cluster import ScriptedCluster

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = (None, b"x", (), None)


class HandStepper:
    """Moves the cluster's time on until a condition holds."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self._time = cluster.time

    def run_until(self, predicate: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        deadline = self._time.now + (60_000 if timeout_ms is None else timeout_ms)
        while not predicate() and self._time.now < deadline:
            self._time.advance(10)
        return predicate()


class Setup:
    """A producer over a scripted cluster."""

    def __init__(self, **keys: object) -> None:
        self.cluster = ScriptedCluster(linger_ms=1000, **keys)
        self.closed: list[Producer] = []
        cluster: Any = self.cluster
        stepper: Any = HandStepper(self.cluster)
        self.producer = Producer(
            cluster, stepper, self.cluster.config, lambda: None, self.closed.append
        )


def test_a_partition_that_was_added_is_found() -> None:
    setup = Setup()
    setup.producer.send("t", b"x")
    setup.cluster.on_refresh = [lambda: None, lambda: setup.cluster.set_partitions(4)]
    setup.producer.send("t", b"x", partition=3)
    assert setup.cluster.refreshes == 2


def test_a_batch_for_a_partition_that_was_added_is_taken() -> None:
    setup = Setup()
    setup.cluster.on_refresh = [lambda: setup.cluster.set_partitions(3)]
    setup.producer.send_batch("t", [RECORD], partition=2)
    assert setup.cluster.refreshes == 1


def test_a_known_partition_needs_no_refresh() -> None:
    setup = Setup()
    setup.producer.send("t", b"x", partition=1)
    assert not setup.cluster.refreshes


def test_a_topic_that_was_known_before_is_looked_at_again_when_its_leaders_move() -> None:
    setup = Setup()
    assert setup.cluster.tracked == set()
    setup.producer.send("t", b"x", partition=1)
    assert setup.cluster.tracked == {"t"}


def test_a_partition_that_does_not_come_is_an_error_that_says_which_there_are() -> None:
    setup = Setup()
    with pytest.raises(UnknownPartitionError, match="t has partitions 0 to 1"):
        setup.producer.send("t", b"x", partition=2)
    assert setup.cluster.refreshes > 1


def test_no_longer_than_max_block_is_waited_for_a_partition() -> None:
    setup = Setup(max_block_ms=50)
    with pytest.raises(UnknownTopicError):
        setup.producer.send_batch("t", [RECORD], partition=2)
    assert setup.cluster.time.now <= 50


def test_a_negative_partition_is_refused_at_once() -> None:
    setup = Setup()
    with pytest.raises(UnknownPartitionError):
        setup.producer.send("t", b"x", partition=-1)
    assert not setup.cluster.refreshes


def test_a_closed_producer_is_handed_back_once() -> None:
    setup = Setup()
    setup.producer.close()
    setup.producer.close()
    assert setup.closed == [setup.producer]


def test_a_closed_producer_takes_nothing() -> None:
    setup = Setup()
    setup.producer.send("t", b"x", partition=0)
    setup.producer.close(flush=False)
    with pytest.raises(ClientClosedError):
        setup.producer.send("t", b"x", partition=0)


def test_a_client_forgets_closed_producers() -> None:
    from barnabas.client.facade import Client

    with Client("127.0.0.1:1") as client:
        client.producer().close()
        assert not client._producers
