"""A client that requests its tokens from the server of an issuer, over HTTPS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.sasl import client_login
from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.token_login import TokenLogin
from barnabas.sim.world import sim_runtime
from certificates import Authority, shared_authority


class Issuing(BaseHTTPRequestHandler):
    """Issues a token, and keeps the credentials of each request."""

    credentials: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        pair = self.headers["Authorization"].removeprefix("Basic ")
        self.credentials.append(base64.b64decode(pair).decode())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": "a token", "expires_in": 60}).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[str]:
    """URL of the issuer, whose certificate the test authority has issued."""
    Issuing.credentials = []
    server = HTTPServer(("127.0.0.1", 0), Issuing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shared_authority().issue().write_pem(tmp_path / "issuer.pem"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def request(url: str, **keys: str) -> str:
    """Request a token with these keys, and return it."""
    config = ClientConfig.parse({
        "bootstrap.servers": "h:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": "a client",
        "sasl.oauthbearer.client.secret": "50%:",
        **keys,
    })  # fmt: skip
    login = client_login(config, sim_runtime(1)[1])
    assert isinstance(login, TokenLogin)
    return login._source(0).text


def test_the_authority_of_the_issuer_may_be_a_file_or_text(issuer: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(shared_authority().pem)
    assert request(issuer, **{"https.ca.location": str(file)}) == "a token"
    assert request(issuer, **{"https.ca.pem": shared_authority().pem}) == "a token"


def test_an_issuer_of_another_authority_gets_no_secret(issuer: str) -> None:
    for keys in ({}, {"https.ca.pem": Authority().pem}):
        with pytest.raises(SaslError, match="certificate verify failed"):
            request(issuer, **keys)
    with pytest.raises(SaslError, match=r"https\.ca\.location: /absent"):
        request(issuer, **{"https.ca.location": "/absent"})
    assert Issuing.credentials == []


def test_credentials_may_be_url_encoded(issuer: str) -> None:
    keys = {"https.ca.pem": shared_authority().pem}
    request(issuer, **keys)
    request(issuer, **keys, **{"sasl.oauthbearer.header.urlencode": "true"})
    assert Issuing.credentials == ["a client:50%:", "a+client:50%25%3A"]
