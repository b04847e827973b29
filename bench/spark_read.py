"""A Spark batch read of a topic through `format("barnabas")`: records a second, warm."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from barnabas.spark.java import prepare_java

RUNS = 3


def spark_read(address: str, topic: str, records: int) -> dict[str, float]:
    """Reads `records` records into nothing and into Parquet; millions of records a second, warm."""
    prepare_java()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    frame = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", topic)
        .load()
    )
    if (found := frame.count()) != records:
        raise SystemExit(f"Spark read {found} records of {topic} instead of {records}")
    rates = {}
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as directory:
        for name in ("noop", "parquet"):
            for _ in range(RUNS):
                started = time.perf_counter()
                writer = frame.write.format(name).mode("overwrite")
                writer.save(str(Path(directory, "table"))) if name == "parquet" else writer.save()
                rates[name] = records / 1e6 / (time.perf_counter() - started)
    spark.stop()
    return rates
