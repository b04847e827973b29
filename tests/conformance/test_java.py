"""The Java client 4.4.0: topics, records, time, pause, classic groups with static members."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import client_scenarios
from conformance.client_program import ClientProgram
from jvm.java import java_command

PROGRAM = Path(__file__).parent / "programs" / "JavaProgram.java"


@pytest.fixture(scope="module")
def client(clients_bootstrap: str) -> ClientProgram:
    command = java_command("kafka", log_level="ERROR", source=PROGRAM)
    return ClientProgram([*command, PROGRAM.stem], clients_bootstrap)


def test_the_client_has_the_locked_version(client: ClientProgram) -> None:
    assert client.call("version") == {"version": "4.4.0"}


def test_topics_are_administered(client: ClientProgram) -> None:
    client_scenarios.admin(client)


def test_records_are_read_back_in_every_compression(client: ClientProgram) -> None:
    compressions = ["none", "gzip", "snappy", "lz4", "zstd"]
    client_scenarios.produce_and_consume(client, compressions)


def test_offsets_are_found_by_time(client: ClientProgram) -> None:
    client_scenarios.seek_by_time(client)


def test_partitions_are_paused_and_resumed(client: ClientProgram) -> None:
    client_scenarios.pause_and_resume(client)


def test_errors_have_their_expected_names(client: ClientProgram) -> None:
    client_scenarios.errors(client)


@pytest.mark.nightly
def test_a_group_survives_the_death_of_members(client: ClientProgram) -> None:
    client_scenarios.rebalances(client, strategy="cooperative-sticky")


@pytest.mark.nightly
def test_a_static_member_gets_its_partitions_back(client: ClientProgram) -> None:
    client_scenarios.static_membership(client)


@pytest.mark.nightly
def test_the_cooperative_protocol_moves_as_few_partitions_as_possible(
    client: ClientProgram,
) -> None:
    client_scenarios.cooperative(client)


def test_transactions_are_committed_aborted_and_fenced(client: ClientProgram) -> None:
    client_scenarios.transactions(client)
