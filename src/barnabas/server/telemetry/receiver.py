"""Receivers of pushed client metrics (Kafka: ClientTelemetryReceiver plug-ins).

Kafka serves the telemetry APIs only if a plug-in receives the metrics. Barnabas has a receiver that
writes each push as a JSON object to the log, where log pipelines can read it. It is enabled by
`barnabas.client.telemetry=log`.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.server.quotas.rate import QuotaRate
from barnabas.server.telemetry.otlp import MetricsReader

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.runtime.clock import Clock
    from barnabas.server.telemetry.otlp import MetricPoint

_log = logging.getLogger("barnabas.client_metrics")

# Limits of one push: logged points, their characters, and visits of fields.
POINTS_MAX = 2_000
CHARACTERS_MAX = 128 << 10
VISITS_MAX = 100_000
# Visits per step: about a millisecond.
_VISITS_PER_STEP = 1_000
# Limit on the work for all clients: visits and logged characters per second, averaged over ten
# seconds.
RATE_MAX = 200_000
_WINDOW_MS = 1_000.0
_WINDOWS = 11


class MetricsReceiver(Protocol):
    """Receives the metrics that clients push."""

    def receive(
        self, client: Mapping[str, str], terminating: bool, metrics: bytes
    ) -> Generator[None, None, None]:
        """Process a push in steps.

        Args:
            client: attributes of the client, by Kafka's names of selectors.
            terminating: whether this is the last push of the client.
            metrics: an uncompressed MetricsData message.

        Raises:
            OtlpError: the message is malformed.
        """
        ...


class LoggingReceiver:
    """Writes each push to the logger `barnabas.client_metrics` at INFO."""

    __slots__ = ("_clock", "_rate", "_unlogged")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Recent work for all clients.
        self._rate = QuotaRate(_WINDOWS, _WINDOW_MS)
        # Number of pushes since the last line that were not logged because of the rate.
        self._unlogged = 0
        if _log.level == logging.NOTSET:
            # The log starts at WARN by default, but the operator has enabled this output.
            _log.setLevel(logging.INFO)

    def receive(
        self, client: Mapping[str, str], terminating: bool, metrics: bytes
    ) -> Generator[None, None, None]:
        """Log the push as a JSON object on one line, unless clients push too much."""
        if self._rate.throttle_ms(RATE_MAX, self._clock.monotonic_ms()) > 0:
            self._unlogged += 1
            return
        reader, line = MetricsReader(), _Line()
        next_step = _VISITS_PER_STEP
        try:
            for point in reader.points(metrics):
                if reader.visits > VISITS_MAX or not (point is None or line.add(point)):
                    line.is_complete = False
                    break
                if reader.visits >= next_step:
                    next_step = reader.visits + _VISITS_PER_STEP
                    yield
        finally:
            self._rate.record(reader.visits, self._clock.monotonic_ms())
        content: dict[str, Any] = {
            **client,
            "terminating": terminating,
            "metrics": line.points,
            "is_complete": line.is_complete,
            "unlogged_pushes": self._unlogged,
        }
        self._unlogged = 0
        text = json.dumps(content)
        self._rate.record(len(text), self._clock.monotonic_ms())
        _log.info("%s", text)


class _Line:
    """The points of one push that are logged."""

    __slots__ = ("_characters", "is_complete", "points")

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []
        self._characters = 0
        # Whether the push has no other points.
        self.is_complete = True

    def add(self, point: MetricPoint) -> bool:
        """Add a point, and return whether it fits."""
        self._characters += len(point.name) + sum(
            len(key) + len(text) for key, text in point.labels.items()
        )
        if len(self.points) >= POINTS_MAX or self._characters > CHARACTERS_MAX:
            return False
        self.points.append(
            {"name": point.name, "kind": point.kind, "value": point.value, "labels": point.labels}
        )
        return True
