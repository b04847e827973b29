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

# What docs/compatibility.md lists. A key that is the same after all fails its test.
NOT_IN_KAFKA = {
    "barnabas.client.telemetry",
    "barnabas.log.format",
    "barnabas.log.level",
    "barnabas.retention.hold.ms",
    "cluster.id",
    "cluster.standalone",
    "log.message.downconversion.enable",
    "message.downconversion.enable",
    "metrics.listener",
}
# Kafka's authorizer reads them from the properties; the broker's definition does not have them.
OF_THE_AUTHORIZER = {"allow.everyone.if.no.acl.found", "super.users"}
OTHER_DEFAULTS = {
    # A broker starts without a file, on this machine's own address alone.
    "controller.listener.names",
    "listeners",
    "log.dir",
    "node.id",
    "process.roles",
    # Bounded from the start: Kafka has no limit.
    "queued.max.request.bytes",
    # The system sizes them as it goes.
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
# 0 would mean that nothing ever happens, or that it happens without end.
NARROWER = {
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
    "controller.quorum.retry.backoff.ms",
    "log.cleaner.threads",
    "max.connection.creation.rate",
    # Kafka refuses it as well, where the key is set or the broker starts.
    "max.connections",
}


class TheirKey(NamedTuple):
    """A key as Kafka defines it."""

    type: str
    default: str
    # Of PROBES; "all" where Kafka has no range, or looks elsewhere.
    taken: list[str]


@pytest.fixture(scope="module")
def theirs(kafka_jars: Callable[[str], str]) -> dict[tuple[str, str], TheirKey]:
    words = ["java", "-Xmx256m", "-cp", kafka_jars("kafka"), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {(row[0], row[1]): TheirKey(row[2], row[3], row[4].split()) for row in rows}


def taken(key: ConfigKey) -> list[str]:
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
    theirs: dict[tuple[str, str], TheirKey], kind: str, key: ConfigKey
) -> None:
    their = theirs.get((kind, key.name))
    assert (their is None) == (key.name in NOT_IN_KAFKA | OF_THE_AUTHORIZER)
    if their is None:
        return
    default = key.format(key.default)
    same = ("null" if default is None else default) == their.default
    assert same == (key.name not in OTHER_DEFAULTS), (default, their.default)
    if key.type in NUMBERS:
        assert key.type.name == their.type
        same = their.taken == ["all"] or taken(key) == their.taken
        assert same == (key.name not in NARROWER), (taken(key), their.taken)
