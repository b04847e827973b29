"""Ignored keys are disjoint from the keys that this broker uses."""

from __future__ import annotations

import logging

import pytest

from barnabas.server.configs.configuration import BROKER_KEYS, IGNORED_KEYS, read_configuration

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
