"""Reads whether a broker process held its event loop too long.

The broker counts turns of its loop over 100 ms, from the moment when it is ready. Judge by `cpu`:
it is CPU time of the loop's thread, which a machine that is busy elsewhere does not add to.

    settings = {"metrics.listener": "127.0.0.1:0"}
    with BrokerProcess(settings=settings) as broker:
        before = loop_turns(broker.metrics_address)
        ...
        assert loop_turns(broker.metrics_address).long_cpu_turns == before.long_cpu_turns

Without a metrics listener, `long_turns_in(broker.log())` returns the warnings of the log.
"""

from __future__ import annotations

import http.client
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

LOG_WORDS = "One turn of the event loop took too long"
# A limit for what hangs.
_SCRAPE_SECONDS = 120


class LoopTurns(NamedTuple):
    """What the broker has measured since it was ready."""

    long_turns: int
    long_cpu_turns: int
    longest_ms: float
    longest_cpu_ms: float


def metrics_text(metrics_address: str) -> str:
    """Return all metrics that the listener of a broker, "HOST:PORT", writes.

    Raises:
        OSError: there is no whole response.
    """
    connection = http.client.HTTPConnection(metrics_address, timeout=_SCRAPE_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except http.client.HTTPException as error:
        raise ConnectionResetError(f"{metrics_address}: {error}") from error
    finally:
        connection.close()


def loop_turns(metrics_address: str) -> LoopTurns:
    """Ask the metrics listener of a broker, "HOST:PORT".

    Raises:
        OSError: there is no whole response.
    """
    seen = {
        (sample.name, sample.labels.get("clock")): sample.value
        for family in text_string_to_metric_families(metrics_text(metrics_address))
        for sample in family.samples
        if sample.name.startswith("barnabas_loop_long")
    }
    return LoopTurns(
        long_turns=int(seen["barnabas_loop_long_turns_total", "wall"]),
        long_cpu_turns=int(seen["barnabas_loop_long_turns_total", "cpu"]),
        longest_ms=seen["barnabas_loop_longest_turn_seconds", "wall"] * 1000,
        longest_cpu_ms=seen["barnabas_loop_longest_turn_seconds", "cpu"] * 1000,
    )


def long_turns_in(log: str) -> list[str]:
    """The lines of a broker's log that tell of a turn over 100 ms of CPU time.

    Turns that are long by the wall clock alone are logged at level INFO, which is off by default.
    The log has at most one line a second.
    """
    return [line for line in log.splitlines() if LOG_WORDS in line and "INFO" not in line]
