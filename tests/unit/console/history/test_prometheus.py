"""Lines from Prometheus: queries, points, and what happens without an answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from barnabas.console.cluster_access import ClusterAccess
from barnabas.console.cluster_history import History
from barnabas.console.history.prometheus import Prometheus, PrometheusError
from barnabas.console.settings import ConsoleSettings
from barnabas.runtime.clock import SystemClock
from unit.console.samples import sample


class Server:
    """Answers each query with `body`, and keeps the queries."""

    def __init__(self) -> None:
        self.queries: list[dict[str, list[str]]] = []
        self.body = json.dumps({"data": {"result": []}})
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.queries.append(parse_qs(urlsplit(self.path).query))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(server.body.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def answer(*values: tuple[float, str]) -> str:
    return json.dumps({"data": {"result": [{"metric": {}, "values": values}]}})


def test_points_are_numbers_and_nan_interrupts_the_line(server: Server) -> None:
    server.body = answer((100, "1.5"), (160, "NaN"), (220, "2"))
    points = Prometheus(server.url).points("records_in", 0, 86_400)
    assert points == [(100, 1.5), (160, None), (220, 2.0)]
    (query,) = server.queries
    assert query["step"] == ["720"]
    assert query["query"] == [
        'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic!="",topic!~"__.*"}[1440s]))'
    ]


def test_labels_choose_the_cluster_and_names_of_topics_are_quoted(server: Server) -> None:
    asked = Prometheus(server.url, 'cluster="east"')
    asked.points('topic/a"b\\c', 0, 60)
    asked.points("produce_p99", 0, 60)
    topic, latency = (query["query"][0] for query in server.queries)
    assert '{topic="a\\"b\\\\c",cluster="east"}' in topic
    assert "histogram_quantile(0.99" in latency
    assert '{request="Produce",cluster="east"}' in latency


@pytest.mark.parametrize("body", ["", "[]", '{"data": {"result": [{"values": [[1]]}]}}', "{}"])
def test_a_malformed_answer_is_an_error(server: Server, body: str) -> None:
    server.body = body
    with pytest.raises(PrometheusError):
        Prometheus(server.url).points("records_in", 0, 60)


def test_the_console_has_its_own_points_if_prometheus_does_not_answer() -> None:
    settings = ConsoleSettings("127.0.0.1:1", {}, prometheus=Prometheus("http://127.0.0.1:1"))
    history = History(ClusterAccess(settings, SystemClock()), settings)
    history.add(sample(0.0, {"a": 0}, {}))
    history.add(sample(1.0, {"a": 7}, {}))
    lines = asyncio.run(history.lines(["records_in"], 0))
    assert [value for _, value in lines["records_in"]] == [7.0]
