"""The send time of a delayed response is measured, and is part of the total time."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from barnabas.metrics import names
from barnabas.protocol.codec import encode_request
from barnabas.server.metrics.node_metrics import request_families
from unit.runtime.streams import Recorder
from unit.server.process.drain import long_fetch
from unit.server.simulated_broker import HOST, PORT, SimulatedBroker

if TYPE_CHECKING:
    from barnabas.protocol.messages.fetch import FetchRequest

# More than the kernels of both ends hold.
VALUE = bytes(900_000)
COUNT = 4


def fetch_frame(request: FetchRequest) -> bytes:
    return b"".join(bytes(chunk) for chunk in encode_request(1, "slow", request, 12))


def fetch_times(broker: SimulatedBroker) -> dict[str, tuple[int, float]]:
    """Count and sum of each time of Fetch."""
    found = {}
    for family in request_families(broker.node.shared.statistics, 0.0):
        for tags, value in family.samples:
            if ("request", "Fetch") in tags and family.name.endswith("TimeMs"):
                found[family.name] = (value.number, value.total)
    return found


@pytest.mark.parametrize("is_parked", [False, True], ids=["at once", "parked"])
def test_the_send_time_is_part_of_the_total_time(is_parked: bool) -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    reader = Recorder()
    sockets = broker.world.host("reader").runtime.sockets
    sockets.connect(HOST, PORT, reader, pytest.fail, 1000)
    assert broker.world.run_until(lambda: reader.stream is not None)
    assert reader.stream is not None
    reader.stream.pause_reading()
    request = long_fetch("t")
    request.max_bytes = request.topics[0].partitions[0].partition_max_bytes = 1 << 23
    if is_parked:
        request.min_bytes = COUNT * len(VALUE)
        reader.stream.write([fetch_frame(request)])
        broker.world.run_for(100)
    for _ in range(COUNT):
        assert broker.produce("t", VALUE).error_code == 0
    if not is_parked:
        reader.stream.write([fetch_frame(request)])
    broker.world.run_for(700)
    assert fetch_times(broker)[names.RESPONSE_SEND_TIME] == (1, 0.0)
    before = fetch_times(broker)[names.REQUEST_TOTAL_TIME]
    reader.stream.resume_reading()
    broker.world.run_for(5_000)
    (size,) = struct.unpack_from(">i", reader.data)
    assert len(reader.data) == 4 + size > COUNT * len(VALUE)
    times = fetch_times(broker)
    count, send_ms = times[names.RESPONSE_SEND_TIME]
    assert (count, send_ms >= 600) == (1, True)
    assert times[names.REQUEST_TOTAL_TIME] == (1, pytest.approx(before[1] + send_ms))
    assert times[names.REQUEST_LOCAL_TIME][0] == times[names.REQUEST_REMOTE_TIME][0] == 1


def test_the_times_of_a_request_begin_after_the_response_to_the_previous_one() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    reader = Recorder()
    sockets = broker.world.host("reader").runtime.sockets
    sockets.connect(HOST, PORT, reader, pytest.fail, 1000)
    assert broker.world.run_until(lambda: reader.stream is not None)
    assert reader.stream is not None
    first, second = long_fetch("t"), long_fetch("t")
    first.max_wait_ms, second.max_wait_ms = 500, 0
    reader.stream.write([fetch_frame(first), fetch_frame(second)])
    broker.world.run_for(1_000)
    times = fetch_times(broker)
    assert times[names.REQUEST_QUEUE_TIME] == (2, pytest.approx(0, abs=10))
    assert times[names.RESPONSE_QUEUE_TIME] == (2, 0.0)
    assert times[names.REQUEST_TOTAL_TIME] == (2, pytest.approx(500, abs=20))
    assert times[names.RESPONSE_SEND_TIME] == (2, 0.0)
