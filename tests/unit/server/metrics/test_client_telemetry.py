"""Client metrics (KIP-714): subscriptions, and acceptance of pushes."""

from __future__ import annotations

import json
import struct
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, strategies as st

from barnabas.metadata.configs_image import CLIENT_METRICS
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from barnabas.record.compression import GZIP, ZSTD, compress
from barnabas.server.metrics import client_telemetry
from barnabas.server.metrics.client_telemetry import LoggingReceiver
from barnabas.server.metrics.otlp import (
    POINT_BYTES_MAX,
    MetricPoint,
    MetricsReader,
    OtlpError,
)
from steps import Loop, counted, finish
from unit.server.dispatch.sent_requests import alter
from unit.server.simulated_broker import SimulatedBroker

NOBODY = bytes(16)


def varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def part(number: int, payload: bytes) -> bytes:
    """A field that holds bytes."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def label(key: str, value: str) -> bytes:
    return part(1, key.encode()) + part(2, part(1, value.encode()))


POINT = double(4, 1.5) + part(7, label("topic", "t"))
WHOLE = varint(6 << 3 | 1) + struct.pack("<q", -7)
HISTOGRAM = varint(4 << 3 | 1) + struct.pack("<Q", 3) + double(5, 4.5)
METRICS = part(
    1,
    part(1, b"")
    + part(
        2,
        part(2, part(1, b"a.gauge") + part(5, part(1, POINT)))
        + part(2, part(1, b"a.sum") + part(7, part(1, WHOLE)))
        + part(2, part(1, b"a.histogram") + part(9, part(1, HISTOGRAM))),
    ),
)


def metric(content: bytes) -> bytes:
    """MetricsData with one metric."""
    return part(1, part(2, part(2, content)))


def points(data: bytes) -> list[MetricPoint]:
    return [point for point in MetricsReader().points(data) if point is not None]


def test_points_of_all_kinds_are_read() -> None:
    assert points(METRICS) == [
        MetricPoint("a.gauge", "gauge", 1.5, {"topic": "t"}),
        MetricPoint("a.sum", "sum", -7, {}),
        MetricPoint("a.histogram", "histogram", {"count": 3, "sum": 4.5}, {}),
    ]


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    try:
        points(data)
    except OtlpError:
        return


# Messages of about a megabyte at each depth: unknown fields, empty messages, and data points.
UNKNOWN = b"\x78\0"
HOSTILE = {
    "unknown fields": UNKNOWN * 500_000,
    "resources": part(1, b"") * 500_000,
    "unknown fields of a resource": part(1, UNKNOWN * 500_000),
    "scopes": part(1, part(2, b"") * 500_000),
    "metrics": part(1, part(2, part(2, b"") * 500_000)),
    "unknown fields of a metric": metric(UNKNOWN * 500_000),
    "names": metric(part(1, b"") * 500_000),
    "data": metric(part(5, b"") * 500_000),
    "data points": metric(part(5, part(1, b"") * 500_000)),
    "unknown fields of a data point": metric(part(5, part(1, UNKNOWN * 500_000))),
    "large data points": metric(part(5, part(1, UNKNOWN * (POINT_BYTES_MAX // 2)) * 250)),
    "labels": metric(part(5, part(1, part(7, part(1, b"") * 2_000) * 1) * 250)),
    "values of labels": metric(part(5, part(1, part(7, part(2, UNKNOWN * 2_000))) * 250)),
    "a long name": metric(part(1, b"\0" * 900_000) + part(5, part(1, POINT) * 4_000)),
    "long labels": metric(part(5, part(1, part(7, label("k" * 1_000, "\0" * 3_000))) * 250)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_each_step_visits_a_limited_number_of_fields(data: bytes) -> None:
    reader, before = MetricsReader(), 0
    for _ in chain(reader.points(data), [None]):
        assert reader.visits - before <= POINT_BYTES_MAX
        before = reader.visits


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_the_work_and_the_line_of_a_push_are_limited(
    data: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[MetricsReader] = []

    class Recorded(MetricsReader):
        def __init__(self) -> None:
            super().__init__()
            readers.append(self)

    monkeypatch.setattr(client_telemetry, "MetricsReader", Recorded)
    with caplog.at_level("INFO", "barnabas.client_metrics"):
        _, steps = counted(LoggingReceiver(Loop()).receive({}, False, data))
    (reader,) = readers
    assert reader.visits <= client_telemetry.VISITS_MAX + POINT_BYTES_MAX
    # A step goes on to the next step's end, and then to the end of a data point.
    assert steps >= reader.visits // (2 * POINT_BYTES_MAX)
    (record,) = caplog.records
    # JSON writes a control character as six.
    assert (
        len(record.getMessage())
        <= 6 * client_telemetry.CHARACTERS_MAX + 200 * client_telemetry.POINTS_MAX
    )


def test_pushes_of_all_clients_share_a_rate_of_work(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    logging_receiver = LoggingReceiver(loop)
    push = metric(part(1, b"name") + part(5, part(1, POINT) * 10_000))
    with caplog.at_level("INFO", "barnabas.client_metrics"):
        for client in range(1_000):
            finish(logging_receiver.receive({"client_id": f"{client}"}, False, push))
            loop.now_ms += 10
        logged = [json.loads(record.getMessage()) for record in caplog.records]
        written = sum(len(record.getMessage()) for record in caplog.records)
        loop.now_ms += 20_000
        finish(logging_receiver.receive({}, False, METRICS))
    # One push may exceed the limit.
    assert written <= client_telemetry.RATE_MAX * 10 + 200 * client_telemetry.POINTS_MAX
    left = 1_000 - len(logged) - sum(each["unlogged_pushes"] for each in logged)
    last = json.loads(caplog.records[-1].getMessage())
    assert last["unlogged_pushes"] == left > 0
    assert (logged[0]["is_complete"], last["is_complete"]) == (False, True)
    assert len(logged[0]["metrics"]) <= client_telemetry.POINTS_MAX


@pytest.fixture
def broker() -> SimulatedBroker:
    broker = SimulatedBroker(barnabas_client_telemetry="log", telemetry_max_bytes="1000")
    changes = (("metrics", "a.,b."), ("interval.ms", "1000"), ("match", "client_id=cli.*"))
    for key, value in changes:
        assert alter(broker, CLIENT_METRICS, "s", key, value) == ErrorCode.NONE
    return broker


def get(broker: SimulatedBroker, instance_id: bytes = NOBODY) -> Any:
    return broker.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(
    broker: SimulatedBroker,
    instance_id: bytes,
    subscription_id: int,
    metrics: bytes = METRICS,
    compression: int = 0,
    *,
    terminating: bool = False,
) -> ErrorCode:
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        terminating=terminating,
        compression_type=compression,
        metrics=metrics,
    )
    return ErrorCode(broker.ask(request, 0).error_code)


def test_a_client_gets_an_id_and_the_metrics_of_matching_subscriptions(
    broker: SimulatedBroker,
) -> None:
    found = get(broker)
    assert found.error_code == ErrorCode.NONE
    assert found.client_instance_id != NOBODY
    assert found.requested_metrics == ["a.", "b."]
    assert (found.push_interval_ms, found.telemetry_max_bytes) == (1000, 1000)
    assert found.accepted_compression_types == [4, 3, 1, 2]
    assert found.delta_temporality


def test_clients_without_a_matching_subscription_get_no_metrics(broker: SimulatedBroker) -> None:
    assert alter(broker, CLIENT_METRICS, "s", "match", "client_id=other") == ErrorCode.NONE
    found = get(broker)
    assert (found.requested_metrics, found.push_interval_ms) == ([], 300_000)


def test_a_subscription_to_all_metrics_includes_all_others(broker: SimulatedBroker) -> None:
    assert alter(broker, CLIENT_METRICS, "all", "metrics", "*") == ErrorCode.NONE
    assert get(broker).requested_metrics == ["*"]


def test_pushes_are_written_to_the_log(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    found = get(broker)
    with caplog.at_level("INFO", "barnabas.client_metrics"):
        packed = bytes(compress(ZSTD, METRICS))
        assert push(broker, found.client_instance_id, found.subscription_id, packed, ZSTD) == (
            ErrorCode.NONE
        )
    (record,) = caplog.records
    written = json.loads(record.getMessage())
    assert written["client_id"] == "client"
    assert [each["name"] for each in written["metrics"]] == ["a.gauge", "a.sum", "a.histogram"]
    assert written["metrics"][0]["labels"] == {"topic": "t"}


def test_a_push_waits_for_its_interval(broker: SimulatedBroker) -> None:
    found = get(broker)
    who, what = found.client_instance_id, found.subscription_id
    assert push(broker, who, what) == ErrorCode.NONE
    assert push(broker, who, what) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert get(broker, who).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.world.run_for(1000)
    assert push(broker, who, what) == ErrorCode.NONE


def test_an_unknown_subscription_is_an_error_and_may_be_requested_immediately(
    broker: SimulatedBroker,
) -> None:
    found = get(broker)
    who = found.client_instance_id
    assert push(broker, who, found.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert get(broker, who).subscription_id == found.subscription_id


def test_a_changed_subscription_has_another_id(broker: SimulatedBroker) -> None:
    found = get(broker)
    assert alter(broker, CLIENT_METRICS, "s", "metrics", "c.") == ErrorCode.NONE
    who = found.client_instance_id
    assert push(broker, who, found.subscription_id) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = get(broker, who)
    assert again.requested_metrics == ["c."]
    assert push(broker, who, again.subscription_id) == ErrorCode.NONE


def test_a_push_after_the_terminating_push_is_refused(broker: SimulatedBroker) -> None:
    found = get(broker)
    who, what = found.client_instance_id, found.subscription_id
    assert push(broker, who, what) == ErrorCode.NONE
    assert push(broker, who, what, terminating=True) == ErrorCode.NONE
    assert push(broker, who, what, terminating=True) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("metrics", "compression", "error"),
    [
        (b"\xff\xff", 0, ErrorCode.INVALID_RECORD),
        (METRICS, GZIP, ErrorCode.INVALID_RECORD),
        (METRICS, 9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(1001), 0, ErrorCode.TELEMETRY_TOO_LARGE),
        (bytes(compress(ZSTD, bytes(100_000))), ZSTD, ErrorCode.INVALID_RECORD),
        (b"", 0, ErrorCode.NONE),
    ],
)
def test_invalid_pushes_are_refused(
    broker: SimulatedBroker, metrics: bytes, compression: int, error: ErrorCode
) -> None:
    found = get(broker)
    assert (
        push(broker, found.client_instance_id, found.subscription_id, metrics, compression) == error
    )


def test_a_client_without_an_id_cannot_push(broker: SimulatedBroker) -> None:
    assert push(broker, NOBODY, 1) == ErrorCode.INVALID_REQUEST


def served(broker: SimulatedBroker) -> set[int]:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    return {each.api_key for each in broker.ask(request, 3).api_keys}


def test_telemetry_is_served_only_if_a_receiver_is_configured(broker: SimulatedBroker) -> None:
    apis = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert apis <= served(broker)
    assert not apis & served(SimulatedBroker())
