"""librdkafka through confluent-kafka: the scenarios of all clients, and a group of ten members."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance import client_scenarios
from conformance.client_program import ClientProgram
from selection import nightly_rows_unless

PROGRAM = Path(__file__).parent / "programs" / "librdkafka_program.py"
# librdkafka's error code for a position without a reset policy.
AUTO_OFFSET_RESET = -140


@pytest.fixture(scope="module")
def client(clients_bootstrap: str) -> ClientProgram:
    return ClientProgram([sys.executable, str(PROGRAM)], clients_bootstrap)


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
    client_scenarios.errors(client, out_of_range=AUTO_OFFSET_RESET)


@pytest.mark.parametrize(
    ("members", "strategy"),
    nightly_rows_unless(lambda row: row[0] == 4, [(10, "roundrobin"), (4, "cooperative-sticky")]),
)
def test_a_group_survives_the_death_of_members(
    client: ClientProgram, members: int, strategy: str
) -> None:
    client_scenarios.rebalances(client, members, strategy=strategy)


def test_a_static_member_gets_its_partitions_back(client: ClientProgram) -> None:
    client_scenarios.static_membership(client)


def test_the_cooperative_protocol_moves_as_few_partitions_as_possible(
    client: ClientProgram,
) -> None:
    client_scenarios.cooperative(client)


def test_transactions_are_committed_aborted_and_fenced(client: ClientProgram) -> None:
    client_scenarios.transactions(client)
