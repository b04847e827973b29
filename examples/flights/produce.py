"""Streams the events into the topics `flights` and `weather`, idempotently, at a steady rate.

`python -m examples.flights.produce --bootstrap 127.0.0.1:9092 --seconds 60`. A broker that dies
on the way is waited for; nothing is sent twice.

When the year is out, closing events go on, one a second: a restarted Spark query does not move its
watermark before every topic has brought something new, so a topic must not fall silent.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Iterator

from barnabas import Producer
from examples.flights import events

PIECES = 200
CLOSING_SECONDS = 600


def in_order() -> Iterator[tuple[str, events.Event]]:
    """Both topics' events, merged by the time at which they became known."""
    flights = (("flights", event) for event in events.flight_events())
    weather = (("weather", event) for event in events.weather_events())
    return heapq.merge(weather, flights, key=lambda pair: pair[1].timestamp_ms)


def produce(bootstrap: str, seconds: float) -> None:
    """Sends every event, spread over `seconds`, then closing events for some minutes.

    Raises: the client's delivery error for the first record that could not be delivered.
    """
    everything = list(in_order())
    with new_producer(bootstrap) as producer:
        send_steadily(producer, everything, seconds)
        print(f"{len(everything):,} events acknowledged", flush=True)
        for _ in range(CLOSING_SECONDS):
            time.sleep(1)
            send_closing(producer)


def new_producer(bootstrap: str) -> Producer:
    """Return a producer that waits for a broker that dies on the way."""
    return Producer(
        bootstrap,
        enable_idempotence=True,
        linger_ms=20,
        compression_type="lz4",
        delivery_timeout_ms=120_000,
    )


def send_steadily(
    producer: Producer, pairs: list[tuple[str, events.Event]], seconds: float
) -> None:
    """Sends some events, spread over `seconds`."""
    step = -(-len(pairs) // PIECES)
    started = time.monotonic()
    for piece in range(PIECES):
        send(producer, pairs[piece * step : (piece + 1) * step])
        due = started + seconds * (piece + 1) / PIECES
        time.sleep(max(0.0, due - time.monotonic()))


def send_closing(producer: Producer) -> None:
    """Sends the closing events of both topics once more."""
    closing = list(events.closing_events())
    send(producer, [(name, event) for name in ("flights", "weather") for event in closing])


def send(producer: Producer, pairs: list[tuple[str, events.Event]]) -> None:
    """Sends some events and waits until all are acknowledged."""
    for name, event in pairs:
        producer.send(
            name,
            event.value,
            key=event.key,
            partition=event.partition,
            timestamp_ms=event.timestamp_ms,
        )
    producer.flush()


def main() -> None:
    """Command line: the address of a broker and how long the year shall take."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of a broker")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the year takes")
    options = parser.parse_args()
    produce(options.bootstrap, options.seconds)


if __name__ == "__main__":
    main()
