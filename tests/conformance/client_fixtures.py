"""The broker that the clients' scenarios share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from barnabas.testing.broker_process import BrokerProcess

# Groups settle quickly and forget the dead soon; a missing topic is an error.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="session")
def clients_bootstrap() -> Iterator[str]:
    """HOST:PORT; another broker has to be started with SETTINGS too."""
    given = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP")
    if given:
        yield given
        return
    with BrokerProcess(settings=SETTINGS) as process:
        yield process.bootstrap
