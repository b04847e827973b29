"""The lag computed from a query's progress."""

from __future__ import annotations

from types import SimpleNamespace

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.lag import source_lags


def test_the_lag_is_the_latest_offset_minus_the_end_of_the_batch() -> None:
    source = {
        "latestOffset": '{"t": {"0": 10, "1": 4, "2": 6}}',
        "endOffset": {"t": {"0": 3, "1": 4}},
    }
    (lag,) = source_lags({"sources": [source]})
    assert lag.behind_latest[TopicPartition("t", 0)] == 7
    assert lag.min_offsets_behind_latest == 0
    assert lag.max_offsets_behind_latest == 7
    assert lag.avg_offsets_behind_latest == 13 / 3


def test_a_progress_of_a_listener_is_accepted() -> None:
    source = SimpleNamespace(latestOffset='{"t": {"0": 5}}', endOffset=None)
    (lag,) = source_lags(SimpleNamespace(sources=[source]))
    assert lag.max_offsets_behind_latest == 5


def test_a_query_without_progress_has_no_lag() -> None:
    assert source_lags(None) == []
    (lag,) = source_lags({"sources": [{"latestOffset": None, "endOffset": None}]})
    assert (lag.min_offsets_behind_latest, lag.avg_offsets_behind_latest) == (0, 0.0)
