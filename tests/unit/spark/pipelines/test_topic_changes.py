"""Topics that do not exist, and wrong options, are found before a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.facade import Client
from barnabas.spark.pipelines.changes import Change
from barnabas.spark.pipelines.checkpoints import Checkpoint
from barnabas.spark.pipelines.definition import TopicUse
from barnabas.spark.pipelines.definition_checks import find_topic_changes
from barnabas.spark.topics.clients import planning_client
from barnabas.testing.broker_process import BrokerProcess
from unit.spark.safe_advice import assert_safe

RECORDS, OUT = "spark_catalog.default.records", "out"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker that creates no topics by itself, with the topic `departures`."""
    with BrokerProcess(settings={"auto.create.topics.enable": "false"}) as broker:
        with Client(broker.bootstrap) as client:
            client.create_topic("departures", 1, 1)
        yield broker.bootstrap


def changes(bootstrap: str, *, committed: int = -1, **options: str) -> list[Change]:
    """The changes of a sink if `topic` is given, of a source otherwise."""
    is_sink = "topic" in options
    use = TopicUse(
        OUT if is_sink else RECORDS, "f", {"kafka.bootstrap.servers": bootstrap, **options}, is_sink
    )
    checkpoint = Checkpoint(use.target, use.flow, Path("/p"), "q", committed, committed)
    found = find_topic_changes([use], [checkpoint], planning_client)
    for change in found:
        assert_safe(change.remedy)
        assert not change.is_of_checkpoint or not change.is_refused
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "departures"},
        {"assign": '{"departures": [0]}'},
        {"subscribePattern": "depart.*"},
        {"topic": "departures"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_topics_that_exist_are_no_change(bootstrap: str, options: dict[str, str]) -> None:
    assert changes(bootstrap, **options) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"subscribe": "departures,departurs"}, "did you mean departures"),
        ({"assign": '{"departures": [0, 7]}'}, "departures-7"),
        ({"topic": "alerts"}, "no such topic"),
        ({"subscribe": "departures", "startingOffset": "earliest"}, "did you mean startingOffsets"),
    ],
    ids=["a topic", "a partition", "a topic of a sink", "an option"],
)
def test_what_is_missing_or_wrong_is_refused(
    bootstrap: str, options: dict[str, str], problem: str
) -> None:
    (change,) = changes(bootstrap, **options)
    assert change.is_refused
    assert problem in change.problem


def test_a_topic_that_was_deleted_is_refused_without_advice_to_create_it(bootstrap: str) -> None:
    (change,) = changes(bootstrap, committed=3, subscribe="arrivals")
    assert change.is_refused
    assert "A topic that is created again has other records" in change.remedy


def test_the_user_may_let_topics_be_deleted_while_they_are_read(bootstrap: str) -> None:
    lenient = {"subscribe": "arrivals", "failOnDataLoss": "false"}
    assert changes(bootstrap, committed=3, **lenient) == []
    (change,) = changes(bootstrap, **lenient)
    assert change.is_refused


def test_a_deleted_topic_of_a_sink_is_refused_with_the_cost_of_all_ways_out(bootstrap: str) -> None:
    (change,) = changes(bootstrap, committed=3, topic="alerts")
    assert "a new topic would get new rows only" in change.problem
    assert "has them twice" in change.remedy


def test_a_pattern_without_topics_is_noted(bootstrap: str) -> None:
    (change,) = changes(bootstrap, subscribePattern="arriv.*")
    assert not change.is_refused
    assert "no topic has a name as in subscribePattern=arriv.*" in change.problem


def test_brokers_that_do_not_answer_are_noted() -> None:
    timeout = {"kafka.default.api.timeout.ms": "100", "kafka.request.timeout.ms": "100"}
    (change,) = changes("127.0.0.1:1", subscribe="departures", **timeout)
    assert not change.is_refused
    assert "cannot be asked for topics" in change.problem
