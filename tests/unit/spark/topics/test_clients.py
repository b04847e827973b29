"""The clients of the Spark source: a query that reaches no broker reports it and ends."""

from __future__ import annotations

import socket

import pytest

from barnabas.client.errors import NoBrokersError
from barnabas.spark.topics.clients import planning_client


def test_a_query_that_reaches_no_broker_reports_it_and_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        options = {"bootstrap.servers": address, "default.api.timeout.ms": "1500"}
        with pytest.raises(NoBrokersError, match="Connection refused"):
            planning_client(options)
    told = capsys.readouterr().err
    assert told.startswith("barnabas source: no broker responded")
    assert f"{address} Connection refused" in told
    assert "waiting up to 1.5 s" in told
