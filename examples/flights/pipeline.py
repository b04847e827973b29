"""The pipeline: flights and weather topics in, a table of airport hours and an alerts topic out.

    flights ── parse ── join airlines ── hour windows per airport ──┐
                                                                    ├── join ── table ── alerts
    weather ── parse ─────────────────── hour windows per airport ──┘

Plain PySpark Structured Streaming: only `format("barnabas")` is ours, and Spark's own connector
does as well (`--format kafka --jars ...`, docs/spark.md). Run it with
`python -m examples.flights.pipeline --bootstrap 127.0.0.1:9092 --output demo-output/flights`; kill
it whenever you like and start it again: the table holds every window once.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as f
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryListener
from pyspark.sql.streaming.listener import QueryProgressEvent

from barnabas.spark.session import spark_session
from examples.flights import events

FLIGHT_SCHEMA = (
    "time timestamp, origin string, carrier string, flight int, tailnum string, dest string, "
    "dep_delay double, distance int"
)
WEATHER_SCHEMA = (
    "time timestamp, origin string, temp double, wind_speed double, wind_gust double, "
    "precip double, visib double"
)
# Columns of `airport_hours`: a file stream needs a schema.
TABLE_SCHEMA = (
    "hour timestamp, origin string, flights bigint, delayed bigint, cancelled bigint, "
    "delay_minutes double, miles bigint, latest_airline string, latest_minutes double, "
    "temp double, wind_speed double, precip double, visib double"
)
# The longest delay of the year is 21 h 41 min. The producer sends about two days at once, and a
# partition whose leader dies gets its part of them later than the others.
LATENESS = "4 days"
DELAYED_MINUTES = 15
# About the same span of time of both: the watermark is that of the slower topic.
FLIGHTS_PER_TRIGGER = 40_000
WEATHER_PER_TRIGGER = 4_000


@dataclass(frozen=True)
class Topics:
    """Location of the topics, and the connector."""

    bootstrap: str
    # "barnabas", or "kafka" for Spark's own connector.
    format: str = "barnabas"

    def read(self, spark: SparkSession, name: str, limit: int) -> DataFrame:
        """A topic as a stream; `limit` bounds the records of one trigger."""
        return (
            spark.readStream.format(self.format)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("groupIdPrefix", "flights-demo")
            .option("maxOffsetsPerTrigger", limit)
            .load()
        )

    def write(self, frame: DataFrame, name: str) -> DataStreamWriter:
        """A stream of keys and values into a topic, to be started."""
        return (
            frame.writeStream.format(self.format)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", name)
        )


def session(jars: str = "") -> SparkSession:
    """A local session on two cores with few shuffle partitions: the data is small.

    Args:
        jars: of Spark's own connector, comma separated, if that is to be used.
    """
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.log.level": "ERROR",
    }
    if jars:
        settings["spark.jars"] = jars
    return spark_session("flights", "local[2]", settings)


def parsed(stream: DataFrame, schema: str) -> DataFrame:
    """The JSON values as columns, with the watermark on their event time."""
    row = f.from_json(f.col("value").cast("string"), schema)
    return stream.select(row.alias("row")).select("row.*").withWatermark("time", LATENESS)


def hours_of_flights(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Departures of an airport per hour: their count, delays, and the latest departure."""
    latest = f.max(
        f.when(f.col("dep_delay").isNotNull(), f.struct("dep_delay", "airline", "flight"))
    )
    return (
        flights.join(f.broadcast(airlines), "carrier", "left")
        .groupBy(f.window("time", "1 hour").alias("hour"), "origin")
        .agg(
            f.count("flight").alias("flights"),
            f.count(f.when(f.col("dep_delay") > DELAYED_MINUTES, 1)).alias("delayed"),
            (f.count("flight") - f.count("dep_delay")).alias("cancelled"),
            f.sum("dep_delay").alias("delay_minutes"),
            f.sum("distance").alias("miles"),
            latest.alias("latest"),
        )
    )


def hours_of_weather(weather: DataFrame) -> DataFrame:
    """The weather at an airport in an hour."""
    return weather.groupBy(f.window("time", "1 hour").alias("hour"), "origin").agg(
        *(f.max(name).alias(name) for name in ("temp", "wind_speed", "precip")),
        f.min("visib").alias("visib"),
    )


def airport_hours(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    """The table: a row for each airport and hour with departures, and its weather if known."""
    joined = hours_of_flights(flights, airlines).join(
        hours_of_weather(weather), ["hour", "origin"], "leftOuter"
    )
    # A closing event is no flight.
    return joined.where("flights > 0").select(
        f.col("hour.start").alias("hour"), "origin", "flights", "delayed", "cancelled",
        "delay_minutes", "miles",
        f.col("latest.airline").alias("latest_airline"),
        f.col("latest.dep_delay").alias("latest_minutes"),
        "temp", "wind_speed", "precip", "visib",
    )  # fmt: skip


def alerts(table: DataFrame) -> DataFrame:
    """Hours in which half of ten or more departures were late or cancelled, as records."""
    bad = table.where("flights >= 10 and delayed + cancelled >= 0.5 * flights")
    key = f.concat_ws("@", "origin", f.date_format("hour", "yyyy-MM-dd'T'HH"))
    return bad.select(
        key.alias("key"),
        f.to_json(f.struct("hour", "origin", "flights", "delayed", "cancelled", "visib")).alias(
            "value"
        ),
    )


def start_table(spark: SparkSession, topics: Topics, output: Path) -> StreamingQuery:
    """Topics to the Parquet table; ends by itself only when it is stopped."""
    airlines = spark.createDataFrame(events.airlines().rename(columns={"name": "airline"}))
    flights = parsed(topics.read(spark, "flights", FLIGHTS_PER_TRIGGER), FLIGHT_SCHEMA)
    weather = parsed(topics.read(spark, "weather", WEATHER_PER_TRIGGER), WEATHER_SCHEMA)
    return (
        airport_hours(flights, weather, airlines)
        .writeStream.queryName("table")
        .format("parquet")
        .outputMode("append")
        .option("path", str(output / "airport_hours"))
        .option("checkpointLocation", str(output / "checkpoints" / "table"))
        .trigger(processingTime="1 second")
        .start()
    )


def start_alerts(spark: SparkSession, topics: Topics, output: Path) -> StreamingQuery:
    """The table's new rows to the alerts topic.

    Our sink writes them exactly once if the brokers have transactions; Spark's own connector at
    least once, and the key names the hour.
    """
    table = spark.readStream.schema(TABLE_SCHEMA).parquet(str(output / "airport_hours"))
    return (
        topics.write(alerts(table), "alerts")
        .queryName("alerts")
        .option("checkpointLocation", str(output / "checkpoints" / "alerts"))
        .trigger(processingTime="1 second")
        .start()
    )


class TableProgress(StreamingQueryListener):
    """Prints each batch of the table's query, and detects that the table is complete."""

    def __init__(self, query: StreamingQuery) -> None:
        super().__init__()
        self._run_id = query.runId
        self._closed_batches = 0
        # The watermark has passed every real hour, and all pending rows are in the table.
        self.finished = threading.Event()

    def onQueryStarted(self, event: object) -> None:  # noqa: N802
        """Spark requires it."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Prints a batch as a JSON line."""
        batch = event.progress
        if str(batch.runId) != self._run_id:
            return
        watermark = batch.eventTime.get("watermark", "")
        ends = [json.loads(source.endOffset or "{}") for source in batch.sources]
        line = {
            "batch": batch.batchId,
            "rows": batch.numInputRows,
            "flights": sum(sum(end.get("flights", {}).values()) for end in ends),
            "watermark": watermark,
            "late": sum(operator.numRowsDroppedByWatermark for operator in batch.stateOperators),
        }
        print(json.dumps(line), flush=True)
        # One batch closes the windows; rows without weather leave the join in it or in the next.
        self._closed_batches += watermark >= events.CLOSED_WATERMARK
        if self._closed_batches >= 2:
            self.finished.set()

    def onQueryTerminated(self, event: object) -> None:  # noqa: N802
        """Spark requires it."""


def run(spark: SparkSession, topics: Topics, output: Path) -> None:
    """Runs both queries until every hour is in the table and every alert in its topic."""
    table = start_table(spark, topics, output)
    progress = TableProgress(table)
    spark.streams.addListener(progress)
    try:
        # Without the manifest a reader would take unfinished files for the table.
        manifest = output / "airport_hours" / "_spark_metadata"
        wait_until(lambda: any(manifest.glob("[0-9]*")), table)
        alerted = start_alerts(spark, topics, output)
        wait_until(progress.finished.is_set, table, alerted)
        table.stop()
        # The last hours of the table are on their way.
        alerted.processAllAvailable()
        alerted.stop()
    finally:
        spark.streams.removeListener(progress)


def wait_until(condition: Callable[[], bool], *queries: StreamingQuery) -> None:
    """Waits while the queries run.

    Raises: StreamingQueryException as soon as one of them has failed.
    """
    while not condition():
        for query in queries:
            query.awaitTermination(0.2)


def main() -> None:
    """Command line: the address of a broker and where table and checkpoints are kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of a broker")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output/flights"), help="table, checkpoints"
    )
    parser.add_argument("--format", choices=("barnabas", "kafka"), default="barnabas")
    parser.add_argument("--jars", default="", help="of Spark's own connector, comma separated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spark = session(options.jars)
    run(spark, Topics(options.bootstrap, options.format), options.output.resolve())
    spark.stop()


if __name__ == "__main__":
    main()
