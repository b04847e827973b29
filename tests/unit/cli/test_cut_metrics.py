"""A response of a metrics listener that ends early is an error of that listener."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import pytest

from barnabas.cli.load.metrics import MetricsError, fetch_metrics
from server_in_thread import ServerInThread


class CutResponse(BaseHTTPRequestHandler):
    """Sends the headers of a chunked response, and a part of its first chunk."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"100\r\nkafka_server")
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def test_a_response_that_ends_early_names_the_listener() -> None:
    with ServerInThread(CutResponse) as server:
        address = server.url.removeprefix("http://")
        with pytest.raises(MetricsError, match=f"{address}/metrics: IncompleteRead"):
            fetch_metrics(address)
