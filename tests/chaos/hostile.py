"""A hostile client beside the load: costly batches and very large requests, until it is killed.

    python -m chaos.hostile HOST:PORT SEED

It sends them to one broker as fast as it answers; the response of the broker does not matter. Its
topic is `TOPIC`, which must be there.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import sys

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fuzz.bombs import made_bombs
from fuzz.large_requests import LargeRequest, large_requests, send

# `large_requests` requires this topic, with one partition.
TOPIC = "t"
# Timeout of a connection: a broker that stops accepts no requests.
_TIMEOUT_S = 30.0
_BOMBS_PER_TURN = 8


def attack(bootstrap: str, rng: random.Random) -> None:
    """Send requests until the process is killed."""
    bombs = made_bombs()
    large: list[LargeRequest] = list(large_requests().values())
    while True:
        # The broker may close the connection or be killed at any time.
        with contextlib.suppress(OSError, struct.error):
            _send_bombs(bootstrap, rng.sample(bombs, _BOMBS_PER_TURN))
        with contextlib.suppress(OSError, struct.error):
            send(bootstrap, rng.choice(large))


def _send_bombs(bootstrap: str, bombs: list[bytes]) -> None:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), _TIMEOUT_S) as connection:
        stream = connection.makefile("rb")
        for number, bomb in enumerate(bombs):
            partition = PartitionProduceData(index=0, records=bomb)
            topic = TopicProduceData(name=TOPIC, partition_data=[partition])
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            chunks = encode_request(number, "hostile", request, 9)
            connection.sendall(b"".join(bytes(chunk) for chunk in chunks))
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)


if __name__ == "__main__":
    attack(sys.argv[1], random.Random(int(sys.argv[2])))
