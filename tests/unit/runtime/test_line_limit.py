"""Log lines that clients without credentials cause are limited."""

from __future__ import annotations

import logging

import pytest

from barnabas.runtime.line_limit import LINES_MAX, PERIOD_MS, REASONS_MAX, LineLimit
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient


class SteppedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms


def limit(clock: SteppedClock) -> LineLimit:
    return LineLimit(clock, logging.getLogger(__name__), "Failures")  # type: ignore[arg-type]


def test_each_reason_has_its_lines_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SteppedClock()
    limited = limit(clock)
    assert [limited.allows("one") for _ in range(LINES_MAX + 3)].count(True) == LINES_MAX
    assert limited.allows("another")
    clock.now_ms = PERIOD_MS
    assert limited.allows("one")
    assert caplog.messages == ["Failures not logged: count=3"]


def test_the_number_of_reasons_is_limited() -> None:
    limited = limit(SteppedClock())
    allowed = [limited.allows(f"reason {number}") for number in range(10_000)]
    assert allowed.count(True) == REASONS_MAX


def test_malformed_frames_without_end_have_a_limited_number_of_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = SimulatedBroker()
    for number in range(LINES_MAX + 5):
        client = SimulatedClient(broker.world, f"client-{number}")
        stream = client.channel._stream
        assert stream is not None
        stream.write([b"\xff\xff\xff\xff"])
        assert broker.world.run_until(lambda: bool(client.closed))  # noqa: B023
    lines = [each for each in caplog.messages if each.startswith("Connection closed: client=")]
    assert len(lines) == LINES_MAX
