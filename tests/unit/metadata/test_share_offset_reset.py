"""`share.auto.offset.reset`: strategies, durations as Java reads them, and refused texts."""

from __future__ import annotations

import pytest

from barnabas.metadata.group_configs import ShareOffsetReset, is_offset_reset


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("earliest", -2),
        ("latest", -1),
        ("by_duration:PT1S", 9_000),
        ("by_duration:pt0.5s", 9_500),
        ("by_duration:P1D", 10_000 - 86_400_000),
        ("by_duration:P1DT1H1M1.001S", 10_000 - 86_400_000 - 3_600_000 - 60_000 - 1_001),
        ("by_duration:PT1M-59S", 9_000),
        ("by_duration:-PT-1S", 9_000),
        ("by_duration:PT0S", 10_000),
    ],
)
def test_a_strategy_gives_a_timestamp(text: str, timestamp: int) -> None:
    assert ShareOffsetReset.parse(text).timestamp(10_000) == timestamp


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "Earliest",
        "",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:-PT1S",
        "by_duration:PT-1S",
        "by_duration:P1Y",
        "by_duration:1S",
        "by_duration:P" + "9" * 30 + "D",
        "BY_DURATION:PT1S",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    assert not is_offset_reset(text)
