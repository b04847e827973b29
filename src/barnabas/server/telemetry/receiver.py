"""Where pushed client metrics go (Kafka: ClientTelemetryReceiver plug-ins).

Kafka serves the telemetry APIs only where a plug-in takes the metrics. Ours is one that writes them
to the log, a JSON object per push, from which any log pipeline takes them; it is off unless
`barnabas.client.telemetry` says `log`.
"""

from __future__ import annotations

import json
import logging
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from barnabas.server.telemetry.otlp import read_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("barnabas.client_metrics")

# Points of one push that are written; the rest is counted only. Reading one takes about 10 us.
_POINTS_MAX = 2_000


class MetricsReceiver(Protocol):
    """Takes what a client has pushed."""

    def receive(self, client: Mapping[str, str], terminating: bool, metrics: bytes) -> None:
        """Take a push.

        Args:
            client: who pushes, by Kafka's names of selectors.
            terminating: whether it is the client's last one.
            metrics: MetricsData, not compressed.

        Raises:
            OtlpError: it is no MetricsData.
        """
        ...


class LoggingReceiver:
    """Writes each push to the logger `barnabas.client_metrics` at INFO."""

    __slots__ = ()

    def __init__(self) -> None:
        if _log.level == logging.NOTSET:
            # The log of the broker begins at WARN: what was asked for shows nevertheless.
            _log.setLevel(logging.INFO)

    def receive(self, client: Mapping[str, str], terminating: bool, metrics: bytes) -> None:
        """One line, a JSON object."""
        points = read_metrics(metrics)
        written = [
            {"name": point.name, "kind": point.kind, "value": point.value, "labels": point.labels}
            for point in islice(points, _POINTS_MAX)
        ]
        left_out = sum(1 for _ in points)
        text = json.dumps(
            {
                **client,
                "terminating": terminating,
                "metrics": written,
                "metrics_left_out": left_out,
            }
        )
        _log.info("%s", text)
