"""`make bench`, first table: Barnabas compared with other brokers, with ratios and budgets.

Each broker runs every load several times, and deletes the records after each. The brokers take
turns in each load, so that noise affects all of them. The first round is a warm-up, in which Java
compiles its code, and does not count. The best figure of the other rounds is shown; a budget is met
if the worst of these rounds meets it. Client and broker share the machine's cores, so the processor
time of the broker is the most reliable figure.

The column *floor* has the processor time of bare loops that move the same bytes (`bench.floors`).

`--json FILE` stores the figures.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from bench import brokers, loads
from bench.figures import Figures, show
from bench.floors import FLOOR, Shape, produce_and_consume
from bench.report import installed, new_console, write_figures

if TYPE_CHECKING:
    from rich.console import Console

    from bench.brokers import Broker

GB = 1_000_000_000
ALL_BROKERS = "barnabas,tansu,kafka"


class Load:
    """Records of one size, produced and consumed."""

    def __init__(
        self, name: str, size: int, shape: Shape, share: float = 1.0, **config: object
    ) -> None:
        self.name = name
        self.size = size
        # The requests of librdkafka, for the floor.
        self._shape = shape
        # Fraction of the volume of a full load.
        self.share = share
        # librdkafka's settings for the producer, with "_" in place of ".".
        self.config = config

    def run(self, broker: Broker, volume: int) -> dict[str, float]:
        """Run one round, delete the topic, and return the figures by row."""
        total = int(volume * self.share) // self.size * self.size
        found: dict[str, float] = {}
        with loads.temporary_topic(broker, "load") as topic:
            produced = loads.produce(broker, topic, self.size, total, **self.config)
            consumed = loads.consume(broker, topic, self.size, total)
        for verb, figure in (("produce", produced), ("consume", consumed)):
            found[f"{verb}, {self.name}: CPU s/GB"] = figure.cpu_seconds_per_gb
            found[f"{verb}, {self.name}: MB/s"] = figure.mb_per_second
        return found

    def run_floor(self, volume: int) -> dict[str, float]:
        """Run bare loops with the same bytes, and return the figures by row."""
        produced, consumed = produce_and_consume(self._shape, int(volume * self.share))
        return {
            f"produce, {self.name}: CPU s/GB": produced,
            f"consume, {self.name}: CPU s/GB": consumed,
        }


# A record has 7 to 9 bytes besides its value.
LOADS = (
    Load("librdkafka defaults, 100 B", 100, Shape(580_000, 0.93)),
    Load("16 KiB batches, 100 B", 100, Shape(16_384, 0.93), 0.3, batch_size=16384),
    Load("1000 B", 1000, Shape(950_000, 0.99)),
)


def measure(running: list[Broker], volume: int, rounds: int, console: Console) -> Figures:
    """Run every load on every broker, in a warm-up round and `rounds` further ones."""
    figures = Figures()
    for broker in running:
        found = {"start to first answer, ms": broker.start_ms}
        figures.note(broker.name, found | {"resident memory idle, MB": broker.resident_mb()})
    for number in range(rounds + 1):
        counted = figures if number else Figures()
        title = f"round {number} of {rounds}" if number else "warm-up"
        for load in LOADS:
            for broker in running:
                console.print(f"  {title}: {broker.name}, {load.name}")
                counted.note(broker.name, load.run(broker, volume))
            counted.note(FLOOR, load.run_floor(volume))
        for broker in running:
            counted.note(broker.name, round_trip(broker))
        if number == 0:
            for broker in running:
                figures.note(
                    broker.name, {"resident memory after the load, MB": broker.resident_mb()}
                )
    return figures


def round_trip(broker: Broker) -> dict[str, float]:
    """Measure one client with one record per request and one request in flight."""
    with loads.temporary_topic(broker, "round-trip", 1) as topic:
        trip = loads.round_trip(broker, topic)
    return {
        "acks=1 round trip p50, µs": trip.p50,
        "acks=1 round trip p99, µs": trip.p99,
        "broker CPU of a round trip, µs": trip.cpu,
    }


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500, help="MB of values of a full load")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds after the warm-up")
    parser.add_argument("--brokers", default=ALL_BROKERS, help="names, the compared broker first")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console(170)
    names = installed(options.brokers, console)
    volume = options.mb * GB // 1000
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(brokers.running(name)) for name in names]
        figures = measure(running, volume, options.rounds, console)
    show(figures, [*names, FLOOR], console)
    write_figures(options.json, figures.rows)


if __name__ == "__main__":
    main()
