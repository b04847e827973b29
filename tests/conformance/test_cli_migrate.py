"""`barnabas migrate check` of a running cluster, on Barnabas and on Apache Kafka."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from barnabas.cli.migrate.commands import migrate
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import KafkaProcess, broker

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


def test_a_running_cluster_says_what_moves(broker: BrokerProcess | KafkaProcess) -> None:
    done = CliRunner().invoke(migrate, ["check", "--bootstrap", broker.bootstrap, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["can_move"]
    moves = [each["what"] for each in found["findings"] if each["verdict"] == "moves"]
    assert any("metadata.version" in what for what in moves)
    assert any("keys with the same meaning" in what for what in moves)
    assert any("in sync" in what for what in moves)
    others = [each["what"] for each in found["findings"] if each["verdict"] == "but"]
    assert any("data directories" in what for what in others)
