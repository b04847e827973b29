"""A Kafka Streams word count on Barnabas, at least once and exactly once.

The application has a repartition topic and a changelog topic, from which it restores its state. Its
group is a classic group with the assignor of Kafka Streams.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from barnabas.testing.broker_process import BrokerProcess
from jvm.java_application import JavaApplication
from jvm.kafka_process import KafkaProcess
from jvm.reference import broker_under_test
from jvm.topics import topic_configs
from jvm.word_count import CHANGELOG, REPARTITION, TIMEOUT_S, WORDS, Pipeline, reader
from waiting import eventually, eventually_equal

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
# With a static member a restarted instance replaces the killed one.
STATIC = {"group_instance_id": "instance"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    with broker_under_test(tmp_path / "broker", SETTINGS) as process:
        yield process


@pytest.mark.nightly
def test_words_are_counted_despite_a_stop_a_kill_and_a_state_loss(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    pipeline = Pipeline(broker.bootstrap, tmp_path, **STATIC)
    with pipeline.start() as program:
        pipeline.feed(300)
        pipeline.await_counts()
        assert program.end_input() == 0
        assert "closed" in program.log().splitlines()
    assert topic_configs(broker.bootstrap, CHANGELOG)["cleanup.policy"] == "compact"
    repartition = topic_configs(broker.bootstrap, REPARTITION)
    assert (repartition["cleanup.policy"], repartition["retention.ms"]) == ("delete", "-1")

    # Only the local state of the application is lost.
    broker.restart()
    shutil.rmtree(pipeline.state)
    with pipeline.start() as program:
        # Running threads may still exchange tasks.
        eventually(lambda: restored(program) >= len(WORDS), "the counts are not restored")
        pipeline.feed(301)
        pipeline.await_counts()
        program.kill()

    with pipeline.start() as program:
        pipeline.feed(302)
        pipeline.await_counts()
        # The application deletes records of the repartition topic after it has read them.
        with reader(broker.bootstrap) as consumer:
            place = TopicPartition(REPARTITION, 0)
            eventually(lambda: consumer.get_watermark_offsets(place, TIMEOUT_S)[0] > 0)
        assert program.end_input() == 0
    assert pipeline.last_by_key(CHANGELOG) == pipeline.expected


def restored(program: JavaApplication) -> int:
    """Return the number of changelog records from which stores were restored."""
    lines = [line for line in program.log().splitlines() if line.startswith("restored counts ")]
    return sum(int(line.split()[-1]) for line in lines)


@pytest.mark.nightly
def test_words_are_counted_exactly_once_despite_kills(
    broker: BrokerProcess | KafkaProcess, tmp_path: Path
) -> None:
    pipeline = Pipeline(
        broker.bootstrap,
        tmp_path,
        **STATIC,
        processing_guarantee="exactly_once_v2",
        # Each word is counted in a separate record.
        statestore_cache_max_bytes=0,
        # The transactions of a killed instance end early, although its successor has other ids.
        transaction_timeout_ms=10_000,
    )
    with pipeline.start() as program:
        pipeline.feed(300)
        eventually(lambda: pipeline.values_by_key("counts"), "no count is committed")
        program.kill()
    with pipeline.start() as program:
        before = sum(map(len, pipeline.values_by_key("counts").values()))
        pipeline.feed(300)
        eventually(
            lambda: sum(map(len, pipeline.values_by_key("counts").values())) > before,
            "no further count is committed",
        )
        broker.kill()
        broker.start()
        pipeline.feed(300)
        eventually_equal(lambda: pipeline.last_by_key("counts"), dict(pipeline.expected))
        assert program.end_input() == 0
    # A word that was counted twice would skip a number or repeat one.
    counted = {word: list(range(1, count + 1)) for word, count in pipeline.expected.items()}
    assert pipeline.values_by_key("counts") == counted
