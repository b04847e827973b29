"""Commands that look at a topic report at once that it does not exist, as Kafka's tools do."""

from __future__ import annotations

import pytest

from barnabas.client.connections.lookups import TopicLookup
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell

pytestmark = pytest.mark.conformance

TOPIC = "no-such-topic"
COMMANDS = [
    "topics describe TOPIC",
    "topics alter --partitions 3 TOPIC",
    "topics delete --yes TOPIC",
    "topics purge --yes --before-offset 0 TOPIC",
    "configs describe topic TOPIC",
    "partitions describe TOPIC",
    "partitions elect TOPIC",
    "log-dirs TOPIC",
    "groups reset g --to-earliest --topic TOPIC",
    "transactions find-hanging --topic TOPIC",
    "configs set topic TOPIC retention.ms=1",
    "configs unset topic TOPIC retention.ms",
    "why --topic TOPIC",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_topic_is_looked_up_once(
    command: str, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[TopicLookup] = []
    start = TopicLookup.start

    def count(lookup: TopicLookup) -> None:
        lookups.append(lookup)
        start(lookup)

    monkeypatch.setattr(TopicLookup, "start", count)
    words = [TOPIC if word == "TOPIC" else word for word in command.split()]
    done = Shell(broker.bootstrap).run_in_process(*words)
    assert done.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in done.stderr
    assert len(lookups) <= 1
