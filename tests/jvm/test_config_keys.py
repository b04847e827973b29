"""Type, default and range of each key compared with Apache Kafka 4.4's definition."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.server.configs.configuration import BROKER_KEYS
from barnabas.settings.definition import ConfigError, ConfigKey, ConfigType
from barnabas.storage.config import TOPIC_CONFIGS
from jvm.java import TIMEOUT_S

SOURCE = Path(__file__).parent / "ConfigKeys.java"
PROBES = ("-2", "-1", "0", "1", "2", "10", "1000", "1048575", "1048576", "2147483647")
NUMBERS = (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE)

# Differences that docs/compatibility.md lists. A key without its difference fails its test.
NOT_IN_KAFKA = {
    "barnabas.busy.poll.us",
    "barnabas.client.telemetry",
    "barnabas.log.format",
    "barnabas.log.level",
    "barnabas.node.brokers",
    "barnabas.node.stop.timeout.ms",
    "barnabas.remote.copy.buffer.max.bytes",
    "barnabas.remote.credentials.file",
    "barnabas.remote.index.memory.max.bytes",
    "barnabas.remote.orphan.age.ms",
    "barnabas.remote.read.ahead",
    "barnabas.remote.read.cache.max.bytes",
    "barnabas.remote.read.range.max.bytes",
    "barnabas.remote.request.timeout.ms",
    "barnabas.remote.restore",
    "barnabas.remote.retry.timeout.ms",
    "barnabas.remote.segments.max",
    "barnabas.remote.storage",
    "barnabas.remote.storage.options",
    "barnabas.remote.verify.before.delete",
    "barnabas.retention.hold.ms",
    "cluster.id",
    "cluster.standalone",
    "log.message.downconversion.enable",
    "message.downconversion.enable",
    "metrics.listener",
}
# Keys that Kafka's authorizer reads from the properties; the broker's definition lacks them.
OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
OTHER_DEFAULTS = {
    # A broker starts without a file, and listens only on the loopback address.
    "controller.listener.names",
    "listeners",
    "log.dir",
    "node.id",
    "process.roles",
    # Barnabas limits queued requests; Kafka does not.
    "queued.max.request.bytes",
    # The operating system adapts the sizes.
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
# Keys whose value 0 would disable a feature or cause an endless loop.
NARROWER = {
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
    "controller.quorum.retry.backoff.ms",
    "log.cleaner.threads",
    "max.connection.creation.rate",
    # Kafka also refuses 0, when the key is set or the broker starts.
    "max.connections",
}


class KafkaKey(NamedTuple):
    """Kafka's definition of a key."""

    type: str
    default: str
    # The accepted values of PROBES; "all" if Kafka has no range, or checks it elsewhere.
    accepted_probes: list[str]


@pytest.fixture(scope="module")
def kafka_keys(kafka_jars: Callable[[str], str]) -> dict[tuple[str, str], KafkaKey]:
    words = ["java", "-Xmx256m", "-cp", kafka_jars("kafka"), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {(row[0], row[1]): KafkaKey(row[2], row[3], row[4].split()) for row in rows}


def accepted_probes(key: ConfigKey) -> list[str]:
    found = []
    for probe in PROBES:
        try:
            key.parse(probe)
        except ConfigError:
            continue
        found.append(probe)
    return found


OURS = [("broker", key) for key in BROKER_KEYS] + [("topic", key) for key in TOPIC_CONFIGS]


@pytest.mark.parametrize(("kind", "key"), OURS, ids=lambda each: getattr(each, "name", each))
def test_a_key_equals_kafkas_definition(
    kafka_keys: dict[tuple[str, str], KafkaKey], kind: str, key: ConfigKey
) -> None:
    kafka_key = kafka_keys.get((kind, key.name))
    assert (kafka_key is None) == (key.name in NOT_IN_KAFKA | OF_THE_AUTHORIZER)
    if kafka_key is None:
        return
    default = key.format(key.default)
    same = ("null" if default is None else default) == kafka_key.default
    assert same == (key.name not in OTHER_DEFAULTS), (default, kafka_key.default)
    if key.type in NUMBERS:
        assert key.type.name == kafka_key.type
        same = (
            kafka_key.accepted_probes == ["all"]
            or accepted_probes(key) == kafka_key.accepted_probes
        )
        assert same == (key.name not in NARROWER), (accepted_probes(key), kafka_key.accepted_probes)
