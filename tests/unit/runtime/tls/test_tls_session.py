"""A TLS session that gets its records in pieces, or that fails while data is to be served."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right

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


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("seed", range(8))
def test_records_of_all_sizes_are_decrypted_whatever_the_pieces_they_come_in(
    seed: int, version: str
) -> None:
    chosen = random.Random(seed)
    server, client = shake_options(
        server_options(enabled_protocols=(version,)), client_options(enabled_protocols=(version,))
    )
    # The last sizes are those around one piece and one record.
    sizes = [1, 9, 100, 1000, 1024, 5000, 16_362, 16_383, 16_384]
    sent = [chosen.randbytes(chosen.choice(sizes)) for _ in range(400)]
    records = [client.encrypt(plain) for plain in sent]
    ends = [0, *itertools.accumulate(map(len, records))]
    encrypted = b"".join(records)
    arrived = 0
    received = bytearray()
    while encrypted:
        piece = chosen.choice([1, 5, 20, 1023, 16_406, 40_000, 300_000])
        shared = bytearray(encrypted[:piece])
        encrypted = encrypted[piece:]
        arrived += len(shared)
        server.receive(memoryview(shared))
        if chosen.random() < 0.5:
            server.store_unread()
            shared[:] = bytes(len(shared))
        buffer = bytearray(chosen.choice([1, 100, 16_384, 100_000]) if len(shared) < 2000 else 7777)
        count = len(buffer)
        while count == len(buffer):
            count = server.read_into(memoryview(buffer))
            received += buffer[:count]
        assert not server.has_unread
        if version == "TLSv1.3":
            assert server.held_bytes == arrived - ends[bisect_right(ends, arrived) - 1]
        else:
            assert server.held_bytes > 1 << 60, "other versions have other overheads"
    assert received == b"".join(sent)
    assert server.error is None
    assert not server.has_peer_ended


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_end_of_the_data_is_seen_behind_small_records(version: str) -> None:
    server, client = shake_options(
        server_options(enabled_protocols=(version,)), client_options(enabled_protocols=(version,))
    )
    encrypted = b"".join(client.encrypt(b"x") for _ in range(3)) + client.end()
    server.receive(memoryview(encrypted))
    received = memoryview(bytearray(100))
    assert server.read_into(received) == 3
    assert server.has_peer_ended
    assert server.error is None
