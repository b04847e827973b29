"""The facts that `why` derives from metrics listeners."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from barnabas.cli.load.metrics import MetricsError
from barnabas.cli.why.gather import gather_metrics
from barnabas.cli.why.partition_reasons import damage_reasons

WAITING = b'kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="%s"} %d\n'
FAILED = b'kafka_server_replicafetchermanager_failedpartitionscount{clientId="Replica"} %d\n'


DAMAGE = b'barnabas_storage_damage_total{kind="%s"} %d\n'


class Answer(BaseHTTPRequestHandler):
    text = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_words: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of a listener that answers with `Answer.text`."""
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_waiting_producers_and_failed_fetches_are_listed_by_listener(listener: str) -> None:
    Answer.text = WAITING % (b"Produce", 3) + WAITING % (b"Fetch", 7) + FAILED % 2
    found = gather_metrics([listener])
    assert found.waiting_produces == {listener: 3}
    assert found.failed_fetches == {listener: 2}


def test_missing_metrics_give_no_facts(listener: str) -> None:
    Answer.text = WAITING % (b"Produce", 0) + FAILED % 0
    found = gather_metrics([listener])
    assert (found.waiting_produces, found.failed_fetches) == ({}, {})
    Answer.text = b"something_else 4\n"
    assert not gather_metrics([listener]).waiting_produces


def test_a_listener_that_does_not_answer_is_an_error_with_a_remedy() -> None:
    with pytest.raises(MetricsError, match=r"metrics\.listener"):
        gather_metrics(["127.0.0.1:1"])


def test_damage_is_reported_with_its_kind_and_remedy(listener: str) -> None:
    Answer.text = DAMAGE % (b"batch", 2) + DAMAGE % (b"index", 0)
    facts = gather_metrics([listener])
    assert facts.damage == {listener: {"batch": 2}}
    (reason,) = damage_reasons(facts.damage)
    assert (reason.kind, reason.verdict) == ("damaged-files", "wrong")
    assert "2 of kind batch" in reason.what
    assert "barnabas log verify" in reason.remedy


def test_damage_that_lost_no_record_is_a_note() -> None:
    (reason,) = damage_reasons({"host:1": {"index": 1, "checkpoint": 1}})
    assert reason.verdict == "note"
