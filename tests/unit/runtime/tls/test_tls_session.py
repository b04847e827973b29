"""A TLS session that fails while data of the peer is still to be served."""

from __future__ import annotations

import pytest

from barnabas.runtime.tls.tls_options import ClientAuth
from certificates import shared_authority
from unit.runtime.tls.handshaking import client_options, keys_of, server_options, shake_options

# A record of application data that no key has made; a handshake message at the wrong time.
BROKEN = [b"\x17\x03\x03\x00\x20" + bytes(32), b"\x16\x03\x03\x00\x04\x01\x00\x00\x00", b"\x14" * 9]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_certificate_of_a_client_is_known_after_a_failure(version: str, broken: bytes) -> None:
    own = shared_authority().issue("CN=alice", names=())
    server, client = shake_options(
        server_options(client_auth=ClientAuth.REQUIRED, enabled_protocols=(version,)),
        client_options(keys=keys_of(own), enabled_protocols=(version,)),
    )
    server.receive(memoryview(client.encrypt(b"a request") + broken))
    received = memoryview(bytearray(100))
    assert server.read_into(received) == len(b"a request")
    assert server.error is not None
    assert server.peer_certificate == own.der
