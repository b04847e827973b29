"""The pipeline: flights and weather topics in, a table of airport hours and an alerts topic out.

    flights ── parse ── join airlines ── hour windows per airport ──┐
                                                                    ├── join ── table ── alerts
    weather ── parse ─────────────────── hour windows per airport ──┘

Plain PySpark Structured Streaming: only `format("barnabas")` is ours, and Spark's own connector
does as well (`--format kafka --jars ...`, docs/spark.md). Run it with
`python -m examples.flights.pipeline --bootstrap 127.0.0.1:9092 --output ./demo-output`; kill it
whenever you like and start it again: the table holds every window once.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark.session import spark_session
from examples.flights import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FLIGHT_SCHEMA = (
    "time timestamp, origin string, carrier string, flight int, tailnum string, dest string, "
    "dep_delay double, distance int"
)
WEATHER_SCHEMA = (
    "time timestamp, origin string, temp double, wind_speed double, wind_gust double, "
    "precip double, visib double"
)
# The longest delay of the year is 21 h 41 min: a day of patience loses nothing.
LATENESS = "24 hours"
DELAYED_MINUTES = 15
# About the same span of time of both: the watermark is that of the slower topic.
FLIGHTS_PER_TRIGGER = 40_000
WEATHER_PER_TRIGGER = 4_000


@dataclass(frozen=True)
class Topics:
    """Where the topics are, and what reads and writes them."""

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


def session(jars: str = "") -> SparkSession:
    """A local session on two cores with few shuffle partitions: the data is small.

    Args:
        jars: of Spark's own connector, if that is to be used.
    """
    settings = {
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.log.level": "ERROR",
    }
    return spark_session("flights", "local[2]", settings)


def parsed(stream: DataFrame, schema: str) -> DataFrame:
    """The JSON values as columns, with the watermark on their event time."""
    from pyspark.sql import functions as f

    row = f.from_json(f.col("value").cast("string"), schema)
    return stream.select(row.alias("row")).select("row.*").withWatermark("time", LATENESS)


def hours_of_flights(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Departures of an airport in an hour: how many, how late, and whose the latest one was."""
    from pyspark.sql import functions as f

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
    from pyspark.sql import functions as f

    return weather.groupBy(f.window("time", "1 hour").alias("hour"), "origin").agg(
        *(f.max(name).alias(name) for name in ("temp", "wind_speed", "precip")),
        f.min("visib").alias("visib"),
    )


def airport_hours(flights: DataFrame, weather: DataFrame, airlines: DataFrame) -> DataFrame:
    """The table: a row for each airport and hour with departures, and its weather if known."""
    from pyspark.sql import functions as f

    joined = hours_of_flights(flights, airlines).join(
        hours_of_weather(weather), ["hour", "origin"], "leftOuter"
    )
    return joined.where("flights > 0").select(
        f.col("hour.start").alias("hour"), "origin", "flights", "delayed", "cancelled",
        "delay_minutes", "miles",
        f.col("latest.airline").alias("latest_airline"),
        f.col("latest.dep_delay").alias("latest_minutes"),
        "temp", "wind_speed", "precip", "visib",
    )  # fmt: skip


def alerts(table: DataFrame) -> DataFrame:
    """Hours in which half of ten or more departures were late or cancelled, as records."""
    from pyspark.sql import functions as f

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
    airlines = spark.createDataFrame(
        list(events.airlines().itertuples(index=False, name=None)), "carrier string, airline string"
    )
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


def start_alerts(
    spark: SparkSession, topics: Topics, output: Path, *, available_now: bool = False
) -> StreamingQuery:
    """The table's new rows to the alerts topic (at least once: the key names the hour)."""
    path = output / "airport_hours"
    schema = (
        "hour timestamp, origin string, flights bigint, delayed bigint, cancelled bigint, "
        "delay_minutes double, miles bigint, latest_airline string, latest_minutes double, "
        "temp double, wind_speed double, precip double, visib double"
    )
    trigger = {"availableNow": True} if available_now else {"processingTime": "1 second"}
    return (
        alerts(spark.readStream.schema(schema).parquet(str(path)))
        .writeStream.queryName("alerts")
        .format(topics.format)
        .option("kafka.bootstrap.servers", topics.bootstrap)
        .option("topic", "alerts")
        .option("checkpointLocation", str(output / "checkpoints" / "alerts"))
        .trigger(**trigger)
        .start()
    )


class TableProgress:
    """Follows the batches of the table's query: prints each, and knows when all is out."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._last_batch = -1
        self._closed_batches = 0

    @property
    def is_finished(self) -> bool:
        """Whether the watermark has passed every real hour, and what waited for that is out.

        One batch closes the windows; what had no weather leaves the join in that or the next.
        """
        return self._closed_batches >= 2

    def note(self) -> None:
        """Prints a batch that has ended since the last call as a JSON line."""
        progress = self._query.lastProgress
        if progress is None or progress["batchId"] == self._last_batch:
            return
        self._last_batch = progress["batchId"]
        watermark = progress.get("eventTime", {}).get("watermark", "")
        self._closed_batches += watermark >= events.CLOSED_WATERMARK
        ends = json.loads(progress["sources"][0]["endOffset"] or "{}")
        line = {
            "batch": self._last_batch,
            "rows": progress["numInputRows"],
            "flights": sum(ends.get("flights", {}).values()),
            "watermark": watermark,
            "late": sum(o["numRowsDroppedByWatermark"] for o in progress["stateOperators"]),
        }
        print(json.dumps(line), flush=True)


def run(spark: SparkSession, topics: Topics, output: Path) -> None:
    """Runs both queries until every hour is in the table and every alert in its topic."""
    table = start_table(spark, topics, output)
    alerted = None
    progress = TableProgress(table)
    while not progress.is_finished:
        if (error := table.exception() or (alerted and alerted.exception())) is not None:
            raise error
        # Without the manifest a reader would take unfinished files for the table.
        if alerted is None and (output / "airport_hours" / "_spark_metadata" / "0").exists():
            alerted = start_alerts(spark, topics, output)
        progress.note()
        time.sleep(0.2)
    table.stop()
    if alerted is not None:
        alerted.stop()
    # What the table still held for the alerts goes out in one last pass.
    start_alerts(spark, topics, output, available_now=True).awaitTermination()


def main() -> None:
    """Command line: the address of a broker and where table and checkpoints are kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="HOST:PORT of a broker")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="table, checkpoints"
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
