"""Receivers of pushed client metrics (Kafka: ClientTelemetryReceiver plug-ins).

Kafka serves the telemetry APIs only if a plug-in receives the metrics. Barnabas has a receiver that
writes each push as a JSON object to the log, where log pipelines can read it. It is enabled by
`barnabas.client.telemetry=log`.
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

# Maximum number of logged points per push. Others are only counted. A point takes about 10 us.
_POINTS_MAX = 2_000


class MetricsReceiver(Protocol):
    """Receives the metrics that clients push."""

    def receive(self, client: Mapping[str, str], terminating: bool, metrics: bytes) -> None:
        """Process a push.

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

    __slots__ = ()

    def __init__(self) -> None:
        if _log.level == logging.NOTSET:
            # The log starts at WARN by default, but the operator has enabled this output.
            _log.setLevel(logging.INFO)

    def receive(self, client: Mapping[str, str], terminating: bool, metrics: bytes) -> None:
        """Log the push as a JSON object on one line."""
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
