"""The Spark job: joins the departure and the arrival of each flight, in whatever order they come.

Spark drops rows behind the watermark in silence. So the watermark follows the network's clock, when
an event became known, and no row is behind it; the processor compares each flight with it, and what
comes too late goes to a topic of its own.

Run it with `python -m examples.late_events.job --bootstrap 127.0.0.1:9092 --output DIRECTORY`;
kill it whenever you like and start it again: each row is in its topic once.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

from barnabas.spark.session import spark_session
from examples.late_events import network

EVENT_SCHEMA = "flight string, kind string, time string, scheduled_ms bigint, known_ms bigint"
TIMES = "departure string, arrival string"
ROW_SCHEMA = f"topic string, flight string, outcome string, {TIMES}"
COLUMNS = ["topic", "flight", "outcome", "departure", "arrival"]
# Partitions are read side by side: one may be ahead of the others by a part of a batch.
CLOCK_SKEW = "1 day"
# About two days: with the skew less than `network.VERY_LATE_MS`.
EVENTS_PER_TRIGGER = 3_600
CLOSED_WATERMARK = "2014-01"
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class JoinLegs(StatefulProcessor):
    """Keeps the times of a flight until it is settled; a timer then says what is missing."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls it once per task."""
        self._handle = handle
        self._times = handle.getValueState("times", TIMES)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Yield the leg when its second time comes, and each event that is too late."""
        flight = key[0]
        if flight == network.CLOSING:
            return
        events = pd.concat(rows)
        deadline_ms = int(events["scheduled_ms"].iloc[0]) + network.SETTLED_MS
        pairs = list(zip(events["kind"], events["time"], strict=True))
        if deadline_ms <= timerValues.getCurrentWatermarkInMs():
            late = [(network.TOO_LATE, flight, "too late", *times_of([pair])) for pair in pairs]
            yield pd.DataFrame(late, columns=COLUMNS)
            return
        before = self._times.get()
        times = times_of(pairs, before)
        if before is None:
            self._handle.registerTimer(deadline_ms)
        if times != before:
            self._times.update(times)
            if all(times):
                yield leg(flight, "landed", times)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: Any,  # noqa: N803 - Spark's name
        expiredTimerInfo: Any,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Yield the leg if a time is missing, and forget the flight."""
        times = self._times.get()
        self._times.clear()
        assert times is not None, f"{key[0]} has a timer and no state"
        if not all(times):
            yield leg(key[0], "missing arrival" if times[0] else "missing departure", times)


def times_of(
    pairs: list[tuple[str, str]], before: tuple[Any, ...] | None = None
) -> tuple[str | None, ...]:
    """Return the times of departure and arrival, with those that are known already."""
    times = dict(zip(("departure", "arrival"), before or (None, None), strict=True)) | dict(pairs)
    return tuple(times.values())


def leg(flight: str, outcome: str, times: tuple[str | None, ...]) -> pd.DataFrame:
    """Return the one row of a flight."""
    return pd.DataFrame([(network.LEGS, flight, outcome, *times)], columns=COLUMNS)


def session() -> SparkSession:
    """Return a local session on two cores; stateful Python needs the RocksDB state store."""
    state = "spark.sql.streaming.stateStore"
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        f"{state}.providerClass": STATE_STORE,
        f"{state}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.log.level": "ERROR",
    }
    return spark_session("late-events", "local[2]", settings)


def legs(records: DataFrame) -> DataFrame:
    """Return the rows for the two topics: topic, key and value."""
    event = f.from_json(f.col("value").cast("string"), EVENT_SCHEMA)
    events = (
        records.select(event.alias("event"))
        .select("event.*", f.expr("timestamp_millis(event.known_ms)").alias("known"))
        .withWatermark("known", CLOCK_SKEW)
    )
    rows = events.groupBy("flight").transformWithStateInPandas(
        JoinLegs(), outputStructType=ROW_SCHEMA, outputMode="append", timeMode="eventTime"
    )
    value = f.to_json(f.struct("outcome", "departure", "arrival"))
    return rows.select("topic", f.col("flight").alias("key"), value.alias("value"))


def start(
    spark: SparkSession, bootstrap: str, output: Path, limit: int = EVENTS_PER_TRIGGER
) -> StreamingQuery:
    """Start the query; `limit` bounds the events of a batch."""
    records = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", limit)
        .load()
    )
    return (
        legs(records)
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(output / "checkpoint"))
        .start()
    )


def batches(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """Yield the progress of each batch, up to the one in which all timers have fired.

    Raises: StreamingQueryException if the query fails.
    """
    last, watermark = -1, ""
    while watermark < CLOSED_WATERMARK:
        query.awaitTermination(1)
        for batch in query.recentProgress:
            if batch["batchId"] <= last or "watermark" not in batch["eventTime"]:
                continue
            last, watermark = batch["batchId"], batch["eventTime"]["watermark"]
            ends = json.loads(batch["sources"][0]["endOffset"] or "{}")
            dropped = sum(each["numRowsDroppedByWatermark"] for each in batch["stateOperators"])
            yield {
                "batch": last,
                "events": sum(ends.get("events", {}).values()),
                "watermark": watermark,
                "dropped": dropped,
                "state": sum(each["numRowsTotal"] for each in batch["stateOperators"]),
            }


def main() -> None:
    """Command line: the address of a broker and where the checkpoint is kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of a broker")
    parser.add_argument("--output", type=Path, required=True, help="directory for the checkpoint")
    parser.add_argument("--limit", type=int, default=EVENTS_PER_TRIGGER, help="events of a batch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spark = session()
    query = start(spark, options.bootstrap, options.output.resolve(), options.limit)
    print("started", flush=True)
    for batch in batches(query):
        print(json.dumps(batch), flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
