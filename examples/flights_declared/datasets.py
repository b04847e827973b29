"""The definitions of a pipeline: departures from New York, with the weather.

    topic flights ── departures ──┬── Delta table lake/departures
                                  ├── topic alerts
                                  └──┐
    topic weather ── weather ────────┴── visibility
    topic flights ── hours ── Delta table lake/hours

Copy this file to `transformations/` of a project that `barnabas pipeline init` wrote.
"""

import os
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as f

from barnabas.spark.pipelines.expectations import expect

spark = SparkSession.active()
BROKERS = {"kafka.bootstrap.servers": os.environ.get("BARNABAS_BOOTSTRAP", "127.0.0.1:9092")}
# Beside the project's storage.
LAKE = Path(__file__).parents[1] / "lake"

FLIGHT = (
    "time timestamp, origin string, carrier string, flight int, tailnum string, dest string, "
    "dep_delay double, distance int"
)
WEATHER = "time timestamp, origin string, temp double, wind_speed double, visib double"


def read_topic(name: str, schema: str) -> DataFrame:
    """Return the JSON values of a topic as columns, and the time of each record as `known`."""
    records = (
        spark.readStream.format("barnabas")
        .options(**BROKERS)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40_000)
        .load()
    )
    row = f.from_json(f.col("value").cast("string"), schema)
    return records.select(row.alias("row"), f.col("timestamp").alias("known")).select(
        "row.*", "known"
    )


@dp.table
def departures() -> DataFrame:
    """Each departure, once."""
    rows = read_topic("flights", FLIGHT)
    rows = expect(rows, "is a departure", f.col("flight").isNotNull(), otherwise="drop")
    return expect(rows, "has a plane", f.col("tailnum").isNotNull(), otherwise="keep")


@dp.table
def weather() -> DataFrame:
    """The weather at each airport in each hour."""
    rows = read_topic("weather", WEATHER)
    return expect(rows, "has a visibility", f.col("visib").isNotNull(), otherwise="drop")


@dp.materialized_view
def visibility() -> DataFrame:
    """Departures by visibility in miles: how many there were, and how many were late."""
    seen = spark.read.table("weather").groupBy("origin", f.col("time").alias("hour"))
    hours = seen.agg(f.floor(f.min("visib")).alias("miles"))
    flights = spark.read.table("departures").withColumn("hour", f.date_trunc("hour", "time"))
    late = f.count_if(f.coalesce(f.col("dep_delay") > 15, f.lit(True)))
    return (
        flights.join(hours, ["origin", "hour"])
        .groupBy("miles")
        .agg(f.count("*").alias("flights"), late.alias("late"))
    )


dp.create_sink("lake_departures", "barnabas_delta", {"path": str(LAKE / "departures")})


@dp.append_flow(target="lake_departures", name="all")
def all_departures() -> DataFrame:
    """The departures for readers outside of Spark."""
    return spark.readStream.table("departures")


dp.create_sink("lake_hours", "barnabas_delta", {"path": str(LAKE / "hours")})


@dp.append_flow(target="lake_hours", name="hours")
def hours() -> DataFrame:
    """The departures of each airport in each hour, when four days have passed."""
    window = f.window("time", "1 hour")
    return (
        read_topic("flights", FLIGHT)
        .withWatermark("time", "4 days")
        .groupBy(window, "origin")
        .agg(
            f.count("flight").alias("flights"),
            f.count_if(f.col("dep_delay") > 15).alias("late"),
            f.max("dep_delay").alias("longest_delay"),
        )
        .selectExpr("window.start AS hour", "origin", "flights", "late", "longest_delay")
    )


dp.create_sink("alerts", "barnabas", BROKERS | {"topic": "alerts"})


@dp.append_flow(target="alerts", name="long_delays")
def long_delays() -> DataFrame:
    """A record for each departure that is three hours late or more."""
    key = f.concat_ws(" ", f.concat("carrier", "flight"), f.date_format("time", "yyyy-MM-dd HH:mm"))
    late = spark.readStream.table("departures").where("dep_delay >= 180")
    return late.select(
        key.alias("key"), f.to_json(f.struct("origin", "dest", "dep_delay")).alias("value")
    )
