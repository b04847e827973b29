"""kafka-python 1.4.7 of 2019, which many applications still require."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from conformance import client_scenarios
from conformance.client_packages import python_package
from conformance.client_program import ClientProgram

# The test of the current kafka-python has the same steps.
pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).parent / "programs" / "kafka_python_program.py"


@pytest.fixture(scope="module")
def client(old_clients_bootstrap: str) -> ClientProgram:
    folders = [python_package("kafka_python_1_4_7"), python_package("codecs")]
    path = os.pathsep.join(map(str, folders))
    return ClientProgram(
        [sys.executable, str(PROGRAM)], old_clients_bootstrap, {"PYTHONPATH": path}
    )


def test_the_client_has_the_locked_version(client: ClientProgram) -> None:
    assert client.call("version") == {"version": "1.4.7"}


def test_topics_are_administered(client: ClientProgram) -> None:
    client_scenarios.admin(client)


def test_records_are_read_back_in_every_compression(client: ClientProgram) -> None:
    client_scenarios.produce_and_consume(client, ["none", "gzip", "snappy", "lz4"])


def test_offsets_are_found_by_time(client: ClientProgram) -> None:
    client_scenarios.seek_by_time(client)


def test_partitions_are_paused_and_resumed(client: ClientProgram) -> None:
    client_scenarios.pause_and_resume(client)


def test_errors_have_their_expected_names(client: ClientProgram) -> None:
    client_scenarios.errors(client)


def test_a_group_survives_the_death_of_members(client: ClientProgram) -> None:
    client_scenarios.rebalances(client)


@pytest.mark.parametrize("api_version", ["0.9", "0.10", "0.11"])
def test_the_client_works_with_api_versions_of_an_old_broker(
    client: ClientProgram, api_version: str
) -> None:
    """The client uses Produce v1 to v3, Fetch v1 to v4 and old message sets."""
    old = client.with_environment(API_VERSION=api_version)
    client_scenarios.produce_and_consume(
        old, ["none", "gzip", "snappy", "lz4"], timestamps=api_version != "0.9", headers=False
    )
    client_scenarios.pause_and_resume(old)
    client_scenarios.errors(old)
    if api_version == "0.9":
        # JoinGroup v0; the tests above cover later versions.
        client_scenarios.rebalances(old)
