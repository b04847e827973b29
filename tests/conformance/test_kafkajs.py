"""kafkajs 2.2.4 under node: topics, records, time, pause, classic groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import client_scenarios
from conformance.client_packages import node_package
from conformance.client_program import ClientProgram

PROGRAM = Path(__file__).parent / "programs" / "kafkajs_program.js"


@pytest.fixture(scope="module")
def client(clients_bootstrap: str) -> ClientProgram:
    modules = node_package("kafkajs") / "node_modules"
    environment = {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    return ClientProgram(["node", str(PROGRAM)], clients_bootstrap, environment)


def test_the_client_has_the_locked_version(client: ClientProgram) -> None:
    assert client.call("version") == {"version": "2.2.4"}


def test_topics_are_administered(client: ClientProgram) -> None:
    client_scenarios.admin(client)


def test_records_are_read_back_in_every_compression(client: ClientProgram) -> None:
    client_scenarios.produce_and_consume(client, ["none", "gzip", "snappy"])


def test_offsets_are_found_by_time(client: ClientProgram) -> None:
    client_scenarios.seek_by_time(client)


def test_partitions_are_paused_and_resumed(client: ClientProgram) -> None:
    client_scenarios.pause_and_resume(client)


def test_errors_have_their_expected_names(client: ClientProgram) -> None:
    # kafkajs resets to its default offset instead of reporting OFFSET_OUT_OF_RANGE.
    client_scenarios.errors(client, out_of_range="first")


def test_a_group_survives_the_death_of_members(client: ClientProgram) -> None:
    client_scenarios.rebalances(client)


def test_transactions_are_committed_aborted_and_fenced(client: ClientProgram) -> None:
    client_scenarios.transactions(client)
