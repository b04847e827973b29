"""The metrics of several processes as one text."""

from __future__ import annotations

from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.merged_metrics import ProcessMetricsText, merged_text

TEXT = (
    "# HELP requests_total Requests.\n"
    "# TYPE requests_total counter\n"
    "requests_total 3.0\n"
    'requests_total{client="a b{c\\"}"} 1.0\n'
    "# HELP up Whether it is up.\n"
    "# TYPE up gauge\n"
    "up{} 1.0\n"
)


def merged(*texts: str, piece: int = 7) -> str:
    """Return the merged texts of processes 1, 2, …, each received in small pieces."""
    processes = []
    for number, text in enumerate(texts, 1):
        process = ProcessMetricsText(f'broker="{number}"')
        data = text.encode()
        for at in range(0, len(data), piece):
            process.feed(data[at : at + piece])
        processes.append(process)
    return b"".join(merged_text(processes)).decode()


def test_samples_get_the_label_of_their_process_and_stay_in_one_group() -> None:
    assert merged(TEXT, TEXT).splitlines() == [
        "# HELP requests_total Requests.",
        "# TYPE requests_total counter",
        'requests_total{broker="1"} 3.0',
        'requests_total{broker="1",client="a b{c\\"}"} 1.0',
        'requests_total{broker="2"} 3.0',
        'requests_total{broker="2",client="a b{c\\"}"} 1.0',
        "# HELP up Whether it is up.",
        "# TYPE up gauge",
        'up{broker="1"} 1.0',
        'up{broker="2"} 1.0',
    ]


def test_a_metric_of_one_process_only_keeps_its_head() -> None:
    lines = merged("# HELP a A.\n# TYPE a gauge\na 1.0\n", TEXT).splitlines()
    assert lines[:3] == ["# HELP a A.", "# TYPE a gauge", 'a{broker="1"} 1.0']


@given(st.lists(st.floats(allow_nan=False), max_size=2000), st.integers(1, 5000))
def test_no_sample_is_lost_however_the_text_arrives(values: list[float], piece: int) -> None:
    samples = "".join(f'x{{n="{number}"}} {value}\n' for number, value in enumerate(values))
    text = f"# HELP x X.\n# TYPE x gauge\n{samples}"
    (family,) = text_string_to_metric_families(merged(text, text, piece=piece))
    assert [sample.value for sample in family.samples] == values * 2
