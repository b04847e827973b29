"""Values of auto.offset.reset."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.assignment.offset_reset import OffsetReset
from barnabas.client.errors import ClientConfigError
from barnabas.client.fetch.list_offsets import EARLIEST, LATEST

NOW_MS = 1_000_000_000_000


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("earliest", EARLIEST),
        ("LATEST", LATEST),
        ("by_duration:PT1S", NOW_MS - 1_000),
        ("by_duration:P1DT2H3M4.5S", NOW_MS - (((24 + 2) * 60 + 3) * 60_000 + 4_500)),
        ("by_duration:P36500000D", 0),
    ],
)
def test_a_strategy_gives_the_timestamp_to_look_up(text: str, asked: int) -> None:
    assert OffsetReset.parse(text).timestamp(NOW_MS) == asked


def test_reset_none_selects_no_offset() -> None:
    assert OffsetReset.parse("none").is_none


@pytest.mark.parametrize(
    "text", ["", "first", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h"]
)
def test_an_unknown_strategy_is_rejected_with_the_valid_ones(text: str) -> None:
    with pytest.raises(ClientConfigError, match="earliest, latest, none, by_duration"):
        OffsetReset.parse(text)
