"""Thousands of TLS handshakes and logins that clients begin and do not complete.

`HALF_DONE` sets their number (`make half-done`: 10,000). Meanwhile, the broker serves a client that
logs in, and its memory is bounded. It closes the connections after their time limits.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.protocol.schema import Message
from conformance.crowds import LONG_BACKLOG
from fuzz.secured_broker import SecuredBroker
from fuzz.tls_attacks import Peer
from loop_turns import loop_turns
from waiting import PATIENCE_S, eventually

COUNT = int(os.environ.get("HALF_DONE", "1500"))
# Limit of the cost of one connection. A started handshake takes 45 KB in OpenSSL, and 1,000 are
# started.
BYTES_EACH = 24_000
BYTES_BESIDES = 80_000_000
# Silent connections of SASL are idle. Those of TLS have a limit of 10 s.
IDLE_MS = 10_000
FEW_DESCRIPTORS = 200
_START_LIMITED = (
    "import os, resource, sys;"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_DESCRIPTORS}, {FEW_DESCRIPTORS}));"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class LimitedBroker(SecuredBroker):
    """A broker with at most FEW_DESCRIPTORS descriptors."""

    def _command(self) -> list[str]:
        python, *words = super()._command()
        assert python == sys.executable
        return [python, "-c", _START_LIMITED, *words]


def frame(request: Message, version: int) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(1, "half", request, version))


VERSIONS_FRAME = frame(ApiVersionsRequest(), 2)
HANDSHAKE_FRAME = frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
AUTHENTICATE_FRAME = frame(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=" + b"x" * 7000), 2)


def beginnings(broker: SecuredBroker) -> list[tuple[tuple[str, int], bytes]]:
    """Return the address and the first bytes of each kind of incomplete login."""
    hello = Peer().step()
    return [
        (broker.tls_address, b""),
        (broker.tls_address, hello[:100]),
        (broker.tls_address, hello),
        (broker.sasl_tls_address, hello),
        (broker.sasl_address, b""),
        (broker.sasl_address, VERSIONS_FRAME),
        (broker.sasl_address, VERSIONS_FRAME + HANDSHAKE_FRAME),
        (broker.sasl_address, HANDSHAKE_FRAME + AUTHENTICATE_FRAME),
        (broker.sasl_address, AUTHENTICATE_FRAME[:40]),
    ]


@contextlib.contextmanager
def crowd(broker: SecuredBroker, count: int) -> Iterator[list[socket.socket]]:
    """Open `count` connections with incomplete logins of all kinds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    kinds = beginnings(broker)
    with contextlib.ExitStack() as stack:
        opened = []
        for number in range(count):
            address, data = kinds[number % len(kinds)]
            end = stack.enter_context(socket.create_connection(address, PATIENCE_S))
            # The broker may have closed the connection already.
            with contextlib.suppress(OSError):
                end.sendall(data)
            opened.append(end)
        yield opened


class CompleteClient:
    """A client that logs in over TLS, writes and reads."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._keys = broker.client_keys()
        self._producer = confluent_kafka.Producer(self._keys)
        self.slowest_s = 0.0
        self.sent = 0

    def write(self) -> None:
        """Write a record on the open connection."""
        began = time.monotonic()
        errors: list[Any] = []
        self._producer.produce("client", b"x", on_delivery=lambda error, _: errors.append(error))
        assert self._producer.flush(PATIENCE_S) == 0
        assert errors == [None]
        self.sent += 1
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def read_on_new_connection(self) -> None:
        """Log in again, and read the written records."""
        consumer = confluent_kafka.Consumer({**self._keys, "group.id": "client"})
        consumer.assign([confluent_kafka.TopicPartition("client", 0, 0)])
        record = consumer.poll(PATIENCE_S)
        assert record is not None
        assert record.error() is None
        consumer.close()


def closed(ends: list[socket.socket]) -> int:
    """Return how many connections the broker has closed; received bytes are discarded."""
    count = 0
    poller = select.poll()
    by_number = {end.fileno(): end for end in ends}
    for number in by_number:
        poller.register(number, select.POLLIN)
    for number, _ in poller.poll(0):
        end = by_number[number]
        end.setblocking(False)
        try:
            while end.recv(1 << 16):
                continue
        except (BlockingIOError, ssl.SSLWantReadError):
            continue
        except OSError:
            pass
        count += 1
    return count


@pytest.fixture
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.conformance
@pytest.mark.slow
def test_half_done_logins_cost_little_and_end(tmp_path: Path, key: Any) -> None:
    settings = {"connections.max.idle.ms": str(IDLE_MS), **LONG_BACKLOG}
    with SecuredBroker(tmp_path, key, settings) as broker:
        client = CompleteClient(broker)
        client.write()
        process = psutil.Process(broker.pid)
        before, turns = process.memory_info().rss, loop_turns(broker.metrics_address)
        with crowd(broker, COUNT) as ends:
            peak_bytes = process.memory_info().rss
            client.write()
            client.read_on_new_connection()

            def all_closed() -> bool:
                nonlocal peak_bytes
                peak_bytes = max(peak_bytes, process.memory_info().rss)
                client.write()
                return closed(ends) == len(ends)

            began = time.monotonic()
            eventually(all_closed, lambda: f"{closed(ends)} of {len(ends)}", 3 * PATIENCE_S, 0.2)
            ended_s = time.monotonic() - began
        after = loop_turns(broker.metrics_address)
        print(
            f"{COUNT} half-done: {(peak_bytes - before) / 1e6:.1f} MB more, all closed after "
            f"{ended_s:.1f} s; {client.sent} records written meanwhile, the slowest in "
            f"{client.slowest_s * 1000:.0f} ms; longest turn {after.longest_cpu_ms:.1f} ms of CPU"
        )
        assert peak_bytes - before < BYTES_BESIDES + COUNT * BYTES_EACH
        assert after.long_cpu_turns == turns.long_cpu_turns
        assert "Traceback" not in broker.log()


@pytest.mark.conformance
def test_half_done_logins_that_take_all_descriptors_are_refused(tmp_path: Path, key: Any) -> None:
    settings = {"connections.max.idle.ms": str(IDLE_MS), **LONG_BACKLOG}
    with LimitedBroker(tmp_path, key, settings) as broker:
        client = CompleteClient(broker)
        client.write()
        with crowd(broker, 2 * FEW_DESCRIPTORS):
            client.write()
            eventually(lambda: "No connections are accepted" in broker.log(), broker.log)
            client.write()
            assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= FEW_DESCRIPTORS
        client.read_on_new_connection()
        assert broker.is_running
        assert "offline" not in broker.log()
        assert "Traceback" not in broker.log()
