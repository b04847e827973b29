"""Ignored keys are disjoint from the keys that this broker uses."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from barnabas.server.configs.configuration import BROKER_KEYS, IGNORED_KEYS, read_configuration
from barnabas.settings.definition import ConfigError

OWN = {
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}
BOOTSTRAP = "controller.quorum.bootstrap.servers"


def test_no_key_is_both_used_and_ignored() -> None:
    assert not [key.name for key in BROKER_KEYS if key.name in IGNORED_KEYS]


def test_ignored_keys_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read_configuration({"num.io.threads": "8", "background.threads": "4"})
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().endswith(": background.threads, num.io.threads")


@pytest.mark.parametrize(
    ("servers", "is_standalone"),
    [("localhost:9093", True), ("localhost:9093,there:9093", False), ("there:9093", False)],
)
def test_a_node_that_is_its_only_bootstrap_server_starts_a_quorum(
    servers: str, is_standalone: bool
) -> None:
    cluster = read_configuration({**OWN, BOOTSTRAP: servers}).cluster
    assert cluster.is_standalone is is_standalone
    assert cluster.may_found_cluster is is_standalone


def test_a_controller_without_a_broker_does_not_start_a_quorum_by_default() -> None:
    keys = {"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"}
    assert not read_configuration({**keys, BOOTSTRAP: "localhost:9093"}).cluster.is_standalone


TIERED = {"remote.log.storage.system.enable": "true", "barnabas.remote.storage": "file:///tier"}


def test_keys_of_kafkas_plug_ins_for_tiered_storage_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    keys = {
        "remote.log.storage.manager.class.name": "com.example.Store",
        "remote.log.storage.manager.impl.prefix": "store.",
        "store.bucket": "b",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.common.client.security.protocol": "SSL",
    }
    read_configuration({**TIERED, **keys})
    (record,) = caplog.records
    assert record.getMessage().endswith(
        ": remote.log.storage.manager.class.name, remote.log.storage.manager.impl.prefix,"
        " rlmm.config.remote.log.metadata.common.client.security.protocol, store.bucket"
    )


def test_a_broker_checks_its_remote_tier_before_the_start() -> None:
    read_configuration(TIERED)
    for key, value in (
        ("barnabas.remote.storage", ""),
        ("barnabas.remote.storage", "s3://bucket//prefix"),
        ("barnabas.remote.storage.options", "region=eu-west-1"),
        ("remote.log.metadata.manager.listener.name", "ABSENT"),
        ("rlmm.config.remote.log.metadata.topic.min.isr", "0"),
        ("log.local.retention.ms", "604800001"),
    ):
        with pytest.raises(ConfigError) as raised:
            read_configuration({**TIERED, key: value})
        assert raised.value.key == key


def test_without_the_switch_the_keys_of_the_tier_are_only_parsed() -> None:
    read_configuration({**TIERED, "remote.log.storage.system.enable": "false"})
    read_configuration({"barnabas.remote.storage": "s3://bucket", "log.local.retention.ms": "-1"})
    with pytest.raises(ConfigError):
        read_configuration({"remote.log.reader.threads": "0"})


def test_a_controller_needs_no_store() -> None:
    keys = {
        "process.roles": "controller",
        "listeners": "CONTROLLER://localhost:9093",
        "controller.quorum.voters": "1@localhost:9093",
        "remote.log.storage.system.enable": "true",
    }
    assert read_configuration(keys).parsed.boolean("remote.log.storage.system.enable")


def test_a_broker_without_a_tier_does_not_import_it() -> None:
    program = (
        "import sys; from barnabas.server.configs.configuration import read_configuration;"
        " read_configuration({});"
        " found = [name for name in sys.modules if name.startswith('barnabas.storage.remote.')];"
        " print(found)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
