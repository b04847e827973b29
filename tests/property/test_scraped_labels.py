"""Values that clients choose, such as client ids, cannot change other lines of a scrape."""

from __future__ import annotations

from hypothesis import example, given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.cli.load.metrics import broker_metrics, parse_metrics
from barnabas.metrics import names
from barnabas.metrics.metrics_listener import PIECE_SAMPLES, pieces
from barnabas.metrics.registry import MetricFamily

# More than one piece, since the second piece of a family is put together in another way.
COUNT = PIECE_SAMPLES + 1
METRICS = (names.CLIENT_REQUESTS, names.CLIENT_BYTES_IN, names.CLIENT_BYTES_OUT)


@given(st.text(max_size=20))
@example("a\r# b")
@example("a\u2028b")
@example("\x85# TYPE")
@example('a\\"b')
@example("a\nb")
@example('"} 1')
def test_any_client_id_is_one_value_of_a_scrape(name: str) -> None:
    ids = [f"{name}{number}" for number in range(COUNT)]
    samples = [
        ((("principal", "User:a"), ("client-id", each)), number) for number, each in enumerate(ids)
    ]
    text = b"".join(pieces(MetricFamily(metric, samples) for metric in METRICS)).decode()
    found = broker_metrics(parse_metrics(text)).clients
    wanted = dict(zip(ids, range(COUNT), strict=True))
    assert {key.client_id: each.requests for key, each in found.items()} == wanted
    (family, *_) = text_string_to_metric_families(text)
    assert {each.labels["client_id"]: each.value for each in family.samples} == wanted
